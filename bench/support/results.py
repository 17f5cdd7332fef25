# SPDX-License-Identifier: Apache-2.0
"""What a run has seen, kept by round."""

from . import stats, tables

HIGHER_IS_BETTER = {"MiB/s", "IOPS", "op/s", "tps", "% right", "fraction"}


class Figures:
    """What is asked of figures, be they measured in this process or stored: units, value and drivers are the subclass's."""

    def is_higher_better(self, scenario, metric):
        return self.units.get((scenario, metric)) in HIGHER_IS_BETTER

    def best(self, scenario, metric, names):
        """The one of these drivers with the best median, None when none has one."""
        seen = [(self.value(scenario, metric, n), n) for n in names]
        seen = [(v, n) for v, n in seen if v is not None]
        if not seen:
            return None
        return (max if self.is_higher_better(scenario, metric) else min)(seen)[1]


class Results(Figures):
    """Samples by (scenario, metric, driver) and round."""

    def __init__(self):
        self.units, self.samples, self.tails = {}, {}, set()

    def add(self, scenario, metric, driver, i, samples, unit, tail=False):
        """tail: also report the 99th percentile, as the metric's name and " p99"."""
        key = (scenario, metric, driver)
        self.units[scenario, metric] = unit
        self.samples.setdefault(key, {}).setdefault(i, []).extend(samples)
        if tail:
            self.tails.add((scenario, metric))

    def samples_of(self, i):
        """The samples of one round, as the record keeps them."""
        return [[s, m, self.units[s, m], (s, m) in self.tails, by_round[i]]
                for (s, m, _), by_round in self.samples.items() if i in by_round]

    def rounds(self, scenario, metric, driver):
        """Round to its median, {} when the driver never got there."""
        found = self.samples.get((scenario, metric, driver), {})
        return {i: stats.median(values) for i, values in found.items() if values}

    def value(self, scenario, metric, driver):
        found = self.rounds(scenario, metric, driver)
        return stats.median(found.values()) if found else None

    def interval(self, scenario, metric, driver):
        """Between which values most rounds lie, None when the driver never got there."""
        found = self.rounds(scenario, metric, driver)
        return stats.interval(list(found.values())) if found else None

    def tail(self, scenario, metric, driver):
        found = self.samples.get((scenario, metric, driver), {})
        every = [v for values in found.values() for v in values]
        return stats.percentile(every, 0.99) if every else None

    def is_noisy(self, scenario, metric, driver):
        """The rounds differ by so much that small ratios mean nothing."""
        return stats.is_noisy(list(self.rounds(scenario, metric, driver).values()))

    def ratio(self, scenario, metric, mine, theirs):
        return stats.round_ratio(self.rounds(scenario, metric, mine),
                                 self.rounds(scenario, metric, theirs),
                                 self.is_higher_better(scenario, metric))

    def ratios(self, scenario, metric, driver):
        """To the plain directory, and to the best peer."""
        best = self.best(scenario, metric, tables.peers(self))
        return tuple(self.ratio(scenario, metric, driver, r) if r else None for r in (tables.NATIVE, best))

    def drivers(self):
        return list(dict.fromkeys(driver for _, _, driver in self.samples))

    def scenarios(self):
        return list(dict.fromkeys(scenario for scenario, _, _ in self.samples))

    def metrics(self, scenario):
        return list(dict.fromkeys(m for s, m, _ in self.samples if s == scenario))

    def rows(self):
        """As in report.json."""
        out = []
        for (scenario, metric, driver), by_round in self.samples.items():
            meds = list(self.rounds(scenario, metric, driver).values())
            if not meds:
                continue
            base = {"scenario": scenario, "metric": metric, "driver": driver,
                    "value": stats.median(meds), "unit": self.units[scenario, metric],
                    "repeats": len(meds), "spread": stats.spread(meds),
                    "noisy": stats.is_noisy(meds)}
            out.append(base)
            if (scenario, metric) in self.tails:
                tails = [stats.percentile(v, 0.99) for v in by_round.values() if v]
                out.append({**base, "metric": metric + " p99",
                            "value": self.tail(scenario, metric, driver),
                            "spread": stats.spread(tails), "noisy": stats.is_noisy(tails)})
        return out
