# SPDX-License-Identifier: Apache-2.0
"""share=pages: a snapshot of one of several mounts. What it has not changed stays what all have, and the others do not
notice."""
import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from support import pagecache, treestate
from support.content import MIB, blob
from support.expect import opened, write_at
from support.procfs import waits_for_lock
from support.server import wait_until
from support.siblings import Siblings
from support.snapshots import BRANCHES, change, fill
from test_killed_server import Worker, data_changes, name_changes
from test_share_killed import readers, switches
from test_share_locks import flock_is_free, holding, record, record_is_free

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog, request):
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]
    made = Siblings(session_dir / f"snapshots-{name}", veneer_bin, watchdog)
    fill(made.lower)
    (made.lower / "f").write_bytes(blob(4 * MIB))
    (made.lower / "late").write_bytes(blob(2 * MIB, 1))
    (made.lower / "many").mkdir()
    for k in range(600):
        (made.lower / "many" / f"f{k}").write_bytes(b"f%d" % k)
    for k in range(4):
        (made.lower / f"data{k}").write_bytes(blob(300_000, k))
        (made.lower / f"still{k}").write_bytes(blob(200_000, k))
    before = treestate.take(made.lower)
    yield made
    after = treestate.take(made.lower)
    made.close()
    assert not treestate.differences(before, after)


@pytest.fixture
def call(siblings):
    def run(command, *arguments):
        done = subprocess.run([siblings.program, command, *map(str, arguments)], text=True, capture_output=True, timeout=60,
                              env={**os.environ, **siblings.server.environment})
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run


def numbers(point):
    return {path.relative_to(point): (path.lstat().st_dev, path.lstat().st_ino) for path in point.rglob("*")}


# ---- what is common stays common ----

def test_unchanged_files_stay_one_inode_with_one_set_of_pages(siblings, call):
    a, b = siblings.shared(), siblings.shared()
    change(a)
    (b / "f").read_bytes()
    before = numbers(a), numbers(b)
    for name in ("one", "two"):
        call("snapshot", a, name)
        assert (numbers(a), numbers(b)) == before
        with opened(a / "f") as fd:
            assert pagecache.own_pages(fd) == 4 * MIB // mmap.PAGESIZE
    # Looked up for the first time after it, by either.
    assert (a / "late").read_bytes() == blob(2 * MIB, 1)
    with opened(b / "late") as fd:
        assert pagecache.own_pages(fd) == 2 * MIB // mmap.PAGESIZE
    assert (a / "late").stat().st_ino == (b / "late").stat().st_ino


def test_a_mount_of_an_upper_with_snapshots_shares_again(siblings, call):
    a, b = siblings.shared(name="a"), siblings.shared(name="b")
    change(a)
    call("snapshot", a)
    inside = numbers(a)
    call("umount", a)
    a = siblings.shared(name="a")
    assert {path: ino for path, (_, ino) in numbers(a).items()} == {path: ino for path, (_, ino) in inside.items()}
    assert (a / "f").stat().st_dev == (b / "f").stat().st_dev
    (b / "f").read_bytes()
    with opened(a / "f") as fd:
        assert pagecache.own_pages(fd) == 4 * MIB // mmap.PAGESIZE


def test_the_first_of_an_image_may_have_snapshots(siblings, call):
    a = siblings.shared(name="a")
    change(a)
    call("snapshot", a)
    call("umount", a)
    a, b = siblings.shared(name="a"), siblings.shared(name="b")
    assert a.stat().st_dev == b.stat().st_dev and (a / "own").read_text() == "own" and not (b / "own").exists()
    assert (a / "hard1").read_text() == (b / "hard1").read_text() == "hard"


# ---- what one changes is its own ----

@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_does_not_reach_the_others(siblings, call, when):
    a, b = siblings.shared(), siblings.shared()
    for point in (a, b):
        (point / "f").read_bytes()
    if when == "after":
        call("snapshot", a)
    write_at(a / "f", b"A", 5000)
    if when == "before":
        call("snapshot", a)
        write_at(a / "f", b"B", 6000)
    assert (b / "f").read_bytes() == blob(4 * MIB)
    assert (a / "f").read_bytes()[5000:5001] == b"A"
    os.truncate(b / "f", 7)
    assert (a / "f").stat().st_size == 4 * MIB


@pytest.mark.parametrize("moved", [False, True], ids=["", "moved"])
@pytest.mark.parametrize("how", ["unlink", "replace"])
def test_a_name_that_goes_takes_no_link_from_the_others(siblings, call, how, moved):
    """The kernel knows it by the common inode."""
    a, b = siblings.shared(), siblings.shared()
    if moved:
        os.rename(a / "d", a / "away")
    mine = a / ("away" if moved else "d") / "e" / "x"
    assert mine.read_text() == (b / "d" / "e" / "x").read_text() == "x"
    call("snapshot", a)
    if how == "unlink":
        mine.unlink()
    else:
        (a / "new").write_text("new")
        os.rename(a / "new", mine)
    assert (b / "d" / "e" / "x").stat().st_nlink == 1 and (b / "d" / "e" / "x").read_text() == "x"
    assert (mine.read_text() == "new") if how == "replace" else not mine.exists()


