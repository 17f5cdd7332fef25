# SPDX-License-Identifier: Apache-2.0
"""An image built by Podman in ten steps."""

import os
import time

from support import host, plots, podman, rootfs, scenario, tables, trees
from support.measures import AtMost

SCENARIO = "real/build"
BUILT = "localhost/built:1"
# (top directories, subdirectories each, files each) of the image and of what is copied into it
FULL, QUICK = ((10, 10, 40), (2, 5, 40)), ((4, 2, 20), (1, 2, 20))
BIG = 64 * trees.MIB, 4 * trees.MIB
# After the COPY; in a quick run three of them are one step.
STEPS = [
    "mkdir -p /opt/app && cp -r /data/d00 /opt/app",
    "chown -R 1000:1000 /data",
    "dd if=/dev/zero of=/big bs=4096 count=1 seek=100 conv=notrunc 2>/dev/null",
    "find /d00 -type f -exec chmod 600 {} +",
    "find /d01/s00 -type f -exec sh -c 'for f; do echo more >>$f; done' sh {} +",
    "rm -rf /d02",
    "tar cf /tmp/t.tar /d03 && mkdir /again && tar xf /tmp/t.tar -C /again && rm /tmp/t.tar",
    "mv /d01/s01 /opt/moved",
    "ln -s /opt/app /app && echo done >/etc/done",
]
TOGETHER = 1, 3


def build(root, sizes, big):
    rootfs.shell(root)
    trees.names(root, *sizes)
    trees.write_file(root + "/big", big)


def build_context(root, sizes, together):
    os.mkdir(root + "/files")
    trees.names(root + "/files", *sizes)
    with open(root + "/Containerfile", "w", encoding="ascii") as f:
        f.write(f"FROM {podman.IMAGE}\nCOPY files /data\n")
        for i in range(0, len(STEPS), together):
            f.write(f"RUN {' && '.join(STEPS[i:i + together])}\n")


def wrong(point, files, big):
    """What the built tree lacks, "" if nothing."""
    with open(point + "/big", "rb") as f:
        f.seek(100 << 12)
        if f.read(4096) != bytes(4096) or os.path.getsize(point + "/big") != big:
            return "the large file is wrong"
    if os.stat(point + "/data/d00/s00/name-000.txt").st_uid != 1000:
        return "the owner is wrong"
    if os.path.exists(point + "/d02") or os.path.exists(point + "/d01/s01"):
        return "what was removed is there"
    for name in ("opt/moved", "again/d03/s00", "opt/app/d00/s00"):
        if len(os.listdir(f"{point}/{name}")) != files:
            return f"{name} is not whole"
    with open(point + "/d01/s00/name-000.txt", "rb") as f:
        return "" if f.read().endswith(b"more\n") else "what was appended is missing"


class Build(scenario.Scenario):
    """podman build of ten steps

    No paper has this. Ten steps over an image of 4,000 small files and one of 64 MiB, made here:
    files copied in, copied, given away, appended to, removed, packed and unpacked, a directory
    moved, 4 KiB of the large file changed. Each step is committed as a layer: over a mount program
    Podman walks both trees for it, over the kernel's overlayfs it reads the upper. Steps run in a
    chroot. The image is mounted afterwards and looked at. Bytes are those of the layers of the ten
    steps. A quick run makes four steps of them, over a smaller image."""

    name = SCENARIO
    question = "How long does an image of ten steps take to build?"
    drivers = podman.DRIVERS
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs-2"
    seconds = 11.0, 4.0
    headline = [("`podman build` of ten steps", SCENARIO, "time")]

    def __init__(self):
        self.work, self.stores = None, {}

    def cells(self, quick):
        return ["ten steps"]

    def store(self, run, driver, sizes):
        if run.work is not self.work:
            self.work, self.stores = run.work, {}
        if driver.name not in self.stores:
            lower = run.work.lower("host", "build", lambda root: build(root, sizes, BIG[run.quick]))
            self.stores[driver.name] = podman.Store(
                run.work, podman.program_of(driver), lower, must_walk=False)
        return self.stores[driver.name]

    def act(self, run, cell, driver):
        sizes = QUICK if run.quick else FULL
        store = self.store(run, driver, sizes[0])
        folder = run.work.lower(
            "host", "build-context",
            lambda root: build_context(root, sizes[1], TOGETHER[run.quick]))
        host.settle(run.work.root)
        before = host.tree_bytes(store.base + "/graph/overlay")
        with driver.group(run.work):
            start = time.perf_counter()
            store.podman_apart("build", "-q", "--isolation=chroot", "--network=host", "--no-cache",
                               "-t", BUILT, folder)
            run.add(SCENARIO, "time", [time.perf_counter() - start], "s")
            host.sync_fs(run.work.volume("host"))
            grown = host.tree_bytes(store.base + "/graph/overlay") - before
            run.add(SCENARIO, "layer bytes", [grown], "bytes")
            self.check(store, sizes[0][2], BIG[run.quick])
            store.podman("rmi", "-f", BUILT)

    @staticmethod
    def check(store, files, big):
        found = wrong(store.podman("image", "mount", BUILT), files, big)
        store.podman("image", "umount", "-f", BUILT)
        if found:
            raise host.HostError(found)

    def measures(self):
        # Over overlayfs Podman reads the upper, over a mount program it walks both trees.
        return [AtMost(SCENARIO, "time", peer, 1, close=True, must=peer != "overlayfs")
                for peer in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]

    def tables(self, seen):
        columns = [(m, SCENARIO, m) for m in ("time", "layer bytes")]
        return tables.table(seen, "podman build", columns)

    def plots(self, seen):
        panels = [(m, SCENARIO, m) for m in ("time", "layer bytes")]
        return [("real-build", lambda path: plots.bars(path, seen, panels))]
