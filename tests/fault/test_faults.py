# SPDX-License-Identifier: Apache-2.0
"""Every system call and allocation of a mount fails once, and from some call on for good: what was asked for may fail,
with an errno that says why, and nothing else may happen."""
import itertools
import os
import time
from errno import EIO, ENOMEM, ENOSPC

import pytest

import steps
from control import ALWAYS, CLASSES, SHORT
from plan import ERRORS, how_often, seeded
from starting import Starting
from world import Model, World

_SAMPLE_S, _START_SAMPLE_S = 15, 8
_CASES = 40
_OPTIONS = {"auto": (), "cached": ("io=cached",), "copy": ("cow=copy",), "volatile": ("volatile",)}
_KINDS = ("standalone", "server", "client")
_numbers = itertools.count()


def _chosen(options):
    """Steps; where whole files are copied a directory with something below does not move."""
    wanted = os.environ.get("VENEER_FAULT_STEPS")
    return [name for name in steps.every() if (not wanted or name in wanted.split(","))
            and not (options == "copy" and name == "rename_directory")]


class Runner:
    """Cases one after the other, each in a directory of its own; a new world when one is used up or no longer sound."""

    def __init__(self, base, program, watchdog, control, options):
        self.base, self.made = base, (program, watchdog, control, options)
        self.control = control
        self.models, self.world, self.used, self.case = {}, None, 0, ""

    def model(self, step):
        if step.name not in self.models:
            self.models[step.name] = Model(self.base, step)
        return self.models[step.name]

    def run(self, step, following, which=None, nth=0, error=0, times=1):
        """following: the steps of the directories of a new world, this one first."""
        model = self.model(step)
        if self.world is None or self.used == len(self.world.steps) or self.world.is_poisoned:
            self.end()
            self.world, self.used = World(self.base / f"w{next(_numbers)}", *self.made[:3], following, self.made[3]), 0
        assert self.world.steps[self.used] is step
        self.case = f"{step.name}: {which} {nth} of {self.made[3]} fails with {error}, {times} times"
        try:
            return self.world.run(self.used, model, which, nth, error, times)
        except Exception as e:
            raise AssertionError(f"{self.case}, at {self.control.trace()}: {e}") from e
        finally:
            self.used += 1

    def end(self):
        if self.world is None:
            return
        world, self.world = self.world, None
        try:
            world.settle(self.models)
        except Exception as e:
            raise AssertionError(f"after {self.case}: {e}") from e
        problems = world.close()
        assert not problems, f"after {self.case}: {problems}"

    def abandon(self):
        if self.world is not None:
            self.world.abandon()


@pytest.fixture
def runner(base, veneer_bin, watchdog, control):
    made = []

    def make(options=()):
        made.append(Runner(base, veneer_bin, watchdog, control, options))
        return made[-1]
    yield make
    for one in made:
        one.abandon()


def _enumerate(runner, step, which, error, times):
    """Each call of the class; of a failure that stays the later ones are told apart by every other call only."""
    nth = 1
    while runner.run(step, [step] * _CASES, which, nth, error, times):
        nth += 1 if times == 1 or nth < 16 else nth // 8


def _all_of(runner, name, classes):
    step = steps.every()[name]
    for which in classes:
        for error in ERRORS[which]:
            for times in how_often(error, which):
                _enumerate(runner, step, which, error, times)
    runner.end()


