# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil
import subprocess

import pytest

from support import acl, linux
from support.child import in_child
from support.content import blob
from support.expect import fails_with, write_at

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
    """The attributes that engines write into layers when they may not chown."""
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


_MAPS = ("uidmapping=0:100000:1000:5000:7:1", "gidmapping=0:100000:1000:5000:7:1")


@pytest.mark.needs_root("ids above 65536")
def test_gaps_and_single_ids_before_and_after_copy_up(stack):
    """Ids on disk that no row covers are shown as the overflow id, and stay what they are on disk."""
    want = {0: 100_000, 999: 100_999, 1000: _OVERFLOW, 4999: _OVERFLOW, 5000: 7, 5001: _OVERFLOW, 100_000: _OVERFLOW}
    shown_as = want.get
    for uid in want:
        path = _file(stack.lower(), f"f{uid}", uid, uid)
        path.write_bytes(blob(100_000, uid))
        (stack.lower() / f"d{uid}").mkdir()
        os.chown(stack.lower() / f"d{uid}", uid, uid)
    m = stack.mount(*_MAPS)
    for step in ("lower", "copied up", "remounted", "frozen", "copied up again"):
        for uid, shown in want.items():
            assert _owner(m / f"f{uid}") == _owner(m / f"d{uid}") == (shown, shown), (step, uid)
        if step in ("lower", "frozen"):
            for uid in want:
                if shown_as(uid) == _OVERFLOW:
                    _is_refused(m / f"f{uid}", m / f"d{uid}")
                    continue
                write_at(m / f"f{uid}", b"x", 50_000)
                os.utime(m / f"d{uid}", (1, 1))
        elif step == "copied up":
            m = stack.remount(*_MAPS)
        elif step == "remounted":
            stack.freeze()
            m = stack.mount(*_MAPS)
    stack.umount()
    for directory in (stack.upper, stack.lowers[0]):
        changed = {uid for uid in want if shown_as(uid) != _OVERFLOW}
        assert {uid: _owner(directory / f"f{uid}")[0] for uid in changed} == {uid: uid for uid in changed}


def _is_refused(file, directory):
    """All that changes them; reading is a matter of their mode."""
    for change in (lambda p: os.chmod(p, 0o6755), lambda p: os.chown(p, -1, -1), lambda p: os.utime(p, (1, 1)), os.utime, lambda p: os.setxattr(p, "user.x", b"x"),
                   lambda p: os.setxattr(p, acl.ACCESS, acl.encode((acl.USER_OBJ, 7), (acl.USER, 7, 7), (acl.GROUP_OBJ, 7),
                                                                   (acl.MASK, 7), (acl.OTHER, 7))),
                   lambda p: os.rename(p, f"{p}-")):
        for path in (file, directory):
            with fails_with(errno.EOVERFLOW, errno.EACCES, errno.EPERM):
                change(path)
    for change in (lambda: os.open(file, os.O_WRONLY), lambda: os.truncate(file, 5), lambda: os.unlink(file),
                   lambda: os.link(file, f"{file}-"), lambda: (directory / "new").mkdir(), lambda: os.rmdir(directory),
                   lambda: os.rename(directory / "inner", directory / "moved"), lambda: os.unlink(directory / "inner")):
        with fails_with(errno.EOVERFLOW, errno.EACCES, errno.EPERM, errno.ENOENT):
            change()


@pytest.mark.parametrize("ids", [(0, 0), (3000, 1000), (1000, 3000)], ids=["root", "owner", "group"])
def test_what_belongs_to_nobody_is_changed_by_nobody(stack, ids):
    """Not even a user with the id that such an owner is shown as may change it, nor root."""
    low = stack.lower()
    _file(low, "f", *ids).chmod(0o666)
    (low / "d").mkdir()
    _file(low / "d", "inner", *ids)
    (low / "d").chmod(0o777)
    os.chown(low / "d", *ids)
    (low / "sticky").mkdir()
    _file(low / "sticky", "f", *ids)
    (low / "sticky").chmod(0o1777)
    os.chown(low / "sticky", 1000, 1000)
    os.chown(stack.upper, 1000, 1000)
    m = stack.mount("uidmapping=1000:0:1000", "gidmapping=1000:0:1000")

    def attack():
        _is_refused(m / "f", m / "d")
        with fails_with(errno.EOVERFLOW, errno.EACCES, errno.EPERM):
            os.unlink(m / "sticky" / "f")
        assert (m / "f").read_bytes() == blob(10)
    in_child(attack, uid=_OVERFLOW, gid=_OVERFLOW)
    in_child(attack)
    assert _owner(m / "f") == tuple(0 if one == 1000 else _OVERFLOW for one in ids)
    if ids == (0, 0):
        for half in ((0, -1), (-1, 0)):
            with fails_with(errno.EOVERFLOW):
                os.chown(m / "f", *half)
        os.chown(m / "f", 3, 4)
        os.chmod(m / "f", 0o600)
        assert _owner(m / "f") == (3, 4)


