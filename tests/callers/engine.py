# SPDX-License-Identifier: Apache-2.0
"""Starting engines: a mount namespace they share, commands with useful failures, and stores."""
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import image_tree
from mount_program import fuse_mounts_below, mount_of
from reaper import Reaper

COMMAND_TIMEOUT_S = 90
KEPT_ENV = ("PATH", "LANG", "TERM", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
REAPER = Reaper()


class EngineError(AssertionError):
    """A command of an engine failed; the text carries what it printed."""


class Namespace:
    """A mount namespace that lives as long as the tests.

    crun refuses a hybrid cgroup tree, so the v2 half is taken away, but only in here. One
    namespace for all commands, as later commands must see the mounts of earlier ones.
    """

    SETUP = "[ -d /sys/fs/cgroup/unified ] && umount -l /sys/fs/cgroup/unified; " \
            "echo ready; exec sleep infinity"

    def __init__(self):
        self.holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", self.SETUP],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.holder.stdout.readline() == "ready\n", "unshare -m failed"

    def enter(self, argv, cwd):
        # A directory given to nsenter itself would be one of the outer namespace, without a path.
        return ["nsenter", "-t", str(self.holder.pid), "-m", "--",
                "sh", "-c", 'cd "$0" && exec "$@"', cwd] + argv

    def mountinfo(self):
        with open("/proc/%d/mountinfo" % self.holder.pid) as f:
            return f.read()

    def mounts_below(self, base):
        points = [line.split()[4] for line in self.mountinfo().splitlines()]
        return [p for p in points if p == base or p.startswith(base + "/")]

    def close(self, base):
        for point in reversed(self.mounts_below(base)):
            subprocess.run(self.enter(["umount", "-l", point], "/"), stderr=subprocess.DEVNULL)
        self.holder.kill()
        self.holder.wait()


def run(argv, env, cwd="/", check=True, timeout=COMMAND_TIMEOUT_S):
    """Run to the end; the text of stdout. Files, not pipes: a child left behind on a pipe would
    block us, and that belongs to the engines to notice."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        p = REAPER.popen(lambda: subprocess.Popen(argv, env=env, cwd=cwd, stdout=out, stderr=err,
                                                  stdin=subprocess.DEVNULL))
        try:
            code = p.wait(timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            code = "timeout after %d s" % timeout
        REAPER.forget(p)
        out.seek(0)
        err.seek(0)
        text, errors = out.read(), err.read()
    if check and code != 0:
        raise EngineError("%s\nexit: %s\nstdout: %s\nstderr: %s" % (
            " ".join(argv), code, text[-2000:], errors[-6000:]))
    return text if check else (code, text, errors)


def base_env(**more):
    env = {key: os.environ[key] for key in KEPT_ENV if key in os.environ}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env["PATH"] += ":/usr/sbin:/sbin"
    env.update(more)
    return env


class Engine:
    """What Podman and Docker have in common: containers with a FUSE root, made from one image."""

    IMAGE = "localhost/veneer-test:1"
    RUN_ARGS = ()

    def __init__(self, namespace, base, program):
        self.namespace, self.base, self.program = namespace, base, program

    def argv(self, args):
        raise NotImplementedError

    def __call__(self, *args, **kw):
        return run(self.namespace.enter(self.argv(args), self.base), self.env, **kw)

    def start(self, name, *args, image=None):
        """A container that idles; answers exec, stops at once."""
        self("run", "-d", "--name", name, *self.RUN_ARGS, *args, image or self.IMAGE,
             "/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")
        return name

    def sh(self, name, script):
        return self("exec", name, "/bin/sh", "-ec", script)

    def run_sh(self, script, *args, image=None):
        return self("run", "--rm", *self.RUN_ARGS, *args, image or self.IMAGE,
                    "/bin/sh", "-ec", script)

    def inspect(self, name, template):
        return self("inspect", "-f", template, name).strip()

    def upper(self, name):
        return self.inspect(name, "{{.GraphDriver.Data.UpperDir}}")

    def root_mount(self, name):
        """(fstype, minor) of the root as the container itself sees it."""
        with open("/proc/%s/mountinfo" % self.inspect(name, "{{.State.Pid}}")) as f:
            return mount_of(f.read(), "/")

    def assert_served_by_program(self, name):
        fstype, minor = self.root_mount(name)
        assert fstype == "fuse.fuse-overlayfs"
        self.program.assert_serves(minor)

    def diff(self, name):
        return set(self("diff", name).split("\n")) - {""}

    def tree(self, image, *args):
        return image_tree.parse_list(self.run_sh(image_tree.LIST_SCRIPT, *args, image=image))

    def export(self, name):
        path = os.path.join(self.base, "export.tar")
        self("export", "-o", path, name)
        try:
            return image_tree.read_tar(path)
        finally:
            os.unlink(path)

    def grow(self, name, script):
        """Bytes by which the upper directory grew while the script ran."""
        before = image_tree.allocated(self.upper(name))
        self.sh(name, script + "; sync")
        return image_tree.allocated(self.upper(name)) - before

    def fuse_mounts(self):
        """Where the program's mounts are left in the namespace all commands share."""
        return fuse_mounts_below(self.mountinfo(), self.base)

    def mountinfo(self):
        return self.namespace.mountinfo()

    def remove_all(self):
        names = self("ps", "-aq").split()
        if names:
            self("rm", "-f", *names, check=False)


class Containers(Engine):
    """Podman and Buildah: one store, written down in files named by the environment."""

    RUN_ARGS = ("--network=none",)

    def __init__(self, namespace, base, program, user=None):
        super().__init__(namespace, base, program)
        self.user = pwd.getpwnam(user) if user else None
        for name in ("", "run", "tmp", "home", "xdg"):
            path = os.path.join(base, name)
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o700 if name == "xdg" else 0o755)
            if self.user:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)
        self._write_conf()
        self.env = base_env(
            HOME=base + "/home", XDG_RUNTIME_DIR=base + "/xdg", TMPDIR=base + "/tmp",
            CONTAINERS_STORAGE_CONF=base + "/storage.conf",
            CONTAINERS_CONF=base + "/containers.conf")

    def _write_conf(self):
        with open(self.base + "/storage.conf", "w") as f:
            f.write('[storage]\ndriver = "overlay"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n'
                    'rootless_storage_path = "%s/graph"\n' % ((self.base,) * 3))
            if self.program:
                f.write('[storage.options.overlay]\nmount_program = "%s"\n' % self.program.path)
        # Hosts without CAP_SYS_RESOURCE cannot raise limits to the engines' defaults.
        with open(self.base + "/containers.conf", "w") as f:
            f.write('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
                    'pids_limit = 0\n'
                    '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                    'lock_type = "file"\n'
                    'tmp_dir = "%s/run/libpod"\n[network]\nnetwork_config_dir = "%s/net"\n'
                    % (self.base, self.base))

    def argv(self, args, binary="podman"):
        argv = [binary] + list(args)
        if self.user:
            argv = ["setpriv", "--reuid=%d" % self.user.pw_uid, "--regid=%d" % self.user.pw_gid,
                    "--init-groups", "--"] + argv
        return argv

    def buildah(self, *args, **kw):
        return run(self.namespace.enter(self.argv(args, "buildah"), self.base), self.env, **kw)

    def shell(self, script):
        """A script of several commands of the engine, in the namespace of the others."""
        return run(self.namespace.enter(["sh", "-ec", script], self.base), self.env)

    def import_image(self, tar):
        self("import", "-q", tar, self.IMAGE)

    def mountinfo(self):
        if self.user:
            return self("unshare", "cat", "/proc/self/mountinfo")
        return super().mountinfo()

    def run_sh(self, script, *args, image=None):
        """Podman 4.3, attached and rootless, often waits 20 s for conmon to have ended."""
        if not self.user:
            return super().run_sh(script, *args, image=image)
        self.start("once", "--rm", *args, image=image)
        try:
            return self.sh("once", script)
        finally:
            self("rm", "-f", "-t", "0", "once")

    def stop(self, name):
        self("stop", "-t", "5", name)

    def commit(self, name, image):
        self("commit", "-q", name, "localhost/" + image)
        return "localhost/" + image

    def close(self):
        self("rm", "-fa", "-t", "0", check=False)
        self.buildah("rm", "-a", check=False)
        if self.user:
            self("system", "migrate", check=False)  # ends the pause process
        _end_users_of(self.base)


