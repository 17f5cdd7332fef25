# SPDX-License-Identifier: Apache-2.0
"""One page cache for containers without privileges: `-o share=pages`."""

import mmap
import os
import shutil
import subprocess
import time

from support import cgroup, host, plots, scenario, starting, tables, trees
from support.measures import AtMost, Below, ByDriver, Faster
from support.memory import own_memory

NAME = "own/share"
HELD, FEW, SCARCE, OPENS = "read, mapped and run", "the same by 16", "little memory", "opens"
OURS, CACHED, PEER = "veneer-share", "veneer-rootless", "fuse-overlayfs-rootless"
PROGRAM = "/bin/busybox"
FILE, PAGE = 16 * trees.MIB, 4 * trees.KIB
SMALL, PASSES = 500, 3
# The programs of a view take some 9 MiB of their own.
LEAST_PER_VIEW, LEAST_BESIDE = 11 * trees.MIB, 96 * trees.MIB


def count(quick, cell):
    return 16 if quick or cell == FEW else 64


def build(root):
    trees.write_file(f"{root}/big", FILE)
    for i in range(SMALL):
        trees.write_file(f"{root}/s{i}", 16 * trees.KIB)
    shutil.copy(PROGRAM, f"{root}/program")


def read_and_map(roots):
    buf = bytearray(trees.MIB)
    for root in roots:
        path = f"{root}/big"
        fd = os.open(path, os.O_RDONLY)
        while os.readv(fd, [buf]):
            pass
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
            sum(m[off] for off in range(0, FILE, PAGE))
        os.close(fd)
        with open(f"{root}/program", "rb") as f:
            f.read()
        subprocess.run(["true"], executable=f"{root}/program", check=True)


def open_us(root):
    """Microseconds to open, read 4 KiB and close, of files that were read before."""
    names = [f"{root}/s{i}" for i in range(SMALL)]
    for _ in range(PASSES):
        start = time.perf_counter()
        for name in names:
            fd = os.open(name, os.O_RDONLY)
            os.pread(fd, PAGE, 0)
            os.close(fd)
        taken = time.perf_counter() - start
    return 1e6 * taken / SMALL


class Share(scenario.Scenario):
    """Many containers without privileges on one page cache

    Without privileges nothing is passed through, and each mount has pages of its own: 16 mounts
    that read one file hold 17 copies of it. With `share=pages` (veneer-share) mounts of one image
    are one file system. 64 views, and 16, read one 16 MiB file, map it and touch all of it, and
    read and run a static busybox; page cache and servers' memory are counted in copies of both. A
    Python program is started in all at once in a control group that has room for the programs and
    for little else; and small files are opened, read and closed, which separate cached mounts
    (veneer-rootless) do without a request. What those do of the rest is in hpmapper/siblings and
    hpmapper/keeper."""

    name = NAME
    question = "Do containers without privileges share one page cache?"
    drivers = quick_drivers = (OURS, CACHED, PEER)
    seconds = 2.0, 0.7

    def cells(self, quick):
        return [HELD, SCARCE, OPENS] if quick else [HELD, FEW, SCARCE, OPENS]

    def has(self, cell, driver):
        return driver != CACHED or cell == OPENS

    def act(self, run, cell, driver):
        views = count(run.quick, cell)
        limit = views * LEAST_PER_VIEW + LEAST_BESIDE if cell == SCARCE else None
        with cgroup.Memory(limit) as box, driver.group(run.work) as group:
            if cell == SCARCE:
                self.start(run, group, views)
            elif cell == OPENS:
                lower = run.lower("share", build)
                view = group.add(run.work, lower)
                run.add(f"{NAME}/{OPENS}", "open, read 4 KiB, close",
                        [view.call(open_us, view.path)], "us")
            else:
                self.hold(run, cell, group, box, views)

    def hold(self, run, cell, group, box, views):
        lower = run.lower("share", build)
        for _ in range(views):
            group.add(run.work, lower)
        own = own_memory(group.servers())
        host.drop_caches()
        before = box.cached()
        group.views[0].call(read_and_map, [view.path for view in group.views])
        taken = box.cached() - before + own_memory(group.servers()) - own
        whole = FILE + os.path.getsize(f"{lower}/program")
        run.add(f"{NAME}/{cell}", "copies", [taken / whole], "x")

    def start(self, run, group, views):
        lower = run.lower("keeper", starting.build)
        for _ in range(views):
            group.add(run.work, lower)
        host.drop_caches()
        start = time.perf_counter()
        starting.start_in(group.views, starting.PROGRAM)
        run.add(f"{NAME}/{SCARCE}", "start", [time.perf_counter() - start], "s")

    def measures(self):
        row = f"{NAME}/{OPENS}", "open, read 4 KiB, close"
        # Beside mounts that do not ask for each open: what one page cache costs.
        return [ByDriver(OURS, m) for m in (
            *[Below(f"{NAME}/{cell}", "copies", 1.5) for cell in (HELD, FEW)],
            Faster(f"{NAME}/{SCARCE}", "start", PEER, 2), AtMost(*row, PEER, 1.1),
            AtMost(*row, CACHED, 1, must=False))]

    def tables(self, seen):
        return tables.table(seen, "Copies of the file, a start with little memory, and opens",
                            [("copies", f"{NAME}/{HELD}", "copies"),
                             ("copies, 16 views", f"{NAME}/{FEW}", "copies"),
                             ("start", f"{NAME}/{SCARCE}", "start"),
                             ("open, read 4 KiB, close", f"{NAME}/{OPENS}",
                              "open, read 4 KiB, close")])

    def plots(self, seen):
        panels = [("copies", f"{NAME}/{HELD}", "copies"), ("start", f"{NAME}/{SCARCE}", "start")]
        return [("own-share", lambda path: plots.bars(path, seen, panels))]
