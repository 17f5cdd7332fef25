# SPDX-License-Identifier: Apache-2.0
"""Streams that an enemy made for `veneer receive`: every sum is right. Each is refused in one sentence, and nothing changes."""
import ctypes
import json
import os
import shutil
import stat

import pytest

from support import treestate
from support.content import BLOCK, KIB, blob
from support.deltas import Deltas, inside, left_over, view
from support.forged_delta import ID, Stream, pax_entry

REG, DIR, CHR = stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR
BIG = blob(40 * KIB, 4)
PUBLIC = blob(40 * KIB, 5)


class Nothing:
    """Instead of a server: receive does without."""
    environment = {"VENEER_RUNTIME_DIR": "/nowhere"}


def _fill(low):
    (low / "d").mkdir()
    (low / "d" / "secret").write_bytes(BIG)
    (low / "public").write_bytes(PUBLIC)
    os.symlink("d", low / "link")
    os.symlink("public", low / "filelink")
    os.mkfifo(low / "fifo")


@pytest.fixture
def made(stack):
    _fill(stack.lower())
    stack.remember_lowers()
    outside = stack.base / "outside"
    (outside / "dir").mkdir(parents=True)
    (outside / "file").write_text("outside")
    before = treestate.take(outside)
    d = Deltas(stack, Nothing)
    d.outside, d.target = outside, stack.base / "u"
    assert d.receive(d.target, Stream(id="0000000000000001", name="mine").add("mine", data=[(0, b"mine")]).whole()) == "mine"
    yield d
    assert treestate.differences(before, treestate.take(outside)) == []


# ---- what is right ----


def _right():
    s = Stream()
    s.add("d/.wh.secret", REG | 0o600).directory("d/", record={"same": True})
    s.add("partial", size=len(BIG), data=[(BLOCK, b"x" * BLOCK)], base="d/secret", base_size=len(BIG),
          base_bytes=BIG[:BLOCK] + BIG[2 * BLOCK:])
    s.add("plain", data=[(0, b"plain")])
    s.add("public", size=len(PUBLIC), data=[], base_size=len(PUBLIC), zeros=[[BLOCK, BLOCK]],
          base_bytes=PUBLIC[:BLOCK] + PUBLIC[2 * BLOCK:])
    s.add("second", link="partial")
    s.add("sparse", size=1 << 30, data=[(BLOCK, b"y" * 10)])
    s.symlink("symlink", "/outside")
    return s


def test_what_is_right_is_received(stack, shared):
    """So what follows is refused for what it is made for."""
    _fill(stack.lower())
    d = Deltas(stack, shared, "branches=on")
    m = d.arrived(_right().whole(), "b")
    assert (m / "partial").read_bytes() == BIG[:BLOCK] + b"x" * BLOCK + BIG[2 * BLOCK:]
    assert (m / "public").read_bytes() == PUBLIC[:BLOCK] + bytes(BLOCK) + PUBLIC[2 * BLOCK:]
    assert (m / "plain").read_text() == "plain" and os.listdir(m / "d") == []
    assert os.stat(m / "second").st_ino == os.stat(m / "partial").st_ino
    assert (m / "sparse").stat().st_size == 1 << 30 and os.readlink(m / "symlink") == "/outside"
    d.close()


# ---- what is not ----

PATHS = ["..", "../x", "/abs", "a/../b", "./a", "a//b", "", "x" * 256, "a/" * 2048 + "a", ".wh.", ".wh...", ".wh..", ".wh..wh.veneer",
         ".wh..wh..opq", ".wh..wh.branches", ".wh..wh.branches/chain", ".wh.a/b", "a/.wh.b/c", "d/.wh..wh.delta.end/x", ".wh..wh.delta",
         "d/../../../outside/file", "a\nveneer: b\x1b[31m/../x"]


def _case_of_path(path):
    return lambda s, d: s.add(path, data=[(0, b"x")])


def _base(s, name="evil", path="d/secret", of=BIG, **more):
    """A file whose only own block is the first one."""
    more = {"base_size": len(of), "base_bytes": of[BLOCK:], "size": len(of), "data": [(0, b"x" * BLOCK)], **more}
    return s.add(name, base=path, **more)


def _outside(s, d):
    return s.symlink("l", str(d.outside))


def _parts(s, *, second="d/secret", of=BIG, size=None, at=2 * BLOCK):
    _base(s, end=2 * BLOCK, base_bytes=BIG[BLOCK:2 * BLOCK])
    return s.add("evil", base=second, base_size=len(BIG), size=len(BIG) if size is None else size, data=[], at=at, end=len(BIG),
                 base_bytes=of[2 * BLOCK:])


