# SPDX-License-Identifier: Apache-2.0
"""A record of the writes to a file, with times; from it follow the states that a power cut may leave.

Every change and every fsync carries the time it began and the time it returned. A unit (a block of
the file system under test) may hold, after a power cut, what the last change made of it that was
over before a completed fsync began, or what any later one made of it, but nothing else.
"""
import os
import struct
import time
import types

from support import linux

NEVER = float("-inf")
_PIECE = 512


def pattern(off, length, version):
    """Bytes that tell their place in the file and their version, in every 512 of them."""
    first, last = off // _PIECE, (off + length + _PIECE - 1) // _PIECE
    text = b"".join(struct.pack("<QQ", i, version) * (_PIECE // 16) for i in range(first, last))
    return text[off - first * _PIECE:][:length]


def allowed(events, syncs, picture):
    """Of events (start, end, what), in order, what the picture may show: what was the last before
    the last completed sync, and anything since."""
    horizon = max((start for start, end in syncs if end <= picture.start), default=NEVER)
    floor = max(i for i, event in enumerate(events) if event[1] <= horizon)
    return [what for start, _, what in events[floor:] if start <= picture.end]


class Recording:
    """The history of one file; unit is what the file system writes whole or not at all."""

    def __init__(self, initial, unit=4096):
        self.unit, self.now = unit, bytearray(initial)
        self._initial, self._units = bytes(initial), {}
        self._sizes, self._syncs = [(NEVER, NEVER, len(initial))], []
        self.is_cut = False
        self._cut_units, self._unsure_units = set(), set()

    def changed(self, start, end, off, length):
        """The content of `now` from off on is new; the call that made it so took start to end."""
        for i in range(off // self.unit, (off + length + self.unit - 1) // self.unit):
            content = bytes(self.now[i * self.unit:(i + 1) * self.unit])
            self._units.setdefault(i, []).append((start, end, content))

    def resized(self, start, end):
        self._sizes.append((start, end, len(self.now)))

    def grown(self, start, end, from_size):
        """As resized, by a write: one that crosses a block's end may be cut off there."""
        first = from_size // self.unit + 1
        for i in range(first, (len(self.now) - 1) // self.unit + 1):
            self._sizes.append((start, end, i * self.unit))
        self.resized(start, end)

    def extended(self, start, end, from_size):
        """As resized, by a truncation upwards: the zeros that fill the last block of the old size may reach
        the disk first, and the size with them only as far as they go (XFS does so)."""
        filled = (from_size // self.unit + 1) * self.unit
        if from_size % self.unit and filled < len(self.now):
            self._sizes.append((start, end, filled))
        self.resized(start, end)

    def holed(self, start, end, upto):
        """Where the size on disk may still be less, a hole may have it grow as far as itself: since Linux 6.18 ext4 does so
        (ext4_update_disksize_before_punch)."""
        moment = types.SimpleNamespace(start=start, end=start)
        if min(self._allowed(self._sizes, moment)) < upto < len(self.now):
            self._sizes.append((start, end, upto))
            self.resized(start, end)

    def synced(self, start, end):
        self._syncs.append((start, end))
        self.is_cut = False

    def synced_below(self, start, end):
        """By a sync that the union hears nothing of: of holes and cuts only its map tells."""
        if not self.is_cut:
            self._syncs.append((start, end))

    def cut(self, off, length):
        """A hole or a cut, of which only the map tells."""
        self.is_cut |= length > 0
        self._cut_units |= set(range(off // self.unit, (off + length + self.unit - 1) // self.unit))

    def forget_syncs_of_cut_units(self):
        """The map is synced by nobody: what was cut may come back as it was at any time before."""
        self._unsure_units |= self._cut_units

    def forget_syncs(self):
        """Forgets earlier syncs: they promise nothing any more."""
        self._syncs = []

    def merge(self, other):
        """Add what another process did to other units of the same file."""
        assert not self._units.keys() & other._units.keys()
        self._units.update(other._units)
        self._syncs += other._syncs

    def _allowed(self, events, picture):
        return allowed(events, self._syncs, picture)

    def _events(self, i):
        base = (NEVER, NEVER, self._initial[i * self.unit:(i + 1) * self.unit])
        return [base] + self._units.get(i, [])

    def violations(self, got, picture):
        """One line for each thing in `got`, the file after the cut, that must not be."""
        lines = []
        sizes = self._allowed(self._sizes, picture)
        if len(got) not in sizes:
            lines.append(f"size {len(got)}, allowed {sorted(set(sizes))}")
        for i in range((len(got) + self.unit - 1) // self.unit):
            found = got[i * self.unit:(i + 1) * self.unit]
            events = self._events(i)
            syncs = [] if i in self._unsure_units else self._syncs
            if not _is_one_of(found, allowed(events, syncs, picture)):
                lines.append(f"unit {i}: {_describe(found, events)}")
        return lines


def _is_one_of(found, contents):
    return any(content[:len(found)].ljust(len(found), b"\0") == found for content in contents)


def _describe(found, events):
    if not found.strip(b"\0"):
        return f"zeros, after {len(events) - 1} changes"
    for number, (_, _, content) in enumerate(events):
        if _is_one_of(found, [content]):
            return f"as change {number} of {len(events) - 1} left it"
    return f"never written so: {found[:16].hex()}..."


class RecordedFile:
    """A file of the union, open, and all that is done to it recorded."""

    def __init__(self, path, recording, flags=0):
        self.recording = recording
        self._fd = os.open(path, os.O_RDWR | flags)

    def _timed(self, call, *args):
        start = time.monotonic()
        call(*args)
        return start, time.monotonic()

    def write(self, off, data):
        now, old_size = self.recording.now, len(self.recording.now)
        start, end = self._timed(os.pwrite, self._fd, data, off)
        if off > old_size:
            now += bytes(off - old_size)
        now[off:off + len(data)] = data
        self.recording.changed(start, end, off, len(data))
        if len(now) != old_size:
            self.recording.grown(start, end, max(old_size, off))

    def truncate(self, size):
        now, old_size = self.recording.now, len(self.recording.now)
        start, end = self._timed(os.ftruncate, self._fd, size)
        now[size:] = bytes(max(size - old_size, 0))
        self.recording.cut(size, max(old_size - size, 0))
        self.recording.changed(start, end, size, max(old_size - size, 0))
        self.recording.extended(start, end, old_size)

    def allocate(self, off, length, mode=0):
        start, end = self._timed(linux.fallocate, self._fd, mode, off, length)
        now = self.recording.now
        if not mode and off + length > len(now):
            now += bytes(off + length - len(now))
            self.recording.resized(start, end)

    def punch(self, off, length):
        self._zero(off, length, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE)

    def zero_range(self, off, length):
        self._zero(off, length, linux.FALLOC_ZERO_RANGE | linux.FALLOC_KEEP_SIZE)

    def _zero(self, off, length, mode):
        start, end = self._timed(linux.fallocate, self._fd, mode, off, length)
        length = max(min(length, len(self.recording.now) - off), 0)
        self.recording.is_cut = True
        self.recording.cut(off, length)
        self.recording.now[off:off + length] = bytes(length)
        self.recording.changed(start, end, off, length)
        self.recording.holed(start, end, off + length)

    def fsync(self):
        self.recording.synced(*self._timed(os.fsync, self._fd))

    def close(self):
        os.close(self._fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
