# SPDX-License-Identifier: Apache-2.0
"""Counts the system calls a server makes while something happens."""
import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest

from .procfs import is_at_rest
from .server import wait_until

_WAITING = {"futex", "poll", "ppoll", "epoll_wait", "epoll_pwait", "clock_nanosleep",
            "restart_syscall", "sched_yield", "nanosleep", "rt_sigtimedwait",
            # a thread that waits for long tells the supervisor (activity.c)
            "getppid", "kill"}


def _attach(pid, table, *options):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    command = ["strace", "-f", *options, "-o", str(table), "-p", str(pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)
    # the line "Process N attached" says when counting has begun
    line = tracer.stderr.readline()
    if "attached" not in line:
        tracer.wait()
        pytest.skip(f"ptrace is not possible here: {line.strip()}")
    return tracer


def _during(pid, tracer, action):
    try:
        action()
        # An answer is not the last call of the thread that gives it.
        wait_until(lambda: is_at_rest(pid))
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()


@contextlib.contextmanager
def slow(pid, name, seconds):
    """Each call of this name that the process makes takes so much longer."""
    tracer = _attach(pid, os.devnull, "-e", f"trace={name}", "-e", f"inject={name}:delay_exit={seconds}s")
    try:
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def counted_but(ignored, pid, action, table):
    """The number of calls by name during action(), but for those with this in their arguments."""
    _during(pid, _attach(pid, table), action)
    counts = {}
    for line in table.read_text(errors="replace").splitlines():
        found = re.match(r"\d+\s+(\w+)\(", line)
        if found and found.group(1) not in _WAITING and ignored not in line:
            counts[found.group(1)] = counts.get(found.group(1), 0) + 1
    return counts


def counted(pid, action, table):
    """The number of calls by name that process pid makes during action()."""
    _during(pid, _attach(pid, table, "-c"), action)
    counts = {}
    for line in table.read_text().splitlines():
        found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if found and found.group(2) != "total" and found.group(2) not in _WAITING:
            counts[found.group(2)] = int(found.group(1))
    return counts
