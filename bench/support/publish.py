# SPDX-License-Identifier: Apache-2.0
"""A report's numbers in the project's texts, between markers: nothing there is written by hand."""

import os
import re
import shutil
import textwrap

from . import host, record, tables

MARK = re.compile(r"(<!-- bench: begin \(from a run of bench/run, never by hand\) -->\n)"
                  r".*?(<!-- bench: end -->)", re.S)
# What the README has room for: driver and the head of its column.
COLUMNS = {"native": "in place", "overlayfs": "kernel overlayfs", "veneer": "**veneer**",
           "fuse-overlayfs": "fuse-overlayfs 1", "fuse-overlayfs-2": "fuse-overlayfs 2"}
PICTURES = os.path.join("doc", "performance")


class NoMark(Exception):
    """The text has no place for the tables."""


def between_marks(text, new):
    """The text with what is between its markers replaced."""
    if not MARK.search(text):
        raise NoMark("the markers of the bench are missing")
    return MARK.sub(lambda m: m.group(1) + "\n" + new.strip() + "\n\n" + m.group(2), text)


def headlines(found, scenarios):
    """The rows that the scenarios name for the README, a line each."""
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |",
             "| --- |" + " ---: |" * len(COLUMNS)]
    for s in scenarios:
        seen = found.by_scenario.get(s.name)
        for label, row, metric in s.headline if seen else ():
            unit = seen.units.get((row, metric))
            if unit:
                cells = [tables.number(seen.value(row, metric, d), unit) for d in COLUMNS]
                lines.append(f"| {label} [{unit}] | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def readme_part(found, scenarios, pictures):
    env = found.environment
    text = headlines(found, scenarios)
    if found.identity["quick"]:
        text += ("\n**From a quick run**: files, trees, databases and numbers of views are a tenth to a "
                 "quarter of what the lines name. For a look, not for a claim.\n")
    text += (f"\nMedians, drivers interleaved, on {env['cpus']} processors ({env['processor']}), "
             f"kernel {env['kernel']}, {env['date'][:10]}, commit {env['commit']}. A rate "
             "([MiB/s], [op/s], [tps]) is better when higher, all else when lower. All tables, "
             "their spread and what they mean: [doc/PERFORMANCE.md](doc/PERFORMANCE.md).\n\n")
    return text + "".join(f"![{p}]({PICTURES}/{p}.svg)\n" for p in pictures)


def _wrapped(block):
    """One block of Markdown at 80 columns; tables, headings, pictures and comments stay as they are."""
    if block.startswith(("|", "#", "!", "<")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(textwrap.fill(item, 80, subsequent_indent="  " if item.startswith("- ") else "",
                                   break_long_words=False, break_on_hyphens=False) for item in items)


def wrapped(text):
    """The text with each paragraph and list at 80 columns, as all Markdown of the project."""
    return "\n\n".join(_wrapped(block) for block in text.strip().split("\n\n"))


def _rewrite(path, new):
    with open(path, encoding="utf-8") as f:
        text = between_marks(f.read(), wrapped(new))
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def publish(out, scenarios, pictures):
    """README.md and doc/PERFORMANCE.md, with the plots, from the report in the folder out."""
    found = record.load(out)
    with open(os.path.join(out, "report.md"), encoding="utf-8") as f:
        body = f.read().split("\n", 2)[2]
    target = os.path.join(host.TOP, PICTURES)
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(out)):
        if name.endswith(".svg"):
            shutil.copy(os.path.join(out, name), target)
    body = re.sub(r"!\[([^]]*)\]\(", r"![\1](performance/", body)
    _rewrite(os.path.join(host.TOP, "doc", "PERFORMANCE.md"), body)
    _rewrite(os.path.join(host.TOP, "README.md"), readme_part(found, scenarios, pictures))
