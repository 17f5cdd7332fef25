# SPDX-License-Identifier: Apache-2.0
"""Images of this machine's own files: programs, what they are linked with, and what they read."""
import io
import os
import shutil
import subprocess
import tarfile

from engine import base_env

PATH = base_env()["PATH"]
# Enough for a Dockerfile's commands; tar and the like are busybox's.
APPLETS = "sh ls cat mkdir cp mv ln rm chmod chown grep tar sleep id echo sed true env mount install".split()
# In a new machine its packages bring these.
PROGRAMS = ("podman", "buildah", "conmon", "crun", "newuidmap", "newgidmap", "fusermount3", "useradd", "setcap",
            "slirp4netns")
FILES = ("/usr/share/containers", "/etc/containers/policy.json", "/etc/containers/registries.conf", "/etc/login.defs",
         "/etc/nsswitch.conf")


def _libraries(path):
    text = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    for line in text.splitlines():
        words = [word for word in line.split() if word.startswith("/")]
        if words:
            yield words[0]


def _real(path):
    """Where Debian keeps it: /lib is a link to usr/lib."""
    top, name = os.path.split(path)
    return os.path.join(os.path.realpath(top), name)


class _Tree:
    def __init__(self, tar):
        self.tar, self.there = tar, set()

    def take(self, path):
        """A file or directory of the machine, what links lead to, and what it is linked with."""
        path = _real(path)
        if path in self.there:
            return
        self.there.add(path)
        self.tar.add(path, path.strip("/"))
        if os.path.islink(path):
            self.take(os.path.join(os.path.dirname(path), os.readlink(path)))
        elif os.path.isfile(path) and os.access(path, os.X_OK):
            for library in _libraries(path):
                self.take(library)

    def link(self, name, target):
        if "/" + name not in self.there:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            self.tar.addfile(info)

    def text(self, name, text, mode=0o644):
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(text), mode
        self.tar.addfile(info, io.BytesIO(text.encode()))

    def directory(self, name, mode=0o755):
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self.tar.addfile(info)


def write(path, veneer):
    """One in which everything is there that podman.Dockerfile has apt-get install, and apt-get is content with that."""
    with tarfile.open(path, "w") as tar:
        tree = _Tree(tar)
        for name in ("bin", "sbin", "lib", "lib64"):
            tree.link(name, "usr/" + name)
        for name in ("dev", "proc", "sys", "run", "var", "var/lib", "root", "home"):
            tree.directory(name)
        for name in ("tmp", "var/tmp"):
            tree.directory(name, 0o1777)
        for program in PROGRAMS:
            tree.take(shutil.which(program, path=PATH))
        for library in _libraries(veneer):
            tree.take(library)
        for file in FILES:
            tree.take(file)
        tree.take("/usr/bin/busybox")
        for applet in APPLETS:
            tree.link("usr/bin/" + applet, "busybox")
        tree.text("usr/bin/apt-get", "#!/bin/sh\n", 0o755)
        tree.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
        tree.text("etc/group", "root:x:0:\n")


def write_program(path, veneer):
    """The products of build.Dockerfile that other images copy."""
    with tarfile.open(path, "w") as tar:
        tar.add(veneer, "usr/local/bin/veneer")
