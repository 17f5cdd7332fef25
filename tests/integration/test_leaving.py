# SPDX-License-Identifier: Apache-2.0
"""Layers with partial files under the kernel's overlayfs, of a user that leaves veneer without `veneer flatten`: refused, never
zeros, and whole again for overlayfs as soon as they are whole."""
import contextlib
import errno
import os
import shutil
import stat

import pytest

from support import layers, linux
from support.content import KIB, MIB, blob
from support.expect import write_at
from support.rootless import is_inside, mode
from support.server import wait_until

_MARK = "user.veneer.partial"
_GUARDS = ["trusted.overlay.metacopy", "trusted.overlay.redirect", "user.overlay.metacopy"]
_WAYS = ["overlayfs", "metacopy=on", "metacopy=off"]


@contextlib.contextmanager
def _kernel(stack, lowers, *options, upper=None, work=None):
    """overlayfs as a user of these layers would mount it; in a user namespace it reads user.* attributes."""
    target = stack.base / "kernel"
    target.mkdir(exist_ok=True)
    data = ["lowerdir=" + ":".join(map(str, lowers))]
    data += [f"upperdir={upper}", f"workdir={work}"] if upper else []
    data += [option for option in options if option != "overlayfs"]
    data += ["userxattr"] if is_inside() else []
    try:
        linux.mount("overlay", str(target), "overlay", 0, ",".join(data))
    except OSError as e:
        if e.errno == errno.EINVAL and is_inside() and "metacopy=on" in options:
            pytest.skip("overlayfs has no metacopy in a user namespace")
        if e.errno in (errno.ENODEV, errno.EPERM):
            pytest.skip(f"no overlayfs here: {e}")
        raise
    try:
        yield target
    finally:
        linux.umount(str(target), linux.MNT_DETACH)


def _read(path):
    """Content, or None if it is refused. Whether looking up or reading refuses is the kernel's affair."""
    try:
        return path.read_bytes()
    except OSError as e:
        assert e.errno in (errno.EPERM, errno.EINVAL, errno.EIO), e
        return None


def _change(m):
    """Partial files of every kind, and the bytes of each; all others are plain."""
    write_at(m / "written", b"new", 500_000)
    os.chmod(m / "chmod", 0o600)
    os.utime(m / "times", ns=(1, 1))
    os.setxattr(m / "attribute", "user.note", b"n")
    os.rename(m / "moved", m / "other-name")
    os.rename(m / "moved-written", m / "dir" / "moved-written")
    write_at(m / "dir" / "moved-written", b"new", 10)
    os.link(m / "linked", m / "link")
    os.link(m / "linked-written", m / "dir" / "link-written")
    write_at(m / "dir" / "link-written", b"new", 10)
    os.truncate(m / "cut", 100_000)
    os.truncate(m / "grown", 3 * MIB)
    os.chmod(m / "small", 0o600)
    if mode() == "root":
        os.chown(m / "chown", 7, 7)
    else:
        os.chmod(m / "chown", 0o604)


def _fill(low):
    (low / "dir").mkdir()
    for name in ("written", "chmod", "chown", "times", "attribute", "moved", "moved-written", "linked", "linked-written",
                 "cut", "grown", "untouched", "dir/untouched"):
        (low / name).write_bytes(blob(MIB, len(name)))
    (low / "small").write_bytes(blob(700))


def _files(root):
    return sorted(os.path.relpath(os.path.join(directory, name), root)
                  for directory, _, files in os.walk(root) for name in files
                  if not name.startswith(".wh.") and stat.S_ISREG(os.lstat(os.path.join(directory, name)).st_mode))


def _attributes(root):
    return {name: [attr for attr in os.listxattr(root / name) if attr == _MARK or attr in _GUARDS] for name in _files(root)}


def _is_guarded(attributes):
    return (_GUARDS[0] if mode() == "root" else _GUARDS[2]) in attributes


