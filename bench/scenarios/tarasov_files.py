# SPDX-License-Identifier: Apache-2.0
"""Containers of one image that read and write lower files at once."""

import os
import random
import time

from support import diskstat, host, plots, scenario, tables, trees
from support.measures import AtMost, Faster
from support.together import together

BLOCK, WHOLE = 4 * trees.KIB, 64 * trees.KIB
READS, WRITES = "reads", "writes"
# (views, bytes of the one file, many files, I/Os of a view in the one, in the many, paced views)
FULL = (16, 128 * trees.MIB, 1600, 300, 60, 8)
QUICK = (4, 64 * trees.MIB, 300, 150, 30, 2)
PACED, PACED_OPS, PACED_S = 64 * trees.MIB, (15, 4), 0.1
PARTS = ("sf-reads", "mf-reads", "sf-writes", "mf-writes", "sf-writes-paced")
SCENARIO = "tarasov/files/"
CHECKED = 2


def pattern(seed, size):
    return random.Random(f"pattern {seed}").randbytes(BLOCK) * (size // BLOCK)


def build(root, size, count):
    trees.one_and_many(root, size, count, WHOLE)
    trees.write_file(os.path.join(root, "paced"), PACED)


def timed(function, things, pause=0):
    """Microseconds of each; with a pause, one is begun each pause seconds if it can be."""
    taken, clock, due = [], time.perf_counter, time.perf_counter()
    for thing in things:
        if pause:
            time.sleep(max(0, due - clock()))
            due += pause
        start = clock()
        function(thing)
        taken.append((clock() - start) * 1e6)
    return taken


def one_reads(path, offsets):
    fd = os.open(os.path.join(path, "one"), os.O_RDONLY)
    taken = timed(lambda off: os.pread(fd, BLOCK, off), offsets)
    os.close(fd)
    return taken


def one_writes(path, offsets, seed, name="one", pause=0):
    data = pattern(seed, BLOCK)
    fd = os.open(os.path.join(path, name), os.O_RDWR)
    taken = timed(lambda off: os.pwrite(fd, data, off), offsets, pause)
    os.close(fd)
    return taken


def many_reads(path, names):
    def read(name):
        fd = os.open(os.path.join(path, "many", name), os.O_RDONLY)
        if len(os.read(fd, WHOLE)) != WHOLE:
            raise host.HostError(f"{name} is short")
        os.close(fd)
    return timed(read, names)


def many_writes(path, names, seed):
    data = pattern(seed, WHOLE)

    def write(name):
        fd = os.open(os.path.join(path, "many", name), os.O_WRONLY)
        os.write(fd, data)
        os.close(fd)
    return timed(write, names)


def check(path, offsets, names, seed):
    """Every byte that was written, and one block beside each."""
    data, wrong = pattern(seed, WHOLE), []
    mine = set(offsets)
    with open(os.path.join(path, "one"), "rb", buffering=0) as f:
        for off in offsets:
            beside = off ^ BLOCK
            if os.pread(f.fileno(), BLOCK, off) != data[:BLOCK]:
                wrong.append(off)
            if beside not in mine and os.pread(f.fileno(), 16, beside) == data[:16]:
                wrong.append(beside)
    for name in names:
        with open(os.path.join(path, "many", name), "rb") as f:
            if f.read() != data:
                wrong.append(name)
    return wrong[:5]


class Files(scenario.Scenario):
    """Tarasov et al., sf/mf-reads/writes: containers that work on lower files at once

    The paper runs 64 containers of one image, each doing 600 I/Os at 10 IOPS: random 4 KB in one
    file of 1 GB (sf) or whole files of 64 KB out of 16,000 (mf). Here 16 views do their I/Os as
    fast as they can, which shows the capacity that pacing hides: 300 in one file of 128 MiB, 60 in
    1,600 files; with 64 and 1 GB the drivers that copy would write 64 GB a run. Reads are cold.
    sf-writes-paced is the paper's 10 IOPS: 8 views, 15 writes each in a file of 64 MiB, of which
    the latency tells. Bytes are those the block device counted, all having been synced. In place
    all views share one tree."""

    name = "tarasov/files"
    question = "How long do 16 containers take that read or write lower files at once?"
    without = {"vfs": "it copies all before the first container runs",
               "overlayfs-metacopy": "as overlayfs where data is written",
               "overlayfs-xfs": "what it copies it shares, tarasov/layers",
               "btrfs": "one file system and no union, as in tarasov/layers",
               "veneer-direct": "what is written is served as by veneer",
               "veneer-rootless": "what is written is served as by veneer",
               "veneer-cached": "what is written is served as by veneer",
               "fuse-overlayfs-rootless": "as fuse-overlayfs, and each copy takes as long"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 2.8, 0.9
    headline = [(f"16 containers, 300 random 4 KiB {what} a lower file each", SCENARIO + part,
                 "completion") for what, part in (("reads of", "sf-reads"),
                                                  ("writes to", "sf-writes"))]

    def cells(self, quick):
        return [WRITES] if quick else [READS, WRITES]

    def act(self, run, cell, driver):
        views, size, count, one, many, paced = QUICK if run.quick else FULL
        lower = run.lower("files", lambda root: build(root, size, count))
        rng = run.rng()
        offsets = [[rng.randrange(size // BLOCK) * BLOCK for _ in range(one)]
                   for _ in range(views)]
        names = [[trees.many_name(i) for i in rng.sample(range(count), many)] for _ in range(views)]
        before = trees.state(lower)
        with driver.group(run.work) as group:
            every = [group.add(run.work, lower) for _ in range(views)]
            if cell == READS:
                self.reads(run, driver, every, offsets, names)
            else:
                self.writes(run, driver, every, offsets, names, paced)
        trees.must_be(lower, before)

    def reads(self, run, driver, every, offsets, names):
        for part, function, what in (("sf-reads", one_reads, offsets),
                                     ("mf-reads", many_reads, names)):
            host.drop_caches()
            disk = diskstat.Counter(run.work.device(driver.kind))
            done = together(every, function, [(w,) for w in what])
            self.add(run, part, done)
            run.add(SCENARIO + part, "bytes read", [disk.read()], "bytes")

    def writes(self, run, driver, every, offsets, names, paced):
        device = run.work.device(driver.kind)
        some = [([o % PACED for o in offsets[i][:PACED_OPS[run.quick]]], i, "paced", PACED_S)
                for i in range(paced)]
        self.add(run, "sf-writes-paced", together(every[:paced], one_writes, some), False)
        for part, function, what in (("sf-writes", one_writes, offsets),
                                     ("mf-writes", many_writes, names)):
            host.settle(run.work.root)
            disk = diskstat.Counter(device)
            done = together(every, function, [(w, i) for i, w in enumerate(what)])
            self.add(run, part, done)
            run.add(SCENARIO + part, "bytes written", [disk.written()], "bytes")
        if driver.in_place:
            return
        for i, view in enumerate(every[:CHECKED]):
            wrong = view.call(check, view.path, offsets[i], names[i], i)
            if wrong:
                raise host.HostError(f"WRONG BYTES in view {i}: {wrong}")

    @staticmethod
    def add(run, part, done, is_rate=True):
        every = [t for taken in done.results for t in taken]
        run.add(SCENARIO + part, "completion", [done.seconds], "s")
        if is_rate:
            run.add(SCENARIO + part, "rate", [len(every) / done.seconds], "op/s")
        run.add(SCENARIO + part, "latency", every, "us", tail=True)

    def measures(self):
        out = [Faster(SCENARIO + "sf-writes", "completion", "overlayfs", 10),
               AtMost(SCENARIO + "mf-writes", "completion", "overlayfs", 1),
               AtMost(SCENARIO + "sf-writes-paced", "completion", "overlayfs", 1)]
        out += [AtMost(SCENARIO + part, "completion", "overlayfs", 1.15)
                for part in ("sf-reads", "mf-reads")]
        for peer in ("fuse-overlayfs", "fuse-overlayfs-2"):
            out += [AtMost(SCENARIO + part, "completion", peer, 1, close=True)
                    for part in PARTS[:4]]
            # Paced, all end when the last I/O is due.
            out.append(AtMost(SCENARIO + PARTS[4], "latency", peer, 1, close=True))
        return out

    def tables(self, seen):
        text = ""
        for part in PARTS:
            columns = [(m, SCENARIO + part, m) for m in seen.metrics(SCENARIO + part)]
            text += tables.table(seen, part, columns)
        tails = [(part, SCENARIO + part, "latency") for part in PARTS]
        return text + tables.table(seen, "99th percentile of all latencies", tails, tail=True,
                                   ratios=False)

    def plots(self, seen):
        panels = [(f"{part}, completion", SCENARIO + part, "completion") for part in PARTS[:4]]
        panels += [("sf-writes, bytes written", SCENARIO + "sf-writes", "bytes written")]
        return [("tarasov-files", lambda path: plots.bars(path, seen, panels))]
