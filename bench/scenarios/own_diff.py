# SPDX-License-Identifier: Apache-2.0
"""What it takes to say what a layer changes, beside walking the trees."""

import os

from support import drivers, host, scenario, shell, tables, trees
from support.measures import FlatIn

NAME = "own/diff"
# (top directories, subdirectories each, files each), and large files of which a block is written
FULL, QUICK = (15, 20, 40, 200), (10, 20, 40, 100)
LARGE = 64 * trees.KIB
EVERY = 10  # one small file in so many is changed, one in so many is removed
TIMES = 3
TREE, LAYER = "find -ls of the tree", "find -ls of the layer"
ALONE, BELOW = "veneer diff", "veneer diff -o lowerdir="


def build(root, quick):
    tops, subs, files, large = QUICK if quick else FULL
    trees.names(root + "/names", tops, subs, files)
    os.mkdir(root + "/large")
    for i in range(large):
        trees.write_file(f"{root}/large/{i}", LARGE)


def change(root):
    """How many entries are other ones then."""
    small = sorted(os.path.join(here, name) for here, _, files in os.walk(root + "/names") for name in files)
    for path in small[::EVERY]:
        with open(path, "ab") as f:
            f.write(b"more")
    for path in small[1::EVERY]:
        os.unlink(path)
    large = os.listdir(root + "/large")
    for name in large:
        with open(f"{root}/large/{name}", "r+b") as f:
            f.write(b"x")
    for i in range(len(large)):
        trees.write_file(f"{root}/large/new-{i}", 100)
    return len(small[::EVERY]) + len(small[1::EVERY]) + 2 * len(large)


class Diff(scenario.Scenario):
    """What a layer changes: `veneer diff` beside walks of the trees

    No paper has this. A tree of 12,000 small files and 200 of 64 KiB (8,000 and 100 in a quick run); in a container one in ten
    of the small ones is changed and one in ten removed, of each larger one a block is written, and 200 are new. Then its
    layer is listed, in use: `veneer diff` of the layer alone and with what it lies on, against `find -ls` of the container's tree,
    which is what a comparison of trees takes at least, and of the layer's own directory, which says
    nothing of blocks. All is in memory."""

    name = NAME
    question = "How long does it take to say what a layer changes?"
    drivers = ("veneer",)
    seconds = 2.5, 2.0

    def cells(self, quick):
        return ["a layer"]

    def act(self, run, cell, driver):
        lower = run.lower("diff", lambda root: build(root, run.quick))
        diff = drivers.veneer_binary() + " diff "
        with driver.open(run.work, lower) as view:
            changed = view.call(change, view.path)
            commands = {TREE: "find . -ls", LAYER: f"find {view.upper} -ls", ALONE: diff + view.upper,
                        BELOW: f"{diff} -o lowerdir={lower} {view.upper}"}
            listed = host.run(*view.argv("sh", "-c", diff + view.upper + " | grep -c '^[ACD] .*[^/]$'"))
            if int(listed) < changed:
                raise host.HostError(f"{listed.strip()} entries are listed, {changed} were changed")
            for what, command in commands.items():
                shell.seconds(view, command)
                run.add(f"{NAME}/{what}", "time", [shell.seconds(view, command) for _ in range(TIMES)], "s")

    def tables(self, seen):
        columns = [(cell, f"{NAME}/{cell}", "time") for cell in (TREE, LAYER, ALONE, BELOW)]
        return tables.table(seen, "a layer that is in use, names in memory", columns)

    def measures(self):
        return [FlatIn(f"{NAME}/{ALONE}", f"{NAME}/{TREE}", "time", 1)]
