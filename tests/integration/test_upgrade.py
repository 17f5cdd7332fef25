# SPDX-License-Identifier: Apache-2.0
"""Another program takes the mounts of a server, and programs in them do not notice."""
import array
import contextlib
import fcntl
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

from support import linux, wire
from support.content import MIB, blob
from support.expect import names_in, opened
from support.places import Place
from support.server import wait_until
from support.shared import SharedServer, child_of, kill
from test_killed_server import Worker, data_changes, name_changes, stop_all

_UPGRADES = 10


def _stat_of(pid):
    """From the state on."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _is_alive(pid):
    with contextlib.suppress(OSError):
        return _stat_of(pid)[0] not in "ZX"
    return False


class Adopted:
    """A supervisor that is nobody's child here, as far as SharedServer wants to know."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, 0

    def poll(self):
        return None if _is_alive(self.pid) else 0

    def wait(self, limit_s=20):
        if not wait_until(lambda: not _is_alive(self.pid), limit_s):
            raise subprocess.TimeoutExpired("server", limit_s)
        return 0

    def send_signal(self, number):
        os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        kill(self.pid)


def _parent_of(pid):
    return int(_stat_of(pid)[1])


def upgrade(shared, program=None):
    return subprocess.run([program or shared.program, "server", "--upgrade", "--idle", "86400"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **shared.environment})


def upgraded(shared, mounts, program=None):
    """An upgrade that has to succeed; the old server is gone, and shared is the new one."""
    old, server = shared.process, shared.pid
    result = upgrade(shared, program)
    what = "1 mount" if mounts == 1 else f"{mounts} mounts"
    assert (result.returncode, result.stderr) == (0, ""), result
    assert result.stdout.startswith(f"moved {what} to version ") and result.stdout.count("\n") == 1
    assert old.wait(20) == 0
    with shared.client() as client:
        pid, count = client.ping()
    assert count == mounts and pid != server
    shared.process = Adopted(_parent_of(pid))
    shared.watch()
    assert shared.process.pid != old.pid
    return pid


def kill_server_of(shared):
    """Kills the server of the mounts, which a failed test may not know."""
    with contextlib.suppress(OSError), shared.client() as client:
        pid, _ = client.ping()
        parent = _parent_of(pid)
        if parent > 1 and parent != os.getpid():
            kill(parent)
        kill(pid)


@pytest.fixture
def shared(shared):
    """Its mounts may be another supervisor's at the end."""
    yield shared
    kill_server_of(shared)


@pytest.fixture
def place(stack, shared):
    (stack.lower() / "f").write_bytes(b"lower")
    stack.remember_lowers()
    made = Place(stack, "p")
    made.mount(stack, shared)
    return made


# ---- what is open goes on ----

def _use_what_is_open(m, stack):
    """Opens files, and gives what proves that they go on."""
    lower = stack.enter_context(opened(m / "gone", os.O_RDONLY))
    partial = stack.enter_context(opened(m / "partial", os.O_RDWR))
    own = stack.enter_context(opened(m / "own", os.O_RDWR | os.O_CREAT))
    whole = stack.enter_context(opened(m / "mapped", os.O_RDWR))
    mapped = stack.enter_context(mmap.mmap(whole, MIB))
    locked, other = (stack.enter_context(opened(m / "locked", os.O_RDWR)) for _ in range(2))
    os.pwrite(partial, b"before", 5000)
    for name in ("gone", "partial", "own"):
        os.unlink(m / name)
    fcntl.flock(locked, fcntl.LOCK_EX)
    want = bytearray(blob(300_000, 2))
    want[5000:5006] = b"before"

    def check(step):
        assert os.pread(lower, 300_000, 0) == blob(300_000, 1)
        os.pwrite(partial, b"%4d" % step, 10_000 * step)
        want[10_000 * step:10_000 * step + 4] = b"%4d" % step
        assert os.pread(partial, 300_001, 0) == want
        os.pwrite(own, b"%4d" % step, 4 * step)
        assert os.pread(own, 100, 0) == b"".join(b"%4d" % k for k in range(step + 1))
        assert [os.fstat(fd).st_nlink for fd in (lower, partial, own)] == [0] * 3
        mapped[step * 70_000:step * 70_000 + 4] = b"%4d" % step
        mapped.flush()
        assert (m / "mapped").read_bytes()[step * 70_000:][:4] == b"%4d" % step
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return check


def _listing(m):
    return [(e.name, e.inode()) for e in os.scandir(m)]


