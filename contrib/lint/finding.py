# SPDX-License-Identifier: Apache-2.0
"""A finding of a rule, and the exceptions that let a finding through for a reason."""
import tomllib
from dataclasses import dataclass
from pathlib import Path

EXCEPTIONS = "contrib/lint/exceptions.toml"


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    subject: str  # what an exception names: a function, a symbol, a file, a pair of files
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text} [{self.rule}]"


class Exceptions:
    """exceptions.toml: tables [[RULE]] of subjects that share one reason."""

    def __init__(self, root: Path):
        path = root / EXCEPTIONS
        self._tables = tomllib.loads(path.read_text()) if path.exists() else {}
        self._known = {(rule, subject) for rule, groups in self._tables.items()
                       for group in groups for subject in group["subjects"]}
        self._used = set()

    def lets_through(self, finding: Finding) -> bool:
        key = (finding.rule, finding.subject)
        if key in self._known:
            self._used.add(key)
        return key in self._known

    def faults(self, rules) -> list[Finding]:
        """Exceptions of these rules that no longer apply, and those without a reason."""
        found = [Finding(EXCEPTIONS, 1, rule, subject, f"no finding needs this exception any more: {subject}")
                 for rule, subject in self._known - self._used if rule in rules]
        for rule, groups in self._tables.items():
            found += [Finding(EXCEPTIONS, 1, rule, "", f"an exception has no reason: {group['subjects']}")
                      for group in groups if rule in rules and not group.get("reason")]
        return found
