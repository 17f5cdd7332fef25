# SPDX-License-Identifier: Apache-2.0
"""The machine: commands, caches, loop devices, space taken, and its description."""

import ctypes
import fcntl
import hashlib
import os
import platform
import struct
import subprocess
import sys
import time

FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 1
FIEMAP_EXTENT_LAST = 1
FIEMAP_EXTENT_SHARED = 0x2000
FIEMAP_HEADER = struct.Struct("=QQLLLL")
FIEMAP_EXTENT = struct.Struct("=QQQ16xL12x")
FIEMAP_BATCH = 256

# PM_QOS_CPU_LATENCY_DEFAULT_VALUE
NO_LATENCY_US = 2000000000

SETTLE_MAX_S = 1
WAIT_S = 10
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

libc = ctypes.CDLL(None, use_errno=True)


class HostError(Exception):
    """A command the bench depends on failed; the text says which."""


def note(text):
    print(text, file=sys.stderr, flush=True)


def run(*args, given=""):
    """What a command prints, which reads the text `given`."""
    done = subprocess.run(args, input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode:
        raise HostError(f"{' '.join(args)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def wait_for(is_so, goes_on=lambda: True):
    """Whether is_so() became true before WAIT_S seconds and the end of goes_on()."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        if not goes_on() or time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def asked_latency_us():
    """How long waking a processor may take, by what some process asks of the kernel; None: by nobody."""
    try:
        with open("/dev/cpu_dma_latency", "rb") as f:
            us, = struct.unpack("=i", f.read(4))
    except OSError:
        return None
    return us if us < NO_LATENCY_US else None


def let_processors_sleep():
    """Before a driver's turn: no other driver's server keeps them awake for it."""
    if not wait_for(lambda: asked_latency_us() is None):
        note(f"some process keeps processors awake ({asked_latency_us()} us)")


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3")


def _discards(path):
    dev = os.stat(path).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}/stat", encoding="ascii") as f:
            return f.read().split()[11:12]
    except OSError:
        return None


def settle(path):
    """Sync everything, then wait until the disk under path has trimmed what was freed: ext4 with
    discard does so after the commit, and creating files in those groups waits for it."""
    os.sync()
    last, same, end = None, 0, time.monotonic() + SETTLE_MAX_S
    while same < 3 and time.monotonic() < end:
        now = _discards(path)
        same, last = (same + 1 if now == last else 0), now
        time.sleep(0.02)


def lacks_journal(path):
    """True for an ext4 without one. It does not give a removed inode out again for minutes, and
    every create walks past all of them: removals of one driver slow the creates of the next."""
    dev = os.stat(path).st_dev
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}"))
    try:
        with open(f"/sys/fs/ext4/{name}/journal_task", encoding="ascii") as f:
            return f.read().strip() == "<none>"
    except OSError:
        return False


def sync_fs(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(fd):
            raise OSError(ctypes.get_errno(), "syncfs", path)
    finally:
        os.close(fd)


def unmount(path, prefix=(), is_mounted=None):
    """A reader that has just exited may hold the mount for some milliseconds more. prefix: the
    command that leads to where it is mounted."""
    is_mounted = is_mounted or (lambda: os.path.ismount(path))
    for _ in range(50):
        done = subprocess.run([*prefix, "umount", path], stderr=subprocess.PIPE, text=True,
                              check=False)
        if not done.returncode or not is_mounted():
            return
        time.sleep(0.1)
    raise HostError(f"umount {path}: {done.stderr.strip()}")


def processes_of(root):
    """Processes with a path below root among their arguments, without this one."""
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if pid != str(os.getpid()) and root.encode() + b"/" in f.read():
                    yield int(pid)
        except OSError:
            pass


def end_processes(root):
    for pid in processes_of(root):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    wait_for(lambda: not list(processes_of(root)))


def mounts_below(root):
    """Mount points under root, in the order they were mounted."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        points = [line.split()[1] for line in f]
    return [p for p in points if p.startswith(root + "/")]


def walk(root):
    """Every path below root, root included, never following links."""
    yield root
    for here, dirs, files in os.walk(root):
        for name in dirs + files:
            yield os.path.join(here, name)


def tree_bytes(root):
    """Allocated bytes by st_blocks, directories included, hard links once."""
    seen = {}
    for path in walk(root):
        st = os.lstat(path)
        seen[st.st_dev, st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


def exclusive_bytes(root):
    """Bytes in extents no other file shares: what a snapshot has taken for itself."""
    total = 0
    for path in walk(root):
        if os.path.isfile(path) and not os.path.islink(path):
            total += _exclusive_extents(path)
    return total


def _exclusive_extents(path):
    total, start, flags = 0, 0, FIEMAP_FLAG_SYNC
    fd = os.open(path, os.O_RDONLY)
    try:
        while True:
            head = FIEMAP_HEADER.pack(start, (1 << 64) - 1 - start, flags, 0, FIEMAP_BATCH, 0)
            buf = bytearray(head + bytes(FIEMAP_EXTENT.size * FIEMAP_BATCH))
            fcntl.ioctl(fd, FS_IOC_FIEMAP, buf)
            count = FIEMAP_HEADER.unpack_from(buf)[3]
            for i in range(count):
                at = FIEMAP_HEADER.size + i * FIEMAP_EXTENT.size
                logical, _, length, kind = FIEMAP_EXTENT.unpack_from(buf, at)
                total += 0 if kind & FIEMAP_EXTENT_SHARED else length
                if kind & FIEMAP_EXTENT_LAST:
                    return total
                start = logical + length
            if not count:
                return total
            flags = 0
    finally:
        os.close(fd)


def used_bytes(path):
    """Bytes taken on the whole file system, read until two readings agree: space of removed
    files comes back in the background."""
    sync_fs(path)
    last = None
    for _ in range(50):
        st = os.statvfs(path)
        used = (st.f_blocks - st.f_bfree) * st.f_frsize
        if used == last:
            return used
        last = used
        time.sleep(0.02)
    return last


def is_attached(device, image):
    """Whether that loop device is still of that file: a device that was let go of may be
    somebody else's by now."""
    name = os.path.basename(device)
    try:
        with open(f"/sys/block/{name}/loop/backing_file", encoding="utf-8") as f:
            return f.read().strip() == os.path.realpath(image)
    except OSError:
        return False


def detach(device, image):
    """Does nothing where the device was detached meanwhile, as whatever is told of a device's last
    unmount may do."""
    if not is_attached(device, image):
        return
    try:
        run("losetup", "-d", device)
    except HostError:
        if is_attached(device, image):
            raise


class LoopFs:
    """A file system in a sparse file on a loop device."""

    def __init__(self, kind, image, mountpoint, size):
        self.kind, self.image, self.mountpoint, self.device = kind, image, mountpoint, None
        with open(image, "wb") as f:
            f.truncate(size)
        os.makedirs(mountpoint, exist_ok=True)
        run(f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", image)
        try:
            self.device = run("losetup", "--direct-io=on", "-f", "--show", image).strip()
            run("mount", "-t", kind, self.device, mountpoint)
        except HostError:
            self.close()
            raise

    def make_tree(self, path):
        """A new, empty tree that the drivers of that file system can take snapshots of."""
        if self.kind == "btrfs":
            run("btrfs", "subvolume", "create", path)
        else:
            os.mkdir(path)

    def close(self):
        if os.path.ismount(self.mountpoint):
            unmount(self.mountpoint)
        if self.device:
            detach(self.device, self.image)
            self.device = None
        if os.path.exists(self.image):
            os.unlink(self.image)


def digest(path):
    """SHA-256 of a file, shortened; "" when it is not there."""
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()[:16]
    except FileNotFoundError:
        return ""


def _commit():
    """Of the tree the bench lies in, with a + when it has changes; "" without git."""
    try:
        return run("git", "-C", TOP, "describe", "--always", "--dirty=+").strip()
    except (HostError, FileNotFoundError):
        return ""


def describe():
    with open("/proc/meminfo", encoding="ascii") as f:
        mem_kib = int(f.readline().split()[1])
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    return {
        "kernel": platform.release(), "cpus": os.cpu_count(), "processor": model,
        "memory_mib": mem_kib // 1024, "python": platform.python_version(), "commit": _commit(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "load_at_start": round(os.getloadavg()[0], 2),
    }
