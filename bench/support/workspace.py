# SPDX-License-Identifier: Apache-2.0
"""Where a scenario works: its volumes, its lower trees, its scratch directories."""

import os
import tempfile

from . import host, thin, world

# Sparse; what a driver keeps of 64 containers must fit.
SIZES = {"ext4": 28 << 30, "xfs": 12 << 30, "btrfs": 12 << 30}


class Workspace:
    """The volume "host" is an ext4 with a journal on a loop device, like those of the other file
    systems, or the file system the directory is on. Use as a context: all is undone at the end, as
    much as can be; what could not is one HostError."""

    def __init__(self, root, on_loop=True):
        self.root, self.host_kind = root, "ext4" if on_loop else "host"
        self.loops, self.made, self.shorts, self.serial = {}, {}, [], 0
        os.makedirs(root)

    def volume(self, kind):
        """Directory of that volume, made at first use."""
        kind = self.host_kind if kind == "host" else kind
        if kind == "host":
            return self.root
        if kind == thin.KIND and kind not in self.loops:
            self.loops[kind] = thin.Pool(os.path.join(self.root, kind),
                                         os.path.join(self.root, f"vol-{kind}"))
        if kind not in self.loops:
            image = os.path.join(self.root, f"{kind}.img")
            point = os.path.join(self.root, f"vol-{kind}")
            self.loops[kind] = host.LoopFs(kind, image, point, SIZES[kind])
        return self.loops[kind].mountpoint

    def device(self, kind):
        """"MAJOR:MINOR" of the device below that volume."""
        dev = os.stat(self.volume(kind)).st_dev
        loop = self.loops.get(self.host_kind if kind == "host" else kind)
        if loop:
            dev = os.stat(loop.device).st_rdev
        return f"{os.major(dev)}:{os.minor(dev)}"

    def lower(self, kind, name, build):
        """The lower tree of that name on that volume: build(path) fills it at first use."""
        path = os.path.join(self.volume(kind), "lower-" + name)
        if (kind, name) not in self.made:
            volume = self.loops.get(kind)
            (volume.make_tree if volume else os.mkdir)(path)
            build(path)
            os.sync()
            self.made[kind, name] = path
        return path

    def scratch(self, kind):
        """A new empty directory on that volume. The caller removes it."""
        self.serial += 1
        path = os.path.join(self.volume(kind), f"view-{self.serial}")
        os.mkdir(path)
        return path

    def short_scratch(self):
        """A new empty directory on no volume, whose path is short wherever the others are: for
        sockets, and for programs that limit it. It goes with the workspace."""
        path = tempfile.mkdtemp(prefix="veneer-bench-", dir="/tmp")
        self.shorts.append(path)
        return path

    def _close_files(self):
        """Closes files of this process: a step that was broken off may hold a mount by one."""
        for fd in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{fd}").startswith(self.root + "/"):
                    os.close(int(fd))
            except OSError:
                pass

    def close(self):
        # What was broken off has left files, servers, namespaces and mounts.
        self._close_files()
        volumes = [loop.mountpoint for loop in self.loops.values()]
        points = [point for root in (self.root, *self.shorts)
                  for point in reversed(host.mounts_below(root)) if point not in volumes]
        failed = []
        for act, *args in [(world.close_all,), (host.end_processes, self.root),
                           *[(host.unmount, point) for point in points],
                           *[(loop.close,) for loop in self.loops.values()],
                           (host.run, "rm", "-rf", "--one-file-system", self.root, *self.shorts)]:
            try:
                act(*args)
            except (OSError, host.HostError) as e:
                failed.append(str(e))
        if failed:
            raise host.HostError("; ".join(failed))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
