# SPDX-License-Identifier: Apache-2.0
import errno
import mmap
import os
import random
import threading

import pytest

from support import linux
from support.content import BLOCK, KIB, MIB, blob, write_sparse
from support.expect import fails_with, opened


def _data_map(fd):
    """(start, end) of every data range as SEEK_DATA and SEEK_HOLE tell it."""
    size, off, found = os.fstat(fd).st_size, 0, []
    while off < size:
        try:
            start = os.lseek(fd, off, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == errno.ENXIO
            break
        assert start >= off
        end = os.lseek(fd, start, os.SEEK_HOLE)
        assert start < end <= size
        found.append((start, end))
        off = end
    return found


def _assert_sane(path, content):
    """Nothing outside the reported data may be other than zero."""
    with opened(path) as fd:
        covered = bytearray(len(content))
        for start, end in _data_map(fd):
            covered[start:end] = content[start:end]
    assert covered == content


def test_dense_lower_file_is_all_data(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    with opened(stack.mount() / "f") as fd:
        assert _data_map(fd) == [(0, 300_000)]


def test_holes_of_a_partial_file_are_data_where_the_lower_has_data(stack):
    content = bytearray(blob(MIB))
    (stack.lower() / "f").write_bytes(content)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"x" * BLOCK, 512 * 1024)
        content[512 * 1024:512 * 1024 + BLOCK] = b"x" * BLOCK
        assert _data_map(fd) == [(0, MIB)]
    for _ in range(2):
        _assert_sane(m / "f", content)
        m = stack.remount()


@pytest.mark.parametrize("changed", [False, True])
def test_sparse_lower_file(stack, changed):
    write_sparse(stack.lower() / "f", 8 * MIB)
    content = bytearray((stack.lower() / "f").read_bytes())
    m = stack.mount()
    if changed:
        with opened(m / "f", os.O_RDWR) as fd:
            os.pwrite(fd, b"y" * 5000, 2 * MIB)
        content[2 * MIB:2 * MIB + 5000] = b"y" * 5000
    _assert_sane(m / "f", content)


def test_punched_and_grown_files_stay_sane(stack):
    content = bytearray(blob(2 * MIB))
    (stack.lower() / "f").write_bytes(content)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as fd:
        linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 600_000, 700_000)
        content[600_000:1_300_000] = bytes(700_000)
        os.ftruncate(fd, 1_800_000)
        os.ftruncate(fd, 3_000_000)
        content = content[:1_800_000] + bytes(1_200_000)
    for _ in range(2):
        assert (m / "f").read_bytes() == content
        _assert_sane(m / "f", content)
        m = stack.remount()


def test_seeking_at_and_beyond_the_end(stack):
    (stack.lower() / "f").write_bytes(b"x" * 10_000)
    with opened(stack.mount() / "f") as fd:
        assert os.lseek(fd, 9_999, os.SEEK_HOLE) == 10_000
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            with fails_with(errno.ENXIO):
                os.lseek(fd, 10_000, whence)
        assert os.lseek(fd, 0, os.SEEK_END) == 10_000
        assert os.read(fd, 10) == b""
        assert os.lseek(fd, 20_000, os.SEEK_SET) == 20_000
        assert os.read(fd, 10) == b""
        with fails_with(errno.EINVAL):
            os.lseek(fd, -1, os.SEEK_SET)


_PUNCH = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_over_three_partial_layers(stack, seed):
    """Whatever layer has a block, data is never called a hole, and holes of 64 KiB are found."""
    rng = random.Random(seed)
    write_sparse(stack.lower() / "f", 4 * MIB)
    content = bytearray((stack.lower() / "f").read_bytes())
    for _ in range(3):
        m = stack.mount()
        with opened(m / "f", os.O_RDWR) as fd:
            for _ in range(8):
                off, length = rng.randrange(4 * MIB), rng.choice([1, BLOCK, 200_000, 900_000])
                end = min(off + length, len(content))
                kind = rng.choice(["write", "punch", "zero", "cut"])
                if kind == "write":
                    os.pwrite(fd, b"w" * length, off)
                    content += bytes(max(0, off + length - len(content)))
                    content[off:off + length] = b"w" * length
                elif kind == "cut":
                    os.ftruncate(fd, off)
                    os.ftruncate(fd, off + length)
                    content = content[:off] + bytes(max(0, off - len(content))) + bytes(length)
                elif off < len(content):
                    linux.fallocate(fd, _PUNCH if kind == "punch" else linux.FALLOC_ZERO_RANGE
                                    | linux.FALLOC_KEEP_SIZE, off, length)
                    content[off:end] = bytes(end - off)
            _assert_sane(m / "f", content)
            _assert_every_answer(fd, content, rng)
        stack.freeze()
    m = stack.mount()
    _assert_sane(m / "f", content)
    with opened(m / "f") as fd:
        _assert_every_answer(fd, content, rng)


