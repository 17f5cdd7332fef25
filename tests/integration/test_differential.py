# SPDX-License-Identifier: Apache-2.0
import os
import random

import pytest

import differential

_OPERATIONS = 1500
# What runs with every change runs on the same rounds, so that what is red is the change; new rounds are drawn
# by the slow suite.
_FIRST = int(os.environ.get("VENEER_TEST_SEED", 57401013))
_DRAWN = int(os.environ.get("VENEER_TEST_SEED", random.SystemRandom().randrange(10**9)))


@pytest.mark.parametrize("round_", range(20))
def test_mount_stays_like_an_ordinary_directory(stack, plain, round_):
    seed = _FIRST + round_ if round_ >= 2 else round_
    print(f"seed {seed}")
    counts = differential.run(stack, plain, seed, _OPERATIONS, differential.options_of(seed))
    assert sum(counts.values()) == _OPERATIONS


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(1000))
def test_mount_stays_like_an_ordinary_directory_for_long(stack, plain, round_):
    seed = _DRAWN + round_
    print(f"seed {seed}")
    differential.run(stack, plain, seed, _OPERATIONS, differential.options_of(seed))


@pytest.mark.parametrize("shared", [False, True], ids=["own directories", "the same files"])
def test_several_processes_at_once(stack, plain, shared):
    print(f"seed {_FIRST}")
    differential.run_processes(stack, plain, _FIRST, 600, 4, shared)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(40))
@pytest.mark.parametrize("shared", [False, True], ids=["own directories", "the same files"])
def test_several_processes_at_once_for_long(stack, plain, shared, round_):
    print(f"seed {_DRAWN + round_}")
    differential.run_processes(stack, plain, _DRAWN + round_, 3000, 6, shared)


def test_a_difference_is_found(stack, plain):
    """The comparison itself can fail."""
    (stack.lower() / "f").write_bytes(b"x" * 10_000)
    m = stack.mount()
    (plain / "f").write_bytes(b"x" * 9_999 + b"y")
    os.utime(plain / "f", ns=(1, (m / "f").stat().st_mtime_ns))
    with pytest.raises(differential.Mismatch, match="offset 9999"):
        differential.Twins(m, plain).compare_trees(strict=False)
