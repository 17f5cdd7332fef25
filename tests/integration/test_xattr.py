# SPDX-License-Identifier: Apache-2.0
import ctypes
import errno
import os
import stat
import struct

import pytest

from support import acl, linux
from support.child import in_child
from support.content import blob
from support.expect import fails_with, opened, write_at

_RESERVED = ["user.fuseoverlayfs.origin", "user.fuseoverlayfs.opaque", "user.overlay.opaque",
             "user.veneer.partial", "user.veneer.x"]
_CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)


def _lower(stack, size=300_000, **xattrs):
    path = stack.lower() / "f"
    path.write_bytes(blob(size))
    for name, value in xattrs.items():
        os.setxattr(path, f"user.{name}", value)
    return path


def test_user_attributes_live_through_set_get_list_remove(stack):
    _lower(stack, low=b"from below")
    m = stack.mount()
    assert os.listxattr(m / "f") == ["user.low"]
    assert os.getxattr(m / "f", "user.low") == b"from below"
    os.setxattr(m / "f", "user.new", b"\0binary\xff")
    assert os.getxattr(m / "f", "user.new") == b"\0binary\xff"
    assert sorted(os.listxattr(m / "f")) == ["user.low", "user.new"]
    with fails_with(errno.EEXIST):
        os.setxattr(m / "f", "user.new", b"", os.XATTR_CREATE)
    with fails_with(errno.ENODATA):
        os.setxattr(m / "f", "user.other", b"", os.XATTR_REPLACE)
    os.removexattr(m / "f", "user.low")
    for _ in range(2):
        assert os.listxattr(m / "f") == ["user.new"]
        with fails_with(errno.ENODATA):
            os.getxattr(m / "f", "user.low")
        m = stack.remount()
    with fails_with(errno.ENODATA):
        os.removexattr(m / "f", "user.low")


@pytest.mark.parametrize("kind", ["dir", "new file", "new dir", "root"])
def test_attributes_of_other_objects(stack, kind):
    (stack.lower() / "d").mkdir()
    m = stack.mount()
    path = {"dir": m / "d", "new file": m / "n", "new dir": m / "e", "root": m}[kind]
    if kind == "new file":
        path.write_text("")
    elif kind == "new dir":
        path.mkdir()
    os.setxattr(path, "user.k", b"v")
    assert os.listxattr(path) == ["user.k"]
    stack.remount()
    assert os.getxattr(path, "user.k") == b"v"


@pytest.mark.parametrize("change", ["write", "chmod", "rename", "setxattr", "link", "truncate"])
def test_copy_up_keeps_all_attributes(stack, change):
    _lower(stack, a=b"1", b=b"2" * 500, empty=b"")
    m = stack.mount()
    {"write": lambda: write_at(m / "f", b"x", 10), "chmod": lambda: (m / "f").chmod(0o600),
     "rename": lambda: os.rename(m / "f", m / "g"), "link": lambda: os.link(m / "f", m / "g"),
     "setxattr": lambda: os.setxattr(m / "f", "user.c", b"3"),
     "truncate": lambda: os.truncate(m / "f", 5)}[change]()
    name = "g" if change in ("rename", "link") else "f"
    for _ in range(2):
        got = {key: os.getxattr(m / name, key) for key in os.listxattr(m / name)}
        got.pop("user.c", None)
        assert got == {"user.a": b"1", "user.b": b"2" * 500, "user.empty": b""}
        m = stack.remount()


@pytest.mark.parametrize("name", _RESERVED)
def test_reserved_names_are_neither_seen_nor_set(stack, name):
    _lower(stack)
    (stack.lower() / "d").mkdir()
    os.setxattr(stack.lower() / "d", "user.fuseoverlayfs.note", b"hidden")
    m = stack.mount()
    write_at(m / "f", b"x", 100_000)
    for path in (m / "f", m / "d"):
        with fails_with(errno.EPERM, errno.EOPNOTSUPP):
            os.setxattr(path, name, b"y")
        with fails_with(errno.ENODATA, errno.EPERM, errno.EOPNOTSUPP):
            os.getxattr(path, name)
        with fails_with(errno.EPERM, errno.ENODATA, errno.EOPNOTSUPP):
            os.removexattr(path, name)
        assert os.listxattr(path) == []


