# SPDX-License-Identifier: Apache-2.0
"""bench/run as a user calls it, on real mounts."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
RUN = [str(TOP / "bench" / "run")]
ENV = {**os.environ, "VENEER_BIN": os.environ.get("VENEER_BIN", str(TOP / "build" / "veneer"))}
DRIVERS = "native,overlayfs,veneer,veneer-rootless"
WAIT_S = 120


def call(*args):
    return subprocess.run([*RUN, *args], env=ENV, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S,
                          check=False)


def left_over(work):
    mounts = [line for line in open("/proc/self/mounts", encoding="utf-8") if str(work) in line]
    loops = subprocess.run(["losetup", "-a"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return mounts + [line for line in loops.splitlines() if str(work) in line] + list(work.iterdir())


def measured(out):
    lines = [json.loads(line) for line in (out / "raw.jsonl").read_text().splitlines()]
    return [tuple(line["done"]) for line in lines if "done" in line]


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work"
    path.mkdir()
    return path


def test_the_list_names_scenarios_and_drivers():
    done = call("--list")
    assert done.returncode == 0
    for name in ("hpmapper/cow", "meta/walk", "native", "fuse-overlayfs-2", "dm-thin"):
        assert name in done.stdout
    assert re.search(r"all together\s+some \d+ minutes and \d+", done.stdout)


def test_the_list_needs_no_more_than_is_installed(tmp_path):
    """No container has kmod, and Debian's image has none."""
    for folder in ("/usr/bin", "/usr/sbin", "/sbin"):
        for name in os.listdir(folder):
            if name not in ("modprobe", "kmod") and not os.path.lexists(tmp_path / name):
                os.symlink(os.path.join(folder, name), tmp_path / name)
    done = subprocess.run([*RUN, "--list"], env={**ENV, "PATH": str(tmp_path)}, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "dm-thin" in done.stdout


@pytest.mark.parametrize("args,words", [(["none"], "no scenario none"),
                                        (["--drivers", "none"], "no driver none"),
                                        (["--report"], "--out")])
def test_a_mistake_gets_one_sentence(args, words):
    done = call(*args)
    assert done.returncode not in (0, -signal.SIGINT)
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupted_run_goes_on_and_leaves_nothing(needs_root, tmp_path, work, signals):
    out = tmp_path / "out"
    args = ["--quick", "--drivers", DRIVERS, "--rounds", "2", "--out", str(out), "--work",
            str(work), "meta/reads"]
    with subprocess.Popen([*RUN, *args], env=ENV, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as first:
        end = time.monotonic() + WAIT_S
        while not (out / "raw.jsonl").exists() or len(measured_so_far(out)) < 3:
            assert time.monotonic() < end and first.poll() is None
            time.sleep(0.05)
        for _ in range(signals):
            first.send_signal(signal.SIGINT)
            time.sleep(0.01)
        words = first.stderr.read()
    assert first.returncode == 130 and "goes on from here" in words, words
    assert left_over(work) == []
    before = measured(out)
    done = call(*args)
    assert done.returncode == 0, done.stderr
    every = measured(out)
    assert every[:len(before)] == before
    assert len(set(every)) == len(every) == 4 * len(DRIVERS.split(",")) * 2
    assert left_over(work) == []
    check_report(out)


def test_what_is_learned_is_measured(needs_root, tmp_path, work):
    out = tmp_path / "out"
    done = call("--quick", "--drivers", "default", "--rounds", "1", "--out", str(out), "--work",
                str(work), "dpso/accuracy")
    assert done.returncode == 0, done.stderr
    rows = json.loads((out / "report.json").read_text())["rows"]
    seen = {row["metric"]: row["value"] for row in rows}
    assert seen["recall"] > 0.3 and seen["precision"] > 0.3, rows


def measured_so_far(out):
    try:
        return measured(out)
    except ValueError:
        return []


def check_report(out):
    report = json.loads((out / "report.json").read_text())
    keys = {"scenario", "metric", "driver", "value", "unit", "repeats", "spread"}
    assert all(keys <= row.keys() and row["value"] > 0 for row in report["rows"])
    assert {row["driver"] for row in report["rows"]} == set(DRIVERS.split(","))
    assert {row["repeats"] for row in report["rows"]} == {2}
    text = (out / "report.md").read_text()
    assert "meta/reads" in text and "**veneer**" in text
    assert (out / "meta-reads.svg").stat().st_size > 1000
