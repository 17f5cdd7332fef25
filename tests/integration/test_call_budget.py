# SPDX-License-Identifier: Apache-2.0
"""How many system calls of the server a common change costs, requests and answers included: none more than today."""
import os

import pytest

from support import syscount
from support.content import blob
from support.server import is_shared

# Of threads that begin and end meanwhile.
_THREADS = {"clone", "clone3", "set_robust_list", "rseq", "rt_sigprocmask", "sigaltstack", "mmap", "munmap", "mprotect",
            "madvise", "prctl", "gettid", "getpid", "epoll_ctl", "exit", "sched_getaffinity"}
_EACH = 8


def _read(path):
    fd = os.open(path, os.O_RDONLY)
    assert len(os.read(fd, 4096)) == 4096
    os.close(fd)


def _write(path):
    fd = os.open(path, os.O_RDWR)
    assert os.pwrite(fd, b"x" * 4096, 0) == 4096
    os.close(fd)


def _create(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    assert os.write(fd, b"x" * 4096) == 4096
    os.utime(fd, ns=(1, 1))
    os.close(fd)


# Measured as root on ext4 with Linux 6.18, passthrough.
_BUDGETS = {
    "read": (_read, "lower", 9),
    "write": (_write, "lower", 29),
    "chown": (lambda path: os.chown(path, 5, 5), "lower", 32),
    "unlink": (os.unlink, "lower", 8),
    "create": (_create, "new", 22),
    "mkdir": (os.mkdir, "new", 10),
}


@pytest.mark.parametrize("what", _BUDGETS)
def test_calls_of(stack, mode, what):
    if mode != "root" or is_shared():
        pytest.skip("the budget is that of root's own server")
    act, kind, budget = _BUDGETS[what]
    for k in range(2 * _EACH):
        (stack.lower() / f"lower{k}").write_bytes(blob(4096, k))
    stack.remember_lowers()
    stack.mount("cpu-latency=off")
    names = [stack.mnt / f"{kind}{k}" for k in range(2 * _EACH)]
    os.listdir(stack.mnt)
    for name in names[:_EACH]:
        act(name)
    calls = syscount.counted(stack.server.pid, lambda: [act(name) for name in names[_EACH:]], stack.base / "calls")
    counted = {name: n for name, n in calls.items() if name not in _THREADS}
    # a reader that was waiting when it was attached to begins anew
    assert (sum(counted.values()) - 8) / _EACH <= budget, counted