def test_a_moved_directory_has_the_common_files(siblings, call):
    a, b = siblings.shared(), siblings.shared()
    os.rename(a / "d", a / "away")
    call("snapshot", a)
    assert (a / "away" / "e" / "x").read_text() == "x"
    assert os.stat(a / "away" / "e" / "x").st_ino == os.stat(b / "d" / "e" / "x").st_ino
    (a / "away" / "e" / "x").write_text("own")
    assert (b / "d" / "e" / "x").read_text() == "x"


# ---- branches ----

def _branches(siblings, call, origin, count):
    for name in (siblings.base / f"branch{k}" for k in range(count)):
        call("branch", f"{origin}@one", name)
        yield name


@pytest.mark.parametrize("options", [("share=pages",), ()], ids=["share", "alone"])
def test_branches_have_one_image(siblings, call, options):
    a = pathlib.Path(siblings.mount(*options).mnt)
    write_at(a / "f", b"changed", 70_000)
    (a / "own").write_text("own")
    call("snapshot", a, "one")
    want = bytearray(blob(4 * MIB))
    want[70_000:70_007] = b"changed"
    for point in _branches(siblings, call, a, 5):
        assert (point / "f").read_bytes() == want and (point / "d" / "e" / "x").read_text() == "x"
    images = json.loads(call("stats", "--json"))["images"]
    assert sorted(image["mounts"] for image in images) in ([1, 5], [1, 1, 5])


def test_a_path_through_the_snapshots_makes_no_snapshot(siblings, call):
    """Of a layer whose map may change each mount has an image of its own."""
    a = pathlib.Path(siblings.mount(name="a").mnt)
    write_at(a / "f", b"changed", 70_000)
    call("snapshot", a, "one")
    b = siblings.mount(name="b")
    write_at(pathlib.Path(b.mnt) / "f", b"changed", 70_000)
    call("umount", b.mnt)
    ids = [path for path in (siblings.base / "upper-a" / BRANCHES).iterdir() if path.is_dir()]
    around = ids[0] / ".." / ".." / ".." / "upper-b"
    for _ in range(2):
        point = pathlib.Path(siblings.mount(lowers=[around, siblings.lower]).mnt)
        assert (point / "f").read_bytes()[70_000:70_007] == b"changed"
    assert all(image["mounts"] == 1 for image in json.loads(call("stats", "--json"))["images"])


def test_branches_share_pages_also_of_changed_files(siblings, call):
    a = siblings.shared()
    write_at(a / "f", b"changed", 70_000)
    call("snapshot", a, "one")
    points = list(_branches(siblings, call, a, 4))
    assert len({(point / "f").stat()[1:3] for point in points}) == 1
    assert (points[0] / "f").read_bytes()[70_000:70_007] == b"changed"
    for path in (points[3] / "f", points[1] / "f"):
        with opened(path) as fd:
            assert pagecache.own_pages(fd) == 4 * MIB // mmap.PAGESIZE
    with opened(siblings.lower / "f") as fd:
        assert pagecache.own_pages(fd) <= 16
    # What one changes is its own.
    write_at(points[1] / "f", b"again", 70_100)
    for point in (points[0], points[2], points[3]):
        assert (point / "f").read_bytes()[70_100:70_105] == blob(4 * MIB)[70_100:70_105]
    assert (points[1] / "f").read_bytes()[70_000:70_007] == b"changed"


@pytest.mark.parametrize("options", [("share=pages",), ()], ids=["share", "alone"])
def test_numbers_stay_when_an_upper_with_merged_snapshots_becomes_a_lower(siblings, call, options):
    a = pathlib.Path(siblings.mount(*options, name="a").mnt)
    (a / "new").write_bytes(blob(200_000))
    number = (a / "new").stat().st_ino
    for name in ("one", "two"):
        call("snapshot", a, name)
        write_at(a / "new", name.encode(), 70_000)
    call("snapshot", a)
    call("squash", "-q", a)
    os.truncate(a / "new", 100_000)
    assert (a / "new").stat().st_ino == number
    call("umount", a)
    b = pathlib.Path(siblings.mount(*options, name="b", lowers=[siblings.base / "upper-a", siblings.lower]).mnt)
    for change_it in (lambda: None, lambda: os.chmod(b / "new", 0o600), lambda: call("snapshot", b)):
        change_it()
        assert (b / "new").stat().st_ino == number
    call("umount", b)
    siblings.mount(*options, name="b", lowers=[siblings.base / "upper-a", siblings.lower])
    assert (b / "new").stat().st_ino == number


