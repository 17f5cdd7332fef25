#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What giving every file of a lower tree to somebody else costs, in time and on disk."""

import os
import stat
import sys

from names import seconds
from support import cli, host, report, trees
from support.measures import AtMost, Below

UID, GID = 1234, 2345
# (top directories, subdirectories each, files each): 30,000 files, or 3,000
FULL, QUICK = (25, 20, 60), (5, 10, 60)
KINDS = {"small": "100 bytes to 5 KiB", "large": "32 KiB"}
LARGE = 32 << 10


def scale(args):
    return QUICK if args.quick else FULL


def build(kind, tops, subs, files):
    def large(root):
        for top in range(tops):
            for sub in range(subs):
                here = os.path.join(root, f"d{top:02}", f"s{sub:02}")
                os.makedirs(here)
                for i in range(files):
                    trees.write_file(os.path.join(here, f"name-{i:03}.txt"), LARGE)
    return large if kind == "large" else lambda root: trees.names(root, tops, subs, files)


def data_bytes(path):
    """Bytes of a file that are not hole."""
    total, off = 0, 0
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        while off < size:
            try:
                start = os.lseek(fd, off, os.SEEK_DATA)
            except OSError:
                break
            off = os.lseek(fd, start, os.SEEK_HOLE)
            total += min(off, size) - start
    finally:
        os.close(fd)
    return total


def upper_data(upper):
    """Bytes of data of the tree's files; a driver's own files in its root are not data."""
    total = 0
    for here, _, names in os.walk(upper):
        for name in names:
            path = os.path.join(here, name)
            if here != upper and stat.S_ISREG(os.lstat(path).st_mode):
                total += data_bytes(path)
    return total


class Chown(cli.Scenario):
    name = "chown"
    title = "chown -R of a lower tree"
    default_rounds = 5
    creates_files = True

    def cells(self, args):
        return list(KINDS)

    def act(self, args, work, i, cell, driver, seen):
        if driver.kind == "btrfs" or driver.in_place:
            return
        tops, subs, files = scale(args)
        count = tops * subs * files
        lower = work.lower(driver.kind, f"chown-{cell}", build(cell, tops, subs, files))
        before = trees.state(lower)
        with driver.open(work, lower, keep=False) as view:
            trees.warm_names(lower)
            host.settle(work.root)
            taken_before = view.bytes_taken()
            taken = seconds(f"chown -R {UID}:{GID} .", view.path)
            self.check(view.path, count)
            scenario = f"chown/{cell}"
            seen.add(scenario, "time", driver.name, i, [taken], "s")
            host.settle(work.root)
            seen.add(scenario, "data bytes", driver.name, i, [upper_data(view.upper)], "bytes")
            seen.add(scenario, "upper bytes a file", driver.name, i,
                     [(view.bytes_taken() - taken_before) / count], "bytes")
        if trees.state(lower) != before:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")

    @staticmethod
    def check(root, count):
        found = 0
        for here, directories, names in os.walk(root):
            for name in directories + names:
                st = os.lstat(os.path.join(here, name))
                if (st.st_uid, st.st_gid) != (UID, GID):
                    raise host.HostError(f"{here}/{name} still belongs to {st.st_uid}")
            found += len(names)
        if found != count:
            raise host.HostError(f"{found} files, not {count}")

    def measures(self):
        out = []
        for cell in KINDS:
            out += [AtMost(f"chown/{cell}", "time", "overlayfs-metacopy", 1.2),
                    Below(f"chown/{cell}", "data bytes", 0),
                    Below(f"chown/{cell}", "upper bytes a file", 1024)]
        return out

    def needed(self):
        return ["overlayfs-metacopy"]

    def tables(self, seen):
        text = ""
        for cell, what in KINDS.items():
            columns = [(m, f"chown/{cell}", m) for m in
                       ("time", "data bytes", "upper bytes a file")]
            text += report.table(seen, f"Files of {what}", columns, ratios=False)
        return text

    def plot(self, path, seen):
        return report.plot_bars(path, seen, [(f"{c}: {m}", f"chown/{c}", m) for c in KINDS
                                             for m in ("time", "upper bytes a file")])


if __name__ == "__main__":
    sys.exit(cli.main(Chown()))
