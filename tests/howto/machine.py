# SPDX-License-Identifier: Apache-2.0
"""A machine for the reader of a page: the files of a root directory, this machine's or one that was made by debootstrap, in
mount and process namespaces of their own. What is written is seen in here only, and nothing outlives it."""
import os
import pathlib
import shutil
import subprocess

from support import pages
from support.repository import REPOSITORY, copy_sources

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SOURCE = "/usr/local/src/veneer"
# On the disk: an overlay does not take all that layers and engines' stores hold.
REAL = ("home", "root", "srv", "tmp", "var/tmp", "var/lib/containers")
LIMIT_S = 1500

SETUP = r"""
set -e
base=$1 lower=$2
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
for d in %s; do
	mkdir -p "$base/real/$d" $d
	mount --bind "$base/real/$d" $d
done
chmod 1777 tmp var/tmp
mount -t proc proc proc
mount --rbind /sys sys
# crun takes no cgroups of both kinds
if [ -d sys/fs/cgroup/unified ]; then umount -l sys/fs/cgroup/unified; fi
mount --rbind /dev dev
if [ ! -c dev/fuse ]; then echo "no /dev/fuse"; exit 1; fi
# everybody may open it, as udev has it
mknod -m 0666 "$base/fuse" c 10 229
mount --bind "$base/fuse" dev/fuse
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p .old run/lock run/user
pivot_root . .old
umount -l .old
cd /
mount --make-rshared /
echo ready
while :; do sleep 3600 & wait $! || :; done
""" % " ".join(REAL)
# Hosts without CAP_SYS_RESOURCE cannot raise limits to the engines' defaults, and there is no systemd.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
pids_limit = 0
netns = "none"
cgroups = "disabled"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"""


def remove(path):
    """Whatever it holds: tests that ran in a machine may leave trees deeper than Python goes."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=False)


class Machine:
    def __init__(self, base, lower="/"):
        self.base = str(base)
        for name in ("upper", "work", "root", "real"):
            os.makedirs(os.path.join(self.base, name))
            os.chmod(os.path.join(self.base, name), 0o755)
        log = os.path.join(self.base, "log")
        with open(log, "w") as f:
            self.holder = subprocess.Popen(
                ["unshare", "-m", "-p", "-f", "--kill-child", "--propagation", "private", "sh", "-c", SETUP, "sh", self.base,
                 str(lower)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=f, text=True)
        ready = self.holder.stdout.readline()
        assert ready == "ready\n", "no machine of its own: " + ready + open(log).read()
        self.pid = int(open(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read().split()[0])
        self.write("/etc/containers/containers.conf.d/00-this-machine.conf", CONTAINERS_CONF)

    def path(self, name):
        """A file of it, as the host reaches it."""
        return f"/proc/{self.pid}/root{name}"

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write(text)

    def install(self, program):
        """What `meson install` puts there for programs."""
        shutil.copy(program, self.path("/usr/local/bin/veneer"))
        self.sh("ln -sf veneer /usr/local/bin/fuse-overlayfs")

    def copy_sources(self):
        copy_sources(pathlib.Path(self.path(SOURCE)))

    def sh(self, script, user="root"):
        """Pasted into a shell that stops at the first command that fails; what it printed."""
        argv = ["nsenter", "-t", str(self.pid), "-m", "-p", "--"]
        env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}
        if user != "root":
            env.update(HOME=f"/home/{user}", USER=user, XDG_RUNTIME_DIR=f"/run/user/{user}")
            subprocess.run([*argv, "install", "-d", "-m", "0700", "-o", user, "-g", user, env["XDG_RUNTIME_DIR"]], env=env, check=True)
            argv += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        where = f"cd {SOURCE} 2>/dev/null || cd; "
        done = subprocess.run([*argv, "bash", "-euc", where + script], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S)
        assert done.returncode == 0, f"ended with {done.returncode}:\n{script}\n---\n{done.stdout[-6000:]}"
        return done.stdout

    def follow(self, page, *sections, user="root", leave_out=()):
        """Pastes the page, or what stands under these headings, in order and into one shell."""
        path = REPOSITORY / page
        found = [block for block in pages.blocks(path) if block.section not in leave_out and
                 (not sections or block.section in sections)]
        assert found, f"{page} has no such blocks"
        return self.sh("\n".join(pages.script(block) for block in found), user)

    def add_reader(self, name="reader"):
        self.sh(f"useradd -m -s /bin/bash {name}")
        return name

    def close(self):
        """Its first process takes all others with it."""
        subprocess.run(["nsenter", "-t", str(self.pid), "-m", "-p", "--", "sh", "-c", "umount -a -t fuse.fuse-overlayfs 2>/dev/null"],
                       check=False)
        self.holder.kill()
        self.holder.wait()
        remove(self.base)
