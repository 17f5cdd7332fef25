# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel reads and writes past us: who is given what, what others see of it, and that a lower layer
stays as it is whatever is done. Every row was once a way to corrupt a lower file or to fail with EIO."""
import errno
import mmap
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest

from support import linux, pagecache
from support.child import Child, in_child
from support.content import BLOCK, KIB, MIB, blob
from support.counters import Gained, counters
from support.expect import fails_with, opened, read_at, write_at
from support.server import wait_until

pytestmark = pytest.mark.needs_root("a user namespace may not register backing files")

LARGE = 300 * KIB


def _is_passed_through(stack):
    return "BACKING FILES" in counters(stack.server)


@pytest.fixture
def m(stack):
    """A mount over one large, one small and one executable file, with passthrough."""
    low = stack.lower()
    (low / "large").write_bytes(blob(LARGE))
    (low / "small").write_bytes(blob(10 * KIB, 2))
    (low / "prog").write_bytes(blob(20 * KIB, 3))
    (low / "prog").chmod(0o755)
    (low / "libx.so.1").write_bytes(blob(20 * KIB, 4))
    (low / "d").mkdir()
    mnt = stack.mount("io=passthrough")
    if not _is_passed_through(stack):
        pytest.skip("this kernel registers no backing files")
    return mnt


def _settle(stack, path):
    """Until the closes of a file have arrived, so that the next open starts anew."""
    os.sync()
    wait_until(lambda: False, 0.03)


# ---- who is given what ----

@pytest.mark.parametrize("name", ["large", "prog", "libx.so.1"])
def test_large_files_programs_and_libraries_are_read_without_a_request(stack, m, name):
    with Gained(stack.server) as g:
        assert (m / name).read_bytes() == (stack.lower() / name).read_bytes()
        with opened(m / name) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            assert view[:] == (stack.lower() / name).read_bytes()
    assert (g["REQUESTS READ"], g["REQUESTS OPEN"]) == (0, 2)
    assert counters(stack.server)["BACKING FILES"] == 1


def test_small_files_are_read_once_and_kept(stack, m):
    with Gained(stack.server) as g:
        for _ in range(5):
            assert (m / "small").read_bytes() == (stack.lower() / "small").read_bytes()
    assert g["REQUESTS READ"] == 1
    assert g["BACKING FILES"] == 0


def test_fast_passes_small_files_through_too(stack, m):
    stack.remount("coherence=fast")
    with Gained(stack.server) as g:
        assert (m / "small").read_bytes() == (stack.lower() / "small").read_bytes()
    assert (g["REQUESTS READ"], g["BACKING FILES"]) == (0, 1)


def test_strict_asks_for_reads_but_shares_mappings(stack, m):
    stack.remount("coherence=strict")
    with Gained(stack.server) as g, opened(m / "large") as fd:
        assert os.pread(fd, BLOCK, 5 * BLOCK) == blob(LARGE)[5 * BLOCK:6 * BLOCK]
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            assert view[:] == blob(LARGE)
        assert pagecache.own_pages(fd) == 0
    assert g["REQUESTS READ"] == 1
    with Gained(stack.server) as g:
        assert (m / "prog").read_bytes() == blob(20 * KIB, 3)
    assert g["REQUESTS READ"] == 0


@pytest.mark.parametrize("how", ["sendfile", "splice", "copy_file_range"])
def test_bytes_moved_inside_the_kernel(stack, m, plain, how):
    with opened(m / "large") as fd, opened((m if how == "copy_file_range" else plain) / "out",
                                           os.O_RDWR | os.O_CREAT) as out:
        if how == "sendfile":
            assert os.sendfile(out, fd, 0, LARGE) == LARGE
        elif how == "copy_file_range":
            left = LARGE
            while left:
                left -= os.copy_file_range(fd, out, left)
        else:
            source, target = os.pipe()
            for off in range(0, LARGE, 16 * KIB):
                n = os.splice(fd, target, 16 * KIB, offset_src=off)
                assert os.splice(source, out, n) == n == min(16 * KIB, LARGE - off)
            os.close(source)
            os.close(target)
        assert os.pread(out, LARGE + 1, 0) == blob(LARGE)


def test_program_runs_and_cannot_be_written_meanwhile(stack, m):
    shutil.copy(shutil.which("sleep"), stack.base / "sleep")
    stack.umount()
    shutil.copy(stack.base / "sleep", stack.lower() / "sleep")
    stack.forget_lower(stack.lower())
    stack.mount()
    with Gained(stack.server) as g:
        process = subprocess.Popen([m / "sleep", "30"])
        assert wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("sleep"))
        with fails_with(errno.ETXTBSY):
            os.open(m / "sleep", os.O_RDWR)
        process.kill()
        process.wait()
    assert g["REQUESTS READ"] == 0
    write_at(m / "sleep", b"changed", 1000)
    assert read_at(m / "sleep", 7, 1000) == b"changed"


# ---- one copy of each page ----

def test_two_mounts_share_the_pages_of_the_lower_file(stack, m):
    second = stack.second_mount(stack.lowers)
    low = stack.lower() / "large"
    pagecache.drop(low)
    pages = -(-LARGE // mmap.PAGESIZE)
    assert pagecache.resident_pages(second.mnt / "large") == 0, "the file cannot be dropped from memory"
    assert (m / "large").read_bytes() == blob(LARGE)
    for path in (low, m / "large", second.mnt / "large"):
        assert pagecache.resident_pages(path) == pages
    with Gained(second) as g, opened(second.mnt / "large") as fd:
        assert os.pread(fd, LARGE, 0) == blob(LARGE)
        assert pagecache.own_pages(fd) == 0
    assert g["REQUESTS READ"] == 0
    with opened(m / "large") as fd:
        assert pagecache.own_pages(fd) == 0
    with opened(low) as fd:
        assert pagecache.own_pages(fd) == pages


def test_cached_mount_holds_pages_of_its_own(stack, m):
    """The counterpart: what is asserted above can fail."""
    stack.remount("io=cached")
    with opened(m / "large") as fd:
        assert os.pread(fd, LARGE, 0) == blob(LARGE)
        assert pagecache.own_pages(fd) > 0


def test_upper_file_has_one_copy_of_its_pages(stack, m):
    (m / "new").write_bytes(blob(LARGE, 7))
    with opened(m / "new") as fd:
        assert os.pread(fd, LARGE, 0) == blob(LARGE, 7)
        assert pagecache.own_pages(fd) == 0


# ---- a reader holds a lower file, a writer comes ----

def _readers(path):
    fd = os.open(path, os.O_RDONLY)
    return fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ)


@pytest.mark.parametrize("options,sees_new,map_sees_new", [
    ((), False, False), (("coherence=strict",), True, False), (("io=cached",), True, True),
    (("io=direct",), True, None)], ids=["auto", "strict", "cached", "direct"])
def test_reader_from_before_the_first_write(stack, m, options, sees_new, map_sees_new):
    stack.remount(*options)
    fd, view = _readers(m / "large")
    assert view[1000:1003] == os.pread(fd, 3, 1000) == blob(LARGE)[1000:1003]
    write_at(m / "large", b"NEW", 1000)
    assert read_at(m / "large", 3, 1000) == b"NEW"
    assert os.pread(fd, 3, 1000) == (b"NEW" if sees_new else blob(LARGE)[1000:1003])
    if map_sees_new is not None:
        assert view[1000:1003] == (b"NEW" if map_sees_new else blob(LARGE)[1000:1003])
    view.close()
    os.close(fd)


def test_writer_of_a_file_that_is_read_gets_another_node_and_the_same_file(stack, m):
    fd, view = _readers(m / "large")
    ino = os.fstat(fd).st_ino
    writer = os.open(m / "large", os.O_RDWR)
    assert os.fstat(writer).st_ino == os.stat(m / "large").st_ino == ino
    os.pwrite(writer, b"tail", LARGE)
    os.fchmod(fd, 0o604)
    for st in (os.fstat(fd), os.fstat(writer), os.stat(m / "large")):
        assert (st.st_size, stat.S_IMODE(st.st_mode)) == (LARGE + 4, 0o604)
    os.utime(m / "large", (11, 12))
    assert os.fstat(fd).st_mtime == 12
    os.setxattr(fd, "user.x", b"1")
    assert os.getxattr(m / "large", "user.x") == b"1"
    view.close()
    os.close(fd)
    os.close(writer)
    assert wait_until(lambda: os.stat(m / "large").st_size == LARGE + 4)


def test_reader_between_the_switch_and_the_writer_is_not_in_its_way(stack, m):
    """Opened for writing and not written, with readers before and after."""
    readers = []
    for _ in range(5):
        readers.append(os.open(m / "large", os.O_RDONLY))
        os.close(os.open(m / "large", os.O_RDWR))
    assert all(os.pread(fd, 10, 0) == blob(LARGE)[:10] for fd in readers)
    with Gained(stack.server) as g:
        write_at(m / "large", b"NEW", 0)
    assert g["NODES"] == 0
    for fd in readers:
        os.close(fd)
    assert read_at(m / "large", 3, 0) == b"NEW"


def test_no_other_node_without_need(stack, m):
    """A name that was bound elsewhere stays bound, and may be written by way of that."""
    (stack.base / "bound").touch()
    assert (m / "large").read_bytes() == blob(LARGE)
    linux.mount(str(m / "large"), str(stack.base / "bound"), None, linux.MS_BIND)
    try:
        _settle(stack, m)
        with Gained(stack.server) as g:
            write_at(stack.base / "bound", b"NEW", 70_000)
        assert g["NODES"] == 0
        assert os.path.ismount(stack.base / "bound")
        assert read_at(m / "large", 3, 70_000) == read_at(stack.base / "bound", 3, 70_000) == b"NEW"
    finally:
        linux.umount(str(stack.base / "bound"), linux.MNT_DETACH)


def test_descriptor_is_opened_once_more(stack, m):
    fd = os.open(m / "large", os.O_RDONLY)
    again = f"/proc/self/fd/{fd}"
    assert read_at(again, 3, 0) == blob(LARGE)[:3]
    # there is no name to look up again: the one case in which somebody hears of the switch
    with fails_with(errno.ESTALE):
        os.open(again, os.O_RDWR)
    write_at(m / "large", b"NEW", 0)
    assert read_at(again, 3, 0) == blob(LARGE)[:3]
    os.close(fd)


def test_descriptor_without_data_leads_to_the_new_data(stack, m):
    fd, path = os.open(m / "large", os.O_RDONLY), os.open(m / "large", os.O_PATH)
    write_at(m / "large", b"NEW", 0)
    os.close(fd)
    again = f"/proc/self/fd/{path}"
    assert wait_until(lambda: read_at(again, 3, 0) == b"NEW")
    with opened(again) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        assert view[:3] == b"NEW"
    write_at(m / "large", b"two", 0)
    assert read_at(again, 3, 0) == b"two"
    os.close(path)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC],
                         ids=["write", "both", "append", "truncate"])
def test_lower_file_stays_whoever_writes_how(stack, m, flags):
    fd, view = _readers(m / "large")
    with opened(m / "large", flags) as writer:
        os.write(writer, b"w" * 5000)
        if flags & os.O_RDWR:
            with mmap.mmap(writer, 0) as stores:
                stores[10:14] = b"mmap"
                stores.flush()
    want = bytearray(blob(LARGE))
    if flags & os.O_APPEND:
        want += b"w" * 5000
    elif flags & os.O_TRUNC:
        want = bytearray(b"w" * 5000)
    else:
        want[:5000] = b"w" * 5000
    if flags & os.O_RDWR:
        want[10:14] = b"mmap"
    assert (m / "large").read_bytes() == want
    assert view[:] == os.pread(fd, LARGE, 0) == blob(LARGE)
    assert (stack.lower() / "large").read_bytes() == blob(LARGE)
    view.close()
    os.close(fd)


def test_lower_files_under_readers_mappings_and_writers_at_once(stack, m):
    """What changed the lower layer under other unions."""
    def read():
        with opened(m / "large") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            for _ in range(200):
                assert view[LARGE - 100:LARGE] in (blob(LARGE)[-100:], b"s" * 100)

    def store():
        for _ in range(20):
            with opened(m / "large", os.O_RDWR) as fd, mmap.mmap(fd, LARGE) as view:
                view[LARGE - 100:LARGE] = b"s" * 100

    def append():
        for _ in range(20):
            with opened(m / "large", os.O_WRONLY | os.O_APPEND) as fd:
                os.write(fd, b"a" * 100)

    failures = []

    def guarded(work):
        try:
            work()
        except (OSError, AssertionError) as e:
            failures.append(e)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in (read, read, store, append, store)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (m / "large").read_bytes() == blob(LARGE)[:-100] + b"s" * 100 + b"a" * 2000
    assert (stack.lower() / "large").read_bytes() == blob(LARGE)


@pytest.mark.parametrize("options", [(), ("coherence=strict",), ("coherence=fast",)], ids=["auto", "strict", "fast"])
def test_opens_of_all_kinds_at_once_never_fail(stack, m, options):
    """Readers and writers race for each file's first write, when its node changes."""
    stack.umount()
    stack.forget_lower(stack.lower())
    names = [f"f{number}" for number in range(30)]
    for name in names:
        (stack.lower() / name).write_bytes(blob(LARGE))
    m = stack.mount(*options)
    failures, start = [], threading.Barrier(6)

    def read():
        for name in names:
            start.wait()
            for _ in range(15):
                data = read_at(m / name, 8, 0)
                assert data in (blob(LARGE)[:8], b"written!"), data

    def write():
        for name in names:
            start.wait()
            for _ in range(5):
                write_at(m / name, b"written!", 0)
                assert read_at(m / name, 8, 0) == b"written!"

    def guarded(work):
        try:
            work()
        except (OSError, AssertionError) as e:
            failures.append(e)
            start.abort()
        except threading.BrokenBarrierError:
            pass
    threads = [threading.Thread(target=guarded, args=(work,)) for work in (read, read, read, read, write, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for name in names:
        assert (m / name).read_bytes() == b"written!" + blob(LARGE)[8:]
        assert (stack.lower() / name).read_bytes() == blob(LARGE)


def test_registered_lower_file_cannot_be_written_even_by_mistake(stack, m):
    """The server registers it from a read-only clone of the layer's mount."""
    with opened(m / "large"):
        mounts = [os.readlink(f"/proc/{stack.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{stack.pid}/fd")]
    assert mounts.count("/") >= 1, mounts


def test_truncated_by_path_while_it_is_read(stack, m):
    fd, view = _readers(m / "large")
    os.truncate(m / "large", 100_000)
    assert (m / "large").read_bytes() == blob(LARGE)[:100_000]
    assert os.fstat(fd).st_size == os.stat(m / "large").st_size == 100_000
    os.truncate(m / "large", 0)
    assert (m / "large").read_bytes() == b""
    os.truncate(m / "large", 50)
    assert (m / "large").read_bytes() == bytes(50)
    view.close()
    os.close(fd)


@pytest.mark.parametrize("what", ["chmod", "chown", "utime", "setxattr", "link", "rename"])
def test_changed_attributes_leave_the_data_where_it_is(stack, m, what):
    fd, view = _readers(m / "large")
    name = "large"
    with Gained(stack.server) as g:
        if what == "chmod":
            os.chmod(m / name, 0o640)
        elif what == "chown":
            os.chown(m / name, 12, 13)
        elif what == "utime":
            os.utime(m / name, (1, 2))
        elif what == "setxattr":
            os.setxattr(m / name, "user.x", b"y")
        elif what == "link":
            os.link(m / name, m / "d" / "second")
        else:
            name = "d/moved"
            os.rename(m / "large", m / name)
        assert (m / name).read_bytes() == os.pread(fd, LARGE, 0) == view[:] == blob(LARGE)
    assert g["REQUESTS READ"] == 0
    assert g["COPY-UP BYTES"] == 0
    view.close()
    os.close(fd)
    write_at(m / name, b"NEW", 0)
    assert read_at(m / name, 3, 0) == b"NEW"


def test_all_names_of_a_file_show_what_was_written_by_one(stack, m):
    stack.umount()
    stack.forget_lower(stack.lower())
    os.link(stack.lower() / "large", stack.lower() / "d" / "other")
    stack.mount()
    assert (m / "d" / "other").read_bytes() == blob(LARGE)
    fd, view = _readers(m / "large")
    write_at(m / "large", b"NEW", 5)
    assert read_at(m / "d" / "other", 3, 5) == b"NEW"
    write_at(m / "d" / "other", b"two", 5)
    assert read_at(m / "large", 3, 5) == b"two"
    assert os.stat(m / "large").st_nlink == os.fstat(fd).st_nlink == 2
    os.unlink(m / "d" / "other")
    assert os.stat(m / "large").st_nlink == os.fstat(fd).st_nlink == 1
    view.close()
    os.close(fd)


def test_file_below_another_mount_inside_the_layer(stack, m):
    stack.umount()
    stack.forget_lower(stack.lower())
    inner = stack.lower() / "d"
    linux.mount("none", str(inner), "tmpfs", 0, None)
    try:
        (inner / "large").write_bytes(blob(LARGE, 9))
        stack.mount()
        fd, view = _readers(m / "d" / "large")
        assert view[:] == os.pread(fd, LARGE, 0) == blob(LARGE, 9)
        write_at(m / "d" / "large", b"NEW", 0)
        assert (inner / "large").read_bytes() == blob(LARGE, 9)
        view.close()
        os.close(fd)
        stack.umount()
        assert (inner / "large").read_bytes() == blob(LARGE, 9)
    finally:
        stack.forget_lower(stack.lower())
        linux.umount(str(inner), linux.MNT_DETACH)


# ---- partial files ----

def _make_partial(m):
    write_at(m / "large", b"NEW", 70_000)
    want = bytearray(blob(LARGE))
    want[70_000:70_003] = b"NEW"
    return want


@pytest.mark.parametrize("partial,requests,pages", [("auto", 2, 0), ("direct", 2, 0), ("cached", 1, None)])
def test_reader_of_a_partial_file(stack, m, partial, requests, pages):
    stack.remount(f"partial={partial}")
    want = _make_partial(m)
    _settle(stack, m)
    with Gained(stack.server) as g, opened(m / "large") as fd:
        for _ in range(2):
            assert os.pread(fd, BLOCK, 17 * BLOCK) == want[17 * BLOCK:18 * BLOCK]
        if pages is not None:
            assert pagecache.own_pages(fd) == pages
    assert g["REQUESTS READ"] == requests
    assert (m / "large").read_bytes() == want


def test_reader_and_writer_of_a_partial_file_agree(stack, m):
    want = _make_partial(m)
    _settle(stack, m)
    reader = os.open(m / "large", os.O_RDONLY)
    writer = os.open(m / "large", os.O_RDWR)
    assert os.pread(reader, LARGE, 0) == os.pread(writer, LARGE, 0) == want
    with mmap.mmap(writer, 0) as stores, mmap.mmap(reader, 0, prot=mmap.PROT_READ) as view:
        for number in range(20):
            off = number * 11_000
            data = b"%08d" % number
            if number % 2:
                os.pwrite(writer, data, off)
            else:
                stores[off:off + 8] = data
            want[off:off + 8] = data
            assert os.pread(reader, 8, off) == data
            assert view[off:off + 8] == data
        assert os.pread(reader, LARGE, 0) == want
    os.ftruncate(writer, 50_000)
    assert os.pread(reader, LARGE, 0) == want[:50_000]
    os.close(reader)
    os.close(writer)
    assert (m / "large").read_bytes() == want[:50_000]


def test_partial_program_still_runs(stack, m):
    stack.umount()
    shutil.copy(sys.executable, stack.lower() / "python")
    stack.forget_lower(stack.lower())
    stack.mount()
    os.chmod(m / "python", 0o755)
    size = os.stat(m / "python").st_size
    with opened(m / "python", os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"x")
    said = subprocess.run([m / "python", "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    assert (said.stdout, os.stat(m / "python").st_size) == ("42\n", size + 1)


def test_partial_file_that_became_complete_is_passed_through(stack, m):
    want = _make_partial(m)
    fd = os.open(m / "large", os.O_RDWR)
    assert os.pread(fd, LARGE, 0) == want
    os.pwrite(fd, blob(LARGE, 8), 0)
    os.close(fd)

    def is_read_past_us():
        with Gained(stack.server) as g:
            assert (m / "large").read_bytes() == blob(LARGE, 8)
        return g["REQUESTS READ"] == 0
    assert wait_until(is_read_past_us, 5)
    with Gained(stack.server) as g, opened(m / "large", os.O_RDWR) as fd:
        os.pwrite(fd, b"direct", 200_000)
        os.pwrite(fd, b"end", LARGE + 5000)
        with mmap.mmap(fd, 0) as view:
            view[5:9] = b"mmap"
        assert pagecache.own_pages(fd) == 0
    assert (g["REQUESTS READ"], g["REQUESTS WRITE"]) == (0, 0)
    want = bytearray(blob(LARGE, 8) + bytes(5000) + b"end")
    want[200_000:200_006] = b"direct"
    want[5:9] = b"mmap"
    assert (m / "large").read_bytes() == want
    stack.remount()
    assert (m / "large").read_bytes() == want
    stack.freeze()
    stack.mount()
    assert (m / "large").read_bytes() == want


def test_pages_from_before_are_not_shown_after_a_write_past_us(stack, m):
    """Cached, then passed through, then cached again."""
    first = blob(10 * KIB, 5)
    with opened(m / "small", os.O_RDWR) as fd:
        os.pwrite(fd, first, 0)
        assert os.pread(fd, 10 * KIB, 0) == first
        with mmap.mmap(fd, 0) as view:
            assert view[:] == first
    for number in range(10):
        data = b"%010d" % number * 100
        with opened(m / "small", os.O_RDWR) as fd:
            os.pwrite(fd, data, 0)
            assert os.pread(fd, 1000, 0) == data
        assert read_at(m / "small", 1000, 0) == data
        with opened(m / "small") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            assert view[:1000] == data
        assert (stack.upper / "small").read_bytes()[:1000] == data


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
        assert wait_until(lambda: False, 0.02) is False  # coarse clocks: times must differ
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
    """They do not where pages are the mount's own: it writes them later."""
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


# ---- bounds ----

def test_thousands_of_files_leak_nothing(stack, m):
    stack.umount()
    stack.forget_lower(stack.lower())
    many = stack.lower() / "many"
    many.mkdir()
    for number in range(5000):
        path = many / f"f{number}"
        path.write_bytes(b"%d" % number)
        path.chmod(0o755)
    stack.mount("volatile")
    descriptors = len(os.listdir(f"/proc/{stack.pid}/fd"))
    with Gained(stack.server) as g:
        for _ in range(2):
            for number in range(5000):
                assert (m / "many" / f"f{number}").read_bytes() == b"%d" % number
    found = counters(stack.server)
    assert 1000 < found["BACKING FILES"] <= 4096
    assert g["REQUESTS READ"] == 0
    assert len(os.listdir(f"/proc/{stack.pid}/fd")) - descriptors <= found["DESCRIPTORS"] + 10
    shutil.rmtree(m / "many")
    assert wait_until(lambda: counters(stack.server)["BACKING FILES"] == 0, 10)


def test_as_many_files_open_at_once(stack, m):
    count = 600
    for number in range(count):
        (m / "d" / f"f{number}").write_bytes(b"%d" % number)
    fds = [os.open(m / "d" / f"f{number}", os.O_RDWR) for number in range(count)]
    for number, fd in enumerate(fds):
        os.pwrite(fd, b"x", 10)
        assert os.pread(fd, 10, 0) == (b"%d" % number).ljust(10, b"\0")
        os.close(fd)


def test_switched_nodes_go(stack, m):
    """The old node id lives as long as a descriptor of it, and no longer."""
    before = counters(stack.server)["NODES"]
    (m / "d" / "x").touch()
    for _ in range(3):
        fd = os.open(m / "large", os.O_RDONLY)
        write_at(m / "large", b"NEW", 0)
        os.close(fd)
        os.truncate(m / "large", 0)
    os.unlink(m / "large")
    os.unlink(m / "d" / "x")
    assert wait_until(lambda: counters(stack.server)["NODES"] <= before + 1)


# ---- other mounts ----

@pytest.mark.parametrize("options", [("timeout=0",), ("timeout=0", "io=cached"), ("timeout=0", "io=direct"), ("io=direct",),
                                     ("cow=copy",), ("coherence=fast", "partial=direct")], ids=",".join)
def test_other_options_show_the_same_bytes(stack, m, options):
    stack.remount(*options)
    reader = os.open(m / "large", os.O_RDONLY)
    write_at(m / "large", b"NEW", 70_000)
    want = blob(LARGE)[:70_000] + b"NEW" + blob(LARGE)[70_003:]
    assert (m / "large").read_bytes() == want
    os.close(reader)
    (m / "new").write_bytes(b"new")
    with opened(m / "new", os.O_RDWR | os.O_APPEND) as fd:
        os.write(fd, b"er")
        with mmap.mmap(fd, 0) as view:
            view[0:1] = b"N"
            view.flush()
    assert (m / "new").read_bytes() == b"Newer"
    stack.remount(*options)
    assert (m / "large").read_bytes() == want


def test_read_only_mount_is_passed_through(stack, m):
    stack.remount(upper=False)
    with Gained(stack.server) as g:
        assert (m / "large").read_bytes() == blob(LARGE)
        with fails_with(errno.EROFS):
            os.open(m / "large", os.O_RDWR)
    assert g["REQUESTS READ"] == 0


def test_union_over_a_union(stack, m):
    """What is stacked too deep for the kernel is read through us."""
    upper, work = stack.base / "u2", stack.base / "w2"
    upper.mkdir()
    work.mkdir()
    second = stack.second_mount([m], upper=upper, work=work)
    assert (second.mnt / "large").read_bytes() == blob(LARGE)
    write_at(second.mnt / "large", b"NEW", 0)
    assert read_at(second.mnt / "large", 3, 0) == b"NEW"
    assert read_at(m / "large", 3, 0) == blob(LARGE)[:3]
    assert second.stop() is None
