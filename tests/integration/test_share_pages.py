# SPDX-License-Identifier: Apache-2.0
"""share=pages: one superblock for several mounts, in which unchanged files are one inode, and which must not be told from
separate mounts otherwise."""
import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import threading
import time

import pytest

from support import linux, pagecache, treestate
from support.child import Child
from support.expect import fails_with, opened, read_at, write_at
from support.procfs import waits_for_lock
from support.server import MountFailed, unmount, wait_until
from support.siblings import Siblings
from support.waiting import wait_for_tick

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog, request):
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]
    made = Siblings(session_dir / f"pages-{name}", veneer_bin, watchdog)
    yield made
    made.close()


def pattern(size, tag=b"lower\0"):
    return (tag * (size // len(tag) + 1))[:size]


# ---- what is shared ----

def test_an_unchanged_file_is_one_inode_with_one_set_of_pages(siblings):
    (siblings.lower / "f").write_bytes(pattern(4 * MIB))
    points = [siblings.shared() for _ in range(4)]
    assert len({(p / "f").stat().st_dev for p in points}) == 1
    assert len({(p / "f").stat().st_ino for p in points}) == 1
    with opened(points[3] / "f") as fd:
        assert pagecache.own_pages(fd) == 0
        assert (points[0] / "f").read_bytes() == pattern(4 * MIB)
        assert pagecache.own_pages(fd) == 4 * MIB // mmap.PAGESIZE
    with opened(points[1] / "f") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        assert view[:5] == b"lower"
    assert pagecache.resident_pages(points[2] / "f") == 4 * MIB // mmap.PAGESIZE


def test_the_lower_file_keeps_no_copy_beside_the_common_one(siblings):
    (siblings.lower / "f").write_bytes(pattern(4 * MIB + 100))
    a, b = siblings.shared(), siblings.shared()
    with opened(siblings.lower / "f") as fd:
        os.fsync(fd)
        assert (a / "f").read_bytes() == pattern(4 * MIB + 100)
        assert pagecache.own_pages(fd) <= 16
        assert (b / "f").read_bytes() == pattern(4 * MIB + 100)
        assert pagecache.own_pages(fd) <= 16
    with opened(b / "f") as fd:
        assert pagecache.own_pages(fd) == 4 * MIB // mmap.PAGESIZE + 1


def test_a_changed_file_has_pages_of_its_own(siblings):
    (siblings.lower / "f").write_bytes(pattern(MIB))
    a, b = siblings.shared(), siblings.shared()
    assert (b / "f").read_bytes() == pattern(MIB)
    write_at(a / "f", b"changed", 100)
    with opened(a / "f") as fd:
        assert pagecache.own_pages(fd) < MIB // mmap.PAGESIZE
    with opened(b / "f") as fd:
        assert pagecache.own_pages(fd) == MIB // mmap.PAGESIZE
    assert read_at(a / "f", 7, 100) == b"changed"
    assert (b / "f").read_bytes() == (siblings.lower / "f").read_bytes() == pattern(MIB)


def test_mounts_that_come_at_once_belong_together(siblings):
    (siblings.lower / "f").write_bytes(b"x")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        points = list(pool.map(lambda n: siblings.shared(name=f"p{n}"), range(8)))
    assert len({p.stat().st_dev for p in points}) == 1
    assert all((p / "f").read_bytes() == b"x" for p in points)


@pytest.mark.parametrize("options", [("squash_to_root",), ("static_nlink",), ("noacl",), ("timeout=10",), ("nodev",), ("noxattrs=1",)])
def test_options_that_differ_part_the_superblocks(siblings, options):
    a, b, c = siblings.shared(), siblings.shared(*options), siblings.shared(*options)
    assert a.stat().st_dev != b.stat().st_dev
    assert b.stat().st_dev == c.stat().st_dev


def test_labels_and_upper_options_do_not_part_them(siblings):
    """A label is ignored in every mount, and engines give each container another one."""
    (siblings.lower / "f").write_bytes(b"x")
    points = [siblings.shared(*options) for options in (
        (), ('context="system_u:object_r:container_file_t:s0:c1,c2"',), ('context="system_u:object_r:container_file_t:s0:c3,c4"',),
        ("size=10M",), ("volatile",), ("cow=copy",))]
    assert len({p.stat().st_dev for p in points}) == 1


def test_other_layers_are_another_superblock(siblings):
    other = siblings.directory("other")
    (other / "f").write_bytes(b"other")
    (siblings.lower / "f").write_bytes(b"lower")
    a, b, c = siblings.shared(), siblings.shared(lowers=[other]), siblings.shared(lowers=[siblings.lower, other])
    assert len({p.stat().st_dev for p in (a, b, c)}) == 3
    assert [(p / "f").read_bytes() for p in (a, b, c)] == [b"lower", b"other", b"lower"]


def test_layers_edited_in_between_are_seen_by_the_next(siblings):
    (siblings.lower / "f").write_bytes(b"before")
    a = siblings.shared()
    assert (a / "f").read_bytes() == b"before"
    (siblings.lower / "f").write_bytes(b"and after")
    b = siblings.shared()
    assert (b / "f").read_bytes() == b"and after"


@pytest.mark.parametrize("options, reason", [("io=passthrough", "not with io=passthrough"), ("io=direct", "not with io="),
                                             ("timeout=0", "not with timeout=0"), ("share=all", "share")])
def test_what_cannot_be_shared_is_refused(siblings, options, reason):
    with pytest.raises(MountFailed) as caught:
        siblings.mount("share=pages", options)
    assert reason in caught.value.log
    assert siblings.count() == 0


def test_without_an_upper_it_is_a_mount_of_its_own(siblings):
    (siblings.lower / "f").write_bytes(b"x")
    a, b = siblings.shared(), siblings.shared(has_upper=False)
    assert a.stat().st_dev != b.stat().st_dev
    with fails_with(errno.EROFS):
        (b / "f").write_bytes(b"y")
    assert (b / "f").read_bytes() == b"x"


def test_no_start_is_learned(siblings):
    """Reads of common files are in no mount's trace: what else there is must not be taken for all of a start."""
    for name in ("f", "g"):
        (siblings.lower / name).write_bytes(pattern(MIB))
    point = siblings.shared("prefetch=read", "prefetch_window=1")
    assert (point / "f").read_bytes() == pattern(MIB)
    write_at(point / "g", b"x", 0)
    linux.umount(point)
    assert wait_until(lambda: siblings.count() == 0)

    def is_known(layer):
        said = subprocess.run([siblings.program, "profile", "--state", os.environ["VENEER_STATE_DIR"], "list"],
                              capture_output=True, text=True)
        return str(layer) in said.stdout
    # A later start of another layer is known by then.
    other = siblings.directory("other")
    (other / "f").write_bytes(pattern(MIB))
    learning = siblings.mount("prefetch=read", "prefetch_window=1", lowers=[other])
    assert (pathlib.Path(learning.mnt) / "f").read_bytes() == pattern(MIB)
    linux.umount(learning.mnt)
    assert wait_until(lambda: is_known(other)) and not is_known(siblings.lower)


# ---- nobody sees what others change ----

def _replace(path):
    new = path.with_name(path.name + ".new")
    new.write_bytes(b"replaced")
    new.rename(path)


def _exchange(path):
    other = path.with_name(path.name + ".other")
    other.write_bytes(b"exchanged")
    linux.renameat2(path, other, 2)


def _store(path):
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
        view[10:16] = b"stored"
        view.flush()


def _by_descriptor(path):
    with opened(path, os.O_RDWR) as fd:
        os.fchmod(fd, 0o610)
        os.ftruncate(fd, 9000)
        os.setxattr(fd, "user.d", b"1")
        os.utime(fd, ns=(5, 6))


_CHANGES = {
    "nothing": lambda p: p.read_bytes(),
    "write": lambda p: write_at(p, b"written", 5000),
    "append": lambda p: p.open("ab").write(b"appended"),
    "truncate": lambda p: os.truncate(p, 100),
    "grow": lambda p: os.truncate(p, 100_000),
    "rewrite": lambda p: p.write_bytes(b"rewritten"),
    "chmod": lambda p: p.chmod(0o600),
    "chown": lambda p: os.chown(p, 5, 6),
    "utimes": lambda p: os.utime(p, ns=(10**18, 10**18 + 7)),
    "setxattr": lambda p: os.setxattr(p, "user.new", b"value"),
    "removexattr": lambda p: os.removexattr(p, "user.old"),
    "link": lambda p: os.link(p, p.with_name(p.name + ".link")),
    "rename": lambda p: p.rename(p.with_name(p.name + ".moved")),
    "replace": _replace,
    "exchange": _exchange,
    "unlink": lambda p: p.unlink(),
    "again": lambda p: (p.unlink(), p.write_bytes(b"made again")),
    "store": _store,
    "descriptor": _by_descriptor,
    "punch": lambda p: _punch(p),
}


def _punch(path):
    with opened(path, os.O_RDWR) as fd:
        linux.fallocate(fd, 3, 4096, 4096)


def _seen(directory, began_ns):
    """All that can be told of what is in a directory, but for times that are not older."""
    found = {}
    for path in sorted(directory.iterdir()):
        st = path.lstat()
        found[path.name] = (stat.filemode(st.st_mode), st.st_nlink, st.st_uid, st.st_gid, st.st_size,
                            st.st_mtime_ns if st.st_mtime_ns < began_ns else None, path.read_bytes(), treestate.xattrs_of(path))
    return found


def _differences(one, two):
    return [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)]


@pytest.mark.parametrize("is_known", [False, True], ids=["not looked at", "read by all"])
def test_every_change_in_two_mounts_is_that_of_two_separate_ones(siblings, is_known):
    """Each pair of changes on a file of its own, in one mount and then in the other."""
    for first in _CHANGES:
        for second in _CHANGES:
            path = siblings.lower / f"{first}-{second}"
            path.write_bytes(pattern(10_000))
            os.setxattr(path, "user.old", b"1")
    began_ns = time.time_ns()
    wait_for_tick(siblings.base)
    unchanged = _seen(siblings.lower, began_ns)
    shared = siblings.shared(), siblings.shared()
    separate = siblings.mount("io=cached").mnt, siblings.mount("io=cached").mnt
    third = siblings.shared()
    if is_known:
        assert _seen(shared[0], began_ns) == _seen(shared[1], began_ns) == _seen(third, began_ns) == unchanged
    for first, change in _CHANGES.items():
        for second, other_change in _CHANGES.items():
            for a, b in (shared, separate):
                change(a / f"{first}-{second}")
                other_change(b / f"{first}-{second}")
    for one, two in zip(shared, separate):
        assert _differences(_seen(one, began_ns), _seen(two, began_ns)) == []
    assert _differences(_seen(third, began_ns), unchanged) == []
    assert _differences(_seen(siblings.lower, began_ns), unchanged) == []


def test_directories_are_each_mounts_own(siblings):
    (siblings.lower / "d" / "e").mkdir(parents=True)
    (siblings.lower / "d" / "e" / "f").write_bytes(b"deep")
    a, b = siblings.shared(), siblings.shared()
    (a / "d" / "e").chmod(0o700)
    (a / "d" / "new").mkdir()
    (a / "d").rename(a / "moved")
    assert stat.S_IMODE((b / "d" / "e").stat().st_mode) == 0o755
    assert sorted(os.listdir(b / "d")) == ["e"] and os.listdir(b) == ["d"]
    assert (a / "moved" / "e" / "f").read_bytes() == (b / "d" / "e" / "f").read_bytes() == b"deep"
    write_at(a / "moved" / "e" / "f", b"DEEP", 0)
    assert (b / "d" / "e" / "f").read_bytes() == b"deep"
    shutil.rmtree(a / "moved")
    assert (b / "d" / "e" / "f").read_bytes() == b"deep"


def test_names_of_one_lower_file_stay_one_file(siblings):
    (siblings.lower / "x").write_bytes(b"linked")
    os.link(siblings.lower / "x", siblings.lower / "y")
    a, b = siblings.shared(), siblings.shared()
    assert (a / "y").read_bytes() == (b / "y").read_bytes() == b"linked"
    write_at(a / "x", b"L", 0)
    assert (a / "y").read_bytes() == b"Linked" and (b / "y").read_bytes() == b"linked"
    assert (a / "x").stat().st_ino == (a / "y").stat().st_ino and (a / "x").stat().st_nlink == 2


def test_who_reads_before_a_change_goes_on_with_what_was_there(siblings):
    (siblings.lower / "f").write_bytes(pattern(100_000))
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
        (a / "f").write_bytes(b"new")
        assert os.pread(fd, 10, 50_000) == pattern(100_000)[50_000:50_010] == view[50_000:50_010]
        assert (a / "f").read_bytes() == b"new"
        with opened(f"/proc/self/fd/{fd}") as again:
            assert os.pread(again, 5, 0) == b"lower"
    assert (b / "f").read_bytes() == pattern(100_000)


def test_what_has_only_a_descriptor_of_an_unchanged_file_changes_nothing(siblings):
    (siblings.lower / "f").write_bytes(b"shared")
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f") as fd:
        for change in (lambda: os.fchmod(fd, 0o600), lambda: os.fchown(fd, 1, 1), lambda: os.utime(fd, ns=(1, 1)),
                       lambda: os.setxattr(fd, "user.x", b"1"), lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR),
                       lambda: os.truncate(f"/proc/self/fd/{fd}", 0), lambda: linux.link_descriptor(fd, a / "g")):
            with fails_with(errno.ESTALE):
                change()
    for point in (a, b):
        assert stat.S_IMODE((point / "f").stat().st_mode) == 0o644 and (point / "f").read_bytes() == b"shared"
        assert os.listdir(point) == ["f"]


