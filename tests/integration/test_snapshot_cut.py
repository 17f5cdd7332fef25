# SPDX-License-Identifier: Apache-2.0
"""A power cut in the middle of a snapshot: whichever entries have moved, mounts that may not finish it show the upper."""
import contextlib
import json
import os
import random

import pytest

from support import layers, linux
from support.expect import write_at
from support.snapshots import BRANCHES, Snapshots, change_at_random, looks

_MAP = ".wh..wh.veneer"
_NEW = "f" * 16 + ".new"


@pytest.fixture
def s(stack, shared):
    made = Snapshots(stack, shared, "branches=on")
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)


def entries(upper):
    """What moves, in any order."""
    return sorted(name for name in os.listdir(upper) if name not in (BRANCHES, _MAP, _NEW))


@contextlib.contextmanager
def cut(upper, moved):
    """A snapshot of which these entries have moved when the power went."""
    times = os.stat(upper)
    new = upper / BRANCHES / _NEW
    new.mkdir(parents=True)
    os.chmod(new, times.st_mode & 0o7777 | 0o700)
    if (upper / _MAP).exists():
        os.link(upper / _MAP, new / _MAP)
    for name in moved:
        os.rename(upper / name, new / name)
    os.utime(new, ns=(times.st_mtime_ns, times.st_mtime_ns + 1000))
    os.utime(upper, ns=(times.st_atime_ns, times.st_mtime_ns + 1000))
    try:
        yield
    finally:
        for name in moved:
            os.rename(new / name, upper / name)
        if (new / _MAP).exists():
            os.unlink(new / _MAP)
        new.rmdir()
        with contextlib.suppress(OSError):
            (upper / BRANCHES).rmdir()
        os.utime(upper, ns=(times.st_atime_ns, times.st_mtime_ns))


def _by_name(m, found):
    return {os.path.relpath(path, m): what for path, what in found.items()}


def shown(stack, lowers, *options, **more):
    """What such a mount shows of all names."""
    mount = stack.second_mount([*lowers, stack.lower()], *options, **more)
    found = _by_name(mount.mnt, looks(mount.mnt))
    assert mount.stop() is None
    return found


def told_by_diff(stack, upper):
    done = layers.tool(stack.program, "diff", "-o", f"lowerdir={stack.lower()}", upper)
    assert done.returncode == 0 and not done.stderr, done
    return sorted(done.stdout.splitlines())


def but_for_root_time(found):
    """One that shows a writable root has the time of its own."""
    return {path: what if path != "." else what[:5] for path, what in found.items()}


def test_names_below_which_their_whiteouts_moved(s, stack):
    """A redirect and the mark of a file with two names are in the root, what they lead to is hidden by whiteouts that are not;
    and the other way round."""
    (s.m / "x").write_text("1")
    s.take("zero")
    write_at(s.m / "big", b"NEW", 70_000)
    os.chmod(s.m / "hard1", 0o600)
    (s.m / "hard2").unlink()
    os.rename(s.m / "d", s.m / "d2")
    os.rename(s.m / "big", s.m / "big2")
    os.rename(s.m / "small", s.m / "d3")
    (s.m / "d").mkdir()
    linux.umount(s.m)
    upper = s.place.upper
    want = shown(stack, [upper])
    assert want["d2/e/x"][-1] == b"x" and want["hard1"][-1] == b"hard" and "hard2" not in want
    names = entries(upper)
    left = [name for name in names if name in ("d2", "hard1", "big2", "d3")]
    assert len(left) == 4
    told = told_by_diff(stack, upper)
    for moved in (left, [name for name in names if name not in left]):
        with cut(upper, moved):
            assert shown(stack, [upper]) == want
            assert told_by_diff(stack, upper) == told


@pytest.mark.parametrize("seed", range(16))
def test_any_entries_have_moved(s, stack, seed):
    """Of an upper with anything in it, on none to two snapshots: read by itself, and as a lower layer of an upper that has
    nothing, and of one that renamed what is in it."""
    rng = random.Random(seed)
    change_at_random(rng, s.m, 15)
    for n in range(seed % 3):
        s.take(f"s{n}")
        change_at_random(rng, s.m, 25)
    linux.umount(s.m)
    upper = s.place.upper
    over, empty, work = (s.place.base / name for name in ("over", "empty", "over-work"))
    for path in (over, empty, work):
        path.mkdir()
    mount = stack.second_mount([upper, stack.lower()], upper=over, work=work)
    change_at_random(rng, mount.mnt, 15)
    assert mount.stop() is None
    want = shown(stack, [upper])
    want_over = shown(stack, [over, upper])
    itself = shown(stack, [], "ro", upper=upper, work=s.place.work)
    for _ in range(4):
        moved = [name for name in entries(upper) if rng.randrange(2)]
        with cut(upper, moved):
            assert shown(stack, [upper]) == want, moved
            assert shown(stack, [], "ro", upper=upper, work=s.place.work) == itself, moved
            assert shown(stack, [over, upper]) == want_over, moved
            assert but_for_root_time(shown(stack, [upper], upper=empty, work=work)) == but_for_root_time(want), moved


def unfinished(upper, name):
    """The cut comes when the chain has it: it has no name yet, nor its root the time of before."""
    chain = json.loads((upper / BRANCHES / "chain").read_text().splitlines()[0])
    snapshot, = (upper / BRANCHES / entry["id"] for entry in chain["snapshots"] if entry["name"] == name)
    new = snapshot.with_name(snapshot.name + ".new")
    times = os.stat(upper)
    snapshot.rename(new)
    os.utime(new, ns=(times.st_mtime_ns, times.st_mtime_ns + 1000))
    os.utime(upper, ns=(times.st_atime_ns, times.st_mtime_ns + 1000))


@pytest.mark.parametrize("goes_back", [False, True], ids=["taken", "rolled-back"])
def test_root_has_its_time_when_all_have_moved(s, stack, goes_back):
    (s.m / "x").write_text("1")
    s.take("one")
    if goes_back:
        (s.m / "y").write_text("2")
        last = s.call(s.m, "one", command="rollback")
        if last.returncode:
            pytest.skip(last.stderr)
    linux.umount(s.m)
    upper = s.place.upper
    want = shown(stack, [upper])
    chain = json.loads((upper / BRANCHES / "chain").read_text().splitlines()[0])
    unfinished(upper, chain["snapshots"][-1]["name"])
    assert shown(stack, [upper]) == want
    s.mount()
    assert os.stat(s.m).st_mtime_ns == want["."][5]


def test_file_of_which_one_name_moved_is_one_file(s, stack):
    """Written through a mount that has the upper below it."""
    (s.m / "one").write_text("own")
    os.link(s.m / "one", s.m / "two")
    linux.umount(s.m)
    over, work = s.place.base / "over", s.place.base / "over-work"
    over.mkdir()
    work.mkdir()
    with cut(s.place.upper, ["two"]):
        mount = stack.second_mount([s.place.upper, stack.lower()], upper=over, work=work)
        m = mount.mnt
        with open(m / "one", "a", encoding="ascii") as f:
            f.write(" more")
        assert (m / "two").read_text() == "own more"
        assert os.stat(m / "one").st_ino == os.stat(m / "two").st_ino
        assert mount.stop() is None
