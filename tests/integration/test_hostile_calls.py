# SPDX-License-Identifier: Apache-2.0
"""Hostile calls of a container, and hostile files of an image, get an error of the usual kind, no more."""
import ctypes
import contextlib
import errno
import fcntl
import mmap
import os
import random
import re
import signal
import socket
import stat
import struct
import subprocess

import pytest

from support import forge, linux, procfs, rootless, server, syscount
from support.child import in_child
from support.content import MIB, blob
from support.expect import exists, fails_with, names_in, opened, read_at, write_at

_libc = ctypes.CDLL(None, use_errno=True)
_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS = 0x80086601, 0x40086602
_FS_IOC_FSGETXATTR, _FS_IOC_FSSETXATTR = 0x801C581F, 0x401C5820
_FIDEDUPERANGE, _FIFREEZE, _FITRIM, _FIBMAP, _FIEMAP = 0xC0189436, 0xC0045877, 0xC0185879, 1, 0xC020660B
_FUSE_DEV_CLONE, _FUSE_BACKING_OPEN, _FUSE_BACKING_CLOSE = 0x8004E500, 0x4010E501, 0x4004E502
_REFUSALS = {errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EXDEV, errno.EBADF, errno.EISDIR,
             errno.EFAULT, errno.EACCES, errno.ENOSYS, errno.EOVERFLOW, errno.EFBIG, errno.ENOMEM}


def _ioctl(fd, number, size=4096, fill=b"\xff"):
    """The error, or 0."""
    buffer = ctypes.create_string_buffer(fill * size, size)
    ctypes.set_errno(0)
    return ctypes.get_errno() if _libc.ioctl(fd, ctypes.c_ulong(number), buffer) < 0 else 0


@pytest.fixture
def mixed(stack):
    """One file of each kind there is, and what they hold."""
    for name in ("lower", "partial"):
        (stack.lower() / name).write_bytes(blob(MIB))
    (stack.lower() / "dir").mkdir()
    m = stack.mount()
    (m / "upper").write_bytes(blob(MIB))
    write_at(m / "partial", blob(MIB)[:1], 0)
    return m


def _is_whole(m):
    return all((m / name).read_bytes() == blob(MIB) for name in ("lower", "partial", "upper"))


@pytest.mark.parametrize("name", ["lower", "partial", "upper", "dir", "."])
def test_ioctls_change_nothing(stack, mixed, name):
    rng = random.Random(5)
    numbers = [_FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR, _FIDEDUPERANGE, _FITRIM, _FIBMAP, _FUSE_DEV_CLONE,
               _FUSE_BACKING_OPEN, _FUSE_BACKING_CLOSE]
    numbers += [rng.getrandbits(32) for _ in range(200)] + [0x40000000 | rng.randrange(256) << 8 | k for k in range(100)]
    with opened(mixed / name) as fd:
        before = os.fstat(fd)
        for number in numbers:
            if number in (_FIFREEZE, 0x5421, 0x5450, 0x5451, 0x5452, 0x5460):
                continue  # of descriptors, and not of what is open
            assert _ioctl(fd, number) in _REFUSALS, hex(number)
        # what lsattr asks is answered
        assert _ioctl(fd, _FS_IOC_GETFLAGS) == _ioctl(fd, _FS_IOC_FSGETXATTR) == 0
        after = os.fstat(fd)
        assert (before.st_mode, before.st_size, before.st_mtime_ns) == (after.st_mode, after.st_size, after.st_mtime_ns)
    assert _is_whole(mixed)


_EDGES = [0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, (1 << 63) - 4096, (1 << 63) - 1, 1 << 63, (1 << 64) - 4096,
          (1 << 64) - 1]


