# SPDX-License-Identifier: Apache-2.0
"""Set-id bits, capabilities, groups, ACLs and umasks: everything as an ordinary directory has it.

Each test makes the same objects in a lower and in an ordinary directory, does the same in the mount
and there, and compares what came of it: at once, after a remount, and from the frozen upper."""
import ctypes
import errno
import json
import mmap
import os
import struct

import pytest

from support import acl, linux
from support.child import in_child
from support.content import blob
from support.expect import opened

_libc = ctypes.CDLL(None, use_errno=True)
_CAP_FSETID = 4
_SIZE = 40_000
_CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
_NAMES = ("security.capability", acl.ACCESS, acl.DEFAULT, "user.k")
_STATES = ["lower", "copied up", "partial below"]


def _drop_fsetid():
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    assert _libc.capget(header, data) == 0
    for set_number in (0, 1):
        data[set_number] &= ~(1 << _CAP_FSETID)
    assert _libc.capset(header, data) == 0


def _xattrs(path):
    found = {}
    for name in _NAMES:
        try:
            found[name] = os.getxattr(path, name, follow_symlinks=False).hex()
        except OSError as e:
            found[name] = errno.errorcode[e.errno]
    return found


def _state(path):
    try:
        st = os.lstat(path)
    except FileNotFoundError:
        return None
    return {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "rdev": st.st_rdev, **_xattrs(path)}


def _outcome(action, path):
    try:
        action(path)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]


class Arena:
    """The same tree in a lower and in an ordinary directory."""

    def __init__(self, stack, plain):
        self.stack, self.plain, self.names = stack, plain, []

    def make(self, build):
        for root in (self.stack.lower(), self.plain):
            os.chmod(root, 0o777)
            build(root)

    def mount(self, state, *options):
        """Bring what was built into that state."""
        self.options = options
        m = self.stack.mount(*options)
        if state != "lower":
            for directory, _, names in os.walk(m):
                for name in names:
                    os.utime(os.path.join(directory, name), (1, 1), follow_symlinks=False)
        if state == "partial below":
            self.stack.freeze()
            m = self.stack.mount(*options)
        os.chmod(m, 0o777)
        return m

    def run(self, work, **who):
        """work(root) as that caller in both; what it returns must be alike."""
        results = []
        for root in (self.stack.mnt, self.plain):
            note = self.plain.parent / "note"
            note.write_text("")
            note.chmod(0o666)
            in_child(lambda root=root, note=note: note.write_text(json.dumps(work(root))), **who)
            results.append(json.loads(note.read_text()))
            note.unlink()
        if isinstance(results[0], dict):
            different = {key: (got, results[1][key]) for key, got in results[0].items() if got != results[1][key]}
            assert not different, f"(mount, directory): {different}"
        assert results[0] == results[1]

    def compare(self):
        """Now, remounted, and from the frozen upper."""
        for step in ("at once", "remounted", "frozen"):
            bad = []
            for directory, dirs, names in os.walk(self.plain):
                for name in dirs + names:
                    path = os.path.relpath(os.path.join(directory, name), self.plain)
                    got, want = _state(self.stack.mnt / path), _state(self.plain / path)
                    if got != want:
                        got = got or {}
                        bad.append(f"{path}: " + ", ".join(f"{key} {got.get(key)} not {value}"
                                                           for key, value in want.items() if got.get(key) != value))
            assert not bad, f"{step}, {len(bad)} differ:\n" + "\n".join(bad[:40])
            if step == "remounted":
                self.stack.freeze()
            if step != "frozen":
                self.stack.remount(*self.options)


@pytest.fixture
def arena(stack, plain):
    return Arena(stack, plain)


def _write(off):
    def write(path):
        with opened(path, os.O_WRONLY) as fd:
            os.pwrite(fd, b"w", off)
    return write


def _append(path):
    with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"w")


def _no_write(path):
    with opened(path, os.O_WRONLY):
        pass


def _falloc(mode):
    def allocate(path):
        with opened(path, os.O_RDWR) as fd:
            linux.fallocate(fd, mode, 0, 8192)
    return allocate


