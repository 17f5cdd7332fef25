# SPDX-License-Identifier: Apache-2.0
"""A machine whose power can be cut: a disk with lower, upper and work directories, a union of them,
and a boot id that changes with each boot."""
import contextlib
import hashlib
import os
import shutil
import stat
import uuid

from disk import Disk
from support import layers, linux, treestate
from support.server import Mount, MountFailed

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SHOWN = 12
_LEFT_BY_A_POWER_CUT = ("behind its end", "of no use, and harmless", "left by a tool that was stopped")
_LEFT_TO_THE_NEXT_MOUNT = ("a snapshot of it was interrupted",)
# by a rename of which one half is on disk; the next mount empties the work directory, where the other name is
_LEFT_BY_HALF_A_RENAME = ("the map has 2 names",)


class BootId:
    """Laid over the kernel's own in this mount namespace."""

    def __init__(self, path):
        self._path = path
        self.reboot()
        linux.mount(str(path), _BOOT_ID, None, linux.MS_BIND)

    def reboot(self):
        self._path.write_text(f"{uuid.uuid4()}\n")

    def close(self):
        linux.umount(_BOOT_ID)
        self._path.unlink()


def state_of(root):
    """As treestate.take, but holes and zeros are the same: they change places when data is read."""
    state = treestate.take(root)
    for name, entry in state.items():
        if stat.S_ISREG(int(entry["mode"], 8)):
            entry["content"] = hashlib.sha1((root / name).read_bytes()).hexdigest()
    return state


