#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What commit of a container by Podman costs, the mount program serving both sides of it."""

import os
import sys
import time

from support import cli, host, podman, report, trees
from support.measures import AtMost

UNCHANGED, CHANGED = "unchanged", "4K-changed"
# (top directories, subdirectories each, files each; bytes of the one large file)
FULL, QUICK = (25, 20, 60, 64 * trees.MIB), (5, 10, 60, 64 * trees.MIB)


class Containers(podman.Store):
    """The image in a store, and two containers that have run."""

    def __init__(self, base, program, lower):
        super().__init__(base, program, lower)
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


class Commit(cli.Scenario):
    name = "commit"
    title = "Commit of a container by Podman, both trees walked"
    default_rounds = 7

    def __init__(self):
        self.stores, self.plain = {}, 0

    def cells(self, args):
        return [UNCHANGED, CHANGED]

    def lower(self, args, work):
        tops, subs, files, big = QUICK if args.quick else FULL

        def build(root):
            trees.names(root, tops, subs, files)
            trees.write_file(os.path.join(root, "big"), big)
        return work.lower("host", "commit", build)

    def store(self, args, work, driver):
        if driver.name not in self.stores:
            program = podman.program_of(driver)
            store = Containers(work.scratch("host"), program, self.lower(args, work))
            self.plain = int(store.podman("inspect", "-f", "{{.Size}}", podman.IMAGE))
            self.stores[driver.name] = store
        return self.stores[driver.name]

    def act(self, args, work, i, cell, driver, seen):
        store = self.store(args, work, driver)
        store.warm()
        host.settle(work.root)
        big = (QUICK if args.quick else FULL)[-1]
        grown = big if cell == CHANGED else 0
        taken = []
        for _ in range(3):
            seconds, size = store.commit(cell)
            if not 0 <= size - self.plain - grown < trees.MIB:
                raise host.HostError(f"the committed layer has {size - self.plain} bytes")
            taken.append(seconds)
        seen.add(f"commit/{cell}", "time", driver.name, i, taken, "s")

    def measures(self):
        return [AtMost(f"commit/{UNCHANGED}", "time", "overlayfs", 1.5),
                AtMost(f"commit/{CHANGED}", "time", "overlayfs", 1.5, must=False)]

    def needed(self):
        return ["overlayfs"]

    def tables(self, seen):
        columns = [(cell, f"commit/{cell}", "time") for cell in (UNCHANGED, CHANGED)]
        return report.table(seen, "podman commit", columns)

    def plot(self, path, seen):
        return report.plot_bars(path, seen, [(cell, f"commit/{cell}", "time")
                                             for cell in (UNCHANGED, CHANGED)])


if __name__ == "__main__":
    sys.exit(cli.main(Commit()))
