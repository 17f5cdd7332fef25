# SPDX-License-Identifier: Apache-2.0
"""Mappings live in child processes: a page that cannot be had would kill the test itself."""
import mmap
import os
import shutil
import subprocess
import time

import pytest

from support.child import Child, in_child
from support.content import BLOCK, KIB
from support.expect import opened, write_at
from support.origins import ORIGINS, mount_file
from support.server import wait_until

_SIZE = 700_000
_REALTIME_COARSE = 5


@pytest.mark.parametrize("origin", ORIGINS)
def test_private_mapping_shows_the_content_and_keeps_its_changes_to_itself(stack, origin):
    path, data = mount_file(stack, origin, _SIZE)

    def look():
        with opened(path) as fd:
            with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as view:
                assert view[:] == data
                view[10:20] = b"private..."
    in_child(look)
    assert path.read_bytes() == data


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("sync", [True, False])
def test_shared_mapping_writes_through(stack, origin, sync):
    path, data = mount_file(stack, origin, _SIZE)

    def change():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            assert view[:] == data
            view[5:11] = b"mapped"
            view[400_000:440_000] = b"M" * 40_000
            if sync:
                view.flush()
            assert os.pread(fd, 6, 5) == b"mapped"
    in_child(change)
    data[5:11] = b"mapped"
    data[400_000:440_000] = b"M" * 40_000
    assert path.read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


def test_shared_mapping_outlives_its_descriptor_and_its_name(stack):
    path, data = mount_file(stack, "lower", _SIZE)

    def change():
        fd = os.open(path, os.O_RDWR)
        view = mmap.mmap(fd, 0)
        os.close(fd)
        view[0:4] = b"late"
        os.link(path, path.parent / "other")
        path.unlink()
        view[8:12] = b"more"
        view.close()
    in_child(change)
    data[0:4], data[8:12] = b"late", b"more"
    assert (path.parent / "other").read_bytes() == data


def test_two_mappings_of_one_file_see_each_other(stack):
    path, _ = mount_file(stack, "lower", _SIZE)

    def change():
        with opened(path, os.O_RDWR) as a, opened(path, os.O_RDWR) as b:
            with mmap.mmap(a, 0) as one, mmap.mmap(b, 0) as two:
                for off in (0, 4096, 300_000, 699_990):
                    one[off:off + 3] = b"one"
                    assert two[off:off + 3] == b"one"
                    two[off:off + 3] = b"two"
                    assert one[off:off + 3] == b"two"
    in_child(change)


def test_mappings_of_two_processes_see_each_other(stack):
    path, _ = mount_file(stack, "partial", _SIZE)
    ask_r, ask_w = os.pipe()
    done_r, done_w = os.pipe()

    def writer():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            os.read(ask_r, 1)
            view[50:57] = b"visible"
            os.write(done_w, b"x")
            os.read(ask_r, 1)

    def reader():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            assert view[50:57] != b"visible"
            os.write(ask_w, b"x")
            os.read(done_r, 1)
            assert view[50:57] == b"visible"
            assert os.pread(fd, 7, 50) == b"visible"
            os.write(ask_w, b"x")
    children = [Child(writer), Child(reader)]
    for child in children:
        child.join()


def test_write_calls_show_in_a_shared_mapping(stack):
    path, _ = mount_file(stack, "lower", _SIZE)

    def change():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            view[:4096]
            os.pwrite(fd, b"by write", 4090)
            assert view[4090:4098] == b"by write"
            view[4096:4100] = b"back"
            assert os.pread(fd, 10, 4090) == b"by wriback"
    in_child(change)


