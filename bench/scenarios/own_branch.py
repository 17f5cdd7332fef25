# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a mount in use: the pause that programs see, what a branch costs, and what depth costs."""

import contextlib
import os
import random
import subprocess
import threading
import time

from support import diskstat, drivers, host, tables, trees
from support.measures import AtMost, Below, FlatIn
from support.scenario import Scenario

NAME = "own/branch"
FILES = 100_000, 5_000
SNAPSHOTS = 20, 8
BRANCHES = 16, 6
DEPTHS = (1, 10, 100, 500), (1, 10)
NAMES = 500
BACKS = 5
QUIETS = 5
SIZE = 16 * trees.MIB
READS = 20_000
COLUMNS = "pause", "snapshot", "written by the first", "written", "branch", "on disk", "rollback", "squash"
PAUSE, DEPTH = "a mount in use", "reads over snapshots"


def build(root):
    trees.write_file(root + "/data", SIZE)
    os.mkdir(root + "/names")
    for i in range(NAMES):
        trees.write_file(f"{root}/names/{i}", 1)


def fill(root, count):
    for i in range(count):
        if i % 100 == 0:
            os.mkdir(f"{root}/d{i // 100}")
        with open(f"{root}/d{i // 100}/f{i}", "xb") as f:
            f.write(b"x")


