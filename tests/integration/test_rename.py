# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil
import subprocess

import pytest

from support import linux
from support.content import allocated, blob
from support.expect import exists, fails_with, names_in, write_at


@pytest.mark.parametrize("size", [0, 100, 20_000, 700_000])
def test_rename_of_lower_file_keeps_content_and_hides_old_name(stack, size):
    data = blob(size)
    (stack.lower() / "a").write_bytes(data)
    m = stack.mount()
    os.rename(m / "a", m / "b")
    for _ in range(2):
        assert names_in(m) == ["b"]
        assert (m / "b").read_bytes() == data
        m = stack.remount()
    stack.freeze()
    assert (stack.mount() / "b").read_bytes() == data


def test_partial_file_keeps_content_over_renames_and_freezes(stack):
    data = bytearray(blob(900_000))
    (stack.lower() / "a").write_bytes(data)
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    for number, (old, new) in enumerate((("a", "b"), ("b", "d/c"), ("d/c", "a"), ("a", "d/e"))):
        off = 100_000 * (number + 1) + 17
        write_at(m / old, b"w" * 6000, off)
        data[off:off + 6000] = b"w" * 6000
        os.rename(m / old, m / new)
        assert (m / new).read_bytes() == data
        if number % 2:
            stack.freeze()
            m = stack.mount()
            assert (m / new).read_bytes() == data


def test_two_lower_files_swap_names_in_three_steps(stack):
    one, two = blob(300_000, 1), blob(400_000, 2)
    (stack.lower() / "one").write_bytes(one)
    (stack.lower() / "two").write_bytes(two)
    m = stack.mount()
    os.rename(m / "one", m / "t")
    os.rename(m / "two", m / "one")
    os.rename(m / "t", m / "two")
    for _ in range(2):
        assert ((m / "one").read_bytes(), (m / "two").read_bytes()) == (two, one)
        m = stack.remount()


@pytest.mark.parametrize("source", ["lower", "upper"])
@pytest.mark.parametrize("target", ["lower", "upper", "removed"])
def test_rename_over_an_existing_or_removed_name(stack, source, target):
    if source == "lower":
        (stack.lower() / "s").write_text("source")
    if target in ("lower", "removed"):
        (stack.lower() / "t").write_text("target")
    m = stack.mount()
    if source == "upper":
        (m / "s").write_text("source")
    if target == "upper":
        (m / "t").write_text("target")
    if target == "removed":
        (m / "t").unlink()
    os.rename(m / "s", m / "t")
    for _ in range(2):
        assert names_in(m) == ["t"]
        assert (m / "t").read_text() == "source"
        m = stack.remount()


def test_rename_over_whiteout_keeps_lower_hidden(stack):
    (stack.lower() / "t").write_text("below")
    m = stack.mount()
    (m / "t").unlink()
    (m / "s").write_text("s")
    os.rename(m / "s", m / "t")
    (m / "t").unlink()
    assert names_in(m) == []
    assert names_in(stack.remount()) == []


def test_rename_between_directories_of_different_layers(stack):
    (stack.lower(0) / "a").mkdir()
    (stack.lower(1) / "b").mkdir()
    (stack.lower(1) / "b" / "f").write_text("f")
    m = stack.mount()
    os.rename(m / "b" / "f", m / "a" / "f")
    m = stack.remount()
    assert (names_in(m / "a"), names_in(m / "b")) == (["f"], [])
    assert (m / "a" / "f").read_text() == "f"


def test_noreplace_refuses_every_existing_name(stack):
    (stack.lower() / "a").write_text("a")
    (stack.lower() / "b").write_text("b")
    (stack.lower() / "w").write_text("w")
    m = stack.mount()
    (m / "u").write_text("u")
    (m / "w").unlink()
    for target in ("b", "u"):
        with fails_with(errno.EEXIST):
            linux.renameat2(m / "a", m / target, linux.RENAME_NOREPLACE)
    linux.renameat2(m / "a", m / "w", linux.RENAME_NOREPLACE)
    assert (m / "w").read_text() == "a"
    assert names_in(stack.remount()) == ["b", "u", "w"]


