#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Flips one condition at a time and reports how many of these mutants the unit tests find.

Each mutant is one change of one line of src/map, src/data or src/recover. It is built in a copy of the tree, without
optimization and with the checks of invariants, and the unit tests of its directory run, that of its file first. A
test that fails or exceeds its time kills it. Results go to a file of JSON lines, and a mutant that is in it does not
run again. contrib/mutants.toml has the reasons of mutants that no test can kill.
"""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
REASONS = "contrib/mutants.toml"
# The tests that concern a directory, in the order in which they run after the file's own.
TESTS = {
    "map": ["map", "layer/map_recover"],
    "data": ["data"],
    "recover": ["recover", "server/supervisor", "server/handoff", "data/replay", "data/replay_settle",
                "data/replay_restore"],
}
# Integration tests alone run these (contrib/lint/exceptions.toml, unit-test).
LEFT_OUT = ("src/data/delta_layer.c", "src/data/snapshot_merge.c", "src/data/snapshot_merge_file.c")
FLIPS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&",
         "+ 1": "- 1", "- 1": "+ 1"}
LIMIT_MIN_S, LIMIT_FACTOR, BASE_LIMIT_S = 20, 10, 600

# In code as clang-format leaves it, binary operators stand between blanks.
_BINARY = re.compile(r"(?<= )(==|!=|<=|>=|<|>|&&|\|\|)(?=[ \n])|(?<= )([+-] 1)(?![\w.])")
_NOT = re.compile(r"(?<![\w)\]])!(?=[\w(*])")
# Indented more than a function's own statements: it is under a condition.
_EARLY_RETURN = re.compile(r"^\t\t+(return\b[^;]*;)$")
_NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
_NO_LINE = re.compile(r"\s*(#|_Static_assert|INVARIANTS\()")
# Checks say nothing of a release build, and have tests that break each of their rules.
_END = "/* ---- invariants ---- */"


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int  # from 1
    column: int  # from 0
    old: str
    new: str
    code: str  # the line, without its indentation

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}:{self.column}:{self.old}:{self.code}"

    @property
    def directory(self) -> str:
        return self.path.split("/")[1]

    def apply(self, text: str) -> str:
        lines = text.split("\n")
        line = lines[self.line - 1]
        assert line[self.column:].startswith(self.old), self
        lines[self.line - 1] = line[:self.column] + self.new + line[self.column + len(self.old):]
        return "\n".join(lines)

    def __str__(self):
        return f"{self.path}:{self.line}:{self.column + 1}: {self.old} -> {self.new or 'nothing'} in: {self.code}"


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", "~", match[0])


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mutants of a file: a flipped operator, a dropped !, an early return that is not taken."""
    code = _NO_CODE.sub(_blank, text.split(_END)[0])
    original = text.split("\n")
    found = []
    for number, line in enumerate(code.split("\n"), 1):
        if _NO_LINE.match(line):
            continue
        changes = [(m.start(), m[0], FLIPS[m[0]]) for m in _BINARY.finditer(line + "\n")]
        changes += [(m.start(), "!", "") for m in _NOT.finditer(line)]
        if match := _EARLY_RETURN.match(line):
            changes.append((match.start(1), original[number - 1][match.start(1):], ";"))
        found += [Mutant(path, number, column, old, new, original[number - 1].strip())
                  for column, old, new in sorted(changes)]
    return found


def mutants_in(root: Path, directories: list[str]) -> list[Mutant]:
    return [one for directory in directories for path in sorted((root / "src" / directory).glob("*.c"))
            if str(path.relative_to(root)) not in LEFT_OUT
            for one in mutants_of(str(path.relative_to(root)), path.read_text())]


