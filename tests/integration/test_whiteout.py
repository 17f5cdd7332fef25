# SPDX-License-Identifier: Apache-2.0
import errno
import os
import shutil
import stat

import pytest

from support import linux
from support.expect import exists, fails_with, names_in

_NO_DEVICES = {"FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT": "1"}


def _whiteout_device(directory, name):
    os.mknod(directory / name, stat.S_IFCHR | 0o600, 0)


def _whiteout_file(directory, name):
    (directory / f".wh.{name}").write_text("")


_WHITEOUTS = {"device": _whiteout_device, "file": _whiteout_file}
_OPAQUES = {
    "trusted": lambda d: os.setxattr(d, "trusted.overlay.opaque", b"y"),
    "user.overlay": lambda d: os.setxattr(d, "user.overlay.opaque", b"y"),
    "user.fuseoverlayfs": lambda d: os.setxattr(d, "user.fuseoverlayfs.opaque", b"y"),
    "file": lambda d: (d / ".wh..wh..opq").write_text(""),
}
every_whiteout = pytest.mark.parametrize("dialect", _WHITEOUTS)
every_opaque = pytest.mark.parametrize("dialect", _OPAQUES)
every_layer = pytest.mark.parametrize("layer", ["upper", "top lower"])
devices_or_not = pytest.mark.parametrize("env", [{}, _NO_DEVICES], ids=["devices", "no devices"])


def _layer(stack, layer):
    """The directory of a layer; below it are two lowers, 1 and 2."""
    stack.lower(2)
    return stack.upper if layer == "upper" else stack.lower(0)


@every_layer
@every_whiteout
@pytest.mark.parametrize("kind", ["file", "dir", "link"])
def test_whiteout_hides_every_kind_in_all_layers_below(stack, dialect, layer, kind):
    top = _layer(stack, layer)
    for i in (1, 2):
        path = stack.lower(i) / "x"
        {"file": lambda: path.write_text("x"), "link": lambda: path.symlink_to("y"),
         "dir": lambda: (path / "inner").mkdir(parents=True)}[kind]()
        (stack.lower(i) / "seen").write_text("")
    _WHITEOUTS[dialect](top, "x")
    m = stack.mount()
    assert names_in(m) == ["seen"]
    with fails_with(errno.ENOENT):
        os.lstat(m / "x")


@every_whiteout
def test_whiteout_in_the_middle_hides_only_what_is_below(stack, dialect):
    for i in range(3):
        (stack.lower(i) / "d").mkdir()
    (stack.lower(0) / "d" / "a").write_text("top")
    (stack.lower(2) / "d" / "a").write_text("bottom")
    (stack.lower(2) / "d" / "b").write_text("bottom")
    _WHITEOUTS[dialect](stack.lower(1) / "d", "b")
    _WHITEOUTS[dialect](stack.lower(1) / "d", "a")
    m = stack.mount()
    assert names_in(m / "d") == ["a"]
    assert (m / "d" / "a").read_text() == "top"


@every_whiteout
def test_whiteout_of_a_directory_in_the_middle_cuts_its_merge(stack, dialect):
    (stack.lower(0) / "d").mkdir()
    (stack.lower(0) / "d" / "new").write_text("")
    _WHITEOUTS[dialect](stack.lower(1), "d")
    (stack.lower(2) / "d").mkdir()
    (stack.lower(2) / "d" / "ghost").write_text("")
    assert names_in(stack.mount() / "d") == ["new"]


def test_whiteout_at_the_root_does_not_hide_the_name_deeper(stack):
    for i in (0, 1):
        (stack.lower(i) / "a").mkdir()
    (stack.lower(1) / "a" / "test").write_text("here")
    (stack.lower(1) / "test").write_text("gone")
    _whiteout_file(stack.lower(0), "test")
    m = stack.mount()
    assert (m / "a" / "test").read_text() == "here"
    assert not exists(m / "test")


def test_whiteout_wins_over_the_name_beside_it(stack):
    (stack.lower(0) / "f").write_text("same layer")
    _whiteout_file(stack.lower(0), "f")
    (stack.lower(1) / "f").write_text("below")
    assert not exists(stack.mount() / "f")


@every_layer
@every_opaque
def test_opaque_directory_hides_what_is_below(stack, dialect, layer):
    top = _layer(stack, layer)
    (top / "d").mkdir()
    (top / "d" / "own").write_text("")
    for i in (1, 2):
        (stack.lower(i) / "d" / "sub").mkdir(parents=True)
        (stack.lower(i) / "d" / "ghost").write_text("")
    try:
        _OPAQUES[dialect](top / "d")
    except PermissionError:
        pytest.skip("trusted attributes need the real root")
    m = stack.mount()
    assert names_in(m / "d") == ["own"]
    assert not exists(m / "d" / "ghost")
    (m / "d" / "sub").mkdir()
    assert names_in(m / "d" / "sub") == []


