# SPDX-License-Identifier: Apache-2.0
"""Test code in processes of its own: other ids, another umask, a mapping that may fault."""
import os
import signal
import traceback

import pytest

_SKIPPED = 77


class Child:
    def __init__(self, function, *args, uid=0, gid=0, groups=(), umask=None):
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        code = 1
        try:
            os.close(self._read)
            if umask is not None:
                os.umask(umask)
            if uid or gid or groups:
                os.setgroups(list(groups))
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            function(*args)
            code = 0
        except pytest.skip.Exception as e:
            os.write(write, str(e).encode())
            code = _SKIPPED
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-8000:])
        finally:
            os._exit(code)

    def join(self):
        text = b""
        while piece := os.read(self._read, 8192):
            text += piece
        os.close(self._read)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == _SKIPPED:
            pytest.skip(text.decode())
        if code:
            why = signal.Signals(-code).name if code < 0 else text.decode(errors="replace")
            raise AssertionError(f"in a child process: {why}")


def in_child(function, *args, **who):
    """Run function in a forked process; its failure is the caller's. Keywords: uid, gid, groups,
    umask."""
    Child(function, *args, **who).join()


def in_children(functions):
    """All at once; every one must succeed."""
    children = [Child(function) for function in functions]
    failures = []
    for child in children:
        try:
            child.join()
        except AssertionError as e:
            failures.append(str(e))
    assert not failures, "\n".join(failures)
