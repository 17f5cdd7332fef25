# SPDX-License-Identifier: Apache-2.0
"""Reads /proc of a process whose descriptors and threads come and go meanwhile."""
import contextlib
import os
import pathlib


def opened(pid):
    """{number: what it is open on}, of the descriptors that were not closed meanwhile."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def of_threads(pid, file):
    """{number: its file's text}, of the threads that did not end meanwhile; the first one is always there."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[int(task)] = pathlib.Path(f"/proc/{pid}/task/{task}/{file}").read_text(encoding="utf-8", errors="replace")
    assert pid in found
    return found


def state_of(tid):
    """The letter of a thread of any process; X: there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{tid}/stat", encoding="ascii", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[0]
    return "X"


def is_at_rest(pid):
    """All its threads sleep: it has done all that it was asked for and can do."""
    return all(text.rpartition(")")[2].split()[0] in "SD" for text in of_threads(pid, "stat").values())


def is_blocked(tid):
    """The thread sleeps in the kernel, and not for a lock of its own process, as the interpreter's."""
    with contextlib.suppress(OSError), open(f"/proc/{tid}/wchan", encoding="ascii") as f:
        return state_of(tid) in "SD" and "futex" not in f.read()
    return False


_FLOCK_CALL = "32" if os.uname().machine == "aarch64" else "73"
_FCNTL_CALL = "25" if os.uname().machine == "aarch64" else "72"


def waits_for_lock(tid):
    """In flock(2) or fcntl(2)."""
    with open(f"/proc/{tid}/syscall", encoding="ascii") as f:
        return f.read().split()[0] in (_FLOCK_CALL, _FCNTL_CALL)
