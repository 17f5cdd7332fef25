# SPDX-License-Identifier: Apache-2.0
"""Images to learn, made of this machine's packages, and starts of them in mounts of veneer."""

import ctypes
import glob
import json
import mmap
import os
import shutil
import signal
import subprocess
import time

from . import host, rootfs
from .views import Served

EXTENT = 32 << 10
STILL_S, LIMIT_S = 0.5, 60
_libc = ctypes.CDLL(None, use_errno=True)


def _programs(root, *paths):
    """Programs with their libraries."""
    for path in paths:
        libs = [word for line in host.run("ldd", os.path.realpath(path)).splitlines()
                for word in line.split() if word.startswith("/")]
        for name in [path, os.path.realpath(path), *libs]:
            rootfs._copy(name, root)
            rootfs._copy(os.path.realpath(name), root)
    for name in ("tmp", "proc", "dev", "etc"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    # Devices cannot be opened in a view; that they are there is enough.
    for name, size in (("null", 0), ("urandom", 4096)):
        with open(f"{root}/dev/{name}", "wb") as f:
            f.write(os.urandom(size))


def _trees(root, *patterns):
    for path in (p for pattern in patterns for p in glob.glob(pattern)):
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        host.run("cp", "-a", path, root + os.path.dirname(path))


def python(root):
    rootfs.build(root)


def perl(root):
    _programs(root, "/usr/bin/perl")
    _trees(root, "/usr/lib/*/perl*", "/usr/share/perl*", "/etc/perl")


def git(root):
    _programs(root, "/usr/bin/git", "/usr/bin/sh", "/usr/bin/sed", "/usr/bin/cat")
    _trees(root, "/usr/lib/git-core", "/usr/share/git-core")


_INIT = "cd /tmp && git init -q a && cd a && git config user.email a@b && git config user.name a"
# Name to (what makes the image, the commands of its starts).
IMAGES = {
    "python": (python, [
        ["/usr/bin/python3", "-S", "-c", line] for line in (
            "import json, argparse, logging; logging.warning(json.dumps(1))",
            "import http.client, ssl, urllib.request",
            "import unittest, tempfile, subprocess, shutil",
            "import asyncio, sqlite3, csv",
            "import email.message, xml.dom.minidom, decimal, json")]),
    "perl": (perl, [
        ["/usr/bin/perl", "-e", line] for line in (
            "use strict; use warnings; use Data::Dumper; print Dumper(1)",
            "use strict; use POSIX; use File::Find; find(sub {}, '/etc')",
            "use warnings; use Getopt::Long; use File::Temp; use Time::Local",
            "use strict; use JSON::PP; print encode_json([1])",
            "use strict; use Encode; use List::Util; use IO::File; use Storable")]),
    "git": (git, [
        ["/usr/bin/sh", "-c", line] for line in (
            "git version --build-options",
            _INIT,
            _INIT + " && echo x >f && git add f && git commit -qm x",
            _INIT + " && git hash-object -w /usr/bin/git && git fsck",
            _INIT + " && echo x >f && git add f && git commit -qm x && git log -p")]),
}


class Start(Served):
    """A mount of an image by one server of its own. Use as a context."""

    def __init__(self, work, binary, lower, state, *options):
        super().__init__(work, "host")
        self.start(["env", f"VENEER_STATE_DIR={state}", binary, "-f", "-o",
                    self.options(lower, *options), self.path])

    def run_program(self, argv):
        """Seconds that it takes."""
        start = time.perf_counter()
        done = subprocess.run([shutil.which("chroot"), self.path, *argv], stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise host.HostError(f"{argv}: {done.returncode} {done.stderr[-300:]}")
        return time.perf_counter() - start

    def counter(self, name):
        """What the server has counted by now."""
        head, end = f"# {name}: ", time.monotonic() + LIMIT_S
        os.kill(self.server.pid, signal.SIGUSR1)
        while time.monotonic() < end:
            with open(os.path.join(self.base, "log"), encoding="utf-8") as f:
                said = [line for line in f if line.startswith(head) and line.endswith("\n")]
            if said:
                return int(said[-1].removeprefix(head))
            time.sleep(0.01)
        raise host.HostError(f"the server does not tell {name}")


def profile(binary, state):
    """What veneer knows: file to its extents that were read, of all images."""
    text = host.run(binary, "profile", "--state", state, "export")
    return {f["path"]: {i["extent"] for i in f["items"] if i["kind"] == "read"}
            for image in json.loads(text or "{}").get("images", []) for f in image["files"]}


def touched(binary, state):
    """(file, extent) of each read of the only start that veneer knows, in their order."""
    text = host.run(binary, "profile", "--state", state, "export")
    found = [(i["place"], f["path"], i["extent"]) for image in json.loads(text or "{}").get("images", [])
             for f in image["files"] for i in f["items"] if i["kind"] == "read"]
    return [(path, extent) for _, path, extent in sorted(found)]


def cached(lower):
    """File to its extents that are in the page cache."""
    found = {}
    for top, _, names in os.walk(lower):
        for name in names:
            path = os.path.join(top, name)
            size = 0 if os.path.islink(path) else os.path.getsize(path)
            if size:
                found[os.path.relpath(path, lower)] = _cached(path, size)
    return {name: extents for name, extents in found.items() if extents}


def _cached(path, size):
    pages = (ctypes.c_ubyte * ((size + 4095) // 4096))()
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, mmap.MAP_PRIVATE) as m:
        at = ctypes.c_char.from_buffer(m)
        _libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), pages)
        del at
    return {i * 4096 // EXTENT for i, page in enumerate(pages) if page & 1}


def fetched(lower):
    """(What comes into the page cache by itself until nothing more does, seconds until then)."""
    seen, since, begin = None, time.monotonic(), time.monotonic()
    while time.monotonic() - since < STILL_S and time.monotonic() - begin < LIMIT_S:
        now = cached(lower)
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)
    return seen, since - begin


def by_file(touched):
    """(file, extent) to file: extents, as `profile` has them."""
    found = {}
    for path, extent in touched:
        found.setdefault(path, set()).add(extent)
    return found


def amount(lower, extents):
    """Bytes of such."""
    return sum(min(EXTENT, max(0, os.path.getsize(os.path.join(lower, name)) - e * EXTENT))
               for name, some in extents.items() for e in some)


def common(a, b):
    """What is in both."""
    return {name: a[name] & b[name] for name in a.keys() & b.keys()}


def without(a, b):
    """What is in a alone."""
    left = {name: some - b.get(name, set()) for name, some in a.items()}
    return {name: some for name, some in left.items() if some}
