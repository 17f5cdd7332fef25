# SPDX-License-Identifier: Apache-2.0
"""What the first change of a lower file costs, by kind of change and size of file."""

import gc
import os
import random
import time
from collections import namedtuple

from support import host, plots, scenario, tables, trees
from support.measures import AtMost, Below, Faster, FlatIn

BLOCK = 4 * trees.KIB
DATA = random.Random(3).randbytes(BLOCK)
# Cheap drivers repeat a cell with fresh mounts until they have so many samples or used so many
# seconds: full run, quick run.
ENOUGH, BUDGET_S = (20, 5), (0.2, 0.1)

# Files a mount, by size: full run, quick run.
COUNTS = {
    4 * trees.KIB: (200, 50), 64 * trees.KIB: (200, 50), trees.MIB: (50, 20),
    16 * trees.MIB: (8, 4), 256 * trees.MIB: (2, 1), trees.GIB: (1, 1),
}

QUICK = (4 * trees.KIB, trees.MIB, 256 * trees.MIB)
# The sizes at which the other changes are timed, and the drivers of those that are synced.
SOME = (4 * trees.KIB, 256 * trees.MIB)
SYNCERS = ("native", "overlayfs", "overlayfs-metacopy", "veneer", "fuse-overlayfs-2")

WRITE, AFTER_STAT = "open+pwrite+close", "open+pwrite+close after stat"
OTHERS = ("append", "chmod", "touch", "rename")
METRICS = (WRITE, AFTER_STAT, *OTHERS)
BYTES = " upper bytes"


class Cell(namedtuple("Cell", "metric size fsync")):
    """One kind of change of one size of file."""

    @property
    def scenario(self):
        return scenario_name(self.size, self.fsync)

    def __str__(self):
        return f"{self.scenario} {self.metric}"


def scenario_name(size, fsync):
    return f"hpmapper/cow/{trees.size_label(size)}" + ("/fsync" if fsync else "")


def change_write(path, off, fsync):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, DATA, off)
    if fsync:
        os.fsync(fd)
    os.close(fd)


def change_append(path, _off, fsync):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, DATA)
    if fsync:
        os.fsync(fd)
    os.close(fd)


