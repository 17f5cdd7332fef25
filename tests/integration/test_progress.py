# SPDX-License-Identifier: Apache-2.0
"""How far long work is, as somebody at a terminal sees it. A layer far away makes it long. (Where there is no terminal:
tests/unit/cli/test_progress.c.)"""
import contextlib
import os
import pty
import re
import select
import subprocess
import time

import pytest

from support import linux
from support.content import MIB, blob
from support.places import Place
from support.remote import Remote

_LIMIT_S = 60
_DIRS = 7


class Terminal:
    """A program on one of its own; both outputs are the terminal."""

    def __init__(self, *argv, **environment):
        self.master, child = pty.openpty()
        self.out = ""
        self.process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=child, stderr=child,
                                        env={**os.environ, "TERM": "xterm", **environment})
        os.close(child)

    def _read(self, end):
        with contextlib.suppress(OSError):
            if select.select([self.master], [], [], max(0, end - time.monotonic()))[0]:
                self.out += (part := os.read(self.master, 65536).decode())
                return bool(part)
        return False

    def read_until(self, pattern):
        end = time.monotonic() + _LIMIT_S
        while not re.search(pattern, self.out):
            assert self._read(end), self.out

    def end(self):
        """Its exit code, and all that it has shown."""
        end = time.monotonic() + _LIMIT_S
        while self._read(end):
            pass
        os.close(self.master)
        return self.process.wait(10), self.out


@pytest.fixture
def far(stack):
    remotes = []

    def show(source, point):
        remotes.append(Remote(source, point))
        return remotes[-1]
    yield show
    for mount in [os.path.join(stack.base, "p", "mnt"), stack.mnt]:
        if os.path.ismount(mount):
            linux.umount(mount, linux.MNT_DETACH)
    for remote in remotes:
        remote.close()


@pytest.fixture
def layer(stack, far):
    """A layer of some directories, of which everything takes a while to be seen."""
    source, point = stack.base / "source", stack.base / "layer"
    for d in range(_DIRS):
        (source / f"d{d:02}").mkdir(parents=True)
        (source / f"d{d:02}" / "f").write_text("x")
    point.mkdir()
    remote = far(source, point)
    remote.knobs.delay_s = 0.02
    return point


_WALKS = {"check": r"no damage", "du": r"inodes +15", "diff": r"A\S* /d06/f"}


@pytest.mark.parametrize("command", _WALKS)
def test_entries_and_directories_that_are_left(stack, layer, command):
    code, out = Terminal(stack.program, command, layer, NO_COLOR="1").end()
    assert code == 0
    lines = re.findall(r"\r(\d+) entr(?:y|ies), \d+/s(?:, (\d+) director(?:y|ies) left)?\x1b\[K", out)
    assert lines and any(left for _, left in lines), out
    assert [int(n) for n, _ in lines] == sorted(int(n) for n, _ in lines)
    # Nothing of it stays before what is printed.
    assert re.search(_WALKS[command], out.rpartition("\r\x1b[K")[2]), out


def assert_shows_nothing(command, code, out):
    assert code == 0 and "entries" not in out and "\x1b" not in out and re.search(_WALKS[command], out), out


@pytest.mark.parametrize("command", _WALKS)
def test_quiet_shows_nothing(stack, layer, command):
    assert_shows_nothing(command, *Terminal(stack.program, command, "--quiet", layer, NO_COLOR="1").end())


def test_dumb_terminals_are_shown_nothing(stack, layer):
    assert_shows_nothing("du", *Terminal(stack.program, "du", layer, TERM="dumb").end())


def test_findings_are_printed_on_lines_of_their_own(stack, far):
    source, point = stack.base / "source", stack.base / "layer"
    for d in range(_DIRS):
        (source / f"d{d:02}").mkdir(parents=True)
        (source / f"d{d:02}" / ".wh.f").write_text("")
        (source / f"d{d:02}" / "f").write_text("")
    point.mkdir()
    far(source, point).knobs.delay_s = 0.02
    code, out = Terminal(stack.program, "check", point, NO_COLOR="1").end()
    shown = re.sub(r"\r[^\r\n]*\x1b\[K", "", out).splitlines()
    assert code == 1 and re.search(r"\r\d+ entries", out), out
    assert sorted(shown) == [f"{point}/d{d:02}/.wh.f: a whiteout that hides f beside it, in the same layer" for d in range(_DIRS)]


def test_flattening_in_place_says_how_long_it_takes(stack, shared, far):
    source = stack.base / "source"
    source.mkdir()
    for k in range(8):
        (source / f"f{k}").write_bytes(blob(MIB, k))
    remote = far(source, stack.lower())
    place = Place(stack, "p")
    place.mount(stack, shared)
    for k in range(8):
        with open(place.mnt / f"f{k}", "r+b") as f:
            f.write(b"x")
    remote.knobs.delay_s = 0.03
    terminal = Terminal(stack.program, "flatten", "--in-place", place.mnt, **shared.environment)
    terminal.read_until(r"\r\d of 8 files, [\d.]+ \w+ of 8\.?0? MiB, [\d.]+ \w+/s, \d+ s left\x1b\[K")
    remote.knobs.delay_s = 0
    code, out = terminal.end()
    assert code == 0 and "8 files made whole" in out.rpartition("\r\x1b[K")[2], out
