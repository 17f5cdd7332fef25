# SPDX-License-Identifier: Apache-2.0
"""The server dies, and programs in its mounts do not notice: another server goes on where it was."""
import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading

import pytest

from support import expect, linux, pagecache
from support.content import BLOCK, MIB, blob
from support.expect import fails_with, names_in, read_at, write_at
from support.killer import Killer
from support.places import Place
from support.server import wait_until
from support.shared import child_of, kill, wait_for_death
from support.waiting import wait_until_old

_PASSTHROUGH = ["", "io=cached", "io=direct"]


@pytest.fixture(params=_PASSTHROUGH, ids=["auto", "cached", "direct"])
def mount(request, stack, shared):
    """Fills the lower, then mounts: mount(files) with {name: bytes}."""
    def make(files):
        for name, content in files.items():
            path = stack.lower() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        stack.remember_lowers()
        place = Place(stack, "p")
        return place.mount(stack, shared, *filter(None, [request.param]))
    return make


def opened(path, flags=os.O_RDWR, mode=0o600):
    return expect.opened(path, flags, mode)


# ---- what is open goes on ----

def _flat_files(stack, shared, mnt):
    said = subprocess.run([stack.program, "stats", "--json", mnt], check=True, stdout=subprocess.PIPE,
                          env={**os.environ, **shared.environment})
    return json.loads(said.stdout)["mounts"][0]["flat_copies"]["files"]


@pytest.mark.needs_root("a user namespace may not register backing files")
def test_readers_of_a_file_that_was_copied_for_them_go_on(stack, shared):
    """A partial file of a lower layer (flat_copy.h), in two mounts of that layer."""
    want = bytearray(blob(300_000))
    (stack.lower() / "f").write_bytes(want)
    before = Place(stack, "before")
    write_at(before.mount(stack, shared) / "f", b"NEW", 70_000)
    want[70_000:70_003] = b"NEW"
    linux.umount(before.mnt)
    wait_until_old(before.upper / "f", stack.lower() / "f")  # what was changed just now is not copied
    one, two = (Place(stack, name, [before.upper, stack.lower()]).mount(stack, shared) for name in ("one", "two"))
    with opened(one / "f", os.O_RDONLY) as fd:
        for k in range(300):
            os.pread(fd, BLOCK, k * 7 % 73 * BLOCK)
    assert wait_until(lambda: _flat_files(stack, shared, one) == 1, 60, 0.1)
    with opened(two / "f", os.O_RDONLY) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        assert os.pread(fd, len(want), 0) == want
        assert pagecache.own_pages(fd) == 0
        shared.kill_server()
        assert os.pread(fd, len(want), 0) == view[:] == want
        assert (one / "f").read_bytes() == (two / "f").read_bytes() == want
        write_at(two / "f", b"LATER", 90_000)
        assert (one / "f").read_bytes() == want
        want[90_000:90_005] = b"LATER"
        assert (two / "f").read_bytes() == want



def test_files_that_were_open_are_read_and_written(mount, shared):
    m = mount({name: blob(300_000, k) for k, name in enumerate(("lower", "partial", "fresh", "cut"))})
    with contextlib.ExitStack() as stack:
        fds = {name: stack.enter_context(opened(m / name, os.O_RDONLY if name == "lower" else os.O_RDWR))
               for name in ("lower", "partial", "fresh", "cut")}
        own = stack.enter_context(opened(m / "own", os.O_RDWR | os.O_CREAT))
        os.pwrite(own, b"own", 0)
        os.pwrite(fds["partial"], b"before", 5000)
        os.ftruncate(fds["cut"], 10_000)
        before = {name: os.fstat(fd) for name, fd in fds.items()}
        shared.kill_server()
        assert os.pread(fds["lower"], 300_000, 0) == blob(300_000, 0)
        want = bytearray(blob(300_000, 1))
        want[5000:5006] = b"before"
        os.pwrite(fds["partial"], b"after", 200_000)
        want[200_000:200_005] = b"after"
        assert os.pread(fds["partial"], 300_001, 0) == want
        os.pwrite(fds["fresh"], b"first write", 7)
        assert os.pread(fds["fresh"], 30, 0) == blob(300_000, 2)[:7] + b"first write" + blob(300_000, 2)[18:30]
        assert os.pread(fds["cut"], 20_000, 0) == blob(300_000, 3)[:10_000]
        assert os.pread(own, 10, 0) == b"own"
        os.pwrite(own, b"OWN", 3)
        os.fsync(own)
        for name, fd in fds.items():
            after = os.fstat(fd)
            assert (after.st_ino, after.st_dev, after.st_nlink) == \
                (before[name].st_ino, before[name].st_dev, before[name].st_nlink)
    assert (m / "own").read_bytes() == b"ownOWN"


