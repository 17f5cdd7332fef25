# SPDX-License-Identifier: Apache-2.0
"""The few system calls Python's os module does not offer."""
import ctypes
import errno
import fcntl
import os
import struct
import subprocess

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_FORCE, MNT_DETACH = 1, 2
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RENAME_WHITEOUT = 4
FALLOC_KEEP_SIZE = 1
FALLOC_PUNCH_HOLE = 2
FALLOC_COLLAPSE_RANGE = 8
FALLOC_ZERO_RANGE = 16
FALLOC_INSERT_RANGE = 32
FALLOC_UNSHARE_RANGE = 64
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
STATX_MODE = 2
AT_STATX_FORCE_SYNC = 0x2000
FICLONE = 0x40049409
FICLONERANGE = 0x4020940d
SYNC_FILE_RANGE_WAIT_BEFORE = 1
SYNC_FILE_RANGE_WRITE = 2
SYNC_FILE_RANGE_WAIT_AFTER = 4


def _check(result, path=None):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


def _bytes(text):
    return None if text is None else os.fsencode(text)


def unshare(flags):
    _check(_libc.unshare(flags))


def mount(source, target, fstype=None, flags=0, data=None):
    _check(_libc.mount(_bytes(source), _bytes(target), _bytes(fstype), ctypes.c_ulong(flags),
                       _bytes(data)), target)


def umount(target, flags=0):
    """A plain user's mounts are fusermount3's to take away."""
    try:
        _check(_libc.umount2(_bytes(target), flags), target)
    except PermissionError:
        if os.geteuid() == 0:
            raise
        _fusermount_away(target, ["-z"] if flags & MNT_DETACH else [])


def _fusermount_away(target, options):
    done = subprocess.run(["fusermount3", "-u", *options, "--", os.fspath(target)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        is_absent = "not found in" in done.stdout
        raise OSError(errno.EINVAL if is_absent else errno.EBUSY, done.stdout.strip(), os.fspath(target))


def private_mounts():
    """Leave the callers' mount namespace, so that nothing mounted here outlives this process."""
    unshare(CLONE_NEWNS)
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def renameat2(old, new, flags=0):
    _check(_libc.renameat2(AT_FDCWD, _bytes(old), AT_FDCWD, _bytes(new), flags), str(old))


def link_descriptor(fd, new):
    """Give an open file a name (Python's os.link never follows the link under /proc)."""
    _check(_libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, _bytes(new),
                        AT_SYMLINK_FOLLOW), str(new))


def link_empty_path(fd, new):
    """The same by the descriptor itself, which takes privileges."""
    _check(_libc.linkat(fd, b"", AT_FDCWD, _bytes(new), AT_EMPTY_PATH), str(new))


def fallocate(fd, mode, off, length):
    _check(_libc.fallocate(fd, mode, ctypes.c_int64(off), ctypes.c_int64(length)))


def clone(target, source):
    fcntl.ioctl(target, FICLONE, source)


def clone_range(target, target_off, source, source_off, length):
    fcntl.ioctl(target, FICLONERANGE,
                struct.pack("qQQQ", source, source_off, length, target_off))


def sync_file_range(fd, off, length):
    _check(_libc.sync_file_range(fd, ctypes.c_int64(off), ctypes.c_int64(length),
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE
                                 | SYNC_FILE_RANGE_WAIT_AFTER))


def cached_mode(path):
    """The mode as `stat -c %a` asks for it: nothing else is wanted, so the kernel may answer from what it has. It goes
    by that when it executes the file, too."""
    buffer = ctypes.create_string_buffer(256)
    _check(_libc.statx(AT_FDCWD, _bytes(path), 0, STATX_MODE, buffer), str(path))
    return struct.unpack_from("H", buffer, 28)[0] & 0o7777


def syncfs(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(_libc.syncfs(fd))
    finally:
        os.close(fd)


_STATX_BASIC = 0x7ff


class Attributes:
    """The result of statx(2), comparable: of the file itself, by path, or of a descriptor."""

    def __init__(self, raw):
        (_, _, _, self.nlink, self.uid, self.gid, self.mode, _, self.ino, self.size, self.blocks, _) = \
            struct.unpack_from("IIQIIIHHQQQQ", raw)
        self.atime_ns, _, self.ctime_ns, self.mtime_ns = (
            seconds * 10**9 + nanoseconds for seconds, nanoseconds, _ in struct.iter_unpack("qIi", raw[64:128]))

    def __eq__(self, other):
        return vars(self) == vars(other)

    def differences(self, other):
        return {name: (value, getattr(other, name)) for name, value in vars(self).items()
                if value != getattr(other, name)}


def attributes(of, is_asked=False):
    """is_asked: of the server, whatever the kernel remembers."""
    raw = ctypes.create_string_buffer(256)
    flags = AT_STATX_FORCE_SYNC if is_asked else 0
    fd, path = (of, b"") if isinstance(of, int) else (AT_FDCWD, _bytes(of))
    flags |= AT_EMPTY_PATH if path == b"" else AT_SYMLINK_NOFOLLOW
    _check(_libc.statx(fd, path, flags, _STATX_BASIC, raw), str(of))
    return Attributes(raw.raw)


class _Dirent(ctypes.Structure):
    _fields_ = [("d_ino", ctypes.c_uint64), ("d_off", ctypes.c_int64),
                ("d_reclen", ctypes.c_uint16), ("d_type", ctypes.c_uint8),
                ("d_name", ctypes.c_char * 256)]


_libc.opendir.restype = ctypes.c_void_p
_libc.readdir64.restype = ctypes.POINTER(_Dirent)
_libc.telldir.restype = ctypes.c_long


class DirStream:
    """opendir(3) as C programs use it: positions can be told and sought."""

    def __init__(self, path):
        ctypes.set_errno(0)
        self._dir = ctypes.c_void_p(_libc.opendir(_bytes(path)))
        if not self._dir:
            _check(-1, str(path))

    def read(self):
        """The next (name, d_ino, d_type), or None at the end."""
        ctypes.set_errno(0)
        entry = _libc.readdir64(self._dir)
        if not entry:
            if ctypes.get_errno():
                _check(-1)
            return None
        found = entry.contents
        return os.fsdecode(found.d_name), found.d_ino, found.d_type

    def tell(self):
        return _libc.telldir(self._dir)

    def seek(self, position):
        _libc.seekdir(self._dir, ctypes.c_long(position))

    def rewind(self):
        _libc.rewinddir(self._dir)

    def close(self):
        _libc.closedir(self._dir)

    def __iter__(self):
        while (entry := self.read()) is not None:
            yield entry

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class _Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_char * 128)]


AT_HANDLE_FID = 0x200


def handle_of(path, flags=0):
    """Type and bytes of a file's handle; None where there are none. AT_HANDLE_FID: as events have it, which may not be good for
    more."""
    handle, mount_id = _Handle(size=128), ctypes.c_int()
    if _libc.name_to_handle_at(-100, _bytes(path), ctypes.byref(handle), ctypes.byref(mount_id), flags) == -1:
        return None
    raw = ctypes.string_at(ctypes.addressof(handle) + _Handle.bytes.offset, handle.size)
    return handle.type, raw


def open_by_handle(mount_fd, kind, raw, flags=os.O_RDONLY):
    handle = _Handle(size=len(raw), type=kind)
    ctypes.memmove(ctypes.addressof(handle) + _Handle.bytes.offset, raw, len(raw))
    return _check(_libc.open_by_handle_at(mount_fd, ctypes.byref(handle), flags))
