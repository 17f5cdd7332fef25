# SPDX-License-Identifier: Apache-2.0
"""The operations that are made to fail: each on a directory of its own, which looks alike on the mount and beside it.

`prepare` goes undisturbed and returns what `act` needs (open files), and `act` returns what its caller learns."""
import errno
import faulthandler
import mmap
import os
import random
import signal

from support import linux
from support.expect import opened

BLOCK = 4096
PART, SMALL, LARGE = 5 * BLOCK + 700, 3000, 600 << 10


def data(name, size):
    return random.Random(name).randbytes(size)


def fill(root):
    """The entries of each directory in the lower layer."""
    for name, size in (("part", PART), ("small", SMALL), ("empty", 0), ("victim", PART)):
        (root / name).write_bytes(data(name, size))
    os.setxattr(root / "part", "user.note", b"lower")
    os.chmod(root / "small", 0o640)
    os.symlink("part", root / "symlink")
    (root / "two").write_bytes(data("two", PART))
    os.link(root / "two", root / "names")
    for name in ("sub", "sub/deep", "other", "bare"):
        (root / name).mkdir()
    (root / "sub" / "file").write_bytes(data("file", PART))
    (root / "sub" / "deep" / "file").write_bytes(data("deep", SMALL))
    (root / "other" / "gone").write_bytes(b"soon")


class Step:
    """A failed step leaves the old state or the new one; where is_piecewise, that holds of each block and property."""

    def __init__(self, act, prepare, is_large, is_piecewise):
        self.act, self.prepare, self.is_large, self.is_piecewise = act, prepare, is_large, is_piecewise
        self.name = act.__name__


_all = {}


def step(prepare=None, is_large=False, is_piecewise=False):
    def enter(act):
        _all[act.__name__] = Step(act, prepare, is_large, is_piecewise)
        return act
    return enter


def every():
    return dict(_all)


def write_at(path, off, what, flags=os.O_WRONLY):
    """All of it: a write that was cut short says at the next one why, and that is not asked."""
    with opened(path, flags) as fd:
        if os.pwrite(fd, what, off) < len(what):
            raise OSError(errno.EIO, "a short write")


def changed(root):
    """The partial file has been copied up, and one of its blocks is its own."""
    write_at(root / "part", BLOCK, data("before", BLOCK))


def large(root):
    (root / "large").write_bytes(data("large", LARGE))


@step()
def look(root):
    return sorted(os.listdir(root)), os.stat(root / "part").st_size, os.readlink(root / "symlink")


@step()
def look_for_nothing(root):
    return os.path.lexists(root / "not there"), os.path.lexists(root / "sub" / "not there")


@step()
def list_deep(root):
    return sorted((directory[len(str(root)):], sorted(names), sorted(files))
                  for directory, names, files in os.walk(root, onerror=_raise))


def _raise(error):
    raise error


@step()
def read_lower(root):
    return (root / "part").read_bytes()


@step(changed)
def read_changed(root):
    return (root / "part").read_bytes()


def _many_runs(root):
    for block in range(0, 140, 2):
        write_at(root / "large", block * BLOCK, data("own", 100))


@step(_many_runs, is_large=True)
def read_many_runs(root):
    return (root / "large").read_bytes()


@step(is_large=True)
def read_large(root):
    with opened(root / "large", os.O_RDONLY | os.O_DIRECT) as fd, mmap.mmap(-1, LARGE) as buffer:
        return os.preadv(fd, [buffer], 0), bytes(buffer)


@step()
def read_mapped(root):
    with opened(root / "part", os.O_RDONLY) as fd:
        return os.pread(fd, 10, 0), os.pread(fd, 10, PART - 5)


@step(is_piecewise=True)
def write_first(root):
    return write_at(root / "part", 100, b"first" * 10)


@step(is_piecewise=True)
def write_edges(root):
    return write_at(root / "part", BLOCK - 50, data("edges", BLOCK + 100))


@step(changed, is_piecewise=True)
def write_again(root):
    return write_at(root / "part", 3 * BLOCK + 5, data("again", 2000))


@step(changed, is_piecewise=True)
def write_in_place(root):
    return write_at(root / "part", BLOCK + 10, data("place", 2000))


@step(changed, is_piecewise=True)
def append(root):
    return write_at(root / "part", 0, data("append", 6000), os.O_WRONLY | os.O_APPEND)


@step(is_piecewise=True)
def write_small(root):
    return write_at(root / "small", 10, b"small" * 10)


@step(is_large=True, is_piecewise=True)
def write_half_a_chunk(root):
    return write_at(root / "large", 4096 + 17, data("half", 300 << 10))


@step(is_piecewise=True)
def write_sub(root):
    return write_at(root / "sub" / "deep" / "file", 0, b"deep")


@step(is_piecewise=True)
def write_hard_linked(root):
    return write_at(root / "two", 0, b"both")


@step(is_piecewise=True)
def truncate(root):
    os.truncate(root / "part", 2 * BLOCK + 77)


@step(changed, is_piecewise=True)
def truncate_changed(root):
    os.truncate(root / "part", BLOCK + 77)


@step(changed, is_piecewise=True)
def lengthen(root):
    os.truncate(root / "part", 9 * BLOCK)


