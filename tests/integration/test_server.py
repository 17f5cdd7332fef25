# SPDX-License-Identifier: Apache-2.0
"""One server for many mounts: how it is found and started, what it holds, how it ends, and that mounts do not feel
each other."""
import contextlib
import errno
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from support import linux, procfs, wire
from support.child import Child, in_children
from support.command import mount_points
from support.content import MIB, blob
from support.expect import fails_with, names_in, opened, read_at, write_at
from support.places import Place
from support.procfs import is_at_rest, is_blocked
from support.server import stop_process, wait_until
from support.shared import SharedServer, child_of


def is_settled(shared, count):
    return wait_until(lambda: shared.count() == count)


# ---- many mounts ----

def work_in(mnt, number):
    """What a container does: reads all, changes some of it, makes its own; nobody else's is seen."""
    mine = str(number).encode() * 100
    for k in range(10):
        assert read_at(mnt / f"f{k}", 8, 4096) == blob(64 << 10, k)[4096:4104]
    write_at(mnt / f"f{number % 10}", mine, 1000)
    (mnt / f"own{number}").write_bytes(mine)
    os.rename(mnt / "d" / "a", mnt / "d" / f"b{number}")
    os.unlink(mnt / "f9" if number % 10 != 9 else mnt / "f8")
    subprocess.run(["/bin/sh", "-c", f"ls -lR {mnt} >/dev/null && cat {mnt}/f0 >/dev/null"], check=True)


def test_sixty_four_mounts_of_one_image(stack, shared):
    for k in range(10):
        (stack.lower() / f"f{k}").write_bytes(blob(64 << 10, k))
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "a").write_text("a")
    stack.remember_lowers()
    places = [Place(stack, f"p{number}") for number in range(64)]
    for start in range(0, 64, 8):
        in_children([lambda p=place: p.mount(stack, shared) for place in places[start:start + 8]])
    assert shared.count() == 64
    threads = int(re.search(r"Threads:\s+(\d+)", open(f"/proc/{shared.pid}/status").read()).group(1))
    assert threads < 2 * 64 + 70
    for start in range(0, 64, 16):
        in_children([lambda n=n: work_in(places[n].mnt, n) for n in range(start, start + 16)])
    for number, place in enumerate(places):
        gone = "f9" if number % 10 != 9 else "f8"
        want = sorted([f"f{k}" for k in range(10) if f"f{k}" != gone] + ["d", f"own{number}"])
        assert names_in(place.mnt) == want
        assert names_in(place.mnt / "d") == [f"b{number}"]
        for k in range(10):
            if f"f{k}" == gone:
                continue
            data = bytearray(blob(64 << 10, k))
            if k == number % 10:
                mine = str(number).encode() * 100
                data[1000:1000 + len(mine)] = mine
            assert (place.mnt / f"f{k}").read_bytes() == data, (number, k)
    for place in places:
        linux.umount(place.mnt)
    assert is_settled(shared, 0)
    assert shared.process.poll() is None


