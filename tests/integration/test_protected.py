# SPDX-License-Identifier: Apache-2.0
"""Immutable and append-only files and directories of lower layers (chattr(1)), as a local file system has them and the
kernel's overlayfs has them too (compared on 6.18)."""
import errno
import fcntl
import mmap
import os
import shutil
import struct
import subprocess

import pytest

from support import acl, linux
from support.child import in_child
from support.content import blob
from support.expect import fails_with, opened, through, write_at
from support.server import wait_until

pytestmark = [pytest.mark.needs_root("chattr"), pytest.mark.needs_privileges("chattr")]

_IO = ["", "io=cached", "io=direct", "timeout=0"]
_SIZES = {"small": 5_000, "large": 200_000}


@pytest.fixture
def protect(stack):
    """protect(flag, path, ...): until the end of the test."""
    if not shutil.which("chattr"):
        pytest.skip("no chattr")
    done = []

    def change(flag, *paths):
        if subprocess.run(["chattr", f"+{flag}", *paths]).returncode:
            pytest.skip("the file system has no such flags")
        done.extend((flag, path) for path in paths)
    yield change
    changed = stack.changed_lowers()
    for path in stack.lowers:
        stack.forget_lower(path)
    for flag, path in done:
        subprocess.run(["chattr", f"-{flag}", path], check=True)
    assert not changed


def _make(directory):
    for flag in "ia":
        for size, n in _SIZES.items():
            (directory / f"{flag}-{size}").write_bytes(blob(n))
            (directory / f"{flag}-{size}").chmod(0o666)
        (directory / f"{flag}-link").symlink_to("nowhere")
        for name in (f"{flag}-dir", f"{flag}-dir/sub"):
            (directory / name).mkdir()
            (directory / name).chmod(0o777)
        for name in ("file", "other"):
            (directory / f"{flag}-dir" / name).write_bytes(blob(100_000))
            (directory / f"{flag}-dir" / name).chmod(0o666)
    (directory / "source").write_bytes(blob(5000))


def _protect(protect, directory):
    for flag in "ia":
        protect(flag, *(directory / f"{flag}-{name}" for name in ("dir", *_SIZES)))


def _rename_over(path):
    made = path.parent / "made"
    made.write_text("made")
    try:
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)


def _copy(path):
    with opened(path.parent / "source") as source, opened(path, os.O_WRONLY) as fd:
        os.copy_file_range(source, fd, 100, 0, 0)