@step(is_piecewise=True)
def empty_it(root):
    with opened(root / "part", os.O_WRONLY | os.O_TRUNC):
        pass


@step(changed, is_piecewise=True)
def punch(root):
    with opened(root / "part", os.O_RDWR) as fd:
        linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 100, 3 * BLOCK)


@step(changed, is_piecewise=True)
def zero(root):
    with opened(root / "part", os.O_RDWR) as fd:
        linux.fallocate(fd, linux.FALLOC_ZERO_RANGE, BLOCK, 3 * BLOCK)


@step(changed, is_piecewise=True)
def preallocate(root):
    with opened(root / "part", os.O_RDWR) as fd:
        linux.fallocate(fd, 0, 0, 8 * BLOCK)


@step(changed, is_piecewise=True)
def copy_range(root):
    with opened(root / "victim", os.O_RDONLY) as source, opened(root / "part", os.O_RDWR) as fd:
        return os.copy_file_range(source, fd, 2 * BLOCK, 0, BLOCK)


@step(is_large=True, is_piecewise=True)
def copy_whole(root):
    """As cp does it: the new file refers to the blocks of the other."""
    with opened(root / "large", os.O_RDONLY) as source, opened(root / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
        return os.copy_file_range(source, fd, 1 << 30, 0, 0)


@step(changed)
def seek(root):
    with opened(root / "part", os.O_RDONLY) as fd:
        return os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE)


@step(changed, is_piecewise=True)
def synced(root):
    with opened(root / "part", os.O_RDWR) as fd:
        os.pwrite(fd, data("synced", BLOCK), 2 * BLOCK)
        os.fsync(fd)


def _store(path):
    with opened(path, os.O_RDWR) as fd:
        try:
            with mmap.mmap(fd, 2 * BLOCK) as window:
                window[10:20] = b"0123456789"
                window.flush()
        finally:
            # Unwritten bytes stay in the kernel's pages until it needs the room, as with any file system.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@step(is_piecewise=True)
def mapped(root):
    """In a process of its own, as a page that cannot be read is SIGBUS."""
    pid = os.fork()
    if pid == 0:
        code = 255
        faulthandler.disable()
        try:
            _store(root / "part")
            code = 0
        except OSError as e:
            code = e.errno
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(errno.EIO if code == -signal.SIGBUS else abs(code), "in the child")


@step(is_piecewise=True)
def create(root):
    with opened(root / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR) as fd:
        return os.write(fd, b"new")


@step(is_piecewise=True)
def create_tmpfile(root):
    with opened(root, os.O_TMPFILE | os.O_RDWR) as fd:
        os.write(fd, b"nameless")
        linux.link_descriptor(fd, root / "named")


@step()
def make_directory(root):
    os.mkdir(root / "directory", 0o750)


@step()
def make_symlink(root):
    os.symlink("target", root / "sym")


@step()
def make_fifo(root):
    os.mkfifo(root / "fifo", 0o640)


@step()
def link(root):
    os.link(root / "part", root / "linked")


@step()
def unlink(root):
    os.unlink(root / "part")


@step()
def unlink_hard_linked(root):
    os.unlink(root / "two")


@step(changed)
def unlink_changed(root):
    os.unlink(root / "part")


def _without_part(root):
    os.unlink(root / "part")


@step(_without_part, is_piecewise=True)
def create_over_whiteout(root):
    (root / "part").write_bytes(b"again")


def _without_sub(root):
    os.unlink(root / "sub" / "deep" / "file")
    os.rmdir(root / "sub" / "deep")
    os.unlink(root / "sub" / "file")
    os.rmdir(root / "sub")


@step(_without_sub)
def make_directory_over_whiteout(root):
    os.mkdir(root / "sub")


def _without_gone(root):
    os.unlink(root / "other" / "gone")


@step(_without_gone)
def remove_directory(root):
    os.rmdir(root / "other")


@step()
def rename(root):
    os.rename(root / "part", root / "renamed")


@step(changed)
def rename_changed(root):
    os.rename(root / "part", root / "sub" / "renamed")


@step()
def rename_over(root):
    os.rename(root / "part", root / "victim")


@step()
def rename_directory(root):
    os.rename(root / "sub", root / "moved")


@step()
def exchange(root):
    linux.renameat2(root / "part", root / "sub" / "file", linux.RENAME_EXCHANGE)


@step()
def change_mode(root):
    os.chmod(root / "part", 0o600)


@step()
def change_owner(root):
    os.chown(root / "part", 7, 8)


@step()
def change_times(root):
    os.utime(root / "small", ns=(10 ** 18, 10 ** 18))
    return os.stat(root / "small").st_mtime_ns


@step()
def change_directory(root):
    os.chmod(root / "sub", 0o700)


@step()
def set_attribute(root):
    os.setxattr(root / "part", "user.more", b"value")


@step()
def remove_attribute(root):
    os.removexattr(root / "part", "user.note")


@step()
def read_attributes(root):
    return sorted(os.listxattr(root / "part")), os.getxattr(root / "part", "user.note")


@step()
def ask_space(root):
    return os.statvfs(root).f_namemax
