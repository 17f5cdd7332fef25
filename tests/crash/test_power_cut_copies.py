# SPDX-License-Identifier: Apache-2.0
"""Copies of uppers and power cuts: a copy of what a power cut left, made before anybody mounted it, and a copy that goes
through a power cut itself."""
import os
import random
import shutil
import subprocess
import time

import pytest

from load import ThreadWorker, pictures_under
from recording import RecordedFile, pattern
from scenario import BLOCK, LARGE, MIDDLE, make_lower, on


def _writes(path, recording, fsync_share):
    """A worker body: data, and zeros in one of four bursts."""
    def work(is_stopped, recording=recording):
        dice, written = random.Random(), 1
        size = len(recording.now)
        with RecordedFile(path, recording) as f:
            while not is_stopped():
                is_zeros = dice.random() < 0.25
                for _ in range(dice.randint(1, 40)):
                    off = dice.randrange(size // BLOCK + 1) * BLOCK
                    length = min(BLOCK, size - off)
                    written += 1
                    f.write(off, bytes(length) if is_zeros else pattern(off, length, written))
                if dice.random() < fsync_share:
                    f.fsync()
                time.sleep(0.002)
    return work


def _copy_in_place(machine, sparse):
    """The upper is its own copy from now on, and nobody has mounted it."""
    old = machine.upper.with_name("old")
    machine.upper.rename(old)
    subprocess.run(["cp", "-a", f"--sparse={sparse}", old, machine.upper], check=True)
    shutil.rmtree(old)


@on("ext4", "xfs", "btrfs")
@pytest.mark.parametrize("sparse", ["never", "always"])
@pytest.mark.parametrize("fsync_share", [0, 0.3], ids=["unsynced", "synced"])
def test_copy_of_what_a_power_cut_left(machine, pictures, sparse, fsync_share):
    """The copy carries an open session like the copy of a live upper; each block is old or new all the same, and what was
    synced is there."""
    recording = make_lower(machine, "large", LARGE)
    union = machine.start()
    taken = pictures_under(machine, [ThreadWorker(_writes(union / "large", recording, fsync_share))], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture),
                    prepare=lambda: _copy_in_place(machine, sparse))


def _blocks_of_neither(path, before, after, may_fail):
    try:
        got = path.read_bytes()
    except OSError as e:
        return [] if may_fail else [f"{path.name}: {e.strerror}"]
    return [f"{path.name}: {off}: neither old nor new{', but zeros' if not any(got[off:off + BLOCK]) else ''}"
            for off in range(0, len(got), BLOCK)
            if got[off:off + BLOCK] not in (before[off:off + BLOCK], after[off:off + BLOCK])]


@on("ext4", "xfs", "btrfs", many=("ext4", "xfs", "btrfs"))
@pytest.mark.parametrize("is_synced", [False, True], ids=["unsynced", "synced"])
def test_copy_that_loses_power_itself(machine, pictures, is_synced):
    """The map of the copy may be on the disk and its data not: no block of it is zeros where there was data. What it
    lost of what had been synced before it was copied cannot be read."""
    names = [f"f{number}" for number in range(8)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    before = {name: bytes(recordings[name].now) for name in names}
    union = machine.start()
    for name in names:
        with RecordedFile(union / name, recordings[name]) as f:
            for off in random.sample(range(0, MIDDLE - BLOCK, BLOCK), 12):
                f.write(off, pattern(off, BLOCK, 1))
            if is_synced:
                f.fsync()
    after = {name: bytes(recordings[name].now) for name in names}
    copy = machine.disk.path / "copy"

    def cut():
        subprocess.run(["cp", "-a", machine.upper, copy], check=True)
        for path in [copy / ".wh..wh.veneer"] + [copy / name for name in random.sample(names, 3)]:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        picture = machine.cut()
        shutil.rmtree(copy)
        return picture

    taken = [cut() for _ in range(pictures)]

    problems = []
    for picture in taken:
        machine.reborn(picture)
        shutil.rmtree(machine.upper)
        if copy.exists():
            copy.rename(machine.upper)
        else:
            machine.upper.mkdir()
        union = machine.start()
        for name in names:
            problems += _blocks_of_neither(union / name, before[name], after[name], is_synced)
    assert not problems, "\n".join(problems[:12])
