# SPDX-License-Identifier: Apache-2.0
"""`veneer flatten`: layers become plain files that any union file system reads."""
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

import differential
from support import layers, linux
from support.content import BLOCK, KIB, MIB, blob
from support.expect import write_at

_ATTR = "user.veneer.partial"


@pytest.fixture
def flatten(veneer_bin, stack):
    """Flatten the upper of the stack, which has to work."""
    def run(upper=None, lowers=None, **keywords):
        result = layers.flatten(veneer_bin, upper or stack.upper, lowers or stack.lowers,
                                **keywords)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return result
    return run


def _is_partial(path):
    return _ATTR in os.listxattr(path)


def _others(stack, mode):
    """Ways to read the stack's layers: (name, context of a mount point)."""
    tops = [stack.upper, *stack.lowers]
    if mode == "root":
        yield "overlayfs", layers.kernel_mount(tops, stack.base / "kernel")
    if layers.has_fuse_overlayfs():
        yield "fuse-overlayfs", layers.fuse_overlayfs_mount(tops, stack.base / "fuse")


def _assert_all_show(stack, mode, want):
    for name, context in _others(stack, mode):
        # fuse-overlayfs counts the links that it has come across
        hidden = {"nlink"} if name == "fuse-overlayfs" else set()
        with context as mnt:
            assert layers.without(hidden, layers.view(mnt)) == layers.without(hidden, want), name
    assert layers.view(stack.mount()) == want, "veneer"
    stack.umount()


def test_a_partial_file_becomes_a_plain_one_in_place(stack, flatten):
    data = bytearray(blob(3 * MIB))
    (stack.lower() / "f").write_bytes(data)
    os.chmod(stack.lower() / "f", 0o4751)
    m = stack.mount()
    write_at(m / "f", b"new", 5 * BLOCK + 7)
    data[5 * BLOCK + 7:5 * BLOCK + 10] = b"new"
    before = os.stat(m / "f")
    stack.umount()
    inode = os.stat(stack.upper / "f").st_ino
    result = flatten()
    raw = os.stat(stack.upper / "f")
    assert (stack.upper / "f").read_bytes() == data
    assert (raw.st_ino, raw.st_mtime_ns, raw.st_atime_ns, raw.st_mode) == \
        (inode, before.st_mtime_ns, before.st_atime_ns, before.st_mode)
    assert os.listxattr(stack.upper / "f") == []
    assert os.listdir(stack.upper) == ["f"]
    assert "1 file made whole" in result.stdout


def test_what_is_seen_below_stays_as_sparse_as_it_is(stack, flatten):
    path = stack.lower() / "sparse"
    with open(path, "wb") as f:
        f.truncate(64 * MIB)
        os.pwrite(f.fileno(), blob(MIB), 32 * MIB)
    m = stack.mount()
    write_at(m / "sparse", b"x", 100)
    want = (m / "sparse").read_bytes()
    stack.umount()
    flatten()
    assert (stack.upper / "sparse").read_bytes() == want
    assert os.stat(stack.upper / "sparse").st_blocks * 512 < 3 * MIB


def test_cut_and_grown_files(stack, flatten, mode):
    for name in ("cut", "grown", "cut-and-grown", "emptied", "punched"):
        (stack.lower() / name).write_bytes(blob(200 * KIB + 100, seed=len(name)))
    m = stack.mount()
    os.truncate(m / "cut", 50_001)
    os.truncate(m / "grown", 900_000)
    os.truncate(m / "cut-and-grown", 30_001)
    os.truncate(m / "cut-and-grown", 300_000)
    os.truncate(m / "emptied", 0)
    with open(m / "punched", "r+b") as f:
        linux.fallocate(f.fileno(), linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 9_000, 60_000)
    want = layers.view(m)
    stack.umount()
    flatten()
    assert layers.marks(stack.upper) == []
    _assert_all_show(stack, mode, want)


