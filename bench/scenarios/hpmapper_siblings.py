#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What many containers of one image cost together: memory, the disk, starting, one more of them."""

import mmap
import os
import random
import subprocess
import sys
import threading
import time

from names import seconds
from support import cli, host, report, rootfs, trees
from support.memory import cached, own_memory
from support.measures import AtMost, Below, Faster

ONE, CHANGED, START, MORE, WALK = "one file", "changed files", "start", "one more", "walk"
BIG, PAGE = 256 * trees.MIB, 4 * trees.KIB
FILES, FILE = 3, 64 * trees.MIB
# Starts as a program of a container does: an interpreter, its libraries, many small modules.
PROGRAM = ["/usr/bin/python3", "-S", "-c",
           "import json, ssl, sqlite3, email.mime.text, http.client, unittest, xml.dom.minidom"]


def scale(args):
    """(views, views with changed files, (top directories, subdirectories, files))"""
    return (8, 4, (5, 10, 60)) if args.quick else (64, 16, (25, 20, 60))


def sectors_read(path):
    dev = os.stat(path).st_dev
    with open(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}/stat", encoding="ascii") as f:
        return int(f.read().split()[2])


def rate(path, passes=1):
    """MiB/s of reading a file through, the last of some passes."""
    buf = [mmap.mmap(-1, trees.MIB)]  # at a page, as programs that read much have it
    for _ in range(passes):
        fd, total, start = os.open(path, os.O_RDONLY), 0, time.perf_counter()
        try:
            while got := os.readv(fd, buf):
                total += got
        finally:
            os.close(fd)
        taken = time.perf_counter() - start
    return total / trees.MIB / taken


