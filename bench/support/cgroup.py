# SPDX-License-Identifier: Apache-2.0
"""Control groups of either version: limits on processes, and what these use."""

import os

from . import host

ROOT = "/sys/fs/cgroup"
PERIOD_US = 100000
# What the second version calls otherwise.
UNIFIED_NAMES = {"blkio": "io"}


def _is_unified():
    return os.path.exists(f"{ROOT}/cgroup.controllers")


def _read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def _write(path, value):
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(str(value))
    except OSError as e:
        raise host.HostError(f"{path}: {e.strerror}") from None


def missing(controllers):
    """Which of these, by the names of the first version, can not be used here."""
    if _is_unified():
        there = _read(f"{ROOT}/cgroup.controllers").split()
        return [c for c in controllers if UNIFIED_NAMES.get(c, c) not in there]
    return [c for c in controllers if not os.path.exists(f"{ROOT}/{c}/cgroup.procs")]


def _own_folder(controller):
    """Of the group that this process is in."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if _is_unified() and not names:
            return ROOT + path
        if controller in names.split(","):
            return f"{ROOT}/{controller}{path}"
    raise host.HostError(f"no control group of {controller}")


class Group:
    """A group of some controllers. Use as a context; at its end it moves out the processes left inside, and
    what was started inside must be leaving by then."""

    def __init__(self, *controllers):
        lacking = missing(controllers)
        if lacking:
            raise host.HostError(f"no control groups of: {', '.join(lacking)}")
        name, self.is_unified = f"veneer-bench-{os.getpid()}", _is_unified()
        if self.is_unified:
            more = " ".join(f"+{UNIFIED_NAMES.get(c, c)}" for c in controllers)
            if more:
                _write(f"{ROOT}/cgroup.subtree_control", more)
            self.folder_of = dict.fromkeys(controllers, f"{ROOT}/{name}")
        else:
            self.folder_of = {c: f"{ROOT}/{c}/{name}" for c in controllers}
        self.folders = list(dict.fromkeys(self.folder_of.values()))
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)

    def set(self, controller, first, second):
        """first, second: (file, value) for groups of that version."""
        file, value = second if self.is_unified else first
        _write(f"{self.folder_of[controller]}/{file}", value)

    def prefix(self):
        """The command that runs what follows inside."""
        enter = 'for d in $0; do echo $$ > "$d/cgroup.procs" || exit; done; exec "$@"'
        return ["sh", "-c", enter, " ".join(self.folders)] if self.folders else []

    def take(self, pid):
        for folder in self.folders:
            _write(f"{folder}/cgroup.procs", pid)

    def release(self):
        """Everybody inside goes back to where there is no limit."""
        for folder in self.folders:
            for pid in _read(f"{folder}/cgroup.procs").split():
                try:
                    _write(f"{os.path.dirname(folder)}/cgroup.procs", pid)
                except host.HostError:
                    # The process has ended.
                    pass

    @staticmethod
    def _is_removed(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def close(self):
        for folder in self.folders:
            if not host.wait_for(lambda: self._is_removed(folder)):
                host.note(f"{folder} could not be removed")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.close()


class Limits(Group):
    """For everything put into it. cpus, memory (bytes) and rate (bytes a second to and from device,
    "MAJOR:MINOR", each): None is no limit."""

    def __init__(self, device, cpus=None, memory=None, rate=None):
        super().__init__(*[c for c, limit in (("cpu", cpus), ("memory", memory), ("blkio", rate))
                           if limit])
        if cpus:
            quota = int(cpus * PERIOD_US)
            self.set("cpu", ("cpu.cfs_period_us", PERIOD_US), ("cpu.max", f"{quota} {PERIOD_US}"))
            self.set("cpu", ("cpu.cfs_quota_us", quota), ("cpu.max", f"{quota} {PERIOD_US}"))
        if memory:
            self.set("memory", ("memory.limit_in_bytes", memory), ("memory.max", memory))
        for way in ("read", "write") if rate else ():
            self.set("blkio", (f"blkio.throttle.{way}_bps_device", f"{device} {rate}"),
                     ("io.max", f"{device} {way[0]}bps={rate}"))


class _Around(Group):
    """Around this process and all that it starts. What was used before stays with the group it
    was in."""

    def __init__(self, controller):
        super().__init__(controller)
        self.home = _own_folder(controller)

    def __enter__(self):
        self.take(os.getpid())
        return self

    def __exit__(self, *_):
        _write(f"{self.home}/cgroup.procs", os.getpid())
        # What was started in the group may still be leaving.
        self.close()


class Memory(_Around):
    """Page cache included; limit None is no limit: to count only."""

    def __init__(self, limit=None):
        super().__init__("memory")
        if limit:
            self.set("memory", ("memory.limit_in_bytes", limit), ("memory.max", limit))

    def _seen(self, first, second):
        return _read(f"{self.folders[0]}/{second if self.is_unified else first}")

    def peak(self):
        """Most bytes used so far."""
        return int(self._seen("memory.max_usage_in_bytes", "memory.peak"))

    def cached(self):
        """Bytes of page cache that came in through processes of the group."""
        text = self._seen("memory.stat", "memory.stat")
        found = dict(line.split()[:2] for line in text.splitlines())
        return int(found["file" if self.is_unified else "total_cache"])


class Device(_Around):
    """Traffic of one block device of ours, "MAJOR:MINOR", each way, in bytes and in requests a
    second."""

    def __init__(self, device, bytes_a_second, requests_a_second):
        super().__init__("blkio")
        self.device, self.limits = device, (bytes_a_second, requests_a_second)

    def _set(self, limits):
        if self.is_unified:
            by_bytes, by_requests = (n or "max" for n in limits)
            _write(f"{self.folders[0]}/io.max",
                   f"{self.device} rbps={by_bytes} wbps={by_bytes} "
                   f"riops={by_requests} wiops={by_requests}")
            return
        # In version 1 what the kernel writes back later is the root group's.
        for path in (*self.folders, f"{ROOT}/blkio"):
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
