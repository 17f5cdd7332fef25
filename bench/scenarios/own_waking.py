# SPDX-License-Identifier: Apache-2.0
"""What keeping idle processors awake gives a caller, and what it costs beside busy neighbours."""

import contextlib
import os
import shutil
import subprocess
import time

from support import host, plots, tables, trees
from support.measures import AtMost
from support.scenario import Scenario

AWAKE, ASLEEP = "veneer", "veneer-asleep"
IDLE, BUSY = "idle", "busy"
FULL, QUICK = 2000, 500
# What one request, a few, and many take.
WORKS = ("stat of a name that is not there", "create and write a file", "4 KiB into a lower file")


def build(root):
    for i in range(FULL):
        trees.write_file(f"{root}/f{i}", 4 * trees.KIB)


@contextlib.contextmanager
def neighbours(kind):
    """As many programs that use a whole processor as there are processors."""
    if kind == IDLE:
        yield
        return
    if not shutil.which("stress-ng"):
        raise host.HostError("stress-ng is not installed")
    with subprocess.Popen(["stress-ng", "--quiet", "--cpu", "0"]) as busy:
        try:
            time.sleep(0.3)
            yield
        finally:
            busy.terminate()


def each(count, act):
    """Microseconds of each call."""
    taken = []
    for number in range(count):
        start = time.perf_counter_ns()
        act(number)
        taken.append((time.perf_counter_ns() - start) / 1000)
    return taken


def write_new(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x" * 4096)
    os.close(fd)


def write_lower(path):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"x" * 4096, 0)
    os.close(fd)


class Waking(Scenario):
    """Idle processors that stay awake while requests come

    No paper has this. One caller makes requests one after the other: on an otherwise idle machine, and
    beside as many busy programs (stress-ng) as there are processors, where none is idle and keeping
    them awake must cost nothing. `veneer-asleep` is the same program with `cpu-latency=off`."""

    name = "own/waking"
    question = "What do idle processors that stay awake bring to single requests?"
    drivers = AWAKE, ASLEEP
    seconds = 1.6, 0.8

    def cells(self, quick):
        return [IDLE, BUSY]

    def act(self, run, cell, driver):
        count = QUICK if run.quick else FULL
        lower = run.lower("waking", build)
        with driver.open(run.work, lower, keep=False) as view, neighbours(cell):
            os.listdir(view.path)
            acts = (lambda i: os.path.exists(f"{view.path}/none{i}"), lambda i: write_new(f"{view.path}/new{i}"),
                    lambda i: write_lower(f"{view.path}/f{i}"))
            for work, act in zip(WORKS, acts):
                run.add(f"own/waking/{work}", cell, view.call(each, count, act), "us")

    def measures(self):
        return ([AtMost(f"own/waking/{w}", BUSY, ASLEEP, 1, close=True) for w in WORKS] +
                [AtMost(f"own/waking/{w}", IDLE, ASLEEP, 1, close=True) for w in WORKS])

    def tables(self, seen):
        return "".join(tables.table(seen, f"One caller, processors {cell}", [(w, f"own/waking/{w}", cell) for w in WORKS])
                       for cell in (IDLE, BUSY))

    def plots(self, seen):
        panels = [(f"{w}, {cell}", f"own/waking/{w}", cell) for cell in (IDLE, BUSY) for w in WORKS]
        return [("own-waking", lambda path: plots.bars(path, seen, panels))]