def choose(mutants: list[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """As many of each directory, in an order that depends on the seed alone: a larger sample begins with a smaller."""
    by_directory = {}
    for one in mutants:
        by_directory.setdefault(one.directory, []).append(one)
    for directory, some in by_directory.items():
        random.Random(f"{seed} {directory}").shuffle(some)
    queues = [some for _, some in sorted(by_directory.items())]
    order = [some[k] for k in range(max(map(len, queues), default=0)) for some in queues if k < len(some)]
    return order[:count]


class Reasons:
    """[[survivor]] of mutants.toml: file, code, old, new, reason. A line may move, but not change."""

    def __init__(self, text: str):
        self._of = {(one["file"], one["code"], one["old"], one["new"]): one["reason"]
                    for one in tomllib.loads(text).get("survivor", [])}

    def get(self, one: Mutant) -> str | None:
        return self._of.get((one.path, one.code, one.old, one.new))

    def without_mutant(self, mutants: list[Mutant]) -> list[tuple]:
        return sorted(self._of.keys() - {(one.path, one.code, one.old, one.new) for one in mutants})


def table(results: dict[str, str], mutants: list[Mutant], reasons: Reasons) -> str:
    """A line a directory. The rate is of the mutants that compile and have no reason to survive."""
    rows = [("directory", "mutants", "killed", "survived", "with a reason", "did not compile", "rate")]
    by_key = {one.key: one for one in mutants}
    for directory in [*sorted({one.directory for one in mutants}), "all"]:
        some = [(by_key[key], result) for key, result in results.items()
                if key in by_key and directory in ("all", by_key[key].directory)]
        excused = sum(result == "survived" and reasons.get(one) is not None for one, result in some)
        killed = sum(result == "killed" for _, result in some)
        survived = sum(result == "survived" for _, result in some) - excused
        broken = sum(result == "did not compile" for _, result in some)
        rate = f"{100 * killed / (killed + survived):.0f} %" if killed + survived else "-"
        rows.append((directory, *map(str, (len(some), killed, survived, excused, broken)), rate))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) if k == 0 else cell.rjust(width)
                               for k, (cell, width) in enumerate(zip(row, widths))) for row in rows)


def read_results(path: Path) -> dict[str, str]:
    """The last result of each mutant; a line that a killed run left unfinished does not count."""
    results = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            one = json.loads(line)
            results[one["key"]] = one["result"]
        except (ValueError, KeyError):
            continue
    return results


