# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a mount that is used: programs go on, and it never changes."""
import contextlib
import fcntl
import io
import itertools
import json
import mmap
import os
import random
import subprocess
import tarfile
import threading
import time

import pytest

from support import linux, treestate
from support.content import BLOCK, KIB, blob
from support.expect import opened, write_at
from support.places import Place
from support.server import wait_until
from support.snapshots import BRANCHES, Snapshots, change, seen
from test_upgrade import kill_server_of

SHARE = pytest.param("share=pages", marks=pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN"))


@pytest.fixture(params=["", "io=cached", "io=direct", "io=cached,locks=server", SHARE], ids=["auto", "cached", "direct", "locks", "share"])
def s(request, stack, shared):
    made = Snapshots(stack, shared, *filter(None, [request.param]))
    before = treestate.take(stack.lower())
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)
    assert not treestate.differences(before, treestate.take(stack.lower()))


def test_nothing_looks_different(s):
    change(s.m)
    before = seen(s.m)
    assert s.take("one") == "one"
    assert seen(s.m) == before
    # Also when it is mounted again, and once more as a snapshot of a snapshot.
    linux.umount(s.m)
    s.mount()
    assert seen(s.m) == before
    s.take("two")
    assert seen(s.m) == before
    chain = json.loads((s.place.upper / BRANCHES / "chain").read_text().splitlines()[0])
    assert [e["name"] for e in chain["snapshots"]] == ["one", "two"]


def test_what_is_written_later_is_not_in_it(s):
    change(s.m)
    s.take("one")
    before = s.frozen()
    want = bytearray((s.m / "big").read_bytes())
    write_at(s.m / "big", b"LATER", 90_000)
    want[90_000:90_005] = b"LATER"
    (s.m / "own").write_text("other")
    os.chmod(s.m / "d", 0o700)
    (s.m / "new" / "f").unlink()
    os.rename(s.m / "moved", s.m / "small")
    (s.m / "gone").write_text("back")
    assert (s.m / "big").read_bytes() == want and (s.m / "own").read_text() == "other"
    assert s.frozen() == before
    after = seen(s.m)
    linux.umount(s.m)
    assert s.frozen() == before
    s.mount()
    assert seen(s.m) == after


