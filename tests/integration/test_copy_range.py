# SPDX-License-Identifier: Apache-2.0
"""copy_file_range between the files of a mount, and the clone ioctls, which FUSE has none of."""
import errno
import os
import stat
import subprocess

import pytest

from support import linux
from support.child import in_child
from support.content import BLOCK, KIB, MIB, blob
from support.expect import fails_with, opened, write_at
from support.syscount import counted

_ORIGINS = ["lower", "partial", "upper", "stacked"]
_SIZE = 900_001


def _make(stack, names, size=_SIZE):
    """Mounts files of the kind each name begins with; returns the mount and what each holds."""
    want = {}
    for seed, name in enumerate(names):
        want[name] = bytearray(blob(size, seed))
        if not name.startswith("upper"):
            (stack.lower() / name).write_bytes(want[name])
    stacked = [name for name in names if name.startswith("stacked")]
    if stacked:
        m = stack.mount()
        for name in stacked:
            write_at(m / name, b"first" * 8000, 70_000)
            want[name][70_000:110_000] = b"first" * 8000
        stack.freeze()
    m = stack.mount()
    for name in names:
        if name.startswith("upper"):
            (m / name).write_bytes(want[name])
        elif name.startswith(("partial", "stacked")):
            write_at(m / name, b"own" * 5000, 300_000)
            want[name][300_000:315_000] = b"own" * 5000
    return m, want


def _copy(source, target, length, off_from, off_to):
    """As programs do it: until there is no more. The bytes copied."""
    done = 0
    with opened(source) as a, opened(target, os.O_WRONLY | os.O_CREAT) as b:
        while done < length:
            count = os.copy_file_range(a, b, length - done, off_from + done, off_to + done)
            if count == 0:
                break
            done += count
    return done


def _paste(content, data, off):
    content += bytes(max(0, off - len(content)))
    content[off:off + len(data)] = data


def _check(stack, want):
    m = stack.mnt
    for _ in range(2):
        for name, data in want.items():
            assert (m / name).stat().st_size == len(data), name
            assert (m / name).read_bytes() == data, name
        m = stack.remount()
    stack.freeze()
    m = stack.mount()
    for name, data in want.items():
        assert (m / name).read_bytes() == data, name


@pytest.mark.parametrize("source", _ORIGINS)
@pytest.mark.parametrize("target", _ORIGINS + ["new", "emptied"])
def test_between_files_of_every_kind(stack, source, target):
    names = [source + "-from"] + ([] if target == "new" else
                                  ["partial-e" if target == "emptied" else target + "-to"])
    m, want = _make(stack, names)
    a, b = names[0], names[1] if len(names) > 1 else "new"
    if target == "emptied":
        os.truncate(m / b, 0)
        want[b] = bytearray()
    want.setdefault(b, bytearray())
    ranges = [(0, 0, _SIZE)] if target in ("new", "emptied") else []
    ranges += [(0, 0, BLOCK), (100, 5, 9000), (8192, 400_001, 300_000), (65536, 131072, 262144),
               (_SIZE - 5000, 600_000, 5000), (4096, 899_000, 50_000), (0, 1_200_000, 70_000)]
    for off_from, off_to, length in ranges:
        assert _copy(m / a, m / b, length, off_from, off_to) == length
        _paste(want[b], want[a][off_from:off_from + length], off_to)
        assert (m / b).read_bytes() == want[b], (off_from, off_to, length)
    _check(stack, want)


@pytest.mark.parametrize("origin", _ORIGINS)
def test_within_one_file(stack, origin):
    m, want = _make(stack, [origin])
    path, data = m / origin, want[origin]
    for off_from, off_to, length in [(0, 450_000, 300_000), (300_001, 10, 70_000),
                                     (_SIZE - 100, _SIZE, 100), (0, 2 * MIB, 100_000)]:
        part = bytes(data[off_from:off_from + length])
        assert _copy(path, path, length, off_from, off_to) == length
        _paste(data, part, off_to)
        assert path.read_bytes() == data
    with opened(path, os.O_RDWR) as fd, fails_with(errno.EINVAL):
        os.copy_file_range(fd, fd, 10_000, 0, 5_000)
    _check(stack, want)


def test_at_and_past_the_end_nothing_is_copied(stack):
    m, want = _make(stack, ["lower", "upper"])
    for off in (_SIZE, 2 * _SIZE):
        assert _copy(m / "lower", m / "upper", 1000, off, 0) == 0
    assert _copy(m / "lower", m / "upper", 1000, _SIZE - 10, 0) == 10
    want["upper"][:10] = want["lower"][-10:]
    _check(stack, want)


def test_what_was_cut_off_does_not_come_back(stack):
    m, want = _make(stack, ["lower", "partial"])
    os.truncate(m / "partial", 200_000)
    assert _copy(m / "lower", m / "partial", 50_000, 0, 700_000) == 50_000
    want["partial"] = want["partial"][:200_000] + bytes(500_000) + want["lower"][:50_000]
    _check(stack, want)


def test_pages_written_by_mapping_are_copied(stack):
    import mmap
    m, want = _make(stack, ["lower", "upper"])

    def change():
        with opened(m / "lower", os.O_RDWR) as a, opened(m / "upper", os.O_RDWR) as b:
            with mmap.mmap(a, 0) as one, mmap.mmap(b, 0) as two:
                one[10_000:10_006] = b"stored"
                two[500_000:500_005] = b"other"
                assert two[20_000:20_001] != b""
                assert os.copy_file_range(a, b, 30_000, 0, 15_000) == 30_000
                assert two[25_000:25_006] == b"stored"
                assert two[500_000:500_005] == b"other"
    in_child(change)
    want["lower"][10_000:10_006] = b"stored"
    want["upper"][500_000:500_005] = b"other"
    want["upper"][15_000:45_000] = want["lower"][:30_000]
    _check(stack, want)


