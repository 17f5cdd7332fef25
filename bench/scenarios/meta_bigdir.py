# SPDX-License-Identifier: Apache-2.0
"""What one name costs in a small and in a very large directory."""

import os
import time

from support import host, plots, tables
from support.measures import AtMost, FlatIn
from support.scenario import Scenario

SMALL = 1000
FULL, QUICK = 30_000, 5_000
# What lists a million names in a few seconds; a full run only.
MILLION, MILLIONS = "lower/million", ("overlayfs", "veneer")
SAMPLE = 1000
METRICS = ("create", "look up", "absent", "unlink", "readdir")
# Of overlayfs's time, where it is not that of a walk.
AIMS = {"create": 3, "unlink": 3}
# lower: the names are in the lower, and what is created or removed is beside them; upper: all new.
PLACES = ("lower", "upper")


def size_of(quick, cell):
    if cell == MILLION:
        return 1_000_000
    return SMALL if cell.endswith("small") else QUICK if quick else FULL


def fill(directory, count):
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for i in range(count):
        os.close(os.open(f"name-{i:07}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at))
    os.close(at)


def each(names, call):
    """Microseconds a name."""
    start = time.perf_counter()
    for name in names:
        call(name)
    return (time.perf_counter() - start) * 1e6 / len(names)


def is_absent(name, at):
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise host.HostError(f"{name} is there")


def measure(directory, count, rng):
    """{metric: microseconds a name}; as many names go as come. What a mount pays once, the first
    listing above all, is not what a name costs."""
    os.listdir(directory)
    return dict(_measured(directory, count, rng))


def _measured(directory, count, rng):
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    some = [f"name-{i:07}" for i in rng.sample(range(count), min(SAMPLE, count // 2))]
    fresh = [f"fresh-{i:07}" for i in range(len(some))]
    try:
        yield "create", each(fresh, lambda n: os.close(
            os.open(n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at)))
        yield "look up", each(some, lambda n: os.stat(n, dir_fd=at, follow_symlinks=False))
        yield "absent", each([f"none{n}" for n in some], lambda n: is_absent(n, at))
        start = time.perf_counter()
        listed = len(os.listdir(directory))
        yield "readdir", (time.perf_counter() - start) * 1e6 / listed
        if listed != count + len(fresh):
            raise host.HostError(f"{listed} names, not {count + len(fresh)}")
        yield "unlink", each(some, lambda n: os.unlink(n, dir_fd=at))
        if len(os.listdir(directory)) != count:
            raise host.HostError("not all names are gone")
    finally:
        os.close(at)


class BigDir(Scenario):
    """One name in a directory of a thousand, of 30,000 and of a million

    No paper has this. A directory of 1,000 and one of 30,000 empty files (5,000 in a quick run),
    once in the lower and once made in the mount, and one of a million in the lower (not in a quick
    run), listed once before. A thousand names are created,
    looked up, looked up in vain and unlinked; readdir is a whole listing divided by its names. The
    first stat of a lower name is what is timed: nothing else has touched it."""

    name = "meta/bigdir"
    question = "What does one name cost in directories of a thousand to a million names?"
    drivers = ("native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs"
    seconds = 2.0, 0.6

    def cells(self, quick):
        cells = [f"{place}/{size}" for place in PLACES for size in ("small", "large")]
        return cells if quick else [*cells, MILLION]

    def has(self, cell, driver):
        if cell == MILLION:
            return driver in MILLIONS
        # A plain directory's names cost the same in both.
        return driver != "native" or cell.endswith("large")

    def act(self, run, cell, driver):
        count, place = size_of(run.quick, cell), cell.split("/")[0]
        held = count if place == "lower" else 0
        lower = run.lower(f"bigdir-{held}", lambda root: self.build(root, held))
        with driver.open(run.work, lower, keep=False) as view:
            directory = os.path.join(view.path, "d")
            if place == "upper":
                view.call(fill, directory, count)
            host.settle(run.work.root)
            for metric, taken in view.call(measure, directory, count, run.rng()).items():
                run.add(f"meta/bigdir/{cell}", metric, [taken], "us")

    @staticmethod
    def build(root, count):
        os.mkdir(os.path.join(root, "d"))
        fill(os.path.join(root, "d"), count)

    def measures(self):
        out = [FlatIn(f"meta/bigdir/{place}/large", f"meta/bigdir/{place}/small", metric, 2)
               for place in PLACES for metric in METRICS if metric != "readdir"]
        out += [FlatIn(f"meta/bigdir/{MILLION}", "meta/bigdir/lower/small", metric, 2)
                for metric in METRICS if metric != "readdir"]
        for row in [f"meta/bigdir/{place}/{size}" for place in PLACES for size in ("small", "large")]:
            out += [AtMost(row, metric, peer, 1, close=True) for metric in METRICS
                    for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]
            out += [AtMost(row, metric, "overlayfs", AIMS.get(metric, 1.5), must=False)
                    for metric in METRICS]
        return out

    def tables(self, seen):
        text = ""
        for place in PLACES:
            for size in ("small", "large"):
                columns = [(m, f"meta/bigdir/{place}/{size}", m) for m in METRICS]
                text += tables.table(seen, f"Names in the {place}, {size} directory", columns)
        columns = [(m, f"meta/bigdir/{MILLION}", m) for m in METRICS]
        return text + tables.table(seen, "Names in the lower, a million of them", columns)

    def plots(self, seen):
        panels = [(f"{m}, {p}, {s}", f"meta/bigdir/{p}/{s}", m)
                  for m in METRICS for p in PLACES for s in ("small", "large")]
        return [("meta-bigdir", lambda path: plots.bars(path, seen, panels))]
