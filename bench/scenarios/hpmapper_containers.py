# SPDX-License-Identifier: Apache-2.0
"""Many containers of one image: data read and written, page cache and time of their start."""

import os
import time

from support import cgroup, diskstat, host, plots, podman, scenario, starting, tables, trees
from support.measures import AtMost, Below, Faster
from support.memory import own_memory

NAME = "hpmapper/containers"
READ, WRITE, PODMAN = "programs", "programs that write", "podman"
# What Podman can be given, and what is worth its time.
BY_PODMAN = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
READERS = ("overlayfs", "veneer", "veneer-direct", "veneer-rootless", "fuse-overlayfs",
           "fuse-overlayfs-2", "btrfs", "dm-thin")
WRITERS = (*BY_PODMAN, "dm-thin")
METRICS = ("time", "data read", "data written", "page cache", "servers")


def count(cell, quick):
    return 8 if quick else 16 if cell == PODMAN else 64


class Usage:
    """What the machine has read, written and kept since this was made."""

    def __init__(self, device, box):
        host.drop_caches()
        self.device, self.box, self.cached = device, box, box.cached()
        self.read, self.written = diskstat.traffic(device)

    def add(self, run, name, taken, servers):
        run.add(name, "time", [taken], "s")
        os.sync()
        read, written = diskstat.traffic(self.device)
        run.add(name, "data read", [read - self.read], "bytes")
        run.add(name, "data written", [written - self.written], "bytes")
        run.add(name, "page cache", [self.box.cached() - self.cached], "bytes")
        run.add(name, "servers", [own_memory(servers)], "bytes")


class Containers(scenario.Scenario):
    """HP-Mapper Figures 2, 3, 9 and 10: start of 64 containers of one image

    The paper starts 64 containers of Vault, MySQL and the like on Device Mapper, btrfs, overlay2
    and HP-Mapper and reads how much their start reads from the device and writes to it, what page
    cache it fills and how long it takes. Here the image is a Python with its modules and an 8 MiB
    database, made of this machine's files, as none may be fetched. A program is started at once in
    64 views, with all caches empty: one that reads a hundred modules, and one that also
    changes eight blocks of the database and goes on with a log. One start and then 63 at once,
    before that, tell how much of what the first read is read again by all others together. At last 16 containers are started one
    after the other by Podman and stay alive. Read and written is what the loop device below the
    views says, after a sync."""

    name = NAME
    question = "How long do 64 containers of one image take to start, and what do they hold in memory?"
    without = {"native": "one directory is not many views",
               "vfs": "64 copies of the image take minutes and its own disk",
               "overlayfs-metacopy": "copies what is opened for writing, as overlayfs",
               "veneer-cached": "keeps what veneer-rootless keeps",
               "fuse-overlayfs-rootless": "keeps what fuse-overlayfs keeps"}
    quick_drivers = (*BY_PODMAN, "veneer-rootless")
    headline = (("64 starts: seconds", f"{NAME}/{READ}", "time"),
                ("64 starts: page cache", f"{NAME}/{READ}", "page cache"),
                ("64 starts that write: page cache", f"{NAME}/{WRITE}", "page cache"),
                ("64 starts that write: data written", f"{NAME}/{WRITE}", "data written"))
    seconds = 5.2, 0.9

    def cells(self, quick):
        return [READ, WRITE] if quick else [READ, WRITE, PODMAN]

    def has(self, cell, driver):
        return driver in {READ: READERS, WRITE: WRITERS, PODMAN: BY_PODMAN}[cell]

    def act(self, run, cell, driver):
        lower = run.lower("start", starting.build)
        if cell == PODMAN:
            self.by_podman(run, driver, lower)
            return
        before = trees.state(lower)
        if cell == READ:
            self.twice(run, driver, lower)
        with cgroup.Memory() as box, driver.group(run.work) as group:
            for _ in range(count(cell, run.quick)):
                group.add(run.work, lower)
            self.all_at_once(run, cell, group, box)
        trees.must_be(lower, before)

    @staticmethod
    def twice(run, driver, lower):
        device, seen = run.work.device(driver.kind), []
        with driver.group(run.work) as group:
            views = [group.add(run.work, lower) for _ in range(count(READ, run.quick))]
            host.drop_caches()
            seen.append(diskstat.traffic(device)[0])
            for some in (views[:1], views[1:]):
                starting.start_in(some, starting.PROGRAM)
                seen.append(diskstat.traffic(device)[0])
        first, others = seen[1] - seen[0], seen[2] - seen[1]
        run.add(f"{NAME}/{READ}", "others read of first", [100 * others / max(first, 1)], "%")

    @staticmethod
    def all_at_once(run, cell, group, box):
        usage = Usage(run.work.device(run.driver.kind), box)
        program = starting.PROGRAM if cell == READ else starting.WRITER
        taken = starting.start_in(group.views, program)
        usage.add(run, f"{NAME}/{cell}", taken, group.servers())

    @staticmethod
    def by_podman(run, driver, lower):
        program = podman.program_of(driver)
        # What the image's own layer costs is paid once, beforehand.
        store = podman.Store(run.work, program, lower)
        names = [f"c{k}" for k in range(count(PODMAN, run.quick))]
        argv = [*starting.PROGRAM[:-1],
                starting.PROGRAM[-1] + "; import time; time.sleep(3600)"]
        with cgroup.Memory() as box, driver.group(run.work) as group:
            usage = Usage(run.work.device(driver.kind), box)
            start = time.perf_counter()
            try:
                for name in names:
                    store.podman_apart("run", "-d", "--name", name, *podman.RUN, podman.IMAGE,
                                       *argv)
                taken = time.perf_counter() - start
                alive = len(store.podman("ps", "-q").split())
                if alive != len(names):
                    raise host.HostError(f"{alive} of {len(names)} containers live")
                usage.add(run, f"{NAME}/{PODMAN}", taken, group.servers())
            finally:
                store.close()

    def measures(self):
        read, write, by_podman = (f"{NAME}/{cell}" for cell in (READ, WRITE, PODMAN))
        out = [Below(read, "others read of first", 2), Below(read, "servers", 128 * trees.MIB),
               AtMost(read, "time", "overlayfs", 1.5),
               AtMost(read, "time", "overlayfs", 1.15, must=False),
               AtMost(by_podman, "time", "overlayfs", 1.25),
               AtMost(by_podman, "page cache", "overlayfs", 1.2)]
        for peer in ("fuse-overlayfs", "fuse-overlayfs-2"):
            out += [Faster(cell, "time", peer, 1) for cell in (read, write, by_podman)]
        return out + [AtMost(write, "time", "overlayfs", 1),
                      AtMost(write, "data written", "overlayfs", 1 - 0.853)]

    def tables(self, seen):
        def columns(cell, *more):
            return [(m, f"{NAME}/{cell}", m) for m in (*METRICS, *more)]
        text = tables.table(seen, "A Python program started in 64 views at once",
                            columns(READ, "others read of first"))
        text += tables.table(seen, "One that also changes eight blocks of 8 MiB", columns(WRITE))
        return text + tables.table(seen, "16 containers by Podman, all alive", columns(PODMAN))

    def plots(self, seen):
        panels = [(f"{cell}: {m}", f"{NAME}/{cell}", m) for cell in (READ, WRITE)
                  for m in ("time", "data read" if cell == READ else "data written", "page cache")]
        return [("hpmapper-containers", lambda path: plots.bars(path, seen, panels))]
