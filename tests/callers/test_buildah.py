# SPDX-License-Identifier: Apache-2.0
"""Buildah as root, in the store of a Podman that looks at the results."""
import os

import pytest

import image_tree
from mount_program import mount_of
from scenario import big_after

ZERO_BLOCK = "dd if=/dev/zero of=%sdata/big64 bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null"

CONTAINERFILE = """FROM {image} AS first
RUN dd if=/dev/zero of=/data/big64 bs=4096 seek=20 count=1 conv=notrunc 2>/dev/null
RUN rm -r /tree/d1 && mkdir /tree/d1 && echo new > /tree/d1/new && chmod 0604 /data/big8
COPY file /vol/file
RUN --mount=type=bind,source=.,target=/ctx,rw echo x >> /ctx/file && cp /ctx/file /vol/changed
FROM {image}
COPY --from=first /data/big64 /vol/big64
COPY --from=first /tree/d1 /vol/d1
"""


@pytest.fixture
def working(podman_root):
    name = podman_root.buildah("from", "--name", "work", podman_root.IMAGE).strip()
    yield name
    podman_root.buildah("rm", "-a")
    assert podman_root.fuse_mounts() == []


def run_in(store, name, script, *args):
    return store.buildah("run", "--network=none", *args, name, "--", "/bin/sh", "-ec", script)


def test_run_and_commit_keep_written_blocks(podman_root, working):
    run_in(podman_root, working, ZERO_BLOCK % ("/", 11) + "; rm -r /tree/d2")
    run_in(podman_root, working, ZERO_BLOCK % ("/", 12))
    podman_root.buildah("commit", "-q", working, "localhost/built:1")
    tree, _ = podman_root.tree("localhost/built:1")
    podman_root("rmi", "localhost/built:1")
    assert tree["data/big64"][4] == big_after(11, 12)
    assert "tree/d2" not in tree and "tree/d3" in tree


def test_mount_is_served_and_written_through(podman_root, working, mount_program):
    point = podman_root.buildah("mount", working).strip()
    fstype, minor = mount_of(podman_root.namespace.mountinfo(), point)
    assert fstype == "fuse.fuse-overlayfs"
    mount_program.assert_serves(minor)
    upper = os.path.join(os.path.dirname(point), "diff")
    before = image_tree.allocated(upper)
    podman_root.shell((ZERO_BLOCK % (point + "/", 99)) + "; sync")
    grown = image_tree.allocated(upper) - before
    podman_root.buildah("umount", working)
    assert grown < mount_program.write_limit(image_tree.BIG)
    text = run_in(podman_root, working, "sha256sum /data/big64")
    assert text.split()[0] == big_after(99)


def test_copy_and_config_reach_the_image(podman_root, working):
    source = os.path.join(podman_root.base, "tmp", "copied")
    with open(source, "w") as f:
        f.write("copied\n")
    podman_root.buildah("copy", "-q", "--chown", "5:6", working, source, "/data/labelled")
    podman_root.buildah("config", "--env", "COLOUR=blue", working)
    podman_root.buildah("commit", "-q", working, "localhost/built:2")
    text = podman_root.run_sh("cat /data/labelled; stat -c '%u %g' /data/labelled; echo $COLOUR",
                              image="localhost/built:2")
    podman_root("rmi", "localhost/built:2")
    assert text == "copied\n5 6\nblue\n"


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


def test_build_with_stages_and_a_writable_bind(podman_root, mount_program):
    context = os.path.join(podman_root.base, "tmp", "context")
    os.makedirs(context, exist_ok=True)
    with open(os.path.join(context, "file"), "w") as f:
        f.write("of the context\n")
    with open(os.path.join(context, "Containerfile"), "w") as f:
        f.write(CONTAINERFILE.format(image=podman_root.IMAGE))
    for tag, target in (("localhost/stage:1", ("--target", "first")), ("localhost/last:1", ())):
        podman_root.buildah("bud", "-q", "--network=none", "--layers", *target, "-t", tag, context)
    first, _ = podman_root.tree("localhost/stage:1")
    text = podman_root.run_sh("cat /vol/changed", image="localhost/stage:1")
    listed = podman_root.run_sh("sha256sum /vol/big64; ls /vol/d1", image="localhost/last:1")
    podman_root("rmi", "-f", "localhost/stage:1", "localhost/last:1")
    assert first["data/big64"][4] == big_after(20)
    assert oct(first["data/big8"][1]) == "0o604"
    assert text.startswith("of the context\nx\n")  # older ones write to the context itself
    assert listed.split()[0] == big_after(20)
    with mount_program.reference_may_fail("1.10 resurrects files of replaced directories"):
        assert sorted(n for n in first if n.startswith("tree/d1")) == ["tree/d1", "tree/d1/new"]
        assert listed.split()[2:] == ["new"]
