# SPDX-License-Identifier: Apache-2.0
"""Files and directories whose mode refuses their own owner: everything as an ordinary directory has it. Without privileges
(--plain) such a mode binds the server as well, which must do more with an object than was asked of it."""
import errno
import mmap
import os

import pytest

from support import layers, rootless
from support.content import blob
from support.expect import opened

_SIZES = {"small": 10_000, "large": 600_000}
_STATES = ["lower", "copied up", "partial below"]
_FILE_MODES = [0o444, 0o400, 0o555]
# Of a lower file what may not be read cannot be, by anybody.
_UNREADABLE = [0o222, 0o200, 0o000, 0o111]


def _outcome(action, path):
    try:
        return "ok", action(path)
    except OSError as e:
        return errno.errorcode[e.errno], None


def _shape(path):
    """The properties of a tree, as its owner sees it."""
    found = {}
    for root, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(root, name)
            st = os.lstat(full)
            where = os.path.relpath(full, path)
            found[where] = oct(st.st_mode), st.st_size if name in files else None, int(st.st_mtime) if st.st_mtime < 1.1e9 else 0
            if name in files and st.st_mode & 0o400:
                with open(full, "rb") as f:
                    found[where] += (hash(f.read()),)
                found[where] += (tuple(sorted((a, os.getxattr(full, a)) for a in os.listxattr(full) if a.startswith("user."))),)
    return found


def _rename(path):
    os.rename(path, f"{path}-moved")


def _link(path):
    os.link(path, f"{path}-linked")


def _touch(path):
    os.utime(path, (1_000_000_000, 1_000_000_001))


def _write(path):
    with opened(path, os.O_WRONLY) as fd:
        os.pwrite(fd, b"new", 5000)


def _append(path):
    with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"new")


def _truncate(path):
    os.truncate(path, 100)


def _mark(path):
    os.setxattr(path, "user.second", b"2")


def _rewrite_by_way_of_chmod(path):
    os.chmod(path, 0o644)
    _write(path)
    os.chmod(path, 0o444)


def _replace(path):
    with open(f"{path}-new", "wb") as f:
        f.write(b"new")
    os.chmod(f"{path}-new", 0o444)
    os.rename(f"{path}-new", path)


def _move_elsewhere(path):
    os.rename(path, os.path.join(os.path.dirname(path), "dir", "moved"))


_ACTIONS = {
    "chmod more": lambda path: os.chmod(path, 0o640), "chmod less": lambda path: os.chmod(path, 0), "rename": _rename,
    "link": _link, "touch": _touch, "write": _write, "append": _append, "truncate": _truncate, "setxattr": _mark,
    "removexattr": lambda path: os.removexattr(path, "user.first"), "unlink": os.unlink, "replace": _replace,
    "chmod, write, chmod": _rewrite_by_way_of_chmod, "move": _move_elsewhere,
}


def _make(path, mode, size):
    (path / "dir").mkdir(parents=True)
    (path / "x").write_bytes(blob(size))
    os.setxattr(path / "x", "user.first", b"1")
    os.utime(path / "x", (900_000_000, 900_000_000))
    (path / "x").chmod(mode)


def _change(path):
    st = os.lstat(path)
    os.chmod(path, 0o600)
    with opened(path, os.O_WRONLY) as fd:
        os.pwrite(fd, b"changed", 300)
    os.utime(path, (900_000_000, 900_000_000))
    os.chmod(path, st.st_mode & 0o7777)


def _compare(actions, m, plain):
    """Each action in a directory of its own."""
    for name, action in actions.items():
        got, want = (_outcome(action, str(place / name / "x")) for place in (m, plain))
        assert got == want, name


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize("size", _SIZES)
def test_read_only_file_changes_as_in_a_directory(stack, plain, state, size):
    for name in _ACTIONS:
        for place in (stack.lower(), plain):
            _make(place / name, 0o444, _SIZES[size])
    m = stack.mount()
    for name in _ACTIONS if state != "lower" else ():
        for place in (m, plain):
            _change(place / name / "x")
    if state == "partial below":
        stack.freeze()
        stack.mount()
    _compare(_ACTIONS, m, plain)
    assert _shape(m) == _shape(plain)
    stack.remount()
    assert _shape(m) == _shape(plain)


@pytest.mark.parametrize("mode", _FILE_MODES + _UNREADABLE)
def test_mode_that_refuses_the_owner_is_as_in_a_directory(stack, plain, mode):
    """Of a file of the upper: what is in it stays, whatever its mode was meanwhile."""
    actions = {name: _ACTIONS[name] for name in ("chmod more", "rename", "link", "touch", "write", "unlink", "replace")}
    for name in actions:
        for place in (stack.lower(), plain):
            _make(place / name, 0o644, _SIZES["large"])
    m = stack.mount()
    for place in (m, plain):
        for name in actions:
            _change(place / name / "x")
            os.chmod(place / name / "x", mode)
    stack.remount()
    _compare(actions, m, plain)
    for place in (m, plain):
        for name in actions:
            for entry in os.listdir(place / name):
                if entry != "dir":
                    os.chmod(place / name / entry, 0o644)
    assert _shape(m) == _shape(plain)
    stack.remount()
    assert _shape(m) == _shape(plain)