def test_a_bind_mount_of_an_unchanged_file_changes_nothing(siblings):
    """The kernel has no name there to look up once more."""
    (siblings.lower / "f").write_bytes(b"lower")
    a, b = siblings.shared(), siblings.shared()
    elsewhere = siblings.base / "elsewhere"
    elsewhere.write_bytes(b"")
    linux.mount(a / "f", elsewhere, flags=linux.MS_BIND)
    try:
        for change in (lambda: os.open(elsewhere, os.O_RDWR), lambda: os.truncate(elsewhere, 0), lambda: elsewhere.chmod(0o600)):
            with fails_with(errno.ESTALE):
                change()
        write_at(a / "f", b"L", 0)
        assert (a / "f").read_bytes() == b"Lower"
        assert elsewhere.read_bytes() == (b / "f").read_bytes() == b"lower"
    finally:
        linux.umount(elsewhere)


def test_nothing_is_moved_or_linked_from_one_mount_to_another(siblings):
    for name in ("f", "g"):
        (siblings.lower / name).write_bytes(b"x")
    a, b = siblings.shared(), siblings.shared()
    (a / "own").write_bytes(b"own")
    for name in ("f", "own"):
        with fails_with(errno.EXDEV):
            os.rename(a / name, b / "moved")
        with fails_with(errno.EXDEV):
            os.link(a / name, b / "linked")
    with opened(a / "own") as source, opened(b / "g", os.O_RDWR) as target:
        assert os.copy_file_range(source, target, 3) == 3
    assert (b / "g").read_bytes() == b"own" and (a / "g").read_bytes() == b"x"