CASES = {
    "whiteout of a directory": lambda s, d: s.directory(".wh.x"),
    "whiteout with data": lambda s, d: s.add(".wh.x", data=[(0, b"x")]),
    "whiteout that is a link": lambda s, d: s.add("a", data=[(0, b"x")]).add(".wh.x", link="a"),
    "whiteout over a file": lambda s, d: s.add("x", data=[(0, b"x")]).add(".wh.x", REG | 0o600),
    "file through a symlink": lambda s, d: _outside(s, d).add("l/file", data=[(0, b"evil")]),
    "file over a symlink": lambda s, d: s.symlink("l", str(d.outside / "new")).add("l", data=[(0, b"evil")]),
    "directory over a symlink": lambda s, d: _outside(s, d).directory("l"),
    "same directory over a symlink": lambda s, d: s.symlink("d", str(d.outside)).directory("d", record={"same": True}),
    "same directory of none": lambda s, d: s.directory("public", record={"same": True}),
    "same directory through a symlink below": lambda s, d: s.directory("link", record={"same": True}),
    "whiteout through a symlink": lambda s, d: _outside(s, d).add("l/.wh.file", REG | 0o600),
    "opaque through a symlink": lambda s, d: _outside(s, d).directory("l/dir", record={"opaque": True}),
    "link to outside": lambda s, d: s.add("x", link="../outside/file"),
    "link to a path": lambda s, d: s.add("x", link=str(d.outside / "file")),
    "link through a symlink": lambda s, d: _outside(s, d).add("x", link="l/file"),
    "link made through a symlink": lambda s, d: _outside(s, d).add("a", data=[(0, b"x")]).add("l/x", link="a"),
    "link to a directory": lambda s, d: s.directory("a").add("x", link="a"),
    "link to nothing": lambda s, d: s.add("x", link="a"),
    "link to itself": lambda s, d: s.add("x", link="x"),
    "link to the map": lambda s, d: _base(s).add("x", link=".wh..wh.veneer"),
    "link to a whiteout": lambda s, d: s.add(".wh.public", REG | 0o600).add("x", link="public"),
    "link to a whiteout's name": lambda s, d: s.add(".wh.public", REG | 0o600).add("x", link=".wh.public"),
    "link to a file at its own place": lambda s, d: _base(s, "d/secret", None).add("x", link="d/secret"),
    "link over a file": lambda s, d: s.add("a", data=[(0, b"x")]).add("b", data=[(0, b"x")]).add("b", link="a"),
    "root is a link": lambda s, d: s.add("a", data=[(0, b"x")]).add(".", link="a"),
    "root is a file": lambda s, d: s.add(".", data=[(0, b"x")]),
    "root is a symlink": lambda s, d: s.symlink(".", str(d.outside)),
    "root is the same": lambda s, d: s.directory(".", record={"same": True}),
    "file twice": lambda s, d: s.add("x", data=[(0, b"x")]).add("x", data=[(0, b"y")]),
    "file over a directory": lambda s, d: s.directory("x").add("x", data=[(0, b"y")]),
    "directory over a file": lambda s, d: s.add("x", data=[(0, b"x")]).directory("x"),
    "file in a file": lambda s, d: s.add("x", data=[(0, b"x")]).add("x/y", data=[(0, b"x")]),
    "symlink over a file": lambda s, d: s.add("x", data=[(0, b"x")]).symlink("x", "y"),
    "socket over a file": lambda s, d: s.add("x", data=[(0, b"x")]).add("x", record={"socket": True}),
    "symlink to nothing": lambda s, d: s.symlink("x", ""),
    "device 0:0": lambda s, d: s.add("x", CHR | 0o600),
    "owner -1": lambda s, d: s.add("x", uid=0xFFFFFFFF),
    "group -1": lambda s, d: s.add("x", gid=0xFFFFFFFF),
    "owner past all": lambda s, d: s.add("x", uid=1 << 32),
    "size past all": lambda s, d: s.add("x", size=(1 << 63) - 1, data=[(0, b"x")], end=(1 << 63) - 1),
    "ranges overlap": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000), (4000, b"y" * 5000)]),
    "ranges descend": lambda s, d: s.add("x", size=20_000, data=[(9000, b"x" * 5000), (0, b"y" * 5000)]),
    "ranges past the end": lambda s, d: s.add("x", size=20_000, data=[(19_000, b"x" * 5000)]),
    "ranges past the part": lambda s, d: s.add("x", size=20_000, data=[(9000, b"x" * 5000)], end=10_000),
    "ranges before the part": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=10_000)
        .add("x", size=20_000, data=[(4096, b"x" * 5000)], at=10_000),
    "a range ahead of all numbers": lambda s, d: s.add("x", size=20_000, data=[((1 << 63) - 2, b"x" * 5000)]),
    "ranges in the middle of a block": lambda s, d: _base(s, data=[(100, b"x" * 100)], base_bytes=BIG[:100] + BIG[200:]),
    "a range that ends in a block": lambda s, d: _base(s, data=[(0, b"x" * 100)], base_bytes=BIG[100:]),
    "zeros overlap": lambda s, d: _base(s, zeros=[[BLOCK, 2 * BLOCK], [2 * BLOCK, BLOCK]], base_bytes=BIG[4 * BLOCK:]),
    "zeros descend": lambda s, d: _base(s, zeros=[[2 * BLOCK, BLOCK], [BLOCK, BLOCK]], base_bytes=BIG[4 * BLOCK:]),
    "zeros where data is": lambda s, d: _base(s, zeros=[[0, BLOCK]]),
    "zeros past the end": lambda s, d: _base(s, zeros=[[9 * BLOCK, 2 * BLOCK]], base_bytes=BIG[BLOCK:9 * BLOCK]),
    "zeros past all": lambda s, d: _base(s, zeros=[[BLOCK, (1 << 63) - 1]], base_bytes=b""),
    "zeros of nothing": lambda s, d: _base(s, zeros=[[BLOCK, 0]]),
    "zeros below": lambda s, d: _base(s, zeros=[[-BLOCK, BLOCK]]),
    "zeros that are no ranges": lambda s, d: _base(s, zeros=[BLOCK]),
    "zeros that are text": lambda s, d: _base(s, zeros="all"),
    "too many zeros": lambda s, d: _base(s, zeros=[[k, 1] for k in range(BLOCK, BLOCK + 5000)]),
    # What is between them would be of a file that the sender may not know.
    "zeros that hide what is not summed": lambda s, d: _base(s, data=[], zeros=[[0, len(BIG) - 1]], base_bytes=BIG[-1:]),
    "zeros within a block": lambda s, d: _base(s, zeros=[[BLOCK + 1, BLOCK - 2]], base_bytes=BIG[BLOCK:BLOCK + 1] + BIG[2 * BLOCK - 1:]),
    "zeros that begin in a block": lambda s, d: _base(s, zeros=[[BLOCK + 1, BLOCK - 1]], base_bytes=BIG[BLOCK:BLOCK + 1] + BIG[2 * BLOCK:]),
    "base outside": lambda s, d: _base(s, path="../outside/file"),
    "base by a path": lambda s, d: _base(s, path=str(d.outside / "file")),
    "base twice": lambda s, d: _base(s, xattrs=[("user.veneer.base", b"public")]),
    "base through a symlink": lambda s, d: _base(s, path="link/secret"),
    "base is a symlink": lambda s, d: _base(s, path="filelink", of=PUBLIC),
    "base is a directory": lambda s, d: _base(s, path="d"),
    "base is a fifo": lambda s, d: _base(s, path="fifo"),
    "base is not there": lambda s, d: _base(s, path="nothing"),
    "base of its own stream": lambda s, d: s.add("a", data=[(0, BIG)]).add("b", base="a", size=len(BIG), data=[], base_size=len(BIG), base_bytes=BIG),
    "base at its own place that is none": lambda s, d: _base(s, path=None),
    "base is another one": lambda s, d: _base(s, base_bytes=b"guessed"),
    "base is longer": lambda s, d: _base(s, base_size=len(BIG) - 1),
    "base is shorter": lambda s, d: _base(s, base_size=len(BIG) + 1),
    "more than the base has": lambda s, d: _base(s, size=len(BIG) + BLOCK, end=len(BIG) + BLOCK, base_bytes=BIG[BLOCK:] + bytes(BLOCK)),
    "part without the first": lambda s, d: s.add("x", size=20_000, data=[(10_000, b"x" * 10_000)], at=10_000),
    "part behind a gap": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000)
        .add("x", size=20_000, data=[(10_000, b"x" * 10_000)], at=10_000),
    "part of another size": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000)
        .add("x", size=30_000, data=[(5000, b"x" * 25_000)], at=5000),
    "part of another file": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000)
        .add("y", size=20_000, data=[(5000, b"x" * 15_000)], at=5000),
    "part with another base": lambda s, d: _parts(s, second="public", of=PUBLIC),
    "part that has a base only then": lambda s, d: s.add("evil", size=len(BIG), data=[(0, b"x" * BLOCK)], end=2 * BLOCK)
        .add("evil", base="d/secret", base_size=len(BIG), size=len(BIG), data=[], at=2 * BLOCK, base_bytes=BIG[2 * BLOCK:]),
    "part that has no base any more": lambda s, d: _base(s, end=2 * BLOCK, base_bytes=BIG[BLOCK:2 * BLOCK])
        .add("evil", size=len(BIG), data=[(2 * BLOCK, b"x")], at=2 * BLOCK),
    "part twice": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000)
        .add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000),
    "parts that stop": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000),
    "parts with a directory between": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000).directory("x")
        .add("x", size=20_000, data=[(5000, b"x" * 15_000)], at=5000),
    "parts with a symlink of the name between": lambda s, d: s.add("x", size=20_000, data=[(0, b"x" * 5000)], end=5000).symlink("x", "/")
        .add("x", size=20_000, data=[(5000, b"x" * 15_000)], at=5000),
    "part of nothing": lambda s, d: s.add("x", size=20_000, data=[], end=0),
    "part past its file": lambda s, d: s.add("x", data=[(0, b"x" * 5000)], end=6000),
    "no record": lambda s, d: s.raw(pax_entry(b"x", REG | 0o644, [])),
    "two records": lambda s, d: s.add("x", xattrs=[("user.veneer.delta", json.dumps(s.record()).encode())]),
    "another sum": lambda s, d: s.add("x", record={"sum": "0123456789abcdef"}),
    "nanoseconds past all": lambda s, d: s.add("x", mtime_ns=10**9),
    "a second head": lambda s, d: s.raw(Stream().out[0]),
}
for _path in PATHS:
    CASES[f"path {_path[:30]!r} of {len(_path)}"] = _case_of_path(_path)
