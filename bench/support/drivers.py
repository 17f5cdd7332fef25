# SPDX-License-Identifier: Apache-2.0
"""The systems compared, all behind one interface: a driver opens a fresh writable view of a
lower tree and the view tells its path and what it has taken on disk."""

import os
import shutil
import subprocess

from . import fuse, host, predictors
from .driver import Driver
from .views import Bound, Copy, Snapshot, ThinSnapshot, Union, View


def missing_mkfs(kind):
    """Why a file system of that kind can not be made, or None."""
    program = f"mkfs.{kind}"
    return None if kind == "host" or shutil.which(program) else f"{program} is not installed"


class Native(Driver):
    """A plain directory: the floor. One copy of each lower tree, changed in place."""

    in_place = True

    def __init__(self, name, what, kind="host"):
        super().__init__(name, what)
        self.kind = kind

    def missing(self):
        return missing_mkfs(self.kind)

    def open(self, work, lower, keep=True):
        copy = f"{lower}-native" if keep else os.path.join(work.scratch(self.kind), "copy")
        if not os.path.isdir(copy):
            host.run("cp", "-a", "--reflink=never", lower, copy)
            os.sync()
        return View(copy) if keep else Copy(copy)


class DataVolume(Native):
    """The directory bind-mounted, as engines give a container a volume."""

    def open(self, work, lower, keep=True):
        view = Bound(work.scratch(self.kind))
        host.run("mount", "--bind", super().open(work, lower).path, view.path)
        return view


class Vfs(Driver):
    """What Podman and Docker call vfs: the whole tree is copied for each container."""

    def open(self, work, lower, keep=True):
        copy = os.path.join(work.scratch(self.kind), "copy")
        host.run("cp", "-a", "--reflink=never", lower, copy)
        return Copy(copy)


class Reflink(Driver):
    """A copy of each file that shares its blocks, as XFS has them."""

    kind = "xfs"

    def missing(self):
        return missing_mkfs(self.kind)

    def open(self, work, lower, keep=True):
        copy = os.path.join(work.scratch(self.kind), "copy")
        host.run("cp", "-a", "--reflink=always", lower, copy)
        return Copy(copy)


class Overlay(Driver):
    """The kernel's overlayfs."""

    def __init__(self, name, what, kind="host", options=("metacopy=off",)):
        super().__init__(name, what)
        self.kind, self.options = kind, options

    def missing(self):
        return missing_mkfs(self.kind)

    def version(self):
        return "kernel " + os.uname().release

    def mount_options(self):
        return ",".join(self.options)

    def open(self, work, lower, keep=True):
        view = Union(work, self.kind)
        try:
            host.run("mount", "-t", "overlay", "overlay", "-o",
                     view.options(lower, *self.options), view.path)
        except host.HostError:
            view.close()
            raise
        return view


class Btrfs(Driver):
    """No union at all: the lower tree is a subvolume, the view a snapshot of it."""

    kind = "btrfs"

    def missing(self):
        return missing_mkfs(self.kind)

    def open(self, work, lower, keep=True):
        base = work.scratch(self.kind)
        path = os.path.join(base, "snap")
        host.run("btrfs", "subvolume", "snapshot", lower, path)
        return Snapshot(path)


class DmThin(Driver):
    """Device mapper's thin snapshots: the lower tree is an ext4 on a thin volume, the view one on
    a snapshot of that."""

    kind = "dm-thin"

    def missing(self):
        if not os.path.exists("/dev/mapper/control"):
            return "the kernel has no device mapper"
        if not shutil.which("dmsetup"):
            return "dmsetup is not installed"
        # Without it the kernel loads the module by itself, or has it.
        if shutil.which("modprobe"):
            subprocess.run(["modprobe", "-q", "dm_thin_pool"], stderr=subprocess.DEVNULL, check=False)
        try:
            has_pools = "thin-pool" in host.run("dmsetup", "targets")
        except host.HostError as e:
            return str(e)
        return None if has_pools else "the kernel's device mapper has no thin pools"

    def open(self, work, lower, keep=True):
        work.volume(self.kind)
        return ThinSnapshot(work.loops[self.kind], lower, work.scratch(self.kind))


def veneer_binary():
    return os.environ.get("VENEER_BIN") or os.path.join(host.TOP, "build", "veneer")


def every_driver():
    """All there are, in the order of the tables."""
    veneer = veneer_binary()
    more = os.environ.get("VENEER_ARGS", "").split()
    first, second = "/usr/bin/fuse-overlayfs", fuse.second_binary()
    return [
        Native("native", "a plain directory, changed in place"),
        Overlay("overlayfs", "kernel overlayfs on ext4, metacopy=off"),
        Overlay("overlayfs-metacopy", "the same, metacopy=on",
                options=("metacopy=on", "redirect_dir=on")),
        fuse.Fuse("veneer", "this project (VENEER_BIN, VENEER_ARGS), io=auto", veneer, more),
        fuse.Fuse("veneer-cached", "the same, io=cached", veneer, [*more, "-o", "io=cached"]),
        fuse.Fuse("veneer-direct", "the same, io=direct", veneer, [*more, "-o", "io=direct"]),
        fuse.Rootless("veneer-rootless", "the same in a user namespace", veneer, more),
        fuse.Fuse("fuse-overlayfs", "fuse-overlayfs 1.x of the distribution", first),
        fuse.Rootless("fuse-overlayfs-rootless", "the same in a user namespace", first),
        fuse.CargoFuse("fuse-overlayfs-2", "fuse-overlayfs 2 built by cargo", second),
        Overlay("overlayfs-xfs", "kernel overlayfs on XFS with reflink, loop device", kind="xfs"),
        Btrfs("btrfs", "btrfs snapshot, loop device"),
        Vfs("vfs", "a full copy of the lower tree for each view"),
        DmThin("dm-thin", "device mapper: ext4 on a thin snapshot of the lower's volume"),
    ] + _when_named(veneer, more)


def _when_named(veneer, more):
    """For scenarios about what lies below or beside a union."""
    found = [DataVolume("volume", "a plain directory, bind-mounted: a container's data volume")]
    for kind, what in (("xfs", "XFS"), ("btrfs", "btrfs")):
        found += [
            Native(f"native-{kind}", f"a plain directory on {what}, loop device", kind),
            fuse.Fuse(f"veneer-{kind}", f"this project on {what}, loop device", veneer, more,
                      kind),
        ]
    found.append(Reflink("reflink", "cp --reflink=always on XFS, loop device"))
    found.append(Overlay("overlayfs-btrfs", "kernel overlayfs on btrfs, loop device", "btrfs"))
    for copies in ("2", "all"):
        found.append(fuse.Rootless(f"veneer-copies-{copies}", f"veneer-rootless, copies={copies}",
                                   veneer, [*more, "-o", f"copies={copies}"]))
    found.append(fuse.Fuse("veneer-asleep", "veneer, cpu-latency=off: idle processors sleep", veneer,
                           [*more, "-o", "cpu-latency=off"]))
    found.append(fuse.Fuse("veneer-writeback", "veneer, io=cached,writeback=on: the kernel keeps writes", veneer,
                           [*more, "-o", "io=cached,writeback=on"]))
    found.append(fuse.Rootless("veneer-share", "veneer-rootless, share=pages", veneer,
                               [*more, "-o", "share=pages"]))
    found += predictors.every()
    for d in found:
        d.when_named = True
    return found