def state_of(pid):
    status = open(f"/proc/{pid}/status").read()
    rss = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
    size = int(re.search(r"VmSize:\s+(\d+)", status).group(1))
    # a sanitizer, which takes terabytes of addresses, keeps what was freed
    return len(os.listdir(f"/proc/{pid}/fd")), 0 if size > 1 << 32 else rss


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("cycles", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_mounts_that_come_and_go_leave_nothing_in_the_server(stack, shared, cycles):
    (stack.lower() / "f").write_bytes(blob(50_000))
    places = [Place(stack, f"p{number}") for number in range(4)]

    def cycle(number):
        place = places[number % 4]
        place.mount(stack, shared)
        write_at(place.mnt / "f", b"%08d" % number, number * 8 % 40_000)
        linux.umount(place.mnt, linux.MNT_DETACH if number % 3 == 0 else 0)
    for number in range(40):
        cycle(number)
    assert is_settled(shared, 0)
    fds, memory = state_of(shared.pid)
    threads = threads_of(shared.pid)
    for number in range(cycles):
        if number % 1000 == 0:
            shared.watch()  # anew, or the watchdog ends it on a slow machine
        cycle(number)
    assert is_settled(shared, 0)
    assert wait_until(lambda: state_of(shared.pid)[0] <= fds + 2), os.listdir(f"/proc/{shared.pid}/fd")
    assert wait_until(lambda: threads_of(shared.pid) <= threads + 2)
    assert state_of(shared.pid)[1] - memory < 4000 + cycles * 2
    for place in places:
        assert names_in(place.work / "work") == []


def test_mounts_and_unmounts_at_once(stack, shared):
    (stack.lower() / "f").write_bytes(blob(50_000))
    places = [Place(stack, f"p{number}") for number in range(8)]

    def storm(place):
        for number in range(12):
            place.mount(stack, shared)
            write_at(place.mnt / "f", b"%04d" % number, number * 4096)
            linux.umount(place.mnt)
    in_children([lambda p=place: storm(p) for place in places])
    assert is_settled(shared, 0)
    data = bytearray(blob(50_000))
    for number in range(12):
        data[number * 4096:number * 4096 + 4] = b"%04d" % number
    for place in places:
        assert (place.mount(stack, shared) / "f").read_bytes() == data
        linux.umount(place.mnt)


def test_busy_mount_does_not_notice_that_another_is_torn_down(stack, shared):
    (stack.lower() / "f").write_bytes(blob(4 * MIB))
    busy, other = Place(stack, "busy"), Place(stack, "other")
    busy.mount(stack, shared)
    done = threading.Event()
    failures, rounds = [], [0]

    def use():
        try:
            while not done.is_set():
                off = rounds[0] * 8192 % (4 * MIB)
                write_at(busy.mnt / "f", b"busy", off)
                assert read_at(busy.mnt / "f", 4, off) == b"busy"
                rounds[0] += 1
        except (OSError, AssertionError) as e:
            failures.append(e)
    thread = threading.Thread(target=use)
    thread.start()
    try:
        for number in range(20):
            other.mount(stack, shared)
            fd = os.open(other.mnt / "f", os.O_RDWR)
            os.pwrite(fd, b"other", number * 4096)
            linux.umount(other.mnt, linux.MNT_DETACH)
            os.close(fd)
    finally:
        done.set()
        thread.join()
    assert not failures and rounds[0] > 20
    linux.umount(busy.mnt)
    assert is_settled(shared, 0)


@pytest.mark.parametrize("slow_mounts, requests", [(2, 45), (66, 1)])
def test_mounts_whose_lower_hangs_stop_no_other(stack, shared, slow_mounts, requests):
    """As two mounts of a network file system do whose server is away, or many with one request each."""
    for k in range(requests):
        (stack.lower(0) / f"d{k}").mkdir()
    stack.remember_lowers()
    gate = stack.second_mount(stack.lowers)
    slow = [Place(stack, f"slow{k}", [gate.mnt]).mount(stack, shared) for k in range(slow_mounts)]
    (stack.base / "quick").mkdir()
    (stack.base / "quick" / "f").write_bytes(b"quick")
    quick = [Place(stack, f"quick{k}", [stack.base / "quick"]).mount(stack, shared) for k in range(3)]
    for mnt in slow:
        os.listdir(mnt)
    stop_process(gate.pid)
    try:
        hanging = [subprocess.Popen(["ls", mnt / f"d{k}"]) for mnt in slow for k in range(requests)]
        # what the server could do for them has been done
        assert wait_until(lambda: all(is_blocked(process.pid) for process in hanging) and is_at_rest(shared.pid))
        for mnt in quick:
            assert subprocess.run(["cat", mnt / "f"], stdout=subprocess.PIPE, timeout=10).stdout == b"quick"
    finally:
        os.kill(gate.pid, signal.SIGCONT)
    assert [process.wait(20) for process in hanging] == [0] * len(hanging)
    for mnt in slow + quick:
        linux.umount(mnt)
    assert is_settled(shared, 0)


def test_five_hundred_layers_are_handed_over(stack, shared):
    lowers = []
    for number in range(500):
        path = stack.base / f"l{number}"
        path.mkdir()
        (path / f"f{number}").write_text(str(number))
        lowers.append(path)
    place = Place(stack, "p", lowers)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    place.mount(stack, shared, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
    assert len(names_in(place.mnt)) == 500
    for number in (0, 127, 128, 255, 256, 499):
        assert (place.mnt / f"f{number}").read_text() == str(number)


@pytest.mark.parametrize("upper_exists", [False, True])
def test_directories_that_vanish_are_their_mounts_own_trouble(stack, shared, upper_exists):
    (stack.lower() / "f").write_text("f")
    fine, poor = Place(stack, "fine"), Place(stack, "poor")
    fine.mount(stack, shared)
    poor.mount(stack, shared)
    poor.work.rename(poor.base / "w")
    if not upper_exists:
        os.rename(poor.upper, poor.base / "u")
        subprocess.run(["rm", "-rf", poor.base / "u", poor.base / "w"], check=True)
    try:
        (poor.mnt / "new").write_text("x")
    except OSError as e:
        assert e.errno in (errno.EIO, errno.ENOENT, errno.ESTALE)
    (fine.mnt / "new").write_text("x")
    assert (fine.mnt / "f").read_text() == "f"
    assert shared.process.poll() is None


# ---- failures ----

def test_failure_says_what_a_process_of_its_own_says(stack, shared):
    file = stack.base / "file"
    file.write_text("")
    inside = stack.upper / "inside"
    inside.mkdir()
    cases = [f"lowerdir={file},upperdir={stack.upper},workdir={stack.work}",
             f"lowerdir={stack.lower()},upperdir={file},workdir={stack.work}",
             f"lowerdir={stack.lower()},upperdir={stack.upper},workdir={stack.base}/none",
             f"lowerdir={stack.lower()},upperdir={stack.upper},workdir={inside}",
             f"lowerdir={stack.lower()},upperdir={stack.upper},workdir=/proc",
             f"lowerdir={stack.lower()},upperdir={stack.upper}", "upperdir=/x", "cow=x"]
    for options in cases:
        results = [subprocess.run([stack.program, "-o", options + more, str(stack.mnt)], text=True, timeout=30,
                                  capture_output=True, env={**os.environ, **shared.environment})
                   for more in (",standalone", "")]
        assert [r.returncode for r in results] == [1, 1]
        assert results[0].stderr == results[1].stderr and results[0].stderr.startswith("veneer: ")
        assert len(results[0].stderr.splitlines()) == 1
    missing = subprocess.run([stack.program, "-o", Place(stack, "p").options(), str(stack.base / "none")], text=True,
                             timeout=30, capture_output=True, env={**os.environ, **shared.environment})
    assert missing.returncode == 1 and str(stack.base / "none") in missing.stderr
    assert mount_points(stack.base) == []
    assert is_settled(shared, 0)


def test_upper_of_another_mount_of_the_same_server_is_in_use(stack, shared):
    place = Place(stack, "p")
    place.mount(stack, shared)
    again = stack.base / "again"
    again.mkdir()
    result = subprocess.run([stack.program, "-o", place.options(), str(again)], text=True, timeout=30,
                            capture_output=True, env={**os.environ, **shared.environment})
    with shared.client() as client:
        whose = f"upperdir {place.upper} is in use by the mount at {place.mnt}, of this server ({client.ping()[0]})"
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"veneer: {whose}: waiting for its end", f"veneer: {whose}: unmount that first"]
    assert not os.path.ismount(again)
    (place.mnt / "still").write_text("x")


def test_a_mount_says_at_once_what_it_waits_for_and_mounts_when_that_ends(stack, shared):
    place = Place(stack, "p")
    place.mount(stack, shared)
    again = stack.base / "again"
    again.mkdir()
    with subprocess.Popen([stack.program, "-o", place.options(), str(again)], text=True, stderr=subprocess.PIPE,
                          env={**os.environ, **shared.environment}) as waiting:
        said = waiting.stderr.readline()
        assert f"is in use by the mount at {place.mnt}" in said and "waiting" in said
        assert waiting.poll() is None
        linux.umount(place.mnt)
        assert waiting.wait(30) == 0 and waiting.stderr.read() == ""
    (again / "new").write_text("x")
    assert (place.upper / "new").exists()
    linux.umount(again)


def test_environment_of_the_mount_program_counts_and_not_the_servers(stack, shared):
    for name in ("a", "b"):
        (stack.lower() / name).write_text(name)
    for place, more in ((Place(stack, "p"), {}), (Place(stack, "q"), {"FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT": "1"})):
        subprocess.run([stack.program, "-o", place.options(), str(place.mnt)], check=True,
                       env={**os.environ, **shared.environment, **more}, timeout=30)
        os.unlink(place.mnt / "a")
        if more:
            assert names_in(place.upper) == [".wh.a"]
        linux.umount(place.mnt)


# ---- what the server holds ----

def test_server_holds_nothing_of_its_starter(stack, shared):
    file_system, cwd = stack.base / "fs", stack.base / "cwd"
    file_system.mkdir()
    cwd.mkdir()
    linux.mount("tmpfs", file_system, "tmpfs", 0, "mode=0755")
    for name in ("lower", "upper", "work"):
        (file_system / name).mkdir()
    (file_system / "lower" / "f").write_text("f")
    place = Place(stack, "p", [file_system / "lower"])
    place.upper, place.work = file_system / "upper", file_system / "work"
    place.mount(stack, shared, cwd=cwd)
    (place.mnt / "f").write_text("changed")
    linux.umount(place.mnt)
    assert is_settled(shared, 0)
    linux.umount(file_system)
    assert os.readlink(f"/proc/{shared.pid}/cwd") == "/"
    for fd, target in procfs.opened(shared.pid).items():
        assert fd <= 2 or not target.startswith(str(stack.base)) or target == str(shared.directory), target
    with open(f"/proc/{shared.pid}/mountinfo", encoding="ascii") as f:
        points = [line.split()[4] for line in f]
    kept = ("/proc", "/dev", "/sys", "/run/systemd/journal")
    assert points[0] == "/" and all(p == "/" or p.startswith(kept) for p in points), points
    assert os.getsid(shared.pid) != os.getsid(0)


def test_started_server_has_no_output_and_of_the_environment_what_is_for_servers(stack, veneer_bin, watchdog, monkeypatch):
    monkeypatch.setenv("VENEER_LOG", "syslog")
    monkeypatch.setenv("VENEER_OTHER", "secret")
    shared = SharedServer(veneer_bin, stack.base / "run", watchdog)
    place = Place(stack, "p")
    place.mount(stack, shared)
    with shared.client() as client:
        pid, count = client.ping()
    try:
        assert count == 1
        assert [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3
        with open(f"/proc/{pid}/environ", "rb") as f:
            assert f.read() == b"PATH=/usr/sbin:/usr/bin:/sbin:/bin\0VENEER_CGROUP=%b\0VENEER_LOG=syslog\0" % \
                os.environb[b"VENEER_CGROUP"]
        assert os.getsid(pid) == pid
        linux.umount(place.mnt)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd"))
    assert names_in(shared.directory) == [wire.socket_name() + ".lock"]


def test_started_server_has_none_of_its_starters_limits(stack, veneer_bin, watchdog):
    """The CPU time of one container's mount program must not end the mounts of all others."""
    wanted = {"CPU": 1, "FSIZE": 1 << 20, "NOFILE": 256}
    # a sanitizer takes terabytes of addresses
    with open(veneer_bin, "rb") as f:
        program = f.read()
    is_sanitized = b"__asan_init" in program or b"__tsan_init" in program
    if not is_sanitized:
        wanted |= {"AS": 4 << 30, "DATA": 4 << 30}
    numbers = {name: getattr(resource, "RLIMIT_" + name) for name in wanted}

    def limit():
        for name, value in wanted.items():
            resource.setrlimit(numbers[name], (value, resource.getrlimit(numbers[name])[1]))

    shared = SharedServer(veneer_bin, stack.base / "run", watchdog)
    place = Place(stack, "p")
    place.mount(stack, shared, preexec_fn=limit)
    with shared.client() as client:
        pid, _ = client.ping()
    try:
        for name, number in numbers.items():
            soft, hard = resource.prlimit(pid, number)
            assert soft == hard, name
        linux.umount(place.mnt)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd"))


# ---- finding and starting ----

def test_mount_programs_at_once_start_one_server(stack, veneer_bin, watchdog):
    shared = SharedServer(veneer_bin, stack.base / "run", watchdog)
    places = [Place(stack, f"p{number}") for number in range(12)]
    in_children([lambda p=place: p.mount(stack, shared) for place in places])
    with shared.client() as client:
        pid, count = client.ping()
    assert count == 12
    for place in places:
        linux.umount(place.mnt)
    os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd"))


def test_stale_socket_is_replaced(stack, shared):
    place = Place(stack, "p")
    shared.kill()
    assert wire.socket_name() in names_in(shared.directory)
    place.mount(stack, shared)
    with shared.client() as client:
        pid = client.ping()[0]
    linux.umount(place.mnt)
    os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd"))


def test_second_server_at_one_socket_is_refused(stack, shared):
    result = subprocess.run([stack.program, "server"], text=True, timeout=20, capture_output=True,
                            env={**os.environ, **shared.environment})
    assert result.returncode == 1 and "already" in result.stderr
    assert shared.count() == 0


def test_idle_server_leaves(stack, veneer_bin, watchdog):
    shared = SharedServer(veneer_bin, stack.base / "run", watchdog, ["--idle", "3"])
    shared.ensure()
    place = Place(stack, "p")
    place.mount(stack, shared)
    # Another that began later and has no mount leaves in the meantime.
    other = SharedServer(veneer_bin, stack.base / "other", watchdog, ["--idle", "3"])
    other.ensure()
    assert other.process.wait(20) == 0
    assert shared.process.poll() is None
    linux.umount(place.mnt)
    assert shared.process.wait(20) == 0
    assert wire.socket_name() not in names_in(shared.directory)


def test_mounts_come_while_servers_leave(stack, veneer_bin, watchdog):
    """Each server leaves at once; nobody is told so."""
    place = Place(stack, "p")
    shared = SharedServer(veneer_bin, stack.base / "run", watchdog, ["--idle", "0"])
    for _ in range(30):
        place.mount(stack, shared)
        # One that took the mount before it read the signal of the last round leaves already, and has no socket.
        with contextlib.suppress(OSError), shared.client() as client:
            os.kill(client.ping()[0], signal.SIGTERM)
        linux.umount(place.mnt)


def test_without_a_place_for_a_server_each_mount_has_its_own(stack, shared):
    place = Place(stack, "p")
    (stack.base / "open").mkdir(mode=0o777)
    os.chmod(stack.base / "open", 0o777)
    shared_elsewhere = {**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "open")}
    result = subprocess.run([stack.program, "-o", place.options(), str(place.mnt)], text=True, timeout=20,
                            capture_output=True, env=shared_elsewhere)
    assert result.returncode == 0 and len(result.stderr.splitlines()) == 1
    assert "server of its own" in result.stderr
    (place.mnt / "new").write_text("x")
    linux.umount(place.mnt)
    assert wait_until(lambda: names_in(place.work / "work") == [])
    assert names_in(stack.base / "open") == []


# ---- signals ----

def test_first_signal_waits_for_the_mounts(stack, shared):
    (stack.lower() / "f").write_text("f")
    place, later = Place(stack, "p"), Place(stack, "later")
    place.mount(stack, shared)
    shared.signal()
    assert wait_until(lambda: "the server ends with the last of 1 mount" in shared.log)
    assert wait_until(lambda: wire.socket_name() not in names_in(shared.directory))
    assert (place.mnt / "f").read_text() == "f"
    (place.mnt / "new").write_text("x")
    # a new client gets another server
    later.mount(stack, shared)
    with shared.client() as client:
        pid = client.ping()[0]
    assert pid != shared.pid
    assert shared.process.poll() is None
    linux.umount(place.mnt)
    assert shared.process.wait(20) == 0
    assert (later.mnt / "f").read_text() == "f"
    linux.umount(later.mnt)
    os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd"))
    assert (place.upper / "new").read_text() == "x"


def test_second_signal_ends_the_mounts(stack, shared, veneer_bin):
    (stack.lower() / "f").write_bytes(blob(300_000))
    places = [Place(stack, f"p{number}") for number in range(3)]
    fds = []
    for place in places:
        place.mount(stack, shared)
        fds.append(os.open(place.mnt / "f", os.O_RDWR))
        os.pwrite(fds[-1], b"kept", 8192)
    shared.signal()
    assert wait_until(lambda: "told to end" in shared.log)
    shared.signal()
    assert shared.process.wait(30) == 0
    for fd in fds:
        with fails_with(errno.ENOTCONN):
            os.pwrite(fd, b"lost", 0)
        try:
            os.close(fd)
        except OSError as e:
            assert e.errno == errno.ENOTCONN
    for place in places:
        linux.umount(place.mnt, linux.MNT_DETACH)
        said = subprocess.run([veneer_bin, "inspect", place.upper], capture_output=True, text=True, check=True)
        assert "closed cleanly" in said.stdout
        assert read_at(place.upper / "f", 4, 8192) == b"kept"


def test_a_service_manager_may_tell_it_often(stack, shared):
    (stack.lower() / "f").write_bytes(blob(300_000))
    place = Place(stack, "p")
    place.mount(stack, shared)
    for pid in (shared.process.pid, shared.pid) * 3:
        os.kill(pid, signal.SIGUSR2)
        time.sleep(0.15)
    write_at(place.mnt / "f", b"x", 5)
    assert read_at(place.mnt / "f", 1, 5) == b"x"
    assert shared.process.poll() is None
    linux.umount(place.mnt)
    assert shared.process.wait(20) == 0


def test_idle_server_goes_at_the_first_signal(shared):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        shared.ensure()
        shared.signal(number)
        assert shared.process.wait(20) == 0


def test_counters_are_logged(stack, shared):
    place = Place(stack, "p")
    place.mount(stack, shared)
    shared.signal(signal.SIGUSR1)
    assert wait_until(lambda: re.search(r"# MOUNTS: 1$", shared.log, re.MULTILINE))
    assert wait_until(lambda: "# REQUESTS: " in shared.log)


# ---- service managers ----

def test_service_manager_is_told(stack, veneer_bin, watchdog):
    run = stack.base / "run"
    run.mkdir(mode=0o700)
    path = f"/tmp/veneer-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(20)
        try:
            with subprocess.Popen([veneer_bin, "server", "--socket", str(run / "s")],
                                  env={**os.environ, "NOTIFY_SOCKET": path}) as process:
                assert manager.recv(100) == b"READY=1"
                assert (run / "s").is_socket()
                process.terminate()
                assert manager.recv(100) == b"STOPPING=1"
                assert process.wait(20) == 0
        finally:
            os.unlink(path)
    assert names_in(run) == ["s.lock"]


def test_socket_of_a_service_manager_is_used_and_left(stack, veneer_bin):
    run = stack.base / "run"
    run.mkdir(mode=0o700)
    directory = os.open(run, os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"/proc/self/fd/{directory}/{wire.socket_name()}")
        listener.listen(10)
        script = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" server --idle 86400'
        env = {**os.environ, "VENEER_RUNTIME_DIR": str(run)}
        # the convention has it as descriptor 3
        with subprocess.Popen(["/bin/sh", "-c", script, veneer_bin], close_fds=False, env=env,
                              preexec_fn=lambda: os.dup2(listener.fileno(), 3)) as process:
            with wire.Client(run) as client:
                assert client.ping() == (child_of(process.pid), 0)
            process.terminate()
            assert process.wait(20) == 0
    os.close(directory)
    assert wire.socket_name() in names_in(run)


# ---- bad clients ----

def test_messages_that_make_no_sense_are_refused(stack, shared):
    cases = [b"", b"x", b"\0" * 12, wire.message(99), wire.message(0), wire.message(wire.OK),
             wire.message(wire.PING, b"more"), wire.message(wire.PING, magic=1), wire.message(wire.DIRS, b"\0\0\x01\0"),
             wire.message(wire.HELLO, b"again"), wire.message(wire.PING, length=5), b"y" * 100_000,
             wire.message(wire.MOUNT, b"\x01\0\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0")]
    for data in cases:
        with shared.client() as client:
            client.send(data)
            if data:
                client.error()
            else:
                assert client.receive() is None
    with shared.client(greet=False) as client:
        client.send(wire.message(wire.PING))
        assert "out of place" in client.error()
    assert shared.count() == 0


def test_other_version_is_refused_clearly(shared):
    with shared.client(greet=False) as client:
        client.send(wire.message(wire.HELLO, b"9.0", version=9))
        assert re.search(r"version 1 .*not 9", client.error())
    assert "not 9" in shared.log


def test_server_of_another_version_is_not_used(stack):
    run = stack.base / "run"
    run.mkdir(mode=0o700)
    directory = os.open(run, os.O_PATH)
    place = Place(stack, "p")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"/proc/self/fd/{directory}/{wire.socket_name()}")
        listener.listen(10)

        def answer():
            client, _ = listener.accept()
            client.recv(1000)
            client.send(wire.message(wire.HELLO, b"9.0", version=9))
            client.recv(1000)
            client.close()
        thread = threading.Thread(target=answer)
        thread.start()
        result = subprocess.run([stack.program, "-o", place.options(), str(place.mnt)], text=True, timeout=30,
                                capture_output=True, env={**os.environ, "VENEER_RUNTIME_DIR": str(run)})
        thread.join()
    os.close(directory)
    assert result.returncode == 0 and "version 9" in result.stderr
    (place.mnt / "new").write_text("x")
    linux.umount(place.mnt)
    assert wait_until(lambda: names_in(place.work / "work") == [])