def _assert_every_answer(fd, content, rng):
    for _ in range(60):
        off = rng.randrange(len(content))
        try:
            data = os.lseek(fd, off, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == errno.ENXIO
            data = len(content)
        assert off <= data <= len(content)
        assert not any(content[off:data])
        hole = os.lseek(fd, off, os.SEEK_HOLE)
        assert off <= hole <= len(content)
        assert hole >= data or hole == off
    for off in (len(content), len(content) + 1, len(content) + BLOCK):
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            with fails_with(errno.ENXIO):
                os.lseek(fd, off, whence)


def test_holes_are_found_where_each_layer_has_them(stack):
    write_sparse(stack.lower() / "f", 8 * MIB)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"y" * BLOCK, 2 * MIB)
        linux.fallocate(fd, _PUNCH, 4 * MIB, 64 * KIB)
        assert _data_map(fd) == [(0, 64 * KIB), (2 * MIB, 2 * MIB + BLOCK),
                                 (8 * MIB - 64 * KIB, 8 * MIB)]
        os.ftruncate(fd, 6 * MIB)
        os.ftruncate(fd, 9 * MIB)
        assert _data_map(fd) == [(0, 64 * KIB), (2 * MIB, 2 * MIB + BLOCK)]
        assert os.lseek(fd, 3 * MIB, os.SEEK_HOLE) == 3 * MIB
        with fails_with(errno.ENXIO):
            os.lseek(fd, 3 * MIB, os.SEEK_DATA)


@pytest.mark.parametrize("origin", ["lower", "partial", "upper"])
def test_pages_changed_by_mapping_are_data_at_once(stack, origin):
    """A copying program would leave them out otherwise, though everyone can read them."""
    if origin != "upper":
        with open(stack.lower() / "f", "wb") as f:
            f.truncate(2 * MIB)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        if origin == "upper":
            os.ftruncate(fd, 2 * MIB)
        elif origin == "partial":
            os.pwrite(fd, b"x" * BLOCK, 0)
        with mmap.mmap(fd, 0) as view:
            view[MIB + 5:MIB + 10] = b"store"
            got = _data_map(fd)
            assert (MIB, MIB + BLOCK) in got
            view[MIB + BLOCK:MIB + BLOCK + 5] = b"again"
            view[2 * MIB - 1:] = b"!"
            assert os.lseek(fd, MIB, os.SEEK_HOLE) == MIB + 2 * BLOCK
            assert os.lseek(fd, MIB + 2 * BLOCK, os.SEEK_DATA) == 2 * MIB - BLOCK
            assert os.lseek(fd, 2 * MIB - BLOCK, os.SEEK_HOLE) == 2 * MIB


def test_many_seek_at_once_while_a_mapping_changes(stack):
    """More than the server has threads: each answer may be cautious, but none waits for ever."""
    with open(stack.lower() / "f", "wb") as f:
        f.truncate(16 * MIB)
    m = stack.mount()
    wrong, stop = [], threading.Event()

    def seek(seed):
        rng = random.Random(seed)
        with opened(m / "f") as fd:
            while not stop.is_set():
                off = rng.randrange(16 * MIB)
                hole = os.lseek(fd, off, os.SEEK_HOLE)
                if not off <= hole <= 16 * MIB:
                    wrong.append((off, hole))
    threads = [threading.Thread(target=seek, args=(seed,)) for seed in range(48)]
    for thread in threads:
        thread.start()
    with opened(m / "f", os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
        for number in range(400):
            off = number * 37 % 4096 * BLOCK
            view[off:off + 4] = b"data"
            assert os.lseek(fd, off, os.SEEK_DATA) == off
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
