# SPDX-License-Identifier: Apache-2.0
"""One mount with many like directories: in each, one step is made to fail once, and what is left is looked at."""
import copy
import errno
import shutil

import snapshot
import steps
from control import SHORT
from support import layers
from support.stack import Stack

_CASE_LIMIT_S = 40
_POISONED = "no more changes until it is opened again"
# Of a hard-linked copy, for the next mount to finish or to remove.
_LEFT_OVER = "cannot remove .wh..wh.links"
NO_DAMAGE = ("no damage", "and harmless", "the next mount gives them to it", "got no name before its mount ended")
_NO_ROOM = "no room for the attribute by which overlayfs refuses a partial file"
UNGUARDED = "without the attribute by which overlayfs refuses it"
# Errors that an operation may give for a fault below it.
_ALWAYS_SANE = {errno.EIO, errno.ENOMEM}


class Model:
    """A step's effect on such a directory with nothing between: the states before and after, and the result."""

    def __init__(self, base, step):
        root = base / "model" / step.name
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        make(root, step)
        if step.prepare:
            step.prepare(root)
        self.old = snapshot.take(root)
        self.result = step.act(root)
        self.new = snapshot.take(root)
        shutil.rmtree(root)

    def loosened(self):
        """The same where a hard-linked copy has one name too many, or its names are not yet one file again."""
        loose = copy.copy(self)
        loose.old, loose.new = without_links(self.old), without_links(self.new)
        return loose

    def allows(self, step, state):
        return state in (self.old, self.new) or (
            step.is_piecewise and snapshot.is_between(state, self.old, self.new))


def without_links(state):
    return {path: {key: value for key, value in entry.items() if key != "nlink"} for path, entry in state.items()}


def make(root, step):
    steps.fill(root)
    if step.is_large:
        steps.large(root)


class World:
    def __init__(self, base, program, watchdog, control, cases, options=()):
        """cases: the step of each directory, in their order."""
        self.program, self.watchdog, self.control, self.options = program, watchdog, control, options
        self.stack = Stack(base, program, watchdog)
        self.states, self.is_poisoned, self.has_leftovers, self.is_loose = {}, False, False, False
        self.steps = list(cases)
        for number, step in enumerate(self.steps):
            root = self.stack.lower() / str(number)
            root.mkdir()
            make(root, step)
        self.mount()

    def mount(self, is_armed=True):
        self.stack.mount(*self.options, env=self.control.environment if is_armed else None)

    def root(self, number):
        return self.stack.mnt / str(number)

    @property
    def has_died(self):
        return self.stack.server.process.poll() is not None

    def run(self, number, model, which=None, nth=0, error=0, times=1):
        """One case; the number of calls that failed."""
        step, root = self.steps[number], self.root(number)
        self.watchdog.watch(self.stack.pid, _CASE_LIMIT_S)
        if step.prepare:
            step.prepare(root)
        failure = result = None
        self.control.arm(which, nth, error, times)
        try:
            result = step.act(root)
        except OSError as e:
            failure = e
        finally:
            self.control.disarm()
        assert not self.has_died, f"the server died\n{self.stack.log[-3000:]}"
        self.is_poisoned = _POISONED in self.stack.log
        self.has_leftovers = _LEFT_OVER in self.stack.log
        # A removed file may have got no further than the work directory, where it is one more link.
        self.is_loose = self.is_loose or self.has_leftovers or (which == "name" and self.control.injected > 0)
        if self.is_loose:
            model = model.loosened()
        self._judge(number, model, failure, result, error)
        return self.control.injected

    def _judge(self, number, model, failure, result, error):
        step = self.steps[number]
        if failure is None:
            assert result == model.result, f"it returned {result!r:.200}, not {model.result!r:.200}"
        else:
            assert self.control.injected, f"it failed by itself: {failure}"
            sane = _ALWAYS_SANE | ({errno.EINTR} if error == SHORT else {error})
            assert failure.errno in sane, f"failed with {failure}"
        state = self._state(number)
        if failure is None:
            assert state == model.new, f"afterwards: {snapshot.difference(state, model.new)}"
        else:
            assert model.allows(step, state), (
                f"failed with {failure}; to what was: {snapshot.difference(state, model.old)}; "
                f"to what should be: {snapshot.difference(state, model.new)}")
        if failure is not None and state == model.old:
            state = self._again(number, model)
        self.states[number] = state

    def _state(self, number):
        state = snapshot.take(self.root(number))
        return without_links(state) if self.is_loose else state

    def _again(self, number, model):
        """A failed operation succeeds the second time, or the map takes no more changes."""
        step, root = self.steps[number], self.root(number)
        if not self.is_poisoned and not self.has_leftovers:
            result = step.act(root)
            assert result == model.result, f"again it returned {result!r:.200}, not {model.result!r:.200}"
            state = self._state(number)
            assert state == model.new, f"again: {snapshot.difference(state, model.new)}"
            return state
        try:
            step.act(root)
        except OSError as e:
            assert e.errno == errno.EIO, f"where something is amiss: {e}"
        state = self._state(number)
        assert model.allows(step, state), f"again: {snapshot.difference(state, model.old)}"
        return state

    def settle(self, models):
        """Unmount; check, mount once more, and see what was seen before."""
        self.watchdog.watch(self.stack.pid, _CASE_LIMIT_S)
        self.stack.umount()
        result = layers.check(self.program, self.stack.upper, self.stack.lowers)
        # A guard that had no room fails no change; the log has said so, and it is set when there is some.
        if _NO_ROOM in self.stack.log and UNGUARDED in result.stdout:
            layers.check(self.program, self.stack.upper, self.stack.lowers, "--repair")
            result = layers.check(self.program, self.stack.upper, self.stack.lowers)
        damage = [line for line in result.stdout.splitlines() if not line.endswith(NO_DAMAGE)]
        assert not damage and not result.stderr, f"check: {damage[:5]}{result.stderr}\n{self.stack.log[-2000:]}"
        self.mount(is_armed=False)
        for number, state in self.states.items():
            now, step = self._state(number), self.steps[number]
            if self.is_loose:
                state = without_links(state)
            if not (self.is_poisoned and self._model(models, step).allows(step, now)):
                assert now == state, f"mounted again, directory {number}: {snapshot.difference(now, state)}"

    def abandon(self):
        """After a failure: nothing may stay mounted."""
        if self.stack.is_mounted:
            self.stack.server.kill()

    def _model(self, models, step):
        return models[step.name].loosened() if self.is_loose else models[step.name]

    def close(self):
        problems = self.stack.close()
        self.stack.discard()
        return problems
