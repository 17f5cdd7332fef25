# SPDX-License-Identifier: Apache-2.0
"""Collects what engines leave behind, where the machine's first process is slow to do so.

Podman waits until conmon's pid is gone, up to 20 seconds, and a new dockerd takes the containerd
of a killed one for alive; what has ended but was collected by nobody is still there. So orphans
come to us for as long as tests run.
"""
import ctypes
import os
import threading

PR_SET_CHILD_SUBREAPER = 36
NAMES = ("conmon", "podman", "containerd", "containerd-shim")


class Reaper:
    def __init__(self):
        self.lock = threading.Lock()
        self.known = set()  # children somebody else waits for; guarded by lock
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._loop, daemon=True)

    def start(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.thread.start()

    def close(self):
        self.stop.set()
        self.thread.join()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def popen(self, make):
        """make() starts a child its caller waits for; it must not be collected here."""
        with self.lock:
            child = make()
            self.known.add(child.pid)
            return child

    def forget(self, child):
        with self.lock:
            self.known.discard(child.pid)

    def _loop(self):
        while not self.stop.wait(0.05):
            with self.lock:
                for pid in _zombies(os.getpid()):
                    if pid not in self.known:
                        try:
                            os.waitpid(pid, os.WNOHANG)
                        except ChildProcessError:
                            pass


def _zombies(parent):
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as f:
                comm, _, rest = f.read().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, ppid = rest.split()[:2]
        if state == "Z" and int(ppid) == parent and comm in NAMES:
            yield int(name)
