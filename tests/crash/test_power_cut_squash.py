# SPDX-License-Identifier: Apache-2.0
"""The power fails after any call of `veneer squash`: everything looks as it did, and the snapshots are the old ones or one."""
import pytest

from scenario import on
from snapshots import LINKS, Kept, difference, served, shown, tell, without
from steps import Steps
from support import layers

_AFTER = ("base", "two", "later")
_RANGE = "one..two"


class Squashed(Kept):
    def look(self, view, picture):
        names = self.names()
        view.must(names in (self.NAMES, _AFTER), f"the snapshots are {names}")
        want, got = self.live, shown(view.path)
        if view.way == "as a lower":
            # What was linked keeps its second name until a mount that writes comes.
            want, got = without(LINKS, want), without(LINKS, got)
        view.problems += difference(want, got)

    def afterwards(self, picture):
        lines = self.problems() + self.try_next("squash", "--quiet", "-o", self.options())
        names = self.names()
        lines += [] if names == _AFTER[-1:] else [f"after another squash the snapshots are {names}"]
        return lines + self.problems() + self.problems_of_upper(self.live)

    def options(self):
        return layers.options(self.machine.upper, [self.machine.lower])


@pytest.fixture
def squashed(machine, veneer_bin):
    return Squashed(machine, veneer_bin)


def _examine(squashed, steps, count):
    steps.examine(count, squashed.look, squashed.afterwards, "RENAME_EXCHANGE")


@on("ext4", "xfs", pictures=6, many_pictures=1000)
def test_mount_in_use(squashed, veneer_bin, watchdog, pictures, tmp_path):
    machine = squashed.machine
    steps = Steps(machine)
    with served(machine, veneer_bin, tmp_path / "run", watchdog) as server:
        squashed.prepare(server)
        steps.of_server(server, lambda: tell(server, "squash", "--quiet", machine.mnt, _RANGE))
        assert difference(squashed.live, shown(machine.mnt)) == []
    _examine(squashed, steps, pictures)


@on("ext4", "xfs", pictures=6, many_pictures=1000)
def test_upper_that_is_not_mounted(squashed, veneer_bin, watchdog, pictures, tmp_path):
    steps = Steps(squashed.machine)
    with served(squashed.machine, veneer_bin, tmp_path / "run", watchdog) as server:
        squashed.prepare(server)
    steps.of_program([veneer_bin, "squash", "--quiet", "-o", squashed.options(), _RANGE])
    _examine(squashed, steps, pictures)
