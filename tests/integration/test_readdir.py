# SPDX-License-Identifier: Apache-2.0
import os
import stat

from support.expect import names_in
from support.linux import DirStream

_DT = {stat.S_IFREG: 8, stat.S_IFDIR: 4, stat.S_IFLNK: 10, stat.S_IFIFO: 1, stat.S_IFSOCK: 12}


def _populate(directory, count):
    directory.mkdir(exist_ok=True)
    for i in range(count):
        (directory / f"entry-{i:05}").touch()


def test_three_lowers_and_upper_merge_without_doubles(stack):
    for i in range(3):
        (stack.lower(i) / "d").mkdir()
        (stack.lower(i) / "d" / "everywhere").write_text(str(i))
        (stack.lower(i) / "d" / f"only-{i}").write_text("")
    (stack.upper / "d").mkdir()
    (stack.upper / "d" / "upper").write_text("")
    (stack.upper / "d" / "everywhere").write_text("upper")
    names = os.listdir(stack.mount() / "d")
    assert sorted(names) == ["everywhere", "only-0", "only-1", "only-2", "upper"]


def test_dot_entries_are_listed_once(stack):
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    with DirStream(m / "d") as d:
        found = {name: ino for name, ino, _ in d}
    assert found.keys() == {".", ".."}
    assert found["."] == (m / "d").stat().st_ino


def test_types_and_inode_numbers_agree_with_stat(stack):
    low = stack.lower(0)
    (low / "file").write_text("")
    (low / "dir").mkdir()
    (low / "link").symlink_to("x")
    os.mkfifo(low / "fifo")
    os.mknod(low / "socket", stat.S_IFSOCK | 0o644)
    (stack.lower(1) / "below").write_text("")
    m = stack.mount()
    (m / "new").write_text("")
    (m / "newdir").mkdir()
    (m / "file").chmod(0o600)
    for _ in range(2):
        with DirStream(m) as d:
            entries = [entry for entry in d if entry[0] not in (".", "..")]
        assert len(entries) == 8
        for name, ino, kind in entries:
            st = os.lstat(m / name)
            assert ino == st.st_ino, name
            assert kind == _DT[stat.S_IFMT(st.st_mode)], name


def test_whiteouts_and_hidden_names_are_not_listed(stack):
    for name in ("gone", "gone2", "kept"):
        (stack.lower(1) / name).write_text("")
    os.mknod(stack.lower(0) / "gone", stat.S_IFCHR, 0)
    (stack.lower(0) / ".wh.gone2").write_text("")
    (stack.lower(0) / ".wh..wh.plnk").mkdir()
    (stack.lower(0) / ".wh..wh.aufs").write_text("")
    (stack.upper / ".wh..opq").write_text("")
    assert names_in(stack.mount()) == ["kept"]


def test_own_names_are_not_listed_after_writing(stack):
    (stack.lower() / "big").write_bytes(b"x" * 300_000)
    m = stack.mount()
    with open(m / "big", "r+b") as f:
        f.write(b"y")
    assert names_in(m) == ["big"]
    m = stack.remount()
    assert names_in(m) == ["big"]


def test_listing_follows_changes(stack):
    (stack.lower() / "a").write_text("")
    (stack.lower() / "b").write_text("")
    m = stack.mount()
    assert names_in(m) == ["a", "b"]
    (m / "c").write_text("")
    assert names_in(m) == ["a", "b", "c"]
    (m / "a").unlink()
    assert names_in(m) == ["b", "c"]
    os.rename(m / "b", m / "d")
    assert names_in(m) == ["c", "d"]
    (m / "a").mkdir()
    assert names_in(m) == ["a", "c", "d"]


def test_all_of_many_entries_are_listed_once(stack):
    _populate(stack.lower(0) / "d", 3000)
    _populate(stack.lower(1) / "d", 4000)
    m = stack.mount()
    for i in range(50):
        (m / "d" / f"new-{i}").touch()
    for _ in range(2):
        names = os.listdir(m / "d")
        assert len(names) == len(set(names)) == 4050


def test_deleting_while_reading_loses_nothing(stack):
    _populate(stack.lower() / "d", 3000)
    m = stack.mount()
    seen = []
    with DirStream(m / "d") as d:
        for name, _, _ in d:
            if name not in (".", ".."):
                seen.append(name)
                os.unlink(m / "d" / name)
    assert len(seen) == len(set(seen)) == 3000
    assert names_in(m / "d") == []
    os.rmdir(m / "d")


def test_creating_while_reading_repeats_nothing(stack):
    _populate(stack.lower() / "d", 500)
    m = stack.mount()
    seen = []
    with DirStream(m / "d") as d:
        for number, (name, _, _) in enumerate(d):
            seen.append(name)
            if number < 300:
                (m / "d" / f"made-{number}").touch()
    assert len(seen) == len(set(seen))
    assert sum(name.startswith("entry-") for name in seen) == 500


def test_told_positions_can_be_sought(stack):
    _populate(stack.lower() / "d", 700)
    with DirStream(stack.mount() / "d") as d:
        positions, names = [], []
        while True:
            position = d.tell()
            entry = d.read()
            if entry is None:
                break
            positions.append(position)
            names.append(entry[0])
        assert len(names) == 702
        for i in (650, 3, 411, 0, 701, 350):
            d.seek(positions[i])
            assert d.read()[0] == names[i]
        d.rewind()
        assert d.read()[0] == names[0]


def test_rewinding_shows_new_entries(stack):
    _populate(stack.lower() / "d", 5)
    m = stack.mount()
    with DirStream(m / "d") as d:
        assert len(list(d)) == 7
        (m / "d" / "new").touch()
        d.rewind()
        assert len(list(d)) == 8


def test_open_directory_that_was_removed_is_empty(stack):
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    with DirStream(m / "d") as d:
        (m / "d").rmdir()
        assert [name for name, _, _ in d if name not in (".", "..")] == []
