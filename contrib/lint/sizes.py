# SPDX-License-Identifier: Apache-2.0
"""Sizes: lines of functions and files, parameters of functions, columns of lines."""
import json
import re
import subprocess

from finding import Finding
from tools import need
from tree import Tree

FUNCTION_LINES = 60
FILE_LINES = 800
PARAMETERS = 6
C_COLUMNS = 100
TAB = 8


def _functions(tree: Tree):
    out = subprocess.run(
        ["ctags", "--languages=C", "--langmap=C:.c.h", "--kinds-C=f", "--fields=+neS", "--output-format=json", "-f", "-",
         *tree.modules], cwd=tree.root, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def _count_parameters(signature: str) -> int:
    inner = re.sub(r"\s+", " ", signature)[1:-1].strip()
    if inner in ("", "void"):
        return 0
    depth, commas = 0, 0
    for char in inner:
        depth += char in "([{"
        depth -= char in ")]}"
        commas += char == "," and depth == 0
    return commas + 1


def check_files(tree: Tree) -> list[Finding]:
    found = []
    for path in tree.modules:
        lines = len(tree.text(path).splitlines())
        if lines > FILE_LINES:
            found.append(Finding(path, 1, "file-lines", path, f"{lines} lines, at most {FILE_LINES}"))
    return found


def check_functions(tree: Tree) -> list[Finding]:
    need("ctags")
    found = []
    for tag in _functions(tree):
        name, path, line = tag["name"], tag["path"], tag["line"]
        lines = tag.get("end", line) - line + 1
        if lines > FUNCTION_LINES:
            found.append(Finding(path, line, "function-lines", name, f"{name} has {lines} lines, at most {FUNCTION_LINES}"))
        count = _count_parameters(tag.get("signature", "()"))
        if count > PARAMETERS:
            found.append(Finding(path, line, "parameters", name, f"{name} has {count} parameters, at most {PARAMETERS}"))
    return found


def check_columns(tree: Tree) -> list[Finding]:
    """clang-format breaks everything but comments without blanks and string literals."""
    found = []
    for path in tree.c_files:
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            columns = len(line.expandtabs(TAB))
            if columns > C_COLUMNS:
                found.append(Finding(path, number, "columns", path, f"{columns} columns, at most {C_COLUMNS}"))
    return found
