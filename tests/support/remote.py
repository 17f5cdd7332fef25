# SPDX-License-Identifier: Apache-2.0
"""A directory as a far file system would show it: a FUSE server of the tests' own that counts what reaches it,
answers late, and can fail, hang, forget its inode numbers, hide the types of entries and have no attributes.

Run as a program it is the server; what it does is in memory that the test shares with it."""
import contextlib
import ctypes
import errno
import mmap
import os
import stat
import struct
import subprocess
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
GETXATTR, LISTXATTR, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 22, 23, 25, 26, 27, 28, 29
INTERRUPT, DESTROY, BATCH_FORGET = 36, 38, 42
NAMES = {value: name for name, value in list(globals().items()) if name.isupper()}
NO_ANSWER = (FORGET, INTERRUPT, BATCH_FORGET)
# Requests to the far side that ask for something, and do not just tell that a file was closed.
QUESTIONS = (LOOKUP, GETATTR, READLINK, OPEN, READ, GETXATTR, LISTXATTR, OPENDIR, READDIR)

_IN = struct.Struct("=IIQQIIIHH")
_OUT = struct.Struct("=IiQ")
_ATTR = struct.Struct("=QQQQQQ III IIIIIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
_ASYNC_READ, _EXPORT_SUPPORT, _PARALLEL_DIROPS, _MAX_PAGES = 1, 1 << 4, 1 << 18, 1 << 22
_KEEP_CACHE = 2
_MOST = 1 << 20
_THREADS = 16

# Memory that both sides share: counts by opcode, then the knobs, numbers of eight bytes each, then a name. Each is one store: a
# reader sees the old or the new number.
_COUNTS = 64
_SHARED_BYTES = 4096
_TIMES = ("delay_s", "entry_valid_s", "attr_valid_s")
_NUMBERS = ("changes_numbers", "hides_numbers", "hides_types", "has_xattrs", "keeps_cache", "error", "is_hanging", "is_stale", "has_held")
_NAME_AT, _NAME_BYTES = (_COUNTS + len(_TIMES) + len(_NUMBERS)) * 8, 64


class Knobs:
    """delay_s before each answer; for how long names and attributes may be believed; other st_ino and d_ino each time;
    d_ino is that of no file, as libfuse has it; d_type is DT_UNKNOWN; user.* attributes are there; pages outlive an open; and for what has this name, or for
    everything if it is "*": an error number, no answer until further notice from the n-th question on, or ESTALE of what
    was known before."""

    def __init__(self, memory):
        view = memoryview(memory)
        floats, numbers = view.cast("d"), view.cast("q")
        self.__dict__["_name"] = view[_NAME_AT:_NAME_AT + _NAME_BYTES]
        self.__dict__["_counts"] = numbers[:_COUNTS]
        self.__dict__["_places"] = {name: (floats if name in _TIMES else numbers, _COUNTS + k)
                                    for k, name in enumerate(_TIMES + _NUMBERS)}

    def __getattr__(self, name):
        if name == "name":
            return bytes(self._name).rstrip(b"\0").decode()
        where, at = self._places[name]
        return where[at]

    def __setattr__(self, name, value):
        if name == "name":
            self._name[:] = value.encode().ljust(_NAME_BYTES, b"\0")
        else:
            where, at = self._places[name]
            where[at] = value

    def count(self, opcode):
        self._counts[opcode % _COUNTS] += 1

    def counts(self):
        return {NAMES.get(opcode, str(opcode)): n for opcode, n in enumerate(self._counts) if n}


class _Server:
    def __init__(self, device, root, knobs):
        self.device, self.knobs = device, knobs
        self.lock = threading.Lock()
        self.paths, self.nodes = {1: os.fsencode(root)}, {os.fsencode(root): 1}
        self.last_number, self.listings, self.meant = 1 << 40, {}, 0
        self.acts = {name: getattr(self, NAMES[name].lower()) for name in QUESTIONS + (STATFS, INIT)}
        self.acts.update(dict.fromkeys((RELEASE, RELEASEDIR, FLUSH, DESTROY), lambda *_: b""))

    def number(self, st):
        if not self.knobs.changes_numbers:
            return st.st_ino
        with self.lock:
            self.last_number += 1
            return self.last_number

    def attr_of(self, node, st):
        # the root of every such file system has the same number
        times = [(t // 10**9, t % 10**9) for t in (st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns)]
        return _ATTR.pack(1 if node == 1 else self.number(st), st.st_size, st.st_blocks, *(t[0] for t in times), *(t[1] for t in times),
                          st.st_mode, st.st_nlink, st.st_uid, st.st_gid, st.st_rdev, 4096, 0)

    @staticmethod
    def span(seconds):
        return int(seconds), int(seconds % 1 * 1e9)

    def lookup(self, node, body):
        path = os.path.join(self.paths[node], bytes(body).rstrip(b"\0"))
        st = os.lstat(path)
        with self.lock:
            node = self.nodes.setdefault(path, len(self.nodes) + 1)
            self.paths[node] = path
        (entry_s, entry_ns), (attr_s, attr_ns) = (self.span(self.knobs.entry_valid_s), self.span(self.knobs.attr_valid_s))
        return struct.pack("=QQQQII", node, 0, entry_s, attr_s, entry_ns, attr_ns) + self.attr_of(node, st)

    def getattr(self, node, _):
        seconds, ns = self.span(self.knobs.attr_valid_s)
        return struct.pack("=QII", seconds, ns, 0) + self.attr_of(node, os.lstat(self.paths[node]))

    def readlink(self, node, _):
        return os.readlink(self.paths[node])

    def open(self, node, _):
        return struct.pack("=QIi", 0, _KEEP_CACHE if self.knobs.keeps_cache else 0, 0)

    def read(self, node, body):
        _, off, size = struct.unpack_from("=QQI", body)
        fd = os.open(self.paths[node], os.O_RDONLY | os.O_NOATIME)
        try:
            return os.pread(fd, size, off)
        finally:
            os.close(fd)

    def opendir(self, node, _):
        with self.lock:
            handle = len(self.listings) + 1
            self.listings[handle] = [(e.name, e.stat(follow_symlinks=False)) for e in os.scandir(self.paths[node])]
        return struct.pack("=QIi", handle, 0, 0)

    def readdir(self, node, body):
        handle, off, size = struct.unpack_from("=QQI", body)
        out = b""
        for place, (name, st) in enumerate(self.listings[handle][off:], off + 1):
            kind = 0 if self.knobs.hides_types else stat.S_IFMT(st.st_mode) >> 12
            number = (1 << 32) - 1 if self.knobs.hides_numbers else self.number(st)
            entry = struct.pack("=QQII", number, place, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    def statfs(self, *_):
        return struct.pack("=QQQQQIIII24x", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0)

    def xattr(self, body, value_of):
        if not self.knobs.has_xattrs:
            raise OSError(errno.EOPNOTSUPP, "")
        size, = struct.unpack_from("=I", body)
        value = value_of(bytes(body[8:]).rstrip(b"\0"))
        if size and len(value) > size:
            raise OSError(errno.ERANGE, "")
        return value if size else struct.pack("=II", len(value), 0)

    def getxattr(self, node, body):
        return self.xattr(body, lambda name: os.getxattr(self.paths[node], name, follow_symlinks=False))

    def listxattr(self, node, body):
        names = os.listxattr(self.paths[node], follow_symlinks=False)
        return self.xattr(body, lambda _: b"".join(os.fsencode(name) + b"\0" for name in names))

    def init(self, _, body):
        major, minor, ahead, flags = struct.unpack_from("=IIII", body)
        flags &= _ASYNC_READ | _EXPORT_SUPPORT | _PARALLEL_DIROPS | _MAX_PAGES
        return _INIT_OUT.pack(major, min(minor, 38), ahead, flags, _THREADS, _THREADS, _MOST, 1, _MOST // 4096, 0, 0)

    def is_meant(self, opcode, node, body):
        wanted = os.fsencode(self.knobs.name)
        if not wanted:
            return False
        name = bytes(body).rstrip(b"\0") if opcode == LOOKUP else os.path.basename(self.paths.get(node, b""))
        return opcode in QUESTIONS and wanted in (b"*", name)

    def act(self, opcode, node, body):
        if opcode != INIT and self.knobs.delay_s:
            time.sleep(self.knobs.delay_s)
        if self.is_meant(opcode, node, body):
            with self.lock:
                self.meant += 1
                is_late = self.meant >= self.knobs.is_hanging
            if is_late and self.knobs.is_hanging:
                self.knobs.has_held = 1
            while is_late and self.knobs.is_hanging:
                time.sleep(0.01)
            if self.knobs.is_stale and opcode != LOOKUP:
                raise OSError(errno.ESTALE, "")
            if self.knobs.error:
                raise OSError(self.knobs.error, "")
        if opcode not in self.acts:
            raise OSError(errno.ENOSYS, "")
        return self.acts[opcode](node, body)

    def serve(self):
        while True:
            try:
                request = os.read(self.device, _MOST + 4096)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            with self.lock:
                self.knobs.count(opcode)
            if opcode not in NO_ANSWER:
                self.answer(opcode, unique, node, memoryview(request)[_IN.size:])

    def answer(self, opcode, unique, node, body):
        data, error = b"", 0
        try:
            data = self.act(opcode, node, body)
        except OSError as e:
            error = -e.errno
        with contextlib.suppress(OSError):
            os.writev(self.device, [_OUT.pack(_OUT.size + len(data), error, unique), data])


class Remote:
    """The directory at `root`, to be seen at `point`."""

    def __init__(self, root, point):
        from . import linux
        self.root, self.point = root, point
        self._fd = os.memfd_create("remote")
        os.truncate(self._fd, _SHARED_BYTES)
        self.knobs = Knobs(mmap.mmap(self._fd, _SHARED_BYTES))
        self.knobs.entry_valid_s = self.knobs.attr_valid_s = 1.0
        self.knobs.has_xattrs = 1
        device = os.open("/dev/fuse", os.O_RDWR)
        try:
            linux.mount("remote", str(point), "fuse", 0,
                        f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read={_MOST}")
            self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(device), str(self._fd), str(root)],
                                            pass_fds=(device, self._fd))
        finally:
            os.close(device)

    def _wait_for_quiet(self):
        """Pages that the kernel reads ahead may be asked for after what was read is there."""
        before = None
        while (counts := self.knobs.counts()) != before:
            before = counts
            time.sleep(0.05)

    @contextlib.contextmanager
    def asked(self):
        """The requests that reach it meanwhile, by name."""
        self._wait_for_quiet()
        found, before = {}, self.knobs.counts()
        yield found
        found.update((name, n - before.get(name, 0)) for name, n in self.knobs.counts().items() if n > before.get(name, 0))

    @contextlib.contextmanager
    def trouble(self, name, **knobs):
        """While it lasts, `name` is as the knobs say; then nothing is."""
        for knob, value in knobs.items():
            setattr(self.knobs, knob, value)
        self.knobs.name = name
        try:
            yield
        finally:
            self.knobs.is_hanging = self.knobs.error = self.knobs.is_stale = 0
            self.knobs.name = ""

    def is_holding(self):
        """A question has come that is not answered, since it was first told to hang."""
        return self.knobs.has_held > 0

    def close(self):
        from . import linux
        self.knobs.is_hanging = 0
        with contextlib.suppress(OSError):
            linux.umount(str(self.point), linux.MNT_DETACH)
        self.process.kill()
        self.process.wait()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def questions(asked):
    return sum(n for name, n in asked.items() if name in {NAMES[q] for q in QUESTIONS})


def main():
    device, shared, root = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    # gone with the tests
    ctypes.CDLL(None).prctl(1, 9)
    server = _Server(device, root, Knobs(mmap.mmap(shared, _SHARED_BYTES)))
    threads = [threading.Thread(target=server.serve) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
