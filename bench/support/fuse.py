# SPDX-License-Identifier: Apache-2.0
"""Drivers that are servers with fuse-overlayfs's command line."""

import os
import shutil
import subprocess

from . import host, world
from .driver import TO_BUILD, Driver, Group
from .views import Served, Union


class Fuse(Driver):
    """binary with the arguments extra, as root."""

    def __init__(self, name, what, binary, extra=(), kind="host"):
        super().__init__(name, what)
        self.binary, self.extra, self.kind = binary, list(extra), kind

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

    def mount_options(self):
        return " ".join(self.extra)

    def open(self, work, lower, keep=True):
        view = Served(work, self.kind)
        view.start([self.binary, "-f", *self.extra, "-o", view.options(lower), view.path])
        return view

    def group(self, work):
        """For many views at once, as a container engine starts them: the program detaches."""
        return FuseGroup(self, work, world.HERE)


class FuseGroup(Group):
    """The program puts itself into the background; what it becomes is found by its name and by
    the scratch directory in its arguments, which no other run has."""

    def __init__(self, driver, work, where):
        super().__init__(driver)
        self.world, self.runtime = where, work.scratch("host")
        self.mark = os.path.dirname(self.runtime).encode() + b"/"

    def _is_mine(self, pid):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") != os.path.realpath(self.driver.binary):
                return False
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                return self.mark in f.read()
        except OSError:
            return False

    def servers(self):
        return sorted(int(p) for p in os.listdir("/proc") if p.isdigit() and self._is_mine(p))

    def add(self, work, lower):
        view = Union(work, self.driver.kind, self.world)
        self.views.append(view)
        self.mount(view, lower)
        return view

    def mount(self, view, lower):
        host.run(*view.argv("env", f"VENEER_RUNTIME_DIR={self.runtime}", self.driver.binary,
                            *self.driver.extra, "-o", view.options(lower), view.path))
        # Some return before.
        if not host.wait_for(view.is_mounted):
            raise host.HostError(f"{self.driver.binary}: no mount")

    def close(self):
        super().close()
        # A shared server stays for a while; the next driver must not share the machine with it.
        for pid in self.servers():
            try:
                os.kill(pid, 15)
            except ProcessLookupError:
                pass
        host.wait_for(lambda: not self.servers())
        self.world.close()
        host.run("rm", "-rf", self.runtime)


class Rootless(Fuse):
    """The same without privileges: each view, or each group of views, in a user namespace."""

    def open(self, work, lower, keep=True):
        work.volume(self.kind)
        where = world.Rootless()
        view = _Apart(work, self.kind, where)
        view.start([self.binary, "-f", *self.extra, "-o", view.options(lower), view.path])
        return view

    def group(self, work):
        # What is mounted later is not seen in the namespace.
        work.volume(self.kind)
        return FuseGroup(self, work, world.Rootless())


class _Apart(Served):
    """A view with namespaces of its own."""

    def close(self):
        super().close()
        self.world.close()


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "veneer-bench")


def second_binary():
    return os.path.join(cache_dir(), "fuse-overlayfs-2", "bin", "fuse-overlayfs")


# Where the package registry can not be reached, a run must not wait for it: seconds without a byte,
# how often it is asked again, and seconds for asking and building together.
ASK = {"CARGO_HTTP_TIMEOUT": "15", "CARGO_NET_RETRY": "1"}
BUILD_S = 1200
TIMED_OUT = 124


class CargoFuse(Fuse):
    """fuse-overlayfs 2 from its own package, built once into a cache directory."""

    def state(self):
        return TO_BUILD if not os.path.exists(self.binary) else super().state()

    def missing(self):
        if os.access(self.binary, os.X_OK):
            return super().missing()
        cargo = shutil.which("cargo") or os.path.expanduser("~/.cargo/bin/cargo")
        if not os.access(cargo, os.X_OK):
            return "cargo is not installed, so it can not be built"
        root = os.path.dirname(os.path.dirname(self.binary))
        host.note(f"building {self.name} into {root} (once, some minutes)")
        # timeout(1) ends the compilers too.
        done = subprocess.run(["timeout", "-k", "10", str(BUILD_S), cargo, "install", "--quiet",
                               "fuse-overlayfs", "--root", root], env={**os.environ, **ASK},
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode == TIMED_OUT:
            return f"cargo install took more than {BUILD_S} s"
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"cargo install failed: {last}"
        return super().missing()
