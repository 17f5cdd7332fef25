# SPDX-License-Identifier: Apache-2.0
"""Locks do the same whether the kernel or the server keeps them."""
import contextlib
import errno
import fcntl
import os
import signal
import sqlite3

import pytest

from support import linux
from support.child import Child, in_child
from support.expect import fails_with, opened
from support.locks import record_lock as lock
from support.places import Place
from support.server import MountFailed, wait_until

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
_BUSY = (errno.EAGAIN, errno.EACCES)
# Not passed through where the kernel keeps them: it does so by node id, and a lower file gets another one by its first
# write (doc/internals/opening.md).
_MODES = ["io=cached", "locks=server", "locks=server,io=cached", "locks=server,io=direct", "locks=server,timeout=0"]
RW = os.O_RDWR
_FCNTL_CALL, _FLOCK_CALL = {"aarch64": ("25", "32")}.get(os.uname().machine, ("72", "73"))


@pytest.fixture(params=_MODES, ids=["local", "auto", "cached", "direct", "uncached"])
def options(request):
    return [request.param]


@pytest.fixture
def f(stack, options):
    """A lower file, seen in a mount."""
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    return stack.mount(*options) / "f"


# ---- short words ----

def exclusive(fd, *where, command=fcntl.F_SETLK):
    lock(fd, fcntl.F_WRLCK, command, *where)


def shared_lock(fd, *where, command=fcntl.F_SETLK):
    lock(fd, fcntl.F_RDLCK, command, *where)


def unlock(fd, *where, command=fcntl.F_SETLK):
    lock(fd, fcntl.F_UNLCK, command, *where)


def flock(fd, how):
    fcntl.flock(fd, how | fcntl.LOCK_NB)


def is_busy(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except OSError as e:
        assert e.errno in _BUSY
        return True
    return False


class Waiter(Child):
    """A child that opens the file, blocks in a lock, and ends when it has it. It closes what it inherits."""
    def __init__(self, path, function, *inherited):
        def run():
            for fd in inherited:
                os.close(fd)
            with opened(path, RW) as fd:
                function(fd)
        super().__init__(run)

    def has_blocked(self):
        """The child sleeps in an fcntl or flock that waits; the server may have yet to read the request."""
        with open(f"/proc/{self.pid}/syscall", encoding="ascii") as call:
            number, *arguments = (call.read().split() + ["0x0"] * 3)[:3]
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            sleeps = stat.read().rsplit(")", 1)[1].split()[0] == "S"
        if number == _FCNTL_CALL:
            return sleeps and int(arguments[1], 16) in (fcntl.F_SETLKW, F_OFD_SETLKW)
        return sleeps and number == _FLOCK_CALL and not int(arguments[1], 16) & fcntl.LOCK_NB

    def wait_until_blocked(self):
        wait_until(self.has_blocked)
        return self


def held_by_child(path, function, *arguments):
    """A child that has the lock until it is killed; returns when it has it."""
    ready, tell = os.pipe()

    def run():
        with opened(path, RW) as fd:
            function(fd, *arguments)
            os.write(tell, b"x")
            signal.pause()
    child = Child(run)
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return child


def end(child):
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="SIGKILL"):
        child.join()


# ---- which locks exclude each other ----

def test_flock_excludes_other_opens(f):
    with opened(f) as a, opened(f, RW) as b, opened(f) as c:
        flock(a, fcntl.LOCK_SH)
        flock(b, fcntl.LOCK_SH)
        assert is_busy(flock, c, fcntl.LOCK_EX)
        flock(a, fcntl.LOCK_UN)
        flock(b, fcntl.LOCK_EX)
        assert is_busy(flock, a, fcntl.LOCK_SH)
        flock(b, fcntl.LOCK_SH)
        flock(a, fcntl.LOCK_SH)


def test_flock_that_cannot_be_made_exclusive_is_lost(f):
    with opened(f) as a, opened(f) as b:
        flock(a, fcntl.LOCK_SH)
        flock(b, fcntl.LOCK_SH)
        assert is_busy(flock, a, fcntl.LOCK_EX)
        flock(b, fcntl.LOCK_EX)


