# SPDX-License-Identifier: Apache-2.0
"""A store of Podman's own, on a mount program or on the kernel's overlayfs."""

import os
import shutil
import subprocess

from . import fuse, host

IMAGE = "localhost/bench:1"
# Debian's crun takes no hybrid cgroup tree, and without a network nothing but the tree is set up.
RUN = ("--network=none", "--cgroups=disabled", "--ulimit=nofile=1024:1024",
       "--ulimit=nproc=4096:4096")
# Drivers that Podman can be told to use.
DRIVERS = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
HIDE_UNIFIED = ("mount --make-rprivate /; "
                "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"")


def program_of(driver):
    """The mount program to name, None for the kernel's; HostError: Podman has no such driver."""
    if not shutil.which("podman"):
        raise host.HostError("podman is not installed")
    if not isinstance(driver, fuse.Fuse) and driver.name != "overlayfs":
        raise host.HostError("no driver of Podman")
    binary = getattr(driver, "binary", None)
    return binary and os.path.abspath(binary)


class Store:
    """Podman walks trees over a mount program. On overlayfs it reads the upper instead unless it
    is made to walk there too: by the file in which it remembers that it must.
    """

    def __init__(self, work, program, lower, must_walk=True):
        # The program that ends a container is given the runroot by name, and refuses one of more
        # than 50 characters; podman then waits 20 s for the exit code.
        self.base, self.runroot = work.scratch("host"), work.short_scratch()
        os.mkdir(self.runroot + "/overlay")
        if must_walk:
            with open(self.runroot + "/overlay/native-diff()-false", "wb"):
                pass
        self.env = self._configure(program)
        tar = subprocess.Popen(["tar", "cf", "-", "-C", lower, "."], stdout=subprocess.PIPE)
        self.podman("import", "-q", "-", IMAGE, stdin=tar.stdout)
        tar.stdout.close()
        if tar.wait():
            raise host.HostError("tar failed")

    def _configure(self, program):
        """The environment that leads to it."""
        base, run = self.base, self.runroot
        with open(base + "/storage.conf", "w", encoding="ascii") as f:
            f.write(f'[storage]\ndriver = "overlay"\nrunroot = "{run}"\n'
                    f'graphroot = "{base}/graph"\n')
            if program:
                f.write(f'[storage.options.overlay]\nmount_program = "{program}"\n')
        with open(base + "/containers.conf", "w", encoding="ascii") as f:
            f.write('[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
                    f'lock_type = "file"\ntmp_dir = "{run}/libpod"\n')
        return {**os.environ, "HOME": base, "TMPDIR": base, "XDG_RUNTIME_DIR": base,
                "CONTAINERS_STORAGE_CONF": base + "/storage.conf",
                "CONTAINERS_CONF": base + "/containers.conf", "VENEER_RUNTIME_DIR": base}

    def close(self):
        """Containers and image are gone after it."""
        self.podman_apart("rm", "-fa", "-t", "0")
        # The program that ends a container is started for each, finds it removed, and still writes
        # into the store when podman rm has returned.
        host.wait_for(lambda: not list(host.processes_of(self.runroot)))
        for root in (self.base, self.runroot):
            for point in reversed(host.mounts_below(root)):
                host.unmount(point)
        host.run("rm", "-rf", "--one-file-system", self.base, self.runroot)

    def podman(self, *args, stdin=subprocess.DEVNULL):
        return self.run(["podman", *args], args, stdin)

    def podman_apart(self, *args):
        """Where containers are run: in a mount namespace without the unified cgroup tree."""
        return self.run(["unshare", "-m", "sh", "-c", HIDE_UNIFIED, "sh", "podman", *args], args)

    def run(self, argv, args, stdin=subprocess.DEVNULL):
        done = subprocess.run(argv, env=self.env, stdin=stdin, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise host.HostError(f"podman {' '.join(args)}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()
