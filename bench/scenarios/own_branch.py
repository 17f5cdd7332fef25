# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a mount in use: the pause that programs see, what a branch costs, and what depth costs."""

import os
import random
import subprocess
import threading
import time

from support import drivers, host, tables, trees
from support.measures import AtMost, Below, FlatIn
from support.scenario import Scenario

NAME = "own/branch"
FILES = 100_000, 5_000
SNAPSHOTS = 20, 8
BRANCHES = 16, 6
DEPTHS = (1, 10, 100), (1, 10)
SIZE = 16 * trees.MIB
READS = 20_000
PAUSE, DEPTH = "a mount in use", "reads over snapshots"


def build(root):
    trees.write_file(root + "/data", SIZE)


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

    No paper has this. An upper of 100,000 files, all of which the kernel knows (5,000 in a quick run), is written by a program that also looks
    names up; 20 snapshots are taken meanwhile (8). Of each the longest operation that it met is the pause. Then branches are mounted, each of
    which is another writable view: beside a snapshot of btrfs and a full copy. Then a file of 16 MiB gets blocks over 1, 10 and 100 snapshots, and
    is read at random, from memory."""

    name = NAME
    drivers = "vfs", "btrfs", "veneer"
    quick_drivers = "veneer",
    without = {"overlayfs": "it has no snapshots; stacking it takes an unmount"}
    seconds = 40.0, 6.0
    headline = [("the longest operation beside a snapshot, 100,000 files, ms", f"{NAME}/{PAUSE}", "pause")]

    def cells(self, quick):
        return [PAUSE, DEPTH]

    def has(self, cell, driver):
        return driver == "veneer" or cell == PAUSE

    def act(self, run, cell, driver):
        lower = run.lower("branch", build)
        if driver.name != "veneer":
            with driver.open(run.work, lower, keep=False) as view:
                self.copy(run, driver, view)
            return
        with driver.group(run.work) as group:
            view = group.add(run.work, lower)
            (self.go_deep if cell == DEPTH else self.take)(run, group, view)

    @staticmethod
    def take(run, group, view):
        files = FILES[run.quick]
        fill(view.path, files)
        os.sync()
        writer = Writer(view.path, files)
        writer.start()
        pauses, times = [], []
        try:
            time.sleep(0.3)
            for _ in range(SNAPSHOTS[run.quick]):
                began = time.monotonic()
                times.append(veneer(group, "snapshot", view.path)[0])
                time.sleep(0.2)
                pauses.append(1000 * writer.longest(began, began + times[-1]))
        finally:
            writer.is_stopped = True
            writer.join()
        row = f"{NAME}/{PAUSE}"
        run.add(row, "pause", pauses, "ms", tail=True)
        run.add(row, "snapshot", times, "s")
        name = veneer(group, "snapshot", view.path)[1]
        branches = [f"{os.path.dirname(view.path)}/b{k}" for k in range(BRANCHES[run.quick])]
        try:
            run.add(row, "branch", [veneer(group, "branch", f"{view.path}@{name}", b)[0] for b in branches], "s")
            run.add(row, "on disk", [kib_of(os.path.join(os.path.dirname(b), f".{os.path.basename(b)}.branch")) for b in branches], "KiB")
        finally:
            for b in branches:
                veneer(group, "umount", b)
                host.run("rm", "-rf", b, os.path.join(os.path.dirname(b), f".{os.path.basename(b)}.branch"))

    @staticmethod
    def copy(run, driver, view):
        """What another writable view of the same tree costs there."""
        fill(view.path, FILES[run.quick])
        os.sync()
        began = time.monotonic()
        with driver.open(run.work, view.path, keep=False):
            run.add(f"{NAME}/{PAUSE}", "branch", [time.monotonic() - began], "s")

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

    def measures(self):
        row = f"{NAME}/{PAUSE}"
        return [Below(row, "pause", 5, must=False), Below(row, "branch", 0.01, must=False), Below(row, "on disk", 32, must=False),
                AtMost(row, "branch", "vfs", 0.1), AtMost(row, "branch", "btrfs", 1, must=False),
                FlatIn(f"{NAME}/depth 100", f"{NAME}/depth 1", "read", 1.05, must=False)]

    def tables(self, seen):
        row = f"{NAME}/{PAUSE}"
        return tables.table(seen, "a mount in use", [(metric, row, metric) for metric in ("pause", "snapshot", "branch", "on disk")]) + \
            tables.table(seen, "a read of 4 KiB from memory, by depth", [(str(d), f"{NAME}/depth {d}", "read") for d in DEPTHS[0]])
