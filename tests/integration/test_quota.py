# SPDX-License-Identifier: Apache-2.0
"""-o size= and inodes=: what an upper may take, on any file system and without privileges."""
import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import random
import shutil
import subprocess

import pytest

import differential
from support import linux, rootless
from support.linux import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE
from support.content import MIB, blob
from support.expect import fails_with, opened
from support.places import Place
from support.randomops import RandomOperations
from support.server import MountFailed, wait_until
from support.stack import Stack
from support.twins import Twins

_SEED = 41


def used(m):
    """Bytes and inodes, as statfs shows them."""
    fs = os.statvfs(m)
    return (fs.f_blocks - fs.f_bfree) * fs.f_frsize, fs.f_files - fs.f_ffree


def taken(upper):
    """The same, by a walk of the upper. Whiteouts and what is reserved are not counted as inodes."""
    seen, total, directories = {}, 0, [os.fspath(upper)]
    for directory in directories:
        # whose access time the mount has told already
        with opened(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME) as fd:
            paths = [os.path.join(directory, name) for name in os.listdir(fd)]
        directories += [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
        for path in [directory, *paths]:
            st = os.lstat(path)
            if st.st_ino in seen:
                continue
            seen[st.st_ino] = 1
            total += st.st_blocks * 512
            if os.path.basename(path).startswith(".wh.") or (st.st_mode & 0o170000 == 0o020000 and st.st_rdev == 0):
                seen[st.st_ino] = 0
    return total, sum(seen.values())


def is_xfs(stack):
    """XFS gives open files more blocks than they asked for, and the quota does not count these."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", stack.upper], capture_output=True, text=True, check=True)
    return kind.stdout.strip() == "xfs"


def fill(path, limit=200 * MIB):
    """Write until it is refused; what was taken, and the error."""
    done = 0
    with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
        while done < limit:
            try:
                done += os.pwrite(fd, blob(65536, done), done)
            except OSError as e:
                return done, e.errno
    return done, 0


@contextlib.contextmanager
def _file_system(session_dir, kind):
    image, mnt = session_dir / f"{kind}.img", session_dir / kind
    mnt.mkdir()
    with open(image, "wb") as f:
        f.truncate(600 * MIB)
    subprocess.run([f"mkfs.{kind}", "-q", "-f", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, mnt]).returncode:
        mnt.rmdir()
        image.unlink()
        pytest.skip(f"no loop devices, or no {kind}")
    try:
        yield mnt
    finally:
        subprocess.run(["umount", mnt], check=True)
        mnt.rmdir()
        image.unlink()


@pytest.fixture(params=["here", "xfs", "btrfs"])
def any_stack(request, session_dir, veneer_bin, watchdog, serving):
    if request.param == "here":
        yield request.getfixturevalue("stack")
        return
    if rootless.is_inside() or os.geteuid() != 0 or not shutil.which(f"mkfs.{request.param}") or not os.path.exists("/dev/loop-control"):
        pytest.skip(f"takes root, loop devices and mkfs.{request.param}")
    with _file_system(session_dir, request.param) as mnt:
        mask = os.umask(0o022)
        made = Stack(mnt / "s", veneer_bin, watchdog)
        yield made
        os.umask(mask)
        problems = made.close()
        assert not problems, "\n".join(problems) + made.log


def test_write_beyond_the_limit_is_refused_and_what_was_written_stays(any_stack):
    stack = any_stack
    m = stack.mount("size=20M")
    done, error = fill(m / "f")
    assert error == errno.ENOSPC
    assert 19 * MIB <= done <= 20 * MIB
    assert (m / "f").read_bytes() == b"".join(blob(65536, k) for k in range(0, done, 65536))[:done]
    if not is_xfs(stack):
        linux.syncfs(stack.upper)
        assert abs(used(m)[0] - taken(stack.upper)[0]) < MIB
    # what has its room can be written again
    with opened(m / "f", os.O_RDWR) as fd:
        assert os.pwrite(fd, b"again" * 20_000, MIB + 77) == 100_000
        assert os.pread(fd, 100_000, MIB + 77) == b"again" * 20_000
    os.unlink(m / "f")
    assert wait_until(lambda: used(m)[0] < MIB)
    assert fill(m / "g", 10 * MIB) == (10 * MIB, 0)


@pytest.mark.parametrize("seed", range(2))
def test_count_is_exact_after_a_long_random_run(any_stack, seed):
    stack, rng = any_stack, random.Random(_SEED + seed)
    plain = stack.base / "plain"
    plain.mkdir()
    differential.prepare(stack, plain, rng)
    m = stack.mount("size=400M,inodes=10000", "coherence=strict")
    operations = RandomOperations(Twins(m, plain), rng, True, True)
    try:
        for done in range(1, 2001):
            operations.step()
            if done % 500 == 0 and not is_xfs(stack):
                operations.flush_mappings()
                assert abs(used(m)[0] - taken(stack.upper)[0]) < MIB, done
        operations.flush_mappings()
    finally:
        operations.close_handles()
    operations.twins.compare_trees(False)
    linux.syncfs(stack.upper)
    assert wait_until(lambda: used(m)[1] == taken(stack.upper)[1])
    said = used(m)
    stack.umount()
    want = taken(stack.upper)
    assert abs(said[0] - want[0]) < MIB and said[1] == want[1]
    # and as a new count has it
    m = stack.mount("size=400M,inodes=10000")
    assert abs(used(m)[0] - want[0]) < MIB and used(m)[1] == want[1]


def test_first_write_into_a_lower_file_takes_what_it_writes(stack):
    (stack.lower() / "big").write_bytes(blob(64 * MIB))
    m = stack.mount("size=4M,inodes=100")
    with opened(m / "big", os.O_RDWR) as fd:
        for k in range(100):
            os.pwrite(fd, b"x" * 4096, k * 100_000 & ~4095)
        assert used(m)[0] < 2 * MIB
        for k in range(100, 2000):
            try:
                os.pwrite(fd, b"x" * 4096, k * 32768)
            except OSError as e:
                assert e.errno == errno.ENOSPC
                break
        else:
            pytest.fail("it was never full")
        assert 3 * MIB < used(m)[0] <= 4 * MIB + 65536
        # what was refused is as it was
        assert os.pread(fd, 4096, k * 32768) == blob(64 * MIB)[k * 32768:k * 32768 + 4096]


def test_inodes(stack):
    for k in range(30):
        (stack.lower() / f"l{k}").write_text("x")
    m = stack.mount("inodes=20")
    (m / "d").mkdir()
    for k in range(15):
        (m / f"f{k}").write_text("")
    assert used(m)[1] == taken(stack.upper)[1] == 17
    os.link(m / "f0", m / "link")
    os.symlink("x", m / "s1")
    os.symlink("x", m / "s2")
    os.chmod(m / "l0", 0o600)
    for attempt in (lambda: os.mkdir(m / "more"), lambda: os.mknod(m / "more"), lambda: os.symlink("x", m / "more"),
                    lambda: os.chmod(m / "l1", 0o600), lambda: os.mkfifo(m / "more")):
        with fails_with(errno.ENOSPC):
            attempt()
    assert not (m / "more").exists()
    # removing is always possible, also of what is below
    os.unlink(m / "l2")
    os.unlink(m / "f0")
    os.rename(m / "f1", m / "f2")
    assert wait_until(lambda: used(m)[1] == 19)
    os.unlink(m / "link")
    assert wait_until(lambda: used(m)[1] == 18)
    os.rmdir(m / "d")
    (m / "new").write_text("x")


def test_names_of_hard_linked_lower_files_can_be_removed_when_there_is_no_room(stack):
    for directory in ("a", "b"):
        (stack.lower() / directory).mkdir()
    for k in range(4):
        (stack.lower() / "a" / f"h{k}").write_text(f"content {k}")
        os.link(stack.lower() / "a" / f"h{k}", stack.lower() / "b" / f"h{k}")
    m = stack.mount("size=1M,inodes=20")
    for k in range(30):
        with contextlib.suppress(OSError), open(m / f"f{k}", "w") as f:
            f.write("x")
    fill(m / "f0")
    with fails_with(errno.ENOSPC):
        (m / "more").write_text("")
    with fails_with(errno.ENOSPC):
        os.chmod(m / "a" / "h0", 0o600)
    os.rename(m / "f1", m / "b" / "h0")
    shutil.rmtree(m / "a")
    assert (m / "b" / "h0").read_text() == "x"
    for k in range(1, 4):
        assert (m / "b" / f"h{k}").read_text() == f"content {k}" and os.stat(m / "b" / f"h{k}").st_nlink == 1
    said = used(m)
    m = stack.remount("size=1M,inodes=20")
    assert used(m) == said
    assert sorted(os.listdir(m / "b")) == [f"h{k}" for k in range(4)] and not (m / "a").exists()
    for k in range(1, 4):
        assert (m / "b" / f"h{k}").read_text() == f"content {k}"


def test_unlinked_file_counts_until_it_is_closed(stack):
    m = stack.mount("size=30M")
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        os.pwrite(fd, blob(10 * MIB), 0)
        os.unlink(m / "f")
        assert used(m)[0] >= 10 * MIB
        os.pwrite(fd, blob(10 * MIB), 10 * MIB)
        assert used(m)[0] >= 20 * MIB
        assert fill(m / "g")[0] < 10 * MIB
    assert wait_until(lambda: used(m)[0] < 11 * MIB)


def test_truncating_and_punching_give_room_back(stack):
    m = stack.mount("size=30M")
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        os.pwrite(fd, blob(20 * MIB), 0)
        before = used(m)[0]
        linux.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, MIB, 5 * MIB)
        assert before - used(m)[0] >= 5 * MIB - 65536
        os.ftruncate(fd, 2 * MIB)
        assert used(m)[0] < 2 * MIB
        os.posix_fallocate(fd, 0, 20 * MIB)
        with fails_with(errno.ENOSPC):
            os.posix_fallocate(fd, 20 * MIB, 20 * MIB)
        assert used(m)[0] >= 20 * MIB
        done, error = fill(m / "g")
        assert error == errno.ENOSPC and done <= 10 * MIB
        # it was promised
        assert os.pwrite(fd, b"y" * 15 * MIB, 4 * MIB) == 15 * MIB


def test_room_asked_for_past_the_end_counts(any_stack):
    m = any_stack.mount("size=30M")
    with opened(m / "f", os.O_RDWR | os.O_CREAT) as fd:
        linux.fallocate(fd, FALLOC_KEEP_SIZE, 0, 20 * MIB)
        assert used(m)[0] >= 20 * MIB
        with fails_with(errno.ENOSPC):
            linux.fallocate(fd, FALLOC_KEEP_SIZE, 20 * MIB, 20 * MIB)
    m = any_stack.remount("size=30M")
    assert used(m)[0] >= 20 * MIB


def test_store_into_a_mapping_beyond_the_limit_is_an_error_at_msync(stack):
    m = stack.mount("size=8M")
    fill(m / "f", 4 * MIB)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with opened(m / "g", os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 16 * MIB)
        with mmap.mmap(fd, 16 * MIB) as view:
            view[:] = b"z" * 16 * MIB
            address = ctypes.addressof(ctypes.c_char.from_buffer(view))
            r = libc.msync(address, 16 * MIB, 4)
            error = ctypes.get_errno()
            assert r == -1 and error in (errno.ENOSPC, errno.EIO)
    assert used(m)[0] <= 8 * MIB + 65536
    assert (m / "f").read_bytes() == b"".join(blob(65536, k) for k in range(0, 4 * MIB, 65536))


def test_whole_copies_count(stack):
    (stack.lower() / "a").write_bytes(blob(6 * MIB))
    (stack.lower() / "b").write_bytes(blob(6 * MIB, 1))
    m = stack.mount("size=10M,cow=copy")
    with opened(m / "a", os.O_RDWR) as fd:
        os.pwrite(fd, b"x", 0)
    with opened(m / "b", os.O_RDWR) as fd, fails_with(errno.ENOSPC):
        os.pwrite(fd, b"x", 0)
    assert (m / "b").read_bytes() == blob(6 * MIB, 1)
    assert 6 * MIB <= used(m)[0] < 7 * MIB


def test_attributes_and_copies_of_ranges_count(stack):
    m = stack.mount("size=10M")
    fill(m / "f", 6 * MIB)
    with opened(m / "f") as source, opened(m / "g", os.O_RDWR | os.O_CREAT) as target:
        done = 0
        with fails_with(errno.ENOSPC):
            while done < 6 * MIB:
                done += os.copy_file_range(source, target, 6 * MIB - done, done, done)
        assert done <= 4 * MIB
    fill(m / "h")
    with fails_with(errno.ENOSPC):
        for k in range(2000):
            (m / f"x{k}").write_text("")
            os.setxattr(m / f"x{k}", "user.a", b"x" * 3000)
    assert used(m)[0] <= 11 * MIB


def test_directories_and_names_beyond_the_limit_are_refused(stack):
    m = stack.mount("size=2M")
    fill(m / "f")
    kinds = {"d": os.mkdir, "s": lambda path: os.symlink("t" * 1000, path), "f": pathlib.Path.touch}
    for kind, make in kinds.items():
        with fails_with(errno.ENOSPC):
            for k in range(20_000):
                make(m / (f"{kind}{k:06}" + "n" * 240))
    assert used(m)[0] <= 2 * MIB + 65536
    os.unlink(m / "f")
    assert wait_until(lambda: used(m)[0] < 2 * MIB)
    os.mkdir(m / "d")


def test_inode_of_an_unlinked_file_can_be_had_at_once(stack):
    for k in range(100):
        (stack.lower() / f"l{k}").write_text("x")
        (stack.lower() / f"m{k}").write_text("x")
    m = stack.mount("inodes=10")
    for k in range(9):
        (m / f"f{k}").write_text("")
    for k in range(100):
        os.unlink(m / "f0")
        (m / "f0").write_text("")
        os.unlink(m / "f0")
        os.mkdir(m / "f0")
        os.rmdir(m / "f0")
        os.symlink("x", m / "f0")
        os.unlink(m / "f0")
        os.chmod(m / f"l{k}", 0o600)
        os.unlink(m / f"l{k}")
        os.rename(m / f"m{k}", m / "f0")
    with fails_with(errno.ENOSPC):
        (m / "f").write_text("")


def test_attributes_that_are_removed_give_room_back(stack):
    m = stack.mount("size=10M")
    def taken_bytes():
        # without a limit of its own a mount shows all inodes of the file system, others' too
        return used(m)[0]

    (m / "f").write_text("")
    before = taken_bytes()
    os.setxattr(m / "f", "user.a", b"x" * 3000)
    if taken_bytes() == before:
        pytest.skip("the file system takes no blocks for attributes of this size")
    os.removexattr(m / "f", "user.a")
    assert taken_bytes() == before


def test_statfs_shows_the_limit(stack):
    m = stack.mount("size=100M,inodes=2k")
    fs = os.statvfs(m)
    assert fs.f_blocks * fs.f_frsize == 100 * MIB and fs.f_files == 2000
    fill(m / "f", 40 * MIB)
    fs = os.statvfs(m)
    assert 59 * MIB <= fs.f_bavail * fs.f_frsize <= 60 * MIB


def test_an_upper_that_is_fuller_than_allowed_is_read_and_cut(stack):
    m = stack.mount()
    fill(m / "f", 20 * MIB)
    m = stack.remount("size=10M")
    assert len((m / "f").read_bytes()) == 20 * MIB
    with fails_with(errno.ENOSPC):
        (m / "g").write_text("x")
    os.truncate(m / "f", MIB)
    (m / "g").write_text("x")


def test_deep_directories_are_counted(stack):
    m = stack.mount("size=30M")
    fd = os.open(m, os.O_RDONLY)
    try:
        for _ in range(60):
            os.mkdir("d" * 200, dir_fd=fd)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        file = os.open("f", os.O_RDWR | os.O_CREAT, dir_fd=fd)
        os.pwrite(file, blob(10 * MIB), 0)
        os.close(file)
    finally:
        os.close(fd)
    before = used(m)
    assert before[0] > 10 * MIB
    m = stack.remount("size=30M,inodes=1000")
    assert used(m)[1] == 62 and abs(used(m)[0] - before[0]) < MIB


def test_count_is_right_after_the_server_was_killed(stack, shared):
    (stack.lower() / "low").write_bytes(blob(8 * MIB))
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared, "size=40M,inodes=50")
    with contextlib.ExitStack() as opens:
        low = opens.enter_context(opened(m / "low", os.O_RDWR))
        os.pwrite(low, b"x" * 100_000, MIB)
        gone = opens.enter_context(opened(m / "gone", os.O_RDWR | os.O_CREAT))
        os.pwrite(gone, blob(10 * MIB), 0)
        os.unlink(m / "gone")
        fill(m / "kept", 5 * MIB)
        before = used(m)
        shared.kill_server()
        assert abs(used(m)[0] - before[0]) < MIB
        assert used(m)[1] == before[1] == 4
        os.pwrite(gone, blob(MIB), 10 * MIB)
        assert used(m)[0] > before[0] + MIB // 2
    assert wait_until(lambda: used(m)[0] < 6 * MIB and used(m)[1] == 3)
    assert fill(m / "rest")[0] > 33 * MIB


def test_stats_show_it(stack, shared):
    stack.lower()
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared, "size=40M,inodes=50")
    fill(m / "f", 5 * MIB)
    env = {**os.environ, **shared.environment}
    got = subprocess.run([shared.program, "stats", "--json", m], capture_output=True, text=True, check=True, env=env)
    quota = json.loads(got.stdout)["mounts"][0]["quota"]
    assert quota["max_bytes"] == 40 * MIB and quota["max_inodes"] == 50 and quota["inodes"] == 2
    assert 5 * MIB <= quota["bytes"] <= 6 * MIB
    text = subprocess.run([shared.program, "stats", m], capture_output=True, text=True, check=True, env=env).stdout
    assert "of 40 MiB" in text and "2 of 50 inodes" in text


@pytest.mark.parametrize("option", ["size=", "size=0", "size=ten", "size=10X", "inodes=-1", "size=99999999999999T"])
def test_bad_limits_are_refused(stack, option):
    with pytest.raises(MountFailed, match="invalid value for"):
        stack.mount(option)
