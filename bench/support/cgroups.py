# SPDX-License-Identifier: Apache-2.0
"""Limits on what this process and all it starts may use, by a control group of either version."""

import os

from . import host

ROOT = "/sys/fs/cgroup"


def _write(path, text):
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    except OSError as e:
        raise host.HostError(f"{path}: {e.strerror}") from None


def _is_unified():
    return os.path.exists(f"{ROOT}/cgroup.controllers")


def _own_path(controller):
    """The control group of this process below the root of that controller's hierarchy."""
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        for line in f:
            _, names, path = line.rstrip("\n").split(":", 2)
            if controller in names.split(",") or (_is_unified() and not names):
                return path
    raise host.HostError(f"no control group of {controller}")


class Limits:
    """A group of one controller; use as a context: the process is in it until its end. What it used
    before stays with the group it was in."""

    def __init__(self, controller):
        base = ROOT if _is_unified() else f"{ROOT}/{controller}"
        if not os.path.isdir(base):
            raise host.HostError(f"the kernel has no control group of {controller}")
        self.home = base + _own_path(controller)
        self.path = f"{base}/veneer-bench-{os.getpid()}"
        if _is_unified():
            _write(f"{base}/cgroup.subtree_control", f"+{controller}")
        os.makedirs(self.path, exist_ok=True)

    def __enter__(self):
        _write(f"{self.path}/cgroup.procs", str(os.getpid()))
        return self

    def __exit__(self, *_):
        _write(f"{self.home}/cgroup.procs", str(os.getpid()))
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                # What was started in the group is still leaving.
                host.wait_for(self._is_empty)

    def _is_empty(self):
        with open(f"{self.path}/cgroup.procs", encoding="ascii") as f:
            return not f.read().strip()


class Memory(Limits):
    """Page cache included; limit None is no limit: to count only."""

    def __init__(self, limit=None):
        super().__init__("memory")
        if limit:
            name = "memory.max" if _is_unified() else "memory.limit_in_bytes"
            _write(f"{self.path}/{name}", str(limit))

    def _lines(self, name):
        with open(f"{self.path}/{name}", encoding="ascii") as f:
            return f.read().splitlines()

    def peak(self):
        """Most bytes used so far."""
        return int(self._lines("memory.peak" if _is_unified() else "memory.max_usage_in_bytes")[0])

    def cached(self):
        """Bytes of page cache that came in through processes of the group."""
        found = dict(line.split()[:2] for line in self._lines("memory.stat"))
        return int(found["file" if _is_unified() else "total_cache"])


class Device(Limits):
    """Traffic of one block device, "MAJOR:MINOR", each way, in bytes and in requests a second."""

    def __init__(self, device, bytes_a_second, requests_a_second):
        super().__init__("io" if _is_unified() else "blkio")
        if _is_unified():
            _write(f"{self.path}/io.max",
                   f"{device} rbps={bytes_a_second} wbps={bytes_a_second} "
                   f"riops={requests_a_second} wiops={requests_a_second}")
            return
        for way in ("read", "write"):
            for what, limit in (("bps", bytes_a_second), ("iops", requests_a_second)):
                _write(f"{self.path}/blkio.throttle.{way}_{what}_device", f"{device} {limit}")
