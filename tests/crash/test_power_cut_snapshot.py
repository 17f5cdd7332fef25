# SPDX-License-Identifier: Apache-2.0
"""The power fails while snapshots are taken under load: what was synced is there, and a snapshot that was taken is whole."""
import json
import os
import random
import time

import pytest

from load import ThreadWorker, pictures_under
from machine import state_of
from recording import RecordedFile, pattern
from scenario import BLOCK, LARGE, MIDDLE, make_lower, on
from snapshots import served, tell
from support import treestate
from support.snapshots import BRANCHES

_MAP = ".wh..wh.veneer"
_FILES = 3
_PAUSE_S = 0.03  # between two snapshots
_LOOKS = 8  # at snapshots of each picture, the newest among them


def _snapshots(upper):
    """{name: id} by the chain."""
    chain = upper / BRANCHES / "chain"
    if not chain.exists():
        return {}
    return {e["name"]: e["id"] for e in json.loads(chain.read_text().splitlines()[0])["snapshots"]}


class Taker:
    """Takes them one after the other, and knows of each what it was like and when it was there."""

    def __init__(self, machine, server):
        self.machine, self.server, self.taken = machine, server, []

    def __call__(self, is_stopped):
        while not is_stopped():
            name = tell(self.server, "snapshot", self.machine.mnt)
            place = self.machine.upper / BRANCHES / _snapshots(self.machine.upper)[name]
            self.taken.append((time.monotonic(), place.name, state_of(place)))
            time.sleep(_PAUSE_S)

    def look(self, view, picture):
        there = [(number, state) for at, number, state in self.taken if at <= picture.start]
        older = there[:-_LOOKS // 2]
        for number, state in there[-_LOOKS // 2:] + random.sample(older, min(len(older), _LOOKS // 2)):
            # Its last renaming is synced by nobody, nor is that the map has lost its first name.
            places = [path for path in (self.machine.upper / BRANCHES).glob(f"{number}*")]
            view.must(len(places) == 1, f"snapshot {number} is not there")
            for place in places:
                lines = [line for line in treestate.differences(state, state_of(place)) if not line.startswith((".: ctime", f"{_MAP}: ctime", f"{_MAP}: nlink"))]
                view.problems += [f"snapshot {number}: {line}" for line in lines[:3]]


def _write(machine, recording, name, chance):
    def run(is_stopped):
        with RecordedFile(machine.mnt / name, recording) as f:
            version = 1
            while not is_stopped():
                off = chance.randrange(LARGE // BLOCK) * BLOCK + chance.choice((0, 100))
                f.write(min(off, LARGE - 5000), pattern(min(off, LARGE - 5000), 5000, version))
                version += 1
                if version % 5 == 0:
                    f.fsync()
    return run


def _rename(machine):
    def run(is_stopped):
        number = 0
        while not is_stopped():
            path = machine.mnt / f"new{number % 7}"
            path.write_bytes(pattern(0, MIDDLE, number))
            path.replace(machine.mnt / "sub" / f"moved{number % 3}")
            number += 1
    return run


@on("ext4", "xfs", "btrfs", pictures=6, many_pictures=30)
@pytest.mark.parametrize("options", ["branches=on", "io=cached"])
def test_snapshots_under_load(machine, veneer_bin, watchdog, pictures, options, tmp_path):
    recordings = {f"f{k}": make_lower(machine, f"f{k}", LARGE) for k in range(_FILES)}
    (machine.lower / "sub").mkdir()
    with served(machine, veneer_bin, tmp_path / "run", watchdog) as server:
        machine.start(options)
        taker = Taker(machine, server)
        workers = [ThreadWorker(taker), ThreadWorker(_rename(machine))]
        workers += [ThreadWorker(_write(machine, recording, name, random.Random(name))) for name, recording in recordings.items()]
        taken = pictures_under(machine, workers, pictures, pause_s=0.2)
    assert len(taker.taken) > 1

    def look(view, picture):
        view.must_fit(recordings, picture)
        taker.look(view, picture)
        for name in os.listdir(view.path / "sub"):
            view.read(f"sub/{name}")
    machine.examine(taken, look)