@pytest.mark.needs_root("trusted attributes need the real root")
def test_trusted_attributes(stack):
    path = _lower(stack)
    os.setxattr(path, "trusted.mine", b"t")
    m = stack.mount()
    assert os.getxattr(m / "f", "trusted.mine") == b"t"
    os.setxattr(m / "f", "trusted.more", b"u")
    with fails_with(errno.EPERM):
        os.setxattr(m / "f", "trusted.overlay.opaque", b"y")
    m = stack.remount()
    assert sorted(os.listxattr(m / "f")) == ["trusted.mine", "trusted.more"]


def test_value_of_3800_bytes_and_a_too_large_one(stack):
    _lower(stack)
    m = stack.mount()
    # ext4 keeps all attributes of a file in one block of 4096 bytes, our mark among them
    value = blob(3800)
    os.setxattr(m / "f", "user.big", value)
    assert os.getxattr(m / "f", "user.big") == value
    assert os.getxattr(stack.remount() / "f", "user.big") == value
    with fails_with(errno.E2BIG, errno.ENOSPC, errno.ERANGE):
        os.setxattr(stack.mnt / "f", "user.huge", bytes(65_537))


def test_ten_attributes_and_short_buffers(stack):
    _lower(stack)
    m = stack.mount()
    for i in range(10):
        os.setxattr(m / "f", f"user.name{i}", b"v" * i)
    assert len(os.listxattr(m / "f")) == 10
    assert os.getxattr(stack.remount() / "f", "user.name9") == b"v" * 9


@pytest.mark.unshared("what has a descriptor of an unchanged file only can change nothing of it")
def test_attributes_through_descriptors(stack):
    _lower(stack, a=b"1")
    with opened(stack.mount() / "f") as fd:
        os.setxattr(fd, "user.b", b"2")
        assert os.getxattr(fd, "user.a") == b"1"
        assert sorted(os.listxattr(fd)) == ["user.a", "user.b"]


def test_symlink_has_no_user_attributes(stack):
    (stack.lower() / "s").symlink_to("x")
    m = stack.mount()
    with fails_with(errno.EPERM):
        os.setxattr(m / "s", "user.a", b"1", follow_symlinks=False)
    assert os.listxattr(m / "s", follow_symlinks=False) == []


def test_noxattrs_answers_not_supported(stack):
    _lower(stack, a=b"1")
    m = stack.mount("noxattrs=1")
    for action in (lambda: os.getxattr(m / "f", "user.a"), lambda: os.listxattr(m / "f"),
                   lambda: os.setxattr(m / "f", "user.b", b"1")):
        with fails_with(errno.EOPNOTSUPP):
            action()


def _capability(path):
    return "security.capability" in os.listxattr(path)


def test_file_capability_is_kept_by_copy_up_and_chmod_and_lost_by_write(stack):
    path = _lower(stack)
    try:
        os.setxattr(path, "security.capability", _CAPABILITY)
    except OSError as e:
        pytest.skip(f"file capabilities cannot be set here: {e}")
    m = stack.mount()
    assert _capability(m / "f")
    (m / "f").chmod(0o700)
    os.utime(m / "f", (1, 1))
    assert _capability(m / "f")
    assert _capability(stack.remount() / "f")
    write_at(m / "f", b"w", 0)
    assert not _capability(m / "f")
    assert not _capability(stack.remount() / "f")


