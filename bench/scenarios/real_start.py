# SPDX-License-Identifier: Apache-2.0
"""What the start of one container costs, by engine."""

import time

from support import docker, host, plots, podman, rootfs, scenario, tables
from support.measures import AtMost

PODMAN, DOCKER = "podman", "docker"
ENGINES = (PODMAN, DOCKER)
COUNT = (3, 2)
WROTE = "echo changed >/etc/there; cat /etc/there"


def scenario_name(engine):
    return f"real/start/{engine}"


def build(root):
    rootfs.shell(root)
    with open(root + "/etc/there", "w", encoding="ascii") as f:
        f.write("from the image\n")


def timed_runs(run_one, count):
    """Seconds of each container; the first, which pays for what is new to the engine, left out."""
    taken = []
    for _ in range(count + 1):
        start = time.perf_counter()
        said = run_one("/bin/sh", "-c", WROTE)
        taken.append(time.perf_counter() - start)
        if said != "changed":
            raise host.HostError(f"the container said {said}")
    return taken[1:]


class Start(scenario.Scenario):
    """A container that writes one file, from run to removed, by Podman and by Docker

    No paper has this alone. An image of a static busybox, no network; Podman runs without cgroups.
    Most of the time is the engine's: the driver mounts, copies one small file up, unmounts. Docker
    has a daemon of its own a round. The first container is not counted."""

    name = "real/start"
    question = "How long does a container take that writes one file, from run to removed?"
    drivers = podman.DRIVERS
    seconds = 2.6, 0.8
    headline = [(f"a container by {e}, run to removed", scenario_name(e), "time") for e in ENGINES]

    def cells(self, quick):
        return [PODMAN] if quick else list(ENGINES)

    def act(self, run, cell, driver):
        program = podman.program_of(driver)
        lower = run.work.lower("host", "start", build)
        with driver.group(run.work):
            act = self.podman if cell == PODMAN else self.docker
            taken = act(run.work, program, lower, COUNT[run.quick])
        run.add(scenario_name(cell), "time", taken, "s")

    @staticmethod
    def podman(work, program, lower, count):
        store = podman.Store(work, program, lower, must_walk=False)
        try:
            return timed_runs(lambda *argv: store.podman_apart("run", "--rm", *podman.RUN,
                                                               podman.IMAGE, *argv), count)
        finally:
            store.close()

    @staticmethod
    def docker(work, program, lower, count):
        base = work.scratch("host")
        with docker.Daemon(base, program, lower) as daemon:
            taken = timed_runs(lambda *argv: daemon.docker("run", "--rm", *docker.RUN,
                                                           docker.IMAGE, *argv), count)
        for point in reversed(host.mounts_below(base)):
            host.unmount(point)
        host.run("rm", "-rf", "--one-file-system", base)
        return taken

    def measures(self):
        return [AtMost(scenario_name(engine), "time", peer, 1, close=True)
                for engine in ENGINES
                for peer in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")]

    def tables(self, seen):
        columns = [(engine, scenario_name(engine), "time") for engine in ENGINES]
        return tables.table(seen, "One container", columns)

    def plots(self, seen):
        panels = [(engine, scenario_name(engine), "time") for engine in ENGINES]
        return [("real-start", lambda path: plots.bars(path, seen, panels))]
