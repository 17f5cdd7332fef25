#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the first change of a lower file costs, by kind of change and size of file."""

import gc
import os
import random
import sys
import time
from collections import namedtuple

from support import cli, host, report, trees
from support.measures import AtMost, Below, Faster, FlatIn

BLOCK = 4 * trees.KIB
DATA = random.Random(3).randbytes(BLOCK)
# Cheap drivers repeat a cell with fresh mounts until they have so many samples or used so many
# seconds: full run, quick run.
ENOUGH, BUDGET_S = (20, 5), (1.0, 0.4)

# Files a mount, by size: full run, quick run.
COUNTS = {
    4 * trees.KIB: (200, 50), 64 * trees.KIB: (200, 50), trees.MIB: (50, 20),
    16 * trees.MIB: (16, 4), 256 * trees.MIB: (3, 1), trees.GIB: (1, 1),
}

WRITE, AFTER_STAT = "open+pwrite+close", "open+pwrite+close after stat"
METRICS = (WRITE, AFTER_STAT, "append", "chmod", "touch", "rename")
BYTES = " upper bytes"


class Cell(namedtuple("Cell", "metric size fsync")):
    """One kind of change of one size of file."""

    @property
    def scenario(self):
        return scenario_name(self.size, self.fsync)

    def __str__(self):
        return f"{self.scenario} {self.metric}"


def scenario_name(size, fsync):
    return f"cow/{trees.size_label(size)}" + ("/fsync" if fsync else "")


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


def time_changes(view, files, cell, rng):
    """Microseconds of the change of each file, in one tight loop."""
    change, fsync, clock = CHANGES[cell.metric], cell.fsync, time.perf_counter_ns
    work = [(os.path.join(view.path, f), rng.randrange(cell.size // BLOCK) * BLOCK) for f in files]
    if cell.metric == AFTER_STAT:
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


class CowLatency(cli.Scenario):
    name = "cow_latency"
    title = "First change of a lower file"
    default_rounds, quick_rounds = 5, 1

    def cells(self, args):
        out = [Cell(metric, size, fsync) for size in COUNTS
               for fsync in (False, True) for metric in METRICS]
        if args.measures:
            asked = {(scenario, m.metric.removesuffix(BYTES)) for m in self.measures()
                     for scenario in m.scenarios()}
            out = [c for c in out if (c.scenario, c.metric) in asked]
        elif args.quick:
            out = [c for c in out if self.is_quick(c)]
        return out

    def is_quick(self, cell):
        if cell.size == trees.GIB:
            return cell.metric == WRITE and not cell.fsync
        small = cell.size < 256 * trees.MIB
        return not cell.fsync or (small and cell.metric in (WRITE, "append"))

    def act(self, args, work, i, cell, driver, seen):
        column = 1 if args.quick else 0
        count = COUNTS[cell.size][column]
        lower = work.lower(driver.kind, f"cow-{trees.size_label(cell.size)}",
                           lambda root: trees.equal_files(root, cell.size, count))
        files = sorted(f for f in os.listdir(lower) if f not in trees.WARM_UPS)
        for f in files:
            trees.warm(os.path.join(lower, f))
        before = trees.state(lower)
        rng = random.Random(f"{cell} {i}")
        taken, grown, end = [], [], time.monotonic() + BUDGET_S[column]
        while True:
            if not (args.quick and taken):
                host.settle(work.root)
            self.one_mount(work, cell, driver, lower, files, rng, taken, grown)
            if len(taken) >= ENOUGH[column] or time.monotonic() > end:
                break
        if trees.state(lower) != before:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")
        seen.add(cell.scenario, cell.metric, driver.name, i, taken, "us", tail=True)
        seen.add(cell.scenario, cell.metric + BYTES, driver.name, i, grown, "bytes")

    def one_mount(self, work, cell, driver, lower, files, rng, taken, grown):
        with driver.open(work, lower) as view:
            # The first changes of a mount pay for the mount, not for the file, and one file a
            # mount must meet a server as warm as two hundred do.
            for name in trees.WARM_UPS:
                CHANGES[cell.metric](os.path.join(view.path, name), 0, cell.fsync)
            start = view.bytes_taken()
            taken += time_changes(view, files, cell, rng)
            grown.append((view.bytes_taken() - start) / len(files))
            if driver.in_place:
                sizes = {**trees.WARM_UPS, **dict.fromkeys(files, cell.size)}
                for f, size in sizes.items():
                    put_back(cell.metric, os.path.join(view.path, f), size)

    def measures(self):
        small, small_sync = scenario_name(BLOCK, False), scenario_name(BLOCK, True)
        out = [
            Faster("cow/16M", WRITE, "overlayfs", 50),
            Faster("cow/256M", WRITE, "overlayfs", 250),
            FlatIn("cow/1G", small, WRITE, 1.5),
        ]
        out += [Below(scenario_name(size, False), WRITE + BYTES, 8192) for size in COUNTS]
        out += [AtMost(small, WRITE, ref, 1)
                for ref in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]
        out += [AtMost(small_sync, WRITE, "overlayfs", 1, close=True)]
        out += [AtMost("cow/256M", metric, "overlayfs-metacopy", 1, close=True)
                for metric in ("chmod", "touch", "rename")]
        return out

    def needed(self):
        return ["overlayfs", "overlayfs-metacopy", "fuse-overlayfs", "fuse-overlayfs-2"]

    def columns(self, metric, fsync):
        return [(trees.size_label(s), scenario_name(s, fsync), metric) for s in COUNTS]

    def tables(self, seen):
        text = "## Latency, median\n\n"
        kinds = [(m, f) for f in (False, True) for m in METRICS]
        for metric, fsync in kinds:
            title = metric + (", fsync" if fsync else "")
            text += report.table(seen, title, self.columns(metric, fsync))
        text += "## Latency, 99th percentile of all samples\n\n"
        for metric, fsync in kinds:
            title = metric + (", fsync" if fsync else "") + ", p99"
            text += report.table(seen, title, self.columns(metric, fsync), True, False)
        text += "## Bytes allocated a changed file\n\n"
        for metric, fsync in kinds:
            title = metric + (", fsync" if fsync else "")
            text += report.table(seen, title, self.columns(metric + BYTES, fsync), ratios=False)
        return text

    def plot(self, path, seen):
        panels = [(metric + (", fsync" if fsync else ""),
                   [(scenario_name(s, fsync), metric) for s in COUNTS])
                  for fsync in (False, True) for metric in METRICS]
        labels = [trees.size_label(s) for s in COUNTS]
        return report.plot_lines(path, seen, panels, list(COUNTS), labels)


if __name__ == "__main__":
    sys.exit(cli.main(CowLatency()))