def test_clones_of_strange_ranges(stack, mixed):
    rng = random.Random(6)
    with opened(mixed / "lower") as source, opened(mixed / "upper", os.O_RDWR) as target:
        for _ in range(300):
            off, length, to = (rng.choice(_EDGES) for _ in range(3))
            with fails_with(errno.EOPNOTSUPP, errno.EINVAL, errno.EOVERFLOW, errno.EFBIG, errno.ENOTTY, errno.EXDEV):
                fcntl.ioctl(target, linux.FICLONERANGE, struct.pack("=qQQQ", source, off, length, to))
                assert length == 0 or off >= MIB, (off, length, to)
                raise OSError(errno.EINVAL, "nothing to do")
        with fails_with(errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.EXDEV):
            linux.clone(target, source)
    assert _is_whole(mixed)


@pytest.mark.writethrough("what the file system refuses is told by close")
def test_offsets_and_lengths_at_the_edges(stack, mixed):
    """Everything that takes an offset, as far out as numbers go."""
    signed = [-(1 << 63), -4096, -1, *_EDGES[:9]]
    copy = _libc.copy_file_range
    for name in ("upper", "partial"):
        with opened(mixed / name, os.O_RDWR) as fd, opened(mixed / "lower") as source:
            for off in signed:
                if 0 <= off < (1 << 63) - 10:
                    os.pread(fd, 10, off)
                for mode in (1, 2, 3, 16, 17, 0x7f):
                    if off in range(MIB + 1):
                        continue
                    _libc.fallocate(fd, mode, ctypes.c_int64(off), ctypes.c_int64(1 << 62))
                for whence in (os.SEEK_DATA, os.SEEK_HOLE):
                    _libc.lseek64(fd, ctypes.c_int64(off), whence)
                if off < 0 or off > 2 * MIB:
                    at = ctypes.c_int64(off)
                    copy(source, None, fd, ctypes.byref(at), ctypes.c_size_t(1 << 40), 0)
                    with fails_with(errno.EINVAL, errno.EFBIG, errno.ENOSPC):
                        assert os.pwrite(fd, b"x", off) == 1
                        raise OSError(errno.EFBIG, "there it is")
            size = os.fstat(fd).st_size
            os.ftruncate(fd, MIB)
            assert size >= MIB
    assert _is_whole(mixed)


def _long(length):
    return "n" * length


def test_names_of_every_length(stack):
    m = stack.mount()
    for length in (200, 250, 251, 252, 255):
        (m / _long(length)).write_text("x")
        os.rename(m / _long(length), m / ("m" * length))
        os.link(m / ("m" * length), m / ("l" * length))
        os.unlink(m / ("m" * length))
        assert (m / ("l" * length)).read_text() == "x"
    for length in (256, 300, 4000):
        for call in (os.mkdir, os.unlink, os.rmdir, os.mkfifo, os.lstat, os.listxattr,
                     lambda p: os.symlink("x", p), lambda p: os.rename(m / ("l" * 200), p),
                     lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY))):
            with fails_with(errno.ENAMETOOLONG):
                call(m / _long(length))
    odd = [b"\x01", b"\xff\xfe", b"new\nline", b" ", b"-rf", b"...", b"\\", b"\xc3\x28", b"%s%n", b"trusted.overlay."]
    for name in odd:
        with opened(os.fsencode(m) + b"/" + name, os.O_CREAT | os.O_WRONLY):
            pass
    os.symlink("t" * 4095, m / "longest")
    assert os.readlink(m / "longest") == "t" * 4095
    want = sorted(os.listdir(os.fsencode(m)))
    stack.remount()
    assert sorted(os.listdir(os.fsencode(m))) == want and set(odd) < set(want)


