# SPDX-License-Identifier: Apache-2.0
"""The shared block cache: what large reads of lower files are answered from.

A direct read reaches the server each time, whatever the kernel has cached for the mount."""
import errno
import mmap
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

from support import rootless
from support.content import BLOCK, KIB, MIB, blob
from support.counters import Gained
from support.expect import opened, write_at
from support.server import wait_until
from support.syscount import counted

_SIZE = 3 * MIB + 12_345


@pytest.fixture(params=["cached", "direct"])
def io(request):
    """Modes in which the server is asked for what a lower file holds."""
    return f"io={request.param}"


def _read(fd, size, off):
    buffer = mmap.mmap(-1, max(size, 1))
    n = os.preadv(fd, [memoryview(buffer)[:size]], off)
    return buffer[:n]


def _read_directly(path, size, off):
    with opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        return _read(fd, size, off)


def _agrees(path, data, seed, rounds=80):
    rng = random.Random(seed)
    ranges = [(MIB, 0), (MIB, max(len(data) - MIB, 0)), (MIB, max(len(data) - 1, 0)), (MIB, len(data))]
    for step in range(rounds):
        off = rng.randrange(len(data) + 1)
        ranges.append((rng.randrange(1, MIB), off - off % BLOCK if step % 2 else off))
    with opened(path, os.O_RDONLY | os.O_DIRECT) as direct, opened(path) as cached:
        for size, off in ranges:
            assert _read(direct, size, off) == data[off:off + size], f"{size} bytes at {off}"
            assert os.pread(cached, size, off) == data[off:off + size], f"{size} bytes at {off}"
    assert path.read_bytes() == data


def _write(path, data, off, piece):
    write_at(path, piece, off)
    data[off:off + len(piece)] = piece


def _scatter(path, data, seed, writes=30):
    rng = random.Random(seed)
    for _ in range(writes):
        _write(path, data, rng.randrange(len(data) - 20_000), rng.randbytes(rng.randrange(1, 20_000)))


# ---- the same bytes ----

@pytest.mark.parametrize("size", [64 * KIB, 100_001, 512 * KIB, 512 * KIB + 1, MIB - 1, _SIZE])
def test_lower_file_is_as_it_is_at_every_offset(stack, io, size):
    data = blob(size)
    (stack.lower() / "f").write_bytes(data)
    _agrees(stack.mount(io) / "f", data, size)


def test_partial_file_is_its_own_blocks_and_those_below(stack, io):
    data = bytearray(blob(_SIZE))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount(io) / "f"
    for seed in range(3):
        _scatter(path, data, seed)
        _agrees(path, data, seed, rounds=40)


def test_every_other_block_changed(stack, io):
    data = bytearray(blob(2 * MIB))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount(io) / "f"
    for off in range(0, 2 * MIB, 2 * BLOCK):
        _write(path, data, off + 7, b"own")
    _agrees(path, data, 1)


def test_partial_files_three_deep(stack, io):
    data = bytearray(blob(_SIZE))
    (stack.lower() / "f").write_bytes(data)
    for layer in range(3):
        path = stack.mount(io) / "f"
        _scatter(path, data, layer)
        _agrees(path, data, layer, rounds=30)
        stack.freeze()
    _agrees(stack.mount(io) / "f", data, 9)
    _scatter(stack.mnt / "f", data, 10)
    _agrees(stack.mnt / "f", data, 11)


def test_sparse_lower_file(stack, io):
    data = bytearray(_SIZE)
    with open(stack.lower() / "f", "wb") as f:
        f.truncate(_SIZE)
        for off in (5000, MIB + 100, _SIZE - 3000):
            data[off:off + 3000] = blob(3000, off)
            os.pwrite(f.fileno(), data[off:off + 3000], off)
    path = stack.mount(io) / "f"
    _agrees(path, data, 1)
    _scatter(path, data, 2, writes=4)
    _agrees(path, data, 3)


