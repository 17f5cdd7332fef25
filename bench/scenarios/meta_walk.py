# SPDX-License-Identifier: Apache-2.0
"""What walking, listing, packing and reading many small files costs."""

from support import host, plots, shell, tables, trees
from support.measures import AtMost, Faster, FlatIn
from support.scenario import Scenario

# tar skips all file data when its archive is /dev/null itself, so its output goes through a pipe.
WALKS = {"find": "find .", "ls -lR": "ls -lR .", "du": "du -s .", "tar c": "tar cf - . | cat",
         "git status": "git --no-optional-locks status"}
# find and du do less than ls -lR: the quick run does without.
QUICK_WALKS = ["ls -lR", "tar c", "git status"]
# cold: nothing in memory; first: the lower tree is, the mount is new; warm: the same mount again;
# sibling: a new mount beside one that has walked the tree.
METRICS = ("cold", "first", "warm", "sibling")
REFERENCES = ("fuse-overlayfs", "fuse-overlayfs-2")

# (top directories, subdirectories each, files each)
FULL, QUICK = (25, 20, 60), (5, 8, 40)


def build(root, quick):
    trees.names(root, *(QUICK if quick else FULL))
    trees.commit(root)


class Walk(Scenario):
    """Walking 30,000 small files

    No paper has this; containers do it at every start, build and commit. 30,000 files of 100 bytes
    to 5 KiB in 525 directories (1,600 in 45 in a quick run), a git repository too. `cold`: after
    drop_caches, on a fresh mount. `first`: on a fresh mount, the lower tree being in the page cache.
    `warm`: on that mount again: what the kernel keeps of it. `sibling`: the first walk of a second
    mount beside it. The last three are made as a container engine makes mounts. A plain directory
    has no fresh mount, so its first is a warm."""

    name = "meta/walk"
    question = "How long do walks of 30,000 small files take, in a new mount and again?"
    without = {"vfs": "each mount would copy the tree", "btrfs": "a snapshot is a plain tree",
               "overlayfs-metacopy": "it differs in copies only", "overlayfs-xfs": "as overlayfs",
               "veneer-cached": "as veneer but for tar", "veneer-rootless": "as veneer but for tar",
               "veneer-direct": "names are the same in all modes",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    headline = [(f"`{c}` of 30,000 files, {m}", f"meta/walk/{c}", k)
                for c in ("ls -lR", "tar c") for m, k in (("new mount", "first"), ("again", "warm"))]
    seconds = 4.2, 0.8

    def cells(self, quick):
        return QUICK_WALKS if quick else list(WALKS)

    def act(self, run, cell, driver):
        lower = run.lower("names", lambda root: build(root, run.quick))
        for metric, taken in self.walks(run, driver, lower, WALKS[cell]):
            run.add(f"meta/walk/{cell}", metric, taken, "s")

    @staticmethod
    def walks(run, driver, lower, command):
        if driver.in_place:
            driver.open(run.work, lower).close()
        host.drop_caches()
        with driver.open(run.work, lower) as view:
            yield "cold", [shell.seconds(view, command)]
        with driver.group(run.work) as group:
            view = group.add(run.work, lower)
            yield "first", [shell.seconds(view, command)]
            yield "warm", [shell.seconds(view, command)]
            if not driver.in_place:
                yield "sibling", [shell.seconds(group.add(run.work, lower), command)]

    def measures(self):
        out = [AtMost(f"meta/walk/{c}", "warm", "overlayfs", 1.5) for c in WALKS]
        out += [Faster(f"meta/walk/{c}", m, r, 1) for c in WALKS for m in METRICS
                for r in REFERENCES]
        out += [Faster(f"meta/walk/{c}", m, "fuse-overlayfs", 3) for c in WALKS
                if not c.startswith("git") for m in ("cold", "warm")]
        # What the sibling before has walked is known.
        out += [FlatIn(f"meta/walk/{c}", f"meta/walk/{c}", "sibling", 1, than="first", must=False)
                for c in WALKS]
        return out + [AtMost(f"meta/walk/{c}", m, "overlayfs", 1.5, must=False)
                      for c in WALKS for m in METRICS if m != "warm"]

    def tables(self, seen):
        return "".join(tables.table(seen, f"Walking, {m}", [(c, f"meta/walk/{c}", m) for c in WALKS])
                       for m in METRICS)

    def plots(self, seen):
        panels = [(f"{c}, {m}", f"meta/walk/{c}", m) for m in METRICS for c in WALKS]
        return [("meta-walk", lambda path: plots.bars(path, seen, panels))]
