# SPDX-License-Identifier: Apache-2.0
"""An upper whose last mount was detached while somebody used it: the next mount gets it, and nobody else's."""
import errno
import os

import pytest

from support import linux
from support.content import blob
from support.expect import fails_with, write_at
from support.server import Mount, MountFailed, wait_until


@pytest.fixture
def busy(stack):
    """A mount with an open file and one that was changed; detached by the test."""
    (stack.lower() / "f").write_bytes(blob(400_000))
    m = stack.mount()
    write_at(m / "f", b"before", 100_000)
    fd = os.open(m / "f", os.O_RDWR)
    yield fd
    os.close(fd)


def _again(stack, upper=None, work=None, name="again"):
    mnt = stack.base / name
    mnt.mkdir()
    return Mount(stack.program, stack.lowers, upper or stack.upper, work or stack.work, mnt, stack.base / f"{name}.log",
                 stack.watchdog)


def _want(*changes):
    data = bytearray(blob(400_000))
    for off, text in changes:
        data[off:off + len(text)] = text
    return data


def test_detached_but_busy_mount_makes_room(stack, busy):
    linux.umount(stack.mnt, linux.MNT_DETACH)
    os.pwrite(busy, b"after", 200_000)
    other = _again(stack)
    other.start()
    try:
        want = _want((100_000, b"before"), (200_000, b"after"))
        assert (other.mnt / "f").read_bytes() == want
        # the old one can neither write nor read
        with fails_with(errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ESTALE):
            os.pwrite(busy, b"too late", 0)
        assert stack.server.wait_for_end() == 0
        assert "wants its upper" in stack.log
        write_at(other.mnt / "f", b"new", 300_000)
        (other.mnt / "made").write_text("x")
        want[300_000:300_003] = b"new"
    finally:
        assert other.stop() is None
    assert (stack.mount() / "f").read_bytes() == want
    assert (stack.mnt / "made").read_text() == "x"


def test_three_in_a_row_each_busy(stack, busy):
    linux.umount(stack.mnt, linux.MNT_DETACH)
    mounts, descriptors = [], []
    try:
        for number in range(3):
            mount = _again(stack, name=f"n{number}")
            mounts.append(mount.start())
            write_at(mount.mnt / "f", b"%d" % number, 1000 * number)
            descriptors.append(os.open(mount.mnt / "f", os.O_RDWR))
            if number < 2:
                linux.umount(mount.mnt, linux.MNT_DETACH)
        want = _want((100_000, b"before"), (0, b"0"), (1000, b"1"), (2000, b"2"))
        assert (mounts[2].mnt / "f").read_bytes() == want
        assert stack.server.wait_for_end() == 0
        assert [mount.wait_for_end() for mount in mounts[:2]] == [0, 0]
    finally:
        for fd in descriptors:
            os.close(fd)
        for mount in mounts:
            assert mount.stop() is None


@pytest.mark.parametrize("how", ["mounted", "bound elsewhere", "covered"])
def test_mount_that_can_be_seen_is_not_given_up(stack, busy, how):
    elsewhere = stack.base / "elsewhere"
    elsewhere.mkdir()
    if how == "bound elsewhere":
        linux.mount(stack.mnt, elsewhere, None, linux.MS_BIND)
        linux.umount(stack.mnt, linux.MNT_DETACH)
    elif how == "covered":
        linux.mount("tmpfs", stack.mnt, "tmpfs", 0, "size=1m")
    other = _again(stack)
    try:
        with pytest.raises(MountFailed) as caught:
            other.start()
        assert caught.value.code == 1 and "in use" in caught.value.log
        os.pwrite(busy, b"still", 0)
        assert os.pread(busy, 5, 0) == b"still"
    finally:
        if how == "bound elsewhere":
            linux.umount(elsewhere, linux.MNT_DETACH)
        elif how == "covered":
            linux.umount(stack.mnt)
        other.kill()


def test_mount_of_another_upper_with_the_same_work_directory_is_left_alone(stack, busy):
    """Detached and busy it may be: nobody wants its upper."""
    upper = stack.base / "upper-b"
    upper.mkdir()
    one = _again(stack, upper=upper, name="b1").start()
    two = _again(stack, upper=upper, name="b2")
    linux.umount(stack.mnt, linux.MNT_DETACH)
    try:
        with pytest.raises(MountFailed):
            two.start()
        os.pwrite(busy, b"still", 0)
        assert os.pread(busy, 5, 0) == b"still"
        assert (one.mnt / "f").read_bytes() == blob(400_000)
    finally:
        two.kill()
        assert one.stop() is None


@pytest.mark.unshared("a killed server takes them along")
def test_dead_servers_fifo_is_in_nobodys_way(stack, busy):
    stack.server.die()
    stack.server.wait_for_end()
    linux.umount(stack.mnt, linux.MNT_DETACH)
    other = _again(stack)
    other.start()
    assert (other.mnt / "f").read_bytes() == _want((100_000, b"before"))
    assert other.stop() is None
    assert wait_until(lambda: not os.listdir(stack.work / "work"))
