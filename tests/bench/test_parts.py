# SPDX-License-Identifier: Apache-2.0
"""The parts of the bench that numbers go through."""
import collections
import json
import os

import pytest

import scenarios
from support import (host, measures, podman, publish, record, runner, stats, tables, workspace,
                     world)
from support.results import Results


def results(rows, unit="us"):
    """rows: driver to its values by round, of one metric."""
    seen = Results()
    for driver, values in rows.items():
        for i, value in enumerate(values):
            seen.add("s", "m", driver, i, [value], unit)
    return seen


def test_every_driver_goes_first_equally_often():
    steps = list(runner.schedule(4, ["a"], ["x", "y"]))
    first = collections.Counter(steps[i][2] for i in range(0, len(steps), 2))
    assert first == {"x": 2, "y": 2}
    assert len(set(steps)) == 4 * 1 * 2


def test_a_percentile_is_a_value_that_was_seen():
    assert stats.percentile([1, 2, 3, 100], 0.99) == 100
    assert stats.percentile([5], 0.5) == 5


def test_a_ratio_is_taken_in_each_round():
    assert stats.round_ratio({0: 2, 1: 20}, {0: 1, 1: 10}) == 2
    assert stats.round_ratio({0: 2}, {1: 1}) is None


def test_a_ratio_of_rates_is_one_of_times():
    seen = results({"veneer": [200], "overlayfs": [100]}, "MiB/s")
    assert seen.ratio("s", "m", "veneer", "overlayfs") == 0.5


def test_the_best_of_rates_is_the_highest():
    assert results({"a": [1], "b": [2]}, "op/s").best("s", "m", ["a", "b", "c"]) == "b"
    assert results({"a": [1], "b": [2]}, "us").best("s", "m", ["a", "b", "c"]) == "a"
    assert results({"a": [1]}).best("s", "m", ["c"]) is None


def test_rounds_that_differ_are_marked_and_kept():
    seen = results({"native": [1, 1, 1], "overlayfs": [1, 2, 3]})
    text = tables.table(seen, "t", [("m", "s", "m")])
    assert "| overlayfs | ~2 " in text and "| native | 1 " in text
    assert [r["noisy"] for r in seen.rows()] == [False, True]


def test_ratios_are_to_the_directory_and_to_the_best_peer_but_ours():
    seen = results({"native": [10], "overlayfs": [40], "fuse-overlayfs": [80],
                    "veneer": [20], "veneer-cached": [5]})
    text = tables.table(seen, "t", [("m", "s", "m")])
    assert "| **veneer** | 20 (2 / 0.5) |" in text


def test_rows_have_what_readers_of_the_json_rely_on():
    row = results({"veneer": [1, 2, 3]}).rows()[0]
    assert (row["scenario"], row["metric"], row["driver"]) == ("s", "m", "veneer")
    assert (row["value"], row["unit"], row["repeats"]) == (2, "us", 3)
    assert row["spread"] == 2


def test_a_promise_without_data_is_not_met():
    found = measures.check_all([measures.AtMost("s", "m", "overlayfs", 1)], Results())
    assert measures.failed(found)


@pytest.mark.parametrize("mine,is_met", [(9, True), (11, False)])
def test_a_promise_is_about_the_best_of_its_references(mine, is_met):
    seen = results({"veneer": [mine], "a": [10], "b": [20]})
    found = measures.check_all([measures.AtMostBest("s", "m", ("a", "b"), 1)], seen)
    assert measures.failed(found) != is_met


def test_a_record_goes_on_after_a_line_that_was_cut_short(tmp_path):
    log = record.Record(str(tmp_path), {"of": 1})
    log.add(("s", "c", "veneer", 0), 1.0, [["s", "m", "us", False, [7]]])
    log.add(("s", "c", "veneer", 1), 1.0, [["s", "m", "us", False, [9]]])
    log.close()
    path = tmp_path / record.NAME
    path.write_text(path.read_text()[:-10])
    again = record.Record(str(tmp_path), {"of": 1})
    assert again.done == {("s", "c", "veneer", 0)}
    again.add(("s", "c", "veneer", 1), 1.0, [["s", "m", "us", False, [11]]])
    again.close()
    assert record.load(str(tmp_path)).by_scenario["s"].value("s", "m", "veneer") == 9


