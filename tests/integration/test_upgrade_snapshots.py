# SPDX-License-Identifier: Apache-2.0
"""Another program takes a mount whose snapshots are just being taken, gone back to, or made one, while programs work in it."""
import contextlib
import os
import random
import threading
import time

import pytest

from support import linux, treestate
from support.content import KIB, blob
from support.expect import opened, write_at
from support.server import wait_until
from support.snapshots import BRANCHES, Snapshots, change, looks, seen
from test_killed_server import Worker, data_changes, name_changes
from test_upgrade import kill_server_of, upgraded

_ROUNDS = 12
_LONG_ROUNDS = 150


@pytest.fixture
def s(request, stack, shared):
    made = Snapshots(stack, shared, *getattr(request, "param", ("branches=on",)))
    before = treestate.take(stack.lower())
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)
    assert not treestate.differences(before, treestate.take(stack.lower()))
    # Its mount may be another supervisor's by now.
    kill_server_of(shared)


class Meanwhile:
    """A command that goes on while the server is upgraded, some time after it began."""

    def __init__(self, s, wait_s, *arguments, command="snapshot"):
        self.done = None

        def call():
            self.done = s.call(*arguments, command=command)

        going = threading.Thread(target=call)
        going.start()
        time.sleep(wait_s)
        upgraded(s.shared, 1)
        going.join(90)
        assert self.done, "it hangs"

    def is_done(self):
        """It says why not, or did it."""
        assert (self.done.returncode == 0) != bool(self.done.stderr), self.done
        return self.done.returncode == 0


@contextlib.contextmanager
def at_work(m):
    """Programs that change names and data, and see each of their changes."""
    (m / "data").write_bytes(blob(300 * KIB, 3))
    workers = [Worker(name_changes(m / "names", 1)), Worker(data_changes(m / "data", 2))]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def get_on(workers):
    """Each has seen that its changes hold, after what was done."""
    for worker in workers:
        steps = worker.steps
        assert wait_until(lambda w=worker, s=steps: w.error or w.steps >= s + 2, 60), "it hangs"
        assert not worker.error, worker.error


def frozen(s):
    """What is in each snapshot of the chain, but for what a merge keeps of those that are gone."""
    return {name: state for name, state in s.frozen().items() if len(name) == 16}


def same_as_before(old, now):
    """But for change times: a merge gives files another name for a while."""
    for name in old.keys() & now.keys():
        assert not [what for what in treestate.differences(old[name], now[name]) if ": ctime was " not in what], name


def snapshots_and_merges(s, rounds):
    chance, tally = random.Random(0), {"snapshot": [0, 0], "squash": [0, 0]}
    with at_work(s.m) as workers:
        s.take("first")
        for k in range(rounds):
            before = frozen(s)
            command = "squash" if k % 3 == 2 else "snapshot"
            going = Meanwhile(s, chance.random() * 0.06, *(("-q", s.m) if command == "squash" else (s.m, f"s{k}")), command=command)
            tally[command][going.is_done()] += 1
            now = frozen(s)
            if command == "snapshot":
                same_as_before(before, now)
                assert before.keys() <= now.keys()
                assert (len(now) == len(before) + 1) == going.is_done()
            elif not going.is_done():
                same_as_before(before, now)
            get_on(workers)
    want = seen(s.m)
    linux.umount(s.m)
    s.mount()
    assert looks(s.m) == {path: what[:6] + what[7:] for path, what in want.items()}
    assert not (s.place.upper / BRANCHES / "squash").exists()
    assert tally["snapshot"][True] and tally["squash"][True], tally
    return tally


def test_snapshots_and_merges(s):
    snapshots_and_merges(s, _ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("s", [("branches=on",), ("io=cached",), ("io=cached", "writeback=on"), ("io=direct",)],
                         ids=["auto", "cached", "writeback", "direct"], indirect=True)
def test_many_snapshots_and_merges(s):
    snapshots_and_merges(s, _LONG_ROUNDS)


class Holder(threading.Thread):
    """A program that goes on with files that it has open, and finds a file that each snapshot has."""

    def __init__(self, m):
        super().__init__(daemon=True)
        self.m, self.is_over, self.error, self.steps = m, threading.Event(), None, 0

    def work(self, fd, model, dice):
        off, piece = dice.randrange(0, 290_000), dice.randbytes(dice.randrange(1, 9000))
        os.pwrite(fd, piece, off)
        model[off:off + len(piece)] = piece
        at = dice.randrange(0, 290_000)
        assert os.pread(fd, 5000, at) == model[at:at + 5000]
        with open(self.m / "hard2", "rb") as f:
            assert f.read() == b"hard"
        assert os.listdir(self.m / "new") == ["f"]

    def run(self):
        dice = random.Random(4)
        try:
            with opened(self.m / "big", os.O_RDWR) as fd:
                model = bytearray(os.pread(fd, 1 << 20, 0))
                while not self.is_over.is_set():
                    self.work(fd, model, dice)
                    self.steps += 1
        except BaseException as e:
            self.error = e

    def stop(self):
        self.is_over.set()
        self.join(60)
        assert not self.is_alive() and self.steps, "it hangs"
        if self.error:
            raise self.error


def but_for_big(m):
    return {path: what for path, what in looks(m, 5).items() if path not in (str(m / "big"), f"{m}/.")}


def rollbacks(s, rounds):
    chance, tally = random.Random(0), [0, 0]
    change(s.m)
    s.take("one")
    first = but_for_big(s.m)
    big = (s.m / "big").read_bytes()
    for k in range(rounds):
        holder = Holder(s.m)
        (s.m / "later").write_text(str(k))
        write_at(s.m / "second", b"%04d" % k, 0)
        (s.m / "link").unlink()
        holder.start()
        try:
            before, kept = but_for_big(s.m), frozen(s)
            going = Meanwhile(s, chance.random() * 0.05, "--keep", f"k{k}", s.m, "one", command="rollback")
            is_done = going.is_done()
            now = but_for_big(s.m)
            want = first if is_done else before
            assert not {p: (now.get(p), want.get(p)) for p in now.keys() | want.keys() if now.get(p) != want.get(p)}, (k, going.done)
            same_as_before(kept, frozen(s))
            assert kept.keys() <= frozen(s).keys()
            get_on([holder])
        finally:
            holder.stop()
        if is_done:
            assert (s.m / "big").read_bytes() == big
        else:
            s.back("one")
        assert but_for_big(s.m) == first
        tally[is_done] += 1
    linux.umount(s.m)
    s.mount()
    assert but_for_big(s.m) == first and tally[True], tally


def test_rollbacks(s):
    rollbacks(s, _ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("s", [("branches=on",), ("io=cached",), ("io=direct",)], ids=["auto", "cached", "direct"], indirect=True)
def test_many_rollbacks(s):
    rollbacks(s, _LONG_ROUNDS)
