# SPDX-License-Identifier: Apache-2.0
"""share=pages: the server dies, or another program takes its place, and programs in the mounts do not notice."""
import contextlib
import errno
import fcntl
import json
import mmap
import os
import signal
import subprocess
import threading

import pytest

from support import linux, pagecache
from support.content import MIB, blob
from support.counters import Gained
from support.expect import fails_with, names_in, opened, read_at, write_at
from support.killer import Killer
from support.procfs import is_blocked
from support.server import wait_until
from support.shared import kill, wait_for_death
from support.siblings import Siblings
from test_killed_server import Worker, data_changes, name_changes, programs
from test_share_locks import flock_is_free, holding, record, record_is_free
from test_upgrade import kill_server_of, upgrade, upgraded

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog, request):
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]
    made = Siblings(session_dir / f"killed-{name}", veneer_bin, watchdog)
    yield made
    made.close()


def lowers(siblings, **files):
    for name, content in files.items():
        (siblings.lower / name).write_bytes(content)


# ---- what is open goes on ----

def test_what_is_open_goes_on(siblings):
    lowers(siblings, **{name: blob(300_000, k) for k, name in enumerate(("read", "mapped", "written", "partial", "gone"))})
    a, b = siblings.shared(), siblings.shared()
    with contextlib.ExitStack() as stack:
        read, gone, mapped = (stack.enter_context(opened(a / name)) for name in ("read", "gone", "mapped"))
        written, partial = (stack.enter_context(opened(a / name, os.O_RDWR)) for name in ("written", "partial"))
        own = stack.enter_context(opened(a / "own", os.O_RDWR | os.O_CREAT))
        nameless = stack.enter_context(opened(a, os.O_RDWR | os.O_TMPFILE))
        view = stack.enter_context(mmap.mmap(mapped, 300_000, prot=mmap.PROT_READ))
        other = stack.enter_context(opened(b / "written"))
        os.pwrite(partial, b"before", 5000)
        os.pwrite(own, b"own", 0)
        os.pwrite(nameless, b"nameless", 0)
        for name in ("gone", "own", "partial"):
            os.unlink(a / name)
        fds = (read, gone, mapped, written, partial, own, nameless, other)
        before = [os.fstat(fd) for fd in fds]
        for k in range(3):
            siblings.server.kill_server()
            assert os.pread(read, 300_000, 0) == blob(300_000, 0) == (b / "read").read_bytes()
            assert view[:] == blob(300_000, 1)
            assert os.pread(gone, 300_000, 0) == blob(300_000, 4) == (b / "gone").read_bytes()
            os.pwrite(written, b"%d" % k, 7 + k)
            assert os.pread(written, 20, 0) == blob(20, 2)[:7] + b"012"[:k + 1] + blob(300_000, 2)[8 + k:20]
            assert (a / "written").read_bytes()[7:8 + k] == b"012"[:k + 1]
            assert os.pread(other, 300_000, 0) == blob(300_000, 2) == (b / "written").read_bytes()
            assert os.pread(partial, 300_000, 0) == blob(300_000, 3)[:5000] + b"before" + blob(300_000, 3)[5006:]
            assert os.pread(own, 9, 0) == b"own" and os.pread(nameless, 9, 0) == b"nameless"
            after = [os.fstat(fd) for fd in fds]
            assert [(st.st_ino, st.st_dev, st.st_nlink) for st in after] == \
                [(st.st_ino, st.st_dev, st.st_nlink) for st in before]
        assert names_in(a) == ["mapped", "read", "written"]
        assert names_in(b) == ["gone", "mapped", "partial", "read", "written"]


def test_common_files_stay_common(siblings):
    (siblings.lower / "d").mkdir()
    lowers(siblings, f=blob(MIB), **{"d/late": blob(MIB, 1)})
    a, b, c = (siblings.shared() for _ in range(3))
    assert (a / "f").read_bytes() == blob(MIB)
    with opened(b / "f") as fd:
        siblings.server.kill_server()
        assert pagecache.own_pages(fd) == MIB // mmap.PAGESIZE
        before = os.fstat(fd)
        assert (c / "f").stat().st_ino == before.st_ino and pagecache.resident_pages(c / "f") == MIB // mmap.PAGESIZE
        # one that is looked up for the first time now, by mounts of before and one of after
        assert (a / "d" / "late").read_bytes() == blob(MIB, 1)
        siblings.server.kill_server()
        late = siblings.shared()
        assert late.stat().st_dev == a.stat().st_dev
        for point in (b, c, late):
            with opened(point / "d" / "late") as other:
                assert pagecache.own_pages(other) == MIB // mmap.PAGESIZE
        write_at(a / "f", b"changed", 0)
        assert os.pread(fd, MIB, 0) == blob(MIB) == (late / "f").read_bytes()
        assert read_at(a / "f", 7, 0) == b"changed"


