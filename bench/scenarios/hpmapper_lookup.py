# SPDX-License-Identifier: Apache-2.0
"""What look-ups take in the server's own structures, and what memory a mount takes."""

import json
import os

from support import host, memory, programs, scenario, tables, trees
from support.measures import Below

NAME = "hpmapper/lookup"
LOOKUP, MEMORY = "structures", "metadata"
DATA_BYTES = 64 * trees.MIB
CHANGED = 64


def build(root):
    trees.names(root, 5, 10, 60)


def build_data(root):
    trees.write_file(os.path.join(root, "data"), DATA_BYTES)
    trees.equal_files(root, 64 * trees.KIB, CHANGED)


def slab():
    """Bytes of the kernel's own objects."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Slab:")) * trees.KIB


def look_at_all(roots):
    for root in roots:
        trees.warm_names(root)


def change_some(roots):
    for root in roots:
        for i in range(CHANGED):
            fd = os.open(f"{root}/f{i:04}", os.O_RDWR)
            os.pwrite(fd, b"x" * 4096, 8192)
            os.close(fd)


class Lookup(scenario.Scenario):
    """HP-Mapper Table 3: cost of a look-up, and memory of the metadata

    The paper gives 1.1 us for a look-up in its mapping tree, less than 0.1 us for one in its hash
    table, and 3.3 MB and 10.6 MB of memory for both with 64 containers. Here a program calls the
    map of a partial file (every 16th and every 128th block own, 16 MiB and 1 GiB) and the index
    of the block cache two million times at random. Then 64 views are mounted; in 32 a block is
    changed in each of 64 files, which is the counterpart of the paper's memory; in the other
    32 a tree of 3,000 names is walked, and what the servers and the kernel keep of names is no
    part of the paper's. The servers' memory is what they have for themselves, the kernel's its
    slab, that of the whole machine."""

    name = NAME
    question = "What does a look-up in a map cost, and how much memory do 64 mounts take?"
    without = {"native": "one directory is not many views",
               "vfs": "it has no metadata of its own",
               "overlayfs-metacopy": "as overlayfs", "overlayfs-xfs": "as overlayfs",
               "btrfs": "one file system and no union",
               "veneer-cached": "names are the same in all modes",
               "veneer-direct": "names are the same in all modes",
               "veneer-rootless": "names are the same in all modes",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "overlayfs", "veneer"
    seconds = 2.8, 0.5

    def cells(self, quick):
        return [LOOKUP, MEMORY]

    def has(self, cell, driver):
        return cell == MEMORY or driver == "veneer"

    def act(self, run, cell, driver):
        if cell == MEMORY:
            self.memory(run, driver)
        else:
            self.look_up(run)

    @staticmethod
    def look_up(run):
        lower = run.lower("lookup", build_data)
        text = host.run(programs.path("bench-lookup"), os.path.join(lower, "data"))
        for line in text.splitlines():
            seen = json.loads(line)
            name = f"{NAME}/{seen['what']}"
            run.add(name, "look-up", [seen["ns"] / 1000], "us")
            if seen["what"].startswith("map"):
                run.add(name, "memory", [seen["bytes"]], "bytes")

    @staticmethod
    def memory(run, driver):
        names, data = run.lower("names", build), run.lower("lookup", build_data)
        name = f"{NAME}/{MEMORY}"
        with driver.group(run.work) as group:
            host.drop_caches()
            trees.warm_names(names)
            trees.warm_names(data)
            kernel, half = slab(), 4 if run.quick else 32
            views = [[group.add(run.work, lower) for _ in range(half)] for lower in (data, names)]
            run.add(name, "servers, mounted", [memory.own_memory(group.servers())], "bytes")
            for what, function, some in (("changed", change_some, views[0]),
                                         ("walked", look_at_all, views[1])):
                some[0].call(function, [view.path for view in some])
                run.add(name, f"servers, {what}", [memory.own_memory(group.servers())], "bytes")
            run.add(name, "kernel's slab", [slab() - kernel], "bytes")

    def measures(self):
        out = [Below(f"{NAME}/{what}", "look-up", limit) for what, limit in
               (("map of 16M", 1.1), ("map of 1G", 1.1), ("map of 1G, scattered", 1.1),
                ("block cache", 1.1))]
        return out + [Below(f"{NAME}/{MEMORY}", "servers, changed", 14 * trees.MIB)]

    def tables(self, seen):
        maps = ("map of 16M", "map of 1G", "map of 1G, scattered", "block cache")
        text = tables.table(seen, "One look-up", [(m, f"{NAME}/{m}", "look-up") for m in maps],
                            ratios=False)
        text += tables.table(seen, "Memory of one map", [(m, f"{NAME}/{m}", "memory")
                                                         for m in maps], ratios=False)
        columns = ("servers, mounted", "servers, changed", "servers, walked", "kernel's slab")
        return text + tables.table(seen, "64 mounts, half of them changed, then the others walked",
                                   [(m, f"{NAME}/{MEMORY}", m) for m in columns], ratios=False)