def test_a_caller_of_that_id_owns_what_it_made(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d").chmod(0o777)
    os.chown(stack.lower() / "d", 1000, 1000)
    m = stack.mount("uidmapping=1000:0:1000", "gidmapping=1000:0:1000")

    def make_and_change():
        (m / "d" / "f").write_text("x")
        os.chmod(m / "d" / "f", 0o640)
        (m / "d" / "f").write_text("y")
        os.unlink(m / "d" / "f")
    in_child(make_and_change, uid=_OVERFLOW, gid=_OVERFLOW)


@pytest.mark.needs_root("ids above 65536")
def test_owners_that_have_no_place_on_disk_are_refused(stack):
    _file(stack.lower(), "f", 0, 0)
    m = stack.mount(*_MAPS)
    for uid, gid in ((0, -1), (-1, 0), (5000, 7), (101_000, 7), (_OVERFLOW, -1), (8, 8)):
        with fails_with(errno.EINVAL):
            os.chown(m / "f", uid, gid)
        assert _owner(m / "f") == (100_000, 100_000)
    os.chown(m / "f", 7, -1)
    os.chown(m / "f", -1, 100_999)
    for _ in range(2):
        assert _owner(m / "f") == (7, 100_999)
        m = stack.remount(*_MAPS)
    stack.umount()
    assert _owner(stack.upper / "f") == (5000, 999)


@pytest.mark.needs_root("ids above 65536")
def test_root_of_a_mount_stays_as_it_is_when_given_to_an_owner_without_a_place(stack):
    """Podman's diff and commit do it to the mount of a running container with ids of its own."""
    stack.upper.mkdir(exist_ok=True)
    os.chown(stack.upper, 5000, 3)
    m = stack.mount(*_MAPS)
    os.chown(m, 0, 0)
    assert _owner(m) == (7, 100_003)
    os.chown(m, 100_001, -1)
    assert _owner(m) == (100_001, 100_003)
    stack.umount()
    assert _owner(stack.upper) == (1, 3)


@pytest.mark.needs_root("ids above 65536")
def test_callers_without_a_place_on_disk_make_files_of_nobody(stack):
    """The engines do it: they prepare a container's files as a root that the container does not know."""
    m = stack.mount(*_MAPS)
    (m / "f").write_text("x")
    (m / "d").mkdir()
    assert _owner(m / "f") == _owner(m / "d") == (_OVERFLOW, _OVERFLOW)
    os.chown(m / "f", 7, 7)
    assert _owner(m / "f") == (7, 7)


def test_ids_in_acls_are_mapped_too(stack):
    path = _file(stack.lower(), "f", 1000, 1000)
    path.chmod(0o640)
    on_disk = acl.encode((acl.USER_OBJ, 6), (acl.USER, 4, 1005), (acl.GROUP_OBJ, 4), (acl.GROUP, 6, 2007),
                         (acl.MASK, 6),
                         (acl.OTHER, 0))
    shown = acl.encode((acl.USER_OBJ, 6), (acl.USER, 4, 5), (acl.GROUP_OBJ, 4), (acl.GROUP, 6, 8), (acl.MASK, 6),
                       (acl.OTHER, 0))
    os.setxattr(path, acl.ACCESS, on_disk)
    maps = ("uidmapping=1000:0:1000", "gidmapping=1000:0:1:2000:1:1000")
    m = stack.mount(*maps)

    def refused():
        with fails_with(errno.EACCES):
            (m / "f").read_bytes()
    for _ in range(2):
        assert os.getxattr(m / "f", acl.ACCESS) == shown
        in_child(lambda: (m / "f").read_bytes(), uid=5, gid=50)
        in_child(lambda: (m / "f").read_bytes(), uid=50, gid=8)
        in_child(refused, uid=1005, gid=2007)
        os.utime(m / "f", (1, 1))
    other = acl.encode((acl.USER_OBJ, 6), (acl.USER, 4, 9), (acl.GROUP_OBJ, 4), (acl.MASK, 4), (acl.OTHER, 0))
    os.setxattr(m / "f", acl.ACCESS, other)
    with fails_with(errno.EINVAL):
        os.setxattr(m / "f", acl.ACCESS, acl.encode((acl.USER_OBJ, 6), (acl.USER, 4, 1000), (acl.GROUP_OBJ, 4),
                                                    (acl.MASK, 4), (acl.OTHER, 0)))
    m = stack.remount(*maps)
    assert os.getxattr(m / "f", acl.ACCESS) == other
    stack.umount()
    assert acl.decode(os.getxattr(stack.upper / "f", acl.ACCESS))[(acl.USER, 1009)] == 4


@pytest.mark.parametrize("option,want", [("squash_to_root", (0, 0)), ("squash_to_uid=7,squash_to_gid=8", (7, 8)),
                                         ("squash_to_uid=7,squash_to_root", (7, 0))])
def test_squashed_changes_never_fail_and_last(stack, option, want):
    _file(stack.lower(), "big", 20, 21).chmod(0o644)
    (stack.lower() / "d").mkdir()
    m = stack.mount(option)

    def change():
        os.chmod(m / "big", 0o600)
        os.chown(m / "big", 60_000, 60_000)
        write_at(m / "big", b"x", 7)
        (m / "d" / "n").write_text("new")
    in_child(change)
    for step in ("now", "remounted", "frozen"):
        for path in (m, m / "big", m / "d", m / "d" / "n"):
            assert _owner(path) == want, (step, path)
        assert (m / "big").stat().st_mode & 0o7777 == 0o600
        if step == "remounted":
            stack.freeze()
        m = stack.remount(option)
    stack.umount()


# ---- owners and modes in an attribute ----

_OVERRIDES = {1: "security.fuseoverlayfs.override_stat", 2: "user.containers.override_stat"}
_CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")


def _seen(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid, st.st_mode & 0o7777


@pytest.mark.parametrize("way", [pytest.param(1, marks=pytest.mark.needs_root("security attributes")), 2])
def test_override_of_the_upper_holds_all_owners_and_modes(stack, way):
    option = f"xattr_permissions={way}"
    low = _file(stack.lower(), "big", 11, 12)
    low.chmod(0o4711)
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d").chmod(0o2770)
    os.chown(stack.lower() / "d", 13, 14)
    m = stack.mount(option)
    assert _seen(m / "big") == (11, 12, 0o4711)
    write_at(m / "big", b"x", 9)
    (m / "big").chmod(0o4711)  # what a write leaves of it is the kernel's matter
    (m / "d" / "made").write_text("")
    (m / "d" / "sub").mkdir(mode=0o700)
    os.chown(m / "d" / "sub", 15, 16)
    (m / "d" / "made").chmod(0o6750)
    want = {"big": (11, 12, 0o4711), "d": (13, 14, 0o2770), "d/made": (0, 14, 0o6750), "d/sub": (15, 16, 0o2700)}
    for step in ("now", "remounted", "frozen", "changed", "remounted"):
        assert {name: _seen(m / name) for name in want} == want, step
        if step == "frozen":
            for name in want:
                os.chown(m / name, 31, 32)
            want = {"big": (31, 32, 0o711), "d": (31, 32, 0o2770), "d/made": (31, 32, 0o750), "d/sub": (31, 32, 0o2700)}
            continue
        if step == "remounted" and want["d"][0] == 13:
            stack.freeze()
        m = stack.remount(option)
    stack.umount()
    for name in ("big", "d"):
        assert _seen(stack.upper / name)[0] == 0
        assert os.getxattr(stack.upper / name, _OVERRIDES[way]).startswith(b"31:32:")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_acl_and_mode_go_together_with_modes_in_attributes_too(stack, kind):
    path = stack.lower() / "x"
    path.mkdir() if kind == "directory" else path.write_text("x")
    path.chmod(0o700)
    m = stack.mount("xattr_permissions=2")

    def mode():
        return os.stat(m / "x").st_mode & 0o7777

    def set_acl(user, group, mask):
        os.setxattr(m / "x", acl.ACCESS, acl.encode((acl.USER_OBJ, 6), (acl.USER, user, 1234), (acl.GROUP_OBJ, group),
                                                    (acl.MASK, mask), (acl.OTHER, 1)))

    set_acl(7, 4, 6)
    assert mode() == 0o661
    os.chmod(m / "x", 0o640)
    assert mode() == 0o640
    found = acl.decode(os.getxattr(m / "x", acl.ACCESS))
    assert (found[acl.MASK], found[acl.OTHER], found[(acl.USER, 1234)], found[acl.GROUP_OBJ]) == (4, 0, 7, 4)
    set_acl(4, 0, 5)
    m = stack.remount("xattr_permissions=2")
    assert mode() == 0o651
    os.removexattr(m / "x", acl.ACCESS)
    os.chmod(m / "x", 0o600)
    assert mode() == 0o600


_LIMITED = acl.encode((acl.USER_OBJ, 6), (acl.USER, 7, 1234), (acl.GROUP_OBJ, 7), (acl.MASK, 4), (acl.OTHER, 0))


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_acl_is_as_before_after_a_copy_up_with_modes_in_attributes(stack, kind):
    """Also on disk it gives nobody more: the kernel goes by it for all but the owner."""
    path = stack.lower() / "x"
    path.mkdir() if kind == "directory" else path.write_text("x")
    os.setxattr(path, acl.ACCESS, _LIMITED)
    m = stack.mount("xattr_permissions=2")
    for _ in range(2):
        os.utime(m / "x")
        assert os.stat(m / "x").st_mode & 0o7777 == 0o640
        assert os.getxattr(m / "x", acl.ACCESS) == _LIMITED
        on_disk = acl.decode(os.getxattr(stack.upper / "x", acl.ACCESS))
        assert {**on_disk, acl.USER_OBJ: 6} == acl.decode(_LIMITED)
        m = stack.remount("xattr_permissions=2")


def test_the_owner_gets_bits_back_that_an_acl_took(stack):
    """Without privileges the server itself needs them."""
    (stack.lower() / "p").mkdir()
    m = stack.mount("xattr_permissions=2") / "p"
    os.setxattr(m, acl.DEFAULT, acl.encode((acl.USER_OBJ, 0), (acl.GROUP_OBJ, 4), (acl.OTHER, 0)))
    (m / "f").touch()
    (m / "d").mkdir()
    (m / "g").touch()
    os.setxattr(m / "g", acl.ACCESS, acl.encode((acl.USER_OBJ, 0), (acl.GROUP_OBJ, 4), (acl.OTHER, 0)))
    for name in ("f", "d", "g"):
        assert os.stat(m / name).st_mode & 0o777 == 0o040
        os.chmod(m / name, 0o700)
    m = stack.remount("xattr_permissions=2") / "p"
    (m / "f").write_text("x")
    (m / "g").write_text("x")
    (m / "d" / "f").touch()


def test_override_attribute_cannot_be_changed_from_inside(stack):
    _file(stack.lower(), "f", 1000, 1000)
    m = stack.mount("xattr_permissions=2")

    def forge():
        for action in (lambda: os.setxattr(m / "f", _OVERRIDES[2], b"0:0:4755"),
                       lambda: os.removexattr(m / "f", _OVERRIDES[2])):
            with fails_with(errno.EPERM, errno.ENODATA):
                action()
    in_child(forge, uid=1000, gid=1000)
    os.utime(m / "f")
    in_child(forge, uid=1000, gid=1000)
    assert _seen(m / "f")[:2] == (1000, 1000)


def test_override_attribute_of_the_root_cannot_be_made_from_inside(stack):
    """From the next mount on it would speak for every file of the upper."""
    m = stack.mount()
    for attribute in _OVERRIDES.values():
        with fails_with(errno.EPERM):
            os.setxattr(m, attribute, b"0:0:0755")
    # elsewhere it is an attribute like others: an engine in a container keeps its own layers
    (m / "d").mkdir()
    os.setxattr(m / "d", _OVERRIDES[2], b"9:9:4777")
    assert os.getxattr(m / "d", _OVERRIDES[2]) == b"9:9:4777"
    m = stack.remount()
    assert _seen(m / "d") == (0, 0, 0o755)


@pytest.mark.parametrize("attribute", ["user.containers.override_stat", "user.fuseoverlayfs.override_stat"])
def test_override_of_a_lower_under_an_upper_that_has_none(stack, mode, attribute):
    """Each layer says for itself: what comes up from it has what it showed."""
    if mode == "root":
        pytest.skip("with privileges user.* attributes are ignored then")
    for layer, uid in ((0, 41), (1, 42)):
        path = _file(stack.lower(layer), f"f{layer}", 0, 0)
        os.setxattr(path, attribute, b"%d:%d:2755:file" % (uid, uid))
        (stack.lower(layer) / f"d{layer}").mkdir(mode=0o755)
        os.setxattr(stack.lower(layer) / f"d{layer}", attribute, b"%d:%d:1777" % (uid, uid))
    os.setxattr(stack.lower(1), attribute, b"0:0:0555")
    m = stack.mount()
    want = {"f0": (0, 0, 0o644), "f1": (42, 42, 0o2755), "d0": (0, 0, 0o755), "d1": (42, 42, 0o1777)}
    for step in ("lower", "copied up", "remounted", "frozen"):
        assert {name: _seen(m / name) for name in want} == want, step
        for name in want:
            os.utime(m / name, (1, 1))
        if step == "remounted":
            stack.freeze()
        if step != "lower":
            m = stack.remount()
    stack.umount()
    for directory in (stack.upper, stack.lowers[0]):
        assert {name: _seen(directory / name) for name in want} == want
        assert not any(attribute in os.listxattr(directory / name) for name in want)


@pytest.mark.parametrize("value", [b"", b"x", b"1:2", b"1:2:9", b"-1:2:644", b"4294967295:0:644",
                                   b"1:2:644:" + b"x" * 300,
                                   b"1:2:1000000", b"1:2:644\0", b" 1:2:644", b"1:2:644x"])
def test_bad_override_values_count_as_none(stack, value):
    os.setxattr(stack.lower(), "user.containers.override_stat", b"0:0:0755")
    path = _file(stack.lower(), "f", 5, 6)
    path.chmod(0o640)
    os.setxattr(path, "user.containers.override_stat", value)
    m = stack.mount("xattr_permissions=2")
    assert _seen(m / "f") == (5, 6, 0o640)
    write_at(m / "f", b"x", 0)
    assert _seen(stack.remount("xattr_permissions=2") / "f") == (5, 6, 0o640)


def test_override_value_may_have_a_type_and_type_bits(stack):
    os.setxattr(stack.lower(), "user.containers.override_stat", b"0:0:40755:dir")
    for name, value in (("a", b"1:2:100755"), ("b", b"1:2:755:file"), ("c", b"1:2:0755:char-1-3")):
        os.setxattr(_file(stack.lower(), name, 0, 0), "user.containers.override_stat", value)
    m = stack.mount("xattr_permissions=2")
    assert [_seen(m / name) for name in "ab"] == [(1, 2, 0o755)] * 2


def test_chown_takes_capabilities_away_with_owners_in_attributes_too(stack):
    path = _file(stack.lower(), "f", 0, 0)
    os.setxattr(path, "security.capability", _CAPABILITY)
    m = stack.mount("xattr_permissions=2")
    os.chmod(m / "f", 0o4755)
    assert "security.capability" in os.listxattr(m / "f")
    os.chown(m / "f", 5, 5)
    assert "security.capability" not in os.listxattr(m / "f")
    assert _seen(m / "f") == (5, 5, 0o755)


def test_layers_that_fuse_overlayfs_wrote_with_owners_in_attributes(stack, mode):
    """Two uppers of it, stacked: each with the attribute that version of it writes."""
    other = shutil.which("fuse-overlayfs")
    if not other:
        pytest.skip("no fuse-overlayfs here")
    _file(stack.lower(), "base", 3, 4)
    want = {"base": _seen(stack.lower() / "base")}
    for number in (1, 2):
        upper, work, mnt = (stack.base / f"{what}-{number}" for what in ("u", "w", "m"))
        for path in (upper, work, mnt):
            path.mkdir()
        lowers = ":".join(map(str, stack.lowers))
        subprocess.run([other, "-o", f"lowerdir={lowers},upperdir={upper},workdir={work},xattr_permissions=2", mnt],
                       check=True, stderr=subprocess.DEVNULL)
        try:
            path = _file(mnt, f"f{number}", 100 + number, 200 + number)
            path.chmod(0o4750)
            (mnt / f"d{number}").mkdir(mode=0o700)
            os.chown(mnt / f"d{number}", number, number)
            if number == 2:
                os.chown(mnt / "f1", 77, 78)
                os.chmod(mnt / "base", 0o600)
            want = {name: _seen(mnt / name) for name in sorted(os.listdir(mnt))}
        finally:
            linux.umount(mnt)
        stack.lowers.insert(0, upper)
    for option in (("xattr_permissions=2",),) if mode == "root" else ((), ("xattr_permissions=2",)):
        m = stack.mount(*option)
        assert {name: _seen(m / name) for name in sorted(os.listdir(m))} == want
        for name in want:
            os.utime(m / name, (1, 1))
        assert {name: _seen(stack.remount(*option) / name) for name in want} == want
        stack.umount()
        stack._fresh_upper()