_OF_FILES = {
    "write": through(os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "read and write": through(os.O_RDWR, lambda fd: os.write(fd, b"x")),
    "truncate": lambda path: os.truncate(path, 0),
    "O_TRUNC": through(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "fallocate": through(os.O_WRONLY, lambda fd: linux.fallocate(fd, 0, 0, 1_000_000)),
    "copy_file_range": _copy,
}
_OF_ALL = {
    "chmod": lambda path: os.chmod(path, 0o600),
    "chown": lambda path: os.chown(path, 1, 1),
    "utime": lambda path: os.utime(path, (1, 1)),
    "setxattr": lambda path: os.setxattr(path, "user.x", b"x"),
    "acl": lambda path: os.setxattr(path, acl.ACCESS, acl.encode((acl.USER_OBJ, 7), (acl.USER, 7, 3), (acl.GROUP_OBJ, 7),
                                                                 (acl.MASK, 7), (acl.OTHER, 0))),
    "rename": lambda path: path.rename(f"{path}-new"),
}
_OF_NAMES = {
    "link": lambda path: os.link(path, f"{path}-link"),
    "rename over": _rename_over,
    "exchange": lambda path: linux.renameat2(path, path.parent / "source", linux.RENAME_EXCHANGE),
    "unlink": os.unlink,
}
_OF_DIRECTORIES = {
    "create": lambda path: (path / "new").write_text("x"),
    "mkdir": lambda path: (path / "newdir").mkdir(),
    "symlink": lambda path: (path / "newlink").symlink_to("x"),
    "move in": lambda path: (path.parent / "source").rename(path / "source"),
    "write to a file": lambda path: write_at(path / "file", b"x", 50_000),
    "chmod of a file": lambda path: (path / "file").chmod(0o640),
    "create in a directory": lambda path: (path / "sub" / "new").write_text("x"),
    "unlink in a directory": lambda path: (path / "sub" / "new").unlink(),
    "create after that": lambda path: (path / "newer").write_text("x"),
    "unlink": lambda path: (path / "file").unlink(),
    "unlink what is new": lambda path: (path / "new").unlink(),
    "move out": lambda path: (path / "other").rename(path.parent / "other"),
    "rename inside": lambda path: (path / "other").rename(path / "another"),
    "rmdir inside": lambda path: (path / "sub").rmdir(),
    "nameless": lambda path: os.close(os.open(path, os.O_TMPFILE | os.O_RDWR)),
    "rmdir": os.rmdir,
}


def _outcome(change, path):
    try:
        change(path)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "done"


def _outcomes(directory):
    found = {}
    for flag in "ia":
        for size in _SIZES:
            for name, change in {**_OF_FILES, **_OF_ALL, **_OF_NAMES}.items():
                found[f"{flag}-{size}: {name}"] = _outcome(change, directory / f"{flag}-{size}")
        for name, change in {**_OF_ALL, **_OF_DIRECTORIES}.items():
            found[f"{flag}-dir: {name}"] = _outcome(change, directory / f"{flag}-dir")
    return found


@pytest.mark.writethrough("no write fails, but its close")
@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_every_change_is_refused_that_is_refused_elsewhere(stack, plain, protect, io):
    _make(stack.lower())
    _make(plain)
    _protect(protect, stack.lower())
    _protect(protect, plain)
    m = stack.mount(*([io] if io else []))
    want = _outcomes(plain)
    got = _outcomes(m)
    assert {name: (got[name], want[name]) for name in want if got[name] != want[name]} == {}
    assert want["i-large: write"] == want["a-small: chmod"] == "EPERM" and want["i-dir: write to a file"] == "done"
    for name in ("i-small", "i-large", "a-small", "a-large"):
        assert (m / name).read_bytes() == (stack.lower() / name).read_bytes()


@pytest.mark.writethrough("no write fails, but its close")
@pytest.mark.parametrize("made", ["whole", "partial copies"])
@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_protected_files_of_the_upper_are_read_and_not_changed(stack, plain, protect, io, made):
    """Such a file cannot be opened for writing, and is read all the same."""
    options = [io] if io else []
    _make(stack.lower() if made == "partial copies" else stack.upper)
    _make(plain)
    m = stack.mount(*options)
    files = [f"{flag}-{size}" for flag in "ia" for size in _SIZES]
    for name in files:
        write_at(m / name, b"written", 4000)
        write_at(plain / name, b"written", 4000)
    contents = {name: (plain / name).read_bytes() for name in files}
    for flag in "ia":
        os.utime(m / f"{flag}-dir")
    stack.umount()
    _protect(protect, stack.upper)
    _protect(protect, plain)
    m = stack.mount(*options)
    assert _flags(*(m / name for name in files)) == {str(m / name): {name[0]} for name in files}
    assert {name: (m / name).read_bytes() for name in files} == contents
    want, got = _outcomes(plain), _outcomes(m)
    # what is in a directory of the upper is copied up into it
    assert {name: (got[name], want[name]) for name in want if "-dir" not in name and got[name] != want[name]} == {}
    assert want["i-large: write"] == want["a-small: chmod"] == "EPERM"
    assert not [name for name in got if got[name] == "done" and want[name] != "done"]
    m = stack.remount(*options)
    assert {name: (m / name).read_bytes() for name in files} == contents


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_what_lies_beside_is_changed_as_ever(stack, protect, io):
    _make(stack.lower())
    _protect(protect, stack.lower())
    m = stack.mount(*([io] if io else []))
    write_at(m / "source", b"x", 5)
    os.rename(m / "source", m / "moved")
    os.unlink(m / "i-link")
    (m / "new").write_text("new")
    assert sorted(os.listdir(m)) == sorted([f"{flag}-{name}" for flag in "ia" for name in ("dir", *_SIZES)]
                                           + ["a-link", "moved", "new"])


@pytest.mark.parametrize("io", ["", "io=cached"], ids=lambda io: io or "auto")
def test_what_is_stored_through_a_mapping_does_not_stay(stack, protect, io):
    (stack.lower() / "f").write_bytes(blob(100_000))
    (stack.lower() / "f").chmod(0o666)
    protect("i", stack.lower() / "f")
    m = stack.mount(*([io] if io else []))

    def store():
        try:
            fd = os.open(m / "f", os.O_RDWR)
        except PermissionError:
            return
        with mmap.mmap(fd, 0) as view:
            view[5000:5005] = b"store"
            with fails_with(errno.EPERM, errno.EIO):
                view.flush()
    in_child(store, uid=2000, gid=2000)
    assert wait_until(lambda: (m / "f").read_bytes() == blob(100_000))


def _flags(*paths):
    """The output of lsattr(1): {path: letters}."""
    said = subprocess.run(["lsattr", "-d", *paths], capture_output=True, text=True)
    assert said.returncode == 0 and not said.stderr, said.stderr
    return {path: set(letters) - {"-"} for letters, path in (line.split(None, 1) for line in said.stdout.splitlines())}


def _extended_flags(path):
    """fsx_xflags of FS_IOC_FSGETXATTR."""
    with opened(path, os.O_RDONLY) as fd:
        return struct.unpack_from("=I", fcntl.ioctl(fd, _FSGETXATTR, bytes(28)))[0]


_GETFLAGS, _SETFLAGS, _FSGETXATTR, _GETVERSION = 0x80086601, 0x40086602, 0x801C581F, 0x80087601
_XFLAGS = {"i": 8, "a": 0x10, "d": 0x80}


@pytest.mark.parametrize("io", _IO)
def test_lsattr_shows_flags_of_lower_files_and_of_the_upper(stack, protect, io):
    lower = stack.lower()
    _make(lower)
    for name in ("d-large", "a-moved"):
        (lower / name).write_bytes(blob(200_000))
    (lower / "d-dir").mkdir()
    protect("d", lower / "d-large", lower / "d-dir")
    _protect(protect, lower)
    m = stack.mount(*([io] if io else []))
    names = [*(f"{flag}-{what}" for flag in "ia" for what in ("small", "large", "dir")), "d-large", "d-dir"]
    assert _flags(m) == {str(m): set()}
    paths = {str(m / name): set(name[0]) for name in names} | {str(m / "source"): set()}
    assert _flags(*paths) == paths
    for name in names:
        assert _extended_flags(m / name) == _XFLAGS[name[0]], name
    # a copy loses nodump, as it does everywhere; a directory keeps what refuses changes
    (m / "i-dir" / "sub" / "new").touch()
    write_at(m / "d-large", b"x", 5)
    os.utime(m / "d-dir")
    (m / "new").touch()
    want = {str(m / "i-dir"): {"i"}, str(m / "i-dir" / "sub"): set(), str(m / "d-large"): set(), str(m / "d-dir"): set(), str(m / "new"): set()}
    assert _flags(*want) == want
    stack.remount(*([io] if io else []))
    assert _flags(*want) == want


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_flags_cannot_be_set_and_other_questions_end_nothing(stack, kind):
    path = stack.lower() / "x"
    path.mkdir() if kind == "directory" else path.write_text("x")
    m = stack.mount()
    for _ in range(2):
        with opened(m / "x", os.O_RDONLY) as fd:
            with pytest.raises(OSError) as e:
                fcntl.ioctl(fd, _SETFLAGS, struct.pack("=I", 0x40))
            assert e.value.errno == errno.EOPNOTSUPP
            with pytest.raises(OSError) as e:
                fcntl.ioctl(fd, _GETVERSION, bytes(8))
            assert e.value.errno == errno.ENOTTY
            assert fcntl.ioctl(fd, _GETFLAGS, bytes(8)) == bytes(8)
