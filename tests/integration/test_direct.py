# SPDX-License-Identifier: Apache-2.0
"""Opens and writes with flags: O_DIRECT, O_APPEND, synchronous ones, those of pwritev2."""
import concurrent.futures
import contextlib
import errno
import mmap
import os
import pathlib
import random
import shutil
import struct
import subprocess
import time

import pytest

from support import linux
from support.child import in_child, in_children
from support.content import BLOCK, KIB, MIB, blob
from support.expect import opened, write_at
from support.origins import ORIGINS, mount_file
from support.syscount import counted, slow



def _outcome(action):
    try:
        return action()
    except OSError as e:
        return errno.errorcode[e.errno]


def _calls_at_once(pid, name, limit_s=20):
    """The most threads of a process that were seen in one of its calls of this name."""
    number = {"pwrite64": "18 "}[name]
    most, end = 0, time.monotonic() + limit_s
    while most < 2 and time.monotonic() < end:
        seen = 0
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                seen += (task / "syscall").read_text().startswith(number)
        most = max(most, seen)
    return most


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86_64")
def test_writers_of_one_file_do_not_wait_for_each_other(stack):
    """io=direct: requests for blocks that are own come at the same time."""
    path, _ = mount_file(stack, "partial", MIB, options=("io=direct",))
    with opened(path, os.O_RDWR) as first, opened(path, os.O_RDWR) as second, \
            slow(stack.server.pid, "pwrite64", 0.3), concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = [pool.submit(os.pwrite, fd, b"z" * BLOCK, off) for fd, off in ((first, 25 * BLOCK), (second, 26 * BLOCK))]
        at_once = _calls_at_once(stack.server.pid, "pwrite64")
        assert [d.result() for d in done] == [BLOCK, BLOCK]
    assert at_once == 2
    assert path.read_bytes()[25 * BLOCK:27 * BLOCK] == b"z" * 2 * BLOCK


