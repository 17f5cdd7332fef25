# SPDX-License-Identifier: Apache-2.0
"""After an unmount that waits nothing in the upper changes any more, and its block map is closed."""
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from support import linux, treestate
from support.child import in_child
from support.content import MIB, blob
from support.expect import names_in, opened, write_at
from support.server import stop_process, wait_until

_BIG = 128 * MIB


@pytest.fixture(params=["veneer umount", "umount.veneer", "umount.fuse.fuse-overlayfs"])
def unmount(request, stack, veneer_bin):
    """A way to unmount, as umount(8) calls it or a user does."""
    helper = stack.base / request.param.replace(" ", "-")
    if request.param.startswith("umount."):
        helper.symlink_to(veneer_bin)

    def call(*arguments):
        command = [veneer_bin, "umount", *arguments, stack.mnt] if " " in request.param else [helper, stack.mnt, "-n", "-v", *arguments]
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
    return call


def _is_closed(stack, veneer_bin):
    said = subprocess.run([veneer_bin, "inspect", stack.upper], capture_output=True, text=True, check=True)
    return "closed cleanly" in said.stdout


def _leaves_all_as_it_is(stack, veneer_bin, unmount, *arguments):
    done = unmount(*arguments)
    names, is_closed, now = names_in(stack.work / "work"), _is_closed(stack, veneer_bin), treestate.take(stack.upper)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout
    assert stack.server.wait_for_end() == 0
    assert treestate.differences(now, treestate.take(stack.upper)) == []
    assert names == [] and is_closed


def _fill(stack):
    lower = stack.lower()
    (lower / "big").write_bytes(b"")
    os.truncate(lower / "big", _BIG)
    (lower / "linked").write_bytes(blob(50_000))
    os.link(lower / "linked", lower / "other")
    (lower / "gone").write_bytes(blob(20_000))
    (lower / "d").mkdir()
    (lower / "d" / "f").write_bytes(blob(70_000))


def _change(m):
    write_at(m / "linked", b"x", 30_000)
    write_at(m / "gone", b"x", 5)
    (m / "gone").unlink()
    os.rename(m / "d", m / "e")
    write_at(m / "e" / "f", b"y" * 5000, 10_000)
    (m / "new").write_bytes(blob(10_000))


def test_nothing_changes_after_the_unmount(stack, veneer_bin, unmount):
    _fill(stack)
    _change(stack.mount())
    _leaves_all_as_it_is(stack, veneer_bin, unmount)


def test_nothing_changes_after_the_unmount_of_much_that_is_new(stack, veneer_bin, unmount):
    """While the processors and the disk have other things to do."""
    _fill(stack)
    m = stack.mount()
    _change(m)
    load = [subprocess.Popen(["dd", "if=/dev/urandom", f"of={stack.base}/load{n}", "bs=1M", "count=400"], stderr=subprocess.DEVNULL)
            for n in range(2)]
    try:
        data = blob(4 * MIB)
        with opened(m / "big", os.O_RDWR) as fd:
            for off in range(0, 100 * MIB, len(data)):
                os.pwrite(fd, data, off)
        _leaves_all_as_it_is(stack, veneer_bin, unmount)
    finally:
        for process in load:
            process.kill()
            process.wait()


def test_a_lazy_unmount_of_what_nobody_uses_waits_too(stack, veneer_bin, unmount, request):
    if request.config.getoption("--share"):
        pytest.skip("of several mounts that share a file system the kernel says nothing of the end of each")
    _fill(stack)
    _change(stack.mount())
    _leaves_all_as_it_is(stack, veneer_bin, unmount, "-l")


def test_a_lazy_unmount_does_not_wait_for_the_users(stack, unmount):
    _fill(stack)
    m = stack.mount()
    with opened(m / "big", os.O_RDWR) as fd:
        done = unmount("-l")
        assert (done.returncode, done.stdout) == (0, "")
        assert not os.path.ismount(stack.mnt) and len(names_in(stack.work / "work")) == 1
        os.pwrite(fd, b"late", 5)
    assert wait_until(lambda: names_in(stack.work / "work") == [])
    assert stack.server.wait_for_end() == 0


