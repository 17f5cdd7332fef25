# SPDX-License-Identifier: Apache-2.0
"""A mount that is made while something fails: it is there and right, or it is not there and one sentence says why."""
import os
import subprocess

import snapshot
import steps
from support import linux
from support.server import wait_until
from support.shared import SharedServer
from support.stack import Stack

_FALLBACK = "this mount gets a server of its own"
# The line that libfuse prints itself, and not to the log, when it takes back a mount that it had no memory to begin with.
_OF_LIBFUSE = "fuse: failed to unmount "
_LIMIT_S = 30


def ensure(server, environment):
    """Start a server, where there is none, with these variables besides."""
    saved = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        server.ensure()
    finally:
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    server.watch()


class Starting:
    """kind: "standalone", a process of its own; "client" and "server", of the shared server which of the two fails."""

    def __init__(self, base, program, watchdog, control, kind):
        self.program, self.control, self.kind = program, control, kind
        self.stack = Stack(base, program, watchdog)
        steps.fill(self.stack.lower())
        self.stack.remember_lowers()
        self.wanted = snapshot.take(self.stack.lower())
        self.run_dir = base / "run"
        self.server = None
        if kind != "standalone":
            self.server = SharedServer(program, self.run_dir, watchdog)
        self._use_upper()

    def _use_upper(self):
        """An upper with a partial file, so that there is a map to read."""
        self.mount()
        steps.changed(self.stack.mnt)
        self.wanted = snapshot.take(self.stack.mnt)
        self.umount()

    def _argv(self):
        stack = self.stack
        who = ["standalone"] if self.kind == "standalone" else []
        return [self.program, "-o", ",".join([f"lowerdir={stack.lower()}", f"upperdir={stack.upper}",
                                              f"workdir={stack.work}", *who]), str(stack.mnt)]

    def _ensure_server(self):
        if self.server:
            ensure(self.server, self.control.environment if self.kind == "server" else {})

    def mount(self, which=None, nth=0, error=0, times=1):
        """Whether it is mounted, the exit code, and what was said."""
        self._ensure_server()
        env = dict(os.environ, VENEER_RUNTIME_DIR=str(self.run_dir))
        if self.kind != "server":
            env.update(self.control.environment)
        self.control.arm(which, nth, error, times)
        try:
            result = subprocess.run(self._argv(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, env=env, timeout=_LIMIT_S, text=True)
        finally:
            self.control.disarm()
        return os.path.ismount(self.stack.mnt), result.returncode, result.stdout + result.stderr

    def umount(self):
        linux.umount(str(self.stack.mnt))
        assert wait_until(lambda: not self._serving()), "the server does not let go of the mount"

    def _serving(self):
        """Processes that still serve our mount."""
        if self.server and self.server.count():
            return True
        upper = os.fsencode(str(self.stack.upper))
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if upper in f.read() and int(pid) != os.getpid():
                        return True
            except OSError:
                continue
        return False

    def run(self, which, nth, error, times=1):
        """One start; the number of calls that failed."""
        is_there, code, said = self.mount(which, nth, error, times)
        injected, what = self.control.injected, f"exit code {code}, said {said!r}"
        if self.server:
            assert self.server.process.poll() is None, f"the server died\n{self.server.log[-3000:]}"
        assert is_there == (code == 0), f"{'mounted' if is_there else 'not mounted'}, {what}"
        if code:
            *before, last = said.splitlines() or [""]
            before = [line for line in before if not line.startswith(_OF_LIBFUSE)]
            assert code == 1 and len(last) > 20 and all(line.endswith(_FALLBACK) for line in before), what
            assert injected, f"failed by itself: {what}"
            self._wait_unserved(what)
            is_there, code, said = self.mount()
            assert is_there and code == 0, f"and after it: {said}"
        state = snapshot.take(self.stack.mnt)
        assert state == self.wanted, f"{what}: {snapshot.difference(state, self.wanted)}"
        self.umount()
        return injected

    def _wait_unserved(self, what):
        assert wait_until(lambda: not self._serving()), f"somebody serves what is not mounted: {what}"

    def abandon(self):
        """After a failure: nothing may stay mounted."""
        while os.path.ismount(self.stack.mnt):
            linux.umount(str(self.stack.mnt), linux.MNT_DETACH)
        if self.server:
            self.server.kill()

    def close(self):
        while os.path.ismount(self.stack.mnt):
            linux.umount(str(self.stack.mnt), linux.MNT_DETACH)
        if self.server:
            code = self.server.stop()
            assert code == 0, f"the server ended with {code}\n{self.server.log[-3000:]}"
        problems = self.stack.close()
        assert not problems, "\n".join(problems)
        self.stack.discard()