def test_file_capability_of_untouched_lower_is_lost_by_first_write(stack):
    path = _lower(stack)
    try:
        os.setxattr(path, "security.capability", _CAPABILITY)
    except OSError as e:
        pytest.skip(f"file capabilities cannot be set here: {e}")
    m = stack.mount()
    write_at(m / "f", b"w", 200_000)
    assert not _capability(m / "f")
    stack.umount()
    assert not _capability(stack.upper / "f")


_ACL = acl.encode((acl.USER_OBJ, 6), (acl.USER, 4, 1000), (acl.GROUP_OBJ, 4), (acl.MASK, 4),
                  (acl.OTHER, 0))
_DEFAULT = acl.encode((acl.USER_OBJ, 7), (acl.USER, 7, 1000), (acl.GROUP_OBJ, 5), (acl.MASK, 7),
                      (acl.OTHER, 0))


def test_access_acl_is_kept_by_copy_up_and_enforced(stack):
    path = _lower(stack)
    os.setxattr(path, acl.ACCESS, _ACL)
    m = stack.mount()
    in_child(lambda: (m / "f").read_bytes(), uid=1000, gid=1000)

    def refused():
        with fails_with(errno.EACCES):
            (m / "f").read_bytes()
    in_child(refused, uid=1001, gid=1001)
    os.utime(m / "f", (1, 1))
    for _ in range(2):
        assert acl.decode(os.getxattr(m / "f", acl.ACCESS)) == acl.decode(_ACL)
        in_child(refused, uid=1001, gid=1001)
        m = stack.remount()
    in_child(lambda: (m / "f").read_bytes(), uid=1000, gid=1000)


def test_set_acl_changes_mode_and_chmod_changes_mask(stack):
    _lower(stack).chmod(0o600)
    m = stack.mount()
    os.setxattr(m / "f", acl.ACCESS, _ACL)
    assert stat.S_IMODE((m / "f").stat().st_mode) == 0o640
    (m / "f").chmod(0o660)
    assert acl.decode(os.getxattr(m / "f", acl.ACCESS))[acl.MASK] == 6
    os.removexattr(m / "f", acl.ACCESS)
    with fails_with(errno.ENODATA):
        os.getxattr(m / "f", acl.ACCESS)


def test_default_acl_is_inherited_and_the_umask_is_not_applied(stack):
    (stack.lower() / "d").mkdir()
    os.setxattr(stack.lower() / "d", acl.DEFAULT, _DEFAULT)
    m = stack.mount()

    def make():
        (m / "d" / "file").write_text("")
        (m / "d" / "dir").mkdir()
    in_child(make, umask=0o077)
    file = acl.decode(os.getxattr(m / "d" / "file", acl.ACCESS))
    assert file[(acl.USER, 1000)] == 7
    assert file[acl.MASK] == 6
    directory = acl.decode(os.getxattr(m / "d" / "dir", acl.ACCESS))
    assert directory[acl.MASK] == 7
    assert acl.decode(os.getxattr(m / "d" / "dir", acl.DEFAULT)) == acl.decode(_DEFAULT)


def test_noacl_mount_works_without_acls(stack):
    _lower(stack)
    m = stack.mount("noacl")
    with fails_with(errno.EOPNOTSUPP, errno.ENODATA):
        os.getxattr(m / "f", acl.ACCESS)
    write_at(m / "f", b"x", 0)


_libc = ctypes.CDLL(None, use_errno=True)


def _raw(call, path, *args):
    """A call as C makes it, with a buffer of the caller's size; length or the error's name."""
    n = getattr(_libc, call)(os.fsencode(path), *args)
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]