def _all_get_on(workers):
    done = [worker.steps for worker in workers]
    return wait_until(lambda: all(w.error or w.steps > n for w, n in zip(workers, done)), 60, 0.01)


def _go_on_over(stack, shared, upgrades):
    for k, name in enumerate(("data0", "gone", "partial", "data1")):
        (stack.lower() / name).write_bytes(blob(300_000, k))
    (stack.lower() / "mapped").write_bytes(blob(MIB))
    (stack.lower() / "locked").touch()
    for k in range(100):
        (stack.lower() / "many").mkdir(exist_ok=True)
        (stack.lower() / "many" / str(k)).touch()
    stack.remember_lowers()
    first = Place(stack, "p0").mount(stack, shared)
    second = Place(stack, "p1").mount(stack, shared, "io=cached")
    workers = [Worker(name_changes(first / "names", 1)), Worker(name_changes(second / "names", 2)),
               Worker(data_changes(first / "data0", 3)), Worker(data_changes(second / "data1", 4))]
    with contextlib.ExitStack() as files:
        checks = [_use_what_is_open(m, files) for m in (first, second)]
        before = _listing(first / "many")
        for worker in workers:
            worker.start()
        try:
            for step in range(upgrades):
                upgraded(shared, 2)
                for check in checks:
                    check(step % 10)
                assert _listing(first / "many") == before
                if step % 4 == 3:
                    shared.kill_server()
                assert _all_get_on(workers)
        finally:
            stop_all(workers)


def test_all_goes_on_over_ten_upgrades(stack, shared):
    _go_on_over(stack, shared, _UPGRADES)
    assert shared.count() == 2


def test_what_the_kernel_keeps_goes_to_the_next_server(stack, shared):
    (stack.lower() / "f").write_bytes(blob(MIB))
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared, "io=cached", "writeback=on")
    want = bytearray(blob(MIB))
    with opened(m / "f", os.O_RDWR) as fd:
        for k in range(4):
            os.pwrite(fd, b"%08d" % k, 200_000 * k)
            want[200_000 * k:200_000 * k + 8] = b"%08d" % k
            upgraded(shared, 1)
            if k % 2:
                os.fsync(fd)
        os.ftruncate(fd, 2 * MIB)
        os.pwrite(fd, b"end", 3 * MIB)
        upgraded(shared, 1)
        assert os.lseek(fd, 2 * MIB, os.SEEK_DATA) == 3 * MIB
        seen = os.fstat(fd)
    want += bytes(2 * MIB) + b"end"
    assert (m / "f").read_bytes() == want
    linux.umount(m)
    place.mount(stack, shared, "io=cached", "writeback=on")
    assert (m / "f").read_bytes() == want
    assert ((m / "f").stat().st_size, (m / "f").stat().st_mtime_ns) >= (seen.st_size, seen.st_mtime_ns)


@pytest.mark.slow
def test_all_goes_on_over_many_upgrades_and_deaths(stack, shared):
    (stack.lower() / "data").write_bytes(blob(300_000, 7))
    stack.remember_lowers()
    workers = []
    for k in range(10):
        m = Place(stack, f"p{k}").mount(stack, shared, ["io=auto", "io=cached", "io=direct"][k % 3])
        workers += [Worker(name_changes(m / "names", k)), Worker(data_changes(m / "data", k))]
    for worker in workers:
        worker.start()
    try:
        for k in range(100):
            if k % 3 == 0:
                kill(shared.pid)
            upgraded(shared, 10)
            if k % 3 == 1:
                shared.kill_server()
    finally:
        stop_all(workers)


def test_the_new_one_is_found_serves_and_leaves(stack, shared, place):
    upgraded(shared, 1)
    other = Place(stack, "q")
    (other.mount(stack, shared) / "f").write_bytes(b"other")
    shared.kill_server()
    assert (place.mnt / "f").read_bytes() == b"lower" and (other.mnt / "f").read_bytes() == b"other"
    assert shared.count() == 2
    for p in (place, other):
        linux.umount(p.mnt)
    assert wait_until(lambda: shared.count() == 0)
    assert wire.socket_name() in names_in(shared.directory)
    shared.process.terminate()
    shared.process.wait()
    assert wire.socket_name() not in names_in(shared.directory)


def test_a_copy_elsewhere_is_what_serves_then(stack, shared, place):
    copy = stack.base / "copy"
    shutil.copy(shared.program, copy)
    pid = upgraded(shared, 1, str(copy))
    assert os.readlink(f"/proc/{pid}/exe") == str(copy)
    assert os.readlink(f"/proc/{shared.process.pid}/exe") == str(copy)
    assert (place.mnt / "f").read_bytes() == b"lower"