@pytest.mark.parametrize("where", ["lower", "upper", "mixed", "partial"])
def test_exchange_of_files(stack, where):
    one, two = blob(200_000, 1), blob(150_000, 2)
    if where != "upper":
        (stack.lower() / "one").write_bytes(one)
    if where in ("lower", "partial"):
        (stack.lower() / "two").write_bytes(two)
    m = stack.mount()
    if where == "upper":
        (m / "one").write_bytes(one)
    if where in ("upper", "mixed"):
        (m / "two").write_bytes(two)
    if where == "partial":
        write_at(m / "one", b"PP", 100_000)
        one = one[:100_000] + b"PP" + one[100_002:]
    linux.renameat2(m / "one", m / "two", linux.RENAME_EXCHANGE)
    for _ in range(2):
        assert ((m / "one").read_bytes(), (m / "two").read_bytes()) == (two, one)
        m = stack.remount()
    stack.freeze()
    m = stack.mount()
    assert ((m / "one").read_bytes(), (m / "two").read_bytes()) == (two, one)


def test_exchange_of_file_and_new_directory(stack):
    (stack.lower() / "f").write_text("file")
    m = stack.mount()
    (m / "d").mkdir()
    (m / "d" / "inner").write_text("")
    linux.renameat2(m / "f", m / "d", linux.RENAME_EXCHANGE)
    m = stack.remount()
    assert (m / "d").read_text() == "file"
    assert names_in(m / "f") == ["inner"]


def test_exchange_with_nothing_is_enoent(stack):
    (stack.lower() / "f").write_text("")
    m = stack.mount()
    with fails_with(errno.ENOENT):
        linux.renameat2(m / "f", m / "nothing", linux.RENAME_EXCHANGE)


@pytest.mark.parametrize("flags", [0, linux.RENAME_NOREPLACE, linux.RENAME_EXCHANGE])
@pytest.mark.parametrize("origin", ["lower", "upper", "lower dir", "upper dir"])
def test_rename_that_leaves_a_whiteout_is_refused(stack, origin, flags):
    """As by overlayfs: a whiteout in the mount would not be seen, and a union on top of it would rely on one."""
    m = stack.lower() if origin.startswith("lower") else stack.mount()
    for name in ("old", "other"):
        (m / name).mkdir() if origin.endswith("dir") else (m / name).write_text(name)
    m = m if stack.is_mounted else stack.mount()
    new = "other" if flags == linux.RENAME_EXCHANGE else "new"
    with fails_with(errno.EINVAL):
        linux.renameat2(m / "old", m / new, linux.RENAME_WHITEOUT | flags)
    with fails_with(errno.ENOENT):
        linux.renameat2(m / "none", m / "new", linux.RENAME_WHITEOUT)
    with fails_with(errno.EEXIST):
        linux.renameat2(m / "old", m / "other", linux.RENAME_WHITEOUT | linux.RENAME_NOREPLACE)
    assert names_in(m) == ["old", "other"]


def _raw_below(directory):
    return sorted(name for _, dirs, names in os.walk(directory) for name in dirs + names)


def test_rename_of_a_lower_directory_takes_one_entry_whatever_is_in_it(stack):
    """And so in each layer, when it moves on in the next."""
    for name, count in (("small", 1), ("large", 500)):
        (stack.lower() / name / "sub").mkdir(parents=True)
        for k in range(count):
            (stack.lower() / name / "sub" / f"f{k}").write_bytes(b"deep")
    for turn in range(4):
        m = stack.mount()
        for name in ("small", "large"):
            os.listdir(m / f"{name}{turn or ''}" / "sub")
            os.rename(m / f"{name}{turn or ''}", m / f"{name}{turn + 1}")
        for _ in range(2):
            assert names_in(m) == [f"large{turn + 1}", f"small{turn + 1}"]
            assert len(os.listdir(m / f"large{turn + 1}" / "sub")) == 500
            assert (m / f"large{turn + 1}" / "sub" / "f499").read_text() == "deep"
            m = stack.remount()
        layer = stack.freeze()
        assert _raw_below(layer / f"large{turn + 1}") == _raw_below(layer / f"small{turn + 1}")
        assert not [name for name in _raw_below(layer / f"large{turn + 1}") if not name.startswith(".wh.")]


def test_rename_of_new_directory_takes_its_tree_along(stack):
    (stack.lower() / "old").mkdir()
    m = stack.mount()
    (m / "d" / "sub").mkdir(parents=True)
    (m / "d" / "sub" / "f").write_text("deep")
    os.rename(m / "d", m / "e")
    assert (m / "e" / "sub" / "f").read_text() == "deep"
    os.rename(m / "e", m / "old" / "moved")
    (m / "old" / "moved" / "sub" / "g").write_text("more")
    for _ in range(2):
        assert names_in(m) == ["old"]
        assert names_in(m / "old" / "moved" / "sub") == ["f", "g"]
        m = stack.remount()


