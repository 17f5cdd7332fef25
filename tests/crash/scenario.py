# SPDX-License-Identifier: Apache-2.0
"""Shared by the power cut tests: the file systems they run on, and their files."""
import os

import pytest

from recording import Recording, pattern

BLOCK = 4096
TAIL = 3500
LARGE = 2048 * BLOCK + TAIL
MIDDLE = 24 * BLOCK + TAIL
ALL = ("ext4", "xfs", "btrfs", "ext4_1k")


def on(*quick, many=ALL, pictures=2, many_pictures=16):
    """A few pictures on the kinds named; with the marker slow many, on all."""
    cases = [pytest.param(kind, pictures, id=kind) for kind in quick]
    cases += [pytest.param(kind, many_pictures, id=f"{kind}-many", marks=pytest.mark.slow)
              for kind in many]
    return pytest.mark.parametrize("kind, pictures", cases)


def make_lower(machine, name, size):
    """A lower file of version 0, and the recording of what will happen to it."""
    data = pattern(0, size, 0)
    (machine.lower / name).write_bytes(data)
    return Recording(data, machine.unit)


def settled(machine):
    """A picture when nothing is going on: what was not synced may well be missing."""
    picture = machine.cut()
    machine.stop()
    return [picture]


def commit_journal(machine):
    fd = os.open(machine.disk.path / "stranger", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"1")
    os.fsync(fd)
    os.close(fd)


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
