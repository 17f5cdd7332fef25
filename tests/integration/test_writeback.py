# SPDX-License-Identifier: Apache-2.0
"""writeback=on: the kernel keeps what programs write, and sends it later."""
import contextlib
import errno
import mmap
import os
import signal

import pytest

from support.child import in_child
from support.content import BLOCK, KIB, MIB, blob
from support.counters import Gained
from support.expect import opened
from support.server import is_shared, shares_pages
from support.stack import on_small_disk

pytestmark = pytest.mark.unshared("share=pages keeps no changed pages")
_KEEPS = "io=cached", "writeback=on"


def test_many_small_writes_are_few_requests(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    want = bytearray(blob(MIB))
    m = stack.mount(*_KEEPS)
    with Gained(stack.server) as g, opened(m / "f", os.O_RDWR) as fd:
        for k in range(2048):
            os.pwrite(fd, b"%08d" % k, 300_000 + 8 * k)
        os.fsync(fd)
    want[300_000:300_000 + 8 * 2048] = b"".join(b"%08d" % k for k in range(2048))
    assert 0 < g["REQUESTS WRITE"] <= 8
    assert (m / "f").read_bytes() == want
    stack.remount(*_KEEPS)
    assert (m / "f").read_bytes() == want


@pytest.mark.parametrize("options", [("io=cached",), ("io=cached", "writeback=off"), ("io=cached", "writeback=0"),
                                     ("io=cached", "writeback=on", "timeout=0"), ("io=direct", "writeback=on"),
                                     ("io=cached", "writeback=on", "locks=server")], ids=",".join)
def test_where_it_is_not_on_each_write_is_a_request(stack, options):
    m = stack.mount(*options)
    with Gained(stack.server) as g, opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        for k in range(64):
            os.pwrite(fd, b"%08d" % k, 8 * k)
    assert g["REQUESTS WRITE"] == 64


def test_with_a_limit_the_write_itself_says_that_there_is_no_room(stack):
    m = stack.mount(*_KEEPS, "size=1M")
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        with pytest.raises(OSError) as failed:
            for _ in range(64):
                os.write(fd, blob(64 * KIB))
        assert failed.value.errno == errno.ENOSPC


def test_appends_of_several_processes_stay_whole(stack):
    (stack.lower() / "log").write_bytes(b"0" * 64)
    m = stack.mount(*_KEEPS)

    def append(who):
        with opened(m / "log", os.O_WRONLY | os.O_APPEND) as fd:
            for k in range(200):
                os.write(fd, b"%c%062d\n" % (who, k))
    pids = []
    for who in b"abcd":
        pid = os.fork()
        if not pid:
            append(who)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    for _ in range(2):
        data = (m / "log").read_bytes()
        assert data[:64] == b"0" * 64 and len(data) == 64 + 4 * 200 * 64
        lines = data[64:].splitlines()
        for who in b"abcd":
            assert [line for line in lines if line[0] == who] == [b"%c%062d" % (who, k) for k in range(200)]
        stack.remount(*_KEEPS)


def test_size_and_times_agree_after_a_new_mount(stack):
    (stack.lower() / "f").write_bytes(blob(100_000))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"end", 1_000_000)
        assert os.fstat(fd).st_size == 1_000_003
        assert (m / "f").stat().st_size == 1_000_003
    before = (m / "f").stat()
    stack.remount(*_KEEPS)
    after = (m / "f").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (m / "f").read_bytes() == blob(100_000) + bytes(900_000) + b"end"


def test_times_that_are_set_after_a_write_stay(stack):
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, blob(100_000))
        os.utime(fd, (10**9, 10**9))
        os.fsync(fd)
    assert (m / "f").stat().st_mtime == 10**9
    stack.remount(*_KEEPS)
    assert (m / "f").stat().st_mtime == 10**9


def test_holes_are_where_nothing_was_written(stack):
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 4 * MIB)
        os.pwrite(fd, b"x" * BLOCK, 2 * MIB)
        os.pwrite(fd, b"x" * BLOCK, 6 * MIB)
        assert os.lseek(fd, 0, os.SEEK_DATA) <= 2 * MIB
        assert os.lseek(fd, 3 * MIB, os.SEEK_DATA) <= 6 * MIB
        assert os.lseek(fd, 6 * MIB, os.SEEK_HOLE) == 6 * MIB + BLOCK
        with pytest.raises(OSError) as failed:
            os.lseek(fd, 6 * MIB + BLOCK, os.SEEK_DATA)
        assert failed.value.errno == errno.ENXIO


