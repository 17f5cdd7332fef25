# SPDX-License-Identifier: Apache-2.0
"""The directories of a test: lower directories, an upper, a mount of them, and the proof at the end
that no lower was touched."""
import contextlib
import os
import shutil
import subprocess

import pytest

from . import linux, rootless, treestate
from .server import Mount


def _unless_gone(_, path, error):
    """A server may still remove what is its own in the work directory."""
    if not issubclass(error[0], FileNotFoundError):
        raise error[1]


def remove_tree(path):
    """However deep; without privileges a directory's mode may be in the way. Files keep theirs: one may be open."""
    if rootless.is_plain():
        subprocess.run(["find", str(path), "-type", "d", "-exec", "chmod", "u+rwx", "{}", ";"], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(path, onerror=_unless_gone)


class Stack:
    def __init__(self, base, program, watchdog=None):
        self.base, self.program, self.watchdog = base, program, watchdog
        self.lowers = []
        self._serial, self._states, self._extra, self._problems = 0, {}, [], []
        base.mkdir(mode=0o755)
        self.mnt = self._make("mnt")
        self.log_path = base / "server.log"
        self._fresh_upper()
        self._main = None

    def _make(self, name):
        path = self.base / name
        path.mkdir(mode=0o755)
        return path

    def _fresh_upper(self):
        self._serial += 1
        self.upper = self._make(f"upper{self._serial}")
        self.work = self._make(f"work{self._serial}")

    def lower(self, index=0):
        """The lower directory with this index, 0 the top one; made when first asked for."""
        while len(self.lowers) <= index:
            self.lowers.append(self._make(f"lower{len(self.lowers)}"))
        return self.lowers[index]

    def mount(self, *options, upper=True, env=None):
        """Mount all lowers made so far. Without upper: read-only."""
        self.lower(0)
        self.remember_lowers()
        self._main = Mount(self.program, self.lowers, self.upper if upper else None,
                           self.work if upper else None, self.mnt, self.log_path, self.watchdog)
        self._main.start(*options, env=env)
        return self.mnt

    def second_mount(self, lowers, *options, upper=None, work=None, env=None):
        """Another mount beside the main one, ended with the stack. Lowers are paths, top first."""
        number = len(self._extra)
        mount = Mount(self.program, lowers, upper, work, self._make(f"mnt-{number}"),
                      self.base / f"server-{number}.log", self.watchdog)
        self._extra.append(mount)
        return mount.start(*options, env=env)

    def umount(self):
        problem = self._main.stop()
        assert problem is None, f"{problem}\n{self.log}"

    def remount(self, *options, **kwargs):
        if self.is_mounted:
            self.umount()
        return self.mount(*options, **kwargs)

    def freeze(self):
        """Unmount; the upper becomes the top lower below a fresh, empty upper."""
        if self.is_mounted:
            self.umount()
        frozen = self.base / f"frozen{self._serial}"
        self.upper.rename(frozen)
        self.lowers.insert(0, frozen)
        self._fresh_upper()
        return frozen

    @property
    def is_mounted(self):
        return self._main is not None and self._main.is_mounted

    @property
    def pid(self):
        return self._main.pid

    @property
    def server(self):
        return self._main

    @property
    def log(self):
        mounts = ([self._main] if self._main else []) + self._extra
        return "".join(mount.log for mount in mounts)

    def remember_lowers(self):
        for path in self.lowers:
            if path not in self._states:
                self._states[path] = treestate.take(path)

    def forget_lower(self, path):
        """The test itself is about to change this lower."""
        self._states.pop(path, None)

    def changed_lowers(self):
        lines = []
        for path, before in self._states.items():
            lines += [f"{path.name}/{line}" for line in
                      treestate.differences(before, treestate.take(path))]
        return lines

    def close(self):
        """Unmount everything; returns one line for each thing that is not as it should be."""
        problems = []
        for mount in self._extra[::-1] + ([self._main] if self._main else []):
            problem = mount.stop()
            problems += [problem] if problem else []
            problems += mount.bad_signs()
        problems += [f"a lower changed: {line}" for line in self.changed_lowers()[:20]]
        return problems

    def discard(self):
        mounts = [self.mnt] + [mount.mnt for mount in self._extra]
        assert not any(os.path.ismount(path) for path in mounts)
        remove_tree(self.base)


@contextlib.contextmanager
def on_small_disk(stack, size="6m"):
    """Upper and work on a file system of this size, which is yielded."""
    disk = stack.base / "small"
    disk.mkdir()
    linux.mount("tmpfs", disk, "tmpfs", 0, f"size={size},mode=0755")
    stack.upper, stack.work = disk / "upper", disk / "work"
    stack.upper.mkdir()
    stack.work.mkdir()
    try:
        yield disk
    finally:
        if stack.is_mounted:
            stack.umount()
        linux.umount(disk, linux.MNT_DETACH)


@contextlib.contextmanager
def stack_on(kind, size, directory, program, watchdog):
    """A stack on a new file system of this kind, as mkfs names it."""
    if rootless.is_inside() or os.geteuid() != 0 or not shutil.which(f"mkfs.{kind}") or not os.path.exists("/dev/loop-control"):
        pytest.skip(f"takes root, loop devices and mkfs.{kind}")
    image, mnt = directory / f"{kind}.img", directory / kind
    mnt.mkdir()
    with open(image, "wb") as f:
        f.truncate(size)
    subprocess.run([f"mkfs.{kind}", "-q", "-f", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, mnt]).returncode:
        mnt.rmdir()
        image.unlink()
        pytest.skip(f"no loop devices, or no {kind}")
    made = Stack(mnt / "s", program, watchdog)
    yield made
    problems = made.close()
    subprocess.run(["umount", mnt], check=True)
    mnt.rmdir()
    image.unlink()
    assert not problems, "\n".join(problems) + made.log
