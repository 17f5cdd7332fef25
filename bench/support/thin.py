# SPDX-License-Identifier: Apache-2.0
"""Thin volumes of device mapper, and snapshots of them: a pool on two sparse files."""

import os

from . import host

KIND = "dm-thin"
SECTOR = 512
# Of the pool, and as every volume sees itself; sparse.
POOL_BYTES, VOLUME_BYTES, META_BYTES = 12 << 30, 6 << 30, 128 << 20
# What is copied at the first write: Docker's default.
BLOCK_SECTORS = 128
LOW_WATER_BLOCKS = 1024


class Pool:
    """The volume "dm-thin" of a workspace: a directory whose trees are ext4 volumes of their own.
    run: what runs a command, for tests."""

    def __init__(self, base, mountpoint, run=host.run):
        self.mountpoint, self.run = mountpoint, run
        self.name = f"veneer-bench-{os.getpid()}"
        self.files = [f"{base}.meta", f"{base}.data"]
        self.loops, self.active, self.number, self.numbers = [], [], 0, {}
        os.makedirs(mountpoint, exist_ok=True)
        try:
            for path, size in zip(self.files, (META_BYTES, POOL_BYTES)):
                with open(path, "wb") as f:
                    f.truncate(size)
                self.loops.append(run("losetup", "--direct-io=on", "-f", "--show", path).strip())
            meta, data = self.loops
            self._create(self.name, f"0 {POOL_BYTES // SECTOR} thin-pool {meta} {data} "
                                    f"{BLOCK_SECTORS} {LOW_WATER_BLOCKS} 1 skip_block_zeroing")
        except host.HostError:
            self.close()
            raise

    @property
    def device(self):
        return self.loops[1]

    def _create(self, name, table):
        self.run("dmsetup", "create", name, "--table", table)
        self.active.append(name)

    def _message(self, text):
        self.run("dmsetup", "message", self.name, "0", text)

    def _activate(self, number, path, *options):
        """Mount that volume there."""
        name = self.name_of(number)
        self._create(name, f"0 {VOLUME_BYTES // SECTOR} thin /dev/mapper/{self.name} {number}")
        if not options:
            self.run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", f"/dev/mapper/{name}")
        self.run("mount", "-t", "ext4", *options, f"/dev/mapper/{name}", path)
        self.numbers[path] = number

    def name_of(self, number):
        return f"{self.name}-{number}"

    def _next(self):
        self.number += 1
        return self.number

    def make_tree(self, path):
        """A new, empty volume, mounted at path."""
        os.mkdir(path)
        number = self._next()
        self._message(f"create_thin {number}")
        self._activate(number, path)

    def snapshot(self, lower, path):
        """A snapshot of the volume mounted at lower, mounted at path."""
        origin, number = self.name_of(self.numbers[lower]), self._next()
        # Suspending it also freezes its file system.
        self.run("dmsetup", "suspend", origin)
        try:
            self._message(f"create_snap {number} {self.numbers[lower]}")
        finally:
            self.run("dmsetup", "resume", origin)
        self._activate(number, path, "-o", "rw")

    def forget(self, path):
        """Take down the volume that was mounted there, with all that it has taken."""
        number = self.numbers.pop(path)
        self._remove(self.name_of(number))
        self._message(f"delete {number}")

    def _remove(self, name):
        self.run("dmsetup", "remove", "--retry", name)
        self.active.remove(name)

    def used_bytes(self):
        """Data blocks that all volumes have taken together."""
        words = self.run("dmsetup", "status", self.name).split()
        # start length "thin-pool" transaction metadata data ...
        return int(words[5].split("/")[0]) * BLOCK_SECTORS * SECTOR

    def close(self):
        """What is mounted of it has been unmounted."""
        for name in reversed(list(self.active)):
            self._remove(name)
        while self.loops:
            self.run("losetup", "-d", self.loops.pop())
        for path in self.files:
            if os.path.exists(path):
                os.unlink(path)
