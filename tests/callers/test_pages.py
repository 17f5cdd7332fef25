# SPDX-License-Identifier: Apache-2.0
"""The commands that pages in contrib/ tell a reader to paste do as the page says."""
import os
import re
import subprocess
import tomllib

import pytest

import engine
import host_image
from support import pages
from support.repository import REPOSITORY

PODMAN = "contrib/podman/README.md"
DOCKER = "contrib/docker/README.md"
CONTAINERD = "contrib/containerd/README.md"
KUBERNETES = "contrib/kubernetes/README.md"


def need(*binaries):
    if name := engine.missing(*binaries):
        pytest.skip("%s is not installed" % name)


def test_podman_page_as_root(guest):
    text = guest.follow(PODMAN, "As root", "See that it is used", "Buildah")
    assert " fuse.fuse-overlayfs " in text
    assert text.endswith("built\n")


def test_podman_page_as_an_ordinary_user(guest, fuse_device):
    user = guest.add_reader()
    text = guest.follow(PODMAN, "As an ordinary user", "See that it is used", "Buildah", user=user)
    assert " fuse.fuse-overlayfs " in text
    assert text.endswith("built\n")


def test_podman_page_without_systemd(guest, fuse_device):
    """Its containers.conf stands in the place of what this machine says of the same."""
    guest.sh("sed -i '/^cgroup_manager/d; /^events_logger/d' /etc/containers/containers.conf.d/00-this-machine.conf")
    user = guest.add_reader()
    text = guest.follow(PODMAN, "As an ordinary user", "In a container, in a pod, without systemd", "See that it is used", user=user)
    assert " fuse.fuse-overlayfs " in text
    said = guest.sh("podman info --format '{{.Host.CgroupManager}} {{.Host.EventLogger}}'\n"
                    "podman create --name one localhost/tiny true >/dev/null\n"
                    "podman inspect -f '{{.HostConfig.Cgroups}}' one", user)
    assert said.split() == ["cgroupfs", "file", "disabled"]


def test_containerd_page_has_what_kubernetes_reads(guest):
    """containerd prints what its plugins made of a file; what they do not know is not in that any more."""
    need("containerd")
    old, new = (block.text for block in pages.section(os.path.join(REPOSITORY, CONTAINERD), "For Kubernetes") if block.lang == "text")
    is_old = re.search(r" v?1\.\d", guest.sh("containerd --version"))
    guest.write("/run/cri.toml", "version = 2\n" + old if is_old else "version = 3\n" + new)
    plugins = tomllib.loads(guest.sh("containerd -c /run/cri.toml config dump"))["plugins"]
    images = plugins["io.containerd.grpc.v1.cri"]["containerd"] if is_old else plugins["io.containerd.cri.v1.images"]
    assert images["snapshotter"] == "fuse-overlayfs"


def test_docker_page(guest):
    need("dockerd", "docker", "containerd", "runc")
    text = guest.follow(DOCKER, "The daemon", "See that it is used")
    assert text.startswith("fuse-overlayfs\n")
    assert " fuse.fuse-overlayfs " in text


def debian():
    """Which version of Debian the Dockerfiles start from, and this machine is."""
    with open(os.path.join(REPOSITORY, "contrib/docker/build.Dockerfile")) as f:
        wanted = re.search(r"^FROM debian:(\d+)", f.read(), re.M)[1]
    with open("/etc/os-release") as f:
        return wanted, (re.search(r'^VERSION_ID="?(\d+)', f.read(), re.M) or [None, "none"])[1]


def need_their_debian():
    wanted, here = debian()
    if wanted != here:
        pytest.skip(f"the Dockerfiles are of Debian {wanted}, and this is {here}: its program wants other libraries")


def test_docker_page_runs_containers_in_a_container(guest, mount_program, fuse_device):
    """The images that the Dockerfiles start from are made of this machine's files."""
    need_their_debian()
    need("dockerd", "docker", "containerd", "runc")
    guest.follow(DOCKER, "The daemon")
    veneer = os.path.join(mount_program.bin, "veneer")
    for write, name in ((host_image.write, "debian:12-slim"), (host_image.write_program, "veneer")):
        path = os.path.join(guest.base, "image.tar")
        write(path, veneer)
        guest.sh("docker import %s %s" % (path, name))
    _, build, run = pages.section(os.path.join(REPOSITORY, DOCKER), "Containers in a container")
    guest.sh(pages.script(build))
    text = guest.sh(pages.script(run))
    assert " fuse.fuse-overlayfs " in text
    assert "\nbuilt\n" in text


def test_kubernetes_page_has_what_its_pods_ask_for():
    yaml = pytest.importorskip("yaml")
    plugin, pod = (yaml.safe_load(block.text) for block in pages.blocks(os.path.join(REPOSITORY, KUBERNETES))
                   if block.lang == "yaml")
    assert [one["kind"] for one in (plugin, pod)] == ["DaemonSet", "Pod"]
    for spec in (plugin["spec"]["template"]["spec"], pod["spec"]):
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert plugin["spec"]["selector"]["matchLabels"] == plugin["spec"]["template"]["metadata"]["labels"]
    device = yaml.safe_load(plugin["spec"]["template"]["spec"]["containers"][0]["args"][1])
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"]["squat.ai/" + device["name"]] == 1
    assert device["groups"][0]["paths"] == [{"path": "/dev/fuse"}]
    with open(os.path.join(REPOSITORY, "contrib/docker/podman.Dockerfile")) as f:
        dockerfile = f.read()
    assert "VOLUME " + container["volumeMounts"][0]["mountPath"] in dockerfile
    assert "-u %d " % pod["spec"]["securityContext"]["runAsUser"] in dockerfile


@pytest.mark.parametrize("name", ["build.Dockerfile", "podman.Dockerfile"])
def test_dockerfile_installs_the_libraries_of_the_program(mount_program, name):
    need("dpkg-query", "readelf")
    need_their_debian()
    program = os.path.join(mount_program.bin, "veneer")
    if not mount_program.is_veneer or subprocess.run(["ldd", program], capture_output=True).returncode:
        pytest.skip("no program that is linked with libraries")
    found = dict(re.findall(r"(\S+) => (\S+)", printed("ldd", program)))
    packages = {printed("dpkg-query", "-S", "*/" + os.path.basename(found[library])).split(":")[0].removesuffix("t64")
                for library in re.findall(r"NEEDED.*\[(.*)\]", printed("readelf", "-d", program)) if library in found}
    assert {"libjansson4", "liburing2", "libxxhash0"} <= packages
    with open(os.path.join(REPOSITORY, "contrib/docker", name)) as f:
        words = f.read().split()
    assert packages - {"libc6", "libgcc-s1"} - set(words) == set()


def printed(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