def test_attributes_of_every_size(stack):
    """Taken, or refused as the file system below refuses them; and then there as they were set."""
    (stack.lower() / "f").write_bytes(blob(100_000))
    m = stack.mount()
    kept = {}
    for length in (1, 5, 100, 249, 250, 251, 300):
        name = "user." + "a" * length
        try:
            os.setxattr(m / "f", name, b"v" * length)
            kept[name] = b"v" * length
        except OSError as e:
            assert e.errno in (errno.ERANGE, errno.ENOSPC) and length > 200
    for size in (0, 1, 100, 1000, 3000, 4096, 20_000, 65_535, 65_536, 65_537, 200_000):
        name = f"user.size{size}"
        try:
            os.setxattr(m / "f", name, b"s" * size)
            kept[name] = b"s" * size
        except OSError as e:
            assert e.errno in (errno.ENOSPC, errno.E2BIG, errno.ERANGE, errno.EDQUOT)
            with fails_with(errno.ENODATA):
                os.getxattr(m / "f", name)
    for name in ("user.", "user", "", ".", "system.x", "bogus.x", "user.\xff", "security." + "x" * 250):
        try:
            os.setxattr(m / "f", name, b"v")
            os.removexattr(m / "f", name)
        except OSError as e:
            assert e.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.ERANGE, errno.ENODATA, errno.ENOSPC)
    for _ in range(2):
        found = {name: os.getxattr(m / "f", name) for name in os.listxattr(m / "f") if name.startswith("user.")}
        assert found == kept and len(kept) > 5
        stack.remount()
    assert (m / "f").read_bytes() == blob(100_000)


@pytest.mark.slow
def test_directory_of_64k_entries_made_renamed_and_removed(stack):
    m = stack.mount()
    (m / "d").mkdir()
    here = os.open(m / "d", os.O_RDONLY)
    for number in range(65_537):
        os.mknod(f"f{number}", dir_fd=here)
    assert len(os.listdir(here)) == 65_537
    os.close(here)
    os.rename(m / "d", m / "e")
    assert len(os.listdir(stack.remount() / "e")) == 65_537
    here = os.open(m / "e", os.O_RDONLY)
    for number in range(65_537):
        os.unlink(f"f{number}", dir_fd=here)
    os.close(here)
    os.rmdir(m / "e")
    assert names_in(m) == []


# ---- what a layer holds ----

def _map_in(layer):
    for name in ("f", "g"):
        (layer / name).write_bytes(blob(MIB))


def test_map_that_is_reached_by_a_second_name(stack):
    """No container can make such a name, but an image may have one: a destroyed map harms that layer's files alone."""
    _map_in(stack.lower())
    write_at(stack.mount() / "f", b"own", 0)
    stack.umount()
    os.link(stack.upper / forge.MAP_NAME, stack.upper / "evil")
    m = stack.mount()
    other = stack.second_mount([stack.lower()])
    with opened(m / "evil", os.O_RDWR) as fd:
        with mmap.mmap(fd, 0) as mapping:
            for at in range(128, len(mapping), 64):
                mapping[at] ^= 0x55
        for _ in range(50):
            os.ftruncate(fd, 0)
            for off in (0, 4096, 300_000):
                try:
                    write_at(m / "g", b"changed", off)
                    write_at(m / "f", b"changed", off)
                except OSError as e:
                    assert e.errno in (errno.EIO, errno.ENOSPC)
            os.pwrite(fd, b"\xff" * 10_000, 0)
    assert (other.mnt / "g").read_bytes() == blob(MIB)
    try:
        assert (m / "g").read_bytes()[-1000:] == blob(MIB)[-1000:]
    except OSError as e:
        assert e.errno == errno.EIO
    (m / "new").write_text("new")
    assert (m / "new").read_text() == "new"