def test_record_locks_exclude_other_processes(f):
    with opened(f, RW) as fd, opened(f, RW) as same:
        exclusive(fd, 10, 20)
        shared_lock(fd, 100, 1)
        exclusive(same, 15, 1)

        def other():
            with opened(f, RW) as mine:
                assert is_busy(exclusive, mine, 0, 11)
                assert is_busy(shared_lock, mine, 29, 1)
                exclusive(mine, 0, 10)
                exclusive(mine, 30, 70)
                shared_lock(mine, 100, 1)
                assert is_busy(exclusive, mine, 100, 0)
                exclusive(mine, 101, 0)
        in_child(other)


def test_a_part_can_be_unlocked_and_changed(f):
    with opened(f, RW) as fd:
        exclusive(fd, 0, 100)
        unlock(fd, 40, 20)
        shared_lock(fd, 90, 10)

        def other():
            with opened(f, RW) as mine:
                assert is_busy(shared_lock, mine, 39, 1)
                exclusive(mine, 40, 20)
                assert is_busy(shared_lock, mine, 60, 1)
                shared_lock(mine, 90, 10)
                assert is_busy(exclusive, mine, 99, 1)
        in_child(other)


def test_it_is_told_who_has_the_lock(f):
    me = os.getpid()
    with opened(f, RW) as fd:
        exclusive(fd, 10, 20)
        shared_lock(fd, 50, 0)

        def other():
            with opened(f, RW) as mine:
                assert lock(mine, fcntl.F_RDLCK, fcntl.F_GETLK, 0, 40) == (fcntl.F_WRLCK, 10, 20, me)
                assert lock(mine, fcntl.F_WRLCK, fcntl.F_GETLK, 40, 0) == (fcntl.F_RDLCK, 50, 0, me)
                assert lock(mine, fcntl.F_RDLCK, fcntl.F_GETLK, 40, 0)[0] == fcntl.F_UNLCK
                assert lock(mine, fcntl.F_WRLCK, fcntl.F_GETLK, 0, 10)[0] == fcntl.F_UNLCK
                assert lock(mine, fcntl.F_RDLCK, F_OFD_GETLK, 0, 40)[0] == fcntl.F_WRLCK
        in_child(other)
        assert lock(fd, fcntl.F_WRLCK, fcntl.F_GETLK, 0, 0)[0] == fcntl.F_UNLCK


def test_ofd_locks_exclude_other_opens_and_processes_locks(f):
    with opened(f, RW) as a, opened(f, RW) as b:
        exclusive(a, 0, 10, command=F_OFD_SETLK)
        assert is_busy(exclusive, b, 9, 1, command=F_OFD_SETLK)
        assert is_busy(exclusive, b, 9, 1)
        exclusive(b, 10, 5, command=F_OFD_SETLK)
        assert lock(b, fcntl.F_RDLCK, F_OFD_GETLK, 0, 5)[:3] == (fcntl.F_WRLCK, 0, 10)
        unlock(a, 0, 0, command=F_OFD_SETLK)
        exclusive(b, command=F_OFD_SETLK)


def test_lockf(f):
    with opened(f, RW) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)

        def other():
            with opened(f, RW) as mine:
                with fails_with(*_BUSY):
                    fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 9)
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 10)
        in_child(other)


def test_flock_and_record_locks_know_nothing_of_each_other(f):
    with opened(f, RW) as a, opened(f, RW) as b:
        flock(a, fcntl.LOCK_EX)
        exclusive(b, command=F_OFD_SETLK)


def test_what_may_not_be_asked_for(f):
    with opened(f, os.O_RDONLY) as reads, opened(f, os.O_WRONLY) as writes:
        with fails_with(errno.EBADF):
            exclusive(reads)
        with fails_with(errno.EBADF):
            shared_lock(writes)
        with fails_with(errno.EINVAL):
            shared_lock(reads, -1, 1)
        flock(reads, fcntl.LOCK_EX)


# ---- waiting ----

_WAITS = [
    ("flock", lambda fd: flock(fd, fcntl.LOCK_EX), lambda fd: fcntl.flock(fd, fcntl.LOCK_EX),
     lambda fd: flock(fd, fcntl.LOCK_UN)),
    ("record", exclusive, lambda fd: exclusive(fd, 5, 5, command=fcntl.F_SETLKW), unlock),
    ("ofd", lambda fd: exclusive(fd, command=F_OFD_SETLK), lambda fd: exclusive(fd, 5, 5, command=F_OFD_SETLKW),
     lambda fd: unlock(fd, command=F_OFD_SETLK)),
]


