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