def _store(path):
    with opened(path, os.O_RDWR) as fd:
        with mmap.mmap(fd, _SIZE) as m:
            m[0:1] = b"m"
            m.flush()


def _truncate_open(path):
    with opened(path, os.O_WRONLY | os.O_TRUNC):
        pass


_PUNCH = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE
_ACL = acl.encode((acl.USER_OBJ, 7), (acl.USER, 4, 1234), (acl.GROUP_OBJ, 5), (acl.MASK, 5), (acl.OTHER, 5))
_OPERATIONS = {
    "write": _write(0), "write-far": _write(_SIZE - 1), "append": _append, "extend": _write(_SIZE + 9000),
    "open": _no_write, "open-trunc": _truncate_open, "empty": lambda p: os.truncate(p, 0),
    "cut": lambda p: os.truncate(p, 5000), "grow": lambda p: os.truncate(p, _SIZE + 1),
    "same-size": lambda p: os.truncate(p, _SIZE), "falloc": _falloc(0), "punch": _falloc(_PUNCH), "store": _store,
    "chown": lambda p: os.chown(p, 5, 6), "chown-same": lambda p: os.chown(p, os.stat(p).st_uid, os.stat(p).st_gid),
    "chown-uid": lambda p: os.chown(p, 7, -1), "chgrp": lambda p: os.chown(p, -1, 1001),
    "chmod-0": lambda p: os.chmod(p, 0), "chmod-6755": lambda p: os.chmod(p, 0o6755),
    "chmod-2640": lambda p: os.chmod(p, 0o2640), "rename": lambda p: os.rename(p, p + ".renamed"),
    "link": lambda p: os.link(p, p + ".linked"), "utime": lambda p: os.utime(p), "setxattr":
    lambda p: os.setxattr(p, "user.k", b"v"), "acl": lambda p: os.setxattr(p, acl.ACCESS, _ACL),
    "remove-acl": lambda p: os.removexattr(p, acl.ACCESS),
    "remove-cap": lambda p: os.removexattr(p, "security.capability"),
    "set-cap": lambda p: os.setxattr(p, "security.capability", _CAPABILITY),
    "security": lambda p: os.setxattr(p, "security.other", b"v"),
}
# mode, owner, group, has capabilities
_OBJECTS = {
    "plain": (0o777, 1000, 1000, False), "suid": (0o4755, 0, 0, False), "suid-all": (0o4777, 1000, 1000, False),
    "sgid-all": (0o2777, 1000, 1000, False), "lock": (0o2666, 1000, 1000, False), "both": (0o6777, 1000, 1000, False),
    "other-group": (0o6777, 1000, 3000, False), "lock-other-group": (0o2666, 1000, 3000, False),
    "caps": (0o777, 1000, 1000, True), "all": (0o6777, 0, 0, True),
}
_CALLERS = {
    "root": {}, "root-without-fsetid": {}, "owner": {"uid": 1000, "gid": 1000},
    "owner-in-two": {"uid": 1000, "gid": 1000, "groups": (1000, 1001)}, "stranger": {"uid": 2000, "gid": 2000},
}


def _put(path, mode, uid, gid, has_caps):
    path.write_bytes(blob(_SIZE))
    os.chown(path, uid, gid)
    path.chmod(mode)
    if has_caps:
        os.setxattr(path, "security.capability", _CAPABILITY)


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize("caller", _CALLERS)
def test_every_change_by_every_caller_leaves_what_a_directory_has(arena, state, caller):
    names = [(kind, op) for kind in _OBJECTS for op in _OPERATIONS]

    def build(root):
        for kind, op in names:
            _put(root / f"{kind}.{op}", *_OBJECTS[kind])

    def work(root):
        if caller == "root-without-fsetid":
            _drop_fsetid()
        return {f"{kind}.{op}": _outcome(_OPERATIONS[op], f"{root}/{kind}.{op}") for kind, op in names}

    arena.make(build)
    arena.mount(state)
    arena.run(work, **_CALLERS[caller])
    arena.compare()


