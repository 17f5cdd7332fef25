# SPDX-License-Identifier: Apache-2.0
"""Starting engines: a mount namespace they share, commands with useful failures, and stores."""
import os
import shutil
import signal
import subprocess
import tempfile

import image_tree
from mount_program import fuse_mounts_below, mount_of
from reaper import Reaper
from support.waiting import wait_until

COMMAND_TIMEOUT_S = 90
KEPT_OUTPUT = 600
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


def _users_of(base):
    """Processes of an engine: those with our directory in their command line or environment, and
    what those have started: a container's own do not name it."""
    found, children = [], {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as f:
                words = f.read()
            with open("/proc/%s/environ" % name, "rb") as f:
                words += f.read()
            with open("/proc/%s/stat" % name) as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
        if (base + "/").encode() in words and b"pytest" not in words and int(name) != os.getpid():
            found.append(int(name))
    for pid in found:
        found += [child for child in children.get(pid, []) if child not in found]
    return found


def end_users_of(base):
    """Five seconds to go by themselves, then by force."""
    if wait_until(lambda: not _users_of(base), 5, 0.1):
        return
    for pid in _users_of(base):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_empty_cgroups(name):
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


def go_path():
    """Where Go's tool is; empty if it is not installed."""
    return os.path.dirname(shutil.which("go", path=base_env()["PATH"] + ":/usr/local/go/bin") or "")


class Engine:
    """The common part of Podman and Docker: containers with a FUSE root, made from one image."""

    IMAGE = "localhost/veneer-test:1"
    RUN_ARGS = ()

    def __init__(self, namespace, base, program):
        self.namespace, self.base, self.program = namespace, base, program
        self.transcript = []  # every command and the end of what it printed

    def argv(self, args):
        raise NotImplementedError

    def give(self, path):
        """To the engine's user, what was made as root."""

    def _run(self, argv, **kw):
        try:
            result = run(self.namespace.enter(argv, self.base), self.env, **kw)
        except EngineError as e:
            self.transcript.append("$ " + str(e))
            raise
        text = result if isinstance(result, str) else "exit: %s\n%s\n%s" % result
        self.transcript.append("$ %s\n%s" % (" ".join(argv), text[-KEPT_OUTPUT:]))
        return result

    def __call__(self, *args, **kw):
        return self._run(self.argv(args), **kw)

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
        """Asked of a container: a mere `podman diff` looks for an image first, also by how its ID
        begins, and one ID in sixteen begins with "b"."""
        return set(self("container", "diff", name).split("\n")) - {""}

    def tree(self, image, *args):
        return image_tree.parse_list(self.run_sh(image_tree.list_script(), *args, image=image))

    def _read_tar_of(self, *args):
        """The output of a command of the engine, as image_tree.read_tar reads it."""
        path = os.path.join(self.base, "output.tar")
        with open(path, "w"):
            self.give(path)
        try:
            self._run(["sh", "-c", 'out=$0; exec "$@" >"$out"', path] + self.argv(args))
            return image_tree.read_tar(path)
        finally:
            os.unlink(path)

    def export(self, name):
        return self._read_tar_of("export", name)

    def cp_out(self, name, path):
        return self._read_tar_of("cp", "%s:%s" % (name, path), "-")[0]

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
        _, text, _ = self("ps", "-aq", check=False)
        if text:
            self("rm", "-f", *text.split(), check=False)
