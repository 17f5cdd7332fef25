#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What reading unchanged lower files costs."""

import gc
import os
import random
import sys
import time

from support import cli, host, report, trees
from support.measures import AtMost

BIG, CHUNK, PAGE = 256 * trees.MIB, trees.MIB, 4 * trees.KIB
SMALL_SIZE = 16 * trees.KIB
SEQUENTIAL, RANDOM, OPENS = "sequential", "random 4K", "open+read4K+close"
PASSES = 5
# Where a file's pages happen to lie in memory moves a warm read by a third from mount to mount.
MOUNTS = 3


def counts(args):
    """(small files, random reads a pass)"""
    return (500, 5000) if args.quick else (2000, 20000)


def whole(path):
    """MiB/s of one pass through a file."""
    buf = [bytearray(CHUNK)]
    fd = os.open(path, os.O_RDONLY)
    try:
        start, total = time.perf_counter(), 0
        while got := os.readv(fd, buf):
            total += got
        taken = time.perf_counter() - start
    finally:
        os.close(fd)
    if total != BIG:
        raise host.HostError(f"{path}: read {total} of {BIG} bytes")
    return total / trees.MIB / taken


def scattered(path, offsets):
    """Microseconds a read, mean over one pass."""
    buf, read = [bytearray(PAGE)], os.preadv
    fd = os.open(path, os.O_RDONLY)
    try:
        start = time.perf_counter()
        for off in offsets:
            read(fd, buf, off)
        return (time.perf_counter() - start) * 1e6 / len(offsets)
    finally:
        os.close(fd)


def opened(paths):
    """Microseconds of open+read+close, for each file."""
    buf, clock, taken = [bytearray(PAGE)], time.perf_counter_ns, []
    gc.disable()
    try:
        for path in paths:
            start = clock()
            fd = os.open(path, os.O_RDONLY)
            got = os.readv(fd, buf)
            os.close(fd)
            taken.append((clock() - start) / 1000)
            if got != PAGE:
                raise host.HostError(f"{path}: read {got} bytes")
    finally:
        gc.enable()
    return taken


class Reads(cli.Scenario):
    name = "reads"
    title = "Reading unchanged lower files"
    default_rounds = 7

    def cells(self, args):
        return [SEQUENTIAL, RANDOM, OPENS]

    def act(self, args, work, i, cell, driver, seen):
        small, tries = counts(args)
        lower = work.lower(driver.kind, "reads",
                           lambda r: trees.reads(r, BIG, small, SMALL_SIZE))
        scenario, rng = f"reads/{cell}", random.Random(f"{cell} {i}")
        if cell == OPENS:
            cold, warm = self.opens(work, driver, lower, rng)
            seen.add(scenario, "cold", driver.name, i, cold, "us", tail=True)
            seen.add(scenario, "warm", driver.name, i, warm, "us", tail=True)
            return
        offsets = [rng.randrange(BIG // PAGE) * PAGE for _ in range(tries)]
        for _ in range(MOUNTS):
            with driver.open(work, lower) as view:
                path = os.path.join(view.path, "big")
                trees.warm(path)
                if cell == SEQUENTIAL:
                    rates = [whole(path) for _ in range(PASSES)]
                    seen.add(scenario, "warm", driver.name, i, rates, "MiB/s")
                else:
                    means = [scattered(path, offsets) for _ in range(PASSES)]
                    seen.add(scenario, "warm", driver.name, i, means, "us")

    def opens(self, work, driver, lower, rng):
        names = sorted(os.listdir(os.path.join(lower, "small")))
        rng.shuffle(names)
        if driver.in_place:
            driver.open(work, lower).close()
        host.drop_caches()
        with driver.open(work, lower) as view:
            paths = [os.path.join(view.path, "small", name) for name in names]
            cold = opened(paths)
            return cold, [t for _ in range(PASSES) for t in opened(paths)]

    def measures(self):
        out = [AtMost(f"reads/{cell}", "warm", ref, 1, close=True)
               for cell in (SEQUENTIAL, RANDOM) for ref in ("fuse-overlayfs", "fuse-overlayfs-2")]
        out += [AtMost(f"reads/{OPENS}", "warm", "overlayfs", 1.3),
                AtMost(f"reads/{OPENS}", "cold", "overlayfs", 1.3, must=False)]
        return out

    def needed(self):
        return ["overlayfs", "fuse-overlayfs", "fuse-overlayfs-2"]

    def tables(self, seen):
        columns = [(SEQUENTIAL, f"reads/{SEQUENTIAL}", "warm"),
                   (RANDOM, f"reads/{RANDOM}", "warm"),
                   (OPENS + ", warm", f"reads/{OPENS}", "warm"),
                   (OPENS + ", cold", f"reads/{OPENS}", "cold")]
        text = report.table(seen, "Reads of lower files", columns)
        return text + report.table(seen, "99th percentile", columns[2:], True, False)

    def plot(self, path, seen):
        panels = [("sequential 1 MiB, warm", f"reads/{SEQUENTIAL}", "warm"),
                  ("random 4 KiB, warm", f"reads/{RANDOM}", "warm"),
                  (OPENS + ", warm", f"reads/{OPENS}", "warm"),
                  (OPENS + ", cold", f"reads/{OPENS}", "cold")]
        return report.plot_bars(path, seen, panels)


if __name__ == "__main__":
    sys.exit(cli.main(Reads()))