@pytest.mark.parametrize("cut", [0, 1, 100_000, 512 * KIB, MIB + 4095])
def test_truncated_and_grown_again_shows_zeros_and_never_the_lower(stack, io, cut):
    data = bytearray(blob(2 * MIB))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount(io) / "f"
    assert _read_directly(path, MIB, MIB) == data[MIB:]
    os.truncate(path, cut)
    _agrees(path, data[:cut], cut, rounds=20)
    os.truncate(path, 2 * MIB)
    data[cut:] = bytes(2 * MIB - cut)
    _agrees(path, data, cut, rounds=40)
    _scatter(path, data, cut, writes=5)
    _agrees(path, data, cut, rounds=20)


def test_write_between_two_reads_is_seen(stack, io):
    data = bytearray(blob(MIB))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount(io) / "f"
    rng = random.Random(1)
    with opened(path, os.O_RDWR) as writer, opened(path, os.O_RDONLY | os.O_DIRECT) as reader:
        for _ in range(100):
            off, piece = rng.randrange(MIB - 100), rng.randbytes(100)
            os.pwrite(writer, piece, off)
            data[off:off + 100] = piece
            assert _read(reader, MIB, 0) == data


# ---- what it does ----

def test_second_read_hits_and_reads_nothing(stack):
    data = blob(MIB)
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount("io=cached") / "f"
    _read_directly(path, BLOCK, 0)
    with Gained(stack.server) as g:
        _read_directly(path, MIB, 0)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"], g["WINDOW BYTES"]) == (0, 256, MIB)
    with Gained(stack.server) as g:
        _read_directly(path, MIB, 0)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"], g["WINDOW BYTES"]) == (256, 0, 0)
    calls = counted(stack.pid, lambda: [_read_directly(path, MIB, 0) for _ in range(20)], stack.base / "calls")
    assert not {"pread64", "preadv", "io_uring_enter"} & calls.keys(), calls
    assert calls["writev"] >= 20


