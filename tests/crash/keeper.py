# SPDX-License-Identifier: Apache-2.0
"""Sequences in whose course snapshots are taken, merged, and gone back to."""
import time

from sequences import Player
from snapshots import go_back, layers_of, listed, tell


class Keeper(Player):
    """Snapshots are of all sandboxes, those in which nothing has happened yet included."""

    def __init__(self, machine, sandboxes, dice, server):
        super().__init__(machine, sandboxes, dice)
        self._server, self._taken = server, 0
        self._frozen, self._parents, self._head = {}, {}, None

    def kept(self):
        """{name: the names of each sandbox} by now."""
        return dict(self._frozen)

    def _add(self, name):
        self._taken += 1
        self._parents[name], self._frozen[name] = self._head, [box.frozen() for box in self._sandboxes]

    def _snapshot(self):
        name, start = f"k{self._taken}", time.monotonic()
        tell(self._server, "snapshot", self._machine.mnt, name)
        end = time.monotonic()
        for box in self._sandboxes:
            box.all_synced(start, end)
        self._add(name)
        self._head = name

    def _rollback(self):
        """To any of them."""
        if not self._frozen:
            self._snapshot()
        name, kept = self._dice.choice(sorted(self._frozen)), f"k{self._taken}"
        go_back(self._server, "--keep", kept, self._machine.mnt, name)
        self._add(kept)
        self._head = name
        for box, names in zip(self._sandboxes, self._frozen[name]):
            box.went_back(names)

    def _squash(self):
        """All below the one that the mount stands on, as far as nothing else stands on them."""
        if not self._frozen:
            self._snapshot()
        tell(self._server, "squash", "--quiet", self._machine.mnt)
        while (below := self._parents[self._head]) and list(self._parents.values()).count(below) == 1:
            self._parents[self._head] = self._parents.pop(below)
            del self._frozen[below]


def problems_of_kept(machine, program, boxes, kept, picture, dice):
    """They are there, all and no others, and one of them holds what it held when it was taken."""
    snapshots = listed(program, machine.upper)
    if snapshots.keys() != kept.keys():
        return [f"the snapshots are {sorted(snapshots)}, not {sorted(kept)}"]
    if not kept:
        return []
    name = dice.choice(sorted(kept))
    with machine.showing(layers_of(machine, snapshots, name)) as view:
        return [f"snapshot {name}: {line}" for box, names in zip(boxes, kept[name])
                for line in box.problems_of_frozen(view, names, picture) + view.problems]
