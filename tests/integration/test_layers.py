# SPDX-License-Identifier: Apache-2.0
import os
import random
import resource
import subprocess

import pytest

from support import linux
from support.content import MIB, blob
from support.expect import names_in, opened, write_at
from support.server import wait_until


@pytest.mark.parametrize("count", [200, 500])
def test_many_lowers(stack, count):
    stack.lower(count - 1)
    for i in range(count):
        (stack.lower(i) / "d").mkdir()
        (stack.lower(i) / "d" / f"f{i}").write_text(str(i))
        (stack.lower(i) / "common").write_text(str(i))
    m = stack.mount()
    assert (m / "common").read_text() == "0"
    assert len(os.listdir(m / "d")) == count
    assert (m / "d" / f"f{count - 1}").read_text() == str(count - 1)
    write_at(m / "d" / f"f{count - 1}", b"new", 0)
    (m / "d" / "f7").unlink()
    m = stack.remount()
    assert (m / "d" / f"f{count - 1}").read_bytes()[:3] == b"new"
    assert len(os.listdir(m / "d")) == count - 1


def test_many_lowers_with_a_low_soft_limit_of_descriptors(stack):
    stack.lower(299)
    (stack.lower(299) / "deep").write_text("found")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        m = stack.mount()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (m / "deep").read_text() == "found"


def test_partial_upper_as_lower_again_and_again(stack):
    """Nine layers, each owning some blocks of one file; every block comes from where it was
    written last."""
    rng = random.Random(5)
    want = bytearray(blob(2_000_001))
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(want)
    for generation in range(1, 9):
        path = stack.mount() / "d" / "f"
        assert path.read_bytes() == want, generation
        with opened(path, os.O_RDWR) as fd:
            for _ in range(12):
                off, length = rng.randrange(len(want) + 100), rng.choice([3, 4096, 9000, 300_000])
                os.pwrite(fd, bytes([generation]) * length, off)
                want += bytes(max(0, off + length - len(want)))
                want[off:off + length] = bytes([generation]) * length
            if generation in (3, 6):
                cut = rng.randrange(500_000, 1_500_000)
                os.ftruncate(fd, cut)
                del want[cut:]
            if generation == 4:
                os.ftruncate(fd, len(want) + 700_000)
                want += bytes(700_000)
            if generation == 5:
                punch = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE
                linux.fallocate(fd, punch, 90_000, 50_000)
                want[90_000:140_000] = bytes(50_000)
        assert path.read_bytes() == want, generation
        stack.freeze()
    assert (stack.mount() / "d" / "f").read_bytes() == want
    stack.umount()
    reader = stack.second_mount(stack.lowers)
    assert (reader.mnt / "d" / "f").read_bytes() == want


def test_metadata_only_layers_do_not_lose_the_data_below(stack):
    data = blob(600_000)
    (stack.lower() / "f").write_bytes(data)
    for mode in (0o600, 0o640, 0o644, 0o755):
        m = stack.mount()
        (m / "f").chmod(mode)
        os.chown(m / "f", mode, 1)
        stack.freeze()
    m = stack.mount()
    assert (m / "f").read_bytes() == data
    write_at(m / "f", b"at last", 333_333)
    data = data[:333_333] + b"at last" + data[333_340:]
    assert (m / "f").read_bytes() == data
    stack.freeze()
    m = stack.mount()
    assert (m / "f").read_bytes() == data
    assert ((m / "f").stat().st_mode & 0o7777, (m / "f").stat().st_uid) == (0o755, 0o755)


