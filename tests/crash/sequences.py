# SPDX-License-Identifier: Apache-2.0
"""Sequences of up to three operations, each followed by a way to have it on disk, or by none."""
import dataclasses
import itertools
import mmap
import os
import time

from sandbox import BLOCK, MIDDLE, SMALL, XATTR, Recording, Thing
from scenario import commit_journal
from support import linux

_LENGTHS = (100, BLOCK, 2 * BLOCK + 700)


class Player:
    """Carries a sequence out in a sandbox; dice chooses where in the files. In a volatile mount
    fsync promises nothing."""

    def __init__(self, machine, sandboxes, dice, is_volatile=False):
        self._machine, self._sandboxes, self._dice = machine, sandboxes, dice
        self._is_volatile = is_volatile

    def play(self, box, sequence, at_point):
        """at_point() is called after each operation and its sync."""
        self._box, self._subject = box, "big"
        for operation, how in sequence:
            box.deeds.append(f"{operation}+{how}")
            getattr(self, "_" + operation)()
            if self._is_volatile:
                box.forget_syncs_of_cut_blocks()
            getattr(self, "_sync_" + how)()
            at_point()

    # where

    def _file(self):
        """Mostly the file of the operation before."""
        files = self._box.paths("file")
        if self._subject not in files or self._dice.random() < 0.2:
            self._subject = self._dice.choice(files)
        return self._subject

    def _other_file(self, path):
        thing = self._box.names[path]
        others = [p for p in self._box.paths("file") if self._box.names[p] is not thing]
        return self._dice.choice(others) if others else path

    def _free_name(self):
        """Sometimes one that was somebody's, which the lower still has."""
        names = ["fresh", "fresh2", "fresh3", "fresh4", "fresh5", "fresh6", "d/fresh", "d2/fresh", "big", "other", "d/in", "e"]
        box = self._box
        free = [n for n in names if n not in box.names and (os.path.dirname(n) in box.names)]
        return self._dice.choice(free)

    def _range(self, path):
        size = len(self._box.names[path].recording.now)
        off = self._dice.randrange(max(size, 1))
        off -= off % BLOCK if self._dice.random() < 0.3 else 0
        return off, max(1, min(self._dice.choice(_LENGTHS), size - off))

    # bytes

    def _write_at(self, path, off, length):
        with self._box.open(path) as f:
            f.write(off, self._box.next_data(off, length))

    def _write(self):
        path = self._file()
        self._write_at(path, *self._range(path))

    def _write_past(self):
        path = self._file()
        size = len(self._box.names[path].recording.now)
        self._write_at(path, size + self._dice.choice((0, 1, 3000, 3 * BLOCK)), 3000)

    def _overwrite(self):
        path = self._file()
        self._write_at(path, 0, max(1, len(self._box.names[path].recording.now)))

    def _truncate_to(self, size):
        with self._box.open(self._file()) as f:
            f.truncate(size)

    def _truncate_down(self):
        size = len(self._box.names[self._file()].recording.now)
        sizes = (0, size // 2, size // 2 // BLOCK * BLOCK, max(size - 1, 0))
        self._truncate_to(self._dice.choice(sizes))

    def _truncate_up(self):
        size = len(self._box.names[self._file()].recording.now)
        self._truncate_to(size + self._dice.choice((1, 5000, 4 * BLOCK)))

    def _cut_and_grow(self):
        path = self._file()
        size = len(self._box.names[path].recording.now)
        with self._box.open(path) as f:
            f.truncate(size // 3)
            f.truncate(size)

    def _punch(self):
        path = self._file()
        with self._box.open(path) as f:
            f.punch(*self._range(path))

    def _zero_range(self):
        path = self._file()
        with self._box.open(path) as f:
            f.zero_range(*self._range(path))

    def _fallocate(self):
        with self._box.open(self._file()) as f:
            f.allocate(self._dice.choice((0, BLOCK)), self._dice.choice((3 * BLOCK, 2 * MIDDLE)))

    def _fallocate_keep(self):
        with self._box.open(self._file()) as f:
            f.allocate(0, 2 * MIDDLE, linux.FALLOC_KEEP_SIZE)

    def _store(self):
        path = self._file()
        recording = self._box.names[path].recording
        if not recording.now:
            return
        off, length = self._range(path)
        data = self._box.next_data(off, length)
        fd = os.open(self._box.at(path), os.O_RDWR)
        with mmap.mmap(fd, len(recording.now)) as memory:
            os.close(fd)
            start = time.monotonic()
            memory[off:off + length] = data
            middle = time.monotonic()
            memory.flush()
        recording.now[off:off + length] = data
        recording.changed(start, middle, off, length)
        if not self._is_volatile:
            recording.synced(middle, time.monotonic())

    # names

    def _create(self):
        box, path = self._box, self._free_name()
        thing = Thing("file", 0o644, Recording(b"", box.unit))
        box.change_names(lambda: os.close(os.open(box.at(path), os.O_CREAT | os.O_EXCL, 0o644)),
                         {path: thing}, ())
        self._subject = path
        self._write_at(path, 0, SMALL)

    def _copy(self):
        """As cp does it, or piece by piece: mostly of a file that was not changed."""
        box, path = self._box, self._free_name()
        source = "whole" if "whole" in box.paths("file") and self._dice.random() < 0.7 else self._file()
        thing, data = Thing("file", 0o644, Recording(b"", box.unit)), bytes(box.names[source].recording.now)
        a, made = os.open(box.at(source), os.O_RDONLY), []
        box.change_names(lambda: made.append(os.open(box.at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)), {path: thing}, ())
        start, done, piece = time.monotonic(), 0, self._dice.choice((1 << 30, 16 * BLOCK))
        while done < len(data):
            done += os.copy_file_range(a, made[0], piece, done, done)
        end = time.monotonic()
        os.close(a)
        os.close(made[0])
        thing.recording.now[:] = data
        thing.recording.changed(start, end, 0, len(data))
        thing.recording.grown(start, end, 0)
        self._subject = path

    def _rename_to(self, path, target):
        box = self._box
        if path == target:
            return
        box.change_names(lambda: os.rename(box.at(path), box.at(target)),
                         {target: box.names[path]}, (path,))
        self._subject = target

    def _rename(self):
        self._rename_to(self._file(), self._free_name())

    def _rename_over(self):
        path = self._file()
        self._rename_to(path, self._other_file(path))

    def _rename_dir(self):
        box, old = self._box, "d" if "d" in self._box.names else "d2"
        new = "d2" if old == "d" else "d"
        moved = {new + path[len(old):]: thing for path, thing in box.names.items()
                 if path == old or path.startswith(old + "/")}
        box.change_names(lambda: os.rename(box.at(old), box.at(new)), moved,
                         tuple(old + path[len(new):] for path in moved))
        if self._dice.random() < 0.5:
            self._subject = next(p for p in sorted(moved) if p != new)
            self._subject = self._subject if moved[self._subject].kind == "file" else "small"

    def _link(self):
        box, path, target = self._box, self._file(), self._free_name()
        box.change_names(lambda: os.link(box.at(path), box.at(target)),
                         {target: box.names[path]}, ())

    def _unlink(self):
        box, path = self._box, self._file()
        box.change_names(lambda: os.unlink(box.at(path)), {}, (path,))

    def _mkdir(self):
        box, path = self._box, self._free_name()
        box.change_names(lambda: os.mkdir(box.at(path), 0o755), {path: Thing("dir", 0o755)}, ())

    def _rmdir(self):
        box = self._box
        empty = [path for path in box.paths("dir") if box.is_empty(path)]
        if empty:
            path = self._dice.choice(empty)
            box.change_names(lambda: os.rmdir(box.at(path)), {}, (path,))

    def _symlink(self):
        path = self._free_name()
        self._box.change_names(lambda: os.symlink("to/where", self._box.at(path)),
                               {path: Thing("symlink", 0o777, target="to/where")}, ())

    # attributes

    def _anything(self):
        return self._dice.choice((self._file(), self._dice.choice(self._box.paths("dir"))))

    def _setxattr(self):
        box, path, value = self._box, self._anything(), b"%d" % len(self._box.deeds)
        box.change_attribute(path, XATTR, value, lambda: os.setxattr(box.at(path), XATTR, value))

    def _chmod(self):
        box, path, mode = self._box, self._anything(), self._dice.choice((0o600, 0o700, 0o755))
        box.change_attribute(path, "mode", mode, lambda: os.chmod(box.at(path), mode))

    # syncs

    def _sync_none(self):
        pass

    def _sync_path(self, path):
        thing = self._box.names[path]
        fd = os.open(self._box.at(path), os.O_RDONLY)
        start = time.monotonic()
        os.fsync(fd)
        end = time.monotonic()
        os.close(fd)
        if not self._is_volatile:
            self._box.synced(thing, start, end)

    def _sync_file(self):
        """The root's where the name has gone, or is a symlink's by now, which leads nowhere."""
        thing = self._box.names.get(self._subject)
        self._sync_path(self._subject if thing and thing.kind != "symlink" else "")

    def _sync_dir(self):
        directory = os.path.dirname(self._subject)
        self._sync_path(directory if directory in self._box.names else "")

    def _sync_root(self):
        self._sync_path("")

    def _sync_all(self):
        start = time.monotonic()
        linux.syncfs(self._machine.disk.path)
        end = time.monotonic()
        for box in self._sandboxes:
            box.all_synced_below(start, end)

    def _sync_stranger(self):
        """The journal goes out, with a file that is none of the union's."""
        commit_journal(self._machine)

    def _sync_map(self):
        """The map goes out, with a hole in another file."""
        noise = self._machine.mnt / "noise"
        fd = os.open(noise, os.O_RDWR)
        linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE,
                        self._dice.randrange(60) * BLOCK, BLOCK)
        os.fsync(fd)
        os.close(fd)


@dataclasses.dataclass(frozen=True)
class Alphabet:
    operations: tuple
    syncs: tuple

    def all_of_one(self):
        return [(step,) for step in itertools.product(self.operations, self.syncs)]

    def some(self, dice, count):
        """Of two or three operations, the last one with a sync."""
        last = [how for how in self.syncs if how != "none"]
        sequences = []
        for _ in range(count):
            length = dice.choice((2, 3))
            steps = [(dice.choice(self.operations), dice.choice(self.syncs + ("none",)))
                     for _ in range(length - 1)]
            sequences.append((*steps, (dice.choice(self.operations), dice.choice(last))))
        return sequences


    def around(self, dice, count, keeping):
        """One operation, or two, each followed by one of `keeping`; then another."""
        sequences = []
        for _ in range(count):
            steps = []
            for _ in range(dice.choice((1, 2))):
                steps += [(dice.choice(self.operations), dice.choice(self.syncs)), (dice.choice(keeping), "none")]
            sequences.append((*steps, (dice.choice(self.operations), dice.choice(self.syncs))))
        return sequences


ALPHABET = Alphabet(
    ("write", "write_past", "overwrite", "truncate_down", "truncate_up", "cut_and_grow", "punch",
     "zero_range", "fallocate", "fallocate_keep", "store", "create", "copy", "rename", "rename_over",
     "rename_dir", "link", "unlink", "mkdir", "rmdir", "symlink", "setxattr", "chmod"),
    ("none", "file", "dir", "root", "all", "stranger", "map"))