@pytest.mark.parametrize("state", ["lower", "upper"])
def test_lengths_and_errors_are_those_of_a_directory(stack, plain, state):
    names = [f"user.n{i}" for i in range(30)]
    _lower(stack)
    (plain / "f").write_bytes(b"x")
    m = stack.mount()
    for path in (stack.lower() / "f", plain / "f"):
        for number, name in enumerate(names):
            os.setxattr(path, name, b"v" * number)
    stack.forget_lower(stack.lower())
    m = stack.remount()
    if state == "upper":
        os.utime(m / "f")
    buffer = ctypes.create_string_buffer(70_000)
    whole = _raw("listxattr", plain / "f", None, 0)
    rows = [("listxattr", (size and buffer, size)) for size in (0, 1, whole - 1, whole, whole + 1, 65_536, 70_000)]
    rows += [("getxattr", (name, size and buffer, size)) for size in (0, 1, 28, 29, 30, 65_536, 70_000)
             for name in (b"user.n0", b"user.n29", b"user.none", b"trusted.none", b"user.", b"strange.x", b"",
                          b"user." + b"x" * 250, b"user." + b"x" * 251)]
    rows += [("setxattr", (name, value, len(value), flags)) for name in (b"user.n3", b"user.new", b"user.",
                                                                         b"strange.x", b"",
             b"user." + b"y" * 250, b"user." + b"y" * 251, b"system.x") for value in (b"", b"1", b"2" * 65_537)
             for flags in (0, os.XATTR_CREATE, os.XATTR_REPLACE, 3, 8)]
    rows += [("removexattr", (name,)) for name in (b"user.n3", b"user.n3", b"user.none", b"strange.x", b"user.",
                                                   b"trusted.x")]
    bad = []
    for call, args in rows:
        got, want = (_raw(call, root / "f", *args) for root in (m, plain))
        if got != want:
            bad.append((call, [arg for arg in args if arg is not buffer and len(str(arg)) < 300], got, want))
    assert not bad
    assert sorted(os.listxattr(m / "f")) == sorted(os.listxattr(plain / "f"))


@pytest.fixture
def roomy_disk(stack):
    """Upper and work where values of 64 KiB fit."""
    disk = stack.base / "roomy"
    disk.mkdir()
    linux.mount("tmpfs", disk, "tmpfs", 0, "size=64m,mode=0755")
    stack.upper, stack.work = disk / "upper", disk / "work"
    stack.upper.mkdir()
    stack.work.mkdir()
    try:
        os.setxattr(stack.upper, "user.probe", b"x" * 65_536)
        os.removexattr(stack.upper, "user.probe")
        has_room = True
    except OSError:
        has_room = False
    if has_room:
        yield disk
    if stack.is_mounted:
        stack.umount()
    linux.umount(disk, linux.MNT_DETACH)
    if not has_room:
        pytest.skip("tmpfs has no such values here")


def test_values_of_64_kib(stack, roomy_disk):
    _lower(stack)
    m = stack.mount()
    value = blob(65_536)
    os.setxattr(m / "f", "user.big", value)
    with fails_with(errno.E2BIG):
        os.setxattr(m / "f", "user.big", value + b"x")
    os.setxattr(m, "user.big", value)
    os.rename(m / "f", m / "g")
    m = stack.remount()
    assert os.getxattr(m / "g", "user.big") == value
    assert os.getxattr(m, "user.big") == value
    os.setxattr(m / "g", "user.big", b"", os.XATTR_REPLACE)
    assert os.getxattr(m / "g", "user.big") == b""


def test_list_of_64_kib(stack, roomy_disk):
    _lower(stack)
    m = stack.mount()
    names = [f"user.{number:0200}" for number in range(310)]
    for name in names:
        os.setxattr(m / "f", name, b"")
    assert sorted(os.listxattr(m / "f")) == names
    assert sorted(os.listxattr(stack.remount() / "f")) == names


