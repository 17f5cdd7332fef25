# SPDX-License-Identifier: Apache-2.0
"""A mount that is used goes back to a snapshot: every name shows that, and what was open stays what it was."""
import contextlib
import errno
import mmap
import os
import random
import shutil
import subprocess
import threading
import time

import pytest

from support import linux, treestate
from support.content import KIB, blob
from support.expect import opened, write_at
from support.places import Place
from support.snapshots import Snapshots, change, seen

# A file of the upper that is open for writing is not passed through.
_OPTIONS = {"auto": ("branches=on",), "cached": ("io=cached",), "writeback": ("io=cached", "writeback=on"), "direct": ("io=direct",)}


@pytest.fixture(params=_OPTIONS)
def s(request, stack, shared):
    made = Snapshots(stack, shared, *_OPTIONS[request.param])
    before = treestate.take(stack.lower())
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)
    assert not treestate.differences(before, treestate.take(stack.lower()))


def looks(s):
    """What is written back later has times that the kernel knows alone."""
    n = 5 if "writeback=on" in s.options else 7
    return {path: what[:n] + what[7:] for path, what in seen(s.m).items()}


def change_again(m):
    """Something of each kind, of what the snapshot has and of what it has not."""
    write_at(m / "big", b"LATER", 90_000)
    (m / "own").unlink()
    (m / "hard1").unlink()
    (m / "moved").write_text("longer than it was")
    (m / "gone").mkdir()
    (m / "gone" / "in").write_text("in")
    os.rename(m / "d", m / "elsewhere")
    (m / "elsewhere" / "e" / "x").unlink()
    (m / "new" / "f").unlink()
    (m / "new" / "g").write_text("g")
    (m / "link").unlink()
    os.symlink("second", m / "link")
    os.chmod(m / "second", 0o604)
    os.chmod(m / "new", 0o711)
    (m / "later").write_text("later")


def test_every_name_shows_it(s):
    change(s.m)
    s.take("one")
    first = looks(s)
    change_again(s.m)
    second = looks(s)
    frozen = s.frozen()
    for name in ("own", "hard1", "d", "new/f", "nothing"):
        assert not os.path.lexists(s.m / name)
    assert s.back("one", "--keep", "two") == "two"
    assert looks(s) == first
    assert all(s.frozen()[name] == state for name, state in frozen.items())
    # Forth again, from another change, and back.
    (s.m / "third").write_text("third")
    write_at(s.m / "big", b"THIRD", 10)
    s.back("two", "--keep", "three")
    assert looks(s) == second
    s.back("one")
    assert looks(s) == first
    linux.umount(s.m)
    s.mount()
    assert looks(s) == first


def test_what_is_open_stays_what_it_was(s, shared):
    change(s.m)
    s.take("one")
    first = looks(s)
    change_again(s.m)
    (s.m / "unlinked").write_text("unlinked")
    with contextlib.ExitStack() as stack:
        def enter(name, flags=os.O_RDWR):
            return stack.enter_context(opened(s.m / name, flags))
        big, later, second, unlinked = map(enter, ("big", "later", "second", "unlinked"))
        lower = enter("hard2", os.O_RDONLY)
        directory = enter("new", os.O_RDONLY | os.O_DIRECTORY)
        (s.m / "unlinked").unlink()
        nameless = stack.enter_context(opened(s.m, os.O_TMPFILE | os.O_RDWR))
        os.pwrite(nameless, b"nameless", 0)
        mapped = mmap.mmap(enter("moved"), 18)
        want = bytearray((s.m / "big").read_bytes())
        before = {fd: os.fstat(fd) for fd in (big, later, second, lower, nameless, directory)}
        s.back("one", "--keep", "two")
        frozen = s.frozen()
        assert looks(s) == first
        for fd, st in before.items():
            now = os.fstat(fd)
            assert (now.st_ino, now.st_size) == (st.st_ino, st.st_size) or fd == directory
            assert now.st_mtime_ns == st.st_mtime_ns or fd == directory or "writeback=on" in s.options
            assert now.st_mode == st.st_mode or fd == directory
        for k, fd in enumerate((big, later, second, unlinked, nameless)):
            os.pwrite(fd, b"%d" % k, 5)
            os.fsync(fd)
        mapped[0:6] = b"MAPPED"
        mapped.flush()
        want[5:6] = b"0"
        for _ in range(2):
            assert os.pread(big, len(want) + 1, 0) == want
            assert os.pread(later, 99, 0) == b"later1" and os.pread(second, 99, 0) == b"own\0\0002"
            assert os.pread(unlinked, 99, 0) == b"unlin3ed" and os.pread(nameless, 99, 0) == b"namel4ss"
            assert os.pread(lower, 99, 0) == b"hard" and mapped[:18] == b"MAPPED than it was"
            assert sorted(os.listdir(directory)) == ["f"]
            assert looks(s) == first and s.frozen() == frozen
            # Another server finds all that again.
            shared.kill_server()
        os.ftruncate(big, 10)
        assert os.fstat(big).st_size == 10 and os.fstat(big).st_nlink == 0
        mapped.close()
    assert looks(s) == first and s.frozen() == frozen
    linux.umount(s.m)
    s.mount()
    assert looks(s) == first


