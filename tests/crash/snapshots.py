# SPDX-License-Identifier: Apache-2.0
"""A machine of which snapshots are taken, and what a disk has of them after a power cut."""
import contextlib
import json
import os
import stat

import pytest

import support.server
from support import layers, linux
from support.expect import write_at
from support.shared import SharedServer
from support.snapshots import BRANCHES, change, change_more, fill, looks

NUMBER, LINKS, MTIME = 0, 2, 5


@contextlib.contextmanager
def served(machine, program, directory, watchdog):
    """Meanwhile the machine's union has a server with a supervisor: others take no snapshots."""
    server = SharedServer(program, directory, watchdog)
    support.server.use(server)
    try:
        yield server
        machine.stop()
    finally:
        support.server.use(None)
        server.stop()


def tell(server, command, *arguments):
    """What the command printed."""
    done = layers.tool(server.program, command, *arguments, env={**os.environ, **server.environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def go_back(server, *arguments):
    """`veneer rollback` of a mount in use."""
    done = layers.tool(server.program, "rollback", *arguments, env={**os.environ, **server.environment})
    if "this kernel cannot be told of it" in done.stderr:
        pytest.skip("a mount in use goes back from Linux 6.18 on")
    assert done.returncode == 0, done.stderr


def listed(program, upper):
    """{name: entry} of its snapshots, oldest first."""
    done = layers.tool(program, "snapshots", "--json", upper)
    assert done.returncode == 0, done.stderr
    return {entry["name"]: entry for entry in json.loads(done.stdout)["snapshots"]}


def layers_of(machine, snapshots, name):
    """The layers that show what a snapshot of {name: entry} has, topmost first."""
    stack = []
    while name:
        stack.append(machine.upper / BRANCHES / snapshots[name]["id"])
        name = snapshots[name]["parent"]
    return [*stack, machine.lower]


def shown(path):
    """support.snapshots.looks by relative path, but for the root's inode number, and for the size and links of directories,
    which each file system counts in its way."""
    found = {}
    for name, (number, mode, links, owner, size, *more) in looks(path).items():
        name = os.path.relpath(name, path)
        if stat.S_ISDIR(mode):
            links = size = None
        found[name] = (None if name == "." else number, mode, links, owner, size, *more)
    return found


def without(part, looks_so):
    return {name: (*what[:part], None, *what[part + 1:]) for name, what in looks_so.items()}


def difference(want, got):
    """One line for each path that does not look so."""
    return [f"{path}: is {_short(got.get(path))}, was {_short(want.get(path))}" for path in sorted(want.keys() | got.keys())
            if want.get(path) != got.get(path)]


def _short(what):
    return what and tuple(part[:20] if isinstance(part, bytes) else part for part in what)


class Kept:
    """A machine with four snapshots, each with something of each kind, and a live part; and what they look like."""

    NAMES = ("base", "one", "two", "later")

    def __init__(self, machine, program):
        self.machine, self.program, self.shown = machine, program, {}

    def prepare(self, server):
        """All of it is on the disk in the end."""
        fill(self.machine.lower)
        m = self.machine.start("branches=on")
        (m / "own").write_text("base")
        os.link(m / "own", m / "d" / "own2")
        self._take(server, "base")
        (m / "own").unlink()
        change(m)
        self._take(server, "one")
        change_more(m)
        self._take(server, "two")
        (m / "moved").write_text("again")
        self._take(server, "later")
        (m / "live").write_text("live")
        # Else a mount makes a map, and a cut right then leaves the root another time.
        write_at(m / "big", b"LIVE", 5000)
        with open(m / "big", "rb") as f:
            os.fsync(f.fileno())
        linux.syncfs(self.machine.disk.path)
        self.live = shown(m)

    def _take(self, server, name):
        tell(server, "snapshot", self.machine.mnt, name)
        self.shown[name] = shown(self.machine.mnt)

    def names(self):
        """On the disk, also where something was interrupted."""
        return tuple(listed(self.program, self.machine.upper))

    def problems(self):
        """Each snapshot that is still there shows its own; by their layers alone, where directories have other numbers."""
        lines, snapshots = [], listed(self.program, self.machine.upper)
        for name in snapshots.keys() & self.shown.keys():
            with self.machine.showing(layers_of(self.machine, snapshots, name)) as view:
                found = difference(without(NUMBER, self.shown[name]), without(NUMBER, shown(view.path)))
                lines += [f"snapshot {name}: {line}" for line in found]
        return lines

    def try_next(self, command, *arguments):
        """Offline."""
        done = layers.tool(self.program, command, *arguments)
        return [f"another {command}: {done.stderr}"] if done.returncode or done.stderr else []

    def problems_of_upper(self, want):
        """Mounted once more."""
        found = difference(want, shown(self.machine.start()))
        self.machine.stop()
        return found
