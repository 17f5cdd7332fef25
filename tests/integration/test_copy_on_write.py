# SPDX-License-Identifier: Apache-2.0
"""The cost of the first write to a lower file: judged by bytes on the disk and by system calls,
never by a clock."""
import os

import pytest

from support.content import BLOCK, CHUNK, GIB, KIB, MIB, allocated, allocated_on_disk, blob, write_large, write_sparse
from support.expect import opened, read_at, write_at
from support.server import is_shared
from support.syscount import counted

_SIZES = [4 * KIB, 16 * KIB, 64 * KIB, MIB, 64 * MIB, GIB]
_LARGE = [MIB, 64 * MIB, GIB]
# a directory block, an attribute block outside the inode and growth of the map file
_METADATA = 16 * KIB
_WHOLE_COPY_LIMIT = 16 * KIB


def _name(size):
    for unit, text in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size >= unit:
            return f"{size // unit}{text}"
    return str(size)


by_size = pytest.mark.parametrize("size", _SIZES, ids=_name)
by_large_size = pytest.mark.parametrize("size", _LARGE, ids=_name)


def _lower_file(stack, size, name="f"):
    path = stack.lower() / name
    if size >= GIB:
        write_sparse(path, size)
    elif size > MIB:
        write_large(path, size)
    else:
        path.write_bytes(blob(size))
    return path


def _mounted(stack, size):
    """A mount whose first change (the map file, if any) is already paid for."""
    _lower_file(stack, size)
    (stack.lower() / "warm").write_bytes(blob(128 * KIB))
    m = stack.mount()
    write_at(m / "warm", b"w", 70_000)
    return m / "f"


@by_size
def test_opening_for_writing_copies_nothing(stack, size):
    _lower_file(stack, size)
    m = stack.mount()
    before = allocated_on_disk(stack.upper)
    with opened(m / "f", os.O_RDWR) as fd:
        assert os.pread(fd, 100, 0) == read_at(stack.lower() / "f", 100, 0)
    with opened(m / "f", os.O_WRONLY | os.O_APPEND):
        pass
    assert allocated_on_disk(stack.upper) == before


