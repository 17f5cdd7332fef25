# SPDX-License-Identifier: Apache-2.0
"""Random operations between snapshots, going back and merging: the mount stays like an ordinary directory that is copied
and replaced, and each snapshot like its copy."""
import collections
import os
import random

import pytest

import differential
from support import server as mounts
from support.snapshotops import SnapshotOperations
from support.twins import Mismatch, Twins


_EVENTS, _STEPS = 24, 16
# As in test_differential: what is red is the change, and the slow suite draws new rounds.
_FIRST = int(os.environ.get("VENEER_TEST_SEED", 57401013))
_DRAWN = int(os.environ.get("VENEER_TEST_SEED", random.SystemRandom().randrange(10**9)))
# With branches=on nothing of the upper is passed through, and open files refuse nothing.
_OPTIONS = {"branches": ("branches=on",), "passthrough": (), "cached": ("io=cached",),
            "writeback": ("io=cached", "writeback=on"), "direct": ("io=direct",)}


@pytest.fixture
def serving_snapshots(request, serving):
    """A server, which a snapshot takes, makes the mounts of the stack."""
    if serving and not request.config.getoption("--killing"):
        yield serving
        return
    shared = request.getfixturevalue("shared")
    mounts.use(shared)
    yield shared
    mounts.use(serving)


def run(stack, plain, environment, seed, options):
    """One round. Mismatch (with the seed and the last operations) if the two do not stay alike."""
    rng = random.Random(seed)
    options = (*options, *differential.options_of(seed))
    differential.prepare(stack, plain, rng)
    stack.mount(*options)
    operations = SnapshotOperations(stack, environment, Twins(stack.mnt, plain, True), rng, options)
    counts = collections.Counter()
    try:
        operations.compare()
        for event in range(_EVENTS):
            for _ in range(_STEPS):
                operations.step()
            counts[operations.event()] += 1
            if event == _EVENTS * 3 // 4:
                operations.freeze()
        operations.close_handles()
        operations.compare_snapshots()
        stack.umount()
    except (Mismatch, OSError) as e:
        last = "\n  ".join(operations.trace[-60:])
        raise Mismatch(f"seed {seed}, event {sum(counts.values())}: {e}\nlast operations:\n  {last}") from e
    finally:
        operations.close_handles()
    operations.twins.report_not_compared()
    print(f"{dict(counts)}, refused while files were open: {operations.refusals}")
    if operations.is_old_kernel:
        pytest.skip("all alike, but no mount in use went back: that takes Linux 6.18")


@pytest.mark.parametrize("round_, options", list(enumerate(_OPTIONS)))
def test_mount_and_snapshots_stay_like_ordinary_directories(stack, plain, serving_snapshots, options, round_):
    seed = _FIRST + round_
    print(f"seed {seed}")
    run(stack, plain, serving_snapshots.environment, seed, _OPTIONS[options])


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(60))
@pytest.mark.parametrize("options", _OPTIONS)
def test_mount_and_snapshots_stay_like_ordinary_directories_for_long(stack, plain, serving_snapshots, options, round_):
    seed = _DRAWN + round_
    print(f"seed {seed}")
    run(stack, plain, serving_snapshots.environment, seed, _OPTIONS[options])
