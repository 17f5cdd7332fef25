# SPDX-License-Identifier: Apache-2.0
"""How a mount with share=pages comes to its place: at once, or not at all."""
import os
import shutil
import signal
import subprocess
import sys

import pytest

from support import linux
from support.command import mount_entry, mount_points
from support.expect import write_at
from support.server import unmount, wait_until
from support.siblings import Siblings

pytestmark = pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")


@pytest.fixture
def siblings(veneer_bin, session_dir, watchdog, request):
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]
    made = Siblings(session_dir / f"attach-{name}", veneer_bin, watchdog)
    yield made
    made.close()


class _Traced:
    """A mount program under strace, which meddles with its system calls."""

    def __init__(self, siblings, inject):
        if not shutil.which("strace"):
            pytest.skip("no strace to stop a program at a system call")
        self.mnt, upper, work = (siblings.directory(name) for name in ("mnt-s", "upper-s", "work-s"))
        self._trace = siblings.base / "trace"
        # Leaks cannot be looked for in a program that is traced.
        leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.process = subprocess.Popen(
            ["strace", "-o", self._trace, "-e", f"inject={inject}", siblings.program, "-o",
             f"share=pages,lowerdir={siblings.lower},upperdir={upper},workdir={work}", self.mnt],
            env={**os.environ, **siblings.server.environment, "ASAN_OPTIONS": leaks}, start_new_session=True)

    @property
    def trace(self):
        return self._trace.read_text() if self._trace.exists() else ""

    def await_stop(self):
        assert wait_until(lambda: "stopped by SIGSTOP" in self.trace), "it was not stopped"

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        while os.path.ismount(self.mnt):
            linux.umount(self.mnt, linux.MNT_DETACH)


def test_a_founder_that_is_stopped_is_not_waited_for(siblings):
    (siblings.lower / "f").write_bytes(b"lower")
    with _Traced(siblings, "fsmount:signal=STOP:when=1") as founder:
        founder.await_stop()
        a, b = siblings.shared(), siblings.shared()
        assert a.stat().st_dev == b.stat().st_dev and (a / "f").read_bytes() == (b / "f").read_bytes() == b"lower"


@pytest.mark.parametrize("is_first", [True, False], ids=["founder", "joiner"])
@pytest.mark.parametrize("call", ["fsmount", "open_tree"])
def test_nothing_is_seen_at_a_mount_point_before_all_of_it_is(siblings, call, is_first):
    """A program that finds anything there takes it for the mount, reads it, and notes that all files are gone."""
    (siblings.lower / "f").write_bytes(b"lower")
    points = [] if is_first else [siblings.shared()]
    with _Traced(siblings, f"{call}:signal=STOP:when=1") as program:
        program.await_stop()
        assert not os.path.ismount(program.mnt) and os.listdir(program.mnt) == []
        points.append(siblings.shared())
        program.kill()
        assert not os.path.ismount(program.mnt)
        points.append(siblings.shared())
        assert len({p.stat().st_dev for p in points}) == 1 and [(p / "f").read_bytes() for p in points] == [b"lower"] * len(points)
        assert wait_until(lambda: siblings.count() == len(points)), "what was never mounted does not end"


@pytest.mark.parametrize("is_first", [True, False], ids=["founder", "joiner"])
def test_what_is_mounted_by_a_program_that_is_killed_then_is_a_mount_like_others(siblings, is_first):
    (siblings.lower / "f").write_bytes(b"lower")
    points = [] if is_first else [siblings.shared()]
    with _Traced(siblings, "move_mount:signal=STOP:when=1") as program:
        program.await_stop()
        assert os.path.ismount(program.mnt) and (program.mnt / "f").read_bytes() == b"lower"
        points.append(siblings.shared())
        program.kill()
        # what looks where mounts are has looked
        unmount(siblings.shared())
        assert wait_until(lambda: siblings.count() == len(points) + 1)
        # a directory of which the kernel has been told that it is gone has no name
        where = [sys.executable, "-c", "import os; print(os.getcwd())"]
        assert subprocess.run(where, cwd=program.mnt, capture_output=True, text=True, check=True).stdout == f"{program.mnt}\n"
        write_at(program.mnt / "f", b"other", 0)
        assert (program.mnt / "f").read_bytes() == b"other"
        unmount(program.mnt)
        assert wait_until(lambda: siblings.count() == len(points))
        assert all((p / "f").read_bytes() == b"lower" for p in points)


def test_the_mount_table_says_of_it_what_it_says_of_a_mount_of_its_own(siblings):
    for options in ((), ("dev", "nosuid"), ("noexec", "atime"), ("nosuid", "suid", "default_permissions")):
        own = siblings.mount("io=cached", *options).mnt
        first, second = siblings.shared(*options), siblings.shared(*options)
        assert first.stat().st_dev == second.stat().st_dev
        assert mount_entry(own) == mount_entry(first) == mount_entry(second)


def test_where_nothing_can_be_mounted_it_is_said_once(siblings):
    siblings.shared()
    result = subprocess.run([siblings.program, "-o", f"share=pages,lowerdir={siblings.lower},upperdir={siblings.directory('u')},"
                             f"workdir={siblings.directory('w')}", siblings.base / "nowhere"], capture_output=True, text=True,
                            env={**os.environ, **siblings.server.environment})
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    assert "nowhere: No such file or directory" in result.stderr


@pytest.mark.parametrize("is_first", [True, False], ids=["founder", "joiner"])
def test_a_kernel_that_clones_nothing_that_is_mounted_nowhere(siblings, is_first):
    """Before Linux 6.15 the whole is mounted for a moment, but where only the mount program sees it."""
    (siblings.lower / "f").write_bytes(b"lower")
    points = [] if is_first else [siblings.shared()]
    before = mount_points("")
    with _Traced(siblings, "open_tree:error=EINVAL:when=1") as program:
        assert program.process.wait(60) == 0 and program.trace.count("(INJECTED)") == 1, program.trace
        assert mount_points("") == [*before, str(program.mnt)]
        points += [program.mnt, siblings.shared()]
        assert len({p.stat().st_dev for p in points}) == 1 and {(p / "f").read_bytes() for p in points} == {b"lower"}
        unmount(program.mnt)
        assert not os.path.ismount(program.mnt)
        assert wait_until(lambda: siblings.count() == len(points) - 1)
