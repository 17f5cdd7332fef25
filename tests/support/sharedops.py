# SPDX-License-Identifier: Apache-2.0
"""Random operations of several processes on the same files of twins: each makes its operation in
both under locks on the files it touches, so that both see them in the same order."""
import contextlib
import fcntl
import mmap
import os

from . import rootless
from .handleops import (FALLOCATE_MODES, MAX_SIZE, MODES, copy_range, direct_read, direct_write,
                        fallocate)
from .twins import Mismatch, attributes


class SharedOperations:
    """names: the files, which exist; one lock file for each is in the directory locks."""

    def __init__(self, twins, rng, names, locks):
        self.twins, self.rng, self.trace = twins, rng, []
        self._locks = {name: os.open(os.path.join(locks, name), os.O_CREAT | os.O_RDWR)
                       for name in names}
        self._open = {(root, name): os.open(os.path.join(root, name), os.O_RDWR)
                      for root in (twins.mount, twins.plain) for name in names}
        self._kinds = [getattr(self, name) for name in dir(self) if name.startswith("op_")]

    def close(self):
        for fd in [*self._locks.values(), *self._open.values()]:
            os.close(fd)

    @contextlib.contextmanager
    def _locked(self, *names):
        for name in sorted(set(names)):
            fcntl.flock(self._locks[name], fcntl.LOCK_EX)
        try:
            yield
        finally:
            for name in set(names):
                fcntl.flock(self._locks[name], fcntl.LOCK_UN)

    def step(self):
        self.rng.choice(self._kinds)()

    def _pick(self):
        return self.rng.choice(list(self._locks))

    def _length(self):
        return int(2 ** self.rng.uniform(0, 17.5))

    def _offset(self):
        off = int(2 ** self.rng.uniform(0, 19.5))
        return off & ~4095 if self.rng.random() < 0.5 else off

    def _data(self):
        return self.rng.randbytes(64) * (self._length() // 64 + 1)

    def _do(self, what, name, action, flags=None):
        """By the descriptor this process has held all along, or by a fresh one with the flags."""
        def run(root):
            if flags is None:
                return action(self._open[root, name])
            fd = os.open(os.path.join(root, name), flags)
            try:
                return action(fd)
            finally:
                os.close(fd)
        self.trace.append(f"{what} {name}")
        with self._locked(name):
            return self.twins.both(run, self.trace[-1])

    def op_write(self):
        data, off = self._data(), self._offset()
        self._do(f"write {len(data)} at {off}", self._pick(), lambda fd: os.pwrite(fd, data, off),
                 self.rng.choice((None, None, os.O_WRONLY, os.O_RDWR | os.O_DSYNC)))

    def op_append(self):
        data, name = self._data(), self._pick()
        if os.fstat(self._open[self.twins.plain, name]).st_size < MAX_SIZE:
            self._do(f"append {len(data)} to", name, lambda fd: os.write(fd, data),
                     os.O_WRONLY | os.O_APPEND)

    def op_read(self):
        off, length = self._offset(), self._length()
        self._do(f"read {length} at {off} of", self._pick(), lambda fd: os.pread(fd, length, off),
                 self.rng.choice((None, os.O_RDONLY)))

    op_read_too = op_read

    def op_direct(self):
        off, data = self._offset() & ~4095, (self._data() * 64)[:4096 * self.rng.randrange(1, 17)]
        data = data[:len(data) & ~4095]
        if self.rng.random() < 0.5 or not data:
            self._do(f"read directly at {off} of", self._pick(),
                     lambda fd: direct_read(fd, 65536, off), os.O_RDONLY | os.O_DIRECT)
        else:
            self._do(f"write {len(data)} directly at {off} of", self._pick(),
                     lambda fd: direct_write(fd, data, off), os.O_RDWR | os.O_DIRECT)

    def op_truncate(self):
        size = self._offset()
        self._do(f"truncate to {size}", self._pick(), lambda fd: os.ftruncate(fd, size))

    def op_fallocate(self):
        mode, off, length = self.rng.choice(FALLOCATE_MODES), self._offset(), self._length()
        self._do(f"fallocate {mode} {length} at {off} of", self._pick(),
                 lambda fd: fallocate(fd, mode, off, length))

    def op_map(self):
        off, data = self._offset(), self._data()

        def store(fd):
            size = os.fstat(fd).st_size
            if size <= off + len(data):
                return None
            with mmap.mmap(fd, size) as view:
                view[off:off + len(data)] = data
                view.flush()  # or the time is the old one, see flush_mappings
                return view[max(0, off - 5000):off + len(data) + 5000]
        self._do(f"map and store {len(data)} at {off} of", self._pick(), store)

    def op_copy_range(self):
        source, target = self._pick(), self._pick()
        length, off_from, off_to = self._length(), self._offset(), self._offset()
        self.trace.append(f"copy {length} at {off_from} of {source} to {off_to} of {target}")
        with self._locked(source, target):
            self.twins.both(lambda root: copy_range(
                self._open[root, source], self._open[root, target], length, off_from, off_to),
                self.trace[-1])

    def op_stat(self):
        self._do("stat", self._pick(), lambda fd: attributes(os.fstat(fd)))

    def op_chmod(self):
        mode = self.rng.choice(MODES)
        if rootless.is_plain():
            mode |= 0o600  # others open it, too
        self._do(f"chmod {mode:o}", self._pick(), lambda fd: os.fchmod(fd, mode))

    def op_sync(self):
        self._do("fsync", self._pick(), os.fsync)


def work(twins, rng, names, locks, ops):
    """The work of each process."""
    operations = SharedOperations(twins, rng, names, locks)
    try:
        for _ in range(ops):
            operations.step()
    except (Mismatch, OSError) as e:
        raise Mismatch(f"{e}\nlast operations:\n  " + "\n  ".join(operations.trace[-20:])) from e
    finally:
        operations.close()
