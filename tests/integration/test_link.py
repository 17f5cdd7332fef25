# SPDX-License-Identifier: Apache-2.0
import errno
import os

import pytest

from support.content import blob
from support.expect import fails_with, names_in, write_at


def test_link_to_new_file_shares_data_and_count(stack):
    m = stack.mount()
    (m / "a").write_text("one")
    os.link(m / "a", m / "b")
    assert (m / "a").stat().st_nlink == 2
    assert os.path.samefile(m / "a", m / "b")
    (m / "b").write_text("two")
    assert (m / "a").read_text() == "two"
    (m / "a").unlink()
    assert (m / "b").stat().st_nlink == 1
    assert (m / "b").read_text() == "two"


@pytest.mark.parametrize("size", [5, 300_000])
def test_link_to_lower_file_shares_later_writes(stack, size):
    data = blob(size)
    (stack.lower() / "a").write_bytes(data)
    m = stack.mount()
    os.link(m / "a", m / "b")
    assert (m / "b").read_bytes() == data
    write_at(m / "b", b"new", 1)
    want = data[:1] + b"new" + data[4:]
    for _ in range(2):
        assert (m / "a").read_bytes() == want
        assert (m / "b").read_bytes() == want
        assert (m / "a").stat().st_nlink == 2
        assert os.path.samefile(m / "a", m / "b")
        m = stack.remount()


@pytest.mark.parametrize("order", ["write first", "link first"])
def test_linked_partial_file_lives_on_under_the_other_name(stack, order):
    data = bytearray(blob(1_000_000))
    (stack.lower() / "a").write_bytes(data)
    m = stack.mount()
    if order == "link first":
        os.link(m / "a", m / "b")
    write_at(m / "a", b"changed", 600_000)
    data[600_000:600_007] = b"changed"
    if order == "write first":
        os.link(m / "a", m / "b")
    (m / "a").unlink()
    assert (m / "b").read_bytes() == data
    m = stack.remount()
    assert names_in(m) == ["b"]
    assert (m / "b").read_bytes() == data
    write_at(m / "b", b"again", 100_000)
    data[100_000:100_005] = b"again"
    stack.freeze()
    assert (stack.mount() / "b").read_bytes() == data


def test_many_links_over_directories(stack):
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    (m / "f").write_text("x")
    for i in range(10):
        os.link(m / "f", m / "d" / f"l{i}")
    assert (m / "f").stat().st_nlink == 11
    (m / "d" / "l3").unlink()
    assert (m / "d" / "l4").stat().st_nlink == 10
    m = stack.remount()
    assert (m / "f").stat().st_nlink == 10
    assert os.path.samefile(m / "f", m / "d" / "l9")


def test_link_refusals(stack):
    (stack.lower() / "f").write_text("")
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    with fails_with(errno.EEXIST):
        os.link(m / "f", m / "d")
    with fails_with(errno.EPERM):
        os.link(m / "d", m / "e")
    with fails_with(errno.ENOENT):
        os.link(m / "nothing", m / "e")
    assert names_in(m) == ["d", "f"]


def test_link_to_symlink_itself(stack):
    (stack.lower() / "s").symlink_to("target")
    m = stack.mount()
    os.link(m / "s", m / "t", follow_symlinks=False)
    assert os.readlink(m / "t") == "target"
    assert os.lstat(m / "t").st_ino == os.lstat(m / "s").st_ino


def test_link_over_a_removed_lower_name(stack):
    (stack.lower() / "f").write_text("kept")
    (stack.lower() / "gone").write_text("old")
    m = stack.mount()
    (m / "gone").unlink()
    os.link(m / "f", m / "gone")
    assert (m / "gone").read_text() == "kept"
    assert (stack.remount() / "gone").read_text() == "kept"


def test_untouched_lower_links_share_number_and_count(stack):
    (stack.lower() / "a").write_text("x")
    os.link(stack.lower() / "a", stack.lower() / "b")
    m = stack.mount()
    a, b = (m / "a").stat(), (m / "b").stat()
    assert (a.st_ino, a.st_nlink) == (b.st_ino, b.st_nlink) == (a.st_ino, 2)


@pytest.mark.parametrize("action", ["overwrite", "append", "chmod", "write block"])
def test_lower_links_never_mix_contents_after_copy_up(stack, action):
    """The field corruption of fuse-overlayfs 1.x: old content with a zero tail after a remount."""
    old = b"hl" * 40_000
    (stack.lower() / "a").write_bytes(old)
    os.link(stack.lower() / "a", stack.lower() / "b")
    m = stack.mount()
    new = old
    if action == "overwrite":
        new = b"N" * 100
        (m / "a").write_bytes(new)
    elif action == "append":
        new = old + b"X"
        with open(m / "a", "ab") as f:
            f.write(b"X")
    elif action == "chmod":
        (m / "a").chmod(0o600)
    else:
        new = old[:8192] + b"B" * 4096 + old[12288:]
        write_at(m / "a", b"B" * 4096, 8192)
    seen_b = (m / "b").read_bytes()
    joined = os.path.samefile(m / "a", m / "b")
    # either the link is broken as in overlayfs, or both names are one file: nothing between
    assert seen_b == (new if joined else old)
    for again in ("rw", "ro", "frozen"):
        if again == "rw":
            m = stack.remount()
        elif again == "ro":
            stack.umount()
            m = stack.second_mount([stack.upper, *stack.lowers]).mnt
        else:
            stack.freeze()
            m = stack.mount()
        assert (m / "a").read_bytes() == new, again
        assert (m / "b").read_bytes() == seen_b, again
        assert os.path.samefile(m / "a", m / "b") == joined, again


def test_chown_unlink_link_keeps_data(stack):
    """What containers/storage does to hard-linked files when it shifts ids."""
    (stack.lower() / "a").write_text("data")
    os.link(stack.lower() / "a", stack.lower() / "b")
    m = stack.mount()
    os.chown(m / "a", 1, 1)
    (m / "b").unlink()
    os.link(m / "a", m / "b")
    assert (m / "b").read_text() == "data"
    assert (m / "b").stat().st_uid == 1
    m = stack.remount()
    assert (m / "a").read_text() == (m / "b").read_text() == "data"
    assert os.path.samefile(m / "a", m / "b")
