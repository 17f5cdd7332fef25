# SPDX-License-Identifier: Apache-2.0
"""Disks that can be pictured while they are in use: a picture holds what had reached the disk.

A disk is a file on an XFS with shared extents, attached as a loop device that bypasses the page
cache. Cloning the file is atomic, and leaves out whatever the kernel had not yet written.
"""
import contextlib
import dataclasses
import fcntl
import os
import shutil
import subprocess
import time

from support import linux

_FICLONE = 0x40049409
_DISK_BYTES = 320 << 20
_HOST_BYTES = 8 << 30


@dataclasses.dataclass(frozen=True)
class Kind:
    mkfs: tuple
    options: str = ""
    picture_options: str = ""
    unit: int = 4096
    sector: int = 4096
    # Without one a file's extents may be half split when the power fails: its inode, which a stranger's
    # fsync writes, speaks of a leaf that is not there yet. e2fsck then clears the file, with what was
    # synced long before, by any program (seen without a union, by one block more than 340 extents).
    has_journal: bool = True
    # Without a journal each directory gets to the disk by itself; an fsync on btrfs logs the new name of a file, and
    # the old one goes with the commit.
    has_whole_renames: bool = True

    @property
    def fstype(self):
        return self.mkfs[0].split(".")[1]


_EXT4 = ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")
KINDS = {
    "ext4": Kind(_EXT4 + ("-b", "4096")),
    "ext4_1k": Kind(_EXT4 + ("-b", "1024"), unit=1024, sector=512),
    "ext4_nojournal": Kind(_EXT4 + ("-b", "4096", "-O", "^has_journal"), has_journal=False, has_whole_renames=False),
    "xfs": Kind(("mkfs.xfs", "-q", "-f", "-s", "size=4096"), picture_options="nouuid"),
    # fsync writes the tree of one file there; all others wait for the commit
    "btrfs": Kind(("mkfs.btrfs", "-q", "-f"), options="commit=1", has_whole_renames=False),
}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def clone_file(source, target):
    with open(source, "rb") as old, open(target, "xb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def _attach(image, *options):
    """A loop device that nobody else took in between."""
    for _ in range(5):
        with contextlib.suppress(RuntimeError):
            return run("losetup", *options, "-f", "--show", image)
    return run("losetup", *options, "-f", "--show", image)


def mount_image(image, target, fstype, options, *loop_options):
    """Mounted so that the loop device goes with the mount, however the tests end."""
    device = _attach(image, *loop_options)
    try:
        run("mount", "-t", fstype, "-o", options or "defaults", device, target)
    finally:
        run("losetup", "-d", device)


def unmount(target, limit_s=10):
    end = time.monotonic() + limit_s
    while True:
        try:
            return linux.umount(str(target))
        except OSError:
            if time.monotonic() > end:
                linux.umount(str(target), linux.MNT_DETACH)
                raise
            time.sleep(0.01)


class Host:
    """The file system the disks' files are on."""

    def __init__(self, directory):
        self.path, self._image = directory / "host", directory / "host.img"
        self.path.mkdir()
        with open(self._image, "xb") as f:
            f.truncate(_HOST_BYTES)
        run("mkfs.xfs", "-q", "-m", "reflink=1", self._image)
        mount_image(self._image, self.path, "xfs", "")
        self._number = 0

    def fresh(self, stem):
        self._number += 1
        return self.path / f"{stem}-{self._number}.img"

    def formatted(self, name):
        """A file with an empty file system of this kind: made once, cloned for each disk."""
        blank = self.path / f"{name}.blank"
        if not blank.exists():
            with open(blank, "xb") as f:
                f.truncate(_DISK_BYTES)
            run(*KINDS[name].mkfs, blank)
            fd = os.open(blank, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        image = self.fresh(name)
        clone_file(blank, image)
        return image

    def close(self):
        unmount(self.path)
        self._image.unlink()
        self.path.rmdir()


@dataclasses.dataclass
class Picture:
    """The states of the disk between start and end."""
    image: object
    start: float
    end: float
    number: int


class Disk:
    """A disk in use, mounted at path."""

    def __init__(self, host, name, path, image=None):
        self.host, self.name, self.kind, self.path = host, name, KINDS[name], path
        self.image = image or host.formatted(name)
        if image and not self.kind.has_journal:
            _repair(self.image)
        path.mkdir(exist_ok=True)
        options = [self.kind.options] + ([self.kind.picture_options] if image else [])
        mount_image(self.image, path, self.kind.fstype, ",".join(filter(None, options)),
                    "--direct-io=on", f"--sector-size={self.kind.sector}")
        self.pictures = 0

    def picture(self):
        start, image = time.monotonic(), self.host.fresh("picture")
        clone_file(self.image, image)
        self.pictures += 1
        return Picture(image, start, time.monotonic(), self.pictures)

    def forget_unused_names(self):
        """As when memory is short: the kernel drops the names that nobody holds."""
        run("mount", "-o", "remount", self.path)

    def close(self):
        unmount(self.path)
        if self.kind.fstype == "btrfs":
            # else the next picture, which has the same identity, might be taken for this one
            run("btrfs", "device", "scan", "--forget")
        self.image.unlink()


def _repair(image):
    """Without a journal the file system is mounted after fsck only."""
    done = subprocess.run(["e2fsck", "-fy", str(image)], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr


def what_is_missing(name):
    """Why there can be no disk of this kind here; None if there can."""
    kind = KINDS[name]
    tools = {"losetup", "mount", "e2fsck", "mkfs.xfs", kind.mkfs[0]}
    if missing := sorted(tool for tool in tools if not shutil.which(tool)):
        return f"not installed: {', '.join(missing)}"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices here"
    for fstype in ("xfs", kind.fstype):
        if shutil.which("modprobe"):
            subprocess.run(["modprobe", "-q", fstype], check=False, capture_output=True)
        with open("/proc/filesystems") as f:
            if fstype not in f.read().split():
                return f"this kernel has no {fstype}"
    return None
