# SPDX-License-Identifier: Apache-2.0
"""The pause that a container sees when the server of its mount is killed."""

import os
import signal
import time

from support import host, scenario, tables, trees
from support.measures import TailBelow

MOUNTS = 16
KILLS = 10, 6
EVERY_S = 0.7  # between two kills, on average
THINK_S = 0.004  # between two operations of a program
ROW, METRIC = f"own/death/{MOUNTS} mounts", "pause"
LIMIT_MS = 250


def build(root):
    trees.names(root + "/names", 3, 5, 20)
    trees.write_file(root + "/data", trees.MIB)


def operate(path, number, data):
    """A file made, changed, renamed, read and removed, and a block of one from below changed."""
    name, content = f"{path}/{number}", b"%d" % number
    with open(name, "xb", buffering=0) as f:
        f.write(content)
    os.rename(name, name + "r")
    with open(name + "r", "rb") as f:
        if f.read() != content:
            raise host.HostError(f"{name} has another content")
    os.unlink(name + "r")
    off = number * 4096 % trees.MIB
    os.pwrite(data, content, off)
    if os.pread(data, len(content), off) != content:
        raise host.HostError(f"block {off} of {path}/data has another content")


def work(path, end):
    """(begin, end) of each operation until then, in seconds of the machine's clock."""
    seen, number = [], 0
    data = os.open(path + "/data", os.O_RDWR)
    while (begin := time.monotonic()) < end:
        operate(path, number, data)
        seen.append((begin, time.monotonic()))
        number += 1
        time.sleep(THINK_S)
    os.close(data)
    return seen


def start_work(path, end):
    """A process: its id, and where it will write what it saw."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(out)
            text = repr(work(path, end))
            with os.fdopen(into, "w") as f:
                f.write(text)
            code = 0
        finally:
            os._exit(code)
    os.close(into)
    return pid, out


def collect(path, pid, out):
    with os.fdopen(out) as f:
        text = f.read()
    if os.waitpid(pid, 0)[1]:
        raise host.HostError(f"a program in {path} failed while the server was killed")
    return eval(text, {})


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rpartition(")")[2].split()[1])


def kill_server(group):
    """The one of the server's processes that serves; when."""
    pids = group.servers()
    serving = [pid for pid in pids if parent_of(pid) in pids]
    if len(serving) != 1:
        raise host.HostError(f"{len(serving)} processes serve, of {pids}")
    at = time.monotonic()
    os.kill(serving[0], signal.SIGKILL)
    return at


def pauses(kills, operations):
    """Milliseconds: of each death, the longest operation that it met."""
    return [1000 * max(end - begin for begin, end in operations
                       if end >= at and begin < at + 0.5 * EVERY_S) for at in kills]


class Death(scenario.Scenario):
    """A killed server: the pause that programs on 16 mounts see

    No paper has this. 16 mounts of one image are served by one server; on each a program makes,
    changes, renames, reads and removes small files, verifies all of it, and rests for 4 ms. The
    server is killed (SIGKILL) every 0.7 s on average. Of each death and each program the longest
    operation that met it counts. An operation that fails or a wrong byte fails the scenario."""

    name = "own/death"
    question = "How long do programs stand still when the server is killed?"
    drivers = ("veneer",)
    seconds = 11.3, 9.0
    headline = [(f"the pause when the server is killed, {MOUNTS} mounts", ROW, METRIC)]

    def cells(self, quick):
        return [MOUNTS]

    def act(self, run, cell, driver):
        lower = run.lower("death", build)
        count, dice = KILLS[run.quick], run.rng()
        with driver.group(run.work) as group:
            views = [group.add(run.work, lower) for _ in range(cell)]
            end = time.monotonic() + 2 + count * EVERY_S * 1.2
            running = [(v.path, *start_work(v.path, end)) for v in views]
            try:
                kills = self.kill_often(group, count, dice)
            finally:
                seen = [collect(*one) for one in running]
        run.add(ROW, METRIC, [p for operations in seen for p in pauses(kills, operations)], "ms",
                tail=True)

    @staticmethod
    def kill_often(group, count, dice):
        kills = []
        time.sleep(1)
        for _ in range(count):
            kills.append(kill_server(group))
            time.sleep(EVERY_S * dice.uniform(0.7, 1.3))
        return kills

    def measures(self):
        return [TailBelow(ROW, METRIC, LIMIT_MS, "ms")]

    def tables(self, seen):
        return tables.table(seen, "Milliseconds", [("pause", ROW, METRIC)])
