# SPDX-License-Identifier: Apache-2.0
"""What a run has seen, on disk line by line, so that an interrupted one goes on where it was.

DIR/raw.jsonl: the first line is {"identity", "environment"}; each other is one of
{"note": text}, {"asked": [scenario]}, {"versions": {driver: text}}, {"done": [scenario, cell,
driver, round], "seconds": s, "samples": [...]} where a sample is [scenario, metric, unit, tail, [values]].
"""

import json
import os

from . import host, results

NAME = "raw.jsonl"


class OtherRun(Exception):
    """The folder holds results that can not be mixed with those to come."""


class Record:
    """The open log of a run."""

    def __init__(self, out, identity):
        os.makedirs(out, exist_ok=True)
        self.path = os.path.join(out, NAME)
        self.done, self.cost, self.notes = set(), {}, set()
        if os.path.exists(self.path):
            self._go_on(out, identity)
        else:
            self.file = open(self.path, "w", encoding="utf-8")
            self._write({"identity": identity, "environment": host.describe()})

    def _go_on(self, out, identity):
        lines = _lines(self.path)
        if not lines or lines[0].get("identity") != identity:
            raise OtherRun(f"{out} holds results of another build, size or machine: "
                           "name another folder with --out")
        for line in lines[1:]:
            if "done" in line:
                self.done.add(tuple(line["done"]))
                self._learn(line["done"], line["seconds"])
        # A line that was cut short by a crash is written anew.
        with open(self.path, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        self.file = open(self.path, "a", encoding="utf-8")

    def _learn(self, key, seconds):
        self.cost.setdefault((key[0], key[2]), []).append(seconds)

    def _write(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def note(self, text):
        """Say it, and keep it for the report; once."""
        if text not in self.notes:
            self.notes.add(text)
            host.note(text)
            self._write({"note": text})

    def versions(self, found):
        self._write({"versions": found})

    def asked(self, names):
        """These scenarios are to be run."""
        self._write({"asked": names})

    def add(self, key, seconds, samples):
        """key: (scenario, cell, driver, round)"""
        self.done.add(key)
        self._learn(key, seconds)
        self._write({"done": key, "seconds": round(seconds, 3), "samples": samples})

    def close(self):
        self.file.close()


def _lines(path):
    out = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                out.append(json.loads(line))
            except ValueError:
                pass
    return out


class Found:
    """What a log holds: environment, versions, notes, what was asked for, and by scenario the
    Results and the cells that were done."""

    def __init__(self, lines):
        self.identity, self.environment = lines[0]["identity"], lines[0]["environment"]
        self.versions, self.notes, self.by_scenario = {}, [], {}
        self.asked, self.cells = set(), {}
        for line in lines[1:]:
            self.versions.update(line.get("versions", {}))
            self.asked.update(line.get("asked", []))
            if "note" in line and line["note"] not in self.notes:
                self.notes.append(line["note"])
            if "done" in line:
                self._take(line)

    def _take(self, line):
        scenario, cell, driver, i = line["done"]
        self.cells.setdefault(scenario, set()).add(cell)
        seen = self.by_scenario.setdefault(scenario, results.Results())
        for name, metric, unit, tail, values in line["samples"]:
            seen.add(name, metric, driver, i, values, unit, tail)


def load(out):
    return Found(_lines(os.path.join(out, NAME)))