@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_forged_origins_are_numbers_at_most(stack, layer):
    top = stack.lower() if layer == "lower" else stack.upper
    stack.lower(1 if layer == "lower" else 0)
    values = [b"", b"\x00", b"\xff" * 255, b"../../../etc/passwd", b"/etc/passwd", b"f0", b"a/" * 2000, b"\xfb" * 100,
              b"\x00\xfb\x1d\x00\x01" + bytes(24), os.urandom(64)]
    names = ["user.veneer.origin", "trusted.veneer.origin", "trusted.overlay.origin", "user.overlay.origin",
             "trusted.overlay.impure", "trusted.overlay.nlink", "trusted.overlay.uuid", "trusted.overlay.upper",
             "user.overlay.nlink", "user.veneer.flatten"]
    for number, value in enumerate(values):
        path = top / f"f{number}"
        path.write_bytes(b"%d" % number)
        for name in names:
            try:
                os.setxattr(path, name, value)
            except OSError as e:
                assert e.errno in (errno.EPERM, errno.ENOSPC, errno.ERANGE)
    m = stack.mount()
    for number in range(len(values)):
        path = m / f"f{number}"
        assert path.read_bytes() == b"%d" % number and path.lstat().st_nlink == 1
        assert not [name for name in os.listxattr(path) if "veneer" in name or "overlay" in name]
        path.chmod(0o600)
        os.link(path, m / f"l{number}")
        os.rename(path, m / f"r{number}")
    assert len({(m / f"r{number}").lstat().st_ino for number in range(len(values))}) == len(values)
    stack.remount()
    assert [(m / f"l{number}").read_bytes() for number in range(len(values))] == [b"%d" % n for n in range(len(values))]


@pytest.mark.parametrize("size, clip", [(0, (1 << 63) - 1), ((1 << 63) - 1, 0), ((1 << 63) - 1, (1 << 63) - 1),
                                        (1, 1 << 50)])
def test_forged_sizes_of_lower_files(stack, size, clip):
    """The mark says how large the lower file was; it is not, and so nothing of it is shown. Where the clip is 0 nothing of it could
    be seen anyway, and the file is its own."""
    low = stack.lower(1)
    (low / "f").write_bytes(b"t" * 5000)
    top = stack.lower(0)
    with open(top / "f", "wb") as f:
        f.truncate(1 << 40)
    os.setxattr(top / "f", forge.MARK_NAME, forge.mark(b"f", size=size, mtime_ns=(low / "f").stat().st_mtime_ns))
    (top / forge.MAP_NAME).write_bytes(forge.map_file([forge.record(forge.NEW, 1, clip)]))
    m = stack.mount()
    with contextlib.nullcontext() if clip == 0 else fails_with(errno.EIO):
        assert read_at(m / "f", 10, 0) == bytes(10)
    with contextlib.nullcontext() if clip == 0 else fails_with(errno.EIO):
        write_at(m / "f", b"x", 1 << 39)
    with contextlib.nullcontext() if clip == 0 else fails_with(errno.EIO):
        os.truncate(m / "f", 10)
    os.unlink(m / "f")
    assert not exists(stack.remount() / "f")


def test_redirects_that_lead_to_each_other(stack):
    low = stack.lower(1)
    for name in ("a", "b", "c"):
        (low / name).mkdir()
        (low / name / f"in-{name}").write_text(name)
    top = stack.lower(0)
    for name, target in (("a", b"/b"), ("b", b"/a"), ("c", b"/c/c")):
        (top / name).mkdir()
        os.setxattr(top / name, "user.overlay.redirect", target)
    (top / "c" / "c").mkdir()
    os.setxattr(top / "c" / "c", "user.overlay.redirect", b"/c")
    m = stack.mount()
    assert names_in(m / "a") == ["in-b"] and names_in(m / "b") == ["in-a"]
    for path in ("c", "c/c"):
        try:
            assert set(names_in(m / path)) <= {"c", "in-c"}
        except OSError as e:
            assert e.errno == errno.EIO
    os.rename(m / "a", m / "b" / "a")
    assert names_in(stack.remount() / "b" / "a") == ["in-b"]


