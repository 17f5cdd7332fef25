# SPDX-License-Identifier: Apache-2.0
"""A server answers the process that has connected, as long as that lives and may do all that the server may."""
import array
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading

import pytest

from support import linux, wire
from support.child import Child
from support.places import Place
from support.server import wait_until
from support.shared import SharedServer

_ARGS = b"/\0veneer\0-o\0lowerdir=/a:/b\0/mnt\0"
_MOUNT = [wire.message(wire.DIRS, b"\0\0\2\0"), wire.message(wire.ARGS, _ARGS),
          wire.message(wire.MOUNT, struct.pack("<IIQ", 1, 4, len(_ARGS)))]
# What is asked for, and what one is answered that may: for an upgrade all that is open.
GIVEN = {"mount": wire.READY, "stats": wire.TEXT, "upgrade": wire.BEQUEST, "ping": wire.PONG}
HELLO = wire.message(wire.HELLO, b"test")
KERNELS = ["new", "old"]
_TESTS = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(params=KERNELS)
def server(request, stack, veneer_bin, watchdog, monkeypatch):
    """As on this kernel, and as on one that does not hand out the process that has connected."""
    if request.param == "old":
        monkeypatch.setenv("VENEER_NO_PEERPIDFD", "1")
    made = SharedServer(veneer_bin, stack.base / "run", watchdog)
    made.ensure()
    yield made
    made.kill()


def _connect(sock, directory, name=None):
    at = os.open(directory, os.O_PATH)
    try:
        sock.connect(f"/proc/self/fd/{at}/{name or wire.socket_name()}")
    finally:
        os.close(at)


def _answers(sock):
    """The types of all messages until the server hangs up."""
    sock.settimeout(20)
    kinds = []
    while True:
        try:
            data = sock.recv(1 << 17)
        except ConnectionResetError:
            continue
        except BrokenPipeError:
            data = b""
        if not data:
            return kinds
        kinds.append(int.from_bytes(data[6:8], "little"))


def _is_refused(kinds):
    """A refused client may have been greeted while its process was there."""
    return kinds[-1:] == [wire.ERROR] and set(kinds[:-1]) <= {wire.HELLO}


def asked(server, what):
    if what == "mount":
        return _MOUNT
    if what == "upgrade":
        with server.client() as client:
            client.send(wire.message(wire.UPGRADE, b"bequest 0"))
            return [wire.message(wire.UPGRADE, client.error().partition("it knows ")[2].encode())]
    return [wire.message({"stats": wire.STATS, "ping": wire.PING}[what])]


def _say(sock, *messages):
    for data in messages:
        fds = [os.open("/", os.O_RDONLY)] * 2 if data[6] == wire.DIRS else []
        try:
            sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            for fd in set(fds):
                os.close(fd)


@pytest.mark.parametrize("what", GIVEN)
def test_one_that_is_there_is_answered(server, what):
    """The others would prove nothing if it were not."""
    messages = asked(server, what)
    with server.client() as client:
        _say(client.sock, *messages)
        assert client.receive()[0] == GIVEN[what]


@pytest.mark.parametrize("what", GIVEN)
def test_nobody_speaks_for_a_process_that_is_gone(server, what):
    """Its number was all that was asked about: nothing is to be seen of it, which was taken for no objection."""
    messages = asked(server, what)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        Child(_connect, sock, server.directory).join()
        _say(sock, HELLO, *messages)
        assert _is_refused(_answers(sock))
    assert server.count() == 0


@pytest.mark.parametrize("what", GIVEN)
def test_nobody_speaks_for_a_process_that_dies_after_its_greeting(server, what):
    messages = asked(server, what)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        def greet():
            _connect(sock, server.directory)
            _say(sock, HELLO)
            assert sock.recv(1 << 17)
        Child(greet).join()
        _say(sock, *messages)
        assert _is_refused(_answers(sock))
    assert server.count() == 0


def _again(pid, limit=200):
    """Another process with that number, which waits; None: somebody else has it. What else runs here then goes on with the
    numbers that it had: tests beside this one tell processes apart by them."""
    last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(limit):
        before = last.read_text()
        last.write_text(str(pid - 1))
        got = os.fork()
        if got == 0:
            signal.pause()
            os._exit(0)
        last.write_text(before)
        if got == pid:
            return got
        os.kill(got, signal.SIGKILL)
        os.waitpid(got, 0)
    return None


