# SPDX-License-Identifier: Apache-2.0
"""Answers of subcommands to a wrong command line: exit code 2, nothing on standard output, on standard error a
sentence that says what is wrong with it, and a line that names the help. (`mount` answers as fuse-overlayfs does.)"""
import json
import os
import re
import subprocess

import pytest

from support import linux

_NOTHING = {"check": "LAYER", "diff": "UPPER", "du": "UPPER", "flatten": "-o lowerdir=", "inspect": "PATH", "profile": "list, show",
            "umount": "MOUNTPOINT"}
_ALL = [*_NOTHING, "info", "server", "stats", "top"]
_TAKES_JSON = ["check", "diff", "du", "flatten", "info", "inspect", "profile", "stats", "top"]
_WRONG = {
    "stats --json --prometheus": "exclude each other", "stats a b": "unexpected argument: b",
    "diff --json --tar .": "exclude each other", "diff . b": "unexpected argument: b", "diff -o": "after -o", "diff -o x .": "without --tar",
    "check . b": "unexpected argument: b", "check -o": "after -o", "check . -o lowerdir=.,upperdir=.": "unexpected argument: .",
    "flatten .": "--in-place", "flatten -o": "after -o",
    "profile what": "unexpected argument: what", "profile show": "IMAGE", "profile forget": "--all", "profile forget 1 --all": "--all",
    "profile list 1": "unexpected argument: 1", "profile --json export": "for list and show", "profile list --state": "after --state",
    "top -n": "after -n", "top -n 0": "frames: 0", "top -n -1": "frames: -1", "top -i 0": "seconds: 0",
    "top -i 1x": "1x", "top -i nan": "nan", "top -i 0.01": "0.01", "top --interval 1e9": "1e9", "top --interval": "after --interval",
    "top a": "unexpected argument: a", "server a": "argument: a", "du --json=yes .": "--json=yes", "umount -lZ .": "-Z",
}


