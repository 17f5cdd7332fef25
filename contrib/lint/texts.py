# SPDX-License-Identifier: Apache-2.0
"""Columns of Markdown outside tables and code, and C files without a unit test."""
import re

from finding import Finding
from tree import Tree

MARKDOWN_COLUMNS = 80
# What cannot be broken: tables, headings, code, titles of manual pages, references to links.
_WHOLE = re.compile(r"\s*\||#|    |\t|% |\[[^\]]+\]: ")


def check_markdown(tree: Tree) -> list[Finding]:
    found = []
    for path in tree.markdown:
        is_code = False
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif len(line) > MARKDOWN_COLUMNS and not is_code and not _WHOLE.match(line) and _can_break(line):
                found.append(Finding(path, number, "markdown-columns", path,
                                     f"{len(line)} columns, at most {MARKDOWN_COLUMNS}"))
    return found


def _can_break(line: str) -> bool:
    """Whether a blank stands within the columns, after the indentation and the mark of a list."""
    mark = re.match(r"\s*(?:[-*] |\d+\. |> )?", line).end()
    return " " in line[mark:MARKDOWN_COLUMNS + 1]


def check_unit_tests(tree: Tree) -> list[Finding]:
    tests = set(tree.matching("tests/unit/*/test_*.c"))
    found = []
    for path in tree.sources:
        directory, name = path.split("/")[1:]
        test = f"tests/unit/{directory}/test_{name}"
        if test not in tests:
            found.append(Finding(path, 1, "unit-test", path, f"there is no {test}"))
    return found
