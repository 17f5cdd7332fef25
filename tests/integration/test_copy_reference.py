# SPDX-License-Identifier: Apache-2.0
"""A copy of a whole file of the layers below refers to that one's blocks: cp, and copy_file_range by any program."""
import errno
import io
import os
import random
import subprocess
import tarfile
import time

import pytest

from support import forge, layers, linux
from support.child import in_child
from support.content import BLOCK, KIB, MIB, allocated_on_disk, blob, write_large
from support.expect import exists, fails_with, opened, read_at, write_at
from support.killer import Killer
from support.places import Place
from support.snapshots import Snapshots

ATTR = "user.veneer.partial"
SIZE = 3 * MIB + 777
# What the attributes of a copy and its record take: one block of ext4's, and the first file of a map its map.
ROOM = 16 * KIB

IO = {"auto": (), "cached": ("io=cached",), "direct": ("io=direct",), "branches": ("branches=on",), "locks": ("locks=server",)}


@pytest.fixture(params=IO)
def m(request, stack):
    """A mount over a lower file "a"; what m.stack is."""
    (stack.lower() / "a").write_bytes(blob(SIZE))
    (stack.lower() / "d").mkdir()
    return stack.mount(*IO[request.param])


@pytest.fixture
def s(stack, shared):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    made = Snapshots(stack, shared, "branches=on")
    yield made
    if os.path.ismount(made.m):
        linux.umount(made.m)


def copy(source, target, flags=os.O_EXCL):
    """As cp goes about it. What the first call copied."""
    with opened(source) as a, opened(target, os.O_WRONLY | os.O_CREAT | flags) as b:
        first = done = os.copy_file_range(a, b, 1 << 40)
        while os.copy_file_range(a, b, 1 << 40, done, done):
            done = os.fstat(b).st_size
    return first


def is_reference(upper, name):
    path = upper / name
    return ATTR in os.listxattr(path) and os.getxattr(path, ATTR)[1] == 3


def check(stack, upper=None, lowers=None, was_killed=False):
    """Once no mount has the upper any more. was_killed: a server may have died between an entry and its file's mark."""
    for _ in range(100):
        done = layers.check(stack.program, upper or stack.upper, lowers or stack.lowers)
        if "in use by a mount" not in done.stderr:
            break
        time.sleep(0.05)
    is_harmless = was_killed and all(line.endswith("of no use, and harmless") for line in done.stdout.splitlines())
    assert (0 if is_harmless else done.returncode, done.stderr) == (0, ""), done.stdout


# ---- what is copied ----

def test_cp_takes_no_room(stack, m):
    os.sync()
    before = allocated_on_disk(stack.upper)
    subprocess.run(["cp", m / "a", m / "b"], check=True)
    assert is_reference(stack.upper, "b")
    assert allocated_on_disk(stack.upper) - before <= ROOM
    assert (m / "b").read_bytes() == blob(SIZE) == (m / "a").read_bytes()
    a, b = (m / "a").stat(), (m / "b").stat()
    assert a.st_ino != b.st_ino
    assert (b.st_size, b.st_nlink) == (SIZE, 1)
    assert b.st_blocks * 512 >= SIZE  # as du and cp count
    assert b.st_mtime_ns > a.st_mtime_ns
    stack.umount()
    check(stack)
    stack.mount()
    assert (m / "b").read_bytes() == blob(SIZE)
    assert [(m / name).stat().st_ino for name in "ab"] == [a.st_ino, b.st_ino]
    assert {entry.name: entry.inode() for entry in os.scandir(m)}["b"] == b.st_ino


def test_a_large_one(stack):
    write_large(stack.lower() / "a", 64 * MIB)
    m = stack.mount()
    before = allocated_on_disk(stack.upper)
    assert copy(m / "a", m / "b") == 64 * MIB
    assert allocated_on_disk(stack.upper) - before <= ROOM
    assert subprocess.run(["cmp", m / "a", m / "b"]).returncode == 0


def test_cp_a_keeps_what_it_keeps(stack, m):
    subprocess.run(["cp", "-a", m / "a", m / "b"], check=True)
    assert is_reference(stack.upper, "b")
    a, b = (m / "a").stat(), (m / "b").stat()
    assert (a.st_mode, a.st_uid, a.st_gid, a.st_mtime_ns) == (b.st_mode, b.st_uid, b.st_gid, b.st_mtime_ns)
    assert (m / "b").read_bytes() == blob(SIZE)