@pytest.mark.needs_root("trusted attributes need the real root")
@pytest.mark.parametrize("is_copied", [False, True])
def test_trusted_attributes_are_listed_to_the_privileged_only(stack, plain, is_copied):
    path = _lower(stack, k=b"v")
    (plain / "f").write_bytes(b"")
    os.setxattr(plain / "f", "user.k", b"v")
    for file in (path, plain / "f"):
        os.setxattr(file, "trusted.mine", b"t")
    m = stack.mount()
    if is_copied:
        os.utime(m / "f")

    def look():
        for root in (m, plain):
            assert os.listxattr(root / "f") == ["user.k"], root
            with fails_with(errno.ENODATA):
                os.getxattr(root / "f", "trusted.mine")
            with fails_with(errno.EPERM):
                os.setxattr(root / "f", "trusted.new", b"")
            with fails_with(errno.EPERM):
                os.removexattr(root / "f", "trusted.mine")

    def in_a_container():
        linux.unshare(linux.CLONE_NEWUSER)
        for root in (m, plain):
            assert os.listxattr(root / "f") == ["user.k"], root
    in_child(look, uid=1000, gid=1000)
    in_child(in_a_container)
    for root in (m, plain):
        assert sorted(os.listxattr(root / "f")) == ["trusted.mine", "user.k"]
    assert _raw("listxattr", m / "f", ctypes.create_string_buffer(10), 10) == "ERANGE"


_OURS = ["trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy", "trusted.overlay.origin",
         "trusted.overlay.overlay.opaque", "user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy",
         "user.overlay.", "user.fuseoverlayfs.origin", "user.fuseoverlayfs.override_stat", "user.veneer.partial",
         "user.veneer.", "security.fuseoverlayfs.override_stat"]


@pytest.mark.parametrize("kind", ["file", "dir", "root", "made"])
def test_no_reserved_attribute_can_be_made_seen_or_removed(stack, kind):
    _lower(stack)
    (stack.lower() / "d").mkdir()
    set_below = []
    for name in _OURS:
        for path in (stack.lower() / "f", stack.lower() / "d"):
            if name.endswith((".opaque", ".redirect", ".metacopy", ".partial", "origin")):
                continue
            try:
                os.setxattr(path, name, b"0:0:0777")
                set_below.append(name)
            except OSError:
                pass
    assert set_below
    m = stack.mount()
    (m / "made").write_text("")
    path = {"file": m / "f", "dir": m / "d", "root": m, "made": m / "made"}[kind]
    for step in ("first", "copied up", "remounted", "frozen"):
        for name in _OURS:
            with fails_with(errno.EPERM):
                os.setxattr(path, name, b"y")
            with fails_with(errno.ENODATA):
                os.getxattr(path, name)
            with fails_with(errno.EPERM):
                os.removexattr(path, name)
        assert os.listxattr(path) == [], step
        os.utime(path)
        if step == "remounted":
            stack.freeze()
        if step in ("copied up", "remounted"):
            stack.remount()
    stack.umount()
    raw = stack.lowers[0] / path.relative_to(m)
    assert not [name for name in os.listxattr(raw) if name in set_below]


@pytest.mark.parametrize("state", ["lower", "copied up", "partial below"])
@pytest.mark.parametrize("change", ["chmod", "rename", "link", "utime", "setxattr", "rename twice"])
def test_capabilities_live_through_what_is_no_write(stack, state, change):
    os.setxattr(_lower(stack, size=100_000), "security.capability", _CAPABILITY)
    m = stack.mount()
    if state != "lower":
        os.utime(m / "f")
    if state == "partial below":
        stack.freeze()
        m = stack.mount()
    name = "f"
    if change == "chmod":
        os.chmod(m / "f", 0o711)
    elif change == "link":
        os.link(m / "f", m / "g")
        name = "g"
    elif change.startswith("rename"):
        os.rename(m / "f", m / "g")
        name = "g"
        if change == "rename twice":
            os.rename(m / "g", m / "h")
            name = "h"
    elif change == "utime":
        os.utime(m / "f", (1, 1))
    else:
        os.setxattr(m / "f", "user.k", b"v")
    for step in ("now", "remounted", "frozen"):
        assert os.getxattr(m / name, "security.capability") == _CAPABILITY, step
        if step == "remounted":
            stack.freeze()
        m = stack.remount()
    os.chown(m / name, 5, 5)
    assert not _capability(m / name)