@every_opaque
def test_opaque_directory_in_the_middle_still_shows_itself_and_above(stack, dialect):
    for i in range(3):
        (stack.lower(i) / "d").mkdir()
        (stack.lower(i) / "d" / f"f{i}").write_text("")
    try:
        _OPAQUES[dialect](stack.lower(1) / "d")
    except PermissionError:
        pytest.skip("trusted attributes need the real root")
    assert names_in(stack.mount() / "d") == ["f0", "f1"]


@every_layer
def test_root_with_an_opaque_file_hides_all_that_is_below(stack, layer):
    top = _layer(stack, layer)
    (top / "d").mkdir()
    (top / "d" / "own").write_text("")
    for i in (1, 2):
        (stack.lower(i) / "d").mkdir()
        (stack.lower(i) / "d" / "ghost").write_text("below")
        (stack.lower(i) / "ghost").write_text("below")
    _OPAQUES["file"](top)
    m = stack.mount()
    for step in ("at once", "remounted", "frozen"):
        assert names_in(m) == ["d"], step
        assert names_in(m / "d") == ["own"], step
        (m / "ghost").write_text("new")
        assert (m / "ghost").read_text() == "new", step
        (m / "ghost").unlink()
        if step == "remounted":
            stack.freeze()
        m = stack.remount()


def test_opaque_value_other_than_y_is_ignored(stack):
    for i in (0, 1):
        (stack.lower(i) / "d").mkdir()
        (stack.lower(i) / "d" / f"f{i}").write_text("")
    os.setxattr(stack.lower(0) / "d", "user.overlay.opaque", b"n")
    assert names_in(stack.mount() / "d") == ["f0", "f1"]


def _as_overlayfs_shows(lowers, mnt, options):
    linux.mount("overlay", str(mnt), "overlay", 1, "lowerdir=" + ":".join(map(str, lowers)) + options)
    try:
        return _tree(mnt)
    finally:
        linux.umount(mnt)


def _tree(root):
    return sorted(os.path.relpath(os.path.join(at, name), root) for at, dirs, names in os.walk(root) for name in dirs + names)


@pytest.mark.parametrize("space", ["trusted", "user"])
def test_whiteout_that_is_a_file_hides_what_overlayfs_hides(stack, space):
    """Linux 6.7 and later: an empty file with an attribute, in a directory that is marked for it."""
    top, bottom = stack.lower(0), stack.lower(1)
    for place in ("", "d", "d/e", "unmarked"):
        for layer in (top, bottom):
            (layer / place).mkdir(exist_ok=True)
        for name in ("gone", "gone-dir/inner/file", "full", "kept"):
            (bottom / place / name).parent.mkdir(parents=True, exist_ok=True)
            (bottom / place / name).write_text(name)
        (top / place / "empty").write_text("")
        if place == "unmarked":
            continue
        try:
            os.setxattr(top / place, f"{space}.overlay.opaque", b"x")
        except PermissionError:
            pytest.skip("trusted attributes are root's")
        for name in ("gone", "gone-dir", "full"):
            (top / place / name).write_text("full" if name == "full" else "")
            os.setxattr(top / place / name, f"{space}.overlay.whiteout", b"")
    m = stack.mount()
    seen = _tree(m)
    assert [name for name in seen if name.startswith("d/e/")] == ["d/e/empty", "d/e/full", "d/e/kept"]
    assert [name for name in seen if "gone" in name and not name.startswith("unmarked/")] == []
    for place in ("", "d", "d/e"):
        for name in ("gone", "gone-dir", "gone-dir/inner"):
            with fails_with(errno.ENOENT):
                os.lstat(m / place / name)
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 8):
        (stack.base / "overlay").mkdir()
        assert seen == _as_overlayfs_shows([top, bottom], stack.base / "overlay", ",userxattr" if space == "user" else "")
    (m / "d" / "gone").write_text("again")
    (m / "d" / "gone-dir").mkdir()
    assert names_in(m / "d" / "gone-dir") == [] and (m / "d" / "gone").read_text() == "again"


