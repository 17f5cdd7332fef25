# SPDX-License-Identifier: Apache-2.0
"""Files of the upper that are read and written past us: their bytes, attributes, set-id bits and names."""
import errno
import mmap
import multiprocessing
import os
import stat

import pytest

from support import linux
from support.child import Child, in_child
from support.content import BLOCK, KIB, MIB, blob
from support.counters import Gained
from support.expect import fails_with, opened, read_at, write_at
from support.passthrough import LARGE, NEEDS_ROOT, NOTHING_PASSES, m  # noqa: F401
from support.server import wait_until
from support.waiting import wait_for_tick

pytestmark = NEEDS_ROOT


# ---- files of the upper ----

def test_new_file_is_written_past_us_from_its_first_open(stack, m):
    with Gained(stack.server) as g:
        with opened(m / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640) as fd:
            assert os.write(fd, blob(LARGE, 6)) == LARGE
            assert os.pread(fd, 10, 100) == blob(LARGE, 6)[100:110]
    assert (g["REQUESTS CREATE"], g["REQUESTS MKNOD"], g["REQUESTS OPEN"]) == (1, 0, 0)
    assert (g["REQUESTS WRITE"], g["REQUESTS READ"]) == (0, 0)
    assert (stack.upper / "new").read_bytes() == (m / "new").read_bytes() == blob(LARGE, 6)
    assert stat.S_IMODE(os.stat(m / "new").st_mode) == 0o640


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDONLY, os.O_WRONLY | os.O_APPEND])
def test_ways_to_create(stack, m, flags):
    with opened(m / "new", flags | os.O_CREAT, 0o444) as fd:
        if flags & os.O_WRONLY:
            os.write(fd, b"one")
            os.write(fd, b"two")
    assert (m / "new").read_bytes() == (b"onetwo" if flags & os.O_WRONLY else b"")
    assert stat.S_IMODE(os.stat(m / "new").st_mode) == 0o444
    with fails_with(errno.EEXIST):
        os.open(m / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.unlink(m / "large")
    with opened(m / "large", os.O_CREAT | os.O_EXCL | os.O_WRONLY) as fd:
        os.write(fd, b"over a whiteout")
    assert (m / "large").read_bytes() == b"over a whiteout"


def test_nameless_file_is_written_past_us_and_gets_a_name(stack, m):
    with Gained(stack.server) as g, opened(m, os.O_TMPFILE | os.O_RDWR, 0o600) as fd:
        os.write(fd, blob(LARGE, 6))
        assert os.pread(fd, LARGE, 0) == blob(LARGE, 6)
        linux.link_descriptor(fd, m / "named")
        os.pwrite(fd, b"more", LARGE)
    assert (g["REQUESTS WRITE"], g["REQUESTS READ"]) == (0, 0)
    assert (m / "named").read_bytes() == blob(LARGE, 6) + b"more"


def _is_of_now(path, before):
    """Do size and times of the file agree with the upper's, and did the times move on?"""
    st = os.stat(path)
    return st.st_mtime_ns > before.st_mtime_ns and st.st_ctime_ns > before.st_ctime_ns


@pytest.mark.parametrize("change", ["write", "append", "store", "truncate", "grow", "fallocate", "punch", "retruncate",
                                    "copy_range"])
def test_attributes_after_changes_past_us(stack, m, change):
    (m / "new").write_bytes(blob(100_000, 6))
    with opened(m / "new", os.O_RDWR) as fd:
        wait_for_tick(stack.base)
        before, want = os.stat(m / "new"), bytearray(blob(100_000, 6))
        if change == "write":
            os.pwrite(fd, b"w" * 10, 99_995)
            want[99_995:] = b"w" * 10
        elif change == "append":
            with opened(m / "new", os.O_WRONLY | os.O_APPEND) as other:
                os.write(other, b"a" * 7)
            want += b"a" * 7
        elif change == "store":
            with mmap.mmap(fd, 0) as view:
                view[50_000:50_005] = b"store"
            want[50_000:50_005] = b"store"
        elif change == "truncate":
            os.ftruncate(fd, 1234)
            want = want[:1234]
        elif change == "grow":
            os.truncate(m / "new", 123_456)
            want += bytes(23_456)
        elif change == "fallocate":
            linux.fallocate(fd, 0, 100_000, 5000)
            want += bytes(5000)
        elif change == "punch":
            linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 4096, 8192)
            want[4096:12288] = bytes(8192)
        elif change == "retruncate":
            with opened(m / "new", os.O_WRONLY | os.O_TRUNC) as other:
                os.write(other, b"again")
            want = b"again"
        else:
            with opened(m / "large") as source:
                assert os.copy_file_range(source, fd, 5000, 0, 200) == 5000
            want[200:5200] = blob(LARGE)[:5000]
        assert os.fstat(fd).st_size == os.stat(m / "new").st_size == len(want)
        assert _is_of_now(m / "new", before)
        assert os.pread(fd, 200_000, 0) == want
        assert (m / "new").read_bytes() == want
    assert (stack.upper / "new").read_bytes() == want


