# SPDX-License-Identifier: Apache-2.0
"""Several mounts of the same layers in a server of their own, with share=pages or without."""
import pathlib
import shutil

from . import linux
from .command import mount_points
from .server import SharedMount
from .shared import SharedServer


class Siblings:
    def __init__(self, base, program, watchdog):
        self.base, self.program, self.watchdog = base, program, watchdog
        base.mkdir(mode=0o755)
        self.lower = self.directory("lower")
        self.server = SharedServer(program, base / "run", watchdog, arguments=("--idle", "600"))
        self.server.ensure()
        self.mounts = []

    def directory(self, name):
        path = self.base / name
        path.mkdir(exist_ok=True)
        return path

    def mount(self, *options, name=None, lowers=None, has_upper=True):
        """The same name is the same upper."""
        name = name or str(len(self.mounts))
        upper, work = (self.directory(f"{kind}-{name}") for kind in ("upper", "work"))
        made = SharedMount(self.server, self.program, lowers or [self.lower], upper if has_upper else None,
                           work if has_upper else None, self.directory(f"mnt-{name}"), self.base / f"log-{name}",
                           self.watchdog)
        made.start(*options)
        self.mounts.append(made)
        return made

    def shared(self, *options, **keywords):
        """Its mount point."""
        return pathlib.Path(self.mount("share=pages", *options, **keywords).mnt)

    def count(self):
        return self.server.count()

    def close(self):
        # also those whose server is dead
        for point in reversed(mount_points(self.base)):
            linux.umount(point, linux.MNT_DETACH)
        problems = [line for mount in self.mounts for line in mount.bad_signs()]
        problems += [line for line in self.server.log.splitlines() if "Sanitizer" in line or "runtime error" in line]
        if self.server.process and (code := self.server.stop()):
            problems.append(f"the server ended with {code}")
        log = self.server.log
        shutil.rmtree(self.base, ignore_errors=True)
        assert not problems, f"{problems}\n{log[-4000:]}"
