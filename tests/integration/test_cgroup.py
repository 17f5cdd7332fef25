# SPDX-License-Identifier: Apache-2.0
"""A server that a mount starts is in a control group of its own: neither the end nor the limits of the starter's group are
its."""
import contextlib
import os
import signal
import subprocess

import pytest

from support import journal, linux, wire
from support.command import mount_points
from support.content import MIB, blob
from support.expect import read_at, write_at
from support.groups import Groups, hierarchies
from support.places import Place
from support.shared import kill, wait_for_death

LIMIT = 24 * MIB


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rpartition(")")[2].split()[1])


class Started:
    """Whatever server a mount program starts in the test's runtime directory."""

    def __init__(self, directory, **environment):
        directory.mkdir(mode=0o700)
        self.directory = directory
        self.environment = {"VENEER_RUNTIME_DIR": str(directory), **environment}

    def pids(self):
        """(supervisor, server)"""
        with wire.Client(self.directory) as client:
            pid = client.ping()[0]
        return parent_of(pid), pid

    def close(self):
        with contextlib.suppress(OSError):
            for pid in self.pids():
                kill(pid)
                wait_for_death(pid)


@pytest.fixture
def groups():
    try:
        made = Groups(f"veneer-test-{os.getpid()}")
    except OSError as e:
        pytest.skip(f"no control groups can be made: {e}")
    if not made.outer:
        pytest.skip("there are no control groups")
    made.make("starter")
    yield made
    made.close()


@pytest.fixture
def ordinary(monkeypatch):
    monkeypatch.delenv("VENEER_CGROUP", raising=False)
    if os.geteuid() == 0 and os.path.exists("/run/systemd/system"):
        pytest.skip("the groups are systemd's")


@pytest.fixture
def started(stack, groups, ordinary):
    (stack.lower() / "f").write_bytes(blob(64 * MIB))
    made = Started(stack.base / "run")
    yield made
    made.close()
    for point in reversed(mount_points(stack.base)):
        linux.umount(point, linux.MNT_DETACH)


def first_mount(stack, started, groups):
    """Made in the group of the starter, where a process stays."""
    place = Place(stack, "first")
    holder = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: groups.enter("starter"))
    place.mount(stack, started, preexec_fn=lambda: groups.enter("starter"))
    return place, holder


def test_a_container_that_is_killed_leaves_the_server_to_its_siblings(stack, groups, started):
    first, holder = first_mount(stack, started, groups)
    second = Place(stack, "second")
    second.mount(stack, started)
    pids = started.pids()
    assert [groups.where(pid) for pid in pids] == [{"veneer"}] * 2
    assert groups.where(holder.pid) == {"starter"}
    groups.kill("starter")
    assert holder.wait(10) == -signal.SIGKILL
    assert started.pids() == pids
    for place in (first, second):
        write_at(place.mnt / "f", b"x", 5)
        assert read_at(place.mnt / "f", 1, 5) == b"x"
    # the supervisor lives as well: it starts another, which is where the first one was
    kill(pids[1])
    wait_for_death(pids[1])
    assert read_at(second.mnt / "f", 1, 5) == b"x"
    assert started.pids()[0] == pids[0] and groups.where(started.pids()[1]) == {"veneer"}


def memory_limit_of(groups):
    if "memory" in groups.outer:
        return groups.outer["memory"] / "starter" / "memory.limit_in_bytes", "memory.failcnt"
    with contextlib.suppress(OSError, KeyError):
        (groups.outer[""] / "cgroup.subtree_control").write_text("+memory")
        return groups.outer[""] / "starter" / "memory.max", "memory.events"
    return pytest.skip("memory of groups cannot be limited")


def test_a_memory_limit_of_the_starter_is_not_the_servers(stack, groups, started):
    limit, events = memory_limit_of(groups)
    limit.write_text(str(LIMIT))
    place, holder = first_mount(stack, started, groups)
    before = (limit.parent / events).read_text()
    pid = started.pids()[1]
    # all bytes go through the server: the cached and the written ones count for the server's group
    for off in range(0, 64 * MIB, MIB):
        write_at(place.mnt / "f", blob(MIB, 7), off)
    assert (place.mnt / "f").read_bytes() == blob(MIB, 7) * 64
    assert (limit.parent / events).read_text() == before
    assert started.pids()[1] == pid and "starter" not in groups.where(pid)
    holder.kill()
    holder.wait()


def test_where_it_is_told_to_stay_it_stays(stack, groups, started):
    started.environment["VENEER_CGROUP"] = ""
    _, holder = first_mount(stack, started, groups)
    assert [groups.where(pid) for pid in started.pids()] == [{"starter"}] * 2
    holder.kill()
    holder.wait()
    started.close()


def test_a_group_that_is_named(stack, groups, started):
    names = {str(path)[len(str(path)) - len(own) - len(path.name) - 1:] if own != "/" else f"/{path.name}"
             for (c, own) in hierarchies() if (path := groups.outer.get(c))}
    if len(names) != 1:
        pytest.skip(f"this process is in different groups: {names}")
    started.environment["VENEER_CGROUP"] = names.pop() + "/mine"
    _, holder = first_mount(stack, started, groups)
    assert [groups.where(pid) for pid in started.pids()] == [{"mine"}] * 2
    holder.kill()
    holder.wait()


def test_that_it_stays_is_said_once(stack, groups, ordinary, veneer_bin):
    if why := journal.missing():
        pytest.skip(why)
    (stack.lower() / "f").write_text("f")
    stack.remember_lowers()
    place, run = Place(stack, "p"), stack.base / "run"
    run.mkdir(mode=0o700)
    entries, _ = journal.run_with('"$1" -o "$2" "$3"; cat "$3/f"; umount "$3"',
                                  veneer_bin, place.options(), place.mnt, enter=lambda: groups.enter("starter"),
                                  env={**os.environ, "VENEER_RUNTIME_DIR": str(run), "VENEER_LOG": "journal,debug",
                                       "VENEER_CGROUP": "/somewhere/../else"})
    said = [e for e in entries if "control group of its starter" in str(e.get("MESSAGE"))]
    assert len(said) == 1 and said[0]["PRIORITY"] == "7", entries


def test_who_may_not_leave_stays_and_mounts(stack, ordinary, mode):
    """An ordinary user without a delegated group."""
    if mode == "root":
        pytest.skip("root may")
    if all(path == "/" for _, path in hierarchies()):
        pytest.skip("this process is in no group that could be left")
    (stack.lower() / "f").write_text("f")
    started = Started(stack.base / "run")
    place = Place(stack, "p")
    try:
        place.mount(stack, started)
        assert [sorted(hierarchies(pid)) for pid in started.pids()] == [sorted(hierarchies())] * 2
        linux.umount(place.mnt)
    finally:
        started.close()
