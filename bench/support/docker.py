# SPDX-License-Identifier: Apache-2.0
"""A Docker daemon and store of its own, on a mount program or the kernel's overlayfs."""

import os
import shutil
import subprocess

from . import host

IMAGE = "bench:1"
RUN = ("--network=none", "--ulimit=nofile=1024:1024")


class Daemon:
    """Docker looks for a program called fuse-overlayfs in its PATH. Use as a context."""

    def __init__(self, base, program, lower):
        if not shutil.which("dockerd"):
            raise host.HostError("dockerd is not installed")
        self.base, self.lower = base, lower
        self.socket = f"unix://{base}/s"
        os.mkdir(base + "/bin")
        if program:
            os.symlink(program, base + "/bin/fuse-overlayfs")
        self.env = {**os.environ, "PATH": f"{base}/bin:{os.environ['PATH']}", "HOME": base,
                    "VENEER_RUNTIME_DIR": base, "VENEER_STATE_DIR": base + "/state"}
        self.storage = "fuse-overlayfs" if program else "overlay2"
        self.daemon = None

    def docker(self, *args, stdin=subprocess.DEVNULL):
        done = subprocess.run(["docker", "-H", self.socket, *args], env=self.env, stdin=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            raise host.HostError(f"docker {args[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def _answers(self):
        try:
            self.docker("version")
        except host.HostError:
            return False
        return True

    def _import(self):
        tar = subprocess.Popen(["tar", "cf", "-", "-C", self.lower, "."], stdout=subprocess.PIPE)
        self.docker("import", "-", IMAGE, stdin=tar.stdout)
        tar.stdout.close()
        if tar.wait():
            raise host.HostError("tar failed")

    def __enter__(self):
        with open(self.base + "/log", "wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", "--storage-driver", self.storage, "--iptables=false",
                 "--bridge=none", "--data-root", self.base + "/data", "--exec-root",
                 self.base + "/exec", "-H", self.socket, "-p", self.base + "/pid",
                 "--exec-opt", "native.cgroupdriver=cgroupfs"],
                env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            if not host.wait_for(self._answers, lambda: self.daemon.poll() is None):
                with open(self.base + "/log", encoding="utf-8", errors="replace") as f:
                    raise host.HostError(f"dockerd does not start: {f.read().strip()[-300:]}")
            self._import()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        try:
            self.daemon.wait(host.WAIT_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
