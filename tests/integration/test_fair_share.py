# SPDX-License-Identifier: Apache-2.0
"""A container that uses up resources of a shared server harms only itself."""
import contextlib
import errno
import fcntl
import itertools
import os
import shlex

import pytest

from support import linux
from support.content import blob
from support.expect import names_in, opened
from support.server import wait_until
from support.shared import SharedServer
from test_limits import many_descriptors_here  # noqa: F401, a fixture
from test_server import Place

_LIMIT = 1024


@pytest.fixture
def poor(stack, veneer_bin, watchdog):
    """A server that may have few descriptors."""
    program = stack.base / "limited"
    program.write_text(f'#!/bin/sh\nulimit -n {_LIMIT}\nexec {shlex.quote(str(veneer_bin))} "$@"\n')
    program.chmod(0o755)
    server = SharedServer(program, stack.base / "run", watchdog)
    server.ensure()
    yield server
    for path in sorted(stack.base.glob("*/mnt")):
        with contextlib.suppress(OSError):
            linux.umount(path, linux.MNT_DETACH)
    assert wait_until(lambda: server.count() == 0)
    assert server.stop() == 0


def _hold_removed(mnt, most, fds):
    """Opens files and removes them until the server will have no more; the error, or None."""
    for number in range(most):
        fd = os.open(mnt / f"r{number}", os.O_CREAT | os.O_RDWR, 0o644)
        fds.append(fd)
        os.write(fd, b"%d" % number)
        try:
            os.unlink(mnt / f"r{number}")
        except OSError as e:
            return e.errno
    return None


def _hold_nameless(mnt, most, fds):
    for _ in range(most):
        try:
            fds.append(os.open(mnt, os.O_TMPFILE | os.O_RDWR, 0o600))
        except OSError as e:
            return e.errno
    return None


def _use(mnt):
    """All that a container does, removed open files among it."""
    (mnt / "new").write_text("new")
    os.rename(mnt / "new", mnt / "newer")
    with open(mnt / "f", "r+b") as f:
        assert f.read(10) == blob(100_000)[:10]
        f.seek(50_000)
        f.write(b"changed")
    (mnt / "own").mkdir()
    assert "own" in names_in(mnt)
    fds = []
    try:
        assert _hold_removed(mnt, 20, fds) is None
        assert [os.pread(fd, 9, 0) for fd in fds] == [b"%d" % k for k in range(20)]
    finally:
        for fd in fds:
            os.close(fd)
    os.unlink(mnt / "newer")
    os.rmdir(mnt / "own")


@pytest.mark.parametrize("hold", [_hold_removed, _hold_nameless])
def test_files_without_a_name_of_one_mount_do_not_starve_another(stack, poor, hold):
    (stack.lower() / "f").write_bytes(blob(100_000))
    greedy, other, late = (Place(stack, name) for name in ("greedy", "other", "late"))
    greedy.mount(stack, poor)
    other.mount(stack, poor)
    fds = []
    try:
        error = hold(greedy.mnt, 3000, fds)
        assert error in (errno.ENFILE, errno.EOPNOTSUPP)
        if error == errno.EOPNOTSUPP:
            pytest.skip("no nameless files here")
        assert 200 < len(fds) < _LIMIT
        assert len(os.listdir(f"/proc/{poor.pid}/fd")) < _LIMIT - 8
        assert poor.log.count("too many open files have no name") == 1
        _use(other.mnt)
        late.mount(stack, poor)
        _use(late.mnt)
        if hold is _hold_removed:
            assert [os.pread(fd, 9, 0) for fd in fds] == [b"%d" % k for k in range(len(fds))]
        # and the greedy one may still do what holds nothing
        (greedy.mnt / "more").write_text("more")
        assert (greedy.mnt / "more").read_text() == "more"
    finally:
        for fd in fds:
            os.close(fd)
    assert wait_until(lambda: _removes(greedy.mnt))
    _use(other.mnt)


def _removes(mnt):
    (mnt / "again").touch()
    try:
        os.unlink(mnt / "again")
    except OSError as e:
        assert e.errno == errno.ENFILE
        return False
    return True


