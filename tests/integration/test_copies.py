# SPDX-License-Identifier: Apache-2.0
"""Cached mounts of one server keep no more copies of the same lower data in their pages than `copies=` allows, and
nobody notices but by the memory."""
import contextlib
import json
import mmap
import os
import signal
import subprocess
import threading

import pytest

from support import pagecache
from support.content import KIB, MIB, blob
from support.expect import opened, write_at
from support.server import OwnMount, SharedMount, wait_until
from support.shared import child_of, kill

_SIZE = 4 * MIB
_CHUNK = 512 * KIB
_CHUNKS = _SIZE // _CHUNK
_LIMIT_S = 90


class Group:
    """Mounts of one image in a server of their own."""

    def __init__(self, stack, shared, program):
        self.stack, self.shared, self.program, self.mounts = stack, shared, program, []
        self.files = contextlib.ExitStack()

    def mount(self, copies, n, *options):
        self.stack.remember_lowers()
        for _ in range(n):
            k = len(self.mounts)
            places = [self.stack.base / f"{kind}-copies{k}" for kind in ("upper", "work", "mnt")]
            for place in places:
                place.mkdir()
            made = SharedMount(self.shared, self.program, [self.stack.lower()], *places,
                               self.stack.base / f"log-copies{k}")
            made.start("io=cached", f"copies={copies}", *options)
            self.mounts.append(made)
        return [m.mnt for m in self.mounts]

    def read(self, path):
        """All of it; it stays open, so that the kernel does not forget it when somebody drops caches."""
        file = self.files.enter_context(open(path, "rb"))
        return file.read()

    def counted(self):
        """The server's figures on copies."""
        said = subprocess.run([self.program, "stats", "--json"], env={**os.environ, **self.shared.environment},
                              capture_output=True, check=True, timeout=60)
        return json.loads(said.stdout)["copies"]

    def evictions(self):
        return self.counted()["evictions"]

    def wait_for(self, evictions):
        """Not for pages to be gone, which the kernel may take by itself."""
        assert wait_until(lambda: self.evictions() >= evictions, _LIMIT_S), self.counted()

    def comes_to(self, **expected):
        """The text comes from the end of a round, counters from its middle."""
        return wait_until(lambda: expected.items() <= self.counted().items(), _LIMIT_S)


@pytest.fixture
def group(stack, shared, veneer_bin):
    made = Group(stack, shared, veneer_bin)
    yield made
    made.files.close()
    for mount in made.mounts:
        if mount.is_mounted:
            assert mount.stop() is None


def fill(stack, name="f", seed=0, size=_SIZE):
    (stack.lower() / name).write_bytes(blob(size, seed))


def held(path):
    with opened(path, os.O_RDONLY) as fd:
        return pagecache.own_pages(fd)


def few(mounts, allowed, name="f", beside=0):
    """No more pages than so many copies have, and some beside. Which mount keeps which part is open where several read
    in the same moment."""
    return lambda: sum(held(m / name) for m in mounts) <= allowed * _SIZE // mmap.PAGESIZE + beside


def test_copies_beyond_the_limit_go(stack, group):
    fill(stack)
    mounts = group.mount(2, 4)
    for m in mounts:
        assert group.read(m / "f") == blob(_SIZE, 0)
    group.wait_for(2 * _CHUNKS)
    assert wait_until(few(mounts, 2), _LIMIT_S), [held(m / "f") for m in mounts]
    assert group.comes_to(evictions=2 * _CHUNKS, copies=2 * _CHUNKS, extents=_CHUNKS), group.counted()
    said = group.counted()
    assert 0 < said["dropping_us"] < said["cpu_us"]
    for m in mounts:
        assert group.read(m / "f") == blob(_SIZE, 0)


def test_copies_all_are_left_alone(stack, group):
    fill(stack), fill(stack, "other", 1)
    mounts = group.mount("all", 3) + group.mount(1, 2)[3:]
    for m in mounts:
        group.read(m / "f")
    # the last two are limited, and what is dropped from one is not dropped from the first three
    group.wait_for(_CHUNKS)
    assert wait_until(few(mounts[3:], 1), _LIMIT_S)
    assert group.comes_to(evictions=_CHUNKS, copies=_CHUNKS, mounts=2), group.counted()


def test_copies_of_what_a_mount_changed_stay(stack, group):
    fill(stack)
    mounts = group.mount(1, 3)
    at = 3 * _CHUNK + 64 * KIB
    for k, m in enumerate(mounts):
        write_at(m / "f", blob(4 * KIB, 100 + k), at)
        group.read(m / "f")
    group.wait_for(2 * _CHUNKS)
    # the changed blocks are nobody's copy
    assert wait_until(few(mounts, 1, beside=2), _LIMIT_S), [held(m / "f") for m in mounts]
    for k, m in enumerate(mounts):
        want = bytearray(blob(_SIZE, 0))
        want[at:at + 4 * KIB] = blob(4 * KIB, 100 + k)
        assert group.read(m / "f") == want


def test_copies_that_are_mapped_and_changed_lose_nothing(stack, group):
    fill(stack)
    mounts = group.mount(1, 2)
    with opened(mounts[0] / "f", os.O_RDWR) as fd, mmap.mmap(fd, _SIZE) as view:
        assert view[:] == blob(_SIZE, 0)
        view[_CHUNK:_CHUNK + 5] = b"store"
        group.read(mounts[1] / "f")
        group.wait_for(_CHUNKS)
        want = bytearray(blob(_SIZE, 0))
        want[_CHUNK:_CHUNK + 5] = b"store"
        assert view[:] == want
    assert group.read(mounts[0] / "f") == want
    assert group.read(mounts[1] / "f") == blob(_SIZE, 0)


