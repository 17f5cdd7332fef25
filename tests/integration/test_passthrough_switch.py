# SPDX-License-Identifier: Apache-2.0
"""A lower file is passed through to readers, and somebody writes it: what each of them sees, and that the lower layer
stays as it is. Every row was once a way to corrupt a lower file or to fail with EIO."""
import errno
import mmap
import os
import shutil
import stat
import subprocess
import threading

import pytest

from support import linux, procfs
from support.content import blob
from support.counters import Gained
from support.expect import fails_with, opened, read_at, write_at
from support.passthrough import LARGE, NEEDS_ROOT, m, settle  # noqa: F401
from support.server import wait_until
from support.repository import REPOSITORY

pytestmark = [NEEDS_ROOT, pytest.mark.writethrough("files are passed through here")]
OPENS_C = REPOSITORY / "tests" / "support" / "opens.c"


# ---- a reader holds a lower file, a writer comes ----

def _readers(path):
    fd = os.open(path, os.O_RDONLY)
    return fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ)


@pytest.mark.parametrize("options,sees_new,map_sees_new", [
    ((), False, False),
    pytest.param(("coherence=strict",), True, False, marks=pytest.mark.unshared(
        "a descriptor of an unchanged file goes on reading that")), (("io=cached",), True, True),
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
        settle()
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
    """Changes made to the lower layer under other unions."""
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


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_no_open_is_sent_on_twice(stack, m, tmp_path):
    """An open that finds the node of a file abandoned looks the name up again; the kernel allows that once per open.
    Where many do, the kernel forgets the new node again and again, and no open may be sent on from that one, too."""
    program = tmp_path / "opens"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, OPENS_C], check=True)
    stack.umount()
    stack.forget_lower(stack.lower())
    for number in range(300):
        (stack.lower() / f"f{number}").write_bytes(blob(LARGE))
    m = stack.mount()
    opens = subprocess.run([program, m, "300", "12", "8"], capture_output=True, text=True)
    assert opens.returncode == 0, opens.stdout[:2000]
    for number in range(300):
        assert (m / f"f{number}").read_bytes() == b"written!" + blob(LARGE)[8:]


def test_registered_lower_file_cannot_be_written_even_by_mistake(stack, m):
    """The server registers it from a read-only clone of the layer's mount."""
    with opened(m / "large"):
        mounts = list(procfs.opened(stack.pid).values())
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


@pytest.fixture
def linked(stack, m):
    """The large file has a second name, both known to the kernel."""
    stack.umount()
    stack.forget_lower(stack.lower())
    os.link(stack.lower() / "large", stack.lower() / "d" / "other")
    stack.mount("io=passthrough")
    assert (m / "d" / "other").read_bytes() == (m / "large").read_bytes() == blob(LARGE)
    settle()
    return m / "large", m / "d" / "other"


@pytest.mark.parametrize("size", [0, 100_001])
def test_truncated_by_a_name_from_before_the_switch(linked, size):
    """A truncation by one name holds for the other: in its pages, and for the place of an append."""
    name, other = linked
    with opened(name), opened(name, os.O_RDWR | os.O_APPEND) as writer:
        os.write(writer, b"tail")
        assert os.pread(writer, LARGE + 4, 0) == blob(LARGE) + b"tail"
        os.truncate(other, size)
        os.write(writer, b"more")
        want = blob(LARGE)[:size] + b"more"
        assert os.pread(writer, LARGE + 8, 0) == name.read_bytes() == other.read_bytes() == want
        os.truncate(other, size)
        os.truncate(other, LARGE)
        want = blob(LARGE)[:size] + bytes(LARGE - size)
        assert os.pread(writer, LARGE, 0) == name.read_bytes() == other.read_bytes() == want


def test_name_from_before_the_switch_shows_what_is_written_when_the_other_is_gone(linked):
    name, other = linked
    with opened(name) as reader:
        write_at(name, b"NEW", 5)
        name.unlink()
        assert read_at(other, 3, 5) == b"NEW"
        assert os.pread(reader, 3, 5) == blob(LARGE)[5:8]
    write_at(other, b"two", 5)
    assert read_at(other, 3, 5) == b"two"


def test_renamed_onto_the_other_name_from_before_the_switch(stack, m, linked):
    """Two names of one file stay two, also where the kernel takes them for two files."""
    name, other = linked
    with opened(name):
        write_at(name, b"NEW", 5)
        os.rename(other, name)
        assert read_at(name, 3, 5) == read_at(other, 3, 5) == b"NEW"
        os.rename(name, other)
        assert os.stat(name).st_nlink == os.stat(other).st_nlink == 2
    assert "large" in os.listdir(m)
    stack.remount()
    assert read_at(name, 3, 5) == read_at(other, 3, 5) == b"NEW"


def test_mappings_by_both_names_are_one(linked):
    name, other = linked
    with opened(name):
        write_at(name, b"NEW", 5)
    settle()
    with opened(other) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        assert view[5:8] == b"NEW"
        with opened(name, os.O_RDWR) as writer, mmap.mmap(writer, 0) as stores:
            os.pwrite(writer, b"two", 5)
            assert view[5:8] == os.pread(fd, 3, 5) == b"two"
            stores[5:8] = b"six"
            assert view[5:8] == os.pread(fd, 3, 5) == b"six"


def test_truncated_after_a_writer_was_refused(stack, m):
    """The refusal leaves the node id without a look-up of the name; the truncation must lead to the new one."""
    with opened(m / "large") as fd:
        with fails_with(errno.ESTALE):
            os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        assert (m / "large").read_bytes() == blob(LARGE)
        os.truncate(m / "large", 100_000)
        os.truncate(m / "large", LARGE)
        assert (m / "large").read_bytes() == blob(LARGE)[:100_000] + bytes(LARGE - 100_000)


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


@pytest.mark.parametrize("option", ["coherence=auto", "coherence=fast", "coherence=strict"])
@pytest.mark.parametrize("name", ["large", "usr/small", "small"])
@pytest.mark.parametrize("has_reader", [False, True])
def test_opened_for_reading_and_cut_shows_nothing(stack, name, has_reader, option):
    (stack.lower() / "usr").mkdir()
    path = stack.lower() / name
    path.write_bytes(b"old" * 100_000 if name == "large" else b"old" * 100)
    size = path.stat().st_size
    path = stack.mount("io=passthrough", option) / name
    reader = os.open(path, os.O_RDONLY) if has_reader else None
    with opened(path, os.O_RDONLY | os.O_TRUNC) as fd:
        assert os.fstat(fd).st_size == 0
        assert os.read(fd, 100) == b""
        write_at(path, b"new", 2)
        assert os.pread(fd, 100, 0) == b"\0\0new"
    if has_reader:
        assert os.pread(reader, size, 0) in (b"old" * (size // 3), b"\0\0new")
        os.close(reader)
    assert path.read_bytes() == b"\0\0new"
    assert (stack.lower() / name).stat().st_size == size