class Writer(threading.Thread):
    """Writes blocks of a file at random, and looks names up; remembers when each operation began and ended."""

    def __init__(self, path, files):
        super().__init__()
        self.path, self.files, self.is_stopped, self.seen = path, files, False, []

    def run(self):
        dice, data = random.Random(5), os.open(self.path + "/data", os.O_RDWR)
        while not self.is_stopped:
            began = time.monotonic()
            os.pwrite(data, b"y" * 4096, dice.randrange(SIZE // 4096) * 4096)
            i = dice.randrange(self.files)
            os.stat(f"{self.path}/d{i // 100}/f{i}")
            self.seen.append((began, time.monotonic()))
            time.sleep(0.0003)
        os.close(data)

    def longest(self, began, ended):
        return max(b - a for a, b in list(self.seen) if b >= began and a <= ended)


def veneer(group, *arguments):
    """Seconds, and what it says."""
    began = time.monotonic()
    said = host.run("env", f"VENEER_RUNTIME_DIR={group.runtime}", drivers.veneer_binary(), *arguments).strip()
    return time.monotonic() - began, said


def kib_of(path):
    return int(subprocess.run(["du", "-sk", path], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])


def random_reads(path, seed):
    """Microseconds of a read of 4 KiB that is in memory."""
    dice, data = random.Random(seed), os.open(path, os.O_RDONLY)
    offs = [dice.randrange(SIZE // 4096) * 4096 for _ in range(READS)]
    for off in range(0, SIZE, trees.MIB):
        os.pread(data, trees.MIB, off)
    began = time.monotonic()
    for off in offs:
        os.pread(data, 4096, off)
    taken = time.monotonic() - began
    os.close(data)
    return taken / READS * 1e6


class Branch(Scenario):
    """Snapshots of a mount in use: the pause, a branch, and depth

    No paper has this. An upper of 100,000 files, all of which the kernel knows (5,000 in a quick run), has 1,000 directories in its root; its
    first snapshot moves them, and what that writes to the device until a sync is counted. Then a program writes it and looks names up; 20
    snapshots are taken meanwhile (8), also by btrfs. Of each the longest operation that it met is the pause. Five snapshots follow, each after a
    change of one block, while nothing else goes on: what they write is counted likewise. Then branches are mounted, each of which is another
    writable view. Beside it, also with what it takes on disk and writes: a full copy (vfs), a snapshot of btrfs, cp --reflink on XFS, and
    overlayfs, which has to be unmounted and is mounted twice over its upper. Then the mount goes back five times, each time after a change, and
    all its snapshots become one. Then a file of 16 MiB gets blocks over 1, 10, 100 and 500 snapshots, and is read at random, from memory; in a
    new branch 500 names are looked up for the first time."""

    name = NAME
    question = "How fast is a working copy made, used and carried back?"
    drivers = "vfs", "btrfs", "reflink", "overlayfs", "veneer"
    quick_drivers = "veneer",
    seconds = 15.5, 6.0
    headline = [("the longest operation beside a snapshot, 100,000 files", f"{NAME}/{PAUSE}", "pause")]

    def cells(self, quick):
        return [PAUSE, DEPTH]

    def has(self, cell, driver):
        return driver == "veneer" or cell == PAUSE

    def act(self, run, cell, driver):
        lower = run.lower("branch", build)
        if driver.name != "veneer":
            with driver.open(run.work, lower, keep=False) as view:
                self.copy(run, driver, view, lower)
            return
        with driver.group(run.work) as group:
            view = group.add(run.work, lower)
            (self.go_deep if cell == DEPTH else self.take)(run, group, view)

    @staticmethod
    def take(run, group, view):
        row = f"{NAME}/{PAUSE}"
        fill(view.path, FILES[run.quick])
        run.add(row, "written by the first", [Branch.written(run, "host", lambda: veneer(group, "snapshot", view.path))], "KiB")
        Branch.disturb(run, view, lambda: veneer(group, "snapshot", view.path))
        written = []
        for k in range(QUIETS):
            with open(view.path + "/data", "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), b"q" * 4096, k * 4096)
            written.append(Branch.written(run, "host", lambda: veneer(group, "snapshot", view.path)))
        run.add(row, "written", written, "KiB")
        name = Branch.go_back(run, group, view)
        branches = [f"{os.path.dirname(view.path)}/b{k}" for k in range(BRANCHES[run.quick])]
        try:
            run.add(row, "branch", [veneer(group, "branch", f"{view.path}@{name}", b)[0] for b in branches], "s")
            run.add(row, "on disk", [kib_of(os.path.join(os.path.dirname(b), f".{os.path.basename(b)}.branch")) for b in branches], "KiB")
        finally:
            for b in branches:
                veneer(group, "umount", b)
                host.run("rm", "-rf", b, os.path.join(os.path.dirname(b), f".{os.path.basename(b)}.branch"))

    @staticmethod
    def disturb(run, view, take):
        """Snapshots while a program works."""
        writer = Writer(view.path, FILES[run.quick])
        writer.start()
        pauses, times = [], []
        try:
            time.sleep(0.3)
            for _ in range(SNAPSHOTS[run.quick]):
                began = time.monotonic()
                take()
                times.append(time.monotonic() - began)
                time.sleep(0.2)
                pauses.append(1000 * writer.longest(began, began + times[-1]))
        finally:
            writer.is_stopped = True
            writer.join()
        run.add(f"{NAME}/{PAUSE}", "pause", pauses, "ms", tail=True)
        run.add(f"{NAME}/{PAUSE}", "snapshot", times, "s")

    @staticmethod
    def written(run, kind, act):
        """KiB to the device, until a sync."""
        count = diskstat.Counter(run.work.device(kind))
        act()
        return count.written() / trees.KIB

    @staticmethod
    def go_back(run, group, view):
        """The name of the one snapshot that is left."""
        row, times = f"{NAME}/{PAUSE}", []
        name = veneer(group, "snapshot", view.path)[1]
        for k in range(BACKS):
            with open(view.path + "/data", "r+b", buffering=0) as f:
                os.pwrite(f.fileno(), b"w" * 4096, k * 4096)
            taken, kept = veneer(group, "rollback", view.path, name)
            times.append(taken)
            veneer(group, "snapshot", "--delete", view.path, kept)
        run.add(row, "rollback", times, "s")
        run.add(row, "squash", [veneer(group, "squash", "-q", view.path)[0]], "s")
        return name

    @staticmethod
    def copy(run, driver, view, lower):
        """What another writable view of the same tree costs there."""
        row, volume = f"{NAME}/{PAUSE}", run.work.volume(driver.kind)
        fill(view.path, FILES[run.quick])
        if driver.name == "btrfs":
            Branch.disturb_btrfs(run, view)
        used = host.used_bytes(volume)
        with contextlib.ExitStack() as made:
            run.add(row, "written", [Branch.written(run, driver.kind, lambda: Branch.make_other(run, driver, view, lower, made))], "KiB")
            run.add(row, "on disk", [(host.used_bytes(volume) - used) / trees.KIB], "KiB")

    @staticmethod
    def make_other(run, driver, view, lower, made):
        began = time.monotonic()
        if driver.name == "overlayfs":
            # It goes on over what it has, and so does the other one.
            view.unmount()
            below = f"{view.upper}:{lower}"
            made.enter_context(driver.open(run.work, below, keep=False))
        else:
            below = view.path
        made.enter_context(driver.open(run.work, below, keep=False))
        run.add(f"{NAME}/{PAUSE}", "branch", [time.monotonic() - began], "s")

    @staticmethod
    def disturb_btrfs(run, view):
        base, taken = os.path.dirname(view.path), []

        def take():
            taken.append(f"{base}/taken{len(taken)}")
            host.run("btrfs", "subvolume", "snapshot", view.path, taken[-1])

        try:
            Branch.disturb(run, view, take)
        finally:
            host.run("btrfs", "subvolume", "delete", *taken)

    @staticmethod
    def go_deep(run, group, view):
        taken = 0
        for depth in DEPTHS[run.quick]:
            while taken < depth:
                with open(view.path + "/data", "r+b", buffering=0) as f:
                    for k in range(8):
                        os.pwrite(f.fileno(), b"z" * 4096, (taken * 8 + k) * 4096 * 5 % SIZE)
                veneer(group, "snapshot", view.path)
                taken += 1
            run.add(f"{NAME}/depth {depth}", "read", [random_reads(view.path + "/data", k) for k in range(5)], "us")
            run.add(f"{NAME}/depth {depth}", "first look-up", [Branch.look_up(group, view)], "us")

    @staticmethod
    def look_up(group, view):
        """Microseconds a name."""
        branch = os.path.dirname(view.path) + "/looked"
        veneer(group, "branch", view.path, branch)
        began = time.monotonic()
        for i in range(NAMES):
            os.stat(f"{branch}/names/{i}")
        taken = time.monotonic() - began
        veneer(group, "umount", branch)
        host.run("rm", "-rf", branch, os.path.dirname(branch) + "/.looked.branch")
        return taken / NAMES * 1e6

    def measures(self):
        row = f"{NAME}/{PAUSE}"
        return [Below(row, "pause", 5, must=False), Below(row, "branch", 0.01, must=False), Below(row, "on disk", 32, must=False),
                Below(row, "rollback", 0.01, must=False), Below(row, "written", 64, must=False), Below(row, "written by the first", 64, must=False),
                AtMost(row, "pause", "btrfs", 1, must=False), AtMost(row, "written", "btrfs", 1, must=False),
                *[AtMost(row, "branch", peer, 1, must=False) for peer in ("reflink", "overlayfs")],
                AtMost(row, "branch", "vfs", 0.1), AtMost(row, "branch", "btrfs", 1, must=False),
                FlatIn(f"{NAME}/depth 100", f"{NAME}/depth 1", "read", 1.05, must=False),
                FlatIn(f"{NAME}/depth 500", f"{NAME}/depth 1", "read", 1.05, must=False),
                FlatIn(f"{NAME}/depth 100", f"{NAME}/depth 1", "first look-up", 2, must=False)]

    def tables(self, seen):
        row = f"{NAME}/{PAUSE}"
        return tables.table(seen, "a mount in use", [(metric, row, metric) for metric in COLUMNS]) + \
            tables.table(seen, "a read of 4 KiB from memory, by depth", [(str(d), f"{NAME}/depth {d}", "read") for d in DEPTHS[0]]) + \
            tables.table(seen, "a name looked up for the first time, by depth", [(str(d), f"{NAME}/depth {d}", "first look-up") for d in DEPTHS[0]])
