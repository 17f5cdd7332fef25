# SPDX-License-Identifier: Apache-2.0
"""Filebench's mongo, varmail and oltp, in the mixes of HP-Mapper's Table 2."""

import json
import os
from collections import namedtuple

from support import host, plots, programs, scenario, tables, trees
from support.measures import Faster

NAME = "hpmapper/filebench"
QUICK_DRIVERS = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
PER_DIRECTORY, ABSENT_EVERY = 100, 5


class Cell(namedtuple("Cell", "mix files size seconds threads factor")):
    """factor: how many times overlayfs's rate is promised."""

    def __str__(self):
        return self.mix


CELLS = [Cell("mongo", 10000, 16 * trees.KIB, 3, 2, 1.2),
         Cell("varmail", 10000, 16 * trees.KIB, 3, 4, 1.2),
         Cell("oltp", 44, 10 * trees.MIB, 6, 4, 1.4)]


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
    2 KiB, a hundred updates of a file being synced together, as Filebench does. There are 10,000
    files and 44, all in the image and warm, so what a union copies is a part of the number as
    large as in a run of the paper's size."""

    name = NAME
    without = {"native": "changed in place, its tree is another one in the next round",
               "vfs": "it copies the image for each view"}
    seconds = 6, 3

    def cells(self, quick):
        return CELLS

    def act(self, run, cell, driver):
        if run.quick and driver.name not in QUICK_DRIVERS:
            return
        lower = run.lower(cell.mix, build(cell))
        before = trees.state(lower)
        host.settle(run.work.root)
        for path in before:
            trees.warm(path)
        with driver.open(run.work, lower) as view:
            seconds = 1 if run.quick else cell.seconds
            seen = json.loads(view.run(programs.path("bench-load"), cell.mix, view.path,
                                       str(cell.files), str(cell.size), str(seconds),
                                       str(cell.threads)))
        run.add(f"{NAME}/{cell.mix}", "rate", [seen["operations"] / seen["seconds"]], "op/s")
        if trees.state(lower) != before:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")

    def measures(self):
        out = []
        for cell in CELLS:
            name = f"{NAME}/{cell.mix}"
            out += [Faster(name, "rate", "overlayfs", cell.factor),
                    Faster(name, "rate", "fuse-overlayfs", 1),
                    Faster(name, "rate", "fuse-overlayfs-2", 1)]
        return out

    def tables(self, seen):
        return tables.table(seen, "Operations a second",
                            [(c.mix, f"{NAME}/{c.mix}", "rate") for c in CELLS])

    def plots(self, seen):
        panels = [(c.mix, f"{NAME}/{c.mix}", "rate") for c in CELLS]
        return [("hpmapper-filebench", lambda path: plots.bars(path, seen, panels))]
