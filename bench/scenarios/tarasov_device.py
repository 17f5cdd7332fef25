# SPDX-License-Identifier: Apache-2.0
"""Layers on a device that is slow to answer."""

import os
import random

from support import host, plots, scenario, slowdev, tables, trees
from support.measures import AtMost
from support.together import together

LATENCIES, QUICK_LATENCIES = (0, 4, 6), (0, 4)
# (views, bytes of the one file, small files, reads in it, whole files read, writes)
FULL = (4, 64 * trees.MIB, 400, 40, 30, 20)
QUICK = (2, 16 * trees.MIB, 200, 20, 15, 10)
BLOCK, WHOLE = 4 * trees.KIB, 16 * trees.KIB
DATA = random.Random(9).randbytes(BLOCK)
READS, MANY, WRITES = "sf-reads", "mf-reads", "sf-writes"
METRICS = (READS, MANY, WRITES)


def scenario_name(ms):
    return f"tarasov/device/{ms}ms"


def one_reads(path, offsets):
    fd = os.open(os.path.join(path, "one"), os.O_RDONLY)
    for off in offsets:
        if len(os.pread(fd, BLOCK, off)) != BLOCK:
            raise host.HostError("a read was short")
    os.close(fd)


def many_reads(path, names):
    for name in names:
        trees.warm(os.path.join(path, "many", name))


def one_writes(path, offsets):
    fd = os.open(os.path.join(path, "one"), os.O_RDWR)
    for off in offsets:
        os.pwrite(fd, DATA, off)
    os.close(fd)


def written(path, offsets):
    with open(os.path.join(path, "one"), "rb", buffering=0) as f:
        return all(os.pread(f.fileno(), BLOCK, off) == DATA for off in offsets)


class Device(scenario.Scenario):
    """Tarasov et al., latency of the device: 0 to 6 ms more a read

    The paper delays the device under the layers by 0, 2, 4 and 6 ms; 2 is left out here, as is a
    plain directory on a slow device, for the time they take. An ext4 lies on a loop device over a file that a small FUSE server shows, which sleeps so long before it answers a
    read; writes are not delayed. 4 views at once, after drop_caches: each 40 random reads of 4 KiB
    in one file of 64 MiB, then 30 whole files of 16 KiB of 400, then, cold again, 20 random writes.
    0 is that device without sleep, which costs some 0.2 ms a read. Times are from the first start
    to the last end."""

    name = "tarasov/device"
    question = "How much does the latency of the device weigh?"
    drivers = ("native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs-2"
    seconds = 1.5, 0.3

    def __init__(self):
        self.work, self.slow = None, None

    def cells(self, quick):
        return list(QUICK_LATENCIES if quick else LATENCIES)

    def has(self, cell, driver):
        return driver != "native" or not cell

    def volume(self, run):
        if run.work is not self.work:
            self.work, self.slow = run.work, slowdev.SlowVolume(run.work)
        return self.slow

    def act(self, run, cell, driver):
        views, size, count, *_ = sizes = QUICK if run.quick else FULL
        slow = self.volume(run)
        lower = slow.work.lower("host", "device", lambda root: trees.one_and_many(root, size, count, WHOLE))
        before = trees.state(lower)
        with driver.group(slow.work) as group:
            every = [group.add(slow.work, lower) for _ in range(views)]
            self.measure(run, cell, slow, every, sizes)
        trees.must_be(lower, before)

    @staticmethod
    def measure(run, cell, slow, every, sizes):
        _, size, count, reads, many, writes = sizes
        rng = run.rng()
        offsets = [[rng.randrange(size // BLOCK) * BLOCK for _ in range(reads)] for _ in every]
        names = [[trees.many_name(i) for i in rng.sample(range(count), many)] for _ in every]
        seen = {}
        for metric, function, what in ((READS, one_reads, offsets), (MANY, many_reads, names),
                                       (WRITES, one_writes, [o[:writes] for o in offsets])):
            host.drop_caches()
            slow.set_delay(cell / 1000)
            try:
                seen[metric] = together(every, function, [(w,) for w in what]).seconds
            finally:
                slow.set_delay(0)
        for view, where in zip(every, offsets):
            if not view.call(written, view.path, where[:writes]):
                raise host.HostError("WRONG BYTES")
        for metric, seconds in seen.items():
            run.add(scenario_name(cell), metric, [seconds], "s")

    def measures(self):
        out = []
        for name in map(scenario_name, LATENCIES):
            out += [AtMost(name, READS, "overlayfs", 1.15),
                    AtMost(name, MANY, "overlayfs", 1.15, must=False),
                    AtMost(name, WRITES, "overlayfs", 1)]
            out += [AtMost(name, metric, peer, 1, close=True) for metric in METRICS
                    for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]
        return out

    def tables(self, seen):
        text = ""
        for metric in METRICS:
            columns = [(f"{ms} ms", scenario_name(ms), metric) for ms in LATENCIES]
            text += tables.table(seen, f"{metric}, by what a read takes longer", columns)
        return text

    def plots(self, seen):
        panels = [(m, [(scenario_name(ms), m) for ms in LATENCIES]) for m in METRICS]
        return [("tarasov-device", lambda path: plots.lines(
            path, seen, panels, list(LATENCIES), [str(ms) for ms in LATENCIES],
            "ms more a read", log=(False, True)))]
