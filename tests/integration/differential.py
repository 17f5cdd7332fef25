#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random operations on a mount and on an ordinary directory, which must stay alike.

In between the mount is made anew, and its upper frozen as a lower below a fresh upper. As a
program: differential.py --rounds 20 --ops 20000 --seed 7; the seed of a failure is printed. With
--processes N several work at once, each in a directory of its own, or with --shared on the same
files; what they do to each other is then not repeated by the seed.
"""
import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import linux, rootless, sharedops
from support.child import in_children
from support.randomops import RandomOperations
from support.stack import Stack
from support.twins import Mismatch, Twins

_CHECKPOINTS = 10
_FROZEN_LIMIT = 6
_PHASES = 3  # of several processes, with another mount between


def populate(directory, rng):
    """A small tree of the names that operations draw, files in n0-n8 and directories above."""
    for depth, parent in enumerate([directory, directory / "n10", directory / "n10" / "n11"]):
        parent.mkdir(exist_ok=True)
        for number in rng.sample(range(9), 6):
            path = parent / f"n{number}"
            path.write_bytes(rng.randbytes(min(int(2 ** rng.uniform(0, 20.6)), 1_500_000)))
            path.chmod(rng.choice((0o644, 0o755, 0o600)))
            owner = rng.randrange(50), rng.randrange(50)
            if not rootless.is_plain():
                os.chown(path, *owner)
            if rng.random() < 0.4:
                os.setxattr(path, "user.x1", rng.randbytes(50))
            os.utime(path, ns=(10**18, 10**18 + rng.randrange(10**15)))
        (parent / f"n{12 + depth % 2}").mkdir(exist_ok=True)
        os.utime(parent, ns=(10**18, 10**18 + rng.randrange(10**15)))


def populate_links(directory, index, rng):
    """Hard links, near each other and far apart, under names that no other layer has: a lower file
    shows the link count of its layer, hidden names included, until it is first changed."""
    for number in range(3):
        first = directory / f"h{index}-{number}"
        first.write_bytes(rng.randbytes(rng.randrange(300_000)))
        for place in rng.sample(["", "n10", "n10/n11", f"h{index}", f"h{index}/deep"], rng.randrange(1, 4)):
            (directory / place).mkdir(parents=True, exist_ok=True)
            os.link(first, directory / place / f"h{index}-{number}-link")


def prepare(stack, plain, rng):
    for index in range(rng.randrange(1, 4)):
        populate(stack.lower(index), rng)
        populate_links(stack.lower(index), index, rng)
    for lower in reversed(stack.lowers):
        subprocess.run(["cp", "-a", "--remove-destination", f"{lower}/.", f"{plain}/"], check=True)
    shutil.copystat(stack.lowers[0], stack.upper)


def make_layers(stack, plain, seed):
    """Random operations on a mounted stack that is frozen twice meanwhile; they go on in the mount."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    prepare(stack, plain, rng)
    stack.mount()
    operations = RandomOperations(Twins(stack.mnt, plain), rng)
    for number in range(900):
        operations.step()
        if number in (300, 600):
            operations.close_handles()
            stack.freeze()
            stack.mount()
    operations.close_handles()
    return operations


def _checkpoint(stack, operations, number, options, strict):
    operations.flush_mappings()
    operations.twins.compare_trees(strict)
    kind = ("go on", "remount", "freeze")[number % 3]
    if kind == "freeze" and len(stack.lowers) >= _FROZEN_LIMIT:
        kind = "remount"
    operations.trace.append(f"--- {kind}")
    if kind == "go on":
        return
    operations.close_handles()
    if kind == "freeze":
        stack.freeze()
        stack.mount(*options)
    else:
        stack.remount(*options)
    operations.twins.compare_trees(strict)


def options_of(seed):
    """An ordinary directory's reader sees what is written after its open; a mount's does with this."""
    return ("coherence=strict",) if seed % 2 else ()


