# SPDX-License-Identifier: Apache-2.0
"""Processors are kept awake while requests follow one another closely, and at no other time (/dev/cpu_dma_latency)."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from support.places import Place
from support.procfs import of_threads, opened
from support.server import wait_until

DEVICE = "/dev/cpu_dma_latency"
MANY = 2000


def holders(pid):
    """The threads of a process that have the device open."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if DEVICE in [os.readlink(fd) for fd in (task / "fd").iterdir()]:
                found.append(int(task.name))
    return found


def ask(mnt, first=0):
    """Requests, one after the other."""
    for k in range(first, first + MANY):
        assert not os.path.exists(mnt / f"none{k}")


def told(stack, shared):
    """The state, and the counts of the server."""
    said = subprocess.run([stack.program, "stats", "--json"], env={**os.environ, **shared.environment}, check=True,
                          capture_output=True, timeout=30)
    report = json.loads(said.stdout)
    return report["server"]["cpu_latency"], report["totals"]["cpu_latency"]


@pytest.fixture
def mount(stack, shared):
    """mount(option...); the device is asked for a value, as on this machine none may be of use."""
    (stack.lower() / "file").write_bytes(b"content")
    stack.remember_lowers()

    def make(*options, name="p"):
        return Place(stack, name).mount(stack, shared, *options)
    return make


def need_device():
    if not os.access(DEVICE, os.W_OK):
        pytest.skip(f"{DEVICE} cannot be opened here")


def test_requests_in_a_row_keep_processors_awake(mount, stack, shared):
    need_device()
    mnt = mount("cpu-latency=0")
    ask(mnt)
    assert wait_until(lambda: told(stack, shared)[1]["raises"] > 0)
    assert wait_until(lambda: told(stack, shared)[0] == "quiet")
    assert told(stack, shared)[1]["held_us"] > 0


def test_the_machine_gains_by_a_value_or_not(mount, stack, shared):
    need_device()
    ask(mount())
    assert wait_until(lambda: told(stack, shared)[1]["raises"] > 0 or told(stack, shared)[0] in ("no cpuidle", "no use"))
    state, counts = told(stack, shared)
    assert (counts["raises"] > 0) == (state in ("quiet", "held"))


def test_a_file_now_and_then_does_not(mount, stack, shared):
    mnt = mount("cpu-latency=0")
    for _ in range(20):
        assert (mnt / "file").read_bytes() == b"content"
        time.sleep(0.1)
    assert told(stack, shared)[1] == {"raises": 0, "held_us": 0}
    assert holders(shared.pid) == []


def test_off_is_off(mount, stack, shared):
    ask(mount("cpu-latency=off"))
    assert told(stack, shared) == ("quiet", {"raises": 0, "held_us": 0})
    assert holders(shared.pid) == []


def test_one_that_is_off_leaves_others_alone(mount, stack, shared):
    need_device()
    off, on = mount("cpu-latency=off", name="off"), mount("cpu-latency=0", name="on")
    ask(off)
    assert told(stack, shared)[1]["raises"] == 0
    ask(on)
    assert wait_until(lambda: told(stack, shared)[1]["raises"])


def test_a_server_is_told_for_its_mounts(mount, stack, shared):
    shared.kill()
    shared.arguments += ["--cpu-latency", "off"]
    shared.ensure()
    ask(mount())
    assert told(stack, shared) == ("off", {"raises": 0, "held_us": 0})


def switches(pid):
    """How often each thread of a process has given up a processor."""
    return {task: re.findall(r"ctxt_switches:\t(\d+)", text) for task, text in of_threads(pid, "status").items()}


def test_an_idle_server_does_not_wake(mount, shared):
    """Without a switch there is no system call, and no timer."""
    with open(shared.program, "rb") as program:
        if b"__tsan_init" in program.read():
            pytest.skip("the sanitizer has a thread of its own")
    ask(mount("cpu-latency=0"))

    def is_still():
        before = switches(shared.pid)
        time.sleep(2)
        return switches(shared.pid) == before
    assert wait_until(is_still)  # the pool's threads end after some seconds


def test_one_thread_alone_has_the_device(mount, shared):
    """No child can inherit it, and the supervisor, which shares the server's descriptors, does not have it."""
    need_device()
    mnt = mount("cpu-latency=0")
    ask(mnt)
    assert wait_until(lambda: len(holders(shared.pid)) == 1)
    assert DEVICE not in opened(shared.pid).values()
    assert holders(shared.process.pid) == []
    assert holders(shared.pid) != [shared.pid]


def test_a_killed_server_leaves_nothing_held(mount, shared, stack):
    need_device()
    mnt = mount("cpu-latency=0")
    for k in range(10):
        ask(mnt, k * MANY)
        assert wait_until(lambda: len(holders(shared.pid)) == 1)
        shared.kill_server()
        assert holders(shared.process.pid) == [] == holders(shared.pid)
    ask(mnt, 10 * MANY)
    assert wait_until(lambda: told(stack, shared)[1]["raises"])


def test_an_upgrade_begins_anew(mount, shared, stack):
    need_device()
    mnt = mount("cpu-latency=0")
    ask(mnt)
    before = shared.pid
    subprocess.run([stack.program, "server", "--upgrade"], env={**os.environ, **shared.environment}, check=True, timeout=60)
    assert wait_until(lambda: not os.path.exists(f"/proc/{before}") or not holders(before))
    ask(mnt, MANY)
    assert wait_until(lambda: told(stack, shared)[1]["raises"] > 0)


def test_who_may_not_open_the_device_does_without(mount, stack, shared):
    if os.access(DEVICE, os.W_OK):
        pytest.skip("this user may open the device")
    ask(mount("cpu-latency=0"))
    assert wait_until(lambda: told(stack, shared)[0] == "not permitted")
    assert "latency" not in shared.log


@pytest.mark.parametrize("value", ["", "on", "-1", "1000001", "5us"])
def test_other_values_are_refused(stack, shared, value):
    stack.remember_lowers()
    result = Place(stack, "p").run(stack, shared, f"cpu-latency={value}")
    assert result.returncode == 1 and "invalid value for cpu-latency" in result.stderr
