#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What walking, unpacking and removing many small files costs."""

import os
import random
import subprocess
import sys
import tarfile
import time

from support import cli, host, report, trees
from support.measures import AtMost, Faster

# tar skips all file data when its archive is /dev/null itself, so its output goes through a pipe.
WALKS = {"find": "find .", "ls -lR": "ls -lR .", "du": "du -s .", "tar c": "tar cf - . | cat"}
# cold: nothing in memory; warm: the lower tree is, the mount is new; again: the same mount again.
WALK_METRICS = ("cold", "warm", "again")
EXTRACT, REMOVE = "tar x", "rm -rf"

# (top directories, subdirectories each, files each; top directories removed; files unpacked)
FULL, QUICK = (25, 20, 60, 14, 20000), (5, 10, 60, 3, 2000)


def scale(args):
    return QUICK if args.quick else FULL


def seconds(command, cwd):
    """Wall time of a shell command. Output is thrown away, failure is an error."""
    start = time.perf_counter()
    done = subprocess.run(["sh", "-c", command], cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False)
    taken = time.perf_counter() - start
    if done.returncode or done.stderr:
        raise host.HostError(f"{command}: {done.stderr.strip()[:200] or done.returncode}")
    return taken


def archive(work, files):
    """An archive of small files, a hundred a directory, built once a run."""
    path = os.path.join(work.root, "files.tar")
    if os.path.exists(path):
        return path
    tree = os.path.join(work.root, "files")
    rng = random.Random(4)
    for i in range(files):
        here = os.path.join(tree, f"d{i // 100:03}")
        os.makedirs(here, exist_ok=True)
        trees.write_file(os.path.join(here, f"new-{i:05}"), rng.randint(100, 4096))
    with tarfile.open(path, "w") as tar:
        tar.add(tree, arcname=".")
    host.run("rm", "-rf", tree)
    return path


class Names(cli.Scenario):
    name = "names"
    title = "Walking, unpacking and removing many small files"
    default_rounds = 5
    creates_files = True

    def cells(self, args):
        return [*WALKS, EXTRACT, REMOVE]

    def act(self, args, work, i, cell, driver, seen):
        tops, subs, files, removed, unpacked = scale(args)
        lower = work.lower(driver.kind, "names", lambda r: trees.names(r, tops, subs, files))
        entries = tops + tops * subs + tops * subs * files
        if cell in WALKS:
            for metric, taken in self.walk(work, driver, lower, WALKS[cell]):
                seen.add(f"names/{cell}", metric, driver.name, i, taken, "s")
            return
        if cell == EXTRACT:
            taken = self.extract(work, driver, lower, archive(work, unpacked), unpacked)
        else:
            taken = self.remove(work, driver, lower, removed)
        seen.add(f"names/{cell}", "time", driver.name, i, [taken], "s")
        if not driver.in_place and sum(1 for _ in host.walk(lower)) != entries + 1:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")

    def walk(self, work, driver, lower, command):
        if driver.in_place:
            driver.open(work, lower).close()
        host.drop_caches()
        with driver.open(work, lower) as view:
            yield "cold", [seconds(command, view.path)]
        with driver.open(work, lower) as view:
            yield "warm", [seconds(command, view.path)]
            yield "again", [seconds(command, view.path) for _ in range(3)]

    def extract(self, work, driver, lower, path, unpacked):
        trees.warm(path)
        with driver.open(work, lower, keep=False) as view:
            trees.warm_names(lower)
            host.settle(work.root)
            # After drop_caches the first to create files reads the inode tables for all others.
            for name in ("untimed", "new"):
                target = os.path.join(view.path, name)
                os.mkdir(target)
                taken = seconds(f"tar xf {path}", target)
                host.settle(work.root)
            found = sum(len(names) for _, _, names in os.walk(target))
            if found != unpacked:
                raise host.HostError(f"{found} files after unpacking {unpacked}")
            return taken

    def remove(self, work, driver, lower, removed):
        with driver.open(work, lower, keep=False) as view:
            trees.warm_names(lower)
            host.settle(work.root)
            victims = sorted(os.listdir(lower))[:removed]
            taken = seconds("rm -rf " + " ".join(victims), view.path)
            left = set(os.listdir(view.path)) & set(victims)
            if left:
                raise host.HostError(f"still there after rm -rf: {sorted(left)}")
            return taken

    def measures(self):
        asked = [(f"names/{c}", "warm", 1.5) for c in WALKS]
        asked += [(f"names/{c}", "time", 3) for c in (EXTRACT, REMOVE)]
        cold = [(f"names/{c}", "cold", 1.5) for c in WALKS]
        again = [(f"names/{c}", "again", 1.5) for c in WALKS]
        out = [Faster(s, m, "fuse-overlayfs", 3) for s, m, _ in asked]
        out += [Faster(s, m, "fuse-overlayfs", 3, must=False) for s, m, _ in cold]
        out += [AtMost(s, m, "overlayfs", aim, must=False) for s, m, aim in asked + cold + again]
        return out

    def needed(self):
        return ["overlayfs", "fuse-overlayfs"]

    def tables(self, seen):
        text = ""
        for metric in WALK_METRICS:
            columns = [(c, f"names/{c}", metric) for c in WALKS]
            text += report.table(seen, f"Walking, {metric}", columns)
        columns = [(c, f"names/{c}", "time") for c in (EXTRACT, REMOVE)]
        return text + report.table(seen, "Creating and removing", columns)

    def plot(self, path, seen):
        panels = [(f"{c}, {m}", f"names/{c}", m) for m in WALK_METRICS for c in WALKS]
        panels += [(c, f"names/{c}", "time") for c in (EXTRACT, REMOVE)]
        return report.plot_bars(path, seen, panels)


if __name__ == "__main__":
    sys.exit(cli.main(Names()))
