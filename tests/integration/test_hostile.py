# SPDX-License-Identifier: Apache-2.0
"""Layers made by an enemy, every checksum right: EIO or nothing, never a byte from outside the stack."""
import errno
import os
import socket
import stat
import subprocess

import pytest

from support import forge, linux
from support.content import blob
from support.expect import exists, fails_with, names_in, write_at
from support.layers import options, tool
from support.rootless import is_inside
from support.server import MountFailed

_SECRET = b"the secret of the host " * 500
_SIZE = len(_SECRET)


def _read(path):
    """What a file reads as; None for the error that damage is."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        assert e.errno in (errno.EIO, errno.ENXIO), e
        return None


@pytest.fixture
def outside(stack):
    directory = stack.base / "outside"
    directory.mkdir()
    (directory / "secret").write_bytes(_SECRET)
    os.utime(directory / "secret", ns=(10**18, 10**18))
    return directory


def _forge_partial(layer, name, path, size=_SIZE, **more):
    """A file of the layer that is all hole and says that its bytes are at path."""
    (layer / name).parent.mkdir(parents=True, exist_ok=True)
    with open(layer / name, "wb") as f:
        f.truncate(size)
    os.setxattr(layer / name, forge.MARK_NAME, forge.mark(path, size=size, mtime_ns=10**18, **more))


def _put_secret(path, content=_SECRET):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(10**18, 10**18))


def _lower_with_targets(low, outside):
    """Things that a mark could mean, each made to look like what the mark says."""
    (low / "link").symlink_to(outside)
    (low / "rel").symlink_to("../outside")
    (low / "to-secret").symlink_to(outside / "secret")
    (low / "root").symlink_to("/")
    (low / "dir").mkdir()
    os.mkfifo(low / "fifo")
    _put_secret(low / "hidden", b"h" * _SIZE)
    _put_secret(low / "opaque" / "f", b"o" * _SIZE)
    _put_secret(low / "cut" / "f", b"c" * _SIZE)
    _put_secret(low / "target", b"t" * _SIZE)
    _put_secret(low / "sub" / "target", b"s" * _SIZE)


_NEVER = ["../outside/secret", "/etc/passwd", "sub/../../outside/secret", "link/secret", "rel/secret", "to-secret",
          "root/etc/passwd",
          "dir", "fifo", "hidden", "opaque/f", "cut/f", "nothing", "target/", "/target", "./target", "sub//target",
          "sub/.",
          ".", "..", "target/x", ".wh.x", forge.MAP_NAME, "x" * 256, "/".join(["d"] * 1200)]


@pytest.mark.parametrize("layer", ["upper", "lower"])
def test_forged_marks_lead_nowhere_but_to_files_of_the_stack(stack, outside, layer):
    top = stack.lower(0) if layer == "lower" else stack.upper
    middle = stack.lower(1 if layer == "lower" else 0)
    low = stack.lower(2 if layer == "lower" else 1)
    _lower_with_targets(low, outside)
    (middle / ".wh.hidden").write_text("")
    (middle / "opaque").mkdir()
    (middle / "opaque" / ".wh..wh..opq").write_text("")
    (middle / "cut").write_text("no directory")
    for number, path in enumerate(_NEVER):
        _forge_partial(top, f"f{number}", path)
    _forge_partial(top, "good", "target")
    _forge_partial(top, "deep/good", "sub/target")
    _forge_partial(top, "sub/target", "")
    (top / forge.MAP_NAME).write_bytes(forge.map_file([forge.record(forge.NEW, 1, _SIZE)]))
    m = stack.mount()
    for number, path in enumerate(_NEVER):
        assert _read(m / f"f{number}") is None, path
        with fails_with(errno.EIO):
            write_at(m / f"f{number}", b"x", 5)
        assert (m / f"f{number}").stat().st_size == _SIZE
    # the test is none if these are not read
    assert _read(m / "good") == b"t" * _SIZE
    assert _read(m / "deep" / "good") == _read(m / "sub" / "target") == b"s" * _SIZE
    for number in range(len(_NEVER)):
        (m / f"f{number}").unlink()
    assert not [name for name in names_in(stack.remount()) if name.startswith("f") and name != "fifo"]
    assert names_in(outside) == ["secret"]

_GUARD_VALUES = [b"vnr", b"", b"v", b"vnr\0", b"veneer", b"\0\4\0\0", b"\0\xff" * 100, b"/etc/passwd", b"x" * 1000]


def _forge_guards(layer, value, attribute, file_id):
    """Attributes that guard a partial file, where there is none; and a partial file with them."""
    (layer / "gdir" / "inside").mkdir(parents=True)
    (layer / "gdir" / "f").write_bytes(b"f" * _SIZE)
    (layer / "plain").write_bytes(b"p" * _SIZE)
    (layer / "hollow").write_bytes(b"")
    os.truncate(layer / "hollow", _SIZE)
    (layer / "empty").write_bytes(b"")
    (layer / "link").symlink_to("plain")
    _forge_partial(layer, "partial", "target", file_id=file_id)
    for name in ("gdir", "plain", "hollow", "empty", "partial", "link"):
        if name == "link" and attribute.startswith("user."):
            continue
        os.setxattr(layer / name, attribute, value, follow_symlinks=False)


@pytest.mark.parametrize("attribute", ["user.overlay.metacopy", "trusted.overlay.metacopy"])
@pytest.mark.parametrize("layer", ["upper", "lower"])
@pytest.mark.parametrize("redirect", [None, b"/", b"/secret", b"../outside/secret", b"target"])
def test_forged_guards_show_no_zeros_and_nothing_of_others(stack, outside, layer, attribute, redirect, veneer_bin):
    if attribute.startswith("trusted.") and is_inside():
        pytest.skip("trusted.* attributes take privileges")
    top = stack.lower(0) if layer == "lower" else stack.upper
    low = stack.lower(1 if layer == "lower" else 0)
    for name in ("target", "secret", "plain", "hollow"):
        _put_secret(low / name, name[:1].encode() * _SIZE)
    entries = [forge.record(forge.NEW, number + 1, _SIZE) for number in range(len(_GUARD_VALUES))]
    (top / forge.MAP_NAME).write_bytes(forge.map_file(entries))
    for number, value in enumerate(_GUARD_VALUES):
        (top / f"v{number}").mkdir()
        _forge_guards(top / f"v{number}", value, attribute, number + 1)
        if redirect is not None:
            for name in ("plain", "hollow", "partial"):
                os.setxattr(top / f"v{number}" / name, attribute.replace("metacopy", "redirect"), redirect)
    m = stack.mount()
    for number, value in enumerate(_GUARD_VALUES):
        d = m / f"v{number}"
        # a mark is believed whatever is beside it
        assert _read(d / "partial") == b"t" * _SIZE, value
        # what the kernel's overlayfs writes with privileges is followed, within the stack, as anywhere
        followed = {b"/secret": b"s" * _SIZE}.get(redirect) if attribute.startswith("trusted.") and value in (
            b"", b"\0\4\0\0") else None
        assert _read(d / "plain") == followed, value
        assert _read(d / "hollow") == followed, value
        assert (d / "gdir" / "f").read_bytes() == b"f" * _SIZE
        assert names_in(d / "gdir") == ["f", "inside"]
        assert os.readlink(d / "link") == "plain"
        assert os.listxattr(d / "gdir") == os.listxattr(d / "partial") == os.listxattr(d / "plain") == []
        write_at(d / "partial", b"new", 7)
        assert _read(d / "partial")[5:12] == b"ttnewtt"
        os.rename(d / "partial", d / "moved")
        assert _read(d / "moved")[5:12] == b"ttnewtt"
        (d / "plain").unlink()
        (d / "gdir").rename(d / "gone") if not is_inside() else None
    stack.umount()
    assert tool(veneer_bin, "check", "-o", options(stack.upper, stack.lowers)).returncode in (0, 1)


@pytest.mark.parametrize("kind", ["dir", "fifo", "link", "huge", "empty", "device"])
def test_something_else_in_the_place_of_the_map(stack, outside, kind):
    path = stack.lower(0) / forge.MAP_NAME
    if kind == "dir":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (outside / "map").write_bytes(forge.map_file([forge.record(forge.NEW, 1, _SIZE)]))
        path.symlink_to(outside / "map")
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("devices need the real root")
    else:
        path.write_bytes(b"")
        os.truncate(path, 1 << 40 if kind == "huge" else 0)
    _put_secret(stack.lower(1) / "f", b"t" * _SIZE)
    _forge_partial(stack.lower(0), "f", "")
    (stack.lower(0) / "g").write_text("fine")
    m = stack.mount()
    assert _read(m / "f") is None
    assert _read(m / "g") == b"fine"
    (m / "g").write_text("changed")
    assert _read(stack.remount() / "g") == b"changed"


_NEW = forge.record(forge.NEW, 1, _SIZE)
_MAPS = {
    "every block": [_NEW, forge.record(forge.OWN_RUN, 1, 0, 1 << 51)],
    "twice": [_NEW, _NEW],
    "unknown file": [forge.record(forge.OWN_RUN, 1, 0, 1)],
    "far chunk": [_NEW, forge.record(forge.OWN_BITS, 1, (1 << 44) - 1, 1, 1)],
    "chunk too far": [_NEW, forge.record(forge.OWN_BITS, 1, 1 << 44, 1, 1)],
    "largest clip": [forge.record(forge.NEW, 1, (1 << 63) - 1)],
    "clip too large": [forge.record(forge.NEW, 1, 1 << 63)],
    "no block": [_NEW, forge.record(forge.OWN_RUN, 1, 0, 0)],
    "id 0": [forge.record(forge.NEW, 0, 0), _NEW],
    "log record": [_NEW, forge.record(forge.GONE, 1)],
    "unknown record": [_NEW, forge.record(99, 1)],
    "many files": [forge.record(forge.NEW, number, _SIZE) for number in range(1, 20_001)],
}


@pytest.mark.parametrize("name", _MAPS)
@pytest.mark.parametrize("layer", ["upper", "lower"])
def test_forged_maps_give_the_layers_own_bytes_or_none(stack, name, layer):
    top = stack.lower(0) if layer == "lower" else stack.upper
    low = stack.lower(1 if layer == "lower" else 0)
    _put_secret(low / "f", b"t" * _SIZE)
    _forge_partial(top, "f", "")
    (top / "g").write_text("fine")
    (top / forge.MAP_NAME).write_bytes(forge.map_file(_MAPS[name]))
    try:
        m = stack.mount()
    except MountFailed as e:
        assert layer == "upper" and "map" in e.log
        return
    got = _read(m / "f")
    assert got is None or (len(got) == _SIZE and set(got) <= {0, ord("t")})
    assert _read(m / "g") == b"fine"
    (m / "new").write_text("new")
    assert names_in(stack.remount()) == ["f", "g", "new"]


_REDIRECTS = [b"../outside", b"/../outside", b"/sub/../../outside", b"/..", b"..", b".", b"/", b"", b"sub/dir",
              b"//sub", b"/sub/",
              b"/sub\0/../../outside", b"/link", b"/rel", b"/to-secret", b"/fifo", b"/nothing", b"/" + b"x" * 256,
              b"x" * 256,
              b"/" + b"d/" * 1500 + b"d", b"/hidden-dir", b"/.wh.x", b"/target", b"/target/x"]


@pytest.mark.parametrize("attribute", ["trusted.overlay.redirect", "user.overlay.redirect"])
@pytest.mark.parametrize("layer", ["upper", "lower"])
def test_forged_redirects_lead_nowhere_but_to_directories_of_the_stack(stack, outside, layer, attribute):
    top = stack.lower(0) if layer == "lower" else stack.upper
    middle = stack.lower(1 if layer == "lower" else 0)
    low = stack.lower(2 if layer == "lower" else 1)
    _lower_with_targets(low, outside)
    (low / "hidden-dir").mkdir()
    (low / "hidden-dir" / "ghost").write_text("")
    (middle / ".wh.hidden-dir").write_text("")
    for number, value in enumerate(_REDIRECTS):
        for directory in (top / f"d{number}", low / f"d{number}"):
            directory.mkdir()
            (directory / "own").write_text("")
        try:
            os.setxattr(top / f"d{number}", attribute, value)
        except OSError as e:
            assert e.errno in (errno.EPERM, errno.ENOSPC, errno.ERANGE)
            if e.errno == errno.EPERM:
                pytest.skip("trusted attributes need the real root")
    m = stack.mount()
    for number, value in enumerate(_REDIRECTS):
        try:
            seen = names_in(m / f"d{number}")
        except OSError as e:
            assert e.errno == errno.EIO, value
            continue
        assert seen == ["own"], value
    assert names_in(outside) == ["secret"]


_RESERVED = [".wh.", ".wh.x", ".wh..", ".wh...", ".wh..wh.", ".wh..wh..opq", ".wh..wh.x", ".wh..opq", forge.MAP_NAME,
             ".wh.there"]


def _calls(m, name):
    """Everything that could make a name."""
    path, there = m / name, m / "there"

    def bind():
        with socket.socket(socket.AF_UNIX) as s, open(os.devnull, "rb"):
            here = os.getcwd()
            os.chdir(m)
            try:
                s.bind(name)
            finally:
                os.chdir(here)
    return {"open": lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), "mkdir": lambda: os.mkdir(path),
            "excl": lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
            "fifo": lambda: os.mkfifo(path),
            "node": lambda: os.mknod(path, stat.S_IFREG | 0o600), "symlink": lambda: os.symlink("x", path),
            "link": lambda: os.link(there, path), "rename": lambda: os.rename(there, path),
            "rename dir": lambda: os.rename(m / "d", path), "rename made": lambda: os.rename(m / "made", path),
            "noreplace": lambda: linux.renameat2(there, path, linux.RENAME_NOREPLACE),
            "exchange": lambda: linux.renameat2(there, path, linux.RENAME_EXCHANGE), "bind": bind}


def _uses(m, name):
    """Everything that could show or take a name that is there in a layer."""
    path = m / name
    return {"stat": lambda: os.lstat(path), "open": lambda: os.close(os.open(path, os.O_RDONLY)),
            "unlink": lambda: os.unlink(path),
            "rmdir": lambda: os.rmdir(path), "rename": lambda: os.rename(path, m / "taken"),
            "link": lambda: os.link(path, m / "taken"),
            "below": lambda: os.lstat(path / "x"), "exchange": lambda: linux.renameat2(path, m / "there",
                                                                                       linux.RENAME_EXCHANGE),
            "setxattr": lambda: os.setxattr(path, "user.k", b"v"), "truncate": lambda: os.truncate(path, 0)}


@pytest.mark.parametrize("where", ["", "d", "made"])
@pytest.mark.parametrize("env", [{}, {"FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT": "1"}], ids=["devices", "no devices"])
def test_reserved_names_cannot_be_made_by_any_call(stack, where, env):
    for directory in (stack.lower(), stack.lower() / "d", stack.lower() / "d" / "d"):
        directory.mkdir(exist_ok=True)
        (directory / "there").write_text("there")
    m = stack.mount(env=env)
    (m / "made" / "d").mkdir(parents=True)
    (m / "made" / "there").write_text("there")
    for directory in (m, m / "d", m / "made"):
        (directory / "made").mkdir(exist_ok=True)
    before = names_in(m / where)
    for name in _RESERVED:
        for what, call in _calls(m / where, name).items():
            try:
                call()
            except OSError as e:
                assert e.errno in (errno.EINVAL, errno.EPERM, errno.ENOENT, errno.EXDEV, errno.EACCES), (what, name, e)
            else:
                raise AssertionError(f"{what} made {name}")
            assert names_in(m / where) == before, (what, name)
    assert (m / where / "there").read_text() == "there"
    assert names_in(stack.remount(env=env) / where) == before
    stack.umount()
    raw = names_in(stack.upper / where) if exists(stack.upper / where) else []
    assert {name for name in raw if name.startswith(".wh.")} <= {forge.MAP_NAME, ".wh..wh..opq"}


@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_reserved_names_that_a_layer_has_are_out_of_reach(stack, layer):
    top = stack.lower(0) if layer == "lower" else stack.upper
    stack.lower(0)
    for directory in (top, top / "d"):
        directory.mkdir(exist_ok=True)
        (directory / "there").write_text("there")
        for number, name in enumerate(_RESERVED):
            if name in (forge.MAP_NAME, ".wh.there", ".wh..wh..opq"):
                continue
            if number % 2:
                (directory / name).mkdir()
                (directory / name / "x").write_text("")
            else:
                (directory / name).write_text("reserved")
    before = {directory: names_in(directory) for directory in (top, top / "d")}
    m = stack.mount()
    for directory in (m, m / "d"):
        assert [name for name in names_in(directory) if name.startswith(".wh")] == []
        for name in _RESERVED:
            for what, use in _uses(directory, name).items():
                with fails_with(errno.ENOENT, errno.EINVAL):
                    use()
                    print(what, name)
        assert (directory / "there").read_text() == "there"
    stack.umount()
    if layer == "upper":
        for directory, names in before.items():
            assert [name for name in names_in(directory) if name != forge.MAP_NAME] == names


@pytest.mark.parametrize("kind", ["file", "dir", "link", "fifo", "socket"])
def test_whiteout_file_of_any_kind_hides_and_can_be_replaced(stack, kind):
    (stack.lower(1) / "x").write_text("below")
    path = stack.lower(0) / ".wh.x"
    if kind == "file":
        path.write_text("content")
    elif kind == "dir":
        path.mkdir()
        (path / "inner").write_text("")
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFSOCK | 0o600)
    m = stack.mount()
    assert names_in(m) == []
    (m / "x").write_text("new")
    assert names_in(stack.remount()) == ["x"]
    assert (m / "x").read_text() == "new"


def test_symlink_slipped_into_the_place_of_an_upper_directory(stack, outside):
    """Nobody but the host can do that; what happens then stays inside all the same."""
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "secret").write_bytes(blob(200_000))
    m = stack.mount()
    (m / "d" / "own").write_text("own")
    (m / "e" / "f").mkdir(parents=True)
    m = stack.remount()
    os.lstat(m / "d")
    os.lstat(m / "e" / "f")
    os.rename(stack.upper / "d", stack.base / "away")
    (stack.upper / "d").symlink_to(outside)
    os.rename(stack.upper / "e", stack.base / "away-e")
    (stack.upper / "e").symlink_to(outside)
    for action in (lambda: write_at(m / "d" / "secret", b"overwritten", 0), lambda: (m / "d" / "new").write_text("x"),
                   lambda: (m / "d" / "own").write_text("x"), lambda: (m / "e" / "f" / "new").write_text("x"),
                   lambda: os.chmod(m / "d" / "secret", 0o777), lambda: (m / "d" / "secret").unlink(),
                   lambda: os.rename(m / "d" / "own", m / "moved"), lambda: (m / "e" / "new").mkdir()):
        try:
            action()
        except OSError as e:
            assert e.errno in (errno.ESTALE, errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
    assert names_in(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == _SECRET
    assert stat.S_IMODE((outside / "secret").stat().st_mode) == 0o644


def test_symlinks_in_the_place_of_our_work_directories(stack, outside):
    (stack.work / "work").symlink_to(outside)
    with pytest.raises(MountFailed) as caught:
        stack.mount()
    assert caught.value.code == 1 and len(caught.value.log.strip().splitlines()) == 1
    assert names_in(outside) == ["secret"]
    (stack.work / "work").unlink()
    (stack.work / "work").mkdir()
    (stack.work / "work" / "veneer-0000000000000000").symlink_to(outside)
    m = stack.mount()
    (m / "f").write_text("fine")
    stack.umount()
    assert names_in(outside) == ["secret"]


@pytest.mark.parametrize("name", ["incompat", "incompat/volatile", "incompat/volatile/boot_id"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_something_else_in_the_place_of_the_volatile_mark(stack, outside, name, kind):
    path = stack.work / "work" / name
    path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(outside / "secret" if name.endswith("boot_id") else outside)
    with pytest.raises(MountFailed) as caught:
        stack.mount("volatile")
    assert caught.value.code == 1 and ("volatile" in caught.value.log or "workdir" in caught.value.log)
    assert names_in(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == _SECRET


def test_image_as_deep_as_a_path_can_be(stack):
    """And deeper: that is refused, and the rest works."""
    depth, name = 700, "d" * 7
    fd = os.open(stack.lower(), os.O_RDONLY)
    for level in range(depth):
        if level == 300:
            with open(os.open("f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd), "wb") as f:
                f.write(blob(100_000))
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    stack.remember_lowers = lambda: None  # too deep for it
    m = stack.mount()
    fd, depth_reached = os.open(m, os.O_RDONLY), 0
    try:
        for _ in range(depth):
            if depth_reached == 300:
                file = os.open("f", os.O_RDWR, dir_fd=fd)
                os.pwrite(file, b"x", 50_000)
                want = blob(100_000)[49_999:50_000] + b"x" + blob(100_000)[50_001:50_002]
                assert os.pread(file, 3, 49_999) == want
                os.rename("f", "g", src_dir_fd=fd, dst_dir_fd=fd)
                assert os.pread(file, 3, 49_999) == want
                os.close(file)
            below = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd, depth_reached = below, depth_reached + 1
    except OSError as e:
        assert e.errno == errno.ENAMETOOLONG
    os.close(fd)
    assert depth_reached > 480
    (m / "new").write_text("new")
    stack.umount()
    subprocess.run(["rm", "-rf", stack.lower(), stack.upper], check=True)  # shutil's cannot
    stack.lower().mkdir()


_LOST = {"missing layer": "lower", "missing file": "lower", "other size": "not what it was",
         "other time": "not what it was",
         "directory": "", "other layer": "not what it was"}


@pytest.mark.parametrize("fault", _LOST)
@pytest.mark.parametrize("place", ["upper", "lower"])
def test_partial_file_over_the_wrong_lower_is_eio_and_one_line(stack, place, fault):
    """The line names the file, the layer and what is wrong, and is there once."""
    (stack.lower(0) / "dir").mkdir()
    low = stack.lower(0) / "dir" / "file-of-interest"
    low.write_bytes(blob(100_000))
    write_at(stack.mount() / "dir" / "file-of-interest", b"x", 50_000)
    layer = stack.upper
    if place == "lower":
        layer = stack.freeze()
    else:
        stack.umount()
    stack.log_path.write_text("")
    base = low.parents[1]
    stack.forget_lower(base)
    if fault in ("missing layer", "other layer"):
        stack.lowers.remove(base)
        other = stack.base / "other"
        (other / "dir").mkdir(parents=True)
        if fault == "other layer":
            (other / "dir" / "file-of-interest").write_bytes(blob(99_999))
        stack.lowers.append(other)
        base = other
    elif fault == "other size":
        os.truncate(low, 99_999)
    elif fault == "other time":
        os.utime(low, (1, 1))
    else:
        low.unlink()
        if fault == "directory":
            low.mkdir()
    m = stack.mount()
    for _ in range(3):
        with fails_with(errno.EIO):
            (m / "dir" / "file-of-interest").read_bytes()
        with fails_with(errno.EIO):
            write_at(m / "dir" / "file-of-interest", b"x", 0)
    lines = [line for line in stack.log.splitlines() if "file-of-interest" in line]
    assert len(lines) == 1, stack.log
    assert "dir/file-of-interest" in lines[0]
    assert str(layer) in lines[0] or str(base) in lines[0]
    assert _LOST[fault] in lines[0]
