# SPDX-License-Identifier: Apache-2.0
"""Streams of `veneer send` that end too early, are damaged, or whose receiver is killed."""
import io
import os
import random
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from support import layers, linux
from support.content import KIB, MIB, blob
from support.deltas import Deltas, change, fill, inside, left_over, sent, view
from support.expect import write_at
from support.snapshots import BRANCHES


@pytest.fixture
def one(stack, shared):
    made = Deltas(stack, shared, "branches=on")
    fill(stack.lower())
    yield made
    made.close()


def _cuts(stream):
    with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
        ends = [at for e in tar for at in (e.offset, e.offset_data)]
    return sorted({*range(0, len(stream), 4096), *ends, *(at + 1 for at in ends), *(max(at - 1, 0) for at in ends)})


def _resumed(d, upper, part, name="one", of=None, lowers=None):
    """A part of a stream, and the rest of it after that."""
    done = d.call("receive", "-q", "-o", d.on(lowers), upper, data=part)
    if done.returncode == 0:
        return
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and done.stdout == b"", done
    if b"too early" not in done.stderr and b"no delta" not in done.stderr and b"no beginning" not in done.stderr:
        raise AssertionError(done.stderr)
    if b"--resume" not in done.stderr:
        assert not os.path.exists(upper)
        d.receive(upper, d.send(of), lowers=lowers)
        return
    token = d.ok("receive", "--resume-token", upper).decode().strip()
    assert token.encode() in done.stderr
    assert d.chain(upper)["snapshots"] == []
    assert d.receive(upper, d.send(of, "--resume", token), lowers=lowers) == name


def test_a_stream_that_breaks_goes_on(one):
    m = one.mount("a")
    change(m)
    os.rename(m / "r", m / "s")
    os.link(m / "own", m / "second")
    (m / "empty").touch()
    one.snapshot(m, "one")
    want, stream = view(m), one.send(f"{m}@one")
    upper = one.stack.base / "u"
    for cut in _cuts(stream):
        if cut >= len(stream):
            continue
        _resumed(one, upper, stream[:cut], of=f"{m}@one")
        name = f"cut{cut}"
        assert view(one.place_of(upper, name)) == want, cut
        assert left_over(one.upper(name)) == []
        one.umount(name)
    one.check(one.upper(name))


