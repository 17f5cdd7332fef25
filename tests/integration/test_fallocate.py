# SPDX-License-Identifier: Apache-2.0
import errno
import os
import random

import pytest

from support import linux
from support.content import BLOCK, KIB, MIB, allocated, blob
from support.expect import fails_with, opened, write_at
from support.origins import ORIGINS, mount_file
from support.stack import on_small_disk
from support.syscount import counted

_PUNCH = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE


def _prepare(stack, origin, size=MIB):
    return mount_file(stack, origin, size, own=[(off, b"own" * 3000) for off in (0, 300_000, 600_000)])


def _allocate(path, mode, off, length):
    with opened(path, os.O_RDWR) as fd:
        linux.fallocate(fd, mode, off, length)


def _check(stack, path, data):
    assert path.stat().st_size == len(data)
    assert path.read_bytes() == data
    path = stack.remount() / "f"
    assert path.read_bytes() == data
    stack.freeze()
    assert (stack.mount() / "f").read_bytes() == data


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("range_", [(0, 4096), (100, 700_000), (MIB - 10, 20), (2 * MIB, 50_000)])
def test_plain_preallocation_keeps_content_and_extends(stack, origin, range_):
    off, length = range_
    path, data = _prepare(stack, origin)
    _allocate(path, 0, off, length)
    data += bytes(max(0, off + length - len(data)))
    _check(stack, path, data)


@pytest.mark.parametrize("origin", ORIGINS)
def test_keep_size_changes_nothing_one_can_read(stack, origin):
    path, data = _prepare(stack, origin)
    _allocate(path, linux.FALLOC_KEEP_SIZE, 500_000, 2 * MIB)
    _check(stack, path, data)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("range_", [(0, 4096), (100, 50), (4000, 600_000), (300_000, 5_000_000),
                                    (2 * MIB, 4096)])
def test_punched_range_reads_zeros(stack, origin, range_):
    off, length = range_
    path, data = _prepare(stack, origin)
    _allocate(path, _PUNCH, off, length)
    end = min(off + length, len(data))
    if off < end:
        data[off:end] = bytes(end - off)
    _check(stack, path, data)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("mode", [0, linux.FALLOC_KEEP_SIZE, _PUNCH, linux.FALLOC_ZERO_RANGE,
                                  linux.FALLOC_ZERO_RANGE | linux.FALLOC_KEEP_SIZE])
@pytest.mark.parametrize("range_", [(8 * BLOCK, 4 * BLOCK), (100, 50), (MIB - 10, 20), (2 * MIB, BLOCK)])
def test_every_mode_sets_the_times(stack, origin, mode, range_):
    """Also where there is nothing to do, as on ext4 and XFS."""
    path, _ = _prepare(stack, origin)
    os.utime(path, ns=(10**18, 10**18))
    before = path.stat()
    _allocate(path, mode, *range_)
    after = path.stat()
    assert after.st_ctime_ns >= after.st_mtime_ns > before.st_mtime_ns
    assert after.st_atime_ns == before.st_atime_ns
    assert (stack.upper / "f").stat().st_mtime_ns == after.st_mtime_ns


@pytest.fixture
def small_disk(stack):
    """Upper and work on a file system of 8 MiB."""
    with on_small_disk(stack, "8m") as disk:
        yield disk


def _fill(disk):
    with open(disk / "filler", "wb", buffering=0) as f, fails_with(errno.ENOSPC):
        while True:
            f.write(bytes(BLOCK))


@pytest.mark.needs_root("mounts a file system of its own")
@pytest.mark.parametrize("mode", [0, linux.FALLOC_KEEP_SIZE])
@pytest.mark.parametrize("range_", [(0, 3 * MIB), (100_001, 2 * MIB), (2 * MIB + 7, MIB)])
@pytest.mark.parametrize("is_nameless", [False, True], ids=["named", "unlinked"])
def test_preallocation_of_what_is_seen_from_below_keeps_its_promise(stack, small_disk, mode, range_, is_nameless):
    """Preallocated bytes can be written when the disk is full."""
    off, length = range_
    data = bytearray(blob(3 * MIB))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount() / "f"
    write_at(path, b"own" * 3000, 300_000)
    data[300_000:309_000] = b"own" * 3000
    with opened(path, os.O_RDWR) as fd:
        if is_nameless:
            path.unlink()
        linux.fallocate(fd, mode, off, length)
        data += bytes(0 if mode else max(0, off + length - len(data)))
        _fill(small_disk)
        end = min(off + length, len(data))
        for at in range(off, end, 1000):
            data[at:min(at + 1000, end)] = b"n" * (min(at + 1000, end) - at)
            os.pwrite(fd, data[at:min(at + 1000, end)], at)
        os.fsync(fd)
        assert os.pread(fd, len(data) + 1, 0) == data
    (small_disk / "filler").unlink()
    if not is_nameless:
        assert path.read_bytes() == data
        assert (stack.remount() / "f").read_bytes() == data


@pytest.mark.needs_root("mounts a file system of its own")
def test_preallocation_without_room_is_refused_and_changes_nothing(stack, small_disk):
    (stack.lower() / "f").write_bytes(blob(3 * MIB))
    path = stack.mount() / "f"
    write_at(path, b"x", 5)
    want = path.read_bytes()
    _fill(small_disk)
    with fails_with(errno.ENOSPC):
        _allocate(path, 0, 0, 3 * MIB)
    assert path.read_bytes() == want
    (small_disk / "filler").unlink()
    assert (stack.remount() / "f").read_bytes() == want


