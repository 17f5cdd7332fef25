# SPDX-License-Identifier: Apache-2.0
"""Refused mounts: one sentence, exit code 1, and everything is as it was."""
import os
import shutil
import subprocess

import pytest

from support import linux, rootless, treestate
from support.content import blob
from support.expect import opened, write_at
from support.server import MountFailed


@pytest.fixture(params=["ext4", "tmpfs"])
def full(request, stack):
    """An upper on a file system that can be made full, and how it is filled and freed."""
    if rootless.is_plain():
        pytest.skip("as a plain user: mounts file systems")
    place, image = stack._make("full"), stack.base / "full.img"
    if request.param == "tmpfs":
        linux.mount("tmpfs", place, "tmpfs", 0, "mode=0755,size=8m,nr_inodes=40")
    else:
        if os.geteuid() != 0 or rootless.is_inside() or not shutil.which("mkfs.ext4"):
            pytest.skip("takes root and mkfs.ext4")
        with open(image, "wb") as f:
            f.truncate(16 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        if subprocess.run(["mount", "-o", "loop", image, place]).returncode:
            pytest.skip("no loop devices")
    stack.upper, stack.work = place / "upper", place / "work"
    stack.upper.mkdir()
    stack.work.mkdir()
    yield lambda: _fill(place / "filling"), lambda: shutil.rmtree(place / "filling")
    if stack.is_mounted:
        stack.umount()
    linux.umount(place)


def _fill(path):
    """With files, each as large as there is room for, until there is no room for another, nor for its name."""
    path.mkdir()
    number = 0
    while True:
        try:
            with opened(path / str(number), os.O_CREAT | os.O_WRONLY) as fd:
                for size in (1 << 20, 4096, 1):
                    try:
                        while os.write(fd, b"x" * size):
                            pass
                    except OSError:
                        pass
        except OSError:
            return
        number += 1


def test_on_a_full_disk(stack, full):
    fill, free = full
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()
    write_at(m / "f", b"changed", 100_000)
    (m / "new").write_bytes(blob(5000))
    expected = {name: (m / name).read_bytes() for name in ("f", "new")}
    stack.umount()
    fill()
    before = treestate.take(stack.upper)
    for options in ((), ("volatile",), ("cow=copy",)):
        with pytest.raises(MountFailed) as caught:
            stack.mount(*options)
        said = caught.value.log.strip().splitlines()[-1]
        assert caught.value.code == 1 and f"cannot write to workdir {stack.work}: No space left on device; free some room" in said
        assert not os.path.ismount(stack.mnt)
        assert treestate.differences(before, treestate.take(stack.upper)) == []
    m = stack.mount("ro")
    assert {name: (m / name).read_bytes() for name in expected} == expected
    stack.umount()
    free()
    m = stack.mount()
    assert {name: (m / name).read_bytes() for name in expected} == expected
    write_at(m / "f", b"again", 200_000)


def _as_user(stack, veneer_bin, *options):
    run = stack.base / "run"
    if not run.exists():
        run.mkdir(mode=0o700)
    prefix = []
    if os.geteuid() == 0:
        for path in (run, stack.upper, stack.work):
            os.chown(path, 1000, 1000)
        prefix = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]
    return subprocess.run([*prefix, veneer_bin, "-o", ",".join([f"lowerdir={stack.lower()}", f"upperdir={stack.upper}", f"workdir={stack.work}",
                                                                *options]), stack.mnt],
                          capture_output=True, text=True, env={**os.environ, "VENEER_RUNTIME_DIR": str(run)}, timeout=60)


@pytest.mark.parametrize("options", [(), ("standalone",), ("share=pages",)], ids=" ".join)
@pytest.mark.parametrize("kind", ["of another user", "sticky", "not to be reached"])
def test_on_a_place_of_others(stack, veneer_bin, mode, kind, options):
    if mode == "userns" or (mode == "plain" and kind == "sticky"):
        pytest.skip("nobody else's directory is here")
    (stack.lower() / "f").write_text("f")
    stack.mnt.chmod(0o1777 if kind == "sticky" else 0o555)
    if kind == "not to be reached":
        hidden = stack._make("hidden")
        stack.mnt = hidden / "mnt"
        stack.mnt.mkdir()
        hidden.chmod(0o000)
    done = _as_user(stack, veneer_bin, *options)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"cannot mount at {stack.mnt}: " in done.stderr
    assert ("Permission denied" if kind == "not to be reached" else "that the user may write") in done.stderr
    assert os.listdir(stack.upper) == os.listdir(stack.work) == []
    if kind == "not to be reached":
        hidden.chmod(0o755)