def page_us(fd, size, rng, tries=5000):
    """Microseconds of a 4 KiB read of pages that were read before."""
    buf, offsets = [bytearray(PAGE)], [rng.randrange(size // PAGE) * PAGE for _ in range(tries)]
    for off in range(0, size, trees.MIB):
        os.preadv(fd, [bytearray(trees.MIB)], off)
    start = time.perf_counter()
    for off in offsets:
        os.preadv(fd, buf, off)
    return (time.perf_counter() - start) * 1e6 / tries


class Siblings(cli.Scenario):
    name = "siblings"
    title = "Many containers of one image"
    default_rounds = 3

    def cells(self, args):
        return [ONE, CHANGED, START, MORE, WALK]

    def act(self, args, work, i, cell, driver, seen):
        if driver.in_place:
            return
        act = {ONE: self.one, CHANGED: self.changed, START: self.start, MORE: self.more,
               WALK: self.walk}[cell]
        with driver.group(work) as group:
            act(args, work, i, driver, group, seen)

    def one(self, args, work, i, driver, group, seen):
        lower = work.lower(driver.kind, "one", lambda r: trees.write_file(r + "/big", BIG))
        views = [group.add(work, lower) for _ in range(scale(args)[0])]
        own = own_memory(group.servers())
        host.drop_caches()
        before = cached()
        for view in views:
            rate(view.path + "/big")
        taken = cached() - before
        grown = own_memory(group.servers())
        name = f"siblings/{ONE}"
        seen.add(name, "copies", driver.name, i, [(taken + grown) / BIG], "x")
        seen.add(name, "server's own", driver.name, i, [grown / BIG], "x")
        seen.add(name, "server before", driver.name, i, [own], "bytes")

    def changed(self, args, work, i, driver, group, seen):
        def build(root):
            for k in range(FILES):
                trees.write_file(f"{root}/f{k}", FILE)
        lower = work.lower(driver.kind, "changed", build)
        before_lower = trees.state(lower)
        rng = random.Random(i)
        views = [group.add(work, lower) for _ in range(scale(args)[1])]
        host.drop_caches()
        before = cached()
        for view in views:
            for k in range(FILES):
                fd = os.open(f"{view.path}/f{k}", os.O_RDWR)
                os.pwrite(fd, os.urandom(PAGE), rng.randrange(FILE // PAGE) * PAGE)
                os.close(fd)
        os.sync()
        rates = [rate(f"{view.path}/f{k}") for view in views for k in range(FILES)]
        taken = cached() - before + own_memory(group.servers())
        name = f"siblings/{CHANGED}"
        seen.add(name, "copies", driver.name, i, [taken / (FILES * FILE)], "x")
        seen.add(name, "first read", driver.name, i, rates, "MiB/s")
        seen.add(name, "warm read", driver.name, i,
                 [rate(f"{views[0].path}/f{k}", 3) for k in range(FILES)], "MiB/s")
        fd = os.open(f"{views[1].path}/f0", os.O_RDWR)
        try:
            seen.add(name, "writer's 4K", driver.name, i, [page_us(fd, FILE, rng)], "us")
        finally:
            os.close(fd)
        if trees.state(lower) != before_lower:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")

    def run(self, view):
        done = subprocess.run(["chroot", view.path, *PROGRAM], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            raise host.HostError(f"in a view: {done.stderr.strip()[-300:]}")

    def start(self, args, work, i, driver, group, seen):
        def build(root):
            rootfs.build(root)
            trees.names(root + "/more", *scale(args)[2])
        lower = work.lower(driver.kind, "root", build)
        views = [group.add(work, lower) for _ in range(scale(args)[0])]
        host.drop_caches()
        base = sectors_read(lower)
        self.run(views[0])
        first = sectors_read(lower) - base
        self.run(views[1])
        second = sectors_read(lower) - base - first
        threads = [threading.Thread(target=self.run, args=(view,)) for view in views]
        start = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        taken = time.perf_counter() - start
        name = f"siblings/{START}"
        seen.add(name, "all at once", driver.name, i, [taken], "s")
        seen.add(name, "second reads of first", driver.name, i, [100 * second / max(first, 1)], "%")
        seen.add(name, "servers", driver.name, i, [own_memory(group.servers())], "bytes")

    def more(self, args, work, i, driver, group, seen):
        lower = work.lower(driver.kind, "root-names",
                           lambda r: trees.names(r, *scale(args)[2]))
        for _ in range(8):
            os.listdir(group.add(work, lower).path)
        taken = []
        for _ in range(20):
            start = time.perf_counter()
            view = group.add(work, lower)
            os.stat(view.path)
            made = time.perf_counter()
            host.unmount(view.path)
            taken.append((time.perf_counter() - start) * 1e3)
            seen.add(f"siblings/{MORE}", "mount", driver.name, i, [(made - start) * 1e3], "ms")
        seen.add(f"siblings/{MORE}", "mount + umount", driver.name, i, taken, "ms")

    def walk(self, args, work, i, driver, group, seen):
        lower = work.lower(driver.kind, "root-names",
                           lambda r: trees.names(r, *scale(args)[2]))
        trees.warm_names(lower)
        for which in ("first", "second"):
            for what, command in (("find", "find ."), ("ls -lR", "ls -lR ."), ("du", "du -s .")):
                view = group.add(work, lower)
                seen.add(f"siblings/{WALK}", f"{what}, {which}", driver.name, i,
                         [seconds(command, view.path)], "s")

    def measures(self):
        name = "siblings/"
        return [Below(name + ONE, "copies", 1.1), Below(name + ONE, "server's own", 0.1),
                Below(name + CHANGED, "copies", 1.4),
                AtMost(name + CHANGED, "warm read", "overlayfs", 1 / 0.3),
                AtMost(name + CHANGED, "writer's 4K", "overlayfs", 1 / 0.95),
                Below(name + START, "second reads of first", 2),
                Faster(name + START, "all at once", "fuse-overlayfs", 1),
                Faster(name + START, "all at once", "fuse-overlayfs-2", 1),
                AtMost(name + START, "all at once", "overlayfs", 1.5),
                Below(name + START, "servers", 128 * trees.MIB),
                Below(name + MORE, "mount + umount", 5),
                Faster(name + MORE, "mount + umount", "fuse-overlayfs", 2)]

    def needed(self):
        return ["overlayfs", "fuse-overlayfs", "fuse-overlayfs-2"]

    def tables(self, seen):
        def columns(cell, *metrics):
            return [(m, f"siblings/{cell}", m) for m in metrics]
        text = report.table(seen, "One 256 MiB file read by each",
                            columns(ONE, "copies", "server's own", "server before"), ratios=False)
        text += report.table(seen, "4 KiB changed in each of three 64 MiB files, then read whole",
                             columns(CHANGED, "copies", "first read", "warm read", "writer's 4K"))
        text += report.table(seen, "A Python program started in each",
                             columns(START, "all at once", "second reads of first", "servers"))
        text += report.table(seen, "One more, beside eight",
                             columns(MORE, "mount", "mount + umount"))
        return text + report.table(seen, "Walks, by the first and by the second sibling", columns(
            WALK, *(f"{w}, {n}" for w in ("find", "ls -lR", "du") for n in ("first", "second"))))

    def plot(self, path, seen):
        return report.plot_bars(path, seen, [
            ("copies of one file", f"siblings/{ONE}", "copies"),
            ("copies of changed files", f"siblings/{CHANGED}", "copies"),
            ("start of all", f"siblings/{START}", "all at once"),
            ("mount + umount of one more", f"siblings/{MORE}", "mount + umount")])


if __name__ == "__main__":
    sys.exit(cli.main(Siblings()))
