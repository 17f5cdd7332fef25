# SPDX-License-Identifier: Apache-2.0
"""What subcommands answer to a command line that is wrong: exit code 2, nothing on standard output, on standard error a
sentence that says what is wrong with it, and what would be right. (`mount` answers as fuse-overlayfs does.)"""
import json
import os
import subprocess

import pytest

_NOTHING = {"check": "LAYER", "diff": "UPPER", "du": "UPPER", "flatten": "-o lowerdir=", "inspect": "PATH", "profile": "list, show",
            "umount": "MOUNTPOINT"}
_ALL = [*_NOTHING, "server", "stats", "top"]
_TAKES_JSON = ["check", "diff", "du", "flatten", "inspect", "profile", "stats", "top"]
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
    sentence, *usage = result.stderr.splitlines()
    assert sentence.startswith("veneer: ") and what in sentence, result.stderr
    assert usage[0].startswith(f"usage: veneer {arguments[0]}"), result.stderr


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
