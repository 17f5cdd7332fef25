# SPDX-License-Identifier: Apache-2.0
"""The figures in the project's texts, between markers: nothing there is written by hand.

A run's figures go to doc/performance/data, a file a scenario. All else is made of these files: a page a scenario with its tables
and plots, doc/performance/summary.md, verdicts.md, and the tables of doc/PERFORMANCE.md and README.md. Pages may be of different
runs; each says of which."""

import os
import re
import textwrap

from . import host, measures, plots, questions, record, report, stored, tables

BEGIN, END = "<!-- bench: begin {}(from a run of bench/run, never by hand) -->\n", "<!-- bench: end -->"
PAGES = os.path.join("doc", "performance")
TOLD = ("Each number is the median over the rounds of each round's median. In brackets it is relative to the plain directory / to the "
        "best peer (neither it nor veneer), taken in each round, median. Ratios are of times: below 1 is faster, also for rates. A "
        "`~`, in a plot a hollow point, marks rounds that differ by more than a quarter. More: "
        "[How a number comes about](../../bench/README.md#how-a-number-comes-about).")
PEERS = ("fuse-overlayfs is version 1, fuse-overlayfs-2 its successor; overlayfs is the kernel's. A rate ([MiB/s], [op/s], [tps]) "
         "is better when higher, all else when lower. Medians, interleaved")
QUICK = ("**{} a quick run**: files, trees, databases and numbers of views are a tenth to a quarter of what the lines name. For a "
         "look, not for a claim.")
UNKNOWN = "The spread of this run's rounds was not kept: its plots have no whiskers."


class NoMark(Exception):
    """The text has no place for the tables."""


def between_marks(text, new, name=""):
    """The text with what is between its markers of that name replaced."""
    begin = BEGIN.format(name and name + " ")
    mark = re.compile(re.escape(begin) + r".*?" + re.escape(END), re.S)
    if not mark.search(text):
        raise NoMark(f"the markers of the bench are missing: {begin.strip()}")
    return mark.sub(lambda m: begin + "\n" + new.strip() + "\n\n" + END, text)


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


def _runs(some):
    """A number for each run, the latest first."""
    keys = sorted({stored.run_key(data) for data in some}, reverse=True)
    return {key: i for i, key in enumerate(keys, 1)}


def run_named(run):
    """The run in a few words; its page has the others."""
    return f"{run['date'][:10]}, commit {run['commit']}" + (", **a quick run**" if run["quick"] else "")