def test_no_name_of_a_file_in_use_stays(s):
    """It may have several, of which a server notes one."""
    s.take("one")
    (s.m / "a").write_text("new")
    os.link(s.m / "a", s.m / "b")
    os.link(s.m / "a", s.m / "d" / "c")
    with opened(s.m / "a", os.O_RDONLY), opened(s.m / "b", os.O_RDONLY), opened(s.m / "d" / "c", os.O_RDONLY):
        s.back("one")
        for name in ("a", "b", "d/c"):
            assert not os.path.lexists(s.m / name)
    for name in ("a", "b", "d/c"):
        (s.m / name).write_text(name)
    linux.umount(s.m)
    s.mount()
    for name in ("a", "b", "d/c"):
        assert (s.m / name).read_text() == name


@pytest.mark.parametrize("order", [("hard1", "d/hard3"), ("d/hard3", "hard1")], ids=["this", "other"])
def test_a_lower_file_with_two_names_is_found_by_either(stack, shared, order):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "hard1").write_text("hard")
    os.link(stack.lower() / "hard1", stack.lower() / "d" / "hard3")
    place = Place(stack, "q")
    m = place.mount(stack, shared, "branches=on")

    def call(*arguments):
        done = subprocess.run([stack.program, *map(str, arguments)], env={**os.environ, **shared.environment}, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 0, done
    call("snapshot", m, "zero")
    os.rename(m / "d", m / "d2")
    call("snapshot", m, "one")
    call("rollback", m, "zero")
    with opened(m / order[0], os.O_RDONLY) as one, opened(m / order[1], os.O_RDONLY) as two:
        call("rollback", m, "one")
        assert os.pread(one, 9, 0) == b"hard" and os.pread(two, 9, 0) == b"hard"
        call("rollback", m, "zero")
        assert os.pread(one, 9, 0) == b"hard" and os.pread(two, 9, 0) == b"hard"
    linux.umount(m)


def test_renames_meanwhile_take_no_wrong_file_along(s):
    """A rename that waits is carried out with what its names are by then."""
    count = 6
    for k in range(count):
        (s.m / f"dir{k}").mkdir()
        (s.m / f"dir{k}" / "a").write_text("then")
    s.take("one")
    with contextlib.ExitStack() as stack:
        for k in range(200):
            (s.m / "d" / f"e{k}").mkdir()
            stack.enter_context(opened(s.m / "d" / f"e{k}", os.O_RDONLY | os.O_DIRECTORY))
        s.take("two")
        stop = threading.Event()
        for k in range(count):
            (s.m / f"dir{k}" / "a").write_text("now")
            stack.enter_context(opened(s.m / f"dir{k}" / "a", os.O_RDWR))

        def rename(k):
            while not stop.is_set():
                for one, other in ("ab", "ba"):
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(s.m / f"dir{k}" / one, s.m / f"dir{k}" / other)
        renaming = [threading.Thread(target=rename, args=(k,)) for k in range(count)]
        for thread in renaming:
            thread.start()
        try:
            s.back("one")
        finally:
            stop.set()
            for thread in renaming:
                thread.join()
        for k in range(count):
            (name,) = os.listdir(s.m / f"dir{k}")
            assert (s.m / f"dir{k}" / name).read_text() == "then"
            with pytest.raises(FileNotFoundError):
                os.stat(s.m / f"dir{k}" / ("b" if name == "a" else "a"))


def test_a_fifo_that_it_has_not_hinders_nothing_later(s):
    s.take("one")
    os.mkfifo(s.m / "fifo")
    with opened(s.m / "fifo", os.O_RDWR):
        s.back("one")
        assert not os.path.lexists(s.m / "fifo")
    s.take("two")
    s.back("one")


@pytest.mark.parametrize("name", ["d/e", "new"], ids=["lower", "own"])
def test_a_removed_directory_that_is_open_hinders_nothing_later(s, shared, name):
    (s.m / "new").mkdir()
    s.take("one")
    with opened(s.m / name, os.O_RDONLY | os.O_DIRECTORY):
        shutil.rmtree(s.m / name)
        s.take("two")
        for to in ("one", "two", "one"):
            s.back(to)
            assert (s.m / name).is_dir() == (to == "one")
        assert "as they were before" not in shared.log


def test_more_open_files_than_a_mount_may_hold(stack):
    """What is not counted is held all the same."""
    program, base = stack.program, stack.base
    for name in ("run", "low", "up", "work", "m"):
        (base / name).mkdir(mode=0o700)
    environment = {**os.environ, "VENEER_RUNTIME_DIR": str(base / "run")}

    def call(*arguments, limit=None):
        command = ["prlimit", f"--nofile={limit}:{limit}"] if limit else []
        done = subprocess.run([*command, program, *map(str, arguments)], env=environment, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        assert done.returncode == 0, done
    m = base / "m"
    call("mount", "-o", f"branches=on,lowerdir={base}/low,upperdir={base}/up,workdir={base}/work", m, limit=512)
    try:
        call("snapshot", m, "one")
        with contextlib.ExitStack() as files:
            fds = []
            for k in range(200):
                (m / f"f{k}").write_text(str(k))
                fds.append(files.enter_context(opened(m / f"f{k}", os.O_RDWR)))
            for arguments in (("rollback", m, "one"), ("snapshot", m, "two"), ("rollback", m, "one")):
                call(*arguments)
                assert [os.pread(fd, 9, 0) for fd in fds] == [b"%d" % k for k in range(200)]
    finally:
        linux.umount(m, linux.MNT_DETACH)


def test_directories_in_use_go_on(s, stack):
    """A working directory, a mount on a directory, and a directory that the snapshot has not."""
    change(s.m)
    s.take("one")
    (s.m / "d" / "e" / "y").write_text("y")
    (s.m / "made").mkdir()
    (s.m / "made" / "f").write_text("f")
    (stack.base / "bound").mkdir()
    (stack.base / "bound" / "inside").write_text("inside")
    linux.mount(str(stack.base / "bound"), str(s.m / "new"), None, linux.MS_BIND)
    here = os.getcwd()
    made = os.open(s.m / "made", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(s.m / "d" / "e")
        s.back("one")
        assert os.getcwd() == str(s.m / "d" / "e") and os.listdir(".") == ["x"]
        assert os.listdir(s.m / "new") == ["inside"]
        with open("z", "w", encoding="ascii") as f:
            f.write("z")
        assert (s.m / "d" / "e" / "z").read_text() == "z"
        with pytest.raises(OSError) as e:
            os.open("f", os.O_RDONLY, dir_fd=made)
        assert e.value.errno in (errno.ESTALE, errno.ENOENT)
    finally:
        os.close(made)
        os.chdir(here)
        linux.umount(s.m / "new")


def test_the_root_looks_as_it_did(s):
    # Before anybody has asked the kernel takes root for the owner.
    os.stat(s.m)
    os.chmod(s.m, 0o751)
    s.take("one")
    os.chmod(s.m, 0o700)
    s.back("one", "--keep", "two")
    assert os.stat(s.m).st_mode & 0o7777 == 0o751
    s.back("two")
    assert os.stat(s.m).st_mode & 0o7777 == 0o700


def test_programs_go_on(s):
    """Each has a file of its own open, which it alone changes. What is written while a mount goes back, first of all to
    its file, may as well have been written afterwards; so each has changed its own before."""
    (s.m / "files").mkdir()
    for k in range(8):
        (s.m / "files" / str(k)).write_bytes(blob(64 * KIB, k))
    s.take("one")
    stop, errors, started = threading.Event(), [], threading.Barrier(9)

    def work(k):
        chance = random.Random(k)
        want = bytearray(blob(64 * KIB, k))
        try:
            with opened(s.m / "files" / str(k), os.O_RDWR) as fd:
                os.pwrite(fd, b"started", 0)
                want[0:7] = b"started"
                os.fsync(fd)
                started.wait()
                while not stop.is_set():
                    at = chance.randrange(64 * KIB - 9)
                    os.pwrite(fd, b"%08d" % at, at)
                    want[at:at + 8] = b"%08d" % at
                    at = chance.randrange(64 * KIB - 999)
                    assert os.pread(fd, 999, at) == want[at:at + 999]
                assert os.pread(fd, len(want), 0) == want
        except (OSError, AssertionError) as e:
            errors.append(e)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    started.wait(60)
    for _ in range(5):
        s.back("one")
        for k in range(8):
            assert (s.m / "files" / str(k)).read_bytes() == blob(64 * KIB, k)
    stop.set()
    for worker in workers:
        worker.join()
    assert not errors, errors


def test_other_mounts_of_the_lower_layers_see_nothing_of_it(s, stack, shared):
    other = Place(stack, "other").mount(stack, shared, *s.options)
    change(s.m)
    s.take("one")
    change_again(s.m)
    change(other)
    before = seen(other)
    s.back("one")
    assert seen(other) == before
    linux.umount(other)


def test_what_cannot_be_done_is_one_sentence(s):
    def refused(*arguments, lines=1):
        done = s.call(*arguments, command="rollback")
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == lines, done
        return done.stderr
    assert "no snapshot of this name" in refused(s.m, "one")
    change(s.m)
    s.take("one")
    change_again(s.m)
    (s.m / "large").write_bytes(bytes(65 * KIB * KIB))
    before, frozen = looks(s), s.frozen()
    with opened(s.m / "large", os.O_RDONLY):
        assert "64 MiB" in refused(s.m, "one")
    assert "no snapshot of this name" in refused(s.m, "nothing")
    assert "no snapshot of this name" in refused(s.m, "../x")
    assert "is a snapshot of" in refused("--keep", "one", s.m, "one")
    assert "cannot have this name" in refused("--keep", "a/b", s.m, "one")
    assert "in use by a mount" in refused(s.place.upper, "one", lines=2)
    assert looks(s) == before and s.frozen() == frozen


def seconds_of_one(s):
    """Of a rollback that nothing interrupts, from its command to its end."""
    start = time.monotonic()
    s.back("one")
    return time.monotonic() - start


@pytest.mark.parametrize("options", [("branches=on",), ("io=cached",)], ids=["auto", "cached"])
def test_deaths_meanwhile(stack, shared, options):
    """Each at another moment: the names before or those after, and what is open is what it was in either case."""
    s = Snapshots(stack, shared, *options)
    change(s.m)
    s.take("one")
    first, chance, done = looks(s), random.Random(0), {True: 0, False: 0}
    takes_s = seconds_of_one(s)
    for k in range(60):
        if k >= 20 and all(done.values()):
            break
        write_at(s.m / "big", b"%04d" % k, 100_000)
        (s.m / "later").write_text(str(k))
        (s.m / "own").unlink()
        before = looks(s)
        frozen = {name: state for name, state in s.frozen().items() if not name.endswith(".new")}
        with opened(s.m / "big", os.O_RDWR) as fd, opened(s.m / "later", os.O_RDWR) as later:
            going = threading.Thread(target=s.call, args=("--keep", f"k{k}", s.m, "one"), kwargs={"command": "rollback"})
            going.start()
            time.sleep(chance.random() * takes_s)
            shared.kill_server()
            going.join()
            now = looks(s)
            assert now in (before, first)
            os.pwrite(later, b"more", 4)
            assert os.pread(later, 99, 0) == b"%d" % k + bytes(4 - len(str(k))) + b"more"
            assert os.pread(fd, 4, 100_000) == b"%04d" % k
            # It is the file of that name if that is what is shown.
            assert os.path.exists(s.m / "later") == (now == before)
            assert now == first or (s.m / "later").read_bytes().endswith(b"more")
        assert all(s.frozen()[name] == state for name, state in frozen.items())
        done[now == first] += 1
        if now != first:
            takes_s = seconds_of_one(s)
        assert looks(s) == first
    linux.umount(s.m)
    s.mount()
    assert looks(s) == first and done[True] and done[False], done
    linux.umount(s.m)