for _attr in ("trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.metacopy", "user.overlay.redirect",
              "user.overlay.opaque", "user.veneer.partial", "trusted.veneer.partial", "trusted.veneer.number", "user.veneer.number",
              "user.veneer.flatten", "trusted.veneer.origin", "user.fuseoverlayfs.opaque", "security.fuseoverlayfs.override_stat",
              "user.containers.override_stat", "user.fuseoverlayfs.override_stat", "security.selinux", "user.veneer%2Epartial",
              "trusted%2Eoverlay.redirect", "nonsense"):
    CASES[f"attribute {_attr}"] = lambda s, d, attr=_attr: s.directory("x", xattrs=[(attr, b"y")])
for _text in (b"", b"[]", b"null", b"7", b'"text"', b"{", b"{}", b'{"sum":7}', b'{"sum":"0"}', b'{"sum":"000000000000000G"}',
              b'{"sum":"0000000000000000","sum":"0000000000000000"}', b"[" * 100_000, b'{"sum":"0000000000000000","at":-1,"end":1}',
              b'{"sum":"0000000000000000","at":2,"end":1}', b'{"sum":"0000000000000000","end":1e3}',
              b'{"sum":"0000000000000000","base_size":-1}', b'{"sum":"0000000000000000","base_size":"all"}',
              b'{"sum":"0000000000000000","x":"' + b"x" * 300_000 + b'"}'):
    CASES[f"record {_text[:40]!r} of {len(_text)}"] = lambda s, d, text=_text: s.add("x", text=text)


