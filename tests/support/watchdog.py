# SPDX-License-Identifier: Apache-2.0
"""A process of its own that kills servers which outlive their time.

A test that waits for a hung mount may hold the interpreter's lock (a page fault in a mapping), so
no thread of the test process could end the wait. Killing the server ends it.
"""
import os
import select
import signal
import time


class Watchdog:
    def __init__(self):
        self._read, self._write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                self._guard()
            finally:
                os._exit(0)
        os.close(self._read)

    def watch(self, pid, limit_s):
        os.write(self._write, b"%d %f\n" % (pid, limit_s))

    def forget(self, pid):
        os.write(self._write, b"%d 0\n" % pid)

    def close(self):
        os.close(self._write)
        os.waitpid(self._pid, 0)

    def _guard(self):
        # A server that ended unasked leaves its number to another process, hence descriptors.
        deadlines, handles, rest = {}, {}, b""
        while True:
            wait = max(min(deadlines.values()) - time.monotonic(), 0) if deadlines else None
            ready, _, _ = select.select([self._read], [], [], wait)
            if ready:
                got = os.read(self._read, 4096)
                if not got:
                    break
                *lines, rest = (rest + got).split(b"\n")
                for line in lines:
                    pid, limit_s = int(line.split()[0]), float(line.split()[1])
                    if deadlines.pop(pid, None):
                        os.close(handles.pop(pid))
                    handle = _handle(pid) if limit_s > 0 else None
                    if handle is not None:
                        deadlines[pid], handles[pid] = time.monotonic() + limit_s, handle
            for pid in [p for p, when in deadlines.items() if when <= time.monotonic()]:
                del deadlines[pid]
                _kill(handles.pop(pid))
        for handle in handles.values():
            _kill(handle)


def _handle(pid):
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _kill(handle):
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.close(handle)