def test_partial_hit_brings_in_only_the_rest(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    path = stack.mount("io=cached") / "f"
    _read_directly(path, 128 * KIB, 256 * KIB)
    with Gained(stack.server) as g:
        _read_directly(path, MIB, 0)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"]) == (32, 256 - 32)


def _read_all(path, data):
    for off in range(0, len(data), MIB):
        assert _read_directly(path, MIB, off) == data[off:off + MIB]


def test_changed_file_hits_what_it_did_not_change(stack):
    data = bytearray(blob(4 * MIB))
    (stack.lower() / "f").write_bytes(data)
    mnt = stack.mount("io=cached")
    _read_all(mnt / "f", data)
    _write(mnt / "f", data, 300_000, b"own")
    with Gained(stack.server) as g:
        _read_all(mnt / "f", data)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"], g["WINDOW BYTES"]) == (1023, 0, 0)


def test_mount_of_another_image_hits_what_the_first_brought_in(stack):
    data = bytearray(blob(4 * MIB))
    (stack.lower(1) / "f").write_bytes(data)
    (stack.lower(0) / "other").write_text("other")
    mnt = stack.mount("io=cached")
    upper, work = stack.base / "sibling", stack.base / "sibling-work"
    upper.mkdir()
    work.mkdir()
    sibling = stack.second_mount([stack.lower(1)], "io=cached", upper=upper, work=work)
    if sibling.pid != stack.pid:
        pytest.skip("each mount has a server of its own: --mode=server")
    _read_all(mnt / "f", data)
    mine = bytearray(data)
    _write(sibling.mnt / "f", mine, 300_000, b"own")
    with Gained(stack.server) as g:
        _read_all(sibling.mnt / "f", mine)
        _read_all(mnt / "f", data)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"], g["WINDOW BYTES"]) == (1023 + 1024, 0, 0)


def test_upper_files_and_small_reads_map_nothing(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    mnt = stack.mount("io=cached")
    (mnt / "new").write_bytes(blob(MIB, 2))
    with Gained(stack.server) as g:
        _read_directly(mnt / "new", MIB, 0)
        for off in range(0, MIB, BLOCK):
            _read_directly(mnt / "f", BLOCK, off)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"], g["WINDOW BYTES"]) == (0, 0, 0)


def test_whole_copy_no_longer_needs_the_lower(stack):
    data = bytearray(blob(MIB))
    (stack.lower() / "f").write_bytes(data)
    path = stack.mount("io=cached", "cow=copy") / "f"
    _read_directly(path, MIB, 0)
    _write(path, data, 70_000, b"own")
    with Gained(stack.server) as g:
        _agrees(path, data, 1)
    assert (g["WINDOW HITS"], g["WINDOW MISSES"]) == (0, 0)


# ---- a lower that changes, which nobody may do ----

def test_lower_cut_under_a_reader_ends_nobody(stack):
    lower = stack.lower()
    data = blob(4 * MIB)
    for name in ("cut", "whole"):
        (lower / name).write_bytes(data)
    mnt = stack.mount("io=cached")
    stack.forget_lower(lower)
    is_over = threading.Event()
    wrong = []

    def read_cut(seed):
        rng = random.Random(seed)
        with opened(mnt / "cut", os.O_RDONLY | os.O_DIRECT) as fd:
            while not is_over.is_set():
                off = rng.randrange(3) * MIB
                try:
                    got = _read(fd, MIB, off)
                except OSError as e:
                    if e.errno != errno.EIO:
                        wrong.append(e)
                    continue
                for at in range(0, len(got) - BLOCK, BLOCK):
                    block, wanted = got[at:at + BLOCK], data[off + at:off + at + BLOCK]
                    # what is grown again reads as zeros, in the block of the end behind what is left
                    if block != wanted and any(block[len(os.path.commonprefix([block, wanted])):]):
                        wrong.append((off, at))

    def read_whole():
        with opened(mnt / "whole", os.O_RDONLY | os.O_DIRECT) as fd:
            while not is_over.is_set():
                if _read(fd, MIB, MIB) != data[MIB:2 * MIB]:
                    wrong.append("whole")
    readers = [threading.Thread(target=read_cut, args=(seed,)) for seed in range(2)]
    readers.append(threading.Thread(target=read_whole))
    for reader in readers:
        reader.start()
    rng = random.Random(3)
    for _ in range(300):
        os.truncate(lower / "cut", rng.randrange(4 * MIB))
        os.truncate(lower / "cut", 4 * MIB)
        (lower / "cut").write_bytes(data)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong, wrong[:5]
    assert _read_directly(mnt / "whole", MIB, 0) == data[:MIB]
    # the kernel may have learnt a smaller size from a short answer
    assert data.startswith(_read_directly(mnt / "cut", MIB, 0))


def test_lower_file_that_goes_stays_readable(stack):
    lower = stack.lower()
    data = blob(MIB)
    (lower / "f").write_bytes(data)
    mnt = stack.mount("io=cached")
    stack.forget_lower(lower)
    assert _read_directly(mnt / "f", MIB, 0) == data
    with opened(mnt / "f", os.O_RDONLY | os.O_DIRECT) as fd:
        (lower / "f").unlink()
        assert _read(fd, MIB, 0) == data


# ---- reading ahead ----

_READ_AHEAD = "/sys/class/bdi/{}/read_ahead_kb"
_KERNELS_OWN = "128"


def test_kernel_reads_further_ahead_where_root_of_the_machine_mounts(stack):
    (stack.lower() / "f").write_text("f")
    dev = stack.mount().stat().st_dev
    setting = Path(_READ_AHEAD.format(f"{os.major(dev)}:{os.minor(dev)}"))
    # The read-ahead is set once the mount answers, which a test may see first.
    assert wait_until(lambda: setting.read_text().strip() == ("512" if rootless.mode() == "root" else _KERNELS_OWN))


@pytest.mark.needs_root("root of the machine, in a user namespace, may change what another user may not")
def test_kernel_reads_no_further_ahead_in_a_user_namespace(stack):
    """Each mount has pages of its own there, and what nobody reads is read once for each."""
    (stack.lower() / "f").write_text("f")
    script = '"$@" && cat ' + _READ_AHEAD.format('$(mountpoint -d "$0")') + ' && umount "$0"'
    ran = subprocess.run(["unshare", "-rm", "sh", "-c", script, stack.mnt, stack.program, "-o",
                          f"lowerdir={stack.lower()},standalone", str(stack.mnt)], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stdout.strip()) == (0, _KERNELS_OWN), ran.stderr
