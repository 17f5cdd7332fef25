# SPDX-License-Identifier: Apache-2.0
"""The file system of an upper becomes read-only after an error of its disk, and then the server dies."""
import contextlib
import errno
import os
import pathlib
import shutil
import subprocess

import pytest

from support import linux
from support.content import BLOCK, MIB, blob
from support.expect import fails_with, opened, read_at, write_at
from support.places import Place
from support.server import wait_until

LIMIT_S = 90


@pytest.fixture
def failing(stack):
    """(Where an ext4 is mounted, a function that has it find an error, one that mends it and mounts it anew)."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4") or not shutil.which("e2fsck"):
        pytest.skip("takes root, mkfs.ext4 and e2fsck")
    image, top = stack.base / "image", stack.base / "failing"
    top.mkdir()
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)

    def mount():
        return subprocess.run(["mount", "-o", "loop,errors=remount-ro", image, top]).returncode

    def fail():
        device = top.stat().st_dev
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        knob = pathlib.Path("/sys/fs/ext4") / name / "trigger_fs_error"
        if not os.access(knob, os.W_OK):
            pytest.skip("the kernel lets nobody make an error")
        knob.write_text("on purpose")
        with fails_with(errno.EROFS):
            (top / "probe").mkdir()

    def mend():
        assert wait_until(lambda: subprocess.run(["umount", top], stderr=subprocess.DEVNULL).returncode == 0, LIMIT_S)
        assert subprocess.run(["e2fsck", "-fy", image], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode in (0, 1)
        assert mount() == 0

    if mount():
        pytest.skip("no loop devices")
    yield top, fail, mend
    for point in (stack.base / "p" / "mnt", top):
        with contextlib.suppress(OSError):
            linux.umount(point, linux.MNT_DETACH)


def _write(path):
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"x", 0)


def _shows(m, partial):
    assert read_at(m / "partial", 300_000, 0) == partial and read_at(m / "lower", MIB, 0) == blob(MIB, 2)
    assert (m / "own").read_bytes() == b"own" and os.readlink(m / "renamed") == "nowhere"
    assert sorted(os.listdir(m)) == ["d", "lower", "own", "partial", "renamed"]
    assert sorted(os.listdir(m / "d")) == ["below", "new"]


def _changes_nothing(m, fd):
    for change in (lambda: os.pwrite(fd, b"x", 0), lambda: _write(m / "own"), lambda: _write(m / "lower"),
                   lambda: (m / "new").mkdir(), lambda: (m / "new").touch(), lambda: os.symlink("x", m / "new"),
                   lambda: os.link(m / "own", m / "new"), lambda: os.unlink(m / "own"), lambda: os.unlink(m / "lower"),
                   lambda: os.rename(m / "own", m / "new"), lambda: os.rmdir(m / "d" / "new"),
                   lambda: os.chmod(m / "lower", 0o600), lambda: os.truncate(m / "partial", 0),
                   lambda: os.setxattr(m / "own", "user.x", b"x")):
        with fails_with(errno.EROFS):
            change()


@pytest.mark.parametrize("io", ["io=passthrough", "io=cached", "io=direct"])
def test_what_was_there_is_read_and_nothing_is_changed(stack, failing, shared, io):
    top, fail, mend = failing
    for name, content in (("partial", blob(300_000)), ("lower", blob(MIB, 2)), ("gone", b"")):
        (stack.lower() / name).write_bytes(content)
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "below").touch()
    stack.remember_lowers()
    place = Place(stack, "p")
    place.upper, place.work = top / "upper", top / "work"
    for path in (place.upper, place.work):
        path.mkdir()
    m = place.mount(stack, shared, io)
    write_at(m / "partial", b"new", 2 * BLOCK)
    partial = blob(300_000)[:2 * BLOCK] + b"new" + blob(300_000)[2 * BLOCK + 3:]
    (m / "own").write_bytes(b"own")
    os.unlink(m / "gone")
    os.symlink("nowhere", m / "link")
    os.rename(m / "link", m / "renamed")
    (m / "d" / "new").mkdir()
    with opened(m / "partial", os.O_RDWR) as fd:
        os.fsync(fd)
        subprocess.run(["sync", "-f", place.upper], check=True)
        fail()
        for _ in range(2):
            before = shared.log_size()
            shared.kill_server()
            _shows(m, partial)
            assert "has become read-only" in shared.log_from(before)
            _changes_nothing(m, fd)
            _shows(m, partial)
            assert os.pread(fd, 300_000, 0) == partial and shared.count() == 1
    linux.umount(m)
    assert wait_until(lambda: shared.count() == 0, LIMIT_S)
    mend()
    place.mount(stack, shared, io)
    _shows(m, partial)
    _write(m / "own")
    assert (m / "own").read_bytes() == b"xwn"
    linux.umount(m)
    assert wait_until(lambda: shared.count() == 0, LIMIT_S)
