# SPDX-License-Identifier: Apache-2.0
"""Damage, full disks and missing things: an error where it belongs, never wrong bytes."""
import contextlib
import errno
import os
import resource
import signal
import subprocess

import pytest

from support import linux
from support.child import in_child
from support.content import BLOCK, CHUNK, KIB, MIB, blob
from support.expect import fails_with, names_in, opened, write_at
from support.server import Mount, MountFailed
from support.stack import on_small_disk

_MAP = ".wh..wh.veneer"


def assert_one_sentence(ran, *words):
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("veneer: ") and ran.stderr.count("\n") == 1, ran.stderr
    assert all(str(word) in ran.stderr for word in words), ran.stderr


class Partials:
    """Three partial files of an unmounted upper, with what each block was and is."""

    def __init__(self, stack):
        self.stack, self.old, self.new = stack, {}, {}
        for number in range(3):
            (stack.lower() / f"f{number}").write_bytes(blob(400_000, number))
            self.old[f"f{number}"] = blob(400_000, number)
        m = stack.mount()
        for number, (name, data) in enumerate(self.old.items()):
            changed = bytearray(data)
            for at in (0, 20, 50 + number):
                off = at * BLOCK
                changed[off:off + BLOCK] = blob(BLOCK, 100 + at)
                write_at(m / name, changed[off:off + BLOCK], off)
            self.new[name] = bytes(changed)
        stack.umount()
        self.map = stack.upper / _MAP
        if not self.map.exists():
            pytest.skip("this program writes no map file")

    def used(self):
        """Bytes of the map up to the last that is not zero (its tail is preallocated)."""
        return len(self.map.read_bytes().rstrip(b"\0"))

    def verify(self):
        """Each file reads as EIO or right."""
        try:
            m = self.stack.mount()
        except MountFailed as e:
            assert 0 < len(e.log.strip().splitlines()[-1]) < 500
            return "refused"
        outcome = []
        for name, new in self.new.items():
            try:
                got = (m / name).read_bytes()
            except OSError as e:
                assert e.errno == errno.EIO
                outcome.append("EIO")
                continue
            assert len(got) == len(new)
            for off in range(0, len(got), BLOCK):
                assert got[off:off + BLOCK] == new[off:off + BLOCK], f"{name}: block {off // BLOCK} is not the new one"
            outcome.append("right")
        self.stack.umount()
        return outcome


def test_any_flipped_byte_of_the_map_is_noticed_or_harmless(stack):
    partials = Partials(stack)
    good = partials.map.read_bytes()
    used = partials.used()
    positions = sorted({used * i // 60 for i in range(60)} | set(range(min(16, used))))
    outcomes = []
    for position in positions:
        bad = bytearray(good)
        bad[position] ^= 0x55
        partials.map.write_bytes(bad)
        outcomes.append(partials.verify())
    partials.map.write_bytes(good)
    assert partials.verify() == ["right"] * 3
    # its checksums say which byte, and what it was
    assert all(outcome == ["right"] * 3 for outcome in outcomes), outcomes


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9])
def test_shortened_map_never_gives_zeros(stack, part):
    partials = Partials(stack)
    os.truncate(partials.map, int(partials.used() * part))
    assert "EIO" in partials.verify()


def test_missing_map_makes_partial_files_unreadable_and_leaves_the_rest(stack):
    partials = Partials(stack)
    partials.map.unlink()
    (stack.upper / "whole").write_text("whole")
    m = stack.mount()
    for name in partials.new:
        with fails_with(errno.EIO):
            (m / name).read_bytes()
    assert (m / "whole").read_text() == "whole"
    (m / "new").write_text("new")
    for name in partials.new:
        (m / name).unlink()
    assert names_in(m) == ["new", "whole"]


@pytest.mark.parametrize("value", [b"", b"\xff" * 48, bytes(48), b"\x01" + bytes(47)])
def test_damaged_mark_is_an_error_on_that_file_only(stack, value):
    partials = Partials(stack)
    mark = os.getxattr(stack.upper / "f1", "user.veneer.partial")
    assert mark != value
    os.setxattr(stack.upper / "f1", "user.veneer.partial", value)
    m = stack.mount()
    with fails_with(errno.EIO):
        (m / "f1").read_bytes()
    assert (m / "f0").read_bytes() == partials.new["f0"]
    assert (m / "f2").read_bytes() == partials.new["f2"]


def test_mark_copied_to_another_file_gives_that_file_no_foreign_data(stack):
    partials = Partials(stack)
    mark = os.getxattr(stack.upper / "f1", "user.veneer.partial")
    (stack.upper / "forged").write_bytes(bytes(400_000))
    os.setxattr(stack.upper / "forged", "user.veneer.partial", mark)
    m = stack.mount()
    with fails_with(errno.EIO):
        (m / "forged").read_bytes()
    assert (m / "f0").read_bytes() == partials.new["f0"]