def test_files_without_a_name_go_on(mount, shared):
    m = mount({name: blob(100_000, k) for k, name in enumerate(("lower", "partial", "replaced"))})
    with contextlib.ExitStack() as stack:
        lower = stack.enter_context(opened(m / "lower", os.O_RDONLY))
        partial, replaced = (stack.enter_context(opened(m / name)) for name in ("partial", "replaced"))
        own = stack.enter_context(opened(m / "own", os.O_RDWR | os.O_CREAT))
        nameless = stack.enter_context(opened(m, os.O_RDWR | os.O_TMPFILE))
        os.pwrite(partial, b"changed", 50_000)
        os.pwrite(own, b"own", 0)
        os.pwrite(nameless, b"no name", 0)
        for name in ("lower", "partial", "own"):
            os.unlink(m / name)
        (m / "other").write_bytes(b"other")
        os.rename(m / "other", m / "replaced")
        for _ in range(3):
            shared.kill_server()
            assert os.pread(lower, 100_000, 0) == blob(100_000, 0)
            assert os.pread(partial, 100_000, 0) == \
                blob(100_000, 1)[:50_000] + b"changed" + blob(100_000, 1)[50_007:]
            assert os.pread(replaced, 100_000, 0) == blob(100_000, 2)
            assert os.pread(own, 10, 0) == b"own" and os.pread(nameless, 10, 0) == b"no name"
            assert [os.fstat(fd).st_nlink for fd in (lower, partial, replaced, own, nameless)] == [0] * 5
        os.pwrite(own, b"!", 3)
        os.fchmod(own, 0o640)
        assert os.fstat(own).st_mode & 0o777 == 0o640 and os.pread(own, 10, 0) == b"own!"
        os.pwrite(partial, b"x", 0)
        assert os.pread(partial, 2, 0) == b"x" + blob(100_000, 1)[1:2]
        linux.link_descriptor(nameless, m / "named")
    assert (m / "named").read_bytes() == b"no name"
    assert names_in(m) == ["named", "replaced"]


def test_a_directory_being_read_is_read_to_its_end(mount, shared):
    m = mount({f"d/lower{k}": b"" for k in range(300)})
    for k in range(300):
        (m / "d" / f"upper{k}").touch()
    libc = ctypes.CDLL(None, use_errno=True)
    seen, piece = [], ctypes.create_string_buffer(1024)
    with opened(m / "d", os.O_RDONLY | os.O_DIRECTORY) as fd:
        while (n := libc.syscall(217, fd, piece, len(piece))) > 0:
            at = 0
            while at < n:
                length = int.from_bytes(piece.raw[at + 16:at + 18], "little")
                seen.append(piece.raw[at + 19:at + length].split(b"\0")[0].decode())
                at += length
            if len(seen) % 3 == 0:
                shared.kill_server()
        assert n == 0, os.strerror(ctypes.get_errno())
    assert sorted(seen) == sorted([".", ".."] + [f"{kind}{k}" for kind in ("lower", "upper") for k in range(300)])


