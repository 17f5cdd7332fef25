# SPDX-License-Identifier: Apache-2.0
"""The report of a run: report.md, report.json and the plots, from what the record holds."""

import json
import os

from . import measures, tables
from .results import Results

HEAD = """# veneer and its peers

{facts}.

{drivers}
{notes}
Each number is the median over the rounds of each round's median. In brackets: relative to the plain
directory / to the best peer there (whatever is neither it nor veneer), taken in each round, median;
always as times, so below 1 is faster, also for rates. A `~` marks numbers whose rounds differ by
more than a quarter. Rounds: {rounds}.
"""


def _bullets(items):
    return "".join(f"- {item}\n" for item in items)


def _rounds_text(found):
    counts = {}
    for name, seen in found.by_scenario.items():
        most = max((r["repeats"] for r in seen.rows()), default=0)
        counts.setdefault(most, []).append(name)
    return "; ".join(f"{n} of {', '.join(names)}" for n, names in sorted(counts.items()))


def _head(found):
    facts = {**found.environment, "quick": found.identity["quick"]}
    return HEAD.format(
        facts=", ".join(f"{k} {v}" for k, v in facts.items()), rounds=_rounds_text(found),
        drivers=_bullets(f"{n}: {v}" for n, v in found.versions.items() if v),
        notes=_bullets(found.notes))


def _section(scenario, seen, judged, pictures):
    text = f"## {scenario.title}\n\n`{scenario.name}`. {scenario.origin}\n\n"
    text += scenario.tables(seen)
    text += "".join(f"![{p}]({p}.svg)\n\n" for p in pictures)
    return text + (measures.table(judged) + "\n" if judged else "")


def _draw(out, scenario, seen):
    drawn = []
    for name, draw in scenario.plots(seen):
        if draw(os.path.join(out, name + ".svg")):
            drawn.append(name)
    return drawn


def _write_json(path, found, every):
    rows = [row for seen in found.by_scenario.values() for row in seen.rows()]
    whole = {"environment": found.environment, "identity": found.identity,
             "versions": found.versions, "notes": found.notes,
             "measures": [v._asdict() for v in every], "rows": rows}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(whole, f, indent=1)
        f.write("\n")


def _is_left_out(scenario, measure, seen, cells):
    """Whether a quick run, of which these cells were done, leaves out by intention what the measure
    looks at. What it lacks because a step failed is not left out."""
    few = scenario.quick_drivers or scenario.drivers
    if few and any(d not in few for d in measure.drivers(measures.SUBJECT)):
        return True
    is_whole = {str(cell) for cell in scenario.cells(True)} <= cells
    return is_whole and any((row, measure.metric) not in seen.units for row in measure.scenarios())


def verdicts(scenario, seen, found):
    """Of what a scenario promises, in this run."""
    promised = scenario.measures()
    judged = measures.check_all(promised, seen)
    if not found.identity["quick"]:
        return judged
    cells = found.cells.get(scenario.name, set())
    return [v._replace(mark=measures.LEFT_OUT) if v.mark == measures.NONE and
            _is_left_out(scenario, m, seen, cells) else v for m, v in zip(promised, judged)]


def write(out, found, scenarios):
    """report.md, report.json and SVGs in the folder out. Returns the verdicts."""
    text, every = _head(found), []
    for scenario in scenarios:
        if scenario.name not in found.by_scenario and scenario.name not in found.asked:
            continue
        # A scenario that failed from the first step on has promises too.
        seen = found.by_scenario.get(scenario.name, Results())
        judged = verdicts(scenario, seen, found)
        every += judged
        text += "\n" + _section(scenario, seen, judged, _draw(out, scenario, seen))
    with open(os.path.join(out, "report.md"), "w", encoding="utf-8") as f:
        f.write(text)
    _write_json(os.path.join(out, "report.json"), found, every)
    return every


def failed(judged):
    return measures.failed(judged)


def all_tables(seen):
    """A table for each "scenario" of the rows, its metrics being the columns."""
    return "".join(tables.table(seen, name, [(m, name, m) for m in seen.metrics(name)])
                   for name in seen.scenarios())