def test_a_tree(stack, m):
    for k in range(5):
        (stack.lower() / "d" / f"f{k}").write_bytes(blob(50 * KIB * (k + 1), k))
    stack.forget_lower(stack.lower())
    stack.remount()
    subprocess.run(["cp", "-r", m / "d", m / "e"], check=True)
    assert [is_reference(stack.upper, f"e/f{k}") for k in range(5)] == [False, True, True, True, True]
    assert all((m / "e" / f"f{k}").read_bytes() == blob(50 * KIB * (k + 1), k) for k in range(5))


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, 100_001])
def test_small_ones_are_copied(stack, size):
    (stack.lower() / "a").write_bytes(blob(size))
    m = stack.mount()
    assert copy(m / "a", m / "b") == size
    assert is_reference(stack.upper, "b") == (size >= 64 * KIB)
    assert (m / "b").read_bytes() == blob(size)


def test_of_a_file_of_several_layers(stack):
    want = bytearray(blob(SIZE))
    (stack.lower() / "a").write_bytes(want)
    write_at(stack.mount() / "a", b"OWN" * 3000, 100_000)
    want[100_000:109_000] = b"OWN" * 3000
    stack.freeze()
    m = stack.mount()
    assert copy(m / "a", m / "b") == SIZE
    assert is_reference(stack.upper, "b")
    assert (m / "b").read_bytes() == want
    write_at(m / "b", b"!", 105_000)
    want[105_000:105_001] = b"!"
    assert (m / "b").read_bytes() == want
    frozen = stack.freeze()
    m = stack.mount()
    assert (m / "b").read_bytes() == want
    assert copy(m / "b", m / "c") == SIZE
    assert (m / "c").read_bytes() == want
    assert len({(m / name).stat().st_ino for name in "abc"}) == 3
    assert (m / "b").stat().st_ino == (frozen / "b").stat().st_ino


def copy_by_pieces(source, target, size):
    """As PostgreSQL 18 does with file_copy_method=clone."""
    with opened(source) as a, opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as b:
        while os.copy_file_range(a, b, size):
            pass


def test_piece_by_piece(stack, m):
    before = allocated_on_disk(stack.upper)
    copy_by_pieces(m / "a", m / "b", MIB)
    assert is_reference(stack.upper, "b")
    assert allocated_on_disk(stack.upper) - before <= ROOM
    for _ in range(2):
        assert (m / "b").read_bytes() == blob(SIZE) == (m / "a").read_bytes()
        stack.remount()
    write_at(m / "b", b"NEW", MIB + 5)
    assert (m / "b").read_bytes() == blob(SIZE)[:MIB + 5] + b"NEW" + blob(SIZE)[MIB + 8:]
    stack.umount()
    check(stack)


@pytest.mark.parametrize("size", [100_000, MIB - BLOCK, MIB + 100])
def test_odd_pieces_are_copied(stack, m, size):
    copy_by_pieces(m / "a", m / "b", size)
    assert not is_reference(stack.upper, "b")
    assert (m / "b").read_bytes() == blob(SIZE)


