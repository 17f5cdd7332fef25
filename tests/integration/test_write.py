# SPDX-License-Identifier: Apache-2.0
import errno
import mmap
import os
import random

import pytest

from support.content import BLOCK, KIB, MIB, blob
from support.expect import fails_with, opened, read_at, write_at

_SIZES = [0, 1, 4095, 4096, 4097, 20_000, 524_288, 1_300_001]


@pytest.mark.parametrize("size", _SIZES)
def test_random_writes_agree_with_a_reference(stack, size):
    rng = random.Random(size)
    (stack.lower() / "f").write_bytes(blob(size))
    want = bytearray(blob(size))
    m = stack.mount()
    for round_ in range(3):
        with opened(m / "f", os.O_RDWR) as fd:
            for _ in range(120):
                length = min(int(2 ** rng.uniform(0, 18)), 300_000)
                off = rng.randrange(0, max(len(want), 1) + 10_000)
                data = rng.randbytes(length)
                assert os.pwrite(fd, data, off) == length
                if off > len(want):
                    want += bytes(off - len(want))
                want[off:off + length] = data
                at = rng.randrange(len(want))
                assert os.pread(fd, 70_000, at) == want[at:at + 70_000]
            assert os.fstat(fd).st_size == len(want)
        assert (m / "f").read_bytes() == want
        if round_ == 0:
            m = stack.remount()
        elif round_ == 1:
            stack.freeze()
            m = stack.mount()
        assert (m / "f").read_bytes() == want


@pytest.mark.parametrize("size", _SIZES)
def test_append_to_lower_file(stack, size):
    data = blob(size)
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    for i in range(3):
        with open(m / "f", "ab") as f:
            f.write(b"tail %d" % i)
        data += b"tail %d" % i
        assert (m / "f").read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


def test_write_beyond_the_end_leaves_zeros(stack):
    (stack.lower() / "f").write_bytes(b"abc" * 1000)
    m = stack.mount()
    write_at(m / "f", b"end", 1_000_000)
    got = (m / "f").read_bytes()
    assert got == b"abc" * 1000 + bytes(997_000) + b"end"
    assert (stack.remount() / "f").read_bytes() == got


def test_vectored_writes_and_reads(stack):
    (stack.lower() / "f").write_bytes(bytes(200_000))
    m = stack.mount()
    parts = [blob(n, n) for n in (1, 5000, 4096, 33, 60_000)]
    with opened(m / "f", os.O_RDWR) as fd:
        assert os.pwritev(fd, parts, 777) == sum(map(len, parts))
        buffers = [bytearray(len(part)) for part in parts]
        os.preadv(fd, buffers, 777)
        assert buffers == parts


