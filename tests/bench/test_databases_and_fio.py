# SPDX-License-Identifier: Apache-2.0
"""What the bench asks of other programs, and what it makes of their answers."""
import json
import os

import pytest

import scenarios
from support import (cgroup, driver, drivers, fio, host, postgres, record, runner, scenario,
                     workspace)


def report(name, way="read", rate=1000.0):
    side = {"total_ios": 10, "iops": rate, "bw_bytes": 2 << 20, "slat_ns": {"mean": 3000},
            "clat_ns": {"mean": 5000, "percentile": {"99.000000": 9000}}}
    none = {**side, "total_ios": 0}
    return {"jobname": name, "read": side if way == "read" else none,
            "write": side if way == "write" else none}


def job(name, **more):
    return fio.Job(name, "randread", 4096, 1, 1, "/f", True, 1 << 20)._replace(**more)


def test_a_report_of_fio_may_have_remarks_before_it():
    text = "note: something\n" + json.dumps({"jobs": [report("a"), report("b", "write", 7.0)]})
    seen = fio.read_report(text, [job("a"), job("b", direct=False)])
    assert seen["a"] == fio.Seen(1000.0, 2.0, 3.0, 5.0, 9.0)
    assert seen["b"].iops == 7.0 and seen["b"].slat is None


@pytest.mark.parametrize("text", ["", "no json", '{"jobs": []}'])
def test_a_report_that_is_not_one_is_an_error(text):
    with pytest.raises(host.HostError):
        fio.read_report(text, [job("a")])


def test_threads_that_share_a_file_have_parts_of_their_own():
    argv = fio.argv([job("a", threads=4, share=True)], 100)
    assert f"--size={1 << 18}" in argv and f"--offset_increment={1 << 18}" in argv


def test_a_job_of_a_fixed_amount_is_not_cut_by_the_time_of_the_others():
    argv = fio.argv([job("a", amount=4096)], 100)
    assert "--io_size=4096" in argv and "--time_based" not in argv


def test_every_byte_of_a_file_is_overwritten(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(bytes(3 << 20))
    fio.overwrite(str(path))
    data = path.read_bytes()
    assert len(data) == 3 << 20
    assert all(any(data[at:at + 4096]) for at in range(0, len(data), 4096))


def test_transactions_are_read_from_every_log_of_a_server(tmp_path):
    sockets = postgres.Sockets()
    sockets.path = str(tmp_path)
    server = postgres.Server(sockets, 2, "/data")
    (tmp_path / f"tx-A-{server.port}.17").write_text("0 1 250 0 100 5\n0 2 300 1 100 900\n")
    (tmp_path / f"tx-B-{server.port}.17").write_text("0 1 1 0 100 5\n")
    assert list(server.transactions("A")) == [(100000005, 250), (100000900, 300)]


def test_no_limit_needs_no_groups():
    with cgroup.Limits("0:0") as limits:
        assert limits.prefix() == [] and not limits.folders


def needs_memory_group():
    lacking = cgroup.missing(["memory"])
    if lacking:
        pytest.skip(f"the kernel has no control group of {lacking[0]}")


def test_a_limit_holds_for_what_is_put_in_and_its_group_goes(needs_root):
    needs_memory_group()
    with cgroup.Limits("0:0", memory=64 << 20) as limits:
        folder = limits.folders[0]
        seen = host.run(*limits.prefix(), "cat", "/proc/self/cgroup")
        assert f":/veneer-bench-{os.getpid()}" in seen
    assert not os.path.exists(folder)


def test_what_a_process_reads_is_counted_until_it_leaves_the_group(needs_root, tmp_path):
    needs_memory_group()
    before = host.run("cat", "/proc/self/cgroup")
    with cgroup.Memory() as box:
        (tmp_path / "f").write_bytes(bytes(8 << 20))
        assert box.peak() >= box.cached() >= 8 << 20
        folder = box.folders[0]
    assert host.run("cat", "/proc/self/cgroup") == before
    assert not os.path.exists(folder)


def test_limits_of_the_second_version_are_written_as_it_wants_them(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "ROOT", str(tmp_path))
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    limits = cgroup.Limits("7:1", cpus=1.5, memory=1 << 20, rate=4096)
    folder = tmp_path / f"veneer-bench-{os.getpid()}"
    assert limits.folders == [str(folder)]
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory +io"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "memory.max").read_text() == str(1 << 20)
    assert (folder / "io.max").read_text() == "7:1 wbps=4096"
    assert cgroup.missing(["memory", "rdma"]) == ["rdma"]


def test_a_limit_without_its_controller_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "ROOT", str(tmp_path))
    with pytest.raises(host.HostError, match="cpu, blkio"):
        cgroup.Limits("7:1", cpus=1, rate=4096)


