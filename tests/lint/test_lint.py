# SPDX-License-Identifier: Apache-2.0
"""Each rule of contrib/lint finds its violation, seeded in a small tree that has none."""
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LINT = TOP / "contrib/lint/lint.py"

MESON = "subdir('base')\nsubdir('sys')\nsubdir('cli')\n"
ADD_H = "/* Adds. */\n#pragma once\n\nint add_two(int a);\n"
ADD_C = '#include "veneer/base/add.h"\n\nint add_two(int a)\n{\n\treturn a + 2;\n}\n'
USE_H = "/* Uses. */\n#pragma once\n\nint use_three(int a);\n"
USE_C = ('#include "veneer/sys/use.h"\n#include "veneer/base/add.h"\n\n'
         "int use_three(int a)\n{\n\treturn add_two(a) + 1;\n}\n")
MAIN_C = '#include "veneer/sys/use.h"\n\nint main(void)\n{\n\treturn use_three(-3);\n}\n'
COUNTER = "static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\nGUARDED_BY(lock) static int n_calls;\n"
PROSE = "[goal]\nfree = 5\nmedian = 17\nlongest = 35\n\n[ceiling]\n"
EXCEPTIONS = '[[unit-test]]\nreason = "It is the program."\nsubjects = ["src/cli/main.c"]\n'


class House:
    """A small tree with the settings of the real one, and its build."""

    def __init__(self, top):
        self.top = top
        subprocess.run(["git", "init", "-q", top], check=True)
        for name in (".clang-format", ".clang-tidy", "ruff.toml", "contrib/lint/codespell.txt"):
            self.write(name, (TOP / name).read_text())
        self.write("contrib/lint/exceptions.toml", EXCEPTIONS)
        self.write("contrib/lint/prose.toml", PROSE)
        self.write(".gitignore", "/build/\n")
        self.write("src/meson.build", MESON)
        self.write("include/veneer/base/add.h", ADD_H)
        self.write("src/base/add.c", ADD_C)
        self.write("include/veneer/sys/use.h", USE_H)
        self.write("src/sys/use.c", USE_C)
        self.write("src/cli/main.c", MAIN_C)
        self.write("tests/unit/base/test_add.c", "int main(void)\n{\n\treturn 0;\n}\n")
        self.write("tests/unit/sys/test_use.c", "int main(void)\n{\n\treturn 0;\n}\n")
        self.write("README.md", "# A house\n\nOne sentence.\n")
        self.write("run.sh", "#!/bin/sh\necho \"$1\"\n")
        self.write("run.py", "print(1)\n")

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def append(self, name, text):
        self.write(name, (self.top / name).read_text() + text)

    def build(self):
        commands = []
        for source in sorted(self.top.glob("src/*/*.c")):
            name = source.relative_to(self.top).as_posix()
            output = name.replace("/", "_") + ".o"
            (self.top / "build").mkdir(exist_ok=True)
            subprocess.run(["gcc", "-w", "-c", "-Iinclude", "-Isrc", name, "-o", f"build/{output}"], cwd=self.top, check=True)
            commands.append({"directory": str(self.top / "build"), "file": f"../{name}", "output": output,
                             "arguments": ["gcc", "-I../include", "-I../src", "-c", f"../{name}"]})
        (self.top / "build/compile_commands.json").write_text(json.dumps(commands))

    def lint(self, *arguments, **environment):
        """(exit status, the (path, rule) of each finding, what it printed)"""
        self.build()
        run = subprocess.run([sys.executable, LINT, "--root", self.top, *arguments], capture_output=True, text=True,
                             env={**os.environ, **environment})
        assert not run.stderr
        return run.returncode, re.findall(r"^(.*?):\d+: .*\[([a-z-]+)\]$", run.stdout, re.M), run.stdout


@pytest.fixture
def house(tmp_path):
    return House(tmp_path / "house")


def _function(lines, name="add_long"):
    return f"\nstatic int {name}(int a)\n{{\n" + "\ta++;\n" * (lines - 4) + "\treturn a;\n}\n"


def _seed_file_lines(house):
    house.append("src/base/add.c", "/* line */\n" * 800)


def _seed_function_lines(house):
    house.append("src/base/add.c", _function(61))


def _seed_parameters(house):
    house.append("src/base/add.c", "\nstatic int many(int a, int b, int c, int d, int e, int f, int g)\n{\n\treturn a;\n}\n")


def _seed_columns(house):
    house.append("src/base/add.c", '\nstatic const char *const text =\n\t"' + "long " * 20 + '";\n')


def _seed_clang_format(house):
    house.append("src/base/add.c", "\nstatic int  bad(void) { return 1; }\n")


def _seed_include_up(house):
    house.write("src/base/add.c", ADD_C.replace("\n\n", '\n#include "veneer/sys/use.h"\n\n', 1))


