# SPDX-License-Identifier: Apache-2.0
"""Two directories that must stay alike: a mount under test and an ordinary one. Every operation is
made in both, its outcome compared."""
import collections
import errno
import os
import stat

from . import linux

_LONG_AGO_NS = 1_262_304_000 * 10**9  # before 2010: set by utimens, so exactly equal in both
_NOW_SLACK_NS = 60 * 10**9
# Properties of an object that are not compared, and why.
NOT_COMPARED = {
    "atime": "a mount keeps no access times (noatime), a directory does",
    "ctime": "a copy-up changes it; not before mtime, and the kernel's is the server's",
    "blocks": "what a file system allocates, and when, is its own affair",
    "ino, dev": "there are two file systems; d_ino is compared with st_ino",
    "remembered atime of a symlink": "no flag keeps readlink(2) from setting it",
    "remembered ctime of the root": "the map is made there, also long after the first change",
    "number of what is neither file nor directory": "merged snapshots may show another",
    "remembered atime, ctime": "snapshots move files and link them, of which the kernel is not told, and it reads their files",
    "size of a directory": "it is the file system's own",
    "btime": "FUSE has none",
}
_SAME = {errno.EEXIST: errno.ENOTEMPTY}


class Mismatch(AssertionError):
    pass


def _outcome(action, root):
    try:
        return "ok", action(root)
    except OSError as e:
        return "error", errno.errorcode[_SAME.get(e.errno, e.errno)]


def first_difference(one, two):
    if len(one) != len(two):
        return f"{len(one)} bytes, not {len(two)}"
    at = next(i for i in range(len(one)) if one[i] != two[i])
    count = sum(a != b for a, b in zip(one[at:at + 4096], two[at:at + 4096]))
    return (f"differs from offset {at} (block {at // 4096}, {count} of the next 4096 bytes): "
            f"{one[at:at + 8].hex()} not {two[at:at + 8].hex()}")


def _brief(outcome):
    text = repr(outcome)
    return text if len(text) < 300 else text[:300] + "..."


class Twins:
    def __init__(self, mount, plain, has_snapshots=False):
        self.mount, self.plain, self.has_snapshots = str(mount), str(plain), has_snapshots
        self.not_compared = collections.Counter()

    def compare(self, got, want, what):
        if got == want:
            return
        if got[0] == want[0] == "ok" and isinstance(got[1], bytes):
            raise Mismatch(f"{what}: {first_difference(got[1], want[1])}")
        raise Mismatch(f"{what}: the mount says {_brief(got)}, a directory {_brief(want)}")

    def both(self, action, what):
        """action(root) in both; returns the common outcome. Mismatch if they differ."""
        got, want = _outcome(action, self.mount), _outcome(action, self.plain)
        self.compare(got, want, what)
        return want

    def both_unless(self, refused, action, what):
        """As both, but where the mount refuses with that error nothing is done in either."""
        got = _outcome(action, self.mount)
        if got == ("error", refused):
            return got
        want = _outcome(action, self.plain)
        self.compare(got, want, what)
        return want

    def walk_plain(self):
        """(directories, others), relative; "" is the root."""
        dirs, others, pending = [""], [], [""]
        while pending:
            directory = pending.pop()
            for entry in os.scandir(os.path.join(self.plain, directory)):
                path = os.path.join(directory, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    dirs.append(path)
                    pending.append(path)
                else:
                    others.append(path)
        return sorted(dirs), sorted(others)

    def compare_trees(self, strict=True):
        dirs, others = self.walk_plain()
        for path in dirs:
            self.both(lambda root: sorted(os.listdir(os.path.join(root, path))), f"listing {path}")
            self._compare_types(path, strict)
        for path in dirs + others:
            self._compare_object(path, strict)

    def _compare_types(self, directory, strict):
        def types(root):
            with os.scandir(os.path.join(root, directory)) as entries:
                return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink(),
                               not strict or self._may_be_renumbered(os.lstat(e.path).st_mode) or e.inode() == os.lstat(e.path).st_ino)
                              for e in entries)
        self.both(types, f"entry types of {directory}")

    def _may_be_renumbered(self, mode):
        return self.has_snapshots and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    def _compare_with_server(self, path):
        """The kernel's attributes of an object must be the server's."""
        where = os.path.join(self.mount, path)
        differences = linux.attributes(where).differences(linux.attributes(where, is_asked=True))
        if self.has_snapshots:
            differences.pop("atime_ns", None)
        if not path or self.has_snapshots:
            differences.pop("ctime_ns", None)  # the map is made, and made anew, in the root
        # the kernel keeps what it was told; delayed allocation and the file system's own blocks come after
        differences.pop("blocks", None)
        # no flag keeps readlink(2) from setting it
        if stat.S_ISLNK(os.lstat(where).st_mode):
            differences.pop("atime_ns", None)
        if self._may_be_renumbered(os.lstat(where).st_mode):
            differences.pop("ino", None)
        if differences:
            raise Mismatch(f"{path}: remembered and true: {differences} {stat.filemode(os.lstat(where).st_mode)}")

    def report_not_compared(self):
        for what, count in sorted(self.not_compared.items()):
            print(f"not compared: {what}, {count} times: {NOT_COMPARED[what]}", flush=True)

    def _compare_object(self, path, strict):
        stats = [os.lstat(os.path.join(root, path)) for root in (self.mount, self.plain)]
        views = [attributes(st, strict) for st in stats]
        self.compare(*(("ok", view) for view in views), f"attributes of {path}")
        got, want = (st.st_mtime_ns for st in stats)
        slack = 0 if want < _LONG_AGO_NS else _NOW_SLACK_NS
        if path and abs(got - want) > slack:
            raise Mismatch(f"mtime of {path}: {got}, not {want}")
        if stats[0].st_ctime_ns < got and want >= _LONG_AGO_NS:
            raise Mismatch(f"ctime of {path} is before its mtime")
        self._compare_with_server(path)
        kinds = {"size of a directory": stat.S_ISDIR(stats[1].st_mode), "remembered atime of a symlink": stat.S_ISLNK(stats[1].st_mode),
                 "remembered ctime of the root": not path, "remembered atime, ctime": self.has_snapshots,
                 "number of what is neither file nor directory": self._may_be_renumbered(stats[1].st_mode)}
        self.not_compared.update(what for what in NOT_COMPARED if kinds.get(what, True))
        if stat.S_ISREG(stats[1].st_mode):
            self.both(lambda root: read_all(os.path.join(root, path)), f"content of {path}")
        elif stat.S_ISLNK(stats[1].st_mode):
            self.both(lambda root: os.readlink(os.path.join(root, path)), f"target of {path}")
        self.both(lambda root: xattrs(os.path.join(root, path)), f"xattrs of {path}")


def read_all(path):
    with open(path, "rb") as f:
        return f.read()


def xattrs(path):
    return {name: os.getxattr(path, name, follow_symlinks=False)
            for name in sorted(os.listxattr(path, follow_symlinks=False))}


def attributes(st, dir_nlink=True):
    is_dir = stat.S_ISDIR(st.st_mode)
    return {"mtime": st.st_mtime_ns if st.st_mtime_ns < _LONG_AGO_NS else "of now",
            "mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid),
            "size": None if is_dir else st.st_size,
            "nlink": st.st_nlink if dir_nlink or not is_dir else None}
