# SPDX-License-Identifier: Apache-2.0
"""Docker's fuse-overlayfs graph driver, which finds the program by its name in PATH."""
import os
import subprocess

import pytest

import image_tree
from scenario import Outcome, assert_same_tree, big_after

ZERO_BLOCK = "dd if=/dev/zero of=/data/big64 bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null"


def sum_big(docker, name):
    return docker.sh(name, "sha256sum /data/big64").split()[0]


@pytest.fixture(scope="module")
def outcome(docker):
    return Outcome(docker)


@pytest.fixture(scope="module")
def native(docker_native):
    return Outcome(docker_native)


def test_run_shows_the_image_as_it_was_packed(docker, image):
    assert docker("info", "-f", "{{.Driver}}").strip() == "fuse-overlayfs"
    tree, sizes = docker.tree(docker.IMAGE)
    assert image_tree.differences(tree, image[1]) == ""
    assert sizes["links/a"] == sizes["links/b"] == (2, 10)


def test_container_root_is_served_by_the_program(docker):
    docker.start("box")
    docker.assert_served_by_program("box")


def test_first_write_of_a_block_costs_kib(docker, mount_program):
    docker.start("box")
    grown = docker.grow("box", ZERO_BLOCK % 4321 + "; chmod 0601 /data/big8")
    assert grown < mount_program.write_limit(image_tree.BIG + image_tree.MIDDLE)
    assert sum_big(docker, "box") == big_after(4321)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_commit_carries_partly_written_files(docker, is_running):
    docker.start("box")
    docker.sh("box", ZERO_BLOCK % 500)
    if not is_running:
        docker.stop("box")
    image = docker.commit("box", "carried:1")
    docker("rm", "-f", "box")
    docker.start("heir", image=image)
    docker.sh("heir", ZERO_BLOCK % 501)
    assert sum_big(docker, "heir") == big_after(500, 501)
    docker("rm", "-f", "heir")
    docker("rmi", image)


def test_reading_changes_nothing(docker):
    docker.start("box")
    before = docker.diff("box")
    docker.sh("box", "find / -xdev -type f | xargs cat > /dev/null; ls -lR /data /tree > /dev/null")
    assert docker.diff("box") == before


def test_cp_takes_and_brings_files(docker):
    docker.start("box")
    docker.sh("box", ZERO_BLOCK % 300)
    out = os.path.join(docker.base, "big64")
    docker("cp", "box:/data/big64", out)
    digest = subprocess.run(["sha256sum", out], text=True, capture_output=True).stdout.split()[0]
    assert digest == big_after(300)
    docker("cp", out, "box:/vol/copied")
    os.unlink(out)
    assert docker.sh("box", "sha256sum /vol/copied").split()[0] == big_after(300)


def test_rm_removes_the_layer_and_its_mount(docker):
    docker.start("box")
    docker.sh("box", ZERO_BLOCK % 10 + "; rm -r /tree/d3; mkdir /tree/d3")
    upper = docker.upper("box")
    assert os.path.isdir(upper)
    docker("rm", "-f", "box")
    assert not os.path.exists(os.path.dirname(upper))
    assert docker.fuse_mounts() == []


def test_restart_of_the_daemon_keeps_a_stopped_container(docker):
    docker.start("box")
    docker.sh("box", ZERO_BLOCK % 3 + "; echo kept > /vol/kept")
    docker.down()
    docker.up()
    docker("start", "box")
    docker.sh("box", ZERO_BLOCK % 4)
    docker.assert_served_by_program("box")
    assert sum_big(docker, "box") == big_after(3, 4)
    assert docker.sh("box", "cat /vol/kept") == "kept\n"


def test_restart_of_the_daemon_keeps_a_running_container(docker):
    """With live-restore the container goes on while no dockerd is there."""
    docker.down()
    docker.up("--live-restore")
    try:
        docker.start("box")
        docker.sh("box", ZERO_BLOCK % 6)
        pid = docker.inspect("box", "{{.State.Pid}}")
        docker.down()
        assert os.path.exists("/proc/%s/root/bin/busybox" % pid)
        docker.up("--live-restore")
        assert docker.inspect("box", "{{.State.Pid}}") == pid
        docker.sh("box", ZERO_BLOCK % 7)
        assert sum_big(docker, "box") == big_after(6, 7)
        docker("rm", "-f", "box")
    finally:
        docker.down()
        docker.up()


def test_life_of_a_container_diff_lists_it(outcome, mount_program, image):
    expected = image_tree.naive_diff(image[1], outcome.exported)
    with mount_program.reference_may_fail("1.10 resurrects files of replaced directories"):
        assert outcome.diff_running == expected
        assert outcome.diff_stopped == expected
    assert outcome.diff_of_fresh == set()


def test_life_of_a_container_export_equals_native(outcome, native):
    assert_same_tree(outcome.exported, native.exported)
    assert outcome.hard_links == native.hard_links
    assert outcome.attrs == native.attrs


def test_life_of_a_container_commit_equals_native(outcome, native, mount_program):
    with mount_program.reference_may_fail("1.10 resurrects files of replaced directories"):
        assert_same_tree(outcome.committed, native.committed)
        assert outcome.sizes == native.sizes