def test_mark_in_a_layer_without_a_map_names_nothing_outside(stack):
    """A mark that came out of an unpacked archive."""
    (stack.base / "secret").write_bytes(b"secret" * 1000)
    path = b"../secret"
    forged = bytes([1, 1]) + len(path).to_bytes(2, "little") + bytes(44) + path
    (stack.lower(0) / "f").write_bytes(bytes(6000))
    os.setxattr(stack.lower(0) / "f", "user.veneer.partial", forged)
    m = stack.mount()
    try:
        assert b"secret" not in (m / "f").read_bytes()
    except OSError as e:
        assert e.errno == errno.EIO


@pytest.mark.parametrize("change", ["size", "mtime", "gone"])
def test_lower_changed_under_a_partial_file_is_an_error(stack, change):
    partials = Partials(stack)
    victim = stack.lower() / "f1"
    stack.forget_lower(stack.lower())
    if change == "size":
        os.truncate(victim, 399_999)
    elif change == "mtime":
        os.utime(victim, (1, 1))
    else:
        victim.unlink()
    m = stack.mount()
    with fails_with(errno.EIO):
        (m / "f1").read_bytes()
    assert (m / "f0").read_bytes() == partials.new["f0"]
    assert stack.log.strip()


@pytest.fixture
def small_disk(stack):
    """Upper and work on a file system of 6 MiB."""
    with on_small_disk(stack) as disk:
        yield disk


def _fill_block_by_block(path, count):
    """Write own blocks until the disk is full; returns those that were acknowledged."""
    done = []
    with opened(path, os.O_RDWR) as fd:
        for i in range(count):
            try:
                assert os.pwrite(fd, bytes([1 + i % 255]) * BLOCK, i * 2 * BLOCK) == BLOCK
                os.fsync(fd)
            except OSError as e:
                assert e.errno in (errno.ENOSPC, errno.EDQUOT)
                return done
            done.append(i)
    raise AssertionError("the disk never filled up")


@pytest.mark.parametrize("how", ["a block of a synced log", "half a chunk"])
def test_full_disk_refuses_no_write_for_what_would_be_taken_with_it(stack, small_disk, how):
    old = blob(2 * MIB)
    (stack.lower() / "f").write_bytes(old)
    m = stack.mount()
    new = b"n" * (BLOCK if how.startswith("a block") else CHUNK // 2)
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"o" * CHUNK, 0)
        os.fsync(fd)
        with open(small_disk / "ballast", "wb", buffering=0) as f:
            with contextlib.suppress(OSError):
                while True:
                    f.write(bytes(BLOCK))
            f.truncate(f.tell() - len(new) - 10 * BLOCK)
        assert os.pwrite(fd, new, CHUNK) == len(new)
        os.fsync(fd)
    expected = b"o" * CHUNK + new + old[CHUNK + len(new):]
    assert (m / "f").read_bytes() == expected
    (small_disk / "ballast").unlink()
    stack.remount()
    assert (m / "f").read_bytes() == expected


def test_full_disk_loses_nothing_that_was_acknowledged(stack, small_disk):
    old = blob(32 * MIB)
    (stack.lower() / "f").write_bytes(old)
    m = stack.mount()
    done = _fill_block_by_block(m / "f", 4096)
    assert len(done) > 500
    want = bytearray(old)
    for i in done:
        want[i * 2 * BLOCK:(i * 2 + 1) * BLOCK] = bytes([1 + i % 255]) * BLOCK
    # the refused block may be old or whole new
    refused = len(done) * 2 * BLOCK
    for _ in range(2):
        got = (m / "f").read_bytes()
        assert got[:refused] == want[:refused]
        assert got[refused:refused + BLOCK] in (old[refused:refused + BLOCK],
                                                bytes([1 + len(done) % 255]) * BLOCK)
        assert got[refused + BLOCK:] == want[refused + BLOCK:]
        m = stack.remount()


def test_full_disk_recovers_when_room_is_made(stack, small_disk):
    old = blob(8 * MIB)
    (stack.lower() / "f").write_bytes(old)
    (stack.lower() / "g").write_bytes(blob(500_000))
    m = stack.mount()
    (m / "ballast").write_bytes(b"x" * (2 * MIB))
    _fill_block_by_block(m / "f", 4096)
    with pytest.raises(OSError):
        (m / "more").write_bytes(b"y" * (8 * MIB))
    assert (m / "g").read_bytes() == blob(500_000)
    (m / "ballast").unlink()
    (m / "more").unlink(missing_ok=True)
    write_at(m / "g", b"room again", 100_000)
    assert (m / "g").read_bytes()[99_999:100_010] == blob(500_000)[99_999:100_000] + b"room again"


