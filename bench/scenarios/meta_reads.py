# SPDX-License-Identifier: Apache-2.0
"""What reading unchanged lower files costs."""

import gc
import os
import shutil
import time

from support import host, plots, tables, trees
from support.measures import AtMost, ByDriver
from support.scenario import Scenario

BIG, CHUNK, PAGE = 256 * trees.MIB, trees.MIB, 4 * trees.KIB
SMALL_SIZE = 16 * trees.KIB
SEQUENTIAL, RANDOM, OPENS = "sequential", "random 4K", "open+read4K+close"
EXEC, PROGRAM, STARTS = "exec", "/bin/busybox", 200
# small files, random reads a pass, passes, mounts: where a file's pages happen to lie in memory moves
# a warm read by a third from mount to mount.
FULL, QUICK = (2000, 20000, 5, 3), (300, 5000, 2, 1)
REFERENCES = ("fuse-overlayfs", "fuse-overlayfs-2")


def whole(path, passes):
    """MiB/s of each pass through a file, read before."""
    trees.warm(path)
    buf, rates = [bytearray(CHUNK)], []
    for _ in range(passes):
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
        rates.append(total / trees.MIB / taken)
    return rates


def scattered(path, offsets, passes):
    """Microseconds a read, mean over each pass, of a file read before."""
    trees.warm(path)
    buf, read, means = [bytearray(PAGE)], os.preadv, []
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(passes):
            start = time.perf_counter()
            for off in offsets:
                read(fd, buf, off)
            means.append((time.perf_counter() - start) * 1e6 / len(offsets))
    finally:
        os.close(fd)
    return means


def opened(directory, names):
    """Microseconds of open+read+close, for each file."""
    paths = [os.path.join(directory, name) for name in names]
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


def started(path):
    """Microseconds from a fork to the end of a static program that does nothing."""
    taken = []
    for _ in range(STARTS):
        start = time.perf_counter_ns()
        pid = os.posix_spawn(path, ["true"], {})
        status = os.waitpid(pid, 0)[1]
        taken.append((time.perf_counter_ns() - start) / 1000)
        if status:
            raise host.HostError(f"{path} ended with {status}")
    return taken


def build(root, small):
    trees.one_and_many(root, BIG, small, SMALL_SIZE)
    shutil.copy(PROGRAM, os.path.join(root, "program"))


class Reads(Scenario):
    """Reading unchanged lower files

    No paper has this alone. `sequential`: read(2) of 1 MiB at a time through a 256 MiB file that is
    in memory. `random 4K`: the mean of 20,000 pread(2) at random aligned offsets of it.
    `open+read4K+close`: 2,000 files of 16 KiB, each once after drop_caches on a fresh mount (cold),
    then five times again (warm). `exec`: a static busybox of the lower layer as `true`, from
    posix_spawn(3) to its end, 200 times in each of three mounts. Whether an open misses the caches
    of the mount or of the lower file system is what tells the drivers apart."""

    name = "meta/reads"
    question = "What do reads, opens and starts of unchanged files cost?"
    without = {"vfs": "as a plain directory", "overlayfs-metacopy": "it differs in copies only",
               "overlayfs-xfs": "as overlayfs", "btrfs": "a snapshot is a plain tree",
               "veneer-cached": "as veneer-rootless",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = ("native", "overlayfs", "veneer", "veneer-rootless", "fuse-overlayfs",
                     "fuse-overlayfs-2")
    headline = [("reading a warm lower file", f"meta/reads/{SEQUENTIAL}", "warm"),
                ("open, read 4 KiB, close, warm", f"meta/reads/{OPENS}", "warm")]
    seconds = 1.5, 0.3

    def cells(self, quick):
        return [SEQUENTIAL, RANDOM, OPENS, EXEC]

    def act(self, run, cell, driver):
        small, tries, passes, mounts = QUICK if run.quick else FULL
        lower = run.lower("reads", lambda r: build(r, small))
        row, rng = f"meta/reads/{cell}", run.rng()
        if cell == OPENS:
            cold, warm = self.opens(run, driver, lower, rng, passes)
            run.add(row, "cold", cold, "us", tail=True)
            run.add(row, "warm", warm, "us", tail=True)
            return
        offsets = [rng.randrange(BIG // PAGE) * PAGE for _ in range(tries)]
        for _ in range(mounts):
            with driver.open(run.work, lower) as view:
                path = os.path.join(view.path, "one")
                if cell == EXEC:
                    program = os.path.join(view.path, "program")
                    run.add(row, "warm", view.call(started, program), "us", tail=True)
                    continue
                if cell == SEQUENTIAL:
                    run.add(row, "warm", view.call(whole, path, passes), "MiB/s")
                else:
                    run.add(row, "warm", view.call(scattered, path, offsets, passes), "us")

    @staticmethod
    def opens(run, driver, lower, rng, passes):
        names = sorted(os.listdir(os.path.join(lower, "many")))
        rng.shuffle(names)
        if driver.in_place:
            driver.open(run.work, lower).close()
        host.drop_caches()
        with driver.open(run.work, lower) as view:
            directory = os.path.join(view.path, "many")
            cold = view.call(opened, directory, names)
            return cold, [t for _ in range(passes) for t in view.call(opened, directory, names)]

    def measures(self):
        out = [AtMost(f"meta/reads/{cell}", "warm", ref, 1, close=True)
               for cell in (SEQUENTIAL, RANDOM, OPENS) for ref in REFERENCES]
        out += [AtMost(f"meta/reads/{cell}", state, ref, 1, close=True)
                for cell, state in ((OPENS, "cold"), (EXEC, "warm")) for ref in REFERENCES]
        out += [AtMost(f"meta/reads/{c}", "warm", "overlayfs", 1.15) for c in (SEQUENTIAL, RANDOM)]
        # Passed through, a read costs what the file below costs.
        out += [AtMost(f"meta/reads/{c}", "warm", "native", 1 / part)
                for c, part in ((SEQUENTIAL, 0.97), (RANDOM, 0.95))]
        # Without privileges the mount's opens cost no request.
        opens = AtMost(f"meta/reads/{OPENS}", "warm", "overlayfs", 1.3)
        return out + [ByDriver("veneer-rootless", opens),
                      AtMost(f"meta/reads/{OPENS}", "warm", "overlayfs", 1.3, must=False),
                      AtMost(f"meta/reads/{OPENS}", "cold", "overlayfs", 1.3, must=False),
                      AtMost(f"meta/reads/{EXEC}", "warm", "overlayfs", 1.3, must=False)]

    def tables(self, seen):
        columns = [(SEQUENTIAL, f"meta/reads/{SEQUENTIAL}", "warm"),
                   (RANDOM, f"meta/reads/{RANDOM}", "warm"),
                   (OPENS + ", warm", f"meta/reads/{OPENS}", "warm"),
                   (OPENS + ", cold", f"meta/reads/{OPENS}", "cold"),
                   (EXEC, f"meta/reads/{EXEC}", "warm")]
        text = tables.table(seen, "Reads of lower files", columns)
        return text + tables.table(seen, "99th percentile", columns[2:], True, False)

    def plots(self, seen):
        panels = [("sequential 1 MiB, warm", f"meta/reads/{SEQUENTIAL}", "warm"),
                  ("random 4 KiB, warm", f"meta/reads/{RANDOM}", "warm"),
                  (OPENS + ", warm", f"meta/reads/{OPENS}", "warm")]
        return [("meta-reads", lambda path: plots.bars(path, seen, panels))]