def _assert_refused(mnt, want, partial):
    got = {name: _read(mnt / name) for name in want}
    wrong = [name for name, data in got.items() if data not in (want[name], None)]
    assert wrong == [], "wrong bytes"
    assert {name for name, data in got.items() if data is None} == partial


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("place", ["upper", "top lower", "lower under another"])
def test_overlayfs_refuses_partial_files(stack, way, place):
    _fill(stack.lower())
    m = stack.mount()
    _change(m)
    want = {name: (m / name).read_bytes() for name in _files(m)}
    stack.umount()
    attributes = _attributes(stack.upper)
    partial = {name for name, attrs in attributes.items() if _MARK in attrs}
    assert len(partial) >= 13 and all(_is_guarded(attributes[name]) for name in partial), attributes
    if place == "upper":
        with _kernel(stack, [stack.lower()], way, upper=stack.upper, work=stack.work) as mnt:
            _assert_refused(mnt, want, partial)
    else:
        above = [stack.upper] if place == "top lower" else [stack.base / "above", stack.upper]
        above[0].mkdir(exist_ok=True)
        with _kernel(stack, above + [stack.lower()], way) as mnt:
            _assert_refused(mnt, want, partial)
    m = stack.mount()
    assert {name: (m / name).read_bytes() for name in _files(m)} == want


def test_bottom_layer_that_is_all_there_is(stack):
    """A partial file of the lowest layer of an overlayfs mount, whose own lower is not in it."""
    _fill(stack.lower())
    m = stack.mount()
    _change(m)
    want = {name: (m / name).read_bytes() for name in _files(m)}
    stack.umount()
    partial = {name for name, attrs in _attributes(stack.upper).items() if _MARK in attrs}
    fresh, work = stack.base / "fresh", stack.base / "fresh-work"
    fresh.mkdir()
    work.mkdir()
    for way in _WAYS[:1] if is_inside() else _WAYS:
        with _kernel(stack, [stack.upper], way, upper=fresh, work=work) as mnt:
            _assert_refused(mnt, {name: want[name] for name in _files(stack.upper)}, partial)


def test_whole_files_have_no_guard(stack, veneer_bin):
    _fill(stack.lower())
    m = stack.mount()
    _change(m)
    want = {name: (m / name).read_bytes() for name in _files(m)}
    stack.umount()
    result = layers.flatten(veneer_bin, stack.upper, stack.lowers)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(attrs == [] for attrs in _attributes(stack.upper).values())
    with _kernel(stack, [stack.lower()], upper=stack.upper, work=stack.work) as mnt:
        assert {name: _read(mnt / name) for name in want} == want


def test_files_that_become_whole_in_use_lose_their_guard(stack):
    _fill(stack.lower())
    m = stack.mount("promote=eager")
    write_at(m / "written", b"y" * 900 * KIB, 0)
    assert wait_until(lambda: _attributes(stack.upper)["written"] == [], 30, 0.02)
    want = (m / "written").read_bytes()
    stack.umount()
    with _kernel(stack, [stack.lower()], upper=stack.upper, work=stack.work) as mnt:
        assert _read(mnt / "written") == want


def test_copies_without_blocks_of_others_have_no_guard(stack):
    _fill(stack.lower())
    m = stack.mount("cow=copy")
    _change(m)
    assert all(attrs == [] for attrs in _attributes(stack.upper).values())


@pytest.mark.needs_root("overlayfs with metacopy=on")
def test_metacopies_that_were_taken_over_are_guarded(stack):
    _fill(stack.lower())
    with _kernel(stack, [stack.lower()], "metacopy=on", "redirect_dir=on", upper=stack.upper, work=stack.work) as mnt:
        os.chmod(mnt / "chmod", 0o600)
        os.rename(mnt / "moved", mnt / "other-name")
    m = stack.mount()
    for name, old in (("chmod", "chmod"), ("other-name", "moved")):
        assert (m / name).read_bytes() == (stack.lower() / old).read_bytes()
        write_at(m / name, b"new", 10)
    stack.umount()
    for way in _WAYS:
        with _kernel(stack, [stack.lower()], way, upper=stack.upper, work=stack.work) as mnt:
            assert (_read(mnt / "chmod"), _read(mnt / "other-name")) == (None, None), way


