# SPDX-License-Identifier: Apache-2.0
"""Branches: mounts that go on from a snapshot of another, each on its own."""
import json
import os
import stat
import subprocess

import pytest

from support import linux, treestate
from support.content import KIB, blob
from support.expect import write_at
from support.places import Place
from support.server import wait_until


class Origin:
    def __init__(self, stack, shared, *options):
        self.stack, self.shared = stack, shared
        low = stack.lower()
        (low / "big").write_bytes(blob(300 * KIB))
        (low / "small").write_text("small")
        (low / "d").mkdir()
        stack.remember_lowers()
        self.place = Place(stack, "with, : and @")
        self.m = self.place.mnt
        self.upper = self.place.upper
        self.options, self.branches = options, []
        self.mount()

    def mount(self):
        escaped = {name: str(getattr(self.place, name)).replace(",", "\\,").replace(":", "\\:") for name in ("upper", "work")}
        options = ",".join([f"lowerdir={self.stack.lower()}", f"upperdir={escaped['upper']}", f"workdir={escaped['work']}",
                            *self.options])
        done = self.call("mount", "-o", options, self.m)
        assert (done.returncode, done.stderr) == (0, ""), done

    def call(self, *arguments):
        return subprocess.run([self.stack.program, *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **self.shared.environment},
                              timeout=60)

    def ok(self, *arguments):
        done = self.call(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def branch(self, origin, name, *more):
        dest = self.stack.base / name
        self.ok("branch", *more, origin, dest)
        self.branches.append(dest)
        return dest

    def snapshots(self, where=None):
        return json.loads(self.ok("snapshots", "--json", where or self.m))

    def umount(self):
        for mount in [*reversed(self.branches), self.m]:
            if os.path.ismount(mount):
                linux.umount(mount)


@pytest.fixture(params=["branches=on", "io=cached", "io=direct"], ids=["branches", "cached", "direct"])
def origin(request, stack, shared):
    made = Origin(stack, shared, request.param)
    before = treestate.take(stack.lower())
    yield made
    made.umount()
    assert not treestate.differences(before, treestate.take(stack.lower()))


def files(m):
    return {str(path.relative_to(m)): path.read_bytes() for path in sorted(m.rglob("*")) if path.is_file()}


def test_who_may_not_enter_the_mount_may_not_enter_a_branch(origin):
    if os.stat(origin.m).st_uid != os.geteuid():
        pytest.skip("the mount's root is another user's")
    os.chmod(origin.m, 0o700)
    st = os.stat(origin.branch(origin.m, "private"))
    assert stat.S_IMODE(st.st_mode) == 0o700 and st.st_uid == os.stat(origin.m).st_uid


def test_each_goes_its_own_way(origin):
    write_at(origin.m / "big", b"NEW", 70_000)
    (origin.m / "own").write_text("own")
    (origin.m / "small").unlink()
    origin.ok("snapshot", origin.m, "one")
    want = files(origin.m)
    (origin.m / "later").write_text("later")
    first, second = origin.branch(f"{origin.m}@one", "b1"), origin.branch(f"{origin.m}@one", "b2")
    assert files(first) == files(second) == want
    write_at(first / "big", b"FIRST", 90_000)
    (second / "own").write_text("second")
    (second / "small").write_text("again")
    write_at(origin.m / "big", b"ORIGIN", 110_000)
    assert files(second) == {**want, "own": b"second", "small": b"again"}
    assert (first / "own").read_text() == "own" and not (first / "later").exists()
    assert (first / "big").read_bytes()[90_000:90_005] == b"FIRST"
    assert (origin.m / "big").read_bytes()[90_000:90_005] == want["big"][90_000:90_005]
    # And once more, when they are mounted again.
    seen = files(first), files(second)
    for path in (first, second):
        linux.umount(path)
        origin.ok("branch", "--resume", path)
    assert seen == (files(first), files(second))


def test_without_a_name_one_is_taken(origin):
    (origin.m / "own").write_text("own")
    branch = origin.branch(origin.m, "b")
    assert (branch / "own").read_text() == "own"
    listed = origin.snapshots()
    assert [entry["name"] for entry in listed["snapshots"]] == [listed["head"]]
    assert listed["upper"] == str(origin.upper) and origin.snapshots(origin.upper) == listed


def test_branches_of_branches(origin):
    """Each adds a file and changes one block; the last one shows all of it."""
    last, want = origin.m, bytearray((origin.m / "big").read_bytes())
    for k in range(12):
        write_at(last / "big", b"%03d" % k, k * 20_000)
        want[k * 20_000:k * 20_000 + 3] = b"%03d" % k
        (last / f"f{k}").write_text(str(k))
        last = origin.branch(last, f"b{k}")
    assert (last / "big").read_bytes() == want
    assert {f"f{k}" for k in range(12)} < set(os.listdir(last))
    assert (origin.branches[3] / "big").read_bytes()[4 * 20_000:][:3] == b"004"
    assert not (origin.branches[3] / "f5").exists()


def test_many_of_one(origin):
    (origin.m / "own").write_text("own")
    origin.ok("snapshot", origin.m, "one")
    branches = [origin.branch(f"{origin.m}@one", f"b{k}") for k in range(16)]
    for k, branch in enumerate(branches):
        write_at(branch / "big", b"%03d" % k, 50_000)
    for k, branch in enumerate(branches):
        assert (branch / "big").read_bytes()[50_000:50_003] == b"%03d" % k and (branch / "own").read_text() == "own"


def test_a_snapshot_is_not_changed_by_its_branches(origin):
    write_at(origin.m / "big", b"NEW", 70_000)
    origin.ok("snapshot", origin.m, "one")
    frozen = {path.name: treestate.take(path) for path in (origin.upper / ".wh..wh.branches").iterdir() if path.is_dir()}
    branch = origin.branch(f"{origin.m}@one", "b")
    write_at(branch / "big", b"BRANCH", 70_000)
    (branch / "d").rmdir()
    linux.umount(branch)
    assert frozen == {path.name: treestate.take(path) for path in (origin.upper / ".wh..wh.branches").iterdir() if path.is_dir()}


def _refuses_to_delete(origin, where, name):
    before = origin.snapshots(origin.upper)
    done = origin.call("snapshot", "--delete", where, name)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and origin.snapshots(origin.upper) == before
    return done.stderr


def test_a_snapshot_is_removed(origin):
    (origin.m / "own").write_bytes(blob(100 * KIB))
    for name in ("one", "two"):
        origin.ok("snapshot", origin.m, name)
    (origin.m / "later").write_text("later")
    for name in ("one", "two"):
        assert "stands on it" in _refuses_to_delete(origin, origin.m, name)
    assert "no snapshot of this name" in _refuses_to_delete(origin, origin.m, "three")
    linux.umount(origin.m)
    kept = origin.ok("rollback", "--keep", "kept", origin.upper, "one").strip()
    origin.mount()
    want = files(origin.m)
    branch = origin.branch(f"{origin.m}@{kept}", "b")
    assert (branch / "later").read_text() == "later"
    assert "a mount uses it" in _refuses_to_delete(origin, origin.m, kept)
    assert "stands on it" in _refuses_to_delete(origin, origin.m, "two")
    assert (branch / "later").read_text() == "later"
    linux.umount(branch)
    assert wait_until(lambda: origin.call("snapshot", "--delete", origin.m, kept).returncode == 0)
    origin.ok("snapshot", "--delete", origin.upper, "two")
    one, = origin.snapshots()["snapshots"]
    assert one["name"] == "one" and sorted(os.listdir(origin.upper / ".wh..wh.branches")) == sorted(["chain", one["id"]])
    assert files(origin.m) == want
    assert origin.call("branch", "--resume", branch).returncode == 1
    # And it goes on.
    origin.ok("snapshot", origin.m, "two")
    linux.umount(origin.m)
    origin.mount()
    assert files(origin.m) == want
    origin.ok("umount", origin.m)
    origin.ok("check", "--quiet", origin.upper)


def test_a_removal_that_was_interrupted(origin):
    """Before the chain is another one, it is there again; after, it goes."""
    (origin.m / "own").write_text("own")
    origin.ok("snapshot", origin.m, "one")
    (origin.m / "own").unlink()
    linux.umount(origin.m)
    origin.ok("rollback", "--keep", "kept", origin.upper, "one")
    top = origin.upper / ".wh..wh.branches"
    one, kept = (entry["id"] for entry in origin.snapshots(origin.upper)["snapshots"])
    (top / kept).rename(top / f"{kept}.old")
    (top / "0123456789abcdef.old").mkdir()
    (top / "0123456789abcdef.old" / "own").touch()
    origin.mount()
    assert sorted(os.listdir(top)) == sorted(["chain", one, kept]) and (origin.m / "own").read_text() == "own"
    assert not (origin.branch(f"{origin.m}@kept", "b") / "own").exists()


def test_the_list_says_what_stands_on_what(origin):
    (origin.m / "own").write_bytes(blob(100 * KIB))
    origin.ok("snapshot", origin.m, "one")
    origin.ok("snapshot", origin.m, "two")
    one, two = origin.snapshots()["snapshots"]
    assert (one["name"], one["parent"], two["name"], two["parent"]) == ("one", None, "two", "one")
    assert one["bytes"] >= 100 * KIB > two["bytes"] and one["inodes"] == 2 and one["time_ns"] < two["time_ns"]
    lines = origin.ok("snapshots", origin.m).splitlines()
    assert lines[0].startswith("  one ") and lines[1].startswith("* two ") and len(lines) == 2
    assert origin.snapshots(origin.stack.lower())["snapshots"] == []


def test_what_cannot_be_done_is_one_sentence(origin):
    origin.ok("snapshot", origin.m, "one")
    base = origin.stack.base

    def refused(*arguments):
        done = origin.call("branch", *arguments)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
        return done.stderr
    assert "no snapshot of this name" in refused(f"{origin.m}@nothing", base / "x")
    assert "no mount of veneer" in refused(base, base / "x")
    assert "No such file" in refused(f"{origin.m}@one", base / "not" / "there")
    assert "no branch of this user" in refused("--resume", origin.m)
    refused("-o", "io=nothing", f"{origin.m}@one", base / "x")
    assert not (base / "x").exists() and not (base / ".x.branch").exists()
    branch = origin.branch(f"{origin.m}@one", "b")
    assert "there is a branch already" in refused(f"{origin.m}@one", branch)
    linux.umount(branch)
    # Somebody else's words are not followed.
    (base / ".b.branch" / "options").chmod(0o666)
    assert "no branch of this user" in refused("--resume", branch)
    done = origin.call("snapshots", base / "nothing")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_going_back(origin, shared):
    """And forth again: what was there is kept."""
    write_at(origin.m / "big", b"NEW", 70_000)
    (origin.m / "own").write_text("own")
    origin.ok("snapshot", origin.m, "one")
    first = files(origin.m)
    write_at(origin.m / "big", b"LATER", 90_000)
    (origin.m / "own").unlink()
    (origin.m / "later").write_text("later")
    branch = origin.branch(f"{origin.m}@one", "b")
    second = files(origin.m)
    done = origin.call("rollback", origin.upper, "one")
    assert done.returncode == 1 and "in use by a mount" in done.stderr and files(origin.m) == second
    linux.umount(origin.m)
    wait_until(lambda: shared.count() == 1)
    assert origin.ok("rollback", "--keep", "before", origin.upper, "one") == "before\n"
    origin.mount()
    assert files(origin.m) == first == files(branch)
    (origin.m / "third").write_text("third")
    linux.umount(origin.m)
    wait_until(lambda: shared.count() == 1)
    frozen = treestate.take(origin.upper / ".wh..wh.branches")
    for arguments, why in ((("nothing",), "no snapshot of this name"), (("--keep", "one", "one"), "name that is to be kept"),
                           (("--keep", "../x", "one"), "cannot have this name")):
        done = origin.call("rollback", *arguments[:-1], origin.upper, arguments[-1])
        assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1, done
    assert treestate.take(origin.upper / ".wh..wh.branches") == frozen
    taken = origin.ok("rollback", origin.upper, "before").strip()
    origin.mount()
    assert files(origin.m) == second
    listed = origin.snapshots()
    assert listed["head"] == "before" and {e["name"]: e["parent"] for e in listed["snapshots"]} == \
        {"one": None, "before": "one", taken: "one"}