def test_full_disk_refuses_names_cleanly(stack, small_disk):
    for i in range(20):
        (stack.lower() / f"f{i}").write_bytes(blob(100_000, i))
    m = stack.mount()
    with pytest.raises(OSError):
        (m / "fill").write_bytes(b"x" * (8 * MIB))
    for i in range(20):
        for action in (lambda p: p.chmod(0o600), lambda p: os.rename(p, m / f"r{i}")):
            try:
                action(m / f"f{i}")
            except OSError as e:
                assert e.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOENT)
    got = [m / name for name in names_in(m) if name != "fill"]
    assert len(got) == 20
    for path in got:
        assert path.read_bytes() == blob(100_000, int(path.name[1:]))


def test_upper_on_a_read_only_file_system(stack):
    (stack.lower() / "f").write_text("lower")
    for path in (stack.upper, stack.work):
        linux.mount(path, path, None, linux.MS_BIND)
        linux.mount("none", path, None, linux.MS_BIND | 32 | 1)
    try:
        m = stack.mount()
    except MountFailed as e:
        assert e.code == 1
        assert e.log.strip()
    else:
        assert (m / "f").read_text() == "lower"
        with fails_with(errno.EROFS):
            (m / "f").write_text("x")
        stack.umount()
    finally:
        for path in (stack.upper, stack.work):
            linux.umount(path, linux.MNT_DETACH)


def test_no_fuse_device_is_one_sentence_and_exit_1(stack):
    options = Mount(stack.program, [stack.lower()], stack.upper, stack.work, stack.mnt,
                    stack.log_path).option_string([])
    script = 'mount -t tmpfs none /dev && : >/dev/null && exec "$@"'
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", stack.program, "-o", options,
                          str(stack.mnt)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=30)
    assert_one_sentence(ran, stack.mnt)


@pytest.mark.needs_root("becomes another user")
def test_no_privileges_is_one_sentence_and_exit_1(stack):
    (stack.lower() / "f").write_text("f")
    os.chown(stack.mnt, 65534, 65534)
    script = ('mount -t tmpfs -o mode=0755 none /dev && : >/dev/null && chmod 666 /dev/null && : >/dev/fuse && '
              'chmod 600 /dev/fuse && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"')
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", stack.program, "-o",
                          f"lowerdir={stack.lower()},standalone", str(stack.mnt)], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=30)
    assert_one_sentence(ran, stack.mnt, "Permission denied")
    assert not os.path.ismount(stack.mnt)


def test_odd_objects_with_our_names_in_a_layer(stack):
    (stack.lower() / _MAP).mkdir()
    (stack.lower() / "f").write_text("fine")
    (stack.lower() / ".wh.").write_text("")
    (stack.lower() / ".wh..").write_text("")
    m = stack.mount()
    assert (m / "f").read_text() == "fine"
    assert names_in(m) == ["f"]
    (m / "f").write_text("x" * 20_000)
    assert names_in(stack.remount()) == ["f"]


def test_map_that_is_a_symlink_or_fifo_is_not_followed(stack):
    (stack.base / "outside").write_bytes(b"untouched")
    (stack.upper / _MAP).symlink_to(stack.base / "outside")
    os.mkfifo(stack.lower() / _MAP)
    (stack.lower() / "f").write_bytes(blob(300_000))
    try:
        m = stack.mount()
        try:
            write_at(m / "f", b"x", 100_000)
        except OSError as e:
            assert e.errno in (errno.EIO, errno.ELOOP, errno.EROFS)
    except MountFailed as e:
        assert e.log.strip()
    assert (stack.base / "outside").read_bytes() == b"untouched"


def test_lower_that_is_not_a_directory_is_refused(stack):
    (stack.base / "file").write_text("")
    for path in (stack.base / "file", stack.base / "missing"):
        stack.lowers = [path]
        with pytest.raises(MountFailed) as caught:
            Mount(stack.program, [path], stack.upper, stack.work, stack.mnt, stack.log_path).start()
        assert caught.value.code == 1
        assert caught.value.log.strip()
    stack.lowers = []


def test_write_that_runs_into_the_file_size_limit(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400 * KIB, 400 * KIB))
        with fails_with(errno.EFBIG):
            write_at(m / "f", b"x" * BLOCK, 800 * KIB)
        with fails_with(errno.EFBIG):
            os.truncate(m / "f", MIB)
    in_child(limited)
    assert (m / "f").read_bytes() == blob(300_000)
