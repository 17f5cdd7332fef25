# SPDX-License-Identifier: Apache-2.0
"""The systems compared, all behind one interface: a driver opens a fresh writable view of a
lower tree and the view tells its path and what it has taken on disk."""

import os
import shutil
import subprocess
import time

from . import host

LOOP_SIZE, EXT4_SIZE = 8 << 30, 24 << 30
UNMOUNT_WAIT_S = 10


class Workspace:
    """Scratch directory of one run: the file systems used and the lower trees on each."""

    def __init__(self, root, ext4_loop=False):
        """ext4_loop: "host" stands for an ext4 with a journal on a loop device."""
        self.root, self.host_kind = root, "ext4" if ext4_loop else "host"
        self.loops, self.made, self.serial = {}, {}, 0
        os.makedirs(root)

    def volume(self, kind):
        """Directory on the host's file system ("host") or on a loop device of that kind."""
        kind = self.host_kind if kind == "host" else kind
        if kind == "host":
            return self.root
        if kind not in self.loops:
            image = os.path.join(self.root, f"{kind}.img")
            point = os.path.join(self.root, f"vol-{kind}")
            size = EXT4_SIZE if kind == "ext4" else LOOP_SIZE
            self.loops[kind] = host.LoopFs(kind, image, point, size)
        return self.loops[kind].mountpoint

    def lower(self, kind, name, build):
        """The lower tree of that name on that volume, built at first use."""
        path = os.path.join(self.volume(kind), "lower-" + name)
        if (kind, name) not in self.made:
            if kind == "btrfs":
                host.run("btrfs", "subvolume", "create", path)
            else:
                os.mkdir(path)
            build(path)
            os.sync()
            self.made[kind, name] = path
        return path

    def scratch(self, kind):
        self.serial += 1
        path = os.path.join(self.volume(kind), f"view-{self.serial}")
        os.mkdir(path)
        return path

    def close(self):
        # A signal may have come between a mount and the view that would have undone it.
        for point in reversed(host.mounts_below(self.root)):
            if point not in [loop.mountpoint for loop in self.loops.values()]:
                host.unmount(point)
        for loop in self.loops.values():
            loop.close()
        host.run("rm", "-rf", "--one-file-system", self.root)


class View:
    """A writable view of a lower tree. path: where to work; bytes_taken: on disk, so far."""

    def __init__(self, path):
        self.path = path

    def bytes_taken(self):
        return host.tree_bytes(self.path)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Driver:
    """name: as in results; kind: volume it works on; in_place: changes stay in its files."""

    kind = "host"
    in_place = False

    def __init__(self, name, what):
        self.name, self.what = name, what

    def missing(self):
        """Why this driver can not run here, or None."""
        return None

    def version(self):
        return ""

    def open(self, work, lower, keep=True):
        """A fresh View. keep=False: the caller destroys what it finds."""
        raise NotImplementedError

    def group(self, work):
        """For many views at once."""
        return Group(self)


class Native(Driver):
    """A plain directory: the floor. One copy of each lower tree, changed in place."""

    in_place = True

    def open(self, work, lower, keep=True):
        copy = f"{lower}-native"
        if not keep:
            copy = os.path.join(work.scratch("host"), "copy")
        if not os.path.isdir(copy):
            host.run("cp", "-a", "--reflink=never", lower, copy)
            os.sync()
        return View(copy) if keep else _Removed(copy)


class _Removed(View):
    def close(self):
        host.run("rm", "-rf", os.path.dirname(self.path))


class _Union(View):
    """upper, work and mount point in one scratch directory, removed at close."""

    def __init__(self, work, kind):
        self.base = work.scratch(kind)
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

    def close(self):
        if os.path.ismount(self.path):
            host.unmount(self.path)
        host.run("rm", "-rf", "--one-file-system", self.base)


class Overlay(Driver):
    """The kernel's overlayfs."""

    def __init__(self, name, what, kind="host", options=("metacopy=off",)):
        super().__init__(name, what)
        self.kind, self.options = kind, options

    def missing(self):
        if self.kind == "xfs" and not shutil.which("mkfs.xfs"):
            return "mkfs.xfs is not installed"
        return None

    def open(self, work, lower, keep=True):
        view = _Union(work, self.kind)
        try:
            host.run("mount", "-t", "overlay", "overlay", "-o",
                     view.options(lower, *self.options), view.path)
        except host.HostError:
            view.close()
            raise
        return view


class _FuseView(_Union):
    server = None

    def start(self, argv):
        with open(os.path.join(self.base, "log"), "wb") as log:
            self.server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + UNMOUNT_WAIT_S
        while not os.path.ismount(self.path):
            if self.server.poll() not in (None, 0) or time.monotonic() > end:
                with open(os.path.join(self.base, "log"), encoding="utf-8") as log:
                    text = log.read().strip()
                self.close()
                raise host.HostError(f"{argv[0]}: no mount: {text}")
            time.sleep(0.002)
        os.stat(self.path)

    def close(self):
        if os.path.ismount(self.path):
            host.unmount(self.path)
        if self.server:
            # The next driver must not share the machine with a server that is still leaving.
            try:
                self.server.wait(UNMOUNT_WAIT_S)
            except subprocess.TimeoutExpired:
                host.note(f"server {self.server.args[0]} did not leave after umount: ended")
                self.server.kill()
                self.server.wait()
        super().close()


