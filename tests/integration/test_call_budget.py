# SPDX-License-Identifier: Apache-2.0
"""How many system calls of the server a common change costs, requests and answers included: none more than today."""
import errno
import os

import pytest

from support import syscount
from support.content import blob
from support.expect import opened
from support.server import shares_pages

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
    "write": (_write, "lower", 27),
    "chown": (lambda path: os.chown(path, 5, 5), "lower", 23),
    "unlink": (os.unlink, "lower", 8),
    "create": (_create, "new", 19),
    "mkdir": (os.mkdir, "new", 9),
}


@pytest.mark.parametrize("what", _BUDGETS)
@pytest.mark.writethrough("the kernel sends times besides")
def test_calls_of(stack, mode, what):
    if mode != "root" or shares_pages():
        pytest.skip("the budget is that of root's own and shared servers")
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


def test_attributes_of_a_new_image_open_no_file(stack, mode):
    if mode != "root" or shares_pages():
        pytest.skip("the budget is that of root's own and shared servers")
    for k in range(100):
        (stack.lower() / f"lower{k}").write_bytes(blob(100, k))
    stack.remember_lowers()
    stack.mount()

    def scan():
        for name in os.listdir(stack.mnt):
            with pytest.raises(OSError) as failed:
                os.getxattr(stack.mnt / name, "system.posix_acl_access")
            assert failed.value.errno == errno.ENODATA
            assert os.listxattr(stack.mnt / name) == []
    calls = syscount.counted(stack.server.pid, scan, stack.base / "calls")
    # whatever strace calls it: one call lists the attributes of a file, once
    assert sum(n for name, n in calls.items() if name not in {"read", "writev"} | _THREADS) <= 260, calls
    assert calls.get("openat2", 0) + calls.get("openat", 0) <= 10, calls


@pytest.mark.writethrough("the kernel sends pages later")
def test_overwriting_own_blocks_takes_no_call_but_the_write(stack, mode):
    if mode != "root" or shares_pages():
        pytest.skip("the budget is that of root's own and shared servers")
    (stack.lower() / "f").write_bytes(blob(1 << 20, 1))
    stack.remember_lowers()
    path = stack.mount("cpu-latency=off") / "f"
    with opened(path, os.O_RDWR) as fd:
        for k in range(_EACH):
            os.pwrite(fd, b"x" * 4096, k * 8192)
        os.pwrite(fd, b"x" * 4096, 0)
        calls = syscount.counted(stack.server.pid,
                                 lambda: [os.pwrite(fd, b"y" * 4096, k * 8192) for k in range(_EACH)], stack.base / "calls")
    own = {name: n for name, n in calls.items() if name not in {"read", "writev"} | _THREADS}
    assert own == {"pwrite64": _EACH}, calls
