# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes node: containerd as its page says, and a kubelet that runs the pods it finds as files.

The kubelet comes from the Go module proxy, as the snapshotter does. No API server stands over it: what that would have
checked of a manifest, manifest_check does with the same code. The node's network is its own, and so are its control groups.
"""
import json
import os
import re
import shutil
import tarfile
import time

from ctr import END, PAGE as CONTAINERD, write_archive
from engine import EngineError, remove_empty_cgroups
from guest import GO_CACHE
from support import pages
from support.repository import REPOSITORY

PAGE = "contrib/kubernetes/README.md"
HERE = os.path.dirname(os.path.abspath(__file__))
# Of newer ones the kubelet asks containerd for what 1.6 has not.
VERSION = "34.4"
BUILT = os.path.join(os.path.dirname(GO_CACHE), "kubernetes-1." + VERSION)
BUILD_S = 3600
WAIT_S = 240
PAUSE = "docker.io/library/veneer-pause:1"
NODE = "/run/netns/node"
MANIFESTS = "/etc/kubernetes/manifests"
CGROUP = "veneer-kubelet"
CTR = "ctr -n k8s.io "
PROGRAMS = {"kubelet": "k8s.io/kubernetes/cmd/kubelet", "device-plugin": "node/device_plugin",
            "manifest-check": "node/manifest_check"}
MODULE = """module node

go 1.24.0

require k8s.io/kubernetes v1.{0}