def test_copying_tells_what_a_directory_tells(stack, plain):
    m, want = _make(stack, ["lower", "upper"], 20_000)
    for name, data in want.items():
        (plain / name).write_bytes(data)
    seen = []
    for root in (m, plain):
        outcome = []
        with opened(root / "lower") as a, opened(root / "upper", os.O_RDWR) as b, \
                opened(root / "upper", os.O_WRONLY | os.O_APPEND) as appending, \
                opened(root) as directory:
            for source, target in [(a, a), (b, appending), (directory, b), (a, directory)]:
                try:
                    outcome.append(os.copy_file_range(source, target, 100, 0, 0))
                except OSError as e:
                    outcome.append(errno.errorcode[e.errno])
            outcome.append(os.copy_file_range(a, b, 100))
            outcome.append((os.lseek(a, 0, os.SEEK_CUR), os.lseek(b, 0, os.SEEK_CUR)))
        seen.append(outcome)
    assert seen[0] == seen[1]


def test_a_copy_changes_times_and_takes_set_id_bits_of_others(stack):
    (stack.lower() / "f").write_bytes(blob(300_000))
    (stack.lower() / "t").write_bytes(blob(300_000))
    (stack.lower() / "t").chmod(0o6777)
    os.utime(stack.lower() / "t", (10**9, 10**9))
    m = stack.mount()
    m.chmod(0o755)

    def copy():
        assert _copy(m / "f", m / "t", 100_000, 0, 0) == 100_000
    in_child(copy, uid=1000, gid=1000)
    st = (m / "t").stat()
    assert stat.S_IMODE(st.st_mode) == 0o777
    assert st.st_mtime > 1_700_000_000


def test_a_full_upper_is_told_and_nothing_is_shown_that_was_not_written(stack):
    limit = 10 * MIB
    m, want = _make(stack, ["lower", "upper"])

    def copy():
        import resource
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with fails_with(errno.EFBIG):
            _copy(m / "lower", m / "upper", 5000, 0, limit)
        with opened(m / "lower") as a, opened(m / "upper", os.O_WRONLY) as b:
            assert os.copy_file_range(a, b, 5000, 0, limit - 100) == 100
    in_child(copy)
    _paste(want["upper"], want["lower"][:100], limit - 100)
    _check(stack, want)


def test_the_server_copies_without_the_data_passing_through_the_caller(stack):
    m, want = _make(stack, ["upper"], 8 * MIB)
    (m / "warm-up").write_bytes(b"")
    _copy(m / "upper", m / "warm-up", 10, 0, 0)  # asks once for a newer form of the request
    calls = counted(stack.pid, lambda: _copy(m / "upper", m / "copy", 8 * MIB, 0, 0),
                    stack.base / "calls")
    assert calls.get("copy_file_range", 0) >= 1
    assert calls.get("pwrite64", 0) + calls.get("pread64", 0) < 8, calls
    assert (m / "copy").read_bytes() == want["upper"]


def test_cloning_is_not_offered_and_cp_copies_all_the_same(stack):
    """FUSE knows no clones: no request arrives, whatever the file system below can."""
    m, want = _make(stack, ["lower", "partial"])
    for name in want:
        with opened(m / name) as a, opened(m / "c", os.O_RDWR | os.O_CREAT) as b:
            with fails_with(errno.EOPNOTSUPP):
                linux.clone(b, a)
            with fails_with(errno.EOPNOTSUPP):
                linux.clone_range(b, 0, a, 0, 65536)
        assert subprocess.run(["cp", "--reflink=always", m / name, m / "r"],
                              stderr=subprocess.DEVNULL).returncode != 0
        subprocess.run(["cp", "--reflink=auto", m / name, m / "r"], check=True)
        assert (m / "r").read_bytes() == want[name]


@pytest.mark.needs_root("makes a file system")
@pytest.mark.parametrize("origin", ["lower", "partial"])
def test_extents_are_shared_where_the_file_system_can(reflink_stack, origin):
    stack, size = reflink_stack, 64 * MIB
    m, want = _make(stack, [origin], size)

    def free():
        linux.syncfs(stack.upper)
        st = os.statvfs(stack.upper)
        return st.f_bfree * st.f_frsize
    before = free()
    assert _copy(m / origin, m / "copy", size, 0, 0) == size
    assert before - free() < 8 * MIB
    assert (m / "copy").read_bytes() == want[origin]
    write_at(m / "copy", b"apart", 300_000)
    want["copy"] = bytearray(want[origin])
    want["copy"][300_000:300_005] = b"apart"
    # over the emptied copy of a lower file, too
    os.truncate(m / origin, 0)
    assert _copy(m / "copy", m / origin, size, 0, 0) == size
    want[origin] = bytearray(want["copy"])
    assert before - free() < 8 * MIB
    for _ in range(2):
        for name, data in want.items():
            assert (m / name).read_bytes() == data
        m = stack.remount()


def test_sparse_source_stays_right(stack):
    with open(stack.lower() / "s", "wb") as f:
        f.truncate(4 * MIB)
        os.pwrite(f.fileno(), blob(64 * KIB), MIB)
    want = (stack.lower() / "s").read_bytes()
    (stack.lower() / "t").write_bytes(blob(4 * MIB, 5))
    m = stack.mount()
    for name in ("t", "new"):
        assert _copy(m / "s", m / name, 4 * MIB, 0, 0) == 4 * MIB
        assert (m / name).read_bytes() == want
    m = stack.remount()
    for name in ("t", "new"):
        assert (m / name).read_bytes() == want