def test_open_files_go_on(s):
    change(s.m)
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(opened(s.m / "big", os.O_RDONLY))
        own = stack.enter_context(opened(s.m / "own", os.O_RDONLY))
        lower = stack.enter_context(opened(s.m / "d" / "e" / "x", os.O_RDONLY))
        partial = stack.enter_context(opened(s.m / "big", os.O_RDWR))
        listing = stack.enter_context(os.scandir(s.m))
        view = stack.enter_context(mmap.mmap(reader, 0, prot=mmap.PROT_READ))
        fcntl.flock(own, fcntl.LOCK_EX)
        first = next(listing).name
        want = bytearray(os.pread(reader, 300 * KIB, 0))
        stats = [os.fstat(fd) for fd in (reader, own, lower)]
        s.take()
        assert [os.fstat(fd)[:7] for fd in (reader, own, lower)] == [st[:7] for st in stats]
        assert os.pread(reader, 300 * KIB, 0) == view[:] == want
        assert os.pread(own, 10, 0) == b"own" and os.pread(lower, 10, 0) == b"x"
        frozen = s.frozen()
        os.pwrite(partial, b"by the open one", 5 * BLOCK)
        want[5 * BLOCK:5 * BLOCK + 15] = b"by the open one"
        assert os.pread(partial, 300 * KIB, 0) == want and (s.m / "big").read_bytes() == want
        assert {first, *(e.name for e in listing)} == set(os.listdir(s.m))
        other = os.open(s.m / "own", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        assert s.frozen() == frozen


def test_programs_that_write_see_no_error(s):
    """Each appends lines to a file of its own: all of them are there, in order."""
    stop, errors = threading.Event(), []
    is_passed_through = not s.options

    def write(k):
        try:
            with opened(s.m / f"log{k}", os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
                for number in range(100_000):
                    if stop.is_set():
                        return
                    os.write(fd, b"%06d\n" % number)
                    with open(s.m / "big", "rb") as f:
                        f.seek(number % 70 * BLOCK)
                        f.read(10)
        except OSError as e:
            errors.append(e)
    if is_passed_through:
        linux.umount(s.m)
        s.options = ("branches=on",)
        s.mount()
    threads = [threading.Thread(target=write, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        s.take()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    for k in range(3):
        lines = (s.m / f"log{k}").read_text().split()
        assert lines == ["%06d" % number for number in range(len(lines))]


def test_a_listing_under_way_has_each_name_once(stack, shared):
    """Thousands, so that the kernel asks for more after it: of a lower layer, hidden and changed ones, new ones, and those of
    snapshots."""
    low = stack.lower() / "many"
    low.mkdir(parents=True)
    for k in range(3000):
        (low / f"lower{k}").touch()
    s = Snapshots(stack, shared, "branches=on")
    many = s.m / "many"
    for k in range(3000):
        (many / f"upper{k}").touch()
    for k in range(0, 3000, 7):
        (many / f"lower{k}").unlink()
        (many / f"lower{k + 1}").write_text("x")
        (many / f"upper{k}").unlink()
    want = sorted(os.listdir(many))
    for _ in range(2):
        with os.scandir(many) as listing:
            got = [next(listing).name for _ in range(2500)]
            s.take()
            got += [entry.name for entry in listing]
        assert sorted(got) == want == sorted(os.listdir(many))
    # Some of a snapshot, and some of the upper.
    for k in range(0, 3000, 5):
        (many / f"later{k}").touch()
        (many / f"upper{k}").unlink(missing_ok=True)
        (many / f"lower{k + 2}").unlink(missing_ok=True)
    want = sorted(os.listdir(many))
    with os.scandir(many) as listing:
        got = [next(listing).name for _ in range(1500)]
        s.take()
        got += [entry.name for entry in listing]
    assert sorted(got) == want
    linux.umount(s.m)


def test_a_lower_file_that_lost_its_name_goes_on(s, shared):
    """Replaced or removed, also if a snapshot has it: an upgraded library is open for long."""
    with contextlib.ExitStack() as stack:
        fds = {name: stack.enter_context(opened(s.m / name, os.O_RDONLY)) for name in ("small", "gone", "d/e/x")}
        for name in fds:
            (s.m / "new").write_text("new")
            os.rename(s.m / "new", s.m / name)
            if name == "gone":
                os.unlink(s.m / name)
        stats = {name: os.fstat(fd)[:7] for name, fd in fds.items()}
        for _ in range(2):
            s.take()
            for name, fd in fds.items():
                assert os.pread(fd, 10, 0) == os.path.basename(name).encode() and os.fstat(fd)[:7] == stats[name]
        # What is replaced now is a snapshot's.
        fds["second"] = stack.enter_context(opened(s.m / "small", os.O_RDONLY))
        (s.m / "third").write_text("third")
        os.rename(s.m / "third", s.m / "small")
        for take in (s.take, shared.kill_server, s.take):
            take()
            assert os.pread(fds["second"], 10, 0) == b"new" and os.pread(fds["small"], 10, 0) == b"small"
            assert (s.m / "small").read_text() == "third"


def test_a_lower_file_whose_directory_went_refuses_it(s):
    with opened(s.m / "d" / "e" / "x", os.O_RDONLY) as fd:
        os.rename(s.m / "d" / "e" / "x", s.m / "moved")
        os.rename(s.m / "own" if (s.m / "own").exists() else s.m / "small", s.m / "d" / "e" / "x")
        s.take()
        assert os.pread(fd, 10, 0) == b"x"
    with opened(s.m / "gone", os.O_RDONLY), opened(s.m / "d" / "e" / "x", os.O_RDONLY) as fd:
        for name in ("d/e/x", "d/e", "d"):
            (os.unlink if name.endswith("x") else os.rmdir)(s.m / name)
        assert "was removed" in s.refused(s.m)
        assert os.pread(fd, 10, 0) == b"small"
    s.take()


def test_an_unlinked_file_goes_on(s, shared):
    """Of its own, after a death of the server too."""
    change(s.m)
    fd = os.open(s.m / "unlinked", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"unlinked")
    os.unlink(s.m / "unlinked")
    if not s.options and "by the kernel itself" in s.call(s.m).stderr:
        os.close(fd)
        pytest.skip("the kernel writes the file by itself")
    for take in (s.take, s.take, shared.kill_server, s.take):
        take()
        assert os.pread(fd, 8, 0) == b"unlinked" and os.fstat(fd).st_nlink == 0
        os.pwrite(fd, b"more", 100)
    os.close(fd)


def test_an_unlinked_partial_file_goes_on(s, shared):
    """Of the upper, or moved from a snapshot and replaced; its bytes are below, or of a map that is left behind."""
    want = bytearray(blob(300 * KIB))
    with opened(s.m / "big", os.O_RDWR) as fd, opened(s.m / "small", os.O_RDWR) as replaced:
        os.rename(s.m / "small", s.m / "moved")
        (s.m / "other").touch()
        os.rename(s.m / "other", s.m / "moved")
        write_at(s.m / "big", b"before", 8190)
        want[8190:8196] = b"before"
        os.unlink(s.m / "big")
        for k, take in enumerate((s.take, s.take, shared.kill_server, s.take)):
            os.pwrite(fd, b"after", 100_000 + 5000 * k)
            want[100_000 + 5000 * k:100_005 + 5000 * k] = b"after"
            number = os.fstat(fd).st_ino
            take()
            assert os.pread(fd, len(want) + 1, 0) == want
            st = os.fstat(fd)
            assert (st.st_ino, st.st_nlink, st.st_size) == (number, 0, len(want))
            assert os.pread(replaced, 10, 0) == b"small"
    linux.umount(s.m)


def test_one_of_two_names_that_is_removed_refuses_it(s):
    change(s.m)
    with opened(s.m / "new" / "f", os.O_RDONLY):
        os.link(s.m / "new" / "f", s.m / "other")
    with opened(s.m / "own", os.O_RDONLY) as fd:
        os.unlink(s.m / "own")
        done = s.call(s.m)
        assert os.pread(fd, 10, 0) == b"own" and os.fstat(fd).st_nlink == 1
        os.unlink(s.m / "second")
        assert done.returncode == 0 or "was removed" in done.stderr
        assert os.pread(fd, 10, 0) == b"own"
    s.take()
    assert not (s.m / "own").exists() and not (s.m / "second").exists()


def test_one_of_two_names_goes_after_a_snapshot(s):
    """The inode is known by one of them only, and is found by the other."""
    change(s.m)
    s.take()
    number = os.stat(s.m / "own").st_ino
    for name in ("second", "own"):
        os.unlink(s.m / name)
        os.link(s.m / ("own" if name == "second" else "third"), s.m / f"not-{name}")
        if name == "second":
            os.rename(s.m / "not-second", s.m / "third")
        s.take()
        st = os.stat(s.m / "third")
        assert (st.st_ino, st.st_nlink) == (number, 2) and (s.m / "third").read_text() == "own"
        s.take()


@pytest.mark.parametrize("when", ["written before", "read before", "another snapshot between", "own names"])
def test_a_file_found_by_its_other_name_is_not_written_in_the_snapshot(s, when):
    """A descriptor holds it since its first name went."""
    if when == "own names":
        (s.m / "own").write_text("base")
        for name in ("p", "c"):
            os.link(s.m / "own", s.m / name)
        names = "p", "c"
        linux.umount(s.m)
        s.mount()
    else:
        names = "hard1", "hard2"
    with opened(s.m / names[0], os.O_RDONLY) as fd:
        if when == "another snapshot between":
            s.take()
        os.unlink(s.m / names[0])
        want = (s.m / names[1]).read_bytes()
        if when == "written before":
            with open(s.m / names[1], "ab") as f:
                f.write(b"first")
            want += b"first"
        s.take()
        before = s.frozen()
        with open(s.m / names[1], "ab") as f:
            f.write(b"second")
        want += b"second"
        assert (s.m / names[1]).read_bytes() == want
        # What was passed through goes on with what the file had (LIMITS).
        assert os.pread(fd, 100, 0) == want or not s.options
        os.truncate(s.m / names[1], 3)
        assert (s.m / names[1]).read_bytes() == want[:3] and s.frozen() == before
        s.take()
    linux.umount(s.m)
    s.mount()
    assert (s.m / names[1]).read_bytes() == want[:3]


def test_of_two_names_either_is_the_same_file(s):
    """Also if only one of them was looked up before."""
    change(s.m)
    linux.umount(s.m)
    s.mount()
    with opened(s.m / "own", os.O_RDONLY) as fd:
        s.take()
        (s.m / "second").write_text("by the other")
        assert (s.m / "own").read_text() == "by the other"
        assert os.stat(s.m / "own").st_ino == os.fstat(fd).st_ino == os.stat(s.m / "second").st_ino


def test_what_was_mapped_for_writing_is_in_it(s):
    change(s.m)
    with opened(s.m / "own", os.O_RDWR) as fd:
        os.ftruncate(fd, 2 * BLOCK)
        with mmap.mmap(fd, 2 * BLOCK) as view:
            view[:6] = b"mapped"
            done = s.call(s.m)
            assert done.returncode == 0 or (not s.options and "by the kernel itself" in done.stderr)
            view[BLOCK:BLOCK + 5] = b"later"
            view.flush()
    # Nobody has it mapped any more.
    s.take("two")
    frozen = s.frozen()
    assert (s.m / "own").read_bytes()[:6] == b"mapped" and (s.m / "own").read_bytes()[BLOCK:BLOCK + 5] == b"later"
    write_at(s.m / "own", b"LATER", 0)
    assert s.frozen() == frozen


@pytest.mark.needs_root("a user namespace may not register backing files")
def test_a_mapping_that_outlives_its_descriptor_refuses_it(stack, shared):
    """Each time, also after a death of the server, which nobody has told of the mapping."""
    s = Snapshots(stack, shared)
    fd = os.open(s.m / "own", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, BLOCK)
    view = mmap.mmap(fd, BLOCK)
    os.close(fd)
    for disturb in (None, shared.kill_server, None):
        if disturb:
            disturb()
        for _ in range(2):
            assert "by the kernel itself" in s.refused(s.m)
    view[:6] = b"stored"
    view.close()
    s.take()
    assert (s.m / "own").read_bytes()[:6] == b"stored"
    linux.umount(s.m)


def test_a_name_that_was_made_anew_keeps_its_place(stack, shared):
    """It was removed before a snapshot, and is there again before the next."""
    low = stack.lower() / "many"
    low.mkdir(parents=True)
    for k in range(3000):
        (low / f"lower{k}").touch()
    s = Snapshots(stack, shared, "branches=on")
    many = s.m / "many"
    for k in range(0, 3000, 3):
        (many / f"lower{k}").unlink()
    s.take()
    for k in range(0, 3000, 6):
        (many / f"lower{k}").touch()
        os.symlink("x", many / f"lower{k + 3}")
    want = sorted(os.listdir(many))
    with os.scandir(many) as listing:
        got = [next(listing).name for _ in range(1500)]
        s.take()
        got += [entry.name for entry in listing]
    assert sorted(got) == want
    linux.umount(s.m)


def test_what_snapshots_take_is_counted(stack, shared):
    """size= is what all of the upper may take."""
    s = Snapshots(stack, shared, "size=2M")
    for k in range(3):
        (s.m / f"f{k}").write_bytes(blob(512 * KIB, k))
        s.take()
    assert os.statvfs(s.m).f_bavail * BLOCK < 600 * KIB
    with pytest.raises(OSError, match="No space left"):
        (s.m / "more").write_bytes(blob(1024 * KIB, 9))
    linux.umount(s.m)


def test_directories_that_nobody_may_change_move_too(s):
    (s.m / "ro").mkdir()
    (s.m / "ro" / "f").write_text("ro")
    os.chmod(s.m / "ro", 0o555)
    s.take()
    assert (s.m / "ro" / "f").read_text() == "ro"
    os.chmod(s.m / "ro", 0o755)


def test_it_is_asked_to_end_meanwhile(s, shared):
    """The server ends, and the mount is as it was."""
    change(s.m)
    before = seen(s.m)
    taking = [threading.Thread(target=s.call, args=(s.m,)) for _ in range(4)]
    for thread in taking:
        thread.start()
    linux.umount(s.m, linux.MNT_DETACH)
    for thread in taking:
        thread.join()
    s.mount()
    assert seen(s.m) == before


def test_a_killed_server_changes_nothing_of_it(s, shared):
    change(s.m)
    with opened(s.m / "big", os.O_RDONLY) as fd:
        s.take("one")
        before, frozen = seen(s.m), s.frozen()
        shared.kill_server()
        assert seen(s.m) == before
        assert os.pread(fd, 3, 70_000) == b"NEW"
        write_at(s.m / "big", b"LATER", 90_000)
        s.take("two")
        frozen_too = s.frozen()
        assert all(frozen_too[name] == state for name, state in frozen.items())


def test_other_mounts_of_the_upper_show_the_same(s, stack, shared):
    change(s.m)
    s.take("one")
    write_at(s.m / "big", b"LATER", 90_000)
    want = {path[len(str(s.m)):]: what[7:] for path, what in seen(s.m).items()}
    linux.umount(s.m)
    above = Place(stack, "above", [s.place.upper, stack.lower()])
    m = above.mount(stack, shared)
    assert {path[len(str(m)):]: what[7:] for path, what in seen(m).items()} == want
    linux.umount(m)


@pytest.mark.parametrize("name", ["-x", "../x", ".x", "a/b", "a b", "x" * 65, "\N{LATIN SMALL LETTER A WITH DIAERESIS}"])
def test_a_name_that_is_none_is_refused(s, name):
    s.refused("--", s.m, name)
    assert not (s.place.upper / BRANCHES).exists()


def test_what_cannot_be_done_is_one_sentence(s, stack):
    change(s.m)
    s.take("one")
    before = seen(s.m)
    assert "of this name" in s.refused(s.m, "one")
    assert "no such mount" in s.refused(stack.base)
    s.refused(s.m / "nothing")
    assert seen(s.m) == before


@pytest.mark.needs_root("a user namespace may not register backing files")
def test_a_file_that_the_kernel_writes_refuses_it(stack, shared):
    made = Snapshots(stack, shared)
    with opened(made.m / "own", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"own")
        assert "by the kernel itself" in made.refused(made.m)
        os.write(fd, b" more")
    assert (made.m / "own").read_text() == "own more"
    made.take()
    with opened(made.m / "own", os.O_RDONLY) as reader:
        made.take("two")
        frozen = made.frozen()
        write_at(made.m / "own", b"LATER", 0)
        assert os.pread(reader, 8, 0) in (b"own more", b"LATERore")
        assert (made.m / "own").read_bytes() == b"LATERore"
        assert made.frozen() == frozen
    linux.umount(made.m)


def test_a_damaged_chain_is_refused(s):
    change(s.m)
    s.take("one")
    linux.umount(s.m)
    # a mount would join what the server has open still
    assert wait_until(lambda: s.shared.count() == 0)
    chain = s.place.upper / BRANCHES / "chain"
    whole = chain.read_bytes()
    chain.write_bytes(whole[:-3] + b"00\n")
    done = s.place.run(s.stack, s.shared, *s.options)
    assert done.returncode == 1 and "chain is damaged" in done.stderr and not os.path.ismount(s.m)
    chain.write_bytes(whole)
    s.mount()
    assert (s.m / "own").read_text() == "own"


def change_more(m):
    """What was changed before, and what was not."""
    write_at(m / "big", b"LATER", 150_000)
    (m / "second").unlink()
    (m / "gone").mkdir()
    (m / "gone" / "in").write_text("again")
    os.rename(m / "new", m / "newer")
    write_at(m / "newer" / "f", b"LATER", 5000)
    os.rename(m / "d", m / "dir")
    (m / "d").mkdir()
    (m / "d" / "e").write_text("a file now")
    (m / "moved").unlink()
    os.chmod(m / "dir" / "e", 0o700)


def _told(place, stack, *arguments):
    done = subprocess.run([stack.program, "diff", *arguments, "-o", f"lowerdir={stack.lower()}", place.upper], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout


def _archive(place, stack):
    """All but the times, which differ."""
    with tarfile.open(fileobj=io.BytesIO(_told(place, stack, "--tar", "--quiet"))) as tar:
        return {m.name: (m.type, m.mode, m.size, m.linkname, m.isreg() and tar.extractfile(m).read()) for m in tar}


def test_diff_is_of_the_snapshots_too(s, stack, shared):
    """The same as of an upper that has none."""
    plain = Place(stack, "plain")
    plain.mount(stack, shared, *s.options)
    for m in (s.m, plain.mnt):
        change(m)
        if m == s.m:
            s.take()
        change_more(m)
        if m == s.m:
            s.take()
        (m / "last").write_text("last")
        linux.umount(m)
    told = {line.split(" (")[0] for line in _told(s.place, stack, "-r").decode().splitlines()}
    assert told == {line.split(" (")[0] for line in _told(plain, stack, "-r").decode().splitlines()}
    assert {"C /big", "D /small", "A /last", "A /newer/f", "C /d", "C /gone", "A /gone/in", "A /dir/e/x", "C /d/e"} <= told
    archive = _archive(plain, stack)
    # What is under an opaque directory is said one by one.
    assert _archive(s.place, stack) == {name: what for name, what in archive.items() if not name.endswith(".wh..wh..opq")}
    done = subprocess.run([stack.program, "diff", s.place.upper], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "lowerdir=" in done.stderr


@pytest.mark.parametrize("options", [(), ("io=cached",)], ids=["auto", "cached"])
def test_deaths_while_it_is_taken(stack, shared, options):
    """Each at another moment: all names show what they showed, and a snapshot that there is never changes."""
    s = Snapshots(stack, shared, "branches=on", *options)
    change(s.m)
    frozen, chance = {}, random.Random(0)
    with opened(s.m / "big", os.O_RDWR) as fd:
        for k in range(24):
            os.pwrite(fd, b"%04d" % k, 100_000 + k)
            (s.m / f"round{k}").write_text(str(k))
            before = seen(s.m)
            taking = threading.Thread(target=s.call, args=(s.m,))
            taking.start()
            time.sleep(chance.random() * 0.02)
            shared.kill_server()
            taking.join()
            assert seen(s.m) == before
            assert os.pread(fd, 4, 100_000 + k) == b"%04d" % k
            now = s.frozen()
            assert all(now[name] == state for name, state in frozen.items() if name in now)
            assert all(name in now for name in frozen)
            frozen = {name: state for name, state in now.items() if not name.endswith(".new")}
    linux.umount(s.m)
    s.mount()
    assert seen(s.m) == before
    assert not [name for name in s.frozen() if name.endswith(".new")]
    linux.umount(s.m)


def test_upgrades_while_it_is_taken(stack, shared):
    s = Snapshots(stack, shared, "branches=on")
    change(s.m)
    with opened(s.m / "big", os.O_RDWR) as fd:
        for k in range(4):
            before = seen(s.m)
            taking = threading.Thread(target=s.call, args=(s.m,))
            taking.start()
            time.sleep(k * 0.004)
            done = subprocess.run([shared.program, "server", "--upgrade", "--idle", "86400"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, **shared.environment}, timeout=60)
            taking.join()
            assert seen(s.m) == before, done
            os.pwrite(fd, b"%04d" % k, 100_000)
            assert (s.m / "big").read_bytes()[100_000:100_004] == b"%04d" % k
    linux.umount(s.m)
    kill_server_of(shared)


def test_a_root_without_permissions_is_no_hindrance(s):
    change(s.m)
    before = seen(s.m)
    os.chmod(s.m, 0o000)
    mode = os.stat(s.m).st_mode
    s.call(s.m)
    with opened(s.place.upper, os.O_RDONLY | os.O_PATH):
        assert os.stat(s.m).st_mode == mode
    os.chmod(s.m, before[f"{s.m}/."][1] & 0o7777)
    s.take("two")
    assert {path: what for path, what in seen(s.m).items()} == before


@pytest.mark.needs_root("mounts a tmpfs")
def test_a_full_disk_changes_nothing(stack, shared):
    """Also where there is not even room for the directory."""
    disk = stack.base / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=200", "none", disk], check=True)
    try:
        s = Snapshots(stack, shared, "branches=on")
        linux.umount(s.m)
        s.place.upper, s.place.work = disk / "upper", disk / "work"
        s.place.upper.mkdir()
        s.place.work.mkdir()
        s.mount()
        change(s.m)
        for k in itertools.count():
            try:
                (s.m / f"f{k}").touch()
            except OSError:
                break
        for k in range(6):
            before = seen(s.m)
            done = s.call(s.m)
            assert seen(s.m) == before, done
            if done.returncode == 0:
                break
            assert "No space left" in done.stderr
            (s.m / f"f{k}").unlink()
        assert 0 < k < 5
        linux.umount(s.m)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_check_looks_at_each_snapshot(s, shared):
    """On what it stands on; a repair leaves all of it but missing guards as it is."""
    change(s.m)
    s.take("one")
    write_at(s.m / "big", b"LATER", 90_000)
    s.take("two")
    write_at(s.m / "big", b"LAST", 200_000)
    linux.umount(s.m)
    wait_until(lambda: shared.count() == 0)
    options = f"lowerdir={s.stack.lower()},upperdir={s.place.upper},workdir={s.place.work}"

    def check(*more):
        return subprocess.run([s.stack.program, "check", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    done = check("-o", options)
    assert done.returncode == 0 and done.stdout.count("no damage") == 3, done
    assert json.loads(check("--json", "-o", options).stdout)["partial_files"] >= 3
    assert check(s.place.upper).returncode == 0
    # The map of the older one says less than its files need.
    chain = json.loads((s.place.upper / BRANCHES / "chain").read_text().splitlines()[0])
    older = s.place.upper / BRANCHES / chain["snapshots"][0]["id"]
    (older / ".wh..wh.veneer").rename(s.place.base / "away")
    before = treestate.take(s.place.upper / BRANCHES)
    for more in ((), ("--repair",)):
        done = check(*more, "--json", "-o", options)
        found = json.loads(done.stdout)["findings"]
        assert done.returncode == 1 and str(older) in {f["layer"] for f in found}, done
        assert not treestate.differences(before, treestate.take(s.place.upper / BRANCHES))
    (s.place.base / "away").rename(older / ".wh..wh.veneer")
    before = treestate.take(s.place.upper / BRANCHES)
    guard = next(name for name in os.listxattr(older / "big") if name.endswith(".overlay.metacopy"))
    value = os.getxattr(older / "big", guard)
    os.removexattr(older / "big", guard)
    assert "without the attribute" in check("-o", options).stdout
    assert check("--repair", "-o", options).returncode == 0
    assert os.getxattr(older / "big", guard) == value
    after = treestate.take(s.place.upper / BRANCHES)
    assert not [line for line in treestate.differences(before, after) if ": ctime was " not in line]
    # What an interrupted one left is for the next mount.
    (s.place.upper / BRANCHES / ("f" * 16 + ".new")).mkdir()
    done = check("-o", options)
    assert done.returncode == 1 and "interrupted" in done.stderr


def test_inspect_shows_each_snapshot(s):
    change(s.m)
    s.take("one")
    write_at(s.m / "big", b"LATER", 90_000)
    s.take("two")
    linux.umount(s.m)

    def inspect(code):
        done = subprocess.run([s.stack.program, "inspect", "--json", s.place.upper], text=True, stdout=subprocess.PIPE)
        assert done.returncode == code, done
        return json.loads(done.stdout)[0]["lines"]
    before = treestate.take(s.place.upper)
    lines = inspect(0)
    texts = [line["text"].partition(": ")[2] for line in lines if line["code"] == "branch"]
    assert texts == ["snapshot one, on no other", "snapshot two, on one; the upper is on it"]
    partial = [line["text"] for line in lines if line["code"] == "partial"]
    assert len([text for text in partial if "/big: " in text]) == 2 and not [line for line in lines if line["code"] == "damaged"]
    assert not treestate.differences(before, treestate.take(s.place.upper))
    chain = s.place.upper / BRANCHES / "chain"
    chain.write_text(chain.read_text().replace("one", "uno"))
    assert [line["code"] for line in inspect(1)].count("damaged") == 1


def test_listed_before_it_has_its_name(s):
    """A crash came in between, and no mount that writes has been there since."""
    change(s.m)
    s.take("one")
    linux.umount(s.m)
    snapshot, = (path for path in (s.place.upper / BRANCHES).iterdir() if path.is_dir())
    snapshot.rename(snapshot.with_name(snapshot.name + ".new"))
    before = treestate.take(s.place.upper)
    for command in (("snapshots", "--json"), ("inspect",)):
        done = s.call(*command[1:], s.place.upper, command=command[0])
        assert done.returncode == 0 and "one" in done.stdout, done
    assert not treestate.differences(before, treestate.take(s.place.upper))
