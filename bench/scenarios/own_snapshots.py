# SPDX-License-Identifier: Apache-2.0
"""Snapshots that go on: a database over one each second, and many branches of one that read the same."""

import contextlib
import os
import threading

from support import cgroup, drivers, fuse, host, tables, trees
from support.measures import AtMost, Below, ByDriver, FlatIn
from support.memory import own_memory
from support.scenario import Scenario

from .real_pgbench import Server, build as build_cluster, sockets

NAME = "own/snapshots"
SHARE = "veneer-share"
NEVER, EACH, KEPT = "without", "a snapshot each second", "the same, squash=4"
RATE = NEVER, EACH, KEPT
VIEWS, PARTLY = "branches", "branches of partial files"
OPTIONS = {NEVER: (), EACH: (), KEPT: ("-o", "squash=4")}
# (pgbench's scale: 15 MB each, transactions before it is timed, seconds)
FULL, QUICK = (20, 1000, 5), (4, 200, 2)
CLIENTS = 2
PERIOD_S = 1
BRANCHES = 64, 8
FILE = 16 * trees.MIB
NAMES = {VIEWS: ("lower", "own"), PARTLY: ("lower", "own", "changed")}
CHANGES = 64


def call(group, *arguments):
    """What it says, where the views of the group are."""
    return host.run(*group.world.prefix(), "env", f"VENEER_RUNTIME_DIR={group.runtime}", drivers.veneer_binary(), *arguments).strip()


class EachSecond(threading.Thread):
    """Takes a snapshot of a mount each second, as a context; the first failure is the step's."""

    def __init__(self, group, path):
        super().__init__()
        self.group, self.path, self.is_over, self.taken, self.error = group, path, threading.Event(), 0, None

    def run(self):
        try:
            while not self.is_over.wait(PERIOD_S):
                call(self.group, "snapshot", self.path)
                self.taken += 1
        except host.HostError as e:
            self.error = e

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()
        if self.error:
            raise self.error


def build_files(root):
    for name in ("lower", "changed"):
        trees.write_file(f"{root}/{name}", FILE)


