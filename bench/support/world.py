# SPDX-License-Identifier: Apache-2.0
"""The namespaces a view is mounted in: the machine's own, or those of a rootless container."""

import os
import pickle
import subprocess
import traceback

from . import host

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
EVERY_ID = "0 0 4294967295"

_open = []


class _Here:
    """No namespaces of its own."""

    def call(self, function, *args):
        return function(*args)

    def prefix(self):
        return []

    def is_mounted(self, path):
        return os.path.ismount(path)

    def unmount(self, path):
        host.unmount(path)

    def close(self):
        pass


HERE = _Here()


class Rootless:
    """A user namespace with a mount namespace, held by a process that sleeps. All ids stand for
    themselves, so lower trees need no other owner, but nothing in it has a privilege over the
    machine: no passthrough, no overlay attributes but user.*."""

    def __init__(self):
        # unshare leaves the map to us: a process outside may write one of all ids.
        self.holder = subprocess.Popen(
            ["unshare", "--user", "--mount", "--propagation", "private", "sleep", "infinity"],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _open.append(self)
        pid = self.holder.pid
        if not host.wait_for(lambda: os.readlink(f"/proc/{pid}/ns/user") !=
                             os.readlink("/proc/self/ns/user")):
            self.close()
            raise host.HostError("no user namespace")
        for what in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{what}", "w", encoding="ascii") as f:
                f.write(EVERY_ID)
        if not host.wait_for(lambda: os.readlink(f"/proc/{pid}/ns/mnt") !=
                             os.readlink("/proc/self/ns/mnt")):
            self.close()
            raise host.HostError("no mount namespace")

    def _enter(self):
        for kind, flag in (("user", CLONE_NEWUSER), ("mnt", CLONE_NEWNS)):
            fd = os.open(f"/proc/{self.holder.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            if host.libc.setns(fd, flag):
                raise OSError("setns failed")
            os.close(fd)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)

    def _answer(self, write, function, args):
        try:
            self._enter()
            answer = ("is", function(*args))
        except BaseException:
            answer = ("failed", traceback.format_exc(limit=-3))
        with os.fdopen(write, "wb") as f:
            pickle.dump(answer, f)

    def call(self, function, *args):
        """In a forked child: no thread of the caller may hold a lock that function takes."""
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            # Whatever happens, the child must not go on as a second bench.
            try:
                os.close(read)
                self._answer(write, function, args)
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as f:
            data = f.read()
        os.waitpid(pid, 0)
        state, value = pickle.loads(data) if data else ("failed", "the child died")
        if state == "failed":
            raise host.HostError(f"in the user namespace: {value}")
        return value

    def prefix(self):
        return ["nsenter", "-t", str(self.holder.pid), "-U", "-m", "--preserve-credentials", "--"]

    def is_mounted(self, path):
        with open(f"/proc/{self.holder.pid}/mountinfo", encoding="utf-8") as f:
            return any(line.split()[4] == path for line in f)

    def unmount(self, path):
        host.unmount(path, self.prefix(), lambda: self.is_mounted(path))

    def close(self):
        if self in _open:
            _open.remove(self)
        self.holder.kill()
        self.holder.wait()


def close_all():
    """Closes the worlds that are still open."""
    while _open:
        _open[-1].close()
