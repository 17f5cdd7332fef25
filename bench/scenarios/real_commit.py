# SPDX-License-Identifier: Apache-2.0
"""What commit of a container by Podman costs, the mount program serving both sides of it."""

import os
import time

from support import host, plots, podman, scenario, tables, trees
from support.measures import AtMost

UNCHANGED, CHANGED = "unchanged", "4K-changed"
# (top directories, subdirectories each, files each; bytes of the one large file)
FULL, QUICK = (15, 20, 40, 64 * trees.MIB), (5, 8, 40, 64 * trees.MIB)


class Containers(podman.Store):
    """The image in a store, and two containers that have run."""

    def __init__(self, work, program, lower):
        super().__init__(work, program, lower)
        for name in (UNCHANGED, CHANGED):
            self.podman("create", "--name", name, *podman.RUN, podman.IMAGE, "/bin/true")
        self.mounted(UNCHANGED, lambda point: os.stat(point + "/big"))
        self.mounted(CHANGED, self.change)

    def mounted(self, name, act):
        act(self.podman("mount", name))
        self.podman("umount", name)

    @staticmethod
    def change(point):
        fd = os.open(point + "/big", os.O_RDWR)
        os.pwrite(fd, b"x" * (4 << 10), 64 << 10)
        os.close(fd)

    def warm(self):
        """Bring the layers and the program into memory, as they are after a container ran."""
        for name in (UNCHANGED, CHANGED):
            self.mounted(name, trees.warm_names)

    def commit(self, name):
        """Seconds. What was listed as changed is checked by the size of the layer."""
        start = time.perf_counter()
        image = self.podman("commit", "-q", name)
        taken = time.perf_counter() - start
        size = int(self.podman("inspect", "-f", "{{.Size}}", image))
        self.podman("rmi", image)
        return taken, size


def scenario_name(what):
    return f"real/commit/{what}"


class Commit(scenario.Scenario):
    """Commit of a container by Podman, both trees walked

    No paper has this; it is what a build does after each step. An image of 12,000 small files and
    one of 64 MiB; a container in which nothing was changed, and one in which 4 KiB of the large
    file were. Podman is made to compare the trees through the mount program, as it does
    over any. The committed layer's size is checked."""

    name = "real/commit"
    question = "How long does the commit of a container take?"
    drivers = podman.DRIVERS
    seconds = 3.0, 1.6

    def __init__(self):
        self.work, self.stores, self.plain = None, {}, 0

    def cells(self, quick):
        return [UNCHANGED] if quick else [UNCHANGED, CHANGED]

    @staticmethod
    def lower(run):
        tops, subs, files, big = QUICK if run.quick else FULL

        def build(root):
            trees.names(root, tops, subs, files)
            trees.write_file(os.path.join(root, "big"), big)
        return run.work.lower("host", "commit", build)

    def store(self, run, driver):
        if run.work is not self.work:
            self.work, self.stores = run.work, {}
        if driver.name not in self.stores:
            program = podman.program_of(driver)
            store = Containers(run.work, program, self.lower(run))
            self.plain = int(store.podman("inspect", "-f", "{{.Size}}", podman.IMAGE))
            self.stores[driver.name] = store
        return self.stores[driver.name]

    def act(self, run, cell, driver):
        big = (QUICK if run.quick else FULL)[-1]
        grown = big if cell == CHANGED else 0
        with driver.group(run.work):
            store = self.store(run, driver)
            store.warm()
            host.settle(run.work.root)
            seconds, size = store.commit(cell)
        if not 0 <= size - self.plain - grown < trees.MIB:
            raise host.HostError(f"the committed layer has {size - self.plain} bytes")
        run.add(scenario_name(cell), "time", [seconds], "s")

    def measures(self):
        return [AtMost(scenario_name(UNCHANGED), "time", "overlayfs", 1.5),
                AtMost(scenario_name(CHANGED), "time", "overlayfs", 1.5, must=False),
                *[AtMost(scenario_name(what), "time", peer, 1, close=True) for what in (UNCHANGED, CHANGED)
                  for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]]

    def tables(self, seen):
        columns = [(what, scenario_name(what), "time") for what in (UNCHANGED, CHANGED)]
        return tables.table(seen, "podman commit", columns)

    def plots(self, seen):
        panels = [(what, scenario_name(what), "time") for what in (UNCHANGED, CHANGED)]
        return [("real-commit", lambda path: plots.bars(path, seen, panels))]
