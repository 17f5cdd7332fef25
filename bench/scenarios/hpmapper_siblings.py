# SPDX-License-Identifier: Apache-2.0
"""What many containers of one image cost together: memory, and one more of them."""

import mmap
import os
import random
import time

from support import cgroup, host, plots, scenario, tables, trees
from support.measures import AtMost, Below, ByDriver, Faster
from support.memory import own_memory

NAME = "hpmapper/siblings"
ONE, CHANGED, MORE = "one file", "changed files", "one more"
PAGE, FILES = 4 * trees.KIB, 3
# The one file, and each of those that are changed.
FULL, QUICK = (64 * trees.MIB, 64 * trees.MIB), (64 * trees.MIB, 32 * trees.MIB)
# How many views are there, and how many more are made one after the other; a copy is the same with
# nothing beside it.
BESIDE, TRIES, COPIES = 8, 20, 3


def views_of_one(quick):
    return 8 if quick else 64


def views_changed(quick):
    return 4 if quick else 16


def build_names(root):
    trees.names(root, 5, 10, 60)


def sizes(quick):
    return QUICK if quick else FULL


def build_files(root, size):
    for k in range(FILES):
        trees.write_file(f"{root}/f{k}", size)


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


def rates(paths, passes=1):
    return [rate(path, passes) for path in paths]


