# SPDX-License-Identifier: Apache-2.0
"""The start of containers of one image from a slow device."""

from support import cgroup, diskstat, host, plots, scenario, starting, tables, trees
from support.measures import AtMost, Faster

NAME = "hpmapper/throttled"
COUNTS, QUICK = (1, 4, 16), (4,)
RATE, REQUESTS = 40 * trees.MIB, 800


def name_of(count):
    return f"{NAME}/{count}"


class Throttled(scenario.Scenario):
    """HP-Mapper Figures 11 and 14: the start from a slow device

    The paper repeats the start of its containers on a hard disk, where HP-Mapper is 2.0 to 7.2
    times as fast as the others. Here 1, 4 and 16 views start a Python program that changes eight
    blocks of an 8 MiB database; a control group lets all of them and their servers together have
    40 MiB and 800 requests a second, each way, of the loop device below the views. No seek is
    longer than another, so what is shown is the cost of reading things twice and of copying."""

    name = NAME
    question = "How long do 1 to 16 views take to start from a slow device?"
    without = {"native": "one directory is not many views",
               "vfs": "it copies the image for each view",
               "overlayfs-metacopy": "copies what is opened for writing, as overlayfs",
               "overlayfs-xfs": "what it copies it shares, xu/backing",
               "veneer-rootless": "differs in what it keeps, not in what it reads first",
               "fuse-overlayfs-rootless": "reads what fuse-overlayfs reads",
               "veneer-cached": "differs in what it keeps, not in what it reads first",
               "veneer-direct": "differs in what it keeps, not in what it reads first"}
    quick_drivers = ("overlayfs", "veneer", "fuse-overlayfs-2", "btrfs")
    seconds = 1.9, 1.5

    def cells(self, quick):
        return list(QUICK if quick else COUNTS)

    def act(self, run, cell, driver):
        lower = run.lower("start", starting.build)
        device = run.work.device(driver.kind)
        with (cgroup.Device(device, RATE, REQUESTS) as box,
              driver.group(run.work) as group):
            for _ in range(cell):
                group.add(run.work, lower)
            host.drop_caches()
            before = diskstat.traffic(device)[0]
            try:
                taken = starting.start_in(group.views, starting.WRITER)
            finally:
                box.lift()
            run.add(name_of(cell), "time", [taken], "s")
            run.add(name_of(cell), "data read", [diskstat.traffic(device)[0] - before], "bytes")

    def measures(self):
        return [Faster(name_of(COUNTS[-1]), "time", "btrfs", 2)] + [
            AtMost(name_of(n), "time", peer, 1)
            for n in COUNTS for peer in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]

    def tables(self, seen):
        return "".join(tables.table(seen, f"{what}, by the number of views",
                                    [(str(n), name_of(n), what) for n in COUNTS])
                       for what in ("time", "data read"))

    def plots(self, seen):
        panels = [(what, [(name_of(n), what) for n in COUNTS]) for what in ("time", "data read")]
        labels = [str(n) for n in COUNTS]
        return [("hpmapper-throttled", lambda path: plots.lines(
            path, seen, panels, list(COUNTS), labels, "views started at once"))]
