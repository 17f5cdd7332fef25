# SPDX-License-Identifier: Apache-2.0
"""Uppers whose snapshots are sent, and those that receive them: `veneer send` and `veneer receive`."""
import contextlib
import json
import os
import subprocess

from support import layers, linux, treestate
from support.content import KIB, blob
from support.expect import write_at
from support.places import Place
from support.server import wait_until
from support.snapshots import BRANCHES

# All sums of a stream are behind this name, and it is in every entry of it.
RECORD = "user.veneer.delta"
BIG = 600 * KIB


def fill(low):
    (low / "big").write_bytes(blob(BIG))
    (low / "small").write_text("small")
    (low / "gone").write_text("gone")
    (low / "d" / "e").mkdir(parents=True)
    (low / "d" / "e" / "x").write_text("x")
    (low / "r" / "deep").mkdir(parents=True)
    (low / "r" / "deep" / "file").write_bytes(blob(100 * KIB, 7))


def change(m):
    """A block of a file, and something of each simple kind."""
    write_at(m / "big", b"NEW", 70_000)
    (m / "own").write_bytes(blob(20 * KIB, 3))
    (m / "gone").unlink()
    os.symlink("own", m / "link")
    os.rename(m / "small", m / "moved")
    (m / "new").mkdir()
    (m / "new" / "f").write_bytes(blob(9 * KIB, 5))


class Deltas:
    def __init__(self, stack, shared, *options):
        self.stack, self.shared, self.options = stack, shared, options
        self.places, self.points = {}, []

    def mount(self, name, *more, lowers=None):
        """The upper of that name; the same once more is mounted again."""
        self.stack.remember_lowers()
        place = self.places.get(name)
        if not place:
            place = self.places[name] = Place(self.stack, name, lowers)
        if not os.path.ismount(place.mnt):
            place.mount(self.stack, self.shared, *self.options, *more)
            self.points.append(place.mnt)
        return place.mnt

    def umount(self, name):
        count = self.shared.count()
        linux.umount(self.places[name].mnt)
        assert wait_until(lambda: self.shared.count() < count)

    def upper(self, name):
        return self.places[name].upper

    def call(self, *arguments, data=b"", **keywords):
        keywords.setdefault("timeout", 100)
        environment = {**os.environ, **self.shared.environment, **keywords.pop("env", {})}
        return subprocess.run([self.stack.program, *map(str, arguments)], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment, check=False, **keywords)

    def ok(self, *arguments, **keywords):
        done = self.call(*arguments, **keywords)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return done.stdout

    def snapshot(self, m, name):
        assert self.ok("snapshot", m, name) == f"{name}\n".encode()

    def on(self, lowers=None):
        return "lowerdir=" + ":".join(map(str, lowers or self.stack.lowers))

    def send(self, what, *more):
        return self.ok("send", "-q", *more, what)

    def receive(self, where, stream, *more, lowers=None):
        """Into an upper, or a mount; the name of the snapshot."""
        if not os.path.ismount(where):
            more = ("-o", self.on(lowers), *more)
        return self.ok("receive", "-q", *more, where, data=stream).decode().strip()

    def refused(self, where, stream, *more, lowers=None):
        """One sentence, and nothing is changed."""
        if not os.path.ismount(where) and "--abort" not in more:
            more = ("-o", self.on(lowers), *more)
        upper = next((p.upper for p in self.places.values() if p.mnt == where), where)
        before = _state(upper)
        done = self.call("receive", "-q", *more, where, data=stream)
        assert done.returncode == 1 and done.stdout == b"", done
        assert done.stderr.count(b"\n") == 1, done.stderr
        assert _state(upper) == before
        return done.stderr.decode(errors="replace")

    def place_of(self, upper, name, lowers=None):
        """A place whose upper came by a stream."""
        place = self.places[name] = Place(self.stack, name, lowers)
        place.upper.rmdir()
        os.rename(upper, place.upper)
        return self.mount(name)

    def arrived(self, stream, name, *more, lowers=None):
        """Received into a new upper, which is mounted then."""
        upper = self.stack.base / f"{name}-received"
        self.receive(upper, stream, *more, lowers=lowers)
        return self.place_of(upper, name, lowers)

    def go_back(self, name, to, *more):
        """With share=pages that takes an upper without a mount."""
        self.umount(name)
        self.ok("rollback", *more, self.upper(name), to)
        return self.mount(name)

    def branch(self, origin, name):
        dest = self.stack.base / name
        self.ok("branch", origin, dest)
        self.points.append(dest)
        return dest

    def chain(self, where):
        return json.loads(self.ok("snapshots", "--json", where))

    def check(self, upper):
        self.ok("check", "--quiet", upper)

    def close(self):
        for point in reversed(self.points):
            with contextlib.suppress(OSError):
                linux.umount(point)


def _state(upper):
    """Of an upper that is there; but for what the hidden directory alone has changed when it came and went."""
    if not os.path.isdir(upper):
        return None
    state = treestate.take(upper)
    for path, keys in ((".", ("ctime", "nlink", "blocks")), (BRANCHES, ("ctime", "mtime"))):
        for key in keys:
            state.get(path, {}).pop(key, None)
    state["."]["xattrs"].pop(layers.WORK_ATTR, None)
    return state


def view(m):
    return layers.view(m)


def inside(seen):
    """But for the time of the root, which is the upper's own where nothing was received as its head."""
    return {path: {key: value for key, value in what.items() if path != "." or key != "mtime"} for path, what in seen.items()}


def left_over(upper):
    """What a stream leaves behind beside the chain and the snapshots."""
    top = upper / BRANCHES
    if not top.is_dir():
        return []
    return [name for name in os.listdir(top) if name != "chain" and (len(name) != 16 or "." in name)]


def sent(d, name="one", *more):
    """The stream of a snapshot of a mount that was changed, and what it shows."""
    m = d.mount("a")
    change(m)
    d.snapshot(m, name)
    return d.send(f"{m}@{name}", *more), view(m)
