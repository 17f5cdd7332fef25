# SPDX-License-Identifier: Apache-2.0
"""What unpacking and removing many small files costs."""

import os
import random
import tarfile

from support import host, plots, shell, trees
from support.measures import AtMost, Faster
from support.scenario import Scenario

EXTRACT, REMOVE = "tar x", "rm -rf"
# Of overlayfs's time.
AIMS = {EXTRACT: 2.5, REMOVE: 3}
# (top directories, subdirectories each, files each; top directories removed; files unpacked)
FULL, QUICK = (25, 20, 60, 14, 20_000), (5, 10, 60, 3, 1500)


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


def count_files(root):
    return sum(len(names) for _, _, names in os.walk(root))


class Files(Scenario):
    """Unpacking 20,000 small files, and removing 17,000 of a lower tree

    No paper has this; package installs and builds are made of it. `tar x` unpacks files of 100
    bytes to 4 KiB into a new directory of the mount, for the second time: after drop_caches the
    first to create files reads the inode tables for all others. `rm -rf` removes 17,094 entries
    (1,833 in a quick run) of the lower tree on a fresh mount, lower names warm. What came and went
    is counted; nothing is synced in the timed part."""

    name = "meta/files"
    question = "How long does it take to unpack 20,000 small files, and to remove 17,000 of a lower tree?"
    without = {"vfs": "each mount would copy the tree", "overlayfs-xfs": "as overlayfs", "btrfs": "a snapshot is a plain tree",
               "veneer-direct": "names are the same in all modes",
               "overlayfs-metacopy": "as overlayfs where all is new",
               "veneer-cached": "as veneer where nothing is read",
               "veneer-rootless": "as veneer where nothing is read",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    headline = [("20,000 files unpacked by tar", "meta/files/tar x", "time"),
                ("17,000 lower files removed", "meta/files/rm -rf", "time")]
    seconds = 7.2, 1.2

    def cells(self, quick):
        return [EXTRACT, REMOVE]

    def act(self, run, cell, driver):
        tops, subs, files, removed, unpacked = QUICK if run.quick else FULL
        lower = run.lower("names", lambda root: trees.names(root, tops, subs, files))
        entries = tops + tops * subs + tops * subs * files
        with driver.open(run.work, lower, keep=False) as view:
            if cell == EXTRACT:
                taken = self.extract(run.work, view, archive(run.work, unpacked), unpacked)
            else:
                taken = self.remove(run.work, view, lower, removed)
        run.add(f"meta/files/{cell}", "time", [taken], "s")
        if not driver.in_place and sum(1 for _ in host.walk(lower)) != entries + 1:
            raise host.HostError("THE LOWER LAYER WAS CHANGED")

    @staticmethod
    def extract(work, view, path, unpacked):
        trees.warm(path)
        host.settle(work.root)
        for name in ("untimed", "new"):
            target = os.path.join(view.path, name)
            view.call(os.mkdir, target)
            taken = shell.seconds(view, f"tar xf {path} -C {name}")
            host.settle(work.root)
        found = view.call(count_files, target)
        if found != unpacked:
            raise host.HostError(f"{found} files after unpacking {unpacked}")
        return taken

    @staticmethod
    def remove(work, view, lower, removed):
        trees.warm_names(lower)
        host.settle(work.root)
        victims = sorted(os.listdir(lower))[:removed]
        taken = shell.seconds(view, "rm -rf " + " ".join(victims))
        left = set(view.call(os.listdir, view.path)) & set(victims)
        if left:
            raise host.HostError(f"still there after rm -rf: {sorted(left)}")
        return taken

    def measures(self):
        return ([AtMost(f"meta/files/{c}", "time", "overlayfs", aim) for c, aim in AIMS.items()] +
                [Faster(f"meta/files/{c}", "time", r, factor) for c in AIMS
                 for r, factor in (("fuse-overlayfs", 3), ("fuse-overlayfs-2", 1))])

    def plots(self, seen):
        panels = [(c, f"meta/files/{c}", "time") for c in AIMS]
        return [("meta-files", lambda path: plots.bars(path, seen, panels))]