@pytest.mark.parametrize("size", [9000, _SIZE])
def test_reader_mapped_before_the_first_write_sees_it(stack, size):
    """overlayfs leaves such a mapping on the old data; without passthrough it is one file before and after."""
    path, data = mount_file(stack, "lower", size, ["io=cached"])

    def change():
        with opened(path) as reader, opened(path) as other:
            with mmap.mmap(reader, 0, mmap.MAP_SHARED, mmap.PROT_READ) as view, \
                    mmap.mmap(other, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as untouched:
                assert view[:8192] == untouched[:8192] == data[:8192]
                write_at(path, b"N" * 5000, 100)
                data[100:5100] = b"N" * 5000
                assert view[:] == untouched[:] == data
                assert os.pread(reader, size, 0) == data
                with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as writer:
                    writer[6000:6006] = b"stored"
                    data[6000:6006] = b"stored"
                    assert view[:] == os.pread(reader, size, 0) == data
    in_child(change)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("ends_by", ["msync", "munmap", "fsync"])
def test_mapped_stores_change_the_times(stack, origin, ends_by):
    path, _ = mount_file(stack, origin, _SIZE)
    os.utime(path, (10**9, 10**9))
    before = path.stat()
    # the clock of times that the kernel sets itself
    wait_until(lambda: time.clock_gettime_ns(_REALTIME_COARSE) > before.st_ctime_ns)

    def change():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            view[5000:5003] = b"new"
            if ends_by == "msync":
                view.flush()
            elif ends_by == "fsync":
                os.fsync(fd)
            if ends_by != "munmap":
                assert os.fstat(fd).st_mtime > 1_700_000_000
    in_child(change)
    after = path.stat()
    assert after.st_mtime > 1_700_000_000
    assert after.st_ctime_ns > before.st_ctime_ns
    assert (stack.remount() / "f").stat().st_mtime_ns == after.st_mtime_ns


@pytest.mark.xfail(strict=True, reason="FUSE writes the pages later, and a write changes the times; "
                   "the server cannot tell whether the store was before or after")
def test_times_set_after_a_mapped_store_stay(stack):
    path, _ = mount_file(stack, "upper", _SIZE, options=["io=cached"])

    def change():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            view[5000:5003] = b"new"
            os.utime(fd, (10**9, 10**9))
    # A busy kernel may write a page out before the times are set.
    for _ in range(5):
        in_child(change)
        assert path.stat().st_mtime == 10**9


@pytest.mark.parametrize("origin", ORIGINS)
def test_mapped_reads_change_no_time(stack, origin):
    path, _ = mount_file(stack, origin, _SIZE)
    os.utime(path, (10**9, 10**9))

    def look():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            assert len(view[:]) == _SIZE
    in_child(look)
    assert path.stat().st_mtime == 10**9


@pytest.mark.parametrize("origin", ORIGINS)
def test_cutting_and_growing_a_mapped_file(stack, origin):
    path, data = mount_file(stack, origin, _SIZE)

    def change():
        with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            view[200_000:200_006] = b"stored"
            os.ftruncate(fd, 300_001)
            os.ftruncate(fd, _SIZE)
            assert view[300_001:] == bytes(_SIZE - 300_001)
            view[650_000:650_003] = b"far"
            assert os.pread(fd, 3, 650_000) == b"far"
    in_child(change)
    data[200_000:200_006] = b"stored"
    data[300_001:] = bytes(_SIZE - 300_001)
    data[650_000:650_003] = b"far"
    assert path.read_bytes() == data
    assert (stack.remount() / "f").read_bytes() == data


def test_tail_of_the_last_page_is_zero(stack):
    path, data = mount_file(stack, "partial", 150_001)

    def look():
        with opened(path) as fd:
            with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
                assert view[:] == data
    in_child(look)
    os.truncate(path, 151_000)
    assert path.read_bytes() == data + bytes(999)


def _binary(stack, where):
    """A program at that place of the mount, padded so that it becomes a partial file."""
    source = shutil.which("true")
    if where == "upper":
        target = stack.mount() / "prog"
        shutil.copy(source, target)
        return target
    shutil.copy(source, stack.lower() / "prog")
    with open(stack.lower() / "prog", "ab") as f:
        f.write(bytes(512 * KIB))
    target = stack.mount() / "prog"
    if where == "partial":
        size = target.stat().st_size
        write_at(target, b"tail" * 1000, size - 2 * BLOCK)
    return target


@pytest.mark.parametrize("where", ["lower", "partial", "upper"])
def test_programs_run_from_every_kind_of_file(stack, where):
    program = _binary(stack, where)
    for _ in range(3):
        subprocess.run([program], check=True)
    stack.remount()
    subprocess.run([program], check=True)


def test_running_program_cannot_be_written(stack):
    shutil.copy(shutil.which("sleep"), stack.lower() / "prog")
    m = stack.mount()
    running = subprocess.Popen([m / "prog", "60"])
    try:
        with pytest.raises(OSError):
            open(m / "prog", "r+b").close()
    finally:
        running.kill()
        running.wait()
    write_at(m / "prog", b"\x7fELF", 0)


def test_script_runs_after_copy_up_of_its_mode(stack):
    (stack.lower() / "script").write_text("#!/bin/sh\nexit 7\n")
    m = stack.mount()
    (m / "script").chmod(0o755)
    assert subprocess.run([m / "script"]).returncode == 7
