# SPDX-License-Identifier: Apache-2.0
import errno
import os
import socket
import stat

import pytest

from support.child import in_child, in_children
from support.expect import fails_with, names_in, opened


def test_created_file_is_in_the_upper_with_its_content(stack):
    m = stack.mount()
    (m / "f").write_bytes(b"hello" * 1000)
    assert (m / "f").read_bytes() == b"hello" * 1000
    stack.umount()
    assert (stack.upper / "f").read_bytes() == b"hello" * 1000


def test_parents_of_a_created_file_keep_their_attributes(stack):
    (stack.lower() / "a" / "b").mkdir(parents=True)
    (stack.lower() / "a" / "b").chmod(0o700)
    (stack.lower() / "a").chmod(0o751)
    os.setxattr(stack.lower() / "a", "user.note", b"kept")
    os.utime(stack.lower() / "a", ns=(10**18, 10**18 + 7))
    m = stack.mount()
    (m / "a" / "b" / "new").write_text("x")
    assert stat.S_IMODE((m / "a" / "b").stat().st_mode) == 0o700
    st = (m / "a").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_mtime_ns) == (0o751, 10**18 + 7)
    stack.umount()
    assert stat.S_IMODE((stack.upper / "a" / "b").stat().st_mode) == 0o700
    assert (stack.upper / "a").stat().st_mtime_ns == 10**18 + 7
    assert os.getxattr(stack.upper / "a", "user.note") == b"kept"


def test_exclusive_create_fails_on_every_kind_of_name(stack):
    (stack.lower() / "lower").write_text("")
    (stack.lower() / "dangling").symlink_to("nowhere")
    (stack.lower() / "dir").mkdir()
    m = stack.mount()
    (m / "upper").write_text("")
    for name in ("lower", "upper", "dir", "dangling"):
        with fails_with(errno.EEXIST):
            os.open(m / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        with fails_with(errno.EEXIST):
            os.mkdir(m / name)
        with fails_with(errno.EEXIST):
            os.symlink("x", m / name)
        with fails_with(errno.EEXIST):
            os.mkfifo(m / name)


def test_exclusive_create_over_a_removed_name(stack):
    (stack.lower() / "f").write_text("old content")
    m = stack.mount()
    (m / "f").unlink()
    with opened(m / "f", os.O_CREAT | os.O_EXCL | os.O_RDWR) as fd:
        os.write(fd, b"new")
    assert (m / "f").read_text() == "new"
    assert (stack.remount() / "f").read_text() == "new"


def test_create_through_a_dangling_symlink_makes_its_target(stack):
    (stack.lower() / "link").symlink_to("target")
    m = stack.mount()
    (m / "link").write_text("x")
    assert names_in(m) == ["link", "target"]


def test_o_trunc_empties_lower_and_upper_files(stack):
    for name in ("lower", "big"):
        (stack.lower() / name).write_bytes(b"content" * (50_000 if name == "big" else 1))
    m = stack.mount()
    (m / "upper").write_text("content")
    for name in ("lower", "upper", "big"):
        with opened(m / name, os.O_WRONLY | os.O_TRUNC):
            assert (m / name).stat().st_size == 0
        assert (m / name).read_bytes() == b""
    m = stack.remount()
    assert [(m / name).stat().st_size for name in ("lower", "upper", "big")] == [0, 0, 0]


def test_o_append_from_four_processes_loses_no_line(stack):
    (stack.lower() / "log").write_bytes(b"first\n")
    m = stack.mount()

    def writer(number):
        with opened(m / "log", os.O_WRONLY | os.O_APPEND) as fd:
            for i in range(200):
                os.write(fd, b"%d %06d\n" % (number, i))
    in_children([lambda n=n: writer(n) for n in range(4)])
    lines = (m / "log").read_bytes().splitlines()
    assert lines[0] == b"first"
    assert sorted(lines[1:]) == sorted(b"%d %06d" % (n, i) for n in range(4) for i in range(200))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o027])