# ---- another build ----

def _altered(stack, shared, pattern, new):
    """A copy of the program that has another text where the pattern is, of the same length: as another build would."""
    content, count = re.subn(pattern, new, pathlib.Path(shared.program).read_bytes())
    assert count > 0, f"nothing like {pattern} in the program"
    copy = stack.base / "altered"
    # what still ends with the last one cannot be written to
    copy.unlink(missing_ok=True)
    copy.write_bytes(content)
    copy.chmod(0o755)
    return str(copy)


def _version(shared):
    with shared.client(greet=False) as client:
        client.send(wire.message(wire.HELLO, b"test"))
        kind, text = client.receive()
    assert kind == wire.HELLO
    return text


def test_a_build_of_another_version_takes_over_and_gives_back(stack, shared, place):
    mine = _version(shared)
    other = b"9" + mine[1:]
    assert other != mine
    program = _altered(stack, shared, rb"(?<![\w.])" + re.escape(mine) + rb"\0", other + b"\0")
    with opened(place.mnt / "own", os.O_RDWR | os.O_CREAT) as own, opened(place.mnt / "f", os.O_RDONLY) as lower:
        os.unlink(place.mnt / "own")
        for step in range(2):
            for version, build in ((other, program), (mine, shared.program)):
                upgraded(shared, 1, build)
                assert _version(shared) == version
                os.pwrite(own, b"%d" % step, step)
                assert os.pread(own, 10, 0) == b"01"[:step + 1] and os.pread(lower, 10, 0) == b"lower"
                shared.kill_server()
                assert _version(shared) == version and os.pread(own, 10, 0) == b"01"[:step + 1]
                assert os.readlink(f"/proc/{shared.pid}/exe") == os.path.realpath(build)


def test_a_build_with_another_form_of_anything_that_goes_over_is_refused(stack, shared, place):
    versions = _versions(shared)
    parts = versions.split(b", ")
    assert [part.split()[0] for part in parts] == [b"bequest", b"dossier", b"nodes", b"locks", b"recall", b"init"]
    pid = shared.pid
    with opened(place.mnt / "f", os.O_RDONLY) as fd:
        for part in parts:
            other = part[:-1] + (b"1" if part.endswith(b"9") else b"9")
            program = _altered(stack, shared, re.escape(versions), versions.replace(part, other))
            result = upgrade(shared, program)
            assert (result.returncode, result.stdout) == (1, ""), part
            assert "cannot hand its mounts to that version: it knows " + versions.decode() in result.stderr
            assert shared.pid == pid and os.pread(fd, 10, 0) == b"lower"
    assert (place.mnt / "f").read_bytes() == b"lower" and shared.count() == 1
    upgraded(shared, 1)


def test_nothing_of_the_old_stays_open(stack, shared, place):
    (place.mnt / "f").read_bytes()
    upgraded(shared, 1)
    (place.mnt / "f").read_bytes()

    def count():
        return len(os.listdir(f"/proc/{shared.pid}/fd"))
    first = count()
    for _ in range(5):
        upgraded(shared, 1)
        (place.mnt / "f").read_bytes()
    assert wait_until(lambda: count() <= first + 3), (first, count())
    linux.umount(place.mnt)
    assert wait_until(lambda: shared.count() == 0)
    upgraded(shared, 0)


# ---- what fails leaves the old one serving ----

def _versions(shared):
    """What it says that it knows, when it is asked for something else."""
    with shared.client() as client:
        client.send(wire.message(wire.UPGRADE, b"bequest 0"))
        return client.error().partition("it knows ")[2].encode()


def _take_message(client):
    data, control, _, _ = client.sock.recvmsg(1 << 17, socket.CMSG_SPACE(128 * 4))
    for _, _, raw in control:
        fds = array.array("i")
        fds.frombytes(raw)
        for fd in fds:
            os.close(fd)
    return data


def _leave_at_once(client):
    pass


def _leave_after_the_first(client):
    assert _take_message(client)


def _answer_nonsense(client):
    _take_message(client)
    client.send(wire.message(wire.PING))
    with contextlib.suppress(ConnectionResetError):
        while _take_message(client):
            pass


def _say_nothing(client):
    client.sock.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        while _take_message(client):
            pass


_FAILING = [_leave_at_once, _leave_after_the_first, _answer_nonsense,
            pytest.param(_say_nothing, marks=pytest.mark.slow)]


