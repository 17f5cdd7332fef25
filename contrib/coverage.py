#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of src and include that parts of contrib/test.sh run, by directory.

    contrib/coverage.py core full

Each word is a column: `core`, `full`, or parts with commas between them. `full` has the core as well, as CI runs both.
With --floor the program ends with 1 where the first column has less than 80 % of the lines of another, or a floor below is missed.
A clone of the last commit is built and tested, so that the tree stays as it is. With --work it stays, and a part that
was counted at this commit is not run again: parts can be run one at a time, and put together at the end. Parts of a column
that were not counted run together, the core before them, by itself: it leaves some tests to the other parts of its run.

clang's counters lie in a file that every process maps before main. What a killed server ran is in it, and what a server
ran that changed its root and its environment. gcov writes at the end, by a path: of a shared server it has next to nothing.
"""
import argparse
import collections
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
# Lines in percent that the first column has at least where bytes of a user are at stake.
FLOORS = {"src/map": 95, "src/data": 90, "src/recover": 95}
SHARE = 80
# The parts whose programs are those of the plain build. fuzz, asan, tsan, minimal, arm64 and bench build or measure others.
FULL = ["core", "sim", "integration", "rootless", "modes", "callers", "howto", "crash", "fault", "soak", "install"]
# This build is slower than the plain one: seconds for a part, and times the usual time for a unit test.
SLOW = {"VENEER_PART_LIMIT_S": "10800", "VENEER_TEST_TIMES": "5"}


class Tree:
    """A clone with counters in its build, and what was counted there."""

    def __init__(self, work):
        self.work = work.resolve()
        self.top, self.counters = (self.work / "tree").resolve(), self.work / "counts"
        self.program = self.top / "build" / "veneer"

    def make(self):
        if self.top.exists():
            subprocess.run(["git", "pull", "-q", "--ff-only"], cwd=self.top, check=True)
        else:
            subprocess.run(["git", "clone", "-q", TOP, self.top], check=True)
            self._configure()
        subprocess.run(["ninja", "--quiet", "-C", "build"], cwd=self.top, check=True)
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=self.top, check=True, stdout=subprocess.PIPE, text=True)
        self.found = self.work / commit.stdout.strip()
        self.found.mkdir(exist_ok=True)

    def _configure(self):
        """%c: a mapping that processes share. %m: a file for each program."""
        counted = f"-fprofile-instr-generate={self.counters}/%c%m.profraw"
        flags = [counted, "-fcoverage-mapping", "-fprofile-update=atomic", "-mllvm", "-runtime-counter-relocation"]
        subprocess.run(["meson", "setup", "build", "-Doptimization=0", "-Dc_args=" + shlex.join(flags), f"-Dc_link_args={counted}"],
                       cwd=self.top, env={**os.environ, "CC": "clang"}, check=True, stdout=subprocess.DEVNULL)

    def _zero(self):
        """No counts, in a file of the program that every user may map: tests run it as ordinary users, too."""
        shutil.rmtree(self.counters, ignore_errors=True)
        self.counters.mkdir(mode=0o755)
        os.umask(0)
        subprocess.run([self.program, "--version"], check=True, stdout=subprocess.DEVNULL)
        os.umask(0o022)

    def counts_of(self, parts):
        """Files with the counts of these parts. A file is named after the parts that ran together, and is used if all are asked for."""
        known = {file: set(file.stem.split("+")) for file in self.found.glob("*.profdata")}
        files = [file for file, names in known.items() if names <= set(parts)]
        missing = [part for part in parts if not any(part in known[file] for file in files)]
        groups = [["core"]] if "core" in missing else []
        groups.append([part for part in missing if part != "core"])
        return files + [self._run(group) for group in groups if group]

    def _run(self, parts):
        counts = self.found / f"{'+'.join(parts)}.profdata"
        self._zero()
        done = subprocess.run(["contrib/test.sh", *parts], cwd=self.top, env={**SLOW, **os.environ, "CI": ""})
        if done.returncode:
            print(f"coverage: contrib/test.sh {' '.join(parts)} ended with {done.returncode}; its counts are used nevertheless", flush=True)
        merge(self.counters.glob("*.profraw"), counts)
        return counts

    def export(self, counts, *more):
        """Tests of invariants have a source within their own: what they run of it has names of theirs."""
        others = [f"-object={test}" for test in sorted((self.top / "build/tests/unit").glob("test_*_invariants"))]
        shown = subprocess.run(["llvm-cov", "export", self.program, *others, f"-instr-profile={counts}", *more], check=True,
                               stdout=subprocess.PIPE)
        return json.loads(shown.stdout)["data"][0]

    def name(self, path):
        """Of a source, from the top of the tree; None: of another place."""
        path = pathlib.PurePath(os.path.normpath(self.top / "build" / path))
        name = path.relative_to(self.top) if path.is_relative_to(self.top) else None
        return name if name and name.parts[0] in ("src", "include") else None

    def lines(self, counts):
        """Directory to (lines, lines that ran); a header counts with its sources."""
        lines = collections.defaultdict(lambda: [0, 0])
        for source in self.export(counts, "-summary-only")["files"]:
            name = self.name(source["filename"])
            for where in (f"src/{name.parent.name}", "all") if name else ():
                lines[where][0] += source["summary"]["lines"]["count"]
                lines[where][1] += source["summary"]["lines"]["covered"]
        return {where: tuple(pair) for where, pair in lines.items()}

    def unreached(self, counts, directories):
        """Functions below these directories that did not run."""
        ran = {}
        for function in self.export(counts)["functions"]:
            name = self.name(function["filenames"][0])
            if name and str(name).startswith(tuple(directories)):
                key = f"{name}: {function['name'].split(':')[-1]}"
                ran[key] = ran.get(key, 0) + function["count"]
        return sorted(key for key, count in ran.items() if not count)


def merge(inputs, output):
    """A file that a killed process had not finished is left out; llvm-profdata names it."""
    new = output.with_suffix(".new")
    subprocess.run(["llvm-profdata", "merge", "-sparse", "--failure-mode=all", "-o", new, *sorted(inputs)], check=True)
    new.rename(output)


def percent(part, whole):
    return 100 * part / whole if whole else 0


def table(columns):
    """columns: name to what Tree.lines gave."""
    first, *others = columns
    names = sorted({name for found in columns.values() for name in found} - {"all"}) + ["all"]
    rows = ["| directory | lines | " + " | ".join([*columns, *(f"{first}/{other} [%]" for other in others)]) + " |",
            "| --- | ---: |" + " ---: |" * (len(columns) + len(others))]
    for name in names:
        pairs = [found.get(name, (0, 0)) for found in columns.values()]
        cells = [str(max(whole for whole, _ in pairs)), *(f"{part} ({percent(part, whole):.0f} %)" for whole, part in pairs),
                 *(f"{percent(pairs[0][1], part):.0f}" for _, part in pairs[1:])]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def missed(columns):
    """What --floor finds."""
    first, *others = columns
    found = []
    for name, floor in FLOORS.items():
        whole, part = columns[first].get(name, (0, 0))
        if percent(part, whole) < floor:
            found.append(f"{name}: {percent(part, whole):.1f} % by {first}, at least {floor}")
    for other in others:
        share = percent(columns[first]["all"][1], columns[other]["all"][1])
        if share < SHARE:
            found.append(f"{first} has {share:.1f} % of the lines of {other}, at least {SHARE}")
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="*", default=["core"])
    parser.add_argument("--work", type=pathlib.Path, help="a directory for the clone, which stays there; else one in /var/tmp")
    parser.add_argument("--without", default="", help="parts of full that are left out, with commas between them")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--unreached", nargs="+", metavar="DIR", help="print also the functions of these that the last column did not run")
    args = parser.parse_args()
    for program in ("clang", "llvm-cov", "llvm-profdata"):
        if not shutil.which(program):
            parser.error(f"{program} is not installed (contrib/setup.sh --slow)")
    return args


def count(tree, args):
    """Column to (its parts, the file of their counts)."""
    counted = {}
    for number, column in enumerate(args.columns):
        parts = [part for part in FULL if part not in args.without.split(",")] if column == "full" else column.split(",")
        merged = tree.found / f"column{number}.merged"
        merge(tree.counts_of(parts), merged)
        counted[column] = parts, merged
    return counted


def main():
    args = parse()
    work = args.work or pathlib.Path(tempfile.mkdtemp(prefix="veneer-coverage-", dir="/var/tmp"))
    work.mkdir(exist_ok=True)
    work.chmod(0o755)
    try:
        tree = Tree(work)
        tree.make()
        counted = count(tree, args)
        columns = {column: tree.lines(counts) for column, (_, counts) in counted.items()}
        unreached = tree.unreached(list(counted.values())[-1][1], args.unreached) if args.unreached else []
    finally:
        if not args.work:
            shutil.rmtree(work, ignore_errors=True)
    print(table(columns))
    for column, (parts, _) in counted.items():
        print(f"{column}: {', '.join(parts)}")
    found = missed(columns) if args.floor else []
    print("\n".join([*unreached, *found]), end="\n" if unreached or found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
