# SPDX-License-Identifier: Apache-2.0
"""Mounts of one stack of layers in one server: they share what was read of it, and a mount never shows a layer as it
was before the mount began."""
import concurrent.futures
import mmap
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from support import linux, syscount
from support.server import SharedMount, wait_until
from support.shared import SharedServer
from support.waiting import wait_for_tick

_LOOKS = {"openat", "openat2", "open_by_handle_at", "getdents64", "newfstatat", "fstat", "statx", "readlinkat",
          "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr", "getxattrat", "listxattrat",
          "inotify_add_watch"}


class Siblings:
    def __init__(self, base, program, watchdog):
        self.base, self.program, self.watchdog = base, program, watchdog
        base.mkdir(mode=0o755)
        self.server = SharedServer(program, base / "run", watchdog, arguments=("--idle", "600"))
        self.server.ensure()
        self.mounts, self.problems = [], []

    def layer(self, name):
        path = self.base / name
        path.mkdir(exist_ok=True)
        return path

    def mount(self, *lowers, has_upper=True, upper=None, work=None, options=()):
        n = len(self.mounts)
        mnt = self.layer(f"mnt{n}")
        if has_upper and not upper:
            upper, work = self.layer(f"upper{n}"), self.layer(f"work{n}")
        made = SharedMount(self.server, self.program, lowers, upper, work, mnt, self.base / f"log{n}", self.watchdog)
        made.start(*options)
        self.mounts.append(made)
        return made

    def counters(self):
        start = self.server.log_size()
        self.server.signal(signal.SIGUSR1)
        assert wait_until(lambda: "REQUESTS:" in self.server.log_from(start))
        lines = (line.partition("# ")[2] for line in self.server.log_from(start).splitlines())
        return {name: int(value) for name, _, value in (line.rpartition(": ") for line in lines) if name}

    def close(self):
        for mount in reversed(self.mounts):
            if mount.is_mounted and (problem := mount.stop()):
                self.problems.append(problem)
        if code := self.server.stop():
            self.problems.append(f"the server ended with {code}")
        self.problems += [line for line in self.server.log.splitlines()
                          if "Sanitizer" in line or "runtime error" in line]
        shutil.rmtree(self.base, ignore_errors=True)
        assert not self.problems, self.server.log


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog, request):
    made = Siblings(session_dir / f"sharing-{request.node.name[:60].replace('/', '_')}", veneer_bin, watchdog)
    yield made
    made.close()


def fill(layer, tag, n=12):
    for d in range(n):
        (layer / f"d{d}" / "s").mkdir(parents=True)
        for f in range(4):
            (layer / f"d{d}" / "s" / f"{tag}{f}").write_text(f"{tag} {d} {f}\n" * (f + 1))
        (layer / f"d{d}" / f"link-{tag}").symlink_to(f"s/{tag}0")


def walk(mount):
    for command in (["find", "."], ["ls", "-lR", "."]):
        subprocess.run(command, cwd=mount.mnt, stdout=subprocess.DEVNULL, check=True)


def looks(siblings, mount):
    """The system calls with which the server looks at files while a program walks the mount."""
    # in /proc it sees where the program runs
    counts = syscount.counted_but('"/proc/', siblings.server.pid, lambda: walk(mount),
                                  siblings.base / "table")
    assert counts.get("writev", 0) + counts.get("write", 0) > 20, counts
    found = {name: n for name, n in counts.items() if name in _LOOKS}
    # one is the C library's, which counts the processors for a new thread
    found["openat"] = max(0, found.get("openat", 0) - 1)
    return {name: n for name, n in found.items() if n}


def test_sharing_the_second_walk_costs_no_system_call_on_the_layers(siblings):
    top, bottom = siblings.layer("top"), siblings.layer("bottom")
    fill(top, "t"), fill(bottom, "b")
    first, second = siblings.mount(top, bottom, has_upper=False), siblings.mount(top, bottom, has_upper=False)
    assert sum(looks(siblings, first).values()) > 100
    assert looks(siblings, second) == {}


def test_sharing_a_sibling_with_an_upper_looks_at_its_own_root_only(siblings):
    top, bottom = siblings.layer("top"), siblings.layer("bottom")
    fill(top, "t"), fill(bottom, "b")
    walk(siblings.mount(top, bottom))
    assert sum(looks(siblings, siblings.mount(top, bottom)).values()) <= 12


