# SPDX-License-Identifier: Apache-2.0
"""An upper that is on a union file system itself, as a Podman in a container has it: it works, or the mount is refused by
a sentence that helps; never one that takes some changes and refuses others."""
import contextlib
import os
import shutil
import subprocess

import pytest

from support import layers, linux
from support.content import MIB, blob
from support.expect import names_in, write_at
from support.rootless import is_inside
from support.server import MountFailed, wait_until


def _fill(low):
    (low / "dir" / "sub").mkdir(parents=True)
    (low / "moved" / "sub").mkdir(parents=True)
    for name in ("f", "g", "renamed", "chmod", "dir/x", "dir/sub/y", "moved/z"):
        (low / name).write_bytes(blob(MIB, len(name)))


def _use(m):
    """Typical changes of a container to its files."""
    write_at(m / "f", b"new", 500_000)
    os.unlink(m / "g")
    os.rename(m / "renamed", m / "other-name")
    os.chmod(m / "chmod", 0o600)
    shutil.rmtree(m / "dir")
    (m / "dir").mkdir()
    (m / "dir" / "fresh").write_text("fresh")
    shutil.move(m / "moved", m / "elsewhere")
    with contextlib.suppress(OSError):
        os.symlink("f", m / "link")


def _check(m):
    data = bytearray(blob(MIB, 1))
    data[500_000:500_003] = b"new"
    assert (m / "f").read_bytes() == data
    assert names_in(m) == ["chmod", "dir", "elsewhere", "f", "link", "other-name"]
    assert names_in(m / "dir") == ["fresh"]
    assert (m / "other-name").read_bytes() == blob(MIB, 7)
    assert (m / "elsewhere" / "z").read_bytes() == blob(MIB, 7)
    assert os.stat(m / "chmod").st_mode & 0o777 == 0o600


@contextlib.contextmanager
def _outer(stack, kind):
    """A directory of a union file system."""
    base = stack.base / "outer"
    for name in ("lower", "upper", "work", "mnt"):
        (base / name).mkdir(parents=True)
    options = f"lowerdir={base / 'lower'},upperdir={base / 'upper'},workdir={base / 'work'}"
    process = None
    if kind == "overlayfs":
        try:
            linux.mount("overlay", str(base / "mnt"), "overlay", 0, options + (",userxattr" if is_inside() else ""))
        except OSError as e:
            pytest.skip(f"no overlayfs here: {e}")
    elif kind == "fuse-overlayfs":
        if not layers.has_fuse_overlayfs():
            pytest.skip("no fuse-overlayfs here")
        process = subprocess.Popen([layers.FUSE_OVERLAYFS, "-f", "-o", options, str(base / "mnt")], stdin=subprocess.DEVNULL)
        assert wait_until(lambda: os.path.ismount(base / "mnt"))
    else:
        process = subprocess.Popen([stack.program, "-f", "-o", options, str(base / "mnt")], stdin=subprocess.DEVNULL)
        assert wait_until(lambda: os.path.ismount(base / "mnt"))
    try:
        yield base / "mnt"
    finally:
        linux.umount(str(base / "mnt"), linux.MNT_DETACH)
        if process:
            process.wait(timeout=20)


def _move_upper(stack, outer):
    stack.upper, stack.work = outer / "upper", outer / "work"
    stack.upper.mkdir()
    stack.work.mkdir()


def test_upper_on_overlayfs_works(stack, veneer_bin):
    _fill(stack.lower())
    with _outer(stack, "overlayfs") as outer:
        _move_upper(stack, outer)
        m = stack.mount()
        _use(m)
        _check(m)
        _check(stack.remount())
        stack.umount()
        assert layers.check(veneer_bin, stack.upper, stack.lowers).returncode == 0
        assert layers.flatten(veneer_bin, stack.upper, stack.lowers).returncode == 0
        _check(stack.mount())
        stack.umount()


@pytest.mark.parametrize("kind", ["veneer", "fuse-overlayfs"])
def test_upper_on_a_fuse_union_is_refused_with_a_way_out(stack, kind):
    _fill(stack.lower())
    with _outer(stack, kind) as outer:
        _move_upper(stack, outer)
        with pytest.raises(MountFailed) as failed:
            stack.mount()
        assert failed.value.code == 1
        last = failed.value.log.strip().splitlines()[-1]
        assert str(stack.upper) in last and "put it and workdir on another one" in last
        # as lowers and read-only such directories are as good as any
        (stack.upper / "low").write_text("low")
        m = stack.second_mount([stack.upper, stack.lower()])
        assert (m.mnt / "low").read_text() == "low"
        m.stop()
