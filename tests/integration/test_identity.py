# SPDX-License-Identifier: Apache-2.0
"""st_ino: what d_ino says, the same before and after copy-up, rename and remount, and unique over
layers on several devices and mounts inside them."""
import os
import subprocess

import pytest

from support import linux, treestate
from support.content import MIB, blob
from support.expect import write_at
from support.stack import stack_on


def _everything(m):
    """Path to (st_ino, d_ino) of all that is below m."""
    found = {}
    for directory, _, _ in os.walk(m):
        for entry in os.scandir(directory):
            found[os.path.relpath(entry.path, m)] = (os.lstat(entry.path).st_ino, entry.inode())
    return found


def _assert_unique(found, links=()):
    for path, (st_ino, d_ino) in found.items():
        assert st_ino == d_ino, path
    numbers = [ino for path, (ino, _) in found.items() if path not in links]
    assert len(set(numbers)) == len(numbers)


def _fill(directory, prefix, count=20):
    for k in range(count):
        (directory / f"{prefix}dir{k}").mkdir()
        (directory / f"{prefix}dir{k}" / "f").write_bytes(blob(100 + k))
        (directory / f"{prefix}file{k}").write_bytes(blob(20_000 + k))
        (directory / f"{prefix}link{k}").symlink_to("target")


@pytest.fixture
def devices(stack):
    """Three lowers on three file systems that give the same numbers, one of them within another."""
    mounts = []

    def mount(path, source=None):
        subprocess.run(["mount", "--bind", source, path] if source else ["mount", "-t", "tmpfs", "tmpfs", path],
                       check=True)
        mounts.append(path)
        return path

    yield mount
    if stack.is_mounted:
        stack.umount()
    for path in mounts:
        if path in stack.lowers:
            assert treestate.differences(stack._states[path], treestate.take(path)) == []
            stack.forget_lower(path)
    for path in reversed(mounts):
        subprocess.run(["umount", path], check=True)
    stack.lowers.clear()
    stack._states.clear()


def test_numbers_are_unique_over_devices_and_stay(stack, devices):
    for k, prefix in enumerate(("a", "b")):
        _fill(devices(stack.lower(k)), prefix)
    _fill(stack.lower(2), "c")
    m = stack.mount()
    before = _everything(m)
    _assert_unique(before)
    for prefix in "abc":
        for k in range(0, 20, 3):
            write_at(m / f"{prefix}file{k}", b"x", 10)
            (m / f"{prefix}dir{k}").chmod(0o700)
            os.utime(m / f"{prefix}dir{k}" / "f")
    after = _everything(m)
    assert after == before
    os.rename(m / "adir3", m / "bdir4/moved")
    os.rename(m / "bfile3", m / "cdir1/file")
    os.rename(m / "cfile0", m / "file")
    new = {"bdir4/moved": "adir3", "bdir4/moved/f": "adir3/f", "cdir1/file": "bfile3", "file": "cfile0"}
    for _ in range(2):
        found = _everything(m)
        _assert_unique(found)
        for path, (ino, _) in found.items():
            assert ino == before[new.get(path, path)][0], path
        m = stack.remount()


def test_mount_inside_a_lower_is_seen_with_numbers_of_its_own(stack, devices):
    low = stack.lower()
    (low / "in").mkdir()
    (low / "also").mkdir()
    (stack.lower(1) / "in").mkdir()
    devices(low / "in")
    devices(low / "also")
    _fill(low / "in", "x", 30)
    _fill(low / "also", "x", 30)
    for place in ("in", "also"):
        os.link(low / place / "xfile1", low / place / "twin")
    m = stack.mount()
    links = {f"{place}/{name}" for place in ("in", "also") for name in ("twin", "xfile1")}
    before = _everything(m)
    _assert_unique(before, links)
    assert before["in/twin"] == before["in/xfile1"] != before["also/twin"] == before["also/xfile1"]
    write_at(m / "in/twin", b"in", 0)
    write_at(m / "also/xfile1", b"also", 0)
    assert (m / "in/xfile1").read_bytes()[:4] == b"in" + blob(20_001)[2:4]
    assert (m / "also/twin").read_bytes()[:4] == b"also"
    assert (m / "in/twin").stat().st_nlink == 2
    assert _everything(m) == before


def test_mount_inside_the_upper_is_not_taken_for_the_upper_itself(stack, devices):
    base = stack.base / "small"
    base.mkdir()
    devices(base)
    stack.upper, stack.work = base / "upper", base / "work"
    for path in (stack.upper, stack.work, stack.upper / "in"):
        path.mkdir()
    inner = devices(stack.upper / "in")
    for k in range(20):
        (stack.upper / f"f{k}").write_text(f"own {k}")
        (inner / f"f{k}").write_text(f"inner {k}")
    assert {path.stat().st_ino for path in stack.upper.glob("f*")} & {path.stat().st_ino for path in inner.glob("f*")}
    m = stack.mount()
    for k in range(20):
        assert (m / f"f{k}").read_text() == f"own {k}"
        assert (m / "in" / f"f{k}").read_text() == f"inner {k}"
    for k in range(20):
        (m / f"new{k}").write_text(f"own new {k}")
    for k in range(20):
        (m / "in" / f"new{k}").write_text(f"inner new {k}")
    for k in range(20):
        assert (m / f"f{k}").read_text() == f"own {k}"
        assert (m / f"new{k}").read_text() == f"own new {k}"
        assert (m / f"new{k}").stat().st_nlink == 1
    _assert_unique(_everything(m))


