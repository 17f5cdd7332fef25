# SPDX-License-Identifier: Apache-2.0
"""The tables: calls by type of file, layer, caller, mode and error. CI runs what some() draws of them."""
import ctypes
import itertools
import os
import random
import socket
import stat
import subprocess

from . import linux, unprivileged
from .posixtable import MEMBER, PLACES, STRANGER, USER, Case, Node, tree

_WHEN = (2 * 10**18 + 5, 10**18 + 7)  # see posixtable.py: no read changes such an access time
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_libc = ctypes.CDLL(None, use_errno=True)
KINDS = ["file", "big", "empty", "dir", "full", "fifo", "socket", "device", "symlink"]


def _utimensat(path, atime, mtime, flags=0):
    times = (ctypes.c_long * 4)(10**9, atime, 10**9, mtime)
    linux._check(_libc.utimensat(linux.AT_FDCWD, os.fsencode(path), times, flags))


def _with(path, flags, action, mode=0o640):
    """Never waits: a FIFO has nobody at its other end."""
    fd = os.open(path, flags | os.O_NONBLOCK, mode)
    try:
        return action(fd)
    finally:
        os.close(fd)


def _opens(flags):
    return lambda path: _with(path, flags, lambda fd: stat.S_IFMT(os.fstat(fd).st_mode))


def _stat(call):
    def run(path):
        st = call(path)
        return oct(st.st_mode), st.st_nlink, st.st_uid, st.st_gid, None if stat.S_ISDIR(st.st_mode) else st.st_size
    return run


def _access(mode):
    """access(2) goes by the real ids, faccessat with AT_EACCESS by the effective ones."""
    return lambda path: (os.access(path, mode), os.access(path, mode, effective_ids=True))


def _chown(path, uid, gid, call=os.chown):
    unprivileged.attempt(call)(path, uid, gid)


def _lchown(path, uid, gid):
    unprivileged.attempt(os.lchown)(path, uid, gid)


def _mknod(path, mode, device=0):
    unprivileged.attempt(os.mknod)(path, mode, device)


def _bind(path):
    if len(path) > 100:
        return "longer than an address"
    with socket.socket(socket.AF_UNIX) as made:
        return made.bind(path)


def _fchown(path):
    _with(path, os.O_RDONLY, lambda fd: unprivileged.attempt(os.fchown)(fd, -1, -1))