@pytest.mark.needs_root("chooses the number of a process")
@pytest.mark.parametrize("what", GIVEN)
def test_a_number_that_another_process_has_by_now_helps_nobody(server, what):
    """All is said and its process gone before the server, which is stopped, looks: its number is then a process's with all
    privileges."""
    messages = asked(server, what)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            def hurry():
                _connect(sock, server.directory)
                _say(sock, HELLO, *messages)
            child = Child(hurry, groups=[54321])
            child.join()
            other = _again(child.pid)
            if not other:
                pytest.skip("the number is somebody else's")
            try:
                os.kill(server.pid, signal.SIGCONT)
                _say(sock, *messages)
                assert _is_refused(_answers(sock))
            finally:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert server.count() == 0


_CLIENT = """
    import os, sys
    sys.path.insert(0, sys.argv[1])
    from support import wire
    os.chdir(sys.argv[2])
    sock = wire.socket.socket(wire.socket.AF_UNIX, wire.socket.SOCK_SEQPACKET)
    sock.settimeout(20)
    sock.connect(sys.argv[3])
    try:
        sock.send(wire.message(wire.HELLO, b"test"))
    except BrokenPipeError:
        pass
    for _ in range(2):
        try:
            print(sock.recv(1 << 17)[16:].decode())
            break
        except ConnectionResetError:
            pass
"""


def _ask_as(server, *command):
    """What a client is told first that command starts."""
    at = (server.directory, wire.socket_name())
    result = subprocess.run([*command, sys.executable, "-c", textwrap.dedent(_CLIENT), _TESTS, *at], text=True,
                            capture_output=True, timeout=60, cwd="/")
    assert result.returncode == 0, result
    return result.stdout


def test_root_of_another_user_namespace_is_nobody(server):
    """Such a root has all capabilities by number, but in a namespace that any user may make."""
    assert "user namespace" in _ask_as(server, "unshare", "-U", "--map-root-user", "--")


@pytest.mark.needs_root("gives up privileges")
def test_a_container_root_that_makes_itself_a_user_namespace_is_nobody(server):
    some = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot,+setfcap"
    assert "privileges" in _ask_as(server, "setpriv", "--bounding-set", some)
    said = _ask_as(server, "setpriv", "--bounding-set", some, "unshare", "-U", "--map-root-user", "--")
    assert "user namespace" in said


@pytest.mark.needs_privileges("makes a process namespace")
def test_a_process_namespace_around_or_inside_is_another(server):
    assert "process namespace" in _ask_as(server, "unshare", "-p", "-f", "--mount-proc", "--")


@pytest.mark.needs_privileges("changes its root")
def test_a_client_below_another_root_is_refused(stack, server):
    """As in a container that has every privilege, and the run directory."""
    messages = asked(server, "stats")

    def ask():
        os.chdir(server.directory)
        name = wire.socket_name()
        os.chroot(stack.base)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(name)
            _say(sock, HELLO, *messages)
            assert _answers(sock) == [wire.ERROR]
    Child(ask).join()
    assert "another root directory" in server.log


@pytest.mark.needs_root("becomes another user")
@pytest.mark.parametrize("what", GIVEN)
def test_privileges_are_asked_for_again(server, what):
    """A client that has given them up since it was greeted."""
    messages = asked(server, what)
    def ask():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            _connect(sock, server.directory)
            _say(sock, HELLO)
            assert sock.recv(1 << 17)
            os.setresuid(54321, 54321, 54321)
            _say(sock, *messages)
            assert _answers(sock) == [wire.ERROR]
    Child(ask).join()
    assert server.count() == 0


@pytest.mark.needs_privileges("makes a mount namespace")
def test_engines_mount_from_their_own_mount_namespace(stack, server):
    """Upgraded it is from that of the program that started it, or from the host's."""
    place = Place(stack, "p")
    script = f"{stack.program} -o {place.options()} {place.mnt} && {stack.program} stats --json; "
    upgrade = f"{stack.program} server --upgrade"
    result = subprocess.run(["unshare", "-m", "--propagation", "unchanged", "--", "sh", "-c", script + upgrade], text=True,
                            capture_output=True, env={**os.environ, **server.environment}, timeout=60)
    assert '"mounts": 1' in result.stdout and "moved" not in result.stdout, result
    assert result.returncode == 1 and "mount namespace" in result.stderr, result
    assert wait_until(lambda: server.count() == 0)


