# SPDX-License-Identifier: Apache-2.0
"""containerd with the fuse-overlayfs snapshotter, set up as its page says, and what ctr can do with it."""
import hashlib
import io
import json
import os
import tarfile

import image_tree
from engine import EngineError

PAGE = "contrib/containerd/README.md"
ROOT = "/var/lib/containerd-fuse-overlayfs"
FIRST_BUILD_S = 600
LOST_HELPER = "failed with ECHILD"
START_TRIES = 5
END = "end-of-script"
FLAGS = "--snapshotter fuse-overlayfs"


def _add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write_archive(path, name, layers, entrypoint=None):
    """An image of these layers, which are archives themselves, as docker save writes it."""
    sums = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
    config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": entrypoint} if entrypoint else {},
              "rootfs": {"type": "layers", "diff_ids": sums}}
    files = ["layer%d.tar" % i for i in range(len(layers))]
    with tarfile.open(path, "w") as tar:
        _add(tar, "manifest.json", json.dumps([{"Config": "c.json", "RepoTags": [name], "Layers": files}]).encode())
        _add(tar, "c.json", json.dumps(config).encode())
        for file, layer in zip(files, layers):
            _add(tar, file, layer)


class Ctr:
    def __init__(self, guest, directory):
        self.guest, self.dir, self.execs = guest, directory, 0
        os.makedirs(directory)
        guest.follow(PAGE, "The snapshotter", timeout=FIRST_BUILD_S)

    def __call__(self, *words):
        return self.guest.sh("ctr " + " ".join(words))

    def snapshots(self, *words):
        return self("snapshots", FLAGS, *words)

    def import_image(self, name, layers):
        path = os.path.join(self.dir, "image.tar")
        write_archive(path, name, layers)
        self("images", "import", FLAGS, path)
        os.unlink(path)

    def steadily(self, name, start):
        """The result of start(). Where the machine is busy, the shim of a container now and then collects its mount helper
        before it has asked how that ended, ten times in a row; it says so."""
        for _ in range(START_TRIES):
            try:
                return start()
            except EngineError as e:
                if LOST_HELPER not in str(e):
                    raise
                error = e
                self.guest.sh("ctr tasks rm -f %s || :" % name)
        raise error

    def start(self, name, image):
        def run():
            self.guest.sh("ctr containers rm {0} || :; ctr snapshots {1} rm {0} || :".format(name, FLAGS))
            self("run", "-d", FLAGS, image, name, "/bin/sh", "-c", "'while :; do sleep 0.2; done'")
        self.steadily(name, run)

    def start_again(self, name):
        """A container that was stopped."""
        self.steadily(name, lambda: self("tasks", "start", "-d", name))

    def sh(self, name, script):
        """In a running container. On a busy machine ctr closes the standard input of what it runs too early, and loses
        what it prints: so the script is an argument, and what it says is read in the container's tree."""
        self.execs += 1
        path, said = os.path.join(self.dir, "script"), "/tmp/said.%d" % self.execs
        with open(path, "w") as f:
            f.write("(\n%s\n) >%s\necho %s >>%s" % (script, said, END, said))
        self("tasks", "exec", "--exec-id", "e%d" % self.execs, name, "/bin/sh", "-euc", '"$(cat %s)"' % path)
        text = self.guest.sh(
            "pid=$(ctr tasks ls | awk '$1 == \"%s\" { print $2 }')\n"
            "for i in $(seq 300); do if grep -qs %s /proc/$pid/root%s; then break; fi; sleep 0.1; done\n"
            "cat /proc/$pid/root%s" % (name, END, said, said))
        assert text.endswith(END + "\n"), "the script has not ended: " + text[-200:]
        return text.removesuffix(END + "\n")

    def stop(self, name):
        self.guest.sh("ctr tasks kill -s SIGKILL {0} || :; "
                      "while ctr tasks ls | grep -q '^{0} .*RUNNING'; do sleep 0.05; done; "
                      "ctr tasks rm {0} || :".format(name))

    def rm(self, name):
        self.stop(name)
        self("containers", "rm", name)

    def tree(self, name):
        """Of a running container, as it sees itself."""
        return image_tree.parse_list(self.sh(name, image_tree.list_script()))[0]

    def upper(self, name):
        text = self.snapshots("mounts", "/", name)
        return self.guest.path(text.split("upperdir=")[1].split(",")[0])

    def in_snapshot(self, key, script):
        """Runs in an active snapshot that belongs to no container, mounted as ctr says."""
        self.execs += 1
        point, path = "/run/snapshot%d" % self.execs, os.path.join(self.dir, "script")
        with open(path, "w") as f:
            f.write(script)
        options = self.snapshots("mounts", point, key).split(" -o ")[1].strip()
        return self.guest.sh("mkdir {0}; fuse-overlayfs -o {1} {0}; mount --bind /dev {0}/dev; "
                             "chroot {0} /bin/sh -eu <{2}; umount {0}/dev; fusermount3 -u {0}"
                             .format(point, options, path))

    def maps(self):
        return self.guest.sh("find %s -name .wh..wh.veneer" % ROOT).split()

    def servers(self):
        return self.guest.servers()

    def mounts(self):
        return self.guest.sh("grep -c fuse.fuse-overlayfs /proc/self/mountinfo || :").strip()

    def diff(self, key):
        """The changes of a snapshot, as an image would carry them."""
        return self._read_tar("snapshots", FLAGS, "diff", key)

    def layer_of(self, checkpoint):
        """The same of what ctr wrote down as a checkpoint."""
        digest = self("images", "ls", "name==" + checkpoint).split("\n")[1].split()[2]
        found = [entry["digest"] for entry in json.loads(self("content", "get", digest))["manifests"]
                 if entry["mediaType"].endswith("tar+gzip")]
        return self._read_tar("content", "get", *found)

    def _read_tar(self, *words):
        path = os.path.join(self.dir, "printed.tar")
        self(*words, ">", path)
        return image_tree.read_tar(path)[0]
