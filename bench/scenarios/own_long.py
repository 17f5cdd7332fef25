# SPDX-License-Identifier: Apache-2.0
"""What writing one file for long costs, second by second."""

import os
import statistics
from collections import namedtuple

from support import fio, plots, tables, trees
from support.measures import AtMost
from support.scenario import Scenario

NAME = "own/long"
# Of a cell; the curve of a minute is for a run of this alone: VENEER_LONG_S=60.
SECONDS = int(os.environ.get("VENEER_LONG_S", "5")), 2
# Of the curve.
TIMES = (1, 2, 3, 5, 10, 20, 40, 60)

Load = namedtuple("Load", "rw size writers")


def load_name(load):
    kind = "writes" if load.rw == "randwrite" else "reads and writes"
    return f"{kind}, {trees.size_label(load.size)}, {load.writers} at once"


LOADS = [Load("randwrite", 256 * trees.MIB, 1), Load("randwrite", 256 * trees.MIB, 4),
         Load("randwrite", 256 * trees.MIB, 8), Load("randrw", 256 * trees.MIB, 4),
         Load("randwrite", 4096 * trees.MIB, 4)]
CELLS = {load_name(load): load for load in LOADS}
QUICK_CELLS = [load_name(LOADS[1])]
PEERS = "overlayfs", "fuse-overlayfs", "fuse-overlayfs-2"


def row(cell):
    return f"{NAME}/{cell}"


def at(second):
    return f"second {second}"


class Long(Scenario):
    """4 KiB at random into one lower file that stays open

    No paper has this; databases and virtual machines do it. fio writes blocks of 4 KiB at random
    places of a lower file which it opened once, for five seconds (two in a quick run, and as many as
    VENEER_LONG_S says), by 1, 4 and 8 writers, and reads and writes by four; without fsync, so that a
    page cache may help. The rate is that of the median second after the first; the curve shows where
    a driver begins to wait for the disk. Beside it the bytes that the upper took. Both versions of
    fuse-overlayfs are left out of the file of 4 GiB, which they copy before the first write."""

    name = NAME
    question = "What does a program get that writes for long into one lower file?"
    drivers = *PEERS, "veneer", "veneer-cached", "veneer-writeback"
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs"
    seconds = SECONDS[0] + 2.0, SECONDS[1] + 1.0

    def cells(self, quick):
        return QUICK_CELLS if quick else list(CELLS)

    def has(self, cell, driver):
        return not driver.startswith("fuse-overlayfs") or CELLS[cell].size < trees.GIB

    def act(self, run, cell, driver):
        load = CELLS[cell]
        lower = run.lower(f"long-{load.size}",
                          lambda root: trees.write_file(os.path.join(root, "f"), load.size))
        with driver.open(run.work, lower) as view:
            before = view.bytes_taken()
            job = fio.Job("long", load.rw, 4 * trees.KIB, 1, load.writers, os.path.join(view.path, "f"),
                          False, load.size)
            rates, p99 = fio.run_watched(view, job, SECONDS[run.quick])
            run.add(row(cell), "rate", [statistics.median(rates[1:])], "op/s")
            run.add(row(cell), "p99", [p99], "us")
            run.add(row(cell), "upper", [view.bytes_taken() - before], "bytes")
            for second in TIMES:
                if second <= len(rates):
                    run.add(row(cell), at(second), [rates[second - 1]], "op/s")

    def measures(self):
        return [AtMost(row(cell), "rate", peer, 1, close=True, must=False)
                for cell in CELLS for peer in PEERS if self.has(cell, peer)]

    def tables(self, seen):
        return "".join(tables.table(seen, title, [(cell, row(cell), metric) for cell in CELLS])
                       for title, metric in (("4 KiB blocks a second", "rate"), ("99th percentile", "p99"),
                                             ("Bytes of the upper", "upper")))

    def plots(self, seen):
        panels = [(cell, [(row(cell), at(second)) for second in TIMES]) for cell in CELLS]
        return [("own-long", lambda path: plots.lines(path, seen, panels, list(TIMES),
                                                      [str(t) for t in TIMES], "second"))]
