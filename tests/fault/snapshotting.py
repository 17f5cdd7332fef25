# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are taken, gone back to and merged while something fails: what is shown is as before or as afterwards, and
the exit code says which; no snapshot changes, and the same command works then."""
import contextlib
import errno
import json
import os
import re
import subprocess

import snapshot
import steps
from starting import ensure
from support import layers, linux, treestate
from support.command import mount_points
from support.places import Place
from support.server import wait_until
from support.shared import SharedServer
from support.stack import Stack, remove_tree
from world import NO_DAMAGE, UNGUARDED

_UNDER_WAY = "the next mount finishes that"
_LOST = "a mount is lost as it could not be opened anew"
_ENDED = "the mount has ended"
_FROZEN = "nothing can be changed until it is mounted anew"
# Programs that read need none of these calls of their server.
_OF_CHANGES = ("xattr_write", "name", "size", "attr", "sync", "ioctl")
_BRANCHES = ".wh..wh.branches"
_LIMIT_S = 30
_MANY = 8
_TEMPORARY = re.compile(r"squash$|[0-9a-f]{16}\.(new|old)$")


def _change(m, number):
    """Something of each kind, each time another."""
    with open(m / "part", "r+b") as f:
        f.seek(number % 5 * steps.BLOCK)
        f.write(b"%06d" % number)
    (m / f"own{number % 3}").write_bytes(steps.data(number, steps.SMALL))
    os.chmod(m / "small", 0o600 + number % 8)
    with contextlib.suppress(FileNotFoundError):
        (m / "victim").unlink()
    one, other = ("file", "moved") if number % 2 else ("moved", "file")
    with contextlib.suppress(FileNotFoundError):
        os.rename(m / "sub" / one, m / "sub" / other)
    with open(m / "two", "ab") as f:
        f.write(b"more")


class Snapshotting:
    """command: snapshot, rollback or squash. is_live: of a mount that is in use, in whose server calls fail; else those of
    the command fail."""

    def __init__(self, base, program, watchdog, control, command, is_live):
        self.program, self.control, self.command, self.is_live = program, control, command, is_live
        self.stack = Stack(base, program, watchdog)
        steps.fill(self.stack.lower())
        self.stack.remember_lowers()
        self.place = Place(self.stack, "p")
        self.m, self.upper = self.place.mnt, self.place.upper
        self.server = SharedServer(program, base / "run", watchdog)
        ensure(self.server, control.environment if is_live else {})
        self.number, self.shown, self.is_lost, self.nlost = 0, {}, False, 0
        self.is_frozen, self.nfrozen, self.seen = False, 0, []
        self._mount()
        self._take("one")

    # undisturbed

    def _mount(self):
        self.place.mount(self.stack, self.server, "branches=on")

    def _run(self, *arguments, environment=None):
        return subprocess.run([self.program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=_LIMIT_S,
                              env={**os.environ, **self.server.environment, **(environment or {})})

    def _ok(self, *arguments):
        done = self._run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), f"{arguments[0]}: {done.stderr}"
        return done.stdout

    def _take(self, name):
        _change(self.m, self.number)
        self._ok("snapshot", self.m, name)
        self.shown[name] = snapshot.take(self.m)

    def _names(self):
        return [one["name"] for one in json.loads(self._ok("snapshots", "--json", self.upper))["snapshots"]]

    def _shown_by(self, name):
        dest = self.stack.base / "branch"
        self._ok("branch", f"{self.m}@{name}", dest)
        try:
            return snapshot.take(dest)
        finally:
            linux.umount(str(dest))
            remove_tree(self.stack.base / ".branch.branch")

    def _frozen(self):
        top = self.upper / _BRANCHES
        return {path.name: treestate.take(path) for path in top.iterdir() if path.is_dir() and "." not in path.name}

    # one case

    def run(self, which=None, nth=0, error=0, times=1):
        """The number of calls that failed."""
        self.number += 1
        _change(self.m, self.number)
        if self.command == "squash":
            self._take(f"s{self.number}")
            _change(self.m, self.number + 1)
        before = snapshot.take(self.m), self._names()
        after, frozen = self._after(*before), self._frozen()
        if not self.is_live:
            self._umount()
        done = self._disturbed(which, nth, error, times)
        injected, is_done = self.control.injected, done.returncode == 0
        if self.is_lost:
            self.nlost += 1
            linux.umount(str(self.m), linux.MNT_DETACH)
        for seen in self.seen:
            assert seen in (before[0], after[0]), f"while it fails: {snapshot.difference(seen, (after if is_done else before)[0])}"
        if self.is_frozen:
            self._leave_frozen((after if is_done else before)[0])
        if self.is_lost or self.is_frozen or not self.is_live:
            self._check()
            self._mount()
            self._expect_nothing_under_way()
        what = f"exit code {done.returncode}, said {done.stderr!r}"
        assert is_done or (done.returncode == 1 and injected and len(done.stderr) > 20) or \
            done.stderr == "veneer: out of memory\n", what
        # A server without memory for an answer has done it or not.
        if self.is_lost or "the server is gone" in done.stderr:
            is_done = self._names() == after[1]
        self._expect(after if is_done else before, frozen, what)
        if not is_done:
            # What a failed sync lost is not known: the upper stays no snapshot until it is mounted anew.
            if self.is_live and which == "sync":
                self._umount()
                self._mount()
            self._again()
            self._expect(after, frozen, f"{what}; and again")
        self._tidy()
        return injected

    def _arguments(self):
        where = self.m if self.is_live else self.upper
        if self.command == "snapshot":
            return "snapshot", where, f"s{self.number}"
        if self.command == "rollback":
            return "rollback", "--keep", f"k{self.number}", where, "one"
        return "squash", "-q", *([where] if self.is_live else ["-o", layers.options(self.upper, [self.stack.lower()])])

    def _after(self, state, names):
        """What is shown when it is done, and the names of the snapshots."""
        if self.command == "snapshot":
            return state, [*names, f"s{self.number}"]
        if self.command == "rollback":
            return self.shown["one"], [*names, f"k{self.number}"]
        return state, [f"s{self.number}"]

    def _disturbed(self, which, nth, error, times):
        """With an open file, which goes on."""
        pid, start = self.server.pid, self.server.log_size()
        self.seen = []
        with contextlib.ExitStack() as stack:
            fd = os.open(self.m / "names", os.O_RDONLY) if self.is_live else -1
            if self.is_live:
                stack.callback(os.close, fd)
                want = os.pread(fd, 1 << 20, 0)
            self.control.arm(which, nth, error, times)
            try:
                done = self._run(*self._arguments(), environment=None if self.is_live else self.control.environment)
                self._see_whether_lost(start, done)
                if self.is_live and not self.is_lost and times > 1 and which in _OF_CHANGES:
                    self.seen.append(snapshot.take(self.m))
            finally:
                self.control.disarm()
            self.is_frozen = self.is_live and not self.is_lost and self._refuses_changes()
            assert not self.is_frozen or (self.control.injected and _FROZEN in self.server.log)
            assert not self.is_live or self.is_lost or os.pread(fd, 1 << 20, 0) == want, "an open file is another one"
        assert self.server.pid == pid, f"the server died\n{self.server.log[-3000:]}"
        return done

    def _see_whether_lost(self, start, done):
        """A mount that cannot be opened anew ends, and the log says so; then what it left must be right. The log does not say
        the same over and over."""
        self.is_lost = self.is_live and (_LOST in self.server.log_from(start) or
                                         (_ENDED in done.stderr and _LOST in self.server.log))
        assert not self.is_lost or self.control.injected

    def _refuses_changes(self):
        try:
            os.mkdir(self.m / "probe")
            os.rmdir(self.m / "probe")
        except OSError as e:
            return e.errno == errno.EROFS
        return False

    def _leave_frozen(self, wanted):
        self.nfrozen += 1
        shown = snapshot.take(self.m)
        assert shown == wanted, f"frozen: {snapshot.difference(shown, wanted)}"
        self._umount()

    def _again(self):
        if not self.is_live:
            self._umount()
        self._ok(*self._arguments())
        if not self.is_live:
            self._check()
            self._mount()

    def _expect(self, wanted, frozen, what):
        state, names = snapshot.take(self.m), self._names()
        assert state == wanted[0], f"{what}: {snapshot.difference(state, wanted[0])}"
        assert names == wanted[1], f"{what}: the snapshots are {names}, not {wanted[1]}"
        if self.command != "squash":
            now = self._frozen()
            assert all(now.get(name) == state for name, state in frozen.items()), f"{what}: a snapshot has changed"
            return
        for name in names:
            shown = self._shown_by(name)
            assert shown == self.shown[name], f"{what}: {name}: {snapshot.difference(shown, self.shown[name])}"

    def _expect_nothing_under_way(self):
        left = [name for name in os.listdir(self.upper / _BRANCHES) if _TEMPORARY.match(name)]
        assert not left, f"the mount has left {left}"

    def _check(self):
        result = layers.check(self.program, self.upper, self.stack.lowers)
        # A guard that had no room fails nothing, and is set when there is some.
        if UNGUARDED in result.stdout and self.control.injected:
            layers.check(self.program, self.upper, self.stack.lowers, "--repair")
            result = layers.check(self.program, self.upper, self.stack.lowers)
        damage = [line for line in (result.stdout + result.stderr).splitlines() if not line.endswith((*NO_DAMAGE, _UNDER_WAY))]
        assert not damage, f"check: {damage[:5]}"

    def _tidy(self):
        """What cases leave must not be more with each."""
        if self.command == "rollback":
            self._ok("snapshot", "--delete", self.m, f"k{self.number}")
        elif self.command == "snapshot" and len(self._names()) > _MANY:
            self._ok("squash", "-q", self.m)

    # the end

    def _umount(self):
        linux.umount(str(self.m))
        assert wait_until(lambda: not self.server.count()), "the server does not let go of the mount"

    def abandon(self):
        """After a failure: nothing may stay mounted."""
        for point in reversed(mount_points(self.stack.base)):
            linux.umount(point, linux.MNT_DETACH)
        self.server.kill()

    def close(self):
        self._umount()
        self._check()
        code = self.server.stop()
        assert code == 0, f"the server ended with {code}\n{self.server.log[-3000:]}"
        problems = self.stack.close()
        assert not problems, "\n".join(problems)
        self.stack.discard()