@pytest.mark.needs_privileges("binds directories")
def test_an_unmount_does_not_wait_where_it_is_mounted_elsewhere(stack, unmount):
    _fill(stack)
    m = stack.mount()
    other = stack._make("bound")
    linux.mount(m, other, None, linux.MS_BIND)
    try:
        done = unmount()
        assert (done.returncode, done.stdout) == (0, "")
        assert len(names_in(stack.work / "work")) == 1 and (other / "linked").exists()
    finally:
        linux.umount(other)
    assert stack.server.wait_for_end() == 0


@pytest.mark.standalone("a server of others is not stopped")
def test_a_server_that_is_stopped_is_not_waited_for(stack, unmount):
    _fill(stack)
    stack.mount()
    stop_process(stack.server.pid)
    try:
        done = unmount()
        assert done.returncode == 0 and not os.path.ismount(stack.mnt)
    finally:
        stack.server.signal(signal.SIGCONT)
    assert stack.server.wait_for_end() == 0


class _Slow:
    """Each reply of the server takes so long: it has taken the request, and no signal takes that back."""

    def __init__(self, stack, seconds):
        command = ["strace", "-f", "-e", "trace=writev", "-e", f"inject=writev:delay_enter={seconds}s", "-p", str(stack.server.pid), "-o", os.devnull]
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert "attached" in self._tracer.stderr.readline()

    def end(self):
        self._tracer.send_signal(signal.SIGINT)
        self._tracer.communicate(timeout=60)


@pytest.mark.standalone("a server of others is not slowed down")
def test_a_server_that_hangs_in_a_request_is_not_waited_for(stack, unmount):
    """Nor is what it holds: -l unmounts what may be in use."""
    _fill(stack)
    stack.mount()
    slow = _Slow(stack, 20)
    try:
        start = time.monotonic()
        done = unmount()
        assert done.returncode != 0 and "does not answer; -l unmounts it" in done.stdout, done.stdout
        assert os.path.ismount(stack.mnt)
        done = unmount("-l")
        assert done.returncode == 0 and not os.path.ismount(stack.mnt), done.stdout
        assert time.monotonic() - start < 19, "the commands ended, and what they printed, before the server answered"
    finally:
        slow.end()
    assert stack.server.wait_for_end() == 0


@pytest.mark.standalone("its end is that of others")
def test_a_server_that_dies_while_it_closes_is_not_waited_for(stack, veneer_bin):
    _fill(stack)
    m = stack.mount()
    _change(m)
    killer = threading.Thread(target=lambda: wait_until(lambda: not os.path.ismount(stack.mnt)) and stack.server.die())
    killer.start()
    done = subprocess.run([veneer_bin, "umount", stack.mnt], text=True, capture_output=True, timeout=60)
    killer.join()
    # either of the two was faster
    assert done.returncode == 0 and done.stderr in ("", f"veneer: {stack.mnt}: its server ended before it had closed the upper; "
                                                        "the next mount does that\n")
    stack.server.kill()
    assert (stack.mount() / "new").read_bytes() == blob(10_000)


def _asks_in_vain(path):
    with pytest.raises(OSError):
        os.getxattr(path, "system.veneer.work")


@pytest.mark.needs_root("becomes other users")
def test_where_the_work_directory_is_is_said_to_those_who_may_unmount_alone(stack):
    _fill(stack)
    m = stack.mount("allow_other")
    said = os.getxattr(m, "system.veneer.work").decode()
    assert said.split(" ", 1)[1] == f"{stack.work}/work/{names_in(stack.work / 'work')[0]}"
    in_child(_asks_in_vain, m, uid=1000, gid=1000)
    ask = f"import os; os.getxattr({str(m)!r}, 'system.veneer.work')"
    assert subprocess.run([sys.executable, "-c", ask]).returncode == 0
    assert subprocess.run(["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", ask], stderr=subprocess.DEVNULL).returncode == 1
    _asks_in_vain(m / "d")
    assert "system.veneer.work" not in os.listxattr(m)


@pytest.mark.parametrize("arguments, code", [(["--help"], 0), (["-h"], 0), ([], 1), (["a", "b"], 1), (["--", "a", "b"], 1), (["-z", "a"], 1),
                                             (["a", "-N"], 1), (["a", "-N", "/proc/self/none"], 32), (["/proc/none/a"], 1)])
def test_usage_of_the_helper(stack, veneer_bin, arguments, code):
    (stack.base / "umount.veneer").symlink_to(veneer_bin)
    done = subprocess.run([stack.base / "umount.veneer", *arguments], text=True, capture_output=True)
    assert done.returncode == code and bool(done.stderr) == (code != 0), done
