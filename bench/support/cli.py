# SPDX-License-Identifier: Apache-2.0
"""The command line all scenarios share, and the frame of a run."""

import argparse
import os
import signal
import sys
import tempfile
import time

from . import drivers, host, measures, report, results, rounds


class Scenario:
    """One program of the bench. Subclasses give the cells, the work and the tables."""

    name = title = ""
    default_rounds, quick_rounds = 5, 2
    creates_files = False

    def cells(self, args):
        """What is run in a round, as printable, hashable values."""
        raise NotImplementedError

    def act(self, args, work, i, cell, driver, seen):
        """Run one cell on one driver and add what was seen to `seen`."""
        raise NotImplementedError

    def measures(self):
        raise NotImplementedError

    def needed(self):
        """Names of the drivers the measures compare with."""
        raise NotImplementedError

    def tables(self, seen):
        raise NotImplementedError

    def plot(self, path, seen):
        raise NotImplementedError


def parse(scenario):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    p = argparse.ArgumentParser(description=scenario.title)
    p.add_argument("--quick", action="store_true", help="small, below three minutes")
    p.add_argument("--rounds", type=int, help="repetitions of everything")
    p.add_argument("--drivers", help="comma separated; default all that are there")
    p.add_argument("--list", action="store_true", help="print drivers and cells, run nothing")
    p.add_argument("--measures", action="store_true",
                   help="run only what the measures need; exit 1 unless all pass")
    p.add_argument("--check", metavar="JSON", help="print the measures of an earlier result")
    p.add_argument("--subject", default="veneer", help="driver the measures are about")
    p.add_argument("--out", help="directory for results; default bench/results/DATE")
    p.add_argument("--ext4", choices=("auto", "host", "loop"), default="auto",
                   help="the drivers that are not of XFS or btrfs work on the host's file system "
                   "or on an ext4 on a loop device; auto: on the host's, but for creating files "
                   "where that has no journal")
    p.add_argument("--work", default="/var/tmp", help="where to make the scratch directory")
    args = p.parse_args()
    args.out = args.out or os.path.join(here, "results", time.strftime("%Y-%m-%d"))
    args.rounds = args.rounds or (
        scenario.quick_rounds if args.quick else scenario.default_rounds)
    return args


def choose(args, scenario):
    """The drivers to run; those that can not be had are named with the reason, in a line."""
    every = drivers.every_driver()
    known = {d.name for d in every}
    wanted = args.drivers.split(",") if args.drivers else None
    if wanted is None and args.measures:
        wanted = [args.subject, *scenario.needed()]
    for name in wanted or []:
        if name not in known:
            sys.exit(f"no driver {name}; there are: {', '.join(d.name for d in every)}")
    chosen, lines = [], []
    for d in every:
        if wanted is not None and d.name not in wanted:
            continue
        reason = d.missing()
        if reason:
            lines.append(f"{d.name} is left out: {reason}")
            host.note(lines[-1])
        else:
            chosen.append(d)
    return chosen, lines


def print_list(args, scenario):
    for d in drivers.every_driver():
        there = isinstance(d, drivers.CargoFuse) and not os.path.exists(d.binary)
        state = "built at first use" if there else d.missing() or "ready"
        print(f"{d.name:20} {d.what} [{state}]")
    for cell in scenario.cells(args):
        print(f"  {cell}")
    return 0


def verdicts(scenario, args, seen):
    return measures.check_all(scenario.measures(), seen, args.subject)


def print_verdicts(found):
    print(measures.table(found), end="")
    return 1 if measures.failed(found) else 0


def write_out(scenario, args, seen, environment, lines):
    os.makedirs(args.out, exist_ok=True)
    base = os.path.join(args.out, scenario.name)
    found = verdicts(scenario, args, seen)
    text = report.preface(scenario.title, environment, args.rounds, lines)
    text += scenario.tables(seen) + report.verdict_section(found, args.subject)
    with open(base + ".md", "w", encoding="utf-8") as f:
        f.write(text)
    with open(base + ".json", "w", encoding="utf-8") as f:
        f.write(seen.to_json(environment, lines) + "\n")
    plotted = scenario.plot(base + ".svg", seen)
    print(text)
    host.note(f"written: {base}.md, .json{', .svg' if plotted else ''}")
    return found


def measure(scenario, args):
    chosen, lines = choose(args, scenario)
    if not chosen:
        sys.exit("no driver to run")
    # SIGTERM must unmount and give the loop devices back, as ^C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    loop = args.ext4 == "loop" or (args.ext4 == "auto" and scenario.creates_files and
                                   host.lacks_journal(args.work))
    work = drivers.Workspace(tempfile.mktemp(prefix="veneer-bench-", dir=args.work), loop)
    environment = host.describe(work.root)
    environment["host_drivers_on"] = "ext4 on a loop device" if loop else "work_fs"
    environment["versions"] = {d.name: d.version() for d in chosen}
    seen = results.Results()
    try:
        lines += rounds.play(args.rounds, scenario.cells(args), chosen,
                             lambda i, c, d: scenario.act(args, work, i, c, d, seen))
    finally:
        work.close()
    return seen, environment, lines


def main(scenario):
    args = parse(scenario)
    if args.list:
        return print_list(args, scenario)
    if args.check:
        with open(args.check, encoding="utf-8") as f:
            return print_verdicts(verdicts(scenario, args, results.Results.from_json(f.read())))
    if os.geteuid():
        sys.exit("must be root: mounts, loop devices and drop_caches are needed")
    seen, environment, lines = measure(scenario, args)
    found = write_out(scenario, args, seen, environment, lines)
    return 1 if args.measures and measures.failed(found) else 0
