# SPDX-License-Identifier: Apache-2.0
"""Hard links of a lower file stay one file: data, attributes and count, through any name, after a
remount, and in the upper read as a layer."""
import os
import stat
import subprocess

import pytest

from support.child import in_children
from support.content import blob
from support.expect import write_at

_NAMES = ["a", "d/b", "d/e/c", "z/y"]


def _make_links(directory, names, data, mode=0o644):
    first = directory / names[0]
    first.parent.mkdir(parents=True, exist_ok=True)
    first.write_bytes(data)
    first.chmod(mode)
    for name in names[1:]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(first, directory / name)


def _assert_one_file(m, names, data, nlink=None):
    stats = [os.lstat(m / name) for name in names]
    assert len({st.st_ino for st in stats}) == 1
    assert {st.st_nlink for st in stats} == {nlink or len(names)}
    for name in names:
        assert (m / name).read_bytes() == data, name
    for name in names:
        entries = {e.name: e.inode() for e in os.scandir((m / name).parent)}
        assert entries[os.path.basename(name)] == stats[0].st_ino


def _actions():
    def write(path):
        write_at(path, b"B" * 4096, 8192)

    def append(path):
        with open(path, "ab") as f:
            f.write(b"tail")

    return {"write": write, "append": append, "overwrite": lambda path: path.write_bytes(b"new"),
            "truncate": lambda path: os.truncate(path, 5000), "chmod": lambda path: path.chmod(0o600),
            "chown": lambda path: os.chown(path, 7, 8),
            "utime": lambda path: os.utime(path, ns=(10**18, 10**18 + 5)),
            "setxattr": lambda path: os.setxattr(path, "user.x", b"y")}


@pytest.mark.parametrize("through", range(4))
@pytest.mark.parametrize("action", _actions())
@pytest.mark.parametrize("size", [60, 300_000])
def test_change_through_any_name_is_seen_through_all(stack, plain, size, action, through):
    for place in (stack.lower(), plain):
        _make_links(place, _NAMES, blob(size))
    m = stack.mount()
    ino = os.lstat(m / _NAMES[0]).st_ino
    for place in (m, plain):
        _actions()[action](place / _NAMES[through])
    data = (plain / "a").read_bytes()
    for again in ("at once", "remounted", "read-only", "frozen"):
        _assert_one_file(m, _NAMES, data)
        st, want = os.lstat(m / "a"), os.lstat(plain / "a")
        assert (st.st_mode, st.st_uid, st.st_gid) == (want.st_mode, want.st_uid, want.st_gid)
        if again in ("at once", "remounted"):
            assert st.st_ino == ino
        if again == "at once":
            m = stack.remount()
        elif again == "remounted":
            stack.umount()
            m = stack.second_mount([stack.upper, *stack.lowers]).mnt
        elif again == "read-only":
            stack.freeze()
            m = stack.mount()
    write_at(m / "d/b", b"once more", 0)
    data = b"once more" + data[9:]
    _assert_one_file(m, _NAMES, data)
    _assert_one_file(stack.remount(), _NAMES, data)


@pytest.mark.parametrize("options", ["io=cached", "coherence=strict"])
def test_open_descriptors_of_other_names_follow(stack, options):
    _make_links(stack.lower(), ["a", "d/b"], blob(200_000))
    m = stack.mount(options)
    fd = os.open(m / "d/b", os.O_RDONLY)
    assert os.pread(fd, 3, 100_000) == blob(200_000)[100_000:100_003]
    write_at(m / "a", b"new", 100_000)
    assert os.pread(fd, 3, 100_000) == b"new"
    assert os.fstat(fd).st_ino == (m / "a").stat().st_ino
    os.close(fd)


@pytest.mark.parametrize("gone", range(3))
@pytest.mark.parametrize("change_first", [False, True])
def test_count_goes_down_with_each_name(stack, gone, change_first):
    names = _NAMES[:3]
    _make_links(stack.lower(), names, blob(50_000))
    m = stack.mount()
    data = blob(50_000)
    if change_first:
        write_at(m / "a", b"x", 0)
        data = b"x" + data[1:]
    (m / names[gone]).unlink()
    left = [name for name in names if name != names[gone]]
    for _ in range(2):
        _assert_one_file(m, left, data)
        assert not (m / names[gone]).exists()
        m = stack.remount()
    (m / left[0]).unlink()
    _assert_one_file(m, left[1:], data)
    fd = os.open(m / left[1], os.O_RDWR)
    (m / left[1]).unlink()
    assert os.fstat(fd).st_nlink == 0
    os.pwrite(fd, b"still", 10)
    assert os.pread(fd, 5, 10) == b"still"
    os.close(fd)
    assert [name for name in names if (stack.remount() / name).exists()] == []


def test_rename_of_one_name_and_over_one(stack):
    _make_links(stack.lower(), ["a", "b", "d/c"], blob(40_000))
    (stack.lower() / "other").write_text("other")
    m = stack.mount()
    os.rename(m / "a", m / "d/new")
    for _ in range(2):
        _assert_one_file(m, ["b", "d/c", "d/new"], blob(40_000))
        m = stack.remount()
    os.rename(m / "other", m / "b")
    for _ in range(2):
        _assert_one_file(m, ["d/c", "d/new"], blob(40_000))
        assert (m / "b").read_text() == "other"
        m = stack.remount()


def test_victim_of_a_rename_is_a_lower_link(stack):
    _make_links(stack.lower(), ["a", "b"], blob(40_000))
    m = stack.mount()
    (m / "new").write_text("new")
    os.rename(m / "new", m / "b")
    for _ in range(2):
        _assert_one_file(m, ["a"], blob(40_000))
        m = stack.remount()


