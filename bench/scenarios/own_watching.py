# SPDX-License-Identifier: Apache-2.0
"""What it costs to be watched by Prometheus."""

import contextlib
import http.client
import os
import socket
import tempfile
import threading
import time

from support import host, scenario, tables, trees
from support.measures import AtLeast, Below

MOUNTS = 16
PAIRS = 1, 2
SLICE_S = 1.0  # a slice with one scrape in it, then one without
SCRAPES_S = 1.0
ROW = f"own/watching/{MOUNTS} mounts"
PROCESSOR, LEFT = "processor", "work left"


def build(root):
    for i in range(50):
        trees.write_file(f"{root}/f{i}", 16 * trees.KIB)


class _Asking(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self._path)


def scrape(path):
    with contextlib.closing(_Asking(path)) as asking:
        asking.request("GET", "/metrics")
        answer = asking.getresponse()
        text = answer.read()
        if answer.status != 200 or b"veneer_mounts %d\n" % MOUNTS not in text:
            raise host.HostError(f"no metrics: {answer.status}")


def answering_ns(group):
    """Processor time so far of the thread that answers."""
    for pid in group.servers():
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8", errors="replace") as f:
                is_it = f.read().startswith("MHD")
            if is_it:
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
                    return int(f.read().split()[0])
    raise host.HostError("no thread of the server answers metrics")


def work(paths, end):
    """How many files were opened until then, each of which asks the server; in turn in all mounts."""
    number = 0
    while time.monotonic() < end:
        for path in paths:
            os.close(os.open(f"{path}/f{number % 50}", os.O_RDONLY))
            number += 1
    return number


class Watching(scenario.Scenario):
    """Being watched: what a scrape each second costs

    No paper has this. 16 mounts of one image are served by one server, and a program opens lower files in
    them, one after the other, as fast as it can. In every other second somebody asks the
    server for its metrics, over the socket, as Prometheus does. `processor` is what of one processor the thread
    that answers takes while it is asked each second; `work left` is what the program gets done in
    such a second, of what it does in the one beside it."""

    name = "own/watching"
    question = "What does a scrape of the metrics each second cost?"
    drivers = ("veneer",)
    seconds = 2.8, 4.8

    def cells(self, quick):
        return [MOUNTS]

    def act(self, run, cell, driver):
        lower = run.lower("watching", build)
        # an address holds 107 bytes
        with tempfile.TemporaryDirectory(prefix="veneer-bench-") as directory:
            path = directory + "/metrics"
            os.environ["VENEER_METRICS"] = "unix:" + path
            try:
                with driver.group(run.work) as group:
                    views = [group.add(run.work, lower) for _ in range(cell)]
                    left, shares = self.compare(run, group, [v.path for v in views], path)
            finally:
                del os.environ["VENEER_METRICS"]
        run.add(ROW, LEFT, left, "%")
        run.add(ROW, PROCESSOR, shares, "%")

    @staticmethod
    def slice(paths, path=None):
        """Of one slice, with a scrape in its middle or without: files opened."""
        end = time.monotonic() + SLICE_S
        asker = threading.Timer(SLICE_S / 2, scrape, [path]) if path else None
        if asker:
            asker.start()
        done = work(paths, end)
        if asker:
            asker.join()
        return done

    def compare(self, run, group, paths, path):
        """(work left, share of a processor), in hundredths, of each pair."""
        work(paths, time.monotonic() + 0.2)
        scrape(path)
        left, shares, dice = [], [], run.rng()
        for _ in range(PAIRS[run.quick]):
            is_first, done, before = dice.random() < 0.5, {}, answering_ns(group)
            for is_watched in (is_first, not is_first):
                done[is_watched] = self.slice(paths, path if is_watched else None)
            left.append(100 * done[True] / done[False])
            shares.append((answering_ns(group) - before) / (SCRAPES_S * 1e9) * 100)
        return left, shares

    def measures(self):
        return [Below(ROW, PROCESSOR, 1), AtLeast(ROW, LEFT, "veneer", 99)]

    def tables(self, seen):
        return tables.table(seen, "Per cent", [(PROCESSOR, ROW, PROCESSOR), (LEFT, ROW, LEFT)])
