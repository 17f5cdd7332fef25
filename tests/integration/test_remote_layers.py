# SPDX-License-Identifier: Apache-2.0
"""Lower layers on a slow or remote file system: its requests, the effects of its troubles, and its missing features."""
import concurrent.futures
import errno
import hashlib
import mmap
import os
import pathlib
import signal
import subprocess

import pytest

from support import linux, pagecache
from support.places import Place
from support.remote import Remote, questions
from support.server import wait_until

_DIRS, _FILES = 6, 5
# To open a layer: its root, its map, its attributes.
_OF_A_MOUNT = 12


@pytest.fixture
def far(stack):
    """A tree elsewhere, shown at the stack's lower directory."""
    source = stack.base / "far"
    for d in range(_DIRS):
        (source / f"d{d}").mkdir(parents=True)
        for f in range(_FILES):
            (source / f"d{d}" / f"f{f}").write_bytes(os.urandom(700 << f * 3))
    (source / "link").symlink_to("d0/f0")
    os.link(source / "d0" / "f2", source / "d0" / "second-name")
    os.link(source / "d0" / "f2", source / "d5" / "third-name")
    remote = Remote(source, stack.lower())
    remote.expected = contents(source)
    yield remote
    remote.knobs.is_hanging = 0
    for point in [os.path.join(stack.base, name, "mnt") for name in os.listdir(stack.base)] + [stack.mnt]:
        if os.path.ismount(point):
            linux.umount(point, linux.MNT_DETACH)
    remote.close()
    assert contents(source) == remote.expected


def contents(root):
    """What a container sees of it, every byte and every attribute that counts."""
    found = {}
    for at, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            known = [oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns]
            if os.path.islink(path):
                known.append(os.readlink(path))
            elif name in files:
                with open(path, "rb") as f:
                    known += [st.st_size, hashlib.sha256(f.read()).hexdigest()]
            found[os.path.relpath(path, root)] = known
    return found


def believe(far):
    """For as long as any test takes. After a second the kernel asks for attributes again, and the machine may be busy."""
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 3600


def unexcused(asked, dropped):
    """Questions that were asked. Not reads, where the machine dropped pages since `dropped` was counted. It counts that when it
    has been through all file systems, and tests/soak has some that do not answer for a while."""
    if asked.get("READ") and wait_until(lambda: pagecache.drops() != dropped, 40):
        asked = {name: n for name, n in asked.items() if name != "READ"}
    return questions(asked)


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def names(root):
    return sorted(os.path.join(at, name) for at, dirs, files in os.walk(root) for name in dirs + files
                  if os.lstat(os.path.join(at, name)))


def mounts(stack, shared, n, *options):
    return [Place(stack, f"place{k}").mount(stack, shared, *options) for k in range(n)]


@pytest.mark.parametrize("io", ["auto", "cached", "direct"])
def test_a_sibling_asks_the_far_side_for_nothing(stack, shared, far, io):
    believe(far)
    dropped = pagecache.drops()
    first, second = mounts(stack, shared, 2, "layers=static", f"io={io}")
    with far.asked() as cold:
        seen = contents(first)
    assert seen == contents(far.root) and questions(cold) > _DIRS * _FILES
    # Once each, whatever names a file has: another open would take the pages away that were read before.
    assert cold["OPEN"] == _DIRS * _FILES, cold
    with far.asked() as warm:
        assert contents(second) == seen
        with open(second / "d1" / "f0", "rb") as f:
            f.read()
    assert unexcused(warm, dropped) == 0, (warm, cold)
    with far.asked() as third:
        seen_later = contents(Place(stack, "later").mount(stack, shared, "layers=static", f"io={io}"))
    assert seen_later == seen and unexcused(third, dropped) <= _OF_A_MOUNT, (third, cold)


@pytest.mark.parametrize("io", ["auto", "cached", "direct"])
def test_a_file_is_opened_once_by_all_who_read_it_at_the_same_time(stack, shared, far, io):
    """The far side takes its time, so that all are there before the first one has it open."""
    believe(far)
    where = [mnt / "d1" / "f4" for mnt in mounts(stack, shared, 4, "layers=static", f"io={io}")]
    for path in where:
        os.lstat(path)
    far.knobs.delay_s = 0.05
    with far.asked() as asked, concurrent.futures.ThreadPoolExecutor(len(where)) as pool:
        seen = list(pool.map(lambda path: path.read_bytes(), where))
    assert seen == [open(os.path.join(far.root, "d1", "f4"), "rb").read()] * len(where)
    assert asked["OPEN"] == 1, asked