def sync_path(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def change_chmod(path, _off, fsync):
    os.chmod(path, 0o600)
    if fsync:
        sync_path(path)


def change_touch(path, _off, fsync):
    os.utime(path)
    if fsync:
        sync_path(path)


def change_rename(path, _off, fsync):
    os.rename(path, path + ".new")
    if fsync:
        sync_path(os.path.dirname(path))


CHANGES = {WRITE: change_write, AFTER_STAT: change_write, "append": change_append,
           "chmod": change_chmod, "touch": change_touch, "rename": change_rename}


def put_back(metric, path, size):
    """Undo what a driver that works in place would carry into the next cell."""
    if metric == "rename":
        os.rename(path + ".new", path)
    elif metric == "append":
        os.truncate(path, size)
    elif metric == "chmod":
        os.chmod(path, 0o644)


def change_all(root, names, metric, fsync):
    for name in names:
        CHANGES[metric](os.path.join(root, name), 0, fsync)


def time_changes(root, work, metric, fsync):
    """Microseconds of the change of each (name, offset), in one tight loop."""
    change, clock = CHANGES[metric], time.perf_counter_ns
    work = [(os.path.join(root, name), off) for name, off in work]
    if metric == AFTER_STAT:
        for path, _ in work:
            os.stat(path)
    taken = []
    gc.disable()
    try:
        for path, off in work:
            start = clock()
            change(path, off, fsync)
            taken.append((clock() - start) / 1000)
    finally:
        gc.enable()
    return taken


class CowLatency(scenario.Scenario):
    """HP-Mapper Table 4: the first change of a lower file

    The paper writes 4 KiB into read-only files of 4 KB to 16 MB on Device Mapper, btrfs, overlay2
    and HP-Mapper. Here the files go up to 1 GiB, other changes and fsync are timed too, and what
    each change takes in the upper is read. Files are warm, as the paper's copies are mostly I/O
    of the write; eight other files are changed before, so that what a mount pays once is not in
    the numbers. In place is the floor no union can pass."""

    name = "hpmapper/cow"
    question = "How long does the first change of a lower file take, by its size, and what does it take on the disk?"
    without = {"vfs": "its files are copied before anything is written",
               "veneer-cached": "the first write is the same in all modes",
               "veneer-rootless": "the first write is the same in all modes",
               "veneer-direct": "the first write is the same in all modes",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    headline = [(f"first 4 KiB written into a file of {trees.size_label(size)}",
                 scenario_name(size, False), WRITE) for size in COUNTS]
    seconds = 0.4, 0.16

    def cells(self, quick):
        if quick:
            return [Cell(WRITE, size, False) for size in QUICK]
        some = [size for size in COUNTS if size in SOME]
        return ([Cell(WRITE, size, False) for size in COUNTS] +
                [Cell(WRITE, size, True) for size in COUNTS] +
                [Cell(m, size, False) for m in METRICS if m != WRITE for size in some] +
                [Cell(m, size, True) for m in OTHERS for size in some])

    def has(self, cell, driver):
        return not cell.fsync or cell.metric == WRITE or driver in SYNCERS

    def act(self, run, cell, driver):
        count = COUNTS[cell.size][run.quick]
        lower = run.lower(f"cow-{trees.size_label(cell.size)}",
                          lambda root: trees.equal_files(root, cell.size, count))
        files = sorted(f for f in os.listdir(lower) if f not in trees.WARM_UPS)
        for f in files:
            trees.warm(os.path.join(lower, f))
        before, rng = trees.state(lower), run.rng()
        taken, grown, end = [], [], time.monotonic() + BUDGET_S[run.quick]
        while True:
            if not (run.quick and taken):
                host.settle(run.work.root)
            with driver.open(run.work, lower) as view:
                self.one_mount(view, cell, driver, files, rng, taken, grown)
            if len(taken) >= ENOUGH[run.quick] or time.monotonic() > end:
                break
        trees.must_be(lower, before)
        run.add(cell.scenario, cell.metric, taken, "us", tail=True)
        run.add(cell.scenario, cell.metric + BYTES, grown, "bytes")

    def one_mount(self, view, cell, driver, files, rng, taken, grown):
        # The first changes of a mount pay for the mount, not for the file, and one file a
        # mount must meet a server as warm as two hundred do.
        view.call(change_all, view.path, list(trees.WARM_UPS), cell.metric, cell.fsync)
        start = view.bytes_taken()
        work = [(f, rng.randrange(cell.size // BLOCK) * BLOCK) for f in files]
        taken += view.call(time_changes, view.path, work, cell.metric, cell.fsync)
        grown.append((view.bytes_taken() - start) / len(files))
        if driver.in_place:
            sizes = {**trees.WARM_UPS, **dict.fromkeys(files, cell.size)}
            for f, size in sizes.items():
                put_back(cell.metric, os.path.join(view.path, f), size)

    def measures(self):
        small, small_sync = scenario_name(BLOCK, False), scenario_name(BLOCK, True)
        peers = ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")
        out = [
            Faster("hpmapper/cow/16M", WRITE, "overlayfs", 50),
            Faster("hpmapper/cow/256M", WRITE, "overlayfs", 250),
            FlatIn("hpmapper/cow/1G", small, WRITE, 1.5),
            FlatIn("hpmapper/cow/1G/fsync", small_sync, WRITE, 1.5),
            Below(small, WRITE, 100, must=False),
        ]
        out += [Below(scenario_name(size, False), WRITE + BYTES, 8192) for size in COUNTS]
        out += [AtMost(scenario_name(size, fsync), WRITE, ref, 1, close=fsync)
                for fsync in (False, True) for size in COUNTS for ref in peers]
        out += [AtMost(scenario_name(size, False), metric, ref, 1)
                for metric in (AFTER_STAT, *OTHERS) for size in SOME for ref in peers]
        out += [AtMost(scenario_name(size, True), metric, ref, 1, close=True)
                for metric in OTHERS for size in SOME for ref in peers if ref in SYNCERS]
        out += [AtMost("hpmapper/cow/256M", metric, "overlayfs-metacopy", 1, close=True)
                for metric in ("chmod", "touch", "rename")]
        return out

    def tables(self, seen):
        kinds = [(m, fsync) for m in METRICS for fsync in (False, True)]
        text = ""
        for metric, fsync in kinds:
            title = metric + (", fsync" if fsync else "")
            text += tables.table(seen, title, columns(metric, fsync))
        text += tables.table(seen, WRITE + ", 99th percentile of all samples",
                             columns(WRITE, False), True, False)
        return text + tables.table(seen, WRITE + ", bytes allocated a file",
                                   columns(WRITE + BYTES, False), ratios=False)

    def plots(self, seen):
        panels = [(metric, [c[1:] for c in columns(metric, False)])
                  for metric in (WRITE, "append", "chmod")]
        labels = [trees.size_label(s) for s in COUNTS]
        return [("hpmapper-cow", lambda path: plots.lines(path, seen, panels, list(COUNTS), labels,
                                                          "file size"))]


def columns(metric, fsync):
    return [(trees.size_label(s), scenario_name(s, fsync), metric) for s in COUNTS]