def _strip(path, attributes):
    for name in attributes:
        with contextlib.suppress(OSError):
            os.removexattr(path, name)


def test_unguarded_files_are_read_found_and_guarded_again(stack, veneer_bin):
    """As an older version left them, or a copy of the layer without trusted.*."""
    _fill(stack.lower())
    m = stack.mount()
    write_at(m / "written", b"new", 500_000)
    want = (m / "written").read_bytes()
    stack.umount()
    _strip(stack.upper / "written", _GUARDS)
    assert (stack.mount() / "written").read_bytes() == want
    stack.umount()
    result = layers.check(veneer_bin, stack.upper, stack.lowers)
    assert result.returncode == 1 and "overlayfs would show zeros" in result.stdout
    layers.check(veneer_bin, stack.upper, stack.lowers, "--repair")
    assert _is_guarded(_attributes(stack.upper)["written"])
    assert layers.check(veneer_bin, stack.upper, stack.lowers).returncode == 0


def test_guard_without_a_mark_is_damage_and_not_zeros(stack, veneer_bin):
    _fill(stack.lower())
    m = stack.mount()
    write_at(m / "written", b"new", 500_000)
    os.chmod(m / "chmod", 0o600)
    stack.freeze()
    for name in ("written", "chmod"):
        os.removexattr(stack.lowers[0] / name, _MARK)
    m = stack.mount()
    for name in ("written", "chmod"):
        assert _read(m / name) is None
        with pytest.raises(OSError):
            write_at(m / name, b"x", 0)
    stack.umount()
    result = layers.check(veneer_bin, stack.lowers[0], stack.lowers[1:])
    assert result.returncode == 1 and "its mark is gone" in result.stdout


def test_attributes_of_the_guard_are_not_shown(stack):
    _fill(stack.lower())
    m = stack.mount()
    _change(m)
    for name in _files(m):
        assert all(attr == "user.note" for attr in os.listxattr(m / name))
    copy = stack.base / "copy"
    shutil.copy2(m / "written", copy)
    assert [attr for attr in os.listxattr(copy) if "overlay" in attr] == []


@pytest.mark.needs_root("trusted.* attributes")
def test_the_guard_for_older_kernels_is_refused_too(stack):
    """What is set besides before Linux 6.6, which does not look at the metacopy's value; here the value is one that all
    kernels take, so that only the redirect is left."""
    _fill(stack.lower())
    m = stack.mount()
    write_at(m / "written", b"new", 500_000)
    os.rename(m / "moved", m / "other-name")
    stack.umount()
    for name in ("written", "other-name"):
        os.setxattr(stack.upper / name, "trusted.overlay.redirect", b"/")
        os.setxattr(stack.upper / name, "trusted.overlay.metacopy", b"")
    for way in _WAYS:
        with _kernel(stack, [stack.lower()], way, upper=stack.upper, work=stack.work) as mnt:
            assert (_read(mnt / "written"), _read(mnt / "other-name")) == (None, None), way


def test_many_attributes_of_the_lower_file_leave_room_or_do_without(stack):
    """What fills all room for attributes that a file system has must not make the file unchangeable."""
    path = stack.lower() / "f"
    path.write_bytes(blob(300 * KIB))
    for size in range(3900, 0, -100):
        with contextlib.suppress(OSError):
            os.setxattr(path, "user.big", b"v" * size)
            break
    m = stack.mount()
    write_at(m / "f", b"new", 10)
    assert (m / "f").read_bytes()[8:14] == blob(300 * KIB)[8:10] + b"new" + blob(300 * KIB)[13:14]
    assert os.getxattr(m / "f", "user.big") == os.getxattr(path, "user.big")
