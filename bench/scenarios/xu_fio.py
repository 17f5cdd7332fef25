# SPDX-License-Identifier: Apache-2.0
"""fio's matrix: random and sequential reads and writes at a low and a high load."""

import os

from support import fio, host, plots, scenario, tables, trees
from support.measures import AtMost

# Depth and threads of each load.
LOAD = {"low": (1, 1), "high": (8, 4)}
READS = ("RR", "SR")
UNITS = {"RR": "IOPS", "RW": "IOPS", "SR": "MiB/s", "SW": "MiB/s"}
SLAT, CLAT, TAIL = " slat", " clat", " clat p99"
# What a first writer writes, all its threads together.
FRESH = {"RW": 8 * trees.MIB, "SW": 64 * trees.MIB}
# Full, quick.
SIZE = 192 * trees.MIB, 64 * trees.MIB
LIMIT = 1.15


def file_of(pattern, way, load):
    return f"{pattern}-{way}-{load}"


def add_all(run, row, pattern, seen):
    value = seen.iops if UNITS[pattern] == "IOPS" else seen.mibs
    run.add(row, pattern, [value], UNITS[pattern])
    if seen.slat is not None:
        run.add(row, pattern + SLAT, [seen.slat], "us")
    run.add(row, pattern + CLAT, [seen.clat], "us")
    run.add(row, pattern + TAIL, [seen.p99], "us")


class Matrix(scenario.Scenario):
    """The patterns on a file of the image ("lower"), and on the same file after all of it was
    overwritten ("upper"), each by every way and load of the subclass."""

    places = ("lower", "upper")
    # (way, load), full and quick.
    ways = ()
    quick_ways = ()
    # A job takes so long: full, quick.
    # fio looks for the end of a job every tenth of a second.
    ms = 190, 90

    def cells(self, quick):
        return list(self.places)

    def row(self, place, way, load):
        return f"{self.name}/{place}/{way}/{load}"

    def patterns(self, place):
        return tuple(fio.PATTERNS)

    def is_fresh(self, place, pattern):
        """Whether the job is the first to write into its file."""
        return place == "lower" and pattern not in READS

    def rows(self):
        """(place, way, load, pattern) of everything."""
        return [(place, way, load, p) for place in self.places for way, load in self.ways
                for p in self.patterns(place)]

    def build(self, root, size):
        names = {"read"} | {file_of(p, way, load) for place, way, load, p in self.rows()
                            if self.is_fresh(place, p)}
        for name in sorted(names):
            trees.write_file(os.path.join(root, name), size)

    def act(self, run, cell, driver):
        lower = run.lower("fio", lambda root: self.build(root, SIZE[run.quick]))
        before = trees.state(lower)
        with driver.open(run.work, lower) as view:
            if cell == "upper":
                view.call(fio.overwrite, os.path.join(view.path, "read"))
            host.drop_caches()
            for way, load in self.quick_ways if run.quick else self.ways:
                self.one_load(run, view, cell, way, load)
        trees.must_be(lower, before)

    def one_load(self, run, view, place, way, load):
        jobs = {p: self.job(run, view, place, p, way, load) for p in self.patterns(place)}
        if way == "buffered":
            view.call(trees.warm, os.path.join(view.path, "read"))
        seen = fio.run(view, jobs.values(), self.ms[run.quick])
        for pattern, job in jobs.items():
            add_all(run, self.row(place, way, load), pattern, seen[job.name])

    def job(self, run, view, place, pattern, way, load):
        rw, block = fio.PATTERNS[pattern]
        depth, threads = LOAD[load]
        fresh = self.is_fresh(place, pattern)
        path = os.path.join(view.path, file_of(pattern, way, load) if fresh else "read")
        return fio.Job(pattern, rw, block, depth, threads, path, way == "direct",
                       SIZE[run.quick], FRESH[pattern] // threads if fresh else None,
                       share=pattern in ("SR", "SW"))

    def tables(self, seen):
        text = ""
        for place in self.places:
            for way, load in self.ways:
                row, mine = self.row(place, way, load), self.patterns(place)
                title = f"{place} file, {way}, {load} load"
                text += tables.table(seen, title, [(p, row, p) for p in mine])
                text += tables.table(seen, title + ", latency",
                                     [(p + what, row, p + what) for p in mine
                                      for what in (SLAT, CLAT)], ratios=False)
        return text

    def plots(self, seen):
        panels = [(f"{p}, {place} file, {way}, {load} load", self.row(place, way, load), p)
                  for place, way, load, p in self.rows()]
        file_name = self.name.replace("/", "-")
        return [(file_name, lambda path: plots.bars(path, seen, panels))]


class FioMatrix(Matrix):
    """Xu et al., the fio matrix: random 4 KiB and sequential 128 KiB, low and high load

    The paper runs fio with O_DIRECT on a file of 5 GB, 1 job at depth 1 and 32 jobs at depth 32, in
    a container and on the host. Here the file has 192 MiB, the high load is 4 jobs at depth 8 for
    two processors, and a job runs for a fifth of a second, since all drivers take turns. Two
    things are added. "lower" is a file of the image: its reads are of an unchanged file, and each
    writing job meets a fresh file and does a fixed amount of work (8 MiB random, 64 MiB
    sequential), the copying up included in its rate. "upper" is that file after all of it was
    overwritten in the container. And all is done once more through the page cache, at the low
    load.

    Caches are empty when the O_DIRECT jobs start. A server whose files are not passed through
    reads and writes by way of its own page cache, so its O_DIRECT can be faster than the device:
    such a row is no comparison of devices."""

    name = "xu/fio"
    question = "How fast are the paper's patterns on lower and upper files?"
    drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs-2"
    ways = (("direct", "low"), ("direct", "high"), ("buffered", "low"))
    quick_ways = (("direct", "low"),)
    seconds = 5.0, 1.9

    def cells(self, quick):
        return ["lower"] if quick else list(self.places)

    def measures(self):
        out = []
        for place, way, load, p in self.rows():
            row = self.row(place, way, load)
            fresh = self.is_fresh(place, p)
            out.append(AtMost(row, p, "overlayfs", 1 if fresh else LIMIT, close=True))
            # A peer that reads with its own page cache beats the device, and so any passthrough.
            out += [AtMost(row, p, ref, 1, close=True, must=fresh or way == "buffered")
                    for ref in ("fuse-overlayfs", "fuse-overlayfs-2")]
        return out
