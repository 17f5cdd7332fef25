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
        # What was started in the group may still be leaving.
        if not host.wait_for(self._is_removed):
            host.note(f"{self.path} is left behind")

    def _is_removed(self):
        try:
            os.rmdir(self.path)
        except OSError:
            return False
        return True


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
    """Traffic of one block device of ours, "MAJOR:MINOR", each way, in bytes and in requests a
    second."""

    def __init__(self, device, bytes_a_second, requests_a_second):
        super().__init__("io" if _is_unified() else "blkio")
        self.device, self.limits = device, (bytes_a_second, requests_a_second)

    def _set(self, limits):
        if _is_unified():
            by_bytes, by_requests = (n or "max" for n in limits)
            _write(f"{self.path}/io.max",
                   f"{self.device} rbps={by_bytes} wbps={by_bytes} "
                   f"riops={by_requests} wiops={by_requests}")
            return
        # In version 1 what the kernel writes back later is the root group's.
        for path in (self.path, f"{ROOT}/blkio"):
            for way in ("read", "write"):
                for what, limit in zip(("bps", "iops"), limits):
                    _write(f"{path}/blkio.throttle.{way}_{what}_device", f"{self.device} {limit}")

    def lift(self):
        """No limit from now on: for cleaning up."""
        self._set((0, 0))

    def __enter__(self):
        self._set(self.limits)
        return super().__enter__()

    def __exit__(self, *_):
        self.lift()
        super().__exit__(*_)