def test_a_program_that_is_changed_loses_its_set_id_bits_and_others_keep_theirs(stack, mode):
    if mode == "plain":
        pytest.skip("as a plain user: no other user is there to write")
    for name in ("written", "set later"):
        path = stack.lower() / name
        path.write_bytes(blob(100_000))
        path.chmod(0o6777)
    m = stack.mount(*_KEEPS)

    def write():
        with opened(m / "written", os.O_RDWR) as fd:
            os.pwrite(fd, b"new", 5000)
    in_child(write, uid=1000, gid=1000)
    assert (m / "written").stat().st_mode & 0o7777 == 0o777
    # what was kept goes before the mode is set, and takes nothing of it later
    (m / "set later").chmod(0o777)
    with opened(m / "set later", os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 5000)
        os.fchmod(fd, 0o6777)
        os.fsync(fd)
    stack.remount(*_KEEPS)
    assert (m / "set later").stat().st_mode & 0o7777 == 0o6777
    assert (m / "written").stat().st_mode & 0o7777 == 0o777


def test_direct_writes_and_mappings_see_what_is_kept(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    want = bytearray(blob(MIB))
    m = stack.mount(*_KEEPS)
    page = mmap.mmap(-1, BLOCK)
    with opened(m / "f", os.O_RDWR) as fd, opened(m / "f", os.O_RDWR | os.O_DIRECT) as direct:
        os.pwrite(fd, b"kept", 5000)
        want[5000:5004] = b"kept"
        os.preadv(direct, [page], BLOCK)
        assert page[:] == want[BLOCK:2 * BLOCK]
        page[:] = b"d" * BLOCK
        os.pwritev(direct, [page], BLOCK)
        want[BLOCK:2 * BLOCK] = b"d" * BLOCK
        assert os.pread(fd, MIB, 0) == want
    assert (m / "f").read_bytes() == want


@pytest.mark.parametrize("first", ["unlink", "rename", "truncate", "replace"])
def test_what_is_kept_of_a_file_whose_name_goes(stack, first):
    (stack.lower() / "f").write_bytes(blob(300_000))
    (stack.lower() / "other").write_bytes(b"other")
    want = bytearray(blob(300_000))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"kept", 200_000)
        want[200_000:200_004] = b"kept"
        if first == "unlink":
            os.unlink(m / "f")
        elif first == "rename":
            os.rename(m / "f", m / "g")
        elif first == "replace":
            os.rename(m / "other", m / "f")
        else:
            os.ftruncate(fd, 200_002)
            want = want[:200_002]
        os.fsync(fd)
        assert os.pread(fd, 300_000, 0) == want
    stack.remount(*_KEEPS)
    if first in ("rename", "truncate"):
        assert (m / ("g" if first == "rename" else "f")).read_bytes() == want
    elif first == "replace":
        assert (m / "f").read_bytes() == b"other"
    else:
        assert not (m / "f").exists()


@pytest.mark.needs_privileges("it mounts a small file system")
def test_a_full_disk_is_told_by_fsync_and_what_was_written_before_stays(stack):
    with on_small_disk(stack):
        m = stack.mount(*_KEEPS)
        with opened(m / "before", os.O_RDWR | os.O_CREAT) as fd:
            os.write(fd, blob(MIB))
            os.fsync(fd)
        fd = os.open(m / "large", os.O_RDWR | os.O_CREAT)
        with pytest.raises(OSError) as failed:
            for k in range(16):
                os.write(fd, blob(MIB, k))
            os.fsync(fd)
        assert failed.value.errno == errno.ENOSPC
        with contextlib.suppress(OSError):
            os.close(fd)
        assert (m / "before").read_bytes() == blob(MIB)
        stack.remount(*_KEEPS)
        assert (m / "before").read_bytes() == blob(MIB)


def test_what_is_kept_survives_a_killed_server(stack, serving):
    if not is_shared() or shares_pages():
        pytest.skip("a server of one mount alone is not followed by another")
    (stack.lower() / "f").write_bytes(blob(MIB))
    want = bytearray(blob(MIB))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        for k in range(10):
            os.pwrite(fd, b"%08d" % k, 100_000 * k)
            want[100_000 * k:100_000 * k + 8] = b"%08d" % k
            os.kill(serving.pid, signal.SIGKILL)
            assert os.pread(fd, 8, 100_000 * k) == b"%08d" % k
            if k % 2:
                os.fsync(fd)
    assert (m / "f").read_bytes() == want
    stack.remount(*_KEEPS)
    assert (m / "f").read_bytes() == want
