# SPDX-License-Identifier: Apache-2.0
import errno
import mmap
import os
import stat

import pytest

from support import linux
from support.child import in_child
from support.content import blob
from support.expect import fails_with, opened, write_at

_KINDS = ["small", "large", "dir", "link", "fifo"]


def _lower_object(stack, kind):
    path = stack.lower() / "x"
    if kind in ("small", "large"):
        path.write_bytes(blob(100 if kind == "small" else 400_000))
    elif kind == "dir":
        path.mkdir()
        (path / "inner").write_text("")
    elif kind == "link":
        path.symlink_to("target")
    else:
        os.mkfifo(path)
    return path


@pytest.mark.parametrize("kind", _KINDS)
def test_chown_of_every_kind(stack, kind):
    _lower_object(stack, kind)
    m = stack.mount()
    os.lchown(m / "x", 11, 22)
    for _ in range(2):
        st = os.lstat(m / "x")
        assert (st.st_uid, st.st_gid) == (11, 22)
        m = stack.remount()
    stack.umount()
    assert os.lstat(stack.upper / "x").st_uid == 11


@pytest.mark.parametrize("kind", [kind for kind in _KINDS if kind != "link"])
def test_chmod_of_every_kind(stack, kind):
    _lower_object(stack, kind)
    m = stack.mount()
    for mode in (0o700, 0o644, 0o000, 0o1777 if kind == "dir" else 0o755):
        os.chmod(m / "x", mode)
        assert stat.S_IMODE(os.lstat(m / "x").st_mode) == mode
    assert stat.S_IMODE(os.lstat(stack.remount() / "x").st_mode) == mode


@pytest.mark.parametrize("kind", _KINDS)
def test_times_of_every_kind_to_the_nanosecond(stack, kind):
    _lower_object(stack, kind)
    m = stack.mount()
    times = (1_234_567_890_123_456_789, 1_345_678_901_987_654_321)
    os.utime(m / "x", ns=times, follow_symlinks=False)
    for _ in range(2):
        assert os.lstat(m / "x").st_mtime_ns == times[1]
        m = stack.remount()
    os.utime(m / "x", ns=(-5 * 10**9, 4_000_000_000 * 10**9), follow_symlinks=False)
    assert os.lstat(m / "x").st_mtime_ns == 4_000_000_000 * 10**9


def test_content_is_untouched_by_attribute_changes(stack):
    path = _lower_object(stack, "large")
    want = path.read_bytes()
    m = stack.mount()
    os.chmod(m / "x", 0o600)
    os.chown(m / "x", 1, 2)
    os.utime(m / "x", (5, 6))
    for _ in range(2):
        assert (m / "x").read_bytes() == want
        assert (m / "x").stat().st_mtime == 6
        m = stack.remount()


def test_setuid_bit_is_cleared_by_foreign_chown_and_write(stack):
    path = _lower_object(stack, "large")
    os.chown(path, 1000, 1000)
    path.chmod(0o6777)
    m = stack.mount()
    in_child(lambda: write_at(m / "x", b"w", 100_000), uid=2000, gid=2000)
    assert not (m / "x").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert not (stack.remount() / "x").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def test_setuid_bit_at_writes_of_root_is_as_elsewhere_and_cleared_by_chown(stack, plain):
    path = _lower_object(stack, "large")
    path.chmod(0o4755)
    (plain / "x").write_bytes(b"x" * 200_000)
    (plain / "x").chmod(0o4755)
    m = stack.mount()
    for place in (m, plain):
        write_at(place / "x", b"w", 100_000)
    # root of a user namespace loses the bit, the real root keeps it
    assert (m / "x").stat().st_mode == (plain / "x").stat().st_mode
    os.chmod(m / "x", 0o4755)
    os.chown(m / "x", 1000, 1000)
    assert not (m / "x").stat().st_mode & stat.S_ISUID


def test_truncate_by_another_user_clears_setuid(stack):
    path = _lower_object(stack, "large")
    path.chmod(0o4777)
    m = stack.mount()
    in_child(lambda: os.truncate(m / "x", 10), uid=2000, gid=2000)
    assert not (m / "x").stat().st_mode & stat.S_ISUID