def run(stack, *arguments):
    env = {**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "none")}
    return subprocess.run([stack.program, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=env)


def assert_is_told(stack, arguments, what):
    result = run(stack, *arguments)
    assert (result.returncode, result.stdout) == (2, ""), result
    sentence, usage = result.stderr.splitlines()
    assert sentence.startswith("veneer: ") and what in sentence, result.stderr
    assert usage == f"usage: veneer {arguments[0]} --help"
    assert run(stack, arguments[0], "--help").stdout.startswith(f"usage: veneer {arguments[0]} ")


@pytest.mark.parametrize("command", _NOTHING)
def test_nothing_to_work_on(stack, command):
    assert_is_told(stack, [command], _NOTHING[command])
    if command in _TAKES_JSON:
        assert_is_told(stack, [command, "--json"], _NOTHING[command])


@pytest.mark.parametrize("command", _ALL)
def test_unknown_option(stack, command):
    for arguments in [["--what"], ["-Z"], [stack.base, "--what"], [stack.base, "-Z"]]:
        assert_is_told(stack, [command, *arguments], str(arguments[-1]) if command != "server" else str(arguments[0]))
    if command not in _TAKES_JSON:
        assert_is_told(stack, [command, "--json"], "--json")


@pytest.mark.parametrize("line", _WRONG)
def test_what_is_wrong_is_said(stack, line):
    assert_is_told(stack, line.split(), _WRONG[line])


def test_all_subcommands_are_here(stack):
    listed = run(stack, "--help").stdout
    for command in _ALL:
        assert command in listed
        text = run(stack, command, "--help").stdout
        assert ("--json" in text) == (command in _TAKES_JSON)


@pytest.mark.parametrize("line", ["check UPPER", "diff UPPER", "du UPPER", "inspect UPPER", "profile --state UPPER list"])
def test_json_may_be_said_first_and_last(stack, line):
    command, *words = line.replace("UPPER", str(stack.upper)).split()
    first, last = run(stack, command, "--json", *words), run(stack, command, *words, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout) == json.loads(last.stdout)


def assert_sentence(result, code, *words, program="veneer"):
    assert (result.returncode, result.stdout) == (code, ""), result
    assert result.stderr.startswith(f"{program}: ") and result.stderr.count("\n") == 1, result.stderr
    assert all(word in result.stderr for word in words), result.stderr


# ---- a first word that is no command ----

@pytest.mark.parametrize("line, meant", [("umuont m", "umount"), ("unmount m", "umount"), ("stat", "stats"), ("sevrer --idle 5", "server"),
                                         ("flaten -o upperdir=u", "flatten"), ("chekc -o lowerdir=l,upperdir=u", "check"), ("mout m", "mount")])
def test_a_misspelt_command_names_the_one_that_was_meant(stack, line, meant):
    assert_sentence(run(stack, *line.split()), 2, f"{line.split()[0]} is not a command", f"did you mean {meant}?")


def test_a_word_that_is_like_no_command_is_named(stack):
    assert_sentence(run(stack, "frobnicate"), 2, "frobnicate is not a command", "veneer --help")
    assert_sentence(run(stack, "help", "frobnicate"), 2, "frobnicate is not a command")
    assert_sentence(run(stack), 2, "nothing to do", "veneer --help")


def test_help_and_version_are_words(stack):
    assert run(stack, "help").stdout == run(stack, "--help").stdout
    assert run(stack, "version").stdout == run(stack, "--version").stdout
    for command in [*_ALL, "mount"]:
        assert run(stack, "help", command).stdout == run(stack, command, "--help").stdout


def test_a_source_may_be_called_like_a_command(stack):
    """mount(8) passes any word as the source; the last one is the mount point."""
    (stack.lower() / "f").write_text("f")
    for source in ["umuont", "help", "version", "stat"]:
        ran = run(stack, source, stack.mnt, "-o", f"lowerdir={stack.lower()},standalone")
        assert (ran.returncode, ran.stderr) == (0, "")
        assert (stack.mnt / "f").read_text() == "f"
        linux.umount(stack.mnt)


# ---- messages of a mount ----

_MOUNTS = {
    "-o lowerdir=L,upperdir=,workdir=W M": ["no directory is given for upperdir"],
    "-o lowerdir=L, upperdir=U, workdir=W M": ["upperdir=", "is not a part of -o"],
    "lowerdir=L,upperdir=U,workdir=W M": ["is not a part of -o"],
    "-o lowerdir=L,io=fast M": ["invalid value for io: fast", "auto|passthrough|cached|direct"],
    "-o lowerdir=L,uidmapping=1:2 M": ["invalid mapping specified: 1:2", "uidmapping=ON_DISK:SHOWN:COUNT"],
    "-o lowerdir=L,sizze=5M,strict M": ["unknown option: sizze=5M"],
    "-o lowerdir=L FILE": ["FILE: Not a directory"],
    "-o lowerdir=L ABSENT": ["ABSENT: No such file or directory"],
    "-o lowerdir=L": ["no mountpoint specified"],
    "M": ["lowerdir not specified: -o lowerdir="],
    "--lowerdir=L M": ["lowerdir not specified: -o lowerdir="],
}


@pytest.mark.parametrize("name", ["veneer", "fuse-overlayfs"])
@pytest.mark.parametrize("line", _MOUNTS)
def test_a_mount_that_cannot_be_is_one_sentence_by_the_name_it_was_called(stack, line, name):
    (stack.base / "FILE").write_text("")
    (stack.base / "bin").mkdir()
    program = stack.base / "bin" / name
    program.symlink_to(stack.program)
    places = {"L": stack.lower(), "U": stack.upper, "W": stack.work, "M": stack.mnt}
    words = re.sub(r"\b[LUWM]\b", lambda m: str(places[m.group()]), line).split()
    ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, cwd=stack.base)
    assert_sentence(ran, 1, *_MOUNTS[line], program=name)
    assert not os.path.ismount(stack.mnt) and not os.path.ismount(stack.base / "FILE")
