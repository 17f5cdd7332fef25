# SPDX-License-Identifier: Apache-2.0
"""A dockerd of our own; the program is found as `fuse-overlayfs` in its PATH."""
import contextlib
import os
import signal
import subprocess

from engine import Engine, EngineError, base_env, end_users_of, remove_empty_cgroups
from support.waiting import wait_until

START_S = 60


class Docker(Engine):
    IMAGE = "veneer-test:1"
    RUN_ARGS = ("--network", "none")
    formats = ["docker-archive"]
    user = None

    def __init__(self, namespace, base, program, driver):
        super().__init__(namespace, base, program)
        self.driver = driver
        os.makedirs(base + "/tmp", exist_ok=True)
        self.env = base_env(HOME=base, XDG_STATE_HOME=base + "/state", DOCKER_CONFIG=base, TMPDIR=base + "/tmp",
                            DOCKER_HOST="unix://%s/sock" % base, DOCKER_BUILDKIT="0")
        if program:
            self.env["PATH"] = program.path_dir + ":" + self.env["PATH"]
        self.client = "/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker"
        self.daemon = None
        self.up()

    def argv(self, args):
        return [self.client] + list(args)

    def up(self, *more):
        argv = ["dockerd", "--storage-driver", self.driver, "--iptables=false", "--bridge=none",
                "--data-root", self.base + "/data", "--exec-root", self.base + "/exec",
                "-H", "unix://%s/sock" % self.base, "-p", self.base + "/pid",
                "--exec-opt", "native.cgroupdriver=cgroupfs", *more]
        # A killed daemon leaves its file, and dockerd believes in it when any process has that number by now.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.base + "/pid")
        with open(self.base + "/dockerd.log", "a") as log:
            self.daemon = subprocess.Popen(self.namespace.enter(argv, self.base), env=self.env,
                                           stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: self._answers() or self.daemon.poll() is not None, START_S, 0.1)
        if not self._answers():
            raise EngineError("dockerd did not start:\n" + self.log_tail())

    def _answers(self):
        return self("version", check=False)[0] == 0

    def log_tail(self):
        try:
            with open(self.base + "/dockerd.log") as f:
                return f.read()[-6000:]
        except FileNotFoundError:
            return ""

    def down(self, how=signal.SIGTERM):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    def import_image(self, tar):
        self("import", tar, self.IMAGE)

    def build(self, image, context, *args):
        self("build", "-q", "--network=none", *args, "-t", image,
             "-f", context + "/Containerfile", context)
        return image

    def save(self, image, path, _form):
        self("save", "-o", path, image)

    def load(self, path):
        self("load", "-q", "-i", path)

    def stop(self, name):
        self("stop", "-t", "5", name)

    def rm(self, name):
        self("rm", "-f", name)

    def commit(self, name, image):
        self("commit", name, image)
        return image

    def close(self):
        self.remove_all()
        self.down()
        end_users_of(self.base)
        remove_empty_cgroups("docker")
