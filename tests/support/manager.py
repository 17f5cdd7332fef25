# SPDX-License-Identifier: Apache-2.0
"""A real systemd that manages the units of this repository: `systemd --user` in a control group, a mount namespace and a
/run of its own."""
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

from . import linux
from .child import Child
from .repository import REPOSITORY
from .server import wait_until

SYSTEMD = "/lib/systemd/systemd"
UNITS = REPOSITORY / "contrib" / "systemd"
CLONE_NEWCGROUP = 0x02000000


def unified():
    """Where groups of the second kind are, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        if line.split()[2] == "cgroup2":
            own = [x[3:] for x in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines() if x.startswith("0::")]
            return pathlib.Path(line.split()[1] + own[0])
    return None


def missing():
    if not os.path.exists(SYSTEMD) or not shutil.which("systemctl"):
        return "there is no systemd"
    if not unified():
        return "there are no control groups of the second kind"
    return None


def _make_inaccessible(directory):
    """One object of each type with mode 0, which systemd binds over paths that a unit must not see."""
    os.makedirs(f"{directory}/dir", mode=0)
    for name, kind in (("reg", stat.S_IFREG), ("fifo", stat.S_IFIFO), ("sock", stat.S_IFSOCK), ("chr", stat.S_IFCHR), ("blk", stat.S_IFBLK)):
        os.mknod(f"{directory}/{name}", kind)


class Manager:
    """Inside: talks to it."""

    def __init__(self, base, program, kind):
        # The unit sees neither /home nor /tmp and /var/tmp, where a checkout may be.
        os.mkdir("/run/program", mode=0o755)
        self.base, self.program = base, shutil.copy(program, "/run/program/veneer")
        units, run = base / "units", "/run/user/0"
        self.runtime_dir = "/run/veneer" if kind == "system" else f"{run}/veneer"
        units.mkdir()
        for unit in (UNITS / kind).iterdir():
            text = unit.read_text().replace("/usr/bin/veneer", self.program).replace("TimeoutStopSec=5s", "TimeoutStopSec=1s")
            if "ASAN_OPTIONS" in os.environ:
                # The sanitizer looks for leaks at the end by ptrace(2), and ends the program with 1 where it may not.
                text = text.replace("SystemCallErrorNumber=", "SystemCallFilter=ptrace\nSystemCallErrorNumber=")
            # a test run as root would look in the place of root's server
            (units / unit.name).write_text(text.replace("[Service]", f"[Service]\nEnvironment=VENEER_RUNTIME_DIR={self.runtime_dir}"))
        self.env = {"PATH": os.environ["PATH"], "HOME": str(base), "XDG_RUNTIME_DIR": run, "XDG_CONFIG_HOME": str(base),
                    "SYSTEMD_UNIT_PATH": f"{units}:/usr/lib/systemd/user", "VENEER_STATE_DIR": ""}
        os.makedirs(f"{run}/systemd", mode=0o700)
        # what programs take for a sign that it runs
        os.makedirs("/run/systemd/system")
        _make_inaccessible("/run/systemd/inaccessible")
        with open(base / "messages", "wb") as log:
            self.process = subprocess.Popen([SYSTEMD, "--user", "--unit=basic.target"], env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        wait_until(lambda: self._is_active() or self.process.poll() is not None, 60, 0.05)
        assert self._is_active(), (base / "messages").read_text()

    def _is_active(self):
        return self.run("is-active", "basic.target", check=False).stdout.strip() == "active"

    def run(self, *arguments, check=True):
        result = subprocess.run(["systemctl", "--user", "--no-pager", *arguments], env=self.env, capture_output=True, text=True,
                                timeout=60)
        assert not check or result.returncode == 0, (arguments, result.stdout, result.stderr, self.status())
        return result

    def status(self):
        return subprocess.run(["systemctl", "--user", "--no-pager", "status", "veneer.service", "veneer.socket"], env=self.env,
                              capture_output=True, text=True, timeout=60).stdout

    def show(self, what, unit="veneer.service"):
        return self.run("show", "-P", what, unit).stdout.strip()

    @property
    def environment(self):
        """Of mount programs; what started the test has no say."""
        return {"VENEER_RUNTIME_DIR": self.runtime_dir}

    def start_transient(self, name, text):
        """A unit of the test's own, started."""
        (self.base / "units" / name).write_text(text)
        self.run("daemon-reload")
        self.run("start", name)

    def has_own_user_namespaces(self):
        """Newer ones give them to units that want a mount namespace, where they are no system's manager."""
        self.start_transient("probe.service", "[Service]\nType=oneshot\nPrivateTmp=yes\n"
                             "ExecStart=/bin/sh -c 'readlink /proc/self/ns/user >/run/probe'\n")
        return pathlib.Path("/run/probe").read_text().strip() != os.readlink("/proc/self/ns/user")


def run_with_manager(function, base, program, kind):
    """function(manager) in a process there; what it raises is raised here."""
    group = unified() / f"veneer-manager-{os.getpid()}"
    group.mkdir()

    def inside():
        (group / "cgroup.procs").write_text("0")
        linux.unshare(CLONE_NEWCGROUP | linux.CLONE_NEWNS)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        # as the first process does: what is unmounted leaves the namespaces of units too
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_SHARED)
        linux.umount("/sys/fs/cgroup", linux.MNT_DETACH)
        linux.mount("none", "/sys/fs/cgroup", "cgroup2")
        linux.mount("none", "/run", "tmpfs")
        function(Manager(base, program, kind))
    try:
        Child(inside).join()
    finally:
        _end(group)


def _groups_in(group):
    """It and all below, the deepest first; systemd may remove them meanwhile."""
    return [pathlib.Path(top) for top, _, _ in os.walk(group, topdown=False)]


def _end(group):
    end = time.monotonic() + 10
    while group.exists():
        for inner in _groups_in(group):
            try:
                for pid in (inner / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        for inner in _groups_in(group):
            try:
                inner.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
        time.sleep(0.01)