def test_some_drivers_are_only_for_scenarios_that_name_them():
    def named(name, when_named):
        found = driver.Driver(name, "")
        found.when_named = when_named
        return found

    class Whole(scenario.Scenario):
        def cells(self, quick):
            return ["c"]

    class Named(Whole):
        drivers, quick_drivers = ("often", "rare"), ("rare",)

    class Picky(Whole):
        def has(self, cell, driver):
            return driver != "often"

    def of(s, quick=False):
        return [d.name for _, _, d in runner.steps_of(s, every, quick, rounds=1)]

    every = [named("often", False), named("rare", True)]
    assert of(Whole()) == ["often"] and of(Picky()) == []
    assert of(Named()) == ["often", "rare"] and of(Named(), True) == ["rare"]


def test_an_estimate_counts_what_is_run():
    class Some(scenario.Scenario):
        seconds = 3.0, 0.5

        def cells(self, quick):
            return ["c"] if quick else ["c", "d"]

        def has(self, cell, driver):
            return cell == "c" or driver == "a"

    every = [driver.Driver("a", ""), driver.Driver("b", "")]
    assert runner.estimate([Some()], every, False) == 5 * 3 * 3.0 + runner.SET_UP_S
    assert runner.estimate([Some()], every, True) == 2 * 2 * 0.5 + runner.SET_UP_S


@pytest.mark.parametrize("quick,minutes", [(False, 185), (True, 13)])
def test_a_run_of_all_fits_its_time(quick, minutes):
    there = [d for d in drivers.every_driver() if d.name != "dm-thin"]
    assert runner.estimate(scenarios.EVERY, there, quick) < minutes * 60


class Done(scenario.Scenario):
    """One of which each step is done."""

    def __init__(self, name):
        self.name = name

    def act(self, run, cell, driver):
        run.add(self.name, "m", [1], "us")


def test_a_clean_up_that_fails_is_noted_and_the_run_goes_on(tmp_path, monkeypatch):
    def fail(self):
        close(self)
        raise host.HostError("detach failed")

    close = workspace.Workspace.close
    monkeypatch.setattr(workspace.Workspace, "close", fail)
    run = runner.Runner.__new__(runner.Runner)
    run.args = type("Args", (), {"quick": True, "on_host": True, "work": str(tmp_path)})
    run.log, run.progress = record.Record(str(tmp_path / "out"), {}), runner.Progress()
    run.stop = type("Stop", (), {"wanted": False})
    run.plan = [(Done(name), [(0, "c", driver.Driver("d", ""))]) for name in ("a/one", "a/two")]
    run.run()
    run.log.close()
    assert {key[0] for key in run.log.done} == {"a/one", "a/two"}
    assert all(any(f"{name}: " in note and "detach failed" in note for note in run.log.notes)
               for name in ("a/one", "a/two"))


def test_one_part_of_a_clean_up_that_fails_keeps_no_other_from_being_done(tmp_path, monkeypatch):
    def fail(*_):
        raise host.HostError("busy")

    closed = []
    work = workspace.Workspace(str(tmp_path / "w"), on_loop=False)
    for kind in ("a", "b"):
        loop = type("Loop", (), {"mountpoint": "/none", "close": lambda: closed.append(1) or fail()})
        work.loops[kind] = loop
    monkeypatch.setattr(host, "end_processes", fail)
    with pytest.raises(host.HostError, match="busy; busy; busy"):
        work.close()
    assert len(closed) == 2 and not (tmp_path / "w").exists()


def test_a_volume_goes_though_its_device_was_detached(needs_root, tmp_path):
    image = str(tmp_path / "image")
    volume = host.LoopFs("ext4", image, str(tmp_path / "mnt"), 16 << 20)
    device = volume.device
    assert host.is_attached(device, image)
    host.unmount(volume.mountpoint)
    host.run("losetup", "-d", device)
    assert host.wait_for(lambda: not host.is_attached(device, image))
    volume.close()
    assert not os.path.exists(image)


@pytest.mark.parametrize("error,words", [(KeyError("none"), "KeyError"), (OSError("gone"), "gone")])
def test_a_step_that_fails_is_noted_and_the_run_goes_on(tmp_path, error, words):
    class Bad(scenario.Scenario):
        name = "a/bad"

        def act(self, run, cell, driver):
            raise error

    class Args:
        quick = True

    run = runner.Runner.__new__(runner.Runner)
    run.args, run.log = Args, record.Record(str(tmp_path), {})
    run.stop = type("Stop", (), {"wanted": False})
    assert not run._act(Bad(), None, (0, "c", driver.Driver("d", "")))
    run.log.close()
    assert any("a/bad: d failed in c" in note and words in note for note in run.log.notes)
