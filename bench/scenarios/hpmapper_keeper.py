# SPDX-License-Identifier: Apache-2.0
"""The cache manager: what many mounts without passthrough keep of one image, and what limiting
that costs."""

import json
import os
import random
import time

from support import cgroup, host, plots, scenario, starting, tables, trees
from support.measures import Below, ByDriver, Growth, Less
from support.memory import own_memory

NAME = "hpmapper/keeper"
START, CHANGED, THIRD = "start", "changed files", "a third"
AUTO, TWO, ALL = "veneer-rootless", "veneer-copies-2", "veneer-copies-all"
SHARE, PEER = "veneer-share", "fuse-overlayfs"
FILES, FILE, PAGE = 3, 8 * trees.MIB, 4 * trees.KIB
# Programs, their copies of the image and some room for each view; and what servers take at once.
PLENTY_PER_VIEW, PLENTY_BESIDE = 36 * trees.MIB, 192 * trees.MIB
# A program that was in use is asked after again two seconds later.
STEP_S, STILL_S, SETTLE_S = 0.25, 3, 30


def count(quick):
    return 16 if quick else 64


def build(root):
    starting.build(root)
    for k in range(FILES):
        trees.write_file(f"{root}/var/f{k}", FILE)


def change_and_read(roots, seed):
    """4 KiB of each large file, in each view, and then all of them."""
    rng, buf = random.Random(seed), bytearray(trees.MIB)
    for root in roots:
        for k in range(FILES):
            fd = os.open(f"{root}/var/f{k}", os.O_RDWR)
            os.pwrite(fd, rng.randbytes(PAGE), rng.randrange(FILE // PAGE) * PAGE)
            for off in range(0, FILE, len(buf)):
                os.preadv(fd, [buf], off)
            os.close(fd)


def settled(box):
    """Bytes of page cache once they do not sink any more."""
    least, since, end = box.cached(), time.monotonic(), time.monotonic() + SETTLE_S
    while time.monotonic() < min(since + STILL_S, end):
        time.sleep(STEP_S)
        if (now := box.cached()) < least:
            least, since = now, time.monotonic()
    return least


def managed(group):
    """The server's figures on copies."""
    if not group.driver.is_ours:
        return {"cpu_us": 0, "dropping_us": 0, "evictions": 0, "refaults": 0}
    said = group.views[0].run("env", f"VENEER_RUNTIME_DIR={group.runtime}", group.driver.binary,
                              "stats", "--json")
    return json.loads(said)["copies"]


class Keeper(scenario.Scenario):
    """HP-Mapper 3.3 and 3.4: the cache manager

    The paper's manager limits how many containers' caches hold the same block, and has 65.4 to
    75.5 % less page cache than Device Mapper, Btrfs and Overlay2 after 64 containers have started,
    at 4.1 % of a CPU. With passthrough there is nothing to limit; here 64 views without privileges
    start a Python program, or change 4 KiB in each of three 8 MiB files and read them whole, and
    page cache and servers' own memory are read once they stay the same. `copies=2`
    (veneer-copies-2) limits always, `copies=all` (veneer-copies-all) never, and the default
    (veneer-rootless) by memory: so it is also run with a third of the memory that is plenty for
    every driver. `share=pages` (veneer-share) has one copy for all of them, and nothing to limit:
    what the manager cannot do about programs, which are mapped. The rows about 65 % are of
    copies=2, an option, and not of the default, which keeps what there is memory for. Processor
    time is of the whole time since the first mount: all that the manager takes (the paper's 4.1 %),
    and what of that is not the kernel's freeing of pages, which is its keeping of accounts
    and its scanning (at most 2 %)."""

    name = NAME
    question = "What does the cache manager save without privileges, and what does it cost?"
    drivers = AUTO, TWO, ALL, SHARE, PEER
    quick_drivers = AUTO, TWO, ALL, PEER
    seconds = 9.5, 6

    def has(self, cell, driver):
        return driver not in {CHANGED: (SHARE,), THIRD: (TWO,)}.get(cell, ())

    def cells(self, quick):
        return [CHANGED] if quick else [START, CHANGED, THIRD]

    def act(self, run, cell, driver):
        lower, views, name = run.lower("keeper", build), count(run.quick), f"{NAME}/{cell}"
        plenty = views * PLENTY_PER_VIEW + PLENTY_BESIDE
        with cgroup.Memory(plenty // 3 if cell == THIRD else plenty) as box, \
                driver.group(run.work) as group:
            begun = time.perf_counter()
            for _ in range(views):
                group.add(run.work, lower)
            host.drop_caches()
            before, start = box.cached(), time.perf_counter()
            if cell == CHANGED:
                group.views[0].call(change_and_read, [v.path for v in group.views], run.round)
            else:
                starting.start_in(group.views, starting.PROGRAM)
            run.add(name, "time", [time.perf_counter() - start], "s")
            cached = max(settled(box) - before, 0)
            own = own_memory(group.servers())
            run.add(name, "page cache + servers", [cached + own], "bytes")
            run.add(name, "servers", [own], "bytes")
            said = managed(group)
            taken = (time.perf_counter() - begun) * 1e6
            run.add(name, "manager", [100 * said["cpu_us"] / taken], "% CPU")
            scanning = said["cpu_us"] - said["dropping_us"]
            run.add(name, "scanning", [100 * scanning / taken], "% CPU")
            run.add(name, "dropped", [said["evictions"]], "x")
            run.add(name, "dropped too soon", [said["refaults"]], "x")

    def measures(self):
        out = []
        for cell in (START, CHANGED):
            out.append(ByDriver(TWO, Less(f"{NAME}/{cell}", "page cache + servers", PEER, 0.65)))
            out.append(ByDriver(TWO, Below(f"{NAME}/{cell}", "scanning", 2)))
        out.append(ByDriver(AUTO, Below(f"{NAME}/{THIRD}", "scanning", 2)))
        for driver in (AUTO, SHARE):
            grown = Growth(f"{NAME}/{THIRD}", f"{NAME}/{START}", "time", 1.15, PEER, 0.5)
            out.append(ByDriver(driver, grown))
        for cell in (START, CHANGED, THIRD):
            out.append(ByDriver(AUTO, Less(f"{NAME}/{cell}", "time", ALL, -0.03)))
        return out

    def tables(self, seen):
        titles = ((START, "A Python program started in 64 views at once"),
                  (CHANGED, "4 KiB changed in each of three 8 MiB files, then read whole"),
                  (THIRD, "The start with a third of the memory"))
        metrics = ("time", "page cache + servers", "servers", "manager", "scanning", "dropped",
                   "dropped too soon")
        return "".join(tables.table(seen, title, [(m, f"{NAME}/{cell}", m) for m in metrics])
                       for cell, title in titles)

    def plots(self, seen):
        panels = [(f"{cell}: {metric}", f"{NAME}/{cell}", metric)
                  for cell, metric in ((START, "page cache + servers"),
                                       (CHANGED, "page cache + servers"), (THIRD, "time"))]
        return [("hpmapper-keeper", lambda path: plots.bars(path, seen, panels))]
