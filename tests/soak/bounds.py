# SPDX-License-Identifier: Apache-2.0
"""A limit on the memory of a server: a control group where one can be had."""
import contextlib
import os
import pathlib
import resource
import time

_V1 = pathlib.Path("/sys/fs/cgroup/memory")
_V2 = [pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified")]


def _v2_with_memory():
    for top in _V2:
        with contextlib.suppress(OSError):
            if "memory" in (top / "cgroup.subtree_control").read_text(encoding="ascii").split():
                return top
    return None


class MemoryLimit:
    """For processes and what they start from then on. kind says what holds it."""

    def __init__(self, limit_bytes):
        self.kind, self._directory, self._limit = "RLIMIT_DATA", None, limit_bytes
        groups = (_V1, "memory.limit_in_bytes", "cgroup v1"), (_v2_with_memory(), "memory.max", "cgroup v2")
        for top, name, kind in groups:
            if top and self._make(top, name):
                self.kind = kind
                break

    def _make(self, top, name):
        directory = top / f"veneer-soak-{os.getpid()}"
        try:
            directory.mkdir()
            (directory / name).write_text(str(self._limit), encoding="ascii")
        except OSError:
            with contextlib.suppress(OSError):
                directory.rmdir()
            return False
        self._directory = directory
        return True

    def put(self, pid):
        if self._directory:
            (self._directory / "cgroup.procs").write_text(str(pid), encoding="ascii")
        else:
            # of address space that is written to, stacks of all threads too: hence more
            resource.prlimit(pid, resource.RLIMIT_DATA, (self._limit * 8, self._limit * 8))

    def kills(self):
        """How many processes were killed for it."""
        for name in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError, TypeError):
                words = (self._directory / name).read_text(encoding="ascii").split()
                return int(words[words.index("oom_kill") + 1])
        return 0

    def peak(self):
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(OSError, TypeError):
                return int((self._directory / name).read_text(encoding="ascii"))
        return 0

    def close(self, limit_s=60):
        end = time.monotonic() + limit_s
        while self._directory and time.monotonic() < end:
            try:
                self._directory.rmdir()
                return
            except OSError:
                time.sleep(0.05)
