# SPDX-License-Identifier: Apache-2.0
"""Features of the program that only Buildah uses: the working container's mount, and uppers of the user."""
import os

import pytest

import image_tree
from life import big_after, zero_block
from mount_program import mount_of


@pytest.fixture
def working(podman_root):
    name = podman_root.buildah("from", "--name", "work", podman_root.IMAGE).strip()
    yield name
    podman_root.buildah("rm", "-a")
    assert podman_root.fuse_mounts() == []


def run_in(store, name, script, *args):
    return store.buildah("run", "--network=none", *args, name, "--", "/bin/sh", "-ec", script)


def test_mount_is_served_and_written_through(podman_root, working, mount_program):
    point = podman_root.buildah("mount", working).strip()
    fstype, minor = mount_of(podman_root.namespace.mountinfo(), point)
    assert fstype == "fuse.fuse-overlayfs"
    mount_program.assert_serves(minor)
    upper = os.path.join(os.path.dirname(point), "diff")
    before = image_tree.allocated(upper)
    podman_root.shell(zero_block(99, point) + "; sync")
    grown = image_tree.allocated(upper) - before
    podman_root.buildah("umount", working)
    assert grown < mount_program.write_limit(image_tree.BIG)
    text = run_in(podman_root, working, "sha256sum /data/big64")
    assert text.split()[0] == big_after(99)


def test_overlay_volume_upper_holds_whole_files(podman_root, working):
    """Upper directories the user names are read raw, so a file in them must be complete."""
    base = os.path.join(podman_root.base, "tmp")
    for name in ("source", "named-upper", "named-work"):
        os.makedirs(os.path.join(base, name), exist_ok=True)
    source = os.path.join(base, "source")
    with open(os.path.join(source, "large"), "wb") as f:
        f.write(b"x" * (4 << 20))
    run_in(podman_root, working, "echo changed >> /vol/large; echo new > /vol/new",
           "-v", "{0}:/vol:O,upperdir={1}/named-upper,workdir={1}/named-work".format(source, base))
    with open(os.path.join(base, "named-upper", "large"), "rb") as f:
        assert f.read() == b"x" * (4 << 20) + b"changed\n"
    assert os.path.getsize(os.path.join(source, "large")) == 4 << 20
    assert "new" in os.listdir(os.path.join(base, "named-upper"))
    assert "new" not in os.listdir(source)