@pytest.mark.needs_root("starts a server with some privileges")
def test_a_server_with_what_it_keeps_serves_one_with_all(stack, veneer_bin, watchdog):
    """As the unit's does. One that has fewer than that is none for root."""
    kept = ("-all,+chown,+dac_override,+dac_read_search,+fowner,+fsetid,+setfcap,+mknod,+mac_admin,+mac_override,+sys_admin,"
            "+sys_resource,+sys_ptrace,+sys_nice")
    for number, (caps, is_served) in enumerate(((kept, True), (kept.replace("+mknod,", ""), False))):
        program = stack.base / f"less{number}"
        program.write_text(f'#!/bin/sh\nexec setpriv --bounding-set {caps} {veneer_bin} "$@"\n')
        program.chmod(0o755)
        made = SharedServer(program, stack.base / f"run{number}", watchdog)
        process = subprocess.Popen([program, "server", "--idle", "60"], env={**os.environ, **made.environment})
        try:
            assert wait_until(lambda: (made.directory / wire.socket_name()).exists())
            place = Place(stack, f"p{number}")
            mounted = subprocess.run([veneer_bin, "-o", place.options(), place.mnt], text=True, capture_output=True, timeout=60,
                                     env={**os.environ, **made.environment})
            assert mounted.returncode == 0 and ("other privileges" in mounted.stderr) != is_served, mounted
            (place.mnt / "f").write_text("f")
            linux.umount(place.mnt)
        finally:
            process.terminate()
            process.wait()


def test_another_process_does_not_speak_by_an_old_kernel(server):
    """A new one knows that what connected is there, and answers for it."""
    with server.client() as client:
        Child(client.send, wire.message(wire.PING)).join()
        answer = client.receive()
    is_old = "VENEER_NO_PEERPIDFD" in os.environ
    assert answer[0] == (wire.ERROR if is_old else wire.PONG)


def test_a_thread_of_the_client_may_speak(server):
    with server.client() as client:
        thread = threading.Thread(target=client.send, args=[wire.message(wire.PING)])
        thread.start()
        thread.join()
        assert client.receive()[0] == wire.PONG


_FALSE_SERVER = """
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    from support import wire
    os.chdir(sys.argv[2])
    root, how = sys.argv[4:]
    if root != "/":
        os.chroot(root)
    listener = wire.socket.socket(wire.socket.AF_UNIX, wire.socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[3])
    listener.listen(64)
    print("there", flush=True)

    def speak(sock):
        sock.send(wire.message(wire.HELLO, b"test"))

    while True:
        sock = listener.accept()[0]
        try:
            sock.recv(1 << 17)
            if how == "dying":
                client = int.from_bytes(sock.getsockopt(wire.socket.SOL_SOCKET, wire.socket.SO_PEERCRED, 12)[:4], "little")
                os.kill(client, signal.SIGSTOP)
                if not (pid := os.fork()):
                    speak(sock)
                    os._exit(0)
                os.waitpid(pid, 0)
                os.kill(client, signal.SIGCONT)
            else:
                speak(sock)
            data, control, _, _ = sock.recvmsg(1 << 17, 1 << 12)
        except OSError:
            continue
        if control:
            print("given", flush=True)
        sock.close()
"""


