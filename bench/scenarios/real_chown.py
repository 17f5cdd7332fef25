# SPDX-License-Identifier: Apache-2.0
"""What giving every file of a lower tree to somebody else costs, in time and on disk."""

import os

from support import host, plots, scenario, shell, tables, trees
from support.measures import AtMost, Below

UID, GID = 1234, 2345
# (top directories, subdirectories each, files each): 6,000 files and 30,000, or 2,000
FULL = {"small": (5, 20, 60), "large": (25, 20, 60)}
QUICK = dict.fromkeys(FULL, (5, 10, 40))
KINDS = {"small": "100 bytes to 5 KiB", "large": "32 KiB"}
LARGE = 32 << 10


def scenario_name(kind):
    return f"real/chown/{kind}"


def build(kind, tops, subs, files):
    sizes = (LARGE, LARGE) if kind == "large" else trees.SMALL
    return lambda root: trees.names(root, tops, subs, files, sizes)


def upper_data(upper):
    """Bytes of data of the tree's files; a driver's own files in its root are not data."""
    return sum(host.exclusive_bytes(os.path.join(upper, name)) for name in os.listdir(upper)
               if os.path.isdir(os.path.join(upper, name)))


def wrong_owner(root, count):
    """What is wrong with the tree, "" if nothing."""
    found = 0
    for here, directories, names in os.walk(root):
        for name in directories + names:
            st = os.lstat(os.path.join(here, name))
            if (st.st_uid, st.st_gid) != (UID, GID):
                return f"{here}/{name} still belongs to {st.st_uid}"
        found += len(names)
    return "" if found == count else f"{found} files, not {count}"


class Chown(scenario.Scenario):
    """chown -R of a lower tree

    No paper has this; engines do it to every layer when ids are mapped. 30,000 files of 32 KiB,
    and 6,000 small ones (2,000 in a quick run), names warm, on a fresh mount. Data bytes are those
    of the upper's files that are not hole, in whole blocks, a driver's own files in its root left
    out. Owners are checked afterwards."""

    name = "real/chown"
    question = "How long does a change of all owners take, and what does it take on the disk?"
    without = {"native": "there is no upper to look at", "btrfs": "there is no upper to look at",
               "dm-thin": "there is no upper to look at",
               "vfs": "there is no upper to look at",
               "veneer-cached": "as veneer where no data is moved",
               "veneer-direct": "as veneer where no data is moved",
               "veneer-rootless": "as veneer", "fuse-overlayfs-rootless": "as fuse-overlayfs",
               "overlayfs-xfs": "as overlayfs-metacopy, but for the blocks it shares"}
    # Small files show that none is copied either.
    small_drivers = "overlayfs-metacopy", "veneer", "fuse-overlayfs-2"
    quick_drivers = "overlayfs", "overlayfs-metacopy", "veneer", "fuse-overlayfs-2"
    seconds = 6.0, 0.9
    headline = [("`chown -R` of 30,000 files of 32 KiB", scenario_name("large"), "time")]

    def cells(self, quick):
        return list(KINDS)

    def has(self, cell, driver):
        return cell != "small" or driver in self.small_drivers

    def act(self, run, cell, driver):
        tops, subs, files = (QUICK if run.quick else FULL)[cell]
        count = tops * subs * files
        lower = run.lower(f"chown-{cell}", build(cell, tops, subs, files))
        before = trees.state(lower)
        with driver.open(run.work, lower, keep=False) as view:
            trees.warm_names(lower)
            host.settle(run.work.root)
            taken_before = view.bytes_taken()
            taken = shell.seconds(view, f"chown -R {UID}:{GID} .")
            run.add(scenario_name(cell), "time", [taken], "s")
            wrong = view.call(wrong_owner, view.path, count)
            if wrong:
                raise host.HostError(wrong)
            host.sync_fs(run.work.volume(driver.kind))
            run.add(scenario_name(cell), "data bytes", [upper_data(view.upper)], "bytes")
            run.add(scenario_name(cell), "upper bytes a file",
                    [(view.bytes_taken() - taken_before) / count], "bytes")
        trees.must_be(lower, before)

    def measures(self):
        out = []
        for kind in KINDS:
            out += [AtMost(scenario_name(kind), "time", "overlayfs-metacopy", 1.2),
                    Below(scenario_name(kind), "data bytes", 0),
                    Below(scenario_name(kind), "upper bytes a file", 1024),
                    AtMost(scenario_name(kind), "time", "fuse-overlayfs-2", 1)]
        return out + [AtMost(scenario_name("large"), "time", peer, 1)
                      for peer in ("overlayfs", "fuse-overlayfs")]

    def tables(self, seen):
        text = ""
        for kind, what in KINDS.items():
            columns = [(m, scenario_name(kind), m) for m in
                       ("time", "data bytes", "upper bytes a file")]
            text += tables.table(seen, f"Files of {what}", columns, ratios=False)
        return text

    def plots(self, seen):
        panels = [(f"{k}: {m}", scenario_name(k), m) for k in KINDS
                  for m in ("time", "upper bytes a file")]
        return [("real-chown", lambda path: plots.bars(path, seen, panels))]