def test_copies_from_an_unchanged_file_are_made_in_the_server(siblings):
    (siblings.lower / "f").write_bytes(pattern(300_000))
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f") as source, opened(b / "copy", os.O_RDWR | os.O_CREAT) as target:
        done = 0
        while done < 300_000:
            done += os.copy_file_range(source, target, 300_000 - done)
        assert pagecache.own_pages(source) == 0
    assert (b / "copy").read_bytes() == pattern(300_000)
    assert sorted(os.listdir(a)) == ["f"]


def test_there_is_no_way_up(siblings):
    a = siblings.shared()
    siblings.shared()
    assert (a / "..").resolve() == siblings.base
    assert os.stat(a / "..").st_ino == siblings.base.stat().st_ino
    assert sorted(os.listdir(a)) == []
    assert not (a / "2").exists() and not (a / "1").exists()


def test_handles_of_another_mount_lead_nowhere(siblings):
    """Its number is known, and not what goes with it."""
    if os.geteuid():
        pytest.skip("takes root")
    a, b = siblings.shared(), siblings.shared()
    (a / "secret").write_bytes(b"secret")
    (b / "mine").write_bytes(b"mine")
    handles = {}
    for path in (a / "secret", b / "mine"):
        made = linux.handle_of(path)
        if made is None:
            pytest.skip("no file handles here")
        handles[path.name] = made
    kind, known, forged = handles["mine"][0], handles["secret"][1], bytearray(handles["mine"][1])
    # node id as the kernel writes it, upper half first; the generation is our own
    forged[0:8] = known[0:8]
    with opened(b) as mount, fails_with(errno.ESTALE, errno.EPERM):
        linux.open_by_handle(mount, kind, bytes(forged))


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 9), reason="this kernel opens by handle what it knows, with privileges of the machine")
def test_nothing_is_opened_by_a_handle_however_right(siblings):
    """Since Linux 6.11 it takes no more than CAP_SYS_ADMIN of the file system's user namespace, which this test has; a
    secret kept from a program with that capability must not rest on 32 bits that are hard to guess."""
    a, b = siblings.shared(), siblings.shared()
    (a / "secret").mkdir()
    (a / "secret" / "f").write_bytes(b"secret")
    with opened(a / "secret"), opened(a / "secret" / "f"), opened(a), opened(b) as mount:
        for path, flags in ((a / "secret", os.O_DIRECTORY), (a, os.O_DIRECTORY), (a / "secret" / "f", os.O_RDONLY)):
            kind, raw = linux.handle_of(path, linux.AT_HANDLE_FID)
            # to files only root of the machine has this way
            with fails_with(errno.ESTALE, errno.EOPNOTSUPP, *([errno.EPERM] if flags == os.O_RDONLY else [])):
                linux.open_by_handle(mount, kind, raw, flags)
            assert linux.handle_of(path) is None