def test_new_link_to_a_lower_link(stack):
    _make_links(stack.lower(), ["a", "d/b"], blob(40_000))
    m = stack.mount()
    os.link(m / "d/b", m / "c")
    write_at(m / "c", b"c", 0)
    for _ in range(2):
        _assert_one_file(m, ["a", "d/b", "c"], b"c" + blob(40_000)[1:])
        m = stack.remount()


@pytest.mark.parametrize("remount", [False, True])
def test_names_below_a_renamed_directory(stack, remount):
    _make_links(stack.lower(), ["a", "p/q/b", "p/c"], blob(40_000))
    m = stack.mount()
    os.rename(m / "p", m / "moved")
    os.rename(m / "moved/q", m / "q")
    if remount:
        m = stack.remount()
    write_at(m / "a", b"new", 0)
    for _ in range(2):
        _assert_one_file(m, ["a", "q/b", "moved/c"], b"new" + blob(40_000)[3:])
        m = stack.remount()


def test_names_that_are_hidden_or_replaced_stay_so(stack):
    _make_links(stack.lower(), ["a", "b", "c", "d/e", "f/g"], blob(40_000))
    m = stack.mount()
    (m / "b").unlink()
    (m / "c").unlink()
    (m / "c").write_text("another")
    subprocess.run(["rm", "-r", m / "d"], check=True)
    write_at(m / "a", b"new", 0)
    for _ in range(2):
        _assert_one_file(m, ["a", "f/g"], b"new" + blob(40_000)[3:])
        assert (m / "c").read_text() == "another"
        assert sorted(os.listdir(m)) == ["a", "c", "f"]
        m = stack.remount()


def test_names_outside_the_layer_count_until_the_first_change(stack):
    """As in stores that link layers to each other: the other names are not ours to change."""
    _make_links(stack.lower(), ["a"], blob(40_000))
    outside = stack.base / "outside"
    os.link(stack.lower() / "a", outside)
    m = stack.mount()
    assert (m / "a").stat().st_nlink == 2
    write_at(m / "a", b"new", 0)
    for _ in range(2):
        _assert_one_file(m, ["a"], b"new" + blob(40_000)[3:])
        m = stack.remount()
    assert outside.read_bytes() == blob(40_000)


def test_symlinks_and_fifos_with_several_names(stack):
    low = stack.lower()
    (low / "d").mkdir()
    os.symlink("target", low / "s")
    os.link(low / "s", low / "d/s2", follow_symlinks=False)
    os.mkfifo(low / "p")
    os.link(low / "p", low / "d/p2")
    m = stack.mount()
    os.chown(m / "d/s2", 5, 6, follow_symlinks=False)
    os.chmod(m / "p", 0o600)
    for _ in range(2):
        assert os.lstat(m / "s").st_uid == 5
        assert os.lstat(m / "s").st_ino == os.lstat(m / "d/s2").st_ino
        assert os.lstat(m / "s").st_nlink == 2
        assert stat.S_IMODE(os.lstat(m / "d/p2").st_mode) == 0o600
        assert os.lstat(m / "p").st_ino == os.lstat(m / "d/p2").st_ino
        m = stack.remount()


def test_many_files_with_links_far_apart(stack):
    low = stack.lower()
    for k in range(200):
        _make_links(low, [f"x/{k}", f"y/{k % 10}/{k}"], blob(20_000 + k))
    m = stack.mount()
    for k in range(0, 200, 3):
        write_at(m / f"y/{k % 10}/{k}", b"%4d" % k, 0)
    for _ in range(2):
        for k in range(200):
            data = blob(20_000 + k)
            data = b"%4d" % k + data[4:] if k % 3 == 0 else data
            _assert_one_file(m, [f"x/{k}", f"y/{k % 10}/{k}"], data)
        m = stack.remount()


def test_upper_is_one_file_for_other_readers(stack):
    _make_links(stack.lower(), _NAMES, blob(3000))
    m = stack.mount()
    write_at(m / "a", b"new", 0)
    stack.umount()
    stats = [os.lstat(stack.upper / name) for name in _NAMES]
    assert len({st.st_ino for st in stats}) == 1
    assert {st.st_nlink for st in stats} == {4}
    assert [name for name in os.listdir(stack.upper) if name == ".wh..wh.links"] == []


def test_nothing_of_the_placing_stays_in_the_upper(stack):
    """While it is mounted, too, and where several are placed at once, and others change the root."""
    for number in range(40):
        _make_links(stack.lower(), [f"{number}a", f"{number}b", f"{number}c"], blob(3000, seed=number))
    m = stack.mount()
    in_children([lambda k=k: [write_at(m / f"{number}a", b"new", 0) for number in range(k, 40, 4)] for k in range(4)]
                + [lambda: [(m / f"own{k}").touch() for k in range(40)]])
    assert not (stack.upper / ".wh..wh.links").exists()
    for number in range(40):
        _assert_one_file(m, [f"{number}a", f"{number}b", f"{number}c"], b"new" + blob(3000, seed=number)[3:])


def test_parents_times_stay(stack):
    _make_links(stack.lower(), _NAMES, blob(30_000))
    for directory in (".", "d", "d/e", "z"):
        os.utime(stack.lower() / directory, ns=(10**18, 10**18))
    m = stack.mount()
    root = os.lstat(m).st_mtime_ns
    write_at(m / "a", b"new", 0)
    for _ in range(2):
        assert os.lstat(m).st_mtime_ns == root
        for directory in ("d", "d/e", "z"):
            assert os.lstat(m / directory).st_mtime_ns == 10**18
        m = stack.remount()