@pytest.fixture(params=_WAITS, ids=[w[0] for w in _WAITS])
def way(request):
    return request.param[1:]


def test_who_waits_is_woken_by_the_unlock(f, way):
    take, wait, give = way
    with opened(f, RW) as fd:
        take(fd)
        waiters = [Waiter(f, wait).wait_until_blocked() for _ in range(3)]
        give(fd)
        for waiter in waiters:
            waiter.join()


def test_who_waits_is_woken_by_the_close(f, way):
    take, wait, _ = way
    with opened(f, RW) as fd:
        take(fd)
        waiter = Waiter(f, wait, fd).wait_until_blocked()
    waiter.join()


def test_who_waits_is_woken_by_the_death_of_who_has_it(f, way):
    take, wait, _ = way
    holder = held_by_child(f, take)
    waiter = Waiter(f, wait).wait_until_blocked()
    end(holder)
    waiter.join()


def test_what_waits_holds_up_nobody(f, way):
    take, wait, give = way
    with opened(f, RW) as fd:
        take(fd)
        waiters = [Waiter(f, wait).wait_until_blocked() for _ in range(40)]
        assert os.pread(fd, 1, 0) == b"f"
        (f.parent / "other").write_bytes(b"other")
        give(fd)
        for waiter in waiters:
            waiter.join()


class Interrupted(Exception):
    pass


def until_interrupted(wait):
    def interrupt(*_):
        raise Interrupted

    def waits(fd):
        signal.signal(signal.SIGUSR1, interrupt)
        with pytest.raises(Interrupted):
            wait(fd)
    return waits


def test_a_signal_ends_the_waiting(f, way):
    take, wait, give = way
    with opened(f, RW) as fd:
        take(fd)
        waiter = Waiter(f, until_interrupted(wait)).wait_until_blocked()
        os.kill(waiter.pid, signal.SIGUSR1)
        waiter.join()
        give(fd)
        with opened(f, RW) as another:
            take(another)


def test_who_waits_can_be_killed(f, way):
    take, wait, give = way
    with opened(f, RW) as fd:
        take(fd)
        waiter = Waiter(f, wait).wait_until_blocked()
        end(waiter)
        give(fd)
        with opened(f, RW) as another:
            take(another)


def test_a_deadlock_of_two_processes_is_refused(f):
    told, tell = os.pipe()

    def wait_for(fd, start, own):
        """Says whether it was refused; then gives up what it has."""
        try:
            exclusive(fd, start, 1, command=fcntl.F_SETLKW)
            answer = b"."
        except OSError as e:
            assert e.errno == errno.EDEADLK
            answer = b"D"
        unlock(fd, own, 1)
        return answer

    def other(fd):
        exclusive(fd, 1, 1)
        os.write(tell, wait_for(fd, 0, 1))
    with opened(f, RW) as fd:
        exclusive(fd, 0, 1)
        waiter = Waiter(f, other).wait_until_blocked()
        mine = wait_for(fd, 1, 0)
        waiter.join()
        assert sorted(mine + os.read(told, 1)) == sorted(b".D")
    os.close(told)
    os.close(tell)


# ---- what ends them ----

def test_closing_another_descriptor_gives_up_a_processs_locks_and_no_others(f):
    with opened(f, RW) as fd, opened(f, RW) as ofd, opened(f, RW) as whole:
        exclusive(fd, 0, 10)
        exclusive(ofd, 20, 10, command=F_OFD_SETLK)
        flock(whole, fcntl.LOCK_EX)
        with opened(f):
            pass

        def other():
            with opened(f, RW) as mine:
                exclusive(mine, 0, 10)
                assert is_busy(exclusive, mine, 20, 1)
                assert is_busy(flock, mine, fcntl.LOCK_SH)
        in_child(other)


