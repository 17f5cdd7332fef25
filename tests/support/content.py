# SPDX-License-Identifier: Apache-2.0
"""Bytes to fill files with, and what files take on the disk."""
import os
import random

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCK, CHUNK = 4 * KIB, 512 * KIB


def blob(size, seed=1):
    """The same random bytes for the same seed; no two blocks are alike."""
    return random.Random(seed).randbytes(size)


def write_large(path, size, seed=1):
    """A wholly allocated file made of one repeated random MiB, each stamped with its number."""
    pattern = bytearray(blob(MIB, seed))
    with open(path, "wb") as f:
        for number in range(size // MIB):
            pattern[:8] = number.to_bytes(8, "big")
            f.write(pattern)


def write_sparse(path, size, seed=1):
    """A file of the size with 64 KiB of data at its start, its middle and its end."""
    with open(path, "wb") as f:
        f.truncate(size)
        for off in (0, size // 2, size - 64 * KIB):
            os.pwrite(f.fileno(), blob(64 * KIB, seed + off), off)


def allocated(root):
    """Bytes on the disk of a tree or of one file."""
    total = os.lstat(root).st_blocks * 512
    if os.path.isdir(root) and not os.path.islink(root):
        total += sum(allocated(entry.path) for entry in os.scandir(root))
    return total


def allocated_on_disk(root):
    """The same when all of it is written out. Until then ext4 counts blocks that it has promised; only then it sees how
    many extents they are, and more than four take a block of their own."""
    for at, _, names in os.walk(root):
        for name in names:
            _write_out(os.path.join(at, name))
    if not os.path.isdir(root):
        _write_out(root)
    return allocated(root)


def _write_out(path):
    if os.path.isfile(path) and not os.path.islink(path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