def test_copies_of_a_program_in_use_are_left_alone(stack, group):
    fill(stack)
    os.chmod(stack.lower() / "f", 0o755)
    fill(stack, "plain", 1)
    mounts = group.mount(1, 2)
    for m in mounts:
        group.read(m / "f")
        group.read(m / "plain")
    group.wait_for(_CHUNKS)
    # so that all has been looked at once more
    for m in mounts:
        pagecache.drop(m / "plain")
        group.read(m / "plain")
    group.wait_for(2 * _CHUNKS)
    # this process read both files, and lives
    assert group.comes_to(copies=2 * _CHUNKS + _CHUNKS), group.counted()


class Reader(threading.Thread):
    """Reads a file over and over and compares."""

    def __init__(self, path, want):
        super().__init__()
        self.path, self.want, self.is_over, self.rounds, self.problem = path, want, False, 0, None

    def run(self):
        while not self.is_over and not self.problem:
            try:
                if self.path.read_bytes() != self.want:
                    self.problem = "other bytes"
            except OSError as e:
                self.problem = e
            self.rounds += 1


@contextlib.contextmanager
def reading(mounts, names):
    readers = [Reader(m / name, blob(_SIZE, k)) for m in mounts for k, name in enumerate(names)]
    for r in readers:
        r.start()
    try:
        yield readers
    finally:
        for r in readers:
            r.is_over = True
        for r in readers:
            r.join()
    assert not [r.problem for r in readers if r.problem]


def test_copies_go_while_others_read(stack, group):
    names = ["f", "g"]
    for k, name in enumerate(names):
        fill(stack, name, k)
    with reading(group.mount(1, 3), names) as readers:
        group.wait_for(40)
        assert wait_until(lambda: all(r.rounds > 3 for r in readers), _LIMIT_S)
    assert wait_until(lambda: group.counted()["refaults"] > 0, _LIMIT_S)


def test_copies_go_while_mounts_come_and_go(stack, group):
    fill(stack)
    with reading(group.mount(1, 2), ["f"]):
        for _ in range(4):
            more, before = group.mount(1, 1)[-1], group.evictions()
            with open(more / "f", "rb") as f:
                f.read()
                group.wait_for(before + 1)
            # whatever is under way
            assert group.mounts[-1].stop() is None
    assert group.comes_to(mounts=2), group.counted()


def test_copies_go_when_the_server_has_died(stack, group, shared):
    names = ["f", "g"]
    for k, name in enumerate(names):
        fill(stack, name, k)
    mounts = group.mount(1, 3)
    with reading(mounts, names):
        for is_last in (False, False, False, True):
            # a server knows only what it has sent itself
            for path in (m / name for m in mounts for name in names):
                pagecache.drop(path)
            group.wait_for(3)
            if not is_last:
                shared.kill_server()
    assert group.comes_to(mounts=3), group.counted()


def waits_for_a_page(server):
    """A process that the server has started is in a wait that nothing interrupts."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as f:
            if f.read().rpartition(")")[2].split()[:2] == ["D", str(server)]:
                return True
    return False


def test_copies_server_that_dies_while_the_kernel_waits_for_a_page_is_followed(stack, group, shared, veneer_bin):
    """The layer is on a file system that stands still: a READ hangs, and with it any thread that drops that page."""
    below, still = stack.base / "below", stack.base / "still"
    below.mkdir(), still.mkdir()
    (below / "f").write_bytes(blob(_SIZE, 0))
    layer = OwnMount(veneer_bin, [below], None, None, still, stack.base / "log-still")
    layer.start("io=direct", "standalone")
    stack.lowers.append(still)
    mounts, at, found = group.mount(1, 2), 6 * _CHUNK, []
    try:
        for _ in range(60):
            for m in mounts:
                pagecache.drop(m / "f")
                (m / "f").read_bytes()
            layer.signal(signal.SIGSTOP)
            with opened(mounts[0] / "f", os.O_RDONLY) as fd:
                os.posix_fadvise(fd, at, 4 * KIB, os.POSIX_FADV_DONTNEED)
                reader = threading.Thread(target=lambda: found.append(os.pread(fd, 4 * KIB, at)))
                reader.start()
                pid, is_caught = shared.pid, wait_until(lambda: waits_for_a_page(shared.pid), 2)
                if is_caught:
                    kill(pid)
                    assert wait_until(lambda: child_of(shared.process.pid) not in (None, pid), _LIMIT_S)
                layer.signal(signal.SIGCONT)
                reader.join()
            if is_caught:
                break
        assert is_caught, (layer.process.poll(), layer.log)
        assert found[-1] == blob(_SIZE, 0)[at:at + 4 * KIB]
        for m in mounts:
            assert (m / "f").read_bytes() == blob(_SIZE, 0)
    finally:
        layer.signal(signal.SIGCONT)
        for mount in group.mounts:
            assert mount.stop() is None
        assert wait_until(lambda: shared.count() == 0)
        stack.forget_lower(still)
        stack.lowers.clear()
        layer.kill()


def test_copies_of_one_mount_need_nobody(stack, group):
    fill(stack)
    mounts = group.mount(1, 1)
    group.read(mounts[0] / "f")
    assert group.comes_to(running=0, evictions=0)
    mounts = group.mount(1, 1)
    assert group.comes_to(running=1)
    # what the first was sent before is known
    group.read(mounts[1] / "f")
    group.wait_for(_CHUNKS)
    assert wait_until(few(mounts, 1), _LIMIT_S)
