# SPDX-License-Identifier: Apache-2.0
"""fio by block size and by number of jobs."""

import os
from collections import namedtuple

from support import fio, host, plots, scenario, tables, trees
from support.measures import AtMost

from .xu_fio import LIMIT

BLOCKS = tuple(k * trees.KIB for k in (4, 64, 1024))
QUICK_BLOCKS = (BLOCKS[0], BLOCKS[-1])
THREADS = (1, 4)
DEPTH = 8
KINDS = {"reads": "randread", "writes": "randwrite"}
SIZE = 128 * trees.MIB, 64 * trees.MIB
MS = 190, 90
RATE = "rate"


class Step(namedtuple("Step", "block threads")):
    """One job of the sweeps."""

    @property
    def label(self):
        threads = f", {self.threads} jobs" if self.threads > 1 else ""
        return trees.size_label(self.block) + threads


def steps(quick):
    if quick:
        return [Step(block, 1) for block in QUICK_BLOCKS]
    return ([Step(block, 1) for block in BLOCKS] +
            [Step(BLOCKS[0], threads) for threads in THREADS if threads > 1])


def row(kind, step):
    return f"xu/sweep/{kind}/{trees.size_label(step.block)}/{step.threads}"


class Sweep(scenario.Scenario):
    """Xu et al., block size and number of jobs

    The paper varies fio's block size and number of jobs with O_DIRECT on its 5 GB file. Here:
    random blocks of 4 KiB to 1 MiB by one job at depth 8, and 4 KiB by 1 and 4 jobs, on
    128 MiB, for a fifth of a second each. Reads are of an unchanged file of the image, writes go to
    one all of which was overwritten before, so that nothing is copied up. Caches are empty at the
    start; what xu/fio says of servers with a page cache of their own holds here too."""

    name = "xu/sweep"
    question = "How fast are random reads and writes by block size and number of jobs?"
    drivers = quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs-2"
    seconds = 1.8, 1.0

    def cells(self, quick):
        return list(KINDS)

    def act(self, run, cell, driver):
        size = SIZE[run.quick]
        lower = run.lower("sweep", lambda root: trees.write_file(os.path.join(root, "f"), size))
        with driver.open(run.work, lower) as view:
            path = os.path.join(view.path, "f")
            if cell == "writes":
                view.call(fio.overwrite, path)
            host.drop_caches()
            jobs = [fio.Job(s.label, KINDS[cell], s.block, DEPTH, s.threads, path, True, size)
                    for s in steps(run.quick)]
            seen = fio.run(view, jobs, MS[run.quick])
        for step in steps(run.quick):
            run.add(row(cell, step), RATE, [seen[step.label].mibs], "MiB/s")

    def measures(self):
        # A peer that reads with its own page cache beats the device, and so any passthrough.
        return [AtMost(row(kind, step), RATE, ref, limit, close=True, must=ref == "overlayfs")
                for kind in KINDS for step in steps(False)
                for ref, limit in (("overlayfs", LIMIT), ("fuse-overlayfs-2", 1))]

    def tables(self, seen):
        return "".join(tables.table(seen, f"random {kind}",
                                    [(s.label, row(kind, s), RATE) for s in steps(False)])
                       for kind in KINDS)

    def plots(self, seen):
        panels = [(f"random {kind}", [(row(kind, Step(b, 1)), RATE) for b in BLOCKS])
                  for kind in KINDS]
        labels = [trees.size_label(b) for b in BLOCKS]
        return [("xu-sweep",
                 lambda path: plots.lines(path, seen, panels, list(BLOCKS), labels,
                                          "block size"))]