_DEFAULT = acl.encode((acl.USER_OBJ, 7), (acl.USER, 6, 1000), (acl.GROUP_OBJ, 5), (acl.MASK, 7), (acl.OTHER, 1))
_MINIMAL = acl.encode((acl.USER_OBJ, 6), (acl.GROUP_OBJ, 4), (acl.OTHER, 0))
# mode, group, default ACL of the directory that things are made in
_PARENTS = {
    "plain": (0o777, 0, None), "sgid": (0o2777, 3000, None), "sgid-own": (0o2777, 1000, None),
    "sticky": (0o1777, 0, None), "acl": (0o777, 0, _DEFAULT), "minimal-acl": (0o777, 0, _MINIMAL),
    "sgid-acl": (0o2777, 3000, _DEFAULT),
}
_MODES = (0o777, 0o666, 0o640, 0o2775, 0o4711, 0o1770, 0o6777)
_UMASKS = (0, 0o022, 0o077, 0o777)


def _make_nameless(path, mode):
    with opened(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, mode) as fd:
        os.link(f"/proc/self/fd/{fd}", path, follow_symlinks=True)


def _make_all(directory):
    """One of each kind and mode, and at names that whiteouts hide."""
    done = {}
    for mode in _MODES:
        for lead in ("new", "again"):
            if lead == "again" and mode not in (0o777, 0o2775):
                continue
            name = f"{directory}/{lead}-{mode:o}"
            done[name[-12:] + "f"] = _outcome(lambda p: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                                                                         mode)),
                                              name + "-file")
            done[name[-12:] + "d"] = _outcome(lambda p: os.mkdir(p, mode), name + "-dir")
            done[name[-12:] + "p"] = _outcome(lambda p: os.mkfifo(p, mode), name + "-fifo")
            done[name[-12:] + "s"] = _outcome(lambda p: os.mknod(p, 0o140000 | mode), name + "-sock")
            done[name[-12:] + "r"] = _outcome(lambda p: os.mknod(p, 0o100000 | mode), name + "-reg")
        done[f"{mode:o}t"] = _outcome(lambda p: _make_nameless(p, mode), f"{directory}/nameless-{mode:o}")
    done["l"] = _outcome(lambda p: os.symlink("x", p), f"{directory}/link")
    done["b"] = _outcome(lambda p: os.mkdir(p), f"{directory}/new-777-dir/below")
    return done


def _make_in_both(arena, caller, umask, is_in_upper, *options):
    kinds = ("file", "dir", "fifo", "sock", "reg")

    def build(root):
        for name, (mode, gid, default) in _PARENTS.items():
            (root / name).mkdir()
            os.chown(root / name, 0, gid)
            (root / name).chmod(mode)
            if default:
                os.setxattr(root / name, acl.DEFAULT, default)
            for again in (0o777, 0o2775):
                for kind in kinds:
                    (root / name / f"again-{again:o}-{kind}").mkdir()

    def clear(root):
        for name in _PARENTS:
            for entry in list(os.scandir(root / name)):
                os.rmdir(entry)

    def work(root):
        if caller == "root-without-fsetid":
            _drop_fsetid()
        return {f"{name}/{key}": value for name in _PARENTS for key, value in _make_all(f"{root}/{name}").items()}

    if is_in_upper:
        arena.make(lambda root: None)
        m = arena.mount("lower", *options)
        build(m)
        build(arena.plain)
    else:
        arena.make(build)
        m = arena.mount("lower", *options)
    clear(m)
    clear(arena.plain)
    arena.run(work, umask=umask, **_CALLERS[caller])
    arena.compare()


@pytest.mark.parametrize("is_in_upper", [False, True], ids=["lower", "upper"])
@pytest.mark.parametrize("umask", _UMASKS, ids=oct)
@pytest.mark.parametrize("caller", ["root", "root-without-fsetid", "owner", "owner-in-two"])
def test_new_objects_are_made_as_in_a_directory(arena, caller, umask, is_in_upper):
    _make_in_both(arena, caller, umask, is_in_upper)