@pytest.fixture
def btrfs_stack(session_dir, veneer_bin, watchdog, serving):
    with stack_on("btrfs", 600 * MIB, session_dir, veneer_bin, watchdog) as made:
        yield made


def test_subvolume_inside_a_lower_is_seen_with_numbers_of_its_own(btrfs_stack):
    stack = btrfs_stack
    low = stack.lower()
    subprocess.run(["btrfs", "subvolume", "create", low / "in"], stdout=subprocess.DEVNULL, check=True)
    _fill(low, "a")
    _fill(low / "in", "x")
    os.link(low / "in/xfile1", low / "in/twin")
    assert {path.lstat().st_ino for path in low.glob("a*")} & {path.lstat().st_ino for path in (low / "in").glob("x*")}
    m = stack.mount()
    before = _everything(m)
    _assert_unique(before, ("in/twin",))
    assert before["in/twin"] == before["in/xfile1"]
    write_at(m / "in/twin", b"in", 0)
    write_at(m / "in/xfile2", b"in", 0)
    write_at(m / "afile2", b"own", 0)
    assert (m / "in/xfile1").read_bytes()[:4] == b"in" + blob(20_001)[2:4]
    assert (m / "in/twin").stat().st_nlink == 2
    assert _everything(m) == before
    assert _everything(stack.remount()) == before


def _fill_for_bind(low):
    for name in ("in", "also", "also/sub"):
        (low / name).mkdir()
    (low / "also" / "f").write_bytes(blob(20_000))
    (low / "also" / "sub" / "linked").write_bytes(blob(30_000))
    os.link(low / "also" / "sub" / "linked", low / "also" / "twin")


def test_bind_mount_inside_a_lower_is_seen_with_numbers_of_its_own(stack, devices):
    """Its files are others than those of its source as soon as they are written, and so they are from the start."""
    low = stack.lower()
    _fill_for_bind(low)
    devices(low / "in", low / "also")
    m = stack.mount()
    before = _everything(m)
    _assert_unique(before, {f"{place}/twin" for place in ("in", "also")})
    for place in ("in", "also"):
        assert before[f"{place}/twin"] == before[f"{place}/sub/linked"]
        assert (m / place / "twin").stat().st_nlink == 2
    write_at(m / "in/f", b"other", 0)
    write_at(m / "also/twin", b"linked", 0)
    for _ in range(2):
        assert _everything(m) == before
        assert (m / "in/f").read_bytes()[:5] == b"other"
        assert (m / "also/f").read_bytes() == blob(20_000)
        for name in ("twin", "sub/linked"):
            assert (m / "in" / name).read_bytes() == blob(30_000)
            assert (m / "also" / name).read_bytes() == b"linked" + blob(30_000)[6:]
            assert (m / "in" / name).stat().st_nlink == (m / "also" / name).stat().st_nlink == 2
        m = stack.remount()
    stack.freeze()
    found = _everything(stack.mount())
    for name in ("in/f", "in/twin", "also/f", "also/twin"):
        assert found[name] == before[name], name


@pytest.mark.needs_root("symlinks cannot have an attribute without privileges")
def test_symlinks_and_special_files_keep_their_number_when_renamed(stack):
    low = stack.lower()
    low.joinpath("link").symlink_to("x")
    os.mkfifo(low / "fifo")
    os.mknod(low / "null", 0o20666, os.makedev(1, 3))
    m = stack.mount()
    before = _everything(m)
    for name in ("link", "fifo", "null"):
        os.rename(m / name, m / f"{name}2")
    for _ in range(2):
        assert {path[:-1]: inos for path, inos in _everything(m).items()} == before
        m = stack.remount()


@pytest.mark.parametrize("options", [(), ("cow=copy",)])
def test_first_stat_has_the_right_link_count(stack, options):
    low = stack.lower()
    for k in range(3):
        (low / "d" / f"sub{k}").mkdir(parents=True)
    (low / "d" / "a").write_text("a")
    os.link(low / "d" / "a", low / "b")
    m = stack.mount(*options)
    assert os.lstat(m / "d").st_nlink == 5
    assert os.lstat(m / "b").st_nlink == 2
    (m / "d" / "new").mkdir()
    (m / "d" / "sub1").rmdir()
    os.link(m / "b", m / "c")
    m = stack.remount(*options)
    assert os.lstat(m / "d").st_nlink == 5
    assert os.lstat(m / "b").st_nlink == 3


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 9), reason="before Linux 6.9 every FUSE file has a handle")
@pytest.mark.parametrize("kind", ["root", "lower", "directory", "upper", "partial"])
def test_files_have_no_handles_that_would_not_last(stack, kind):
    """As on overlayfs. One that the kernel gives out here is ESTALE once it has forgotten the file."""
    (stack.lower() / "d").mkdir()
    for name in ("lower", "partial"):
        (stack.lower() / name).write_bytes(bytes(100_000))
    m = stack.mount()
    (m / "upper").write_bytes(b"")
    with open(m / "partial", "r+b") as f:
        f.write(b"x")
    assert linux.handle_of({"root": m, "directory": m / "d"}.get(kind, m / kind)) is None
