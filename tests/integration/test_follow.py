# SPDX-License-Identifier: Apache-2.0
"""Where the server's threads wait: on the processor of the one caller, or anywhere."""
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from support.server import wait_until

pytestmark = [
    pytest.mark.standalone("the threads of a process that serves one mount"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor only"),
]
TURNS = 60
SPIN = """import os
os.sched_setaffinity(0, {%d})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print(flush=True)
while True:
    pass
"""


def ask(directory, prefix, times=200):
    """Names that nobody asked for before: one request each."""
    for k in range(times):
        assert not os.path.exists(directory / f"{prefix}-{k}")


def tied(pid):
    """The threads of a process that may run on one processor only, and on which."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            allowed = os.sched_getaffinity(int(task.name))
        except ProcessLookupError:  # it has gone home meanwhile
            continue
        if len(allowed) == 1:
            found[task.name] = allowed.pop()
    return found


def ask_until_followed(stack, prefix):
    """On a machine that is busy a thread may be late to say that it has answered."""
    for k in range(20):
        ask(stack.mnt, f"{prefix}-{k}")
        if tied(stack.pid):
            break
    return set(tied(stack.pid).values())


@pytest.fixture
def mounted(stack):
    stack.lower()
    stack.mount()
    return stack


def test_follow__one_caller_has_the_readers_on_its_processor(mounted):
    cpu = sorted(os.sched_getaffinity(0))[0]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        assert ask_until_followed(mounted, "one") == {cpu}
    finally:
        os.sched_setaffinity(0, before)


def test_follow__when_nobody_asks_they_may_run_anywhere(mounted):
    assert ask_until_followed(mounted, "quiet")
    assert wait_until(lambda: not tied(mounted.pid))


def test_follow__with_two_callers_they_may_run_anywhere(mounted):
    assert ask_until_followed(mounted, "first")
    turn = threading.Barrier(2)

    def take_turns(prefix):
        for k in range(TURNS):
            turn.wait()
            ask(mounted.mnt, f"{prefix}-{k}", 1)

    callers = [threading.Thread(target=take_turns, args=(name,)) for name in ("a", "b")]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wait_until(lambda: not tied(mounted.pid), 0.5)


def test_follow__a_server_that_was_told_where_to_run_stays_there(mounted):
    cpus = sorted(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    for task in pathlib.Path(f"/proc/{mounted.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpus[1]})
    os.sched_setaffinity(0, {cpus[0]})
    try:
        ask(mounted.mnt, "told")
        assert cpus[0] not in tied(mounted.pid).values()
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.needs_root("real-time priority")
def test_follow__a_real_time_program_on_that_processor_does_not_stop_the_mount(mounted):
    cpus = sorted(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpus[0]})
    try:
        assert ask_until_followed(mounted, "calm") == {cpus[0]}
        os.sched_setaffinity(0, {cpus[1]})
        spin = subprocess.Popen([sys.executable, "-c", SPIN % cpus[0]], stdout=subprocess.PIPE)
        try:
            if not spin.stdout.readline():
                pytest.skip("no real-time priority to be had")
            # The kernel lets others have a twentieth of each second, which may be the first.
            time.sleep(0.1)
            began = time.monotonic()
            ask(mounted.mnt, "spin", 60)
            took_s = time.monotonic() - began
        finally:
            spin.kill()
            spin.communicate()
    finally:
        os.sched_setaffinity(0, before)
    assert took_s < 0.7
