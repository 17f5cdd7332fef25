#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What commit of a container by Podman costs, the mount program serving both sides of it."""

import os
import shutil
import subprocess
import sys
import time

from support import cli, drivers, host, report, trees
from support.measures import AtMost

IMAGE = "localhost/bench:1"
UNCHANGED, CHANGED = "unchanged", "4K-changed"
# Debian's crun takes no hybrid cgroup tree; without a network nothing but the tree is set up.
RUN = ("--network=none", "--cgroups=disabled", "--ulimit=nofile=1024:1024",
       "--ulimit=nproc=4096:4096")

# (top directories, subdirectories each, files each; bytes of the one large file)
FULL, QUICK = (25, 20, 60, 64 * trees.MIB), (5, 10, 60, 64 * trees.MIB)


class Store:
    """A store of Podman's own on one driver; the image in it, and one container that has run.

    Podman walks both trees over a mount program. On overlayfs it would read the upper instead, so
    the file in which it remembers that it may is made beforehand, saying no.
    """

    def __init__(self, base, program, lower):
        self.base = base
        os.makedirs(base + "/run/overlay")
        with open(base + "/run/overlay/native-diff()-false", "wb"):
            pass
        with open(base + "/storage.conf", "w", encoding="ascii") as f:
            f.write(f'[storage]\ndriver = "overlay"\nrunroot = "{base}/run"\n'
                    f'graphroot = "{base}/graph"\n')
            if program:
                f.write(f'[storage.options.overlay]\nmount_program = "{program}"\n')
        with open(base + "/containers.conf", "w", encoding="ascii") as f:
            f.write('[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
                    f'lock_type = "file"\ntmp_dir = "{base}/run/libpod"\n')
        self.env = {**os.environ, "HOME": base, "TMPDIR": base, "XDG_RUNTIME_DIR": base,
                    "CONTAINERS_STORAGE_CONF": base + "/storage.conf",
                    "CONTAINERS_CONF": base + "/containers.conf"}
        tar = subprocess.Popen(["tar", "cf", "-", "-C", lower, "."], stdout=subprocess.PIPE)
        self.podman("import", "-q", "-", IMAGE, stdin=tar.stdout)
        tar.stdout.close()
        if tar.wait():
            raise host.HostError("tar failed")
        self.podman("create", "--name", UNCHANGED, *RUN, IMAGE, "/bin/true")
        self.podman("create", "--name", CHANGED, *RUN, IMAGE, "/bin/true")
        self.mounted(UNCHANGED, lambda point: os.stat(point + "/big"))
        self.mounted(CHANGED, self.change)

    def podman(self, *args, stdin=subprocess.DEVNULL):
        done = subprocess.run(["podman", *args], env=self.env, stdin=stdin, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise host.HostError(f"podman {' '.join(args)}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

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
            if not shutil.which("podman"):
                raise host.HostError("podman is not installed")
            if not isinstance(driver, drivers.Fuse) and driver.name != "overlayfs":
                raise host.HostError("no driver of Podman")
            binary = getattr(driver, "binary", None)
            store = Store(work.scratch("host"), binary and os.path.abspath(binary),
                          self.lower(args, work))
            self.plain = int(store.podman("inspect", "-f", "{{.Size}}", IMAGE))
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