def test_mappings_go_on(mount, shared):
    m = mount({"f": blob(MIB, 1), "r": blob(MIB, 2)})
    with opened(m / "f") as fd, opened(m / "r", os.O_RDONLY) as other, mmap.mmap(fd, MIB) as writable, \
            mmap.mmap(other, MIB, prot=mmap.PROT_READ) as readable:
        writable[:4] = b"1234"
        shared.kill_server()
        assert readable[:] == blob(MIB, 2)
        writable[MIB // 2:MIB // 2 + 4] = b"5678"
        assert writable[:8] == b"1234" + blob(MIB, 1)[4:8]
        writable.flush()
        assert os.pread(fd, 4, MIB // 2) == b"5678"
    assert read_at(m / "f", 4, 0) == b"1234"


def test_locks_are_kept(mount, shared):
    m = mount({"f": b"f" * 100})
    with opened(m / "f") as fd, opened(m / "f") as other:
        fcntl.flock(fd, fcntl.LOCK_EX)
        shared.kill_server()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_removed_directory_somebody_is_in(mount, shared):
    m = mount({"d/f": b""})
    (m / "own").mkdir()
    with opened(m / "d", os.O_RDONLY) as lower, opened(m / "own", os.O_RDONLY) as own:
        shutil.rmtree(m / "d")
        os.rmdir(m / "own")
        shared.kill_server()
        for fd in (lower, own):
            assert os.listdir(fd) == [] and os.fstat(fd).st_nlink == 0
            with fails_with(errno.ENOENT):
                os.open("f", os.O_CREAT | os.O_RDWR, dir_fd=fd)


def test_hard_links_stay_one_file(mount, shared, stack):
    (stack.lower() / "a").write_bytes(b"one file")
    for name in "bcd":
        os.link(stack.lower() / "a", stack.lower() / name)
    m = mount({})
    assert [(m / name).stat().st_nlink for name in "abcd"] == [4] * 4
    shared.kill_server()
    os.unlink(m / "d")
    write_at(m / "b", b"ONE", 0)
    shared.kill_server()
    assert [(m / name).read_bytes() for name in "abc"] == [b"ONE file"] * 3
    assert {((m / name).stat().st_ino, (m / name).stat().st_nlink) for name in "abc"} == {((m / "a").stat().st_ino, 3)}


def test_numbers_stay(mount, shared):
    m = mount({f"d{k}/f{k}": b"%d" % k for k in range(20)})
    for k in range(10):
        write_at(m / f"d{k}" / f"f{k}", b"x", 0)
    os.rename(m / "d3", m / "moved")

    def numbers():
        return {os.path.join(top, name): os.lstat(os.path.join(top, name)).st_ino
                for top, dirs, files in os.walk(m) for name in dirs + files}
    before = numbers()
    shared.kill_server()
    assert numbers() == before
    # a kernel that forgot all looks them up again
    with contextlib.suppress(OSError):
        linux.syncfs(m)
    shared.kill_server()
    assert numbers() == before


# ---- under load ----

class Worker(threading.Thread):
    """Does body(step number) until told to stop; what it raises is the test's failure."""

    def __init__(self, body):
        super().__init__(daemon=True)
        self._body, self._end, self.error, self.steps = body, threading.Event(), None, 0

    def run(self):
        try:
            while not self._end.is_set():
                self._body(self.steps)
                self.steps += 1
        except BaseException as e:
            self.error = e

    def stop(self):
        self._end.set()
        self.join(60)
        if self.error:
            raise self.error
        assert not self.is_alive() and self.steps, "it hangs"


def name_changes(top, seed):
    """Each step changes names of its own and proves that each change happened once."""
    top.mkdir()
    dice = random.Random(seed)

    def step(number):
        a, b, c = (top / f"{number}{end}" for end in "abc")
        a.write_bytes(b"%d" % number)
        os.link(a, b)
        assert a.stat().st_nlink == 2
        os.rename(b, c)
        assert not b.exists()
        c.with_suffix(".d").mkdir()
        os.symlink("target", b)
        assert os.readlink(b) == "target"
        linux.renameat2(str(b), str(c), linux.RENAME_EXCHANGE)
        assert c.is_symlink() and b.read_bytes() == b"%d" % number
        os.setxattr(a, "user.x", b"%d" % number, os.XATTR_CREATE)
        assert os.getxattr(b, "user.x") == b"%d" % number
        os.removexattr(a, "user.x")
        os.rmdir(c.with_suffix(".d"))
        for path in dice.sample([a, b, c], 3):
            os.unlink(path)
        assert names_in(top) == []
    return step


def data_changes(path, seed):
    """A model of one file beside it."""
    dice, model = random.Random(seed), bytearray(path.read_bytes())

    def step(number):
        with opened(path) as fd:
            for _ in range(8):
                off, length = dice.randrange(len(model) + 5000), dice.choice((1, 100, BLOCK, 70_000))
                what = dice.randrange(5)
                if what == 0 and len(model) > 100_000:
                    del model[off:]
                    os.ftruncate(fd, len(model))
                elif what == 1:
                    length = max(min(length, len(model) - off), 0)
                    linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, off, max(length, 1))
                    model[off:off + length] = bytes(length)
                elif what == 2:
                    data = dice.randbytes(length)
                    with opened(path, os.O_WRONLY | os.O_APPEND) as end:
                        assert os.write(end, data) == length
                    model.extend(data)
                else:
                    data = dice.randbytes(length)
                    assert os.pwrite(fd, data, off) == length
                    model.extend(bytes(max(off - len(model), 0)))
                    model[off:off + length] = data
            if dice.random() < 0.3:
                os.fsync(fd)
        assert path.read_bytes() == model, f"step {number}"
    return step


def database(path):
    """A table whose rows add up, whenever it is looked at."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
    db.execute("create table if not exists t (k integer primary key, v int)")

    def step(number):
        db.execute("begin")
        db.execute("insert into t values (?, ?)", (number, number))
        db.execute("update t set v = v + 1 where k = ?", (number // 2,))
        db.execute("commit")
        count, = db.execute("select count(*) from t").fetchone()
        assert count == number + 1
        if number % 50 == 49:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    return step


def programs(source, top):
    """What a build does with a tree: unpack, search, pack, remove."""
    top.mkdir()

    def step(number):
        target = top / str(number)
        script = f"mkdir {target} && cd {source} && tar cf - . | tar xf - -C {target} && cd {target} && " \
            f"diff -r {source} {target} && find . -type f | xargs touch && rm -r {target}"
        done = subprocess.run(["/bin/sh", "-ec", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return step


_MIXED = [], ["io=cached"], []
_KEEPING = (["io=cached", "writeback=on"],) * 3


def stop_all(workers):
    """And only then tells the failures of any."""
    problems = []
    for worker in workers:
        try:
            worker.stop()
        except BaseException as e:
            problems.append(repr(e))
    assert not problems, problems


def _work_under_kills(stack, shared, seconds, kills, options=_MIXED):
    for k in range(3):
        (stack.lower() / f"data{k}").write_bytes(blob(300_000, k))
    for k in range(40):
        path = stack.lower() / "tree" / f"d{k % 5}" / f"f{k}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob(5000 * (k % 4), k))
    stack.remember_lowers()
    mounts = [Place(stack, f"p{k}").mount(stack, shared, *option) for k, option in enumerate(options)]
    workers = [Worker(name_changes(m / "names", k)) for k, m in enumerate(mounts)]
    workers += [Worker(data_changes(m / f"data{k}", k)) for k, m in enumerate(mounts)]
    workers += [Worker(database(mounts[0] / "db")), Worker(programs(mounts[1] / "tree", mounts[1] / "built"))]
    for worker in workers:
        worker.start()
    seen = None
    with Killer(shared, seconds) as killer:
        while not wait_until(lambda: killer.kills >= kills or any(worker.error for worker in workers), 60, 0.05):
            # they may take as long as it takes, but must not stand still
            before, seen = seen, sum(worker.steps for worker in workers)
            assert seen != before, f"nothing was done for a minute, after {seen} steps and {killer.kills} deaths"
            shared.watch()
    print(f"{killer.kills} deaths, {[worker.steps for worker in workers]} steps")
    stop_all(workers)
    assert shared.count() == 3


def test_nothing_is_lost_under_load(stack, shared):
    _work_under_kills(stack, shared, 0.3, 50)


def test_nothing_that_the_kernel_keeps_is_lost_under_load(stack, shared):
    _work_under_kills(stack, shared, 0.3, 50, _KEEPING)


@pytest.mark.slow
@pytest.mark.parametrize("options", [_MIXED, _KEEPING], ids=["mixed", "writeback"])
def test_nothing_is_lost_in_a_thousand_deaths(stack, shared, options):
    _work_under_kills(stack, shared, 0.3, 1000, options)


def test_mounts_come_and_go_while_it_dies(stack, shared):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    with Killer(shared, 0.15):
        for k in range(25):
            place = Place(stack, f"p{k}")
            result = place.run(stack, shared)
            assert result.returncode == 0, result.stderr
            (place.mnt / "f").write_text("changed")
            assert (place.mnt / "f").read_text() == "changed"
            linux.umount(place.mnt)
    assert wait_until(lambda: shared.count() == 0)


# ---- the end ----

def test_without_a_supervisor_mounts_fail_cleanly_and_come_back(stack, shared):
    (stack.lower() / "f").write_bytes(blob(MIB))
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared)
    # whether the close of a file says so depends on how it was open
    with contextlib.suppress(OSError), opened(m / "f") as fd:
        os.pwrite(fd, b"synced", 5000)
        os.fsync(fd)
        os.pwrite(fd, b"acknowledged", 50_000)
        server = child_of(shared.process.pid)
        shared.process.kill()
        kill(server)
        # whose request waits while they die may be told another error
        shared.process.wait()
        wait_for_death(server)
        with fails_with(errno.ENOTCONN):
            os.listdir(m)
    linux.umount(m)
    shared.ensure()
    place.mount(stack, shared)
    assert read_at(m / "f", 6, 5000) == b"synced" and read_at(m / "f", 12, 50_000) == b"acknowledged"


def test_a_server_without_its_supervisor_goes_on(stack, shared):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared)
    server = child_of(shared.process.pid)
    shared.process.kill()
    shared.process.wait()
    (m / "f").write_text("changed")
    assert (m / "f").read_text() == "changed"
    linux.umount(m)
    kill(server)


def test_nothing_of_the_dead_stays_open(stack, shared):
    (stack.lower() / "f").write_bytes(blob(100_000))
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared)
    (m / "f").read_bytes()

    def count():
        return len(os.listdir(f"/proc/{shared.pid}/fd"))
    shared.kill_server()
    (m / "f").read_bytes()
    first = count()
    for _ in range(10):
        shared.kill_server()
        (m / "f").read_bytes()
    assert wait_until(lambda: count() <= first + 3), (first, count())
    linux.umount(m)
    assert wait_until(lambda: shared.count() == 0)


def test_a_server_that_was_told_to_go_dies_before_its_mounts_do(stack, shared):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared)
    with opened(m / "f") as fd:
        os.kill(shared.process.pid, signal.SIGTERM)
        assert wait_until(lambda: not any(name.endswith(".sock") for name in names_in(shared.directory)))
        for _ in range(2):
            server = shared.pid
            kill(server)
            assert wait_until(lambda: child_of(shared.process.pid) not in (None, server))
            assert os.pread(fd, 2, 0) == b"f" and (m / "f").read_bytes() == b"f"
    # it still is about to go: no more mounts
    assert not any(name.endswith(".sock") for name in names_in(shared.directory))
    linux.umount(m)
    assert shared.process.wait(20) == 0


def test_a_server_that_is_told_to_go_is_not_started_again(stack, shared):
    m = Place(stack, "p", [stack.lower()]).mount(stack, shared)
    shared.kill_server()
    linux.umount(m)
    os.kill(shared.pid, signal.SIGTERM)
    assert shared.process.wait(20) == 0
    assert shared.log.count("starting it again") == 1