@pytest.mark.parametrize("origin", ORIGINS)
def test_direct_buffered_and_mapped_access_agree(stack, origin):
    path, data = mount_file(stack, origin, MIB)

    def mix():
        rng = random.Random(5)
        buffer = mmap.mmap(-1, 128 * KIB)
        with opened(path, os.O_RDWR | os.O_DIRECT) as direct, opened(path, os.O_RDWR) as cached, \
                mmap.mmap(cached, 0) as view:
            for step in range(300):
                length = rng.choice([512, BLOCK, 3 * BLOCK, 64 * KIB])
                off = rng.randrange((MIB - length) // 512) * 512
                piece = rng.randbytes(length)
                kind = rng.choice(["direct", "write", "map"])
                if kind == "direct":
                    buffer[:length] = piece
                    assert os.pwritev(direct, [memoryview(buffer)[:length]], off) == length
                elif kind == "write":
                    os.pwrite(cached, piece, off)
                else:
                    view[off:off + length] = piece
                data[off:off + length] = piece
                off = rng.randrange((MIB - 64 * KIB) // 512) * 512
                into = memoryview(buffer)[:64 * KIB]
                assert os.preadv(direct, [into], off) == 64 * KIB
                assert into == data[off:off + 64 * KIB], (step, kind)
                assert os.pread(cached, 64 * KIB, off) == into
                assert view[off:off + 64 * KIB] == into
                into.release()
        assert path.read_bytes() == data
        os.truncate(path, MIB)
    in_child(mix)
    assert path.stat().st_size == MIB
    got = path.read_bytes()
    assert (stack.remount() / "f").read_bytes() == got != bytes(MIB)


@pytest.mark.parametrize("origin", ORIGINS)
def test_unaligned_direct_access_works_or_is_refused_without_harm(stack, origin):
    path, data = mount_file(stack, origin, MIB)
    with opened(path, os.O_RDWR | os.O_DIRECT) as fd:
        for off, length in ((1, 100), (4000, 5000), (MIB - 7, 30), (512, 4097)):
            piece = blob(length, off)
            if _outcome(lambda: os.pwrite(fd, piece, off)) != "EINVAL":
                data[off:off + length] = piece
            got = _outcome(lambda: os.pread(fd, length, off))
            assert got in (data[off:off + length], "EINVAL")
    assert path.read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


def test_direct_read_at_the_end_is_short(stack):
    path, data = mount_file(stack, "lower", 10_001)
    into = mmap.mmap(-1, 4 * BLOCK)
    with opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        assert os.preadv(fd, [into], 2 * BLOCK) == 10_001 - 2 * BLOCK
        assert into[:10_001 - 2 * BLOCK] == data[2 * BLOCK:]
        assert os.preadv(fd, [into], 4 * BLOCK) == 0


def test_direct_write_extends_a_file(stack):
    path, data = mount_file(stack, "lower", 10 * BLOCK)
    buffer = mmap.mmap(-1, 2 * BLOCK)
    buffer[:] = blob(2 * BLOCK, 9)
    with opened(path, os.O_WRONLY | os.O_DIRECT | os.O_APPEND) as fd:
        for _ in range(3):
            os.writev(fd, [buffer])
            data += buffer[:]
    assert path.read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


_RECORD = struct.Struct("<HI58s")


@pytest.mark.parametrize("size", [0, 3000, 700_000])
@pytest.mark.parametrize("flags", [0, os.O_DSYNC])
def test_appends_of_eight_processes_are_all_there_and_whole(stack, size, flags):
    count = 1000 if not flags else 60
    before = blob(size)
    (stack.lower() / "log").write_bytes(before)
    path = stack.mount() / "log"

    def append(writer):
        with opened(path, os.O_WRONLY | os.O_APPEND | flags) as fd:
            for number in range(count):
                record = _RECORD.pack(writer, number, b"%d-%d" % (writer, number))
                assert os.write(fd, record) == len(record)
    in_children([lambda w=w: append(w) for w in range(8)])
    for log in (path, stack.remount() / "log"):
        content = log.read_bytes()
        assert content[:size] == before
        assert len(content) == size + 8 * count * _RECORD.size
        last = [-1] * 8
        for writer, number, text in _RECORD.iter_unpack(content[size:]):
            assert text.rstrip(b"\0") == b"%d-%d" % (writer, number)
            assert number == last[writer] + 1
            last[writer] = number
        assert last == [count - 1] * 8


def test_large_appends_of_several_processes_do_not_mix(stack):
    (stack.lower() / "log").write_bytes(b"start")
    path = stack.mount() / "log"
    sizes = [100, 5000, 70_000, 2_500_000]

    def append(writer):
        with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
            for _ in range(6):
                os.write(fd, b"<" + bytes([65 + writer]) * sizes[writer] + b">")
    in_children([lambda w=w: append(w) for w in range(4)])
    content = path.read_bytes()
    assert content.startswith(b"start")
    records = content[5:].split(b"<")[1:]
    assert len(records) == 24
    for record in records:
        writer = record[0] - 65
        assert record == bytes([65 + writer]) * sizes[writer] + b">"


@pytest.mark.parametrize("flags", ["RWF_APPEND", "RWF_DSYNC", "RWF_SYNC", "RWF_HIPRI"])
def test_flags_of_single_writes(stack, plain, flags):
    (stack.lower() / "f").write_bytes(blob(50_000))
    (plain / "f").write_bytes(blob(50_000))
    m = stack.mount()
    seen = []
    for root in (m, plain):
        with opened(root / "f", os.O_RDWR) as fd:
            got = _outcome(lambda: os.pwritev(fd, [b"flagged"], 100, getattr(os, flags, 1)))
        seen.append((got, (root / "f").read_bytes()))
    assert seen[0] == seen[1]


def test_reading_or_writing_without_waiting_is_refused_or_right(stack):
    """FUSE offers no RWF_NOWAIT: programs that ask for it fall back to waiting."""
    path, data = mount_file(stack, "lower", 50_000)
    into = bytearray(100)
    with opened(path, os.O_RDWR) as fd:
        assert _outcome(lambda: os.preadv(fd, [into], 0, os.RWF_NOWAIT)) in (
            100, "EOPNOTSUPP", "ENOTSUP", "EAGAIN")
        if any(into):
            assert into == data[:100]


def _syncs(counts):
    return sum(counts.get(name, 0) for name in ("fsync", "fdatasync", "syncfs", "msync"))


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("how", ["O_SYNC", "O_DSYNC", "RWF_DSYNC", "O_SYNC direct", "msync"])
def test_durable_writes_make_the_server_sync(stack, origin, how):
    if "volatile" in os.environ.get("VENEER_TEST_OPTIONS", ""):
        pytest.skip("a volatile mount syncs nothing")
    # of what is passed through, the kernel syncs the file itself
    path, _ = mount_file(stack, origin, MIB, options=["io=cached"])
    flags = os.O_RDWR
    if how.startswith("O_"):
        flags |= getattr(os, how.split()[0])
    if "direct" in how:
        flags |= os.O_DIRECT
    buffer = mmap.mmap(-1, BLOCK)
    fd = os.open(path, flags)
    view = mmap.mmap(fd, 0) if how == "msync" else None

    def write():
        if view:
            view[8192:8200] = b"in a map"
            view.flush()
        else:
            os.pwritev(fd, [buffer], 8192, os.RWF_DSYNC if how == "RWF_DSYNC" else 0)
    try:
        # the sync that entering the first partial file of a mount takes does not count
        os.pwritev(fd, [buffer], 0)
        assert _syncs(counted(stack.pid, write, stack.base / "calls")) >= 1
    finally:
        if view:
            view.close()
        os.close(fd)


def test_ordinary_writes_make_no_server_sync(stack):
    """What the test above counts is there for a reason."""
    path, _ = mount_file(stack, "upper", MIB)
    counts = counted(stack.pid, lambda: write_at(path, b"x" * 5000, 8192), stack.base / "calls")
    assert _syncs(counts) == 0


@pytest.mark.parametrize("origin", ORIGINS)
def test_sync_file_range_and_advice(stack, origin):
    path, data = mount_file(stack, origin, MIB)
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"range", 200_000)
        linux.sync_file_range(fd, 0, MIB)
        for advice in (os.POSIX_FADV_DONTNEED, os.POSIX_FADV_WILLNEED, os.POSIX_FADV_SEQUENTIAL):
            os.posix_fadvise(fd, 0, 0, advice)
        data[200_000:200_005] = b"range"
        assert os.pread(fd, MIB, 0) == data


def test_executable_and_writer_exclude_each_other_as_in_a_directory(stack, plain):
    source = shutil.which("sleep")
    for root in (stack.lower(), plain):
        for name in ("running", "written", "touched"):
            shutil.copy(source, root / name)
            with open(root / name, "ab") as f:
                f.write(bytes(100_000))
    m = stack.mount()
    write_at(m / "touched", b"\0" * 10, 150_000)
    write_at(plain / "touched", b"\0" * 10, 150_000)
    seen = []
    for root in (m, plain):
        outcome = []
        for name in ("running", "touched"):
            running = subprocess.Popen([root / name, "60"])
            try:
                for flags in (os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY):
                    outcome.append(_outcome(lambda: os.close(os.open(root / name, flags))))
                outcome.append(_outcome(lambda: os.truncate(root / name, 10)))
                outcome.append(_outcome(lambda: os.chmod(root / name, 0o700)))
                outcome.append(_outcome(lambda: os.rename(root / name, root / (name + "2"))))
                outcome.append(running.poll())
            finally:
                running.kill()
                running.wait()
        with opened(root / "written", os.O_WRONLY):
            outcome.append(_outcome(
                lambda: subprocess.run([root / "written", "0"], check=True).returncode))
        outcome.append(subprocess.run([root / "written", "0"], check=True).returncode)
        seen.append(outcome)
    assert seen[0] == seen[1]
    assert "ETXTBSY" in seen[0]
