# SPDX-License-Identifier: Apache-2.0
"""share=pages: locks of unchanged files, by descriptors that can only be read. The kernel says neither by which mount
such a one was opened nor has it an inode of that mount's."""
import array
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import pytest

from support import linux
from support.child import Child, in_child
from support.expect import fails_with, opened
from support.locks import record_lock as record
from support.procfs import is_blocked, waits_for_lock
from support.server import stop_process, wait_until
from test_share_pages import siblings  # noqa: F401, a fixture

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")

EXCLUSIVE, SHARED, NOW, FREE = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN


@pytest.fixture
def points(siblings):
    """Two mounts of an image with one file."""
    (siblings.lower / "f").write_bytes(b"lower")
    return siblings.shared(), siblings.shared()


def record_is_free(path):
    """To another process, by an open for writing."""
    def ask():
        with opened(path, os.O_RDWR) as fd:
            os._exit(0 if record(fd, fcntl.F_WRLCK, fcntl.F_GETLK)[0] == fcntl.F_UNLCK else 3)
    return _code_of(ask) == 0


def flock_is_free(path):
    with opened(path) as fd:
        try:
            fcntl.flock(fd, EXCLUSIVE | NOW)
        except BlockingIOError:
            return False
    return True


def _code_of(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextlib.contextmanager
def holding(path, take, flags=os.O_RDONLY):
    """A process that has taken a lock, and waits; gives its number."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            fd = os.open(path, flags)
            take(fd)
            os.write(tell, b"y")
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(told, 1) == b"y"
        yield pid
    finally:
        os.close(told)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


# ---- what a lock keeps out ----

def test_flock_of_one_mount_keeps_out_its_own_and_nobody_else(points):
    a, b = points
    with opened(a / "f") as one, opened(b / "f") as two:
        for fd in (one, two):
            fcntl.flock(fd, EXCLUSIVE | NOW)
        for point in points:
            for flags in (os.O_RDONLY, os.O_RDWR):
                with opened(point / "f", flags) as fd, fails_with(errno.EWOULDBLOCK):
                    fcntl.flock(fd, SHARED | NOW)
        fcntl.flock(one, FREE)
        assert flock_is_free(a / "f") and not flock_is_free(b / "f")
    assert flock_is_free(b / "f")


def test_flock_of_a_changed_file_keeps_out_who_opened_it_before(points):
    a, b = points
    with opened(a / "f") as before, opened(b / "f") as other:
        with opened(a / "f", os.O_RDWR) as after:
            os.pwrite(after, b"changed", 0)
            fcntl.flock(after, EXCLUSIVE)
            with fails_with(errno.EWOULDBLOCK):
                fcntl.flock(before, SHARED | NOW)
            fcntl.flock(other, EXCLUSIVE | NOW)
        fcntl.flock(before, EXCLUSIVE | NOW)
        assert not flock_is_free(a / "f")


def test_record_locks_of_one_mount_keep_out_its_own_and_nobody_else(points):
    a, b = points
    for take in (lambda fd: record(fd, fcntl.F_RDLCK, start=10, length=5),):
        with holding(a / "f", take) as holder:
            with opened(a / "f", os.O_RDWR) as fd:
                assert record(fd, fcntl.F_WRLCK, fcntl.F_GETLK) == (fcntl.F_RDLCK, 10, 5, holder)
                with fails_with(errno.EAGAIN, errno.EACCES):
                    record(fd, fcntl.F_WRLCK)
                record(fd, fcntl.F_WRLCK, start=15)
                record(fd, fcntl.F_RDLCK)
            with opened(a / "f") as fd:
                record(fd, fcntl.F_RDLCK)
                record(fd, fcntl.F_UNLCK)
            assert not record_is_free(a / "f") and record_is_free(b / "f")
        assert record_is_free(a / "f")


def test_record_lock_for_reading_waits_for_who_writes(points):
    a, b = points
    with holding(a / "f", lambda fd: record(fd, fcntl.F_WRLCK), os.O_RDWR) as holder:
        with opened(b / "f") as fd:
            record(fd, fcntl.F_RDLCK, fcntl.F_SETLKW)

        def wait():
            with opened(a / "f") as fd:
                record(fd, fcntl.F_RDLCK, fcntl.F_SETLKW)

        child = Child(wait)
        assert wait_until(lambda: waits_for_lock(child.pid))
        assert not record_is_free(a / "f") and waits_for_lock(child.pid)
        os.kill(holder, signal.SIGKILL)
        child.join()


@pytest.mark.parametrize("name", ["flock", "record"])
def test_what_a_killed_process_held_is_free(points, name):
    a, b = points
    take = (lambda fd: fcntl.flock(fd, EXCLUSIVE)) if name == "flock" else (lambda fd: record(fd, fcntl.F_RDLCK))
    is_free = flock_is_free if name == "flock" else record_is_free
    with holding(a / "f", take) as first, holding(b / "f", take):
        assert not is_free(a / "f") and not is_free(b / "f")
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        assert wait_until(lambda: is_free(a / "f"))
        assert not is_free(b / "f")


def test_record_locks_go_with_any_descriptor_that_the_process_closes(points):
    a, b = points

    def work():
        with opened(a / "f") as fd, opened(b / "f") as other:
            record(fd, fcntl.F_RDLCK)
            record(other, fcntl.F_RDLCK)
            assert not record_is_free(a / "f")
            os.close(os.dup(fd))
            assert record_is_free(a / "f") and not record_is_free(b / "f")
            record(fd, fcntl.F_RDLCK)
            with opened(a / "f", os.O_RDWR):
                assert not record_is_free(a / "f")
            assert record_is_free(a / "f")
            record(fd, fcntl.F_RDLCK)
            with opened(a / "f"):
                pass
            assert record_is_free(a / "f")

    in_child(work)


def test_flock_stays_with_a_fork_that_has_it_and_record_locks_do_not(points):
    path = points[0] / "f"
    with opened(path) as fd:
        fcntl.flock(fd, EXCLUSIVE)
        record(fd, fcntl.F_RDLCK)
        assert not record_is_free(path)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[fd])
    try:
        assert not flock_is_free(path) and record_is_free(path)
    finally:
        child.communicate()
    assert wait_until(lambda: flock_is_free(path))


def test_locks_of_an_open_file(points):
    a, b = points
    f_ofd_setlk = 37
    with opened(a / "f") as one, opened(b / "f") as other, opened(a / "f", os.O_RDWR) as two:
        record(one, fcntl.F_RDLCK, f_ofd_setlk)
        record(other, fcntl.F_RDLCK, f_ofd_setlk)
        with fails_with(errno.EAGAIN, errno.EACCES):
            record(two, fcntl.F_WRLCK, f_ofd_setlk)
        record(one, fcntl.F_UNLCK, f_ofd_setlk)
        record(two, fcntl.F_WRLCK, f_ofd_setlk)


@pytest.mark.parametrize("name, mode", [("program", 0o755), ("libx.so.6", 0o644)])
def test_programs_have_flock_alone(siblings, name, mode):
    (siblings.lower / name).write_bytes(b"lower")
    (siblings.lower / name).chmod(mode)
    a, b = siblings.shared(), siblings.shared()
    with opened(a / name) as one, opened(b / name) as two:
        for fd in (one, two):
            fcntl.flock(fd, EXCLUSIVE | NOW)
            with fails_with(errno.ENOLCK):
                record(fd, fcntl.F_RDLCK)
        assert not flock_is_free(a / name)
        with opened(a / name, os.O_RDWR) as fd:
            record(fd, fcntl.F_WRLCK)
    assert flock_is_free(a / name) and flock_is_free(b / name)


@pytest.mark.parametrize("name", ["app.source", "x.sock.db", ".sop"])
def test_not_every_name_with_so_in_it_is_a_librarys(siblings, name):
    (siblings.lower / name).write_bytes(b"lower")
    a, b = siblings.shared(), siblings.shared()
    with holding(a / name, lambda fd: record(fd, fcntl.F_RDLCK)):
        assert not record_is_free(a / name) and record_is_free(b / name)


# ---- waiting for locks ----

def test_who_waits_is_served_or_interrupted(points):
    a, b = points
    with opened(a / "f") as fd:
        fcntl.flock(fd, EXCLUSIVE)
        waiting = [subprocess.Popen(["flock", a / "f", "true"]) for _ in range(2)]
        assert wait_until(lambda: all(waits_for_lock(p.pid) for p in waiting))
        assert subprocess.run(["flock", b / "f", "true"], timeout=20).returncode == 0
        assert all(waits_for_lock(p.pid) for p in waiting)
        waiting[0].send_signal(signal.SIGTERM)
        assert waiting[0].wait(10) == -signal.SIGTERM
        fcntl.flock(fd, FREE)
        assert waiting[1].wait(10) == 0


def test_many_who_wait_in_one_mount_hold_up_nobody_in_another(points):
    """More than the server has threads."""
    a, b = points

    def wait():
        with opened(a / "f") as fd:
            fcntl.flock(fd, SHARED)

    with opened(a / "f") as held:
        fcntl.flock(held, EXCLUSIVE)
        waiting = [Child(wait) for _ in range(80)]
        assert wait_until(lambda: all(waits_for_lock(child.pid) for child in waiting), 20)
        for _ in range(50):
            assert flock_is_free(b / "f")
        assert all(waits_for_lock(child.pid) for child in waiting)
        fcntl.flock(held, FREE)
        for child in waiting:
            child.join()


def test_signals_that_come_with_the_request(points):
    """An interrupt may be read before the request that it is for, and while it is found out whose that is."""
    a = points[0]
    with opened(a / "f") as fd:
        fcntl.flock(fd, EXCLUSIVE)
        for n in range(150):
            told, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                own = os.open(a / "f", os.O_RDONLY if n % 3 else os.O_RDWR)
                os.write(tell, b"y")
                fcntl.flock(own, EXCLUSIVE)
                os._exit(0)
            assert os.read(told, 1) == b"y"
            for _ in range(n % 50 * 20):
                pass
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)), n
            os.waitpid(pid, 0)
            os.close(told)
            os.close(tell)
        fcntl.flock(fd, FREE)
    assert flock_is_free(a / "f")


# ---- programs ----

def _connect(point, mode="ro"):
    return contextlib.closing(sqlite3.connect(f"file:{point}/db?mode={mode}", uri=True, timeout=0, isolation_level=None))


@contextlib.contextmanager
def reading_database(point):
    """A process in a transaction that has read. (In one process SQLite takes the databases of both mounts for one, by
    st_dev and st_ino.)"""
    told, tell = os.pipe()
    go, end = os.pipe()

    def read():
        os.close(end)
        with _connect(point) as db:
            db.execute("begin")
            assert db.execute("select x from t").fetchall() == [(1,)]
            os.write(tell, b"y")
            os.read(go, 1)
            assert db.execute("select x from t").fetchall() == [(1,)]
            db.execute("commit")

    child = Child(read)
    os.close(tell)
    assert os.read(told, 1) == b"y"
    yield
    os.close(end)
    child.join()
    os.close(told)
    os.close(go)


def test_sqlite_reads_a_database_of_the_image(siblings):
    with contextlib.closing(sqlite3.connect(siblings.lower / "db")) as db:
        db.execute("create table t (x)")
        db.execute("insert into t values (1)")
        db.commit()
    a, b = siblings.shared(), siblings.shared()

    def change():
        with _connect(a, "rw") as db:
            db.execute("begin immediate")
            db.execute("update t set x = 2")
            db.execute("commit")

    with reading_database(b):
        with reading_database(a):
            with pytest.raises(AssertionError, match="database is locked"):
                in_child(change)
        in_child(change)
    for point, value in ((a, 2), (b, 1)):
        with _connect(point) as db:
            assert db.execute("select x from t").fetchall() == [(value,)]


# ---- whose a descriptor is ----

def _pass(connection, fd):
    connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])


def _receive(connection):
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", ancillary[0][2][:4])[0]


def test_bind_mounts_are_those_of_their_mount(siblings):
    (siblings.lower / "d").mkdir()
    (siblings.lower / "d" / "f").write_bytes(b"lower")
    a, b = siblings.shared(), siblings.shared()
    part, one = siblings.directory("part"), siblings.directory("one") / "f"
    one.write_bytes(b"")
    linux.mount(a / "d", part, flags=linux.MS_BIND)
    linux.mount(b / "d" / "f", one, flags=linux.MS_BIND)
    try:
        with opened(part / "f") as fd, opened(one) as other:
            fcntl.flock(fd, EXCLUSIVE | NOW)
            fcntl.flock(other, EXCLUSIVE | NOW)
            assert not flock_is_free(a / "d" / "f") and not flock_is_free(b / "d" / "f")
        assert flock_is_free(a / "d" / "f") and flock_is_free(b / "d" / "f")
    finally:
        linux.umount(part)
        linux.umount(one)


def test_a_descriptor_of_another_mount_namespace_is_found(points):
    a, b = points
    code = ("import os, socket, sys, array\n"
            "s = socket.socket(fileno=int(sys.argv[1]))\n"
            "fd = os.open(sys.argv[2], os.O_RDONLY)\n"
            "s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])\n"
            "s.recv(1)\n")
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen(["unshare", "-m", sys.executable, "-c", code, str(theirs.fileno()), a / "f"],
                                pass_fds=[theirs.fileno()]) as other:
        theirs.close()
        fd = _receive(ours)
        try:
            fcntl.flock(fd, EXCLUSIVE | NOW)
            assert not flock_is_free(a / "f") and flock_is_free(b / "f")
        finally:
            os.close(fd)
            ours.send(b"x")
            assert other.wait(20) == 0
    assert wait_until(lambda: flock_is_free(a / "f"))


def test_a_passed_descriptor_keeps_its_lock_when_who_took_it_is_gone(points):
    a, b = points
    ours, theirs = socket.socketpair()

    def take():
        with opened(a / "f") as fd:
            fcntl.flock(fd, EXCLUSIVE)
            _pass(theirs, fd)

    with ours, theirs:
        in_child(take)
        fd = _receive(ours)
    assert not flock_is_free(a / "f") and flock_is_free(b / "f")
    os.close(fd)
    assert wait_until(lambda: flock_is_free(a / "f"))


def test_a_detached_mount_is_nobodys_but_keeps_what_was_locked(points):
    a, b = points
    with opened(a / "f") as held, opened(a / "f") as late:
        fcntl.flock(held, EXCLUSIVE)
        linux.umount(a, linux.MNT_DETACH)
        with fails_with(errno.ENOLCK):
            fcntl.flock(late, SHARED | NOW)
        assert flock_is_free(b / "f")
        fcntl.flock(held, FREE)
        fcntl.flock(held, EXCLUSIVE | NOW)
        assert flock_is_free(b / "f")


def test_a_file_that_was_moved_is_still_that_file(siblings):
    (siblings.lower / "d" / "e").mkdir(parents=True)
    for name in ("d/f", "d/e/f", "replaced"):
        (siblings.lower / name).write_bytes(b"lower")
    a = siblings.shared()
    siblings.shared()
    with opened(a / "d" / "f") as file, opened(a / "d" / "e" / "f") as within, opened(a / "replaced") as replaced:
        (a / "d" / "f").rename(a / "moved")
        (a / "d").rename(a / "dir")
        (a / "new").write_bytes(b"another")
        (a / "new").rename(a / "replaced")
        with opened(a / "moved") as again:
            fcntl.flock(again, EXCLUSIVE)
            with fails_with(errno.EWOULDBLOCK):
                fcntl.flock(file, EXCLUSIVE | NOW)
        fcntl.flock(within, EXCLUSIVE | NOW)
        assert not flock_is_free(a / "dir" / "e" / "f")
        with fails_with(errno.ENOLCK):
            fcntl.flock(replaced, SHARED | NOW)
        assert flock_is_free(a / "replaced")
    assert flock_is_free(a / "dir" / "e" / "f")


def test_threads_that_lock_by_one_descriptor(points):
    """The server looks up the owner of each lock while several threads lock at the same time."""
    def work():
        a, b = points
        with opened(a / "f") as one, opened(b / "f") as two:
            failures = []

            def lock(fd):
                for _ in range(30):
                    try:
                        with opened(f"/proc/self/fd/{fd}") as again:
                            record(again, fcntl.F_RDLCK, fcntl.F_SETLKW)
                            fcntl.flock(fd, SHARED)
                    except OSError as e:
                        failures.append(e)

            threads = [threading.Thread(target=lock, args=(fd,)) for fd in (one, two) * 3]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []

    in_child(work)
    assert all(flock_is_free(p / "f") and record_is_free(p / "f") for p in points)


def _exchange_while_nobody_serves(point, server):
    """Forty threads ask for a lock by descriptors that are an epoll's when they are looked at; and that is held by a thread whose
    answer goes to a page of the same file system, so that it waits for the server in its turn."""
    libc = ctypes.CDLL(None, use_errno=True)
    epoll, (_, writable) = select.epoll(), os.pipe()
    epoll.register(writable, select.EPOLLOUT)
    with open(point / "room", "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        room = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(room)))
    fds = [os.open(point / "program", os.O_RDONLY) for _ in range(40)]
    failures, events = [], []

    def lock(fd):
        try:
            fcntl.flock(fd, SHARED)
        except OSError as e:
            failures.append(e.errno)

    threads = [threading.Thread(target=lock, args=(fd,)) for fd in fds]
    waiter = threading.Thread(target=lambda: events.append(libc.epoll_wait(epoll.fileno(), address, 1, -1)))
    stop_process(server)
    try:
        for thread in threads:
            thread.start()
        assert wait_until(lambda: all(waits_for_lock(thread.native_id) for thread in threads), 10)
        for fd in fds:
            os.dup2(epoll.fileno(), fd)
        waiter.start()
        assert wait_until(lambda: waiter.native_id and is_blocked(waiter.native_id))
    finally:
        os.kill(server, signal.SIGCONT)
    for thread in [*threads, waiter]:
        thread.join(10)
        assert not thread.is_alive()
    assert failures == [errno.ENOLCK] * 40 and events == [1]


def test_descriptors_that_are_exchanged_meanwhile_hold_up_nobody(siblings):
    (siblings.lower / "program").write_bytes(b"lower")
    (siblings.lower / "program").chmod(0o755)  # its close is no request
    (siblings.lower / "f").write_bytes(b"lower")
    a, b = siblings.shared(), siblings.shared()
    server = siblings.server.pid
    child = Child(_exchange_while_nobody_serves, a, server)
    try:
        assert wait_until(lambda: os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), 40)
    finally:
        os.kill(server, signal.SIGCONT)
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert (b / "f").read_bytes() == b"lower"
