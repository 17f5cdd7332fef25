# SPDX-License-Identifier: Apache-2.0
"""Random file operations on twins. Everything is drawn from one generator, so that a seed repeats
a run."""
import errno
import itertools
import mmap
import os
import shutil
import stat

from . import acl, linux, rootless, server, unprivileged
from .handleops import (FALLOCATE_MODES, MAX_SIZE, MODES, HandleOperations, copy_range,
                        direct_read, direct_write, fallocate)
from .twins import Mismatch, attributes


class RandomOperations(HandleOperations):
    def __init__(self, twins, rng, has_acl=True, keeps_readers=False):
        """keeps_readers: a descriptor opened for reading before the first write sees that write, and its holder may change
        the file by it. With share=pages it does not (doc/SHARING.md), and no operation uses one so."""
        self.twins, self.rng, self.keeps_readers = twins, rng, keeps_readers and not server.shares_pages()
        self.trace, self.handles, self.mappings, self.counts = [], [], [], {}
        self.moved_directories = self.refused_directories = 0
        self._dirs, self._others = twins.walk_plain()
        self._weighted = [name for name, weight in _WEIGHTS.items() for _ in range(weight)
                          if has_acl or name != "acl"]

    def step(self):
        name = self.rng.choice(self._weighted)
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, "op_" + name)()
        if name in _STRUCTURAL:
            self._dirs, self._others = self.twins.walk_plain()

    # drawing

    def _name(self):
        return f"n{self.rng.randrange(14)}"

    def _new_path(self):
        parents = [d for d in self._dirs if d.count("/") < 3]
        return os.path.join(self.rng.choice(parents), self._name())

    def _file(self):
        if not self._others or self.rng.random() < 0.1:
            return self._new_path()
        return self.rng.choice(self._others)

    def _any(self):
        if self.rng.random() < 0.25 and len(self._dirs) > 1:
            return self.rng.choice(self._dirs[1:])
        return self._file()

    def _length(self):
        return min(int(2 ** self.rng.uniform(0, 19.5)), 600_000)

    def _offset(self):
        off = self.rng.randrange(MAX_SIZE - 600_000) if self.rng.random() < 0.5 \
            else int(2 ** self.rng.uniform(0, 20))
        return off & ~4095 if self.rng.random() < 0.4 else off

    def _data(self, length):
        unit = self.rng.randbytes(64)
        return (unit * (length // 64 + 1))[:length]

    # running

    def _do(self, what, action):
        self.trace.append(what)
        return self.twins.both(action, what)

    def _with_file(self, what, path, flags, action):
        def run(root):
            fd = os.open(os.path.join(root, path), flags, 0o640)
            try:
                return action(fd)
            finally:
                os.close(fd)
        return self._do(f"{what} {path}", run)

    # files

    def op_create(self):
        path, data = self._new_path(), self._data(self._length() if self.rng.random() < 0.6 else 0)
        flags = os.O_CREAT | os.O_WRONLY | self.rng.choice((os.O_EXCL, os.O_TRUNC, 0))
        self._with_file(f"create {len(data)} flags {flags:o}", path, flags,
                        lambda fd: os.write(fd, data) if data else 0)

    def op_write(self):
        path, off, data = self._file(), self._offset(), self._data(self._length())
        flags = os.O_RDWR | self.rng.choice((0, 0, 0, os.O_SYNC))
        self._with_file(f"write {len(data)} at {off}", path, flags,
                        lambda fd: os.pwrite(fd, data, off))

    def op_append(self):
        path, data = self._file(), self._data(self._length() // 8 + 1)
        if self._size(path) > MAX_SIZE:
            return
        self._with_file(f"append {len(data)}", path, os.O_WRONLY | os.O_APPEND,
                        lambda fd: os.write(fd, data))

    def _size(self, path):
        try:
            return os.stat(os.path.join(self.twins.plain, path)).st_size
        except OSError:
            return 0

    def op_truncate(self):
        path, size = self._file(), self._offset()
        if size != self._size(path):
            self._do(f"truncate {path} to {size}",
                     lambda root: os.truncate(os.path.join(root, path), size))

    def op_fallocate(self):
        path, off, length = self._file(), self._offset(), self._length()
        mode = self.rng.choice(FALLOCATE_MODES)
        self._with_file(f"fallocate {mode} {length} at {off}", path, os.O_RDWR,
                        lambda fd: fallocate(fd, mode, off, length))

    def op_direct(self):
        path, off = self._file(), self._offset() & ~4095
        data = self._data((self._length() & ~4095) + 4096)
        if self.rng.random() < 0.6:
            self._with_file(f"write {len(data)} directly at {off}", path, os.O_RDWR | os.O_DIRECT,
                            lambda fd: direct_write(fd, data, off))
        else:
            self._with_file(f"read {len(data)} directly at {off}", path,
                            os.O_RDONLY | os.O_DIRECT, lambda fd: direct_read(fd, len(data), off))

    def op_mmap_write(self):
        path, data = self._file(), self._data(self._length() // 4 + 1)
        size = self._size(path)
        if size < len(data) + 1:
            return
        off = self.rng.randrange(size - len(data))

        def store(fd):
            with mmap.mmap(fd, size) as view:
                view[off:off + len(data)] = data
                view.flush()
            os.utime(fd)
        self._with_file(f"map and store {len(data)} at {off}", path, os.O_RDWR, store)

    def op_read(self):
        path, off, length = self._file(), self._offset(), self._length()
        self._with_file(f"read {length} at {off}", path, os.O_RDONLY,
                        lambda fd: os.pread(fd, length, off))

    def op_copy_range(self):
        source, target, length = self._file(), self._file(), self._length()
        off_from, off_to = self._offset(), self._offset()
        if self.rng.random() < 0.3:
            length, off_from, off_to = MAX_SIZE, 0, 0
        create = self.rng.choice((0, os.O_CREAT, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_EXCL))
        if create & os.O_EXCL:  # as cp makes a copy that refers to the other's blocks
            length, off_from, off_to = 4 * MAX_SIZE, 0, 0
        if create and (create & os.O_EXCL or self.rng.random() < 0.5):
            target = self._new_path()

        def copy(root):
            a = os.open(os.path.join(root, source), os.O_RDONLY)
            try:
                b = os.open(os.path.join(root, target), os.O_WRONLY | create, 0o640)
                try:
                    return copy_range(a, b, length, off_from, off_to)
                finally:
                    os.close(b)
            finally:
                os.close(a)
        self._do(f"copy {length} at {off_from} of {source} to {off_to} of {target} ({create:o})",
                 copy)

    # names

    def op_mkdir(self):
        path, mode = self._new_path(), self.rng.choice((0o755, 0o700, 0o1777))
        self._do(f"mkdir {path}", lambda root: os.mkdir(os.path.join(root, path), mode))

    def op_rmdir(self):
        path = self.rng.choice(self._dirs[1:]) if len(self._dirs) > 1 else self._any()
        self._do(f"rmdir {path}", lambda root: os.rmdir(os.path.join(root, path)))

    def op_remove_tree(self):
        deep = [d for d in self._dirs if "/" in d]
        if not deep:
            return
        path = self.rng.choice(deep)
        self._do(f"rm -r {path}", lambda root: shutil.rmtree(os.path.join(root, path)))
        if self.rng.random() < 0.6:
            self._do(f"mkdir {path}", lambda root: os.mkdir(os.path.join(root, path)))

    def op_unlink(self):
        path = self._any()
        self._do(f"unlink {path}", lambda root: os.unlink(os.path.join(root, path)))

    def op_rename(self):
        old, new = self._any(), self._any() if self.rng.random() < 0.5 else self._new_path()
        flags = self.rng.choice((0, 0, 0, linux.RENAME_NOREPLACE, linux.RENAME_EXCHANGE))
        what = f"rename {flags} {old} to {new}"
        self.trace.append(what)

        def rename(root):
            linux.renameat2(os.path.join(root, old), os.path.join(root, new), flags)
        moved = [old] + ([new] if flags == linux.RENAME_EXCHANGE else [])
        if any(path in self._dirs for path in moved):
            refused = errno.errorcode[errno.EXDEV]
            outcome = self.twins.both_unless(refused, rename, what)
            self.moved_directories += outcome[0] == "ok"
            self.refused_directories += outcome == ("error", refused)
        else:
            self.twins.both(rename, what)

    def op_link(self):
        old, new = self._file(), self._new_path()
        self._do(f"link {old} to {new}",
                 lambda root: os.link(os.path.join(root, old), os.path.join(root, new)))

    def op_mknod(self):
        """Sockets, which an open does not wait for, and plain files."""
        path, mode = self._new_path(), self.rng.choice((stat.S_IFSOCK, stat.S_IFSOCK, stat.S_IFREG)) | self.rng.choice(MODES)
        mask = self.rng.choice((0, 0o022, 0o077))

        def make(root):
            old = os.umask(mask)
            try:
                os.mknod(os.path.join(root, path), mode)
            finally:
                os.umask(old)
        self._do(f"mknod {mode:o} {path} with umask {mask:o}", make)

    def op_symlink(self):
        path, target = self._new_path(), self._name()
        self._do(f"symlink {path} to {target}",
                 lambda root: os.symlink(target, os.path.join(root, path)))

    # attributes

    def op_chmod(self):
        path, mode = self._any(), self.rng.choice(MODES)
        is_dir = path in self._dirs
        if rootless.is_plain():
            # Or by way of a symbolic link: the comparison would be kept out of the directory, too.
            is_dir = os.path.isdir(os.path.join(self.twins.plain, path))
        if not is_dir or mode & 0o100:
            self._do(f"chmod {mode:o} {path}",
                     lambda root: os.chmod(os.path.join(root, path), mode))

    def op_chown(self):
        path, uid, gid = self._any(), self.rng.randrange(100), self.rng.randrange(100)
        self._do(f"chown {uid}:{gid} {path}",
                 lambda root: unprivileged.attempt(os.lchown)(os.path.join(root, path), uid, gid))

    def op_utimens(self):
        path, when = self._any(), self.rng.randrange(10**9, 1_200_000_000) * 10**9 \
            + self.rng.randrange(10**9)
        self.flush_mappings()
        self._do(f"utimens {when} {path}", lambda root: os.utime(
            os.path.join(root, path), ns=(when, when), follow_symlinks=False))

    def _attribute(self):
        return f"user.x{self.rng.randrange(3)}", self.rng.randbytes(self.rng.randrange(200))

    def op_acl(self):
        path, draw = self._any(), self.rng.randrange
        kind = acl.DEFAULT if path in self._dirs and draw(2) else acl.ACCESS
        if draw(3) == 0:
            self._do(f"remove {kind} of {path}", lambda root: os.removexattr(
                os.path.join(root, path), kind, follow_symlinks=False))
            return
        value = acl.encode((acl.USER_OBJ, 7), (acl.USER, draw(8), 1 + draw(50)),
                           (acl.GROUP_OBJ, draw(8)), (acl.MASK, draw(8)), (acl.OTHER, draw(8)))
        self._do(f"set {kind} of {path}", lambda root: os.setxattr(
            os.path.join(root, path), kind, value, follow_symlinks=False))

    def op_setxattr(self):
        path, (name, value) = self._any(), self._attribute()
        flags = self.rng.choice((0, 0, 1, 2))
        self._do(f"setxattr {name} {flags} {path}", lambda root: os.setxattr(
            os.path.join(root, path), name, value, flags, follow_symlinks=False))

    def op_removexattr(self):
        path, name = self._any(), f"user.x{self.rng.randrange(3)}"
        self._do(f"removexattr {name} {path}", lambda root: os.removexattr(
            os.path.join(root, path), name, follow_symlinks=False))

    def op_stat(self):
        path = self._any() if self.rng.random() < 0.8 else self._new_path()
        self.flush_mappings()
        self._do(f"stat {path}", lambda root: attributes(os.lstat(os.path.join(root, path)), False))

    def op_readdir(self):
        path = self.rng.choice(self._dirs)
        self._do(f"readdir {path}", lambda root: sorted(os.listdir(os.path.join(root, path))))

    def op_seekdir(self):
        path, skipped = self.rng.choice(self._dirs), self.rng.randrange(20)

        def read_twice(root):
            with linux.DirStream(os.path.join(root, path)) as stream:
                first = [name for name, _, _ in itertools.islice(stream, skipped)]
                position = stream.tell()
                rest = [name for name, _, _ in stream]
                stream.seek(position)
                again = [name for name, _, _ in stream]
            if again != rest:
                raise Mismatch(f"{path} from a told position: {again}, before {rest}")
            return sorted(first + rest)
        self._do(f"seekdir {path}", read_twice)


_WEIGHTS = {
    "create": 8, "write": 16, "append": 5, "truncate": 6, "fallocate": 5, "mmap_write": 4,
    "direct": 5, "read": 8, "copy_range": 7, "mkdir": 5, "rmdir": 3, "remove_tree": 1, "unlink": 6,
    "rename": 9, "link": 4, "symlink": 2, "chmod": 4, "chown": 3, "utimens": 12, "setxattr": 4,
    "removexattr": 2, "acl": 3, "stat": 5, "readdir": 4, "seekdir": 2, "mknod": 2, "open": 9, "close": 3, "tmpfile": 4,
    "handle_write": 7, "handle_append": 3, "handle_read": 6, "handle_truncate": 3,
    "handle_fallocate": 4, "handle_seek": 3, "handle_stat": 4, "handle_chmod": 2,
    "handle_chown": 2, "handle_setxattr": 3, "handle_link": 3, "handle_copy_range": 4,
    "handle_sync": 3, "map": 3, "unmap": 2, "map_store": 6, "map_read": 4,
}
_STRUCTURAL = {"create", "mknod", "mkdir", "rmdir", "remove_tree", "unlink", "rename", "link", "symlink",
               "copy_range", "tmpfile", "handle_link"}
