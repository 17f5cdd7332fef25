# SPDX-License-Identifier: Apache-2.0
"""Files that the kernel reads and writes past the server: which opens get a backing file, the pages, and the costs."""
import errno
import mmap
import os
import shutil
import subprocess
import sys

import pytest

from support import pagecache
from support.content import BLOCK, KIB, blob
from support.counters import Gained, counters
from support.expect import fails_with, opened, read_at, write_at
from support.passthrough import LARGE, NEEDS_ROOT, NOTHING_PASSES, m, settle  # noqa: F401
from support.server import wait_until
from support.waiting import wait_until_old

pytestmark = [NEEDS_ROOT, pytest.mark.writethrough("files are passed through here")]


# ---- which opens get a backing file ----

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
    assert (g["REQUESTS READ"], g["FILLED OPENS"]) == (0, 1)
    assert g["BACKING FILES"] == 0


@pytest.mark.parametrize("top,is_passed", [("usr", True), ("lib64", True), ("sbin", True), ("etc", False), ("user", False)])
def test_small_files_of_programs_are_passed_through(stack, top, is_passed):
    (stack.lower() / top / "share").mkdir(parents=True)
    (stack.lower() / top / "share" / "small").write_bytes(b"small" * 100)
    m = stack.mount("io=passthrough")
    with Gained(stack.server) as g:
        assert (m / top / "share" / "small").read_bytes() == b"small" * 100
    assert (g["FILLED OPENS"], g["BACKING FILES"]) == ((0, 1) if is_passed else (1, 0))
    # later opens see the write, and with coherence=strict all do
    write_at(m / top / "share" / "small", b"new", 0)
    assert (m / top / "share" / "small").read_bytes() == b"new" + (b"small" * 100)[3:]


def test_strict_keeps_small_files_of_programs_on_pages(stack):
    (stack.lower() / "usr").mkdir()
    (stack.lower() / "usr" / "small").write_bytes(b"small" * 100)
    m = stack.mount("io=passthrough", "coherence=strict")
    with opened(m / "usr" / "small") as fd:
        assert os.pread(fd, 5, 0) == b"small"
        write_at(m / "usr" / "small", b"NEW", 0)
        assert os.pread(fd, 5, 0) == b"NEWll"


def test_strict_readers_of_programs_see_what_is_written_too(stack):
    program = stack.lower() / "program"
    program.write_bytes(b"#!/bin/cat\n")
    program.chmod(0o755)
    m = stack.mount("io=passthrough", "coherence=strict")
    with opened(m / "program") as fd:
        assert subprocess.run([m / "program"], capture_output=True).stdout == b"#!/bin/cat\n"
        write_at(m / "program", b"# more\n", 11)
        assert os.pread(fd, 100, 0) == b"#!/bin/cat\n# more\n"
        assert subprocess.run([m / "program"], capture_output=True).stdout == b"#!/bin/cat\n# more\n"


@pytest.mark.unshared(NOTHING_PASSES)
def test_fast_passes_small_files_through_too(stack, m):
    stack.remount("coherence=fast")
    with Gained(stack.server) as g:
        assert (m / "small").read_bytes() == (stack.lower() / "small").read_bytes()
    assert (g["REQUESTS READ"], g["BACKING FILES"]) == (0, 1)


@pytest.mark.unshared(NOTHING_PASSES)
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
    assert g["REQUESTS READ"] > 0


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


@pytest.mark.unshared(NOTHING_PASSES)
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

@pytest.mark.unshared(NOTHING_PASSES)
def test_two_mounts_share_the_pages_of_the_lower_file(stack, m):
    second = stack.second_mount(stack.lowers)
    low = stack.lower() / "large"
    # the first open of a file looks at its first bytes, and no later one does
    (second.mnt / "large").open("rb").close()
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


# ---- partial files ----

def _make_partial(m):
    write_at(m / "large", b"NEW", 70_000)
    want = bytearray(blob(LARGE))
    want[70_000:70_003] = b"NEW"
    return want