def test_whiteouts_in_odd_places(stack):
    low, top = stack.lower(1), stack.lower(0)
    (low / "d").mkdir()
    (low / "d" / "f").write_text("f")
    (low / "f").write_text("f")
    names = [".wh.", ".wh..", ".wh...", ".wh..wh.f", ".wh.d.", ".wh./d"[:4], ".wh." + "x" * 251, ".wh.\n"]
    for name in names:
        (top / name).write_text("")
    (top / "d").mkdir()
    (top / "d" / ".wh..wh..opq").mkdir()  # in the place of a file
    m = stack.mount()
    assert names_in(m) == ["d", "f"]
    assert names_in(m / "d") in ([], ["f"])
    for name in ("x" * 251, "\n"):
        (m / name).write_text("made")
    assert names_in(stack.remount()) == sorted(["d", "f", "x" * 251, "\n"])


@pytest.mark.needs_root("makes devices")
@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_devices_of_a_layer_are_not_opened_by_the_server(stack, layer):
    """The kernel and the container's mount decide what devices mean."""
    top = stack.lower() if layer == "lower" else stack.upper
    stack.lower()
    kinds = {"null": (stat.S_IFCHR, 1, 3), "none": (stat.S_IFCHR, 240, 77), "disk": (stat.S_IFBLK, 7, 250)}
    for name, (kind, major, minor) in kinds.items():
        os.mknod(top / name, kind | 0o666, os.makedev(major, minor))
        os.mknod(top / f".wh.{name}-not", kind | 0o666, os.makedev(major, minor))
    m = stack.mount()
    for name, (kind, major, minor) in kinds.items():
        st = (m / name).lstat()
        assert (stat.S_IFMT(st.st_mode), st.st_rdev) == (kind, os.makedev(major, minor))
        os.chmod(m / name, 0o600)
        os.rename(m / name, m / f"{name}2")
        os.link(m / f"{name}2", m / f"{name}3")
        st = (m / f"{name}3").lstat()
        assert (stat.S_IFMT(st.st_mode), st.st_rdev) == (kind, os.makedev(major, minor))
    assert not [path for path in procfs.opened(stack.pid).values() if path.startswith("/dev/loop")]


@pytest.mark.needs_root("ids of its own")
def test_set_id_bits_never_belong_to_anybody_but_their_container(stack):
    """A container's root is 100000 outside: what it makes set-user-id is that one's, on the disk too."""
    (stack.lower() / "su").write_bytes(b"#!")
    os.chown(stack.lower() / "su", 100_005, 100_005)
    os.chmod(stack.lower() / "su", 0o6755)
    os.chown(stack.lower(), 100_000, 100_000)
    os.chown(stack.upper, 100_000, 100_000)
    stack.remember_lowers()
    m = stack.mount("uidmapping=100000:0:1000,gidmapping=100000:0:1000")

    def look():
        for path in stack.upper.rglob("*"):
            st = path.lstat()
            if st.st_mode & (stat.S_ISUID | stat.S_ISGID):
                assert st.st_uid >= 100_000 and st.st_gid >= 100_000, path
    (m / "made").write_bytes(b"#!")
    for name in ("made", "su"):
        for call in (lambda p: os.chmod(p, 0o6755), lambda p: os.chown(p, 0, 0), lambda p: os.chmod(p, 0o6755),
                     lambda p: os.rename(p, str(p) + "2"), lambda p: os.chmod(str(p) + "2", 0o6755)):
            try:
                call(m / name)
            except OSError as e:
                assert e.errno in (errno.EPERM, errno.EINVAL, errno.EOVERFLOW, errno.ENOENT)
            look()
    st = (stack.upper / "made2").lstat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o6755, 100_000, 100_000)


