# SPDX-License-Identifier: Apache-2.0
"""This machine as a reader of a page has it: what the page writes to /etc, what it installs and what its services keep
is seen in here only, and no mount of veneer that the machine has. A mount and a process namespace, so nothing that was started
outlives it."""
import os
import shutil
import subprocess

from engine import base_env, go_path, run
from support import pages
from support.repository import REPOSITORY

SOURCE = "/usr/local/src/veneer"
OVERLAID = ("/etc", "/usr/local", "/root", "/opt", "/var/lib")
# Engines' stores take a real file system.
STORES = ("/home", "/var/lib/containers", "/var/lib/docker", "/var/lib/containerd",
          "/var/lib/containerd-fuse-overlayfs", "/var/lib/kubelet")
PYTHON = "/usr/bin/python3"
READER = "reader"
# Go's downloads and builds serve the next session, too.
GO_CACHE = "/var/cache/veneer-tests/go"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Collects what engines leave to the first process.
INIT = """
import os, time
print("ready", flush=True)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(0.05)
"""
SETUP = """
base=$0; mount -t tmpfs tmpfs /run; mount -t proc proc /proc
umount -a -i -l -t fuse.fuse-overlayfs || :
if [ -d /sys/fs/cgroup/unified ]; then umount -l /sys/fs/cgroup/unified; fi
for d in {overlaid}; do
    mkdir -p "$base/top$d" "$base/work$d"
    mount -t overlay overlay -o "lowerdir=$d,upperdir=$base/top$d,workdir=$base/work$d" $d
done
for d in {stores}; do
    mkdir -p "$base/stores$d" $d; mount --bind "$base/stores$d" $d
done
mkdir -p {source} /run/lock; mount --bind "$1" {source}; mount --bind "$2" {source}/build
exec {python} -c "$3"
"""
# Hosts without CAP_SYS_RESOURCE cannot raise limits to the engines' defaults, and there is no systemd.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
pids_limit = 0
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"""
# What pages ask of systemd: it starts ExecStart of a unit in /etc, and of those that come with a package this.
SYSTEMCTL = r"""#!/bin/sh
# In place of systemd, which does not run here.
export PATH={path}
for unit; do :; done
unit=${{unit%.service}}
log=/run/$unit.log
argv() {{
	case $unit in
	docker) echo dockerd --iptables=false --bridge=none --exec-opt native.cgroupdriver=cgroupfs ;;
	containerd) echo containerd ;;
	*) sed -n 's/^ExecStart=//p' /etc/systemd/system/$unit.service ;;
	esac
}}
answers() {{
	case $unit in
	docker) docker version ;;
	containerd) ctr version ;;
	*)
		{python} -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' \
			$(argv | grep -o '/[^ ]*\.sock')
		;;
	esac >/dev/null 2>&1
}}
stop() {{
	pid=$(cat /run/$unit.pid.own 2>/dev/null) || return 0
	kill $pid 2>/dev/null || :
	for i in $(seq 300); do
		kill -0 $pid 2>/dev/null || break
		sleep 0.1
	done
	kill -9 $pid 2>/dev/null || :
	rm -f /run/$unit.pid.own
}}
start() {{
	if [ -e /run/$unit.pid.own ]; then return 0; fi
	setsid $(argv) >>$log 2>&1 </dev/null &
	echo $! >/run/$unit.pid.own
	for i in $(seq 300); do
		if answers; then return 0; fi
		kill -0 $! 2>/dev/null || break
		sleep 0.1
	done
	rm -f /run/$unit.pid.own
	echo "$unit did not start:" >&2
	tail -n 40 $log >&2
	return 1
}}
case $1 in
daemon-reload) ;;
start | enable) start ;;
stop | disable) stop ;;
restart) stop; start ;;
*) echo "systemctl $1: not here" >&2; exit 1 ;;
esac
"""


class Guest:
    def __init__(self, base, build):
        self.base, self.transcript = base, []
        os.makedirs(base)
        os.chmod(base, 0o755)
        script = "set -e" + SETUP.format(overlaid=" ".join(OVERLAID), stores=" ".join(STORES), source=SOURCE,
                                         python=PYTHON)
        with open(base + "/setup.log", "w") as log:
            self.holder = subprocess.Popen(
                ["unshare", "-m", "-p", "-f", "--kill-child", "--propagation", "private", "sh", "-c", script, base,
                 REPOSITORY, build, INIT], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
        try:
            self._install()
        except BaseException:
            self.close()
            raise

    def _install(self):
        """Over what the machine may have of veneer, in one directory with it."""
        base = self.base
        ready = self.holder.stdout.readline()
        with open(base + "/setup.log") as f:
            assert ready == "ready\n", "no machine of its own:\n" + f.read()
        self.pid = int(open("/proc/%d/task/%d/children" % (self.holder.pid, self.holder.pid)).read().split()[0])
        self.write("/etc/containers/containers.conf.d/00-this-machine.conf", CONTAINERS_CONF)
        self.write("/usr/local/bin/systemctl", SYSTEMCTL.format(path=PATH, python=PYTHON), 0o755)
        self.sh("cd /usr/local/bin; rm -f veneer fuse-overlayfs; cp {0}/build/veneer .; ln -s veneer fuse-overlayfs".format(SOURCE))

    def add_reader(self):
        """An ordinary user, with subordinate ids."""
        self.sh("useradd -m -s /bin/sh %s" % READER)
        return READER

    def path(self, name):
        """A file of it, as the host reaches it."""
        return "/proc/%d/root%s" % (self.pid, name)

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)

    def sh(self, script, user=None, **kw):
        """As root, or as this user in a session; where the tree lies."""
        argv = ["nsenter", "-t", str(self.pid), "-m", "-p", "--"]
        env = base_env(HOME="/root", PATH=PATH + ":" + go_path(), DOCKER_BUILDKIT="0", GOPATH=GO_CACHE,
                       GOCACHE=GO_CACHE + "/build")
        if user:
            line = run(argv + ["getent", "passwd", user], env).split(":")
            runtime = "/run/user/" + line[2]
            run(argv + ["install", "-d", "-m", "0700", "-o", line[2], "-g", line[3], runtime], env)
            argv += ["setpriv", "--reuid=" + line[2], "--regid=" + line[3], "--init-groups", "--"]
            env.update(HOME=line[5], USER=user, XDG_RUNTIME_DIR=runtime)
        argv += ["sh", "-c", "cd " + SOURCE + ' && exec sh -euc "$0"', script]
        try:
            result = run(argv, env, **kw)
        except AssertionError as e:
            self.transcript.append("$ " + str(e))
            raise
        self.transcript.append("$ %s\n%s" % (script, result))
        return result

    def servers(self):
        """Names of the programs that serve FUSE mounts."""
        return set(self.sh("for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null | grep -q /dev/fuse && "
                           "basename $(readlink $p/exe); done; true").split())

    def follow(self, page, *sections, user=None, **kw):
        """Pastes all that stands under these headings of a page; what it printed."""
        return "".join(self.sh(pages.script(block), user, **kw) for name in sections
                       for block in pages.section(os.path.join(REPOSITORY, page), name))

    def close(self):
        """Its first process takes all others with it."""
        self.holder.kill()
        self.holder.wait()
        shutil.rmtree(self.base, ignore_errors=True)
