#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of src and include that parts of contrib/test.sh run, by directory.

    contrib/coverage.py core full

Each word is a run of `contrib/test.sh` with these parts, separated by commas. The table has a column for each; with
--floor the program ends with 1 where the first run has less than 80 % of the lines of the second, or a floor below is missed.
A clone in --work is built with gcov's counters, so that the tree stays as it is. gcovr reads the counters.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[1]
# Lines in percent that the first run reaches at least where bytes of a user are at stake.
FLOORS = {"src/map": 85, "src/data": 85, "src/recover": 75}
SHARE = 80
# In these the servers of tests count; programs without the counters, or of another compiler, do not.
FULL = "lint,unit,integration,server,callers,howto,crash,fault,soak,install"


def clone(work):
    """A tree of the last commit with counters in its build."""
    tree = work / "tree"
    if tree.exists():
        subprocess.run(["git", "pull", "-q", "--ff-only"], cwd=tree, check=True)
    else:
        subprocess.run(["git", "clone", "-q", TOP, tree], check=True)
        subprocess.run(["meson", "setup", "build", "-Db_coverage=true", "-Dc_args=-fprofile-update=atomic"], cwd=tree,
                       check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "--quiet", "-C", "build"], cwd=tree, check=True)
    return tree


def zero(tree):
    """No counts, in files that everybody may add to."""
    for counts in tree.rglob("*.gcda"):
        counts.unlink()
    os.umask(0)
    for program in ("veneer", "fuse-overlayfs"):
        subprocess.run([tree / "build" / program, "--version"], check=True, stdout=subprocess.DEVNULL)
    os.umask(0o022)


def run(tree, parts):
    """The lines that these parts ran: directory to (lines, lines that ran)."""
    zero(tree)
    done = subprocess.run(["contrib/test.sh", *parts.split(",")], cwd=tree, env={**os.environ, "CI": ""})
    if done.returncode:
        print(f"coverage: contrib/test.sh {parts} ended with {done.returncode}; its counts are printed nevertheless")
    seen = subprocess.run(["gcovr", "-r", ".", "-f", "src/", "-f", "include/", "--json", "-j", "2", "build",
                           "--gcov-ignore-parse-errors"], cwd=tree, check=True, stdout=subprocess.PIPE)
    return by_directory(json.loads(seen.stdout))


def by_directory(report):
    lines = collections.defaultdict(lambda: [0, 0])
    for source in report["files"]:
        own = [line for line in source["lines"] if not line.get("gcovr/noncode")]
        for name in (str(pathlib.PurePath(source["file"]).parent), "all"):
            lines[name][0] += len(own)
            lines[name][1] += sum(1 for line in own if line["count"])
    return {name: tuple(pair) for name, pair in lines.items()}


def percent(pair):
    return 100 * pair[1] / pair[0] if pair[0] else 0


def table(runs):
    """runs: name to what run() gave."""
    names = sorted({name for found in runs.values() for name in found} - {"all"}) + ["all"]
    rows = ["| directory | lines | " + " | ".join(f"{name} [%]" for name in runs) + " |",
            "| --- | ---: |" + " ---: |" * len(runs)]
    for name in names:
        pairs = [found.get(name, (0, 0)) for found in runs.values()]
        cells = [str(max(pair[0] for pair in pairs)), *(f"{percent(pair):.1f}" for pair in pairs)]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def missed(runs):
    """What --floor finds."""
    first, *others = runs.values()
    found = [f"{name}: {percent(first.get(name, (0, 0))):.1f} %, at least {floor}"
             for name, floor in FLOORS.items() if percent(first.get(name, (0, 0))) < floor]
    for other in others:
        share = 100 * first["all"][1] / other["all"][1]
        if share < SHARE:
            found.append(f"the first run has {share:.1f} % of the lines of the second, at least {SHARE}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", default=["core"])
    parser.add_argument("--work", type=pathlib.Path, help="a directory for the clone, which stays there; else one in /var/tmp")
    parser.add_argument("--floor", action="store_true")
    args = parser.parse_args()
    if not shutil.which("gcovr"):
        parser.error("gcovr is not installed (contrib/setup.sh --slow)")
    work = args.work or pathlib.Path(tempfile.mkdtemp(prefix="veneer-coverage-", dir="/var/tmp"))
    work.chmod(0o755)
    try:
        tree = clone(work)
        runs = {parts: run(tree, FULL if parts == "full" else parts) for parts in args.runs}
    finally:
        if not args.work:
            shutil.rmtree(work, ignore_errors=True)
    print(table(runs))
    found = missed(runs) if args.floor else []
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
