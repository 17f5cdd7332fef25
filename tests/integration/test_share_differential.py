# SPDX-License-Identifier: Apache-2.0
"""Four containers of one image in one superblock, each changed by a process of its own at the same time, must stay
like ordinary directories that know nothing of each other."""
import os
import random
import shutil
import subprocess

import pytest

import differential
from support import treestate
from support.child import in_children
from support.randomops import RandomOperations
from support.server import unmount
from support.siblings import Siblings
from support.twins import Mismatch, Twins

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")

_CONTAINERS = 4
_PHASES = 3


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog):
    made = Siblings(session_dir / "four", veneer_bin, watchdog)
    yield made
    made.close()


def _work(mount, plain, seed, ops):
    twins = Twins(mount, plain)
    operations = RandomOperations(twins, random.Random(seed))
    try:
        for _ in range(ops):
            operations.step()
        operations.flush_mappings()
        twins.compare_trees()
    except (Mismatch, OSError) as e:
        last = "\n  ".join(operations.trace[-40:])
        raise Mismatch(f"{mount}, seed {seed}: {e}\nlast operations:\n  {last}") from e
    finally:
        operations.close_handles()


def _run(siblings, seed, ops):
    print(f"seed {seed}")
    rng = random.Random(seed)
    differential.populate(siblings.lower, rng)
    differential.populate_links(siblings.lower, 0, rng)
    image = treestate.take(siblings.lower)
    plains = [siblings.directory(f"plain{k}") for k in range(_CONTAINERS)]
    for k, plain in enumerate(plains):
        subprocess.run(["cp", "-a", f"{siblings.lower}/.", f"{plain}/"], check=True)
        shutil.copystat(siblings.lower, siblings.directory(f"upper-{k}"))
    mounts = [siblings.shared(name=str(k)) for k in range(_CONTAINERS)]
    for phase in range(_PHASES):
        assert len({os.stat(mount).st_dev for mount in mounts}) == 1
        in_children([lambda k=k: _work(mounts[k], plains[k], f"{seed} {phase} {k}", ops // _PHASES)
                     for k in range(_CONTAINERS)])
        for k in rng.sample(range(_CONTAINERS), 2):
            unmount(mounts[k])
            siblings.shared(name=str(k))
        twins = [Twins(mount, plain) for mount, plain in zip(mounts, plains)]
        for pair in twins:
            pair.compare_trees()
    for pair in twins:
        pair.report_not_compared()
    assert treestate.differences(image, treestate.take(siblings.lower)) == []


def test_four_containers_at_once_stay_like_ordinary_directories(siblings):
    _run(siblings, int(os.environ.get("VENEER_TEST_SEED", 81301)), 600)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(30))
def test_four_containers_at_once_stay_like_ordinary_directories_for_long(siblings, round_):
    _run(siblings, random.SystemRandom().randrange(10**9), 6000)