def test_a_program_that_runs_next_door_can_be_replaced_but_not_written(siblings):
    """The kernel asks nobody before it says so: a leak that is left (doc/SHARING.md)."""
    shutil.copy("/bin/sleep", siblings.lower / "sleep")
    a, b = siblings.shared(), siblings.shared()
    with subprocess.Popen([a / "sleep", "60"]) as process:
        try:
            with fails_with(errno.ETXTBSY):
                write_at(b / "sleep", b"not a program", 0)
            (b / "new").write_bytes(b"not a program")
            (b / "new").rename(b / "sleep")
        finally:
            process.kill()
    assert (a / "sleep").read_bytes() == (siblings.lower / "sleep").read_bytes()
    assert (b / "sleep").read_bytes()[:13] == b"not a program"


def test_who_tries_to_write_a_program_next_door_holds_it_up_no_longer_than_he_tries(siblings):
    """The kernel notes a writer before it asks us whether he may be one: a leak that is left (doc/SHARING.md)."""
    shutil.copy("/bin/true", siblings.lower / "true")
    a, b = siblings.shared(), siblings.shared()

    def try_to_write():
        with opened(a / "true") as fd:
            while True:
                with fails_with(errno.ESTALE, errno.ETXTBSY):
                    os.open(f"/proc/self/fd/{fd}", os.O_RDWR)

    writers = [Child(try_to_write) for _ in range(2)]
    try:
        for _ in range(100):
            try:
                assert subprocess.run([b / "true"], timeout=20).returncode == 0
            except OSError as e:
                assert e.errno == errno.ETXTBSY
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            os.waitpid(writer.pid, 0)
    assert subprocess.run([b / "true"], timeout=20).returncode == 0
    write_at(b / "true", b"#", 0)
    assert (a / "true").read_bytes() == (siblings.lower / "true").read_bytes()


