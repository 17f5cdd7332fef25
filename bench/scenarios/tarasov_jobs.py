# SPDX-License-Identifier: Apache-2.0
"""Real jobs in one and in many containers: a compilation and a package manager."""

import os

from support import host, packages, plots, scenario, tables, trees
from support.measures import AtMost
from support.together import command, together

COMPILE, UPGRADE = "compile", "upgrade"
JOBS = (COMPILE, UPGRADE)
VIEWS, QUICK_VIEWS = (1, 3, 8), (3,)
# (C files, headers, packages, files in each)
FULL, QUICK = (5, 30, 4, 80), (2, 30, 2, 50)


def scenario_name(job, views):
    return f"tarasov/jobs/{job}/{views}"


def build(work, root, sizes):
    files, headers, count, each = sizes
    packages.sources(os.path.join(root, "src"), files, headers)
    packages.dpkg_root(root)
    folder = work.scratch("host")
    host.run(*packages.dpkg(root, packages.debs(folder, count, each, 1)))
    host.run("rm", "-rf", folder)


def compiled(path, files):
    return os.path.exists(f"{path}/src/program") and all(
        os.path.getsize(f"{path}/src/c{i}.o") for i in range(files))


def upgraded(path, count):
    """What dpkg knows, and a file of each package compared with its list of sums."""
    with open(path + "/var/lib/dpkg/status", encoding="ascii") as f:
        text = f.read()
    return text.count("install ok installed") == count and text.count("Version: 2\n") == count


class Jobs(scenario.Scenario):
    """Tarasov et al., real work: a compilation and a system upgrade, in 1 to 8 containers

    The paper compiles a kernel and upgrades a system by its package manager in 1 to over 10
    containers. Here make compiles 5 generated C files that include 30 headers from the lower, and
    dpkg -i upgrades 4 packages of 80 files each that the lower has in an older version; the
    programs themselves are the machine's. The time is from the first start to the last end. What
    was made is looked at afterwards. In place one tree a view is copied before."""

    name = "tarasov/jobs"
    question = "How long do a compilation and an upgrade take in 1 to 8 containers at once?"
    drivers = ("native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 1.3, 0.5

    def cells(self, quick):
        return [f"{job}/{n}" for job in JOBS for n in (QUICK_VIEWS if quick else VIEWS)]

    def has(self, cell, driver):
        return driver != "native" or cell.endswith("/3")

    def debs(self, run, sizes):
        folder = run.work.lower("host", "jobs-debs",
                                lambda root: packages.debs(root, *sizes[2:], 2))
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    def act(self, run, cell, driver):
        job, count = cell.split("/")
        count = int(count)
        sizes = QUICK if run.quick else FULL
        lower = run.lower("jobs", lambda root: build(run.work, root, sizes))
        argv = (["make", "-s", "-C", "VIEW/src"] if job == COMPILE else
                packages.dpkg("VIEW", self.debs(run, sizes)))
        check = (compiled, sizes[0]) if job == COMPILE else (upgraded, sizes[2])
        before = trees.state(lower)
        trees.warm_names(lower)
        with driver.apart(run.work) as group:
            views = [group.add(run.work, lower) for _ in range(count)]
            host.settle(run.work.root)
            done = together(views, command, [argv] * count)
            run.add(scenario_name(job, count), "time", [done.seconds], "s")
            for view in views:
                if not view.call(check[0], view.path, check[1]):
                    raise host.HostError(f"{job} did not make what it should")
        trees.must_be(lower, before)

    def measures(self):
        out = []
        for job in JOBS:
            for n in VIEWS:
                name = scenario_name(job, n)
                out += [AtMost(name, "time", "fuse-overlayfs", 1, close=True),
                        AtMost(name, "time", "fuse-overlayfs-2", 1, close=True),
                        AtMost(name, "time", "overlayfs", 1.15, must=False)]
        return out

    def tables(self, seen):
        text = ""
        for job in JOBS:
            columns = [(f"{n}", scenario_name(job, n), "time") for n in VIEWS]
            text += tables.table(seen, f"{job}, by number of containers", columns)
        return text

    def plots(self, seen):
        panels = [(job, [(scenario_name(job, n), "time") for n in VIEWS]) for job in JOBS]
        return [("tarasov-jobs", lambda path: plots.lines(
            path, seen, panels, list(VIEWS), [str(n) for n in VIEWS], "containers"))]
