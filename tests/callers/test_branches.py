# SPDX-License-Identifier: Apache-2.0
"""Containers run on branches of a mount that another container runs on: as their root, and as a volume."""
import os

import pytest

IDLE = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")


class Branches:
    """A mount over the files of an image, and what was forked from it; made where the engine's mounts are."""

    def __init__(self, podman):
        self.podman, self.top = podman, os.path.join(podman.base, "tmp", "branches")
        self.mounts = ["base"]
        self.veneer("""
            mkdir -p lower upper work base
            podman create -q --name seed %s true >/dev/null
            podman export seed | tar -x -C lower
            podman rm seed >/dev/null
            veneer -o lowerdir=lower,upperdir=upper,workdir=work,branches=on base""" % podman.IMAGE)

    def veneer(self, script):
        return self.podman.shell(self.podman.program.setup + "mkdir -p %s && cd %s\n" % (self.top, self.top) + script)

    def fork(self, source, name):
        self.veneer("veneer branch %s %s" % (source, name))
        self.mounts.append(name)

    def run_on(self, name):
        """A container whose root the mount is."""
        self.podman("run", "-d", "--name", name, *self.podman.RUN_ARGS, "--rootfs", os.path.join(self.top, name), *IDLE)

    def lower(self):
        return self.veneer("find lower -printf '%P %y %m %U %G %s %T@ %l\\n' | LC_ALL=C sort; "
                           "find lower -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum")

    def close(self):
        self.podman.remove_all()
        self.veneer("".join("umount %s\n" % name for name in reversed(self.mounts)) + "cd ..; rm -rf branches")


@pytest.fixture
def branches(podman, mount_program):
    if not mount_program.is_veneer:
        pytest.skip("branches are veneer's own")
    made = Branches(podman)
    yield made
    made.close()


def test_containers_go_on_from_another_that_runs(podman, branches):
    lower = branches.lower()
    branches.run_on("base")
    podman.sh("base", "echo before > /data/state; printf B | dd of=/data/big8 bs=1 seek=8192 conv=notrunc 2>/dev/null; rm /tree/d0/f1")
    branches.veneer("veneer snapshot base filled >/dev/null")
    podman.sh("base", "echo after > /data/state")
    for name in ("one", "two"):
        branches.fork("base@filled", name)
        branches.run_on(name)
        assert podman.sh(name, "cat /data/state; dd if=/data/big8 bs=1 skip=8192 count=1 2>/dev/null; [ ! -e /tree/d0/f1 ]") == "before\nB"
        podman.sh(name, "echo %s > /data/state; printf X | dd of=/data/big8 bs=1 seek=4096 conv=notrunc 2>/dev/null" % name)
    branches.fork("one", "three")  # of a container that goes on
    podman.start("volume", "-v", os.path.join(branches.top, "three", "data") + ":/vol")
    assert podman.sh("volume", "cat /vol/state; echo three > /vol/state") == "one\n"
    assert [podman.sh(name, "cat /data/state") for name in ("base", "one", "two")] == ["after\n", "one\n", "two\n"]
    grown = branches.veneer("du -sk .two.branch | cut -f 1")
    assert int(grown) < 512, "8 MiB were not copied"
    assert branches.lower() == lower