@devices_or_not
def test_removal_writes_one_raw_whiteout(stack, env):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_text("")
    m = stack.mount(env=env)
    (m / "d" / "f").unlink()
    assert names_in(m / "d") == []
    stack.umount()
    names = names_in(stack.upper / "d")
    if env:
        assert names == [".wh.f"]
        assert stat.S_ISREG(os.lstat(stack.upper / "d" / ".wh.f").st_mode)
    else:
        assert names == ["f"]
        st = os.lstat(stack.upper / "d" / "f")
        assert stat.S_ISCHR(st.st_mode) and st.st_rdev == 0
    assert names_in(stack.mount() / "d") == []


@devices_or_not
def test_making_the_name_again_removes_the_whiteout(stack, env):
    for name in ("f", "d", "s"):
        (stack.lower() / name).write_text("")
    m = stack.mount(env=env)
    for name in ("f", "d", "s"):
        (m / name).unlink()
    (m / "f").write_text("again")
    (m / "d").mkdir()
    (m / "s").symlink_to("f")
    stack.umount()
    raw = [name for name in names_in(stack.upper) if not name.startswith(".wh..wh.")]
    assert raw == ["d", "f", "s"]
    assert (stack.upper / "f").read_text() == "again"
    m = stack.mount(env=env)
    assert names_in(m) == ["d", "f", "s"]


@devices_or_not
def test_no_whiteout_where_nothing_is_below(stack, env):
    (stack.lower() / "d").mkdir()
    m = stack.mount(env=env)
    (m / "d" / "f").write_text("")
    (m / "d" / "f").unlink()
    (m / "new").mkdir()
    (m / "new").rmdir()
    stack.umount()
    assert names_in(stack.upper / "d") == []
    assert [name for name in names_in(stack.upper) if not name.startswith(".wh..wh.")] == ["d"]


@devices_or_not
def test_removed_and_remade_lower_directory_is_empty_forever(stack, env):
    (stack.lower(1) / "d" / "sub").mkdir(parents=True)
    (stack.lower(0) / "d").mkdir()
    for directory in (stack.lower(0) / "d", stack.lower(1) / "d", stack.lower(1) / "d" / "sub"):
        (directory / "ghost").write_text("")
    m = stack.mount(env=env)
    shutil.rmtree(m / "d")
    assert not exists(m / "d")
    (m / "d").mkdir()
    (m / "d" / "new").write_text("")
    (m / "d" / "sub").mkdir()
    for step in ("at once", "remounted", "frozen", "frozen and remounted"):
        assert names_in(m / "d") == ["new", "sub"], step
        assert names_in(m / "d" / "sub") == [], step
        if step == "remounted":
            stack.freeze()
        m = stack.remount(env=env)


def test_remade_directory_carries_a_mark_other_programs_know(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "ghost").write_text("")
    m = stack.mount()
    shutil.rmtree(m / "d")
    (m / "d").mkdir()
    stack.umount()
    raw = stack.upper / "d"
    known = ("trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque")
    marks = [name for name in os.listxattr(raw)
             if name in known and os.getxattr(raw, name) == b"y"]
    assert marks or exists(raw / ".wh..wh..opq")
    if "trusted.overlay.opaque" not in marks:
        assert exists(raw / ".wh..wh..opq")


@devices_or_not
def test_whole_lower_tree_can_be_removed(stack, env):
    low = stack.lower()
    for i in range(10):
        (low / f"d{i}" / "sub").mkdir(parents=True)
        for j in range(20):
            (low / f"d{i}" / "sub" / f"f{j}").write_text("")
    m = stack.mount(env=env)
    for i in range(10):
        shutil.rmtree(m / f"d{i}")
    assert names_in(m) == []
    m = stack.remount(env=env)
    assert names_in(m) == []
    stack.freeze()
    assert names_in(stack.mount(env=env)) == []


@devices_or_not
def test_directory_of_whiteouts_can_be_removed_and_its_parent_too(stack, env):
    (stack.lower() / "a" / "b").mkdir(parents=True)
    (stack.lower() / "a" / "b" / "f").write_text("")
    m = stack.mount(env=env)
    (m / "a" / "b" / "f").unlink()
    (m / "a" / "b").rmdir()
    (m / "a").rmdir()
    assert names_in(m) == []
    assert names_in(stack.remount(env=env)) == []


def test_file_in_place_of_a_lower_directory_and_back(stack):
    (stack.lower() / "x").mkdir()
    (stack.lower() / "x" / "ghost").write_text("")
    m = stack.mount()
    shutil.rmtree(m / "x")
    (m / "x").write_text("file")
    m = stack.remount()
    assert (m / "x").read_text() == "file"
    (m / "x").unlink()
    (m / "x").mkdir()
    assert names_in(m / "x") == []
    assert names_in(stack.remount() / "x") == []
