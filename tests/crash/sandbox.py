# SPDX-License-Identifier: Apache-2.0
"""A directory of the union in which one sequence of operations happens, and what a power cut may
leave of it.

The file systems below order their metadata: of the changes of names those up to some moment
survive, none after it, and not less than what a completed sync had on disk. Bytes and attributes
are each file's own (recording.py).
"""
import errno
import os
import stat
import time

from recording import NEVER, RecordedFile, Recording, allowed, pattern

BLOCK = 4096
MIDDLE = 9 * BLOCK + 3500
WHOLE = 33 * BLOCK + 700  # large enough for a copy of it to refer to its blocks
SMALL = 5000
XATTR = "user.crash"


class Thing:
    """A file, directory or symlink, whatever it is called."""

    def __init__(self, kind, mode, recording=None, target=None):
        self.kind, self.recording, self.target = kind, recording, target
        self.attributes = {"mode": [(NEVER, NEVER, mode)], XATTR: [(NEVER, NEVER, None)]}
        self.syncs = []
        self.last_event = 0

    def copy(self):
        """Another that begins as this one is now."""
        recording = self.recording and Recording(bytes(self.recording.now), self.recording.unit)
        copied = Thing(self.kind, self.attributes["mode"][-1][2], recording, self.target)
        copied.attributes[XATTR] = [(NEVER, NEVER, self.attributes[XATTR][-1][2])]
        return copied

    def attribute_problems(self, path, status, picture):
        found = {"mode": stat.S_IMODE(status.st_mode), XATTR: _xattr(path)}
        if self.kind == "symlink":
            return [] if os.readlink(path) == self.target else ["another target"]
        return [f"{what} {found[what]!r}, allowed {may}" for what, events in self.attributes.items()
                if found[what] not in (may := allowed(events, self.syncs, picture))]


def _xattr(path):
    try:
        return os.getxattr(path, XATTR, follow_symlinks=False)
    except OSError as e:
        if e.errno in (errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM):
            return None
        raise


def _kind(status):
    return {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink"}.get(
        stat.S_IFMT(status.st_mode), "special")


def _parent(path):
    return path.rpartition("/")[0]


