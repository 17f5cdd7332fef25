# SPDX-License-Identifier: Apache-2.0
"""What a changed database and thirty steps of an image take on the wire, and how long."""

import os
import random
import time

from support import drivers, host, tables, trees
from support.measures import AtMost, Below
from support.scenario import Scenario

NAME = "own/send"
DATABASE = trees.GIB, 64 * trees.MIB
FILE = 64 * trees.MIB
STEPS = 30, 5
PERCENT = 0.01
CHANGED, EACH = "a database of 1 GiB, 1 % changed", "steps that change 1 % of 64 MiB each"
COLUMNS = "stream", "make", "take"
COPY, COPIES = "a copy of the database in a mount", 5


def change(path, size, seed):
    """1 % of the blocks, at random. How many bytes that is."""
    dice, count = random.Random(seed), int(size * PERCENT) // 4096
    fd = os.open(path, os.O_RDWR)
    for i in dice.sample(range(size // 4096), count):
        os.pwrite(fd, dice.randbytes(4096), i * 4096)
    os.fsync(fd)
    os.close(fd)
    return count * 4096


def timed(act):
    began = time.monotonic()
    act()
    return time.monotonic() - began


def copied(source, target):
    """Seconds of a copy as cp makes it, from open to close."""
    began = time.monotonic()
    a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    while os.copy_file_range(a, b, 1 << 40):
        pass
    os.close(b)
    os.close(a)
    return time.monotonic() - began


class Send(Scenario):
    """Deltas: 1 % of a database, and thirty steps of an image

    No paper has this. 1 % of the blocks of a file of 1 GiB in a lower layer (64 MiB in a quick run) is written at random, in memory and synced;
    then the change is made a stream and taken up elsewhere: by `veneer send` of a snapshot and `veneer receive` into an upper on the same lower
    layer; as the layer of an image is, by tar of the upper on overlayfs, unpacked again; and by `btrfs send` and `btrfs receive`. What is in
    memory is read from there. Before, the file is copied within the mount by copy_file_range, as cp does it: five times, where that refers to
    its blocks. Then a file of 64 MiB is changed in thirty steps (five) of 1 %, each of which is a snapshot and an artifact of an
    OCI layout; as image layers they would be the whole file each time."""

    name = NAME
    question = "How long does it take to send what a layer changes, and how much is sent?"
    drivers = "btrfs", "overlayfs", "veneer"
    quick_drivers = "veneer",
    seconds = 3.8, 2.0
    headline = [("a copy of 1 GiB in a mount", f"{NAME}/{COPY}", "time"),
                ("1 % of a database of 1 GiB as a stream", f"{NAME}/{CHANGED}", "stream")]

    def cells(self, quick):
        return [CHANGED, EACH]

    def has(self, cell, driver):
        return cell == CHANGED or driver == "veneer"

    def act(self, run, cell, driver):
        size = DATABASE[run.quick] if cell == CHANGED else FILE
        lower = run.lower(f"send{size}", lambda root: trees.write_file(root + "/db", size))
        there = run.work.scratch(getattr(driver, "kind", "host"))
        try:
            if cell == EACH:
                self.put_steps(run, driver, lower, there)
            else:
                {"veneer": self.send, "overlayfs": self.tar, "btrfs": self.send_btrfs}[driver.name](run, driver, lower, there)
        finally:
            host.run("rm", "-rf", there)

    @staticmethod
    def add(run, stream, make, take):
        row = f"{NAME}/{CHANGED}"
        run.add(row, "stream", [stream], "bytes")
        run.add(row, "make", [make], "s")
        run.add(row, "take", [take], "s")

    @staticmethod
    def copy(run, view, count):
        before = view.bytes_taken()
        run.add(f"{NAME}/{COPY}", "time", [copied(view.path + "/db", f"{view.path}/copy{k}") for k in range(count)], "s")
        run.add(f"{NAME}/{COPY}", "taken", [(view.bytes_taken() - before) / count], "bytes")
        for k in range(count):
            os.unlink(f"{view.path}/copy{k}")

    @staticmethod
    def send(run, driver, lower, there):
        def veneer(*arguments):
            return host.run("env", f"VENEER_RUNTIME_DIR={group.runtime}", drivers.veneer_binary(), *arguments)

        with driver.group(run.work) as group:
            view = group.add(run.work, lower)
            Send.copy(run, view, COPIES)
            change(view.path + "/db", os.path.getsize(lower + "/db"), run.round)
            veneer("snapshot", view.path, "one")
            make = timed(lambda: veneer("send", "-q", "-o", there + "/delta", view.path + "@one"))
            take = timed(lambda: veneer("receive", "-q", "-i", there + "/delta", "-o", "lowerdir=" + lower, there + "/upper"))
            Send.add(run, os.path.getsize(there + "/delta"), make, take)

    @staticmethod
    def tar(run, driver, lower, there):
        with driver.open(run.work, lower, keep=False) as view:
            Send.copy(run, view, 1)
            change(view.path + "/db", os.path.getsize(lower + "/db"), run.round)
            os.mkdir(there + "/taken")
            make = timed(lambda: host.run("tar", "-C", view.upper, "-cf", there + "/layer", "."))
            take = timed(lambda: host.run("tar", "-C", there + "/taken", "-xf", there + "/layer"))
            Send.add(run, os.path.getsize(there + "/layer"), make, take)

    @staticmethod
    def send_btrfs(run, driver, lower, there):
        base, changed = there + "/base", there + "/changed"
        host.run("btrfs", "subvolume", "snapshot", "-r", lower, base)
        try:
            with driver.open(run.work, base, keep=False) as view:
                Send.copy(run, view, COPIES)
                change(view.path + "/db", os.path.getsize(lower + "/db"), run.round)
                host.run("btrfs", "subvolume", "snapshot", "-r", view.path, changed)
            os.sync()
            os.mkdir(there + "/taken")
            make = timed(lambda: host.run("btrfs", "send", "-q", "-p", base, "-f", there + "/delta", changed))
            take = timed(lambda: host.run("btrfs", "receive", "-q", "-f", there + "/delta", there + "/taken"))
            Send.add(run, os.path.getsize(there + "/delta"), make, take)
        finally:
            for path in (there + "/taken/changed", changed, base):
                if os.path.exists(path):
                    host.run("btrfs", "subvolume", "delete", path)

    @staticmethod
    def put_steps(run, driver, lower, there):
        layout = there + "/layout"
        with driver.group(run.work) as group:
            view = group.add(run.work, lower)
            for k in range(STEPS[run.quick]):
                change(view.path + "/db", FILE, k)
                env = "env", f"VENEER_RUNTIME_DIR={group.runtime}", drivers.veneer_binary()
                host.run(*env, "snapshot", view.path, f"s{k}")
                host.run(*env, "send", "-q", "--oci", f"{layout}:s{k}", *(["--from", f"s{k - 1}"] if k else []), f"{view.path}@s{k}")
            run.add(f"{NAME}/{EACH}", "stream", [host.tree_bytes(layout)], "bytes")

    def measures(self):
        row, own = f"{NAME}/{CHANGED}", DATABASE[0] * PERCENT
        return [Below(row, "stream", 1.2 * own, must=False), AtMost(row, "stream", "btrfs", 1.2), AtMost(row, "stream", "overlayfs", 0.02, must=False),
                AtMost(row, "make", "overlayfs", 1, must=False), AtMost(row, "take", "overlayfs", 1, must=False),
                AtMost(row, "make", "btrfs", 1, must=False),
                Below(f"{NAME}/{COPY}", "time", 0.002, must=False), Below(f"{NAME}/{COPY}", "taken", 16 * trees.KIB, must=False),
                AtMost(f"{NAME}/{COPY}", "time", "overlayfs", 0.1), AtMost(f"{NAME}/{COPY}", "time", "btrfs", 1, must=False),
                Below(f"{NAME}/{EACH}", "stream", 25e6)]

    def tables(self, seen):
        return tables.table(seen, CHANGED, [(column, f"{NAME}/{CHANGED}", column) for column in COLUMNS]) + \
            tables.table(seen, COPY, [(column, f"{NAME}/{COPY}", column) for column in ("time", "taken")]) + \
            tables.table(seen, EACH, [("stream", f"{NAME}/{EACH}", "stream")])