def _streams(d):
    for name, case in CASES.items():
        s = case(Stream(), d)
        yield name, s.whole() if isinstance(s, Stream) else s


HEADS = [b"", b"[]", b"{", b"{}", b"7", b"x" * 300_000, b"[" * 100_000]
HEAD_CHANGES = [{"veneer_delta": 2}, {"veneer_delta": "1"}, {"veneer_delta": -1}, {"id": "0"}, {"id": 7}, {"id": "0" * 16},
                {"id": f"{ID:016x}", "from": f"{ID:016x}"}, {"name": "../x"}, {"name": ""}, {"name": 7}, {"name": "x" * 65}, {"name": "x\ny"},
                {"name": "x\0y"}, {"first": -1}, {"first": 7}, {"first": "7"}, {"sum": "x"}, {"from": 7}, {"from": "fffffffffffffffe"}, {"id": "0000000000000001"},
                {"name": "mine"}]
ENDS = [{"entries": 0}, {"entries": 3}, {"entries": -1}, {"entries": "2"}, {"sum": "0123456789abcdef"}, {"sum": 7}, {"base_sum": "0123456789abcdef"}]


def _check_all(d, where, streams):
    """Names of those that were not refused as they should be."""
    wrong = []
    for name, stream in streams:
        try:
            said = d.refused(where, stream)
        except AssertionError as e:
            wrong.append((name, str(e)[:600]))
            continue
        if left_over(d.target if where == d.target else d.upper("b")):
            wrong.append((name, "leaves something"))
        if not said.startswith("veneer: ") or "Success" in said or "\x1b" in said:
            wrong.append((name, said))
    return wrong


