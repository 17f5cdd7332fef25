# SPDX-License-Identifier: Apache-2.0
"""Limits by control groups of the first version: processors, memory, bytes to and from a disk."""

import os

from . import host

ROOT = "/sys/fs/cgroup"
PERIOD_US = 100000


def missing(controllers):
    """Which of these can not be used here."""
    return [c for c in controllers if not os.path.exists(f"{ROOT}/{c}/cgroup.procs")]


class Limits:
    """One group for everything put into it. Use as a context; its processes must be gone by the
    end. cpus, memory (bytes) and rate (bytes a second to and from device, each): None is no
    limit."""

    def __init__(self, name, device, cpus=None, memory=None, rate=None):
        wanted = []
        if cpus:
            wanted += [("cpu", "cpu.cfs_period_us", PERIOD_US),
                       ("cpu", "cpu.cfs_quota_us", int(cpus * PERIOD_US))]
        if memory:
            wanted += [("memory", "memory.limit_in_bytes", memory)]
        if rate:
            wanted += [("blkio", f"blkio.throttle.{way}_bps_device", f"{device} {rate}")
                       for way in ("read", "write")]
        lacking = missing(c for c, _, _ in wanted)
        if lacking:
            raise host.HostError(f"no control groups of the first version: {', '.join(lacking)}")
        self.folders = list(dict.fromkeys(f"{ROOT}/{c}/{name}" for c, _, _ in wanted))
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)
        for controller, key, value in wanted:
            self._write(f"{ROOT}/{controller}/{name}/{key}", value)

    @staticmethod
    def _write(path, value):
        with open(path, "w", encoding="ascii") as f:
            f.write(str(value))

    def prefix(self):
        """The command that runs what follows inside."""
        enter = 'for d in $0; do echo $$ > "$d/cgroup.procs" || exit; done; exec "$@"'
        return ["sh", "-c", enter, " ".join(self.folders)] if self.folders else []

    def take(self, pid):
        for folder in self.folders:
            self._write(f"{folder}/cgroup.procs", pid)

    def _is_removed(self, folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def release(self):
        """Everybody inside goes back to where there is no limit."""
        for folder in self.folders:
            root = os.path.dirname(folder)
            with open(f"{folder}/cgroup.procs", encoding="ascii") as f:
                pids = f.read().split()
            for pid in pids:
                try:
                    self._write(f"{root}/cgroup.procs", pid)
                except ProcessLookupError:
                    pass

    def close(self):
        for folder in self.folders:
            if os.path.isdir(folder) and not host.wait_for(lambda: self._is_removed(folder)):
                host.note(f"{folder} could not be removed")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.close()
