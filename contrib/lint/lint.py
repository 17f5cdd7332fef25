#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of CONTRIBUTING.md that a program can check. Exit status 1: it found something."""
import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import layers
import prose
import sizes
import texts
import tools
import waits
from finding import Exceptions, Finding
from symbols import Symbols
from tree import Tree

# Checks that take the files alone; each returns findings of the rules named.
FILE_CHECKS = (
    (("file-lines",), sizes.check_files),
    (("function-lines", "parameters"), sizes.check_functions),
    (("columns",), sizes.check_columns),
    (("include-up", "include-private", "include-struct"), layers.check_includes),
    (("unit-test",), texts.check_unit_tests),
    (("markdown-columns",), texts.check_markdown),
    (("prose",), prose.check_prose),
    (("fixed-wait",), waits.check_waits),
    (("clang-format",), tools.check_clang_format),
    (("shellcheck",), tools.check_shellcheck),
    (("ruff",), tools.check_ruff),
    (("codespell",), tools.check_codespell),
)
# Checks that take the objects of a build besides.
BUILD_CHECKS = (
    (("call-up",), layers.check_calls),
    (("circle",), lambda tree, symbols: layers.check_circles(symbols)),
    (("unused-export", "export-name"), lambda tree, symbols: symbols.check(tree)),
)
# Of one run of clang-tidy on what is built.
TIDY_RULES = ("clang-tidy", "thread-safety")
RULES = [rule for rules, _ in FILE_CHECKS + BUILD_CHECKS for rule in rules] + list(TIDY_RULES)


def findings(tree: Tree, build: Path, wanted: set[str]) -> list[Finding]:
    """A tool that is missing is a finding of each rule that needs it."""
    found = []

    def add(rules, check):
        try:
            found.extend(one for one in check() if one.rule in wanted)
        except tools.MissingTool as e:
            found.extend(Finding(".", 0, rule, "", str(e)) for rule in rules if rule in wanted)

    for rules, check in FILE_CHECKS:
        if wanted & set(rules):
            add(rules, lambda check=check: check(tree))
    if wanted & set(TIDY_RULES):
        add(TIDY_RULES, lambda: tools.check_clang_tidy(tree, build))
    if wanted & {rule for rules, _ in BUILD_CHECKS for rule in rules}:
        symbols = Symbols(build)
        for rules, check in BUILD_CHECKS:
            add(rules, lambda check=check: check(tree, symbols))
    return found


def write_junit(path: Path, found: list[Finding], rules: set[str]):
    """A test case for each rule."""
    suite = ElementTree.Element("testsuite", name="lint")
    for rule in sorted(rules):
        case = ElementTree.SubElement(suite, "testcase", classname="lint", name=rule)
        texts_of_rule = [str(one) for one in found if one.rule == rule]
        if texts_of_rule:
            ElementTree.SubElement(case, "failure").text = "\n".join(texts_of_rule)
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the tree (this one)")
    parser.add_argument("--build", type=Path, help="a plain build of it (build, in the tree)")
    parser.add_argument("--rule", action="append", choices=RULES, help="check this rule alone; may be repeated")
    parser.add_argument("--xml", type=Path, help="also write a JUnit report")
    args = parser.parse_args()
    root, wanted = args.root.resolve(), set(args.rule or RULES)
    exceptions = Exceptions(root)
    found = [one for one in findings(Tree(root), (args.build or root / "build").resolve(), wanted)
             if not exceptions.lets_through(one)]
    found = sorted(found + exceptions.faults(wanted))
    for one in found:
        print(one)
    print(f"lint: {len(wanted)} rules, {len(found)} findings")
    if args.xml:
        write_junit(args.xml, found, wanted)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
