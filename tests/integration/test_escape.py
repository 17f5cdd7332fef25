# SPDX-License-Identifier: Apache-2.0
"""Directories turn into symbolic links while a container uses every call that takes a path. Whatever it sees, the
server opens and changes nothing outside of the layers: a directory there is watched.

The container is in a root of its own, as all are: where its own calls lead is the kernel's business and stays inside."""
import contextlib
import errno
import os
import random
import signal
import stat

import pytest

from support import linux
from support.child import Child
from support.content import blob
from support.expect import names_in
from support.watchfiles import Watch

_SECRET = b"the secret of the host " * 400
_NAMES = ["secret", "own", "sub", "sub/secret", "sub/own", "new", "sub/new", "link", "up", "up/secret", "link/secret"]
_ROUNDS = [1000, pytest.param(60_000, marks=pytest.mark.slow)]
# what a name may say that something else is made of meanwhile; never EINVAL, EBADF, EFAULT
_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ESTALE, errno.EIO,
           errno.EXDEV, errno.EPERM, errno.EBUSY, errno.ENODATA, errno.ENXIO, errno.EOPNOTSUPP, errno.EACCES,
           errno.EINVAL, errno.EMLINK, errno.ESPIPE}


@pytest.fixture
def outside(stack):
    """What must stay as it is; it has the names that are used inside."""
    top = stack.base / "outside"
    for directory in (top, top / "sub"):
        directory.mkdir()
        (directory / "secret").write_bytes(_SECRET)
        (directory / "own").write_bytes(_SECRET)
    before = _state(top)
    watch = Watch(top, top / "sub")
    yield top
    events = watch.events()
    watch.close()
    assert events == [], f"{len(events)} events, of the kinds and names {sorted(set(events))[:20]}"
    assert _state(top) == before


def _state(top):
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        st = path.lstat()
        found[str(path)] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_ctime_ns,
                            os.listxattr(path))
    return found


def _read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            assert _SECRET[:100] not in os.read(fd, 200_000), path
    finally:
        os.close(fd)


def _write(path, flags=0):
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | flags, 0o644)
    try:
        os.pwrite(fd, b"overwritten", 5000)
        if random.random() < 0.3:
            os.fsync(fd)
    finally:
        os.close(fd)


def _nameless(path):
    os.close(os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600))


_CALLS = [
    _read, _write, lambda p: _write(p, os.O_CREAT), lambda p: _write(p, os.O_CREAT | os.O_TRUNC), _nameless,
    lambda p: os.truncate(p, 7000), lambda p: os.chmod(p, 0o755), lambda p: os.chown(p, 0, 0), lambda p: os.utime(p),
    lambda p: os.setxattr(p, "user.k", b"v"), lambda p: os.getxattr(p, "user.k"), os.listxattr,
    lambda p: os.removexattr(p, "user.k"), os.mkdir, os.rmdir, os.unlink, os.mkfifo,
    lambda p: os.symlink("/outside", p), os.readlink, os.lstat, os.stat, os.listdir, os.statvfs,
    lambda p: os.access(p, os.W_OK),
]
_PAIRS = [
    lambda p, q: os.link(p, q), os.rename, lambda p, q: linux.renameat2(p, q, linux.RENAME_EXCHANGE),
    lambda p, q: linux.renameat2(p, q, linux.RENAME_NOREPLACE),
]


def _attempt(call, *paths):
    """Did it go?"""
    try:
        call(*paths)
    except OSError as e:
        assert e.errno in _ERRORS, (paths, e)
        return False
    return True


def _use(mnt, seed, rounds):
    """A container that walks by everything and goes on whatever it is told."""
    os.chroot(mnt)
    os.chdir("/")
    rng = random.Random(seed)
    went = failed = 0
    for _ in range(rounds):
        top = rng.choice(["d", "d", "e", "d/..", "e/../d"])
        paths = [f"{rng.choice([top, 'd'])}/{rng.choice(_NAMES)}" for _ in range(2)]
        ok = _attempt(rng.choice(_CALLS), paths[0]) if rng.random() < 0.8 else _attempt(rng.choice(_PAIRS), *paths)
        went, failed = went + ok, failed + (not ok)
    assert went > rounds // 50 and failed > rounds // 50, (went, failed)


