# SPDX-License-Identifier: Apache-2.0
import errno
import os

import pytest

from support import linux
from support.content import BLOCK, MIB, blob, write_sparse
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
