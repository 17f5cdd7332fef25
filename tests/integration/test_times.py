# SPDX-License-Identifier: Apache-2.0
"""Times: what changes them, what must not, and that the kernel never remembers another one than the server says."""
import errno
import mmap
import os
import subprocess

import pytest

from support import acl, linux
from support.content import MIB, blob
from support.expect import fails_with, opened, write_at

_OLD = 10**18


def _read_in_every_way(path):
    with opened(path) as fd:
        os.pread(fd, 10_000, 0)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            bytes(view[:])
        with opened(path.with_name("copy"), os.O_RDWR | os.O_CREAT) as copy:
            os.copy_file_range(fd, copy, 10**6)
    with opened(path, os.O_RDONLY | os.O_DIRECT) as fd, mmap.mmap(-1, 4096) as page:
        os.preadv(fd, [page], 0)
    subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("origin", ["fresh", "small copy", "partial copy", "without content"])
@pytest.mark.parametrize("io", ["io=cached", "io=direct"])
def test_reads_leave_access_times_alone(stack, origin, io):
    """A mount is noatime. What the kernel reads by itself is its backing file system's business (io=passthrough)."""
    (stack.lower() / "d").mkdir()
    path = stack.lower() / "d" / "f"
    if origin != "fresh":
        path.write_bytes(blob(5000 if origin == "small copy" else MIB))
    path = stack.mount(io) / "d" / "f"
    if origin == "without content":
        path.chmod(0o755)
    else:
        with opened(path, os.O_RDWR | os.O_CREAT) as fd:
            os.pwrite(fd, blob(3000), 0)
    for _ in range(2):
        os.utime(path, ns=(_OLD, _OLD + 1))
        os.utime(path.parent, ns=(_OLD, _OLD + 1))
        _read_in_every_way(path)
        os.listdir(path.parent)
        for name in ("d", "d/f"):
            assert linux.attributes(stack.mnt / name, is_asked=True).atime_ns == _OLD
            assert os.stat(stack.upper / name, follow_symlinks=False).st_atime_ns == _OLD
        stack.remount(io)


def _find_hard_links(stack):
    write_at(stack.mnt / "link", b"x", 0)


def _run(*words):
    def run(stack):
        lower = ["-o", f"lowerdir={stack.lower()}"] if "--tar" in words else []
        subprocess.run([stack.program, *words, *lower, stack.upper], check=True, stdout=subprocess.DEVNULL)
    return run


_WALKS = {
    "names of a hard link": _find_hard_links,
    "a quota": lambda stack: stack.remount("size=1g"),
    "recovery": lambda stack: (write_at(stack.mnt / "moved" / "f", b"y", 9), stack.server.kill(), stack.remount()),
    "diff": _run("diff"),
    "archive": _run("diff", "--tar"),
    "check": _run("check"),
    "du": _run("du"),
    "inspect": _run("inspect"),
}


@pytest.mark.parametrize("walk", _WALKS)
def test_walks_of_the_upper_leave_access_times_alone(stack, walk):
    """The kernel goes on with the times that it was told."""
    (stack.lower() / "p" / "q").mkdir(parents=True)
    (stack.lower() / "p" / "f").write_bytes(blob(MIB))
    (stack.lower() / "link").write_bytes(blob(5000))
    os.link(stack.lower() / "link", stack.lower() / "p" / "link")
    m = stack.mount()
    os.rename(m / "p", m / "moved")
    (m / "moved" / "q" / "new").mkdir()
    (m / "moved" / "own").write_bytes(blob(5000))
    m = stack.remount()
    write_at(m / "moved" / "f", b"x", 5)
    names = ("moved/q/new", "moved/q", "moved/f", "moved/own", "moved")
    for name in names:
        os.utime(m / name, ns=(_OLD, _OLD + 1))
    _WALKS[walk](stack)
    for name in names:
        assert os.stat(stack.upper / name).st_atime_ns == _OLD, name
        assert linux.attributes(m / name, is_asked=False).atime_ns == linux.attributes(m / name, is_asked=True).atime_ns == _OLD, name


def test_access_times_are_the_file_systems_business_where_they_are_asked_for(stack):
    path = stack.mount("io=cached", "atime") / "f"
    path.write_bytes(b"x")
    os.utime(path, ns=(_OLD, _OLD + 1))
    path = stack.remount("io=cached", "atime") / "f"
    path.read_bytes()
    raw = (stack.upper / "f").stat().st_atime_ns
    assert linux.attributes(path, is_asked=True).atime_ns == raw > _OLD


def _create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _create_nameless(path):
    with opened(path.parent, os.O_TMPFILE | os.O_RDWR) as fd:
        linux.link_descriptor(fd, path)


_WAYS_TO_MAKE = {
    "create": _create,
    "set-id": lambda path: os.mknod(path, 0o106755),
    "mkdir": os.mkdir,
    "sticky": lambda path: os.mkdir(path, 0o1777),
    "symlink": lambda path: os.symlink("nowhere", path),
    "mkfifo": os.mkfifo,
    "link": lambda path: os.link(path.parent / "other", path),
    "nameless": _create_nameless,
    "rename": lambda path: os.rename(path.parent / "other", path),
    "exchange": lambda path: (_create(path), linux.renameat2(path.parent / "other", path, linux.RENAME_EXCHANGE)),
}