@pytest.mark.parametrize("mode", [0o444, 0o000, 0o200])
@pytest.mark.parametrize("is_reopened", [False, True])
def test_open_file_goes_on_when_its_mode_goes(stack, plain, mode, is_reopened):
    for place in (stack.lower(), plain):
        _make(place, 0o644, _SIZES["large"])
    m = stack.mount()
    for place in (m, plain):
        with opened(place / "x", os.O_RDWR) as fd:
            if is_reopened:
                os.pwrite(fd, b"before", 4000)
            os.chmod(place / "x", mode)
            if is_reopened:
                os.stat(place / "dir")
            os.pwrite(fd, b"after", 9000)
            os.ftruncate(fd, 500_000)
            assert os.pread(fd, 5, 9000) == b"after"
            os.fsync(fd)
        assert os.lstat(place / "x").st_mode & 0o7777 == mode
        os.chmod(place / "x", 0o600)
    assert (m / "x").read_bytes() == (plain / "x").read_bytes()


@pytest.mark.unshared("what maps a file keeps what it mapped")
def test_mapping_of_a_file_whose_mode_goes_is_written(stack, plain):
    for place in (stack.lower(), plain):
        _make(place, 0o644, _SIZES["large"])
    m = stack.mount()
    for place in (m, plain):
        with opened(place / "x", os.O_RDWR) as fd, mmap.mmap(fd, 0) as mapped:
            os.chmod(place / "x", 0)
            mapped[5000:5003] = b"new"
            mapped.flush()
        os.chmod(place / "x", 0o600)
    assert (m / "x").read_bytes() == (plain / "x").read_bytes()


# ---- directories ----

def _make_tree(path, mode):
    inner = path / "d" / "inner"
    inner.mkdir(parents=True)
    (path / "other").mkdir()
    for k in range(3):
        (path / "d" / f"f{k}").write_bytes(blob(_SIZES["large"], k))
    (path / "d" / "ro").write_bytes(blob(5000, 9))
    (path / "d" / "ro").chmod(0o444)
    (inner / "deep").write_bytes(blob(8000, 10))
    os.link(path / "d" / "f2", path / "other" / "f2")
    os.setxattr(path / "d", "user.first", b"1")
    for name in ("d/inner", "d"):
        os.utime(path / name, (900_000_000, 900_000_000))
        (path / name).chmod(mode)


def _write_in(name):
    return lambda place: _write(f"{place}/{name}")


def _make_in(place):
    with open(f"{place}/d/new", "wb") as f:
        f.write(b"new")


def _remake(place):
    os.rename(f"{place}/d", f"{place}/e")
    os.mkdir(f"{place}/d", 0o555)


def _unlock_and_remove(place):
    os.chmod(f"{place}/d", 0o755)
    os.chmod(f"{place}/d/inner", 0o755)
    os.unlink(f"{place}/d/inner/deep")
    os.rmdir(f"{place}/d/inner")
    for name in ("f0", "f1", "f2", "ro"):
        os.unlink(f"{place}/d/{name}")
    os.chmod(f"{place}/d", 0o555)
    os.rmdir(f"{place}/d")
    os.mkdir(f"{place}/d", 0o555)


_IN_DIRECTORY = {
    "write": _write_in("d/f0"), "write read-only": _write_in("d/ro"), "write deep": _write_in("d/inner/deep"),
    "write linked": _write_in("other/f2"), "touch": lambda place: _touch(f"{place}/d/ro"),
    "chmod": lambda place: os.chmod(f"{place}/d/f1", 0o400), "chmod it": lambda place: os.chmod(f"{place}/d", 0o511),
    "touch it": lambda place: _touch(f"{place}/d"), "setxattr it": lambda place: os.setxattr(f"{place}/d", "user.second", b"2"),
    "make": _make_in, "unlink": lambda place: os.unlink(f"{place}/d/f0"), "rename it": _remake,
    "rename into another": lambda place: os.rename(f"{place}/d", f"{place}/other/d"),
    "remove all": _unlock_and_remove, "unlink link": lambda place: os.unlink(f"{place}/other/f2"),
}




@pytest.mark.parametrize("is_frozen", [False, True])
def test_read_only_directory_changes_as_elsewhere(stack, plain, is_frozen):
    for name in _IN_DIRECTORY:
        for place in (stack.lower(), plain):
            _make_tree(place / name, 0o555)
    m = stack.mount()
    for name in _IN_DIRECTORY if is_frozen else ():
        for place in (m, plain):
            os.chmod(place / name / "d", 0o555)
            _write(f"{place / name}/d/f1")
    if is_frozen:
        stack.freeze()
        stack.mount()
    for name, action in _IN_DIRECTORY.items():
        got, want = (_outcome(action, place / name) for place in (m, plain))
        assert got == want, name
    assert _times_aside(_shape(m)) == _times_aside(_shape(plain))
    stack.remount()
    assert _times_aside(_shape(m)) == _times_aside(_shape(plain))


