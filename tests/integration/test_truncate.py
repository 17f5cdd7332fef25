# SPDX-License-Identifier: Apache-2.0
import errno
import os
import random

import pytest

from support.content import blob
from support.expect import fails_with, opened, write_at

_SIZE = 1_200_003
_CUTS = [0, 1, 4095, 4096, 4097, 524_287, 524_288, 524_289, 1_199_999, _SIZE, _SIZE + 1, 2_000_000]


def _resized(data, size):
    return data[:size] + bytes(max(0, size - len(data)))


def _lower(stack, size=_SIZE):
    data = blob(size)
    (stack.lower() / "f").write_bytes(data)
    return data


@pytest.mark.parametrize("cut", _CUTS)
def test_truncate_of_untouched_lower_file(stack, cut):
    data = _resized(_lower(stack), cut)
    m = stack.mount()
    os.truncate(m / "f", cut)
    assert (m / "f").stat().st_size == cut
    assert (m / "f").read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data
    stack.freeze()
    assert (stack.mount() / "f").read_bytes() == data


@pytest.mark.parametrize("cut", _CUTS)
def test_truncate_after_a_first_write(stack, cut):
    data = bytearray(_lower(stack))
    m = stack.mount()
    for off in (0, 4000, 524_200, 1_199_000):
        write_at(m / "f", b"mine" * 50, off)
        data[off:off + 200] = b"mine" * 50
    data = _resized(bytes(data), cut)
    os.truncate(m / "f", cut)
    assert (m / "f").read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


@pytest.mark.parametrize("when", ["same mount", "after remount", "after freeze"])
@pytest.mark.parametrize("cut", [0, 5000, 524_288, 600_001])
def test_growing_after_shrinking_gives_zeros(stack, cut, when):
    data = _lower(stack)
    m = stack.mount()
    os.truncate(m / "f", cut)
    if when == "after remount":
        m = stack.remount()
    elif when == "after freeze":
        stack.freeze()
        m = stack.mount()
    os.truncate(m / "f", _SIZE)
    want = _resized(data[:cut], _SIZE)
    assert (m / "f").read_bytes() == want
    assert (stack.remount() / "f").read_bytes() == want


def test_write_after_shrinking_does_not_bring_back_what_was_cut(stack):
    data = _lower(stack)
    m = stack.mount()
    os.truncate(m / "f", 5000)
    write_at(m / "f", b"far", 700_000)
    want = data[:5000] + bytes(695_000) + b"far"
    assert (m / "f").read_bytes() == want
    m = stack.remount()
    write_at(m / "f", b"x", 6000)
    want = want[:6000] + b"x" + want[6001:]
    assert (m / "f").read_bytes() == want
    assert (stack.remount() / "f").read_bytes() == want


def test_random_truncates_and_writes_agree_with_a_reference(stack):
    rng = random.Random(7)
    want = bytearray(_lower(stack, 600_000))
    m = stack.mount()
    for step in range(300):
        if rng.random() < 0.5:
            size = rng.randrange(1_400_000) if rng.random() < 0.5 else rng.randrange(30) * 4096
            os.truncate(m / "f", size)
            want = bytearray(_resized(want, size))
        else:
            off, length = rng.randrange(len(want) + 5000), rng.choice([1, 100, 4096, 50_000])
            write_at(m / "f", bytes([step % 256]) * length, off)
            want = bytearray(_resized(want, max(len(want), off)))
            want[off:off + length] = bytes([step % 256]) * length
        if step % 20 == 0:
            assert (m / "f").read_bytes() == want, step
        if step % 100 == 50:
            m = stack.remount()
        if step % 100 == 99:
            stack.freeze()
            m = stack.mount()
    assert (m / "f").read_bytes() == want


def test_ftruncate_through_an_open_descriptor(stack):
    data = _lower(stack)
    with opened(stack.mount() / "f", os.O_RDWR) as fd:
        os.ftruncate(fd, 10_000)
        assert os.pread(fd, 20_000, 0) == data[:10_000]
        os.pwrite(fd, b"Z", 12_000)
        assert os.pread(fd, 20_000, 9_999) == data[9_999:10_000] + bytes(2000) + b"Z"


def test_mapped_pages_beyond_the_cut_are_zero_after_growing(stack):
    data = _lower(stack)
    m = stack.mount()
    assert (m / "f").read_bytes() == data
    os.truncate(m / "f", 4097)
    os.truncate(m / "f", 9000)
    assert (m / "f").read_bytes() == data[:4097] + bytes(4903)


def test_truncate_refusals(stack):
    (stack.lower() / "d").mkdir()
    _lower(stack, 100)
    m = stack.mount()
    with fails_with(errno.EISDIR):
        os.truncate(m / "d", 0)
    with fails_with(errno.EINVAL):
        os.truncate(m / "f", -1)
    with fails_with(errno.ENOENT):
        os.truncate(m / "nothing", 0)
    with opened(m / "f") as fd, fails_with(errno.EINVAL, errno.EBADF):
        os.ftruncate(fd, 0)
    with fails_with(errno.EFBIG, errno.EINVAL):
        os.truncate(m / "f", 1 << 62)
    assert (m / "f").read_bytes() == blob(100)


def test_huge_sparse_size(stack):
    data = _lower(stack, 300_000)
    m = stack.mount()
    os.truncate(m / "f", 1 << 41)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"end", (1 << 41) - 3)
        assert os.pread(fd, 10, (1 << 41) - 10) == bytes(7) + b"end"
        assert os.pread(fd, 400_000, 0) == data + bytes(100_000)
    os.truncate(m / "f", 200_000)
    assert (stack.remount() / "f").read_bytes() == data[:200_000]