def test_locks_by_descriptors_of_the_images_files_stay_and_end(siblings):
    """The owner of such a lock is not stored beyond a death: the next server finds it by the lock."""
    lowers(siblings, f=b"lower", g=b"lower")
    a, b = siblings.shared(), siblings.shared()
    with holding(a / "f", lambda fd: fcntl.flock(fd, fcntl.LOCK_EX)) as first, \
            holding(a / "g", lambda fd: record(fd, fcntl.F_RDLCK)) as second:
        for _ in range(2):
            siblings.server.kill_server()
            assert not flock_is_free(a / "f") and flock_is_free(b / "f")
            assert not record_is_free(a / "g") and record_is_free(b / "g")
        os.kill(first, signal.SIGKILL)
        os.kill(second, signal.SIGKILL)
        assert wait_until(lambda: flock_is_free(a / "f"))
        assert wait_until(lambda: record_is_free(a / "g"))


def test_what_is_closed_while_nobody_serves_is_unlocked(siblings):
    """The common files are served before the mounts are open again that the locks are of."""
    names = [f"f{k}" for k in range(10)]
    lowers(siblings, **{name: b"lower" for name in names})
    for name in names:
        (siblings.lower / name).chmod(0o755)  # programs: their close is no FLUSH, and so the RELEASE is there first
    points = [siblings.shared() for _ in range(4)]
    with contextlib.ExitStack() as stack:
        fds = [os.open(point / name, os.O_RDONLY) for point in points for name in names]
        still_open = [stack.enter_context(opened(point / name)) for point in points for name in names]
        for k, fd in enumerate(fds):
            fcntl.flock(fd if k % 2 else still_open[k], fcntl.LOCK_EX)
        server, supervisor = siblings.server.pid, siblings.server.process.pid
        os.kill(supervisor, signal.SIGSTOP)
        try:
            kill(server)
            wait_for_death(server)
            ending = [threading.Thread(target=fcntl.flock, args=(fd, fcntl.LOCK_UN)) for fd in still_open[::2]]
            ending += [threading.Thread(target=os.close, args=(fd,)) for fd in fds]
            for thread in ending:
                thread.start()
            assert wait_until(lambda: not any(thread.is_alive() and not is_blocked(thread.native_id) for thread in ending))
        finally:
            os.kill(supervisor, signal.SIGCONT)
        for thread in ending:
            thread.join(20)
            assert not thread.is_alive()
        assert wait_until(lambda: all(flock_is_free(point / name) for point in points for name in names), 10)


def test_a_name_goes_whose_file_was_locked_when_the_server_died(siblings):
    """The lock holds a look-up of the mount's own node, but the name leads to the common one. Had the kernel counted down the
    links of that, it would refuse to link it without asking."""
    lowers(siblings, f=b"lower")
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f") as fd, opened(b / "f") as other:
        fcntl.flock(fd, fcntl.LOCK_EX)
        siblings.server.kill_server()
        os.unlink(a / "f")
        with fails_with(errno.ESTALE):
            linux.link_descriptor(other, b / "x")
        assert os.fstat(other).st_nlink == 1 and (b / "f").read_bytes() == b"lower"


def test_a_lock_goes_with_any_descriptor_closed_after_a_death(siblings):
    """By another open file of the same process, by which nothing was locked."""
    lowers(siblings, f=b"lower")
    a = siblings.shared()
    with opened(a / "f") as fd:
        assert record(fd, fcntl.F_RDLCK)[0] == fcntl.F_RDLCK
        siblings.server.kill_server()
        assert not record_is_free(a / "f")
        with opened(a / "f"):
            pass
        assert wait_until(lambda: record_is_free(a / "f"))


def _as_another(path):
    """A process of its own: ours is known to have been told to look again."""
    return subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout


