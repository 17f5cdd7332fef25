# SPDX-License-Identifier: Apache-2.0
"""The figures that are published, a file a scenario: doc/performance/data/GROUP-PART.json.

A file has the identity of its run ("run"), the drivers in the order of the tables with their versions, the run's notes about
them, the verdicts, the run that was published before with the rows in which veneer was better then ("before"), the names of
the plots that were drawn, and "rows", a line each: row, metric, driver, unit, value (the median
over the rounds), low and high (between them most rounds lie), rounds (their number), noisy, ratios (of times, to the plain
directory and to the best peer) and p99. A key whose value is not known is left out."""

import json
import os

from . import tables
from .results import Figures

OURS = "veneer"
# So much worse beside the best peer, in rounds that agree, is worse.
WORSE = 1.1
# A run without one of these has no identity, and no page.
RUN_KEYS = ("date", "commit", "cpus", "processor", "kernel", "quick", "rounds")
DIGITS = 6


class NoIdentity(Exception):
    """Nobody could say which run the figures are of."""


def _rounded(value):
    return None if value is None else float(f"{value:.{DIGITS}g}")


class Stored(Figures):
    """Some files' figures, asked as Results are."""

    def __init__(self, some):
        self.units, self.tails, self._cells, self._drivers = {}, set(), {}, {}
        for data in some:
            self._drivers.update(dict.fromkeys(data["drivers"]))
            for row in data["rows"]:
                key = row["row"], row["metric"]
                self.units[key] = row["unit"]
                self._cells[*key, row["driver"]] = row
                if "p99" in row:
                    self.tails.add(key)

    def _get(self, scenario, metric, driver, what):
        return self._cells.get((scenario, metric, driver), {}).get(what)

    def value(self, scenario, metric, driver):
        return self._get(scenario, metric, driver, "value")

    def tail(self, scenario, metric, driver):
        return self._get(scenario, metric, driver, "p99")

    def interval(self, scenario, metric, driver):
        """None where it is not known."""
        low, high = (self._get(scenario, metric, driver, what) for what in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def is_noisy(self, scenario, metric, driver):
        return bool(self._get(scenario, metric, driver, "noisy"))

    def ratios(self, scenario, metric, driver):
        return self._get(scenario, metric, driver, "ratios") or (None, None)

    def drivers(self):
        return list(self._drivers)

    def scenarios(self):
        return list(dict.fromkeys(row for row, _ in self.units))

    def metrics(self, scenario):
        return [m for row, m in self.units if row == scenario]

    def only(self, drivers):
        """The same of these drivers, in this order."""
        part = Stored([])
        part.units, part.tails, part._cells = self.units, self.tails, self._cells
        part._drivers = dict.fromkeys(d for d in drivers if d in self._drivers)
        return part


def _row(seen, row, metric, driver):
    value = seen.value(row, metric, driver)
    if value is None:
        return None
    low, high = seen.interval(row, metric, driver)
    one = {"row": row, "metric": metric, "driver": driver, "unit": seen.units[row, metric], "value": _rounded(value),
           "low": _rounded(low), "high": _rounded(high), "rounds": len(seen.rounds(row, metric, driver)),
           "noisy": seen.is_noisy(row, metric, driver), "ratios": [_rounded(r) for r in seen.ratios(row, metric, driver)]}
    if (row, metric) in seen.tails:
        one["p99"] = _rounded(seen.tail(row, metric, driver))
    return one


def of_run(name, found, verdicts):
    """What is kept of one scenario of a run; without its pictures, which are not drawn yet."""
    seen = found.by_scenario[name]
    rows = [_row(seen, row, metric, driver) for row, metric in seen.units for driver in seen.drivers()]
    rows = [one for one in rows if one]
    run = {**found.environment, "quick": found.identity.get("quick"), "rounds": max((one["rounds"] for one in rows), default=None)}
    drivers = {d: found.versions.get(d, "") for d in seen.drivers()}
    # Of the notes those about this scenario, and those about no scenario: a driver that could not be had.
    others = [n for n in found.by_scenario.keys() | found.asked if n != name]
    notes = [n.removeprefix(name + ": ") for n in found.notes if not any(n.startswith(other + ":") for other in others)]
    return {"scenario": name, "run": run, "drivers": drivers, "notes": notes, "verdicts": [list(v) for v in verdicts],
            "pictures": [], "rows": rows}


def behind(data, limit):
    """(row, best peer, ratio of times to it) where veneer takes more than limit times as long, the worst first."""
    seen = Stored([data])
    found = [(row, seen.best(row["row"], row["metric"], tables.peers(seen)), (row.get("ratios") or [None, None])[1])
             for row in data["rows"] if row["driver"] == OURS]
    return sorted((one for one in found if one[2] is not None and one[2] > limit), key=lambda one: -one[2])


def compare(data, old):
    """Notes in data the rows in which veneer, beside the best peer, did better in the run that was published before."""
    was = {(row["row"], row["metric"]): row for row in old["rows"] if row["driver"] == OURS}
    worse = []
    for row in data["rows"]:
        other = was.get((row["row"], row["metric"]))
        if row["driver"] == OURS and other and not row.get("noisy") and not other.get("noisy"):
            now, then = ((one.get("ratios") or [None, None])[1] for one in (row, other))
            if now and then and now > WORSE * then:
                worse.append([row["row"], row["metric"], then, now])
    data["before"] = {"run": old["run"], "worse": worse}


def file_of(name):
    return name.replace("/", "-")


def check(data):
    missing = [key for key in RUN_KEYS if data["run"].get(key) in (None, "")]
    if missing:
        raise NoIdentity(f"{data['scenario']}: its run has no {', '.join(missing)}")


def write(folder, data):
    """A line a verdict and a row, so that a diff shows which are others."""
    check(data)
    os.makedirs(folder, exist_ok=True)
    parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items() if key not in ("verdicts", "rows")]
    for key in ("verdicts", "rows"):
        lines = ",\n".join("  " + json.dumps(one) for one in data[key])
        parts.append(f' "{key}": [\n{lines}\n ]' if lines else f' "{key}": []')
    with open(os.path.join(folder, file_of(data["scenario"]) + ".json"), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(parts) + "\n}\n")


def load(folder):
    """By scenario what is published of it."""
    found = {}
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                data = json.load(f)
            check(data)
            found[data["scenario"]] = data
    return found


def run_key(data):
    """The same for all scenarios of one run."""
    return tuple((key, data["run"][key]) for key in RUN_KEYS if key != "rounds")


def run_text(run):
    """Which run it is, in one line."""
    return (f"{run['date'][:10]}, commit {run['commit']}, {run['cpus']} processors ({run['processor']}), kernel {run['kernel']}" +
            (", **a quick run**" if run["quick"] else ""))
