# SPDX-License-Identifier: Apache-2.0
"""The random operations on what stays open while others happen: descriptors, of files that may have
lost their name or never had one, and mappings."""
import errno
import mmap
import os
import stat

from . import linux, unprivileged
from .twins import Mismatch, attributes

MODES = (0o644, 0o600, 0o755, 0o400, 0o4755, 0o2770)
PUNCH = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE
FALLOCATE_MODES = (0, linux.FALLOC_KEEP_SIZE, PUNCH, PUNCH, linux.FALLOC_ZERO_RANGE,
                   linux.FALLOC_ZERO_RANGE | linux.FALLOC_KEEP_SIZE)
MAX_SIZE = 1_700_000
_MAX_HANDLES = 6
_MAX_MAPPINGS = 2


def copy_range(source, target, length, off_from, off_to):
    """As programs do it, which ask for the size first; the bytes copied. (A descriptor from before the
    first write has the size of then, until somebody asks: the kernel copies no further.) Of a file to
    itself no more than it has at first: what is copied behind its end is more to copy, some bytes a call."""
    done, size = 0, os.fstat(source).st_size
    if os.path.sameopenfile(source, target):
        length = min(length, max(1, size - off_from))
    while done < length:
        count = os.copy_file_range(source, target, length - done, off_from + done, off_to + done)
        if count == 0:
            break
        done += count
    return done


def direct_write(fd, data, off):
    with mmap.mmap(-1, len(data)) as buffer:
        buffer[:] = data
        return os.pwritev(fd, [buffer], off)


def direct_read(fd, length, off):
    with mmap.mmap(-1, length) as buffer:
        return buffer[:os.preadv(fd, [buffer], off)]


def fallocate(fd, mode, off, length):
    linux.fallocate(fd, mode, off, length)


def _sync_range(fd):
    linux.sync_file_range(fd, 0, MAX_SIZE)


