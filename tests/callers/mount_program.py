# SPDX-License-Identifier: Apache-2.0
"""The mount program under test: a private copy, a wrapper that logs its argv, and proof of use."""
import contextlib
import os
import shutil
import signal
import subprocess

import pytest

from support.waiting import wait_until

# One block, its directories and the map with its preallocated tail; far from a file of 8 MiB.
SMALL_GROWTH = 512 << 10

# A server of a test is where the test is, and is counted and ended with it.
# Root's server is this run's own: in /run/veneer another test's may serve, or a developer's.
ENVIRONMENT = """export VENEER_CGROUP=
[ "$(id -u)" != 0 ] || ! [ -w /run ] || export VENEER_RUNTIME_DIR={base}/server
"""
WRAPPER = """#!/bin/sh
""" + ENVIRONMENT + """{{
	echo "call: pid $$, uid $(id -u), cwd $PWD"
	for arg; do printf '    [%s]\\n' "$arg"; done
}} >> {log}
exec {program} "$@"
"""


class MountProgram:
    """`path` is what engines are given; it logs and becomes the copied fuse-overlayfs."""

    def __init__(self, bin_dir, base):
        source = os.path.join(bin_dir, "fuse-overlayfs")
        assert os.path.exists(source), "no %s; set VENEER_BIN_DIR" % source
        self.is_veneer = os.path.exists(os.path.join(bin_dir, "veneer"))
        self.bin = os.path.join(base, "program")
        self.setup = ENVIRONMENT.format(base=base) + "PATH=%s:$PATH\n" % self.bin  # of a script that calls it by name
        os.mkdir(self.bin, 0o755)
        self.copies = []
        for name in ("veneer", "fuse-overlayfs"):
            self._copy(os.path.join(bin_dir, name), os.path.join(self.bin, name))
        self.path_dir = os.path.join(base, "path")
        os.mkdir(self.path_dir, 0o755)
        self.path = os.path.join(self.path_dir, "fuse-overlayfs")
        self.log = os.path.join(base, "mount-program.log")
        with open(self.log, "w"):
            os.chmod(self.log, 0o666)
        with open(self.path, "w") as f:
            f.write(WRAPPER.format(log=self.log, base=base, program=self.bin + "/fuse-overlayfs"))
        os.chmod(self.path, 0o755)

    def _copy(self, source, target):
        """A private copy, as the build tree need not be readable for the rootless user."""
        if not os.path.exists(source):
            return
        if os.path.islink(source) and "/" not in os.readlink(source):
            os.symlink(os.readlink(source), target)
            return
        shutil.copy(source, target)
        os.chmod(target, 0o755)
        self.copies.append(target)

    def write_limit(self, touched):
        """The most that an upper may grow by when single blocks of files of this size are changed."""
        return SMALL_GROWTH if self.is_veneer else 2 * touched

    @contextlib.contextmanager
    def reference_may_fail(self, reason):
        """Known faults of fuse-overlayfs 1.x, which must not be excused in veneer."""
        try:
            yield
        except AssertionError as e:
            if self.is_veneer:
                raise
            pytest.xfail("%s: %s" % (reason, str(e)[:200]))

    def calls(self):
        try:
            with open(self.log) as f:
                return f.read()
        except FileNotFoundError:
            return "the log is gone: this is the end of the session"

    def version(self):
        return subprocess.run([self.bin + "/fuse-overlayfs", "--version"], text=True,
                              capture_output=True, timeout=20).stdout

    def servers(self):
        """{pid: set of connection numbers, empty where the kernel does not tell them}, of those that run the private copy:
        a server that is not this run's may have the same bytes, or be that of the build tree."""
        found = {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            numbers = _fuse_connections(pid)
            if numbers is not None and _exe(pid) in self.copies:
                found[pid] = numbers
        return found

    def assert_serves(self, connection):
        """One of our processes holds /dev/fuse, and this very connection if the kernel tells."""
        found = self.servers()
        assert found, "no process of %s holds /dev/fuse open" % self.bin
        if any(found.values()):
            assert any(connection in numbers for numbers in found.values()), \
                "connection %d is not served by %s" % (connection, found)

    def stop_all(self):
        """End what was started from the private copy, and nothing else."""
        for sig in (signal.SIGTERM, signal.SIGKILL):
            pids = [pid for pid in (int(n) for n in os.listdir("/proc") if n.isdigit())
                    if _exe(pid) in self.copies]
            for pid in pids:
                try:
                    os.kill(pid, sig)
                except ProcessLookupError:
                    pass
            wait_until(lambda: not any(_exe(pid) in self.copies for pid in pids), 10)


def _exe(pid):
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return ""


def _fuse_connections(pid):
    """Connections whose device this process holds; None when it holds no /dev/fuse."""
    numbers, holds = set(), False
    fds = []
    with contextlib.suppress(OSError):
        fds = os.listdir("/proc/%d/fd" % pid)
    for fd in fds:
        # one that is closed meanwhile says nothing of the others
        with contextlib.suppress(OSError):
            if os.readlink("/proc/%d/fd/%s" % (pid, fd)) != "/dev/fuse":
                continue
            holds = True
            with open("/proc/%d/fdinfo/%s" % (pid, fd)) as f:
                for line in f:
                    if line.startswith("fuse_connection:"):
                        numbers.add(int(line.split()[1]))
    return numbers if holds else None


def mount_of(mountinfo, mountpoint):
    """(fstype, device minor) of the topmost mount at mountpoint in this text; None if none."""
    found = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if fields[4] == mountpoint:
            found = (right.split()[0], int(fields[2].split(":")[1]))
    return found


def fuse_mounts_below(mountinfo, base):
    points = {line.split()[4] for line in mountinfo.splitlines()}
    return sorted(p for p in points if p.startswith(base + "/")
                  and mount_of(mountinfo, p)[0].startswith("fuse"))
