# SPDX-License-Identifier: Apache-2.0
"""Several things move at once: directories while names below them are copied up, names that nobody has
looked up yet, a server that is killed in between, and redirects that do not fit."""
import errno
import mmap
import os
import struct
import subprocess
import threading
import time

import pytest

from support import linux
from support.child import Child
from support.content import blob
from support.expect import exists, fails_with, names_in, write_at

_FILES = 800
dialects = pytest.mark.parametrize(
    "env", [{}, {"FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT": "1"}], ids=["devices", "files"])


class _Pace:
    """Two processes that do their k-th step at nearly the same time; the distance between them varies."""

    def __init__(self, count):
        self._memory, self._count = mmap.mmap(-1, 4096), count

    def _at(self, slot):
        return struct.unpack_from("i", self._memory, slot)[0]

    def run(self, first, second):
        struct.pack_into("ii", self._memory, 0, -1, -1)

        def other():
            for k in range(self._count):
                while self._at(0) < k:
                    pass
                for _ in range(k % 50 * 10):
                    pass
                try:
                    second(k)
                finally:
                    struct.pack_into("i", self._memory, 4, self._count)
                struct.pack_into("i", self._memory, 4, k)
        child = Child(other)
        for k in range(self._count):
            struct.pack_into("i", self._memory, 0, k)
            first(k)
            while self._at(4) < k:
                time.sleep(0)
        child.join()


def _identity(path):
    st = os.lstat(path)
    return st.st_ino, st.st_mode, st.st_size, st.st_nlink


def test_other_name_is_looked_up_while_the_file_is_copied_up(stack):
    """Once the other name was not found, or was a second inode with stale pages and size."""
    low = stack.lower()
    for name in "xy":
        (low / name).mkdir()
    for k in range(_FILES):
        (low / f"x/{k}").write_bytes(b"%d" % k * (1 if k % 2 else 20_000))
        os.link(low / f"x/{k}", low / f"y/{k}")
    m = stack.mount()
    for k in range(_FILES):
        os.stat(m / f"x/{k}")
    _Pace(_FILES).run(lambda k: os.chmod(m / f"x/{k}", 0o600), lambda k: os.stat(m / f"y/{k}"))
    for k in range(_FILES):
        os.truncate(m / f"x/{k}", 3)
        assert _identity(m / f"x/{k}") == _identity(m / f"y/{k}"), k


@dialects
def test_directory_of_another_name_is_renamed_while_the_file_is_copied_up(stack, env):
    low = stack.lower()
    for name in "xy":
        (low / name).mkdir()
    for k in range(_FILES):
        (low / f"x/{k}").write_bytes(b"%d" % k)
        (low / f"y/d{k}").mkdir()
        os.link(low / f"x/{k}", low / f"y/d{k}/f")
    m = stack.mount(env=env)
    for k in range(_FILES):
        os.stat(m / f"x/{k}")
    _Pace(_FILES).run(lambda k: os.chmod(m / f"x/{k}", 0o600),
                      lambda k: os.rename(m / f"y/d{k}", m / f"e{k}"))
    for _ in range(2):
        for k in range(_FILES):
            assert _identity(m / f"x/{k}") == _identity(m / f"e{k}/f"), k
        m = stack.remount(env=env)