@pytest.mark.parametrize("between", ["whiteout", "opaque", "other file"])
def test_partial_files_of_one_name_in_layers_that_were_cut_apart(stack, between):
    """A file that a newer layer puts under the name has nothing to do with the older layers' blocks."""
    old = blob(500_000, 1)
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(old)
    write_at(stack.mount() / "d" / "f", b"one", 100_000)
    stack.freeze()
    m = stack.mount()
    (m / "d" / "f").unlink()
    if between == "opaque":
        (m / "d").rmdir()
        (m / "d").mkdir()
    new = blob(400_000, 2)
    (m / "d" / "f").write_bytes(new)
    stack.freeze()
    m = stack.mount()
    assert (m / "d" / "f").read_bytes() == new
    write_at(m / "d" / "f", b"two", 200_000)
    new = new[:200_000] + b"two" + new[200_003:]
    stack.freeze()
    assert (stack.mount() / "d" / "f").read_bytes() == new


@pytest.mark.parametrize("form", ["ro option", "as lower"])
def test_second_read_only_mount_of_a_live_upper(stack, form):
    data = bytearray(blob(700_000))
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    write_at(m / "f", b"before", 5000)
    data[5000:5006] = b"before"
    unlinked = os.open(m / "gone", os.O_CREAT | os.O_RDWR)
    os.write(unlinked, b"still here")
    (m / "gone").unlink()
    raw_before = sorted(os.listdir(stack.upper))
    if form == "ro option":
        other = stack.second_mount(stack.lowers, "ro", upper=stack.upper, work=stack.work)
    else:
        other = stack.second_mount([stack.upper, *stack.lowers])
    assert (other.mnt / "f").read_bytes() == data
    assert names_in(other.mnt) == ["f"]
    # the first mount never notices
    write_at(m / "f", b"after", 300_000)
    data[300_000:300_005] = b"after"
    assert (m / "f").read_bytes() == data
    assert os.fstat(unlinked).st_size == 10
    os.fchmod(unlinked, 0o600)
    assert os.pread(unlinked, 20, 0) == b"still here"
    os.close(unlinked)
    assert other.stop() is None
    assert sorted(os.listdir(stack.upper)) == raw_before
    (m / "new").write_text("x")
    assert (m / "f").read_bytes() == data
    m = stack.remount()
    assert (m / "f").read_bytes() == data


@pytest.mark.parametrize("way", ["symlink", "renamed", "bind", "more layers on top"])
def test_layer_with_partial_files_is_reached_by_another_way(stack, way):
    data = bytearray(blob(900_000))
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    write_at(m / "f", b"own block", 123_456)
    data[123_456:123_465] = b"own block"
    os.rename(m / "f", m / "g")
    frozen = stack.freeze()
    lowers = list(stack.lowers)
    if way == "symlink":
        (stack.base / "short").symlink_to(frozen.name)
        lowers[0] = stack.base / "short"
    elif way == "renamed":
        frozen.rename(stack.base / "diff1")
        lowers[0] = stack.base / "diff1"
    elif way == "bind":
        (stack.base / "bound").mkdir()
        linux.mount(frozen, stack.base / "bound", None, linux.MS_BIND)
        lowers[0] = stack.base / "bound"
    else:
        for name in ("top1", "top2"):
            (stack.base / name).mkdir()
            lowers.insert(0, stack.base / name)
    mount = stack.second_mount(lowers, upper=stack.upper, work=stack.work)
    try:
        if way == "bind":
            # the engines detach such mounts as soon as the mount program has returned
            linux.umount(stack.base / "bound", linux.MNT_DETACH)
        assert (mount.mnt / "g").read_bytes() == data
        write_at(mount.mnt / "g", b"newer", 800_000)
        data[800_000:800_005] = b"newer"
        assert (mount.mnt / "g").read_bytes() == data
        assert names_in(mount.mnt) == ["g"]
    finally:
        assert mount.stop() is None


def test_two_mounts_share_lowers_and_nothing_else(stack):
    data = blob(400_000)
    (stack.lower() / "f").write_bytes(data)
    one = stack.mount()
    (stack.base / "u2").mkdir()
    (stack.base / "w2").mkdir()
    two = stack.second_mount(stack.lowers, upper=stack.base / "u2", work=stack.base / "w2").mnt
    write_at(one / "f", b"one", 1000)
    write_at(two / "f", b"two", 1000)
    (one / "only-one").write_text("")
    (two / "f2").write_text("")
    assert (one / "f").read_bytes() == data[:1000] + b"one" + data[1003:]
    assert (two / "f").read_bytes() == data[:1000] + b"two" + data[1003:]
    assert names_in(one) == ["f", "only-one"]
    assert names_in(two) == ["f", "f2"]


