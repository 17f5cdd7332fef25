# SPDX-License-Identifier: Apache-2.0
"""Which mutants contrib/mutate.py makes of a file, its sample, its results and its table."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "contrib"))

import mutate  # noqa: E402


def changes(text):
    return [(one.old, one.new) for one in mutate.mutants_of("src/map/x.c", text)]


@pytest.mark.parametrize("line, expected", [
    ("\tif (a == b && !c)", [("==", "!="), ("&&", "||"), ("!", "")]),
    ("\treturn a < b ||", [("<", "<="), ("||", "&&")]),
    ("\tx = n - 1 + m[k + 1];", [("- 1", "+ 1"), ("+ 1", "- 1")]),
    ("\tif (a >= 1 != b)", [(">=", ">"), ("!=", "==")]),
    ("\t\treturn -EIO;", [("return -EIO;", ";")]),
    ("\treturn -EIO;", []),
    ("\tp->x = a << 2 | b >> 1;", []),
    ("\tx = n + 16 - 1u + f(!x);", [("!", "")]),
    ("#if A == B", []),
    ("\t_Static_assert(A == B, \"x\");", []),
    ("\tINVARIANTS(a == b);", []),
    ("\tputs(\"a == b\"); /* a == b */ // a == b", []),
    ("\tif (c == '!' && s[0] == '\\'')", [("==", "!="), ("&&", "||"), ("==", "!=")]),
])
def test_mutants_of_a_line(line, expected):
    assert changes(f"int f(void)\n{{\n{line}\n}}\n") == expected


def test_no_mutants_in_comments_of_several_lines_and_in_checks_of_invariants():
    text = "/* a == b\n * c && d */\n\tif (a == b)\n" + mutate._END + "\n\tif (a == b)\n"
    assert [one.line for one in mutate.mutants_of("src/map/x.c", text)] == [3]


def test_mutant_changes_its_place_alone():
    text = "\tif (a == b && c == d)\n\t\treturn \"a;b\" == c;\n"
    first, _, second, inner, dropped = mutate.mutants_of("src/map/x.c", text)
    assert first.apply(text) == text.replace("a == b", "a != b")
    assert second.apply(text) == text.replace("c == d", "c != d")
    assert inner.old == "==" or dropped.old == "=="
    whole = inner if inner.old.startswith("return") else dropped
    assert whole.apply(text) == "\tif (a == b && c == d)\n\t\t;\n"


def some_mutants():
    text = "\tif (a == b)\n" * 30
    return [one for directory in ("map", "data", "recover") for one in mutate.mutants_of(f"src/{directory}/x.c", text)]


def test_sample_has_as_many_of_each_directory_and_a_larger_one_begins_with_it():
    small, large = mutate.choose(some_mutants(), 9, 4), mutate.choose(some_mutants(), 30, 4)
    assert large[:9] == small
    assert sorted(one.directory for one in small) == ["data"] * 3 + ["map"] * 3 + ["recover"] * 3
    assert mutate.choose(some_mutants(), 9, 5) != small
    assert len(mutate.choose(some_mutants(), None, 4)) == 90


def test_results_are_resumed_and_an_unfinished_line_is_not(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"key": "a", "result": "survived"}) + "\n" + json.dumps({"key": "a", "result": "killed"}) +
                    "\n" + json.dumps({"key": "b", "result": "survived"})[:20])
    assert mutate.read_results(path) == {"a": "killed"}
    assert mutate.read_results(tmp_path / "none") == {}


def test_table_counts_by_directory_and_excuses_what_has_a_reason():
    mutants = mutate.choose(some_mutants(), 9, 1)
    of_map = [one for one in mutants if one.directory == "map"]
    results = {one.key: "killed" for one in mutants if one.directory == "data"}
    results |= dict(zip((one.key for one in of_map), ("killed", "survived", "did not compile")))
    rows = [line.split() for line in mutate.table(results, mutants, mutate.Reasons("")).splitlines()]
    assert rows[1] == ["data", "3", "3", "0", "0", "0", "100", "%"]
    assert rows[2] == ["map", "3", "1", "1", "0", "1", "50", "%"]
    assert rows[3] == ["recover", "0", "0", "0", "0", "0", "-"]
    assert rows[4] == ["all", "6", "4", "1", "0", "1", "80", "%"]
    reason = ('[[survivor]]\nfile = "src/map/x.c"\ncode = "if (a == b)"\nold = "=="\nnew = "!="\n'
              'reason = "Both are alike."\n')
    rows = [line.split() for line in mutate.table(results, mutants, mutate.Reasons(reason)).splitlines()]
    assert rows[2] == ["map", "3", "1", "0", "1", "1", "100", "%"]


def test_each_reason_is_of_a_mutant():
    reasons = mutate.Reasons((TOP / mutate.REASONS).read_text())
    assert reasons.without_mutant(mutate.mutants_in(TOP, list(mutate.TESTS))) == []


def test_program_that_kills_its_group_ends_alone():
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", *user, "--mount", "--pid", "--fork", "--mount-proc", "true"],
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("namespaces are not permitted here")
    # Not in /tmp, which each program gets anew.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        work = Path(name)
        (work / "tree").mkdir()
        for program, line in (("good", "exit 0"), ("bad", "kill -9 0")):
            (work / program).write_text(f"#!/bin/sh\n{line}\n")
            (work / program).chmod(0o755)
        code = (f"import sys; sys.path.insert(0, {str(TOP / 'contrib')!r}); import mutate; from pathlib import Path\n"
                f"work = Path({name!r}); runner = mutate.Runner(work, ['map'], 'none', 10)\n"
                "print([runner._passes(work / one, 10) for one in ('good', 'bad')])")
        run = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, start_new_session=True)
    assert (run.returncode, run.stdout) == (0, "[True, False]\n"), run.stderr