def test_descriptors_of_refused_messages_are_closed(stack, shared):
    before = len(os.listdir(f"/proc/{shared.pid}/fd"))
    fds = [os.open("/", os.O_PATH)] * 100
    for data in (b"", b"x", wire.message(wire.PING), wire.message(wire.ARGS, b"x"),
                 wire.message(wire.DIRS, b"\0\0\x01\0"), wire.message(wire.DIRS, b"\0\0\x64\0")):
        with shared.client() as client:
            client.send(data, fds)
            client.sock.shutdown(1)
            client.receive()
    # half a request, whose descriptors were good
    with shared.client() as client:
        client.send(wire.message(wire.DIRS, b"\0\0\x64\0"), fds)
        client.send(wire.message(wire.DIRS, b"\1\0\x01\0"), fds[:1])
        client.send(wire.message(wire.DIRS, b"\1\0\x01\0"), fds[:1])
        client.error()
    os.close(fds[0])
    assert wait_until(lambda: len(os.listdir(f"/proc/{shared.pid}/fd")) <= before)


def test_what_does_not_fit_or_is_no_mount_is_refused(stack, shared):
    args = b"/\0veneer\0-o\0lowerdir=/a:/b\0/mnt\0"
    ask = wire.message(wire.MOUNT, (1).to_bytes(4, "little") + (4).to_bytes(4, "little")
                       + len(args).to_bytes(8, "little"))
    fd = os.open(stack.base, os.O_RDONLY)
    with shared.client() as client:
        client.send(wire.message(wire.DIRS, b"\0\0\x01\0"), [fd])
        client.send(wire.message(wire.ARGS, args))
        client.send(ask)
        assert "do not fit" in client.error()
    with shared.client() as client:
        client.send(wire.message(wire.DIRS, b"\0\0\x02\0"), [fd, fd])
        client.send(wire.message(wire.ARGS, args))
        client.send(ask)
        assert client.receive()[0] == wire.READY
        client.send(wire.message(wire.FUSE, b"\0" * 8), [fd])
        client.error()
    os.close(fd)
    assert is_settled(shared, 0)


