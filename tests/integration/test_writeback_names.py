# SPDX-License-Identifier: Apache-2.0
"""writeback=on: times, attributes and rights of files whose pages and times the kernel keeps."""
import errno
import os
import time

import pytest

from support.content import BLOCK, MIB, blob
from support.counters import Gained
from support.expect import opened
from support.waiting import wait_for_tick

pytestmark = pytest.mark.unshared("share=pages keeps no changed pages")
_KEEPS = "io=cached", "writeback=on"
_CAPABILITY = "security.capability"
_SETUID = bytes.fromhex("0100000280000000000000000000000000000000")  # cap_setuid+ep


@pytest.mark.parametrize("way, copies", [("unlink", 0), ("unlink open", 0), ("replace", 1), ("unlink one of two", 1)])
def test_a_lower_file_whose_name_goes_is_not_copied_up(stack, way, copies):
    for name in ("f", "other"):
        (stack.lower() / name).write_bytes(blob(300_000))
    if way == "unlink one of two":
        os.link(stack.lower() / "f", stack.lower() / "second")
    m = stack.mount(*_KEEPS)
    for name in os.listdir(m):
        (m / name).stat()
    fd = os.open(m / "f", os.O_RDONLY)
    if way != "unlink open":
        os.close(fd)
    with Gained(stack.server) as g:
        if way == "replace":
            os.rename(m / "other", m / "f")
        else:
            os.unlink(m / "f")
    assert g["REQUESTS SETATTR"] >= 1, "the kernel sends the times"
    assert g["COPY-UPS"] == copies
    if way == "unlink open":
        assert os.pread(fd, MIB, 0) == blob(300_000)
        os.close(fd)


@pytest.mark.parametrize("ends_by", ["fsync", "close"])
def test_a_time_that_was_seen_stays(stack, ends_by):
    (stack.lower() / "f").write_bytes(blob(100_000))
    os.utime(stack.lower() / "f", (10**9, 10**9))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 100)
        seen = os.fstat(fd).st_mtime_ns
        assert seen > 10**18
        wait_for_tick(stack.base)
        if ends_by == "fsync":
            os.fsync(fd)
    stack.remount(*_KEEPS)
    assert (m / "f").stat().st_mtime_ns == seen


def test_a_time_of_what_the_kernel_wrote_by_itself_is_never_earlier(stack):
    """It may be that of the WRITE: the kernel sends the times before the pages, and from a user namespace not at
    all, as its thread has no user there."""
    (stack.lower() / "f").write_bytes(blob(100_000))
    os.utime(stack.lower() / "f", (10**9, 10**9))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 100)
        seen = os.fstat(fd).st_mtime_ns
        os.sync()
        written = time.time_ns()
        assert os.fstat(fd).st_mtime_ns == seen
    stack.remount(*_KEEPS)
    assert seen <= (m / "f").stat().st_mtime_ns <= written + 10**9
    assert (m / "f").read_bytes()[100:103] == b"new"


@pytest.mark.needs_privileges("it sets a capability")
def test_a_capability_goes_with_the_write_and_not_with_its_pages(stack):
    (stack.lower() / "f").write_bytes(blob(100_000))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 100)
        os.setxattr(m / "f", _CAPABILITY, _SETUID)
        os.fsync(fd)
        assert os.getxattr(m / "f", _CAPABILITY) == _SETUID
        os.pwrite(fd, b"new", 200)
        assert _CAPABILITY not in os.listxattr(m / "f")
        os.fsync(fd)
        assert _CAPABILITY not in os.listxattr(m / "f")
        os.pwrite(fd, b"new", 300)
        os.setxattr(m / "f", _CAPABILITY, _SETUID)
    stack.remount(*_KEEPS)
    assert os.getxattr(m / "f", _CAPABILITY) == _SETUID
    assert (m / "f").read_bytes()[300:303] == b"new"


@pytest.mark.parametrize("mode", [0o200, 0])
def test_a_page_is_read_for_a_descriptor_that_may_only_write(stack, mode):
    want = bytearray(blob(100_000))
    m = stack.mount(*_KEEPS)
    (m / "f").write_bytes(want)
    stack.remount(*_KEEPS)
    with opened(m / "f", os.O_WRONLY) as fd:
        os.fchmod(fd, mode)
        os.pwrite(fd, b"new", 5000)
        os.fsync(fd)
        os.pwrite(fd, b"late", 9 * BLOCK + 7)
    want[5000:5003], want[9 * BLOCK + 7:9 * BLOCK + 11] = b"new", b"late"
    stack.remount(*_KEEPS)
    (m / "f").chmod(0o600)
    assert (m / "f").read_bytes() == want


@pytest.mark.parametrize("options, why", [
    (("io=passthrough",), "files are passed through: io=cached keeps their pages"),
    (("io=direct",), "with io=direct and timeout=0 no pages are kept"),
    (("io=cached", "timeout=0"), "with io=direct and timeout=0 no pages are kept"),
    (("io=cached", "locks=server"), "not with locks=server"),
    (("io=cached", "size=1G"), "with size= and inodes= the write itself says that there is no room"),
    (("io=cached", "inodes=1000"), "with size= and inodes= the write itself says that there is no room"),
    (("io=cached",), None)], ids=str)
@pytest.mark.parametrize("word", ["on", "1"])
def test_it_says_why_it_has_no_effect(stack, mode, options, why, word):
    if "io=passthrough" in options and mode != "root":
        pytest.skip("passthrough takes privileges")
    m = stack.mount(*options, "writeback=" + word)
    (m / "f").write_bytes(b"new")
    said = [line for line in stack.server.log.splitlines() if "writeback" in line]
    # callers of fuse-overlayfs pass 1, and are told nothing
    assert len(said) == (why is not None and word == "on")
    assert not said or said[0].endswith("writeback=on has no effect: " + why)


def test_what_is_written_to_a_file_without_a_name_fails_nothing(stack):
    (stack.lower() / "f").write_bytes(blob(100_000))
    m = stack.mount(*_KEEPS)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 100)
        os.unlink(m / "f")
        os.fsync(fd)
        assert os.pread(fd, 3, 100) == b"new"
    with pytest.raises(OSError) as failed:
        (m / "f").stat()
    assert failed.value.errno == errno.ENOENT