def test_files_of_a_mounts_own_stay_its_own(siblings):
    """The file is opened for writing before and written after: a later look-up must not give the shared inode."""
    lowers(siblings, **{f"f{k}": b"lower" for k in range(3)})
    a, b = siblings.shared("timeout=1"), siblings.shared("timeout=1")

    def is_looked_up():
        """After a second the kernel no longer knows the name."""
        with Gained(siblings.server) as g:
            assert _as_another(a / "f0") == b"lower"
        return g["REQUESTS LOOKUP"] > 0

    with opened(a / "f0", os.O_RDWR) as first, opened(a / "f1", os.O_RDWR) as second:
        siblings.server.kill_server()
        assert wait_until(is_looked_up)
        os.pwrite(first, b"LOWER", 0)
        assert _as_another(a / "f0") == b"LOWER" and _as_another(b / "f0") == b"lower"
        siblings.server.kill_server()
        os.ftruncate(second, 2)
        assert (a / "f1").read_bytes() == b"lo" and (a / "f1").stat().st_size == 2 and (b / "f1").stat().st_size == 5


def test_directories_that_were_open(siblings):
    for k in range(300):
        lowers(siblings, **{f"lower{k}": b""})
    a, b = siblings.shared(), siblings.shared()
    (a / "own").mkdir()
    for k in range(100):
        (a / f"upper{k}").touch()
    with opened(a, os.O_RDONLY | os.O_DIRECTORY) as top, opened(a / "own", os.O_RDONLY) as own, os.scandir(a) as listing:
        seen = [next(listing).name]
        os.rmdir(a / "own")
        siblings.server.kill_server()
        seen += [entry.name for entry in listing]
        assert set(seen) - {"own"} == {f"lower{k}" for k in range(300)} | {f"upper{k}" for k in range(100)}
        assert len(seen) == len(set(seen)) and sorted(os.listdir(top)) == names_in(a) and len(names_in(b)) == 300
        assert os.listdir(own) == []
        with fails_with(errno.ENOENT):
            os.open("f", os.O_CREAT | os.O_RDWR, dir_fd=own)


