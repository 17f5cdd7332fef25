# SPDX-License-Identifier: Apache-2.0
"""One writer for an upper, also while another user holds a lock of its root: a user with read permission alone keeps no mount out
that has been there before, and never lets in two."""
import contextlib
import os
import subprocess
import sys

import pytest

from support import linux, rootless
from support.content import blob
from support.expect import write_at
from support.places import Place
from support.server import Mount, MountFailed, is_shared, wait_until
from test_upgrade import kill_server_of, upgraded

_WORK, _CONTESTED = "user.veneer.work", "user.veneer.contested"
_HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[3] == "other":
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    os.close(fd)
    fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, {"SH": fcntl.LOCK_SH, "EX": fcntl.LOCK_EX}[sys.argv[2]] | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path, how="EX"):
    """Another process, of another user where there is one to be had, has the lock; it lets go when told to, or at the end."""
    who = "other" if rootless.mode() == "root" else "same"
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path), how, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"

    def let_go():
        process.stdin.close()
        assert process.wait(20) == 0
    try:
        yield let_go
    finally:
        if process.poll() is None:
            let_go()
        process.stdout.close()


def attributes(path):
    return {name for name in os.listxattr(path) if name in (_WORK, _CONTESTED)}


def another(stack, name, work=None, upper=None):
    mnt = stack.base / name
    mnt.mkdir()
    return Mount(stack.program, stack.lowers, upper or stack.upper, work or stack.work, mnt, stack.base / f"{name}.log", stack.watchdog)


def refused(stack, name, work=None):
    other = another(stack, name, work)
    with pytest.raises(MountFailed) as caught:
        other.start()
    other.kill()
    assert caught.value.code == 1 and " is in use by " in caught.value.log
    return caught.value.log


@pytest.fixture
def other_work(stack):
    path = stack.base / "other-work"
    path.mkdir()
    return path


@pytest.fixture
def known(stack):
    """An upper that a mount had before."""
    (stack.lower() / "f").write_bytes(blob(300_000))
    stack.mount()
    stack.umount()
    if not attributes(stack.upper):
        pytest.skip("the file system keeps no birth times or attributes")
    return stack


@pytest.mark.parametrize("how", ["EX", "SH"])
def test_a_reader_does_not_keep_the_next_mount_out(known, other_work, how):
    with held(known.upper, how) as let_go:
        m = known.mount()
        write_at(m / "f", b"changed", 100_000)
        assert attributes(known.upper) == {_WORK, _CONTESTED}
        assert "relying on the lock of workdir" in known.log
        let_go()
        # nobody has the root's lock now, and nobody else gets in
        # a server that has the mount itself names it
        assert ("mount it once with the workdir that it had" in refused(known, "b", other_work)) != is_shared()
        refused(known, "c")
        assert (m / "f").read_bytes()[100_000:100_007] == b"changed"
        known.umount()
    assert attributes(known.upper) == {_WORK}
    other = another(known, "d", other_work).start()
    assert (other.mnt / "f").read_bytes()[100_000:100_007] == b"changed"
    assert other.stop() is None


def test_it_does_keep_out_a_mount_with_another_work_directory(known, other_work):
    with held(known.upper):
        refused(known, "b", other_work)
    assert another(known, "c", other_work).start().stop() is None


def test_it_keeps_out_the_first_mount(stack):
    stack.lower()
    with held(stack.upper):
        refused(stack, "b")
    assert attributes(stack.upper) == set()
    stack.mount()


def test_the_attributes_are_not_seen(known):
    m = known.mount()
    assert os.listxattr(m) == []
    with pytest.raises(OSError):
        os.setxattr(m, _WORK, b"x")


def test_a_volatile_mount_goes_on_too(known, other_work):
    with held(known.upper):
        m = known.mount("volatile")
        write_at(m / "f", b"changed", 0)
        refused(known, "b")
        known.umount()
    assert attributes(known.upper) == {_WORK}
    assert (known.mount("volatile") / "f").read_bytes()[:7] == b"changed"