def test_umask_is_that_of_the_caller(stack, umask):
    m = stack.mount()

    def make():
        os.close(os.open(m / "file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(m / "dir", 0o777)
        os.mkfifo(m / "fifo", 0o666)
    in_child(make, umask=umask)
    assert stat.S_IMODE((m / "file").stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE((m / "dir").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((m / "fifo").stat().st_mode) == 0o666 & ~umask


def test_created_objects_belong_to_the_caller(stack):
    (stack.lower() / "pub").mkdir()
    (stack.lower() / "pub").chmod(0o777)
    m = stack.mount()

    def make():
        (m / "pub" / "file").write_text("mine")
        (m / "pub" / "dir").mkdir()
        (m / "pub" / "link").symlink_to("file")
        os.mkfifo(m / "pub" / "fifo")
    in_child(make, uid=1000, gid=1001)
    for name in ("file", "dir", "link", "fifo"):
        st = os.lstat(m / "pub" / name)
        assert (st.st_uid, st.st_gid) == (1000, 1001), name
    stack.umount()
    st = os.lstat(stack.upper / "pub" / "file")
    assert (st.st_uid, st.st_gid) == (1000, 1001)


def test_permissions_are_enforced_for_other_users(stack):
    (stack.lower() / "secret").write_text("s")
    (stack.lower() / "secret").chmod(0o600)
    (stack.lower() / "closed").mkdir(mode=0o755)
    m = stack.mount()

    def try_all():
        with fails_with(errno.EACCES):
            (m / "secret").read_text()
        with fails_with(errno.EACCES):
            (m / "closed" / "new").write_text("")
        with fails_with(errno.EACCES):
            (m / "secret").unlink()
        with fails_with(errno.EPERM):
            (m / "closed").chmod(0o777)
    in_child(try_all, uid=1000, gid=1000)


def test_setgid_directory_hands_down_its_group(stack):
    (stack.lower() / "shared").mkdir()
    os.chown(stack.lower() / "shared", 0, 1234)
    (stack.lower() / "shared").chmod(0o2777)
    m = stack.mount()

    def make():
        (m / "shared" / "file").write_text("")
        (m / "shared" / "dir").mkdir()
    in_child(make, uid=1000, gid=1001)
    file, directory = (m / "shared" / "file").stat(), (m / "shared" / "dir").stat()
    assert (file.st_gid, directory.st_gid) == (1234, 1234)
    assert directory.st_mode & stat.S_ISGID
    assert not file.st_mode & stat.S_ISGID


def test_fifo_and_socket_work(stack):
    m = stack.mount()
    os.mkfifo(m / "fifo", 0o640)
    assert stat.S_ISFIFO((m / "fifo").stat().st_mode)
    with opened(m / "fifo", os.O_RDWR | os.O_NONBLOCK) as fd:
        os.write(fd, b"through")
        assert os.read(fd, 10) == b"through"
    os.chdir(m)
    try:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("sock")
            server.listen()
            client.connect("sock")
        assert stat.S_ISSOCK((m / "sock").stat().st_mode)
    finally:
        os.chdir("/")


@pytest.mark.needs_root("device nodes need the real root")
def test_devices_keep_their_numbers(stack):
    os.mknod(stack.lower() / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    m = stack.mount("dev")
    os.mknod(m / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    os.mknod(m / "loop", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    assert os.lstat(m / "null").st_rdev == os.makedev(1, 3)
    assert os.lstat(m / "zero").st_rdev == os.makedev(1, 5)
    assert os.lstat(m / "loop").st_rdev == os.makedev(7, 200)
    (m / "null").write_bytes(b"gone")
    os.chmod(m / "null", 0o640)
    m = stack.remount()
    st = os.lstat(m / "null")
    assert (st.st_rdev, stat.S_IMODE(st.st_mode)) == (os.makedev(1, 3), 0o640)


def test_whiteout_device_cannot_be_made_by_users(stack):
    m = stack.mount()
    with fails_with(errno.EPERM, errno.ENOENT, errno.EINVAL):
        os.mknod(m / "w", stat.S_IFCHR, 0)


def test_whiteout_names_cannot_be_made(stack):
    (stack.lower() / "victim").write_text("x")
    m = stack.mount()
    refused = (errno.EINVAL, errno.EPERM, errno.EACCES)
    for action in (lambda: (m / ".wh.victim").write_text(""), lambda: (m / ".wh.victim").mkdir(),
                   lambda: (m / ".wh..wh..opq").write_text(""),
                   lambda: (m / ".wh.victim").symlink_to("x"),
                   lambda: (m / ".wh..wh.veneer").write_text(""),
                   lambda: os.mkfifo(m / ".wh.victim"),
                   lambda: os.link(m / "victim", m / ".wh.victim"),
                   lambda: os.rename(m / "victim", m / ".wh.victim")):
        with fails_with(*refused):
            action()
    assert (stack.remount() / "victim").read_text() == "x"


def test_longest_name_works_and_one_more_does_not(stack):
    m = stack.mount()
    longest = os.statvfs(m).f_namemax
    assert 251 <= longest <= 255
    for make in (lambda p: p.write_text("x"), lambda p: p.mkdir(), lambda p: p.symlink_to("y")):
        path = m / ("n" * longest)
        make(path)
        assert names_in(m) == [path.name]
        os.rename(path, m / ("r" * longest))
        os.rename(m / ("r" * longest), path)
        path.rmdir() if path.is_dir() else path.unlink()
        with fails_with(errno.ENAMETOOLONG):
            make(m / ("n" * 256))


def test_long_names_of_the_lower_are_visible_and_removable(stack):
    name = "x" * 255
    (stack.lower() / name).write_text("long")
    m = stack.mount()
    assert (m / name).read_text() == "long"
    (m / name).unlink()
    assert names_in(m) == []
    assert names_in(stack.remount()) == []


def test_names_may_hold_any_byte(stack):
    m = stack.mount()
    names = [b"\xff\xfe", b"new\nline", b"sp ace", b"comma,colon:", b"back\\slash", b"-o", b"\x01"]
    for name in names:
        with open(os.fsencode(m) + b"/" + name, "w") as f:
            f.write("x")
    m = stack.remount()
    assert sorted(os.listdir(os.fsencode(m))) == sorted(names)


def test_symlink_target_of_4095_bytes(stack):
    (stack.lower() / "low").symlink_to("l" * 4095)
    m = stack.mount()
    (m / "up").symlink_to("u" * 4000)
    assert os.readlink(m / "low") == "l" * 4095
    assert os.readlink(m / "up") == "u" * 4000
    assert os.lstat(m / "up").st_size == 4000


def test_mkdir_and_rmdir(stack):
    (stack.lower() / "full").mkdir()
    (stack.lower() / "full" / "f").write_text("")
    m = stack.mount()
    (m / "new").mkdir()
    (m / "new" / "inner").mkdir()
    with fails_with(errno.ENOTEMPTY):
        (m / "new").rmdir()
    with fails_with(errno.ENOTEMPTY):
        (m / "full").rmdir()
    (m / "new" / "inner").rmdir()
    (m / "new").rmdir()
    assert names_in(m) == ["full"]
    with fails_with(errno.ENOTDIR):
        (m / "full" / "f").rmdir()
    with fails_with(errno.EISDIR):
        (m / "full").unlink()