def test_hard_links_stay_one_file(stack, flatten, mode):
    (stack.lower() / "f").write_bytes(blob(MIB))
    m = stack.mount()
    write_at(m / "f", b"new", 0)
    os.link(m / "f", m / "g")
    want = layers.view(m)
    stack.umount()
    flatten()
    assert os.path.samefile(stack.upper / "f", stack.upper / "g")
    _assert_all_show(stack, mode, want)


def test_bytes_of_a_server_that_was_killed_are_not_seen(stack, flatten):
    """A block that is not own may hold anything in the upper."""
    with open(stack.lower() / "f", "wb") as f:
        f.write(blob(MIB))
        f.truncate(2 * MIB)
    m = stack.mount()
    write_at(m / "f", b"new", 0)
    want = (m / "f").read_bytes()
    stack.umount()
    write_at(stack.upper / "f", b"garbage" * 1000, 800_000)
    write_at(stack.upper / "f", b"garbage" * 1000, 1_500_000)
    assert (stack.mount() / "f").read_bytes() == want
    stack.umount()
    flatten()
    assert (stack.upper / "f").read_bytes() == want


@pytest.mark.needs_root("capabilities of files")
def test_capabilities_stay(stack, flatten):
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    (stack.lower() / "f").write_bytes(blob(MIB))
    os.setxattr(stack.lower() / "f", "security.capability", capability)
    m = stack.mount()
    os.chmod(m / "f", 0o711)
    stack.umount()
    flatten()
    assert os.getxattr(stack.upper / "f", "security.capability") == capability
    assert (stack.upper / "f").read_bytes() == blob(MIB)


def _fill_directory(path):
    (path / "sub" / "deep").mkdir(parents=True)
    for name in ("one", "two", "sub/three", "sub/gone", "sub/deep/four"):
        (path / name).write_bytes(blob(100 * KIB, seed=len(name)))
    (path / "link").symlink_to("one")
    os.mkfifo(path / "fifo")
    os.setxattr(path / "one", "user.note", b"kept")
    os.chmod(path / "sub", 0o2750)
    for name in (".", "sub", "sub/deep", "one"):
        os.utime(path / name, ns=(10**18, 10**18 + len(name)))


def _rename_directory(stack, m):
    os.rename(m / "dir", m / "moved")
    os.unlink(m / "moved" / "sub" / "gone")
    write_at(m / "moved" / "one", b"new", 50_000)
    (m / "moved" / "sub" / "fresh").write_bytes(b"fresh")
    (m / "dir").mkdir()
    (m / "dir" / "other").write_bytes(b"other")


@pytest.mark.writethrough("a time that the kernel keeps may be later after a new mount")
def test_renamed_directories_are_expanded(stack, flatten, mode):
    _fill_directory(stack.lower(0) / "dir")
    (stack.lower(1) / "dir" / "sub").mkdir(parents=True)
    (stack.lower(1) / "dir" / "sub" / "from-below").write_bytes(blob(50 * KIB))
    m = stack.mount()
    _rename_directory(stack, m)
    want = layers.view(m)
    stack.umount()
    assert layers.marks(stack.upper), "nothing to do"
    result = flatten()
    assert "1 renamed directory " in result.stdout
    assert layers.marks(stack.upper) == []
    _assert_all_show(stack, mode, want)


def test_renamed_directories_in_renamed_ones(stack, flatten, mode):
    _fill_directory(stack.lower() / "a")
    _fill_directory(stack.lower() / "a" / "b")
    _fill_directory(stack.lower() / "c")
    m = stack.mount()
    os.rename(m / "a" / "b" / "sub", m / "c" / "sub2")
    os.rename(m / "c", m / "a" / "b" / "c")
    os.rename(m / "a", m / "c")
    shutil.rmtree(m / "c" / "sub" / "deep")
    want = layers.view(m)
    stack.umount()
    flatten()
    assert layers.marks(stack.upper) == []
    _assert_all_show(stack, mode, want)