def test_punching_a_lower_file_takes_no_room(stack):
    path, data = _prepare(stack, "lower", 16 * MIB)
    _allocate(path, _PUNCH, 0, 16 * MIB)
    assert allocated(stack.upper / "f") <= 64 * KIB
    assert path.read_bytes() == bytes(16 * MIB)
    write_at(path, b"again", 5 * MIB)
    data[:] = bytes(len(data))
    data[5 * MIB:5 * MIB + 5] = b"again"
    _check(stack, path, data)


@pytest.mark.parametrize("keep", [0, linux.FALLOC_KEEP_SIZE])
@pytest.mark.parametrize("origin", ORIGINS)
def test_zero_range(stack, origin, keep):
    path, data = _prepare(stack, origin)
    _allocate(path, linux.FALLOC_ZERO_RANGE | keep, 50_001, 300_000)
    data[50_001:350_001] = bytes(300_000)
    _allocate(path, linux.FALLOC_ZERO_RANGE | keep, MIB - 100, 5000)
    data[MIB - 100:] = bytes(100 if keep else 5000)
    _check(stack, path, data)


def test_random_operations_agree_with_a_reference(stack):
    rng = random.Random(11)
    path, data = _prepare(stack, "partial", 700_000)
    for step in range(150):
        off, length = rng.randrange(800_000), rng.choice([1, 100, BLOCK, 70_000, 300_000])
        kind = rng.choice(["plain", "keep", "punch", "zero", "write", "truncate"])
        end = off + length
        if kind == "write":
            write_at(path, b"\x77" * length, off)
            data += bytes(max(0, end - len(data)))
            data[off:end] = b"\x77" * length
        elif kind == "truncate":
            os.truncate(path, off)
            data = data[:off] + bytes(max(0, off - len(data)))
        else:
            mode = {"plain": 0, "keep": linux.FALLOC_KEEP_SIZE, "punch": _PUNCH,
                    "zero": linux.FALLOC_ZERO_RANGE}[kind]
            _allocate(path, mode, off, length)
            if kind in ("plain", "zero"):
                data += bytes(max(0, end - len(data)))
            if kind in ("punch", "zero") and off < len(data):
                end = min(end, len(data))
                data[off:end] = bytes(end - off)
        if step % 15 == 0:
            assert path.read_bytes() == data, (step, kind)
        if step % 60 == 59:
            path = stack.remount() / "f"
    _check(stack, path, data)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("mode", [linux.FALLOC_COLLAPSE_RANGE, linux.FALLOC_INSERT_RANGE,
                                  linux.FALLOC_UNSHARE_RANGE, 0x80])
def test_modes_that_fuse_does_not_pass_on_change_nothing(stack, origin, mode):
    """The kernel answers for every FUSE file system: programs see what tmpfs, say, tells them."""
    path, data = _prepare(stack, origin)
    _refused(path, mode)
    _check(stack, path, data)


def test_no_request_arrives_for_such_a_mode(stack):
    path, _ = _prepare(stack, "upper")
    counts = counted(stack.pid, lambda: _refused(path, linux.FALLOC_COLLAPSE_RANGE),
                     stack.base / "calls")
    assert counts.get("fallocate", 0) == 0
    counts = counted(stack.pid, lambda: _allocate(path, _PUNCH, 0, BLOCK), stack.base / "calls")
    assert counts["fallocate"] == 1


def _refused(path, mode):
    with fails_with(errno.EOPNOTSUPP):
        _allocate(path, mode, 2 * BLOCK, 4 * BLOCK)


@pytest.mark.parametrize("size", [5 * BLOCK, MIB, MIB + 17])
def test_modes_mixed_over_three_layers(stack, size):
    """Own, lower and punched blocks of three partial layers one over the other, and a clip."""
    rng = random.Random(size)
    (stack.lower() / "f").write_bytes(blob(size))
    data = bytearray(blob(size))
    for layer in range(3):
        path = stack.mount() / "f"
        for _ in range(6):
            off, length = rng.randrange(size), rng.choice([1, BLOCK, 30_000])
            end = min(off + length, len(data))
            if rng.random() < 0.5:
                write_at(path, bytes([layer + 1]) * length, off)
                data += bytes(max(0, off + length - len(data)))
                data[off:off + length] = bytes([layer + 1]) * length
            elif off < len(data):
                _allocate(path, rng.choice([_PUNCH, linux.FALLOC_ZERO_RANGE
                                            | linux.FALLOC_KEEP_SIZE]), off, length)
                data[off:end] = bytes(end - off)
        cut = size - layer * BLOCK - 100
        os.truncate(path, cut)
        os.truncate(path, size + layer)
        data = data[:cut] + bytes(size + layer - cut)
        _allocate(path, 0, size - 5000, 9000)
        data += bytes(max(0, size + 4000 - len(data)))
        assert path.read_bytes() == data
        stack.freeze()
    assert (stack.mount() / "f").read_bytes() == data


def test_unknown_modes_and_bad_ranges_are_refused(stack):
    path, data = _prepare(stack, "lower", 100_000)
    with opened(path, os.O_RDWR) as fd:
        with fails_with(errno.EINVAL):
            linux.fallocate(fd, 0, 0, 0)
        with fails_with(errno.EINVAL):
            linux.fallocate(fd, 0, -1, 10)
        with fails_with(errno.EOPNOTSUPP, errno.EINVAL):
            linux.fallocate(fd, 0x8, 0, 4096 + 1)
    with opened(path) as fd, fails_with(errno.EBADF):
        linux.fallocate(fd, 0, 0, 10)
    assert path.read_bytes() == data
