# SPDX-License-Identifier: Apache-2.0
"""Images of many layers, each of which changes a little of the same files."""

import os
import random
import time

from support import host, plots, scenario, tables, trees
from support.measures import AtMost, FlatIn
from support.views import Snapshot, Union

BLOCK = 4 * trees.KIB
SHARE = 100
# (bytes of the file, small files)
FULL, QUICK = (64 * trees.MIB, 1000), (8 * trees.MIB, 200)
COUNTS, QUICK_COUNTS = (1, 5, 15, 30), (1, 5)
READS = 1000
OPEN, RANDOM, WHOLE = ("open+read4K+close", "random 4K", "whole")
DISK = "bytes of all layers"
METRICS = (OPEN + ", cold", RANDOM + ", cold", WHOLE + ", cold", OPEN, RANDOM, WHOLE)
MOUNTS = 3
# What was read before what is timed as warm, and the pause in which a server may use it.
READS_BEFORE, PAUSE_S = 5, 1.5


def scenario_name(count):
    return f"tarasov/layers/{count}"


def changes_of(layer, size, count):
    """(offsets in the file, names of small files) that this layer overwrites."""
    rng = random.Random(f"layer {layer}")
    blocks, names = size // BLOCK, range(count)
    return ([b * BLOCK for b in rng.sample(range(blocks), blocks // SHARE)],
            [trees.many_name(i) for i in rng.sample(names, count // SHARE)])


def change(path, layer, offsets, names):
    data = bytes([layer]) * BLOCK
    fd = os.open(os.path.join(path, "one"), os.O_RDWR)
    for off in offsets:
        os.pwrite(fd, data, off)
    os.close(fd)
    for name in names:
        with open(os.path.join(path, "many", name), "r+b") as f:
            f.write(data)


def wrong_blocks(path, layers, size, count):
    """Blocks that do not show what the last layer that changed them wrote."""
    last, wrong = {}, []
    for layer in range(1, layers + 1):
        offsets, names = changes_of(layer, size, count)
        last.update(dict.fromkeys(offsets + names, layer))
    with open(os.path.join(path, "one"), "rb", buffering=0) as f:
        for key, layer in last.items():
            if isinstance(key, int):
                seen = os.pread(f.fileno(), BLOCK, key)
            else:
                with open(os.path.join(path, "many", key), "rb") as small:
                    seen = small.read()
            if seen != bytes([layer]) * BLOCK:
                wrong.append(key)
    return wrong[:5]


def time_random(path, offsets):
    """Microseconds of one read, mean."""
    fd = os.open(os.path.join(path, "one"), os.O_RDONLY)
    start = time.perf_counter()
    for off in offsets:
        os.pread(fd, BLOCK, off)
    taken = time.perf_counter() - start
    os.close(fd)
    return taken / len(offsets) * 1e6


def time_whole(path):
    """MiB a second."""
    path = os.path.join(path, "one")
    start = time.perf_counter()
    trees.warm(path)
    return os.stat(path).st_size / trees.MIB / (time.perf_counter() - start)


def time_opens(path, count):
    """Microseconds of each of the small files, looked up for the first time; mean."""
    names = [os.path.join(path, "many", trees.many_name(i)) for i in range(count)]
    start = time.perf_counter()
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.pread(fd, BLOCK, 0)
        os.close(fd)
    return (time.perf_counter() - start) / count * 1e6


def warm(lower):
    for layer in lower.split(":"):
        for here, _, names in os.walk(layer):
            for name in names:
                trees.warm(os.path.join(here, name))


class Chain:
    """The layers that one driver has made, each in its own way: mounted, written, frozen."""

    def __init__(self, run, driver, base, size, count):
        self.run, self.driver, self.size, self.count = run, driver, size, count
        self.base, self.layers, self.sizes = base, [], []
        self.root = run.work.scratch(driver.kind)

    def lower(self, layers):
        """What to mount to see the first so many."""
        if self.driver.kind == "btrfs":
            return self.layers[layers - 1] if layers else self.base
        return ":".join([*reversed(self.layers[:layers]), self.base])

    def grow(self, layers):
        """True: there are more now."""
        grows = len(self.layers) < layers
        while len(self.layers) < layers:
            number = len(self.layers) + 1
            frozen = os.path.join(self.root, f"{number:02}")
            before = self.used()
            with self.driver.open(self.run.work, self.lower(number - 1)) as view:
                view.call(change, view.path, number, *changes_of(number, self.size, self.count))
                self._freeze(view, frozen)
            self.layers.append(frozen)
            self.sizes.append(host.tree_bytes(frozen) if before is None else self.used() - before)
        return grows

    def used(self):
        """Where files share extents only the whole file system tells what a layer takes."""
        return None if self.driver.kind == "host" else host.used_bytes(self.root)

    @staticmethod
    def _freeze(view, frozen):
        if isinstance(view, Snapshot):
            host.run("btrfs", "subvolume", "snapshot", "-r", view.path, frozen)
        elif isinstance(view, Union):
            view.leave()
            os.rename(view.upper, frozen)


class Layers(scenario.Scenario):
    """Tarasov et al., number of layers: 1 to 30, each with another 1 % overwritten

    The paper's image has 1 to 30 layers, each overwriting a random 1 % of the data. Here each layer
    overwrites 1 % of the blocks of a file of 64 MiB and 1 % of 1,000 files of 4 KiB, over a base;
    each driver makes its layers itself, by mounting those below, writing, and keeping the upper, so
    that a driver that copies files has whole files in its layers. Cold is after drop_caches, in
    a mount of its own; else the layers' files are in memory, and the mount is fresh (three a round)
    beside one in which the file was read five times, as the next container of an image is. A layer of XFS may share
    extents with the one below, which the bytes do not show."""

    name = "tarasov/layers"
    question = "What do reads cost by the number of layers, and what do the layers take on the disk?"
    without = {"native": "a directory has no layers", "vfs": "each layer is a full copy",
               "dm-thin": "its layers would be snapshots of snapshots, as those of btrfs",
               "overlayfs-metacopy": "where data is written, as overlayfs",
               "veneer-cached": "the layers are put together as for veneer",
               "veneer-rootless": "as veneer-cached",
               "veneer-direct": "for programs that share one file, not for this",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2", "btrfs"
    seconds = 3.6, 2.6
    headline = [("30 layers that change 1 % of 64 MiB each, on disk", scenario_name(30), DISK)]

    def __init__(self):
        self.work, self.chains = None, {}

    def cells(self, quick):
        return list(QUICK_COUNTS if quick else COUNTS)

    def chain(self, run, driver, size, count):
        if run.work is not self.work:
            self.work, self.chains = run.work, {}
        name = driver.name
        if name not in self.chains:
            base = run.lower("layers", lambda root: trees.one_and_many(root, size, count, BLOCK))
            self.chains[name] = Chain(run, driver, base, size, count)
        return self.chains[name]

    def act(self, run, cell, driver):
        size, count = QUICK if run.quick else FULL
        chain = self.chain(run, driver, size, count)
        # What was changed just now a server may not yet take for settled.
        if chain.grow(cell):
            time.sleep(PAUSE_S * 2)
        lower, rng = chain.lower(cell), run.rng()
        offsets = [rng.randrange(size // BLOCK) * BLOCK for _ in range(READS)]
        seen = {metric: [] for metric in METRICS}
        self.cold(run, driver, lower, (offsets[:READS // 5], count), seen)
        warm(lower)
        if not run.round:
            self.check(run, driver, lower, (cell, size, count))
        self.warm(run, driver, lower, (offsets, count), seen)
        for metric, values in seen.items():
            unit = "MiB/s" if metric.startswith(WHOLE) else "us"
            run.add(scenario_name(cell), metric, values, unit)
        run.add(scenario_name(cell), DISK, [sum(chain.sizes[:cell])], "bytes")

    @staticmethod
    def check(run, driver, lower, what):
        with driver.open(run.work, lower) as view:
            wrong = view.call(wrong_blocks, view.path, *what)
            if wrong:
                raise host.HostError(f"WRONG BYTES in {what[0]} layers: {wrong}")

    @staticmethod
    def cold(run, driver, lower, what, seen):
        host.drop_caches()
        with driver.open(run.work, lower) as view:
            seen[RANDOM + ", cold"].append(view.call(time_random, view.path, what[0]))
            seen[OPEN + ", cold"].append(view.call(time_opens, view.path, what[1]))
        host.drop_caches()
        with driver.open(run.work, lower) as view:
            seen[WHOLE + ", cold"].append(view.call(time_whole, view.path))

    @staticmethod
    def warm(run, driver, lower, what, seen):
        with driver.group(run.work) as group:
            first = group.add(run.work, lower)
            for _ in range(READS_BEFORE):
                first.call(time_whole, first.path)
            time.sleep(PAUSE_S)
            for _ in range(MOUNTS):
                view = group.add(run.work, lower)
                seen[OPEN].append(view.call(time_opens, view.path, what[1]))
                seen[RANDOM].append(view.call(time_random, view.path, what[0]))
                view = group.add(run.work, lower)
                seen[WHOLE].append(view.call(time_whole, view.path))

    def measures(self):
        # The names and bytes of what is read are in memory, or each layer is a file more to fetch.
        out = [FlatIn(scenario_name(count), scenario_name(1), metric, 1.05)
               for count in COUNTS[1:] for metric in (OPEN, RANDOM, WHOLE)]
        for count in COUNTS:
            out += [AtMost(scenario_name(count), metric, peer, 1, close=True) for metric in METRICS
                    for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]
            out += [AtMost(scenario_name(count), metric, "overlayfs", 1.15,
                           must=not metric.startswith(OPEN)) for metric in METRICS]
        return out

    def tables(self, seen):
        text = ""
        for metric in (*METRICS, DISK):
            columns = [(str(n), scenario_name(n), metric) for n in COUNTS]
            text += tables.table(seen, f"{metric}, by number of layers", columns,
                                 ratios=metric != DISK)
        return text

    def plots(self, seen):
        panels = [(m, [(scenario_name(n), m) for n in COUNTS])
                  for m in (OPEN, RANDOM, WHOLE, RANDOM + ", cold", WHOLE + ", cold", DISK)]
        labels = [str(n) for n in COUNTS]
        return [("tarasov-layers", lambda path: plots.lines(
            path, seen, panels, list(COUNTS), labels, "layers", log=(False, True)))]