def test_a_copy_of_a_descriptor_keeps_what_is_the_open_files(f):
    with opened(f, RW) as other:
        fd = os.open(f, RW)
        copy = os.dup(fd)
        flock(fd, fcntl.LOCK_EX)
        exclusive(fd, command=F_OFD_SETLK)
        os.close(fd)
        assert is_busy(flock, other, fcntl.LOCK_EX)
        assert is_busy(exclusive, other, command=F_OFD_SETLK)
        os.close(copy)
        flock(other, fcntl.LOCK_EX)
        exclusive(other, command=F_OFD_SETLK)


def test_after_the_last_close_a_lock_is_free_at_once(f):
    with opened(f, RW) as other:
        for k in range(200):
            with opened(f, RW) as fd:
                flock(fd, fcntl.LOCK_EX)
                exclusive(fd, command=F_OFD_SETLK)
            if k % 2:
                flock(other, fcntl.LOCK_EX)
                flock(other, fcntl.LOCK_UN)
            exclusive(other, command=F_OFD_SETLK)
            unlock(other, command=F_OFD_SETLK)


def test_after_the_death_of_who_had_it_a_lock_is_free_at_once(f, way):
    take, _, give = way
    with opened(f, RW) as other:
        for _ in range(10):
            in_child(lambda: take(os.open(f, RW)))
            take(other)
            give(other)


def test_a_child_inherits_flock_and_no_record_locks(f):
    with opened(f, RW) as fd, opened(f, RW) as other:
        flock(fd, fcntl.LOCK_EX)
        exclusive(fd, 0, 5)

        def child():
            assert is_busy(exclusive, fd, 0, 5)
            flock(fd, fcntl.LOCK_EX)
            flock(fd, fcntl.LOCK_UN)
        in_child(child)
        flock(other, fcntl.LOCK_EX)

        def another():
            assert is_busy(exclusive, fd, 0, 5)
        in_child(another)


def test_a_file_without_a_name_has_locks(f):
    with opened(f, RW) as a, opened(f, RW) as b:
        os.unlink(f)
        flock(a, fcntl.LOCK_EX)
        assert is_busy(flock, b, fcntl.LOCK_EX)
        exclusive(a, 0, 1, command=F_OFD_SETLK)
        assert is_busy(exclusive, b, 0, 1, command=F_OFD_SETLK)
        f.write_bytes(b"another file of this name")
        with opened(f, RW) as other:
            flock(other, fcntl.LOCK_EX)


def test_a_file_just_made_has_locks(f):
    path = f.parent / "new"
    fd = os.open(path, RW | os.O_CREAT | os.O_EXCL, 0o600)
    with opened(path, RW) as other, opened(f.parent, os.O_TMPFILE | RW, 0o600) as nameless:
        flock(fd, fcntl.LOCK_EX)
        flock(nameless, fcntl.LOCK_EX)
        assert is_busy(flock, other, fcntl.LOCK_EX)
        os.rename(path, path.with_name("renamed"))
        assert is_busy(flock, other, fcntl.LOCK_EX)
        os.close(fd)
        flock(other, fcntl.LOCK_EX)


def test_hard_links_have_the_same_locks(f):
    os.link(f, f.with_name("link"))
    with opened(f, RW) as a, opened(f.with_name("link"), RW) as b:
        flock(a, fcntl.LOCK_EX)
        assert is_busy(flock, b, fcntl.LOCK_SH)


def test_directories_have_locks(f):
    with opened(f.parent) as a, opened(f.parent) as b:
        flock(a, fcntl.LOCK_EX)
        assert is_busy(flock, b, fcntl.LOCK_SH)


def test_who_locked_before_the_first_write_is_seen_after_it(f):
    with opened(f) as early:
        flock(early, fcntl.LOCK_SH)
        shared_lock(early, 0, 10, command=F_OFD_SETLK)
        with opened(f, RW) as late:
            os.pwrite(late, b"written", 0)
            assert is_busy(flock, late, fcntl.LOCK_EX)
            assert is_busy(exclusive, late, 9, 1, command=F_OFD_SETLK)
            flock(early, fcntl.LOCK_UN)
            flock(late, fcntl.LOCK_EX)
            assert is_busy(flock, early, fcntl.LOCK_SH)


# ---- others ----

