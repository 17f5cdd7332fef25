# SPDX-License-Identifier: Apache-2.0
"""What completing a mostly own file is worth, and what it costs programs that work meanwhile."""

import os
import random
import time
from collections import namedtuple

from support import host, scenario, stats, tables, trees
from support.measures import Below, FlatIn
from support.views import Served

NAME = "hpmapper/promotion"
BLOCK = 4 * trees.KIB
MARK, MAP = "user.veneer.partial", ".wh..wh.veneer"
READS = 2000
WAIT_S = 300

# Full and quick: bytes of the file, writes, seconds of the foreground.
Size = namedtuple("Size", "bytes writes seconds")
SIZES = Size(256 * trees.MIB, 100_000, 2.0), Size(16 * trees.MIB, 5_000, 1.0)

BEFORE, AFTER = f"{NAME}/before", f"{NAME}/after"
MODES = "off", "auto"
FILE, FOREGROUND = "file", "foreground"


def beside(mode):
    return f"{NAME}/beside {mode}"


def build(root, size):
    trees.write_file(os.path.join(root, "f"), size.bytes)
    trees.write_file(os.path.join(root, "other"), 16 * trees.MIB)


def write_random(path, count, seed):
    dice = random.Random(seed)
    data = dice.randbytes(BLOCK)
    blocks = os.path.getsize(path) // BLOCK
    fd = os.open(path, os.O_RDWR)
    for _ in range(count):
        os.pwrite(fd, data, dice.randrange(blocks) * BLOCK)
    os.close(fd)


def read_random(path, seed):
    """Microseconds of each read of 4 KiB by a new reader."""
    dice, blocks = random.Random(seed), os.path.getsize(path) // BLOCK
    taken = []
    fd = os.open(path, os.O_RDONLY)
    for _ in range(READS):
        off = dice.randrange(blocks) * BLOCK
        start = time.perf_counter_ns()
        os.pread(fd, BLOCK, off)
        taken.append((time.perf_counter_ns() - start) / 1000)
    os.close(fd)
    return taken


def read_all(path):
    """MiB a second."""
    start, size = time.perf_counter(), os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, trees.MIB):
        pass
    os.close(fd)
    return size / trees.MIB / (time.perf_counter() - start)


def work(path, seconds, seed):
    """Microseconds of each read, write and stat of a program that works on another file."""
    dice, blocks = random.Random(seed), os.path.getsize(path) // BLOCK
    data, taken = dice.randbytes(BLOCK), []
    fd = os.open(path, os.O_RDWR)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        off = dice.randrange(blocks) * BLOCK
        start = time.perf_counter_ns()
        os.pwrite(fd, data, off)
        os.pread(fd, BLOCK, off)
        os.stat(path)
        taken.append((time.perf_counter_ns() - start) / 1000)
    os.close(fd)
    return taken


def wait_long(is_so):
    end = time.monotonic() + WAIT_S
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return is_so()


class Mount:
    """One upper that is mounted several times, with other options each time."""

    def __init__(self, run, driver, lower):
        self.driver, self.lower = driver, lower
        self.view = Served(run.work, driver.kind)

    def start(self, promote):
        options = f"{self.view.options(self.lower)},promote={promote}"
        self.view.start([self.driver.binary, "-f", *self.driver.extra, "-o", options,
                         self.view.path])
        return os.path.join(self.view.path, "f")

    def stop(self):
        self.view.leave()
        self.view.server = None

    @property
    def upper(self):
        return self.view.upper

    def map_bytes(self):
        path = os.path.join(self.upper, MAP)
        return os.path.getsize(path) if os.path.exists(path) else 0

    def is_plain(self):
        return MARK not in os.listxattr(os.path.join(self.upper, "f"))


class Promotion(scenario.Scenario):
    """HP-Mapper 3.2: defragmentation of a file after random writes

    The paper combines scattered small blocks into large ones when the device is idle. Here
    100,000 random writes of 4 KiB go into a file of 256 MiB; the map's file and reads of 4 KiB
    and of the whole file are looked at before and after it was completed (promote=eager), each by a
    new mount. Then somebody writes, reads and asks for attributes of another file beside such a
    file that is not to be completed, and that is completed when nobody works (auto)."""

    name = NAME
    question = "What does the completion of a scattered file bring, and what does it cost programs beside it?"
    drivers = ("veneer",)
    headline = (("4 KiB read from a file after 100,000 random writes", BEFORE, "read of 4 KiB"),
                ("the same after it was completed", AFTER, "read of 4 KiB"))
    seconds = 18.5, 3.4

    def cells(self, quick):
        return [FILE, FOREGROUND]

    def act(self, run, cell, driver):
        size = SIZES[run.quick]
        lower = run.lower("promotion", lambda root: build(root, size))
        before = trees.state(lower)
        if cell == FILE:
            self.measure_file(run, driver, lower, size)
        else:
            for mode in MODES:
                self.measure_beside(run, driver, lower, size, mode)
        trees.must_be(lower, before)

    @staticmethod
    def look(run, mount, row):
        path = mount.start("off")
        run.add(row, "map", [mount.map_bytes()], "bytes")
        read_all(path)
        run.add(row, "read of 4 KiB", read_random(path, run.round), "us", tail=True)
        run.add(row, "read of all", [read_all(path)], "MiB/s")
        mount.stop()

    def measure_file(self, run, driver, lower, size):
        mount = Mount(run, driver, lower)
        try:
            write_random(mount.start("off"), size.writes, run.round)
            mount.stop()
            self.look(run, mount, BEFORE)
            start = time.monotonic()
            mount.start("eager")
            if not wait_long(mount.is_plain):
                raise host.HostError("the file was not completed")
            run.add(AFTER, "completed in", [time.monotonic() - start], "s")
            # The map is written anew a moment later.
            if not wait_long(lambda: mount.map_bytes() < 64 * trees.KIB):
                raise host.HostError("the map did not shrink")
            mount.stop()
            self.look(run, mount, AFTER)
        finally:
            mount.view.close()

    @staticmethod
    def measure_beside(run, driver, lower, size, mode):
        mount = Mount(run, driver, lower)
        try:
            write_random(mount.start("off"), size.writes, run.round)
            mount.stop()
            host.settle(run.work.root)
            other = os.path.join(os.path.dirname(mount.start(mode)), "other")
            write_random(other, 5000, 1)
            taken = work(other, size.seconds, run.round)
            run.add(beside(mode), "99th percentile", [stats.percentile(taken, 0.99)], "us")
            run.add(beside(mode), "median", [stats.percentile(taken, 0.5)], "us")
            mount.stop()
        finally:
            mount.view.close()

    def measures(self):
        return [FlatIn(beside("auto"), beside("off"), "99th percentile", 1.05),
                FlatIn(AFTER, BEFORE, "read of 4 KiB", 1), Below(AFTER, "map", 16 * trees.KIB)]

    def tables(self, seen):
        rows = ("map", "read of 4 KiB", "read of all")
        text = ""
        for row, what in ((BEFORE, "After random writes"), (AFTER, "After it was completed")):
            text += tables.table(seen, what, [(m, row, m) for m in rows], ratios=False)
        return text + tables.table(seen, "Programs beside it, 99th percentile",
                                   [(mode, beside(mode), "99th percentile") for mode in MODES],
                                   ratios=False)
