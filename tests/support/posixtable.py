# SPDX-License-Identifier: Apache-2.0
"""Runs tables of cases. A case is one call in a small tree of its own, made on a mount and in an ordinary directory.

All trees of a table are laid into the layers, then all of it is mounted. One process for each caller makes the calls of its
cases; then both trees of each case are compared with all attributes, and those of the mount again after another mount.
Times are set to fixed ones before, so that what a call changes shows. The access time lies in the future: as relatime
has it, no read changes such a one."""
import collections
import errno
import itertools
import os
import pickle
import shutil
import stat
import tempfile

from . import linux, rootless, unprivileged
from .child import in_child
from .server import wait_until
from .twins import xattrs

_OLD_NS = 10**18
_FUTURE_NS = 2 * 10**18
USER, MEMBER, STRANGER = 1000, 1001, 1002
# (uid, gid, groups) of the caller. The files are USER's, unless a case says otherwise.
CALLERS = {"root": (0, 0, ()), "owner": (USER, USER, ()), "member": (MEMBER, MEMBER, (USER,)), "other": (STRANGER, STRANGER, ())}
# Layers of the directory and of the object in it. "copied" is "lower", and changed once in the mount before.
PLACES = {"lower": ("l", "l"), "upper": ("u", "u"), "both": ("lu", "lu"), "merged": ("lu", "l"), "below": ("lb", "b"),
          "copied": ("l", "l")}
BIG = 40_000  # copied in part
_SMALL = 100
_TYPES = {"dir": stat.S_IFDIR, "full": stat.S_IFDIR, "file": stat.S_IFREG, "big": stat.S_IFREG, "empty": stat.S_IFREG}
NOT_COMPARED = {
    "ino, dev": "there are two file systems; that numbers stay is compared",
    "blocks": "what a file system allocates, and when, is its own affair",
    "size of a directory": "it is the file system's own",
    "btime": "FUSE has none",
    "ctime of what lay in a lower, and the call left alone": "a copy-up changes it",
    "ctime of what its mode keeps from its owner": "a plain user's server opens it with another mode, and puts that back",
    "ino of what is no file and no directory, in the next mount": "without privileges such a copy has another (the manual, LIMITS)",
    "EEXIST for ENOTEMPTY": "POSIX has both mean the same",
}

Node = collections.namedtuple("Node", "path kind mode uid gid layers target", defaults=(0o644, USER, USER, "l", "target"))
# run(): the call, in the case's tree; returns what is compared. touched: paths that are changed in the mount before.
Case = collections.namedtuple("Case", "name caller nodes run umask touched", defaults=(0o022, ()))


def tree(place, *objects, mode=0o755, uid=USER, gid=USER):
    """Nodes: the directory d with objects (path, kind, keywords...) in it."""
    in_layers, of_objects = PLACES[place]
    nodes = [Node("d", "dir", mode, uid, gid, in_layers)]
    for path, kind, *more in objects:
        keywords = more[0] if more else {}
        nodes.append(Node("d/" + path, kind, **{"mode": 0o755 if kind in ("dir", "full") else 0o644, "layers": of_objects, **keywords}))
    return nodes


def _owner(node):
    return rootless.owner(node.uid, node.gid)


