# SPDX-License-Identifier: Apache-2.0
"""A run: each scenario in turn; in each of its rounds every cell meets every driver, and the driver
that goes first moves on by one each time, so drift of the machine falls on all alike."""

import os
import signal
import sys
import tempfile
import time

from . import host, workspace
from .results import Results
from .scenario import Run

# Its volumes made and taken down, on the average.
SET_UP_S = 1


def schedule(rounds, cells, drivers, has=lambda cell, driver: True):
    """Yield (round, cell, driver)."""
    turn = 0
    for i in range(rounds):
        for cell in cells:
            mine = [d for d in drivers if has(cell, d)]
            at = turn % len(mine) if mine else 0
            for driver in mine[at:] + mine[:at]:
                yield i, cell, driver
            turn += 1


def steps_of(s, drivers, quick, rounds=None):
    """What a scenario runs on those of the drivers that it takes."""
    mine = [d for d in drivers if s.takes(d, quick)]
    rounds = rounds or (s.quick_rounds if quick else s.rounds)
    return list(schedule(rounds, s.cells(quick), mine, lambda cell, d: s.has(cell, d.name)))


def estimate(scenarios, drivers, quick):
    """Seconds that a run of all of it takes, by what the scenarios say."""
    return sum(s.seconds[quick] * len(steps_of(s, drivers, quick)) + SET_UP_S for s in scenarios)


class Stop:
    """The first ^C or SIGTERM ends the run after the step at hand, the second at once."""

    def __init__(self):
        self.wanted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)

    def _signalled(self, *_):
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        host.note("\ninterrupted: the step at hand is finished first; again to break off")


class Progress:
    """How far the run is, on a terminal in one line, elsewhere a line now and then."""

    EVERY_S = 20

    def __init__(self):
        self.start, self.last, self.tty = time.monotonic(), 0, sys.stderr.isatty()

    def show(self, done, whole, left_s, text):
        now = time.monotonic()
        if not self.tty and now - self.last < self.EVERY_S and done < whole:
            return
        self.last = now
        line = (f"[{done}/{whole}] {int((now - self.start) / 60)} min gone, "
                f"{left_s / 60:.0f} min left: {text}")
        if self.tty:
            line = f"\r\033[K{line[:os.get_terminal_size(2).columns - 1]}"
        print(line, end="" if self.tty else "\n", file=sys.stderr, flush=True)

    def end(self):
        if self.tty:
            print(file=sys.stderr)


class Runner:
    """One run of some scenarios on some drivers, written to a record as it goes."""

    def __init__(self, args, scenarios, drivers, log):
        self.args, self.log, self.progress, self.stop = args, log, Progress(), Stop()
        self.drivers = self._there(drivers)
        self.plan = [(s, self._steps(s)) for s in scenarios]
        log.asked([s.name for s, steps in self.plan if steps])

    def _there(self, drivers):
        there = []
        for d in drivers:
            reason = d.missing()
            if reason:
                self.log.note(f"{d.name} is left out: {reason}")
            else:
                there.append(d)
        self.log.versions({d.name: f"{d.version()} {d.mount_options()}".strip()
                           for d in there})
        return there

    def _steps(self, s):
        for d in self.drivers:
            if d.name in s.without:
                self.log.note(f"{s.name}: {d.name} is left out: {s.without[d.name]}")
        return steps_of(s, self.drivers, self.args.quick, self.args.rounds)

    def run(self):
        try:
            for s, steps in self.plan:
                left = [t for t in steps if self._key(s, t) not in self.log.done]
                if left and not self.stop.wanted:
                    self._try(s, left)
            if self.stop.wanted:
                raise KeyboardInterrupt
        finally:
            self.progress.end()

    @staticmethod
    def _key(s, step):
        i, cell, driver = step
        return (s.name, str(cell), driver.name, i)

    def _try(self, s, steps):
        try:
            self._scenario(s, steps)
        except (OSError, host.HostError) as e:
            # Its steps are in the record by now, and the next one has volumes of its own.
            self.log.note(f"{s.name}: not all could be made or taken down: {e}")

    def _scenario(self, s, steps):
        broken = set()
        on_loop = not self.args.on_host
        root = tempfile.mktemp(prefix="veneer-bench-", dir=self.args.work)
        with workspace.Workspace(root, on_loop) as work:
            for step in steps:
                if self.stop.wanted:
                    return
                self.progress.show(*self._state(), f"{s.name}, round {step[0] + 1}, {step[1]}, "
                                   f"{step[2].name}")
                if (step[1], step[2].name) not in broken and not self._act(s, work, step):
                    broken.add((step[1], step[2].name))

    def _act(self, s, work, step):
        i, cell, driver = step
        seen, start = Results(), time.monotonic()
        host.let_processors_sleep()
        try:
            s.act(Run(self.args.quick, work, i, cell, driver, seen), cell, driver)
        except Exception as e:
            # A step that fails must not cost the hours of the others.
            if self.stop.wanted:
                # ^C reaches the commands of a step too.
                return False
            kind = "" if isinstance(e, (OSError, host.HostError)) else f"{type(e).__name__}: "
            self.log.note(f"{s.name}: {driver.name} failed in {cell}: {kind}{e}")
            return False
        self.log.add(self._key(s, step), time.monotonic() - start, seen.samples_of(i))
        return True

    def _state(self):
        """(steps done, steps of the whole run, seconds left)"""
        done = whole = left = 0
        for s, steps in self.plan:
            for step in steps:
                whole += 1
                if self._key(s, step) in self.log.done:
                    done += 1
                else:
                    left += self._cost(s, step[2])
        return done, whole, left

    def _cost(self, s, driver):
        seen = self.log.cost.get((s.name, driver.name))
        return sum(seen) / len(seen) if seen else s.seconds[self.args.quick]