def change(root, names):
    """What the snapshot has: a file of its own, and perhaps blocks of another."""
    trees.write_file(f"{root}/own", FILE)
    if "changed" not in names:
        return
    with open(f"{root}/changed", "r+b", buffering=0) as f:
        for k in range(CHANGES):
            os.pwrite(f.fileno(), b"w" * 4096, k * (FILE // CHANGES))


def read_all(roots, names):
    buf = bytearray(trees.MIB)
    for root in roots:
        for name in names:
            fd = os.open(f"{root}/{name}", os.O_RDONLY)
            while os.readv(fd, [buf]):
                pass
            os.close(fd)


class Snapshots(Scenario):
    """Snapshots that go on: pgbench over one each second, and 64 branches that read the same

    No paper has this. PostgreSQL works on a cluster in a lower layer (300 MB, scale 20; the quick one 60 MB), as in real/pgbench: on a mount
    without snapshots, on one of which one is taken each second, which accumulate, and on one that makes the oldest of them one (squash=4). All
    three have branches=on. After 1,000 transactions the rate of the next five seconds counts, in which nothing else differs; then the cluster is
    started anew, and the tables must agree with the number of transactions. Then a mount with a lower file of 16 MiB writes another one. Of its
    snapshot 64 branches are mounted (8 in a quick run) and read both: page cache is counted in copies of the files, and what servers have for
    themselves, a branch. Then the same where it has also written 64 blocks of a third file, which the snapshot has in part. veneer-share has
    all of them with share=pages, without privileges. btrfs takes snapshots, overlayfs is unmounted and mounted 64 times over what it has
    written."""

    name = NAME
    question = "What does a snapshot of a mount in use cost, and what do many of them cost its programs?"
    drivers = "overlayfs", "btrfs", "veneer", SHARE
    quick_drivers = "veneer", SHARE
    without = {"vfs": "copies share nothing"}
    seconds = 4.8, 2.5
    headline = [("pgbench, a snapshot each second", f"{NAME}/{EACH}", "transactions"),
                ("64 branches read the same, copies in memory", f"{NAME}/{VIEWS}", "copies")]

    def cells(self, quick):
        return [*RATE, VIEWS, PARTLY]

    def has(self, cell, driver):
        return driver == "veneer" or cell == VIEWS or (cell == PARTLY and driver == SHARE)

    def act(self, run, cell, driver):
        if cell in RATE:
            self.work(run, cell, driver)
        elif driver.is_ours:
            self.branch(run, cell, driver)
        else:
            self.stand_beside(run, cell, driver)

    @staticmethod
    def work(run, cell, driver):
        scale, first, seconds = QUICK if run.quick else FULL
        lower = run.lower("pgbench", lambda root: build_cluster(run.work, root, scale))
        before, where = trees.state(lower), sockets(run.work)
        extra = [*driver.extra, "-o", "branches=on", *OPTIONS[cell]]
        with fuse.Fuse(driver.name, "", driver.binary, extra).group(run.work) as group:
            view = group.add(run.work, lower)
            server = Server(view.path, where, view.argv)
            host.settle(run.work.root)
            with server:
                count = server.history() + server.transactions("-t", str(first // CLIENTS))[0]
                with contextlib.nullcontext() if cell == NEVER else EachSecond(group, view.path) as taking:
                    done, taken = server.transactions("-T", str(seconds))
            run.add(f"{NAME}/{cell}", "transactions", [done / taken], "tps")
            if taking and taking.taken < (seconds - 1) // 2:
                raise host.HostError(f"{taking.taken} snapshots in {seconds} seconds")
            with server:
                server.check(count + done)
        host.run("rm", "-rf", where)
        trees.must_be(lower, before)

    @staticmethod
    def branch(run, cell, driver):
        count = BRANCHES[run.quick]
        lower = run.lower("branches", build_files)
        with cgroup.Memory() as box, driver.group(run.work) as group:
            view = group.add(run.work, lower)
            view.call(change, view.path, NAMES[cell])
            name, own = call(group, "snapshot", view.path), own_memory(group.servers())
            paths = [f"{view.base}/b{k}" for k in range(count)]
            try:
                for path in paths:
                    call(group, "branch", f"{view.path}@{name}", path)
                Snapshots.read(run, cell, box, view, paths)
                run.add(f"{NAME}/{cell}", "server", [(own_memory(group.servers()) - own) / count / trees.KIB], "KiB")
            finally:
                for path in filter(group.world.is_mounted, paths):
                    group.world.unmount(path)

    @staticmethod
    def stand_beside(run, cell, driver):
        """What peers have for branches."""
        lower = run.lower("branches", build_files)
        with cgroup.Memory() as box, contextlib.ExitStack() as views:
            first = views.enter_context(driver.open(run.work, lower, keep=False))
            change(first.path, NAMES[cell])
            below = first.path
            if driver.kind == "host":
                first.unmount()
                below = f"{first.upper}:{lower}"
            paths = [views.enter_context(driver.open(run.work, below, keep=False)).path for _ in range(BRANCHES[run.quick])]
            Snapshots.read(run, cell, box, first, paths)

    @staticmethod
    def read(run, cell, box, view, paths):
        """Page cache in copies of what the branches read."""
        host.drop_caches()
        before = box.cached()
        view.call(read_all, paths, NAMES[cell])
        run.add(f"{NAME}/{cell}", "copies", [(box.cached() - before) / (FILE * len(NAMES[cell]))], "x")

    def measures(self):
        views = f"{NAME}/{VIEWS}"
        both = [(f"{NAME}/{cell}", driver) for cell in (VIEWS, PARTLY) for driver in ("veneer", SHARE)]
        # Rates are compared as times: at least 0.9x the rate.
        return [FlatIn(f"{NAME}/{cell}", f"{NAME}/{NEVER}", "transactions", 1 / 0.9, must=False) for cell in (EACH, KEPT)] + \
            [ByDriver(driver, Below(row, "copies", 1.1)) for row, driver in both] + \
            [ByDriver(driver, Below(row, "server", 32, must=False)) for row, driver in both] + \
            [AtMost(views, "copies", peer, 1, must=False) for peer in ("btrfs", "overlayfs")]

    def tables(self, seen):
        return tables.table(seen, "pgbench, transactions a second", [(cell, f"{NAME}/{cell}", "transactions") for cell in RATE], ratios=False) + \
            "".join(tables.table(seen, f"{cell} that read the same", [(metric, f"{NAME}/{cell}", metric) for metric in ("copies", "server")],
                                 ratios=False) for cell in (VIEWS, PARTLY))