def rows_table(by_name, rows, columns, link="", named=stored.run_text):
    """A line for each row that was measured, and the runs they are of. link: where the scenarios' pages are, to link each row."""
    there = [(label, row, metric, data) for label, row, metric in rows for data in by_name.values()
             if (row, metric) in stored.Stored([data]).units]
    runs = _runs(data for *_, data in there)
    heads = [f"**{d}**" if tables.is_ours(d) else d for d in columns]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(columns)]
    for label, row, metric, data in there:
        seen = stored.Stored([data])
        unit = seen.units[row, metric]
        cells = [tables.number(seen.value(row, metric, d), unit) for d in columns]
        note = f"<sup>{runs[stored.run_key(data)]}</sup>" if len(runs) > 1 else ""
        name = f"[{label}]({link}{stored.file_of(data['scenario'])}.md)" if link else label
        lines.append(f"| {name} [{unit}]{note} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n", _runs_text([data for *_, data in there], runs, named)


def _runs_text(some, runs, named):
    """Names one run in the sentence that goes on, several in a list."""
    by_number = {runs[stored.run_key(data)]: data["run"] for data in some}
    if not by_number:
        return "."
    if len(by_number) == 1:
        (run,) = by_number.values()
        return f", {named(run)}." + ("\n\n" + QUICK.format("From") if run["quick"] else "")
    quick = [str(i) for i, run in sorted(by_number.items()) if run["quick"]]
    text = ". The rows are of several runs:\n\n" + "".join(f"- <sup>{i}</sup> {named(run)}\n" for i, run in sorted(by_number.items()))
    return text + ("\n" + QUICK.format(f"Rows with {', '.join(quick)} are from") if quick else "")


def summary(by_name, scenarios):
    """doc/performance/summary.md: the headlines of all scenarios, and all pages."""
    rows = [row for s in scenarios for row in s.headline]
    table, runs = rows_table(by_name, rows, questions.ALL_COLUMNS, "./")
    text = f"# All scenarios of the bench\n\n## Headlines\n\n{table}\n{PEERS}{runs}\n\n## Pages\n\n"
    text += "| scenario | page | run | rounds |\n| --- | --- | --- | ---: |\n"
    for s in scenarios:
        data = by_name.get(s.name)
        if data:
            run = data["run"]
            text += (f"| `{s.name}` | [{s.title}]({stored.file_of(s.name)}.md) | {run['date'][:10]}, {run['commit']}"
                     f"{', quick' if run['quick'] else ''} | {run['rounds']} |\n")
    left = [f"`{s.name}`" for s in scenarios if s.name not in by_name]
    return text + (f"\nWithout published figures: {', '.join(left)}.\n" if left else "")


def verdicts(by_name, scenarios):
    """doc/performance/verdicts.md: what the project promises, for its maintainers."""
    there = [(s, by_name[s.name]) for s in scenarios if s.name in by_name]
    runs = _runs(data for _, data in there)
    text = ("# Verdicts\n\nFor maintainers: each promise of the project, as the published run of its scenario has it. The words are "
            "explained in [bench/README.md](../../bench/README.md#the-promises).\n\n")
    text += "- " + "\n- ".join(f"run {runs[key]}: {stored.run_text(dict(key))}" for key in runs) + "\n"
    failed = [(s, data, v) for s, data in there for v in data["verdicts"] if v[2] in ("FAIL", "no data")]
    text += f"\n## Not met\n\n{len(failed)} of {sum(len(d['verdicts']) for _, d in there)}.\n\n"
    if failed:
        text += "| measure | seen | verdict | run |\n| --- | --- | --- | ---: |\n"
        text += "".join(f"| [{v[0]}]({stored.file_of(s.name)}.md) | {v[1]} | {v[2]} | {runs[stored.run_key(data)]} |\n"
                        for s, data, v in failed)
    text += _worse(there) + _behind(there)
    for s, data in [(s, data) for s, data in there if data["verdicts"]]:
        text += f"\n## {s.name}\n\nRun {runs[stored.run_key(data)]}.\n\n| measure | seen | verdict |\n| --- | --- | --- |\n"
        text += "".join(f"| {v[0]} | {v[1]} | {v[2]} |\n" for v in data["verdicts"])
    return text


def _worse(there):
    text = "\n## Worse than in the run before\n\nTimes of veneer relative to the best peer's that grew by more than a tenth, in rounds that agree.\n\n"
    rows = [(s, data["before"], one) for s, data in there if "before" in data for one in data["before"]["worse"]]
    if not rows:
        return text + "None" + ("" if any("before" in data for _, data in there) else ": no scenario has been published twice since") + ".\n"
    lines = [f"| [{one[0]}, {one[1]}]({stored.file_of(s.name)}.md) | {one[2]:.3g} | {one[3]:.3g} | "
             f"{before['run']['date'][:10]}, {before['run']['commit']} |" for s, before, one in rows]
    return text + "\n".join(["| row | then | now | then was |", "| --- | ---: | ---: | --- |", *lines]) + "\n"


def _behind(there):
    """Where a peer is ahead, though nothing may be promised there."""
    rows = [(s, one) for s, data in there for one in stored.behind(data, measures.NOISE)]
    lines = [f"| [{row['row']}, {row['metric']}]({stored.file_of(s.name)}.md) | {ratio:.3g} | {peer} |" for s, (row, peer, ratio) in rows]
    if not lines:
        return ""
    return ("\n## Behind the best peer\n\nTimes of veneer relative to that peer's; above 1.05 only.\n\n" +
            "\n".join(["| row | ratio | best peer |", "| --- | ---: | --- |", *lines]) + "\n")


def _identity(run):
    facts = [f"{run['date']}, commit {run['commit']}", "quick run, for a look and not for a claim" if run["quick"] else "full run",
             f"{run['rounds']} rounds", f"{run['cpus']} processors ({run['processor']})", f"kernel {run['kernel']}"]
    facts += [f"{run['memory_mib']} MiB of memory"] if "memory_mib" in run else []
    facts += [f"Python {run['python']}"] if "python" in run else []
    facts += [f"load at the start {run['load_at_start']}"] if "load_at_start" in run else []
    return "The run: " + ", ".join(facts) + "."


def page(scenario, data):
    """The generated part of a scenario's page."""
    stored.check(data)
    seen = stored.Stored([data])
    text = f"# {scenario.title}\n\n`{scenario.name}`. {scenario.question}\n\n{scenario.origin}\n\n{_identity(data['run'])}\n\n"
    text += "".join(f"![{name}]({name}.svg)\n\n" for name in data["pictures"])
    if data["pictures"] and not any("low" in row for row in data["rows"]):
        text += UNKNOWN + "\n\n"
    text += re.sub(r"(?m)^### ", "## ", scenario.tables(seen)) + TOLD + "\n\n"
    if data["verdicts"]:
        text += "What the project promises of it: [verdicts](verdicts.md#" + re.sub(r"[^\w-]", "", scenario.name) + ").\n\n"
    versions = "".join(f"- {d}: {v}\n" for d, v in data["drivers"].items() if v)
    text += f"## Versions and options\n\n{versions}\n" if versions else ""
    notes = "".join(f"- {note}\n" for note in data["notes"])
    return text + (f"## Left out, and notes of the run\n\n{notes}" if notes else "")


def answer(by_name, question, has_picture):
    """What stands in doc/PERFORMANCE.md between the markers of a question."""
    table, runs = rows_table(by_name, question.rows, questions.ALL_COLUMNS, "performance/", run_named)
    name = question.picture or question.key
    picture = f"![{question.caption}](performance/{name}.svg)\n\n" if has_picture else ""
    return f"{picture}{table}\nMedians{runs}\n"


def readme_part(by_name, pictures):
    """pictures: file name without its end, to its caption."""
    table, runs = rows_table(by_name, questions.DECIDING, questions.COLUMNS)
    text = f"{table}\n{PEERS}{runs}\n\nBy question, with all tables: [doc/PERFORMANCE.md](doc/PERFORMANCE.md).\n\n"
    return text + "\n\n".join(f"![{name}]({PAGES}/{name}.svg)\n\n{caption}" for name, caption in pictures.items()) + "\n"


def _write(path, new, name=""):
    """Between the markers; a page that is not there begins with them, and has room for notes behind them."""
    text = BEGIN.format("") + END + "\n"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            text = f.read()
    text = between_marks(text, wrapped(new), name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


class Place:
    """The texts below a directory that holds README.md and doc/."""

    def __init__(self, top, scenarios):
        self.top, self.scenarios = top, scenarios
        self.pages = os.path.join(top, PAGES)
        self.data = os.path.join(self.pages, "data")
        os.makedirs(self.pages, exist_ok=True)

    def picture(self, name):
        return os.path.join(self.pages, name + ".svg")

    def take(self, out):
        """The scenarios of a run, whose figures are stored and their pages written."""
        found = record.load(out)
        taken = [s for s in self.scenarios if s.name in found.by_scenario]
        kept = [stored.of_run(s.name, found, report.verdicts(s, found.by_scenario[s.name], found)) for s in taken]
        for data in kept:
            # Before anything is written: all of them are of one run, which has an identity or has none.
            stored.check(data)
        before = stored.load(self.data)
        for s, data in zip(taken, kept):
            old = before.get(s.name)
            if old and data["run"]["quick"] and not old["run"]["quick"]:
                host.note(f"{s.name}: figures of a quick run replace those of a full one")
            if old and stored.run_key(old) != stored.run_key(data) and old["run"]["quick"] == data["run"]["quick"]:
                stored.compare(data, old)
            elif old and stored.run_key(old) == stored.run_key(data) and "before" in old:
                data["before"] = old["before"]
            self.write_page(s, data)

    def write_page(self, scenario, data):
        """Its plots, its stored figures, its page. A plot that these figures do not suffice for stays, if it is of this run."""
        seen, drawn = stored.Stored([data]), []
        for name, draw in scenario.plots(seen):
            if draw(self.picture(name)) or (name in data["pictures"] and os.path.exists(self.picture(name))):
                drawn.append(name)
        data["pictures"] = drawn
        stored.write(self.data, data)
        _write(os.path.join(self.pages, stored.file_of(scenario.name) + ".md"), page(scenario, data))

    def rewrite_pages(self):
        """Every page, of what is stored."""
        by_name = stored.load(self.data)
        for s in self.scenarios:
            if s.name in by_name:
                self.write_page(s, by_name[s.name])

    def write_texts(self, pictures):
        """All that is made of several scenarios; the files of a scenario that is no more go."""
        self._remove_stale()
        by_name = stored.load(self.data)
        _write(os.path.join(self.pages, "summary.md"), summary(by_name, self.scenarios))
        _write(os.path.join(self.pages, "verdicts.md"), verdicts(by_name, self.scenarios))
        for question in questions.QUESTIONS:
            self._write_question(by_name, question)
        _write(os.path.join(self.top, "README.md"), readme_part(by_name, pictures))

    def _write_question(self, by_name, question):
        name = question.picture or question.key
        if not question.picture:
            seen = stored.Stored(by_name.values()).only(questions.ALL_COLUMNS)
            panels = [(label.replace("`", ""), row, metric) for label, row, metric in question.rows]
            is_there = any(key[1:] in seen.units for key in panels)
            if not plots.bars(self.picture(name), seen, panels) and not is_there and os.path.exists(self.picture(name)):
                os.remove(self.picture(name))
        new = answer(by_name, question, os.path.exists(self.picture(name)))
        _write(os.path.join(self.top, "doc", "PERFORMANCE.md"), new, question.key)

    def _remove_stale(self):
        names = {s.name for s in self.scenarios}
        by_name = stored.load(self.data)
        keep = {q.key for q in questions.QUESTIONS} | {"summary", "verdicts"}
        for name, data in by_name.items():
            if name in names:
                keep |= {stored.file_of(name), *data["pictures"]}
        for folder, ends in ((self.pages, (".md", ".svg")), (self.data, (".json",))):
            for file in os.listdir(folder):
                stem, end = os.path.splitext(file)
                if end in ends and stem not in keep:
                    os.remove(os.path.join(folder, file))


def publish(out, scenarios, pictures, top=host.TOP):
    """README.md, doc/PERFORMANCE.md and doc/performance with the run in the folder out; without one, of what is stored."""
    place = Place(top, scenarios)
    if out:
        place.take(out)
    else:
        place.rewrite_pages()
    place.write_texts(pictures)
