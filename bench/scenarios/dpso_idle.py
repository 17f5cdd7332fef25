# SPDX-License-Identifier: Apache-2.0
"""The first write after some idle time."""

import os
import time

from support import host, plots, scenario, tables, trees
from support.measures import AtMost, Faster, FlatIn

SIZES = trees.MIB, 16 * trees.MIB, 256 * trees.MIB, trees.GIB
QUICK_SIZES = trees.MIB, 16 * trees.MIB
IDLE_S = 0, 1
QUICK_IDLE_S = (0,)
DATA = os.urandom(4 * trees.KIB)
METRIC = "first write"


def names(size):
    # Two of most sizes, so that a slow moment is not all there is; as many GiB take too long.
    return [f"{trees.size_label(size)}-{i}" for i in range(1 if size >= trees.GIB else 2)]


def build(root, sizes):
    for name, warm_size in trees.WARM_UPS.items():
        trees.write_file(os.path.join(root, name), warm_size)
    for size in sizes:
        for name in names(size):
            trees.write_file(os.path.join(root, name), size)


def row(idle, size):
    return f"dpso/idle/{idle:g}s/{trees.size_label(size)}"


def write_first(path):
    """Microseconds of open, a write of 4 KiB into the middle, and close."""
    middle = os.path.getsize(path) // 2
    start = time.perf_counter_ns()
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, DATA, middle)
    os.close(fd)
    return (time.perf_counter_ns() - start) / 1000


def write_each(root, sizes):
    """Size to the microseconds of its files, from the smallest on."""
    for name in trees.WARM_UPS:
        write_first(os.path.join(root, name))
    return {size: [write_first(os.path.join(root, n)) for n in names(size)] for size in sizes}


class Idle(scenario.Scenario):
    """DPSO: the first write of 4 KiB, by file size and by the idle time before it

    The paper predicts which files a container will copy up and copies them while the container is
    idle: for a file of 4 GB the first write takes 70 s without idle time and 0.067 ms after 70 s
    of it. Here a container is mounted, left idle for 0 and 1 s, and then writes 4 KiB into
    the middle of files of 1 MiB to 1 GiB (4 GB would take each copying driver a minute a round).
    Files are warm. Drivers that copy whole files pay in full at any idle time, as nothing
    predicts for them; one that copies blocks has the short end without idle time. The paper's
    rows about its predictor are dpso/trace and dpso/accuracy, the cost of recording is
    dpso/recording."""

    name = "dpso/idle"
    question = "What does the first 4 KiB written into a file cost, right after the mount and after idle time?"
    drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    headline = (("first 4 KiB into 1 GiB, no idle time before it", row(0, trees.GIB), METRIC),)
    seconds = 1.8, 0.25

    def cells(self, quick):
        return list(QUICK_IDLE_S if quick else IDLE_S)

    def act(self, run, cell, driver):
        sizes = QUICK_SIZES if run.quick else SIZES
        lower = run.lower("idle", lambda root: build(root, sizes))
        before = trees.state(lower)
        host.settle(run.work.root)
        with driver.open(run.work, lower) as view:
            time.sleep(cell)
            for size, taken in view.call(write_each, view.path, sizes).items():
                run.add(row(cell, size), METRIC, taken, "us")
        trees.must_be(lower, before)

    def measures(self):
        out = [AtMost(row(idle, size), METRIC, ref, 1) for idle in IDLE_S for size in SIZES
               for ref in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]
        out += [Faster(row(idle, trees.GIB), METRIC, "overlayfs", 250) for idle in IDLE_S]
        return out + [FlatIn(row(0, size), row(1, size), METRIC, 1.5) for size in SIZES]

    def tables(self, seen):
        return "".join(tables.table(seen, f"after {idle:g} s",
                                    [(trees.size_label(s), row(idle, s), METRIC)
                                     for s in SIZES]) for idle in IDLE_S)

    def plots(self, seen):
        panels = [(trees.size_label(size), [(row(idle, size), METRIC) for idle in IDLE_S])
                  for size in SIZES]
        labels = [f"{idle:g}" for idle in IDLE_S]
        return [("dpso-idle", lambda path: plots.lines(path, seen, panels, list(IDLE_S), labels,
                                                       "idle time [s]", (False, True)))]