def test_a_record_does_not_mix_two_builds(tmp_path):
    record.Record(str(tmp_path), {"of": 1}).close()
    before = (tmp_path / record.NAME).read_bytes()
    with pytest.raises(record.OtherRun, match="--out"):
        record.Record(str(tmp_path), {"of": 2})
    assert (tmp_path / record.NAME).read_bytes() == before


def test_only_what_is_between_the_markers_is_replaced():
    mark = "<!-- bench: begin (from a run of bench/run, never by hand) -->\n"
    text = f"a\n{mark}old\n<!-- bench: end -->\nb\n"
    assert publish.between_marks(text, "new \\1") == f"a\n{mark}\nnew \\1\n\n<!-- bench: end -->\nb\n"
    with pytest.raises(publish.NoMark):
        publish.between_marks("a\nb\n", "new")


@pytest.mark.parametrize("name", ["README.md", "doc/PERFORMANCE.md"])
def test_the_texts_have_a_place_for_the_tables(name):
    with open(os.path.join(host.TOP, name), encoding="utf-8") as f:
        assert publish.MARK.search(f.read())


@pytest.mark.parametrize("s", scenarios.EVERY, ids=lambda s: s.name)
def test_a_scenario_says_what_it_is(s):
    assert "/" in s.name and s.title and len(s.origin) > 100
    assert [t.name for t in scenarios.EVERY].count(s.name) == 1
    for quick in (False, True):
        cells = [str(c) for c in s.cells(quick)]
        assert cells and len(set(cells)) == len(cells)
    assert s.rounds >= 5 and s.quick_rounds >= 2
    for m in s.measures():
        assert all(row.startswith(s.name) for row in m.scenarios())
    assert all(row.startswith(s.name) for _, row, _ in s.headline)


def _who():
    return os.getuid(), os.readlink("/proc/self/ns/user")


def test_a_rootless_world_has_namespaces_of_its_own(needs_root):
    where = world.Rootless()
    try:
        uid, ns = where.call(_who)
        assert uid == 0 and ns != os.readlink("/proc/self/ns/user")
        assert host.run(*where.prefix(), "readlink", "/proc/self/ns/user").strip() == ns
        with pytest.raises(host.HostError, match="No such file"):
            where.call(os.stat, "/none")
    finally:
        where.close()


def test_a_command_that_fails_is_an_error_with_its_words():
    with pytest.raises(host.HostError, match="cannot access"):
        host.run("ls", "/none")


def test_a_report_survives_json(tmp_path):
    log = record.Record(str(tmp_path), {"of": 1})
    log.note("something was left out")
    log.note("something was left out")
    log.close()
    lines = [json.loads(line) for line in (tmp_path / record.NAME).read_text().splitlines()]
    assert [line for line in lines if "note" in line] == [{"note": "something was left out"}]


def test_a_workspace_goes_though_a_file_of_it_is_open(tmp_path):
    with workspace.Workspace(str(tmp_path / "w"), on_loop=False) as work:
        fd = os.open(work.scratch("host"), os.O_RDONLY)
    with pytest.raises(OSError):
        os.fstat(fd)
    assert not (tmp_path / "w").exists()


def test_podman_is_given_a_runroot_of_at_most_50_characters(tmp_path):
    root = tmp_path / ("long-" * 20)
    with workspace.Workspace(str(root), on_loop=False) as work:
        store = podman.Store.__new__(podman.Store)
        store.base, store.runroot = work.scratch("host"), work.short_scratch()
        env = store._configure("/usr/bin/program")
        with open(env["CONTAINERS_STORAGE_CONF"], encoding="ascii") as f:
            line = next(line for line in f if line.startswith("runroot"))
        assert len(line.split('"')[1]) <= 50 and os.path.isdir(store.runroot)
    assert not root.exists() and not os.path.exists(store.runroot)