class Docker(Engine):
    """A dockerd of our own; the program is found as `fuse-overlayfs` in its PATH."""

    IMAGE = "veneer-test:1"
    RUN_ARGS = ("--network", "none")

    def __init__(self, namespace, base, program, driver):
        super().__init__(namespace, base, program)
        self.driver = driver
        os.makedirs(base, exist_ok=True)
        self.env = base_env(HOME=base, DOCKER_CONFIG=base, TMPDIR=base,
                            DOCKER_HOST="unix://%s/sock" % base)
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
        with open(self.base + "/dockerd.log", "a") as log:
            self.daemon = subprocess.Popen(self.namespace.enter(argv, self.base), env=self.env,
                                           stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(300):
            if self("version", check=False)[0] == 0:
                return
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        raise EngineError("dockerd did not start:\n" + self.log_tail())

    def log_tail(self):
        with open(self.base + "/dockerd.log") as f:
            return f.read()[-6000:]

    def down(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(30)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    def import_image(self, tar):
        self("import", tar, self.IMAGE)

    def stop(self, name):
        self("stop", "-t", "5", name)

    def commit(self, name, image):
        self("commit", name, image)
        return image

    def close(self):
        self.remove_all()
        self.down()
        _end_users_of(self.base)
        _remove_empty_cgroups("docker")


def _users_of(base):
    """Processes of an engine: those with our directory in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % name, "rb") as f:
                words = f.read()
        except OSError:
            continue
        if (base + "/").encode() in words and b"pytest" not in words:
            found.append(int(name))
    return found


def _end_users_of(base):
    """Five seconds to go by themselves, then by force."""
    for _ in range(50):
        if not _users_of(base):
            return
        time.sleep(0.1)
    for pid in _users_of(base):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _remove_empty_cgroups(name):
    """dockerd leaves its directories; one still in use stays, and is somebody else's."""
    for top in os.listdir("/sys/fs/cgroup"):
        for path, _, _ in os.walk(os.path.join("/sys/fs/cgroup", top, name), topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                pass


def missing(*binaries):
    """The first of these programs that is not installed; None if all are."""
    path = base_env()["PATH"]
    return next((b for b in binaries if not shutil.which(b, path=path)), None)