_IN_ACCESS_MODIFY_CLOSE_OPEN = 0x1 | 0x2 | 0x8 | 0x10 | 0x20


@contextlib.contextmanager
def _watching(path):
    """Gives a function that says whether anything was heard since."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _IN_ACCESS_MODIFY_CLOSE_OPEN) >= 0

    def has_heard():
        try:
            return bool(os.read(fd, 1 << 20))
        except BlockingIOError:
            return False
    try:
        yield has_heard
    finally:
        os.close(fd)


def test_who_watches_an_unchanged_file_hears_of_a_neighbour_until_that_changes_it(siblings):
    """By the file itself and not by its directory: a leak that is left (doc/SHARING.md)."""
    (siblings.lower / "d").mkdir()
    (siblings.lower / "d" / "f").write_bytes(b"x")
    a, b = siblings.shared(), siblings.shared()
    with _watching(a / "d" / "f") as file, _watching(a / "d") as directory:
        (b / "d" / "f").read_bytes()
        assert file() and not directory()
        write_at(b / "d" / "f", b"y", 0)
        file()
        assert not directory()
        write_at(b / "d" / "f", b"z", 0)
        assert (b / "d" / "f").read_bytes() == b"z"
        assert not file() and not directory()


def test_a_lease_next_door_is_waited_for_by_the_first_write_and_no_other(siblings):
    """The kernel asks the common inode before it asks us: a leak that is left (doc/SHARING.md)."""
    (siblings.lower / "f").write_bytes(b"x")
    a, b = siblings.shared(), siblings.shared()
    old = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with opened(a / "f") as fd:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            with fails_with(errno.EWOULDBLOCK):
                os.open(b / "f", os.O_RDWR | os.O_NONBLOCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            write_at(b / "f", b"y", 0)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            os.close(os.open(b / "f", os.O_RDWR | os.O_NONBLOCK))
            assert fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    finally:
        signal.signal(signal.SIGIO, old)


def test_access_times_tell_nothing(siblings):
    (siblings.lower / "f").write_bytes(pattern(MIB))
    os.utime(siblings.lower / "f", ns=(5, 10**18))
    a, b = siblings.shared(), siblings.shared()
    assert (a / "f").read_bytes() == pattern(MIB)
    assert [(p / "f").stat().st_atime_ns for p in (a, b, siblings.shared(), siblings.lower)] == [5] * 4


def test_locks_are_each_mounts_own(siblings):
    (siblings.lower / "f").write_bytes(b"x")
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "f", os.O_RDWR) as one, opened(b / "f", os.O_RDWR) as two, opened(a / "f", os.O_RDWR) as three:
        for lock in (fcntl.flock, fcntl.lockf):
            lock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with fails_with(errno.EWOULDBLOCK):
            fcntl.flock(three, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_who_waits_for_a_lock_gets_it_or_is_interrupted(siblings):
    (siblings.lower / "f").write_bytes(b"x")
    a = siblings.shared()
    siblings.shared()
    with opened(a / "f", os.O_RDWR) as one:
        fcntl.flock(one, fcntl.LOCK_EX)
        waiting = [subprocess.Popen(["flock", a / "f", "true"]) for _ in range(2)]
        assert wait_until(lambda: all(waits_for_lock(p.pid) for p in waiting))
        with opened(a / "f") as other, fails_with(errno.EWOULDBLOCK):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert all(waits_for_lock(p.pid) for p in waiting)
        waiting[0].send_signal(signal.SIGTERM)
        assert waiting[0].wait(10) == -signal.SIGTERM
        fcntl.flock(one, fcntl.LOCK_UN)
        assert waiting[1].wait(10) == 0


def test_listings_beside_changes_lead_nobody_back(siblings):
    """A file that one mount has changed is never shown as it was, whatever programs list and look up meanwhile."""
    names = [f"f{n}" for n in range(60)]
    for name in names:
        (siblings.lower / name).write_bytes(b"old")
    a, b = siblings.shared(), siblings.shared()
    failures, is_over = [], threading.Event()

    def look():
        while not is_over.is_set():
            for entry in os.scandir(a):
                entry.stat()
            failures.extend(name for name in names if (b / name).read_bytes() != b"old")

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for thread in lookers:
        thread.start()
    for name in names:
        (a / name).write_bytes(b"newer")
        failures.extend([name] if (a / name).read_bytes() != b"newer" or (a / name).stat().st_size != 5 else [])
    is_over.set()
    for thread in lookers:
        thread.join()
    assert failures == []
    assert all((a / name).read_bytes() == b"newer" for name in names)


# ---- their life ----

def test_a_mount_goes_when_it_is_unmounted_and_the_others_stay(siblings):
    (siblings.lower / "f").write_bytes(b"x")
    points = [siblings.shared() for _ in range(3)]
    (points[1] / "own").write_bytes(b"kept")
    linux.umount(points[1])
    assert wait_until(lambda: siblings.count() == 2)
    assert (points[0] / "f").read_bytes() == (points[2] / "f").read_bytes() == b"x"
    back = siblings.shared(name="1")
    assert (back / "own").read_bytes() == b"kept"
    assert back.stat().st_dev == points[0].stat().st_dev
    for point in points:
        linux.umount(point)
    assert wait_until(lambda: siblings.count() == 0)


def test_what_is_below_is_free_when_the_last_has_ended(siblings):
    below = siblings.directory("below")
    for _ in range(20):
        linux.mount("none", below, "tmpfs")
        (below / "f").write_bytes(b"x")
        points = [siblings.shared(name=name, lowers=[below]) for name in "ab"]
        assert [(point / "f").read_bytes() for point in points] == [b"x", b"x"]
        for point in points:
            linux.umount(point)
        assert wait_until(lambda: siblings.count() == 0, step_s=0)
        linux.umount(below)


def test_an_upper_is_free_for_the_next_mount_at_once(siblings):
    siblings.shared(name="stays")
    for n in range(5):
        point = siblings.shared(name="again")
        assert len(os.listdir(point)) == n
        (point / str(n)).write_bytes(b"")
        linux.umount(point)


def _let_one_go(siblings):
    """By then the server has looked for a mount that was unmounted before."""
    n = siblings.count()
    linux.umount(siblings.shared(name="let go"))
    assert wait_until(lambda: siblings.count() == n)


def test_what_is_open_in_a_detached_mount_goes_on(siblings):
    (siblings.lower / "f").write_bytes(b"lower")
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "own", os.O_RDWR | os.O_CREAT) as own, opened(a / "f") as lower, opened(a, os.O_RDONLY) as top:
        linux.umount(a, linux.MNT_DETACH)
        # it is looked for, not found, and has users
        _let_one_go(siblings)
        os.pwrite(own, b"late", 0)
        assert os.pread(lower, 5, 0) == b"lower" and sorted(os.listdir(top)) == ["f", "own"]
        fd = os.open("f", os.O_RDWR, dir_fd=top)
        os.pwrite(fd, b"L", 0)
        os.close(fd)
    assert wait_until(lambda: siblings.count() == 1)
    assert (siblings.base / "upper-0" / "own").read_bytes() == b"late"
    assert (b / "f").read_bytes() == b"lower"


def test_an_upper_that_is_wanted_is_taken_from_a_detached_mount(siblings):
    a, b = siblings.shared(), siblings.shared()
    with opened(a / "own", os.O_RDWR | os.O_CREAT) as own:
        os.pwrite(own, b"acknowledged", 0)
        linux.umount(a, linux.MNT_DETACH)
        again = siblings.shared(name="0")
        assert (again / "own").read_bytes() == b"acknowledged"
        with fails_with(errno.ESTALE):
            os.pwrite(own, b"too late", 0)
        (b / "f").write_bytes(b"the other goes on")
    assert (again / "own").read_bytes() == b"acknowledged"


def test_a_copy_in_another_mount_namespace_keeps_it(siblings):
    (siblings.lower / "f").write_bytes(b"lower")
    a = siblings.shared()
    siblings.shared()
    with subprocess.Popen(["unshare", "-m", "sh", "-c", f"echo; read x; cat {a}/f; echo more > {a}/g; cat {a}/g"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        linux.umount(a)
        _let_one_go(siblings)
        assert other.communicate(b"\n", timeout=20)[0] == b"lowermore\n"
    assert wait_until(lambda: siblings.count() == 1)


def test_a_bind_mount_of_a_part_keeps_it(siblings):
    (siblings.lower / "d").mkdir()
    (siblings.lower / "d" / "f").write_bytes(b"lower")
    a, elsewhere = siblings.shared(), siblings.directory("elsewhere")
    siblings.shared()
    linux.mount(a / "d", elsewhere, flags=linux.MS_BIND)
    linux.umount(a)
    _let_one_go(siblings)
    (elsewhere / "f").write_bytes(b"changed")
    linux.umount(elsewhere)
    assert wait_until(lambda: siblings.count() == 1)
    assert (siblings.base / "upper-0" / "d" / "f").read_bytes() == b"changed"


def test_a_server_that_is_told_twice_to_go_ends_them(siblings):
    a = siblings.shared()
    siblings.shared()
    for said in ("told to end", "told again to end"):
        siblings.server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: said in siblings.server.log)
    siblings.server.process.wait(20)
    siblings.server.process = None
    with fails_with(errno.ENOTCONN, errno.ECONNABORTED):
        os.stat(a)


def _come_and_go(siblings, n_mounts, n_times):
    """The last one of a superblock may go while the next one comes."""
    (siblings.lower / "f").write_bytes(b"lower")

    def work(name):
        for n in range(n_times):
            point = siblings.shared(name=name)
            assert (point / "f").read_bytes() == b"lower" and (point / "f").stat().st_size == 5
            assert len(os.listdir(point)) == 1 + n
            (point / f"own{n}").write_bytes(b"")
            unmount(point)
        return True

    with concurrent.futures.ThreadPoolExecutor(n_mounts) as pool:
        assert all(pool.map(work, [f"m{k}" for k in range(n_mounts)]))
    assert wait_until(lambda: siblings.count() == 0)


def test_mounts_that_come_and_go_at_once(siblings):
    _come_and_go(siblings, 4, 6)


@pytest.mark.slow
@pytest.mark.parametrize("n_mounts", range(2, 10))
def test_many_mounts_that_come_and_go_at_once(siblings, n_mounts):
    _come_and_go(siblings, n_mounts, 50)


# ---- at random ----

class _Model:
    """The expected files of one mount: content by name."""

    def __init__(self, point, content):
        self.point, self.content = point, dict(content)

    def step(self, rng):
        name = rng.choice([f"n{k}" for k in range(12)])
        other = rng.choice([f"n{k}" for k in range(12)])
        path, known = self.point / name, self.content.get(name)
        kind = rng.choice(("read", "write", "write", "truncate", "unlink", "make", "rename", "stat", "list"))
        if kind == "list":
            assert sorted(os.listdir(self.point)) == sorted(self.content)
        elif kind == "make":
            path.write_bytes(bytes([rng.randrange(256)]) * rng.randrange(20_000))
            self.content[name] = path.read_bytes()
        elif known is None:
            assert not path.exists()
        elif kind == "read":
            assert path.read_bytes() == known
        elif kind == "stat":
            assert path.stat().st_size == len(known)
        elif kind == "write":
            off, data = rng.randrange(len(known) + 1), rng.randbytes(rng.randrange(1, 9000))
            write_at(path, data, off)
            self.content[name] = known[:off] + data + known[off + len(data):]
        elif kind == "truncate":
            size = rng.randrange(len(known) + 1)
            os.truncate(path, size)
            self.content[name] = known[:size]
        elif kind == "unlink":
            path.unlink()
            del self.content[name]
        elif kind == "rename":
            path.rename(self.point / other)
            self.content[other] = self.content.pop(name)

    def check(self):
        assert sorted(os.listdir(self.point)) == sorted(self.content)
        for name, data in self.content.items():
            assert (self.point / name).read_bytes() == data


def _at_random(siblings, seed, n_steps):
    print(f"seed {seed}")
    rng = random.Random(seed)
    content = {f"n{k}": rng.randbytes(rng.randrange(1, 60_000)) for k in range(8)}
    for name, data in content.items():
        (siblings.lower / name).write_bytes(data)

    def work(n):
        own = random.Random(f"{seed}-{n}")
        point = siblings.shared(name=str(n))
        model = _Model(point, content)
        for _ in range(3):
            for _ in range(n_steps):
                model.step(own)
            model.check()
            if own.random() < 0.7:
                unmount(point)
                siblings.shared(name=str(n))
        model.check()
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert {path.name: path.read_bytes() for path in siblings.lower.iterdir()} == content


def test_four_mounts_at_random(siblings):
    _at_random(siblings, 7301, 150)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(40))
def test_four_mounts_at_random_for_long(siblings, round_):
    _at_random(siblings, random.SystemRandom().randrange(10**9), 1500)
