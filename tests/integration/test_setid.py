# SPDX-License-Identifier: Apache-2.0
"""Set-id bits and capabilities of a file, changed by a program without the right to keep them, as on a local file
system (xfstests generic/355, 683 to 687): on disk, and in the attributes that the kernel caches."""
import errno
import mmap
import os
import shutil
import stat
import subprocess

import pytest

from support import acl, linux
from support.child import in_child
from support.content import blob
from support.expect import opened, through

pytestmark = pytest.mark.needs_privileges("other users, and capabilities of files")

_CAPABILITY = "security.capability"
_SETUID = bytes.fromhex("0100000280000000000000000000000000000000")  # cap_setuid+ep
_IO = ["", "io=cached", "io=direct", "timeout=0"]
_WRITER = 2000


# ---- ways to change a file ----

def _write_aligned(fd):
    with mmap.mmap(-1, 4096) as page:
        os.pwritev(fd, [page], 0)


def _splice(fd):
    out, into = os.pipe()
    os.write(into, b"spliced")
    os.splice(out, fd, 7, offset_dst=0)
    os.close(out)
    os.close(into)


def _copy(fd):
    with opened(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}")) + "/source") as source:
        os.copy_file_range(source, fd, 5000, 0, 0)


_WAYS = {
    "write": through(os.O_WRONLY, lambda fd: os.pwrite(fd, b"x", 10)),
    "append": through(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "beyond": through(os.O_WRONLY, lambda fd: os.pwrite(fd, b"x", 500_000)),
    "direct": through(os.O_WRONLY | os.O_DIRECT, _write_aligned),
    "splice": through(os.O_WRONLY, _splice),
    "truncate": lambda path: os.truncate(path, 10),
    "grow": lambda path: os.truncate(path, 500_000),
    "ftruncate": through(os.O_WRONLY, lambda fd: os.ftruncate(fd, 10)),
    "O_TRUNC": through(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "allocate": through(os.O_WRONLY, lambda fd: linux.fallocate(fd, 0, 0, 8192)),
    "allocate beyond": through(os.O_WRONLY, lambda fd: linux.fallocate(fd, linux.FALLOC_KEEP_SIZE, 500_000, 8192)),
    "punch": through(os.O_WRONLY, lambda fd: linux.fallocate(
        fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 0, 8192)),
    "zero": through(os.O_WRONLY, lambda fd: linux.fallocate(fd, linux.FALLOC_ZERO_RANGE, 0, 8192)),
    "copy": through(os.O_WRONLY, _copy),
    "nothing": through(os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "open": through(os.O_RDWR, lambda fd: os.pread(fd, 10, 0)),
}
_BITS = {"4777": 0o4777, "2777": 0o2777, "6777": 0o6777, "2767": 0o2767, "1777": 0o1777, "cap": 0o777, "cap4777": 0o4777}
_SIZES = {"small": 9_000, "large": 200_000}


def _make(directory):
    """One file for each way, set of bits and size."""
    (directory / "source").write_bytes(blob(5000))
    for way in _WAYS:
        for bits, mode in _BITS.items():
            for size, n in _SIZES.items():
                path = directory / f"{way}-{bits}-{size}"
                path.write_bytes(blob(n))
                path.chmod(mode)
                if bits.startswith("cap"):
                    os.setxattr(path, _CAPABILITY, _SETUID)


def _files(directory):
    return sorted(path for path in directory.iterdir() if path.name != "source")


def _change(directory):
    for path in _files(directory):
        _WAYS[path.name.split("-")[0]](path)


def _capability(path):
    try:
        return os.getxattr(path, _CAPABILITY)
    except OSError as e:
        assert e.errno in (errno.ENODATA, errno.EOPNOTSUPP)
        return None


def _seen(directory):
    """First what the kernel has, then what it is told."""
    seen = {path.name: [f"{linux.cached_mode(path):o}"] for path in _files(directory)}
    for path in _files(directory):
        seen[path.name] += [f"{stat.S_IMODE(path.stat().st_mode):o}", _capability(path)]
    return seen


def _differences(got, want):
    return {name: (got[name], want[name]) for name in want if got[name] != want[name]}


@pytest.fixture
def model(plain):
    """The result of the same calls on a local file system."""
    _make(plain)
    in_child(lambda: _change(plain), uid=_WRITER, gid=_WRITER)
    return _seen(plain)


def test_the_model_clears_what_it_should(model):
    assert model["write-4777-large"] == ["777", "777", None]
    assert model["punch-6777-small"] == ["777", "777", None]
    assert model["nothing-6777-small"] == ["6777", "6777", None]
    assert model["open-cap-small"][2]


@pytest.mark.parametrize("state", ["lower", "copied up", "remounted", "own"])
@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_every_way_of_writing_clears_what_it_clears_elsewhere(stack, model, io, state):
    options = [io] if io else []
    if state != "own":
        _make(stack.lower())
    m = stack.mount(*options)
    if state == "own":
        _make(m)
    if state in ("copied up", "remounted"):
        for path in _files(m):
            os.utime(path, (1, 1))
    if state == "remounted":
        m = stack.remount(*options)
    _seen(m)
    in_child(lambda: _change(m), uid=_WRITER, gid=_WRITER)
    assert _differences(_seen(m), model) == {}
    m = stack.remount(*options)
    assert _differences(_seen(m), model) == {}


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_a_program_that_was_overwritten_runs_without_privileges(stack, io):
    program = shutil.copy(shutil.which("id"), stack.lower() / "id")
    os.chmod(program, 0o6777)
    m = stack.mount(*([io] if io else []))

    def euid():
        return int(subprocess.run([m / "id", "-u"], stdout=subprocess.PIPE, check=True).stdout)

    def attack():
        if euid() != 0:
            os._exit(0)  # set-id bits mean nothing here
        with opened(m / "id", os.O_WRONLY) as fd:
            os.pwrite(fd, b"\x7f", 0)
        assert euid() == _WRITER
    in_child(attack, uid=_WRITER, gid=_WRITER)


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_chown_with_neither_id_clears_them_for_those_who_may(stack, plain, io):
    """chown(2) with -1 and -1, of root, of the owner, and of others. Elsewhere others get EPERM if there is a bit to
    clear; here the call succeeds for them and clears nothing."""
    def make(directory):
        for who in ("root", "owner", "other"):
            for mode in (0o4755, 0o2775, 0o6711, 0o2745, 0o755):
                path = directory / f"{who}-{mode:o}"
                path.write_bytes(blob(200_000))
                os.chown(path, 1000, 1000)
                path.chmod(mode)

    def chown(directory, who):
        for path in directory.glob(f"{who}-*"):
            try:
                os.chown(path, -1, -1)
            except PermissionError:
                assert who == "other" and directory == plain

    make(stack.lower())
    make(plain)
    m = stack.mount(*([io] if io else []))
    for directory in (plain, m):
        _seen(directory)
        chown(directory, "root")
        in_child(lambda: chown(directory, "owner"), uid=1000, gid=1000)
        in_child(lambda: chown(directory, "other"), uid=_WRITER, gid=_WRITER)
    assert _differences(_seen(m), _seen(plain)) == {}
    assert linux.cached_mode(m / "root-6711") == 0o711 and linux.cached_mode(m / "other-6711") == 0o6711


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_writes_of_root_clear_what_they_clear_elsewhere(stack, plain, io):
    """The real root keeps set-id bits, and the capability goes."""
    _make(stack.lower())
    _make(plain)
    m = stack.mount(*([io] if io else []))
    for directory in (plain, m):
        _seen(directory)
        _change(directory)
    assert _differences(_seen(m), _seen(plain)) == {}


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_a_writer_that_could_not_open_the_file_clears_them(stack, io):
    """The writer was given the descriptor."""
    (stack.lower() / "f").write_bytes(blob(200_000))
    (stack.lower() / "f").chmod(0o6755)
    m = stack.mount(*([io] if io else []))
    os.utime(m / "f", (1, 1))
    with opened(m / "f", os.O_WRONLY) as fd:
        in_child(lambda: os.pwrite(fd, b"x", 5), uid=_WRITER, gid=_WRITER)
        assert linux.cached_mode(m / "f") == 0o755


@pytest.mark.parametrize("io", _IO, ids=lambda io: io or "auto")
def test_each_write_of_one_open_file_clears_them(stack, io):
    """The kernel remembers of a file that there is nothing to clear."""
    (stack.lower() / "f").write_bytes(blob(200_000))
    m = stack.mount(*([io] if io else []))
    (m / "f").chmod(0o666)
    with opened(m / "f", os.O_WRONLY) as fd:
        for off in range(3):
            os.fchmod(fd, 0o6777)
            in_child(lambda: os.pwrite(fd, b"x", off), uid=_WRITER, gid=_WRITER)
            assert linux.cached_mode(m / "f") == 0o777
        os.fchmod(fd, 0o6711)
        in_child(lambda: os.pwrite(fd, b"x", 5), uid=_WRITER, gid=_WRITER)
        assert linux.cached_mode(m / "f") == 0o711


@pytest.mark.parametrize("option", ["", "noacl", "xattr_permissions=2"])
def test_the_mode_that_an_acl_gives_is_seen(stack, option):
    (stack.lower() / "f").write_bytes(b"f")
    (stack.lower() / "f").chmod(0o640)
    m = stack.mount(*([option] if option else []))
    entries = ((acl.USER_OBJ, 7), (acl.USER, 6, 3), (acl.GROUP_OBJ, 6), (acl.MASK, 6), (acl.OTHER, 4))
    for path in (m / "f", m / "own"):
        path.touch(0o640)
        assert linux.cached_mode(path) & 0o777 in (0o640, 0o600)
        try:
            os.setxattr(path, acl.ACCESS, acl.encode(*entries))
        except OSError as e:
            assert option == "noacl" and e.errno == errno.EOPNOTSUPP
            continue
        assert linux.cached_mode(path) == stat.S_IMODE(path.stat().st_mode) == 0o764