class View:
    """A union after a power cut, to be looked at; way says what the picture's upper is in it."""

    def __init__(self, path, way=""):
        self.path, self.way, self.problems = path, way, []

    def read(self, name):
        """The file's bytes; None if it is not there."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as e:
            self.problems.append(f"{name}: {e.strerror}")
            return None

    def must(self, condition, text):
        if not condition:
            self.problems.append(text)

    def must_fit(self, recordings, picture, may_be_missing=False):
        """Each file of {name: Recording} is there and holds what it may hold."""
        for name, recording in recordings.items():
            before = len(self.problems)
            got = self.read(name)
            if got is not None:
                self.problems += [f"{name}: {line}" for line in
                                  recording.violations(got, picture)[:_SHOWN]]
            elif not may_be_missing and len(self.problems) == before:
                self.problems.append(f"{name}: not there")

    def contents(self):
        """{path: digest of the file} of all there is."""
        found = {}
        for directory, _, names in os.walk(self.path):
            for name in names:
                relative = os.path.relpath(os.path.join(directory, name), self.path)
                got = self.read(relative)
                found[relative] = hashlib.sha1(got).hexdigest() if got is not None else "unreadable"
        return found


class Machine:
    def __init__(self, base, host, boot, kind, program, watchdog):
        base.mkdir()
        self.base, self.host, self.boot, self.kind = base, host, boot, kind
        self.log_path = base / "server.log"
        self._program, self._watchdog = program, watchdog
        self.mnt = self._made("mnt")
        self.disk = Disk(host, kind, base / "disk")
        for name in ("lower", "upper", "work"):
            (self.disk.path / name).mkdir()
        self._union = self._latest = self._lower_state = None

    def _made(self, name):
        path = self.base / name
        path.mkdir()
        return path

    @property
    def unit(self):
        return self.disk.kind.unit

    @property
    def lower(self):
        return self.disk.path / "lower"

    @property
    def upper(self):
        return self.disk.path / "upper"

    def start(self, *options):
        """The union over what the test has put into the lower; returns where it is."""
        self.note_lower()
        self._union = self._mount(self.disk.path, options)
        return self.mnt

    def note_lower(self):
        """It is what it will be from now on."""
        linux.syncfs(self.disk.path)
        if self._lower_state is None:
            self._lower_state = state_of(self.lower)

    def _mount(self, root, options=(), as_lower=False):
        lowers = [root / "upper", root / "lower"] if as_lower else [root / "lower"]
        above = (None, None) if as_lower else (root / "upper", root / "work")
        union = Mount(self._program, lowers, *above, self.mnt, self.log_path, self._watchdog)
        self._latest = union
        return union.start(*options)

    @contextlib.contextmanager
    def showing(self, layers):
        """A view of these layers alone, topmost first."""
        self._union = self._latest = Mount(self._program, layers, None, None, self.mnt, self.log_path, self._watchdog)
        self._latest.start()
        yield View(self.mnt)
        self.stop()

    def stop(self):
        """Unmount in good order."""
        union, self._union = self._union, None
        problem = union.stop() if union else None
        assert problem is None, problem

    def cut(self):
        """The power fails now: what the disk holds. The machine itself goes on, to be cut again."""
        return self.disk.picture()

    def reborn(self, picture):
        """Power is back: from now on this machine works with that disk, in a new boot."""
        self.stop()
        self.disk.close()
        self.boot.reboot()
        self.disk = Disk(self.host, self.kind, self.disk.path, picture.image)

    def examine(self, pictures, look, *options, prepare=None, afterwards=None):
        """Look at each picture as a lower, as an upper, and once more after a clean unmount.

        look(view, picture) adds to view.problems; prepare() does what must be done to the disk
        before; afterwards(picture) goes on with the disk and returns its problems. The machine is
        switched off for good.
        """
        self.stop()
        self.disk.close()
        problems = []
        for picture in pictures:
            problems += [f"picture {picture.number} of {len(pictures)}, {line}"
                         for line in self._examine_one(picture, look, options, prepare, afterwards)]
        shown = problems[:_SHOWN] + [f"and {len(problems) - _SHOWN} more"][:len(problems) > _SHOWN]
        assert not problems, "\n".join([f"on {self.kind}:"] + shown)

    def _examine_one(self, picture, look, options, prepare, afterwards):
        self.disk = Disk(self.host, self.kind, self.disk.path, picture.image)
        if prepare:
            prepare()
        problems, contents = [], []
        upper_before = state_of(self.upper)
        self.boot.reboot()
        problems += [f"before the mount, {line}" for line in self._check(not self.disk.kind.has_whole_renames)]
        for way in ("as a lower", "as the upper", "after a clean unmount"):
            self.boot.reboot()
            self._union = self._mount(self.disk.path, options, way == "as a lower")
            view = View(self.mnt, way)
            look(view, picture)
            contents.append(view.contents())
            self.stop()
            problems += [f"{way}: {line}" for line in dict.fromkeys(view.problems)]
            if way == "as a lower":
                changes = treestate.differences(upper_before, state_of(self.upper))
                problems += [f"a lower was written: {line}" for line in changes[:_SHOWN]]
            elif contents[-1] != contents[-2]:
                problems.append(f"{way}: other than before: " + _difference(*contents[-2:]))
        problems += self._check()
        if afterwards:
            problems += [f"afterwards: {line}" for line in afterwards(picture)] + self._check()
        changes = treestate.differences(self._lower_state, state_of(self.lower))
        problems += [f"the lower changed: {line}" for line in changes[:_SHOWN]]
        self.disk.close()
        return problems

    def _check(self, may_have_half_a_rename=False):
        """The findings of the offline tool, but for those that a power cut may leave (doc/SPEC.md, 3.5)."""
        result = layers.check(self._program, self.upper, [self.lower])
        lines = [line for line in result.stdout.splitlines() if result.returncode and not line.endswith(", no damage")]
        lines += [] if lines or not result.returncode else [result.stderr]
        may_be = _LEFT_BY_A_POWER_CUT + _LEFT_TO_THE_NEXT_MOUNT + (_LEFT_BY_HALF_A_RENAME if may_have_half_a_rename else ())
        return [f"check: {line}" for line in lines if not any(text in line for text in may_be)][:_SHOWN]

    def forget_volatile(self):
        """Removes the volatile mark, as a user does to go on with an upper that may have lost data."""
        mark = self.disk.path / "work" / "work" / "incompat" / "volatile"
        shutil.rmtree(mark, ignore_errors=True)

    def mount_refused(self, picture, *options):
        """The program's error for this picture's upper in a new boot; None if it mounts."""
        self.reborn(picture)
        said = len(self.log)
        try:
            self._union = self._mount(self.disk.path, options)
        except MountFailed:
            return self.log[said:]
        return None

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def close(self):
        """Whatever state a failed test left; returns one line for each thing wrong."""
        problems = self._latest.bad_signs() if self._latest else []
        if self._union:
            problems.append(self._union.stop())
        if os.path.ismount(self.disk.path):
            self.disk.close()
        for image in self.host.path.glob("*.img"):
            image.unlink()
        return [line for line in problems if line]

    def discard(self):
        assert not os.path.ismount(self.disk.path) and not os.path.ismount(self.mnt)
        shutil.rmtree(self.base)


def _difference(before, after):
    names = [name for name in sorted(before.keys() | after.keys())
             if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name)} {after.get(name)}" for name in names[:_SHOWN])