def _times_aside(shape):
    return {name: (what[0], *what[1:2], *what[3:]) for name, what in shape.items()}


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o311, 0o555])
def test_what_is_open_in_a_directory_is_written_after_its_mode_went(stack, plain, mode):
    for place in (stack.lower(), plain):
        _make_tree(place, 0o755)
    m = stack.mount()
    for place in (m, plain):
        with opened(place / "d" / "f0", os.O_RDWR) as fd:
            os.chmod(place / "d", mode)
            os.pwrite(fd, b"new", 7000)
            os.fchmod(fd, 0o640)
        assert os.lstat(place / "d").st_mode & 0o7777 == mode
    stack.remount()
    for place in (m, plain):
        assert os.lstat(place / "d").st_mode & 0o7777 == mode
        os.chmod(place / "d", 0o755)
    assert _times_aside(_shape(m)) == _times_aside(_shape(plain))


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o500])
def test_new_objects_of_any_mode(stack, plain, mode):
    """Over a whiteout, too, where they are made elsewhere first."""
    for place in (stack.lower(), plain):
        (place / "gone").mkdir()
        (place / "file").write_bytes(b"old")
    m = stack.mount()
    for place in (m, plain):
        os.rmdir(place / "gone")
        os.unlink(place / "file")
        for name in ("gone", "new"):
            os.mkdir(place / name, mode)
        for name in ("file", "other"):
            with opened(place / name, os.O_CREAT | os.O_WRONLY, mode) as fd:
                os.write(fd, b"new")
    for _ in range(2):
        for name in ("gone", "new", "file", "other"):
            assert os.lstat(m / name).st_mode == os.lstat(plain / name).st_mode, name
        stack.remount()
    for place in (m, plain):
        for name in ("gone", "new", "file", "other"):
            os.chmod(place / name, 0o700)
    assert _times_aside(_shape(m)) == _times_aside(_shape(plain))
    for place in (m, plain):
        os.rmdir(place / "gone")


def test_killed_server_leaves_what_was_written_to_files_that_refuse_their_owner(stack):
    """And what is in directories that do: nothing that was written may be the lower file's again."""
    low = stack.lower()
    for name in ("file", "dir/file"):
        (low / name).parent.mkdir(exist_ok=True)
        (low / name).write_bytes(blob(_SIZES["large"]))
    m = stack.mount()
    for name in ("file", "dir/file"):
        with opened(m / name, os.O_WRONLY) as fd:
            os.pwrite(fd, b"n" * 8192, 8192)
    os.chmod(m / "file", 0)
    os.chmod(m / "dir", 0)
    if rootless.mode() != "plain":
        os.sync()
    stack.server.kill()
    stack.mount()
    for name in ("file", "dir"):
        assert os.lstat(m / name).st_mode & 0o7777 == 0
        os.chmod(m / name, 0o700)
    for name in ("file", "dir/file"):
        with opened(m / name) as fd:
            assert os.pread(fd, 8192, 8192) == b"n" * 8192


# ---- what is done to whole layers ----

def _change_everything(m):
    for name in ("f0", "f1", "f2", "ro", "inner/deep"):
        os.chmod(m / "d" / name, 0o600)
        with opened(m / "d" / name, os.O_WRONLY) as fd:
            os.pwrite(fd, b"changed", 4000)
        os.utime(m / "d" / name, (900_000_000, 900_000_000))
    for name, mode in {"f0": 0o444, "f1": 0, "f2": 0o200, "ro": 0o555, "inner/deep": 0o400}.items():
        os.chmod(m / "d" / name, mode)


def test_flattened_layer_is_what_was_seen(stack, plain, veneer_bin):
    """A moved directory, too, in which what is below is copied."""
    for place in (stack.lower(), plain):
        _make_tree(place, 0o755)
    m = stack.mount()
    for place in (m, plain):
        _change_everything(place)
        os.chmod(place / "d" / "inner", 0o555)
        os.rename(place / "d", place / "other" / "d")
        os.unlink(place / "other" / "d" / "ro")
        os.chmod(place / "other" / "d", 0o500)
    modes = {name: what[0] for name, what in _shape(plain).items()}
    stack.umount()
    result = layers.flatten(veneer_bin, stack.upper, stack.lowers)
    assert result.returncode == 0, result.stderr
    raw = _shape(stack.upper)
    assert {name: raw[name][0] for name in modes} == modes
    for place in (plain, stack.upper):
        os.chmod(place / "other" / "d", 0o755)
        for name in ("f0", "f1", "f2"):
            os.chmod(place / "other" / "d" / name, 0o644)
            assert (place / "other" / "d" / name).read_bytes() == (plain / "other" / "d" / name).read_bytes(), name
            assert os.listxattr(place / "other" / "d" / name) == []
