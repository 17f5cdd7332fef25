# SPDX-License-Identifier: Apache-2.0
"""Writable views of a lower tree, as drivers make them."""

import os
import subprocess

from . import host, world


class View:
    """path: where to work. world: in which namespaces; code and commands of a scenario go through
    `call` and `run`, so that they meet the view where a container would."""

    world = world.HERE

    def __init__(self, path):
        self.path = path

    def call(self, function, *args):
        """function(*args) where the view is mounted. What it returns must be plain data."""
        return self.world.call(function, *args)

    def argv(self, *argv):
        """The command that runs argv where the view is mounted."""
        return [*self.world.prefix(), *argv]

    def run(self, *argv, cwd=None):
        """Its standard output; HostError when it fails."""
        if cwd:
            argv = ("sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv)
        return host.run(*self.argv(*argv))

    def bytes_taken(self):
        """What the view has taken on disk so far."""
        return host.tree_bytes(self.path)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Copy(View):
    """A plain directory in a scratch directory of its own, removed with it."""

    def close(self):
        host.run("rm", "-rf", os.path.dirname(self.path))


class Bound(View):
    """A mount point in a scratch directory of its own; what is mounted there stays elsewhere."""

    def __init__(self, base):
        self.base = base
        super().__init__(os.path.join(base, "mnt"))
        os.mkdir(self.path)

    def close(self):
        host.unmount(self.path)
        os.rmdir(self.path)
        os.rmdir(self.base)


class Snapshot(View):
    """A btrfs snapshot."""

    def bytes_taken(self):
        return host.exclusive_bytes(self.path)

    def close(self):
        host.run("btrfs", "subvolume", "delete", self.path)
        os.rmdir(os.path.dirname(self.path))


class ThinSnapshot(View):
    """A thin volume that is a snapshot of another one."""

    def __init__(self, pool, lower, base):
        self.pool, self.base = pool, base
        super().__init__(os.path.join(base, "mnt"))
        os.mkdir(self.path)
        pool.snapshot(lower, self.path)

    def bytes_taken(self):
        # Only the pool knows, and what others take meanwhile is in it.
        host.sync_fs(self.path)
        return self.pool.used_bytes()

    def close(self):
        host.unmount(self.path)
        self.pool.forget(self.path)
        host.run("rm", "-rf", "--one-file-system", self.base)


class Union(View):
    """upper, work and mount point in one scratch directory, removed at close."""

    def __init__(self, work, kind, where=world.HERE):
        self.base, self.world = work.scratch(kind), where
        self.by_statvfs = kind == "xfs"
        self.upper, self.work, path = (os.path.join(self.base, d) for d in ("up", "wk", "mnt"))
        for d in (self.upper, self.work, path):
            os.mkdir(d)
        super().__init__(path)

    def options(self, lower, *more):
        return ",".join([f"lowerdir={lower}", f"upperdir={self.upper}",
                         f"workdir={self.work}", *more])

    def bytes_taken(self):
        # Blocks shared by reflink count in st_blocks of both files.
        return host.used_bytes(self.base) if self.by_statvfs else host.tree_bytes(self.upper)

    def is_mounted(self):
        return self.world.is_mounted(self.path)

    def unmount(self):
        if self.is_mounted():
            self.world.unmount(self.path)

    def leave(self):
        """Nothing works on the upper any more; it stays."""
        self.unmount()

    def close(self):
        self.leave()
        host.run("rm", "-rf", "--one-file-system", self.base)


class Served(Union):
    """A union mount whose server runs in the foreground and leaves with it."""

    server = None

    def start(self, argv):
        log_path = os.path.join(self.base, "log")
        with open(log_path, "wb") as log:
            self.server = subprocess.Popen(self.argv(*argv), stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log)
        if not host.wait_for(self.is_mounted, lambda: self.server.poll() in (None, 0)):
            with open(log_path, encoding="utf-8") as log:
                text = log.read().strip()
            self.close()
            raise host.HostError(f"{argv[0]}: no mount: {text}")
        self.call(os.stat, self.path)

    def leave(self):
        super().leave()
        if self.server:
            # The next driver must not share the machine with a server that is still leaving.
            try:
                self.server.wait(host.WAIT_S)
            except subprocess.TimeoutExpired:
                host.note(f"server {self.server.args[0]} did not leave after umount, as when another "
                          "mount namespace holds its mount: ended")
                self.server.kill()
                self.server.wait()
