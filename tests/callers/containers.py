# SPDX-License-Identifier: Apache-2.0
"""Podman and Buildah over one store of their own."""
import os
import pwd

from engine import Engine, EngineError, base_env, end_users_of, run


class Containers(Engine):
    """One store, written down in files named by the environment.

    Without a program it is on the kernel's overlayfs, and compares trees by walking them, as it
    does over a mount program: else two right answers would differ in what was only looked at.
    """

    RUN_ARGS = ("--network=none",)
    def __init__(self, namespace, base, program, user=None, mount_options=None):
        super().__init__(namespace, base, program)
        self.mount_options = mount_options
        self.user = pwd.getpwnam(user) if user else None
        self.formats = ["docker-archive", "oci-archive"]
        if user:  # what comes first is tried each time
            self.formats.reverse()
        runroot = "xdg/containers" if user else "run"
        for name in ("", "run", "tmp", "home", "xdg", runroot, runroot + "/overlay"):
            path = os.path.join(base, name)
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o700 if name == "xdg" else 0o755)
            self.give(path)
        self._write_conf()
        # What the engine has found out about the kernel it keeps in names of empty files. Podman
        # 4.3 lays an idmapped mount below a mount program and tells it to map as well, so that no
        # owner is right (any program); later ones do not.
        for feature in ["native-diff()-false"] + ["idmapped-lower-dir-false"] * bool(program):
            path = os.path.join(base, runroot, "overlay", feature)
            with open(path, "w"):
                self.give(path)
        self.env = base_env(
            HOME=base + "/home", XDG_STATE_HOME=base + "/state",
            XDG_RUNTIME_DIR=base + "/xdg", TMPDIR=base + "/tmp",
            CONTAINERS_STORAGE_CONF=base + "/storage.conf",
            CONTAINERS_CONF=base + "/containers.conf")

    def give(self, path):
        if self.user:
            os.lchown(path, self.user.pw_uid, self.user.pw_gid)

    def _write_conf(self):
        with open(self.base + "/storage.conf", "w") as f:
            f.write('[storage]\ndriver = "overlay"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n'
                    'rootless_storage_path = "%s/graph"\n' % ((self.base,) * 3))
            if self.program:
                f.write('[storage.options.overlay]\nmount_program = "%s"\n' % self.program.path)
            if self.mount_options:
                f.write('mountopt = "%s"\n' % self.mount_options)
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
        return self._run(self.argv(args, "buildah"), **kw)

    def shell(self, script):
        """A script of several commands of the engine, where its mounts can be seen."""
        if self.user:
            return self("unshare", "sh", "-ec", script)
        return run(self.namespace.enter(["sh", "-ec", script], self.base), self.env)

    def import_image(self, tar):
        self("import", "-q", tar, self.IMAGE)

    def build(self, image, context, *args):
        self("build", "-q", "--network=none", "--layers", *args, "-t", "localhost/" + image,
             context)
        return "localhost/" + image

    def save(self, image, path, form):
        self("save", "-q", "--format", form, *(["--uncompressed"] if form[0] == "o" else []),
             "-o", path, image)

    def load(self, path):
        self("load", "-q", "-i", path)

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
            self.rm("once")

    def stop(self, name):
        self("stop", "-t", "5", name)

    def rm(self, name):
        """Podman 4.3 and what its conmon starts may get at the container's shm both at once; the
        loser says it is busy, whatever the driver."""
        code, _, errors = self("rm", "-f", "-t", "0", name, check=False)
        if code and "userdata/shm: device or resource busy" not in errors:
            raise EngineError("podman rm: %s\n%s" % (code, errors))
        if code:
            self("rm", "-f", "-t", "0", name)

    def commit(self, name, image):
        self("commit", "-q", name, "localhost/" + image)
        return "localhost/" + image

    def close(self):
        self("rm", "-fa", "-t", "0", check=False)
        self.buildah("rm", "-a", check=False)
        if self.user:
            self("system", "migrate", check=False)  # ends the pause process
        end_users_of(self.base)
