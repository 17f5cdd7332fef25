# SPDX-License-Identifier: Apache-2.0
"""The start of containers of one image while there is less and less memory."""

import os

from support import cgroup, diskstat, host, plots, scenario, starting, tables, trees
from support.measures import AtMost, FlatIn

NAME = "hpmapper/memory"
VIEWS, QUICK_VIEWS = 16, 8
PLENTY = 4 * trees.GIB
# Some 200 MiB are the programs' own.
STEPS = (PLENTY, 768 * trees.MIB, 384 * trees.MIB)
DATA, DATA_BYTES = "var/lib/data.big", 48 * trees.MIB
# Reads it through as a database does that fills its own buffers, and once more in use.
READER = ["/usr/bin/python3", "-S", "-c", starting.IMPORTS + f"""
import os
fd, buf = os.open("/{DATA}", os.O_RDONLY), bytearray(262144)
for i in range(2):
    for off in range(0, {DATA_BYTES}, len(buf)):
        os.preadv(fd, [buf], off)
"""]


def build(root):
    starting.build(root)
    trees.write_file(os.path.join(root, DATA), DATA_BYTES)


def name_of(limit):
    return f"{NAME}/{trees.size_label(limit)}"


class Memory(scenario.Scenario):
    """HP-Mapper Figure 15: start-up with memory cut down

    The paper cuts the host from 12 GB to 4 GB: start-up of its containers takes 5.9 % longer on
    HP-Mapper and 114.5 % longer on Device Mapper. Here 16 views start a Python program that reads
    a 48 MiB file of the image twice, in a memory control group of 4 GiB (more than any driver
    takes), 768 MiB and 384 MiB around all programs, servers and their page cache. The programs
    themselves take some 200 MiB, so a driver with one copy of the image fits and one with 16
    does not."""

    name = NAME
    question = "How does the start of many containers slow down as memory is cut?"
    without = {"native": "one directory is not many views",
               "vfs": "it copies the image for each view",
               "overlayfs-metacopy": "nothing is written, as overlayfs",
               "overlayfs-xfs": "nothing is written, as overlayfs",
               "btrfs": "keeps a copy for each, as in hpmapper/containers",
               "veneer-cached": "keeps what veneer-rootless keeps",
               "veneer-direct": "keeps none, as in hpmapper/containers",
               "fuse-overlayfs-rootless": "keeps what fuse-overlayfs keeps"}
    quick_drivers = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    seconds = 2.2, 0.7

    def cells(self, quick):
        return [trees.size_label(limit) for limit in ((PLENTY, STEPS[-1]) if quick else STEPS)]

    def act(self, run, cell, driver):
        limit = next(n for n in STEPS if trees.size_label(n) == cell)
        lower = run.lower("memory", build)
        device = run.work.device(driver.kind)
        host.drop_caches()
        with cgroup.Memory(limit) as box, driver.group(run.work) as group:
            for _ in range(QUICK_VIEWS if run.quick else VIEWS):
                group.add(run.work, lower)
            before = diskstat.traffic(device)[0]
            taken = starting.start_in(group.views, READER)
            run.add(name_of(limit), "time", [taken], "s")
            run.add(name_of(limit), "data read", [diskstat.traffic(device)[0] - before], "bytes")
            run.add(name_of(limit), "memory used", [box.peak()], "bytes")

    def measures(self):
        least = name_of(STEPS[-1])
        return [FlatIn(least, name_of(PLENTY), "time", 1.25),
                AtMost(least, "time", "overlayfs", 1.5),
                *[AtMost(name_of(n), "time", peer, 1, close=True) for n in STEPS
                  for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]]

    def tables(self, seen):
        return "".join(tables.table(seen, f"{what}, by the memory there is",
                                    [(trees.size_label(n), name_of(n), what) for n in STEPS])
                       for what in ("time", "data read", "memory used"))

    def plots(self, seen):
        panels = [(what, [(name_of(n), what) for n in STEPS]) for what in ("time", "data read")]
        labels = [trees.size_label(n) for n in STEPS]
        return [("hpmapper-memory", lambda path: plots.lines(
            path, seen, panels, list(STEPS), labels, "memory for all"))]
