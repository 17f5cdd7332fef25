# SPDX-License-Identifier: Apache-2.0
"""A working copy of a large repository: made, looked at, and carried back."""

import os
import time

from support import drivers, host, shell, tables, trees
from support.measures import AtMost, Below
from support.scenario import Scenario
from support.views import View

NAME = "own/clone"
# (top directories, subdirectories each, files each)
FULL, QUICK = (31, 30, 100), (10, 8, 40)
CHANGED = 100
STATUS = "git --no-optional-locks status"
PEERS = "native", "vfs", "btrfs", "reflink", "overlayfs"


def build(root, quick):
    trees.names(root, *(QUICK if quick else FULL))
    trees.commit(root)


def some_files(root):
    found = sorted(os.path.join(here, name) for here, _, files in os.walk(root) if ".git" not in here for name in files)
    return found[::len(found) // CHANGED][:CHANGED]


def change(root, text):
    """The paths, relative, of the files that are other ones then."""
    paths = some_files(root)
    for path in paths:
        with open(path, "ab") as f:
            f.write(text)
    return [os.path.relpath(path, root) for path in paths]


class Clone(View):
    """Of `veneer clone`."""

    def __init__(self, work, lower):
        super().__init__(os.path.join(work.scratch("host"), "clone"))
        self.lower, self.state = lower, work.scratch("host")
        self.command("clone", lower, self.path)

    def command(self, *arguments):
        host.run("env", f"VENEER_STATE_DIR={self.state}", drivers.veneer_binary(), *arguments)

    def apply(self):
        self.command("apply", self.path)

    def close(self):
        self.command("discard", self.path)
        os.rmdir(os.path.dirname(self.path))
        host.run("rm", "-rf", self.state)


class Clones(Scenario):
    """A working copy of a repository of 93,000 files: `veneer clone` and `apply`

    No paper has this; agents, and whoever works on several branches, do it. A git repository of 93,000 files of 100 bytes to 5 KiB
    (3,200 in a quick run) gets a working copy: `veneer clone`, a copy (vfs), a snapshot (btrfs), cp --reflink on XFS, an overlayfs mount. Timed are its making,
    `git status` in it the first and the second time, and carrying 100 changed files back: `veneer apply`, and `cp --parents -p` of those
    files, whose names a copy has to know. Both end with a sync of the file system. native is the repository itself."""

    name = NAME
    question = "How long does the copy of a whole file take, and what does it take on the disk?"
    drivers = *PEERS, "veneer"
    quick_drivers = "native", "vfs", "veneer"
    without = {"dm-thin": "as btrfs"}
    seconds = 4.5, 1.5
    headline = [("a working copy of 93,000 files", NAME, "made"), ("`git status` in it, again", NAME, "status again")]

    def cells(self, quick):
        return ["a repository"]

    def act(self, run, cell, driver):
        lower = run.lower("clone", lambda root: build(root, run.quick))
        began = time.monotonic()
        view = Clone(run.work, lower) if driver.name == "veneer" else driver.open(run.work, lower, keep=driver.name == "native")
        with view:
            if not driver.in_place:
                run.add(NAME, "made", [time.monotonic() - began], "s")
            run.add(NAME, "status", [shell.seconds(view, STATUS)], "s")
            run.add(NAME, "status again", [shell.seconds(view, STATUS) for _ in range(3)], "s")
            if not driver.in_place:
                run.add(NAME, "carried back", [self.carry_back(view, lower, run.round)], "s")

    @staticmethod
    def carry_back(view, lower, number):
        names = change(view.path, b"\n%d\n" % number)
        host.sync_fs(view.path)
        began = time.monotonic()
        if isinstance(view, Clone):
            view.apply()
        else:
            host.run("sh", "-c", 'cd "$0" && target=$1 && shift && cp -p --parents -- "$@" "$target"', view.path, lower, *names)
        host.sync_fs(lower)
        return time.monotonic() - began

    def measures(self):
        return [Below(NAME, "made", 0.02, must=False), AtMost(NAME, "status again", "native", 1.5, must=False),
                AtMost(NAME, "carried back", "vfs", 2, must=False), AtMost(NAME, "made", "vfs", 0.1),
                AtMost(NAME, "made", "btrfs", 1, must=False), AtMost(NAME, "made", "reflink", 1, must=False), AtMost(NAME, "status again", "overlayfs", 1, must=False)]

    def tables(self, seen):
        return tables.table(seen, "seconds", [(metric, NAME, metric) for metric in ("made", "status", "status again", "carried back")])