def test_mount_point_may_be_the_upper_itself(stack):
    data = blob(300_000)
    (stack.lower() / "f").write_bytes(data)
    stack.mnt = stack.upper
    m = stack.mount()
    write_at(m / "f", b"x", 0)
    assert (m / "f").read_bytes() == b"x" + data[1:]
    stack.umount()
    assert os.lstat(stack.upper / "f").st_size == len(data)


def test_mounts_nest(stack):
    """A mount as the lower of another one (build tools stack them)."""
    data = bytearray(blob(500_000))
    (stack.lower() / "f").write_bytes(data)
    inner = stack.mount()
    write_at(inner / "f", b"inner", 10)
    data[10:15] = b"inner"
    (stack.base / "u2").mkdir()
    (stack.base / "w2").mkdir()
    outer = stack.second_mount([inner], upper=stack.base / "u2", work=stack.base / "w2").mnt
    assert (outer / "f").read_bytes() == data
    write_at(outer / "f", b"outer", 400_000)
    data[400_000:400_005] = b"outer"
    assert (outer / "f").read_bytes() == data
    (outer / "f").unlink()
    assert names_in(outer) == []
    assert names_in(inner) == ["f"]


@pytest.mark.parametrize("is_live", [False, True], ids=["unmounted", "still mounted"])
def test_upper_in_the_middle_of_another_stack(stack, is_live):
    """Layers above that hide, merge and change; below it the layers that it was made over."""
    low = stack.lower()
    for name in ("a", "b", "c", "hidden"):
        (low / "d" / name).parent.mkdir(exist_ok=True)
        (low / "d" / name).write_bytes(blob(300_000, ord(name[0])))
    m = stack.mount()
    for name in ("a", "b", "hidden"):
        write_at(m / "d" / name, b"upper", 100_000)
    (m / "d" / "c").unlink()
    os.rename(m / "d" / "b", m / "d" / "b2")
    tops = [stack.base / "top0", stack.base / "top1"]
    for top in tops:
        (top / "d").mkdir(parents=True)
    (tops[1] / "d" / ".wh.hidden").write_text("")
    (tops[0] / "d" / "new").write_text("top")
    if not is_live:
        stack.umount()
    (stack.base / "u2").mkdir()
    (stack.base / "w2").mkdir()
    other = stack.second_mount([*tops, stack.upper, *stack.lowers], upper=stack.base / "u2", work=stack.base / "w2")
    want = {name: blob(300_000, ord(name[0]))[:100_000] + b"upper" + blob(300_000,
                                                                          ord(name[0]))[100_005:] for name in ("a",
                                                                                                               "b2")}
    assert names_in(other.mnt / "d") == ["a", "b2", "new"]
    assert {name: (other.mnt / "d" / name).read_bytes() for name in want} == want
    write_at(other.mnt / "d" / "b2", b"twice", 200_000)
    want["b2"] = want["b2"][:200_000] + b"twice" + want["b2"][200_005:]
    if is_live:
        write_at(m / "d" / "a", b"later", 5000)
        assert (m / "d" / "a").read_bytes()[5000:5005] == b"later"
    assert other.stop() is None
    again = stack.second_mount([stack.base / "u2", *tops, stack.upper, *stack.lowers])
    assert (again.mnt / "d" / "b2").read_bytes() == want["b2"]
    assert again.stop() is None


def test_upper_is_a_lower_at_once_after_unmounting(stack):
    """Nobody waits for the server to end: the engines do not either."""
    data = bytearray(blob(400_000))
    (stack.lower() / "f").write_bytes(data)
    for turn in range(20):
        m = stack.mount()
        for off in range(turn, 400_000, 40_000):
            write_at(m / "f", b"%02d" % turn, off)
            data[off:off + 2] = b"%02d" % turn
        linux.umount(m, linux.MNT_DETACH)
        reader = stack.second_mount([stack.upper, *stack.lowers])
        assert (reader.mnt / "f").read_bytes() == data, turn
        assert reader.stop() is None
        assert stack.server.wait_for_end() == 0


