# SPDX-License-Identifier: Apache-2.0
"""Looks at processes while others work: which of them wait uninterruptibly, and the memory and descriptors of a server."""
import contextlib
import os
import pathlib
import threading
import time


def processes_of(program, directory):
    """Ids of processes of this program that were started with this run directory."""
    there, word, found = os.stat(program), os.fsencode(f"VENEER_RUNTIME_DIR={directory}"), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            exe = os.stat(f"/proc/{pid}/exe")
            if (exe.st_dev, exe.st_ino) == (there.st_dev, there.st_ino) and \
                    word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def _tasks(pids):
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                yield pid, int(task)


def _wait_of(pid, task):
    """How often a task that waits uninterruptibly has waited before; None for others."""
    text = pathlib.Path(f"/proc/{pid}/task/{task}/status").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if fields["State"].split()[0] != "D":
        return None
    return int(fields["voluntary_ctxt_switches"])


class Sentry:
    """In a thread, once a second: the longest that any task of the processes that pids() gives has been in one
    uninterruptible wait."""

    def __init__(self, pids):
        self._pids, self._since, self.longest_s, self.where = pids, {}, 0.0, ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(1):
            now, waits = time.monotonic(), {}
            for pid, task in _tasks(self._pids()):
                with contextlib.suppress(OSError, KeyError, ValueError):
                    number = _wait_of(pid, task)
                    if number is not None:
                        key = (pid, task, number)
                        waits[key] = self._since.get(key, now)
                        self._note(key, now - waits[key])
            self._since = waits

    def _note(self, key, seconds):
        if seconds > self.longest_s:
            self.longest_s, self.where = seconds, f"task {key[1]} of {key[0]}"
            with contextlib.suppress(OSError):
                self.where += ":\n" + pathlib.Path(f"/proc/{key[0]}/task/{key[1]}/stack").read_text(encoding="ascii")

    def close(self):
        self._stop.set()
        self._thread.join()


def resident(pid):
    """Bytes that are the process's own: without pages of files and of memory files, which are nobody's loss."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    return int(text.split("RssAnon:")[1].split()[0]) << 10


def descriptors(pid):
    """The targets of the open descriptors, counted."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            found[target] = found.get(target, 0) + 1
    return found
