# SPDX-License-Identifier: Apache-2.0
"""share=pages: snapshots beside other snapshots, mounts that come and go, deaths, and what waits for locks meanwhile."""
import contextlib
import fcntl
import mmap
import os
import select
import signal
import subprocess
import threading
import time
import traceback

import pytest

from support import linux, pagecache
from support.content import MIB, blob
from support.expect import opened
from support.server import MountFailed, wait_until
from support.snapshots import change, fill
from test_share_locks import record, record_is_free
from test_share_snapshots import call, numbers, siblings  # noqa: F401, fixtures

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")


def _start(siblings, command, *arguments):
    return subprocess.Popen([siblings.program, command, *map(str, arguments)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, **siblings.server.environment})


def test_first_snapshots_at_once_hold_nobody_up(siblings):
    """Nothing is locked as long as there is no chain."""
    for _ in range(4):
        a = siblings.shared()
        (a / "own").write_text("own")
        before = time.monotonic()
        asked = [_start(siblings, "snapshot", a) for _ in range(6)]
        words = [process.communicate(timeout=60)[1] for process in asked]
        assert (a / "own").read_text() == "own"
        assert time.monotonic() - before < 4
        assert any(process.returncode == 0 for process in asked)
        assert all("another snapshot is being taken" in word for process, word in zip(asked, words, strict=True)
                   if process.returncode), words


def test_commands_while_other_mounts_leave(siblings, call):
    """Each looks at all mounts until it finds its own."""
    a = siblings.shared(name="stays")
    call("snapshot", a, "one")
    for _ in range(6):
        leaving = [siblings.shared(name=f"leaves{k}") for k in range(3)]
        for point in leaving:
            (point / "own").write_text("own")
        # It has another number, above theirs, by which mounts are gone through.
        call("snapshot", a)
        ending = [_start(siblings, "umount", point) for point in leaving]
        while any(process.poll() is None for process in ending):
            for asked in [_start(siblings, "snapshot", a, "one") for _ in range(3)]:
                assert "there is a snapshot of this name" in asked.communicate(timeout=60)[1]
        assert [process.communicate()[1] for process in ending] == [""] * 3
    assert siblings.count() == 1


@pytest.mark.parametrize("dies", [False, True], ids=["", "killed"])
def test_a_lock_goes_with_any_descriptor_closed(siblings, call, dies):
    a, b = siblings.shared(), siblings.shared()
    (a / "own").write_text("own")
    call("snapshot", a)
    with opened(a / "f") as fd, opened(b / "f"):
        other = os.open(a / "f", os.O_RDONLY)
        assert record(fd, fcntl.F_RDLCK)[0] == fcntl.F_RDLCK
        call("snapshot", a)
        if dies:
            siblings.server.kill_server()
        assert not record_is_free(a / "f")
        os.close(other)
        assert wait_until(lambda: record_is_free(a / "f"))


@pytest.mark.parametrize("lowers", [("here",), ("here", "there"), ("there", "here")], ids="-".join)
def test_numbers_and_pages_where_layers_are_on_several_file_systems(siblings, call, lowers):
    with contextlib.ExitStack() as stack:
        for name in ("elsewhere", "there"):
            linux.mount("tmpfs", siblings.directory(name), "tmpfs")
            stack.callback(linux.umount, siblings.base / name, linux.MNT_DETACH)
        for kind in ("upper", "work"):
            (siblings.base / "elsewhere" / kind).mkdir()
            (siblings.base / f"{kind}-a").symlink_to(siblings.base / "elsewhere" / kind)
        fill(siblings.base / "there")
        (siblings.base / "there" / "g").write_bytes(blob(MIB, 7))
        layers = [siblings.lower if name == "here" else siblings.base / name for name in lowers]
        a, b = (siblings.shared(name=name, lowers=layers) for name in "ab")
        change(a)
        files = ["f", "g"] if "there" in lowers else ["f"]
        for name in files:
            (b / name).read_bytes()
        before = numbers(a), numbers(b)
        for snapshot in ("one", "two"):
            call("snapshot", a, snapshot)
            assert (numbers(a), numbers(b)) == before
            for name in files:
                with opened(a / name) as fd:
                    assert pagecache.own_pages(fd) == (b / name).stat().st_size // mmap.PAGESIZE
        for point in (a, b):
            call("umount", point)


# ---- locks under load ----

class _Late(Exception):
    pass


def _late(*_):
    raise _Late


def _count(lock_fd, counter_fd, take, give, stop_fd):
    """Add one under the lock, again and again; some waits are interrupted. Gives how often it did."""
    done = 0
    signal.signal(signal.SIGALRM, _late)
    while not select.select([stop_fd], [], [], 0)[0]:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02 if done % 5 == 0 else 0)
            take(lock_fd)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _Late:
            give(lock_fd)
            continue
        number = int(os.pread(counter_fd, 20, 0) or b"0")
        os.pwrite(counter_fd, b"%d" % (number + 1), 0)
        done += 1
        give(lock_fd)
    return done


