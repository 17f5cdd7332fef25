# SPDX-License-Identifier: Apache-2.0
"""Streams as an enemy could make them for `veneer receive`: every sum right, whatever they say (doc/SPEC.md)."""
import ctypes
import json
import os
import stat
import struct

from .forge import xxh64

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_TYPES = {stat.S_IFREG: b"0", stat.S_IFLNK: b"2", stat.S_IFCHR: b"3", stat.S_IFBLK: b"4", stat.S_IFDIR: b"5", stat.S_IFIFO: b"6"}
ID = 0x1234567890ABCDEF


def xxh3(data):
    return _xxhash.XXH3_64bits(data, len(data))


def _padded(data):
    return data + bytes(-len(data) % 512)


def _header(name, kind, mode, size, link=b"", device=0):
    fields = struct.pack("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x", name[:99], b"%07o" % (mode & 0o7777), b"%07o" % 0,
                         b"%07o" % 0, b"%011o" % min(size, 8**11 - 1), b"%011o" % 0, b" " * 8, kind, link[:99], b"ustar\x0000", b"",
                         b"", b"%07o" % os.major(device), b"%07o" % os.minor(device), b"")
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]


def _keyword(key, value):
    body = b" " + key + b"=" + value + b"\n"
    size = len(body)
    while size != len(body) + len(str(size)):
        size = len(body) + len(str(size))
    return str(size).encode() + body


def pax_entry(name, mode, keywords, body=b"", link=b"", device=0):
    """An entry of a tar with extended headers; the body as it is stored."""
    extended = b"".join(_keyword(os.fsencode(k), v) for k, v in keywords)
    head = _header(b"PaxHeader", b"x", 0o600, len(extended)) + _padded(extended) if extended else b""
    kind = b"1" if link and not stat.S_ISLNK(mode) else _TYPES[stat.S_IFMT(mode)]
    return head + _header(name, kind, mode, len(body), link, device) + _padded(body)


class Stream:
    def __init__(self, head=None, **changes):
        self.sum = self.base = self.entries = 0
        self.has_base = False
        text = head if head is not None else json.dumps({
            "veneer_delta": 1, "id": f"{ID:016x}", "name": "forged", "time": 0, "first": 0, "sum": "0" * 16, **changes}).encode()
        self.out = [pax_entry(b".wh..wh.delta", stat.S_IFREG, [], text)]

    def record(self, **more):
        base = {"base_sum": f"{self.base:016x}"} if self.has_base else {}
        return {"sum": f"{self.sum:016x}", **base, **more}

    def add(self, path, mode=stat.S_IFREG | 0o644, *, size=None, data=(), is_sparse=None, link=None, target=None, device=0, uid=None,
            gid=None, mtime=0, xattrs=(), base=None, base_bytes=b"", record=None, text=None, **more):
        """data: (offset, bytes) of a file; record: other members, None for one that is not to be there."""
        path, ranges = os.fsencode(path), [(off, len(piece)) for off, piece in data]
        content = b"".join(piece for _, piece in data)
        size = len(content) if size is None else size
        is_sparse = ranges != [(0, size)] and (size or data) if is_sparse is None else is_sparse
        if stat.S_ISREG(mode) and size and not link:
            more = {"at": 0, "end": size, **more}
        members = {k: v for k, v in {**self.record(**more), **(record or {})}.items() if v is not None}
        text = json.dumps(members, separators=(",", ":")).encode() if text is None else text
        attrs = [("user.veneer.delta", text), *([("user.veneer.base", os.fsencode(base))] if base else []), *xattrs]
        uid, gid = os.getuid() if uid is None else uid, os.getgid() if gid is None else gid
        keywords = [("path", path), ("uid", b"%d" % uid), ("gid", b"%d" % gid), ("mtime", b"%d" % mtime)]
        link = os.fsencode(link) if link is not None else None
        target = os.fsencode(target) if target is not None else None
        if link or target:
            keywords.append(("linkpath", link or target))
        body = content
        if is_sparse and stat.S_ISREG(mode) and not link:
            keywords += [("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.name", path),
                         ("GNU.sparse.realsize", b"%d" % size)]
            wanted = ranges or [(size, 0)]
            body = _padded(b"%d\n" % len(wanted) + b"".join(b"%d\n%d\n" % r for r in wanted)) + content
        keywords += [(f"SCHILY.xattr.{name}", value) for name, value in attrs]
        self.out.append(pax_entry(path, mode, keywords, body, link or target or b"", device))
        self._count(path, mode, link, target, attrs, (uid, gid, mtime), size, ranges if is_sparse else [], device)
        self._sums(content, base_bytes, "base_size" in members)
        return self

    def _count(self, path, mode, link, target, attrs, who, size, ranges, device):
        plain = path.rstrip(b"/") or path
        all_attrs = sum(xxh64(os.fsencode(name) + b"\0" + value) for name, value in attrs) & (1 << 64) - 1
        text = plain + b"\0" + (link or b"") + b"\0" + struct.pack("<Q", all_attrs)
        if not link:
            text += struct.pack("<IQQqQ", mode, who[0] & (1 << 64) - 1, who[1] & (1 << 64) - 1, who[2], 0)
            if stat.S_ISLNK(mode):
                text += (target or b"") + b"\0"
            elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                text += struct.pack("<Q", device)
            elif stat.S_ISREG(mode):
                text += struct.pack("<Q", size) + b"".join(struct.pack("<QQ", *r) for r in ranges if r[1])
        self._header_sum = xxh64(text)

    def _sums(self, content, base_bytes, has_base):
        self.base, self.has_base = xxh3(base_bytes), has_base
        self.sum = xxh64(struct.pack("<4Q", self.sum, self._header_sum, xxh3(content), self.base))
        self.entries += 1

    def directory(self, path, **more):
        return self.add(path, stat.S_IFDIR | 0o755, **more)

    def symlink(self, path, target, **more):
        return self.add(path, stat.S_IFLNK | 0o777, target=target, **more)

    def raw(self, data):
        self.out.append(data)
        return self

    def root(self, **more):
        return self.directory(".", **more)

    def end(self, **changes):
        text = json.dumps({"entries": self.entries, **self.record(), **changes}).encode()
        self.out.append(pax_entry(b".wh..wh.delta.end", stat.S_IFREG, [], text))
        return self

    def whole(self):
        return self.root().end().bytes()

    def bytes(self):
        return b"".join(self.out) + bytes(1024)