@pytest.mark.parametrize("fail", _FAILING)
def test_a_new_one_that_fails_changes_nothing(shared, place, fail):
    versions = _versions(shared)
    (place.mnt / "own").write_bytes(b"own")
    with opened(place.mnt / "own", os.O_RDWR) as fd, opened(place.mnt / "f", os.O_RDONLY) as lower:
        os.unlink(place.mnt / "own")
        os.unlink(place.mnt / "f")
        for _ in range(3):
            supervisor, server = shared.process.pid, shared.pid
            with shared.client() as client:
                client.send(wire.message(wire.UPGRADE, versions))
                fail(client)
            assert wait_until(lambda: shared.pid not in (server, supervisor), 60)
            assert shared.count() == 1 and shared.process.pid == supervisor
            assert os.pread(fd, 10, 0) == b"own" and os.pread(lower, 10, 0) == b"lower"
        upgraded(shared, 1)
        assert os.pread(fd, 10, 0) == b"own" and os.pread(lower, 10, 0) == b"lower"


def _children_of(pid):
    with contextlib.suppress(OSError):
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def test_a_new_one_that_is_killed_while_it_waits_changes_nothing(shared, place):
    for _ in range(3):
        supervisor, server = shared.process.pid, shared.pid
        os.kill(supervisor, signal.SIGSTOP)
        with subprocess.Popen([shared.program, "server", "--upgrade"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **shared.environment}) as command:
            assert wait_until(lambda: not _is_alive(server), 20, 0.001)
            successor, = _children_of(command.pid)
            kill(successor)
            os.kill(supervisor, signal.SIGCONT)
            out, err = command.communicate(timeout=60)
        assert (command.returncode, out, err) == (1, "", "veneer: the new server died\n")
        assert (place.mnt / "f").read_bytes() == b"lower" and shared.count() == 1
        assert shared.process.pid == supervisor and shared.pid != server


def test_other_versions_are_refused_before_anything_is_killed(shared, place):
    pid = shared.pid
    with shared.client() as client:
        client.send(wire.message(wire.UPGRADE, b"bequest 99"))
        assert "cannot hand its mounts to that version" in client.error()
    assert shared.pid == pid and shared.count() == 1


def test_a_server_that_was_told_to_go_refuses(shared, place):
    with opened(place.mnt / "f", os.O_RDONLY) as fd:
        shared.process.terminate()
        assert wait_until(lambda: wire.socket_name() not in names_in(shared.directory))
        result = upgrade(shared)
        assert (result.returncode, result.stdout) == (1, "")
        assert "there is no server" in result.stderr
        assert os.pread(fd, 10, 0) == b"lower"
    linux.umount(place.mnt)
    assert shared.process.wait(20) == 0


def test_a_server_that_runs_alone_refuses(stack, veneer_bin, watchdog):
    alone = SharedServer(veneer_bin, stack.base / "run", watchdog, ("--alone", "--idle", "86400"))
    alone.ensure()
    result = upgrade(alone)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1 and "runs alone" in result.stderr
    assert alone.count() == 0 and alone.stop() == 0


def test_a_server_that_has_lost_its_supervisor_refuses(shared, place):
    """The server would kill itself, and no supervisor would be there to hand its mounts over."""
    server = child_of(shared.process.pid)
    shared.process.kill()
    shared.process.wait()
    with opened(place.mnt / "f", os.O_RDONLY) as fd:
        result = upgrade(shared)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1 and "runs alone" in result.stderr
        assert os.pread(fd, 10, 0) == b"lower"
        (place.mnt / "own").write_bytes(b"own")
        assert (place.mnt / "own").read_bytes() == b"own"
    linux.umount(place.mnt)
    kill(server)


def test_without_a_server_there_is_nothing_to_upgrade(stack, veneer_bin):
    run = stack.base / "run"
    run.mkdir(mode=0o700)
    result = subprocess.run([veneer_bin, "server", "--upgrade", "--socket", str(run / "s")],
                            capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"veneer: there is no server at {run}/s\n"


def test_a_service_manager_is_told_who_serves_now(stack, veneer_bin, watchdog):
    path = f"/var/tmp/veneer-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(20)
        os.environ["NOTIFY_SOCKET"] = path
        try:
            shared = SharedServer(veneer_bin, stack.base / "run", watchdog)
            shared.ensure()
            assert manager.recv(100) == b"READY=1"
            upgraded(shared, 0)
            assert manager.recv(100) == b"MAINPID=%d" % shared.process.pid
            assert manager.recv(100) == b"READY=1"
            shared.process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
        finally:
            del os.environ["NOTIFY_SOCKET"]
            os.unlink(path)
            shared.kill()
            kill_server_of(shared)
