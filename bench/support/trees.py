# SPDX-License-Identifier: Apache-2.0
"""Lower trees, the same bytes on every run and every file system."""

import os
import random

from . import host

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Some small enough for a driver to copy whole, some for it to keep in part.
WARM_UPS = {f"warm-up-{i}": (4 * KIB, 256 * KIB)[i % 2] for i in range(8)}
# A small file has so many bytes.
SMALL = 100, 5 * KIB
_block = random.Random(1).randbytes(MIB)


def size_label(size):
    for unit, letter in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size >= unit:
            return f"{size // unit}{letter}"
    return str(size)


def write_file(path, size):
    with open(path, "wb") as f:
        for left in range(size, 0, -MIB):
            f.write(_block[:min(left, MIB)])


def warm(path):
    """Bring a file's data into the page cache."""
    buf = bytearray(MIB)
    with open(path, "rb", buffering=0) as f:
        while f.readinto(buf):
            pass


def warm_names(root):
    for here, dirs, files in os.walk(root):
        for name in dirs + files:
            os.lstat(os.path.join(here, name))


def state(root):
    """What must still hold of a lower tree after any writer has gone."""
    found = {}
    for here, _, files in os.walk(root):
        for name in files:
            path = os.path.join(here, name)
            st = os.lstat(path)
            found[path] = (st.st_size, st.st_mtime_ns, st.st_mode, st.st_ino)
    return found


def must_be(root, before):
    if state(root) != before:
        raise host.HostError("THE LOWER LAYER WAS CHANGED")


def equal_files(root, size, count):
    """count files of one size, and a few small ones to warm the mount up with."""
    for name, warm_size in WARM_UPS.items():
        write_file(os.path.join(root, name), warm_size)
    for i in range(count):
        write_file(os.path.join(root, f"f{i:04}"), size)


def names(root, tops, subs, files, sizes=SMALL):
    """tops directories of subs directories of files small files each."""
    rng = random.Random(2)
    for top in range(tops):
        for sub in range(subs):
            here = os.path.join(root, f"d{top:02}", f"s{sub:02}")
            os.makedirs(here)
            for i in range(files):
                write_file(os.path.join(here, f"name-{i:03}.txt"), rng.randint(*sizes))


def commit(root):
    """Make the tree a git repository in which everything is committed, with an index that is
    right for what stat says of it there."""
    me = ("git", "-C", root, "-c", "user.name=bench", "-c", "user.email=bench@localhost",
          "-c", "gc.auto=0", "-c", "core.checkStat=minimal", "-c", "core.trustctime=false")
    host.run(*me, "init", "-q")
    for name in ("core.checkStat", "core.trustctime"):
        host.run(*me, "config", name, {"core.checkStat": "minimal"}.get(name, "false"))
    host.run(*me, "add", ".")
    host.run(*me, "commit", "-q", "-m", "all")


def one_and_many(root, one, count, size):
    """one: a file of so many bytes; many: a directory of so many files of a size."""
    write_file(os.path.join(root, "one"), one)
    os.mkdir(os.path.join(root, "many"))
    for i in range(count):
        write_file(os.path.join(root, "many", many_name(i)), size)


def many_name(i):
    return f"f{i:04}"