def _fill(path, node, layer):
    is_hidden = layer == "l" and "u" in node.layers and node.kind not in ("dir", "full")
    if node.kind in ("file", "big", "empty"):
        size = {"file": _SMALL, "big": BIG, "empty": 0}[node.kind]
        with open(path, "wb") as f:
            f.write(((b"hidden!" if is_hidden else b"visible") * (size // 7 + 1))[:size])
    elif node.kind == "program":
        shutil.copyfile("/bin/sleep", path)
    elif node.kind in ("dir", "full"):
        os.mkdir(path)
    elif node.kind == "fifo":
        os.mkfifo(path)
    elif node.kind == "socket":
        unprivileged.attempt(os.mknod)(path, stat.S_IFSOCK | 0o600)
    elif node.kind == "device":
        unprivileged.attempt(os.mknod)(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif node.kind == "symlink":
        os.symlink(node.target, path)
    elif node.kind == "hardlink":
        os.link(os.path.join(os.path.dirname(path), node.target), path)


def _dress(path, node):
    if node.kind == "hardlink":
        return
    unprivileged.attempt(os.lchown)(path, *_owner(node))
    if node.kind != "symlink":
        os.chmod(path, node.mode)
    os.utime(path, ns=(_FUTURE_NS, _OLD_NS), follow_symlinks=False)


def _with_entries(nodes):
    for node in nodes:
        yield node
        if node.kind == "full":
            layer = "b" if "b" in node.layers else node.layers[0]
            yield Node(node.path + "/entry", "file", layers=layer, uid=node.uid, gid=node.gid)


def lay(case, root, layer):
    """The nodes of a layer below root, or all of them (layer None)."""
    nodes = [node for node in _with_entries(case.nodes) if layer is None or layer in node.layers]
    if layer == "u" and not nodes:
        return
    os.mkdir(root)
    for node in nodes:
        _fill(os.path.join(root, node.path), node, layer)
    for node in reversed(nodes):
        _dress(os.path.join(root, node.path), node)
    os.chmod(root, 0o755)
    unprivileged.attempt(os.chown)(root, *rootless.owner(USER, USER))
    os.utime(root, ns=(_FUTURE_NS, _OLD_NS))


def _touch(path):
    """Copied up, and looks as before."""
    st = os.lstat(path)
    if stat.S_ISREG(st.st_mode):
        os.chmod(path, st.st_mode & 0o7777 | 0o600)
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, b"v", 0)
        os.ftruncate(fd, st.st_size)
        os.close(fd)
        os.chmod(path, stat.S_IMODE(st.st_mode))
    elif not stat.S_ISLNK(st.st_mode):
        os.chmod(path, stat.S_IMODE(st.st_mode))
    os.utime(path, ns=(_FUTURE_NS, _OLD_NS), follow_symlinks=False)


def _outcome(call):
    try:
        return "ok", call()
    except OSError as e:
        return "error", errno.errorcode[e.errno]


def _content(path, st):
    if stat.S_ISLNK(st.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(st.st_mode):
        return None
    for flags in (os.O_NOATIME, 0):
        try:
            fd = os.open(path, os.O_RDONLY | flags)
        except PermissionError:
            continue
        with open(fd, "rb") as f:
            return hash(f.read())
    return "unreadable"


def _time(ns, since):
    return "now" if since <= ns < _FUTURE_NS else ns


def _view(path, since):
    st = os.lstat(path)
    is_dir = stat.S_ISDIR(st.st_mode)
    return {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "nlink": st.st_nlink, "rdev": st.st_rdev,
            "size": None if is_dir else st.st_size, "atime": _time(st.st_atime_ns, since), "mtime": _time(st.st_mtime_ns, since),
            "ctime": "now" if st.st_ctime_ns >= since else "before", "content": _outcome(lambda: _content(path, st)),
            "xattrs": _outcome(lambda: xattrs(path))}


def _paths(root, where=""):
    yield where
    try:
        names = sorted(os.listdir(os.path.join(root, where)))
    except (NotADirectoryError, PermissionError):
        return
    for name in names:
        inner = os.path.join(where, name)
        if _outcome(lambda inner=inner: stat.S_ISDIR(os.lstat(os.path.join(root, inner)).st_mode)) == ("ok", True):
            yield from _paths(root, inner)
        else:
            yield inner


def _snapshot(root, since):
    return {path: _outcome(lambda path=path: _view(os.path.join(root, path), since)) for path in _reachable(root)}


def _reachable(root):
    return list(_paths(root)) if os.path.lexists(root) else []


def _is_shut(mode):
    needed = 0o500 if stat.S_ISDIR(mode) else 0o400 if stat.S_ISREG(mode) else 0
    return rootless.is_plain() and mode & needed != needed


def _may_search(path):
    return os.access(os.path.dirname(path), os.X_OK)


def _raw(root):
    """The state that must survive the kernel's forgetting and another mount."""
    return {path: vars(linux.attributes(os.path.join(root, path), is_asked=True)) for path in _reachable(root)
            if _may_search(os.path.join(root, path))}


class Table:
    """expected: what may differ, as pairs of an expression for its line of the report, and the reason."""

    def __init__(self, stack, plain, cases, expected=()):
        self.stack, self.plain, self.expected = stack, str(plain), expected
        self.options = ("dev",) if rootless.mode() == "root" else ()
        self.not_compared, self.not_run = collections.Counter(), collections.Counter()
        self.problems, self.met = [], collections.Counter()
        self.cases = [case for case in cases if self._may_run(case)]

    def _may_run(self, case):
        reason = None
        if any(node.kind == "device" for node in case.nodes) and rootless.mode() != "root":
            reason = "devices are made by root alone"
        elif rootless.is_plain() and case.caller in ("member", "other", "root"):
            reason = "a plain user is the owner, and nobody else"
        elif rootless.is_plain() and any(node.uid != USER or node.gid != USER for node in case.nodes):
            reason = "a plain user gives files to nobody"
        elif any(_is_shut(_TYPES.get(node.kind, 0) | node.mode) and node.layers != "u" for node in case.nodes):
            reason = "what a plain user may not read in a lower shows nothing (the manual, LIMITS)"
        if reason:
            self.not_run[reason] += 1
        return reason is None

    def run(self):
        self._prepare()
        outcomes = {root: {} for root in (self.mount, self.plain)}
        for caller, cases in itertools.groupby(sorted(enumerate(self.cases), key=lambda entry: entry[1].caller),
                                               key=lambda entry: entry[1].caller):
            for root, results in self._call(caller, list(cases)).items():
                outcomes[root].update(results)
        stays = {}
        for number, case in enumerate(self.cases):
            self._compare_outcomes(case, *(outcomes[root][number] for root in (self.mount, self.plain)))
            self._compare_trees(number, case)
            self._compare_remembered(number, case)
            stays[number] = _raw(f"{self.mount}/{number}")
        self.stack.remount(*self.options)
        for number, case in enumerate(self.cases):
            self._compare_trees(number, case)
            self._compare_kept(case, stays[number], _raw(f"{self.mount}/{number}"))
        self.report()

    def _prepare(self):
        layers = {"l": self.stack.lower(0), "b": self.stack.lower(1), "u": self.stack.upper}
        for number, case in enumerate(self.cases):
            for layer, root in layers.items():
                if layer != "b" or any("b" in node.layers for node in case.nodes):
                    lay(case, f"{root}/{number}", layer)
            lay(case, f"{self.plain}/{number}", None)
        self.mount = str(self.stack.mount(*self.options))
        for number, case in enumerate(self.cases):
            for path in case.touched:
                _touch(f"{self.mount}/{number}/{path}")
            _reachable(f"{self.mount}/{number}")  # the kernel has something to remember
        self.since = self._after(os.lstat(self.stack.mnt).st_ctime_ns)

    def _after(self, moment):
        """A time of the file systems' clock that nothing up to now has."""
        probe = os.path.join(self.plain, "probe")
        with open(probe, "w"):
            moment = max(moment, os.lstat(probe).st_ctime_ns)

        def has_passed():
            os.utime(probe)
            return os.lstat(probe).st_ctime_ns > moment
        assert wait_until(has_passed)
        return os.lstat(probe).st_ctime_ns

    def _call(self, caller, cases):
        with tempfile.TemporaryFile() as file:
            def work():
                found = {}
                for root in (self.mount, self.plain):
                    found[root] = {}
                    for number, case in cases:
                        os.umask(case.umask)
                        os.chdir(f"{root}/{number}")
                        found[root][number] = _outcome(case.run)
                os.chdir("/")
                pickle.dump(found, file)
                file.flush()
            uid, gid, groups = CALLERS[caller]
            if rootless.is_plain():
                uid, gid, groups = 0, 0, ()
            in_child(work, uid=uid, gid=gid, groups=groups)
            file.seek(0)
            return pickle.load(file)

    def _differs(self, case, what, got, want):
        line = f"{case.name}: {what}: the mount has {got}, a directory {want}"
        for number, (pattern, _) in enumerate(self.expected):
            if pattern.search(line):
                self.met[number] += 1
                return
        self.problems.append(line)

    def _compare_outcomes(self, case, got, want):
        if got == ("error", "EEXIST") and want == ("error", "ENOTEMPTY"):
            self.not_compared["EEXIST for ENOTEMPTY"] += 1
        elif got != want:
            self._differs(case, "result", got, want)

    def _compare_trees(self, number, case):
        got, want = (_snapshot(f"{root}/{number}", self.since) for root in (self.mount, self.plain))
        if got.keys() != want.keys():
            return self._differs(case, "names", sorted(got), sorted(want))
        came_up = {node.path for node in case.nodes if "l" in node.layers or "b" in node.layers}
        for path in got:
            (kind, one), (other_kind, two) = got[path], want[path]
            self.not_compared.update(("ino, dev", "blocks", "btime"))
            if kind == other_kind == "ok":
                self._compare_views(case, path, one, two, came_up)
            elif got[path] != want[path]:
                self._differs(case, path, got[path], want[path])
        return None

    def _compare_views(self, case, path, got, want, came_up):
        self.not_compared["size of a directory"] += want["size"] is None
        if got["ctime"] == "now" and want["ctime"] == "before":
            # by the name of before; what was moved has a ctime of now in both
            if not path or path in came_up or os.path.basename(path) == "entry":
                self.not_compared["ctime of what lay in a lower, and the call left alone"] += 1
                got = {**got, "ctime": "before"}
        keys = set(want) - self._shut(int(want["mode"], 8))
        for key in sorted(keys):
            if got[key] != want[key]:
                self._differs(case, f"{key} of {path or '.'}", got[key], want[key])

    def _compare_remembered(self, number, case):
        for path in _reachable(f"{self.mount}/{number}"):
            where = f"{self.mount}/{number}/{path}"
            if not _may_search(where):
                continue
            remembered = linux.attributes(where)
            differences = remembered.differences(linux.attributes(where, is_asked=True))
            for key in {"blocks"} | self._shut(remembered.mode):  # delayed allocation comes after
                differences.pop(key, None)
            if differences:
                self._differs(case, f"{path or '.'}, remembered and true", differences, "one answer")

    def _compare_kept(self, case, before, after):
        for path, old in before.items():
            changed = {key: (value, after.get(path, {}).get(key)) for key, value in old.items()
                       if after.get(path, {}).get(key) != value and key not in {"blocks"} | self._shut(old["mode"])}
            if "ino" in changed and not (stat.S_ISDIR(old["mode"]) or stat.S_ISREG(old["mode"])):
                self.not_compared["ino of what is no file and no directory, in the next mount"] += 1
                changed.pop("ino")
            if changed:
                self._differs(case, f"{path or '.'}, before and after another mount", changed, "one answer")

    def _shut(self, mode):
        """The properties of an object with this mode that are not compared."""
        if not _is_shut(mode):
            return set()
        self.not_compared["ctime of what its mode keeps from its owner"] += 1
        return {"ctime", "ctime_ns"}

    def report(self):
        print(f"{len(self.cases)} cases compared, mode {rootless.mode()}", flush=True)
        for reason, count in self.not_run.items():
            print(f"not run: {count} cases: {reason}")
        for what, count in sorted(self.not_compared.items()):
            print(f"not compared: {what}, {count} times: {NOT_COMPARED[what]}")
        for number, count in sorted(self.met.items()):
            print(f"expected to differ: {count} times: {self.expected[number][1]}")
