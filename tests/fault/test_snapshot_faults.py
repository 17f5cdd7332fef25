# SPDX-License-Identifier: Apache-2.0
"""Every system call and allocation of a snapshot, a way back and a merge fails once, and from some call on for good."""
import itertools
import time
from errno import ENOMEM

import pytest

from control import CLASSES
from plan import ERRORS, for_good, how_often, seeded
from snapshotting import Snapshotting

_SAMPLE_S = 10
_KINDS = [("rollback", False), ("squash", False), ("snapshot", True), ("rollback", True), ("squash", True)]
_IDS = [f"{command} of {'a mount' if is_live else 'an upper'}" for command, is_live in _KINDS]
# A server to which calls of another class go on failing answers nobody, or cannot know what a directory has.
_OF_CHANGES = ("xattr_write", "name", "size", "attr", "sync", "ioctl")
_LIVE = [command for command, is_live in _KINDS if is_live]
_numbers = itertools.count()


@pytest.fixture
def snapshotting(base, veneer_bin, watchdog, control):
    made = []

    def make(command, is_live):
        made.append(Snapshotting(base / f"n{next(_numbers)}", veneer_bin, watchdog, control, command, is_live))
        return made[-1]
    yield make
    for one in made:
        one.abandon()


def _how_often(one, error, which):
    """A server to which a call fails for good serves nobody."""
    return how_often(error, which)[:1 if one.is_live else 2]


def _run(one, which, nth, error, times):
    try:
        return one.run(which, nth, error, times)
    except Exception as e:
        raise AssertionError(f"{one.command}: {which} {nth} fails with {error}, {times} times, "
                             f"at {one.control.trace()}: {e}") from e


@pytest.mark.parametrize("command, is_live", _KINDS, ids=_IDS)
def test_sample_of_snapshots(request, snapshotting, command, is_live):
    chance, one = seeded(request), snapshotting(command, is_live)
    _run(one, None, 0, 0, 1)
    every, end = {name: n for name, n in one.control.counts.items() if n}, time.monotonic() + _SAMPLE_S / len(_KINDS)
    while time.monotonic() < end:
        which = chance.choice(list(every))
        error = chance.choice(ERRORS[which])
        _run(one, which, chance.randint(1, every[which]), error, chance.choice(_how_often(one, error, which)))
    print(f"mounts that were lost: {one.nlost}")
    one.close()


@pytest.mark.parametrize("command", _LIVE)
@pytest.mark.parametrize("which", ["name", "sync"])
def test_sample_of_calls_that_go_on_failing(request, snapshotting, which, command):
    chance, one = seeded(request), snapshotting(command, True)
    _run(one, None, 0, 0, 1)
    n, end = one.control.counts[which], time.monotonic() + _SAMPLE_S / len(_KINDS)
    while n and time.monotonic() < end:
        error = chance.choice(ERRORS[which])
        _run(one, which, chance.randint(1, n), error, for_good(error))
    assert not one.nlost
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("which, command", [
    pytest.param(which, command, marks=pytest.mark.xfail(reason="of a file of two names, one shows the size of before"))
    if (which, command) == ("xattr_write", "snapshot") else (which, command)
    for which in _OF_CHANGES for command in _LIVE])
def test_calls_of_a_server_that_go_on_failing(snapshotting, which, command):
    """Until the command has ended. The mount goes on, frozen at worst. Without memory nobody can go on."""
    one = snapshotting(command, True)
    for error in (error for error in ERRORS[which] if error != ENOMEM):
        nth = 1
        while _run(one, which, nth, error, for_good(error)):
            nth += 1 if nth < 16 else nth // 8
    assert not one.nlost
    print(f"mounts that were frozen: {one.nfrozen}")
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("command, is_live", _KINDS, ids=_IDS)
@pytest.mark.parametrize("which", CLASSES)
def test_every_call_of_snapshots(snapshotting, which, command, is_live):
    one = snapshotting(command, is_live)
    for error in ERRORS[which]:
        for times in _how_often(one, error, which):
            nth = 1
            while _run(one, which, nth, error, times):
                nth += 1 if times == 1 or nth < 16 else nth // 8
    print(f"mounts that were lost: {one.nlost}")
    one.close()
