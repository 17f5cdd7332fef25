# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run."""

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from . import driver, drivers, host, publish, record, report, runner

# The plots that stand in the README, with their captions.
PICTURES = {
    "hpmapper-cow": "The first change of a file takes veneer the same time at every size; a copy grows with the file.",
    "hpmapper-siblings": "Copies of one file in memory that 64 mounts read, and of three files that 16 mounts "
                         "change: as root veneer keeps one.",
}
RESULTS = os.path.join(host.TOP, "bench", "results")


def scenarios():
    # Scenarios build on this package; imported here, the command line's help costs nothing.
    import scenarios as every
    return every.EVERY


def parse():
    p = argparse.ArgumentParser(
        prog="bench/run", description="Measures veneer and its peers, interleaved in one run.")
    p.add_argument("scenario", nargs="*", metavar="SCENARIO",
                   help="names or groups of --list, default all")
    p.add_argument("--list", action="store_true",
                   help="print scenarios, what they take, and drivers; run nothing")
    p.add_argument("--quick", action="store_true",
                   help="small and within thirteen minutes: for a look, not for a claim")
    p.add_argument("--out", metavar="DIR", help="folder of the results, default "
                   "bench/results/DATE; a run that was interrupted goes on in it")
    p.add_argument("--drivers", metavar="A,B", help="only these, default all that can be had")
    p.add_argument("--rounds", type=int, metavar="N", help="repetitions of everything")
    p.add_argument("--measures", action="store_true",
                   help="exit status 1 unless all that the project promises is met")
    p.add_argument("--report", action="store_true",
                   help="write the report of the results in --out again, run nothing")
    p.add_argument("--publish", action="store_true",
                   help="put the results in --out into doc/performance, doc/PERFORMANCE.md and README.md; "
                   "without --out, write these again of what is stored there")
    p.add_argument("--on-host", action="store_true",
                   help="work on the file system of --work, not on an ext4 on a loop device")
    p.add_argument("--work", default="/var/tmp", metavar="DIR",
                   help="where the scratch directory is made, default /var/tmp")
    return p.parse_args()


def chosen_scenarios(names):
    every = scenarios()
    if not names:
        return every
    for name in names:
        if not any(s.name == name or s.name.startswith(name + "/") for s in every):
            groups = sorted({s.name.split("/")[0] for s in every})
            sys.exit(f"bench/run: no scenario {name}; there are {', '.join(groups)}, see --list")
    return [s for s in every
            if any(s.name == n or s.name.startswith(n + "/") for n in names)]


def chosen_drivers(text):
    every = drivers.every_driver()
    if not text:
        return every
    wanted = text.split(",")
    for name in wanted:
        if name not in [d.name for d in every]:
            sys.exit(f"bench/run: no driver {name}; there are: "
                     f"{', '.join(d.name for d in every)}")
    return [d for d in every if d.name in wanted]


def print_list():
    every, there = scenarios(), drivers.every_driver()
    who = [d for d in there if d.state() in driver.THERE]
    for s in every:
        took = "/".join(f"{runner.estimate([s], who, quick):.0f}" for quick in (False, True))
        print(f"{s.name:22} {took + ' s':>8}  {s.title}")
    whole = [runner.estimate(every, who, quick) / 60 for quick in (False, True)]
    print("\nThe seconds are those of a full and of a quick run on the machine it was written on; "
          f"all together\nsome {whole[0]:.0f} minutes and {whole[1]:.0f}. Drivers:\n")
    for d in there:
        print(f"{d.name:24} {d.what} [{d.state()}]")
    return 0


def default_out():
    """Today's folder, or the next one when that holds a finished run."""
    base = os.path.join(RESULTS, time.strftime("%Y-%m-%d"))
    out, i = base, 1
    while os.path.exists(os.path.join(out, "report.json")):
        i += 1
        out = f"{base}.{i}"
    return out


def learn_apart():
    """What is learned in a run is nobody else's, and begins with nothing."""
    # Servers are where the run is, and are limited and counted with it.
    os.environ.setdefault("VENEER_CGROUP", "")
    if "VENEER_STATE_DIR" not in os.environ:
        os.environ["VENEER_STATE_DIR"] = tempfile.mkdtemp(prefix="veneer-bench-state-")
        atexit.register(shutil.rmtree, os.environ["VENEER_STATE_DIR"], ignore_errors=True)


def set_up():
    """What building and the scenarios take is installed, and veneer built, as for the tests."""
    setup = [os.path.join(host.TOP, "contrib", "setup.sh"), "--bench"]
    if subprocess.run(setup, stdout=sys.stderr, check=False).returncode:
        sys.exit("bench/run: contrib/setup.sh failed")
    if os.environ.get("VENEER_BIN"):
        return
    build = os.path.join(host.TOP, "build")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        host.run("meson", "setup", build, host.TOP)
    host.run("ninja", "--quiet", "-C", build)


def write_reports(out, found):
    verdicts = report.write(out, found, scenarios())
    host.note(f"written: {os.path.join(out, 'report.md')}, report.json, *.svg")
    return verdicts


def again(args):
    """What can be made of results that are there."""
    if args.publish and not args.out:
        publish.publish(None, scenarios(), PICTURES)
        return 0
    if not args.out or not os.path.exists(os.path.join(args.out, record.NAME)):
        sys.exit("bench/run: --out DIR: no folder with results; --report takes one")
    write_reports(args.out, record.load(args.out))
    if args.publish:
        publish.publish(args.out, scenarios(), PICTURES)
    return 0


def main():
    args = parse()
    if args.list:
        return print_list()
    if args.report or args.publish:
        return again(args)
    wanted, who = chosen_scenarios(args.scenario), chosen_drivers(args.drivers)
    if os.geteuid():
        sys.exit("bench/run: must be root: mounts, loop devices and drop_caches are needed")
    set_up()
    learn_apart()
    out = args.out or default_out()
    try:
        log = record.Record(out, identity(args))
    except record.OtherRun as e:
        sys.exit(f"bench/run: {e}")
    try:
        runner.Runner(args, wanted, who, log).run()
    except KeyboardInterrupt:
        host.note(f"\ninterrupted: the same command with --out {out} goes on from here")
        return 130
    finally:
        log.close()
    verdicts = write_reports(out, record.load(out))
    return 1 if args.measures and report.failed(verdicts) else 0


def identity(args):
    """What must be the same for results to stand in one report."""
    veneer = next(d for d in drivers.every_driver() if d.name == "veneer")
    return json.loads(json.dumps({
        "quick": args.quick, "veneer": host.digest(veneer.binary), "arguments": veneer.extra,
        "kernel": os.uname().release}))