def test_two_mounts_of_a_file_do_not_see_each_others_locks(stack, f, options):
    other = stack.second_mount(stack.lowers, *options, upper=stack._make("u2"), work=stack._make("w2")).mnt / "f"
    with opened(f, RW) as a, opened(other, RW) as b:
        flock(a, fcntl.LOCK_EX)
        exclusive(a, command=F_OFD_SETLK)
        flock(b, fcntl.LOCK_EX)
        exclusive(b, command=F_OFD_SETLK)
        os.pwrite(a, b"a", 0)
        os.pwrite(b, b"b", 0)
        with opened(f, RW) as c:
            assert is_busy(flock, c, fcntl.LOCK_SH)


def test_two_writers_of_a_database_wait_for_each_other(f):
    path = f.parent / "db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (who INTEGER, k INTEGER)")
        db.commit()

    def write(who):
        with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
            for _ in range(15):
                db.execute("BEGIN IMMEDIATE")
                (n,) = db.execute("SELECT count(*) FROM t").fetchone()
                db.execute("INSERT INTO t VALUES (?, ?)", (who, n))
                db.execute("COMMIT")
    children = [Child(write, who) for who in range(2)]
    for child in children:
        child.join()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert sorted(k for (k,) in db.execute("SELECT k FROM t")) == list(range(30))
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_leases_are_the_kernels(f):
    with opened(f) as fd:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        assert fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def test_another_word_is_refused(stack):
    stack.lower()
    with pytest.raises(MountFailed, match="invalid value for locks: some"):
        stack.mount("locks=some")


# ---- the server dies ----

@pytest.mark.parametrize("io", ["auto", "cached", "direct"])
def test_locks_outlive_the_server(stack, shared, way, io):
    take, wait, give = way
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    f = Place(stack, "p").mount(stack, shared, "locks=server", f"io={io}") / "f"
    with opened(f, RW) as fd, opened(f, RW) as other:
        take(fd)
        waiters = [Waiter(f, wait).wait_until_blocked() for _ in range(3)]
        for _ in range(2):
            shared.kill_server()
            in_child(lambda: is_busy(take, os.open(f, RW)) or pytest.fail("the lock is gone"))
        give(fd)
        for waiter in waiters:
            waiter.join()
        take(other)
        shared.kill_server()
        os.unlink(f)
        shared.kill_server()
        in_child(lambda: is_busy(take, os.open(f"/proc/{os.getppid()}/fd/{fd}", RW)) or pytest.fail("the lock is gone"))


def test_locks_are_told_of_after_the_death_of_the_server(stack, shared):
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    f = Place(stack, "p").mount(stack, shared, "locks=server") / "f"
    me = os.getpid()
    with opened(f, RW) as fd:
        exclusive(fd, 0, 100)
        unlock(fd, 10, 10)
        shared.kill_server()

        def other():
            with opened(f, RW) as mine:
                assert lock(mine, fcntl.F_RDLCK, fcntl.F_GETLK, 0, 0) == (fcntl.F_WRLCK, 0, 10, me)
                exclusive(mine, 10, 10)
        in_child(other)
        with opened(f):
            pass
        in_child(lambda: exclusive(os.open(f, RW)))


def test_who_waits_can_be_interrupted_after_the_death_of_the_server(stack, shared, way):
    take, wait, give = way
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    f = Place(stack, "p").mount(stack, shared, "locks=server") / "f"
    with opened(f, RW) as fd:
        take(fd)
        waiter = Waiter(f, until_interrupted(wait)).wait_until_blocked()
        shared.kill_server()
        os.kill(waiter.pid, signal.SIGUSR1)
        waiter.join()
        give(fd)
        with opened(f, RW) as another:
            take(another)


@pytest.mark.needs_privileges("umount -f takes CAP_SYS_ADMIN")
def test_an_aborted_mount_ends_the_waiting(stack, way):
    take, wait, _ = way
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    f = stack.mount("locks=server") / "f"

    def waits(fd):
        with fails_with(errno.ECONNABORTED, errno.ENOTCONN):
            wait(fd)
        os._exit(0)  # closing would fail as well

    fd = os.open(f, RW)
    take(fd)
    waiter = Waiter(f, waits).wait_until_blocked()
    with contextlib.suppress(OSError):
        linux.umount(stack.mnt, linux.MNT_FORCE)
    waiter.join()
    with contextlib.suppress(OSError):
        os.close(fd)