@by_size
def test_one_aligned_block_costs_one_block(stack, size):
    path = _mounted(stack, size)
    before = allocated(stack.upper)
    off = (size // 2) & ~(BLOCK - 1)
    off = min(off, size - BLOCK)
    write_at(path, b"\xa5" * BLOCK, off)
    grown = allocated(stack.upper) - before
    data = size if size <= _WHOLE_COPY_LIMIT else 2 * BLOCK
    assert grown <= data + _METADATA
    assert allocated(stack.upper / "f") <= data + BLOCK
    assert read_at(path, BLOCK, off) == b"\xa5" * BLOCK
    if off:
        assert read_at(path, BLOCK, off - BLOCK) == read_at(stack.lower() / "f", BLOCK, off - BLOCK)


@pytest.mark.parametrize("length", [1, 100, 4095, 4096, 4097, 10_000])
@pytest.mark.parametrize("at", [0, 1, 4095, 300_001, MIB - 10_000])
def test_unaligned_write_costs_the_blocks_it_touches(stack, length, at):
    path = _mounted(stack, MIB)
    want = bytearray((stack.lower() / "f").read_bytes())
    write_at(path, b"u" * length, at)
    want[at:at + length] = b"u" * length
    touched = (at + length - 1) // BLOCK - at // BLOCK + 1
    assert allocated(stack.upper / "f") <= touched * BLOCK + 2 * BLOCK
    assert path.read_bytes() == want
    assert (stack.remount() / "f").read_bytes() == want


def test_a_write_of_half_a_chunk_takes_the_chunk(stack):
    path = _mounted(stack, 4 * MIB)
    want = bytearray((stack.lower() / "f").read_bytes())
    at, length = 2 * CHUNK + 64 * KIB, 256 * KIB + 8 * KIB
    with opened(path, os.O_RDWR) as fd:
        assert os.pwrite(fd, b"c" * length, at) == length
    want[at:at + length] = b"c" * length
    used = allocated(stack.upper / "f")
    assert CHUNK <= used <= CHUNK + 4 * BLOCK
    assert path.read_bytes() == want


def test_less_than_half_a_chunk_takes_its_blocks_only(stack):
    path = _mounted(stack, 4 * MIB)
    length = 128 * KIB
    write_at(path, b"c" * length, 2 * CHUNK)
    assert allocated(stack.upper / "f") <= length + 4 * BLOCK


_METADATA_CHANGES = {
    "chmod": lambda p: p.chmod(0o600),
    "chown": lambda p: os.chown(p, 5, 6),
    "utimens": lambda p: os.utime(p, ns=(1, 10**18)),
    "setxattr": lambda p: os.setxattr(p, "user.a", b"v" * 100),
    "link": lambda p: os.link(p, p.parent / "l"),
    "rename": lambda p: os.rename(p, p.parent / "r"),
}


@by_large_size
@pytest.mark.parametrize("change", _METADATA_CHANGES)
def test_metadata_changes_copy_no_data(stack, change, size):
    path = _mounted(stack, size)
    before = allocated(stack.upper)
    _METADATA_CHANGES[change](path)
    assert allocated(stack.upper) - before <= _METADATA
    path = path.parent / "r" if change == "rename" else path
    assert path.stat().st_size == size
    assert read_at(path, BLOCK, size // 2) == read_at(stack.lower() / "f", BLOCK, size // 2)


def test_rewriting_own_blocks_in_place_does_not_grow(stack):
    path = _mounted(stack, MIB)
    for i in range(8):
        write_at(path, bytes([i]) * BLOCK, i * 16 * BLOCK)
    before = allocated_on_disk(stack.upper / "f")
    for again in range(200):
        i = again % 8
        write_at(path, bytes([again]) * BLOCK, i * 16 * BLOCK)
    assert allocated_on_disk(stack.upper / "f") == before


def test_many_scattered_blocks_cost_no_more_than_themselves(stack):
    path = _mounted(stack, 64 * MIB)
    count = 500
    with opened(path, os.O_RDWR) as fd:
        for i in range(count):
            os.pwrite(fd, bytes([i % 256]) * BLOCK, (i * 37 % 16384) * BLOCK)
    assert allocated(stack.upper / "f") <= count * 2 * BLOCK + _METADATA
    with opened(path) as fd:
        for i in range(count):
            assert os.pread(fd, BLOCK, (i * 37 % 16384) * BLOCK) == bytes([i % 256]) * BLOCK


def test_writing_a_whole_file_costs_no_more_than_a_copy(stack):
    path = _mounted(stack, 2 * MIB)
    new = blob(2 * MIB, 9)
    with open(path, "r+b") as f:
        f.write(new)
    assert allocated(stack.upper / "f") <= 2 * MIB + _METADATA
    assert path.read_bytes() == new


def test_truncated_part_of_the_lower_is_never_copied(stack):
    path = _mounted(stack, 64 * MIB)
    with opened(path, os.O_RDWR) as fd:
        os.ftruncate(fd, MIB)
        os.ftruncate(fd, 32 * MIB)
        assert os.pread(fd, BLOCK, 2 * MIB) == bytes(BLOCK)
    assert allocated(stack.upper / "f") <= _METADATA


def test_sparse_lower_stays_sparse(stack):
    path = _mounted(stack, GIB)
    write_at(path, b"x" * BLOCK, 100 * MIB)
    assert allocated(stack.upper / "f") <= 4 * BLOCK
    assert read_at(path, BLOCK, 100 * MIB - BLOCK) == bytes(BLOCK)


def test_raw_entry_has_name_size_mode_owner_and_times(stack):
    path = _mounted(stack, MIB)
    (stack.lower() / "f").stat()
    write_at(path, b"x" * BLOCK, 8 * BLOCK)
    os.utime(path, ns=(1, 10**18 + 3))
    os.chown(path, 3, 4)
    path.chmod(0o640)
    stack.umount()
    st = os.lstat(stack.upper / "f")
    assert (st.st_size, st.st_mode & 0o7777, st.st_uid, st.st_gid) == (MIB, 0o640, 3, 4)
    assert st.st_mtime_ns == 10**18 + 3


def _calls_of_first_write(stack, name, size, table):
    path = stack.mnt / name

    def write():
        write_at(path, b"s" * BLOCK, size // 2)
    return counted(stack.pid, write, table)


@pytest.mark.parametrize("change, call, times", [
    (lambda path: path.rename(path.with_name("g")), "fsetxattr", 2),
    (lambda path: os.utime(path, ns=(10**18, 10**18)), "utimensat", 2),
], ids=["rename", "touch"])
def test_what_a_lower_file_gets_when_it_is_copied_up_it_gets_once(stack, mode, change, call, times):
    """Its mark, with its place and with privileges a seal if it moves, and guard; its times, and those of its directory."""
    if is_shared():
        pytest.skip("counts the calls of a process that serves one mount")
    for name in ("warm", "f"):
        write_sparse(stack.lower() / name, MIB)
    m = stack.mount()
    (m / "warm").chmod(0o600)
    is_sealed = call == "fsetxattr" and mode == "root"
    assert counted(stack.pid, lambda: change(m / "f"), stack.base / "calls")[call] == times + is_sealed


def test_system_calls_of_the_first_write_do_not_depend_on_the_size(stack):
    for name, size in (("warm", MIB), ("small", MIB), ("large", GIB)):
        write_sparse(stack.lower() / name, size)
    m = stack.mount()
    for name in ("warm", "small", "large"):
        (m / name).stat()
    table = stack.base / "calls"
    _calls_of_first_write(stack, "warm", MIB, table)
    small = _calls_of_first_write(stack, "small", MIB, table)
    large = _calls_of_first_write(stack, "large", GIB, table)
    assert sum(small.values()) > 0
    # requests that happen to be read by more workers, workers that happen to start, and the allocator
    loose = {"read", "readv", "writev", "write", "epoll_ctl", "epoll_wait", "futex", "clone3", "rseq", "set_robust_list",
             "rt_sigprocmask", "exit", "gettid", "sched_getaffinity", "sigaltstack", "prctl", "brk", "madvise",
             "mprotect", "mmap", "munmap"}
    strict = [{k: v for k, v in counts.items() if k not in loose} for counts in (small, large)]
    assert strict[0] == strict[1]
    # a call for each block of 1 GiB would be 262,144 more
    assert sum(large.values()) <= sum(small.values()) + 100


def _record_by_record(path, start, count, size, sync):
    """The bytes written from start on."""
    written = b""
    fd = os.open(path, os.O_RDWR)
    for i in range(count):
        record = bytes([i % 251 + 1]) * size
        os.pwrite(fd, record, start + len(written))
        written += record
        if sync:
            os.fdatasync(fd)
    os.close(fd)
    return written


@pytest.mark.parametrize("record", [BLOCK, 2 * BLOCK, 1000])
@pytest.mark.parametrize("start", [0, 3 * BLOCK, MIB // 2 - 5 * BLOCK])
def test_a_synced_log_takes_at_most_as_much_again_and_overwrites_then(stack, record, start):
    data = bytearray(blob(2 * MIB))
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    written = _record_by_record(m / "f", start, 200 * BLOCK // record, record, True)
    data[start:start + len(written)] = written
    blocks = -(-len(written) // BLOCK) + 1
    assert allocated(stack.upper / "f") <= 2 * blocks * BLOCK + _METADATA
    assert (m / "f").read_bytes() == data
    stack.remount()
    assert (m / "f").read_bytes() == data


def test_a_synced_log_goes_on_in_blocks_that_it_has(stack):
    (stack.lower() / "f").write_bytes(blob(2 * MIB))
    m = stack.mount()
    _record_by_record(m / "f", 0, 20, BLOCK, True)
    assert 30 * BLOCK <= allocated(stack.upper / "f") <= 40 * BLOCK + _METADATA


def test_a_stream_that_nobody_syncs_takes_what_is_written(stack):
    (stack.lower() / "f").write_bytes(blob(2 * MIB))
    m = stack.mount()
    _record_by_record(m / "f", 0, 40, BLOCK, False)
    assert allocated_on_disk(stack.upper / "f") <= 40 * BLOCK + _METADATA


def test_synced_writes_here_and_there_take_a_block_each(stack):
    (stack.lower() / "f").write_bytes(blob(2 * MIB))
    m = stack.mount()
    for i in range(0, 512, 7):
        _record_by_record(m / "f", i * BLOCK, 1, BLOCK, True)
    assert allocated(stack.upper / "f") <= 74 * BLOCK + _METADATA


@pytest.mark.parametrize("blocks", [64, 65, 100, 128])
def test_a_large_write_behind_what_was_synced_takes_its_chunk_and_no_more(stack, blocks):
    """Rounded up to chunks and as much again ahead, it was more than there was room for in memory."""
    data = bytearray(blob(4 * MIB))
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    _record_by_record(m / "f", 0, 1, CHUNK, True)
    data[CHUNK:CHUNK + blocks * BLOCK] = _record_by_record(m / "f", CHUNK, 1, blocks * BLOCK, True)
    data[:CHUNK] = b"\1" * CHUNK
    most = 3 if blocks == 128 else 2
    assert allocated(stack.upper / "f") <= most * CHUNK + _METADATA
    assert (m / "f").read_bytes() == data
    stack.remount()
    assert (m / "f").read_bytes() == data


def test_a_log_takes_nothing_past_the_end_of_the_file(stack):
    data = blob(30 * BLOCK + 100)
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    written = _record_by_record(m / "f", 0, 20, BLOCK, True)
    assert (m / "f").stat().st_size == len(data)
    _record_by_record(m / "f", 40 * BLOCK, 1, BLOCK, True)
    expected = written + data[len(written):] + bytes(10 * BLOCK - 100) + b"\1" * BLOCK
    assert (m / "f").read_bytes() == expected
    stack.remount()
    assert (m / "f").read_bytes() == expected
