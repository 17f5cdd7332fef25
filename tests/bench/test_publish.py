# SPDX-License-Identifier: Apache-2.0
"""Pages of stored figures: each of its own run, and nothing else is touched."""
import json
import os
import pathlib
import re

import pytest

import scenarios
from support import cli, host, publish, questions, record, scenario, stored, tables

OLD = {"cpus": 2, "processor": "P", "kernel": "K", "date": "2026-11-27 11:45:29 +0000", "commit": "abc"}
NEW = {**OLD, "date": "2026-11-30 09:00:00 +0000", "commit": "def"}
DRIVERS = "native", "overlayfs", "veneer"
ROWS = {"hpmapper/cow": ("hpmapper/cow/1G", "open+pwrite+close", "us"), "meta/files": ("meta/files/tar x", "time", "s")}


class Changes(scenario.Scenario):
    """The first change

    Some words."""

    name, question = "hpmapper/cow", "How long?"
    headline = (("first write", *ROWS["hpmapper/cow"][:2]),)


class Files(scenario.Scenario):
    """Many files

    Other words."""

    name, question = "meta/files", "How many?"


@pytest.fixture
def top(tmp_path):
    """A tree with the places that publish writes to."""
    (tmp_path / "doc").mkdir()
    marks = [publish.BEGIN.format(key) + publish.END for key in ("", *(q.key + " " for q in questions.QUESTIONS))]
    (tmp_path / "README.md").write_text(marks[0])
    (tmp_path / "doc" / "PERFORMANCE.md").write_text("# Performance\n\n" + "\n\n".join(marks[1:]))
    return tmp_path