def test_a_compressed_stream_that_breaks(one):
    m = one.mount("a")
    change(m)
    one.snapshot(m, "one")
    want, stream, upper = view(m), one.send(f"{m}@one", "-z"), one.stack.base / "u"
    for k, cut in enumerate(range(1, len(stream), len(stream) // 8)):
        _resumed(one, upper, stream[:cut], of=f"{m}@one")
        assert view(one.place_of(upper, f"cut{k}")) == want
        one.umount(f"cut{k}")


def test_a_large_file_goes_on_where_it_broke(one):
    """It comes in parts, of which those that came stay."""
    low, size = one.stack.lower(), 200 * MIB
    with open(low / "huge", "wb") as f:
        for k in range(size // MIB):
            f.write(blob(MIB - 8, k % 3) + k.to_bytes(8, "big"))
    m = one.mount("a")
    with open(m / "huge", "r+b") as f:
        for k in range(0, size // MIB, 2):
            f.seek(k * MIB)
            f.write(blob(MIB - 8, 7) + k.to_bytes(8, "big"))
    subprocess.run(["cp", "--sparse=never", m / "huge", m / "copy"], check=True)
    one.snapshot(m, "one")
    stream = one.send(f"{m}@one")
    want = {name: layers._content(m / name) for name in ("huge", "copy")}
    with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
        parts = [(e.name, e.offset) for e in tar]
    assert [name for name, _ in parts].count("copy") == 4 and [name for name, _ in parts].count("huge") == 2
    for k, cut in enumerate((parts[3][1] + 10 * MIB, parts[-3][1])):
        upper = one.stack.base / f"u{k}"
        done = one.call("receive", "-q", "-o", one.on(), upper, data=stream[:cut])
        assert done.returncode == 1 and b"--resume" in done.stderr
        token = one.ok("receive", "--resume-token", upper).decode().strip()
        rest = one.send(f"{m}@one", "--resume", token)
        assert len(rest) <= len(stream) - cut + 66 * MIB
        # It breaks once more.
        done = one.call("receive", "-q", "-o", one.on(), upper, data=rest[:30 * MIB])
        token = one.ok("receive", "--resume-token", upper).decode().strip()
        assert one.receive(upper, one.send(f"{m}@one", "--resume", token)) == "one"
        m2 = one.place_of(upper, f"m{k}")
        assert {name: layers._content(m2 / name) for name in want} == want
        one.umount(f"m{k}")
        shutil.rmtree(one.upper(f"m{k}"))


def test_what_came_of_it_is_taken_away(one):
    stream, want = sent(one)
    upper = one.stack.base / "u"
    done = one.call("receive", "-q", "-o", one.on(), upper, data=stream[:30_000])
    assert b"--resume" in done.stderr and left_over(upper) == ["receive"]
    one.ok("receive", "--abort", upper)
    assert not (upper / BRANCHES).exists()
    done = one.call("receive", "--resume-token", upper)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
    # Without that the next stream replaces it.
    one.call("receive", "-q", "-o", one.on(), upper, data=stream[:30_000])
    assert one.receive(upper, stream) == "one"
    assert left_over(upper) == [] and view(one.place_of(upper, "b")) == want


def test_a_token_of_another_stream(one):
    stream, _ = sent(one)
    m = one.places["a"].mnt
    write_at(m / "big", b"TWO", 300_000)
    one.snapshot(m, "two")
    upper = one.stack.base / "u"
    one.call("receive", "-q", "-o", one.on(), upper, data=stream[:30_000])
    token = one.ok("receive", "--resume-token", upper).decode().strip()
    for what in (f"{m}@two", m):
        done = one.call("send", "--resume", token, what)
        assert done.returncode == 1 and done.stdout == b"" and b"token" in done.stderr
    rest = one.send(f"{m}@one", "--resume", token)
    other = one.stack.base / "other"
    assert "beginning" in one.refused(other, rest)
    one.call("receive", "-q", "-o", one.on(), other, data=stream[:10_000])
    assert "beginning" in one.refused(other, rest)
    assert one.receive(upper, rest) == "one"


def test_a_stream_of_what_has_changed_since_does_not_go_on(one):
    """Squashed snapshots may have other entries, of which those that came say nothing."""
    m = one.mount("a")
    for k in range(3):
        (m / f"a{k}").write_bytes(blob(20 * KIB, k))
        (m / f"b{k}").write_bytes(blob(20 * KIB, k + 9))
        one.snapshot(m, f"s{k}")
    stream, upper = one.send(f"{m}@s2"), one.stack.base / "u"
    one.call("receive", "-q", "-o", one.on(), upper, data=stream[:len(stream) // 2])
    token = one.ok("receive", "--resume-token", upper).decode().strip()
    id, base, first, total, _ = token.split("-")
    for other in (f"{id}-{base}-{first}-{total}-{'0' * 16}", f"{id}-{base}-{int(first, 16) - 1:016x}-{token[35 + 16:]}"):
        done = one.call("send", "--resume", other, f"{m}@s2")
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"token" in done.stderr or b"changed since" in done.stderr
    assert one.receive(upper, one.send(f"{m}@s2", "--resume", token)) == "s2"
    assert view(one.place_of(upper, "b")) == view(m)


def test_a_flipped_bit_never_gives_another_tree(one, mode):
    """Of each part of a stream: refused, or it is where nothing stands."""
    m = one.mount("a")
    change(m)
    os.link(m / "own", m / "second")
    os.setxattr(m / "new", "user.a", b"value")
    one.snapshot(m, "one")
    want, stream = view(m), one.send(f"{m}@one")
    rng, upper, harmless = random.Random(7), one.stack.base / "u", 0
    offsets = {*rng.sample(range(len(stream)), 100), *rng.sample(range(8192), 60)}
    for at in sorted(offsets):
        damaged = bytearray(stream)
        damaged[at] ^= 1 << rng.randrange(8)
        done = one.call("receive", "-q", "-o", one.on(), upper, data=bytes(damaged))
        if done.returncode == 0:
            harmless += 1
            assert view(one.place_of(upper, f"flip{at}")) == want, at
            one.umount(f"flip{at}")
            continue
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1, done.stderr
        if b"--resume" in done.stderr:
            # A size that leads past the end: it can be resumed, and then it is right.
            token = one.ok("receive", "--resume-token", upper).decode().strip()
            one.receive(upper, one.send(f"{m}@one", "--resume", token))
            assert view(one.place_of(upper, f"flip{at}")) == want, at
            one.umount(f"flip{at}")
            continue
        assert not os.path.exists(upper), at
    assert harmless < 100


def test_a_flipped_bit_and_a_break(one):
    """What came last is not known to be right when a stream breaks, and leaves nothing."""
    m = one.mount("a")
    change(m)
    os.link(m / "own", m / "second")
    os.setxattr(m / "new", "user.a", b"value")
    (m / "x").mkdir()
    one.snapshot(m, "one")
    want, stream = view(m), one.send(f"{m}@one")
    with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
        starts = [e.offset for e in tar]
    rng, upper = random.Random(8), one.stack.base / "u"
    for k, (start, end) in enumerate(zip(starts[1:], starts[2:])):
        for turn in range(5):
            damaged = bytearray(stream[:end])
            at = rng.randrange(start, min(end, start + 2048) if turn < 4 else end)
            damaged[at] ^= 1 << rng.randrange(8)
            done = one.call("receive", "-q", "-o", one.on(), upper, data=bytes(damaged))
            assert done.returncode == 1 and done.stderr.count(b"\n") == 1, done.stderr
            more = []
            if b"--resume" in done.stderr:
                more = ["--resume", one.ok("receive", "--resume-token", upper).decode().strip()]
            one.receive(upper, one.send(f"{m}@one", *more))
            assert view(one.place_of(upper, f"{k}-{turn}")) == want, (k, turn, at)
            one.umount(f"{k}-{turn}")


@pytest.mark.needs_root("mounts a small tmpfs")
def test_a_full_disk_changes_nothing(one):
    m = one.mount("a")
    (m / "large").write_bytes(blob(8 * MIB, 2))
    one.snapshot(m, "one")
    stream, disk = one.send(f"{m}@one"), one.stack.base / "disk"
    disk.mkdir()
    linux.mount("tmpfs", disk, "tmpfs", 0, "size=4m,mode=0755")
    try:
        (disk / "u").mkdir()
        assert "No space" in one.refused(disk / "u", stream)
        assert os.listdir(disk / "u") == []
        linux.mount("tmpfs", disk, "tmpfs", linux.MS_REMOUNT, "size=40m")
        assert one.receive(disk / "u", stream) == "one"
    finally:
        linux.umount(disk)


def test_killed_at_any_moment(one):
    """The next one works, and everything else does with what is left."""
    m = one.mount("a")
    change(m)
    for k in range(30):
        (m / f"more{k}").write_bytes(blob(50 * KIB, k))
    one.snapshot(m, "one")
    want, stream = view(m), one.send(f"{m}@one")
    m2, rng = one.mount("b"), random.Random(3)
    (m2 / "mine").write_text("mine")
    one.snapshot(m2, "mine")
    mine, upper = view(m2), one.upper("b")
    environment = {**os.environ, **one.shared.environment}
    left = False
    for k in range(25):
        with subprocess.Popen([one.stack.program, "receive", "-q", str(m2)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment) as process:
            cut = rng.randrange(20_000, len(stream))
            process.stdin.write(stream[:cut])
            process.stdin.flush()
            time.sleep(rng.random() * 0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        left |= left_over(upper) == ["receive"]
        assert view(m2) == mine
        if k == 20:
            break
    assert left
    # With what is left behind: nobody minds.
    assert [e["name"] for e in one.chain(m2)["snapshots"]] == ["mine"]
    write_at(m2 / "big", b"x", 1)
    one.snapshot(m2, "two")
    one.ok("squash", "-q", m2)
    mine = view(m2)
    one.ok("du", m2)
    one.umount("b")
    one.check(upper)
    assert view(one.mount("b")) == mine
    one.ok("rollback", "--keep", "kept", m2, "two")
    assert one.call("receive", "--resume-token", m2).returncode == 1
    assert one.receive(m2, stream) == "one"
    assert left_over(upper) == [] and inside(view(one.branch(f"{m2}@one", "c"))) == inside(want)


def test_what_a_kill_left_is_taken_away(one):
    stream, _ = sent(one)
    m2 = one.mount("b")
    with subprocess.Popen([one.stack.program, "receive", "-q", str(m2)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, **one.shared.environment}) as process:
        process.stdin.write(stream[:40_000])
        process.stdin.flush()
        while not (one.upper("b") / BRANCHES / "receive" / "root").is_dir():
            time.sleep(0.002)
        busy = one.call("receive", "-q", m2, data=stream)
        assert busy.returncode == 1 and b"another delta is being received" in busy.stderr
        assert one.call("receive", "--abort", m2).returncode == 1
        process.kill()
    one.ok("receive", "--abort", m2)
    assert left_over(one.upper("b")) == []
    one.umount("b")
    one.ok("flatten", "-q", "-o", f"{one.on()},upperdir={one.upper('b')},workdir={one.places['b'].work}")


def test_flatten_does_not_mind_what_a_kill_left(one):
    stream, _ = sent(one)
    upper = one.stack.base / "u"
    one.receive(upper, stream)
    m2 = one.place_of(upper, "b")
    want = view(m2)
    one.umount("b")
    (one.upper("b") / BRANCHES / "receive" / "root").mkdir(parents=True)
    one.ok("flatten", "-q", "-o", f"{one.on()},upperdir={one.upper('b')},workdir={one.places['b'].work}")
    one.check(one.upper("b"))
    assert not (one.upper("b") / BRANCHES).exists()
    assert view(one.mount("b")) == want


def test_a_crash_before_the_chain_says_so(one):
    """The snapshot has its name, and no chain has it: nobody minds, and the stream can come again."""
    stream, want = sent(one)
    m2 = one.mount("b")
    (m2 / "mine").write_text("mine")
    one.snapshot(m2, "mine")
    mine, upper = view(m2), one.upper("b")
    entry, = one.chain(one.places["a"].mnt)["snapshots"]
    (upper / BRANCHES / entry["id"] / "junk").mkdir(parents=True)
    assert [e["name"] for e in one.chain(m2)["snapshots"]] == ["mine"]
    one.snapshot(m2, "two")
    one.umount("b")
    one.check(upper)
    assert view(one.mount("b")) == mine
    assert one.receive(m2, stream) == "one"
    assert inside(view(one.branch(f"{m2}@one", "c"))) == inside(want)


def test_a_stream_after_a_crash_within_a_snapshot(one):
    """What was moved, and is in no chain, is the live part: the root only looks empty."""
    stream, want = sent(one)
    m2 = one.mount("b")
    (m2 / "mine").write_text("mine")
    mine, upper = view(m2), one.upper("b")
    one.umount("b")
    half = upper / BRANCHES / "00000000000000aa.new"
    half.mkdir(parents=True, mode=0o700)
    os.rename(upper / "mine", half / "mine")
    st = os.stat(upper)
    os.utime(half, ns=(mine["."]["mtime"], st.st_mtime_ns))
    one.receive(upper, stream)
    assert one.chain(upper)["head"] is None
    assert inside(view(one.mount("b"))) == inside(mine)
    assert inside(view(one.branch(f"{m2}@one", "c"))) == inside(want)


def test_a_stream_and_the_first_snapshot_at_once(one):
    """Neither is lost: both change the chain that is not there yet."""
    stream, _ = sent(one)
    environment = {**os.environ, **one.shared.environment}
    for k in range(8):
        m2 = one.mount(f"b{k}")
        (m2 / "mine").write_text("mine")
        with subprocess.Popen([one.stack.program, "receive", "-q", str(m2)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment) as process:
            process.stdin.write(stream[:-200])
            process.stdin.flush()
            time.sleep(0.002 * k)
            process.stdin.write(stream[-200:])
            process.stdin.close()
            taken = one.call("snapshot", m2, "mine")
            said = process.stderr.read()
        done = {name for name, code in (("mine", taken.returncode), ("one", process.returncode)) if code == 0}
        assert done and {e["name"] for e in one.chain(m2)["snapshots"]} == done, (said, taken.stderr)
        one.umount(f"b{k}")