def test_sample(request, runner):
    chance, end = seeded(request), time.monotonic() + _SAMPLE_S
    while time.monotonic() < end:
        options = chance.choice(list(_OPTIONS))
        one, every = runner(_OPTIONS[options]), [steps.every()[name] for name in _chosen(options)]
        batch = chance.sample(every, min(20, len(every)))
        order = [step for step in batch for _ in range(2)]
        for at, step in enumerate(batch):
            one.run(step, order[2 * at:])
            counts = {name: n for name, n in one.control.counts.items() if n}
            which = chance.choice(list(counts) or ["alloc"])
            error = chance.choice(ERRORS[which])
            one.run(step, order[2 * at + 1:], which, chance.randint(1, counts.get(which, 1)), error,
                    chance.choice(how_often(error, which)))
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("options, name", [(options, name) for options in _OPTIONS for name in _chosen(options)])
def test_every_call(runner, name, options):
    _all_of(runner(_OPTIONS[options]), name, CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("name", _chosen("auto"))
def test_every_call_of_a_new_mount(runner, name):
    """The same as the first thing that a mount does, with an upper that has no map yet."""
    one, step = runner(), steps.every()[name]
    one.run(step, [step])
    counts = dict(one.control.counts)
    for which in CLASSES:
        for nth in range(1, counts[which] + 1):
            for error in ERRORS[which]:
                one.run(step, [step], which, nth, error)
    one.end()


def test_a_copy_that_cannot_be_taken_back_keeps_its_entry(runner):
    """Two names of three may stay; without an entry in the map the file would be lost in the next mount."""
    one, step = runner(), steps.every()["write_hard_linked"]
    for error in (EIO, ENOSPC):
        _enumerate(one, step, "name", error, ALWAYS)
    one.end()


@pytest.mark.parametrize("name", ["punch", "zero", "copy_range"])
def test_what_failed_half_way_is_seen_as_it_is(runner, name):
    """The kernel must not go on with pages of before."""
    one, step = runner(_OPTIONS["cached"]), steps.every()[name]
    for which, error in (("write", EIO), ("stat", ENOMEM)):
        _enumerate(one, step, which, error, 1)
    one.end()


@pytest.mark.parametrize("name", ["create_tmpfile", "create_over_whiteout", "unlink", "rename"])
def test_a_change_that_was_made_is_known(runner, name):
    """The copy in memory follows the change even if memory is short, or the change is not made."""
    one, step = runner(), steps.every()[name]
    _enumerate(one, step, "alloc", ENOMEM, 1)
    one.end()


def test_the_names_of_one_file_stay_together(runner):
    """Also where the other ones cannot be looked at: then nothing is done."""
    one, step = runner(), steps.every()["unlink_hard_linked"]
    for error in (EIO, ENOMEM):
        _enumerate(one, step, "stat", error, ALWAYS)
    one.end()


@pytest.mark.parametrize("options", ["auto", "volatile"])
def test_changes_are_not_those_of_another_boot(runner, options):
    """Which one it is, is asked for the first of them; what was not synced counts in the same one alone."""
    one, step = runner(_OPTIONS[options]), steps.every()["write_first"]
    for which, error in (("open", EIO), ("read", EIO), ("read", SHORT)):
        nth = 1
        while one.run(step, [step], which, nth, error):
            nth += 1
    one.end()


@pytest.fixture
def starting(base, veneer_bin, watchdog, control):
    made = []

    def make(kind):
        made.append(Starting(base / f"s{next(_numbers)}", veneer_bin, watchdog, control, kind))
        return made[-1]
    yield make
    for one in made:
        one.abandon()


def _start(one, which, nth, error, times):
    try:
        return one.run(which, nth, error, times)
    except Exception as e:
        raise AssertionError(f"{one.kind}: {which} {nth} fails with {error}, {times} times, "
                             f"at {one.control.trace()}: {e}") from e


def _every_start(one, classes):
    for which in classes:
        for error in ERRORS[which]:
            for times in how_often(error, which):
                nth = 1
                while _start(one, which, nth, error, times):
                    nth += 1 if times == 1 or nth < 16 else nth // 8
    one.close()


def test_sample_of_starts(request, starting):
    chance, end = seeded(request), time.monotonic() + _START_SAMPLE_S
    every = {}
    for kind in _KINDS:
        one = starting(kind)
        _start(one, None, 0, 0, 1)
        every[one] = {name: n for name, n in one.control.counts.items() if n}
    while time.monotonic() < end:
        one = chance.choice(list(every))
        which = chance.choice(list(every[one]))
        error = chance.choice(ERRORS[which])
        _start(one, which, chance.randint(1, every[one][which]), error, chance.choice(how_often(error, which)))
    for one in every:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_every_start(starting, kind):
    _every_start(starting(kind), CLASSES)


def _late_in_start(one, which, error):
    """Where it is mounted already; test_every_start does all."""
    _start(one, None, 0, 0, 1)
    count = one.control.counts[which]
    for nth in range(count * 3 // 4, count + 1):
        _start(one, which, nth, error, 1)
    one.close()


def test_a_start_without_memory(starting):
    """Also when the kernel's first request cannot be answered."""
    _late_in_start(starting("standalone"), "alloc", ENOMEM)


def test_a_start_without_dev_null(starting):
    """Callers read what it says to its end, and must not wait for that as long as the mount lives."""
    _late_in_start(starting("standalone"), "open", EIO)