@pytest.mark.parametrize("partial,requests,pages", [
    pytest.param("auto", 2, 0, marks=pytest.mark.unshared(NOTHING_PASSES)),
    pytest.param("direct", 2, 0, marks=pytest.mark.unshared(NOTHING_PASSES)), ("cached", 1, None)])
def test_reader_of_a_partial_file(stack, m, partial, requests, pages):
    stack.remount(f"partial={partial}")
    want = _make_partial(m)
    settle()
    with Gained(stack.server) as g, opened(m / "large") as fd:
        for _ in range(2):
            assert os.pread(fd, BLOCK, 17 * BLOCK) == want[17 * BLOCK:18 * BLOCK]
        if pages is not None:
            assert pagecache.own_pages(fd) == pages
    assert g["REQUESTS READ"] == requests
    assert (m / "large").read_bytes() == want


def _read_at_random(path, count=300):
    with opened(path) as fd:
        for k in range(count):
            os.pread(fd, BLOCK, k * 7 % (LARGE // BLOCK) * BLOCK)


@pytest.mark.unshared(NOTHING_PASSES)
def test_a_partial_file_that_is_read_at_random_gets_pages(stack, m):
    want = _make_partial(m)
    _read_at_random(m / "large")
    with Gained(stack.server) as g, opened(m / "large") as fd:
        for _ in range(2):
            assert os.pread(fd, BLOCK, 17 * BLOCK) == want[17 * BLOCK:18 * BLOCK]
        assert pagecache.own_pages(fd) > 0
    assert g["REQUESTS READ"] == 1
    assert (m / "large").read_bytes() == want


@pytest.mark.unshared(NOTHING_PASSES)
def test_a_partial_file_that_is_read_from_end_to_end_gets_none(stack, m):
    want = _make_partial(m)
    for _ in range(300 * BLOCK // LARGE + 2):
        with opened(m / "large") as fd:
            for off in range(0, LARGE, BLOCK):
                assert os.pread(fd, BLOCK, off) == want[off:off + BLOCK]
            assert pagecache.own_pages(fd) == 0


def _freeze_partial(stack, m):
    """The partial file is a lower layer's; what was changed just now is not copied."""
    want = _make_partial(m)
    wait_until_old(stack.freeze() / "large", *(path for lower in stack.lowers for path in lower.glob("large")))
    return want


class _Flat:
    """flat("FILES") is how many the server, which may be that of all tests, has copied since."""

    def __init__(self, server):
        self.server, self.before = server, counters(server)

    def __call__(self, what):
        return counters(self.server)[f"FLAT {what}"] - self.before[f"FLAT {what}"]


@pytest.mark.unshared(NOTHING_PASSES)
def test_a_lower_partial_file_that_is_read_much_is_copied_for_all_mounts(stack, m):
    want = _freeze_partial(stack, m)
    m = stack.mount("io=passthrough")
    flat = _Flat(stack.server)
    with opened(m / "large") as held:
        for _ in range(4):
            os.pread(held, LARGE, 0)
        assert wait_until(lambda: flat("FILES") == 1, 60, 0.05)
        assert flat("BYTES") == LARGE
        # What is open goes on, and so does the way of the next open.
        assert os.pread(held, LARGE, 0) == want
        with Gained(stack.server) as g, opened(m / "large") as fd:
            assert os.pread(fd, LARGE, 0) == want
            assert pagecache.own_pages(fd) == 0
        assert g["DIRECT OPENS"] == 1
    settle()
    with Gained(stack.server) as g:
        with opened(m / "large") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            assert os.pread(fd, LARGE, 0) == view[:] == want
            assert pagecache.own_pages(fd) == 0
    assert (g["REQUESTS READ"], g["PASSTHROUGH OPENS"]) == (0, 1)
    assert not any(stack.work.rglob("*large*"))


@pytest.mark.unshared(NOTHING_PASSES)
def test_a_copied_lower_file_can_be_written(stack, m):
    want = _freeze_partial(stack, m)
    m = stack.mount("io=passthrough")
    flat = _Flat(stack.server)
    _read_at_random(m / "large")
    assert wait_until(lambda: flat("FILES") == 1, 60, 0.05)
    settle()
    with opened(m / "large") as reader:
        assert os.pread(reader, LARGE, 0) == want
        write_at(m / "large", b"LATER", 90_000)
        want[90_000:90_005] = b"LATER"
        assert (m / "large").read_bytes() == want
    assert (stack.upper / "large").stat().st_blocks < LARGE // 512
    stack.remount("io=passthrough")
    assert (m / "large").read_bytes() == want


@pytest.mark.unshared(NOTHING_PASSES)
@pytest.mark.parametrize("option", ["partial=direct", "partial=cached", "size=1G", "coherence=strict", f"promote_max={LARGE - 1}"])
def test_a_lower_partial_file_is_not_copied_where_that_is_not_wanted(stack, m, option):
    want = _freeze_partial(stack, m)
    m = stack.mount("io=passthrough", option)
    flat = _Flat(stack.server)
    for _ in range(3):
        _read_at_random(m / "large")
    assert (m / "large").read_bytes() == want
    assert flat("BYTES") == 0


@pytest.mark.unshared(NOTHING_PASSES)
@pytest.mark.parametrize("options,is_copied", [((), False), (("coherence=fast",), True)], ids=["auto", "fast"])
def test_a_lower_database_is_copied_only_where_readers_follow_no_writer(stack, m, options, is_copied):
    write_at(m / "large", b"SQLite format 3\0", 0)
    want = _freeze_partial(stack, m)
    want[:16] = b"SQLite format 3\0"
    m = stack.mount("io=passthrough", *options)
    flat = _Flat(stack.server)
    for _ in range(2):
        _read_at_random(m / "large")
    assert wait_until(lambda: flat("FILES") == 1, 60 if is_copied else 1, 0.05) == is_copied
    assert (m / "large").read_bytes() == want


@pytest.mark.unshared(NOTHING_PASSES)
def test_programs_that_write_bring_about_no_copy(stack, m):
    want = _freeze_partial(stack, m)
    m = stack.mount("io=passthrough")
    flat = _Flat(stack.server)
    with opened(m / "large", os.O_RDWR) as fd:
        for _ in range(20):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(fd, LARGE, 0) == want
    assert flat("BYTES") == 0


@pytest.mark.parametrize("first", ["read", "read at random"])
def test_reader_and_writer_of_a_partial_file_agree(stack, m, first):
    want = _make_partial(m)
    if first == "read at random":
        _read_at_random(m / "large")
    settle()
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
    assert wait_until(is_read_past_us)
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


# ---- bounds ----

@pytest.mark.unshared(NOTHING_PASSES)
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
    # Short of memory the kernel forgets what nobody holds, and with it goes the backing file.
    held = [os.open(m / "many" / f"f{number}", os.O_PATH) for number in range(4400, 5000)]
    with Gained(stack.server) as g:
        for _ in range(2):
            for number in range(5000):
                assert (m / "many" / f"f{number}").read_bytes() == b"%d" % number
    found = counters(stack.server)
    assert 500 < found["BACKING FILES"] <= 4096
    assert g["REQUESTS READ"] == 0
    assert len(os.listdir(f"/proc/{stack.pid}/fd")) - descriptors <= found["DESCRIPTORS"] + 10
    for fd in held:
        os.close(fd)
    shutil.rmtree(m / "many")
    assert wait_until(lambda: counters(stack.server)["BACKING FILES"] == 0)


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

@pytest.mark.parametrize("options", [("timeout=0",), ("timeout=0", "io=cached"), ("timeout=0", "io=direct"),
                                     ("io=direct",),
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


@pytest.mark.unshared(NOTHING_PASSES)
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
