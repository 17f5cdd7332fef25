# SPDX-License-Identifier: Apache-2.0
"""How a server ends, what it says when asked, and that nothing is left of it."""
import errno
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from support import linux
from support.child import Child
from support.command import Command, mount_points
from support.content import blob
from support.counters import counters
from support.expect import fails_with, names_in, read_at, write_at
from support.server import wait_until

pytestmark = pytest.mark.standalone("the end of a process that serves one mount, and what it counts (test_server.py)")
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
WAYS = [*SIGNALS, "umount", "umount -l"]


@pytest.fixture
def command(stack, veneer_bin, watchdog):
    made = Command(stack, veneer_bin, watchdog)
    yield made
    made.close()


def ask_to_go(stack, way):
    if way == "umount":
        linux.umount(stack.mnt)
    elif way == "umount -l":
        linux.umount(stack.mnt, linux.MNT_DETACH)
    else:
        stack.server.signal(way)


def let_go(fd):
    """Close a file of a mount that may be dead, which close(2) then says."""
    try:
        os.close(fd)
    except OSError as e:
        assert e.errno == errno.ENOTCONN


def is_mounted(stack):
    return str(stack.mnt) in mount_points(stack.base)


def assert_ended(stack):
    assert stack.server.wait_for_end() == 0, stack.log
    assert not is_mounted(stack)
    assert os.listdir(stack.mnt) == []
    assert names_in(stack.work / "work") == []


def assert_closed_cleanly(stack, veneer_bin):
    said = subprocess.run([veneer_bin, "inspect", stack.upper], capture_output=True, text=True,
                          check=True)
    assert "closed cleanly" in said.stdout, said.stdout


# ---- the end ----

@pytest.mark.parametrize("way", WAYS, ids=str)
def test_idle_server_ends_and_leaves_a_clean_upper(stack, veneer_bin, way):
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()
    write_at(m / "f", b"x", 5)
    (m / "new").write_text("new")
    ask_to_go(stack, way)
    assert_ended(stack)
    assert_closed_cleanly(stack, veneer_bin)
    m = stack.mount()
    assert (read_at(m / "f", 1, 5), (m / "new").read_text()) == (b"x", "new")


@pytest.mark.parametrize("way", [*SIGNALS, "umount -l"], ids=str)
def test_busy_server_serves_those_who_are_there_and_then_ends(stack, veneer_bin, way):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(blob(300_000))
    m = stack.mount()
    inside = os.open(m / "d", os.O_RDONLY | os.O_DIRECTORY)
    f = os.open("f", os.O_RDWR, dir_fd=inside)
    ask_to_go(stack, way)
    assert wait_until(lambda: not is_mounted(stack))
    assert os.listdir(stack.mnt) == []
    # first write, creation, removal and listing, all after the mount has gone
    assert os.pwrite(f, b"late", 100_000) == 4
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=inside))
    assert sorted(os.listdir(inside)) == ["f", "new"]
    os.fsync(f)
    assert stack.server.process.poll() is None
    os.close(f)
    os.close(inside)
    assert_ended(stack)
    assert_closed_cleanly(stack, veneer_bin)
    assert names_in(stack.mount() / "d") == ["f", "new"]
    assert read_at(stack.mnt / "d" / "f", 4, 100_000) == b"late"


@pytest.mark.parametrize("number", SIGNALS, ids=str)
@pytest.mark.writethrough("what the kernel keeps is lost with a server that has no successor")
def test_second_signal_ends_a_busy_server(stack, veneer_bin, number):
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()
    fd = os.open(m / "f", os.O_RDWR)
    try:
        assert os.pwrite(fd, b"kept", 0) == 4
        stack.server.signal(number)
        assert wait_until(lambda: not is_mounted(stack))
        stack.server.signal(number)
        assert_ended(stack)
        with fails_with(errno.ENOTCONN):
            os.pwrite(fd, b"lost", 8192)
    finally:
        let_go(fd)
    assert_closed_cleanly(stack, veneer_bin)
    assert read_at(stack.mount() / "f", 8, 0) == b"kept" + blob(300_000)[4:8]


