# SPDX-License-Identifier: Apache-2.0
"""Docker's fuse-overlayfs graph driver, which finds the program by its name in PATH."""
import os
import signal

import pytest

from life import big_after, sum_big, zero_block
from support.waiting import wait_until

RESTART_S = 60


@pytest.fixture
def dockerd(docker):
    """As `docker`, for tests that stop it: another one starts it again."""
    yield docker
    if docker.daemon.poll() is not None:
        docker.up()
    docker.remove_all()
    assert docker.fuse_mounts() == []


def wait_until_running(docker, name):
    assert wait_until(lambda: docker.inspect(name, "{{.State.Running}}") == "true", RESTART_S, 0.1), \
        "%s was not started again: %s\n%s" % (name, docker.inspect(name, "{{json .State}}"), docker.log_tail())


def test_driver_is_the_one_of_our_name(docker):
    assert docker("info", "-f", "{{.Driver}}").strip() == "fuse-overlayfs"


def test_restart_of_the_daemon_keeps_a_stopped_container(dockerd):
    dockerd.start("box")
    dockerd.sh("box", zero_block(3) + "; echo kept > /vol/kept")
    dockerd.down()
    dockerd.up()
    assert dockerd.inspect("box", "{{.State.Running}}") == "false"
    dockerd("start", "box")
    dockerd.sh("box", zero_block(4))
    dockerd.assert_served_by_program("box")
    assert sum_big(dockerd, "box") == big_after(3, 4)
    assert dockerd.sh("box", "cat /vol/kept") == "kept\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
def test_restart_policy_starts_a_running_container_again(dockerd, how):
    """A killed daemon leaves container and mount as they are; the next one takes them down."""
    dockerd.start("box", "--restart=always")
    dockerd.sh("box", zero_block(3) + "; echo kept > /vol/kept; mv /tree/d3/f150 /vol")
    dockerd.sh("box", "rm -r /tree/d2")
    dockerd.down(how)
    dockerd.up()
    wait_until_running(dockerd, "box")
    dockerd.assert_served_by_program("box")
    dockerd.sh("box", zero_block(4))
    assert sum_big(dockerd, "box") == big_after(3, 4)
    assert dockerd.sh("box", "cat /vol/kept; ls /vol /tree") == \
        "kept\n/tree:\nd0\nd1\nd3\nd4\nd5\nd6\nd7\nd8\nd9\n\n/vol:\nf150\nkept\n"


def test_live_restore_keeps_a_running_container(dockerd):
    """The container goes on while no dockerd is there."""
    dockerd.down()
    dockerd.up("--live-restore")
    try:
        dockerd.start("box")
        dockerd.sh("box", zero_block(6))
        pid = dockerd.inspect("box", "{{.State.Pid}}")
        dockerd.down()
        assert os.path.exists("/proc/%s/root/bin/busybox" % pid)
        dockerd.up("--live-restore")
        assert dockerd.inspect("box", "{{.State.Pid}}") == pid
        dockerd.sh("box", zero_block(7))
        assert sum_big(dockerd, "box") == big_after(6, 7)
        dockerd.rm("box")
    finally:
        dockerd.down()
        dockerd.up()