def test_direct_io_aligned(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    want = bytearray(blob(MIB))
    m = stack.mount()
    buffer = mmap.mmap(-1, 64 * KIB)
    buffer.write(blob(64 * KIB, 2))
    with opened(m / "f", os.O_RDWR | os.O_DIRECT) as fd:
        assert os.pwrite(fd, buffer, 128 * KIB) == 64 * KIB
        want[128 * KIB:192 * KIB] = buffer[:]
        into = mmap.mmap(-1, 256 * KIB)
        assert os.preadv(fd, [into], 0) == 256 * KIB
        assert into[:] == want[:256 * KIB]
    assert (m / "f").read_bytes() == want


def test_direct_and_cached_descriptors_agree(stack):
    (stack.lower() / "f").write_bytes(bytes(256 * KIB))
    m = stack.mount()
    buffer = mmap.mmap(-1, BLOCK)
    with opened(m / "f", os.O_RDWR | os.O_DIRECT) as direct, opened(m / "f", os.O_RDWR) as cached:
        for i in range(1, 30):
            buffer[:] = bytes([i]) * BLOCK
            os.pwrite(direct, buffer, i * BLOCK)
            assert os.pread(cached, BLOCK, i * BLOCK) == buffer[:]
            os.pwrite(cached, bytes([100 + i]) * BLOCK, i * BLOCK)
            os.preadv(direct, [buffer], i * BLOCK)
            assert buffer[:] == bytes([100 + i]) * BLOCK


@pytest.mark.parametrize("flag", ["O_SYNC", "O_DSYNC"])
def test_synchronous_writes(stack, flag):
    (stack.lower() / "f").write_bytes(blob(300_000))
    want = bytearray(blob(300_000))
    m = stack.mount()
    with opened(m / "f", os.O_RDWR | getattr(os, flag)) as fd:
        for off in (0, 5000, 299_990):
            os.pwrite(fd, b"synchronous", off)
            want[off:off + 11] = b"synchronous"
    assert (m / "f").read_bytes() == want


def test_one_write_of_sixteen_megabytes(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    m = stack.mount()
    data = blob(16 * MIB, 3)
    write_at(m / "f", data, 12_345)
    assert read_at(m / "f", 16 * MIB, 12_345) == data
    assert (m / "f").stat().st_size == 12_345 + 16 * MIB
    assert read_at(stack.remount() / "f", 16 * MIB, 12_345) == data


# by default not where a large file is passed through: test_passthrough.py
@pytest.mark.unshared("a descriptor of an unchanged file goes on reading that")
@pytest.mark.parametrize("option", ["io=cached", "coherence=strict"])
def test_reader_opened_before_the_first_write_sees_it(stack, option):
    for name, size in (("small", 3000), ("large", 500_000)):
        (stack.lower() / name).write_bytes(b"o" * size)
    m = stack.mount(option)
    for name in ("small", "large"):
        with opened(m / name) as reader:
            assert os.pread(reader, 10, 0) == b"o" * 10
            write_at(m / name, b"new", 0)
            assert os.pread(reader, 10, 0) == b"newooooooo"
            with open(m / name, "ab") as f:
                f.write(b"tail")
            end = os.fstat(reader).st_size
            assert os.pread(reader, 4, end - 4) == b"tail"


def test_two_writers_through_two_descriptors(stack):
    (stack.lower() / "f").write_bytes(bytes(500_000))
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as a, opened(m / "f", os.O_WRONLY) as b:
        os.pwrite(a, b"A" * 5000, 1000)
        os.pwrite(b, b"B" * 5000, 3000)
        assert os.pread(a, 7000, 1000) == b"A" * 2000 + b"B" * 5000


def test_write_through_read_only_descriptor_is_refused(stack):
    (stack.lower() / "f").write_text("x")
    with opened(stack.mount() / "f") as fd, fails_with(errno.EBADF):
        os.write(fd, b"y")


def test_write_in_every_kind_of_lower(stack):
    """Each file comes from another layer, below names that only others have."""
    want = {}
    for i in range(4):
        (stack.lower(i) / "d").mkdir()
        for size in (100, 300_000):
            name = f"f{i}-{size}"
            (stack.lower(i) / "d" / name).write_bytes(blob(size, i))
            want[name] = bytearray(blob(size, i))
    m = stack.mount()
    for name, data in want.items():
        write_at(m / "d" / name, b"@@@@", 50)
        data[50:54] = b"@@@@"
    for _ in range(2):
        for name, data in want.items():
            assert (m / "d" / name).read_bytes() == data, name
        m = stack.remount()


def test_copy_file_range_and_sendfile(stack):
    data = blob(700_000)
    (stack.lower() / "src").write_bytes(data)
    m = stack.mount()
    with opened(m / "src") as src, opened(m / "dst", os.O_CREAT | os.O_RDWR) as dst:
        done = 0
        while done < len(data):
            count = os.copy_file_range(src, dst, len(data) - done, done, done)
            assert count > 0
            done += count
    with opened(m / "src") as src, opened(m / "dst2", os.O_CREAT | os.O_RDWR) as dst:
        done = 0
        while done < len(data):
            done += os.sendfile(dst, src, done, len(data) - done)
    assert (m / "dst").read_bytes() == (m / "dst2").read_bytes() == data


def test_writing_changes_mtime_and_ctime(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    os.utime(stack.lower() / "f", (1_000_000_000, 1_000_000_000))
    m = stack.mount()
    before = (m / "f").stat()
    assert before.st_mtime == 1_000_000_000
    write_at(m / "f", b"x", 5)
    after = (m / "f").stat()
    assert after.st_mtime > 1_700_000_000
    assert after.st_ctime_ns >= before.st_ctime_ns
    m = stack.remount()
    assert abs((m / "f").stat().st_mtime - after.st_mtime) < 1


def test_opening_for_writing_without_writing_keeps_mtime(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    os.utime(stack.lower() / "f", (1_000_000_000, 1_000_000_000))
    m = stack.mount()
    with opened(m / "f", os.O_RDWR):
        pass
    assert (m / "f").stat().st_mtime == 1_000_000_000
