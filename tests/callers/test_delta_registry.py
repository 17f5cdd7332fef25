# SPDX-License-Identifier: Apache-2.0
"""Deltas go through a registry by existing tools, and engines refuse them."""
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess

import pytest

import engine
from support.waiting import wait_until

BLOCK, SIZE, STEPS = 4096, 8 << 20, 3


@pytest.fixture
def registry(base):
    """Its address, and where its blobs are."""
    if name := engine.missing("docker-registry", "skopeo"):
        pytest.skip("%s is not installed" % name)
    root = os.path.join(base, "registry")
    os.mkdir(root)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    with open(root + ".yml", "w") as f:
        f.write("version: 0.1\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n" % (root, address))
    with open(root + ".log", "w") as log:
        served = subprocess.Popen(["docker-registry", "serve", root + ".yml"], stdout=log, stderr=log)
    _wait_for(address, root + ".log")
    yield address, root
    served.terminate()
    served.wait()
    shutil.rmtree(root)


def _wait_for(address, log):
    host, port = address.split(":")

    def answers():
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), 1).close()
            return True
        return False
    if not wait_until(answers, 60, 0.1):
        with open(log) as f:
            pytest.fail("no registry: " + f.read())


@pytest.fixture
def veneer(base, mount_program):
    """Call the program where the mounts of this test are."""
    if not mount_program.is_veneer:
        pytest.skip("deltas are veneer's own")
    top = os.path.join(base, "delta")
    os.mkdir(top)

    def call(*arguments, check=True):
        env = {**os.environ, "VENEER_CGROUP": "", "VENEER_RUNTIME_DIR": os.path.join(base, "server")}
        return subprocess.run([mount_program.bin + "/veneer", *arguments], cwd=top, env=env, check=check, capture_output=True, text=True)
    call.top = top
    yield call
    for name in ("a", "b"):
        call("umount", name + "/mnt", check=False)
    shutil.rmtree(top)


def mount(veneer, name):
    for part in ("upper", "work", "mnt"):
        os.makedirs(os.path.join(veneer.top, name, part), exist_ok=True)
    veneer("-o", "lowerdir=lower,upperdir={0}/upper,workdir={0}/work,branches=on".format(name), name + "/mnt")


def change(path, seed):
    """1 % of the blocks."""
    dice = random.Random(seed)
    with open(path, "r+b", buffering=0) as f:
        for blk in dice.sample(range(SIZE // BLOCK), SIZE // BLOCK // 100):
            os.pwrite(f.fileno(), dice.randbytes(BLOCK), blk * BLOCK)


def tree_bytes(root):
    return sum(os.lstat(os.path.join(here, name)).st_size for here, _, names in os.walk(root) for name in names)


def test_steps_of_an_image_go_through_a_registry(veneer, registry):
    address, blobs = registry
    os.mkdir(veneer.top + "/lower")
    with open(veneer.top + "/lower/db", "wb") as f:
        f.write(random.Random(0).randbytes(SIZE))
    mount(veneer, "a")
    for k in range(STEPS):
        change(veneer.top + "/a/mnt/db", k)
        veneer("snapshot", "a/mnt", "s%d" % k)
        veneer("send", "-q", "--oci", "out:s%d" % k, *(["--from", "s%d" % (k - 1)] if k else []), "a/mnt@s%d" % k)
        skopeo("copy", "--dest-tls-verify=false", "oci:%s/out:s%d" % (veneer.top, k), "docker://%s/app:s%d" % (address, k))
    assert tree_bytes(blobs) < 2 * STEPS * SIZE // 100
    for k in range(STEPS):
        skopeo("copy", "--src-tls-verify=false", "docker://%s/app:s%d" % (address, k), "oci:%s/in:s%d" % (veneer.top, k))
        os.makedirs(veneer.top + "/b", exist_ok=True)
        veneer("receive", "-q", "--oci", "in:s%d" % k, "-o", "lowerdir=lower", "b/upper")
    mount(veneer, "b")
    assert contents(veneer.top + "/b/mnt/db") == contents(veneer.top + "/a/mnt/db")
    assert [s["name"] for s in json.loads(veneer("snapshots", "--json", "b/mnt").stdout)["snapshots"]] == ["s0", "s1", "s2"]


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def skopeo(*arguments):
    subprocess.run(["skopeo", *arguments], check=True, capture_output=True, timeout=60)


def test_engine_refuses_a_delta(veneer, registry, podman_root):
    os.mkdir(veneer.top + "/lower")
    mount(veneer, "a")
    with open(veneer.top + "/a/mnt/new", "w") as f:
        f.write("new")
    veneer("snapshot", "a/mnt", "one")
    veneer("send", "-q", "--oci", "out:one", "a/mnt@one")
    skopeo("copy", "--dest-tls-verify=false", "oci:%s/out:one" % veneer.top, "docker://%s/app:one" % registry[0])
    code, _, errors = podman_root("pull", "--tls-verify=false", registry[0] + "/app:one", check=False)
    assert code and "application/vnd.veneer.delta" in errors


def test_damaged_blob_is_refused(veneer):
    os.mkdir(veneer.top + "/lower")
    mount(veneer, "a")
    with open(veneer.top + "/a/mnt/new", "w") as f:
        f.write("new")
    veneer("snapshot", "a/mnt", "one")
    veneer("send", "-q", "--oci", "out:one", "a/mnt@one")
    blobs = veneer.top + "/out/blobs/sha256/"
    manifest = json.loads(contents(veneer.top + "/out/index.json"))["manifests"][0]["digest"].split(":")[1]
    delta = json.loads(contents(blobs + manifest))["layers"][0]["digest"].split(":")[1]
    for name in (manifest, delta):
        was = contents(blobs + name)
        with open(blobs + name, "wb") as f:
            f.write(bytes([was[0] ^ 1]) + was[1:])
        done = veneer("receive", "--oci", "out:one", "-o", "lowerdir=lower", "c", check=False)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
        assert not os.path.exists(veneer.top + "/c")
        with open(blobs + name, "wb") as f:
            f.write(was)
    os.mkdir(veneer.top + "/c")
    veneer("receive", "--oci", "out:one", "-o", "lowerdir=lower", "c")
