# SPDX-License-Identifier: Apache-2.0
"""A small root directory of copies of this host's programs, in which package managers and the like can run."""
import os
import shutil
import subprocess

DEVICES = ("null", "urandom")    # empty files, over which the user of the directory binds the devices
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_DIRECTORIES = ("usr/bin", "usr/sbin", "usr/lib64", "usr/lib", "dev", "tmp", "etc", "root", "var/log", "srv",
                "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/dpkg/alternatives",
                "usr/share/git-core/templates")


def missing(programs):
    """The programs that this host does not have."""
    return [name for name in programs if not shutil.which(name)]


def _libraries(program):
    """The libraries of a program, the loader too; nothing for a static one."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    words = [word for line in done.stdout.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/")]


def _loaded_later():
    """The library that the C library loads when a thread ends."""
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True)
    return [line.split(" => ")[1] for line in done.stdout.splitlines() if "libgcc_s.so.1 (" in line][:1]


def _copy(path, top):
    """Where its links lead, under the name by which it is asked for."""
    directory, name = os.path.split(path)
    target = top + os.path.join(os.path.realpath(directory), name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.exists(target):
        shutil.copy2(os.path.realpath(path), target)


def make(top, programs):
    """Fill an empty directory."""
    for name in _DIRECTORIES:
        (top / name).mkdir(parents=True)
    for name, target in _LINKS.items():
        (top / name).symlink_to(target)
    for name in DEVICES:
        (top / "dev" / name).touch()
    (top / "tmp").chmod(0o1777)
    (top / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (top / "etc/group").write_text("root:x:0:\n")
    for name in ("status", "available", "diversions", "statoverride"):
        (top / "var/lib/dpkg" / name).touch()
    for name in programs:
        path = shutil.which(name)
        for file in [path, *_libraries(path)]:
            _copy(file, str(top))
    for file in _loaded_later():
        _copy(file, str(top))