class Fuse(Driver):
    """Any server with fuse-overlayfs's command line."""

    def __init__(self, name, what, binary, extra=()):
        super().__init__(name, what)
        self.binary, self.extra = binary, list(extra)

    def missing(self):
        if not os.access(self.binary, os.X_OK):
            return f"{self.binary} is not there"
        if not os.path.exists("/dev/fuse"):
            return "no /dev/fuse"
        return None

    def version(self):
        done = subprocess.run([self.binary, "--version"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if "overlayfs" in line or
                 "veneer" in line]
        return lines[0].strip() if lines else ""

    def open(self, work, lower, keep=True):
        view = _FuseView(work, self.kind)
        view.start([self.binary, "-f", *self.extra, "-o", view.options(lower), view.path])
        return view


    def group(self, work):
        """For many views at once, as a container engine starts them: the program detaches."""
        return FuseGroup(self, work)


class Group:
    """Views of one driver that live side by side, and the processes that serve them."""

    def __init__(self, driver):
        self.driver, self.views = driver, []

    def add(self, work, lower):
        view = self.driver.open(work, lower)
        self.views.append(view)
        return view

    def servers(self):
        """Process ids."""
        return []

    def close(self):
        while self.views:
            self.views.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class FuseGroup(Group):
    """The program puts itself into the background; what it becomes is found by its name."""

    def __init__(self, driver, work):
        super().__init__(driver)
        self.env = {**os.environ, "VENEER_RUNTIME_DIR": work.scratch("host")}
        self.before = set(self._running())

    def _running(self):
        mine = os.path.realpath(self.driver.binary)
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.path.realpath(f"/proc/{name}/exe") == mine:
                    yield int(name)
            except OSError:
                pass

    def servers(self):
        return sorted(set(self._running()) - self.before)

    def add(self, work, lower):
        view = _Union(work, self.driver.kind)
        self.views.append(view)
        self.mount(view, lower)
        return view

    def mount(self, view, lower):
        done = subprocess.run([self.driver.binary, *self.driver.extra, "-o", view.options(lower),
                               view.path], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            raise host.HostError(f"{self.driver.binary}: {done.stderr.strip()[:300]}")

    def close(self):
        super().close()
        left = self.servers()
        # A shared server stays for a while; the next driver must not share the machine with it.
        for pid in left:
            try:
                os.kill(pid, 15)
            except ProcessLookupError:
                pass
        end = time.monotonic() + UNMOUNT_WAIT_S
        while self.servers() and time.monotonic() < end:
            time.sleep(0.01)


class CargoFuse(Fuse):
    """fuse-overlayfs 2 from its own package, built once into a cache directory."""

    def missing(self):
        if os.access(self.binary, os.X_OK):
            return super().missing()
        cargo = shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
        if not os.access(cargo, os.X_OK):
            return "cargo is not installed, so it can not be built"
        root = os.path.dirname(os.path.dirname(self.binary))
        host.note(f"building {self.name} into {root} (once, some minutes)")
        done = subprocess.run([cargo, "install", "--quiet", "fuse-overlayfs", "--root", root],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"cargo install failed: {last}"
        return super().missing()


class Btrfs(Driver):
    """No union at all: the lower tree is a subvolume, the view a snapshot of it."""

    kind = "btrfs"

    def missing(self):
        return None if shutil.which("mkfs.btrfs") else "mkfs.btrfs is not installed"

    def open(self, work, lower, keep=True):
        base = work.scratch(self.kind)
        path = os.path.join(base, "snap")
        host.run("btrfs", "subvolume", "snapshot", lower, path)
        return _Snapshot(path)


class _Snapshot(View):
    def bytes_taken(self):
        return host.exclusive_bytes(self.path)

    def close(self):
        host.run("btrfs", "subvolume", "delete", self.path)
        os.rmdir(os.path.dirname(self.path))


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "veneer-bench")


def every_driver():
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    veneer = os.environ.get("VENEER_BIN") or os.path.join(top, "build", "veneer")
    second = os.path.join(cache_dir(), "fuse-overlayfs-2", "bin", "fuse-overlayfs")
    return [
        Native("native", "a plain directory, changed in place"),
        Overlay("overlayfs", "kernel overlayfs, metacopy=off"),
        Overlay("overlayfs-metacopy", "kernel overlayfs, metacopy=on",
                options=("metacopy=on", "redirect_dir=on")),
        Fuse("veneer", "this project (VENEER_BIN, VENEER_ARGS)", veneer,
             os.environ.get("VENEER_ARGS", "").split()),
        Fuse("fuse-overlayfs", "fuse-overlayfs 1.x of the distribution",
             "/usr/bin/fuse-overlayfs"),
        CargoFuse("fuse-overlayfs-2", "fuse-overlayfs 2 built by cargo", second),
        Overlay("overlayfs-xfs", "kernel overlayfs on XFS with reflink, loop device", kind="xfs"),
        Btrfs("btrfs", "btrfs snapshot, loop device"),
    ]