class Runner:
    """A copy of the tree in a directory of ours, and its build."""

    def __init__(self, work: Path, directories: list[str], sanitizers: str, longest_s: float):
        self._tree, self._build, self._tmp = work / "tree", work / f"build-{sanitizers.replace(',', '-')}", work / "tmp"
        self._sanitizers = sanitizers
        self._directories = directories
        self._base, self._times_file = self._build / "base", self._build / "times.json"
        self._times = {}
        self._longest_s = longest_s

    def prepare(self):
        self._copy()
        if self._times_file.exists():
            self._times = json.loads(self._times_file.read_text())
        if not (self._build / "build.ninja").exists():
            subprocess.run(["meson", "setup", self._build, self._tree, "--buildtype=debug", "-Ddebug=false",
                            "-Dinvariants=enabled", f"-Db_sanitize={self._sanitizers}", "-Dman=disabled",
                            "-Dcompletions=disabled"],
                           check=True, stdout=subprocess.DEVNULL)
        names = list(dict.fromkeys(name for directory in self._directories for name in self._tests(directory)))
        if not self._make(names, jobs=os.cpu_count()):
            sys.exit(f"mutate: the copy in {self._tree} does not build")
        self._base.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(self._program(name), self._base / name)

    def _time(self, name: str) -> float | None:
        """How long the test takes without a mutant, None: it fails. Measured when it is needed, and kept for the next
        run as long as the program is the same."""
        digest = hashlib.sha256((self._base / name).read_bytes()).hexdigest()
        known = self._times.get(name, {})
        if known.get("sha256") != digest or (known["seconds"] is None and known["limit"] < self._longest_s):
            start = time.monotonic()
            passes = self._passes(self._base / name, self._longest_s)
            self._times[name] = {"sha256": digest, "limit": self._longest_s,
                                 "seconds": time.monotonic() - start if passes else None}
            self._times_file.write_text(json.dumps(self._times))
            if not passes:
                print(f"test_{name} is left out: it fails or takes long without a mutant", flush=True)
        seconds = self._times[name]["seconds"]
        return seconds if seconds is not None and seconds <= self._longest_s else None

    def _copy(self):
        """What is there already and alike keeps its time, so that ninja builds only what has changed."""
        out = subprocess.run(["git", "-c", "safe.directory=*", "-C", TOP, "ls-files", "-z", "--cached", "--others",
                              "--exclude-standard"], check=True, capture_output=True, text=True).stdout
        for path in filter(None, out.split("\0")):
            source, target = TOP / path, self._tree / path
            if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def _tests(self, directory: str) -> list[str]:
        names = []
        for place in TESTS[directory]:
            part, _, one = place.partition("/")
            paths = (self._tree / "tests/unit" / part).glob(f"test_{one or '*'}.c")
            names += sorted(path.stem.removeprefix("test_") for path in paths)
        return names

    def _program(self, name: str) -> Path:
        return self._build / f"tests/unit/test_{name}"

    def _make(self, names: list[str], jobs: int = 1, **env) -> bool:
        targets = [f"tests/unit/test_{name}" for name in names]
        return subprocess.run(["ninja", "-C", self._build, f"-j{jobs}", *targets], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=os.environ | env).returncode == 0

    def _passes(self, program: Path, limit_s: float) -> bool:
        """A mutant may signal any process, or the group it is in, and leave mounts: it has a session, processes, mounts
        and a /tmp of its own."""
        shutil.rmtree(self._tmp, ignore_errors=True)
        self._tmp.mkdir(parents=True)
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        # No exec: the first process of a namespace ignores signals.
        inside = 'mount --bind "$1" /tmp && cd "$2" && shift 2 && "$@"; exit $?'
        command = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside, "sh",
                   self._tmp, self._tree, program]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=limit_s, start_new_session=True,
                                  env=os.environ | {"TMPDIR": str(self._tmp)}).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def run(self, one: Mutant) -> tuple[str, str]:
        """killed, survived or did not compile, and by which test."""
        path = self._tree / one.path
        text = path.read_text()
        own = Path(one.path).stem
        # Slow ones last: most mutants die before.
        names = sorted(self._tests(one.directory),
                       key=lambda name: (name != own, not name.startswith(own), not own.startswith(name),
                                         self._times.get(name, {}).get("seconds") or 0))
        path.write_text(one.apply(text))
        try:
            for name in names:
                seconds = self._time(name)
                if seconds is None:
                    continue
                if not self._make([name], CCACHE_DISABLE="1"):
                    return "did not compile", ""
                if not self._passes(self._program(name), max(LIMIT_MIN_S, LIMIT_FACTOR * seconds)):
                    return "killed", name
            return "survived", ""
        finally:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--directory", action="append", choices=TESTS, help="of src; without it all three")
    parser.add_argument("--sample", type=int, help="so many mutants, as many of each directory; without it all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    parser.add_argument("--until", metavar="HH:MM", help="begin no mutant after this time of the day")
    parser.add_argument("--work", type=Path, default=TOP / "build-mutate", help="for the copy and its build")
    parser.add_argument("--results", type=Path, help="JSON lines (default: in the work directory)")
    parser.add_argument("--again", action="store_true", help="only the survivors without a reason")
    parser.add_argument("--sanitize", action="store_true", help="with the address and undefined sanitizers, as CI does")
    parser.add_argument("--longest", metavar="S", type=float, default=BASE_LIMIT_S,
                        help="leave out tests that take longer without a mutant; a run with --again has them, too")
    parser.add_argument("--report", action="store_true", help="run none: only the survivors and the table")
    args = parser.parse_args()
    directories = args.directory or list(TESTS)
    path = args.results or args.work / "results.jsonl"
    results = read_results(path)
    reasons = Reasons((TOP / REASONS).read_text())
    wanted = choose(mutants_in(TOP, directories), args.sample, args.seed)
    todo = [one for one in wanted
            if (results.get(one.key) == "survived" and not reasons.get(one) if args.again else one.key not in results)]
    if todo and not args.report:
        args.work.mkdir(parents=True, exist_ok=True)
        runner = Runner(args.work.resolve(), directories, "address,undefined" if args.sanitize else "none",
                        args.longest)
        runner.prepare()
        with open(path, "a") as out:
            for number, one in enumerate(todo, 1):
                if args.until and time.strftime("%H:%M") >= args.until:
                    break
                result, by = runner.run(one)
                results[one.key] = result
                print(json.dumps({"key": one.key, "new": one.new, "result": result, "by": by}), file=out, flush=True)
                print(f"{number}/{len(todo)} {result} {by}: {one}", flush=True)
    for one in wanted:
        if results.get(one.key) == "survived" and not reasons.get(one):
            print(f"survived: {one}")
    print(table(results, wanted, reasons))


if __name__ == "__main__":
    main()