@contextlib.contextmanager
def _swapping(directory, names):
    """Names of a directory are exchanged with what stands ready beside them, as fast as it goes, by another process."""
    pid = os.fork()
    if pid == 0:
        os.chdir(directory)
        while True:
            for name in names:
                with contextlib.suppress(OSError):
                    linux.renameat2(name, f"{name}-other", linux.RENAME_EXCHANGE)
    try:
        yield
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the attacker failed"
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fill(layer, target):
    """Directories d and e, with links that lead out, from wherever one stands."""
    for name in ("d", "e"):
        (layer / name / "sub").mkdir(parents=True)
        for directory in (layer / name, layer / name / "sub"):
            (directory / "secret").write_bytes(blob(30_000))
            (directory / "own").write_bytes(blob(3000))
        (layer / name / "link").symlink_to(target)
        (layer / name / "up").symlink_to("../../../../../.." + str(target))


def _decoy(layer, target):
    """Inside there is something by that path, too."""
    decoy = layer / str(target)[1:]
    (decoy / "sub").mkdir(parents=True)
    (decoy / "secret").write_bytes(blob(20_000))


def _others(directory, target):
    """What d, e and d/sub are exchanged with: links and a file."""
    (directory / "d-other").symlink_to(target)
    (directory / "e-other").symlink_to("../outside")
    (directory / "d" / "sub-other").symlink_to(target / "sub")


def _check_alive(m):
    (m / "alive").write_text("alive")
    assert (m / "alive").read_text() == "alive"
    assert "alive" in names_in(m)


def _run_workers(mnt, rounds):
    workers = [Child(_use, mnt, seed, rounds) for seed in range(2)]
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("rounds", _ROUNDS)
def test_names_that_turn_into_links_inside(stack, outside, rounds):
    """By the container itself, which can make any link and rename whatever it likes."""
    _fill(stack.lower(), outside)
    _decoy(stack.lower(), outside)
    m = stack.mount()
    _others(m, outside)
    with _swapping(m, ["d", "e", "d/sub"]):
        _run_workers(m, rounds)
    _check_alive(m)
    names = names_in(m)
    assert names_in(stack.remount()) == names


@pytest.mark.parametrize("rounds", _ROUNDS)
@pytest.mark.parametrize("layer", ["upper", "lower"])
def test_directories_of_a_layer_that_turn_into_links(stack, outside, rounds, layer):
    """A program with write access to the layer changes it below the mount: the mount may then show anything."""
    _fill(stack.lower(), outside)
    _decoy(stack.lower(), outside)
    top = stack.lower() if layer == "lower" else stack.upper
    if layer == "upper":
        _fill(stack.upper, outside)
    _others(top, outside)
    # else the kernel would remember what it saw first
    m = stack.mount("timeout=0")
    if layer == "lower":
        stack.forget_lower(stack.lower())
    with _swapping(top, ["d", "e", "d/sub"]):
        _run_workers(m, rounds)
    _check_alive(m)


def test_work_directories_that_turn_into_links(stack, outside):
    """All copies are made in there."""
    _fill(stack.lower(), outside)
    _decoy(stack.lower(), outside)
    m = stack.mount()
    (stack.work / "work-other").symlink_to(outside)
    with _swapping(stack.work, ["work"]):
        _run_workers(m, 500)
    _check_alive(m)


def test_links_where_directories_were_known(stack, outside):
    """Known, and not open any more."""
    _fill(stack.lower(), outside)
    m = stack.mount()
    for name in ("d", "e"):
        (m / name / "sub" / "made").write_text("made")
    m = stack.remount()
    assert [stat.S_ISDIR(os.lstat(m / name).st_mode) for name in ("d", "e")] == [True, True]
    for name in ("d", "e"):
        os.rename(stack.upper / name, stack.base / f"away-{name}")
        (stack.upper / name).symlink_to(outside)
    Child(_refused_in, m).join()
    _check_alive(m)


def _refused_in(mnt):
    os.chroot(mnt)
    os.chdir("/")
    for name in ("d/secret", "e/sub/secret", "d/new", "e/sub/new", "d/sub"):
        for call in _CALLS:
            _attempt(call, name)
        for call in _PAIRS:
            _attempt(call, name, "e/moved")
            _attempt(call, "e/own", name)
