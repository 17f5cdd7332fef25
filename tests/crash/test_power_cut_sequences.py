# SPDX-License-Identifier: Apache-2.0
"""The power fails right after each of a few operations and syncs, in all orders that dice find.

VENEER_CRASH_SEED repeats the sequences of a run; a failure says which it was.
"""
import os
import random

import pytest

from keeper import Keeper, problems_of_kept
from sandbox import Sandbox
from scenario import BLOCK
from sequences import ALPHABET, Player
from snapshots import served

SEED = int(os.environ.get("VENEER_CRASH_SEED") or random.randrange(1 << 32))
_BATCH = 22
_KEEPING = 10  # in a batch with snapshots
_SHOWN = 3
_points = []


def make_boxes(machine, count):
    print(f"seed {SEED}")
    boxes = [Sandbox(machine.lower, f"s{i}", machine.unit) for i in range(count)]
    (machine.lower / "noise").write_bytes(b"n" * (64 * BLOCK))
    return boxes


def play(machine, boxes, sequences, dice, share, is_volatile=False):
    """A sequence in each box; after a share of their syncs, and after the last one, a picture."""
    player, begun, taken = Player(machine, boxes, dice, is_volatile), [], []

    def at_point(is_last=False):
        if is_last or dice.random() < share:
            taken.append((machine.cut(), len(begun)))
    for box, sequence in zip(boxes, sequences):
        box.enter(machine.mnt)
        begun.append(box)
        player.play(box, sequence, at_point)
    at_point(True)
    return taken


def examine(machine, boxes, taken, afterwards=None):
    """Each picture tells of all sequences begun by then."""
    begun = {picture.number: count for picture, count in taken}

    def look(view, picture):
        for box in boxes[:begun[picture.number]]:
            lines = box.problems(view, picture)[:_SHOWN]
            view.problems += [f"seed {SEED}: {line}" for line in lines]
    machine.examine([picture for picture, _ in taken], look,
                    prepare=machine.forget_volatile, afterwards=afterwards)
    _points.append(sum(begun.values()))
    print(f"{len(taken)} pictures, {_points[-1]} crash points")


def cut_power(machine, sequences, batch, share, *options):
    dice = random.Random(f"{SEED} {machine.kind} {batch}")
    boxes = make_boxes(machine, len(sequences))
    machine.start(*options)
    examine(machine, boxes, play(machine, boxes, sequences, dice, share, "volatile" in options))


def batches_of_one():
    sequences = ALPHABET.all_of_one()
    random.Random(SEED).shuffle(sequences)
    return [sequences[i:i + _BATCH] for i in range(0, len(sequences), _BATCH)]


@pytest.mark.parametrize("batch", range(len(batches_of_one())))
@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_all_sequences_of_one_operation(machine, batch):
    cut_power(machine, batches_of_one()[batch], batch, 0.1)


def batches(quick, slow):
    """So many batches on each kind, and in the slow suite so many more, with more pictures."""
    cases = [pytest.param(kind, n, 0.1 if n < quick else 0.4, id=f"{kind}-{n}",
                          marks=[pytest.mark.slow] if n >= quick else [])
             for kind in ("ext4", "xfs") for n in range(quick + slow)]
    return pytest.mark.parametrize("kind, batch, share", cases)


@batches(2, 16)
def test_some_sequences_of_two_and_three(machine, batch, share):
    dice = random.Random(f"{SEED} {machine.kind} some {batch}")
    cut_power(machine, ALPHABET.some(dice, _BATCH), f"some {batch}", share)


@batches(1, 8)
def test_second_power_cut_after_more_of_them(machine, batch, share):
    """The second power cut begins with the state that the first one has left, synced or not."""
    dice = random.Random(f"{SEED} {machine.kind} second {batch}")
    boxes = make_boxes(machine, _BATCH)
    machine.start()
    taken = play(machine, boxes, ALPHABET.some(dice, _BATCH), dice, 0)
    machine.reborn(taken[-1][0])
    machine.start()
    for box in boxes:
        box.found_again(machine.mnt)
    taken = play(machine, boxes, ALPHABET.some(dice, _BATCH), dice, share)
    examine(machine, boxes, taken)


@batches(1, 4)
def test_volatile_loses_what_was_new_alone(machine, batch, share):
    """After the volatile mark was removed, each block is old or new."""
    dice = random.Random(f"{SEED} {machine.kind} volatile {batch}")
    cut_power(machine, ALPHABET.some(dice, _BATCH), f"volatile {batch}", share, "volatile")


def play_keeping(machine, boxes, sequences, dice, share, server):
    """As play(), and what snapshots there were at each picture."""
    player, taken, kept = Keeper(machine, boxes, dice, server), [], {}

    def at_point(is_last=False):
        if is_last or dice.random() < share:
            taken.append((machine.cut(), len(boxes)))
            kept[taken[-1][0].number] = player.kept()
    for box in boxes:
        box.enter(machine.mnt)
    for box, sequence in zip(boxes, sequences):
        player.play(box, sequence, at_point)
    at_point(True)
    return taken, kept


@batches(1, 16)
@pytest.mark.parametrize("keeping", [("snapshot", "squash"), ("snapshot", "squash", "rollback")], ids=["squash", "rollback"])
def test_snapshots_in_between(machine, veneer_bin, watchdog, batch, share, keeping, tmp_path):
    """What was done before a snapshot is in it, and on the disk; squash changes nothing; and what was gone back to is
    shown."""
    dice = random.Random(f"{SEED} {machine.kind} keeping {batch} {keeping}")
    boxes = make_boxes(machine, _KEEPING)
    sequences = ALPHABET.around(dice, _KEEPING, keeping)
    with served(machine, veneer_bin, tmp_path / "run", watchdog) as server:
        machine.start("branches=on")
        taken, kept = play_keeping(machine, boxes, sequences, dice, share + 0.1, server)

    def afterwards(picture):
        found = problems_of_kept(machine, veneer_bin, boxes, kept[picture.number], picture, dice)
        return [f"seed {SEED}: {line}" for line in found[:_SHOWN]]
    examine(machine, boxes, taken, afterwards)


@pytest.mark.slow
def test_there_were_ten_thousand_crash_points(capsys):
    """In the slow suite as a whole; this one comes last."""
    with capsys.disabled():
        print(f"{sum(_points)} crash points in {len(_points)} batches")
    if len(_points) < 2 * (16 + 8 + 4):
        pytest.skip(f"only {len(_points)} batches were run")
    assert sum(_points) >= 10_000
