# SPDX-License-Identifier: Apache-2.0
"""Package managers at work in a container, offline."""

import os
import time

from support import host, packages, plots, scenario, tables, trees
from support.measures import AtMost

PIP, DPKG = "pip", "dpkg"
NEW, UPGRADE = "new", "upgrade"
CELLS = [(tool, what) for tool in (PIP, DPKG) for what in (NEW, UPGRADE)]
# (packages, files in each)
FULL, QUICK = (8, 80), (4, 50)


def scenario_name(tool, what):
    return f"real/install/{tool}-{what}"


def installed(path, tool, count):
    """How many files of version 2 there are."""
    if tool == PIP:
        names = os.listdir(path + "/site")
        return sum(len([f for f in os.listdir(f"{path}/site/bench_{i}") if f.endswith(".py")]) - 1
                   for i in range(count) if f"bench_{i}-2.dist-info" in names)
    with open(path + "/var/lib/dpkg/status", encoding="ascii") as f:
        if f.read().count("Version: 2\n") != count:
            return 0
    return sum(len(files) for i in range(count)
               for _, _, files in os.walk(f"{path}/usr/share/bench-{i}"))


class Install(scenario.Scenario):
    """pip install and dpkg -i, offline: what is new, and what the image has in an older version

    No paper has this. 8 wheels of 80 modules, which pip also compiles, and 8 Debian packages of
    80 files each, all made here, into a tree of the view; names of the lower are warm. pip unpacks
    in a directory of the view and moves from there. dpkg syncs as it does by default."""

    name = "real/install"
    question = "How long do installations of packages take?"
    without = {"overlayfs-metacopy": "as overlayfs where data is written",
               "vfs": "as native once its copy is made", "veneer-direct": "as veneer",
               "overlayfs-xfs": "as overlayfs where files are small",
               "btrfs": "as native once its snapshot is made",
               "veneer-cached": "as veneer where all is new",
               "veneer-rootless": "as veneer where all is new",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 1.2, 0.8

    def cells(self, quick):
        return [f"{tool}-{what}" for tool, what in CELLS if not quick or what == UPGRADE]

    @staticmethod
    def packages(run, tool, version, sizes):
        """Folder of those of a version."""
        make = packages.wheels if tool == PIP else packages.debs
        return run.work.lower("host", f"install-{tool}-{version}",
                              lambda root: make(root, *sizes, version))

    def argv(self, run, tool, root, version, sizes):
        folder = self.packages(run, tool, version, sizes)
        if tool == PIP:
            return packages.pip(root, folder, sizes[0], version)
        return packages.dpkg(root, sorted(os.path.join(folder, n) for n in os.listdir(folder)))

    def build(self, run, tool, what, sizes):
        def fill(root):
            packages.dpkg_root(root)
            if what == UPGRADE:
                host.run(*self.argv(run, tool, root, 1, sizes))
        return fill

    def act(self, run, cell, driver):
        tool, what = cell.split("-")
        sizes = QUICK if run.quick else FULL
        lower = run.lower(f"install-{tool}-{what}", self.build(run, tool, what, sizes))
        before = trees.state(lower)
        trees.warm_names(lower)
        with driver.open(run.work, lower, keep=False) as view:
            argv = self.argv(run, tool, view.path, 2, sizes)
            host.settle(run.work.root)
            start = time.perf_counter()
            view.run(*argv)
            run.add(scenario_name(tool, what), "time", [time.perf_counter() - start], "s")
            found = view.call(installed, view.path, tool, sizes[0])
            if found != sizes[0] * sizes[1]:
                raise host.HostError(f"{found} files were installed, not {sizes[0] * sizes[1]}")
        trees.must_be(lower, before)

    def measures(self):
        return [AtMost(scenario_name(*cell), "time", peer, 1, close=True, must=peer != "overlayfs")
                for cell in CELLS for peer in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]

    def tables(self, seen):
        columns = [(f"{tool}, {what}", scenario_name(tool, what), "time") for tool, what in CELLS]
        return tables.table(seen, "Installing", columns)

    def plots(self, seen):
        panels = [(f"{tool}, {what}", scenario_name(tool, what), "time") for tool, what in CELLS]
        return [("real-install", lambda path: plots.bars(path, seen, panels))]
