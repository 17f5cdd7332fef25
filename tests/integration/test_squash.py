# SPDX-License-Identifier: Apache-2.0
"""Neighbouring snapshots become one, and everything looks as it did."""
import contextlib
import fcntl
import json
import mmap
import os
import random
import shutil
import socket
import stat
import subprocess
import threading
import time

import pytest

from support import layers, linux, treestate
from support.content import KIB, blob
from support.expect import opened, write_at
from support.server import wait_until
from support.snapshots import BRANCHES, Snapshots, change, change_at_random, change_more, looks


_BRANCHES_ON = ("branches=on",)
_OPTIONS = {"auto": (), "cached": ("io=cached",), "writeback": ("io=cached", "writeback=on"), "direct": ("io=direct",)}


@pytest.fixture
def s(request, stack, shared):
    made = Snapshots(stack, shared, *getattr(request, "param", _BRANCHES_ON))
    before = treestate.take(stack.lower())
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)
    assert not treestate.differences(before, treestate.take(stack.lower()))


def squash(s, *arguments, code=0):
    done = subprocess.run([s.stack.program, "squash", "-o", f"lowerdir={s.stack.lower()},upperdir={s.place.upper}", *arguments],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


def snapshots(s):
    done = s.call("--json", s.place.upper, command="snapshots")
    assert done.returncode == 0, done.stderr
    return [one["name"] for one in json.loads(done.stdout)["snapshots"]]


def unmounted(s):
    linux.umount(s.m)


def test_all_become_one(s):
    change(s.m)
    s.take("one")
    change_more(s.m)
    s.take("two")
    (s.m / "live").write_text("live")
    write_at(s.m / "big", b"live", 5000)
    before = looks(s.m)
    unmounted(s)
    assert "2 snapshots became one" in squash(s)
    assert snapshots(s) == ["two"]
    s.mount()
    assert looks(s.m) == before


def test_check_finds_nothing(s):
    change(s.m)
    s.take("one")
    change_more(s.m)
    s.take("two")
    unmounted(s)
    squash(s)
    done = layers.check(s.stack.program, s.place.upper, [s.stack.lower()])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_range_of_them(s):
    for n in range(5):
        (s.m / f"file{n}").write_text(str(n))
        write_at(s.m / "big", f"{n}".encode() * 10, n * 50_000)
        if n:
            (s.m / f"file{n - 1}").unlink()
        s.take(f"s{n}")
    before = looks(s.m)
    unmounted(s)
    squash(s, "s1..s3")
    assert sorted(snapshots(s)) == ["s0", "s3", "s4"]
    s.mount()
    assert looks(s.m) == before
    s.back("s3")
    assert (s.m / "file3").read_text() == "3" and not (s.m / "file4").exists()
    assert (s.m / "big").read_bytes()[150_000:150_010] == b"3" * 10


def test_blocks_are_copied_and_not_files(s):
    write_at(s.m / "big", b"NEW", 70_000)
    s.take("one")
    write_at(s.m / "big", b"NEW", 170_000)
    s.take("two")
    unmounted(s)
    assert "for which 8.0 KiB were copied" in squash(s)
    snapshot, = (p for p in (s.place.upper / BRANCHES).iterdir() if p.is_dir())
    assert (snapshot / "big").stat().st_blocks * 512 <= 16 * KIB
    s.mount()
    now = (s.m / "big").read_bytes()
    assert now[70_000:70_003] == now[170_000:170_003] == b"NEW"


def test_modes_that_let_nobody_in(s):
    (s.m / "whole").write_bytes(blob(30 * KIB, 9))
    os.chmod(s.m / "whole", 0)
    write_at(s.m / "big", b"ONE", 70_000)
    s.take("one")
    write_at(s.m / "big", b"TWO", 170_000)
    os.chmod(s.m / "big", 0o200)
    s.take("two")
    squash_live(s)
    linux.umount(s.m)
    s.mount()
    assert [os.stat(s.m / name).st_mode & 0o7777 for name in ("whole", "big")] == [0, 0o200]
    linux.umount(s.m)
    snapshot, = (p for p in (s.place.upper / BRANCHES).iterdir() if p.is_dir())
    for name in ("whole", "big"):
        os.chmod(snapshot / name, 0o600)
    s.mount()
    assert (s.m / "whole").read_bytes() == blob(30 * KIB, 9)
    assert (s.m / "big").read_bytes()[170_000:170_003] == b"TWO"


def test_a_whole_file_is_linked(s):
    (s.m / "whole").write_bytes(blob(300 * KIB, 9))
    s.take("one")
    (s.m / "other").write_text("other")
    s.take("two")
    number = os.stat(s.m / "whole").st_ino
    unmounted(s)
    assert "for which 0 B were copied" in squash(s)
    s.mount()
    assert os.stat(s.m / "whole").st_ino == number
    assert os.stat(s.m / "whole").st_nlink == 1


def make_nodes(m):
    os.mkfifo(m / "fifo")
    os.mkfifo(m / "two1")
    os.link(m / "two1", m / "two2")
    os.symlink("fifo", m / "symlink")
    os.link(m / "symlink", m / "symlink2")
    with socket.socket(socket.AF_UNIX) as at:
        at.bind(str(m / "socket"))
    # Not every root may.
    with contextlib.suppress(PermissionError):
        os.mknod(m / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mkfifo(m / "unchanged")


def change_nodes(m, mode):
    for name in ("fifo", "two1", "socket", "device", "from-below"):
        if os.path.lexists(m / name):
            os.chmod(m / name, mode)
    os.utime(m / "symlink", (mode, mode), follow_symlinks=False)


def are_listed_so(m):
    return all(entry.inode() == entry.stat(follow_symlinks=False).st_ino for entry in os.scandir(m))


@pytest.mark.parametrize("is_live", [False, True], ids=["offline", "live"])
def test_nodes_keep_their_numbers(stack, shared, is_live):
    """Sockets, fifos, devices and symlinks that a later snapshot changed, also with two names, and when it is done again."""
    os.mkfifo(stack.lower() / "from-below")
    s = Snapshots(stack, shared, *_BRANCHES_ON)
    make_nodes(s.m)
    s.take("one")
    for name, mode in (("two", 0o640), ("three", 0o604)):
        change_nodes(s.m, mode)
        s.take(name)
        # Where no attribute can be set on a node a mount made anew shows another number than the one before.
        linux.umount(s.m)
        s.mount()
        before = looks(s.m)
        if is_live:
            squash_live(s)
        else:
            unmounted(s)
            squash(s)
            s.mount()
        assert looks(s.m) == before and are_listed_so(s.m)
        linux.umount(s.m)
        s.mount()
        assert looks(s.m) == before and are_listed_so(s.m)
    linux.umount(s.m)
    s.mount()
    # Nobody else gets such a number.
    made = set()
    for n in range(50):
        os.mkfifo(s.m / f"later{n}")
        made.add(os.lstat(s.m / f"later{n}").st_ino)
    assert not made & {what[0] for what in before.values()}
    linux.umount(s.m)
    wait_until(lambda: shared.count() == 0)
    done = layers.check(s.stack.program, s.place.upper, [s.stack.lower()])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("seed", range(24))
def test_any_changes(s, seed):
    rng = random.Random(seed)
    count = rng.randrange(2, 6)
    shown = {}
    for n in range(count):
        change_at_random(rng, s.m, 25)
        s.take(f"s{n}")
        shown[f"s{n}"] = looks(s.m)
    change_at_random(rng, s.m, 10)
    before = looks(s.m)
    first, last = sorted(rng.sample(range(count), 2))
    unmounted(s)
    squash(s, f"s{first}..s{last}")
    left = [f"s{n}" for n in range(count) if not first <= n < last]
    assert sorted(snapshots(s)) == left
    s.mount()
    now = looks(s.m)
    assert now == before
    change_at_random(rng, s.m, 10)
    for name in left:
        s.back(name)
        now = looks(s.m)
        assert now == shown[name]


def command(s, name):
    return [s.stack.program, name, "-q", "-o", f"lowerdir={s.stack.lower()},upperdir={s.place.upper}"]


def run_and_kill(call, number, arguments):
    """SIGKILL comes with the system call of that name and number."""
    if not shutil.which("strace"):
        pytest.skip("no strace to kill at a system call")
    # Leaks cannot be looked for in a program that is traced.
    environment = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    return subprocess.run(["strace", "-f", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}",
                           *arguments], timeout=100, env=environment, check=False)


_CALLS = ("mkdirat", "linkat", "renameat", "renameat2", "unlinkat", "pwrite64", "fsetxattr", "fsync")


@pytest.mark.parametrize("call", _CALLS)
def test_killed_at_any_call(s, call):
    """Before the exchange of names the snapshots are what they were, and afterwards they are one."""
    change(s.m)
    s.take("one")
    change_more(s.m)
    s.take("two")
    before = looks(s.m)
    unmounted(s)
    names = ["one", "two"]
    killed = 0
    for number in (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 30, 45):
        done = run_and_kill(call, number, command(s, "squash"))
        killed += done.returncode != 0
        s.mount()
        assert looks(s.m) == before, (call, number)
        assert not (s.place.upper / BRANCHES / "squash").exists()
        left = snapshots(s)
        assert left in (names, names[1:]), (call, number)
        if left != names:
            # Something for the next one.
            write_at(s.m / "big", b"MORE", number * 5000)
            (s.m / "hard2").write_text(str(number))
            names = [names[1], s.take(f"s{number}")]
            before = looks(s.m)
        linux.umount(s.m)
        if done.returncode == 0:
            break
    assert killed


# ---- mounts that are in use ----


def squash_live(s, *arguments):
    done = s.call("-q", s.m, *arguments, command="squash")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


@pytest.mark.parametrize("s", [_BRANCHES_ON, *_OPTIONS.values()], ids=["branches", *_OPTIONS], indirect=True)
@pytest.mark.parametrize("seed", range(6))
def test_any_changes_in_a_mount_that_is_used(s, seed):
    # What is written back later has times that the kernel knows alone.
    kept = 5 if "writeback=on" in s.options else 6
    rng = random.Random(seed)
    count = rng.randrange(2, 6)
    shown = {}
    for n in range(count):
        change_at_random(rng, s.m, 25)
        s.take(f"s{n}")
        shown[f"s{n}"] = looks(s.m, kept)
    change_at_random(rng, s.m, 10)
    before = looks(s.m, kept)
    first, last = sorted(rng.sample(range(count), 2))
    squash_live(s, f"s{first}..s{last}")
    left = [f"s{n}" for n in range(count) if not first <= n < last]
    assert sorted(snapshots(s)) == left
    assert looks(s.m, kept) == before
    linux.umount(s.m)
    s.mount()
    assert looks(s.m, kept) == before
    change_at_random(rng, s.m, 10)
    for name in left:
        s.back(name)
        assert looks(s.m, kept) == shown[name]


def test_open_files_go_on(s):
    write_at(s.m / "big", b"ONE", 70_000)
    (s.m / "whole").write_bytes(blob(40 * KIB, 3))
    (s.m / "there").mkdir()
    for n in range(40):
        (s.m / "there" / f"f{n}").write_text(str(n))
    s.take("one")
    write_at(s.m / "big", b"TWO", 170_000)
    write_at(s.m / "whole", b"TWO", 10_000)
    s.take("two")
    want, numbers = (s.m / "big").read_bytes(), {p: os.stat(s.m / p).st_ino for p in ("big", "whole", "there", "hard1")}
    with opened(s.m / "big", os.O_RDONLY) as big, opened(s.m / "whole", os.O_RDWR) as whole, opened(s.m / "hard1", os.O_RDONLY) as hard, \
            mmap.mmap(big, 0, prot=mmap.PROT_READ) as mapped, os.scandir(s.m / "there") as listing:
        fcntl.flock(whole, fcntl.LOCK_EX)
        seen_before = {next(listing).name for _ in range(10)}
        squash_live(s)
        assert os.pread(big, 300 * KIB, 0) == want == mapped[:]
        assert os.pread(hard, 10, 0) == b"hard"
        os.pwrite(whole, b"THREE", 20_000)
        assert {p: os.stat(s.m / p).st_ino for p in numbers} == numbers
        assert os.fstat(whole).st_ino == numbers["whole"]
        assert seen_before | {e.name for e in listing} == {f"f{n}" for n in range(40)}
    now = bytearray(blob(40 * KIB, 3))
    now[10_000:10_003] = b"TWO"
    now[20_000:20_005] = b"THREE"
    assert (s.m / "whole").read_bytes() == now
    linux.umount(s.m)
    s.mount()
    assert (s.m / "whole").read_bytes() == now and os.stat(s.m / "whole").st_ino == numbers["whole"]


def test_file_that_would_not_be_seen_any_more(s):
    (s.m / "whole").write_text("first")
    s.take("one")
    with opened(s.m / "whole", os.O_RDONLY) as whole:
        (s.m / "new").write_text("second")
        os.rename(s.m / "new", s.m / "whole")
        s.take("two")
        done = s.call(s.m, command="squash")
        assert done.returncode == 1 and "a file is open that was removed" in done.stderr
        assert os.pread(whole, 10, 0) == b"first"
        assert snapshots(s) == ["one", "two"]
        assert not (s.place.upper / BRANCHES / "squash").exists()
    squash_live(s)
    assert snapshots(s) == ["two"] and (s.m / "whole").read_text() == "second"


def test_nobody_sees_the_names_that_files_get(s):
    for n in range(300):
        (s.m / f"f{n}").write_text(str(n))
    s.take("one")
    (s.m / "other").write_text("other")
    s.take("two")
    (s.m / "third").write_text("third")
    linux.umount(s.m)
    s.mount()
    is_over, wrong = threading.Event(), []

    def look():
        while not is_over.is_set():
            for n in range(300):
                links = os.stat(s.m / f"f{n}").st_nlink
                if links != 1:
                    wrong.append((n, links))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        squash_live(s)
    finally:
        is_over.set()
        looking.join()
    assert not wrong
    assert {os.stat(s.m / f"f{n}").st_nlink for n in range(300)} == {1}


def test_under_load(s):
    """A file that is written and read all the time, while snapshots are taken and merged."""
    data = bytearray(blob(300 * KIB))
    is_over, problems = threading.Event(), []

    def work():
        rng = random.Random(1)
        try:
            with opened(s.m / "big", os.O_RDWR) as fd:
                while not is_over.is_set():
                    off = rng.randrange(0, 290_000)
                    piece = rng.randbytes(rng.randrange(1, 9000))
                    os.pwrite(fd, piece, off)
                    data[off:off + len(piece)] = piece
                    at = rng.randrange(0, 290_000)
                    if os.pread(fd, 5000, at) != data[at:at + 5000]:
                        problems.append(at)
                    with open(s.m / f"t{rng.randrange(9)}", "wb") as f:
                        f.write(piece)
        except OSError as e:
            problems.append(e)

    working = threading.Thread(target=work)
    working.start()
    try:
        for n in range(12):
            s.take(f"s{n}")
            time.sleep(0.05)
            if n % 3:
                squash_live(s)
    finally:
        is_over.set()
        working.join()
    assert not problems
    assert (s.m / "big").read_bytes() == data
    linux.umount(s.m)
    s.mount()
    assert (s.m / "big").read_bytes() == data


def test_server_is_killed_meanwhile(s):
    for n in range(400):
        (s.m / f"f{n}").write_bytes(blob(9 * KIB, n))
    s.take("one")
    for n in range(0, 400, 2):
        write_at(s.m / f"f{n}", b"TWO", 5000)
    s.take("two")
    before = looks(s.m)
    for wait in (0.01, 0.03, 0.05, 0.08, 0.12, 0.2):
        squashing = subprocess.Popen([s.stack.program, "squash", "-q", s.m], stderr=subprocess.DEVNULL,
                                     env={**os.environ, **s.shared.environment})
        time.sleep(wait)
        s.shared.kill_server()
        squashing.wait(60)
        now = looks(s.m)
        assert now == before
        assert not (s.place.upper / BRANCHES / "squash").exists()
    squash_live(s)
    now = looks(s.m)
    assert now == before and snapshots(s) == ["two"]


def test_what_cannot_be_done(s):
    for n in range(3):
        (s.m / "own").write_text(str(n))
        s.take(f"s{n}")
    s.back("s0")
    for names, said in (("s0..s9", "no snapshot of this name"), ("s2..s0", "does not stand on"), ("s1..s2", "does not stand on these"),
                        ("s0..s2", "")):
        done = s.call(s.m, names, command="squash")
        assert done.returncode == 1 and said in done.stderr, done
    for names in ("s1", "..", "s1..", "../../x..s1"):
        done = s.call(s.m, names, command="squash")
        assert done.returncode == 2 and "two names" in done.stderr, done
    assert {"s0", "s1", "s2"} <= set(snapshots(s))
    assert (s.m / "own").read_text() == "0"


def test_branch_holds_what_it_stands_on(s):
    (s.m / "own").write_text("one")
    s.take("one")
    (s.m / "own").write_text("two")
    s.take("two")
    dest = s.place.base / "branch"
    done = s.call(f"{s.m}@one", dest, command="branch")
    assert done.returncode == 0, done.stderr
    try:
        done = s.call(s.m, command="squash")
        assert done.returncode == 1 and "a mount uses one" in done.stderr
        assert (dest / "own").read_text() == "one"
    finally:
        linux.umount(dest)
    squash_live(s)


# ---- flatten ----


def shows(m):
    """But for numbers, which a plain upper has of its own."""
    return {path: what[1:] for path, what in looks(m).items()}


def is_plain(upper):
    attributes = {name for path in [upper, *upper.rglob("*")] for name in os.listxattr(path, follow_symlinks=False)}
    return not any(name.endswith((".veneer.partial", ".veneer.number", ".veneer.origin")) for name in attributes)


@pytest.mark.parametrize("seed", range(8))
def test_flatten_makes_all_of_it_plain(s, seed):
    rng = random.Random(seed)
    for n in range(seed % 4 + 1):
        change_at_random(rng, s.m, 25)
        s.take(f"s{n}")
    change_at_random(rng, s.m, 15)
    before = shows(s.m)
    unmounted(s)
    done = subprocess.run(command(s, "flatten"), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (s.place.upper / BRANCHES).exists() and is_plain(s.place.upper)
    s.mount()
    assert shows(s.m) == before


@pytest.mark.parametrize("call", ["renameat", "renameat2", "unlinkat", "linkat", "fsync"])
def test_flatten_killed_at_any_call(s, call):
    change(s.m)
    s.take("one")
    change_more(s.m)
    before = shows(s.m)
    unmounted(s)
    killed = 0
    for number in (*range(1, 12), 15, 20, 30, 45, 70, 100):
        done = run_and_kill(call, number, command(s, "flatten"))
        killed += done.returncode != 0
        s.mount()
        now = shows(s.m)
        if done.returncode != 0:
            # The next run restores the root's time.
            now[f"{s.m}/."] = before[f"{s.m}/."]
        assert now == before, (call, number)
        linux.umount(s.m)
        if done.returncode == 0:
            break
    assert killed
    assert not (s.place.upper / BRANCHES).exists() and is_plain(s.place.upper)


def test_flatten_loses_no_snapshot_beside(s):
    (s.m / "own").write_text("one")
    s.take("one")
    (s.m / "own").write_text("two")
    s.back("one")
    linux.umount(s.m)
    before = s.frozen()
    done = subprocess.run(command(s, "flatten"), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    assert done.returncode == 1 and "does not stand on" in done.stderr
    assert s.frozen() == before


def test_snapshots_are_taken_meanwhile(s):
    for n in range(3000):
        (s.m / f"f{n}").write_bytes(blob(5 * KIB, n))
    s.take("one")
    for n in range(0, 3000, 2):
        write_at(s.m / f"f{n}", b"TWO", 4500)
    s.take("two")
    before = looks(s.m)
    squashing = subprocess.Popen([s.stack.program, "squash", "-q", s.m, "one..two"], stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, **s.shared.environment})
    taken = 0
    while squashing.poll() is None:
        write_at(s.m / "big", b"LATER", taken * 5000 % 290_000)
        s.take(f"later{taken}")
        taken += 1
    assert squashing.returncode == 0, squashing.stderr.read()
    squashing.stderr.close()
    assert taken > 1 and "one" not in snapshots(s) and {"two", "later0"} <= set(snapshots(s))
    now = looks(s.m)
    for path in (str(s.m / "big"), f"{s.m}/."):
        now.pop(path), before.pop(path)
    assert now == before
    squash_live(s)


@pytest.mark.parametrize("s", [(), _BRANCHES_ON, ("io=cached",)], ids=["auto", "branches", "cached"], indirect=True)
def test_file_that_is_open_since_before_it_was_changed(s):
    """The kernel may read the file of an older snapshot past us: that is not emptied."""
    want = blob(300 * KIB, 9)
    (s.m / "whole").write_bytes(want)
    s.take("one")
    with opened(s.m / "whole", os.O_RDONLY) as fd:
        assert os.pread(fd, 300 * KIB, 0) == want
        write_at(s.m / "whole", b"TWO", 100_000)
        shown = os.pread(fd, 300 * KIB, 0)
        s.take("two")
        assert os.pread(fd, 300 * KIB, 0) == shown
        squash_live(s)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, 300 * KIB, 0) == shown
    now = bytearray(want)
    now[100_000:100_003] = b"TWO"
    assert (s.m / "whole").read_bytes() == now
