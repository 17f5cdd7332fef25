# SPDX-License-Identifier: Apache-2.0
"""The parts of the bench that numbers go through."""
import collections
import json
import os

import pytest

import scenarios
from support import (drivers, host, measures, podman, record, report, runner, scenario,
                     stats, tables, workspace, world)
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


def test_an_aim_is_reported_however_far_it_is():
    seen = results({"veneer": [11]})
    for limit in (10, 12):
        found = measures.check_all([measures.Below("s", "m", limit, must=False)], seen)
        assert [v.mark for v in found] == [measures.INFO]
    assert measures.failed(measures.check_all([measures.Below("s", "m", 10)], seen))


@pytest.mark.parametrize("d", drivers.every_driver(), ids=lambda d: d.name)
def test_every_driver_is_run_by_some_scenario(d):
    assert any(s.takes(d, False) and any(s.has(cell, d.name) for cell in s.cells(False))
               for s in scenarios.EVERY)


# What veneer is not the one to be compared in, or in nothing that takes time.
NOT_COMPARED = {"hpmapper/lookup", "hpmapper/keeper", "own/share"}


@pytest.mark.parametrize("s", [s for s in scenarios.EVERY if s.name not in NOT_COMPARED],
                         ids=lambda s: s.name)
def test_a_peer_that_is_run_is_judged(s):
    run = [d.name for d in drivers.every_driver() if s.takes(d, False)]
    judged = {name for m in s.measures() for name in m.drivers(measures.SUBJECT)}
    assert {"overlayfs", "fuse-overlayfs", "fuse-overlayfs-2"}.intersection(run) <= judged


class Promising(scenario.Scenario):
    """One that promises something

    Of two sizes, beside two peers."""

    name, quick_drivers = "a/b", ("veneer", "peer")

    def cells(self, quick):
        return ["small"] if quick else ["small", "large"]

    def measures(self):
        return [measures.AtMost(f"a/b/{cell}", "m", peer, 1)
                for cell in ("small", "large") for peer in ("peer", "other")]


def marks(tmp_path, quick, seen, asked=("a/b",)):
    """Of the verdicts that stand in the report of a run; seen: (cell, driver) that were done."""
    log = record.Record(str(tmp_path), {"quick": quick})
    log.asked(list(asked))
    for cell, name in seen:
        log.add(("a/b", cell, name, 0), 1.0, [[f"a/b/{cell}", "m", "us", False, [1]]])
    log.close()
    verdicts = report.write(str(tmp_path), record.load(str(tmp_path)), [Promising()])
    text = (tmp_path / "report.md").read_text()
    assert all(v.text in text for v in verdicts)
    return [v.mark for v in verdicts]


def test_a_quick_run_says_what_it_left_out(tmp_path):
    left = measures.LEFT_OUT
    assert marks(tmp_path, True, [("small", "veneer"), ("small", "peer")]) == [
        measures.PASS, left, left, left]


@pytest.mark.parametrize("quick", [True, False])
def test_what_failed_is_no_data_however_short_the_run(tmp_path, quick):
    found = marks(tmp_path, quick, [("small", "peer")])
    assert found[0] == measures.NONE and (found.count(measures.NONE) == 4) != quick


@pytest.mark.parametrize("quick", [True, False])
def test_what_never_ran_has_its_promises_in_the_report(tmp_path, quick):
    found = marks(tmp_path, quick, [])
    assert found[0] == found[2] == measures.NONE
    assert marks(tmp_path / "other", quick, [], asked=()) == []


def test_every_scenario_can_be_reported_without_results(tmp_path):
    log = record.Record(str(tmp_path), {"quick": True})
    log.asked([s.name for s in scenarios.EVERY])
    log.close()
    assert report.failed(report.write(str(tmp_path), record.load(str(tmp_path)), scenarios.EVERY))


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


@pytest.mark.parametrize("s", scenarios.EVERY, ids=lambda s: s.name)
def test_a_scenario_says_what_it_is(s):
    assert "/" in s.name and s.title and len(s.origin) > 100 and s.question.endswith("?")
    assert [t.name for t in scenarios.EVERY].count(s.name) == 1
    for quick in (False, True):
        cells = [str(c) for c in s.cells(quick)]
        assert cells and len(set(cells)) == len(cells)
    assert s.rounds >= 5 and s.quick_rounds >= 2
    for m in s.measures():
        assert all(row.startswith(s.name) for row in m.scenarios())
    assert all(row.startswith(s.name) for _, row, _ in s.headline)


def run_for(s, row, metric):
    """The cells of a full run that can make this row, by its name; all when none is named so."""
    cells = s.cells(False)
    named = [c for c in cells if row in (getattr(c, "row", None), getattr(c, "scenario", None)) and
             metric.startswith(getattr(c, "metric", ""))]
    return named or [c for c in cells if row.endswith(f"/{c}")] or cells


@pytest.mark.parametrize("s", scenarios.EVERY, ids=lambda s: s.name)
def test_what_is_promised_can_be_had_from_a_full_run(s):
    """Or it is "no data" each time, which counts as a promise that is not met."""
    takes = {d.name for d in drivers.every_driver() if s.takes(d, False)}
    takes.update(d for d in s.drivers if d not in s.without)
    for m in s.measures():
        for name in m.drivers(measures.SUBJECT):
            assert name in takes, f"{m.scenarios()}: {name}"
            for row in m.scenarios():
                assert any(s.has(c, name) for c in run_for(s, row, m.metric)), f"{row}: {name}"
    changes = next(s for s in scenarios.EVERY if s.name == "hpmapper/cow")
    seen = {(c.scenario, c.metric) for c in changes.cells(False)}
    for m in changes.measures():
        assert all((row, m.metric.removesuffix(" upper bytes")) in seen for row in m.scenarios())


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
