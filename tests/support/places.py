# SPDX-License-Identifier: Apache-2.0
"""Mounts by the mount program, many of them, served by one server."""
import os
import subprocess

from .shared import SharedServer


class Place:
    """Directories of one mount, beside those of others."""

    def __init__(self, stack, name, lowers=None):
        self.base = stack.base / name
        self.base.mkdir()
        self.upper, self.work, self.mnt = (self.base / part for part in ("upper", "work", "mnt"))
        for path in (self.upper, self.work, self.mnt):
            path.mkdir()
        self.lowers = lowers or [stack.lower()]

    def options(self, *more):
        return ",".join(["lowerdir=" + ":".join(map(str, self.lowers)), f"upperdir={self.upper}",
                         f"workdir={self.work}", *more])

    def run(self, stack, shared, *more, **keywords):
        return subprocess.run([stack.program, "-o", self.options(*more), str(self.mnt)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, **shared.environment}, timeout=60, **keywords)

    def mount(self, stack, shared, *more, **keywords):
        # A test that mounts goes on: the server's time begins anew.
        if isinstance(shared, SharedServer):
            shared.watch()
        result = self.run(stack, shared, *more, **keywords)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), result
        return self.mnt