def test_sharing_goes_on_after_the_last_mount_went(siblings):
    top, bottom = siblings.layer("top"), siblings.layer("bottom")
    fill(top, "t"), fill(bottom, "b")
    first = siblings.mount(top, bottom, has_upper=False)
    walk(first)
    assert first.stop() is None
    assert siblings.counters()["IMAGES KEPT"] == 1
    assert looks(siblings, siblings.mount(top, bottom, has_upper=False)) == {}
    assert siblings.counters()["IMAGES RESUMED"] == 1


def ask(mount, count=1000, name="none"):
    """Requests that no cache answers, one after the other."""
    for n in range(count):
        assert not os.path.lexists(mount.mnt / f"{name}{n}")


def test_sharing_what_waits_for_a_mount_that_is_left_goes_to_the_next(siblings):
    """Each mount in use leaves some readers waiting, of which all mounts have two a processor: without one a request
    goes through the set, which takes two calls more, and often another thread."""
    fill(layer := siblings.layer("layer"), "t")
    mounts = [siblings.mount(layer) for _ in range((os.cpu_count() + 1) // 2 + 2)]
    # The first one last: those of the others wait for some milliseconds before they can be had, so it asks twice.
    for mount in mounts[1:] + mounts[:1]:
        ask(mount)
    counts = syscount.counted(siblings.server.pid, lambda: ask(mounts[0], name="other"), siblings.base / "table")
    assert counts["read"] >= 1000
    assert counts.get("epoll_ctl", 0) < 200 and counts.get("clone3", 0) + counts.get("clone", 0) < 20, counts


def waiting(pid):
    """How many threads wait for requests, as readers of a mount or for any."""
    def where(path):
        try:
            return (path / "wchan").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""
    found = [where(path) for path in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum("fuse" in place or "epoll" in place for place in found)


def test_sharing_threads_for_requests_do_not_grow_with_the_mounts(siblings):
    layer, bound = siblings.layer("layer"), 2 * os.cpu_count() + 12
    for _ in range(bound // 4 + 8):
        ask(siblings.mount(layer), 40)
        # A thread that was called back may still be on the way.
        assert wait_until(lambda: 0 < waiting(siblings.server.pid) <= bound, 0.5)


def state_of(root):
    """All that a program can see of a tree, but for the root's own attributes."""
    seen = {}
    for at, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            entry = [st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_mtime_ns, st.st_rdev,
                     [(a, os.getxattr(path, a, follow_symlinks=False))
                      for a in os.listxattr(path, follow_symlinks=False)]]
            if os.path.islink(path):
                entry.append(os.readlink(path))
            elif name in files:
                entry += [st.st_size, pathlib.Path(path).read_bytes()]
            seen[os.path.relpath(path, root)] = entry
    return seen


def _store(path):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        mapped[0:4] = b"edit"


def _replace(low):
    (low / "new").write_text("another file")
    os.rename(low / "new", low / "d1/s/x1")


_CHANGES = {
    "create": lambda low: (low / "d1/s/new").write_text("new"),
    "mkdir": lambda low: (low / "d1/s/dir/deep").mkdir(parents=True),
    "append": lambda low: (low / "d1/s/x1").open("a").write("more"),
    "overwrite": lambda low: (low / "d1/s/x1").write_text("over"),
    "same_size": lambda low: (low / "d1/s/x1").open("r+").write("X"),
    "truncate": lambda low: os.truncate(low / "d1/s/x2", 3),
    "store": lambda low: _store(low / "d1/s/x1"),
    "chmod": lambda low: os.chmod(low / "d1/s/x1", 0o600),
    "chmod_dir": lambda low: os.chmod(low / "d1/s", 0o700),
    "utime": lambda low: os.utime(low / "d1/s/x1", (1, 1)),
    "setxattr": lambda low: os.setxattr(low / "d1/s/x1", "user.new", b"value"),
    "setxattr_dir": lambda low: os.setxattr(low / "d1/s", "user.new", b"value"),
    "unlink": lambda low: os.unlink(low / "d1/s/x1"),
    "relink": lambda low: (os.unlink(low / "d1/link-x"), os.symlink("elsewhere", low / "d1/link-x")),
    "rename": lambda low: os.rename(low / "d1/s/x1", low / "d2/s/moved"),
    "rename_dir": lambda low: os.rename(low / "d1", low / "moved"),
    "replace": _replace,
    "link": lambda low: os.link(low / "d1/s/x1", low / "d3/second"),
    "other_name": lambda low: (low / "d4/alias").write_text("through the other name"),
    "rmtree": lambda low: shutil.rmtree(low / "d5"),
}


@pytest.mark.parametrize("keeps", ["mounted", "kept"])
@pytest.mark.parametrize("change", _CHANGES)
def test_sharing_a_new_mount_shows_what_was_changed_before(siblings, change, keeps):
    low = siblings.layer("low")
    fill(low, "x", 6)
    os.link(low / "d4/s/x3", low / "d4/alias")
    first = siblings.mount(low)
    assert state_of(first.mnt) == state_of(low)
    if keeps == "kept":
        assert first.stop() is None
        assert siblings.counters()["IMAGES KEPT"] == 1
    wait_for_tick(siblings.base)
    before = state_of(low)
    _CHANGES[change](low)
    assert state_of(low) != before
    second = siblings.mount(low)
    assert state_of(second.mnt) == state_of(low)
    assert siblings.counters()["IMAGES MADE"] == 2
    # and what came after it is shared again
    third = siblings.mount(low)
    assert state_of(third.mnt) == state_of(low)
    assert siblings.counters()["IMAGES MADE"] == 2


def test_sharing_directory_seen_from_above_only(siblings):
    low = siblings.layer("low")
    (low / "d" / "s").mkdir(parents=True)
    first = siblings.mount(low)
    os.stat(first.mnt / "d")
    (low / "d" / "new").mkdir()
    second = siblings.mount(low)
    assert os.stat(second.mnt / "d").st_mtime_ns == os.stat(low / "d").st_mtime_ns
    assert sorted(os.listdir(second.mnt / "d")) == ["new", "s"]


def test_sharing_what_siblings_write_stays_theirs(siblings):
    low = siblings.layer("low")
    fill(low, "x", 4)
    before = state_of(low)
    mounts = [siblings.mount(low) for _ in range(4)]
    for n, mount in enumerate(mounts):
        (mount.mnt / "d1/s/x1").write_text(f"of {n}")
        os.unlink(mount.mnt / f"d{n}/s/x3")
        (mount.mnt / f"own{n}").write_text("own")
        os.rename(mount.mnt / "d0", mount.mnt / f"moved{n}")
    for n, mount in enumerate(mounts):
        assert (mount.mnt / "d1/s/x1").read_text() == f"of {n}"
        assert [name for name in sorted(os.listdir(mount.mnt)) if "own" in name] == [f"own{n}"]
        assert len(os.listdir(mount.mnt / f"moved{n}/s")) == (3 if n == 0 else 4)
    assert state_of(low) == before
    assert siblings.counters()["IMAGES"] == 1


@pytest.mark.writethrough("the upper gets what is written later")
def test_sharing_upper_that_becomes_a_lower(siblings):
    low = siblings.layer("low")
    fill(low, "x", 4)
    writer = siblings.mount(low)
    upper = writer.upper
    (writer.mnt / "d1/new").write_text("one")
    readers = [siblings.mount(upper, low, has_upper=False)]
    assert (readers[0].mnt / "d1/new").read_text() == "one"
    for text in ("two", "a longer three"):
        (writer.mnt / "d1/new").write_text(text)
        with open(writer.mnt / "d2/s/x1", "r+b") as f:
            f.write(text.encode())
        readers.append(siblings.mount(upper, low, has_upper=False))
        assert state_of(readers[-1].mnt)["d1/new"] == state_of(writer.mnt)["d1/new"]
        assert (readers[-1].mnt / "d2/s/x1").read_bytes() == (writer.mnt / "d2/s/x1").read_bytes()
    seen = state_of(writer.mnt)
    assert writer.stop() is None
    readers.append(siblings.mount(upper, low, has_upper=False))
    assert state_of(readers[-1].mnt) == seen
    again = siblings.mount(low, upper=upper, work=writer.work)
    (again.mnt / "d3/s/x2").write_text("again")
    assert again.stop() is None
    readers.append(siblings.mount(upper, low, has_upper=False))
    assert (readers[-1].mnt / "d3/s/x2").read_text() == "again"


def numbers(mount):
    return {os.path.relpath(os.path.join(at, name), mount.mnt): os.lstat(os.path.join(at, name)).st_ino
            for at, dirs, files in os.walk(mount.mnt) for name in dirs + files}


@pytest.mark.needs_root("mounts file systems")
def test_sharing_inode_numbers_do_not_depend_on_the_siblings(siblings):
    low = siblings.layer("low")
    fill(low, "x", 3)
    for name in ("a", "b"):
        linux.mount("tmpfs", siblings.layer(name), "tmpfs")
    try:
        first, second = ({}, {})
        for seen in (first, second):
            mounts = []
            # the second time in the other order
            for name in ("a", "b") if seen is first else ("b", "a"):
                for part in ("upper", "work"):
                    siblings.layer(f"{name}/{part}")
                mount = siblings.mount(low, upper=siblings.base / name / "upper", work=siblings.base / name / "work")
                (mount.mnt / "own").write_text("own")
                seen[name] = numbers(mount)
                mounts.append(mount)
            assert siblings.counters()["IMAGES"] == 1
            for mount in mounts:
                assert mount.stop() is None
        assert first == second
    finally:
        for mount in siblings.mounts:
            mount.stop()
        for name in ("a", "b"):
            linux.umount(siblings.base / name)


@pytest.mark.needs_root("the kernel passes nothing through for others")
@pytest.mark.parametrize("is_same_stack", [True, False])
def test_sharing_with_a_mount_that_passes_nothing_through_does_not_stop_others_from_it(siblings, is_same_stack):
    lower, other = siblings.layer("lower"), siblings.layer("other")
    (lower / "big").write_bytes(b"\0" * 300000)
    first = siblings.mount(lower, options=["io=cached"])
    os.listdir(first.mnt)
    second = siblings.mount(*([lower] if is_same_stack else [lower, other]), options=["io=passthrough"])
    with open(second.mnt / "big", "rb") as f:
        assert len(f.read()) == 300000
        found = siblings.counters()
        if "BACKING FILES" not in found:
            pytest.skip("this kernel passes nothing through")
        assert found["LAYERS"] == (1 if is_same_stack else 2)
        assert found["BACKING FILES"] == 1


@pytest.mark.needs_root("mounts file systems")
def test_sharing_kept_image_leaves_the_file_system_alone(siblings):
    low = siblings.layer("low")
    linux.mount("tmpfs", low, "tmpfs")
    fill(low, "x", 4)
    (low / "large").write_bytes(os.urandom(3 << 20))
    mount = siblings.mount(low)
    state_of(mount.mnt)
    assert mount.stop() is None
    linux.umount(low)
    # another file system in the same place
    linux.mount("tmpfs", low, "tmpfs")
    try:
        (low / "d1").mkdir()
        (low / "d1" / "other").write_text("other")
        mount = siblings.mount(low)
        assert state_of(mount.mnt) == state_of(low)
        assert mount.stop() is None
    finally:
        linux.umount(low)


@pytest.mark.needs_root("mounts inside a layer")
def test_sharing_mount_inside_a_layer_is_seen_by_those_that_come_after_it(siblings):
    low, inside = siblings.layer("low"), siblings.layer("inside")
    fill(low, "x", 3)
    (inside / "inner").write_text("inner")
    plain = siblings.mount(low)
    state_of(plain.mnt)
    linux.mount(str(inside), low / "d1", None, linux.MS_BIND)
    try:
        covered = siblings.mount(low)
        assert os.listdir(covered.mnt / "d1") == ["inner"]
        assert covered.stop() is None
    finally:
        linux.umount(low / "d1")
    after = siblings.mount(low)
    assert state_of(after.mnt) == state_of(low)
    assert "link-x" in os.listdir(after.mnt / "d1")


def test_sharing_many_siblings_walk_at_once(siblings):
    top, bottom = siblings.layer("top"), siblings.layer("bottom")
    fill(top, "t"), fill(bottom, "b")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        mounts = [siblings.mount(top, bottom) for _ in range(12)]
        states = list(pool.map(lambda m: state_of(m.mnt), mounts))
    assert all(state == states[0] for state in states)
    assert len(states[0]) == 12 * (2 + 8 + 2)
    counters = siblings.counters()
    assert counters["IMAGES"] == 1 and counters["LAYERS"] == 2