def _seed_include_private(house):
    house.write("src/base/inner.h", "/* For base alone. */\n#pragma once\n")
    house.write("src/sys/use.c", USE_C.replace('add.h"\n', 'add.h"\n#include "base/inner.h"\n', 1))


def _seed_include_struct(house):
    house.write("src/meson.build", MESON.replace("subdir('sys')", "subdir('union')\nsubdir('sys')"))
    house.write("include/veneer/union/inode_struct.h", "/* Fields. */\n#pragma once\n")
    house.write("src/sys/use.c", USE_C.replace('add.h"\n', 'add.h"\n#include "veneer/union/inode_struct.h"\n', 1))


def _seed_call_up(house):
    house.write("src/base/add.c", ADD_C.replace("int add_two", "int use_three(int a);\n\nint add_two")
                .replace("a + 2", "use_three(a)"))


def _seed_circle(house):
    house.write("src/base/sub.c", '#include "veneer/base/add.h"\n\nint sub_one(int a)\n{\n\treturn add_two(a) - 1;\n}\n')
    house.write("tests/unit/base/test_sub.c", "int main(void)\n{\n\treturn 0;\n}\n")
    house.write("src/base/add.c", ADD_C.replace("int add_two", "int sub_one(int a);\n\nint add_two").replace("a + 2", "sub_one(a)"))


def _seed_unused_export(house):
    house.append("src/base/add.c", "\nint add_nothing(void)\n{\n\treturn 0;\n}\n")


def _seed_export_name(house):
    for name in ("include/veneer/base/add.h", "src/base/add.c", "src/sys/use.c"):
        house.write(name, (house.top / name).read_text().replace("add_two", "plus_two"))


def _seed_unit_test(house):
    (house.top / "tests/unit/base/test_add.c").unlink()


def _seed_clang_tidy(house):
    house.append("src/base/add.c", "\nstatic int is_same(int a)\n{\n\treturn a == a;\n}\n")


def _seed_thread_safety(house):
    house.write("include/veneer/base/lock.h", (TOP / "include/veneer/base/lock.h").read_text())
    house.write("include/veneer/base/cleanup.h", (TOP / "include/veneer/base/cleanup.h").read_text())
    house.write("src/base/add.c", ADD_C.replace("\n\nint", '\n#include "veneer/base/lock.h"\n\n' + COUNTER + "\nint")
                .replace("return", "n_calls++;\n\treturn"))


def _seed_shellcheck(house):
    house.append("run.sh", "for i in $*; do echo \"$i\"; done\n")


def _seed_ruff(house):
    house.append("run.py", "import os\n")


def _seed_codespell(house):
    house.append("README.md", "\nIt " + "rec" + "ieves.\n")


def _seed_markdown_columns(house):
    house.append("README.md", "\n" + "A long sentence. " * 6 + "\n")


def _seed_prose(house):
    house.append("src/base/add.c", "\n/* What is added is what the caller has. */\n")


def _seed_fixed_wait(house):
    house.write("tests/test_it.py", "import time\n\n\ndef test_it():\n    for _ in range(3):\n        time.sleep(1)\n    time.sleep(1)\n")


SEEDS = {
    "file-lines": (_seed_file_lines, "src/base/add.c"),
    "function-lines": (_seed_function_lines, "src/base/add.c"),
    "parameters": (_seed_parameters, "src/base/add.c"),
    "columns": (_seed_columns, "src/base/add.c"),
    "clang-format": (_seed_clang_format, "src/base/add.c"),
    "include-up": (_seed_include_up, "src/base/add.c"),
    "include-private": (_seed_include_private, "src/sys/use.c"),
    "include-struct": (_seed_include_struct, "src/sys/use.c"),
    "call-up": (_seed_call_up, "src/base/add.c"),
    "circle": (_seed_circle, "src/base/add.c"),
    "unused-export": (_seed_unused_export, "src/base/add.c"),
    "export-name": (_seed_export_name, "src/base/add.c"),
    "unit-test": (_seed_unit_test, "src/base/add.c"),
    "clang-tidy": (_seed_clang_tidy, "src/base/add.c"),
    "thread-safety": (_seed_thread_safety, "src/base/add.c"),
    "shellcheck": (_seed_shellcheck, "run.sh"),
    "ruff": (_seed_ruff, "run.py"),
    "codespell": (_seed_codespell, "README.md"),
    "markdown-columns": (_seed_markdown_columns, "README.md"),
    "prose": (_seed_prose, "src/base/add.c"),
    "fixed-wait": (_seed_fixed_wait, "tests/test_it.py"),
}
# What a seed breaks besides.
BESIDE = {
    "call-up": {"circle"},
}
# Their tools take as long to start as all others to run, so each is asked about its own seed and the clean tree alone.
SLOW = {"clang-format", "clang-tidy", "thread-safety", "ruff", "codespell"}