@pytest.mark.needs_root("overlayfs with metacopy=on")
def test_an_upper_that_the_kernel_wrote_becomes_plain(stack, flatten, mode, veneer_bin):
    _fill_directory(stack.lower() / "d")
    (stack.lower() / "f").write_bytes(blob(MIB))
    data = layers.options(stack.upper, [stack.lower()], stack.work)
    linux.mount("overlay", str(stack.mnt), "overlay", 0, data + ",metacopy=on,redirect_dir=on")
    os.chmod(stack.mnt / "f", 0o600)
    os.rename(stack.mnt / "f", stack.mnt / "g")
    os.rename(stack.mnt / "d", stack.mnt / "e")
    os.unlink(stack.mnt / "e" / "one")
    want = layers.view(stack.mnt)
    linux.umount(str(stack.mnt))
    assert layers.check(veneer_bin, stack.upper, stack.lowers).returncode == 0
    flatten()
    assert layers.marks(stack.upper) == []
    _assert_all_show(stack, mode, want)


@pytest.mark.parametrize("order", ["top first", "bottom first"])
def test_the_lower_of_a_partial_file_may_be_partial_itself(stack, flatten, mode, order):
    (stack.lower() / "f").write_bytes(blob(MIB))
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(blob(MIB, seed=2))
    for number in range(3):
        m = stack.mount()
        write_at(m / "f", b"%d" % number * 5000, number * 200_000)
        os.rename(m / ("d" if number == 0 else f"d{number - 1}"), m / f"d{number}")
        write_at(m / f"d{number}" / "f", b"%d" % number * 5000, number * 100_000)
        want = layers.view(m)
        if number < 2:
            stack.freeze()
    stack.umount()
    todo = [(stack.upper, stack.lowers)] + [(stack.lowers[k], stack.lowers[k + 1:])
                                            for k in range(len(stack.lowers) - 1)]
    for upper, lowers in todo if order == "top first" else todo[::-1]:
        stack.forget_lower(upper)
        flatten(upper, lowers)
        assert layers.marks(upper) == []
        assert layers.view(stack.mount()) == want
        stack.umount()
    _assert_all_show(stack, mode, want)


def test_a_second_run_finds_nothing_to_do(stack, flatten):
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    stack.umount()
    flatten()
    before = layers.view(stack.upper)
    assert "is flat" in flatten().stdout
    assert layers.view(stack.upper) == before


def test_a_mounted_upper_is_refused(stack, veneer_bin):
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    result = layers.flatten(veneer_bin, stack.upper, stack.lowers)
    assert result.returncode == 1
    assert "in use" in result.stderr
    assert _is_partial(stack.upper / "f")
    assert sorted(os.listdir(stack.upper)) == [".wh..wh.veneer", "f"]


def test_the_work_directory_may_be_named(stack, flatten):
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    stack.umount()
    flatten(work=stack.work)
    assert not _is_partial(stack.upper / "f")


@pytest.mark.parametrize("way", ["itself", "inside", "file"])
def test_a_work_directory_that_came_with_the_layer_leads_nowhere(stack, flatten, way):
    """Its name is one that no container can make, but an archive can have it."""
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    stack.umount()
    elsewhere, own = stack.base / "elsewhere", stack.upper / ".wh..wh.flatten"
    (elsewhere / "work" / "veneer-1").mkdir(parents=True)
    (elsewhere / "work" / "veneer-1" / "mine").write_text("mine")
    before = layers.view(elsewhere)
    if way == "itself":
        own.symlink_to(elsewhere)
    elif way == "inside":
        own.mkdir()
        (own / "work").symlink_to(elsewhere / "work")
    else:
        own.write_text("")
    flatten()
    assert layers.view(elsewhere) == before
    assert not _is_partial(stack.upper / "f") and os.listdir(stack.upper) == ["f"]


def _flatten_with_first_attribute_refused(stack, veneer_bin, error):
    """The attributes of the layer's root, which flatten saves in case it is killed, cannot be written there."""
    if not shutil.which("strace"):
        pytest.skip("no strace to make a system call fail")
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    stack.umount()
    os.chmod(stack.upper, 0o751)
    os.utime(stack.upper, ns=(1_000_000_001, 1_000_000_002))
    before = os.stat(stack.upper)
    # Leaks cannot be looked for in a program that is traced.
    leaks = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    result = subprocess.run(["strace", "-o", os.devnull, "-e", f"inject=fsetxattr:error={error}:when=1", veneer_bin, "flatten",
                             "-o", layers.options(stack.upper, stack.lowers)], capture_output=True, text=True, timeout=100, env=leaks)
    after = os.stat(stack.upper)
    assert (oct(after.st_mode), after.st_mtime_ns) == (oct(before.st_mode), before.st_mtime_ns)
    return result