def test_large_reads_ask_the_far_side_for_data_alone(stack, shared, far):
    """Also where layers may change: each file is opened and read, and not asked for its size at each read."""
    big = os.path.join(far.root, "d0", "big")
    with open(big, "wb") as f:
        f.write(os.urandom(4 << 20))
    far.expected = contents(far.root)
    far.knobs.attr_valid_s = 0
    mnt, = mounts(stack, shared, 1, "io=cached")
    os.lstat(mnt / "d0" / "big")
    with far.asked() as asked, open(mnt / "d0" / "big", "rb") as f:
        assert hashlib.sha256(f.read()).digest() == hashlib.sha256(open(big, "rb").read()).digest()
    assert asked.get("STATFS", 0) == 0 and asked.get("GETATTR", 0) <= 4 + asked["READ"] // 4, asked


def is_learned(stack):
    said = subprocess.run([stack.program, "profile", "--state", os.environ["VENEER_STATE_DIR"], "list"],
                          capture_output=True, text=True)
    return str(stack.lower()) in said.stdout


def test_what_a_start_reads_is_here_before_the_next_one_asks(stack, shared, far):
    """prefetch=read, and a far side that takes its time."""
    believe(far)
    far.knobs.delay_s = 0.01
    # else each open, also the test's own, drops the cached pages
    far.knobs.keeps_cache = 1
    options = "layers=static", "io=cached", "prefetch=read", "prefetch_window=10"
    name = os.path.join("d1", "f4")
    first = Place(stack, "first").mount(stack, shared, *options)
    (first / name).read_bytes()
    linux.umount(first)

    assert wait_until(lambda: is_learned(stack), 30)
    pagecache.drop(far.point / name)
    assert pagecache.resident_pages(far.point / name) == 0
    second = Place(stack, "second").mount(stack, shared, *options)
    size = os.path.getsize(os.path.join(far.root, name))
    assert wait_until(lambda: pagecache.resident_pages(far.point / name) >= size // 4096, 30)
    with far.asked() as asked:
        assert len((second / name).read_bytes()) == size
    assert asked.get("READ", 0) == 0, asked


def test_what_is_read_ahead_of_a_large_file_is_not_taken_away_again(stack, shared, far, monkeypatch):
    """Several threads read it ahead, and the far side's pages go with each open."""
    # of its own: what was seen of an earlier file system with this device number is no history of this one
    monkeypatch.setenv("VENEER_STATE_DIR", str(stack.base / "state"))
    big, size = os.path.join("d0", "big"), 8 << 20
    pathlib.Path(far.root, big).write_bytes(os.urandom(size))
    far.expected = contents(far.root)
    believe(far)
    options = "layers=static", "io=cached", "prefetch=read", "prefetch_window=10"
    first = Place(stack, "first").mount(stack, shared, *options)
    content = (first / big).read_bytes()
    linux.umount(first)
    assert wait_until(lambda: is_learned(stack), 30)
    far.knobs.delay_s = 0.01
    with open(far.point / big, "rb") as there:
        os.posix_fadvise(there.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert pagecache.own_pages(there.fileno()) == 0
        before = far.knobs.counts()["OPEN"]
        second = Place(stack, "second").mount(stack, shared, *options)
        assert wait_until(lambda: pagecache.own_pages(there.fileno()) == size // mmap.PAGESIZE, 30)
    with far.asked() as asked:
        assert (second / big).read_bytes() == content
    assert asked.get("READ", 0) == 0 and far.knobs.counts()["OPEN"] <= before + 1, asked


def test_names_are_kept_for_the_next_container(stack, shared, far):
    """The last container of an image ends before the next one begins."""
    believe(far)
    place = Place(stack, "first")
    seen = names(place.mount(stack, shared, "layers=static"))
    linux.umount(place.mnt)
    with far.asked() as asked:
        later = Place(stack, "later").mount(stack, shared, "layers=static")
        assert [n.replace("/later/", "/first/") for n in names(later)] == seen
    if questions(asked) > _OF_A_MOUNT and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 8):
        pytest.skip("this kernel does not name mounts for good: what was seen is not kept (Linux 6.8)")
    assert questions(asked) <= _OF_A_MOUNT, asked


def _make_next(stack, number):
    """The next file system gets this device number: all below are taken. What takes them."""
    fillers = []
    for n in range(200):
        path = stack.base / f"filler{n}"
        path.mkdir()
        linux.mount("tmpfs", str(path), "tmpfs")
        fillers.append(path)
        if (dev := os.stat(path).st_dev) >= number:
            linux.umount(fillers.pop())
            return fillers if dev == number else []
    return []


def test_another_file_system_in_the_same_place_is_another_layer(stack, shared, far):
    """With the same device number, the same number of its root, and no time of birth."""
    place = Place(stack, "first")
    names(place.mount(stack, shared, "layers=static"))
    number = os.stat(far.point).st_dev
    linux.umount(place.mnt)
    far.close()
    fillers = _make_next(stack, number)
    other = stack.base / "other"
    (other / "d0").mkdir(parents=True)
    (other / "d0" / "new").write_text("new")
    remote = Remote(other, stack.lower())
    try:
        if os.stat(remote.point).st_dev != number:
            pytest.skip("somebody else got the number of the first file system")
        mnt = place.mount(stack, shared, "layers=static")
        assert os.listdir(mnt) == ["d0"] and (mnt / "d0" / "new").read_text() == "new"
        linux.umount(mnt)
    finally:
        remote.close()
        for path in fillers:
            linux.umount(path)


def test_a_layer_that_may_change_is_looked_at_by_each_mount(stack, shared, far):
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    first, = mounts(stack, shared, 1)
    names(first)
    added = os.path.join(far.root, "d0", "added")
    with open(added, "w") as f:
        f.write("later")
    far.expected = contents(far.root)
    second = Place(stack, "second").mount(stack, shared)
    assert (second / "d0" / "added").read_text() == "later"


@pytest.mark.parametrize("layers", ["auto", "static"])
def test_an_error_is_theirs_who_ask_and_no_longer_than_it_lasts(stack, shared, far, layers):
    a, b = mounts(stack, shared, 2, f"layers={layers}")
    with far.trouble("d3", error=errno.EIO):
        for mnt in (a, b):
            with pytest.raises(OSError) as e:
                os.listdir(mnt / "d3")
            assert e.value.errno == errno.EIO
            assert (mnt / "d2" / "f1").read_bytes() == open(os.path.join(far.root, "d2", "f1"), "rb").read()
        (b / "d2" / "f1").write_text("changed")
    assert contents(a) == contents(far.root)
    assert len(os.listdir(b / "d3")) == _FILES


@pytest.mark.parametrize("layers", ["auto", "static"])
def test_a_file_that_cannot_be_read_for_a_time_is_whole_after_it(stack, shared, far, layers):
    a, b = mounts(stack, shared, 2, f"layers={layers}")
    assert names(a)
    with far.trouble("f4", error=errno.EIO):
        for mnt in (a, b):
            with pytest.raises(OSError), open(mnt / "d1" / "f4", "rb") as f:
                f.read()
            with pytest.raises(OSError), open(mnt / "d1" / "f4", "r+b") as f:
                f.write(b"x" * 100)
    assert contents(a) == contents(b) == contents(far.root)


@pytest.mark.parametrize("layers", ["auto", "static"])
def test_a_stale_handle_is_an_error_of_that_file(stack, shared, far, layers):
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    a, = mounts(stack, shared, 1, f"layers={layers}", "io=cached")
    assert names(a)
    with far.trouble("f3", is_stale=1):
        with pytest.raises(OSError) as e, open(a / "d1" / "f3", "rb") as f:
            f.read()
        assert e.value.errno in (errno.ESTALE, errno.EIO)
        assert (a / "d1" / "f2").read_bytes()
    assert contents(a) == contents(far.root)


@pytest.mark.parametrize("layers", ["auto", "static"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_layer_that_hangs_holds_up_who_asks_it_and_nobody_else(stack, shared, far, layers, nth):
    """Nothing that is known may be believed, so that every question goes there."""
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    near = stack.base / "near"
    near.mkdir()
    (near / "file").write_text("near")
    a, b = mounts(stack, shared, 2, f"layers={layers}")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        with far.trouble("d3", is_hanging=nth):
            waiting = [pool.submit(subprocess.run, ["ls", "-l", str(mnt / "d3")], capture_output=True, text=True)
                       for mnt in (a, b, a)]
            done = [pool.submit(lambda mnt: (mnt / "d1" / "f1").read_bytes(), mnt) for mnt in (a, b)]
            place = Place(stack, "beside", lowers=[near])
            done.append(pool.submit(lambda: (place.mount(stack, shared) / "file").read_bytes()))
            concurrent.futures.wait(done, 30)
            assert all(f.done() for f in done)
            assert not any(f.done() for f in waiting)
            linux.umount(place.mnt)
        assert all(len(f.result(30).stdout.splitlines()) == _FILES + 1 for f in waiting)
    assert contents(a) == contents(b) == contents(far.root)


@pytest.mark.parametrize("layers", ["auto", "static"])
@pytest.mark.parametrize("lack", [{"changes_numbers": 1}, {"hides_numbers": 1}, {"hides_types": 1}, {"has_xattrs": 0},
                                  {"changes_numbers": 1, "hides_numbers": 1, "hides_types": 1, "has_xattrs": 0,
                                   "entry_valid_s": 0, "attr_valid_s": 0}],
                         ids=["numbers-change", "numbers", "types", "attributes", "all"])
def test_what_a_remote_file_system_lacks_is_not_missed(stack, shared, far, lack, layers):
    for knob, value in lack.items():
        setattr(far.knobs, knob, value)
    place = Place(stack, "place")
    mnt = place.mount(stack, shared, f"layers={layers}")
    before = contents(far.root)
    assert contents(mnt) == before
    files = {path: os.lstat(path).st_ino for path in names(mnt)}
    assert len(set(files.values())) >= len(files) - 2  # names of one file have one number
    with open(mnt / "d2" / "f4", "r+b") as f:
        f.seek(1 << 20)
        f.write(b"changed")
    os.unlink(mnt / "d1" / "f1")
    os.rename(mnt / "d4" / "f2", mnt / "d5" / "moved")
    os.chmod(mnt / "d5" / "f0", 0o600)
    for name in ("d0/f2", "d5/third-name"):
        with open(mnt / name, "r+b") as f:
            f.write(b"linked")
    assert (mnt / "d0" / "second-name").read_bytes()[6:] == (mnt / "d0" / "f2").read_bytes()[6:]
    seen = contents(mnt)
    assert before.keys() - seen.keys() == {"d1/f1", "d4/f2"} and seen.keys() - before.keys() == {"d5/moved"}
    assert seen["d5/moved"][-1] == before["d4/f2"][-1] and seen["d2/f4"] != before["d2/f4"]
    assert os.stat(place.upper / "d2" / "f4").st_blocks * 512 <= 64 << 10
    linux.umount(mnt)
    assert contents(place.mount(stack, shared, f"layers={layers}")) == seen


def test_another_server_goes_on_with_a_remote_layer(stack, shared, far):
    a, b = mounts(stack, shared, 2, "layers=static")
    with open(a / "d0" / "f4", "rb") as f:
        head = f.read(4096)
        shared.kill_server()
        assert len(head + f.read()) == os.path.getsize(os.path.join(far.root, "d0", "f4"))
    assert contents(a) == contents(b) == contents(far.root)


@pytest.mark.parametrize("name, nth", [("d3", 1), ("d3", 2), ("d3", 3), ("f4", 1), ("f4", 2), ("f4", 3), ("f4", 4)])
def test_a_server_that_dies_while_a_layer_hangs_is_followed(stack, shared, far, name, nth):
    """Whatever it is asked: a thread that waits for its answer does not die before that comes, if ever."""
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    near = Place(stack, "beside", lowers=[stack.base / "near"]).mount(stack, shared)
    mnt, = mounts(stack, shared, 1, "io=cached")
    with far.trouble(name, is_hanging=nth):
        asking = subprocess.Popen(["find", str(mnt), "-type", "f", "-exec", "cat", "{}", "+"], stdout=subprocess.DEVNULL)
        assert wait_until(far.is_holding)
        shared.kill_server()
        assert (near / "file").read_text() == "near"
        (near / "own").write_text("own")
        assert asking.poll() is None
    assert asking.wait(30) == 0
    assert contents(mnt) == contents(far.root)
    linux.umount(near)
    linux.umount(mnt)
    assert wait_until(lambda: shared.count() == 0)


def test_what_a_dying_server_is_told_the_next_one_hears(stack, shared, far):
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    mnt, = mounts(stack, shared, 1, "io=cached")
    with far.trouble("d3", is_hanging=1):
        asking = subprocess.Popen(["ls", str(mnt / "d3")], stdout=subprocess.DEVNULL)
        assert wait_until(far.is_holding)
        dying = shared.pid
        os.kill(dying, signal.SIGKILL)
        assert wait_until(lambda: state_of(dying) == "Z")
        shared.signal(signal.SIGTERM)
        assert wait_until(lambda: "told to end" in shared.log)
    assert asking.wait(30) == 0
    assert contents(mnt) == contents(far.root)
    linux.umount(mnt)
    assert shared.process.wait(30) == 0


def test_a_server_that_dies_while_a_layer_of_a_new_mount_hangs_is_followed(stack, shared, far):
    """The first question of a mount that no cache answers: does the layer have a map?"""
    far.knobs.entry_valid_s = far.knobs.attr_valid_s = 0
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    near = Place(stack, "beside", lowers=[stack.base / "near"]).mount(stack, shared)
    place = Place(stack, "new")
    with far.trouble(".wh..wh.veneer", is_hanging=1):
        asking = subprocess.Popen([stack.program, "-o", place.options(), str(place.mnt)],
                                  env={**os.environ, **shared.environment})
        assert wait_until(far.is_holding)
        shared.kill_server()
        assert (near / "file").read_text() == "near"
        assert asking.poll() is None
    assert asking.wait(30) == 0
    assert contents(place.mnt) == contents(far.root)
    for mnt in (near, place.mnt):
        linux.umount(mnt)
    assert wait_until(lambda: shared.count() == 0)


@pytest.mark.needs_root("a user namespace passes nothing through")
def test_a_file_system_that_cannot_be_passed_through_is_read(stack, shared, far):
    """The kernel refuses what passes files through itself: a union of unions."""
    below = Place(stack, "below")
    below.mount(stack, shared)
    mnt = Place(stack, "upon", lowers=[below.mnt]).mount(stack, shared)
    assert contents(mnt) == contents(far.root)
    with open(mnt / "d1" / "f4", "r+b") as f:
        f.write(b"changed")
    assert contents(below.mnt) == contents(far.root)
    assert (mnt / "d1" / "f4").read_bytes()[:8] == b"changed" + (below.mnt / "d1" / "f4").read_bytes()[7:8]
    linux.umount(mnt)


def _upper_without_attributes(stack):
    """ramfs keeps no attributes of users."""
    (stack.base / "plain").mkdir()
    linux.mount("ramfs", str(stack.base / "plain"), "ramfs", 0, "mode=0755")
    stack.upper, stack.work = stack.base / "plain" / "upper", stack.base / "plain" / "work"
    for path in (stack.upper, stack.work):
        path.mkdir()
    with pytest.raises(OSError):
        os.setxattr(stack.upper, "user.x", b"x")


def test_an_upper_without_attributes_takes_whole_files_and_says_so_once(stack):
    lower = stack.lower()
    (lower / "d").mkdir()
    for name in ("a", "b", "d/c"):
        (lower / name).write_bytes(os.urandom(1 << 20))
    _upper_without_attributes(stack)
    try:
        m = stack.mount()
        before = contents(m)
        for name in ("a", "b"):
            with open(m / name, "r+b") as f:
                f.seek(4096)
                f.write(b"changed")
        os.rename(m / "d" / "c", m / "d" / "moved")
        os.unlink(m / "b")
        with pytest.raises(OSError) as e:
            os.rename(m / "d", m / "renamed")
        assert e.value.errno == errno.EXDEV
        subprocess.run(["mv", str(m / "d"), str(m / "renamed")], check=True)
        seen = contents(m)
        assert seen["renamed/moved"][-1] == before["d/c"][-1] and {"a", "renamed", "renamed/moved"} == seen.keys()
        # another program that reads the upper sees all of the file
        assert (stack.upper / "a").read_bytes() == (m / "a").read_bytes()
        stack.umount()
        assert stack.log.count("extended attributes") == 1
        assert contents(stack.mount()) == seen
        stack.umount()
    finally:
        if stack.is_mounted:
            stack.umount()
        linux.umount(stack.base / "plain", linux.MNT_DETACH)
