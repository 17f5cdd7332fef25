# SPDX-License-Identifier: Apache-2.0
"""Promotion: partial files that are mostly own are completed, and become ordinary ones, while
programs use them; and `veneer flatten --in-place`, which completes all of a mount."""
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from support import layers, linux
from support.content import BLOCK, CHUNK, KIB, MIB, allocated, blob
from support.counters import Gained, counters
from support.expect import names_in, opened, read_at, write_at
from support.places import Place
from support.server import shares_pages, wait_until

_ATTR = "user.veneer.partial"
_LIMIT_S = 100
_SIZE = 4 * CHUNK + 5000


def is_partial(path):
    return _ATTR in os.listxattr(path)


def wait_for_plain(*paths):
    for path in paths:
        assert wait_until(lambda p=path: not is_partial(p), _LIMIT_S, 0.02), f"{path} is partial"


def change_most(path, data, seed=1, mode=None):
    """Write three of four blocks of every chunk, and all of one that is cut short, in any order, when the file has been
    opened and has got the mode; data is changed alike."""
    rng = random.Random(seed)
    tail = len(data) // CHUNK * CHUNK // BLOCK
    blocks = [k for k in range((len(data) + BLOCK - 1) // BLOCK) if k % 4 or k >= tail]
    rng.shuffle(blocks)
    with opened(path, os.O_RDWR) as fd:
        if mode is not None:
            os.chmod(path, mode)
        for k in blocks:
            piece = rng.randbytes(min(BLOCK, len(data) - k * BLOCK))
            os.pwrite(fd, piece, k * BLOCK)
            data[k * BLOCK:k * BLOCK + len(piece)] = piece


def identity(path):
    st = os.stat(path)
    return (st.st_ino, st.st_mode, st.st_size, st.st_nlink, st.st_uid, st.st_gid, st.st_mtime_ns,
            sorted(os.listxattr(path)))


def lower_file(stack, name="f", size=_SIZE, seed=1):
    data = bytearray(blob(size, seed))
    path = stack.lower() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


@pytest.fixture
def clean(stack, veneer_bin):
    """Unmounts the stack's mount and has its upper checked."""
    def run():
        stack.umount()
        result = layers.check(veneer_bin, stack.upper, stack.lowers)
        assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return run


# ---- files that are written again and again ----

_OFTEN = 4096  # PROMOTE_POLICY_WRITES


def write_often(fd, data, seed, n=_OFTEN):
    """Write into three of four blocks again and again; data is changed alike."""
    rng = random.Random(seed)
    blocks = [k for k in range(len(data) // BLOCK) if k % 4]
    for i in range(n):
        k = blocks[i] if i < len(blocks) else rng.choice(blocks)
        piece = rng.randbytes(8) * (BLOCK // 8)
        os.pwrite(fd, piece, k * BLOCK)
        data[k * BLOCK:(k + 1) * BLOCK] = piece


def is_passed_through(stack, path):
    with Gained(stack.server) as g:
        with opened(path, os.O_RDWR):
            pass
    return g["PASSTHROUGH OPENS"] == 1


@pytest.mark.writethrough("writes come when the kernel sends them")
def test_a_file_that_is_written_again_and_again_is_completed_meanwhile(stack, clean, mode):
    data, other = lower_file(stack, "often", 4 * CHUNK), lower_file(stack, "once")
    m = stack.mount()
    change_most(m / "once", other)
    with opened(m / "often", os.O_RDWR) as fd:
        write_often(fd, data, 1)
        if mode != "root" or shares_pages():
            # No file is passed through here, so it would gain nothing.
            write_often(fd, data, 2)
            assert is_partial(stack.upper / "often")
            return
        end = time.monotonic() + _LIMIT_S
        while is_partial(stack.upper / "often") and time.monotonic() < end:
            write_often(fd, data, 2, 64)
        assert not is_partial(stack.upper / "often")
        write_often(fd, data, 3, 64)
        assert read_at(m / "often", len(data), 0) == data
    assert is_passed_through(stack, m / "often")
    assert is_partial(stack.upper / "once")
    assert (m / "often").read_bytes() == data and (m / "once").read_bytes() == other
    clean()


@pytest.mark.writethrough("writes come when the kernel sends them")
def test_no_more_is_brought_in_for_it_than_was_allowed(stack, clean, mode):
    if mode != "root" or shares_pages():
        pytest.skip("only mounts that pass files through complete them so")
    data = lower_file(stack)
    m = stack.mount("promote_max=256K")
    with opened(m / "f", os.O_RDWR) as fd, Gained(stack.server) as g:
        write_often(fd, data, 1)
        assert wait_until(lambda: counters(stack.server)["PROMOTED BYTES"] >= 256 * KIB, _LIMIT_S, 0.1)
        write_often(fd, data, 2)
        write_often(fd, data, 3)
        # what was wanted after those would be brought in while these are written
        write_often(fd, data, 4)
    assert 256 * KIB <= g["PROMOTED BYTES"] < 256 * KIB + CHUNK
    assert is_partial(stack.upper / "f")
    assert (m / "f").read_bytes() == data
    clean()


# ---- in the background ----

def test_a_mostly_own_file_becomes_an_ordinary_one(stack, clean):
    data = lower_file(stack)
    m = stack.mount("promote=eager")
    number = os.stat(m / "f").st_ino
    change_most(m / "f", data)
    before = identity(m / "f")
    wait_for_plain(stack.upper / "f")
    assert identity(m / "f") == before
    assert before[0] == number
    assert (m / "f").read_bytes() == data
    assert (stack.upper / "f").read_bytes() == data
    clean()
    assert identity(stack.mount() / "f") == before
    assert (m / "f").read_bytes() == data


@pytest.mark.parametrize("mode", [0o444, 0o000, 0o200])
def test_mode_that_refuses_the_owner_is_kept(stack, clean, mode):
    data = lower_file(stack)
    m = stack.mount("promote=eager")
    change_most(m / "f", data, mode=mode)
    before = os.stat(m / "f")
    wait_for_plain(stack.upper / "f")
    after = os.stat(m / "f")
    assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (before.st_mode, before.st_mtime_ns, before.st_ino)
    os.chmod(m / "f", 0o600)
    assert (m / "f").read_bytes() == data
    assert (stack.upper / "f").read_bytes() == data
    clean()


def test_the_map_shrinks(stack):
    names = [f"f{k}" for k in range(40)]
    contents = [lower_file(stack, name, CHUNK, k) for k, name in enumerate(names)]
    m = stack.mount("promote=eager")
    for name, data in zip(names, contents):
        change_most(m / name, data)
    wait_for_plain(*(stack.upper / name for name in names))
    store = stack.upper / ".wh..wh.veneer"
    assert wait_until(lambda: os.stat(store).st_size <= 2 * BLOCK, _LIMIT_S, 0.05)
    for name, data in zip(names, contents):
        assert (m / name).read_bytes() == data


def test_a_file_of_which_little_is_own_goes_on_sharing(stack, clean):
    little, most = lower_file(stack, "little"), lower_file(stack, "most")
    m = stack.mount("promote=eager")
    for k in range(0, 4 * 128, 4):
        write_at(m / "little", b"x", k * BLOCK)
        little[k * BLOCK] = ord("x")
    change_most(m / "most", most)
    wait_for_plain(stack.upper / "most")
    assert is_partial(stack.upper / "little")
    assert allocated(stack.upper / "little") < _SIZE / 2
    assert (m / "little").read_bytes() == little
    clean()


def test_one_chunk_is_completed_where_the_others_are_not(stack):
    data = lower_file(stack)
    m = stack.mount("promote=eager")
    write_at(m / "f", b"x", 3 * CHUNK)
    data[3 * CHUNK] = ord("x")
    for k in range(128, 200):
        write_at(m / "f", b"y" * BLOCK, k * BLOCK)
        data[k * BLOCK:(k + 1) * BLOCK] = b"y" * BLOCK
    assert wait_until(lambda: read_at(stack.upper / "f", CHUNK, CHUNK) == data[CHUNK:2 * CHUNK],
                      _LIMIT_S, 0.02)
    assert is_partial(stack.upper / "f")
    assert (m / "f").read_bytes() == data


def cloned_bytes(stack):
    """Of the process that serves, since it began."""
    name = "# PROMOTED CLONED:"

    def tell():
        os.kill(stack.pid, signal.SIGUSR1)
        return wait_until(lambda: name in stack.log[at:], 1)
    at = len(stack.log)
    assert wait_until(tell, _LIMIT_S)
    said = stack.log[at:]
    assert wait_until(lambda: "\n" in stack.log[at:].partition(name)[2], _LIMIT_S), said
    return int(stack.log[at:].partition(name)[2].partition("\n")[0])


@pytest.mark.needs_root("makes a file system")
def test_what_is_missing_is_cloned_where_the_file_system_can(reflink_stack):
    stack = reflink_stack
    data = lower_file(stack)
    m = stack.mount("promote=eager")
    before = cloned_bytes(stack)
    change_most(m / "f", data)
    wait_for_plain(stack.upper / "f")
    # Every fourth block but of the last, short chunk; more, where a chunk was completed before all of its blocks
    # were written. A copy would have cloned none.
    assert cloned_bytes(stack) - before >= 4 * CHUNK // 4
    assert (m / "f").read_bytes() == data
    stack.umount()
    assert (stack.upper / "f").read_bytes() == data


def test_small_files_and_emptied_ones_leave_the_map(stack, clean):
    lower_file(stack, "small", 5000)
    lower_file(stack, "emptied", 200 * KIB)
    lower_file(stack, "cut", 200 * KIB)
    m = stack.mount("promote=eager")
    want = bytearray(blob(5000, 1))
    want[7:10] = b"new"
    write_at(m / "small", b"new", 7)
    os.truncate(m / "emptied", 0)
    os.truncate(m / "cut", 3)
    write_at(m / "cut", b"all", 0)
    os.truncate(m / "cut", 70 * KIB)
    numbers = [os.stat(m / name).st_ino for name in ("small", "emptied", "cut")]
    wait_for_plain(*(stack.upper / name for name in ("small", "emptied", "cut")))
    assert (m / "small").read_bytes() == want
    assert (m / "emptied").read_bytes() == b""
    assert (m / "cut").read_bytes() == b"all".ljust(70 * KIB, b"\0")
    clean()
    m = stack.mount()
    assert [os.stat(m / name).st_ino for name in ("small", "emptied", "cut")] == numbers
    assert (m / "small").read_bytes() == want


def test_files_of_earlier_mounts_are_found(stack, clean):
    data = lower_file(stack, "a/b/c/f")
    m = stack.mount()
    change_most(m / "a/b/c/f", data)
    os.rename(m / "a/b/c/f", m / "a/moved")
    stack.umount()
    assert is_partial(stack.upper / "a/moved")
    m = stack.mount("promote=eager")
    wait_for_plain(stack.upper / "a/moved")
    assert (m / "a/moved").read_bytes() == data
    clean()


def test_nothing_is_promoted_unless_asked_for(stack):
    data = lower_file(stack)
    other = lower_file(stack, "other")
    m = stack.mount()
    change_most(m / "f", data)
    stack.umount()
    assert is_partial(stack.upper / "f")
    # a mount that does not may be beside one that does
    m = stack.mount("promote=eager")
    change_most(m / "other", other)
    wait_for_plain(stack.upper / "f", stack.upper / "other")
    assert (m / "f").read_bytes() == data


def is_pressed():
    """Would promote=auto wait for the machine (promote_policy.h)?"""
    for resource, limit in (("memory", 1), ("io", 10)):
        try:
            with open(f"/proc/pressure/{resource}", encoding="ascii") as f:
                if float(f.read().split("avg10=")[1].split()[0]) > limit:
                    return True
        except OSError:
            continue
    return False


@pytest.mark.slow
def test_auto_waits_until_nobody_asks_for_anything(stack, clean):
    data = lower_file(stack)
    m = stack.mount("promote=auto")
    change_most(m / "f", data)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        os.mkdir(m / "d")
        os.rmdir(m / "d")
    assert is_partial(stack.upper / "f")
    assert (m / "f").read_bytes() == data
    if not wait_until(lambda: not is_partial(stack.upper / "f"), _LIMIT_S, 0.1):
        assert is_pressed(), "idle, and nothing is done"
        pytest.skip("the machine is under pressure all the time")
    assert (stack.upper / "f").read_bytes() == data
    clean()


def test_hard_links_stay_one_file(stack, clean):
    data = lower_file(stack)
    os.link(stack.lower() / "f", stack.lower() / "g")
    m = stack.mount("promote=eager")
    change_most(m / "f", data)
    os.link(m / "f", m / "h")
    wait_for_plain(stack.upper / "f")
    before = os.stat(m / "f")
    assert before.st_nlink == 3
    write_at(m / "h", b"again", 100)
    data[100:105] = b"again"
    clean()
    m = stack.mount()
    for name in "fgh":
        assert (os.stat(m / name).st_ino, os.stat(m / name).st_nlink) == (before.st_ino, 3)
        assert (m / name).read_bytes() == data


def test_times_do_not_change_for_a_moment(stack):
    """With timeout=0 every stat asks the server."""
    data = lower_file(stack, size=16 * CHUNK)
    m = stack.mount("promote=eager,timeout=0")
    # only so much that no chunk is worth it yet
    with opened(m / "f", os.O_RDWR) as fd:
        for k in range(16 * 128):
            if k % 128 < 64:
                os.pwrite(fd, b"z" * BLOCK, k * BLOCK)
                data[k * BLOCK:(k + 1) * BLOCK] = b"z" * BLOCK
        for k in range(16):
            os.pwrite(fd, b"z" * BLOCK, (k * 128 + 64) * BLOCK)
            data[(k * 128 + 64) * BLOCK:(k * 128 + 65) * BLOCK] = b"z" * BLOCK
    os.utime(m / "f", ns=(10**18, 10**18 + 7))
    seen = set()

    def is_done():
        seen.add(os.stat(m / "f").st_mtime_ns)
        return not is_partial(stack.upper / "f")
    assert wait_until(is_done, _LIMIT_S, 0)
    seen.add(os.stat(m / "f").st_mtime_ns)
    assert seen == {10**18 + 7}
    assert (m / "f").read_bytes() == data


# ---- while it is used ----

def _hammer(path, data, seed, rounds, errors):
    """Writes, reads and times of one file that is promoted meanwhile; it is this thread's own."""
    rng = random.Random(seed)
    try:
        for number in range(rounds):
            with opened(path, os.O_RDWR) as fd:
                for _ in range(60):
                    off = rng.randrange(len(data))
                    size = rng.choice((1, 100, BLOCK, 3 * BLOCK))
                    piece = rng.randbytes(min(size, len(data) - off))
                    os.pwrite(fd, piece, off)
                    data[off:off + len(piece)] = piece
                    off = rng.randrange(len(data))
                    assert os.pread(fd, 20000, off) == data[off:off + 20000]
            os.utime(path, ns=(number, 10**15 + number))
            assert os.stat(path).st_mtime_ns == 10**15 + number
            with open(path, "rb") as f:
                assert f.read() == data
    except BaseException as e:  # pylint: disable=broad-except
        errors.append(e)


def _hammer_all(m, contents, rounds, meanwhile=None):
    errors = []
    threads = [threading.Thread(target=_hammer, args=(m / name, data, k, rounds, errors))
               for k, (name, data) in enumerate(contents.items())]
    for thread in threads:
        thread.start()
    if meanwhile:
        meanwhile(threads)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("io", ["auto", "cached", "direct"])
def test_who_writes_meanwhile_sees_what_he_wrote(stack, clean, io):
    contents = {f"f{k}": lower_file(stack, f"f{k}", 3 * CHUNK + 77 * k, k) for k in range(3)}
    m = stack.mount(f"promote=eager,io={io}")
    _hammer_all(m, contents, 12)
    for name, data in contents.items():
        change_most(m / name, data)
    wait_for_plain(*(stack.upper / name for name in contents))
    for name, data in contents.items():
        assert (m / name).read_bytes() == data
    clean()
    m = stack.mount()
    for name, data in contents.items():
        assert (m / name).read_bytes() == data


def _check_after_a_kill(veneer_bin, upper, lowers):
    """A server that was killed between a mark's removal and that of its entry leaves the entry."""
    found = layers.check(veneer_bin, upper, lowers, "--repair", "--json")
    assert {finding["code"] for finding in json.loads(found.stdout)["findings"]} <= {"entry-unused"}, found
    result = layers.check(veneer_bin, upper, lowers)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


def test_a_server_that_is_killed_meanwhile(stack, shared, veneer_bin):
    contents = {f"f{k}": lower_file(stack, f"f{k}", 3 * CHUNK + 77 * k, k) for k in range(3)}
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared, "promote=eager")
    numbers = {name: os.stat(m / name).st_ino for name in contents}

    def kill_some(threads):
        while any(thread.is_alive() for thread in threads):
            shared.kill_server()
            threads[0].join(0.3)
    _hammer_all(m, contents, 8, kill_some)
    for name, data in contents.items():
        change_most(m / name, data)
        times = os.stat(m / name).st_mtime_ns
        shared.kill_server()
        assert os.stat(m / name).st_mtime_ns == times
    wait_for_plain(*(place.upper / name for name in contents))
    for name, data in contents.items():
        assert (m / name).read_bytes() == data
        assert os.stat(m / name).st_ino == numbers[name]
    linux.umount(str(place.mnt))
    assert wait_until(lambda: shared.count() == 0, _LIMIT_S)
    _check_after_a_kill(veneer_bin, place.upper, stack.lowers)


def test_a_mount_that_reads_the_same_upper(stack):
    """The other mount has looked the file up, and has it open, before the mark goes."""
    data = lower_file(stack)
    m = stack.mount()
    change_most(m / "f", data)
    stack.umount()
    stack.mount()
    second = stack.second_mount([stack.upper, *stack.lowers])
    number = os.stat(second.mnt / "f").st_ino
    with opened(second.mnt / "f") as fd:
        assert os.pread(fd, _SIZE, 0) == data
        stack.remount("promote=eager")
        # its own pages are not what is asked here
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        wait_for_plain(stack.upper / "f")
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, _SIZE, 0) == data
    assert (second.mnt / "f").read_bytes() == data
    assert os.stat(second.mnt / "f").st_ino == number
    stack.forget_lower(stack.upper)


# ---- all of a mount, asked for ----

@pytest.fixture
def in_place(stack, shared):
    """`veneer flatten --in-place` of a path, by the server of the test."""
    def run(*arguments):
        return subprocess.run([stack.program, "flatten", "--in-place", *map(str, arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=_LIMIT_S, env={**os.environ, **shared.environment})
    return run


def served(stack, shared, *options):
    stack.remember_lowers()
    place = Place(stack, "p")
    place.mount(stack, shared, *options)
    return place


def no_marks(place):
    return not any(is_partial(os.path.join(directory, name))
                   for directory, _, names in os.walk(place.upper) for name in names)


def test_in_place_under_writers(stack, shared, in_place, veneer_bin):
    contents = {f"f{k}": lower_file(stack, f"f{k}", 4 * CHUNK + 77 * k, k) for k in range(3)}
    quiet = {name: lower_file(stack, name, 3 * CHUNK, 9) for name in ("d/one", "d/two")}
    (stack.lower() / "d/holes").write_bytes(b"")
    os.truncate(stack.lower() / "d/holes", 20 * MIB)
    place = served(stack, shared)
    m = place.mnt
    for name, data in quiet.items():
        write_at(m / name, b"one block", 5)
        data[5:14] = b"one block"
    write_at(m / "d/holes", b"x", 10 * MIB)
    os.link(m / "d/one", m / "d/link")
    os.rename(m / "d/two", m / "two")
    for name in contents:
        write_at(m / name, contents[name][:1], 0)
    before = {name: identity(m / name) for name in ("d/one", "d/link", "two", "d/holes")}
    numbers = {name: os.stat(m / name).st_ino for name in contents}

    def flatten(threads):
        assert any(thread.is_alive() for thread in threads)
        result = in_place(m)
        assert (result.returncode, result.stderr) == (0, "")
        assert "6 files made whole" in result.stdout
    _hammer_all(m, contents, 10, flatten)
    assert no_marks(place)
    assert {name: identity(m / name) for name in before} == before
    assert {name: os.stat(m / name).st_ino for name in contents} == numbers
    for name, data in contents.items():
        assert (place.upper / name).read_bytes() == data
    assert (place.upper / "d/one").read_bytes() == quiet["d/one"]
    assert (place.upper / "two").read_bytes() == (m / "two").read_bytes() == quiet["d/two"]
    assert allocated(place.upper / "d/holes") < MIB
    # a second time there is nothing to do
    assert "0 files made whole" in in_place(place.upper).stdout
    linux.umount(str(m))
    assert wait_until(lambda: shared.count() == 0, _LIMIT_S)
    result = layers.check(veneer_bin, place.upper, stack.lowers)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    place.mount(stack, shared)
    assert {name: identity(m / name) for name in before} == before
    assert {name: os.stat(m / name).st_ino for name in contents} == numbers


@pytest.mark.needs_root("capabilities of files")
def test_in_place_keeps_capabilities_and_set_id_bits(stack, shared, in_place):
    data = lower_file(stack)
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    place = served(stack, shared)
    m = place.mnt
    write_at(m / "f", b"x", 0)
    data[0] = ord("x")
    os.chmod(m / "f", 0o6751)
    os.setxattr(m / "f", "security.capability", capability)
    assert in_place(m).returncode == 0
    assert no_marks(place)
    for path in (place.upper / "f", m / "f"):
        assert os.stat(path).st_mode & 0o7777 == 0o6751
    assert os.getxattr(place.upper / "f", "security.capability") == capability
    assert (m / "f").read_bytes() == data


def test_in_place_where_the_server_is_killed_meanwhile(stack, shared, in_place, veneer_bin):
    """The command says so; what the mount shows is right, and it can be run again."""
    data = {name: lower_file(stack, name, 16 * MIB, k) for k, name in enumerate("abc")}
    place = served(stack, shared)
    for name, content in data.items():
        write_at(place.mnt / name, b"x", 12345)
        content[12345] = ord("x")
    results = []
    thread = threading.Thread(target=lambda: results.append(in_place(place.mnt)))
    thread.start()
    shared.kill_server()
    thread.join()
    assert results[0].returncode in (0, 1), results[0]
    for name, content in data.items():
        assert (place.mnt / name).read_bytes() == content
    result = in_place(place.mnt)
    assert (result.returncode, result.stderr) == (0, "")
    assert no_marks(place)
    for name, content in data.items():
        assert (place.upper / name).read_bytes() == content
    linux.umount(str(place.mnt))
    assert wait_until(lambda: shared.count() == 0, _LIMIT_S)
    _check_after_a_kill(veneer_bin, place.upper, stack.lowers)


def test_in_place_of_what_is_not_mounted(stack, shared, in_place):
    data = lower_file(stack)
    place = served(stack, shared)
    write_at(place.mnt / "f", b"x", 12345)
    data[12345] = ord("x")
    linux.umount(str(place.mnt))
    assert wait_until(lambda: shared.count() == 0, _LIMIT_S)
    result = in_place(place.upper)
    assert result.returncode == 1
    assert "needs -o" in result.stderr
    assert is_partial(place.upper / "f")
    # with its lower layers it is what flatten without it is
    assert in_place("-o", place.options()).returncode == 0
    assert (place.upper / "f").read_bytes() == data
    assert names_in(place.upper) == ["f"]


def test_in_place_by_a_name_of_the_upper(stack, shared, in_place):
    data = lower_file(stack)
    place = served(stack, shared)
    write_at(place.mnt / "f", b"x", 12345)
    data[12345] = ord("x")
    result = in_place("-o", place.options())
    assert (result.returncode, result.stderr) == (0, "")
    assert (place.upper / "f").read_bytes() == (place.mnt / "f").read_bytes() == data
    for wrong in (stack.lower(), stack.base / "nowhere", stack.lower() / "f"):
        assert in_place(wrong).returncode == 1
    assert in_place().returncode == 2
