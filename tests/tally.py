#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what the parts of a test run left in a directory, and prints the closing line.

For each part there is NAME.rc with the exit status of its runner, and NAME.xml (JUnit, of pytest)
or NAME.json (meson's testlog) if the runner got as far as writing one. NAME.again (JUnit) is of the
failed tests of a part when they ran once more: those that passed are unsteady. Both are named here, as what
the parts print is long.
Sanitizer reports of daemons lie beside them as sanitizer.PID; each counts as a failure.
"""
import json
import pathlib
import re
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

PYTEST_NO_TESTS = 5
MESSAGE_CHARS = 1500
# What the leak checker remarks on a thread that is gone by the time it looks: the process was killed during that.
REMARK = re.compile(r"==\d+==Unable to get registers from thread \d+\.\n?")


def cases_of(path):
    """(name, "failed" or "skipped" or "passed") of each test"""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed"
        else:
            yield name, "passed" if case.find("skipped") is None else "skipped"


def messages_of(path):
    """What each failed test said, its first lines."""
    said = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        for fault in (*case.findall("failure"), *case.findall("error")):
            said[f"{case.get('classname')}::{case.get('name')}"] = (fault.get("message") or "")[:MESSAGE_CHARS]
    return said


def unsteady_of(path, again):
    """The tests that failed, and passed when they ran once more. One that fails in its teardown is two
    cases, of which both must have passed."""
    failed = {name for name, result in cases_of(path) if result == "failed"}
    second = list(cases_of(again))
    passed = {name for name, result in second if result == "passed"}
    return failed & passed - {name for name, result in second if result == "failed"}


def of_pytest(path):
    """(passed, failed, skipped)"""
    again = path.with_suffix(".again")
    unsteady = unsteady_of(path, again) if again.exists() else set()
    count = {"passed": 0, "failed": 0, "skipped": 0}
    messages = messages_of(path)
    for name, result in cases_of(path):
        count["passed" if name in unsteady else result] += 1
        if result == "failed" and name not in unsteady:
            print(f"  failed: {name}")
            print(textwrap.indent(messages.get(name, ""), "    "))
    for name in sorted(unsteady):
        print(f"  unsteady, failed once and passed once: {name}")
        print(textwrap.indent(messages.get(name, ""), "    "))
    return count["passed"], count["failed"], count["skipped"]


def of_one_program(row):
    """cmocka marks a skipped test `not ok ... # SKIP`, so its TAP is read here and not by meson."""
    lines = re.findall(r"^(ok|not ok) \d+(.*)$", row.get("stdout", ""), re.MULTILINE)
    skipped = sum(1 for _, rest in lines if "# SKIP" in rest)
    failed = sum(1 for word, rest in lines if word == "not ok" and "# SKIP" not in rest)
    passed = len(lines) - skipped - failed
    if row["result"] == "SKIP":
        return 0, 0, 1
    if row["result"] != "OK":
        print(f"  failed: {row['name']}")
        print(textwrap.indent((row.get("stdout", "") + row.get("stderr", ""))[-MESSAGE_CHARS:], "    "))
        return passed, max(failed, 1), skipped
    return (passed, failed, skipped) if lines else (1, 0, 0)


def of_meson(path):
    rows = [json.loads(line) for line in path.read_text().splitlines() if line]
    return tuple(map(sum, zip((0, 0, 0), *map(of_one_program, rows))))


def of_part(rc_path):
    status = int(rc_path.read_text())
    xml, log = rc_path.with_suffix(".xml"), rc_path.with_suffix(".json")
    count = (0, 0, 0)
    try:
        if xml.exists():
            count = of_pytest(xml)
        elif log.exists():
            count = of_meson(log)
    except (ElementTree.ParseError, ValueError) as e:
        print(f"{rc_path.stem}: its result cannot be read: {e}")
        status = status or 1
    # Not every directory has tests that take minutes.
    is_empty = xml.exists() and status == PYTEST_NO_TESTS and rc_path.stem.endswith("-slow")
    is_again = rc_path.with_suffix(".again").exists()
    if status and not is_empty and not is_again and not count[1]:
        print(f"{rc_path.stem}: no test failed, but its runner ended with {status}")
        count = (count[0], 1, count[2])
    return count


def main():
    directory = pathlib.Path(sys.argv[1])
    total = (0, 0, 0)
    print()
    for rc_path in sorted(directory.glob("*.rc")):
        count = of_part(rc_path)
        print("  {:<24} {:>5} passed {:>5} failed {:>5} skipped".format(rc_path.stem, *count))
        total = tuple(map(sum, zip(total, count)))
    for report in sorted(directory.glob("sanitizer.*")):
        text = report.read_text(errors="replace")
        if not REMARK.sub("", text):
            # Tests kill servers, also while they look for leaks at their end.
            print(f"{report.name}: a process was killed before it had reported anything")
            continue
        print(f"a daemon's sanitizer report:\n{text[:4000]}")
        total = (total[0], total[1] + 1, total[2])
    print()
    print("{} passed, {} failed, {} skipped".format(*total))
    sys.exit(1 if total[1] or not total[0] else 0)


main()