def test_a_part_ends_where_it_ends(stack, m):
    with opened(m / "a") as a, opened(m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b:
        assert os.copy_file_range(a, b, MIB) == MIB
        assert os.pread(b, SIZE, 0) == blob(SIZE)[:MIB]
        os.pwrite(b, b"far", 2 * MIB + 7)
        want = blob(SIZE)[:MIB] + bytes(MIB + 7) + b"far"
        assert os.pread(b, SIZE, 0) == want
        assert os.copy_file_range(a, b, MIB, MIB, MIB) == MIB
        want = blob(SIZE)[:2 * MIB] + want[2 * MIB:]
        assert os.pread(b, SIZE, 0) == want
    assert is_reference(stack.upper, "b")
    stack.remount()
    assert (m / "b").read_bytes() == want
    stack.umount()
    check(stack)
    stack.freeze()
    assert (stack.mount() / "b").read_bytes() == want


def test_a_part_in_a_lower_layer(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    with opened(m / "a") as a, opened(m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b:
        assert os.copy_file_range(a, b, 2 * MIB) == 2 * MIB
    stack.umount()
    check(stack)
    stack.freeze()
    m = stack.mount()
    want = blob(SIZE)[:2 * MIB]
    assert (m / "b").read_bytes() == want
    os.truncate(m / "b", SIZE)
    want += bytes(SIZE - 2 * MIB)
    assert (m / "b").read_bytes() == want
    stack.remount()
    assert (m / "b").read_bytes() == want


def test_more_than_one_request_answers_for(stack):
    size = 5 * 1024 * MIB + 5
    with open(stack.lower() / "a", "wb") as f:
        f.truncate(size)
        for off in (0, 4 * 1024 * MIB - 5000, size - 1000):
            os.pwrite(f.fileno(), blob(1000, off), off)
    m = stack.mount()
    before = allocated_on_disk(stack.upper)
    copy(m / "a", m / "b")
    assert is_reference(stack.upper, "b") and (m / "b").stat().st_size == size
    assert allocated_on_disk(stack.upper) - before <= ROOM
    assert all(read_at(m / "b", 1000, off) == blob(1000, off) for off in (0, 4 * 1024 * MIB - 5000, size - 1000))


# ---- what is copied byte by byte ----

def test_not_of_a_file_that_was_changed(stack, m):
    write_at(m / "a", b"x", 5)
    copy(m / "a", m / "b")
    assert not is_reference(stack.upper, "b")
    assert (m / "b").read_bytes() == (m / "a").read_bytes() == blob(SIZE)[:5] + b"x" + blob(SIZE)[6:]


@pytest.mark.parametrize("how", ["a part", "into a file with bytes", "behind the start", "into a link", "a removed file"])
def test_not_otherwise(stack, m, how):
    want = blob(SIZE)
    with opened(m / "a") as a, opened(m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b:
        if how == "a part":
            assert os.copy_file_range(a, b, SIZE - 1, 0, 0) == SIZE - 1
            want = want[:-1]
        elif how == "into a file with bytes":
            os.write(b, b"x" * (SIZE + 1))
            assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
            want += b"x"
        elif how == "behind the start":
            assert os.copy_file_range(a, b, SIZE, 0, 4) == SIZE
            want = bytes(4) + want
        elif how == "into a link":
            os.link(m / "b", m / "c")
            assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
        else:
            os.unlink(m / "a")
            assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
    assert not is_reference(stack.upper, "b")
    assert (m / "b").read_bytes() == want
    stack.remount()
    assert (m / "b").read_bytes() == want


def test_not_into_what_the_kernel_writes(stack):
    """The new file is open before the source is: it may be passed through."""
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    with opened(m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b, opened(m / "a") as a:
        assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
        os.pwrite(b, b"later", 1000)
        want = blob(SIZE)[:1000] + b"later" + blob(SIZE)[1005:]
        assert os.pread(b, SIZE, 0) == want
    assert (m / "b").read_bytes() == want
    stack.remount()
    assert (m / "b").read_bytes() == want


# ---- both go on by themselves ----

@pytest.mark.parametrize("which", ["a", "b"])
def test_writing_one_leaves_the_other(stack, m, which):
    copy(m / "a", m / "b")
    before = allocated_on_disk(stack.upper)
    write_at(m / which, b"NEW", 1_000_000)
    want = bytearray(blob(SIZE))
    want[1_000_000:1_000_003] = b"NEW"
    assert allocated_on_disk(stack.upper) - before <= 32 * KIB
    for _ in range(2):
        assert (m / which).read_bytes() == want
        assert (m / ("b" if which == "a" else "a")).read_bytes() == blob(SIZE)
        stack.remount()
    stack.umount()
    check(stack)


def test_the_program_that_made_it_goes_on_writing(stack, m):
    want = bytearray(blob(SIZE))
    with opened(m / "a") as a, opened(m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b:
        assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
        os.pwrite(b, b"12345" * 1000, 70_000)
        want[70_000:75_000] = b"12345" * 1000
        assert os.pread(b, SIZE, 0) == want
        os.pwrite(b, b"end", SIZE + 10_000)
        want += bytes(10_000) + b"end"
        os.fsync(b)
        assert os.pread(b, 2 * SIZE, 0) == want
    stack.remount()
    assert (m / "b").read_bytes() == want


def _truncate(path):
    os.truncate(path, 5000)
    os.truncate(path, 9000)
    return lambda data: data[:5000] + bytes(4000)


def _extend(path):
    os.truncate(path, SIZE + 70_000)
    return lambda data: data + bytes(70_000)


def _empty(path):
    os.truncate(path, 0)
    return lambda data: b""


def _punch(path):
    with opened(path, os.O_RDWR) as fd:
        linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 9000, 100_000)
    return lambda data: data[:9000] + bytes(100_000) + data[109_000:]


def _allocate(path):
    with opened(path, os.O_RDWR) as fd:
        linux.fallocate(fd, 0, SIZE - 5000, 10_000)
    return lambda data: data + bytes(5000)


def _rename(path):
    os.rename(path, path.parent / "d" / "moved")
    os.rename(path.parent / "d" / "moved", path)
    return lambda data: data


def _mode(path):
    os.chmod(path, 0o666)
    os.utime(path, (5, 5))
    os.setxattr(path, "user.mine", b"1")
    return lambda data: data


@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.parametrize("what", [_truncate, _extend, _empty, _punch, _allocate, _rename, _mode])
def test_changing_one_leaves_the_other(stack, what, which):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    copy(m / "a", m / "b")
    want = {"a": blob(SIZE), "b": blob(SIZE)}
    inos = {name: (m / name).stat().st_ino for name in want}
    want[which] = what(m / which)(want[which])
    for _ in range(2):
        for name, data in want.items():
            assert (m / name).read_bytes() == data, name
            assert (m / name).stat().st_ino == inos[name], name
        stack.remount()
    stack.umount()
    check(stack)
    stack.freeze()
    m = stack.mount()
    for name, data in want.items():
        assert (m / name).read_bytes() == data, name
        assert (m / name).stat().st_ino == inos[name] or name == "a", name


@pytest.mark.parametrize("how", ["removed", "replaced", "moved away", "directory moved", "a copy in its place"])
def test_the_source_may_go(stack, how):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    copy(m / "d" / "a", m / "b")
    if how == "removed":
        (m / "d" / "a").unlink()
    elif how == "replaced":
        (m / "new").write_bytes(b"other")
        os.rename(m / "new", m / "d" / "a")
    elif how == "moved away":
        os.rename(m / "d" / "a", m / "elsewhere")
        (m / "d" / "a").write_bytes(b"x" * SIZE)
    elif how == "directory moved":
        try:
            os.rename(m / "d", m / "e")
        except OSError as e:
            assert e.errno == errno.EXDEV
        else:
            (m / "d").mkdir()
            (m / "d" / "a").write_bytes(b"x" * SIZE)
    else:
        (m / "d" / "a").unlink()
        os.rename(m / "b", m / "d" / "a")
        os.link(m / "d" / "a", m / "b")
    ino = (m / "b").stat().st_ino
    for _ in range(2):
        assert (m / "b").read_bytes() == blob(SIZE)
        assert (m / "b").stat().st_ino == ino
        stack.remount()
    stack.umount()
    check(stack)
    stack.freeze()
    m = stack.mount()
    assert (m / "b").read_bytes() == blob(SIZE)
    assert copy(m / "b", m / "c") == SIZE
    stack.freeze()
    m = stack.mount()
    assert (m / "b").read_bytes() == (m / "c").read_bytes() == blob(SIZE)


def test_removed_while_open(stack, m):
    copy(m / "a", m / "b")
    with opened(m / "b", os.O_RDWR) as fd:
        (m / "b").unlink()
        os.pwrite(fd, b"x", 70_000)
        assert os.pread(fd, SIZE, 0) == blob(SIZE)[:70_000] + b"x" + blob(SIZE)[70_001:]
    assert not exists(m / "b")
    stack.umount()
    check(stack)


def test_a_copy_is_copied_and_linked(stack, m):
    """It has an upper file by then: the second copy is its own."""
    copy(m / "a", m / "b")
    copy(m / "b", m / "c")
    os.link(m / "b", m / "l")
    assert not is_reference(stack.upper, "c")
    write_at(m / "l", b"y", 0)
    stack.remount()
    assert (m / "b").read_bytes() == (m / "l").read_bytes() == b"y" + blob(SIZE)[1:]
    assert (m / "c").read_bytes() == blob(SIZE)
    assert (m / "b").stat().st_ino == (m / "l").stat().st_ino != (m / "a").stat().st_ino
    assert (m / "b").stat().st_nlink == 2


def test_of_a_hard_linked_file(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    os.link(stack.lower() / "a", stack.lower() / "a2")
    m = stack.mount()
    copy(m / "a", m / "b")
    write_at(m / "a2", b"z", 100)
    assert (m / "a").read_bytes() == blob(SIZE)[:100] + b"z" + blob(SIZE)[101:]
    stack.remount()
    assert (m / "b").read_bytes() == blob(SIZE)
    assert (m / "b").stat().st_nlink == 1
    assert (m / "a").stat().st_ino == (m / "a2").stat().st_ino != (m / "b").stat().st_ino


def test_the_same_copy_once_more(stack):
    """As the request of a server that was killed: nothing is written."""
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount("io=cached")
    copy(m / "a", m / "b")
    before = (m / "b").stat()
    assert copy(m / "a", m / "b", 0) == SIZE
    assert is_reference(stack.upper, "b") and (m / "b").stat().st_mtime_ns > before.st_mtime_ns
    assert allocated_on_disk(stack.upper / "b") <= ROOM
    assert (m / "b").read_bytes() == blob(SIZE)


# ---- who may read ----

@pytest.mark.needs_root("takes two users")
def test_readers_of_the_copy_need_no_right_to_the_source(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    (stack.lower() / "a").chmod(0o600)
    m = stack.mount()
    copy(m / "a", m / "b")
    os.chmod(m / "b", 0o666)
    for _ in range(2):
        in_child(_read_and_write, m / "b", uid=1234)
        with pytest.raises(AssertionError, match="PermissionError"):
            in_child((m / "a").read_bytes, uid=1234)
        stack.remount()
    assert ATTR not in os.listxattr(m / "b")  # hidden
    stack.umount()
    check(stack)


def _read_and_write(path):
    assert path.read_bytes()[1:] == blob(SIZE)[1:]
    write_at(path, path.read_bytes()[:1], 0)


@pytest.mark.needs_root("takes two users")
def test_a_forged_copy_shows_nothing(stack):
    """The owner of a file takes the seal's place: he could not have read the source."""
    (stack.lower() / "a").write_bytes(blob(SIZE))
    (stack.lower() / "a").chmod(0o600)
    m = stack.mount()
    copy(m / "a", m / "b")
    stack.umount()
    path = stack.upper / "b"
    os.chown(path, 1234, 1234)
    mark = os.getxattr(path, ATTR)
    os.removexattr(path, "trusted.veneer.partial")
    stack.mount()
    with fails_with(errno.EIO):
        (m / "b").read_bytes()
    stack.umount()
    os.setxattr(path, "trusted.veneer.partial", mark)
    stack.mount()
    assert (m / "b").read_bytes() == blob(SIZE)


@pytest.mark.needs_root("takes two users")
def test_a_seal_that_was_lost_is_made_again_before_others_may_write(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    (stack.lower() / "a").chmod(0o600)
    m = stack.mount()
    copy(m / "a", m / "b")
    stack.umount()
    os.removexattr(stack.upper / "b", "trusted.veneer.partial")
    stack.mount()
    assert (m / "b").read_bytes() == blob(SIZE)
    os.chmod(m / "b", 0o666)
    os.chown(m / "b", 1234, 1234)
    stack.remount()
    assert (m / "b").read_bytes() == blob(SIZE)


def test_a_flag_without_a_path_is_damage(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    copy(m / "a", m / "b")
    stack.umount()
    os.setxattr(stack.upper / "b", ATTR, forge.mark(file_id=1, size=SIZE, flags=2))
    stack.mount()
    with fails_with(errno.EIO):
        (m / "b").read_bytes()


# ---- tools ----

def test_flatten_and_diff(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    copy(m / "a", m / "b")
    copy(m / "a", m / "c")
    write_at(m / "c", b"mine", 4)
    want = blob(SIZE)[:4] + b"mine" + blob(SIZE)[8:]
    stack.umount()
    for options in (["-o", f"lowerdir={stack.lower()}"], []):
        listed = layers.tool(stack.program, "diff", *options, stack.upper)
        assert [line.split()[0] for line in listed.stdout.splitlines() if line.split()[1] in ("/b", "/c", "b", "c")] == ["A", "A"], listed
    ino = (stack.upper / "b").stat().st_ino
    said = layers.flatten(stack.program, stack.upper, stack.lowers)
    assert (said.returncode, said.stderr) == (0, "")
    assert (stack.upper / "b").read_bytes() == blob(SIZE) and (stack.upper / "c").read_bytes() == want
    assert not [name for name in os.listxattr(stack.upper / "b") if "veneer" in name or "overlay" in name]
    check(stack)
    stack.mount()
    assert (m / "b").stat().st_ino == ino
    assert (m / "b").read_bytes() == blob(SIZE) and (m / "c").read_bytes() == want


def test_the_archive_of_a_layer_has_its_bytes(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    copy(m / "a", m / "b")
    stack.umount()
    done = subprocess.run([stack.program, "diff", "--tar", "-o", f"lowerdir={stack.lower()}", stack.upper], stdout=subprocess.PIPE)
    if done.returncode:
        pytest.skip("built without libarchive")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        assert [member.name for member in tar if member.isfile()] == ["b"]
        assert tar.extractfile("b").read() == blob(SIZE)


def test_inspect_and_check_name_it(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    copy(m / "a", m / "b")
    stack.umount()
    assert "a copy of a (" in layers.tool(stack.program, "inspect", stack.upper).stdout
    low = stack.lower()
    stack.forget_lower(low)
    (low / "a").rename(low / "gone")
    done = layers.check(stack.program, stack.upper, [low])
    assert done.returncode != 0 and "lower-missing" in done.stdout + done.stderr or "no lower layer has a" in done.stdout + done.stderr
    (low / "gone").rename(low / "a")
    check(stack)


# ---- room ----

def test_a_quota_counts_what_is_written(stack):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount("size=1m")
    for k in range(8):
        copy(m / "a", m / f"b{k}")
        assert is_reference(stack.upper, f"b{k}")
    with fails_with(errno.ENOSPC, errno.EDQUOT):
        for off in range(0, SIZE - BLOCK, BLOCK):
            write_at(m / "b0", bytes(BLOCK), off)
    assert (m / "b1").read_bytes() == blob(SIZE)


@pytest.mark.parametrize("option", ["cow=copy", "volatile"])
def test_with_options(stack, option):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    m = stack.mount(option)
    copy(m / "a", m / "b")
    assert is_reference(stack.upper, "b") == (option == "volatile")
    assert (m / "b").read_bytes() == blob(SIZE)


def test_a_path_without_room_is_copied(stack):
    """ext4: 4 KiB for all attributes, of which the mark and its seal have the path."""
    deep = "/".join(["d" * 200] * 15)
    (stack.lower() / deep).mkdir(parents=True)
    (stack.lower() / deep / "a").write_bytes(blob(SIZE))
    m = stack.mount()
    assert copy(m / deep / "a", m / "b") == SIZE or not is_reference(stack.upper, "b")
    assert (m / "b").read_bytes() == blob(SIZE)
    stack.remount()
    assert (m / "b").read_bytes() == blob(SIZE)
    stack.umount()
    check(stack)


# ---- snapshots ----

@pytest.mark.parametrize("squashes", ["none", "all", "the copy's", "the source's"])
def test_snapshots_and_squash(s, squashes):
    want = bytearray(blob(SIZE))
    (s.m / "own").write_bytes(blob(SIZE, 3))
    write_at(s.m / "a", b"ONE", 500_000)
    want[500_000:500_003] = b"ONE"
    s.take("one")
    copy(s.m / "a", s.m / "b")
    copy(s.m / "own", s.m / "c")
    assert is_reference(s.place.upper, "b") and is_reference(s.place.upper, "c")
    numbers = {name: (s.m / name).stat().st_ino for name in ("a", "b", "c", "own")}
    s.take("two")
    write_at(s.m / "a", b"TWO", 600_000)
    (s.m / "own").unlink()
    s.take("three")
    write_at(s.m / "b", b"B", 700_000)
    s.take("four")
    write_at(s.m / "c", b"C", 5)
    of_a = bytes(want[:600_000]) + b"TWO" + bytes(want[600_003:])
    of_b = bytes(want[:700_000]) + b"B" + bytes(want[700_001:])
    of_c = blob(SIZE, 3)[:5] + b"C" + blob(SIZE, 3)[6:]

    def look():
        assert (s.m / "a").read_bytes() == of_a
        assert (s.m / "b").read_bytes() == of_b
        assert (s.m / "c").read_bytes() == of_c
        assert {name: (s.m / name).stat().st_ino for name in ("a", "b", "c")} == {name: numbers[name] for name in ("a", "b", "c")}
    look()
    ranges = {"none": (), "all": ("one..four",), "the copy's": ("two..four",), "the source's": ("one..two",)}[squashes]
    for names in ranges:
        done = s.call("-q", s.m, names, command="squash")
        assert done.returncode == 0, done.stderr
        look()
    linux.umount(s.m)
    check(s.stack, s.place.upper, [s.stack.lower()])
    s.mount()
    look()


def test_a_live_copy_and_the_squash_of_its_source(s):
    (s.m / "own").write_bytes(blob(SIZE, 3))
    s.take("one")
    write_at(s.m / "own", b"X", 9)
    s.take("two")
    copy(s.m / "own", s.m / "c")
    want = blob(SIZE, 3)[:9] + b"X" + blob(SIZE, 3)[10:]
    ino = (s.m / "c").stat().st_ino
    with opened(s.m / "c", os.O_RDWR) as fd:
        assert s.call("-q", s.m, command="squash").returncode == 0
        assert os.pread(fd, SIZE, 0) == want
        os.pwrite(fd, b"Y", 0)
    want = b"Y" + want[1:]
    linux.umount(s.m)
    check(s.stack, s.place.upper, [s.stack.lower()])
    s.mount()
    assert (s.m / "c").read_bytes() == want
    assert (s.m / "c").stat().st_ino == ino


def test_rollback(s):
    copy(s.m / "a", s.m / "b")
    s.take("one")
    ino = (s.m / "b").stat().st_ino
    write_at(s.m / "b", b"LATER", 0)
    copy(s.m / "a", s.m / "c")
    s.back("one")
    assert (s.m / "b").read_bytes() == blob(SIZE)
    assert (s.m / "b").stat().st_ino == ino
    assert not exists(s.m / "c")


def test_open_over_a_snapshot(s):
    with opened(s.m / "a") as a, opened(s.m / "b", os.O_RDWR | os.O_CREAT | os.O_EXCL) as b:
        assert os.copy_file_range(a, b, SIZE, 0, 0) == SIZE
        ino = os.fstat(b).st_ino
        s.take("one")
        os.pwrite(b, b"after", 70_000)
        assert os.pread(b, SIZE, 0) == blob(SIZE)[:70_000] + b"after" + blob(SIZE)[70_005:]
        assert os.fstat(b).st_ino == ino
    assert (s.m / "b").stat().st_ino == ino


# ---- a server that dies ----

@pytest.mark.parametrize("option", ["", "io=cached", "writeback=on"])
def test_copies_go_on_while_servers_die(stack, shared, option):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared, *filter(None, [option]))
    rng = random.Random(5)
    with Killer(shared, 0.15):
        for k in range(60):
            if k % 2:
                copy_by_pieces(m / "a", m / f"b{k}", MIB)
            else:
                copy(m / "a", m / f"b{k}")
            if k % 3 == 0:
                write_at(m / f"b{k}", b"own", k * 10_000)
            if k % 5 == 0:
                os.rename(m / f"b{k}", m / f"c{k}")
                os.rename(m / f"c{k}", m / f"b{k}")
            assert read_at(m / f"b{rng.randrange(k + 1)}", 10, SIZE - 10) == blob(SIZE)[-10:]
    for k in range(60):
        want = bytearray(blob(SIZE))
        if k % 3 == 0:
            want[k * 10_000:k * 10_000 + 3] = b"own"
        assert (m / f"b{k}").read_bytes() == want, k
    linux.umount(m)
    check(stack, place.upper, [stack.lower()], was_killed=True)


def test_what_is_open_and_nameless_is_found_by_the_next_server(stack, shared):
    (stack.lower() / "a").write_bytes(blob(SIZE))
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared)
    copy(m / "a", m / "b")
    with opened(m / "b", os.O_RDWR) as fd:
        ino = os.fstat(fd).st_ino
        (m / "b").unlink()
        shared.kill_server()
        assert os.pread(fd, SIZE, 0) == blob(SIZE)
        os.pwrite(fd, b"x", 0)
        shared.kill_server()
        assert os.pread(fd, 2, 0) == b"x" + blob(SIZE)[1:2]
        assert os.fstat(fd).st_ino == ino