def test_writes_to_removed_lower_files_count_too(stack, poor):
    """Nothing is held of a lower file until it is written, which then makes a file without a name."""
    (stack.lower() / "d").mkdir()
    for number in range(900):
        (stack.lower() / "d" / f"f{number}").write_bytes(b"%04d" % number * 20_000)
    (stack.lower() / "f").write_bytes(blob(100_000))
    stack.remember_lowers()
    greedy, other = Place(stack, "greedy"), Place(stack, "other")
    greedy.mount(stack, poor)
    other.mount(stack, poor)
    fds, errors = [], set()
    try:
        for number in range(900):
            fds.append(os.open(greedy.mnt / "d" / f"f{number}", os.O_RDWR))
        for number, fd in enumerate(fds):
            with contextlib.suppress(OSError):
                os.unlink(greedy.mnt / "d" / f"f{number}")
            try:
                assert os.pwrite(fd, b"new", 5) == 3
            except OSError as e:
                errors.add(e.errno)
        assert errors == {errno.ENFILE}
        _use(other.mnt)
    finally:
        for fd in fds:
            os.close(fd)
    assert wait_until(lambda: _removes(greedy.mnt))


@pytest.mark.slow
def test_open_files_directories_and_locks_of_one_mount_do_not_starve_another(stack, poor):
    (stack.lower() / "many").mkdir()
    for number in range(700):
        (stack.lower() / "many" / f"d{number}").mkdir()
        (stack.lower() / "many" / f"d{number}" / "f").write_bytes(b"x" * 100)
    (stack.lower() / "f").write_bytes(blob(100_000))
    stack.remember_lowers()
    greedy, other = Place(stack, "greedy"), Place(stack, "other")
    greedy.mount(stack, poor)
    other.mount(stack, poor)
    with contextlib.ExitStack() as held:
        for number in range(700):
            directory = greedy.mnt / "many" / f"d{number}"
            listing = os.scandir(directory)
            held.callback(listing.close)
            next(listing)
            fd = held.enter_context(opened(directory / "f", os.O_RDWR))
            os.pwrite(fd, b"y", 5)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert len(os.listdir(f"/proc/{poor.pid}/fd")) < _LIMIT - 8
        _use(other.mnt)
    _use(greedy.mnt)


@pytest.fixture
def server(stack, veneer_bin, watchdog):
    one = SharedServer(veneer_bin, stack.base / "run", watchdog)
    one.ensure()
    yield one
    for path in sorted(stack.base.glob("*/mnt")):
        with contextlib.suppress(OSError):
            linux.umount(path, linux.MNT_DETACH)
    assert wait_until(lambda: one.count() == 0)
    assert one.stop() == 0


def _may_be_heavier():
    """As root of the machine, and not of a user namespace."""
    with open("/proc/self/uid_map", encoding="ascii") as f:
        return f.read().split()[0::2] == ["0", "4294967295"]


def _weight(pid):
    """The nice value of a process's session. None: it is in that of the machine's first process, which has none."""
    with open(f"/proc/{pid}/autogroup", encoding="ascii") as f:
        text = f.read()
    return int(text.split()[-1]) if text else None


def test_a_server_has_as_much_of_the_processors_as_one_for_each_mount_in_use(stack, server):
    """Of sessions, where those are what the scheduler shares out among: else one server for all has no more than each
    that it works for. A user of one mount among many of his own gets no more than that."""
    if not os.path.exists("/proc/self/autogroup"):
        pytest.skip("this kernel does not group by session")
    if os.geteuid() or not _may_be_heavier():
        pytest.skip("without privileges no session can be made heavier")
    places = [Place(stack, f"m{k}") for k in range(8)]
    for place in places:
        place.mount(stack, server)
    own, numbers = _weight(os.getpid()), itertools.count()

    def use(some):
        for place in some:
            assert not os.path.exists(place.mnt / f"no-{next(numbers)}")
        return _weight(server.pid)

    assert wait_until(lambda: use(places) == -9)
    assert wait_until(lambda: use(places[:2]) == -3)
    assert wait_until(lambda: use(places[:1]) == 0)
    assert _weight(os.getpid()) == own
