# SPDX-License-Identifier: Apache-2.0
"""Two directories that must stay alike: a mount under test and an ordinary one. Every operation is
made in both, its outcome compared."""
import errno
import os
import stat

_LONG_AGO_NS = 1_262_304_000 * 10**9  # before 2010: set by utimens, so exactly equal in both
_NOW_SLACK_NS = 60 * 10**9
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
    def __init__(self, mount, plain):
        self.mount, self.plain = str(mount), str(plain)

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
                               not strict or e.inode() == os.lstat(e.path).st_ino)
                              for e in entries)
        self.both(types, f"entry types of {directory}")

    def _compare_object(self, path, strict):
        stats = [os.lstat(os.path.join(root, path)) for root in (self.mount, self.plain)]
        views = [attributes(st, strict) for st in stats]
        self.compare(*(("ok", view) for view in views), f"attributes of {path}")
        got, want = (st.st_mtime_ns for st in stats)
        slack = 0 if want < _LONG_AGO_NS else _NOW_SLACK_NS
        if path and abs(got - want) > slack:
            raise Mismatch(f"mtime of {path}: {got}, not {want}")
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
    return {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid),
            "size": None if is_dir else st.st_size,
            "nlink": st.st_nlink if dir_nlink or not is_dir else None}
