# SPDX-License-Identifier: Apache-2.0
import os
import random

import pytest

import differential

_OPERATIONS = 1500
_SEEDS = [1, 2, int(os.environ.get("VENEER_TEST_SEED", random.SystemRandom().randrange(10**9)))]


@pytest.mark.parametrize("round_", range(len(_SEEDS)))
def test_mount_stays_like_an_ordinary_directory(stack, plain, round_):
    print(f"seed {_SEEDS[round_]}")
    counts = differential.run(stack, plain, _SEEDS[round_], _OPERATIONS)
    assert sum(counts.values()) == _OPERATIONS


def test_a_difference_is_found(stack, plain):
    """The comparison itself can fail."""
    (stack.lower() / "f").write_bytes(b"x" * 10_000)
    m = stack.mount()
    (plain / "f").write_bytes(b"x" * 9_999 + b"y")
    os.utime(plain / "f", ns=(1, (m / "f").stat().st_mtime_ns))
    with pytest.raises(differential.Mismatch, match="offset 9999"):
        differential.Twins(m, plain).compare_trees(strict=False)
