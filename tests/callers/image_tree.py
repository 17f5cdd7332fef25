# SPDX-License-Identifier: Apache-2.0
"""The small root file system all engines import, and how a tree is described for comparison.

Everything is made here, from a seed, so that what a container sees can be checked against
what was put in and not only against what another driver shows.
"""
import functools
import hashlib
import io
import json
import os
import random
import stat
import tarfile

MTIME = 1577934245  # any second of the past: a changed time shows at once
PAST = 1700000000  # what is later was set by a clock while tests ran, and is no two times the same
BIG = 64 << 20
MIDDLE = 8 << 20
TREE_FILES = 500
# Directories to which engines add no files, but for etc.
TOPS = ("data", "links", "tree", "vol", "etc", "bin")
ENGINE_FILES = {"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "etc"}
APPLETS = (
    "sh ls cat dd find xargs stat sha256sum sleep echo rm mv cp ln mkdir rmdir chmod chown touch"
    " id sync truncate mount true false test head tail wc sort env grep printf kill"
).split()


def _bytes(seed, size):
    return random.Random(seed).randbytes(size)


@functools.lru_cache
def big_content():
    return _bytes("big", BIG)


def busybox():
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if os.path.exists(path):
            return path
    raise AssertionError("busybox (busybox-static) is not installed")


class _Writer:
    def __init__(self, tar):
        self.tar = tar
        self.expected = {}

    def add(self, name, kind, mode, data=b"", owner=(0, 0), link="", xattrs=None):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime, info.linkname = kind, mode, MTIME, link
        info.uid, info.gid = owner
        info.size = len(data)
        for key, value in (xattrs or {}).items():
            info.pax_headers["SCHILY.xattr." + key] = value
        self.tar.addfile(info, io.BytesIO(data))
        if kind == tarfile.LNKTYPE:
            self.expected[name] = self.expected[link]
            return
        self.expected[name] = describe(kind, mode, owner, data, link)

    def dir(self, name, mode=0o755, **kw):
        self.add(name, tarfile.DIRTYPE, mode, **kw)

    def file(self, name, data, mode=0o644, **kw):
        self.add(name, tarfile.REGTYPE, mode, data=data, **kw)


def describe(kind, mode, owner, data, link, mtime=MTIME):
    """One entry as a tuple: kind, mode, owner, time if it is of the past, content."""
    names = {tarfile.DIRTYPE: "dir", tarfile.REGTYPE: "file", tarfile.SYMTYPE: "symlink",
             tarfile.FIFOTYPE: "fifo", tarfile.CHRTYPE: "char", tarfile.BLKTYPE: "block"}
    content = link
    if kind == tarfile.REGTYPE:
        content = hashlib.sha256(data).hexdigest()
    mode = 0o777 if kind == tarfile.SYMTYPE else mode
    return (names[kind], mode & 0o7777, tuple(owner), past(mtime), content)


def past(mtime):
    return mtime if mtime < PAST else None


def write_image(path, big=None):
    """Write the image as a tar archive, with this as data/big64 if it is not to be that big; return
    {name: description} of all of it."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        w = _Writer(tar)
        for name in ("bin", "data", "dev", "etc", "links", "proc", "root", "run", "sys", "tree",
                     "var", "vol"):
            w.dir(name)
        w.dir("tmp", 0o1777)
        with open(busybox(), "rb") as f:
            w.file("bin/busybox", f.read(), 0o755)
        for applet in APPLETS:
            w.add("bin/" + applet, tarfile.SYMTYPE, 0o777, link="busybox")
        w.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
        w.file("etc/group", b"root:x:0:\nuser:x:1000:\n")
        w.file("data/big64", big or big_content())
        w.file("data/big8", _bytes("middle", MIDDLE), 0o640, owner=(12, 34))
        w.file("data/setuid", b"not a program\n", 0o4755)
        w.file("data/labelled", b"with an attribute\n", xattrs={"user.label": "kept"})
        w.file("data/owned", b"of user 1000\n", 0o600, owner=(1000, 1000))
        w.file("data/empty", b"")
        w.add("data/symlink", tarfile.SYMTYPE, 0o777, link="../tree/d0/f0")
        w.add("data/fifo", tarfile.FIFOTYPE, 0o622)
        w.file("links/a", b"two names\n")
        w.add("links/b", tarfile.LNKTYPE, 0o644, link="links/a")
        for i in range(TREE_FILES):
            if i % 50 == 0:
                w.dir("tree/d%d" % (i // 50), 0o750 + i // 50 % 6)
            w.file("tree/d%d/f%d" % (i // 50, i), b"file %d\n" % i * (i % 40), 0o600 + i % 64)
        return w.expected


def interesting(entries):
    """Only the part of the tree in which no engine puts files of its own."""
    return {name: value for name, value in entries.items()
            if name.split("/")[0] in TOPS and name not in ENGINE_FILES}


def read_tar(archive):
    """An archive, by path or as an open file: ({name: description}, {name: its attributes}, sets
    of hard links)."""
    entries, attrs, links = {}, {}, {}
    opened = {"name": archive} if isinstance(archive, str) else {"fileobj": archive}
    with tarfile.open(**opened) as tar:
        for info in tar:
            name = info.name.strip("/").removeprefix("./")
            if name in ("", "."):
                continue
            xattrs = {key.removeprefix("SCHILY.xattr."): value
                      for key, value in info.pax_headers.items()
                      if key.startswith("SCHILY.xattr.")}
            if xattrs:
                attrs[name] = xattrs
            if info.islnk():
                target = info.linkname.strip("/").removeprefix("./")
                links.setdefault(target, {target}).add(name)
                entries[name] = entries[target]
                continue
            data = tar.extractfile(info).read() if info.isreg() else b""
            kind = tarfile.REGTYPE if info.isreg() else info.type
            entries[name] = describe(kind, info.mode, (info.uid, info.gid), data, info.linkname,
                                     int(info.mtime))
    return entries, attrs, {frozenset(names) for names in links.values()}


def read_layers(archive):
    """{"layer number, name": description} of all but the lowest layer in a docker-archive.

    An opaque mark is told as what it stands for, a whiteout of each name that was there: engines
    that compare trees write these, those that read an upper write the mark.
    """
    found = {}
    with tarfile.open(archive) as tar:
        manifest, = json.load(tar.extractfile("manifest.json"))
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as lowest:
            there = {info.name.strip("/").removeprefix("./") for info in lowest}
        for i, layer in enumerate(manifest["Layers"][1:], 1):
            entries, gone = {}, set()
            for name, value in read_tar(tar.extractfile(layer))[0].items():
                parent, base = os.path.split(name)
                if base == ".wh..wh..opq":
                    gone |= {n for n in there if os.path.dirname(n) == parent}
                elif base.startswith(".wh."):
                    gone.add(os.path.join(parent, base[4:]))
                else:
                    entries[name] = value
            there = {n for n in there if not _is_below(n, gone)} | entries.keys()
            found |= {"layer %d, %s" % (i, n): v for n, v in interesting(entries).items()}
            found |= {"layer %d, %s" % (i, n): "whiteout"
                      for n in interesting(dict.fromkeys(gone - entries.keys()))}
    return found


def _is_below(name, tops):
    while name:
        if name in tops:
            return True
        name = os.path.dirname(name)
    return False


def list_script(*tops):
    """For the shell in the container: stat lines, "=", sums of the files, "=", symlink targets."""
    return """cd /; find {tops} | xargs stat -c '%f %u %g %Y %h %s %n'; echo =
find {tops} -type f | xargs -r sha256sum; echo =
find {tops} -type l | xargs -r stat -c '%N'
""".format(tops=" ".join(tops or TOPS))


def parse_list(text):
    """The output of list_script, as {name: description}; and {name: (nlink, size)} of the files."""
    stats, sums, targets = (part.strip().splitlines() for part in text.split("\n=\n"))
    content = {name: digest for digest, name in (line.split() for line in sums)}
    for line in targets:
        name, _, target = line.partition(" -> ")
        content[name.strip("'")] = target.strip("'")
    kinds = {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "symlink",
             stat.S_IFIFO: "fifo", stat.S_IFCHR: "char", stat.S_IFBLK: "block",
             stat.S_IFSOCK: "socket"}
    entries, sizes = {}, {}
    for line in stats:
        raw, uid, gid, mtime, nlink, size, name = line.split()
        mode = int(raw, 16)
        kind = kinds[stat.S_IFMT(mode)]
        entries[name] = (kind, stat.S_IMODE(mode), (int(uid), int(gid)), past(int(mtime)),
                         content.get(name, ""))
        if kind == "file":
            sizes[name] = (int(nlink), int(size))
    return interesting(entries), sizes


def naive_diff(old, new):
    """The report that an engine must make when it compares the two trees by walking them."""
    lines = set()
    for name in old.keys() | new.keys():
        parent = os.path.dirname(name)
        if name not in new:
            # Once a directory is gone, or no longer one, its content goes unmentioned.
            changed = not parent or new.get(parent, ("",))[0] == "dir"
            if changed:
                lines.add("D /" + name)
        elif name not in old:
            changed = True
            lines.add("A /" + name)
        else:
            changed = old[name] != new[name]
            if changed:
                lines.add("C /" + name)
        while changed and parent:
            if parent in old and parent in new:
                lines.add("C /" + parent)
            parent = os.path.dirname(parent)
    return lines


def allocated(path):
    """Bytes really allocated below path, hard links counted once."""
    seen, total = set(), 0
    for top, dirs, files in os.walk(path):
        for name in [""] + dirs + files:
            st = os.lstat(os.path.join(top, name))
            if (st.st_dev, st.st_ino) not in seen:
                seen.add((st.st_dev, st.st_ino))
                total += st.st_blocks * 512
    return total


def differences(one, other):
    """A short text on how two {name: description} differ; empty when they do not."""
    lines = ["only in the first:  %s %s" % (n, one[n]) for n in sorted(one.keys() - other.keys())]
    lines += ["only in the second: %s %s" % (n, other[n])
              for n in sorted(other.keys() - one.keys())]
    lines += ["%s: %s != %s" % (n, one[n], other[n])
              for n in sorted(one.keys() & other.keys()) if one[n] != other[n]]
    return "\n".join(lines[:40] + ["(%d in all)" % len(lines)] * (len(lines) > 40))
