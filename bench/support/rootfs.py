# SPDX-License-Identifier: Apache-2.0
"""A root directory that a Python program runs in, made of this machine's files."""

import os

from . import host


def build(root):
    """The interpreter, its libraries and modules."""
    tail = ":".join(sorted({line.split("=>")[-1].split("(")[0].strip()
                            for lib in _objects() for line in host.run("ldd", lib).splitlines()
                            if "/" in line}))
    names = [n for n in tail.split(":") if n.startswith("/")]
    stdlib = os.path.dirname(os.__file__)
    for path in ["/usr/bin/python3", os.path.realpath("/usr/bin/python3"), *names]:
        _copy(path, root)
        if os.path.realpath(path) != path:
            _copy(os.path.realpath(path), root)
    os.makedirs(root + os.path.dirname(stdlib), exist_ok=True)
    host.run("cp", "-a", stdlib, root + os.path.dirname(stdlib))
    for name in ("tmp", "proc", "dev"):
        os.makedirs(f"{root}/{name}", exist_ok=True)


def _objects():
    yield "/usr/bin/python3"
    loaded = os.path.join(os.path.dirname(os.__file__), "lib-dynload")
    for name in sorted(os.listdir(loaded)):
        yield os.path.join(loaded, name)


def _copy(path, root):
    # Where the loader is reached by a symlink of its directory, both ways must lead to it.
    os.makedirs(root + os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(root + path):
        host.run("cp", "-a", "-L" if "/lib" in path else "-P", path, root + path)


def shell(root):
    """A small one: a static busybox under the names of all its programs."""
    os.makedirs(root + "/bin")
    host.run("cp", "/bin/busybox", root + "/bin/busybox")
    for name in host.run("/bin/busybox", "--list").split():
        if name != "busybox":
            os.symlink("busybox", f"{root}/bin/{name}")
    for name in ("tmp", "proc", "dev", "sys", "etc"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