class HandleOperations:
    """Mixed into RandomOperations, which draws and runs."""

    def close_handles(self):
        for _, pair in self.handles:
            for fd in pair.values():
                os.close(fd)
        self.handles.clear()
        while self.mappings:
            self.op_unmap()

    def flush_mappings(self):
        """Stores change the time of a file when its pages are written (of FUSE) or at the first store (of others). POSIX has it
        between the two. It must not happen after a time has been set, and has happened before one is asked for."""
        for _, views, _ in self.mappings:
            for view in views.values():
                view.flush()

    def _keep(self, what, path, make):
        """make(root) gives a descriptor in both; another handle if it does."""
        opened = {}

        def remember(root):
            opened[root] = make(root)
        if self._do(what, remember)[0] == "ok":
            self.handles.append((path, opened))

    def op_open(self):
        if len(self.handles) >= _MAX_HANDLES:
            return self.op_close()
        path = self._file()
        flags = self.rng.choice((os.O_RDWR, os.O_RDWR, os.O_RDONLY if self.keeps_readers else os.O_RDWR,
                                 os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_DSYNC))
        self._keep(f"open {flags:o} {path}", path,
                   lambda root: os.open(os.path.join(root, path), flags))

    def op_close(self):
        if self.handles:
            path, pair = self.handles.pop(self.rng.randrange(len(self.handles)))
            self.trace.append(f"close {path}")
            for fd in pair.values():
                os.close(fd)

    def op_tmpfile(self):
        directory, data = self.rng.choice(self._dirs), self._data(self._length())
        path, fate = self._new_path(), self.rng.choice(("link", "link", "keep", "drop"))
        mode = self.rng.choice((0o600, 0o644, 0o2755))
        exclusive = os.O_EXCL if self.rng.random() < 0.2 else 0
        if len(self.handles) >= _MAX_HANDLES:
            self.op_close()

        def make(root):
            fd = os.open(os.path.join(root, directory),
                         os.O_TMPFILE | os.O_RDWR | exclusive, mode)
            try:
                os.pwrite(fd, data, 0)
                if fate == "link":
                    linux.link_descriptor(fd, os.path.join(root, path))
            except OSError:
                os.close(fd)
                raise
            return fd
        self._keep(f"file without a name in {directory}, {len(data)} bytes, {fate} {path}",
                   path if fate == "link" else "(no name)", make)
        if fate == "drop":
            self.op_close()

    def _handle(self, what, action):
        if self.handles:
            path, pair = self.rng.choice(self.handles)
            self._do(f"{what} of the open {path}", lambda root: action(pair[root]))

    def _grows_too_far(self, length):
        return any(os.fstat(pair[self.twins.plain]).st_size + length > 2 * MAX_SIZE
                   for _, pair in self.handles)

    def op_handle_write(self):
        off, data = self._offset(), self._data(self._length())
        if not self._grows_too_far(len(data)):
            self._handle(f"write {len(data)} at {off}", lambda fd: os.pwrite(fd, data, off))

    def op_handle_append(self):
        data = self._data(self._length() // 8 + 1)

        def append(fd):
            os.lseek(fd, 0, os.SEEK_END)
            return os.write(fd, data)
        if not self._grows_too_far(len(data)):
            self._handle(f"write {len(data)} at the end", append)

    def op_handle_read(self):
        off, length = self._offset(), self._length()
        self._handle(f"read {length} at {off}", lambda fd: os.pread(fd, length, off))

    def op_handle_truncate(self):
        size = self._offset()

        def cut(fd):
            os.ftruncate(fd, size)
            os.utime(fd)
        self._handle(f"truncate to {size}", cut)

    def op_handle_fallocate(self):
        mode, off, length = self.rng.choice(FALLOCATE_MODES), self._offset(), self._length()
        self._handle(f"fallocate {mode} {length} at {off}",
                     lambda fd: fallocate(fd, mode, off, length))

    def op_handle_seek(self):
        """Where holes are is the file systems' own choice, but data is never in one."""
        if not self.handles:
            return
        path, pair = self.rng.choice(self.handles)
        off, mount, plain = self._offset(), pair[self.twins.mount], pair[self.twins.plain]
        if not stat.S_ISREG(os.fstat(plain).st_mode):
            return
        size = os.fstat(plain).st_size
        self.trace.append(f"seek from {off} of the open {path}")
        try:
            data = os.lseek(mount, off, os.SEEK_DATA)
            hole = os.lseek(mount, off, os.SEEK_HOLE)
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise
            data = hole = max(off, size)
        if not off <= data <= max(off, size) or not off <= hole <= max(off, size):
            raise Mismatch(f"seek in {path} from {off}: {data}, {hole}, of {size} bytes")
        if any(os.pread(plain, data - off, off)):
            raise Mismatch(f"seek in {path}: data between {off} and {data} is told to be a hole")

    def op_handle_stat(self):
        self.flush_mappings()
        self._handle("stat", lambda fd: attributes(os.fstat(fd), False))

    def op_handle_chmod(self):
        mode = self.rng.choice(MODES)
        self._handle(f"chmod {mode:o}", lambda fd: os.fchmod(fd, mode))

    def op_handle_chown(self):
        uid, gid = self.rng.randrange(100), self.rng.randrange(100)
        self._handle(f"chown {uid}:{gid}", lambda fd: unprivileged.attempt(os.fchown)(fd, uid, gid))

    def op_handle_sync(self):
        call = self.rng.choice((os.fsync, os.fdatasync, _sync_range))
        self._handle(call.__name__, call)

    def op_handle_setxattr(self):
        name, value = self._attribute()
        if self.rng.random() < 0.3:
            self._handle(f"removexattr {name}", lambda fd: os.removexattr(fd, name))
        else:
            self._handle(f"setxattr {name}", lambda fd: os.setxattr(fd, name, value))
        self._handle("xattrs", xattrs_of_descriptor)

    def op_handle_link(self):
        if not self.handles:
            return
        (old, pair), new = self.rng.choice(self.handles), self._new_path()
        self._do(f"link the open {old} to {new}",
                 lambda root: linux.link_descriptor(pair[root], os.path.join(root, new)))

    def op_handle_copy_range(self):
        if len(self.handles) < 2:
            return
        (a, source), (b, target) = self.rng.choice(self.handles), self.rng.choice(self.handles)
        length, off_from, off_to = self._length(), self._offset(), self._offset()
        self._do(f"copy {length} at {off_from} of the open {a} to {off_to} of {b}",
                 lambda root: copy_range(source[root], target[root], length, off_from, off_to))

    def op_map(self):
        if len(self.mappings) >= _MAX_MAPPINGS:
            return self.op_unmap()
        if not self.handles:
            return
        path, pair = self.rng.choice(self.handles)
        size, views = os.fstat(pair[self.twins.plain]).st_size, {}
        if not size:
            return

        def make(root):
            views[root] = mmap.mmap(pair[root], size)
        if self._do(f"map {size} of {path}", make)[0] == "ok":
            self.mappings.append((path, views, os.dup(pair[self.twins.plain])))

    def op_unmap(self):
        if self.mappings:
            path, views, fd = self.mappings.pop(self.rng.randrange(len(self.mappings)))
            self.trace.append(f"unmap {path}")
            for view in views.values():
                view.flush()  # as in flush_mappings, which no longer sees it
                view.close()
            os.close(fd)

    def op_map_store(self):
        self._mapped("store", lambda view, off, data: view.__setitem__(
            slice(off, off + len(data)), data))

    def op_map_read(self):
        self._mapped("read", lambda view, off, data: view[off:off + len(data)])

    def _mapped(self, what, action):
        if not self.mappings:
            return
        path, views, fd = self.rng.choice(self.mappings)
        data = self._data(self._length() // 4 + 1)
        # past the end there is a signal instead of memory
        end = min(os.fstat(fd).st_size, len(views[self.twins.plain]))
        if end > len(data):
            off = self.rng.randrange(end - len(data))
            self._do(f"{what} {len(data)} at {off} of the mapped {path}",
                     lambda root: action(views[root], off, data))


def xattrs_of_descriptor(fd):
    return {name: os.getxattr(fd, name) for name in sorted(os.listxattr(fd))}