def test_silent_client_is_dropped(stack, shared):
    with shared.client() as half, shared.client(greet=False) as none:
        half.send(wire.message(wire.DIRS, b"\0\0\x01\0"), [0])
        Place(stack, "p").mount(stack, shared)
        assert half.receive() is None and none.receive() is None
    assert "said nothing" in shared.log


@pytest.mark.parametrize("count", [2000, pytest.param(5000, marks=pytest.mark.slow)])
def test_flood_of_connections_hurts_nobody(stack, shared, count):
    (stack.lower() / "f").write_text("f")
    first, second = Place(stack, "p"), Place(stack, "q")
    first.mount(stack, shared)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    clients = []
    try:
        for _ in range(count):
            clients.append(shared.client(greet=False))
        assert (first.mnt / "f").read_text() == "f"
        second.mount(stack, shared)
        (second.mnt / "new").write_text("x")
        assert len(os.listdir(f"/proc/{shared.pid}/fd")) < 1200
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert wait_until(lambda: len(os.listdir(f"/proc/{shared.pid}/fd")) < 100)


@pytest.mark.needs_root("becomes another user")
def test_other_users_client_is_refused(stack, shared):
    os.chmod(shared.directory, 0o711)
    os.chmod(shared.directory / wire.socket_name(), 0o666)

    def ask():
        with shared.client(greet=False) as client:
            assert "another user" in client.error()
    Child(ask, uid=54321, gid=54321).join()
    assert "process" in shared.log and "54321" in shared.log


