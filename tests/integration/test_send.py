# SPDX-License-Identifier: Apache-2.0
"""What a snapshot changes goes to another host as a stream, and is the same there."""
import io
import json
import os
import random
import shutil
import socket
import stat
import subprocess
import tarfile

import pytest

from support import acl, linux, treestate
from support.content import BLOCK, KIB, MIB, allocated_on_disk, blob
from support.deltas import BIG, Deltas, change, fill, inside, left_over, sent, view
from support.expect import write_at
from support.snapshots import BRANCHES, change_at_random

SHARE = pytest.param("share=pages", marks=pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN"))


@pytest.fixture(params=["branches=on", "io=cached", SHARE], ids=["auto", "cached", "share"])
def d(request, stack, shared):
    yield from _made(stack, shared, request.param)


@pytest.fixture
def one(stack, shared):
    """Where the way that bytes are read does not matter."""
    yield from _made(stack, shared, "branches=on")


def _made(stack, shared, option):
    made = Deltas(stack, shared, option)
    fill(stack.lower())
    yield made
    made.close()


# ---- what is in it ----


def _times(m, path, ns):
    os.utime(m / path, ns=(ns, ns), follow_symlinks=False)


def _every_kind(m):
    change(m)
    os.link(m / "own", m / "second")
    os.link(m / "own", m / "new" / "third")
    os.mkfifo(m / "fifo", 0o640)
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(m)
        s.bind("sock")
        os.chdir(here)
    os.chmod(m / "sock", 0o751)
    (m / "empty").touch()
    with open(m / "sparse", "wb") as f:
        f.truncate(3 * MIB)
        f.seek(MIB)
        f.write(b"in the middle")
    os.setxattr(m / "own", "user.some", b"\0\xff\n=")
    os.setxattr(m / "d", "user.of a %dir", b"")
    os.setxattr(m / "d" / "e" / "x", "user." + "n" * 200, blob(1000))
    os.setxattr(m / "new", acl.DEFAULT, acl.encode((1, 7), (2, 5, os.getuid()), (4, 5), (16, 5), (32, 0)))
    os.setxattr(m / "new" / "f", acl.ACCESS, acl.encode((1, 6), (2, 4, os.getuid()), (4, 4), (16, 4), (32, 0)))
    os.symlink("x" * 4000, m / "longlink")
    os.symlink(b"\xff\n\xc3\xa4", m / "badlink")
    for name in (b"\xff\xfe", b"with\nnewline", "ä€".encode(), b"back\\slash", b"*?[", b" ", b"-o", b"n" * 255):
        (m / os.fsdecode(name)).write_bytes(name)
    deep, here = m, os.getcwd()
    while len(str(deep)) - len(str(m)) < 3700:
        deep = deep / ("p" * 200)
        os.mkdir(deep)
    os.chdir(deep)
    with open("q" * 150, "w", encoding="ascii") as f:
        f.write("deep")
    os.chdir(here)
    _times(m, "own", 1_500_000_000_123_456_789)
    _times(m, "link", 1_600_000_000_000_000_001)
    _times(m, "fifo", -1_000_000_000)
    _times(m, "sock", 0)
    _times(m, "empty", -86_400 * 10**9 * 365 * 30)
    _times(m, "new", 4_000_000_000_999_999_999)
    os.chmod(m / "new", 0o2771)
    os.chmod(m / "own", 0o6755)
    os.chmod(m, 0o751)
    _times(m, ".", 1_234_567_890_111_111_111)


def _privileged(m):
    os.mknod(m / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(m / "disk", stat.S_IFBLK | 0o600, os.makedev(259, 70_000))
    for path, uid, gid in (("own", 1, 2), ("moved", 3, 0), ("new", 70, 71), ("link", 5, 6), ("sock", 7, 8)):
        os.chown(m / path, uid, gid, follow_symlinks=False)
    os.setxattr(m / "moved", "trusted.t", b"trusted")


def test_it_is_the_same_tree(d, mode):
    m = d.mount("a")
    _every_kind(m)
    if mode == "root":
        _privileged(m)
        os.chmod(m / "own", 0o6755)
    d.snapshot(m, "one")
    want = view(m)
    stream = d.send(f"{m}@one")
    names = subprocess.run(["tar", "tf", "-"], input=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout
    assert names.startswith(b".wh..wh.delta\n") and names.endswith(b"./\n.wh..wh.delta.end\n") and b"\nnew/f\n" in names
    m2 = d.arrived(stream, "b")
    assert view(m2) == want
    assert allocated_on_disk(m2 / "sparse") < 100 * KIB
    chain, other = d.chain(m), d.chain(m2)
    assert other["head"] == "one" and [(e["id"], e["time_ns"]) for e in other["snapshots"]] == \
        [(e["id"], e["time_ns"]) for e in chain["snapshots"]]
    assert left_over(d.upper("b")) == []
    # It goes on there, and it can be sent on from there.
    assert d.send(f"{m2}@one") == stream
    write_at(m2 / "big", b"LATER", 200_000)
    assert (m / "big").read_bytes()[200_000:200_005] != b"LATER"
    d.umount("b")
    d.check(d.upper("b"))
    d.umount("a")
    d.check(d.upper("a"))


@pytest.mark.parametrize("ns", [-1, -500_000_000, -1_999_999_999, -10**9 * 10**8 - 1])
def test_times_before_1970_keep_their_nanoseconds(one, ns):
    m = one.mount("a")
    (m / "f").touch()
    os.utime(m / "f", ns=(ns, ns))
    one.snapshot(m, "one")
    assert os.stat(one.arrived(one.send(f"{m}@one"), "b") / "f").st_mtime_ns == ns


def test_a_changed_block_is_what_travels(d):
    m = d.mount("a")
    for k in range(3):
        write_at(m / "big", bytes([k]) * 10, k * 150_000)
    d.snapshot(m, "one")
    stream = d.send(f"{m}@one")
    assert len(stream) < 40 * KIB
    said = json.loads(d.ok("send", "-n", "--json", f"{m}@one"))
    assert said == {"entries": 2, "bytes": 3 * BLOCK, "file_bytes": BIG}
    m2 = d.arrived(stream, "b")
    assert (m2 / "big").read_bytes() == (m / "big").read_bytes()
    assert allocated_on_disk(d.upper("b")) < 80 * KIB
    with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
        assert [e.name for e in tar] == [".wh..wh.delta", "big", ".", ".wh..wh.delta.end"]


def test_a_copy_of_a_lower_file_travels_as_one(one, stack):
    (stack.lower() / "large").write_bytes(blob(8 * MIB, 9))
    m = one.mount("a")
    for name in ("copy", "written", "away"):
        subprocess.run(["cp", m / "large", m / name], check=True)
    write_at(m / "written", b"HERE", 5 * MIB)
    os.rename(m / "away", m / "d" / "e" / "copy")
    os.unlink(m / "large")
    one.snapshot(m, "one")
    stream = one.send(f"{m}@one")
    assert len(stream) < 40 * KIB
    m2 = one.arrived(stream, "b")
    assert view(m2) == view(m)
    assert allocated_on_disk(one.upper("b")) < 100 * KIB
    names = ("copy", "written", "d/e/copy")
    assert len({os.stat(m2 / name).st_ino for name in names} | {os.stat(stack.lower() / "large").st_ino}) == 4
    write_at(m2 / "copy", b"LATER", 0)
    assert (m2 / "d" / "e" / "copy").read_bytes() == blob(8 * MIB, 9)
    one.umount("b")
    one.check(one.upper("b"))


def _cut(size):
    return lambda path: os.truncate(path, size)


def _punch(off, size):
    def punch(path):
        fd = os.open(path, os.O_RDWR)
        linux.fallocate(fd, linux.FALLOC_KEEP_SIZE | linux.FALLOC_PUNCH_HOLE, off, size)
        os.close(fd)
    return punch


def _write(data, off):
    return lambda path: write_at(path, data, off)


PARTIALS = {
    "a byte": [_write(b"x", 300_001)],
    "cut": [_cut(99_999)],
    "cut and longer": [_cut(99_999), _cut(300_000)],
    "longer": [_cut(BIG + 12_345)],
    "longer, with data": [_write(b"tail", BIG + 99_999)],
    "data at the end": [_write(b"tail", BIG - 2)],
    "an odd end": [_cut(BIG - 1), _write(b"y", BIG - 3)],
    "cut, longer, data behind the clip": [_cut(70_001), _cut(400_000), _write(b"z", 200_000)],
    "cut, longer, data at the clip": [_cut(70_001), _write(b"z" * 10, 70_005)],
    "cut twice": [_cut(300_001), _cut(500_000), _cut(250_003), _cut(BIG), _write(b"w", 260_000)],
    "punched": [_punch(100_000, 120_000)],
    "punched at the end": [_punch(BIG - 50_000, 100_000)],
    "zeros written": [_write(bytes(40_000), 100_001)],
    "cut to nothing and longer": [_cut(0), _cut(200_000)],
    "whole": [_write(blob(BIG, 9), 0)],
    "every second block": [lambda path: [write_at(path, b"q", k * 2 * BLOCK) for k in range(70)]],
    "mode alone": [lambda path: os.chmod(path, 0o600)],
}


def test_partial_files_have_the_same_bytes(d):
    low = d.stack.lower()
    for size in (BIG, BIG - 1, 100_001):
        for k in range(len(PARTIALS)):
            (low / f"{k}-{size}").write_bytes(blob(size, k + size))
    m = d.mount("a")
    for size in (BIG, BIG - 1, 100_001):
        for k, steps in enumerate(PARTIALS.values()):
            for step in steps:
                step(m / f"{k}-{size}")
    d.snapshot(m, "one")
    stream = d.send(f"{m}@one")
    m2 = d.arrived(stream, "b")
    for size in (BIG, BIG - 1, 100_001):
        for k, name in enumerate(PARTIALS):
            assert (m2 / f"{k}-{size}").read_bytes() == (m / f"{k}-{size}").read_bytes(), (name, size)
    assert view(m2) == view(m)
    # Once more, on top of that: they are partial files of partial files now.
    for size in (BIG, BIG - 1, 100_001):
        for k in range(len(PARTIALS)):
            for step in [*PARTIALS.values()][(k + 3) % len(PARTIALS)]:
                step(m / f"{k}-{size}")
    d.snapshot(m, "two")
    assert d.receive(m2, d.send(f"{m}@two", "--from", "one")) == "two"
    assert inside(view(d.branch(f"{m2}@two", "c"))) == inside(view(m))
    both = d.arrived(d.send(f"{m}@two"), "both")
    assert view(both) == view(m)


def test_what_was_moved_refers_to_where_it_was(d):
    low = d.stack.lower()
    for k in range(5):
        (low / "r" / f"f{k}").write_bytes(blob(BIG, k))
    os.link(low / "big", low / "big2")
    (low / "hardly").write_bytes(blob(10 * KIB))
    m = d.mount("a")
    os.rename(m / "r" / "f1", m / "elsewhere")
    os.rename(m / "r", m / "s")
    os.rename(m / "s" / "deep", m / "top")
    write_at(m / "s" / "f2", b"NEW", 5)
    os.truncate(m / "s" / "f3", BIG // 2)
    os.mkdir(m / "r")
    (m / "r" / "f0").write_text("another")
    os.chmod(m / "s" / "f4", 0o600)
    os.rename(m / "big2", m / "linked")
    d.snapshot(m, "one")
    stream, want = d.send(f"{m}@one"), view(m)
    assert len(stream) < 120 * KIB
    m2 = d.arrived(stream, "b")
    assert view(m2) == want
    assert os.stat(m2 / "big").st_ino == os.stat(m2 / "linked").st_ino
    write_at(m2 / "linked", b"both", 9000)
    assert (m2 / "big").read_bytes()[9000:9004] == b"both"
    # What is moved after that refers to the one that was received.
    os.rename(m2 / "s", m2 / "t")
    write_at(m2 / "t" / "f2", b"MORE", 50_000)
    d.snapshot(m2, "two")
    want = view(m2)
    step = d.send(f"{m2}@two", "--from", "one")
    assert len(step) < 120 * KIB
    assert d.receive(m, step) == "two"
    assert inside(view(d.branch(f"{m}@two", "c"))) == inside(want)


def test_what_was_replaced_and_removed(d):
    m = d.mount("a")
    (m / "small").unlink()
    (m / "small").mkdir()
    (m / "small" / "in").write_text("in")
    shutil.rmtree(m / "d")
    (m / "d").write_text("a file")
    shutil.rmtree(m / "r")
    (m / "r").mkdir()
    (m / "r" / "only").write_text("only")
    os.symlink("nowhere", m / "gone2")
    long = os.fsdecode(b"\xc3\xa4" * 127)
    (m / long).write_text("long")
    d.snapshot(m, "one")
    want = view(m)
    (m / "d").unlink()
    (m / "d").mkdir()
    shutil.rmtree(m / "small")
    os.rename(m / "big", m / "small")
    (m / "r" / "deep").mkdir()
    (m / long).unlink()
    shutil.rmtree(m / "r")
    d.snapshot(m, "two")
    m2 = d.arrived(d.send(f"{m}@one"), "b")
    assert view(m2) == want
    assert d.receive(m2, d.send(f"{m}@two", "--from", "one")) == "two"
    assert inside(view(d.branch(f"{m2}@two", "c"))) == inside(view(m))
    assert view(d.arrived(d.send(f"{m}@two"), "e")) == view(m)


@pytest.mark.parametrize("size", [251, 252, 255])
def test_a_long_name_can_be_deleted(one, size):
    name = "n" * size
    (one.stack.lower() / name).write_text("long")
    m = one.mount("a")
    try:
        (m / name).unlink()
    except OSError:
        pytest.skip("this file system has no whiteout for it")
    one.snapshot(m, "one")
    assert view(one.arrived(one.send(f"{m}@one"), "b")) == view(m)


def test_names_that_sort_around_a_slash(one):
    """What is in a directory stays together, whatever stands beside it."""
    m = one.mount("a")
    for k in range(40):
        (m / f"n{k}").mkdir()
        for c in "\x01.-0/":
            (m / f"n{k}{c}x").write_text(c)
        (m / f"n{k}\x01").mkdir()
        (m / f"n{k}\x01" / "in").touch()
        os.chmod(m / f"n{k}", 0o711)
    one.snapshot(m, "one")
    assert view(one.arrived(one.send(f"{m}@one"), "b")) == view(m)


def test_attributes_alone(d, mode):
    m = d.mount("a")
    os.chmod(m / "big", 0o6711)
    os.chmod(m / "d" / "e", 0o1777)
    if mode == "root":
        os.chown(m / "big", 1000, 1001)
        os.chown(m / "d", 5, 6)
        os.chmod(m / "big", 0o4711)
    d.snapshot(m, "one")
    stream = d.send(f"{m}@one")
    assert len(stream) < 20 * KIB
    assert view(d.arrived(stream, "b")) == view(m)


# ---- several of them ----


def test_a_chain_of_five(d):
    m, views = d.mount("a"), []
    for k in range(5):
        write_at(m / "big", b"%03d" % k, k * 100_000)
        write_at(m / "r" / "deep" / "file", b"%03d" % k, k * 20_000)
        (m / f"f{k}").write_bytes(blob(10 * KIB, k))
        if k:
            (m / f"f{k - 1}").unlink()
        os.rename(m / ("d" if not k else f"d{k - 1}"), m / f"d{k}")
        d.snapshot(m, f"s{k}")
        views.append(view(m))
    m2 = d.arrived(d.send(f"{m}@s0"), "b")
    for k in range(1, 5):
        stream = d.send(f"{m}@s{k}", "--from", f"s{k - 1}")
        assert len(stream) < 60 * KIB
        assert d.receive(m2, stream) == f"s{k}"
    assert view(m2) == views[0]
    for k in range(5):
        assert inside(view(d.branch(f"{m2}@s{k}", f"at{k}"))) == inside(views[k])
    # Over several at once, and without any.
    for base, upto in ((0, 4), (1, 3)):
        other = d.arrived(d.send(f"{m}@s{base}"), f"from{base}")
        d.receive(other, d.send(f"{m}@s{upto}", "--from", f"s{base}"))
        assert inside(view(d.branch(f"{other}@s{upto}", f"to{upto}"))) == inside(views[upto])
    assert view(d.arrived(d.send(f"{m}@s4"), "all")) == views[4]
    # All of them into an upper that no mount uses: it shows the last one.
    upper = d.stack.base / "offline"
    for k in range(5):
        more = ["--from", f"s{k - 1}"] if k else []
        d.receive(upper, d.send(f"{m}@s{k}", *more))
    assert view(d.place_of(upper, "off")) == views[4]


def test_squashed_ones(d):
    m = d.mount("a")
    for k in range(4):
        write_at(m / "big", b"%03d" % k, k * 100_000)
        (m / f"f{k}").write_bytes(blob(10 * KIB, k))
        d.snapshot(m, f"s{k}")
    m2 = d.arrived(d.send(f"{m}@s0"), "b")
    d.ok("squash", "-q", m, "s1..s3")
    assert [e["name"] for e in d.chain(m)["snapshots"]] == ["s0", "s3"]
    assert d.receive(m2, d.send(f"{m}@s3", "--from", "s0")) == "s3"
    assert inside(view(d.branch(f"{m2}@s3", "c"))) == inside(view(m))
    # And received ones are squashed.
    d.snapshot(m2, "own")
    m2 = d.go_back("b", "s3", "--keep", "before")
    d.ok("squash", "-q", m2)
    assert view(m2) == view(m)
    assert view(d.arrived(d.send(f"{m2}@s3"), "e")) == view(m)


def test_the_live_part_goes_on(d):
    stream, want = sent(d)
    m2 = d.mount("b")
    (m2 / "mine").write_text("mine")
    before = view(m2)
    assert d.receive(m2, stream) == "one"
    assert view(m2) == before
    # The server knows of it when the next one is taken.
    d.snapshot(m2, "two")
    assert [(e["name"], e["parent"]) for e in d.chain(m2)["snapshots"]] == [("one", None), ("two", None)]
    assert view(m2) == before and inside(view(d.branch(f"{m2}@one", "c"))) == inside(want)
    d.umount("b")
    assert view(d.mount("b")) == before
    assert view(d.go_back("b", "one")) == want


def test_an_upper_with_a_live_part_keeps_it(one):
    stream, want = sent(one)
    m2 = one.mount("b")
    (m2 / "mine").write_text("mine")
    before = view(m2)
    one.umount("b")
    assert one.receive(one.upper("b"), stream) == "one"
    assert one.chain(one.upper("b"))["head"] is None
    assert view(one.mount("b")) == before
    assert inside(view(one.branch(f"{m2}@one", "c"))) == inside(want)


def test_an_empty_upper_shows_it(one):
    stream, want = sent(one)
    one.mount("b")
    one.umount("b")
    one.receive(one.upper("b"), stream)
    assert view(one.mount("b")) == want


def test_an_upper_without_a_mount_is_sent(one):
    m = one.mount("a")
    change(m)
    done = one.call("send", "-o", one.on(), one.upper("a"))
    assert done.returncode == 1 and done.stdout == b"" and b"in use" in done.stderr and done.stderr.count(b"\n") == 1
    want = view(m)
    one.umount("a")
    stream = one.ok("send", "-q", "-o", one.on(), one.upper("a"))
    m2 = one.arrived(stream, "b", "--name", "given")
    assert view(m2) == want and one.chain(m2)["head"] == "given"
    # With a snapshot below the live part.
    m = one.mount("a")
    one.snapshot(m, "one")
    write_at(m / "big", b"MORE", 400_000)
    want = view(m)
    one.umount("a")
    stream = one.ok("send", "-q", "-o", one.on(), one.upper("a"))
    assert view(one.arrived(stream, "c")) == want
    # It has no number, so each that comes is another one.
    upper = one.stack.base / "twice"
    first, second = one.receive(upper, stream), one.receive(upper, stream)
    assert first != second and len(one.chain(upper)["snapshots"]) == 2
    stream = one.ok("send", "-q", "-o", one.on(), f"{one.upper('a')}@one")
    assert one.receive(upper, stream) == "one"


def test_without_a_name_one_is_taken(one):
    m = one.mount("a")
    change(m)
    stream = one.ok("send", "-q", m)
    name, = (e["name"] for e in one.chain(m)["snapshots"])
    m2 = one.arrived(stream, "b")
    assert view(m2) == view(m) and one.chain(m2)["head"] == name


def test_an_opaque_root(one):
    """Nothing of the lower layer shows, and nothing of it after the journey."""
    m = one.mount("a")
    (m / "mine").write_text("mine")
    one.umount("a")
    (one.upper("a") / ".wh..wh..opq").touch()
    want = view(one.mount("a"))
    assert {*want} == {".", "mine"}
    one.umount("a")
    stream = one.ok("send", "-q", "-o", one.on(), one.upper("a"))
    assert view(one.arrived(stream, "b")) == want


@pytest.mark.parametrize("seed", range(8))
def test_any_changes(one, seed):
    """Step by step, several at once, and all of them, also in two parts."""
    m, rng, views = one.mount("a"), random.Random(seed), []
    for k in range(4):
        change_at_random(rng, m, 40)
        one.snapshot(m, f"s{k}")
        views.append(view(m))
    start, last = sorted(rng.sample(range(4), 2))
    ways = {"step": [(None, 0), (0, 1), (1, 2), (2, 3)], "jump": [(None, start), (start, last)], "all": [(None, 3)]}
    for name, steps in ways.items():
        upper = one.stack.base / f"u-{name}"
        for base, to in steps:
            more = ["--from", f"s{base}"] if base is not None else []
            stream = one.send(f"{m}@s{to}", *more)
            done = one.call("receive", "-q", "-o", one.on(), upper, data=stream[:rng.randrange(len(stream))])
            if b"--resume" in done.stderr:
                token = one.ok("receive", "--resume-token", upper).decode().strip()
                stream = one.send(f"{m}@s{to}", *more, "--resume", token)
            if done.returncode:
                one.receive(upper, stream)
        assert view(one.place_of(upper, name)) == views[steps[-1][1]], name
        one.umount(name)
        one.check(one.upper(name))


# ---- how it is called ----


def test_files_pipes_and_compression(one):
    m = one.mount("a")
    change(m)
    (m / "text").write_bytes(b"all the same " * 100_000)
    one.snapshot(m, "one")
    want, base = view(m), one.stack.base
    plain, small = base / "plain", base / "small"
    done = one.call("send", "-o", plain, f"{m}@one")
    assert done.returncode == 0 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    one.ok("send", "-q", "-z", "-o", small, f"{m}@one")
    assert small.stat().st_size < plain.stat().st_size // 10
    assert plain.read_bytes() == one.send(f"{m}@one")
    for k, path in enumerate((plain, small)):
        upper = base / f"u{k}"
        assert one.ok("receive", "-q", "-o", one.on(), "-i", path, upper) == b"one\n"
        assert view(one.place_of(upper, f"m{k}")) == want
    done = one.call("send", "-o", plain, f"{m}@one")
    assert done.returncode == 1 and b"exists" in done.stderr
    # Through a pipe, from one end to the other.
    upper = base / "piped"
    environment = {**os.environ, **one.shared.environment}
    with subprocess.Popen([one.stack.program, "send", "-q", "-z", f"{m}@one"], stdout=subprocess.PIPE, env=environment) as send:
        received = subprocess.run([one.stack.program, "receive", "-q", "-o", one.on(), str(upper)], stdin=send.stdout,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=60, check=False)
    assert (send.returncode, received.returncode, received.stderr) == (0, 0, b"")
    assert view(one.place_of(upper, "piped-place")) == want
    # A reader that goes away is no crash.
    with subprocess.Popen([one.stack.program, "send", "-q", f"{m}@one"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment) as send:
        send.stdout.read(10)
        send.stdout.close()
        assert send.stderr.read().count(b"\n") <= 1
    assert send.returncode in (0, 1)


def test_what_cannot_be_done_is_one_sentence(one):
    stream, want = sent(one)
    m = one.places["a"].mnt
    write_at(m / "big", b"TWO", 300_000)
    one.snapshot(m, "two")

    def no(*arguments):
        done = one.call(*arguments)
        assert done.returncode in (1, 2) and done.stdout == b"" and done.stderr.count(b"\n") <= 2, done
        return done.stderr
    assert b"no snapshot of this name" in no("send", f"{m}@three")
    assert b"no snapshot of this name" in no("send", "--from", "three", f"{m}@two")
    assert b"does not stand on" in no("send", "--from", "two", f"{m}@one")
    assert b"does not stand on" in no("send", "--from", "one", f"{m}@one")
    assert b"lowerdir" in no("send", one.upper("a"))
    assert b"token" in no("send", "--resume", "nonsense", f"{m}@one")
    assert b"is no mount" in no("receive", one.stack.base / "u")
    assert b"no delta has come in part" in no("receive", "--resume-token", m)
    assert b"no delta has come in part" in no("receive", "--abort", m)
    assert b"cannot have this name" in no("receive", "--name", "../x", m)
    m2 = one.arrived(stream, "b")
    assert "is there already" in one.refused(m2, stream)
    assert "is there already" in one.refused(m2, stream, "--name", "other")
    third = one.mount("c")
    one.snapshot(third, "one")
    assert "of this name" in one.refused(third, stream)
    assert one.receive(third, stream, "--name", "other") == "other"
    assert inside(view(one.branch(f"{third}@other", "c-other"))) == inside(want)
    # A base that is not there.
    step = one.send(f"{m}@two", "--from", "one")
    fourth = one.mount("e")
    assert "does not have the snapshot" in one.refused(fourth, step)
    assert "does not have the snapshot" in one.refused(one.stack.base / "new", step)
    assert not (one.stack.base / "new").exists()
    assert one.receive(m2, step) == "two"
    assert "no beginning" in one.refused(fourth, b"")
    assert "cannot read the delta" in one.refused(fourth, b"x" * 10_000)
    assert not (one.upper("e") / BRANCHES).exists()
    one.umount("e")
    assert "in use by a mount" in one.call("receive", "-o", one.on(), one.upper("b"), data=stream).stderr.decode()
    assert "no beginning" in one.refused(one.upper("e"), b"\x1f\x8b nonsense")


# ---- other layers ----


@pytest.fixture
def elsewhere(one):
    """A copy of the lower layer, as another host has it: other inodes, other times."""
    copy = one.stack.base / "copy"
    subprocess.run(["cp", "-R", one.stack.lower(), copy], check=True)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    return copy


def test_the_same_layer_with_other_times(one, elsewhere):
    m = one.mount("a")
    change(m)
    os.rename(m / "r", m / "s")
    one.snapshot(m, "one")
    m2 = one.arrived(one.send(f"{m}@one"), "b", lowers=[elsewhere])
    for path in ("big", "own", "moved", "s/deep/file", "new/f", "d/e/x"):
        assert (m2 / path).read_bytes() == (m / path).read_bytes()
    assert os.stat(m2 / "big").st_mtime_ns == os.stat(m / "big").st_mtime_ns


def _longer(path):
    with open(path, "ab") as f:
        f.write(b"x")


@pytest.mark.parametrize("how", [lambda path: write_at(path, b"!", 500_000), _longer, os.unlink,
                                 lambda path: (os.unlink(path), path.mkdir()),
                                 lambda path: (os.unlink(path), os.symlink("small", path))],
                         ids=["a byte", "longer", "gone", "directory", "symlink"])
def test_another_layer_is_refused(one, elsewhere, how):
    stream, _ = sent(one)
    how(elsewhere / "big")
    m2 = one.mount("b", lowers=[elsewhere])
    assert "/big: its base" in one.refused(m2, stream)
    assert not (one.upper("b") / BRANCHES).exists()
    one.snapshot(m2, "mine")
    one.refused(m2, stream)
    assert [e["name"] for e in one.chain(m2)["snapshots"]] == ["mine"] and left_over(one.upper("b")) == []
    upper = one.stack.base / "unmounted"
    one.refused(upper, stream, lowers=[elsewhere])


def test_a_byte_that_is_not_seen_may_be_another(one, elsewhere):
    stream, want = sent(one)
    write_at(elsewhere / "big", b"!", 70_001)
    m2 = one.arrived(stream, "b", lowers=[elsewhere])
    assert view(m2)["big"]["content"] == want["big"]["content"]


def test_a_base_that_is_another_snapshot(one):
    """Of the same number, as a copy of an upper has, but with another content."""
    stream, _ = sent(one)
    m = one.places["a"].mnt
    write_at(m / "big", b"TWO", 200_000)
    one.snapshot(m, "two")
    step = one.send(f"{m}@two", "--from", "one")
    upper = one.stack.base / "other"
    one.receive(upper, stream)
    root, = (p for p in (upper / BRANCHES).iterdir() if p.is_dir())
    fd = os.open(root / "big", os.O_RDWR)
    os.pwrite(fd, b"!", 70_100)
    os.close(fd)
    assert "/big: its base, /big, has other bytes here" in one.refused(upper, step)


def test_a_snapshot_that_is_sent_is_not_removed(one):
    """A slow reader: the snapshot stays until all of it is sent."""
    m = one.mount("a")
    (m / "large").write_bytes(blob(4 * MIB, 2))
    one.snapshot(m, "one")
    write_at(m / "large", b"x", 0)
    one.ok("rollback", "--keep", "two", m, "one")
    want = one.send(f"{m}@two")
    with subprocess.Popen([one.stack.program, "send", "-q", f"{m}@two"], stdout=subprocess.PIPE,
                          env={**os.environ, **one.shared.environment}) as process:
        start = process.stdout.read(1000)
        done = one.call("snapshot", "--delete", m, "two")
        assert done.returncode == 1 and b"uses it" in done.stderr
        assert start + process.stdout.read() == want
    one.ok("snapshot", "--delete", m, "two")


def test_frozen_things_stay_as_they_are(one):
    """Nothing of what is there changes when another snapshot comes."""
    stream, _ = sent(one)
    m2 = one.mount("b")
    (m2 / "mine").write_text("mine")
    one.snapshot(m2, "mine")
    frozen = next(p for p in (one.upper("b") / BRANCHES).iterdir() if p.is_dir())
    before = treestate.take(frozen)
    one.receive(m2, stream)
    assert treestate.differences(before, treestate.take(frozen)) == []