class FalseServer:
    """Of the same user, at the place of the one that clients look for."""

    def __init__(self, directory, *command, root="/", how="itself"):
        directory.mkdir(mode=0o700, exist_ok=True)
        self.directory = directory
        self.process = subprocess.Popen([*command, sys.executable, "-c", textwrap.dedent(_FALSE_SERVER), _TESTS, directory,
                                         wire.socket_name(), root, how], text=True, stdout=subprocess.PIPE, cwd="/")
        assert self.process.stdout.readline() == "there\n"

    def end(self):
        """What it was given."""
        pids = [int(child) for child in
                pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]
        for pid in [*pids, self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        return self.process.stdout.read()


def _mount_beside(stack, false_server):
    """What the mount program says; the mount it makes is there, by whatever server."""
    place = Place(stack, "p")
    env = {**os.environ, "VENEER_RUNTIME_DIR": str(false_server.directory)}
    result = subprocess.run([stack.program, "-o", place.options(), place.mnt], text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=60)
    assert result.returncode == 0, result
    (place.mnt / "f").write_text("f")
    linux.umount(place.mnt)
    return result.stderr


@pytest.fixture(params=KERNELS)
def kernel(request, monkeypatch):
    if request.param == "old":
        monkeypatch.setenv("VENEER_NO_PEERPIDFD", "1")


def test_a_server_with_the_privileges_of_its_client_is_given_the_directories(stack, kernel):
    """The others would prove nothing if it were not."""
    made = FalseServer(stack.base / "run")
    _mount_beside(stack, made)
    assert "given" in made.end()


_SOME = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot,+setfcap"


@pytest.mark.parametrize("command, why", [
    (["unshare", "-U", "--map-root-user", "--"], "user namespace"),
    pytest.param(["unshare", "-p", "-f", "--"], "process namespace", marks=pytest.mark.needs_privileges("makes a process namespace")),
    pytest.param(["setpriv", "--bounding-set", _SOME], "privileges", marks=pytest.mark.needs_root("gives up privileges")),
])
def test_a_server_of_the_same_user_that_is_less_is_given_nothing(stack, kernel, command, why):
    """As in a container that may write in the run directory."""
    made = FalseServer(stack.base / "run", *command)
    said = _mount_beside(stack, made)
    assert why in said and "own" in said, said
    assert made.end() == ""


def test_a_server_whose_greeting_is_of_a_process_that_is_gone_is_given_nothing(stack, kernel):
    made = FalseServer(stack.base / "run", how="dying")
    assert "own" in _mount_beside(stack, made)
    assert made.end() == ""


def test_tools_tell_a_false_server_nothing(stack, kernel, veneer_bin):
    made = FalseServer(stack.base / "run", "unshare", "-U", "--map-root-user", "--")
    result = subprocess.run([veneer_bin, "stats"], text=True, capture_output=True, timeout=60,
                            env={**os.environ, "VENEER_RUNTIME_DIR": str(made.directory)})
    assert result.returncode != 0 and "user namespace" in result.stderr, result
    made.end()


def test_a_lock_that_is_held_for_good_keeps_no_mount_out(stack):
    """By a stopped process, or by one with write access to the run directory."""
    directory = stack.base / "run"
    directory.mkdir(mode=0o700)
    with open(directory / f"{wire.socket_name()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = Place(stack, "p")
        env = {**os.environ, "VENEER_RUNTIME_DIR": str(directory)}
        mounted = subprocess.run([stack.program, "-o", place.options(), place.mnt], text=True, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=60)
        assert mounted.returncode == 0, mounted
        assert f"{lock.name} has been held by" in mounted.stderr, mounted
        (place.mnt / "f").write_text("f")
        linux.umount(place.mnt)
        started = subprocess.run([stack.program, "server"], text=True, capture_output=True, env=env, timeout=60)
        assert started.returncode != 0 and "has been held by" in started.stderr, started


@pytest.mark.needs_root("changes its root")
def test_a_server_below_another_root_that_may_not_mount_is_told_nothing(stack, kernel, veneer_bin):
    """Without that privilege it cannot have gone to a root of its own, as servers do."""
    made = FalseServer(stack.base / "run", "setpriv", "--bounding-set", "-all,+sys_chroot", root=stack.base)
    result = subprocess.run(["setpriv", "--bounding-set", "-all,+sys_chroot", veneer_bin, "stats"], text=True, capture_output=True, timeout=60,
                            env={**os.environ, "VENEER_RUNTIME_DIR": str(made.directory)})
    assert result.returncode != 0 and "another root directory" in result.stderr, result
    made.end()


def test_refused_clients_do_not_fill_the_log(server):
    """Each is told why; the log has some of them."""
    for _ in range(200):
        with server.client() as client:
            client.send(b"nothing")
            assert "cannot be understood" in client.error()
    assert 0 < server.log.count("cannot be understood") < 50