# On what is there.
ON_OBJECT = {
    "stat": _stat(os.stat), "lstat": _stat(os.lstat),
    "access R": _access(os.R_OK), "access W": _access(os.W_OK), "access X": _access(os.X_OK), "access F": _access(os.F_OK),
    "readlink": os.readlink,
    "chmod": lambda p: os.chmod(p, 0o6715),
    "fchmod": lambda p: _with(p, os.O_RDONLY, lambda fd: os.fchmod(fd, 0o604)),
    "chown to nobody else": lambda p: _chown(p, -1, -1),
    "chown group": lambda p: _chown(p, -1, USER),
    "chown owner": lambda p: _chown(p, STRANGER, -1),
    "lchown": lambda p: _lchown(p, USER, USER),
    "fchown": _fchown,
    "truncate": lambda p: os.truncate(p, 50),
    "truncate to more": lambda p: os.truncate(p, 50_000),
    "ftruncate": lambda p: _with(p, os.O_WRONLY, lambda fd: os.ftruncate(fd, 0)),
    "ftruncate for reading": lambda p: _with(p, os.O_RDONLY, lambda fd: os.ftruncate(fd, 0)),
    "open r": _opens(os.O_RDONLY), "open w": _opens(os.O_WRONLY), "open rw": _opens(os.O_RDWR),
    "open trunc": _opens(os.O_WRONLY | os.O_TRUNC), "open directory": _opens(os.O_RDONLY | os.O_DIRECTORY),
    "open nofollow": _opens(os.O_RDONLY | os.O_NOFOLLOW), "open path": _opens(os.O_PATH | os.O_NOFOLLOW),
    "open noatime": _opens(os.O_RDONLY | os.O_NOATIME),
    "open tmpfile": _opens(os.O_RDWR | os.O_TMPFILE),
    "write": lambda p: _with(p, os.O_WRONLY, lambda fd: os.write(fd, b"written")),
    "append": lambda p: _with(p, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"written")),
    "read": lambda p: _with(p, os.O_RDONLY, lambda fd: os.read(fd, 20)),
    "list": lambda p: sorted(os.listdir(p)),
    "posix_fallocate": lambda p: _with(p, os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 45_000)),
    "posix_fallocate inside": lambda p: _with(p, os.O_RDWR, lambda fd: os.posix_fallocate(fd, 10, 20)),
    "posix_fallocate of nothing": lambda p: _with(p, os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 0)),
    "utimensat now": lambda p: os.utime(p),
    "utimensat": lambda p: os.utime(p, ns=_WHEN),
    "utimensat of a link": lambda p: os.utime(p, ns=_WHEN, follow_symlinks=False),
    "utimensat omit, now": lambda p: _utimensat(p, _UTIME_OMIT, _UTIME_NOW),
    "utimensat now, omit": lambda p: _utimensat(p, _UTIME_NOW, _UTIME_OMIT),
    "utimensat omit, omit": lambda p: _utimensat(p, _UTIME_OMIT, _UTIME_OMIT),
    "utimensat of no time": lambda p: _utimensat(p, 10**9, 0),
    "setxattr": lambda p: os.setxattr(p, "user.name", b"value"),
    "removexattr": lambda p: os.removexattr(p, "user.absent"),
    "unlink": os.unlink, "rmdir": os.rmdir,
    "link from": lambda p: os.link(p, "e/new"),
    "rename from": lambda p: os.rename(p, "e/new"),
    "rename from, noreplace": lambda p: linux.renameat2(p, "e/new", linux.RENAME_NOREPLACE),
    "exchange": lambda p: linux.renameat2(p, "e/z", linux.RENAME_EXCHANGE),
    "chdir": lambda p: (os.chdir(p), os.chdir("/"))[0],
}
# On a name that there need not be.
ON_NAME = {
    "open create": _opens(os.O_CREAT | os.O_WRONLY),
    "open create excl": _opens(os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "open create trunc": _opens(os.O_CREAT | os.O_TRUNC | os.O_WRONLY),
    "open create directory": _opens(os.O_CREAT | os.O_RDONLY),
    "mkdir": lambda p: os.mkdir(p, 0o7777),
    "mkfifo": lambda p: os.mkfifo(p, 0o666),
    "mknod": lambda p: _mknod(p, stat.S_IFREG | 0o6777),
    "mknod socket": lambda p: _mknod(p, stat.S_IFSOCK | 0o777),
    "bind": _bind,
    "symlink": lambda p: os.symlink("x", p),
    "link to": lambda p: os.link("e/z", p),
    "rename to": lambda p: os.rename("e/z", p),
    "rename to, noreplace": lambda p: linux.renameat2("e/z", p, linux.RENAME_NOREPLACE),
    "rename of a directory to": lambda p: os.rename("e/y", p),
}
CALLS = {**ON_OBJECT, **ON_NAME}
_WRITES = {name: CALLS[name] for name in (
    "write", "append", "truncate", "truncate to more", "ftruncate", "open trunc", "posix_fallocate", "posix_fallocate inside",
    "setxattr", "utimensat now", "utimensat")}


def _other(call, place="lower"):
    """The directory e, everybody's, with a file z and a directory y, for a call that has two names."""
    if not any(word in call for word in ("link", "rename", "exchange", "move")):
        return []
    layers = PLACES[place]
    return [Node("e", "dir", 0o777, USER, USER, layers[0]), Node("e/z", "file", 0o666, USER, USER, layers[1]),
            Node("e/y", "dir", 0o777, USER, USER, layers[1])]


def some(cases, share):
    """One of so many of them, the same each time."""
    dice = random.Random(share)
    return [case for case in cases if dice.randrange(share) == 0]


def errors_of_paths():
    """Bad paths: a bad component or a bad last name."""
    long = 255 * "n"
    forms = ["d/x/inner", "d/none/inner", "d/none", f"d/{long}", f"d/{long}n", f"d/{long}n/inner", "./" * 2050 + "d/x", "./" * 2040 + "d/x",
             "d/loop/inner", "d/loop", "", "d/x/", "d/none/", "d/sub/.", "d/sub/..", "d/dangling", "d/dangling/", "d/dangling/inner",
             "d/tosub/inner", "d/tosub", "d/tosub/", "d/tofile", "d/tofile/", "d/sub/entry/../../x"]
    for (name, call), form, place in itertools.product(CALLS.items(), forms, ("lower", "upper", "both", "merged")):
        nodes = tree(place, ("x", "file"), ("sub", "full"), ("loop", "symlink", {"target": "loop"}),
                     ("dangling", "symlink", {"target": "absent"}), ("tosub", "symlink", {"target": "sub"}),
                     ("tofile", "symlink", {"target": "x"}))
        shown = form if len(form) < 40 else f"{form[:6]}...({len(form)})"
        yield Case(f"{name} of '{shown}', {place}", "owner", nodes + _other(name), lambda call=call, form=form: call(form))


def types_of_files():
    """Every call on every type of file in every layer: what it gives, and what it changes."""
    for (name, call), kind, place in itertools.product(CALLS.items(), KINDS, PLACES):
        touched = ("d/x",) if place == "copied" else ()
        for caller in ("owner", "root"):
            yield Case(f"{name} of a {kind}, {place}, by {caller}", caller, tree(place, ("x", kind)) + _other(name, place),
                       lambda call=call: call("d/x"), touched=touched)


def modes_of_directories():
    """Search and write permission of the directory, for everybody."""
    modes = (0o755, 0o700, 0o770, 0o077, 0o007, 0o500, 0o300, 0o600, 0o1777, 0o733)
    for (name, call), mode, kind, caller, place in itertools.product(
            CALLS.items(), modes, ("file", "dir", "none"), ("owner", "member", "other"), ("lower", "upper")):
        objects = [] if kind == "none" else [("x", kind, {"mode": 0o777})]
        nodes = tree(place, *objects, mode=mode) + _other(name)
        yield Case(f"{name} of {kind} in a directory of {mode:o}, {place}, by {caller}", caller, nodes, lambda call=call: call("d/x"))


def modes_of_objects():
    """The object's own permission."""
    modes = (0o644, 0o600, 0o060, 0o006, 0o400, 0o222, 0o000, 0o111, 0o666, 0o705)
    for (name, call), mode, kind, caller, place in itertools.product(
            ON_OBJECT.items(), modes, ("file", "big", "dir"), ("owner", "member", "other", "root"), ("lower", "upper", "copied")):
        touched = ("d/x",) if place == "copied" else ()
        yield Case(f"{name} of {kind} of {mode:o}, {place}, by {caller}", caller,
                   tree(place, ("x", kind, {"mode": mode}), mode=0o777) + _other(name), lambda call=call: call("d/x"), touched=touched)


def sticky_directories():
    """The right to remove or replace an object, by the owners of the directory and of the object."""
    calls = {name: CALLS[name] for name in ("unlink", "rmdir", "rename from", "rename to", "rename of a directory to", "exchange",
                                            "link from", "open create", "open w")}
    owners = (0, USER, MEMBER, STRANGER)
    for (name, call), kind, of_directory, of_object, caller, place in itertools.product(
            calls.items(), ("file", "dir", "symlink", "fifo"), owners, owners, ("root", "owner", "other"), ("lower", "upper", "both")):
        nodes = tree(place, ("x", kind, {"uid": of_object, "gid": of_object, "mode": 0o777}), mode=0o1777, uid=of_directory,
                     gid=of_directory)
        yield Case(f"{name} of {kind} of {of_object} in a sticky directory of {of_directory}, {place}, by {caller}", caller,
                   nodes + _other(name), lambda call=call: call("d/x"))


def set_id_bits():
    """The calls that take set-id bits away, and the callers that lose them."""
    calls = {**_WRITES, "chown to nobody else": CALLS["chown to nobody else"], "chown group": CALLS["chown group"],
             "chown both": lambda p: _chown(p, USER, USER), "chown to a member's": lambda p: _chown(p, -1, MEMBER),
             "lchown": CALLS["lchown"], "fchown": CALLS["fchown"],
             "chmod to the same": lambda p: os.chmod(p, stat.S_IMODE(os.stat(p).st_mode)), "chmod": CALLS["chmod"],
             "chmod without": lambda p: os.chmod(p, 0o777), "link from": CALLS["link from"], "rename from": CALLS["rename from"]}
    modes = (0o6777, 0o4777, 0o2777, 0o2767, 0o6666, 0o1777)
    for (name, call), mode, kind, caller, gid, place in itertools.product(
            calls.items(), modes, ("file", "big", "dir", "fifo"), ("owner", "member", "other", "root"), (USER, STRANGER),
            ("lower", "upper", "copied")):
        touched = ("d/x",) if place == "copied" else ()
        yield Case(f"{name} of {kind} of {mode:o} of group {gid}, {place}, by {caller}", caller,
                   tree(place, ("x", kind, {"mode": mode, "gid": gid}), mode=0o777) + _other(name), lambda call=call: call("d/x"),
                   touched=touched)


def new_objects():
    """Owner, group and mode of what is made: masks, and directories with the set-group-id bit."""
    calls = {name: CALLS[name] for name in ON_NAME}
    calls["open tmpfile"] = _tmpfile_to
    for (name, call), mode, gid, caller, mask, place in itertools.product(
            calls.items(), (0o777, 0o2777, 0o3777), (USER, STRANGER), ("owner", "member", "other", "root"), (0, 0o022, 0o077, 0o777),
            ("lower", "upper", "both", "merged")):
        yield Case(f"{name} in a directory of {mode:o} of group {gid}, mask {mask:o}, {place}, by {caller}", caller,
                   tree(place, mode=mode, gid=gid) + _other(name), lambda call=call: call("d/x"), mask)


def _tmpfile_to(path):
    def name(fd):
        before = os.fstat(fd).st_nlink
        linux.link_descriptor(fd, path)
        return before, os.fstat(fd).st_nlink
    return _with(os.path.dirname(path), os.O_RDWR | os.O_TMPFILE, name, 0o6666)


def renames():
    """Every type over every type, from every layer into every layer, and the flags."""
    kinds = ("file", "big", "dir", "full", "symlink", "fifo", "none")
    flags = {"": 0, ", noreplace": linux.RENAME_NOREPLACE, ", exchange": linux.RENAME_EXCHANGE}
    places = ("lower", "upper", "both", "merged", "copied")
    for kind, onto, (shown, flag), source, target in itertools.product(kinds, kinds, flags.items(), places, places):
        there = [] if onto == "none" else [Node("e/new", onto, 0o755 if onto in ("dir", "full") else 0o644, layers=PLACES[target][1])]
        nodes = tree(source, *([] if kind == "none" else [("x", kind)])) + [Node("e", "dir", 0o755, layers=PLACES[target][0])] + there
        touched = [path for path, what, place in (("d/x", kind, source), ("e/new", onto, target)) if place == "copied" and what != "none"]
        yield Case(f"rename{shown} of {kind}, {source}, over {onto}, {target}", "owner", nodes,
                   lambda flag=flag: linux.renameat2("d/x", "e/new", flag), touched=tuple(touched))


def odd_renames():
    paths = [("d", "d/sub/in"), ("d/sub", "d/sub"), ("d", "d"), ("d/x", "d/x"), ("d/x", "d/link"), ("d/sub", "d"), ("d/sub/entry", "d/sub"),
             ("d/sub/.", "e/new"), ("d/sub/..", "e/new"), ("d/sub", "e/."), ("d/sub", "e/.."), ("d/x", "e/new/"), ("d/sub", "e/new/"),
             ("d/sub/", "e/new/"), ("d/link", "d/x"), ("d/tosub", "e/new"), ("d/tosub/", "e/new"), ("d/x", "d/tosub"), ("d/sub", "d/tosub"),
             ("d/x", "d/sub/new"), ("d", "e/y"), ("d", "e/y/deeper"), ("d", "e/z")]
    for (old, new), flag, place in itertools.product(paths, (0, linux.RENAME_NOREPLACE, linux.RENAME_EXCHANGE, linux.RENAME_WHITEOUT,
                                                            linux.RENAME_EXCHANGE | linux.RENAME_NOREPLACE, 64), PLACES):
        nodes = tree(place, ("x", "file"), ("link", "hardlink", {"target": "x"}), ("sub", "full"), ("tosub", "symlink", {"target": "sub"}))
        yield Case(f"rename {flag} of {old} to {new}, {place}", "owner", nodes + _other("rename", place),
                   lambda old=old, new=new, flag=flag: linux.renameat2(old, new, flag))


def links():
    """Files with two names: what one of them is given, the other shows."""
    calls = {**{name: CALLS[name] for name in ("unlink", "chmod", "write", "truncate", "utimensat", "link from", "rename from", "rename to",
                                               "exchange", "setxattr", "chown to nobody else", "stat", "open trunc", "append")},
             "unlink while open": _unlink_while_open, "rename over while open": _rename_over_while_open,
             "unlink both": lambda p: (os.unlink(p), os.unlink("d/link"))[0]}
    for (name, call), kind, caller, place in itertools.product(calls.items(), ("file", "big", "empty"), ("owner", "root"), PLACES):
        nodes = tree(place, ("x", kind), ("link", "hardlink", {"target": "x"}), ("sub", "dir"),
                     ("sub/third", "hardlink", {"target": "../x"}))
        touched = ("d/x",) if place == "copied" else ()
        yield Case(f"{name} of {kind} with three names, {place}, by {caller}", caller, nodes + _other(name), lambda call=call: call("d/x"),
                   touched=touched)


def _unlink_while_open(path):
    def look(fd):
        os.unlink(path)
        os.write(fd, b"gone")
        return os.fstat(fd).st_nlink, os.fstat(fd).st_size, os.pread(fd, 100, 0)
    return _with(path, os.O_RDWR, look)


def _rename_over_while_open(path):
    def look(fd):
        os.rename("e/z", path)
        return os.fstat(fd).st_nlink, os.fstat(fd).st_size, os.pread(fd, 100, 0)
    return _with(path, os.O_RDWR, look)


def emptied_directories():
    """rmdir and rename over what has become empty, or only looks so."""
    def empty(path):
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
    calls = {"rmdir": lambda: os.rmdir("d/x"), "rmdir when emptied": lambda: (empty("d/x"), os.rmdir("d/x"))[1],
             "rename over": lambda: os.rename("e/y", "d/x"), "rename over when emptied": lambda: (empty("d/x"), os.rename("e/y", "d/x"))[1],
             "made again": lambda: (empty("d/x"), os.rmdir("d/x"), os.mkdir("d/x"))[2],
             "file in its place": lambda: (empty("d/x"), os.rmdir("d/x"), os.symlink("t", "d/x"))[2],
             "move when emptied": lambda: (empty("d/x"), os.rename("d/x", "e/new"))[1],
             "move": lambda: os.rename("d/x", "e/new"),
             "rmdir while inside": lambda: (empty("d/x"), os.chdir("d/x"), os.rmdir("../x"), os.stat(".").st_nlink, os.listdir("."))[3:],
             "make in a removed one": lambda: (empty("d/x"), os.chdir("d/x"), os.rmdir("../x"), os.mkdir("new"))[3]}
    for (name, call), kind, place, caller in itertools.product(calls.items(), ("dir", "full"), PLACES, ("owner", "root")):
        yield Case(f"{name}, {kind}, {place}, by {caller}", caller, tree(place, ("x", kind)) + _other("rename", place), call)


_BAD = ctypes.c_void_p(1)


def _faulty(name, *arguments):
    return lambda: linux._check(getattr(_libc, name)(*arguments))


def bad_addresses():
    at = ctypes.c_int(linux.AT_FDCWD)
    calls = {"chmod": (_BAD, 0o600), "chown": (_BAD, -1, -1), "link": (b"d/x", _BAD), "mkdir": (_BAD, 0o700), "open": (_BAD, 0),
             "rename": (_BAD, b"e/new"), "rmdir": (_BAD,), "symlink": (_BAD, b"e/new"), "truncate": (_BAD, ctypes.c_long(0)),
             "unlink": (_BAD,), "utimensat": (at, b"d/x", _BAD, 0), "access": (_BAD, 0), "mkfifo": (_BAD, 0o600)}
    for name, arguments in calls.items():
        yield Case(f"{name} with a bad address", "owner", tree("lower", ("x", "file")) + _other("rename"), _faulty(name, *arguments))


def _while_it_runs(call):
    def run():
        with subprocess.Popen(["d/x", "60"]) as running:
            try:
                return call("d/x")
            finally:
                running.kill()
    return run


def _run_while_written():
    def run(_):
        return subprocess.run(["d/x", "0"], check=False).returncode
    return _with("d/x", os.O_RDWR, run)


def programs():
    """Files that are being executed, or written."""
    calls = {name: CALLS[name] for name in ("open w", "open rw", "open r", "open trunc", "truncate", "unlink", "rename from", "rename to",
                                            "chmod", "utimensat", "access W", "link from", "exchange")}
    for (name, call), place, caller in itertools.product(calls.items(), PLACES, ("owner", "root")):
        yield Case(f"{name} of a running program, {place}, by {caller}", caller,
                   tree(place, ("x", "program", {"mode": 0o755})) + _other(name, place), _while_it_runs(call))
    for place in PLACES:
        yield Case(f"execution while written, {place}", "owner", tree(place, ("x", "program", {"mode": 0o755})), _run_while_written)


def bad_arguments():
    size = ctypes.c_long
    calls = {"truncate to less than nothing": lambda: linux._check(_libc.truncate(b"d/x", size(-1))),
             "truncate beyond all": lambda: os.truncate("d/x", (1 << 63) - 1),
             "fallocate at less than nothing": lambda: _with("d/x", os.O_RDWR, lambda fd: linux.fallocate(fd, 0, -1, 5)),
             "fallocate of odd mode": lambda: _with("d/x", os.O_RDWR, lambda fd: linux.fallocate(fd, 0x100, 0, 5)),
             "punch without keep": lambda: _with("d/x", os.O_RDWR, lambda fd: linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE, 0, 5)),
             "posix_fallocate too far": lambda: _with("d/x", os.O_RDWR, lambda fd: os.posix_fallocate(fd, (1 << 62), (1 << 62) - 1)),
             "mknod of a directory": lambda: _mknod("e/new", stat.S_IFDIR | 0o700),
             "mknod of a link": lambda: _mknod("e/new", stat.S_IFLNK | 0o700),
             "mknod of no type": lambda: _mknod("e/new", 0o700),
             "mknod of a device": lambda: _mknod("e/new", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
             "mknod of a disk": lambda: _mknod("e/new", stat.S_IFBLK | 0o600, os.makedev(7, 3)),
             "symlink to nothing": lambda: os.symlink("", "e/new"),
             "symlink to much": lambda: os.symlink(4095 * "t", "e/new"), "symlink to too much": lambda: os.symlink(4096 * "t", "e/new"),
             "utimensat of a bad time": lambda: _utimensat("d/x", -1, 5),
             "utimensat with a bad flag": lambda: _utimensat("d/x", 1, 5, 0x4000),
             "a directory for writing": lambda: os.open("d", os.O_WRONLY),
             "a directory made by open": lambda: os.open("e/new", os.O_CREAT | os.O_DIRECTORY),
             "access of odd mode": lambda: linux._check(_libc.access(b"d/x", 0o77)),
             "link of a directory": lambda: os.link("d", "e/new"), "unlink of a directory": lambda: os.unlink("e/y"),
             "write of nothing": lambda: _with("d/x", os.O_RDWR, lambda fd: os.pwrite(fd, b"", 3)),
             "truncate to the same": lambda: os.truncate("d/x", os.stat("d/x").st_size),
             "ftruncate to the same": lambda: _with("d/x", os.O_RDWR, lambda fd: os.ftruncate(fd, os.fstat(fd).st_size)),
             "chown to a large id": lambda: _chown("d/x", 65000, 65001)}
    for (name, call), kind, place, caller in itertools.product(calls.items(), ("file", "big", "empty"), PLACES, ("owner", "root")):
        touched = ("d/x",) if place == "copied" else ()
        yield Case(f"{name}, {kind}, {place}, by {caller}", caller, tree(place, ("x", kind)) + _other("rename", place), call,
                   touched=touched)


TABLES = {
    # name: (cases, of how many of them CI runs one)
    "errors of paths": (errors_of_paths, 120),
    "types of files": (types_of_files, 60),
    "modes of directories": (modes_of_directories, 160),
    "modes of objects": (modes_of_objects, 250),
    "sticky directories": (sticky_directories, 120),
    "set-id bits": (set_id_bits, 180),
    "new objects": (new_objects, 100),
    "renames": (renames, 60),
    "odd renames": (odd_renames, 14),
    "links": (links, 10),
    "emptied directories": (emptied_directories, 5),
    "bad addresses": (bad_addresses, 1),
    "programs": (programs, 8),
    "bad arguments": (bad_arguments, 16),
}