@pytest.mark.standalone("the calls of a shared server are those of others too")
@pytest.mark.parametrize("mode", [0o4755, 0o6711, 0o2750])
def test_no_file_is_set_id_before_it_has_its_owner(stack, mode):
    """A server that is killed between must not leave one that is its own user's."""
    m = stack.mount()
    os.chmod(m, 0o777)
    old_mask = os.umask(0)
    table = stack.base / "calls"
    try:
        syscount.counted_but("nothing", stack.pid, lambda: os.close(os.open(m / "made", os.O_CREAT | os.O_WRONLY, mode)),
                             table)
    finally:
        os.umask(old_mask)
    made = [line for line in table.read_text().splitlines() if "O_CREAT" in line]
    assert made and not [line for line in made if re.search(r"0[2467]\d\d\d\)", line)], made
    assert stat.S_IMODE((m / "made").lstat().st_mode) == mode
    assert stat.S_IMODE((stack.remount() / "made").lstat().st_mode) == mode


# ---- the server itself ----

_GIVEN_UP = {"KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "NET_ADMIN": 12, "SYS_MODULE": 16, "SYS_RAWIO": 17,
             "SYS_CHROOT": 18, "SYS_BOOT": 22, "SYS_TIME": 25, "AUDIT_CONTROL": 30, "SYSLOG": 34, "BPF": 39}


def test_server_has_given_up_what_it_never_needs(stack):
    stack.mount()
    for text in procfs.of_threads(stack.pid, "status").values():
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        # what has to run fusermount3 again must let it have its privileges
        if not rootless.is_plain() or server.is_shared():
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        for kind in ("CapEff", "CapPrm", "CapInh"):
            held = int(status[kind], 16)
            assert [name for name, bit in _GIVEN_UP.items() if held >> bit & 1] == [], kind


# ---- another user ----

@pytest.mark.needs_root("becomes another user")
def test_server_of_another_user_is_out_of_reach(stack):
    (stack.lower() / "f").write_text("f")
    stack.mount()
    pid, run_directory = stack.pid, stack.base / "own"
    asked = subprocess.run([stack.program, "stats"], env={**os.environ, "VENEER_RUNTIME_DIR": str(run_directory)}, capture_output=True)
    assert asked.returncode == 1 and run_directory.is_dir(), "a program makes the directory that it looks into"

    def attack():
        for name in ("fd", "fdinfo"):
            with fails_with(errno.EACCES, errno.EPERM):
                os.listdir(f"/proc/{pid}/{name}")
        for name in ("root", "cwd", "exe", "ns/mnt"):
            with fails_with(errno.EACCES, errno.EPERM):
                os.readlink(f"/proc/{pid}/{name}")
        for name in ("mem", "environ", "maps", "io"):
            with fails_with(errno.EACCES, errno.EPERM):
                os.read(os.open(f"/proc/{pid}/{name}", os.O_RDONLY), 1)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL):
            with fails_with(errno.EPERM):
                os.kill(pid, number)
        for directory in (run_directory, stack.work / "work"):
            with fails_with(errno.EACCES, errno.EPERM):
                os.listdir(directory)
    in_child(attack, uid=54321, gid=54321)
    assert (stack.mnt / "f").read_text() == "f"


def test_sockets_and_fifos_of_a_layer_reach_nobody(stack):
    """Their other ends are the container's own affair."""
    (stack.lower() / "d").mkdir()
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(stack.lower())
        try:
            s.bind("sock")
            s.listen()
        finally:
            os.chdir(here)
        os.mkfifo(stack.lower() / "fifo")
        stack.remember_lowers()
        m = stack.mount()
        with socket.socket(socket.AF_UNIX) as c:
            os.chdir(m)
            try:
                with fails_with(errno.ECONNREFUSED):
                    c.connect("sock")
            finally:
                os.chdir(here)
        with opened(m / "fifo", os.O_RDONLY | os.O_NONBLOCK) as fd:
            with fails_with(errno.ENXIO):
                os.open(stack.lower() / "fifo", os.O_WRONLY | os.O_NONBLOCK)
            assert os.read(fd, 1) == b""
        os.chmod(m / "sock", 0o700)
        os.rename(m / "fifo", m / "fifo2")
        assert stat.S_ISFIFO((m / "fifo2").lstat().st_mode)