def test_new_directory_renamed_over_removed_lower_directory_stays_pure(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "ghost").write_text("")
    m = stack.mount()
    shutil.rmtree(m / "d")
    (m / "n").mkdir()
    (m / "n" / "f").write_text("")
    os.rename(m / "n", m / "d")
    assert names_in(m / "d") == ["f"]
    assert names_in(stack.remount() / "d") == ["f"]


def test_directory_renamed_over_emptied_lower_directory_shows_no_ghosts(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "ghost").write_text("")
    m = stack.mount()
    (m / "d" / "ghost").unlink()
    (m / "n").mkdir()
    (m / "n" / "f").write_text("")
    os.rename(m / "n", m / "d")
    assert names_in(m) == ["d"]
    assert names_in(m / "d") == ["f"]
    assert names_in(stack.remount() / "d") == ["f"]


def test_rename_into_and_out_of_a_renamed_directory(stack):
    data = blob(300_000)
    (stack.lower() / "f").write_bytes(data)
    m = stack.mount()
    (m / "d").mkdir()
    os.rename(m / "f", m / "d" / "f")
    write_at(m / "d" / "f", b"part", 9000)
    data = data[:9000] + b"part" + data[9004:]
    os.rename(m / "d", m / "e")
    assert (m / "e" / "f").read_bytes() == data
    m = stack.remount()
    assert (m / "e" / "f").read_bytes() == data
    os.rename(m / "e" / "f", m / "g")
    m = stack.remount()
    assert (m / "g").read_bytes() == data
    assert names_in(m) == ["e", "g"]


def test_rename_refusals(stack):
    (stack.lower() / "full").mkdir()
    (stack.lower() / "full" / "f").write_text("")
    (stack.lower() / "file").write_text("")
    m = stack.mount()
    (m / "new" / "sub").mkdir(parents=True)
    with fails_with(errno.ENOTEMPTY, errno.EEXIST):
        os.rename(m / "new", m / "full")
    with fails_with(errno.EINVAL):
        os.rename(m / "new", m / "new" / "sub" / "x")
    with fails_with(errno.ENOTDIR):
        os.rename(m / "new", m / "file")
    with fails_with(errno.EISDIR):
        os.rename(m / "file", m / "new")
    with fails_with(errno.ENOENT):
        os.rename(m / "nothing", m / "x")
    assert names_in(m) == ["file", "full", "new"]


def test_rename_onto_itself_and_onto_own_link_do_nothing(stack):
    (stack.lower() / "a").write_text("a")
    m = stack.mount()
    os.rename(m / "a", m / "a")
    os.link(m / "a", m / "b")
    os.rename(m / "a", m / "b")
    assert names_in(m) == ["a", "b"]


def test_open_descriptor_follows_the_rename(stack):
    (stack.lower() / "a").write_bytes(blob(300_000))
    m = stack.mount()
    fd = os.open(m / "a", os.O_RDWR)
    os.rename(m / "a", m / "b")
    os.pwrite(fd, b"moved", 50_000)
    os.close(fd)
    with open(m / "b", "rb") as f:
        f.seek(50_000)
        assert f.read(5) == b"moved"
    assert not exists(m / "a")


def test_rename_of_large_lower_file_copies_no_data(stack):
    (stack.lower() / "a").write_bytes(blob(8 << 20))
    m = stack.mount()
    before = allocated(stack.upper)
    os.rename(m / "a", m / "b")
    stack.umount()
    assert allocated(stack.upper) - before <= 64 << 10


@pytest.mark.parametrize("options", ["redirect_dir=off", "cow=copy"])
def test_without_redirects_a_lower_directory_stays_and_mv_copies_it(stack, options):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_text("f")
    m = stack.mount(options)
    with fails_with(errno.EXDEV):
        os.rename(m / "d", m / "e")
    assert names_in(m / "d") == ["f"]
    subprocess.run(["mv", m / "d", m / "e"], check=True)
    for _ in range(2):
        assert names_in(m) == ["e"]
        assert (m / "e" / "f").read_text() == "f"
        m = stack.remount(options)
