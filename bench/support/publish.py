# SPDX-License-Identifier: Apache-2.0
"""A report's numbers in the project's texts, between markers: nothing there is written by hand."""

import os
import re
import shutil
import textwrap

from . import host, record, tables

MARK = re.compile(r"(<!-- bench: begin \(from a run of bench/run, never by hand\) -->\n)"
                  r".*?(<!-- bench: end -->)", re.S)
# README and the tables name a driver alike.
COLUMNS = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
ALL_COLUMNS = ("native", *COLUMNS)
PICTURES = os.path.join("doc", "performance")
# The rows of README: label, "scenario", metric. Each is a headline of its scenario.
DECIDING = (
    ("first write of 4 KiB, file of 4 KiB", "hpmapper/cow/4K", "open+pwrite+close"),
    ("first write of 4 KiB, file of 1 GiB", "hpmapper/cow/1G", "open+pwrite+close"),
    ("64 containers: page cache", "hpmapper/containers/programs", "page cache"),
    ("64 containers, each changes a file of 8 MiB: page cache",
     "hpmapper/containers/programs that write", "page cache"),
    ("`tar x` of 20,000 files", "meta/files/tar x", "time"),
    ("read of a warm lower file", "meta/reads/sequential", "warm"),
    ("pgbench, 1 GB in a lower layer", "real/pgbench", "all transactions"),
    ("oltp of filebench, fast disk", "hpmapper/filebench/oltp", "rate"),
    ("`podman build` of ten steps", "real/build", "time"),
    ("pause when the server is killed, 16 mounts", "own/death/16 mounts", "pause"),
)


class NoMark(Exception):
    """The text has no place for the tables."""


def between_marks(text, new):
    """The text with what is between its markers replaced."""
    if not MARK.search(text):
        raise NoMark("the markers of the bench are missing")
    return MARK.sub(lambda m: m.group(1) + "\n" + new.strip() + "\n\n" + m.group(2), text)


def _rows_table(found, rows, columns):
    """A line for each row that was measured."""
    heads = [f"**{d}**" if tables.is_ours(d) else d for d in columns]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(columns)]
    for label, row, metric in rows:
        for seen in found.by_scenario.values():
            unit = seen.units.get((row, metric))
            if unit:
                cells = [tables.number(seen.value(row, metric, d), unit) for d in columns]
                lines.append(f"| {label} [{unit}] | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary(found, scenarios):
    """The headlines of all scenarios, as the first table of doc/PERFORMANCE.md."""
    rows = [row for s in scenarios if s.name in found.by_scenario for row in s.headline]
    return "## In short\n\n" + _rows_table(found, rows, ALL_COLUMNS)


def readme_part(found, pictures):
    """pictures: file name without its end, to its caption."""
    env = found.environment
    text = _rows_table(found, DECIDING, COLUMNS)
    if found.identity["quick"]:
        text += ("\n**From a quick run**: files, trees, databases and numbers of views are a tenth to a "
                 "quarter of what the lines name. For a look, not for a claim.\n")
    text += ("\nfuse-overlayfs is version 1, fuse-overlayfs-2 its successor; overlayfs is the kernel's. "
             "A rate ([MiB/s], [op/s], [tps]) is better when higher, all else when lower. "
             f"Medians, interleaved, {env['cpus']} processors ({env['processor']}), "
             f"kernel {env['kernel']}, {env['date'][:10]}, commit {env['commit']}. "
             "All tables: [doc/PERFORMANCE.md](doc/PERFORMANCE.md#in-short).\n\n")
    return text + "\n\n".join(f"![{name}]({PICTURES}/{name}.svg)\n\n{caption}"
                              for name, caption in pictures.items()) + "\n"


def _wrapped(block):
    """One block of Markdown at 80 columns; tables, headings, pictures and comments stay as they are."""
    if block.startswith(("|", "#", "!", "<")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(textwrap.fill(item, 80, subsequent_indent="  " if item.startswith("- ") else "",
                                   break_long_words=False, break_on_hyphens=False) for item in items)


def wrapped(text):
    """The text with each paragraph and list at 80 columns, as all Markdown of the project."""
    return "\n\n".join(_wrapped(block) for block in re.split(r"\n{2,}", text.strip()))


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
    _rewrite(os.path.join(host.TOP, "doc", "PERFORMANCE.md"), summary(found, scenarios) + "\n## The run\n\n" + body)
    _rewrite(os.path.join(host.TOP, "README.md"), readme_part(found, pictures))
