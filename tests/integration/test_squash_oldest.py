# SPDX-License-Identifier: Apache-2.0
"""The oldest snapshots of a mount become one by themselves (squash=), and at the rate that is given."""
import json
import os
import time

import pytest

from support import linux, treestate
from support.content import KIB
from support.expect import write_at
from support.places import Place
from support.server import wait_until
from support.snapshots import Snapshots, change, seen

_KEPT = 3


@pytest.fixture
def s(request, stack, shared):
    made = Snapshots(stack, shared, "branches=on", *getattr(request, "param", (f"squash={_KEPT}",)))
    before = treestate.take(stack.lower())
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)
    assert not treestate.differences(before, treestate.take(stack.lower()))


def looks(m):
    """But for change times, which a name more and copies change."""
    return {path: what[:6] + what[7:] for path, what in seen(m).items()}


def names(s, place=None):
    done = s.call("--json", (place or s.place).upper, command="snapshots")
    assert done.returncode == 0, done.stderr
    return [one["name"] for one in json.loads(done.stdout)["snapshots"]]


def stats(s):
    done = s.call("--json", command="stats")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["mounts"][0]


def go_back(s, name, *more):
    linux.umount(s.m)
    done = s.call(*more, s.place.upper, name, command="rollback")
    assert done.returncode == 0, done.stderr
    s.mount()


def take(s, first, last):
    for n in range(first, last):
        (s.m / f"file{n}").write_text(str(n))
        write_at(s.m / "big", f"{n}".encode() * 10, n * 50_000)
        s.take(f"s{n}")


def test_the_oldest_become_one(s):
    take(s, 0, 2 * _KEPT)
    assert names(s) == [f"s{n}" for n in range(2 * _KEPT)]
    change(s.m)
    s.take("last")
    before = looks(s.m)
    assert wait_until(lambda: len(names(s)) == _KEPT)
    assert names(s) == ["s4", "s5", "last"]
    assert looks(s.m) == before
    assert wait_until(lambda: stats(s)["squash"]["snapshots"] == 4)
    of_it = stats(s)["squash"]
    assert of_it["entries"] >= 6 and of_it["bytes"] >= 5 * 4 * KIB
    go_back(s, "s4")
    assert (s.m / "file4").read_text() == "4" and not (s.m / "file5").exists() and (s.m / "gone").exists()


def test_counters_go_on_over_a_snapshot(s):
    take(s, 0, 1)
    before = stats(s)["cow"]["writes"]
    assert before >= 1
    write_at(s.m / "big", b"MORE", 250_000)
    s.take("another")
    assert stats(s)["cow"]["writes"] == before + 1


def test_what_something_stands_on_stays(s):
    take(s, 0, 3)
    go_back(s, "s1", "--keep", "tip")
    take(s, 3, 3 + 2 * _KEPT)
    assert wait_until(lambda: sorted(names(s)) == ["s1", "s2", "s6", "s7", "s8", "tip"])
    assert (s.m / "file1").exists() and not (s.m / "file2").exists()


@pytest.mark.parametrize("s", [()], indirect=True, ids=["no option"])
def test_none_goes_unasked(s):
    take(s, 0, 9)
    # Another mount of the server has its oldest become one in the meantime.
    other = Place(s.stack, "other")
    m = other.mount(s.stack, s.shared, "branches=on", f"squash={_KEPT}")
    for n in range(2 * _KEPT + 1):
        (m / f"file{n}").write_text(str(n))
        assert s.call(m, f"s{n}").returncode == 0
    assert wait_until(lambda: len(names(s, other)) == _KEPT)
    assert len(names(s)) == 9
    linux.umount(m)


@pytest.mark.parametrize("s", [()], indirect=True, ids=["no option"])
def test_the_rate_is_kept(s):
    for n in range(2):
        with open(s.m / "big", "r+b", buffering=0) as f:
            f.truncate(4096 * KIB)
        for k in range(512):
            write_at(s.m / "big", os.urandom(4 * KIB), (n * 512 + k) * 4 * KIB)
        s.take(f"s{n}")
    began = time.monotonic()
    done = s.call("--rate", "1M", s.m, command="squash")
    assert done.returncode == 0 and "2 snapshots became one" in done.stdout, done
    # A second's worth may be saved up.
    assert time.monotonic() - began > 2


@pytest.mark.parametrize("s", [()], indirect=True, ids=["no option"])
def test_bad_rates_and_numbers(s):
    for rate in "0", "x", "-1", "5T", "":
        done = s.call("--rate", rate, s.m, command="squash")
        assert done.returncode == 2 and "bytes a second are needed" in done.stderr, done
    done = s.call("--rate", "5M", "-o", f"lowerdir={s.stack.lower()},upperdir={s.place.upper}", command="squash")
    assert done.returncode == 2 and "in use" in done.stderr, done
    for number in "0", "x", "-1", "10001", "":
        done = s.call("-o", f"lowerdir={s.stack.lower()},upperdir={s.place.upper},workdir={s.place.work},squash={number}", s.m, command="mount")
        assert done.returncode != 0 and "invalid value for squash" in done.stderr, done