def change_each(roots, size, seed):
    rng = random.Random(seed)
    for root in roots:
        for k in range(FILES):
            fd = os.open(f"{root}/f{k}", os.O_RDWR)
            os.pwrite(fd, rng.randbytes(PAGE), rng.randrange(size // PAGE) * PAGE)
            os.close(fd)


def writers_page_us(path, size, seed, tries=5000):
    """Microseconds of a 4 KiB read of pages that were read before, by a descriptor for reading and writing."""
    rng, buf, fd = random.Random(seed), [bytearray(PAGE)], os.open(path, os.O_RDWR)
    try:
        offsets = [rng.randrange(size // PAGE) * PAGE for _ in range(tries)]
        for off in range(0, size, trees.MIB):
            os.preadv(fd, [bytearray(trees.MIB)], off)
        start = time.perf_counter()
        for off in offsets:
            os.preadv(fd, buf, off)
        return (time.perf_counter() - start) * 1e6 / tries
    finally:
        os.close(fd)


class Siblings(scenario.Scenario):
    """HP-Mapper's redundant data: many containers of one image

    The paper's premise is that containers of one image keep the same blocks many times. Here 64
    views read one 64 MiB file, and 16 views change a block in each of three 64 MiB files and read
    them whole (8 views, and 4 views and 32 MiB, in a quick run); what page cache and servers
    then hold is counted in copies of the data. One more view is mounted beside eight that were
    looked at; vfs, whose mount is a copy of the tree, is only in that. Their start is
    hpmapper/containers."""

    name = NAME
    question = "How often is a file in memory that many views read, or change in a few blocks?"
    without = {"native": "one directory is not many views",
               "overlayfs-metacopy": "where data is written, as overlayfs",
               "overlayfs-xfs": "keeps what overlayfs keeps",
               "btrfs": "keeps a copy for each, as in hpmapper/containers",
               "veneer-direct": "keeps none, as in hpmapper/containers",
               "veneer-cached": "keeps what veneer-rootless keeps",
               "fuse-overlayfs-rootless": "keeps what fuse-overlayfs keeps"}
    quick_drivers = ("overlayfs", "veneer", "veneer-rootless", "fuse-overlayfs",
                     "fuse-overlayfs-2")
    headline = (("copies of a file that 64 views read", f"{NAME}/{ONE}", "copies"),
                ("copies of three files that 16 views change and read", f"{NAME}/{CHANGED}",
                 "copies"))
    seconds = 2.1, 0.5

    def cells(self, quick):
        return [ONE, CHANGED, MORE]

    def has(self, cell, driver):
        return cell == MORE or driver != "vfs"

    def act(self, run, cell, driver):
        act = {ONE: self.one, CHANGED: self.changed, MORE: self.more}[cell]
        # The group tells what page cache is ours, on a machine where others work too.
        with cgroup.Memory() as box, driver.group(run.work) as group:
            act(run, group, box)

    def one(self, run, group, box):
        size = sizes(run.quick)[0]
        lower = run.lower("one", lambda r: trees.write_file(r + "/big", size))
        views = [group.add(run.work, lower) for _ in range(views_of_one(run.quick))]
        own = own_memory(group.servers())
        host.drop_caches()
        before = box.cached()
        views[0].call(rates, [view.path + "/big" for view in views])
        taken = box.cached() - before
        grown = own_memory(group.servers()) - own
        name = f"{NAME}/{ONE}"
        run.add(name, "copies", [(taken + grown) / size], "x")
        run.add(name, "server's own", [grown / size], "x")
        run.add(name, "server before", [own], "bytes")

    def changed(self, run, group, box):
        size = sizes(run.quick)[1]
        lower = run.lower("changed", lambda r: build_files(r, size))
        before_lower, seed = trees.state(lower), run.round
        views = [group.add(run.work, lower) for _ in range(views_changed(run.quick))]
        host.drop_caches()
        before = box.cached()
        views[0].call(change_each, [view.path for view in views], size, seed)
        os.sync()
        files = [f"{view.path}/f{k}" for view in views for k in range(FILES)]
        first = views[0].call(rates, files)
        taken = box.cached() - before + own_memory(group.servers())
        name = f"{NAME}/{CHANGED}"
        run.add(name, "copies", [taken / (FILES * size)], "x")
        run.add(name, "first read", first, "MiB/s")
        run.add(name, "warm read", views[0].call(rates, files[:FILES], 3), "MiB/s")
        taken = views[1].call(writers_page_us, files[FILES], size, seed)
        run.add(name, "writer's 4K", [taken], "us")
        trees.must_be(lower, before_lower)

    def more(self, run, group, _):
        lower = run.lower("names", build_names)
        beside, tries = (0, COPIES) if run.driver.name == "vfs" else (BESIDE, TRIES)
        for _ in range(beside):
            view = group.add(run.work, lower)
            view.call(os.listdir, view.path)
        mounted, whole = [], []
        for _ in range(tries):
            start = time.perf_counter()
            view = group.add(run.work, lower)
            made = time.perf_counter()
            view.call(os.lstat, view.path)
            gone = time.perf_counter()
            # Removing the directories of a union is none of it; of a snapshot it is all.
            getattr(view, "unmount", view.close)()
            whole.append((made - start + time.perf_counter() - gone) * 1e3)
            mounted.append((made - start) * 1e3)
            group.views.remove(view)
            if hasattr(view, "unmount"):
                view.close()
        run.add(f"{NAME}/{MORE}", "mount", mounted, "ms")
        run.add(f"{NAME}/{MORE}", "mount + umount", whole, "ms")

    def measures(self):
        one, changed, more = (f"{NAME}/{cell}" for cell in (ONE, CHANGED, MORE))
        return [Below(one, "copies", 1.1), Below(one, "server's own", 0.1),
                # Without passthrough the kernel keeps a copy a mount, and the server none.
                ByDriver("veneer-rootless", Below(one, "server's own", 0.1)),
                Below(changed, "copies", 1.4),
                AtMost(changed, "warm read", "overlayfs", 1 / 0.3),
                AtMost(changed, "writer's 4K", "overlayfs", 1 / 0.95),
                Below(more, "mount + umount", 5),
                Faster(more, "mount + umount", "fuse-overlayfs", 2),
                Faster(more, "mount + umount", "fuse-overlayfs-2", 1),
                Faster(more, "mount + umount", "vfs", 1),
                AtMost(changed, "first read", "overlayfs", 1.15, must=False),
                *[AtMost(changed, metric, peer, 1, close=True)
                  for metric in ("first read", "warm read", "writer's 4K")
                  for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]]

    def tables(self, seen):
        def columns(cell, *metrics):
            return [(m, f"{NAME}/{cell}", m) for m in metrics]
        text = tables.table(seen, "One file read by each",
                            columns(ONE, "copies", "server's own", "server before"), ratios=False)
        text += tables.table(seen, "4 KiB changed in each of three files, then read whole",
                             columns(CHANGED, "copies", "first read", "warm read", "writer's 4K"))
        text += tables.table(seen, "One more, beside eight",
                             columns(MORE, "mount", "mount + umount"))
        return text

    def plots(self, seen):
        panels = [("copies of one file", f"{NAME}/{ONE}", "copies"),
                  ("copies of changed files", f"{NAME}/{CHANGED}", "copies"),
                  ("mount + umount of one more", f"{NAME}/{MORE}", "mount + umount")]
        return [("hpmapper-siblings", lambda path: plots.bars(path, seen, panels))]
