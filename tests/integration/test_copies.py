# SPDX-License-Identifier: Apache-2.0
"""Cached mounts of one server keep no more copies of the same lower data in their pages than `copies=` allows, and
nobody notices but by the memory."""
import contextlib
import json
import mmap
import os
import subprocess
import threading

import pytest

from support import pagecache
from support.content import KIB, MIB, blob
from support.expect import opened, write_at
from support.server import SharedMount, wait_until

_SIZE = 4 * MIB
_PAGES = _SIZE // mmap.PAGESIZE
_CHUNK = 512 * KIB
_LIMIT_S = 90


class Group:
    """Mounts of one image in a server of their own."""

    def __init__(self, stack, shared, program):
        self.stack, self.shared, self.program, self.mounts = stack, shared, program, []

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

    def counted(self):
        """What the server says of copies."""
        said = subprocess.run([self.program, "stats", "--json"], env={**os.environ, **self.shared.environment},
                              capture_output=True, check=True, timeout=60)
        return json.loads(said.stdout)["copies"]

    def evictions(self):
        return self.counted()["evictions"]


@pytest.fixture
def group(stack, shared, veneer_bin):
    made = Group(stack, shared, veneer_bin)
    yield made
    for mount in made.mounts:
        if mount.is_mounted:
            assert mount.stop() is None


def fill(stack, name="f", seed=0, size=_SIZE):
    (stack.lower() / name).write_bytes(blob(size, seed))


def held(path):
    with opened(path, os.O_RDONLY) as fd:
        return pagecache.own_pages(fd)


def few(mounts, allowed, name="f", rest=0):
    """No more than so many of them have more pages of the file than `rest`."""
    return lambda: sum(held(m / name) > rest for m in mounts) <= allowed


def test_copies_beyond_the_limit_go(stack, group):
    fill(stack)
    mounts = group.mount(2, 4)
    for m in mounts:
        assert (m / "f").read_bytes() == blob(_SIZE, 0)
    assert wait_until(few(mounts, 2), _LIMIT_S), [held(m / "f") for m in mounts]
    # those who read last keep theirs
    assert held(mounts[0] / "f") == 0
    assert group.evictions() == 2 * _SIZE // _CHUNK
    for m in mounts:
        assert (m / "f").read_bytes() == blob(_SIZE, 0)


def test_copies_all_are_left_alone(stack, group):
    fill(stack), fill(stack, "other", 1)
    mounts = group.mount("all", 3) + group.mount(1, 2)[3:]
    for m in mounts:
        (m / "f").read_bytes()
    # the last two are limited, and what is dropped from one is not dropped from the first three
    assert wait_until(few(mounts[3:], 1), _LIMIT_S)
    said = group.counted()
    assert said["evictions"] == _SIZE // _CHUNK and said["mounts"] == 2


def test_copies_of_what_a_mount_changed_stay(stack, group):
    fill(stack)
    mounts = group.mount(1, 3)
    at = 3 * _CHUNK + 64 * KIB
    for k, m in enumerate(mounts):
        write_at(m / "f", blob(4 * KIB, 100 + k), at)
        (m / "f").read_bytes()
    assert wait_until(few(mounts, 1, rest=1), _LIMIT_S), [held(m / "f") for m in mounts]
    # the changed block is nobody's copy
    for m in mounts[:2]:
        assert held(m / "f") <= 1
    for k, m in enumerate(mounts):
        want = bytearray(blob(_SIZE, 0))
        want[at:at + 4 * KIB] = blob(4 * KIB, 100 + k)
        assert (m / "f").read_bytes() == want


def test_copies_that_are_mapped_and_changed_lose_nothing(stack, group):
    fill(stack)
    mounts = group.mount(1, 2)
    with opened(mounts[0] / "f", os.O_RDWR) as fd, mmap.mmap(fd, _SIZE) as view:
        assert view[:] == blob(_SIZE, 0)
        view[_CHUNK:_CHUNK + 5] = b"store"
        (mounts[1] / "f").read_bytes()
        assert wait_until(lambda: group.evictions() >= _SIZE // _CHUNK - 1, _LIMIT_S)
        want = bytearray(blob(_SIZE, 0))
        want[_CHUNK:_CHUNK + 5] = b"store"
        assert view[:] == want
    assert (mounts[0] / "f").read_bytes() == want
    assert (mounts[1] / "f").read_bytes() == blob(_SIZE, 0)


def test_copies_of_a_program_in_use_are_left_alone(stack, group):
    fill(stack)
    os.chmod(stack.lower() / "f", 0o755)
    fill(stack, "plain", 1)
    mounts = group.mount(1, 2)
    for m in mounts:
        (m / "f").read_bytes()
        (m / "plain").read_bytes()
    # this process read both, and lives; what is no program has gone by then
    assert wait_until(few(mounts, 1, "plain"), _LIMIT_S)
    assert group.evictions() == _SIZE // _CHUNK


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
        assert wait_until(lambda: group.evictions() > 40, _LIMIT_S)
        assert wait_until(lambda: all(r.rounds > 3 for r in readers), _LIMIT_S)
    assert group.counted()["refaults"] > 0


def test_copies_go_while_mounts_come_and_go(stack, group):
    fill(stack)
    with reading(group.mount(1, 2), ["f"]):
        for _ in range(4):
            more, before = group.mount(1, 1)[-1], group.evictions()
            (more / "f").read_bytes()
            assert wait_until(lambda: group.evictions() > before, _LIMIT_S)  # noqa: B023
            # whatever is under way
            assert group.mounts[-1].stop() is None
    assert group.counted()["mounts"] == 2


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
            assert wait_until(lambda: group.evictions() > 2, _LIMIT_S)
            if not is_last:
                shared.kill_server()
    assert group.counted()["mounts"] == 3


def test_copies_of_one_mount_need_nobody(stack, group):
    fill(stack)
    mounts = group.mount(1, 1)
    (mounts[0] / "f").read_bytes()
    said = group.counted()
    assert said["running"] == 0 and said["evictions"] == 0
    mounts = group.mount(1, 1)
    assert wait_until(lambda: group.counted()["running"] == 1, _LIMIT_S)
    # what the first was sent before is known
    (mounts[1] / "f").read_bytes()
    assert wait_until(few(mounts, 1), _LIMIT_S)
    assert held(mounts[0] / "f") == 0