@pytest.mark.needs_root("becomes another user")
def test_other_users_server_is_not_used(stack):
    """Such a server would be given our directories."""
    run = stack.base / "run"
    run.mkdir(mode=0o700)
    place = Place(stack, "p")
    os.chown(run, 54321, 54321)
    result = subprocess.run([stack.program, "-o", place.options(), str(place.mnt)], text=True, timeout=30,
                            capture_output=True, env={**os.environ, "VENEER_RUNTIME_DIR": str(run)})
    assert result.returncode == 0 and "runtime directory" in result.stderr
    assert names_in(run) == []
    linux.umount(place.mnt)
    assert wait_until(lambda: names_in(place.work / "work") == [])


@pytest.mark.needs_root("gives up privileges")
def test_client_with_other_privileges_gets_a_server_of_its_own(stack, shared):
    place = Place(stack, "p")
    result = subprocess.run(["setpriv", "--bounding-set", "-sys_time", stack.program, "-o", place.options(),
                             str(place.mnt)], text=True, timeout=30, capture_output=True,
                            env={**os.environ, **shared.environment})
    assert result.returncode == 0 and "other privileges" in result.stderr
    assert shared.count() == 0
    linux.umount(place.mnt)
    assert wait_until(lambda: names_in(place.work / "work") == [])


def test_killed_mount_programs_leave_nothing(stack, shared):
    """Whenever it dies, the server goes on and forgets what came to nothing."""
    (stack.lower() / "f").write_text("f")
    place = Place(stack, "p")
    for number in range(40):
        process = subprocess.Popen([stack.program, "-o", place.options(), str(place.mnt)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **shared.environment})
        time.sleep(0.0005 * number)
        process.kill()
        process.wait()
        while str(place.mnt) in mount_points(stack.base):
            linux.umount(place.mnt, linux.MNT_DETACH)
        assert is_settled(shared, 0), number
    assert (place.mount(stack, shared) / "f").read_text() == "f"
    with opened(place.mnt / "f") as fd:
        assert os.read(fd, 1) == b"f"