def test_locks_are_kept_for_each_mount(siblings):
    lowers(siblings, f=b"f")
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f", os.O_RDWR) as one, opened(a / "f", os.O_RDWR) as two, opened(b / "f", os.O_RDWR) as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        waits = threading.Thread(target=fcntl.flock, args=(two, fcntl.LOCK_EX))
        waits.start()
        siblings.server.kill_server()
        with opened(a / "f", os.O_RDWR) as three, pytest.raises(BlockingIOError):
            fcntl.flock(three, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waits.join(0.2)
        assert waits.is_alive()
        fcntl.flock(one, fcntl.LOCK_UN)
        waits.join(20)
        assert not waits.is_alive()


# ---- mounts come and go ----

def test_mounts_go_one_by_one(siblings):
    lowers(siblings, f=b"lower")
    points = [siblings.shared() for _ in range(3)]
    elsewhere = siblings.directory("elsewhere")
    with opened(points[2] / "f", os.O_RDWR) as fd:
        linux.mount(points[1], elsewhere, flags=linux.MS_BIND)
        linux.umount(points[2], linux.MNT_DETACH)
        siblings.server.kill_server()
        assert siblings.count() == 3
        linux.umount(points[0])
        linux.umount(points[1])
        assert wait_until(lambda: siblings.count() == 2)
        os.pwrite(fd, b"after", 0)
        siblings.server.kill_server()
        assert os.pread(fd, 9, 0) == b"after" and (elsewhere / "f").read_bytes() == b"lower"
    assert wait_until(lambda: siblings.count() == 1)
    assert not os.path.ismount(points[0])
    again = siblings.shared(name="2")
    assert (again / "f").read_bytes() == b"after"
    linux.umount(elsewhere)
    linux.umount(again)
    assert wait_until(lambda: siblings.count() == 0)
    again = siblings.shared(name="1")
    assert (again / "f").read_bytes() == b"lower"


def test_mounts_come_and_go_while_it_dies(siblings):
    lowers(siblings, f=b"lower")
    stays = siblings.shared()
    k = 0
    with Killer(siblings.server, 0.4) as killer:
        while killer.kills < 10:
            point = siblings.shared(name=f"n{k % 5}")
            assert (point / "f").read_bytes() == (b"%d" % (k - 5) if k >= 5 else b"lower")
            (point / "f").write_bytes(b"%d" % k)
            assert (point / "f").read_bytes() == b"%d" % k
            linux.umount(point)
            k += 1
            siblings.server.watch()
    assert k > 5
    assert (stays / "f").read_bytes() == b"lower"
    assert wait_until(lambda: siblings.count() == 1)


def test_nothing_of_the_dead_stays_open(siblings):
    lowers(siblings, f=blob(100_000))
    points = [siblings.shared() for _ in range(3)]

    def after_a_death():
        siblings.server.kill_server()
        assert all((point / "f").read_bytes() == blob(100_000) for point in points)
        return len(os.listdir(f"/proc/{siblings.server.pid}/fd"))

    first = after_a_death()
    assert min(after_a_death() for _ in range(8)) <= first + 3
    for point in points:
        linux.umount(point)
    assert wait_until(lambda: siblings.count() == 0)


# ---- where the kernel does not send again what a dead server had read ----

@pytest.fixture
def frail(monkeypatch, request):
    monkeypatch.setenv("VENEER_NO_RESEND", "1")
    return request.getfixturevalue("siblings")


def test_without_resending_mounts_end_with_their_server_and_can_be_made_anew(frail):
    lowers(frail, f=b"lower")
    a, b = frail.shared(), frail.shared()
    separate = frail.mount("share=off").mnt
    (a / "own").write_bytes(b"acknowledged")
    result = upgrade(frail.server)
    assert result.returncode and "share=pages" in result.stderr
    assert (a / "f").read_bytes() == b"lower"
    frail.server.kill_server()
    for point in (a, b):
        with fails_with(errno.ENOTCONN, errno.ECONNABORTED):
            (point / "f").stat()
        linux.umount(point)
    assert (separate / "f").read_bytes() == b"lower"
    again = frail.shared(name="0")
    assert (again / "own").read_bytes() == b"acknowledged" and (again / "f").read_bytes() == b"lower"


# ---- another program takes over ----

@pytest.fixture
def moving(siblings):
    yield siblings
    kill_server_of(siblings.server)


def test_another_program_takes_them(moving):
    lowers(moving, f=blob(MIB), changed=b"lower", gone=b"gone")
    a, b = moving.shared(), moving.shared()
    with opened(a / "f") as fd, opened(a / "changed", os.O_RDWR) as own, opened(b / "gone") as gone, \
            mmap.mmap(fd, MIB, prot=mmap.PROT_READ) as view:
        os.unlink(b / "gone")
        fcntl.flock(own, fcntl.LOCK_EX)
        for k in range(2):
            upgraded(moving.server, 2 + k)
            assert view[:] == blob(MIB) == (b / "f").read_bytes() and os.pread(gone, 9, 0) == b"gone"
            assert pagecache.own_pages(fd) == MIB // mmap.PAGESIZE
            with opened(a / "changed", os.O_RDWR) as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(own, b"%d" % k, k)
            late = moving.shared(name=f"late{k}")
            assert late.stat().st_dev == a.stat().st_dev and (late / "f").stat().st_ino == os.fstat(fd).st_ino
            moving.server.kill_server()
        assert (a / "changed").read_bytes() == b"01wer" and (b / "changed").read_bytes() == b"lower"
        assert names_in(b) == ["changed", "f"]
    for point in (a, b, late):
        linux.umount(point)
    assert wait_until(lambda: moving.count() == 1)


def test_each_mount_is_listed_after_a_death(siblings):
    """They are resumed at once, in any order."""
    points = {str(siblings.mount(*options).mnt) for options in [()] * 6 + [("share=pages",)] * 6}
    for _ in range(8):
        siblings.server.kill_server()
        done = subprocess.run([siblings.program, "stats", "--json"], capture_output=True, check=True, timeout=60,
                              env={**os.environ, **siblings.server.environment})
        assert {mount["mountpoint"] for mount in json.loads(done.stdout)["mounts"]} == points


# ---- under load ----

def switches(point, tag):
    """Each step changes files for the first time, in all the ways in which the kernel has to look again."""
    def step(number):
        base = 6 * number % 3000
        names = [point / "many" / f"f{k}" for k in range(base, base + 6)]
        if not names[0].exists():
            return
        for path in names:
            assert path.read_bytes() == path.name.encode()
        with opened(names[0], os.O_RDWR) as fd:
            os.pwrite(fd, tag, 0)
        os.chmod(names[1], 0o640)
        os.truncate(names[2], 1)
        os.rename(names[3], names[3].with_suffix(".moved"))
        os.unlink(names[4])
        os.link(names[5], names[5].with_suffix(".link"))
        assert names[0].read_bytes() == tag + names[0].name.encode()[len(tag):]
        assert names[1].stat().st_mode & 0o777 == 0o640 and names[2].read_bytes() == b"f"
        assert names[3].with_suffix(".moved").read_bytes() == names[3].name.encode() and not names[4].exists()
        assert names[5].with_suffix(".link").stat().st_nlink == 2
        for path in (names[0], names[1], names[2], names[5]):
            os.unlink(path)
    return step


def readers(point, count, stack):
    """Unchanged files stay the same, by path, by descriptor and mapped."""
    fds = [stack.enter_context(opened(point / f"still{k}")) for k in range(count)]
    views = [stack.enter_context(mmap.mmap(fd, 200_000, prot=mmap.PROT_READ)) for fd in fds]

    def step(number):
        k = number % count
        assert os.pread(fds[k], 200_000, 0) == views[k][:] == (point / f"still{k}").read_bytes() == blob(200_000, k)
    return step


def _prepare(siblings):
    for name in ("many", "tree"):
        (siblings.lower / name).mkdir()
    for k in range(30):
        lowers(siblings, **{f"tree/f{k}": blob(5000 * (k % 4), k)})
    for k in range(3000):
        lowers(siblings, **{f"many/f{k}": b"f%d" % k})
    for k in range(4):
        lowers(siblings, **{f"data{k}": blob(300_000, k), f"still{k}": blob(200_000, k)})
    return [siblings.shared() for _ in range(4)]


def _workers(points, stack):
    workers = [Worker(name_changes(point / "names", k)) for k, point in enumerate(points)]
    workers += [Worker(data_changes(point / f"data{k}", k)) for k, point in enumerate(points)]
    workers += [Worker(switches(point, b"%d" % k)) for k, point in enumerate(points)]
    workers += [Worker(readers(point, 4, stack)) for point in points]
    workers += [Worker(programs(points[0] / "tree", points[0] / "built"))]
    for worker in workers:
        worker.start()
    return workers


def _finish(siblings, points, workers, stack):
    problems = []
    for worker in workers:
        try:
            worker.stop()
        except BaseException as e:
            problems.append(repr(e))
    stack.close()
    assert not problems, problems
    for k in range(4):
        assert (siblings.lower / f"data{k}").read_bytes() == blob(300_000, k)
        for point in points:
            assert (point / f"still{k}").read_bytes() == blob(200_000, k)
            if point != points[k]:
                assert (point / f"data{k}").read_bytes() == blob(300_000, k)
    assert {path.read_bytes() for path in (siblings.lower / "many").iterdir()} == {b"f%d" % k for k in range(3000)}
    assert siblings.count() == len(points)


def _work_under_kills(siblings, seconds, kills):
    points = _prepare(siblings)
    stack = contextlib.ExitStack()
    workers = _workers(points, stack)
    seen = None
    with Killer(siblings.server, seconds) as killer:
        while not wait_until(lambda: killer.kills >= kills or any(worker.error for worker in workers), 60, 0.05):
            before, seen = seen, sum(worker.steps for worker in workers)
            assert seen != before, f"nothing was done for a minute, after {seen} steps and {killer.kills} deaths"
            siblings.server.watch()
    print(f"{killer.kills} deaths, {[worker.steps for worker in workers]} steps")
    _finish(siblings, points, workers, stack)


def test_nothing_is_lost_under_load(siblings):
    _work_under_kills(siblings, 0.3, 30)


def test_nothing_is_lost_in_upgrades_under_load(moving):
    points = _prepare(moving)
    stack = contextlib.ExitStack()
    workers = _workers(points, stack)
    for _ in range(8):
        steps = sum(worker.steps for worker in workers)
        upgraded(moving.server, len(points))
        assert wait_until(lambda: sum(worker.steps for worker in workers) > steps + 20 or
                          any(worker.error for worker in workers), 60)
    _finish(moving, points, workers, stack)


@pytest.mark.slow
def test_nothing_is_lost_in_many_deaths(siblings):
    _work_under_kills(siblings, 0.3, 600)