def test_root_stays_as_it_is_when_its_times_cannot_be_read_or_kept(stack, veneer_bin):
    result = _flatten_with_first_attribute_refused(stack, veneer_bin, "EIO")
    assert result.returncode == 1 and "stopped: Input/output error" in result.stderr
    assert _is_partial(stack.upper / "f")


def test_no_room_to_keep_times_by_quota_is_like_no_room_on_the_disk(stack, veneer_bin):
    result = _flatten_with_first_attribute_refused(stack, veneer_bin, "EDQUOT")
    assert (result.returncode, result.stderr) == (0, "")
    assert not _is_partial(stack.upper / "f")


def test_quiet_says_nothing(stack, veneer_bin):
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    stack.umount()
    result = layers.flatten(veneer_bin, stack.upper, stack.lowers, "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not _is_partial(stack.upper / "f")


def test_wrong_usage_is_2(stack, veneer_bin):
    for argv in ([], ["--no-such"], ["-o", f"upperdir={stack.upper}"],
                 ["-o", f"lowerdir={stack.lower()}"], ["-o"]):
        assert layers.tool(veneer_bin, "flatten", *argv).returncode == 2, argv
    assert layers.tool(veneer_bin, "flatten", "--help").returncode == 0


def test_a_file_without_its_lower_is_left_and_named(stack, veneer_bin):
    for name in ("bad", "good"):
        (stack.lower() / name).write_bytes(blob(MIB))
    m = stack.mount()
    write_at(m / "bad", b"new", 0)
    write_at(m / "good", b"new", 0)
    stack.umount()
    stack.forget_lower(stack.lower())
    os.truncate(stack.lower() / "bad", 1000)
    result = layers.flatten(veneer_bin, stack.upper, stack.lowers)
    assert result.returncode == 1
    assert f"{stack.upper}/bad" in result.stderr
    assert _is_partial(stack.upper / "bad")
    assert not _is_partial(stack.upper / "good")
    assert (stack.upper / "good").read_bytes()[:3] == b"new"
    assert (stack.upper / ".wh..wh.veneer").exists()


def test_a_renamed_directory_with_a_bad_file_keeps_its_redirect(stack, veneer_bin):
    (stack.lower() / "d").mkdir()
    for name in ("bad", "good"):
        (stack.lower() / "d" / name).write_bytes(blob(MIB))
    m = stack.mount()
    os.rename(m / "d", m / "e")
    write_at(m / "e" / "bad", b"new", 0)
    stack.umount()
    stack.forget_lower(stack.lower())
    saved = os.stat(stack.lower() / "d" / "bad").st_mtime_ns
    os.utime(stack.lower() / "d" / "bad", ns=(5, 5))
    assert layers.flatten(veneer_bin, stack.upper, stack.lowers).returncode == 1
    os.utime(stack.lower() / "d" / "bad", ns=(saved, saved))
    m = stack.mount()
    assert (m / "e" / "bad").read_bytes() == b"new" + blob(MIB)[3:]
    stack.umount()
    assert layers.flatten(veneer_bin, stack.upper, stack.lowers).returncode == 0
    assert layers.marks(stack.upper) == []


@pytest.mark.parametrize("seed", [11, 12, None])
@pytest.mark.writethrough("a time that the kernel keeps may be later after a new mount")
def test_random_layers_show_the_same_flat(stack, plain, flatten, mode, seed):
    seed = seed or int(os.environ.get("VENEER_TEST_SEED", 20261121))
    operations = differential.make_layers(stack, plain, seed)
    operations.twins.compare_trees()
    want = layers.view(stack.mnt)
    stack.umount()
    flatten()
    for number, lower in enumerate(stack.lowers[:2]):
        stack.forget_lower(lower)
        flatten(lower, stack.lowers[number + 1:])
    for layer in [stack.upper, *stack.lowers]:
        assert layers.marks(layer) == []
    _assert_all_show(stack, mode, want)


def _busy_layer(stack):
    for number in range(6):
        (stack.lower() / f"f{number}").write_bytes(blob(2 * MIB, seed=number))
        _fill_directory(stack.lower() / f"d{number}")
    m = stack.mount()
    for number in range(6):
        write_at(m / f"f{number}", b"new" * 1000, number * 100_000)
        os.rename(m / f"d{number}", m / f"e{number}")
        os.unlink(m / f"e{number}" / "sub" / "gone")
        write_at(m / f"e{number}" / "sub" / "three", b"new", 70_000)
    os.rename(m / "e1", m / "e0" / "e1")
    os.link(m / "f0", m / "e2" / "linked")
    want = layers.view(m)
    stack.umount()
    return want


def _timeless(root):
    """A run that was killed may have changed times, which the next one puts back."""
    return layers.without({"mtime"}, layers.view(root))


def _copy_of(stack, pristine):
    shutil.rmtree(stack.upper)
    subprocess.run(["cp", "-a", "--sparse=always", str(pristine), str(stack.upper)], check=True)


def test_a_kill_at_any_moment_changes_nothing_that_is_seen(stack, veneer_bin, mode):
    want = _busy_layer(stack)
    pristine = stack.base / "pristine"
    subprocess.run(["cp", "-a", "--sparse=always", str(stack.upper), str(pristine)], check=True)
    start = time.monotonic()
    assert layers.flatten(veneer_bin, stack.upper, stack.lowers, "-q").returncode == 0
    limit_s, killed, rng = time.monotonic() - start, 0, random.Random(5)
    for _ in range(150):
        _copy_of(stack, pristine)
        process = subprocess.Popen([veneer_bin, "flatten", "-q", "-o",
                                    layers.options(stack.upper, stack.lowers)])
        time.sleep(rng.uniform(0, limit_s))
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            limit_s *= 0.9
            continue
        assert _timeless(stack.mount()) == layers.without({"mtime"}, want)
        stack.umount()
        result = layers.flatten(veneer_bin, stack.upper, stack.lowers, "-q")
        assert (result.returncode, result.stderr) == (0, "")
        assert layers.marks(stack.upper) == []
        assert layers.view(stack.mount()) == want
        stack.umount()
        killed += 1
        if killed == 30:
            break
    assert killed == 30
    _assert_all_show(stack, mode, want)


@pytest.fixture
def small_disk(session_dir):
    """A file system of 64 MiB."""
    image, point = session_dir / "small.img", session_dir / "small"
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)
    point.rmdir()
    image.unlink()


