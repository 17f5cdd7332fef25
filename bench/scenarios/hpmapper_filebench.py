# SPDX-License-Identifier: Apache-2.0
"""Filebench's mongo, varmail and oltp, in the mixes of HP-Mapper's Table 2."""

import contextlib
import json
import os
from collections import namedtuple

from support import cgroup, host, plots, programs, scenario, tables, trees
from support.measures import Faster

NAME = "hpmapper/filebench"
PER_DIRECTORY, ABSENT_EVERY = 100, 5


# Bytes and requests a second that a small volume of a cloud has.
VOLUME = (125 * trees.MIB, 3000)


class Cell(namedtuple("Cell", "mix files size seconds threads factor volume")):
    """factor: how many times overlayfs's rate is promised; volume: on such a device."""

    @property
    def scenario(self):
        return f"{NAME}/{self}"

    def __str__(self):
        return self.mix + (", cloud volume" if self.volume else "")


CELLS = [Cell("mongo", 5000, 16 * trees.KIB, 1.5, 2, 1.2, None),
         Cell("varmail", 5000, 16 * trees.KIB, 1.5, 4, 1.2, None),
         Cell("oltp", 22, 10 * trees.MIB, 3, 4, None, None),
         Cell("oltp", 22, 10 * trees.MIB, 3, 4, 1.4, VOLUME)]


def build(cell):
    """As bench-load expects it."""
    def fill(root):
        for i in range(cell.files):
            here = os.path.join(root, f"d{i // PER_DIRECTORY:03}")
            if i % PER_DIRECTORY == 0:
                os.mkdir(here)
            if cell.mix != "varmail" or i % ABSENT_EVERY:
                trees.write_file(os.path.join(here, f"f{i:05}"), cell.size)
    return fill


class Filebench(scenario.Scenario):
    """HP-Mapper Figure 13: mongo, varmail and oltp

    The paper runs Filebench's personalities in one container: mongo and varmail on 250,000 files
    of 16 KB, oltp on 440 of 10 MB. Filebench is not packaged, so a program of ours
    (bench/programs/load.c) does the mixes of the paper's Table 2 for some seconds: mongo 1/7 whole
    reads, 1/7 appends of 16 KiB, the rest open, close, stat, unlink and creation; varmail 2/13
    whole reads, 1/13 new files, 1/13 appends, both synced; oltp 50.5 % reads and 49.0 % updates of
    2 KiB, a hundred updates of a file being waited for together, as Filebench's asynchronous
    writes are. There are 5,000 files and 22, all in the image and warm; the run is as much shorter
    than Filebench's minute as the files are fewer, so that what a union copies weighs the same.
    That depends on the device: to copy the 4.4 GB of the paper's oltp takes any SSD many seconds,
    here it is memory for the most part. So oltp is run on the device as it is, and on one that a
    control group limits to 125 MiB and 3,000 requests a second, a small volume of a cloud; the
    promise is about the latter. Where the device is fast and memory plenty, a server that is asked
    about every update can not be as fast as overlayfs is once that has copied: a request costs some
    25 us, a write into the page cache two."""

    name = NAME
    question = "How do three mixed loads of files run, one of them on a slow volume?"
    without = {"native": "changed in place, its tree is another one in the next round",
               "vfs": "it copies the image for each view",
               "overlayfs-metacopy": "what is opened for writing is copied, as by overlayfs",
               "veneer-cached": "what is written is served as by veneer",
               "veneer-rootless": "what is written is served as by veneer",
               "veneer-direct": "for programs that share one file, not for these",
               "fuse-overlayfs-rootless": "serves as fuse-overlayfs does",
               "overlayfs-xfs": "what it copies it shares, xu/backing",
               "btrfs": "one file system and no union"}
    quick_drivers = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    headline = tuple((str(cell), cell.scenario, "rate") for cell in CELLS)
    seconds = 2.7, 1.0

    def cells(self, quick):
        return CELLS[:-1] if quick else CELLS

    def act(self, run, cell, driver):
        lower = run.lower(cell.mix, build(cell))
        before = trees.state(lower)
        host.settle(run.work.root)
        for path in before:
            trees.warm(path)
        limits = (cgroup.Device(run.work.device(driver.kind), *cell.volume) if cell.volume else
                  contextlib.nullcontext())
        with limits as box, driver.open(run.work, lower) as view:
            try:
                seen = self.load(view, cell, 0.7 if run.quick else cell.seconds)
            finally:
                if box:
                    box.lift()
        run.add(cell.scenario, "rate", [seen["operations"] / seen["seconds"]], "op/s")
        trees.must_be(lower, before)

    @staticmethod
    def load(view, cell, seconds):
        return json.loads(view.run(programs.path("bench-load"), cell.mix, view.path,
                                   str(cell.files), str(cell.size), str(seconds),
                                   str(cell.threads)))

    def measures(self):
        out = []
        for cell in CELLS:
            out += [Faster(cell.scenario, "rate", "overlayfs", cell.factor or 1.4,
                           must=bool(cell.factor))]
            out += [Faster(cell.scenario, "rate", peer, 1)
                    for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]
        return out

    def tables(self, seen):
        return tables.table(seen, "Operations a second",
                            [(str(c), c.scenario, "rate") for c in CELLS])

    def plots(self, seen):
        panels = [(str(c), c.scenario, "rate") for c in CELLS]
        return [("hpmapper-filebench", lambda path: plots.bars(path, seen, panels))]
