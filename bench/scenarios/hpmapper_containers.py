#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Containers of one image started by Podman one after the other, all alive at the end."""

import os
import sys
import time

from siblings import PROGRAM
from support import cli, host, podman, report, rootfs
from support.measures import AtMost
from support.memory import cached, own_memory

START = "start"


def scale(args):
    return 8 if args.quick else 64


class Containers(cli.Scenario):
    name = "containers"
    title = "Containers of one image, by Podman"
    default_rounds = 3

    def cells(self, args):
        return [START]

    def act(self, args, work, i, cell, driver, seen):
        program = podman.program_of(driver)
        lower = work.lower("host", "podman", rootfs.build)
        names = [f"c{k}" for k in range(scale(args))]
        # What the image's own layer costs is paid once, beforehand.
        store = podman.Store(work.scratch("host"), program, lower)
        with driver.group(work) as group:
            host.drop_caches()
            before, start = cached(), time.perf_counter()
            try:
                for name in names:
                    store.podman_apart("run", "-d", "--name", name, *podman.RUN, podman.IMAGE,
                                       PROGRAM[0], "-S", "-c",
                                       PROGRAM[-1] + "; import time; time.sleep(3600)")
                taken = time.perf_counter() - start
                alive = store.podman("ps", "-q").split()
                if len(alive) != len(names):
                    raise host.HostError(f"{len(alive)} of {len(names)} containers live")
                seen.add("containers", "time", driver.name, i, [taken], "s")
                seen.add("containers", "page cache", driver.name, i, [cached() - before], "bytes")
                seen.add("containers", "servers", driver.name, i, [own_memory(group.servers())],
                         "bytes")
            finally:
                store.podman_apart("rm", "-fa", "-t", "0")
                os.sync()

    def measures(self):
        return [AtMost("containers", "time", "overlayfs", 1.25),
                AtMost("containers", "page cache", "overlayfs", 1.2)]

    def needed(self):
        return ["overlayfs", "fuse-overlayfs", "fuse-overlayfs-2"]

    def tables(self, seen):
        columns = [(m, "containers", m) for m in ("time", "page cache", "servers")]
        return report.table(seen, "All started and alive", columns)

    def plot(self, path, seen):
        return report.plot_bars(path, seen, [(m, "containers", m) for m in ("time", "page cache")])


if __name__ == "__main__":
    sys.exit(cli.main(Containers()))
