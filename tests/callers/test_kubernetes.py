# SPDX-License-Identifier: Apache-2.0
"""The page about Kubernetes, on a node that is made here: its device plugin, and its pod that runs containers itself."""
import json
import os

import pytest

import engine
import host_image
import kubernetes
from guest import Guest
from test_snapshotter import CANNOT_BUILD

pytestmark = pytest.mark.slow

NOT_SO_OLD = "hostUsers: false\n", "procMount: Unmasked\n"
ROOT_MOUNT = "grep ' / / ' /proc/self/mountinfo"
# The page's text on pods without a /proc of which nothing is hidden.
CONTAINER = "podman run --rm --pid=host --network=host --cgroups=enabled localhost/tiny "


@pytest.fixture(scope="module")
def node(base, mount_program, namespace, fuse_device):
    if not mount_program.is_veneer:
        pytest.skip("the page that is followed is about veneer")
    if name := engine.missing("containerd", "ctr", "runc", "mount.fuse3", "podman", "crun", "ip", "gcc"):
        pytest.skip("%s is not installed" % name)
    if not os.path.exists("/usr/lib/cni/ptp"):
        pytest.skip("containernetworking-plugins is not installed")
    if not engine.go_path():
        pytest.skip("the kubelet is built with Go, which is not installed")
    guest = Guest(os.path.join(base, "node"), mount_program.bin)
    one = None
    try:
        one = make_node(guest)
        yield one
    finally:
        one.close() if one else guest.close()
        engine.remove_empty_cgroups(kubernetes.CGROUP)


def make_node(guest):
    try:
        return kubernetes.Node(guest)
    except engine.EngineError as e:
        if any(text in str(e) for text in CANNOT_BUILD):
            pytest.skip("the kubelet cannot be built here: " + str(e).strip().splitlines()[-1])
        raise


@pytest.fixture
def guest(node):
    """What a failed test shows."""
    return node.guest


def without(manifest, *lines):
    """The page's text on older runtimes."""
    for line in lines:
        assert manifest.count(line) == 1
        manifest = "".join(one for one in manifest.splitlines(True) if not one.strip(" ") == line)
    return manifest


def import_podman(node, mount_program):
    """The image of contrib/docker, of this machine's files; vfs, as here it is only made."""
    veneer, path = os.path.join(mount_program.bin, "veneer"), os.path.join(node.guest.base, "image.tar")
    for write, name in ((host_image.write, "debian:12-slim"), (host_image.write_program, "veneer")):
        write(path, veneer)
        node.guest.sh("podman --storage-driver vfs import %s localhost/%s" % (path, name))
        os.unlink(path)
    node.guest.sh("buildah --storage-driver vfs bud --isolation chroot -f contrib/docker/podman.Dockerfile "
                  "-t docker.io/library/veneer-podman .")
    node.guest.sh("podman --storage-driver vfs save -o {0} docker.io/library/veneer-podman\n"
                  "ctr -n k8s.io images import --snapshotter fuse-overlayfs {0}\n"
                  "rm {0}".format(path))


def test_manifests_are_what_kubernetes_takes(node, guest):
    plugin, pod = kubernetes.manifests()
    assert "hostUsers: false" in node.check(pod)
    assert "image: squat/generic-device-plugin" in node.check(plugin)
    with pytest.raises(engine.EngineError, match="unknown field"):
        node.check(pod.replace("restartPolicy", "restart"))
    with pytest.raises(engine.EngineError, match="procMount"):
        node.check(without(pod, NOT_SO_OLD[0]))


@pytest.fixture(scope="module")
def plugin(node):
    """The page's first block, as it is."""
    node.run("fuse-devices", node.check(kubernetes.manifests()[0]))
    node.wait_running("fuse-devices")
    node.wait("the device is there", lambda: "squat.ai/fuse" in node.guest.sh(
        "cat /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint || :"))


def test_user_namespace_is_refused_by_an_old_runtime(node, guest, plugin):
    node.run("mapped", node.check(kubernetes.manifests()[1].replace("name: build", "name: mapped")))
    node.wait("it is refused", lambda: "runtime does not support user namespaces" in node.events("mapped"))
    node.remove("mapped")


@pytest.fixture(scope="module")
def pod(node, plugin, mount_program):
    """The second, less what the page says of runtimes as old as this one."""
    import_podman(node, mount_program)
    node.run("build", node.check(without(kubernetes.manifests()[1], *NOT_SO_OLD)))
    node.wait_running("build")
    return lambda script: node.sh("build", "podman", script)


def test_root_of_a_pod_is_veneers_and_its_image_stays_as_it_is(node, guest, pod):
    before = node.sums_of_lower("podman")
    assert " fuse.fuse-overlayfs " in pod(ROOT_MOUNT)
    pod("cp /usr/bin/podman /tmp/copy; echo more >>/home/user/.config/containers/storage.conf")
    assert pod("tail -n 1 /home/user/.config/containers/storage.conf") == "more\n"
    pod("cmp /usr/bin/podman /tmp/copy; sed -i '$d' /home/user/.config/containers/storage.conf")
    assert node.sums_of_lower("podman") == before
    assert guest.servers() == {"veneer"}


def test_containers_in_a_pod_are_veneers(node, guest, pod):
    assert "character special" in pod("busybox stat -c %F /dev/fuse")
    pod("mkdir -p tiny/bin tiny/tmp; cp /bin/busybox tiny/bin/; echo of the image >tiny/data\n"
        "for name in sh cat ls grep dd sleep; do ln -s busybox tiny/bin/$name; done\n"
        "tar -C tiny -c . | podman import - localhost/tiny")
    assert " fuse.fuse-overlayfs " in pod(CONTAINER + "grep ' / / ' /proc/self/mountinfo")
    assert pod(CONTAINER + "sh -c 'echo more >>/data; cat /data'") == "of the image\nmore\n"
    assert " / / " in pod("box=$(buildah from localhost/tiny)\n"
                          "buildah run --isolation=chroot $box -- grep ' / / .* fuse.fuse-overlayfs ' /proc/self/mountinfo")


def test_eviction_sees_the_disk_of_images(node, guest):
    """Asked for, as the eviction manager's own look comes when it likes."""
    images = json.loads(node.ask("/stats/summary"))["node"]["runtime"]["imageFs"]
    assert images["capacityBytes"] > 0
    assert "eviction manager: failed to synchronize" not in guest.sh("cat /run/kubelet.log")
