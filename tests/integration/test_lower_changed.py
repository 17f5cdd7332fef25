# SPDX-License-Identifier: Apache-2.0
"""A lower file that is changed behind a partial one takes with it what is seen of it, and nothing else."""
import errno
import os
import subprocess

import pytest

from support import layers
from support.content import MIB, blob
from support.expect import fails_with, opened, write_at

_CHANGES = ["size", "mtime", "gone", "directory"]


def _change_lower(stack, victim, change):
    stack.forget_lower(stack.lower())
    if change == "size":
        os.truncate(victim, victim.stat().st_size - 1)
    elif change == "mtime":
        os.utime(victim, (1, 1))
    else:
        victim.unlink()
        if change == "directory":
            victim.mkdir()


@pytest.mark.parametrize("change", _CHANGES)
def test_a_file_over_a_changed_lower_can_be_written_anew(stack, change, veneer_bin):
    """cp cuts the file to 0 first, and then nothing of the lower file is needed any more."""
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"own", 500_000)
    stack.umount()
    _change_lower(stack, stack.lower() / "f", change)
    m = stack.mount()
    with fails_with(errno.EIO):
        (m / "f").read_bytes()
    with fails_with(errno.EIO):
        os.truncate(m / "f", 1)
    new = blob(700_000)
    (stack.base / "new").write_bytes(new)
    subprocess.run(["cp", stack.base / "new", m / "f"], check=True)
    assert (m / "f").read_bytes() == new
    write_at(m / "f", b"more", 2 * MIB)
    new += bytes(2 * MIB - len(new)) + b"more"
    with opened(m / "f", os.O_RDWR) as fd:
        os.fsync(fd)
    assert (m / "f").read_bytes() == new
    assert (stack.remount() / "f").read_bytes() == new
    stack.umount()
    found = layers.check(veneer_bin, stack.upper, stack.lowers).stdout.splitlines()
    assert all("no file carries the number" in line for line in found)
    stack.freeze()
    assert (stack.mount() / "f").read_bytes() == new


@pytest.mark.parametrize("how", ["cut to 0", "cut and written", "written whole", "small file"])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_file_that_shows_nothing_of_its_lower_outlives_it(stack, change, how, veneer_bin):
    """In the upper and as a lower; kept as partial files at first, which check agrees with."""
    data = blob(MIB if how != "small file" else 10_000)
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount() / "f"
    if how.startswith("cut"):
        os.truncate(path, 0)
        data = b""
    if how != "cut to 0":
        data = b"other" * 60_000 if how == "cut and written" else data[::-1]
        write_at(path, data, 0)
    stack.umount()
    _change_lower(stack, stack.lower() / "f", change)
    assert layers.check(veneer_bin, stack.upper, stack.lowers).returncode == 0
    path = stack.mount() / "f"
    assert path.read_bytes() == data
    write_at(path, b"more", 1_500_000)
    data += bytes(1_500_000 - len(data)) + b"more"
    os.truncate(path, 1_200_000)
    data = data[:1_200_000]
    os.rename(path, path.with_name("g"))
    assert path.with_name("g").read_bytes() == data
    path = stack.remount() / "g"
    assert path.read_bytes() == data
    stack.freeze()
    path = stack.mount() / "g"
    assert path.read_bytes() == data
    write_at(path, b"x", 5)
    assert path.read_bytes() == data[:5] + b"x" + data[6:]
    assert "not what it was" not in stack.log


@pytest.mark.parametrize("change", _CHANGES)
def test_a_lower_partial_file_that_was_cut_outlives_its_own_lower(stack, change):
    (stack.lower() / "f").write_bytes(blob(MIB))
    os.truncate(stack.mount() / "f", 0)
    bottom = stack.lower() / "f"
    stack.freeze()
    stack.forget_lower(bottom.parent)
    _change_lower(stack, bottom, change)
    stack.forget_lower(bottom.parent)
    path = stack.mount() / "f"
    assert path.read_bytes() == b""
    write_at(path, b"new", 5000)
    assert (stack.remount() / "f").read_bytes() == bytes(5000) + b"new"