def run(path, environment, names, quick=False, times=(1, 3)):
    """The folder of a run of these scenarios: a row each, of which veneer takes times, the others 1 and 3."""
    path.mkdir()
    lines = [{"identity": {"quick": quick}, "environment": environment}, {"versions": {"overlayfs": "V"}}, {"asked": names},
             {"note": "dm-thin is left out: no kernel"}, *({"note": f"{name}: vfs is left out: slow"} for name in names)]
    for name in names:
        row, metric, unit = ROWS[name]
        lines += [{"done": [name, "cell", d, i], "seconds": 1, "samples": [[row, metric, unit, False, [value]]]}
                  for d in DRIVERS for i, value in enumerate(times if d == "veneer" else (1, 3))]
    (path / record.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def put(top, out, every=(Changes(), Files())):
    publish.publish(out, list(every), {}, str(top))


def read(top, name):
    return (top / name).read_text()


def words(text):
    """Without the breaks of its lines."""
    return " ".join(text.split())


def test_only_what_is_between_the_markers_is_replaced():
    mark = publish.BEGIN.format("")
    text = f"a\n{mark}old\n<!-- bench: end -->\nb\n"
    assert publish.between_marks(text, "new \\1") == f"a\n{mark}\nnew \\1\n\n<!-- bench: end -->\nb\n"
    with pytest.raises(publish.NoMark):
        publish.between_marks("a\nb\n", "new")


def test_a_place_has_a_name():
    one, other = publish.BEGIN.format("one "), publish.BEGIN.format("other ")
    text = publish.between_marks(one + publish.END + "\n" + other + publish.END, "new", "other")
    assert text == f"{one}{publish.END}\n{other}\nnew\n\n{publish.END}"


def test_a_page_has_its_question_its_tables_and_the_identity_of_its_run(top, tmp_path):
    put(top, run(tmp_path / "run", OLD, ["hpmapper/cow"]))
    page = read(top, "doc/performance/hpmapper-cow.md")
    assert "# The first change\n" in page and "How long?" in page and "## hpmapper/cow/1G\n" in page
    assert "2026-11-27 11:45:29 +0000, commit abc, full run, 2 rounds, 2 processors (P), kernel K" in words(page)
    assert "| **veneer** | ~2 (1 / 1) |" in page and "- overlayfs: V\n" in page
    assert "- vfs is left out: slow\n" in page and "- dm-thin is left out" in page
    assert max(len(line) for line in page.splitlines() if not line.startswith(("|", "!", "<"))) <= 80


def test_a_run_of_some_scenarios_leaves_the_pages_of_the_others(top, tmp_path):
    put(top, run(tmp_path / "old", OLD, ["hpmapper/cow", "meta/files"]))
    before = {path: path.read_bytes() for path in (top / "doc" / "performance").rglob("meta-files*")}
    assert len(before) == 2
    put(top, run(tmp_path / "new", NEW, ["hpmapper/cow"]))
    assert {path: path.read_bytes() for path in before} == before
    assert "commit def" in words(read(top, "doc/performance/hpmapper-cow.md"))
    assert "commit abc" in words(read(top, "doc/performance/meta-files.md"))


def test_each_row_names_its_run_where_they_are_of_two(top, tmp_path):
    put(top, run(tmp_path / "old", OLD, ["hpmapper/cow", "meta/files"]))
    assert "<sup>" not in read(top, "README.md") and "2026-11-27, commit abc" in words(read(top, "README.md"))
    put(top, run(tmp_path / "new", NEW, ["hpmapper/cow"], quick=True))
    text = read(top, "README.md")
    assert "file of 1 GiB [us]<sup>1</sup> | 2 | 2 |" in text and "files [s]<sup>2</sup> | 2 | 2 |" in text
    assert "- <sup>1</sup> 2026-11-30, commit def" in text and "- <sup>2</sup> 2026-11-27, commit abc" in text
    assert "Rows with 1 are from a quick run" in words(text)
    assert "2026-11-30" in read(top, "doc/performance/summary.md")


def test_the_summary_names_scenarios_without_figures(top, tmp_path):
    put(top, run(tmp_path / "run", OLD, ["hpmapper/cow"]))
    text = read(top, "doc/performance/summary.md")
    assert "Without published figures: `meta/files`." in text and "[first write](./hpmapper-cow.md) [us] | 2 | 2 |" in text


@pytest.mark.parametrize("key", ["commit", "date", "kernel", "cpus"])
def test_a_run_without_an_identity_is_not_published(top, tmp_path, key):
    out = run(tmp_path / "run", {**OLD, key: ""}, ["hpmapper/cow"])
    with pytest.raises(stored.NoIdentity, match=key):
        put(top, out)
    assert list((top / "doc" / "performance").iterdir()) == [] and "2026" not in read(top, "README.md")


def test_the_files_of_a_scenario_that_is_no_more_go(top, tmp_path):
    out = run(tmp_path / "run", OLD, ["hpmapper/cow", "meta/files"])
    put(top, out)
    pages = top / "doc" / "performance"
    (pages / "old-plot.svg").write_text("")
    put(top, None, [Changes()])
    left = {path.name for path in pages.rglob("*") if path.is_file()}
    assert left == {"hpmapper-cow.md", "hpmapper-cow.json", "summary.md", "verdicts.md"}
    assert "tar x" not in read(top, "README.md")


def test_what_is_stored_suffices_for_the_texts(top, tmp_path):
    put(top, run(tmp_path / "run", OLD, ["hpmapper/cow", "meta/files"]))
    before = {path: path.read_bytes() for path in top.rglob("*.*") if path.is_file()}
    put(top, None)
    assert {path: path.read_bytes() for path in top.rglob("*.*") if path.is_file()} == before


def test_notes_behind_the_markers_stay(top, tmp_path):
    put(top, run(tmp_path / "old", OLD, ["hpmapper/cow"]))
    path = top / "doc" / "performance" / "hpmapper-cow.md"
    path.write_text(path.read_text() + "\n## Notes\n\nMine.\n")
    put(top, run(tmp_path / "new", NEW, ["hpmapper/cow"]))
    assert path.read_text().endswith("<!-- bench: end -->\n\n## Notes\n\nMine.\n") and "commit def" in words(path.read_text())


def test_verdicts_say_what_is_worse_than_in_the_run_before(top, tmp_path):
    put(top, run(tmp_path / "old", OLD, ["hpmapper/cow"], times=(1, 3)))
    before = stored.load(str(top / "doc/performance/data"))["hpmapper/cow"]
    for row in before["rows"]:
        row["noisy"] = False
    stored.write(str(top / "doc/performance/data"), before)
    put(top, run(tmp_path / "new", NEW, ["hpmapper/cow"], times=(9, 11)))
    text = read(top, "doc/performance/verdicts.md")
    assert "[hpmapper/cow/1G, open+pwrite+close](hpmapper-cow.md) | 1 | 6.33 | 2026-11-27, abc |" in text
    assert "[hpmapper/cow/1G, open+pwrite+close](hpmapper-cow.md) | 6.33 | overlayfs |" in text


def test_tables_of_stored_figures_are_those_of_the_run(tmp_path):
    found = record.load(run(tmp_path / "run", OLD, ["hpmapper/cow"], times=(1.23456, 3)))
    seen = found.by_scenario["hpmapper/cow"]
    columns = [("m", *ROWS["hpmapper/cow"][:2])]
    again = stored.Stored([stored.of_run("hpmapper/cow", found, [])])
    assert tables.table(again, "t", columns) == tables.table(seen, "t", columns)
    assert again.interval(*ROWS["hpmapper/cow"][:2], "veneer") == (1.23456, 3)


def test_readme_has_few_rows_and_each_is_a_headline():
    headlines = {row[1:] for s in scenarios.EVERY for row in s.headline}
    assert 8 <= len(questions.DECIDING) <= 10
    assert {row[1:] for row in questions.DECIDING} <= headlines


def test_the_rows_of_a_question_are_some_scenarios():
    names = [s.name for s in scenarios.EVERY]
    plots = {name for s in scenarios.EVERY for name, _ in s.plots(stored.Stored([]))}
    for q in questions.QUESTIONS:
        assert 2 <= len(q.rows) <= 6 and q.caption and (not q.picture or q.picture in plots)
        assert q.key not in plots | {stored.file_of(name) for name in names}
        assert all(any(row == n or row.startswith(n + "/") for n in names) for _, row, _ in q.rows)


PLACES = [("README.md", ""), *(("doc/PERFORMANCE.md", q.key) for q in questions.QUESTIONS)]


@pytest.mark.parametrize("name,key", PLACES)
def test_the_texts_have_a_place_for_the_tables(name, key):
    publish.between_marks((pathlib.Path(host.TOP) / name).read_text(), "", key)


@pytest.fixture(scope="module")
def published():
    return stored.load(os.path.join(host.TOP, publish.PAGES, "data"))


def test_each_published_page_is_that_of_its_figures(published):
    """Or someone has written by hand where the bench does, or changed a scenario and not called `bench/run --publish`."""
    pages = pathlib.Path(host.TOP) / publish.PAGES
    for s in scenarios.EVERY:
        if s.name in published:
            text = (pages / f"{stored.file_of(s.name)}.md").read_text()
            assert publish.between_marks(text, publish.wrapped(publish.page(s, published[s.name]))) == text, s.name
    readme = (pathlib.Path(host.TOP) / "README.md").read_text()
    assert publish.between_marks(readme, publish.wrapped(publish.readme_part(published, cli.PICTURES))) == readme


def test_every_published_file_belongs_to_a_scenario_and_has_an_identity(published):
    pages = pathlib.Path(host.TOP) / publish.PAGES
    there = {stored.file_of(s.name) for s in scenarios.EVERY if s.name in published}
    assert {path.stem for path in pages.glob("*.md")} == there | {"summary", "verdicts"}
    for stem in there:
        assert re.search(r"The run: \d{4}-\d\d-\d\d .*, commit [0-9a-f]{7}", words((pages / f"{stem}.md").read_text())), stem
    drawn = {name for data in published.values() for name in data["pictures"]}
    assert {path.stem for path in pages.glob("*.svg")} == drawn | {q.key for q in questions.QUESTIONS if not q.picture}
