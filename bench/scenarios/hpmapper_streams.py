# SPDX-License-Identifier: Apache-2.0
"""fio on one large lower file."""

import json
import os
from collections import namedtuple

from support import host, plots, scenario, tables, trees
from support.measures import AtMost

NAME = "hpmapper/streams"
SIZE, QUICK_SIZE = 384 * trees.MIB, 64 * trees.MIB
SECONDS = 0.7, 0.3
# By number: a union that copies first would get to none of them in so short a time.
WRITE_EVERY = 32 * trees.KIB
SEQUENTIAL, RANDOM = "1M", "4k"


class Cell(namedtuple("Cell", "what fio block state")):
    """state: "cold", "warm", or "" for a file that is written."""

    @property
    def metric(self):
        return f"{self.what}, {self.state}" if self.state else self.what

    @property
    def unit(self):
        return "MiB/s" if self.block == SEQUENTIAL else "IOPS"

    def __str__(self):
        return self.metric


CELLS = [Cell("sequential read", "read", SEQUENTIAL, "cold"),
         Cell("sequential read", "read", SEQUENTIAL, "warm"),
         Cell("random read", "randread", RANDOM, "cold"),
         Cell("random read", "randread", RANDOM, "warm"),
         Cell("sequential write", "write", SEQUENTIAL, ""),
         Cell("random write", "randwrite", RANDOM, "")]


class Streams(scenario.Scenario):
    """HP-Mapper Figure 12: one large file read and written

    The paper runs Filebench's sequential and random reads and writes, of 1 MiB and 4 KiB, on a
    file of 4 GB in one container. Here fio does the same by buffered system calls on a file of
    384 MiB that is in the image: cold reads with all caches empty, warm ones with the file in the
    page cache, once through or for 0.7 seconds; writes are the first ones to the file, so what a
    union copies then is in the number: sequential ones through the whole file, random ones 12,288.
    fio has the file open while it runs, as a program has."""

    name = NAME
    question = "How fast is one large file read and written?"
    without = {"vfs": "by then its file is native's",
               "overlayfs-metacopy": "what is opened for writing is copied, as by overlayfs",
               "overlayfs-xfs": "what it copies it shares, xu/backing",
               "btrfs": "one file system and no union",
               "veneer-direct": "for programs that share one file, meta/reads",
               "veneer-rootless": "serves as veneer-cached does",
               "fuse-overlayfs-rootless": "serves as fuse-overlayfs does"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 1.0, 0.6

    def cells(self, quick):
        return [c for c in CELLS if c.state != "cold" and c != CELLS[3]] if quick else CELLS

    def act(self, run, cell, driver):
        size = QUICK_SIZE if run.quick else SIZE
        lower = run.lower("stream", lambda r: trees.write_file(os.path.join(r, "file"), size))
        before = trees.state(lower)
        with driver.open(run.work, lower) as view:
            path = os.path.join(view.path, "file")
            if cell.state == "warm":
                view.call(trees.warm, path)
            else:
                host.drop_caches()
            run.add(NAME, cell.metric, [self.fio(view, path, cell, run.quick)], cell.unit)
        trees.must_be(lower, before)

    @staticmethod
    def fio(view, path, cell, quick):
        argv = ["fio", "--name=j", f"--filename={path}", f"--rw={cell.fio}", f"--bs={cell.block}",
                "--ioengine=psync", "--invalidate=0", "--overwrite=1", "--thread", "--norandommap",
                "--randrepeat=1", "--output-format=json", "--group_reporting"]
        if not cell.state:
            argv += ["--end_fsync=1"]
            argv += [f"--number_ios={(SIZE, QUICK_SIZE)[quick] // WRITE_EVERY}"] if cell.block == RANDOM else []
        elif cell.block == RANDOM:
            argv += ["--time_based", f"--runtime={SECONDS[quick] * 1000:.0f}ms"]
        job = json.loads(view.run(*argv))["jobs"][0]
        part = job["write" if "write" in cell.fio else "read"]
        if job["error"] or not part["total_ios"]:
            raise host.HostError(f"fio: error {job['error']}")
        return part["bw_bytes"] / trees.MIB if cell.unit == "MiB/s" else part["iops"]

    def measures(self):
        out = []
        for cell in CELLS:
            # Two file systems that serve from one page cache can only be equally fast.
            out += [AtMost(NAME, cell.metric, peer, 1, close=True)
                    for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]
            out += [AtMost(NAME, cell.metric, "overlayfs", 1.15 if cell.state else 1)]
        return out

    def tables(self, seen):
        return (tables.table(seen, "Reads", [(c.metric, NAME, c.metric) for c in CELLS[:4]]) +
                tables.table(seen, "Writes", [(c.metric, NAME, c.metric) for c in CELLS[4:]]))

    def plots(self, seen):
        panels = [(c.metric, NAME, c.metric) for c in CELLS]
        return [("hpmapper-streams", lambda path: plots.bars(path, seen, panels))]
