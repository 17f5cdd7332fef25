# SPDX-License-Identifier: Apache-2.0
"""Control groups of a test, of both kinds: below the groups that this process is in, so that their limits
and counts still hold."""
import os
import pathlib
import signal
import time


def hierarchies(pid="self"):
    """(controllers, path) of each; no controllers: the second kind."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        yield controllers, path


def _mount_of(controllers):
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options, *_ = line.split()
        if (kind == "cgroup2") if not controllers else (kind == "cgroup" and set(controllers.split(",")) <= set(options.split(","))):
            return point
    return None


class Groups:
    """`outer` in each hierarchy, and groups in it. A user without the right to make them gets an OSError."""

    def __init__(self, name):
        self.outer = {}
        try:
            for controllers, path in hierarchies():
                point = _mount_of(controllers)
                if point is None:
                    if path == "/":
                        continue
                    raise FileNotFoundError(f"no place of {controllers}{path}")
                outer = pathlib.Path(point + path) / name
                outer.mkdir()
                self._prepare(outer)
                self.outer[controllers] = outer
        except OSError:
            self.close()
            raise

    @staticmethod
    def _prepare(group):
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((group.parent / file).read_text())

    def make(self, name):
        for outer in self.outer.values():
            (outer / name).mkdir()
            self._prepare(outer / name)

    def enter(self, name):
        """This process, for instance before it becomes another."""
        for outer in self.outer.values():
            (outer / name / "cgroup.procs").write_text("0")

    def where(self, pid):
        """Names of groups below outer that a process is in, over all hierarchies; "" for one that is elsewhere."""
        return {pathlib.PurePath(path).name if f"/{self.outer[c].name}/" in path else ""
                for c, path in hierarchies(pid) if c in self.outer}

    def kill(self, name):
        """All of them, as a manager does that ends a container."""
        unified = self.outer.get("")
        if unified and (unified / name / "cgroup.kill").exists():
            (unified / name / "cgroup.kill").write_text("1")
        for outer in self.outer.values():
            for pid in (outer / name / "cgroup.procs").read_text().split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def close(self):
        end = time.monotonic() + 10
        for outer in self.outer.values():
            for group in [*(p for p in outer.iterdir() if p.is_dir()), outer]:
                while group.exists():
                    try:
                        group.rmdir()
                    except OSError:
                        if time.monotonic() > end:
                            raise
                        time.sleep(0.01)