@pytest.mark.parametrize("place", ["new", "over a file", "over a directory", "set-gid directory", "default ACL"])
@pytest.mark.parametrize("way", _WAYS_TO_MAKE)
def test_what_is_made_shows_the_times_that_it_has(stack, way, place):
    """What it takes is done in steps, also after its attributes were read."""
    d = stack.lower() / "d"
    d.mkdir()
    (d / "other").write_bytes(b"x")
    if place == "over a directory":
        (d / "x").mkdir()
    elif place != "new":
        (d / "x").write_bytes(b"x")
    d = stack.mount() / "d"
    if place == "set-gid directory":
        d.chmod(0o2777)
    if place == "default ACL":
        os.setxattr(d, acl.DEFAULT, acl.encode((acl.USER_OBJ, 7), (acl.GROUP_OBJ, 7), (acl.OTHER, 5)))
    if place == "over a directory":
        (d / "x").rmdir()
    elif place != "new":
        (d / "x").unlink()
    _WAYS_TO_MAKE[way](d / "x")
    for name in ("x", "."):
        assert linux.attributes(d / name).differences(linux.attributes(d / name, is_asked=True)) == {}, name


_DEEP = "a/b/c/d"


@pytest.mark.parametrize("change", ["write", "create", "chmod", "rename", "link", "unlink"])
def test_copied_up_directories_show_their_change_time_at_once(stack, change):
    """As on overlayfs: it is now that of the copy, and does not jump to it when the kernel forgets the directory."""
    (stack.lower() / _DEEP).mkdir(parents=True)
    for name in ("f", "g"):
        (stack.lower() / _DEEP / name).write_bytes(blob(20_000))
    m = stack.mount()
    path = m / _DEEP / "f"
    directories = [m, *list(path.relative_to(m).parents)[:-1]]
    directories = [m / directory for directory in directories]
    before = [linux.attributes(directory) for directory in directories]
    for directory, attributes in zip(directories, before):
        assert attributes == linux.attributes(directory, is_asked=True)
    if change == "write":
        write_at(path, b"x", 0)
    elif change == "create":
        (m / _DEEP / "new").touch()
    elif change == "chmod":
        path.chmod(0o600)
    elif change == "rename":
        path.rename(m / _DEEP / "h")
    elif change == "link":
        os.link(path, m / _DEEP / "h")
    else:
        path.unlink()
    for directory in directories:
        remembered = linux.attributes(directory)
        differences = remembered.differences(linux.attributes(directory, is_asked=True))
        if directory == m:
            differences.pop("ctime_ns", None)  # the map is made, and made anew, in the root
        assert differences == {}, directory
    changed = [new.ctime_ns > old.ctime_ns for new, old in
               zip((linux.attributes(directory) for directory in directories[1:]), before[1:])]
    assert all(changed)


@pytest.mark.parametrize("target", ["nothing", "empty directory", "removed directory"])
def test_a_moved_directory_keeps_its_time(stack, target):
    """Over a name that has a directory below it becomes opaque, which makes a file in it where there are no trusted
    attributes."""
    (stack.lower() / "there").mkdir()
    if target == "removed directory":
        (stack.lower() / "there" / "f").write_bytes(b"f")
    m = stack.mount()
    (m / "mine").mkdir()
    (m / "mine" / "f").write_bytes(b"mine")
    if target == "removed directory":
        (m / "there" / "f").unlink()
    if target == "nothing":
        (m / "there").rmdir()
    os.utime(m / "mine", ns=(_OLD, _OLD + 1))
    (m / "mine").rename(m / "there")
    for asked in (False, True):
        seen = linux.attributes(m / "there", asked)
        assert (seen.atime_ns, seen.mtime_ns) == (_OLD, _OLD + 1)
    m = stack.remount()
    assert (m / "there").stat().st_mtime_ns == _OLD + 1
    assert os.listdir(m / "there") == ["f"]


def test_exchanged_directories_keep_their_times(stack):
    for name in ("x", "y"):
        (stack.lower() / name).mkdir()
    m = stack.mount()
    (m / "x").rmdir()
    (m / "x").mkdir()
    os.utime(m / "x", ns=(_OLD, _OLD + 1))
    os.utime(m / "y", ns=(_OLD, _OLD + 2))
    try:
        linux.renameat2(m / "x", m / "y", linux.RENAME_EXCHANGE)
    except OSError:
        pytest.skip("directories are not renamed here")
    assert [(m / name).stat().st_mtime_ns - _OLD for name in ("x", "y")] == [2, 1]


def test_the_first_change_leaves_the_roots_times_alone(stack):
    """The map, and the whiteouts of hidden names, are made in it."""
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(blob(MIB))
    os.utime(stack.upper, ns=(_OLD, _OLD + 1))
    m = stack.mount()
    before = linux.attributes(m, is_asked=True)
    write_at(m / "d" / "f", b"x", 5)
    after = linux.attributes(m, is_asked=True)
    assert (before.mtime_ns, after.mtime_ns) == (_OLD + 1, _OLD + 1)
    m = stack.remount()
    assert linux.attributes(m, is_asked=True).mtime_ns == _OLD + 1


def test_a_copy_up_for_a_change_that_fails_shows_its_change_time_at_once(stack):
    (stack.lower() / "f").write_bytes(blob(100_000))
    path = stack.mount() / "f"
    linux.attributes(path)
    with fails_with(errno.ENODATA):
        os.setxattr(path, "user.absent", b"", os.XATTR_REPLACE)
    assert linux.attributes(path).differences(linux.attributes(path, is_asked=True)) == {}