def test_holes_of_an_upper_file(stack, m):
    with opened(m / "sparse", os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, MIB)
        os.pwrite(fd, b"x" * BLOCK, 512 * KIB)
        assert os.lseek(fd, 0, os.SEEK_DATA) == 512 * KIB
        assert os.lseek(fd, 512 * KIB, os.SEEK_HOLE) == 516 * KIB
        with mmap.mmap(fd, 0) as view:
            view[700 * KIB] = 1
            assert os.lseek(fd, 516 * KIB, os.SEEK_DATA) <= 700 * KIB


def test_stores_after_the_file_was_closed_change_its_times(stack, m):
    (m / "new").write_bytes(bytes(100_000))
    fd = os.open(m / "new", os.O_RDWR)
    view = mmap.mmap(fd, 0)
    os.close(fd)
    wait_until(lambda: False, 0.02)
    before = os.stat(m / "new")
    view[0] = 1
    view.flush()
    assert os.stat(m / "new").st_mtime_ns > before.st_mtime_ns
    assert read_at(m / "new", 1, 0) == b"\1"
    view.close()


def test_times_set_after_a_mapped_store_stay(stack, m):
    """Such times do not stay where pages are the mount's own: the mount writes the pages later."""
    (m / "new").write_bytes(bytes(100_000))
    with opened(m / "new", os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
        view[5000:5003] = b"new"
        os.utime(fd, (10**9, 10**9))
    assert (m / "new").stat().st_mtime == 10**9


def test_privileged_writer_keeps_set_id_bits(stack, m):
    """Also where the kernel asks us to look, because it takes capabilities away."""
    path = m / "new"
    path.write_bytes(b"1")
    os.chmod(path, 0o6777)
    os.setxattr(path, "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    write_at(path, b"2", 0)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o6777
    with fails_with(errno.ENODATA):
        os.getxattr(path, "security.capability")


def test_file_is_synced_by_request(stack, m):
    with Gained(stack.server) as g, opened(m / "new", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"x" * 10000)
        os.fsync(fd)
    assert g["REQUESTS FSYNC"] == 1


@pytest.mark.unshared(NOTHING_PASSES)
@pytest.mark.writethrough(NOTHING_PASSES)
def test_volatile_changes_nothing_of_it(stack, m):
    stack.remount("volatile")
    with Gained(stack.server) as g:
        assert (m / "large").read_bytes() == blob(LARGE)
        (m / "new").write_bytes(blob(LARGE, 6))
        assert (m / "new").read_bytes() == blob(LARGE, 6)
    assert (g["REQUESTS READ"], g["REQUESTS WRITE"]) == (0, 0)


# ---- set-id bits ----

@pytest.mark.parametrize("mode,left", [(0o4777, 0o777), (0o2777, 0o777), (0o6777, 0o777), (0o2767, 0o767)], ids=oct)
def test_writer_without_privileges_takes_set_id_bits_away(stack, m, mode, left):
    path = m / "new"
    with opened(path, os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"1")
        os.fchmod(fd, mode)
        os.write(fd, b"2")
        assert stat.S_IMODE(os.stat(path).st_mode) == mode

    def write():
        with opened(path, os.O_WRONLY) as fd:
            os.write(fd, b"3")
        assert stat.S_IMODE(os.stat(path).st_mode) == left
    with Gained(stack.server) as g:
        in_child(write, uid=1234, gid=1234)
    assert g["REQUESTS WRITE"] == 0
    assert stat.S_IMODE(os.stat(stack.upper / "new").st_mode) == left


def test_writer_from_before_the_bit_takes_it_away_too(stack, m):
    mine, theirs = multiprocessing.Pipe()
    (m / "new").touch()
    os.chmod(m / "new", 0o666)

    def write():
        with opened(m / "new", os.O_WRONLY) as fd:
            theirs.send_bytes(b"open")
            assert theirs.recv_bytes(10) == b"write"
            os.write(fd, b"3")
    child = Child(write, uid=1234, gid=1234)
    assert mine.recv_bytes(10) == b"open"
    os.chmod(m / "new", 0o4777)
    mine.send_bytes(b"write")
    child.join()
    assert stat.S_IMODE(os.stat(m / "new").st_mode) == 0o777


def test_write_takes_capabilities_away(stack, m):
    (m / "new").write_bytes(b"x" * 5000)
    os.setxattr(m / "new", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    write_at(m / "new", b"y", 0)
    with fails_with(errno.ENODATA):
        os.getxattr(m / "new", "security.capability")


# ---- names ----

@pytest.mark.parametrize("name", ["large", "new"])
def test_unlinked_file_goes_on(stack, m, name):
    (m / "new").write_bytes(blob(LARGE))
    reader = os.open(m / name, os.O_RDONLY)
    os.unlink(m / name)
    (m / name).write_bytes(b"another")
    assert os.pread(reader, LARGE, 0) == blob(LARGE)
    assert os.fstat(reader).st_nlink == 0
    assert read_at(f"/proc/self/fd/{reader}", 10, 0) == blob(LARGE)[:10]
    os.close(reader)
    assert (m / name).read_bytes() == b"another"


@pytest.mark.parametrize("name", ["large", "new"])
def test_written_after_it_was_unlinked(stack, m, name):
    (m / "new").write_bytes(blob(LARGE))
    writer = os.open(m / name, os.O_RDWR)
    os.unlink(m / name)
    os.pwrite(writer, b"NEW", 100_000)
    assert os.pread(writer, 3, 100_000) == b"NEW"
    assert os.pread(writer, 3, 0) == blob(LARGE)[:3]
    os.close(writer)


@pytest.mark.parametrize("flags", [0, linux.RENAME_EXCHANGE], ids=["over", "exchange"])
def test_renamed_while_open(stack, m, flags):
    (m / "new").write_bytes(blob(LARGE, 6))
    lower, upper = os.open(m / "large", os.O_RDONLY), os.open(m / "new", os.O_RDWR)
    linux.renameat2(m / "new", m / "large", flags)
    assert os.pread(lower, LARGE, 0) == blob(LARGE)
    os.pwrite(upper, b"NEW", 0)
    assert (m / "large").read_bytes() == b"NEW" + blob(LARGE, 6)[3:]
    if flags:
        assert (m / "new").read_bytes() == blob(LARGE)
        write_at(m / "new", b"two", 0)
        assert read_at(m / "new", 3, 0) == b"two"
    os.close(lower)
    os.close(upper)


def test_hard_links_of_an_upper_file_are_one(stack, m):
    (m / "new").write_bytes(blob(LARGE, 6))
    os.link(m / "new", m / "d" / "second")
    with opened(m / "new", os.O_RDWR) as a, opened(m / "d" / "second", os.O_RDWR) as b:
        os.pwrite(a, b"one", 0)
        assert os.pread(b, 3, 0) == b"one"
        os.pwrite(b, b"end", LARGE)
        assert os.fstat(a).st_size == LARGE + 3