def test_second_mounts_write_nothing(known):
    before = os.stat(known.upper).st_ctime_ns
    known.mount()
    assert os.stat(known.upper).st_ctime_ns == before


@pytest.mark.parametrize("why", ["mode", "owner"])
def test_a_work_directory_that_others_can_open_is_no_lock(known, why):
    if why == "owner" and rootless.mode() != "root":
        pytest.skip("takes root to give it away")
    if why == "owner":
        os.chown(known.work / "work", 1, 1)
    else:
        (known.work / "work").chmod(0o755)
    known.mount()
    assert attributes(known.upper) == set()
    refused(known, "b")
    known.umount()
    with held(known.upper):
        refused(known, "c")


def test_two_uppers_with_one_work_directory(known):
    """Only one of them has the lock of the work directory; the other's upper is locked by its root."""
    upper = known.base / "upper-b"
    upper.mkdir()
    first = another(known, "first", upper=upper).start()
    m = known.mount()
    assert attributes(known.upper) == set()
    assert first.stop() is None
    refused(known, "b")
    write_at(m / "f", b"changed", 0)


# ---- a server that dies, or goes ----

@pytest.fixture
def served(stack, shared):
    """A mount that goes on against a reader, and the way to end that."""
    (stack.lower() / "f").write_bytes(blob(300_000))
    place = Place(stack, "p")
    place.mount(stack, shared)
    linux.umount(place.mnt)
    assert _closes(shared)
    if not attributes(place.upper):
        pytest.skip("the file system keeps no birth times or attributes")
    with held(place.upper) as let_go:
        result = place.run(stack, shared)
        assert result.returncode == 0, result
        assert attributes(place.upper) == {_WORK, _CONTESTED}
        place.let_go = let_go
        yield place
    kill_server_of(shared)


def _closes(shared):
    return wait_until(lambda: shared.count() == 0)


def _refuses(stack, shared, place, *works):
    """All at once: each waits a while."""
    asked = []
    for work in works:
        mnt = stack.base / f"second-{len(list(stack.base.glob('second-*')))}"
        mnt.mkdir()
        options = f"lowerdir={stack.lower()},upperdir={place.upper},workdir={work}"
        asked.append(subprocess.Popen([stack.program, "-o", options, str(mnt)], text=True, stdin=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, env={**os.environ, **shared.environment}))
    for process in asked:
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 1 and " is in use by " in said, said


@pytest.mark.parametrize("end", ["killed", "upgraded"])
@pytest.mark.parametrize("reader", ["stays", "has gone"])
def test_the_next_server_goes_on(stack, shared, served, other_work, end, reader):
    fd = os.open(served.mnt / "f", os.O_RDWR)
    os.pwrite(fd, b"before", 100)
    if reader == "has gone":
        served.let_go()
    if end == "killed":
        shared.kill_server()
    else:
        upgraded(shared, 1)
    os.pwrite(fd, b"after", 200_000)
    os.close(fd)
    assert (served.mnt / "f").read_bytes()[200_000:200_005] == b"after"
    # where the reader has gone the root's lock is had from then on
    assert attributes(served.upper) == ({_WORK} if reader == "has gone" else {_WORK, _CONTESTED})
    _refuses(stack, shared, served, served.work, other_work)
    if reader == "stays":
        shared.kill_server()
        assert (served.mnt / "f").read_bytes()[100:106] == b"before"
        served.let_go()
        _refuses(stack, shared, served, served.work, other_work)
    linux.umount(served.mnt)
    assert _closes(shared) and attributes(served.upper) == {_WORK}


def test_where_all_were_killed_the_same_work_directory_is_needed(stack, shared, served, other_work):
    write_at(served.mnt / "f", b"before", 100)
    shared.kill()
    linux.umount(served.mnt, linux.MNT_DETACH)
    served.let_go()
    shared.ensure()
    _refuses(stack, shared, served, other_work)
    served.mount(stack, shared)
    assert attributes(served.upper) == {_WORK}
    assert (served.mnt / "f").read_bytes()[100:106] == b"before"