def test_a_clean_tree_passes(house):
    status, found, out = house.lint()
    assert (status, found) == (0, []), out
    assert f"{len(SEEDS)} rules, 0 findings" in out


@pytest.mark.parametrize("rule", SEEDS)
def test_violation_is_found(house, rule):
    seed, path = SEEDS[rule]
    seed(house)
    status, found, out = house.lint(*(f"--rule={one}" for one in SEEDS if one == rule or one not in SLOW))
    assert status == 1
    assert (path, rule) in found, out
    assert {one for _, one in found} <= {rule} | BESIDE.get(rule, set()), out


def test_limits_themselves_are_allowed(house):
    house.append("src/base/add.c", _function(60) + "\nstatic int six(int a, int b, int c, int d, int e, int f)\n{\n\treturn a;\n}\n")
    house.append("README.md", "\n" + "x" * 39 + " " + "x" * 40 + "\n\n| " + "cell " * 30 + "|\n\n```\n" + "code " * 30 + "\n```\n")
    status, _, out = house.lint()
    assert status == 0, out


def test_a_step_of_a_poll_loop_is_no_fixed_wait(house):
    house.write("tests/unit/test_poll.c", "void f(void)\n{\n\tfor (int k = 0; k < 9; k++)\n\t\tusleep(1);\n\twhile (1) {\n\t\tif (g())\n"
                "\t\t\tusleep(2);\n\t}\n\tdo\n\t\tusleep(3);\n\twhile (g());\n\t/* sleep(4) */\n}\n")
    assert house.lint("--rule", "fixed-wait")[0] == 0
    house.append("tests/unit/test_poll.c", "\nvoid h(void)\n{\n\tfor (;;)\n\t\tg();\n\tsleep(5);\n}\n")
    house.write("tests/test_it.py", "def test_it():\n    assert not wait_until(lambda: False, 1)\n")
    assert house.lint("--rule", "fixed-wait")[1] == [("tests/test_it.py", "fixed-wait"), ("tests/unit/test_poll.c", "fixed-wait")]


def test_exception_lets_its_subject_through_and_nothing_else(house):
    _seed_unused_export(house)
    house.append("contrib/lint/exceptions.toml", '[[unused-export]]\nreason = "A test."\nsubjects = ["add_nothing"]\n')
    assert house.lint()[0] == 0
    house.append("src/base/add.c", "\nint add_more(void)\n{\n\treturn 0;\n}\n")
    assert house.lint()[1] == [("src/base/add.c", "unused-export")]


def test_exception_that_nothing_needs_is_found(house):
    house.append("contrib/lint/exceptions.toml", '[[parameters]]\nreason = "Once."\nsubjects = ["gone"]\n')
    status, found, out = house.lint()
    assert (status, found) == (1, [("contrib/lint/exceptions.toml", "parameters")])
    assert "no finding needs this exception any more: gone" in out


def test_exception_without_a_reason_is_found(house):
    _seed_parameters(house)
    house.append("contrib/lint/exceptions.toml", '[[parameters]]\nsubjects = ["many"]\n')
    assert house.lint()[1] == [("contrib/lint/exceptions.toml", "parameters")]


def test_missing_tool_is_said_and_fails(house, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "nm"):
        (programs / name).symlink_to(shutil.which(name))
    status, found, out = house.lint(VENEER_LINT_PREFIX=str(tmp_path), PATH=str(programs))
    assert status == 1
    assert {rule for _, rule in found} == {"clang-format", "clang-tidy", "thread-safety", "ruff", "codespell", "shellcheck",
                                          "function-lines", "parameters"}
    assert "clang-format 19.1.7 is missing: contrib/setup.sh --tests installs it" in out


def test_tree_without_git_is_walked(house):
    shutil.rmtree(house.top / ".git")
    assert house.lint()[0] == 0
    _seed_ruff(house)
    assert set(house.lint()[1]) == {("run.py", "ruff")}


def test_one_rule_is_checked_alone(house):
    for rule in ("parameters", "unit-test"):
        SEEDS[rule][0](house)
    assert house.lint("--rule", "unit-test")[1] == [("src/base/add.c", "unit-test")]


def test_report_has_a_case_for_each_rule(house, tmp_path):
    _seed_parameters(house)
    house.lint("--xml", tmp_path / "lint.xml")
    cases = ElementTree.parse(tmp_path / "lint.xml").getroot().findall("testcase")
    assert {case.get("name") for case in cases} == set(SEEDS)
    (failed,) = [case for case in cases if case.find("failure") is not None]
    assert failed.get("name") == "parameters" and "many has 7 parameters" in failed.find("failure").text
