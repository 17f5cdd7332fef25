# SPDX-License-Identifier: Apache-2.0
"""What a run has seen, kept by round, and its JSON form."""

import json

from . import stats

HIGHER_IS_BETTER = {"MiB/s"}


class Results:
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

    def rounds(self, scenario, metric, driver):
        """Round to its median, {} when the driver never got there."""
        found = self.samples.get((scenario, metric, driver), {})
        return {i: stats.median(values) for i, values in found.items()}

    def value(self, scenario, metric, driver):
        found = self.rounds(scenario, metric, driver)
        return stats.median(found.values()) if found else None

    def tail(self, scenario, metric, driver):
        found = self.samples.get((scenario, metric, driver), {})
        every = [v for values in found.values() for v in values]
        return stats.percentile(every, 0.99) if every else None

    def ratio(self, scenario, metric, mine, theirs):
        unit = self.units.get((scenario, metric))
        return stats.round_ratio(self.rounds(scenario, metric, mine),
                                 self.rounds(scenario, metric, theirs),
                                 unit in HIGHER_IS_BETTER)

    def drivers(self):
        return list(dict.fromkeys(driver for _, _, driver in self.samples))

    def rows(self):
        out = []
        for (scenario, metric, driver), by_round in self.samples.items():
            meds = list(self.rounds(scenario, metric, driver).values())
            base = {"scenario": scenario, "metric": metric, "driver": driver,
                    "value": stats.median(meds), "unit": self.units[scenario, metric],
                    "repeats": len(meds), "spread": stats.spread(meds)}
            out.append(base)
            if (scenario, metric) in self.tails:
                tails = [stats.percentile(v, 0.99) for v in by_round.values()]
                out.append({**base, "metric": metric + " p99",
                            "value": self.tail(scenario, metric, driver),
                            "spread": stats.spread(tails)})
        return out

    def to_json(self, environment, lines):
        """"rows" is the result; "rounds" lets the measures be computed again from the file."""
        rounds = [{"scenario": s, "metric": m, "driver": d, "unit": self.units[s, m],
                   "values": [self.rounds(s, m, d).get(i) for i in range(max(by) + 1)]}
                  for (s, m, d), by in self.samples.items()]
        return json.dumps({"environment": environment, "notes": lines, "rows": self.rows(),
                           "rounds": rounds}, indent=1)

    @classmethod
    def from_json(cls, text):
        """Medians and ratios as they were; the single samples are not kept."""
        self = cls()
        for row in json.loads(text)["rounds"]:
            for i, value in enumerate(row["values"]):
                if value is not None:
                    self.add(row["scenario"], row["metric"], row["driver"], i, [value],
                             row["unit"])
        return self