class Sandbox:
    """Paths are relative to it, "" is itself."""

    def __init__(self, lower, name, unit):
        self.name, self.unit, self.deeds = name, unit, []
        self._version = 0
        self.root = lower / name
        names = {}
        for path in ("", "d", "d/sub", "e"):
            (self.root / path).mkdir()
            names[path] = Thing("dir", 0o755)
        for path, size in (("big", MIDDLE), ("other", MIDDLE), ("small", SMALL), ("d/in", MIDDLE),
                           ("hard1", MIDDLE), ("whole", WHOLE)):
            names[path] = self._lower_file(path, size)
        os.link(self.root / "hard1", self.root / "hard2")
        names["hard2"] = names["hard1"]
        self._past = []
        self._begin(names)

    def _begin(self, names):
        """Its history: all that was before is on the disk for good."""
        self._events, self._floors = [(NEVER, NEVER, names)], []
        self._past.append((time.monotonic(), self._events, self._floors))

    def _lower_file(self, path, size):
        data = pattern(0, size, 0)
        (self.root / path).write_bytes(data)
        return Thing("file", 0o644, Recording(data, self.unit))

    def enter(self, union):
        """From now on it is the union's."""
        self.root = union / self.name

    def found_again(self, union):
        """As after a power cut: what is there now is what it begins with."""
        things, names = {}, {}
        for path, status in _walk(union / self.name).items():
            things.setdefault(status.st_ino, self._thing(union / self.name / path, status))
            names[path] = things[status.st_ino]
        self._begin(names)
        self.deeds.append("power cut")

    def frozen(self):
        """Its names, of things that stay what these are now."""
        return _copies(self.names)

    def went_back(self, names):
        """To what it was when these were frozen, and that is on the disk."""
        self._begin(_copies(names))
        self.deeds.append("went back")

    def _thing(self, path, status):
        kind = _kind(status)
        thing = Thing(kind, stat.S_IMODE(status.st_mode))
        thing.attributes[XATTR] = [(NEVER, NEVER, _xattr(path))]
        if kind == "file":
            thing.recording = Recording(path.read_bytes(), self.unit)
        if kind == "symlink":
            thing.target = os.readlink(path)
        return thing

    @property
    def names(self):
        return self._events[-1][2]

    def paths(self, kind):
        return sorted(path for path, thing in self.names.items() if thing.kind == kind and path)

    def is_empty(self, directory):
        return not any(path.startswith(directory + "/") for path in self.names)

    def next_data(self, off, length):
        self._version += 1
        return pattern(off, length, self._version)

    def at(self, path):
        return self.root / path

    def open(self, path, flags=0):
        return RecordedFile(self.at(path), self.names[path].recording, flags)

    def change_names(self, call, added, removed):
        """Do call(), which makes added {path: Thing} and takes the removed paths away, all at once.
        What is below a directory comes along, and its own fsync is none of that."""
        names = {path: thing for path, thing in self.names.items() if path not in removed}
        names.update(added)
        touched = []
        for path in (*removed, *added):
            if _parent(path) in removed or _parent(path) in added:
                continue
            touched.append(self.names[_parent(path)])
            touched += [of[path] for of in (self.names, names) if path in of]
        start = time.monotonic()
        call()
        self._events.append((start, time.monotonic(), names))
        for thing in touched:
            thing.last_event = len(self._events) - 1

    def change_attribute(self, path, what, value, call):
        start = time.monotonic()
        call()
        self.names[path].attributes[what].append((start, time.monotonic(), value))

    def synced(self, thing, start, end):
        """Its fsync, from start to end."""
        thing.syncs.append((start, end))
        if thing.recording:
            thing.recording.synced(start, end)
        self._floors.append((end, thing.last_event))

    def all_synced_below(self, start, end):
        """sync(2), of which a mount hears nothing."""
        self.all_synced(start, end, Recording.synced_below)

    def all_synced(self, start, end, synced=Recording.synced):
        for thing in set(self.names.values()):
            thing.syncs.append((start, end))
            if thing.recording:
                synced(thing.recording, start, end)
        self._floors.append((end, len(self._events) - 1))

    def forget_syncs_of_cut_blocks(self):
        """In a volatile mount the map, which alone tells of a cut, never is on disk for certain: each block that was cut is
        old or new, whatever sync(2) had on disk before."""
        for thing in set(self.names.values()):
            if thing.recording:
                thing.recording.forget_syncs_of_cut_units()

    def problems(self, view, picture):
        """The differences from an allowed state; of all allowed moments, the one with the fewest."""
        events, floors = [past[1:] for past in self._past if past[0] <= picture.start][-1]
        floor = max((i for end, i in floors if end <= picture.start), default=0)
        last = max(i for i, event in enumerate(events) if event[0] <= picture.end)
        return self._fewest(view, [events[i][2] for i in range(floor, last + 1)], picture)

    def problems_of_frozen(self, view, names, picture):
        return self._fewest(view, [names], picture)

    def _fewest(self, view, may_be, picture):
        found = _walk(view.path / self.name)
        best = min((self._compare(view, found, names, picture) for names in may_be), key=len)
        return [f"{self.name} [{', '.join(self.deeds)}]: {line}" for line in best]

    def _compare(self, view, found, names, picture):
        lines = [f"{path} is missing" for path in sorted(names.keys() - found.keys())]
        lines += [f"{path} is there" for path in sorted(found.keys() - names.keys())]
        for path in sorted(names.keys() & found.keys()):
            thing, status = names[path], found[path]
            if _kind(status) != thing.kind:
                lines.append(f"{path} is a {_kind(status)}")
                continue
            full = view.path / self.name / path
            lines += [f"{path}: {line}" for line in thing.attribute_problems(full, status, picture)]
            if thing.recording:
                bad = self._bytes_problems(view, path, thing, picture)
                lines += [f"{path}: {line}" for line in bad]
            others = [p for p in names if names[p] is thing and p in found]
            if len({found[p].st_ino for p in others}) > 1:
                lines.append(f"{path} is not one file with {others}")
        return lines

    def _bytes_problems(self, view, path, thing, picture):
        got = view.read(f"{self.name}/{path}")
        return ["unreadable"] if got is None else thing.recording.violations(got, picture)


def _copies(names):
    copies = {thing: thing.copy() for thing in names.values()}
    return {path: copies[thing] for path, thing in names.items()}


def _walk(root):
    """{relative path: lstat} of all there is."""
    found = {"": os.lstat(root)}
    for directory, dirs, files in os.walk(root):
        for name in dirs + files:
            full = os.path.join(directory, name)
            found[os.path.relpath(full, root)] = os.lstat(full)
    return found
