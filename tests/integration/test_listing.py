# SPDX-License-Identifier: Apache-2.0
"""Listings bring attributes to programs that ask for them, and names alone to those that do not."""
import os
import stat

import pytest

from support.counters import Gained

pytestmark = pytest.mark.standalone("what one process counts")
DIRS, FILES = 12, 40


@pytest.fixture
def tree(stack):
    """DIRS directories of FILES files, half of them from the upper."""
    for top, kind in ((stack.lower(), "low"), (stack.upper, "up")):
        for d in range(DIRS):
            (top / f"d{d:02}").mkdir()
            for f in range(FILES // 2):
                (top / f"d{d:02}" / f"{kind}-{f:02}").write_text("x" * f)
    stack.mount()
    return stack


def names(top):
    return [os.path.join(here, name) for here, _, found in os.walk(top) for name in found]


def names_and_sizes(top):
    sizes = {}
    for here, _, found in os.walk(top):
        for name in found:
            sizes[os.path.join(here, name)] = os.lstat(os.path.join(here, name)).st_size
    return sizes


def test_listing__who_wants_names_gets_no_attributes(tree):
    with Gained(tree.server) as walk:
        found = names(tree.mnt)
    assert len(found) == DIRS * FILES
    with Gained(tree.server) as look:
        for path in found:
            assert os.lstat(path).st_size == int(path[-2:])
    assert walk["REQUESTS LOOKUP"] < DIRS
    # All but those of the first directory.
    assert look["REQUESTS LOOKUP"] > (DIRS - 2) * FILES


def test_listing__who_wants_attributes_gets_them_with_the_names(tree):
    with Gained(tree.server) as walk:
        found = names_and_sizes(tree.mnt)
    assert len(found) == DIRS * FILES
    assert all(size == int(path[-2:]) for path, size in found.items())
    assert walk["REQUESTS LOOKUP"] < FILES


def test_listing__types_and_numbers_are_those_of_stat(tree):
    os.symlink("target", tree.mnt / "d05" / "link")
    os.mkfifo(tree.mnt / "d05" / "pipe")
    names(tree.mnt)
    for d in range(DIRS):
        with os.scandir(tree.mnt / f"d{d:02}") as entries:
            for e in entries:
                st = os.lstat(e.path)
                assert e.inode() == st.st_ino
                assert e.is_symlink() == stat.S_ISLNK(st.st_mode)
                assert e.is_file(follow_symlinks=False) == stat.S_ISREG(st.st_mode)


def test_listing__changes_are_seen_as_ever(tree):
    names(tree.mnt)
    os.unlink(tree.mnt / "d03" / "low-01")
    os.rename(tree.mnt / "d03" / "up-02", tree.mnt / "d03" / "low-02")
    (tree.mnt / "d03" / "new").write_text("new")
    listed = sorted(os.listdir(tree.mnt / "d03"))
    assert "low-01" not in listed and "up-02" not in listed and "new" in listed
    assert len(listed) == FILES - 1
    assert (tree.mnt / "d03" / "low-02").read_text() == "xx"


def test_listing__removing_what_was_listed_leaves_nothing(tree):
    for path in names(tree.mnt):
        os.unlink(path)
    assert names(tree.mnt) == []
    tree.remount()
    assert names(tree.mnt) == []
