# SPDX-License-Identifier: Apache-2.0
import errno
import os
import stat

import pytest

from support import linux, rootless
from support.child import in_child
from support.expect import exists, fails_with, names_in, opened
from support.origins import SIZED_ORIGINS, mount_file



def _prepare(stack, origin):
    return mount_file(stack, origin, 3000 if origin == "lower small" else 700_000, own=[(100_000, b"P" * 5000)])


@pytest.mark.parametrize("origin", SIZED_ORIGINS)
def test_removed_file_is_gone_and_stays_gone(stack, origin):
    path, _ = _prepare(stack, origin)
    path.unlink()
    assert not exists(path)
    assert names_in(path.parent) == []
    with fails_with(errno.ENOENT):
        path.unlink()
    assert names_in(stack.remount()) == []
    stack.freeze()
    assert names_in(stack.mount()) == []


@pytest.mark.parametrize("origin", SIZED_ORIGINS)
def test_open_file_keeps_everything_after_unlink(stack, origin):
    path, data = _prepare(stack, origin)
    with opened(path, os.O_RDWR) as fd:
        path.unlink()
        st = os.fstat(fd)
        assert (st.st_size, st.st_nlink) == (len(data), 0)
        assert os.pread(fd, len(data) + 1, 0) == data
        os.pwrite(fd, b"after", 1000)
        assert os.pread(fd, 7, 999) == data[999:1000] + b"after" + data[1005:1006]
        os.ftruncate(fd, 2000)
        assert os.fstat(fd).st_size == 2000
        os.ftruncate(fd, 9000)
        assert os.pread(fd, 9000, 0)[2000:] == bytes(7000)
        linux.fallocate(fd, 0, 0, 20_000)
        assert os.fstat(fd).st_size == 20_000
        os.fchmod(fd, 0o640)
        os.fchown(fd, *rootless.owner(7, 8))
        os.utime(fd, ns=(5, 10**18))
        os.setxattr(fd, "user.late", b"value")
        assert os.getxattr(fd, "user.late") == b"value"
        assert "user.late" in os.listxattr(fd)
        os.removexattr(fd, "user.late")
        os.fsync(fd)
        st = os.fstat(fd)
        assert stat.S_IMODE(st.st_mode) == 0o640
        assert (st.st_uid, st.st_gid, st.st_mtime_ns) == (*rootless.owner(7, 8), 10**18)
    assert names_in(path.parent) == []


@pytest.mark.unshared("what has a descriptor of an unchanged file only can change nothing of it")
@pytest.mark.parametrize("origin", SIZED_ORIGINS)
def test_read_only_descriptor_survives_unlink(stack, origin):
    path, data = _prepare(stack, origin)
    with opened(path) as fd:
        path.unlink()
        assert os.pread(fd, len(data), 0) == data
        os.fchmod(fd, 0o600)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
        with open(f"/proc/self/fd/{fd}", "rb") as again:
            assert again.read() == data


def test_replacement_under_the_name_does_not_reach_the_open_file(stack):
    path, data = _prepare(stack, "lower large")
    with opened(path, os.O_RDWR) as old:
        path.unlink()
        path.write_bytes(b"replacement")
        os.pwrite(old, b"to the old one", 0)
        assert path.read_bytes() == b"replacement"
        assert os.pread(old, 20, 0) == b"to the old one" + data[14:20]
        path.chmod(0o604)
        assert stat.S_IMODE(os.fstat(old).st_mode) != 0o604


def test_open_file_lost_to_a_rename_keeps_its_content(stack):
    path, data = _prepare(stack, "lower large")
    (path.parent / "other").write_bytes(b"other")
    with opened(path, os.O_RDWR) as old:
        os.rename(path.parent / "other", path)
        assert os.fstat(old).st_nlink == 0
        assert os.pread(old, 100, 4000) == data[4000:4100]
        os.pwrite(old, b"x" * 100, 4000)
        assert os.pread(old, 100, 4000) == b"x" * 100
    assert path.read_bytes() == b"other"


def test_unmount_while_nothing_is_lost_after_many_unlinked_files(stack):
    m = stack.mount()
    fds = []
    for i in range(300):
        fds.append(os.open(m / f"f{i}", os.O_CREAT | os.O_RDWR))
        os.write(fds[-1], b"%d" % i)
        (m / f"f{i}").unlink()
    assert [os.pread(fd, 9, 0) for fd in fds] == [b"%d" % i for i in range(300)]
    for fd in fds:
        os.close(fd)
    stack.umount()
    assert [name for name in os.listdir(stack.upper) if not name.startswith(".wh..wh.")] == []


def test_temporary_file_can_be_linked_into_place(stack):
    m = stack.mount()
    try:
        fd = os.open(m, os.O_TMPFILE | os.O_RDWR)
    except OSError as e:
        assert e.errno in (errno.EOPNOTSUPP, errno.EISDIR)
        pytest.skip("O_TMPFILE is not offered, as by fuse-overlayfs")
    os.write(fd, b"temporary")
    linux.link_descriptor(fd, m / "named")
    os.close(fd)
    assert (m / "named").read_bytes() == b"temporary"


def test_unlink_reaches_through_all_lowers(stack):
    for i in range(3):
        (stack.lower(i) / "f").write_text(str(i))
    (stack.upper / "f").write_text("u")
    m = stack.mount()
    (m / "f").unlink()
    assert not exists(m / "f")
    assert not exists(stack.remount() / "f")


def test_removed_name_can_become_another_type(stack):
    (stack.lower() / "x").write_text("file")
    m = stack.mount()
    for _ in range(2):
        (m / "x").unlink()
        (m / "x").mkdir()
        assert names_in(m / "x") == []
        (m / "x").rmdir()
        (m / "x").symlink_to("t")
        (m / "x").unlink()
        (m / "x").write_text("new")
        assert (m / "x").read_text() == "new"
        m = stack.remount()


def test_sticky_directory_protects_the_files_of_others(stack):
    (stack.lower() / "tmp").mkdir()
    (stack.lower() / "tmp").chmod(0o1777)
    (stack.lower() / "tmp" / "roots").write_text("")
    m = stack.mount()

    def remove():
        with fails_with(errno.EPERM, errno.EACCES):
            (m / "tmp" / "roots").unlink()
    in_child(remove, uid=1000, gid=1000)