@pytest.mark.parametrize("fmode", [0, 3, 16], ids=["plain", "punch", "zero"])
def test_fallocate_by_another_user_clears_setuid(stack, fmode):
    path = _lower_object(stack, "large")
    path.chmod(0o4777)
    m = stack.mount()

    def allocate():
        with opened(m / "x", os.O_RDWR) as fd:
            linux.fallocate(fd, fmode, 50_000, 100_000)
    in_child(allocate, uid=2000, gid=2000)
    assert not (m / "x").stat().st_mode & stat.S_ISUID


def test_store_through_a_mapping_keeps_setuid(stack):
    path = _lower_object(stack, "large")
    path.chmod(0o4755)
    m = stack.mount()

    def store():
        with opened(m / "x", os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            view[100_000:100_010] = b"0123456789"
            view.flush()
    in_child(store)
    assert (m / "x").stat().st_mode & stat.S_ISUID


@pytest.mark.parametrize("kind", ["small", "large"])
@pytest.mark.parametrize("mode", [0o4755, 0o2770, 0o6711])
def test_copy_up_keeps_set_id_bits(stack, kind, mode):
    path = _lower_object(stack, kind)
    path.chmod(mode)
    m = stack.mount()
    os.link(m / "x", m / "y")
    for _ in range(2):
        assert stat.S_IMODE((m / "x").stat().st_mode) == mode
        m = stack.remount()


def test_owner_may_and_others_may_not(stack):
    path = _lower_object(stack, "small")
    os.chown(path, 1000, 1000)
    m = stack.mount()

    def owner():
        os.chmod(m / "x", 0o640)
        os.utime(m / "x", (1, 2))
        with fails_with(errno.EPERM):
            os.chown(m / "x", 2000, -1)

    def other():
        for action in (lambda: os.chmod(m / "x", 0o777), lambda: os.utime(m / "x", (1, 2)),
                       lambda: os.chown(m / "x", 2000, 2000)):
            with fails_with(errno.EPERM):
                action()
    in_child(owner, uid=1000, gid=1000)
    in_child(other, uid=2000, gid=2000)
    assert stat.S_IMODE((m / "x").stat().st_mode) == 0o640


def test_chown_with_minus_one_keeps_the_other_id(stack):
    path = _lower_object(stack, "small")
    os.chown(path, 3, 4)
    m = stack.mount()
    os.chown(m / "x", 30, -1)
    assert ((m / "x").stat().st_uid, (m / "x").stat().st_gid) == (30, 4)
    os.chown(m / "x", -1, 40)
    assert ((m / "x").stat().st_uid, (m / "x").stat().st_gid) == (30, 40)


@pytest.mark.unshared("what has a descriptor of an unchanged file only can change nothing of it")
def test_changes_through_a_read_only_descriptor(stack):
    path = _lower_object(stack, "large")
    want = path.read_bytes()
    m = stack.mount()
    with opened(m / "x") as fd:
        os.fchmod(fd, 0o604)
        os.fchown(fd, 9, 8)
        os.utime(fd, (7, 6))
        st = os.fstat(fd)
        assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_mtime) == (0o604, 9, 8, 6)
        assert os.pread(fd, len(want), 0) == want
    st = (stack.remount() / "x").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_mtime) == (0o604, 9, 8, 6)


def test_recursive_chown_of_a_lower_tree(stack):
    low = stack.lower()
    for i in range(20):
        (low / f"d{i}").mkdir()
        for j in range(10):
            (low / f"d{i}" / f"f{j}").write_bytes(blob(10_000 * j, j))
    m = stack.mount()
    for root, dirs, files in os.walk(m):
        for name in dirs + files:
            os.lchown(os.path.join(root, name), 77, 78)
    m = stack.remount()
    for i in range(20):
        for j in range(10):
            path = m / f"d{i}" / f"f{j}"
            assert (path.stat().st_uid, path.stat().st_gid) == (77, 78)
            assert path.read_bytes() == blob(10_000 * j, j)