@pytest.mark.needs_privileges("gives files to others")
@pytest.mark.parametrize("caller, umask, is_in_upper", [("root", 0o027, False), ("owner", 0, True), ("owner", 0o027, False)])
def test_new_objects_with_modes_in_attributes_are_made_as_in_a_directory(arena, caller, umask, is_in_upper):
    _make_in_both(arena, caller, umask, is_in_upper, "xattr_permissions=2")


@pytest.mark.needs_root("security.* attributes of the host")
def test_new_objects_with_modes_in_attributes_of_root_are_made_as_in_a_directory(arena):
    _make_in_both(arena, "owner", 0o027, True, "xattr_permissions=1")


@pytest.mark.parametrize("state", ["lower", "copied up"])
def test_default_acls_come_and_go(arena, state):
    def build(root):
        (root / "d" / "sub").mkdir(parents=True)
        (root / "d" / "f").write_text("")

    def work(root):
        done = {}
        done["set"] = _outcome(lambda p: os.setxattr(p, acl.DEFAULT, _DEFAULT), f"{root}/d")
        done["on a file"] = _outcome(lambda p: os.setxattr(p, acl.DEFAULT, _DEFAULT), f"{root}/d/f")
        os.umask(0o077)
        os.mkdir(f"{root}/d/with")
        os.close(os.open(f"{root}/d/with/f", os.O_CREAT | os.O_WRONLY, 0o666))
        done["remove"] = _outcome(lambda p: os.removexattr(p, acl.DEFAULT), f"{root}/d")
        done["remove twice"] = _outcome(lambda p: os.removexattr(p, acl.DEFAULT), f"{root}/d")
        os.mkdir(f"{root}/d/without")
        os.close(os.open(f"{root}/d/without/f", os.O_CREAT | os.O_WRONLY, 0o666))
        os.rename(f"{root}/d/with/f", f"{root}/d/without/moved")
        done["moved"] = _outcome(lambda p: os.mkdir(p, 0o777), f"{root}/d/with/later")
        done["empty"] = _outcome(lambda p: os.setxattr(p, acl.ACCESS, struct.pack("<I", 2)), f"{root}/d/f")
        done["bad"] = _outcome(lambda p: os.setxattr(p, acl.ACCESS, b"\2\0\0"), f"{root}/d/f")
        done["minimal"] = _outcome(lambda p: os.setxattr(p, acl.ACCESS, _MINIMAL), f"{root}/d/f")
        done["sub"] = _outcome(lambda p: os.setxattr(p, acl.DEFAULT, _DEFAULT), f"{root}/d/sub")
        done["by lower"] = _outcome(lambda p: os.mkdir(p, 0o700), f"{root}/d/sub/made")
        return done

    arena.make(build)
    arena.mount(state)
    arena.run(work)
    arena.compare()


@pytest.mark.needs_root("devices need the real root")
@pytest.mark.parametrize("state", _STATES)
def test_devices_fifos_and_sockets_keep_everything_when_changed(arena, state):
    kinds = {"fifo": 0o010000, "sock": 0o140000, "char": 0o020000, "block": 0o060000}
    changes = {"chmod": lambda p: os.chmod(p, 0o6751), "chown": lambda p: os.chown(p, 12, 34),
               "link": lambda p: os.link(p, p + ".l"), "rename": lambda p: os.rename(p, p + ".r"),
               "acl": lambda p: os.setxattr(p, acl.ACCESS, _ACL), "user": lambda p: os.setxattr(p, "user.k", b"v"),
               "open": lambda p: os.close(os.open(p, os.O_RDWR | os.O_NONBLOCK))}

    def build(root):
        for kind, bits in kinds.items():
            for change in changes:
                path = root / f"{kind}.{change}"
                os.mknod(path, bits | 0o640, os.makedev(1, 3) if kind == "char" else os.makedev(7, 4000))
                os.chown(path, 1000, 1000)
                path.chmod(0o6750)

    arena.make(build)
    arena.mount(state, "dev")
    arena.run(lambda root: {f"{kind}.{change}": _outcome(changes[change], f"{root}/{kind}.{change}")
                            for kind in kinds for change in changes if (kind, change) != ("block", "open")})
    arena.compare()
