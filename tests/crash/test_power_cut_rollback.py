# SPDX-License-Identifier: Apache-2.0
"""The power fails after any call of `veneer rollback`: everything looks as before, or as the snapshot does."""
import pytest

from scenario import on
from snapshots import MTIME, Kept, difference, go_back, served, shown, without
from steps import Steps


class RolledBack(Kept):
    def look(self, view, picture):
        """What was shown is kept as soon as something else is shown."""
        names, got = self.names(), shown(view.path)
        view.must(names in (self.NAMES, (*self.NAMES, "kept")), f"the snapshots are {names}")
        want = self.shown["one"] if "kept" in names else self.live
        if view.way == "as a lower":
            # The root gets its modification time back from a mount that writes.
            want, got = ({**looks_so, ".": without(MTIME, {".": looks_so["."]})["."]} for looks_so in (want, got))
        view.problems += difference(want, got)

    def afterwards(self, picture):
        lines = self.problems() + self.try_next("rollback", "--keep", "again", self.machine.upper, "two")
        lines += self.problems_of_upper(self.shown["two"])
        return lines + self.problems()

    def prepare(self, server):
        super().prepare(server)
        self.shown["kept"] = self.live


@pytest.fixture
def rolled_back(machine, veneer_bin):
    return RolledBack(machine, veneer_bin)


def _examine(rolled_back, steps, count):
    steps.examine(count, rolled_back.look, rolled_back.afterwards, '"chain.new"')


@on("ext4", "xfs", pictures=6, many_pictures=1000)
def test_mount_in_use(rolled_back, veneer_bin, watchdog, pictures, tmp_path):
    machine = rolled_back.machine
    steps = Steps(machine)
    with served(machine, veneer_bin, tmp_path / "run", watchdog) as server:
        rolled_back.prepare(server)
        steps.of_server(server, lambda: go_back(server, "--keep", "kept", machine.mnt, "one"))
        assert difference(rolled_back.shown["one"], shown(machine.mnt)) == []
    _examine(rolled_back, steps, pictures)


@on("ext4", "xfs", pictures=4, many_pictures=1000)
def test_upper_that_is_not_mounted(rolled_back, veneer_bin, watchdog, pictures, tmp_path):
    steps = Steps(rolled_back.machine)
    with served(rolled_back.machine, veneer_bin, tmp_path / "run", watchdog) as server:
        rolled_back.prepare(server)
    steps.of_program([veneer_bin, "rollback", "--keep", "kept", rolled_back.machine.upper, "one"])
    _examine(rolled_back, steps, pictures)