@pytest.mark.needs_root("a loop device")
def test_a_full_disk_stops_it_and_loses_nothing(stack, veneer_bin, small_disk):
    for number in range(3):
        (stack.lower() / f"f{number}").write_bytes(blob(10 * MIB, seed=number))
    upper, work = small_disk / "upper", small_disk / "work"
    upper.mkdir()
    work.mkdir()
    m = stack.second_mount([stack.lower()], upper=upper, work=work)
    for number in range(3):
        write_at(m.mnt / f"f{number}", b"new", 5 * MIB)
    want = layers.view(m.mnt)
    assert m.stop() is None
    ballast = small_disk / "ballast"
    with open(ballast, "wb") as f:
        room = os.statvfs(small_disk)
        os.posix_fallocate(f.fileno(), 0, room.f_bavail * room.f_frsize - 15 * MIB)
    result = layers.flatten(veneer_bin, upper, stack.lowers)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and "no room left" in result.stderr, result.stderr
    assert m.start() and _timeless(m.mnt) == layers.without({"mtime"}, want)
    assert m.stop() is None
    ballast.unlink()
    assert layers.flatten(veneer_bin, upper, stack.lowers).returncode == 0
    assert layers.marks(upper) == []
    with layers.kernel_mount([upper, *stack.lowers], stack.base / "kernel") as mnt:
        assert layers.view(mnt) == want