"""
# Settings of the machine and not of the page: programs' places, no image from afar, no right to lower an oom_score.
THIS_MACHINE = """
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%s"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
""" % PAUSE
NETWORK = """{"cniVersion": "0.4.0", "name": "node", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.213.0.0/24", "dataDir": "/run/cni"}}]}
"""
KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
fileCheckFrequency: 1s
syncFrequency: 5s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
protectKernelDefaults: true
makeIPTablesUtilChains: false
resolvConf: ""
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {imagefs.available: 0%%, nodefs.available: 0%%, nodefs.inodesFree: 0%%, memory.available: 10Mi}
volumePluginDir: /var/lib/kubelet/plugins-exec
podLogsDir: /var/lib/kubelet/logs
""" % (MANIFESTS, CGROUP)
# The kubelet would set these for the whole machine; in its own mount namespace it finds them set.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
           "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
ASK = """
import ssl, sys, urllib.error, urllib.request
unverified = ssl._create_unverified_context()
try:
    request = urllib.request.Request("https://127.0.0.1:10250" + sys.argv[1], method=sys.argv[2])
    print(urllib.request.urlopen(request, context=unverified).read().decode(), end="")
except urllib.error.HTTPError as e:
    sys.exit(e.read().decode())
"""


def manifests():
    """The page's, in order."""
    return [block.text for block in pages.blocks(os.path.join(REPOSITORY, PAGE)) if block.lang == "yaml"]


def _module(guest, kubernetes):
    """A go.mod with the staging modules, which the main one replaces by directories that its archive has not."""
    with open(guest.path(kubernetes + "/go.mod")) as f:
        staging = re.findall(r"^\t(k8s\.io/\S+) => \./staging", f.read(), re.M)
    return MODULE.format(VERSION) + "".join("replace %s => %s v0.%s\n" % (name, name, VERSION) for name in staging)


def build(guest):
    """The programs of the node; kept from one session to the next, as it takes minutes."""
    source = "/run/node"
    for name in ("device_plugin", "manifest_check"):
        with open(os.path.join(HERE, name, "main.go")) as f:
            text = f.read()
        guest.write("%s/%s/main.go" % (source, name), text)
    archive = json.loads(guest.sh("go mod download -json k8s.io/kubernetes@v1." + VERSION, timeout=BUILD_S))
    guest.write(source + "/go.mod", _module(guest, archive["Dir"]))
    guest.sh("mkdir -p %s" % BUILT)
    # Packages that a session before has built Go only links again.
    for program, package in PROGRAMS.items():
        flags = "-s -w -X k8s.io/component-base/version.gitVersion=v1." + VERSION
        if program == "device-plugin":  # its image has no libraries
            flags += " -linkmode external -extldflags -static"
        guest.sh("cd {0}; nice go build -mod=mod -buildvcs=false -ldflags '{1}' -o {2}/{3} {4}"
                 .format(source, flags, BUILT, program, package), timeout=BUILD_S)
        guest.sh("cp %s/%s /usr/local/bin/" % (BUILT, program))


class Node:
    def __init__(self, guest):
        self.guest, self.execs = guest, 0
        build(guest)
        guest.sh("mount -t tmpfs tmpfs /var/log; ip netns add node; nsenter --net=%s ip link set lo up" % NODE)
        guest.write("/usr/local/bin/containerd", '#!/bin/sh\nexec nsenter --net=%s /usr/bin/containerd "$@"\n' % NODE, 0o755)
        guest.write("/etc/cni/net.d/10-node.conflist", NETWORK)
        guest.follow(CONTAINERD, "The snapshotter", timeout=BUILD_S)
        self._containerd_for_kubernetes()
        self._images()
        self._kubelet()

    def _containerd_for_kubernetes(self):
        old = next(block.text for block in pages.section(os.path.join(REPOSITORY, CONTAINERD), "For Kubernetes")
                   if block.lang == "text")
        with open(self.guest.path("/etc/containerd/config.toml"), "a") as f:
            f.write(old + THIS_MACHINE)
        self.guest.follow(CONTAINERD, "For Kubernetes")
        self.guest.sh("systemctl restart containerd")

    def import_programs(self, name, programs, entrypoint):
        """An image of these programs, which are linked with nothing."""
        layer, archive = (os.path.join(self.guest.base, one) for one in ("layer.tar", "image.tar"))
        with tarfile.open(layer, "w") as tar:
            for path, file in programs.items():
                tar.add(file, path, filter=_of_root)
        with open(layer, "rb") as f:
            write_archive(archive, name, [f.read()], entrypoint)
        self.guest.sh(CTR + "images import --snapshotter fuse-overlayfs " + archive)

    def _images(self):
        self.import_programs(PAUSE, {"bin/busybox": "/bin/busybox"}, ["/bin/busybox", "sleep", "1000000"])
        self.import_programs("docker.io/squat/generic-device-plugin:latest",
                             {"plugin": os.path.join(BUILT, "device-plugin")}, ["/plugin"])

    def _kubelet(self):
        guest = self.guest
        guest.write("/etc/kubernetes/kubelet.yaml", KUBELET)
        guest.write("/run/ask.py", ASK)
        script = "set -e\n"
        for name, value in SYSCTLS.items():
            guest.write("/run/sysctl/" + name, value + "\n")
            script += "mount --bind /run/sysctl/{0} /proc/sys/{0}\n".format(name)
        guest.write("/run/kubelet.sh", script + "exec nsenter --net=%s kubelet --config=/etc/kubernetes/kubelet.yaml "
                    "--hostname-override=node --root-dir=/var/lib/kubelet --v=2\n" % NODE)
        guest.sh("mkdir -p %s; for d in /sys/fs/cgroup/*/; do mkdir -p $d/%s; done\n"
                 "c=/sys/fs/cgroup/cpuset; for f in cpus mems; do if [ -e $c/cpuset.$f ]; then\n"
                 "cat $c/cpuset.$f >$c/%s/cpuset.$f; fi; done" % (MANIFESTS, CGROUP, CGROUP))
        guest.sh("setsid unshare -m --propagation slave sh /run/kubelet.sh >/run/kubelet.log 2>&1 </dev/null &")
        self.wait("the kubelet answers", lambda: self.ask("/healthz") == "ok")

    def log(self):
        return self.guest.sh("tail -n 60 /run/kubelet.log")

    def ask(self, path, method="GET"):
        return self.guest.sh("nsenter --net=%s /usr/bin/python3 /run/ask.py '%s' %s" % (NODE, path, method))

    def wait(self, what, ready):
        until, error = time.monotonic() + WAIT_S, ""
        while time.monotonic() < until:
            try:
                if found := ready():
                    return found
            except EngineError as e:
                error = str(e)
            time.sleep(0.5)
        raise EngineError("waited in vain until %s: %s\n%s" % (what, error[-1000:], self.log()))

    def check(self, manifest):
        """The manifest as Kubernetes reads it; an EngineError with its words if it refuses."""
        self.guest.write("/run/manifest.yaml", manifest)
        return self.guest.sh("manifest-check </run/manifest.yaml")

    def run(self, name, manifest):
        self.guest.write("/run/%s.yaml" % name, manifest)
        self.guest.sh("mv /run/{0}.yaml {1}/{0}.yaml".format(name, MANIFESTS))

    def remove(self, name):
        self.guest.sh("rm -f %s/%s.yaml" % (MANIFESTS, name))
        self.wait("%s is gone" % name, lambda: self.status(name) is None)

    def status(self, name):
        for pod in json.loads(self.ask("/pods"))["items"] or []:
            if pod["metadata"]["name"] == name + "-node":
                return pod["status"]
        return None

    def events(self, name):
        """The kubelet's log lines about a pod."""
        return self.guest.sh("grep -F default/%s-node /run/kubelet.log || :" % name)

    def wait_running(self, name):
        def running():
            status = self.status(name) or {}
            assert status.get("phase") != "Failed", status
            return status.get("phase") == "Running" and all(c["ready"] for c in status["containerStatuses"])
        self.wait("%s runs" % name, running)

    def sh(self, pod, container, script):
        """By the kubelet, as kubectl exec does; that gives too little of what is printed on a busy machine, see Ctr.sh."""
        self.execs += 1
        said, todo = "/tmp/said.%d" % self.execs, "/tmp/script.%d" % self.execs
        pid = self.guest.sh(CTR + "tasks ls | awk '$1 == \"%s\" { print $2 }'" % self.container(container)).strip()
        self.guest.write("/proc/%s/root%s" % (pid, todo), "set -e\n" + script + "\n", 0o644)
        self.guest.write("/proc/%s/root%s.run" % (pid, todo),
                         "if sh %s >%s 2>&1; then echo %s >>%s; else echo %s failed >>%s; fi\n"
                         % (todo, said, END, said, END, said), 0o644)
        # The kubelet takes a command apart where it has blanks.
        self.ask("/run/default/%s-node/%s?cmd=/bin/sh%%20%s.run" % (pod, container, todo), "POST")
        self.wait("the script ends", lambda: END in self.guest.sh("cat /proc/%s/root%s" % (pid, said)))
        text = self.guest.sh("cat /proc/%s/root%s" % (pid, said))
        if not text.endswith(END + "\n"):
            raise EngineError("in %s: %s\n%s" % (pod, script, text))
        return text.removesuffix(END + "\n")

    def container(self, name):
        return self.guest.sh(CTR + "containers ls -q 'labels.\"io.kubernetes.container.name\"==%s'" % name).split()[-1]

    def lower(self, name):
        """The layers of the image of this container, one by one."""
        text = self.guest.sh(CTR + "snapshots --snapshotter fuse-overlayfs mounts / " + self.container(name))
        return re.search(r"lowerdir=([^,\s]*)", text).group(1).split(":")

    def sums_of_lower(self, name):
        return self.guest.sh("for d in %s; do cd $d; find . -type f -print0 | sort -z | xargs -0 sha256sum; "
                             "find . | sort | xargs -d '\\n' stat -c '%%f %%u %%g %%s %%Y %%n'; done" % " ".join(self.lower(name)))

    def close(self):
        self.guest.close()
        remove_empty_cgroups(CGROUP)
        shutil.rmtree(self.guest.base, ignore_errors=True)


def _of_root(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
