#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What one name costs in a small and in a very large directory."""

import os
import random
import sys
import time

from support import cli, host, report
from support.measures import FlatIn

SMALL = 1000
FULL, QUICK = 1_000_000, 50_000
SAMPLE = 1000
METRICS = ("create", "look up", "absent", "unlink", "readdir")
# lower: the names are in the lower, and what is created or removed is beside them; upper: all new.
PLACES = ("lower", "upper")


def size_of(args, cell):
    return SMALL if cell.endswith("small") else QUICK if args.quick else FULL


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
    """(metric, microseconds a name); as many names go as come."""
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    some = [f"name-{i:07}" for i in rng.sample(range(count), min(SAMPLE, count // 2))]
    fresh = [f"fresh-{i:07}" for i in range(len(some))]
    try:
        yield "create", each(fresh, lambda n: os.close(
            os.open(n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at)))
        yield "look up", each(some, lambda n: os.stat(n, dir_fd=at, follow_symlinks=False))
        yield "absent", each([f"none{n}" for n in some], lambda n: is_absent(n, at))
        start = time.perf_counter()
        listed = len(os.listdir(at))
        yield "readdir", (time.perf_counter() - start) * 1e6 / listed
        if listed != count + len(fresh):
            raise host.HostError(f"{listed} names, not {count + len(fresh)}")
        yield "unlink", each(some, lambda n: os.unlink(n, dir_fd=at))
        if len(os.listdir(at)) != count:
            raise host.HostError("not all names are gone")
    finally:
        os.close(at)


class BigDir(cli.Scenario):
    name = "bigdir"
    title = "One name in a directory of a thousand and of a million"
    default_rounds, quick_rounds = 3, 2
    creates_files = True

    def cells(self, args):
        return [f"{place}/{size}" for place in PLACES for size in ("small", "large")]

    def act(self, args, work, i, cell, driver, seen):
        count, place = size_of(args, cell), cell.split("/")[0]
        if place == "lower":
            lower = work.lower(driver.kind, f"bigdir-{count}", lambda root: self.build(root, count))
        else:
            lower = work.lower(driver.kind, "bigdir-none", lambda root: self.build(root, 0))
        with driver.open(work, lower, keep=False) as view:
            directory = os.path.join(view.path, "d")
            if place == "upper":
                fill(directory, count)
            host.settle(work.root)
            # what a mount pays once, the first listing above all, is not what a name costs
            os.listdir(directory)
            for metric, taken in measure(directory, count, random.Random(i)):
                seen.add(f"bigdir/{cell}", metric, driver.name, i, [taken], "us")

    @staticmethod
    def build(root, count):
        os.mkdir(os.path.join(root, "d"))
        fill(os.path.join(root, "d"), count)

    def measures(self):
        return [FlatIn(f"bigdir/{place}/large", f"bigdir/{place}/small", metric, 2)
                for place in PLACES for metric in METRICS if metric != "readdir"]

    def needed(self):
        return ["overlayfs"]

    def tables(self, seen):
        text = ""
        for place in PLACES:
            for size in ("small", "large"):
                columns = [(m, f"bigdir/{place}/{size}", m) for m in METRICS]
                text += report.table(seen, f"Names in the {place}, {size} directory", columns)
        return text

    def plot(self, path, seen):
        return report.plot_bars(path, seen, [(f"{m}, {p}, {s}", f"bigdir/{p}/{s}", m)
                                             for m in METRICS for p in PLACES
                                             for s in ("small", "large")])


if __name__ == "__main__":
    sys.exit(cli.main(BigDir()))
