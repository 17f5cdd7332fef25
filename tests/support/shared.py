# SPDX-License-Identifier: Apache-2.0
"""One server in the foreground that serves all mounts of a test session, or of one test."""
import contextlib
import os
import pathlib
import signal
import subprocess

from .waiting import wait_until

from . import wire
from .procfs import state_of

_LIMIT_S = 120


def child_of(pid):
    """The process that a supervisor has started last; None while it starts another. (The kernel's own list of children
    may leave some out.)"""
    for other in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        with contextlib.suppress(OSError):
            with open(f"/proc/{other}/stat", encoding="ascii", errors="replace") as f:
                state, parent = f.read().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                return other
    return None


def _start_of(pid):
    """When a process began, which tells it from one that has its number later; None if there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[19]
    return None


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for_death(pid, limit_s=30):
    """Of somebody else's child: until then it has open what it had, its socket too."""
    def is_dead():
        try:
            # the first thread is dead before the others are
            return state_of(pid) in "XZ" and os.listdir(f"/proc/{pid}/task") == [str(pid)]
        except OSError:
            return True
    assert wait_until(is_dead, limit_s), f"process {pid} does not die"


class SharedServer:
    def __init__(self, program, directory, watchdog=None, arguments=("--idle", "86400")):
        self.program, self.watchdog, self.arguments = str(program), watchdog, list(arguments)
        self.directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)
        self.log_path = directory / "log"
        self.process, self.mounted, self._watched = None, set(), set()

    @property
    def environment(self):
        return {"VENEER_RUNTIME_DIR": str(self.directory)}

    def ensure(self):
        """Start it, where it is not there or a test has ended it."""
        if self.process and self.process.poll() is None:
            return
        self.mounted.clear()
        env = {k: v for k, v in os.environ.items() if not k.startswith("FUSE_OVERLAYFS_")}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([self.program, "server", *self.arguments], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env={**env, **self.environment},
                                            start_new_session=True)
        self.watch()
        wait_until(lambda: self._answers() or self.process.poll() is not None)
        assert self.process.poll() is None and self._answers(), f"the server did not start:\n{self.log}"
        self.watch()

    def _answers(self):
        with contextlib.suppress(OSError), self.client() as client:
            # one that is dying may still answer
            return client.ping()[0] in (self.process.pid, child_of(self.process.pid))
        return False

    def watch(self):
        if self.watchdog and self.process and self.process.poll() is None:
            for pid in filter(None, (self.process.pid, child_of(self.process.pid))):
                self.watchdog.watch(pid, _LIMIT_S)
                self._watched.add(pid)

    def _unwatch(self):
        if self.watchdog:
            for pid in self._watched:
                self.watchdog.forget(pid)
            self._watched.clear()

    @property
    def pid(self):
        """The process that serves."""
        return child_of(self.process.pid) or self.process.pid

    def kill_server(self):
        """Only what serves: the supervisor starts another, and this waits until that one answers."""
        pid = self.pid
        start = _start_of(pid)
        kill(pid)

        def is_another():
            with contextlib.suppress(OSError), self.client() as client:
                # test_peers has the kernel give numbers again
                return client.ping()[0] != pid or _start_of(pid) not in (None, start)
            return False
        assert wait_until(is_another), f"no other server than {pid}:\n{self.log}\n{self._threads(pid)}"
        self.watch()

    def _threads(self, pid):
        """Of the server, and of its supervisor: what each thread waits in."""
        lines = []
        for process in (self.process.pid, pid, child_of(self.process.pid) or pid):
            for task in pathlib.Path(f"/proc/{process}/task").glob("*"):
                with contextlib.suppress(OSError):
                    state = (task / "stat").read_text().rpartition(")")[2].split()[0]
                    lines.append(f"{process} {task.name} {state} {(task / 'wchan').read_text()} {(task / 'syscall').read_text()}")
        return "\n".join(lines)

    @property
    def log(self):
        return self.log_from(0)

    def log_size(self):
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_from(self, start):
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as f:
            f.seek(start)
            return f.read().decode(errors="replace")

    def client(self, **more):
        return wire.Client(self.directory, **more)

    def count(self):
        """How many mounts it has, with those that are being opened or closed; none if it is dead."""
        for _ in range(5):
            # hung up on: it died, and another takes its place
            with contextlib.suppress(OSError, TypeError), self.client() as client:
                return client.ping()[1]
            if not child_of(self.process.pid):
                break
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            raise AssertionError("the server does not answer") from None
        return 0

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def kill(self):
        if self.process:
            # that it starts no other between the two
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGSTOP)
            server = child_of(self.process.pid)
            self.process.kill()
            self.process.wait()
            if server:
                kill(server)
                wait_for_death(server)
            self._unwatch()
            self.mounted.clear()

    def stop(self, limit_s=20):
        """Told to go; its exit code, or None if it did not. One that a test killed has ended as it should."""
        if not self.process or self.process.poll() == -signal.SIGKILL:
            return 0
        if self.process.poll() is not None:
            return self.process.returncode
        self.process.terminate()
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self._unwatch()
        return code