def test_it_is_refused(made):
    assert _check_all(made, made.target, _streams(made)) == []


def test_heads_and_ends(made):
    streams = [(f"head {head[:40]}", Stream(head).whole()) for head in HEADS]
    streams += [(f"head {change}", Stream(**change).whole()) for change in HEAD_CHANGES]
    streams += [(f"end {change}", Stream().add("x", data=[(0, b"x")]).root().end(**change).bytes()) for change in ENDS]
    behind = Stream().root().end()
    streams += [("an entry behind the end", behind.add("x", data=[(0, b"x")]).bytes()),
                ("a second end", Stream().root().end().end().bytes()),
                ("a base that is hidden at the end", _base(Stream()).end(base_sum=None).bytes()),
                ("a head alone", Stream().bytes()),
                ("no head", b"".join(Stream().add("x").root().end().out[1:]) + bytes(1024)),
                ("a directory as head", pax_entry(b".wh..wh.delta", DIR | 0o755, []) + bytes(1024))]
    assert _check_all(made, made.target, streams) == []


def test_the_server_lives(stack, shared):
    """The same while a mount shows the upper: it looks as before, and goes on."""
    _fill(stack.lower())
    outside = stack.base / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside")
    d = Deltas(stack, shared, "branches=on")
    d.outside, d.target = outside, None
    m = d.mount("b")
    (m / "mine").write_text("mine")
    d.snapshot(m, "mine")
    before, pid = view(m), shared.pid
    assert _check_all(d, m, list(_streams(d))[::4]) == []
    assert view(m) == before and shared.pid == pid
    (m / "more").write_text("more")
    d.snapshot(m, "two")
    assert d.receive(m, _right().whole()) == "forged"
    assert inside(view(d.branch(f"{m}@forged", "c")))["plain"]["size"] == 5
    d.close()


def _compressed(data):
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    into = ctypes.create_string_buffer(1 << 20)
    return into.raw[:zstd.ZSTD_compress(into, ctypes.c_size_t(len(into)), data, ctypes.c_size_t(len(data)), 1)]


def test_bombs(made):
    """What grows when it is unpacked is not kept in memory."""
    start, zeros = b"".join(Stream().out), bytes(256 << 20)
    size = b"%011o" % len(zeros)
    attribute = pax_entry(b"x", REG, [("SCHILY.xattr.user.a", b"")])[:512]
    head = pax_entry(b".wh..wh.delta", REG, [])[:512]
    record = Stream().add("x", size=1 << 20, data=[(0, b"x")]).out[1]
    for text in (start + attribute[:124] + size + attribute[135:], head[:124] + size + head[135:], start + record[:1024]):
        stream = _compressed(text + zeros)
        assert len(stream) < 1 << 20
        made.refused(made.target, stream)


def test_who_may_not_write_the_upper_may_not_make_it_receive(stack, mode):
    """The place where a stream is received belongs to this user alone; else it is left alone."""
    if mode != "root":
        pytest.skip("takes another user")
    _fill(stack.lower())
    d = Deltas(stack, Nothing)
    upper = stack.base / "u"
    assert d.receive(upper, Stream(id="0000000000000001", name="mine").whole()) == "mine"
    place, secret = upper / ".wh..wh.branches" / "receive", stack.base / "secret"
    secret.mkdir()
    (secret / "root").mkdir()
    place.mkdir()
    os.chown(place, 1000, 1000)
    assert "not permitted" in d.refused(upper, _right().whole())
    place.rmdir()
    os.symlink(secret, place)
    before = treestate.take(secret)
    done = d.call("receive", "-q", "-o", d.on(), upper, data=_right().whole())
    assert treestate.take(secret) == before and done.stderr.count(b"\n") == (done.returncode != 0)
    # A token is never shown as it is.
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "token").write_text("\x1b]0;evil\x07")
    done = d.call("receive", "--resume-token", upper)
    assert done.returncode == 1 and done.stdout == b"" and b"\x1b" not in done.stderr