def test_server_that_is_told_twice_leaves_the_next_mount_alone(stack, veneer_bin):
    (stack.lower() / "f").write_text("f")
    m = stack.mount()
    other = stack.base / "other"
    other.mkdir()
    (other / "mark").write_text("other")
    fd = os.open(m / "f", os.O_RDONLY)
    try:
        stack.server.signal()
        assert wait_until(lambda: not is_mounted(stack))
        linux.mount(other, stack.mnt, None, linux.MS_BIND)
        try:
            stack.server.signal()
            assert stack.server.wait_for_end() == 0
            assert (stack.mnt / "mark").read_text() == "other"
        finally:
            linux.umount(stack.mnt)
    finally:
        let_go(fd)


def append_until_it_fails(path, ready):
    """Numbered records, each acknowledged before the next; the last number to the pipe."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    os.write(ready, b"r")
    number = 0
    try:
        while True:
            os.write(fd, b"%07d\n" % number)
            number += 1
    except OSError as e:
        assert e.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EIO), e
    os.write(ready, b"%s=%d;" % (os.path.basename(path).encode(), number))


@pytest.mark.writethrough("without fsync no write fails when the server has ended")
def test_signals_under_load_lose_nothing_acknowledged(stack, veneer_bin):
    start = blob(100_000)
    for number in range(4):
        (stack.lower() / f"f{number}").write_bytes(start)
    m = stack.mount()
    read, write = os.pipe()
    writers = [Child(append_until_it_fails, str(m / f"f{number}"), write) for number in range(4)]

    def sizes():
        uppers = [stack.upper / f"f{number}" for number in range(4)]
        return [path.stat().st_size if path.exists() else 0 for path in uppers]

    os.close(write)
    begun = b""
    while len(begun) < 4:
        begun += os.read(read, 4 - len(begun))
    assert wait_until(lambda: min(sizes()) > len(start) + 1000)
    stack.server.signal()
    assert wait_until(lambda: not is_mounted(stack))
    before = sizes()
    assert wait_until(lambda: all(now > then for now, then in zip(sizes(), before, strict=True)))
    stack.server.signal()
    assert_ended(stack)
    for writer in writers:
        writer.join()
    said = b""
    while piece := os.read(read, 4096):
        said += piece
    os.close(read)
    acknowledged = dict(pair.split(b"=") for pair in said.split(b";") if pair)
    assert len(acknowledged) == 4
    m = stack.mount()
    for name, count in acknowledged.items():
        data = (m / os.fsdecode(name)).read_bytes()
        assert data[:len(start)] == start
        lines = data[len(start):].decode().splitlines()
        # one more may have been done and its answer lost
        assert int(count) > 10 and len(lines) in (int(count), int(count) + 1)
        assert lines == [f"{number:07}" for number in range(len(lines))]


@pytest.mark.writethrough("without fsync no write fails when the server has ended")
def test_signal_during_large_writes_ends_the_server_soon(stack):
    (stack.lower() / "f").write_bytes(blob(1 << 20) * 16)
    m = stack.mount()
    read, write = os.pipe()

    def work():
        fd = os.open(m / "f", os.O_RDWR)
        data = blob(1 << 20)
        os.write(write, b"r")
        try:
            while True:
                for off in range(16):
                    os.pwrite(fd, data, off << 20)
        except OSError as e:
            assert e.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EIO), e
    writer = Child(work)
    assert os.read(read, 1) == b"r"
    stack.server.signal()
    assert wait_until(lambda: not is_mounted(stack))
    stack.server.signal()
    assert_ended(stack)
    writer.join()
    os.close(read)
    os.close(write)


# ---- counters ----

def test_counters_say_what_was_done(stack):
    (stack.lower() / "large").write_bytes(blob(300_000))
    (stack.lower() / "small").write_bytes(b"s" * 5000)
    m = stack.mount()
    before = counters(stack.server)
    assert {"INODES", "NODES", "DESCRIPTORS", "MAP FILES", "MAP LOG BYTES", "MAP RECORDS",
            "COPY-UPS", "COPY-UP BYTES", "DESCRIPTOR HITS", "DESCRIPTOR MISSES",
            "REQUESTS"} <= before.keys()
    assert (before["MAP FILES"], before["MAP RECORDS"]) == (0, 0)
    for off in (0, 100_000, 200_000):
        write_at(m / "large", b"x", off)
    write_at(m / "small", b"x", 0)
    os.mkdir(m / "d")
    os.rmdir(m / "d")
    # what was removed goes when the kernel forgets it, a moment later
    assert wait_until(lambda: counters(stack.server)["NODES"] - before["NODES"] == 2)
    after = counters(stack.server)
    gained = {name: after[name] - before.get(name, 0) for name in after}
    assert gained["REQUESTS WRITE"] == 4
    assert (gained["REQUESTS MKDIR"], gained["REQUESTS RMDIR"]) == (1, 1)
    assert gained["MAP FILES"] == 2
    # two files entered, three runs of the large file, one of the small
    assert gained["MAP RECORDS"] >= 6
    assert gained["MAP LOG BYTES"] >= 6 * 16
    assert gained["INODES"] == gained["NODES"] == 2
    assert after["DESCRIPTORS"] >= 2
    assert gained["DESCRIPTOR HITS"] > 0


def test_counters_tell_copy_ups_and_their_bytes(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "large").write_bytes(blob(300_000))
    (stack.lower() / "d" / "small").write_bytes(b"s" * 5000)
    m = stack.mount()
    before = counters(stack.server)
    os.chmod(m / "d" / "large", 0o600)
    write_at(m / "d" / "small", b"w", 1)
    after = counters(stack.server)
    assert after["COPY-UPS"] - before["COPY-UPS"] == 3
    assert after["COPY-UP BYTES"] - before["COPY-UP BYTES"] == 5000


def test_counters_of_a_read_only_mount(stack):
    (stack.lower() / "f").write_text("f")
    m = stack.mount(upper=False)
    assert (m / "f").read_text() == "f"
    found = counters(stack.server)
    # a file that is passed through comes with its open
    assert found.get("REQUESTS READ", 0) + found["FILLED OPENS"] == 1
    assert "MAP FILES" not in found


def test_asking_for_counters_disturbs_nobody(stack):
    (stack.lower() / "f").write_bytes(blob(200_000))
    m = stack.mount()
    is_done = threading.Event()
    failures = []

    def work():
        try:
            for number in range(300):
                write_at(m / "f", b"%08d" % number, number * 512)
                (m / f"n{number}").write_text(str(number))
        except OSError as e:
            failures.append(e)
        is_done.set()
    thread = threading.Thread(target=work)
    thread.start()
    while not is_done.is_set():
        stack.server.signal(signal.SIGUSR1)
        time.sleep(0.002)
    thread.join()
    assert not failures
    assert len(os.listdir(m)) == 301
    assert [read_at(m / "f", 8, n * 512) for n in range(300)] == [b"%08d" % n for n in range(300)]


@pytest.mark.needs_root("makes /dev/log")
def test_background_server_sends_counters_to_the_system_log(command, stack):
    if os.path.lexists("/dev/log"):
        pytest.skip("a system log is running here: /dev/log is not ours")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind("/dev/log")
        try:
            log.settimeout(10)
            command.mount_stack()
            (pid,) = command.servers()
            assert os.listdir(stack.mnt) == []
            os.kill(pid, signal.SIGUSR1)
            lines = [log.recv(4096).decode() for _ in range(8)]
        finally:
            os.unlink("/dev/log")
    assert re.search(r"veneer.*# INODES: \d+$", lines[0])
    assert any(re.search(r"# MAP FILES: 0$", line) for line in lines)


# ---- nothing is left ----

# The shared memory of programs that other tests run at the same time.
_OF_OTHERS = ("faketime_", "sem.faketime_", "PostgreSQL.", ".org.chromium.")


def left_behind(below):
    return {"mounts": len(mount_points(below)),
            "shared memory": [name for name in names_in("/dev/shm") if not name.startswith(_OF_OTHERS)],
            "descriptors": len(os.listdir("/proc/self/fd"))}


def mount_cycles(command, stack, cycles):
    (stack.lower() / "f").write_bytes(blob(50_000))
    before = left_behind(stack.base)
    for number in range(cycles):
        command.mount_stack()
        write_at(stack.mnt / "f", b"%08d" % number, number * 8 % 40_000)
        if number % 3 == 0:
            linux.umount(stack.mnt, linux.MNT_DETACH)
        else:
            linux.umount(stack.mnt)
    assert wait_until(lambda: not command.servers())
    assert left_behind(stack.base) == before
    assert names_in(stack.work / "work") == []


def test_mounts_leave_nothing(command, stack):
    mount_cycles(command, stack, 100)


@pytest.mark.slow
def test_ten_thousand_mounts_leave_nothing(command, stack):
    with open("/proc/meminfo", encoding="ascii") as f:
        available = int(re.search(r"MemAvailable:\s+(\d+)", f.read()).group(1))
    mount_cycles(command, stack, 10_000)
    with open("/proc/meminfo", encoding="ascii") as f:
        left = int(re.search(r"MemAvailable:\s+(\d+)", f.read()).group(1))
    # 64 KiB lost a mount would be 640 MiB; others use this machine, too
    assert available - left < 600 << 10


def state_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = f.read()
    found = {key: int(re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE).group(1))
             for key in ("VmRSS", "Threads", "VmSize")}
    # a sanitizer, which takes terabytes of addresses, keeps what was freed
    memory = 0 if found["VmSize"] > 1 << 30 else found["VmRSS"]
    return len(os.listdir(f"/proc/{pid}/fd")), found["Threads"], memory


def use_files(m, count):
    """Lower files read, changed and removed, and new ones made, listed and removed again."""
    for number in range(count):
        new = m / f"new{number % 100}"
        with open(new, "wb") as f:
            f.write(b"x" * 5000)
        write_at(m / "large", b"y", number * 97 % 290_000)
        assert read_at(m / f"keep{number % 50}", 4, 0) == b"keep"
        if number % 5 == 0:
            os.rename(new, m / "moved")
            os.unlink(m / "moved")
        else:
            os.unlink(new)
        if number % 100 == 0:
            os.mkdir(m / "d")
            os.listdir(m)
            os.rmdir(m / "d")


@pytest.mark.parametrize("count", [700, pytest.param(3500, marks=pytest.mark.slow)])
def test_files_that_come_and_go_leave_nothing_in_the_server(stack, count):
    (stack.lower() / "large").write_bytes(blob(300_000))
    for number in range(50):
        (stack.lower() / f"keep{number}").write_text("keep")
    m = stack.mount()
    use_files(m, 500)
    nodes = counters(stack.server)["NODES"]
    fds, _, memory = state_of(stack.pid)
    memory = [memory]
    for _ in range(3):
        use_files(m, count)
        assert wait_until(lambda: state_of(stack.pid)[0] <= fds + 8)
        assert wait_until(lambda: counters(stack.server)["NODES"] <= nodes + 8)
        memory.append(state_of(stack.pid)[2])
    assert state_of(stack.pid)[1] <= 40
    # Memory that leaks for ever leaks in each round. Threads that come when there is more to do at once have each an arena of
    # glibc's, whose pages they touch once.
    gained = [later - earlier for earlier, later in zip(memory, memory[1:])]
    assert min(gained) < count // 4, memory


def test_threads_that_were_needed_go_home(stack):
    for number in range(16):
        (stack.lower() / f"f{number}").write_bytes(blob(1 << 20, number))
    m = stack.mount()
    os.listdir(m)
    _, before, _ = state_of(stack.pid)

    def read_all(number):
        for _ in range(20):
            with open(m / f"f{number}", "rb", buffering=0) as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert len(f.read()) == 1 << 20
    workers = [threading.Thread(target=read_all, args=(number,)) for number in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wait_until(lambda: os.listdir(m) and state_of(stack.pid)[1] <= max(before, 8) + 1)
