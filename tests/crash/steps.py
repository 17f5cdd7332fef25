# SPDX-License-Identifier: Apache-2.0
"""A process that stops after each system call which changes a file system or syncs it, for a picture of the disk.

VENEER_CRASH_SEED repeats the choice of the points that are looked at.
"""
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from scenario import commit_journal
from support.server import wait_until

_CALLS = ",".join(("mkdirat", "mknodat", "linkat", "symlinkat", "renameat", "renameat2", "unlinkat", "pwrite64", "ftruncate",
                   "fallocate", "copy_file_range", "fsetxattr", "fremovexattr", "fchmod", "fchownat", "utimensat", "fsync",
                   "fdatasync", "syncfs", "sync_file_range"))
SEED = int(os.environ.get("VENEER_CRASH_SEED") or random.randrange(1 << 32))
_STOPPED = re.compile(r"(\d+) +--- stopped by SIGSTOP")
_SENT = re.compile(r"(\d+) +--- SIGSTOP \{")
_CALL = re.compile(r"(\d+) +(\w+\(.*)")
_SHOWN = 100
_LIMIT_S = 100
_STOP_S = 3


def _is_stopped(pid):
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii", errors="replace") as f:
                if f.read().rpartition(")")[2].split()[0] not in "tTZX":
                    return False
    return True


@contextlib.contextmanager
def _tracer(*arguments):
    """strace, and the lines that it writes."""
    if not shutil.which("strace"):
        pytest.skip("no strace to stop at a system call")
    read, write = os.pipe()
    # Leaks cannot be looked for in a program that is traced.
    environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    command = ["strace", "-f", "-o", f"/dev/fd/{write}", "-e", f"trace={_CALLS}", "-e", f"inject={_CALLS}:signal=STOP"]
    process = subprocess.Popen([*command, *map(str, arguments)], pass_fds=(write,), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(write)
    try:
        with os.fdopen(read, errors="replace") as lines:
            yield process, lines
    finally:
        process.terminate()
        process.wait(_LIMIT_S)
        process.stderr.close()


class Steps:
    """Of one command: the disk after each of its calls. Before some pictures the journal goes out, with what was done so far;
    the others lack what was not synced."""

    def __init__(self, machine):
        self._machine, self._dice = machine, random.Random(f"{SEED} {machine.kind}")
        self._pictures, self._calls = [], {}

    def of_program(self, command):
        """It has to succeed."""
        with _tracer(*command) as (process, lines):
            self._follow(lines)
            assert process.wait(_LIMIT_S) == 0, process.stderr.read()

    def of_server(self, server, call):
        """Of a SharedServer while call() asks it for something; what that returned."""
        pid = server.pid
        with _tracer("-p", pid) as (process, lines), ThreadPoolExecutor() as pool:
            assert "attached" in process.stderr.readline()
            asking = pool.submit(call)
            asking.add_done_callback(lambda _: process.terminate())
            self._follow(lines, pid)
        # What it does after the answer may have been stopped, too.
        os.kill(pid, signal.SIGCONT)
        return asking.result()

    def _follow(self, lines, server=None):
        """Until they end. A program has one thread."""
        calls, sent = {}, set()
        for line in lines:
            if match := _SENT.match(line):
                sent.add(match[1])
            elif (match := _STOPPED.match(line)) and match[1] in sent:
                sent.remove(match[1])
                self._take(server or int(match[1]), calls.get(match[1], "a call"))
            elif match := _CALL.match(line):
                calls[match[1]] = match[2][:_SHOWN]

    def _take(self, pid, call):
        # In the kernel a thread may wait for another one that has stopped: then there is no picture.
        if wait_until(lambda: _is_stopped(pid), _STOP_S):
            if self._dice.random() < 0.5:
                commit_journal(self._machine)
            self._pictures.append(self._machine.cut())
            self._calls[self._pictures[-1].number] = call
        os.kill(pid, signal.SIGCONT)

    def examine(self, count, look, afterwards, turn):
        """So many of them, with the last one and the one of the call that says so; see Machine.examine."""
        turns = [k for k, picture in enumerate(self._pictures) if turn in self._calls[picture.number]]
        assert turns, f"no {turn} in {len(self._pictures)} calls"
        chosen = {turns[0], len(self._pictures) - 1}
        others = sorted(set(range(len(self._pictures))) - chosen)
        chosen |= set(self._dice.sample(others, max(min(count - len(chosen), len(others)), 0)))
        print(f"seed {SEED}: {len(chosen)} of {len(self._pictures)} points")

        def look_after(view, picture):
            look(view, picture)
            view.problems = [f"seed {SEED}: after {self._calls[picture.number]}: {line}" for line in view.problems]
        self._machine.examine([self._pictures[k] for k in sorted(chosen)], look_after, afterwards=afterwards)