@contextlib.contextmanager
def _counting(point, name, take, give, flags):
    """A process that does; the list that is given has its number at the end."""
    stop, stopped = os.pipe()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(stopped)
            with opened(point / name, flags) as lock_fd, opened(point / f"count-{name}", os.O_RDWR) as counter_fd:
                os.write(tell, b"%d" % _count(lock_fd, counter_fd, take, give, stop))
                code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(tell)
    os.close(stop)
    result = []
    try:
        yield result
    finally:
        os.close(stopped)
        ready = select.select([told], [], [], 20)[0]
        result.append(int(os.read(told, 20) or b"-1") if ready else None)
        os.close(told)
        os.kill(pid, signal.SIGKILL)
        if ready:
            os.waitpid(pid, 0)


def _flock(fd):
    fcntl.flock(fd, fcntl.LOCK_EX)


def _unflock(fd):
    fcntl.flock(fd, fcntl.LOCK_UN)


def _record(fd):
    record(fd, fcntl.F_WRLCK, fcntl.F_SETLKW)


def _unrecord(fd):
    record(fd, fcntl.F_UNLCK)


def _exclude(siblings, call, kills, rounds):
    points = [siblings.shared() for _ in range(2)]
    jobs = [(point, *how) for point in points for how in
            [("still0", _flock, _unflock, os.O_RDONLY)] * 3 + [("data0", _record, _unrecord, os.O_RDWR)] * 3]
    for point, name, *_ in jobs:
        (point / f"count-{name}").write_bytes(b"0")
    with contextlib.ExitStack() as stack:
        counts = [(point / f"count-{name}", stack.enter_context(_counting(point, name, take, give, flags)))
                  for point, name, take, give, flags in jobs]
        for number in range(rounds):
            if kills and number % 3 == 2:
                killing = threading.Timer(0.004 * (number % 7), siblings.server.kill_server)
                killing.start()
                with contextlib.suppress(AssertionError):
                    call("snapshot", points[number % 2])
                killing.join()
            else:
                call("snapshot", points[number % 2])
            time.sleep(0.03)
    assert None not in [result[0] for _, result in counts], "a wait does not end"
    for path in {path for path, _ in counts}:
        assert int(path.read_bytes()) == sum(result[0] for other, result in counts if other == path)
        assert int(path.read_bytes()) > 0


@pytest.mark.parametrize("kills", [False, True], ids=["", "killed"])
def test_locks_exclude_while_snapshots_are_taken(siblings, call, kills):
    _exclude(siblings, call, kills, 12)


@pytest.mark.slow
def test_locks_exclude_for_long(siblings, call):
    _exclude(siblings, call, True, 200)


# ---- a mount that is unmounted ----

def _mounted(siblings, name):
    """A snapshot of what is not mounted has the upper for a moment."""
    while True:
        try:
            return siblings.shared(name=name)
        except MountFailed as failure:
            assert "taken just now: mount again" in str(failure)


def _unmount_and_mount(siblings, rounds, words):
    """In use or not, by an unmount that waits or one that does not; what was written is there again."""
    environment = {**os.environ, **siblings.server.environment}
    for number in range(rounds):
        point = _mounted(siblings, "a")
        assert number == 0 or (point / "own").read_text() == str(number - 1)
        (point / "own").write_text(str(number))
        assert (point / "f").read_bytes()[:100] == blob(4 * MIB)[:100]
        with opened(point / "f"), opened(point / "own"):
            if number % 3 == 0:
                linux.umount(point, linux.MNT_DETACH)
            else:
                time.sleep(0.01 * (number % 5))
        if number % 3:
            words.append(subprocess.run([siblings.program, "umount", point], check=True, timeout=60, env=environment, text=True,
                                        stderr=subprocess.PIPE).stderr)


@pytest.mark.parametrize("kills", [False, True], ids=["", "killed"])
def test_snapshots_of_a_mount_that_comes_and_goes(siblings, kills):
    """By its upper, which is there also while it is not mounted."""
    b = siblings.shared(name="b")
    (b / "own").write_text("b")
    upper = siblings.directory("upper-a")
    siblings.directory("work-a")
    failures, words = [], []

    def go():
        try:
            _unmount_and_mount(siblings, 9, words)
        except BaseException as failure:
            failures.append(failure)

    mounting = threading.Thread(target=go)
    mounting.start()
    number = 0
    while mounting.is_alive():
        before = time.monotonic()
        asked = [_start(siblings, "snapshot", where) for where in (upper, b)]
        if kills and number % 4 == 3:
            time.sleep(0.003 * (number % 7))
            siblings.server.kill_server()
        for process in asked:
            process.communicate(timeout=60)
        assert kills or time.monotonic() - before < 8
        assert asked[1].returncode == 0 or kills
        number += 1
    mounting.join()
    assert not failures
    # One that is opened anew is waited for, as it has the upper.
    assert kills or not any(words), words
    assert (b / "own").read_text() == "b" and number > 3
    assert wait_until(lambda: siblings.count() == 1)