def run(stack, plain, seed, ops, options=(), strict=True):
    """One round. Mismatch (with the seed and the last operations) if the two do not stay alike."""
    rng = random.Random(seed)
    prepare(stack, plain, rng)
    stack.mount(*options)
    twins = Twins(stack.mnt, plain)
    operations = RandomOperations(twins, rng, "noacl" not in options, "coherence=strict" in options)
    done = 0
    try:
        twins.compare_trees(strict)
        for done in range(1, ops + 1):
            operations.step()
            if done % max(1, ops // _CHECKPOINTS) == 0:
                _checkpoint(stack, operations, done // max(1, ops // _CHECKPOINTS), options,
                            strict)
    except (Mismatch, OSError) as e:
        last = "\n  ".join(operations.trace[-40:])
        raise Mismatch(f"seed {seed}, operation {done}: {e}\nlast operations:\n  {last}") from e
    finally:
        operations.close_handles()
    twins.report_not_compared()
    # without redirects it is all of them, and mv copies
    given = {*options, *os.environ.get("VENEER_TEST_OPTIONS", "").split(",")}
    if strict and operations.refused_directories and not {"cow=copy", "private", "redirect_dir=off"} & given:
        raise Mismatch(f"seed {seed}: {operations.refused_directories} directories could not be renamed, "
                       f"{operations.moved_directories} could")
    return operations.counts


def _in_own_directory(stack, plain, number, seed, ops, options, strict):
    """Random operations below a directory that no other process uses."""
    twins = Twins(stack.mnt / f"p{number}", plain / f"p{number}")
    operations = RandomOperations(twins, random.Random(seed), "noacl" not in options)
    try:
        for _ in range(ops):
            operations.step()
        operations.flush_mappings()
        twins.compare_trees(strict)
    except (Mismatch, OSError) as e:
        last = "\n  ".join(operations.trace[-40:])
        raise Mismatch(f"process {number}: {e}\nlast operations:\n  {last}") from e
    finally:
        operations.close_handles()


def run_processes(stack, plain, seed, ops, processes, shared=False, options=(), strict=True):
    """As run, by several processes at once, which make ops operations each."""
    rng = random.Random(seed)
    for number in range(processes):
        for root in (stack.lower(), plain):
            (root / f"p{number}").mkdir()
        populate(stack.lower() / f"p{number}", rng)
    names = [f"p0/s{number}" for number in range(5)]
    for number, name in enumerate(names):
        (stack.lower() / name).write_bytes(rng.randbytes(min(2 ** (7 + 3 * number), 600_000)))
    subprocess.run(["cp", "-a", f"{stack.lower()}/.", f"{plain}/"], check=True)
    shutil.copystat(stack.lower(), stack.upper)
    locks = stack.base / "locks"
    (locks / "p0").mkdir(parents=True)
    twins = Twins(stack.mnt, plain)
    for phase in range(_PHASES):
        stack.remount(*options)
        if shared:
            in_children([lambda draw=random.Random(f"{seed} {phase} {number}"): sharedops.work(
                twins, draw, names, locks, ops // _PHASES) for number in range(processes)])
        else:
            in_children([lambda number=number: _in_own_directory(
                stack, plain, number, f"{seed} {phase} {number}", ops // _PHASES, options, strict)
                for number in range(processes)])
        twins.compare_trees(strict)
        if phase == 0:
            stack.freeze()
    stack.remount(*options)
    twins.compare_trees(strict)
    twins.report_not_compared()


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ops", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shared", action="store_true", help="they work on the same files")
    parser.add_argument("--options", default="", help="mount options, with commas")
    parser.add_argument("--lenient", action="store_true", help="neither compare link counts of "
                        "directories nor d_ino with st_ino, which overlayfs does not keep")
    parser.add_argument("--program", default=os.environ.get("VENEER_BIN", "build/veneer"))
    parser.add_argument("--dir", default=os.environ.get("VENEER_TEST_DIR", "/var/tmp"))
    parser.add_argument("--keep", action="store_true", help="leave the directories of a failure")
    return parser.parse_args()


def main():
    arguments = _arguments()
    if os.geteuid() == 0:
        linux.private_mounts()
    os.umask(0o022)
    first = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**9)
    options = [option for option in arguments.options.split(",") if option]
    for seed in range(first, first + arguments.rounds):
        base = pathlib.Path(tempfile.mkdtemp(prefix="veneer-diff-", dir=arguments.dir))
        stack = Stack(base / "stack", os.path.abspath(arguments.program))
        (base / "plain").mkdir()
        problems = []
        try:
            if arguments.processes > 1:
                run_processes(stack, base / "plain", seed, arguments.ops, arguments.processes,
                              arguments.shared, options, not arguments.lenient)
            else:
                run(stack, base / "plain", seed, arguments.ops, options or options_of(seed),
                    not arguments.lenient)
            print(f"seed {seed}: {arguments.processes} times {arguments.ops} operations alike",
                  flush=True)
        except AssertionError as e:  # Mismatch is one
            problems.append(str(e))
        problems += stack.close()
        if problems:
            print("\n".join(problems), stack.log[-3000:], sep="\n", file=sys.stderr)
            if not arguments.keep:
                shutil.rmtree(base)
            return 1
        shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
