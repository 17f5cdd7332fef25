# SPDX-License-Identifier: Apache-2.0
import os
import signal

import pytest

from support import linux
from support.content import blob
from support.expect import opened, write_at


@pytest.mark.parametrize("call", [os.fsync, os.fdatasync])
@pytest.mark.parametrize("origin", ["lower", "partial", "upper"])
def test_sync_of_every_kind_of_file(stack, origin, call):
    data = bytearray(blob(400_000))
    if origin != "upper":
        (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    if origin == "upper":
        (m / "f").write_bytes(data)
    with opened(m / "f", os.O_RDWR) as fd:
        if origin == "partial":
            os.pwrite(fd, b"synced", 200_000)
            data[200_000:200_006] = b"synced"
        call(fd)
        assert os.pread(fd, 400_000, 0) == data
    with opened(m / "f") as fd:
        call(fd)


def test_sync_of_directories_and_of_the_file_system(stack):
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    (m / "d" / "f").write_text("x")
    for path in (m, m / "d"):
        with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)
    linux.syncfs(m)
    os.sync()


@pytest.mark.parametrize("option", ["volatile", "fsync=0", "sync=0"])
def test_options_that_switch_syncing_off_keep_it_successful(stack, option):
    if option == "sync=0" and "fuse-overlayfs" in stack.program:
        pytest.skip("only newer programs know this alias")
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount(option)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"x", 100_000)
        os.fsync(fd)
    with opened(m, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def test_acknowledged_writes_survive_a_killed_server(stack):
    """A crash of the server, not of the machine: both data and map are in the page cache."""
    data = bytearray(blob(800_000))
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount("writeback=0")
    for number, off in enumerate((0, 5000, 300_000, 700_000)):
        write_at(m / "f", b"acknowledged", off)
        data[off:off + 12] = b"acknowledged"
        (m / f"new{number}").write_text("new")
    stack.server.kill()
    m = stack.mount()
    assert (m / "f").read_bytes() == data
    assert sorted(os.listdir(m)) == ["f", "new0", "new1", "new2", "new3"]


@pytest.mark.standalone("a signal ends all mounts of a shared server")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_unmount_cleanly(stack, number):
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()
    write_at(m / "f", b"x", 5)
    stack.server.signal(number)
    # fuse-overlayfs 1.x ends with 1 here; what matters is an end by itself and no dead mount
    assert stack.server.wait_for_end() in (0, 1)
    assert os.listdir(m) == []


def test_sigusr1_does_not_end_the_server(stack):
    (stack.lower() / "f").write_text("x")
    m = stack.mount()
    stack.server.signal(signal.SIGUSR1)
    assert (m / "f").read_text() == "x"
    (m / "g").write_text("y")
    assert stack.server.process.poll() is None