# ---- locks ----

def test_locks_and_those_who_wait_for_them_go_on(siblings, call):
    a, b = siblings.shared(), siblings.shared()
    (a / "own").write_text("own")
    with opened(a / "f") as common, opened(a / "own", os.O_RDWR) as own, \
            holding(a / "own", lambda fd: record(fd, fcntl.F_WRLCK), os.O_RDWR):
        fcntl.flock(common, fcntl.LOCK_EX)
        fcntl.flock(own, fcntl.LOCK_EX)
        waiting = [subprocess.Popen(["flock", a / name, "true"]) for name in ("f", "own", "f")]
        assert wait_until(lambda: all(waits_for_lock(p.pid) for p in waiting))
        for _ in range(3):
            call("snapshot", a)
            assert not flock_is_free(a / "f") and not flock_is_free(a / "own") and flock_is_free(b / "f")
            assert not record_is_free(a / "own")
        assert [p.poll() for p in waiting] == [None] * 3
        waiting[2].send_signal(signal.SIGTERM)
        assert waiting[2].wait(10) == -signal.SIGTERM
        fcntl.flock(common, fcntl.LOCK_UN)
        fcntl.flock(own, fcntl.LOCK_UN)
        assert [p.wait(10) for p in waiting[:2]] == [0, 0]
    assert flock_is_free(a / "f") and record_is_free(a / "own")


def test_a_lock_of_a_file_in_a_moved_directory(siblings, call):
    a = siblings.shared()
    siblings.shared()
    os.rename(a / "d", a / "away")
    call("snapshot", a)
    with opened(a / "away" / "e" / "x") as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not flock_is_free(a / "away" / "e" / "x")
    assert flock_is_free(a / "away" / "e" / "x")


# ---- commands ----

def test_each_command_works_on_the_mount_that_it_names(siblings, call):
    points = [siblings.shared() for _ in range(3)]
    for k, point in enumerate(points):
        write_at(point / "big", b"%d" % k, 70_000)
    call("snapshot", points[1], "second")
    call("flatten", "-q", "--in-place", points[2])
    assert [bool(call("snapshots", point)) for point in points] == [False, True, False]
    uppers = [siblings.base / f"upper-{k}" for k in range(3)]
    # What is complete has all its blocks.
    assert (uppers[2] / "big").stat().st_blocks > (uppers[0] / "big").stat().st_blocks
    write_at(points[1] / "big", b"x", 0)
    call("snapshot", points[1], "third")
    call("squash", "-q", points[1])
    assert len(call("snapshots", points[1]).splitlines()) == 1


def test_umount_waits_for_the_mount_alone_that_it_names(siblings, call):
    """Its own watch of the root had the kernel keep it."""
    a, b = siblings.shared(), siblings.shared()
    numbers(a), numbers(b)
    done = subprocess.run([siblings.program, "umount", a], text=True, capture_output=True, timeout=60,
                          env={**os.environ, **siblings.server.environment})
    assert (done.returncode, done.stderr) == (0, "") and siblings.count() == 1
    assert (b / "d" / "e" / "x").read_text() == "x"


# ---- all at once ----

@pytest.mark.parametrize("kills", [False, True], ids=["", "killed"])
def test_programs_in_all_mounts_go_on(siblings, call, kills):
    points = [siblings.shared() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        workers = [Worker(name_changes(point / "names", k)) for k, point in enumerate(points)]
        workers += [Worker(data_changes(point / f"data{k}", k)) for k, point in enumerate(points)]
        workers += [Worker(switches(point, b"%d" % k)) for k, point in enumerate(points)]
        workers += [Worker(readers(point, 4, stack)) for point in points]
        for worker in workers:
            worker.start()
        taken = 0
        for number in range(12):
            point = points[number % 2]
            killing = threading.Timer(0.005 * (number % 6), siblings.server.kill_server) if kills and number % 3 == 0 else None
            if killing:
                killing.start()
            try:
                call("snapshot", point)
                taken += 1
            except AssertionError:
                # The server that it was asked of may be dead.
                assert killing
            if killing:
                killing.join()
            time.sleep(0.05)
        for worker in workers:
            worker.stop()
    assert taken >= 8
    for k in range(4):
        for point in points:
            assert (point / f"still{k}").read_bytes() == blob(200_000, k)
            if point != points[k % 3] or k == 3:
                assert (point / f"data{k}").read_bytes() == blob(300_000, k)
    assert siblings.count() == len(points)
    for point in points:
        call("umount", point)
    # A kill leaves entries of a map of no use.
    for k in range(0 if kills else 3):
        call("check", siblings.base / f"upper-{k}")
