# SPDX-License-Identifier: Apache-2.0
"""What every scenario of the bench is, and what it is given to work with."""

import random

from . import report


class Scenario:
    """One table or figure. The docstring of a subclass says what the paper did, what is done here
    and why it differs; its first line is the title of the report's section.

    name      GROUP/PART, as `bench/run --list` prints it; also the first part of "scenario" in rows
    question  one sentence: what its numbers answer
    drivers   names of the drivers it is for; those it leaves out are named with a reason in `without`
    quick_drivers  in a quick run only these of them
    headline  (label, "scenario", metric) of rows for the summary, a few; README has a choice of them
    seconds   what one cell on one driver takes, full and quick, until the run knows better: on the
              average of those that `has` lets through
    """

    name = question = ""
    drivers = quick_drivers = ()
    without = {}
    headline = ()
    rounds, quick_rounds = 5, 2
    seconds = 2.0, 1.0

    @property
    def title(self):
        return type(self).__doc__.strip().splitlines()[0].rstrip(".")

    @property
    def origin(self):
        """The docstring below its first line, as one text."""
        lines = [line.strip() for line in type(self).__doc__.strip().splitlines()[1:]]
        return "\n".join(lines).strip()

    def cells(self, quick):
        """What is run in a round: values that print well, the same in every run."""
        raise NotImplementedError

    def has(self, cell, driver):
        """Whether that cell is for that driver, by name."""
        return True

    def takes(self, driver, quick):
        """Whether anything is for that driver."""
        there = driver.name in self.drivers if self.drivers else not driver.when_named
        few = self.quick_drivers if quick else ()
        return there and driver.name not in self.without and (not few or driver.name in few)

    def act(self, run, cell, driver):
        """Run one cell on one driver and give what was seen to `run.add`."""
        raise NotImplementedError

    def measures(self):
        """What the project promises of these rows."""
        return []

    def tables(self, seen):
        """Markdown; by default a table a scenario with its metrics as columns."""
        return report.all_tables(seen)

    def plots(self, seen):
        """(file name without its end, function that is given the path and says whether it drew)"""
        return []


class Run:
    """One cell on one driver.

    quick    small sizes
    work     the scenario's Workspace: volumes, lower trees, scratch directories
    round    from 0
    """

    def __init__(self, quick, work, i, cell, driver, seen):
        self.quick, self.work, self.round, self.driver = quick, work, i, driver
        self._cell, self._seen = cell, seen

    def rng(self):
        """The same numbers for every driver of a round."""
        return random.Random(f"{self._cell} {self.round}")

    def lower(self, name, build):
        """Path of the lower tree of that name on the driver's volume, built at first use."""
        return self.work.lower(self.driver.kind, name, build)

    def add(self, scenario, metric, samples, unit, tail=False):
        """tail: the 99th percentile is reported too."""
        self._seen.add(scenario, metric, self.driver.name, self.round, list(samples), unit, tail)