@pytest.mark.parametrize("options", [[], ["cow=copy"], ["cow=copy", "volatile"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_kill_between_two_names(stack, options, kind, mode):
    """Whole copies and symlinks say by their origin alone which file they stand for."""
    if kind == "symlink" and mode != "root":
        pytest.skip("without privileges a symlink cannot have the attribute")
    low, wanted = stack.lower(), (50, 200, 320, 100, 10)
    for number in range(8):
        (low / f"d{number}").mkdir()
    files = [[f"d{k % 8}/{number}-{k}" for k in range(400)] for number in range(len(wanted))]
    for names in files:
        if kind == "file":
            (low / names[0]).write_bytes(b"old" * 3000)
        else:
            os.symlink("target", low / names[0])
        for name in names[1:]:
            os.link(low / names[0], low / name, follow_symlinks=False)
    for k, names in zip(wanted, files):
        m = stack.remount(*options)

        def change(path=m / names[7]):
            try:
                if mode == "plain":
                    os.utime(path, (5, 6))
                else:
                    os.chown(path, 5, 6, follow_symlinks=False)
            except OSError:
                pass  # the server was killed
        thread = threading.Thread(target=change)
        thread.start()
        end = time.monotonic() + 5
        while not exists(stack.upper / names[k]) and time.monotonic() < end:
            pass
        stack.server.kill()
        thread.join()
        was_between = 0 < sum(exists(stack.upper / name) for name in names) < len(names)
        m = stack.mount(*options)
        states = {(st.st_ino, st.st_uid, st.st_nlink) for st in (os.lstat(m / name) for name in names)}
        assert len(states) == 1, states
        assert {nlink for _, _, nlink in states} == {len(names)}
        if was_between:
            return
    pytest.skip("the server was never caught between two names")


def test_redirect_that_does_not_fit_is_exdev(stack):
    """ext4 has a block for the attributes of an inode and calls it full with ENOSPC: mv could not have copied."""
    part = "d" * 199
    depth = 12
    inside = stack.lower()
    for _ in range(depth):
        inside = inside / part
    inside.mkdir(parents=True)
    (inside / "f").write_bytes(blob(30_000))
    m = stack.mount()
    parent = m
    for _ in range(depth - 1):
        parent = parent / part
    try:
        os.rename(parent / part, parent / "e")
        want = "e"
    except OSError:
        with fails_with(errno.EXDEV):
            os.rename(parent / part, parent / "e")
        want = part
    for _ in range(2):
        assert names_in(parent) == [want]
        assert (parent / want / "f").read_bytes() == blob(30_000)
        stack.remount()
    subprocess.run(["mv", parent / want, parent / "moved"], check=True)
    for _ in range(2):
        assert names_in(parent) == ["moved"]
        assert (parent / "moved/f").read_bytes() == blob(30_000)
        stack.remount()


def test_upper_deeper_than_a_path_is_searched_for_renamed_directories(stack):
    low = stack.lower()
    for name in "abc":
        (low / name).mkdir()
    (low / "a/f").write_bytes(blob(50_000))
    os.link(low / "a/f", low / "b/f")
    os.link(low / "a/f", low / "c/f")
    m = stack.mount()
    os.rename(m / "b", m / "moved")
    here = os.getcwd()
    try:
        os.chdir(m)
        for _ in range(25):
            os.mkdir("n" * 200)
            os.chdir("n" * 200)
    finally:
        os.chdir(here)
    m = stack.remount()
    try:
        write_at(m / "c/f", b"new", 0)
        assert (m / "moved/f").read_bytes()[:3] == b"new"
        m = stack.remount()
        for name in ("a", "moved", "c"):
            assert (m / name / "f").read_bytes()[:3] == b"new"
    finally:
        subprocess.run(["rm", "-rf", m / ("n" * 200)], check=True)


@pytest.mark.writethrough("no write fails, but its fsync")
@pytest.mark.needs_root("mounts a file system")
@dialects
def test_full_disk_between_two_names_takes_all_of_them_back(stack, env):
    """400 directories to copy up, and a link into each, on a file system with too few inodes and blocks."""
    low, count = stack.lower(), 400
    for k in range(count):
        (low / f"d{k}").mkdir()
    (low / "d0/f").write_bytes(b"old" * 3000)
    for k in range(1, count):
        os.link(low / "d0/f", low / f"d{k}/f")
    small = stack.base / "small"
    small.mkdir()
    linux.mount("tmpfs", small, "tmpfs", 0, "size=1m,nr_inodes=300")
    try:
        for name in ("upper", "work"):
            (small / name).mkdir()
        mount = stack.second_mount(stack.lowers, upper=small / "upper", work=small / "work", env=env)
        m = mount.mnt
        with fails_with(errno.ENOSPC):
            write_at(m / "d3/f", b"new", 0)
        with fails_with(errno.ENOSPC):
            os.unlink(m / "d3/f")
        for again in range(2):
            states = {(_identity(m / f"d{k}/f")) for k in range(count)}
            assert len(states) == 1 and states.pop()[3] == count
            assert {(m / f"d{k}/f").read_bytes()[:3] for k in range(count)} == {b"old"}
            assert mount.stop() is None
            if not again:
                m = mount.start(env=env).mnt
    finally:
        linux.umount(small)
