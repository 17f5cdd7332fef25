# SPDX-License-Identifier: Apache-2.0
"""Debian packages, wheels and a source tree, made here, for jobs as containers have them."""

import base64
import hashlib
import os
import random
import zipfile

from . import host, trees

DPKG_TREE = ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log",
             "var/cache", "usr/share", "usr/lib", "etc", "tmp")
CONTROL = """Package: bench-{i}
Version: {version}
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: files of a package
"""
MODULE = '''# {seed}
"""A module of a package."""


class C{i}:
    def __init__(self, value={i}):
        self.value = value

    def scaled(self, by):
        return [self.value * by + k for k in range(by)]
'''
WHEEL = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def dpkg_root(root):
    """What dpkg --root wants to find."""
    for name in DPKG_TREE:
        os.makedirs(os.path.join(root, name))
    for name in ("status", "available"):
        with open(os.path.join(root, "var/lib/dpkg", name), "wb"):
            pass


def debs(folder, count, files, version):
    """Paths of packages of so many files of 500 bytes to 12 KiB each."""
    rng, out = random.Random(f"debs {version}"), []
    for i in range(count):
        tree = os.path.join(folder, f"tree-{version}-{i}")
        os.makedirs(os.path.join(tree, "DEBIAN"))
        with open(os.path.join(tree, "DEBIAN", "control"), "w", encoding="ascii") as f:
            f.write(CONTROL.format(i=i, version=version))
        for k in range(files):
            here = os.path.join(tree, f"usr/share/bench-{i}/d{k // 20}")
            os.makedirs(here, exist_ok=True)
            with open(os.path.join(here, f"file-{k}"), "wb") as f:
                f.write(rng.randbytes(rng.randint(500, 12 * trees.KIB)))
        path = os.path.join(folder, f"bench-{i}_{version}.deb")
        host.run("dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", tree, path)
        host.run("rm", "-rf", tree)
        out.append(path)
    return out


def dpkg(root, packages):
    """The command that installs or upgrades them in root."""
    return ["dpkg", f"--root={root}", "--force-depends", "-i", *packages]


def _add(archive, record, name, data):
    archive.writestr(name, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append(f"{name},sha256={digest},{len(data)}")


def wheels(folder, count, files, version):
    """Packages of so many modules each."""
    for i in range(count):
        name, record = f"bench_{i}", []
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(os.path.join(folder, f"{name}-{version}-py3-none-any.whl"), "w") as f:
            for k in range(files):
                text = MODULE.format(i=k, seed=f"{version} {i}" * 40)
                _add(f, record, f"{name}/m{k}.py", text.encode())
            _add(f, record, f"{name}/__init__.py", b"")
            meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            _add(f, record, f"{info}/METADATA", meta.encode())
            _add(f, record, f"{info}/WHEEL", WHEEL.encode())
            record.append(f"{info}/RECORD,,")
            f.writestr(f"{info}/RECORD", "\n".join(record) + "\n")


def pip(root, folder, count, version):
    """The command that installs or upgrades them in root/site, with root/tmp to work in."""
    names = [f"bench_{i}=={version}" for i in range(count)]
    return ["env", f"TMPDIR={root}/tmp", f"HOME={root}/tmp", "PIP_ROOT_USER_ACTION=ignore",
            "/usr/bin/python3", "-m", "pip", "--disable-pip-version-check", "-q", "install",
            "--no-index", f"--find-links={folder}", "--no-cache-dir", "--upgrade",
            f"--target={root}/site", *names]


def sources(root, files, headers):
    """A C program of so many files, each of which includes all headers, with a Makefile."""
    os.makedirs(os.path.join(root, "include"))
    for i in range(headers):
        lines = [f"static inline int h{i}_{k}(int x) {{ return x * {k + 3} + {i}; }}"
                 for k in range(12)]
        _write(root, f"include/h{i}.h", "#pragma once\n" + "\n".join(lines))
    includes = "".join(f'#include "h{i}.h"\n' for i in range(headers))
    for i in range(files):
        lines = [f"int f{i}_{k}(int x) {{ for (int j = 0; j < x; j++) "
                 f"x += h{k % headers}_{k % 12}(j) % {k + 2}; return x; }}" for k in range(30)]
        main = "int main(void) { return 0; }\n" if not i else ""
        _write(root, f"c{i}.c", includes + "#include <stdio.h>\n" + "\n".join(lines) + "\n" + main)
    objects = " ".join(f"c{i}.o" for i in range(files))
    _write(root, "Makefile", f"CFLAGS = -O1 -Iinclude\nprogram: {objects}\n"
                             "\tgcc -o $@ $^\n%.o: %.c\n\tgcc $(CFLAGS) -c -o $@ $<\n")


def _write(root, name, text):
    with open(os.path.join(root, name), "w", encoding="ascii") as f:
        f.write(text + "\n")
