# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from support.child import in_child
from support.content import blob
from support.expect import write_at

_OVERFLOW = 65534


def _file(directory, name, uid, gid):
    path = directory / name
    path.write_bytes(blob(300_000 if name == "big" else 10))
    os.chown(path, uid, gid)
    return path


def _owner(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid


def test_one_row(stack):
    _file(stack.lower(), "a", 1000, 2000)
    _file(stack.lower(), "b", 1001, 2001)
    m = stack.mount("uidmapping=1000:0:1", "gidmapping=2000:0:1")
    assert _owner(m / "a") == (0, 0)
    assert _owner(m / "b") == (_OVERFLOW, _OVERFLOW)


@pytest.mark.parametrize("lead", ["", ":"])
def test_several_rows_with_gaps(stack, lead):
    low = stack.lower()
    for name, uid, gid in (("root", 1000, 3000), ("first", 2000, 4000), ("last", 2099, 4099),
                           ("after", 2100, 4100), ("high", 50_000, 50_000), ("gap", 10, 10)):
        _file(low, name, uid, gid)
    m = stack.mount(f"uidmapping={lead}1000:0:1:2000:1:100:50000:500:10",
                    f"gidmapping={lead}3000:0:1:4000:1:100:50000:500:10")
    want = {"root": (0, 0), "first": (1, 1), "last": (100, 100), "high": (500, 500),
            "after": (_OVERFLOW, _OVERFLOW), "gap": (_OVERFLOW, _OVERFLOW)}
    assert {name: _owner(m / name) for name in want} == want


def test_what_is_written_is_translated_back(stack):
    (stack.lower() / "pub").mkdir()
    (stack.lower() / "pub").chmod(0o777)
    os.chown(stack.lower() / "pub", 1000, 1000)
    _file(stack.lower(), "big", 2004, 2005)
    options = ("uidmapping=1000:0:1:2000:1:1000", "gidmapping=1000:0:1:2000:1:1000")
    m = stack.mount(*options)

    def make():
        (m / "pub" / "f").write_text("")
        (m / "pub" / "d").mkdir()
        (m / "pub" / "s").symlink_to("x")
    in_child(make, uid=5, gid=6)
    os.chown(m / "big", 50, 60)
    write_at(m / "big", b"x", 100_000)
    for _ in range(2):
        assert [_owner(m / "pub" / name) for name in "fds"] == [(5, 6)] * 3
        assert _owner(m / "big") == (50, 60)
        m = stack.remount(*options)
    stack.umount()
    assert [_owner(stack.upper / "pub" / name) for name in "fds"] == [(2004, 2005)] * 3
    assert _owner(stack.upper / "big") == (2049, 2059)
    assert _owner(stack.upper / "pub") == (1000, 1000)


def test_copy_up_keeps_the_owner_on_disk(stack):
    _file(stack.lower(), "big", 1500, 1600)
    m = stack.mount("uidmapping=1000:0:1000", "gidmapping=1000:0:1000")
    assert _owner(m / "big") == (500, 600)
    write_at(m / "big", b"x", 5)
    assert _owner(m / "big") == (500, 600)
    stack.umount()
    assert _owner(stack.upper / "big") == (1500, 1600)


@pytest.mark.parametrize("option,want", [("squash_to_root", (0, 0)), ("squash_to_uid=7", (7, 21)),
                                         ("squash_to_gid=8", (20, 8)),
                                         ("squash_to_uid=7,squash_to_gid=8", (7, 8))])
def test_squashing_shows_everything_as_one_owner(stack, option, want):
    _file(stack.lower(), "a", 20, 21)
    (stack.lower() / "d").mkdir()
    os.chown(stack.lower() / "d", 20, 21)
    m = stack.mount(option)
    assert _owner(m / "a") == want
    assert _owner(m / "d") == want
    (m / "new").write_text("x")
    assert _owner(m / "new") in (want, (want[0], 0), (0, want[1]))
    os.chown(m / "a", 1, 2)
    assert (m / "a").read_bytes() == blob(10)


def test_permissions_follow_the_presented_owner(stack):
    path = _file(stack.lower(), "a", 1005, 1005)
    path.chmod(0o600)
    m = stack.mount("uidmapping=1000:0:1000", "gidmapping=1000:0:1000")
    in_child(lambda: (m / "a").read_bytes(), uid=5, gid=5)

    def refused():
        with pytest.raises(PermissionError):
            (m / "a").read_bytes()
    in_child(refused, uid=1005, gid=1005)


def test_override_attribute_gives_owner_and_mode(stack):
    """What the engines write into layers when they may not chown."""
    for directory in (stack.lower(), stack.upper):
        os.setxattr(directory, "user.containers.override_stat", b"0:0:0755")
    path = _file(stack.lower(), "a", 0, 0)
    path.chmod(0o755)
    os.setxattr(path, "user.containers.override_stat", b"12:34:4750:file")
    m = stack.mount("xattr_permissions=2")
    st = (m / "a").stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (12, 34, 0o4750)
    os.chown(m / "a", 56, 78)
    os.chmod(m / "a", 0o640)
    for _ in range(2):
        st = (m / "a").stat()
        assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (56, 78, 0o640)
        m = stack.remount("xattr_permissions=2")
    assert _owner(stack.upper / "a") == (0, 0)