@pytest.mark.parametrize("size", [100, 300_000])
def test_private_mount_leaves_whole_files_for_those_who_read_the_upper(stack, size):
    (stack.lower() / "f").write_bytes(blob(size))
    (stack.lower() / "g").write_bytes(blob(size, 2))
    m = stack.mount("private")
    write_at(m / "f", b"x", size - 1)
    os.chmod(m / "g", 0o600)
    want = {"f": blob(size)[:-1] + b"x", "g": blob(size, 2)}
    assert {name: (m / name).read_bytes() for name in want} == want
    stack.umount()
    assert {name: (stack.upper / name).read_bytes() for name in want} == want
    assert "user.veneer.partial" not in os.listxattr(stack.upper / "f")
    assert names_in(stack.upper) == ["f", "g"]
    m = stack.mount()
    assert {name: (m / name).read_bytes() for name in want} == want


def test_private_mount_of_an_upper_with_partial_files_goes_on(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    (stack.lower() / "g").write_bytes(blob(300_000, 2))
    write_at(stack.mount() / "f", b"map", 100_000)
    m = stack.remount("private")
    write_at(m / "f", b"more", 200_000)
    write_at(m / "g", b"copy", 200_000)
    want = {"f": blob(300_000)[:100_000] + b"map" + blob(300_000)[100_003:200_000] + b"more" + blob(300_000)[200_004:],
            "g": blob(300_000, 2)[:200_000] + b"copy" + blob(300_000, 2)[200_004:]}
    for step in ("private", "not", "frozen"):
        assert {name: (m / name).read_bytes() for name in want} == want, step
        if step == "not":
            stack.freeze()
        m = stack.remount()
    stack.umount()
    assert (stack.lowers[0] / "g").read_bytes() == want["g"]


def test_hard_limit_of_forty_descriptors(stack):
    """Of a process that serves one mount; what is open at once is bounded, and files take turns."""
    for number in range(60):
        (stack.lower() / f"f{number}").write_bytes(blob(200_000, number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = ["sh", "-c", 'ulimit -n 40 && exec "$0" "$@"', stack.program, "-f", "-o",
               f"lowerdir={stack.lower()},upperdir={stack.upper},workdir={stack.work}", str(stack.mnt)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: os.path.ismount(stack.mnt) or process.poll() is not None)
        for number in range(60):
            write_at(stack.mnt / f"f{number}", b"new", 100_000)
        for number in range(60):
            data = blob(200_000, number)
            assert (stack.mnt / f"f{number}").read_bytes() == data[:100_000] + b"new" + data[100_003:]
    finally:
        linux.umount(str(stack.mnt), linux.MNT_DETACH)
        assert process.wait(timeout=20) == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


@pytest.mark.needs_privileges("mounts a tmpfs")
def test_upper_on_a_tmpfs(stack):
    place = stack.base / "memory"
    place.mkdir()
    linux.mount("tmpfs", str(place), "tmpfs", 0, "mode=0755")
    try:
        stack.upper, stack.work = place / "upper", place / "work"
        stack.upper.mkdir()
        stack.work.mkdir()
        (stack.lower() / "f").write_bytes(blob(MIB))
        (stack.lower() / "g").write_bytes(blob(MIB))
        data = bytearray(blob(MIB))
        data[500_000:500_003] = b"new"
        m = stack.mount()
        write_at(m / "f", b"new", 500_000)
        (m / "g").unlink()
        assert (m / "f").read_bytes() == data
        m = stack.remount()
        assert (m / "f").read_bytes() == data
        assert names_in(m) == ["f"]
        stack.umount()
    finally:
        linux.umount(str(place), linux.MNT_DETACH)
