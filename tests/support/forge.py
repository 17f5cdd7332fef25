# SPDX-License-Identifier: Apache-2.0
"""Marks and maps as an enemy could make them: every checksum right, whatever they say (doc/SPEC.md)."""
import os
import struct

_M = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MAP_NAME = ".wh..wh.veneer"
MARK_NAME = "user.veneer.partial"


def _rotate(x, n):
    return ((x << n) | (x >> (64 - n))) & _M


def _round(acc, lane):
    return _rotate((acc + lane * _P2) & _M, 31) * _P1 & _M


def xxh64(data):
    at, n = 0, len(data)
    if n >= 32:
        accs = [(_P1 + _P2) & _M, _P2, 0, -_P1 & _M]
        while at + 32 <= n:
            accs = [_round(acc, lane) for acc, lane in zip(accs, struct.unpack_from("<4Q", data, at))]
            at += 32
        h = sum(_rotate(acc, bits) for acc, bits in zip(accs, (1, 7, 12, 18))) & _M
        for acc in accs:
            h = ((h ^ _round(0, acc)) * _P1 + _P4) & _M
    else:
        h = _P5
    h = (h + n) & _M
    while at + 8 <= n:
        h = (_rotate(h ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _M
        at += 8
    if at + 4 <= n:
        h = (_rotate(h ^ struct.unpack_from("<I", data, at)[0] * _P1 & _M, 23) * _P2 + _P3) & _M
        at += 4
    for byte in data[at:]:
        h = _rotate(h ^ byte * _P5 & _M, 11) * _P1 & _M
    for shift, prime in ((33, _P2), (29, _P3), (32, 1)):
        h = (h ^ h >> shift) * prime & _M
    return h


def mark(path=b"", *, file_id=1, uuid=0x1122334455667788, size=0, mtime_ns=0, version=1, flags=None):
    path = os.fsencode(path)
    head = struct.pack("<BBHIQQqII", version, (1 if path else 0) if flags is None else flags, len(path),
                       uuid & 0xFFFFFFFF,
                       file_id, size, mtime_ns // 10**9, mtime_ns % 10**9, 0)
    return head + struct.pack("<Q", xxh64(head + path)) + path


def mark_of(target, path=b"", **more):
    """A mark that means what target is like."""
    st = os.stat(target)
    return mark(path, size=st.st_size, mtime_ns=st.st_mtime_ns, **more)


def record(kind, *words):
    """Without its checksum."""
    return struct.pack("<BBHI", kind, 2 + len(words), 0, 0) + struct.pack(f"<{len(words)}Q", *words)


OPEN, NEW, OWN_RUN, OWN_BITS, TRUNCATE, GONE, COMMIT, CLEAN, ZERO_RUN, ZERO_BITS = range(1, 11)


def map_file(snapshot=(), log=(), *, uuid=0x1122334455667788, next_id=None, count=None, padding=4096,
             features=(0, 0)):
    """A map of these records, every checksum as it should be."""
    body, ids = b"", [struct.unpack_from("<Q", r, 8)[0] for r in snapshot]
    start = struct.pack("<8sIIQQQ", b"\x89VNRMAP\n", 1, 128, *features, uuid) + struct.pack("<Q", 1)
    start48 = start[:48]
    last = xxh64(start48)
    for r in snapshot:
        last = xxh64(struct.pack("<Q", last) + r)
        body += r + struct.pack("<Q", last)
    head = start48 + struct.pack("<QQQQQQQQQ", max(ids, default=0) + 1 if next_id is None else next_id, 0, 0, 0, 0,
                                 len(body),
                                 sum(r[0] == NEW for r in snapshot) if count is None else count, last, 0)
    last = xxh64(head)
    head += struct.pack("<Q", last)
    for r in log:
        last = xxh64(struct.pack("<Q", last) + r)
        body += r + struct.pack("<Q", last)
    return head + body + bytes(padding)
