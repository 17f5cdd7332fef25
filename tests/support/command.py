# SPDX-License-Identifier: Apache-2.0
"""The program as its callers run it: in the background, with their descriptors and directories. In server mode the
first mount starts a server, which close() ends; else each mount has its own."""
import os
import signal
import subprocess

from . import linux
from .server import is_shared, wait_until
from .shared import child_of

_LIMIT_S = 60


def mount_points(below):
    """Mount points under a directory, in the order they were mounted."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        points = [line.split()[4].encode().decode("unicode_escape") for line in f]
    return [point for point in points if point.startswith(f"{below}/")]


def mount_entry(mnt):
    """(options of the mount, type, source, options of the file system) of the topmost one there."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        lines = [line.split() for line in f]
    fields = [line for line in lines if line[4] == str(mnt)][-1]
    rest = fields[fields.index("-") + 1:]
    return set(fields[5].split(",")), rest[0], rest[1], set(rest[2].split(","))


def _send(pid, number):
    """To a process that may be gone: the end of one is the end of others."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Command:
    def __init__(self, stack, program, watchdog):
        self.stack, self.program, self.watchdog = stack, program, watchdog
        self._started = []
        self._runtime_dir = stack.base / "run"

    def options(self, *more, lowers=None, upper=None, work=None):
        """The option string of a writable mount of the stack's directories."""
        lowers = lowers or ":".join(map(str, self.stack.lowers or [self.stack.lower()]))
        return ",".join([f"lowerdir={lowers}", f"upperdir={upper or self.stack.upper}",
                         f"workdir={work or self.stack.work}", *self._who_serves(), *more])

    def _who_serves(self):
        return [] if is_shared() else ["standalone"]

    def run(self, *argv, program=None, env=None, **keywords):
        """Run to its end, and to the end of its output; it may leave a server behind."""
        keywords.setdefault("stdin", subprocess.DEVNULL)
        result = subprocess.run([program or self.program, *map(str, argv)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self._environment(env), timeout=60, **keywords)
        for pid in self.servers():
            self.watchdog.watch(pid, _LIMIT_S)
            self._started.append(pid)
        return result

    def _environment(self, more=None):
        return dict(os.environ, VENEER_RUNTIME_DIR=str(self._runtime_dir), **(more or {}))

    def mount(self, *argv, **keywords):
        result = self.run(*argv, **keywords)
        assert (result.returncode, result.stdout) == (0, ""), result.stderr
        return result

    def mount_stack(self, *more, **keywords):
        return self.mount("-o", self.options(*more), self.stack.mnt, **keywords)

    def start(self, *argv, stderr=subprocess.DEVNULL):
        """Run in the foreground; the caller ends it."""
        process = subprocess.Popen([self.program, *map(str, argv)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=stderr, env=self._environment())
        self.watchdog.watch(process.pid, _LIMIT_S)
        return process

    def servers(self):
        """Processes of the program in this mount namespace, and servers that serve this test."""
        program, here = os.stat(self.program), os.readlink("/proc/self/ns/mnt")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                exe = os.stat(f"/proc/{pid}/exe")
                there = os.readlink(f"/proc/{pid}/ns/mnt")
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    line = f.read().split(b"\0")
            except OSError:
                continue
            if (exe.st_dev, exe.st_ino) != (program.st_dev, program.st_ino):
                continue
            # a server has a namespace of its own, and that of the session is not ours
            if line[1:2] == [b"server"]:
                is_ours = any(word.startswith(os.fsencode(self._runtime_dir)) for word in line)
            else:
                is_ours = there == here
            if is_ours:
                found.append(int(pid))
        return found

    def shared_servers(self):
        """The servers of servers() that serve more than one mount, and wait for the next."""
        return [pid for pid in self._named_server() if not child_of(pid)]

    def _named_server(self):
        """They, and their supervisors."""
        found = []
        for pid in self.servers():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if b"\0server\0" in f.read():
                        found.append(pid)
            except OSError:
                pass
        return found

    def is_mounted(self):
        return str(self.stack.mnt) in mount_points(self.stack.base)

    def close(self):
        for point in reversed(mount_points(self.stack.base)):
            linux.umount(point, linux.MNT_DETACH)
        for pid in self._named_server():
            _send(pid, signal.SIGTERM)
        has_ended = wait_until(lambda: not self.servers())
        for pid in self.servers():
            _send(pid, signal.SIGKILL)
        for pid in self._started:
            self.watchdog.forget(pid)
        assert has_ended, "a server did not end after its mount was gone"
