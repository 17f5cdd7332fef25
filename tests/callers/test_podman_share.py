# SPDX-License-Identifier: Apache-2.0
"""Podman with mountopt = "share=pages": containers of one image are in one file system, and not told from others."""
import pytest

from life import big_after, lines_of_image, sum_big, zero_block

MODES = "stat -c '%a %u %g' /data/big8"


def _device(engine, name):
    return engine.root_mount(name)[1]


def _start(engine, *names):
    for name in names:
        engine.start(name)
        engine.assert_served_by_program(name)


def test_two_containers_of_one_image_are_one_file_system_and_apart(sharing):
    _start(sharing, "a", "b")
    assert _device(sharing, "a") == _device(sharing, "b")
    sharing.sh("a", zero_block(4321) + "; chmod 0601 /data/big8; rm -r /tree/d2; echo new > /data/new")
    assert (sum_big(sharing, "a"), sum_big(sharing, "b")) == (big_after(4321), big_after())
    assert sharing.sh("a", MODES) == "601 12 34\n"
    assert sharing.sh("b", MODES + "; ls /tree/d2 | wc -l; test ! -e /data/new") == "640 12 34\n50\n"
    assert lines_of_image(sharing.diff("b")) == {}
    image = sharing.commit("a", "shared:1")
    sharing.rm("a")
    assert len(sharing.fuse_mounts()) == 1
    sharing.sh("b", zero_block(7))
    assert sum_big(sharing, "b") == big_after(7)
    sharing.start("c", image=image)
    assert sum_big(sharing, "c") == big_after(4321)
    assert _device(sharing, "c") != _device(sharing, "b")
    sharing.rm("c")
    sharing("rmi", image)


@pytest.mark.slow
def test_four_kib_written_by_one_cost_kib(sharing, mount_program):
    _start(sharing, "a", "b")
    assert sum_big(sharing, "b") == big_after()
    assert sharing.grow("a", zero_block(77)) < mount_program.write_limit(0)
    assert (sum_big(sharing, "a"), sum_big(sharing, "b")) == (big_after(77), big_after())


@pytest.mark.slow
def test_one_goes_and_the_other_stays(sharing):
    _start(sharing, "a", "b")
    sharing.sh("a", zero_block(1))
    sharing.sh("b", zero_block(2))
    sharing.rm("a")
    assert len(sharing.fuse_mounts()) == 1
    assert sum_big(sharing, "b") == big_after(2)
    sharing.sh("b", zero_block(3) + "; echo x >> /tree/d0/f1")
    assert sum_big(sharing, "b") == big_after(2, 3)
    assert sharing.sh("b", "cat /tree/d0/f1") == "file 1\nx\n"
    _start(sharing, "a")
    assert _device(sharing, "a") == _device(sharing, "b")
    assert sum_big(sharing, "a") == big_after()


@pytest.mark.slow
def test_stopped_and_started_beside_another(sharing):
    _start(sharing, "a", "b")
    for n in range(3):
        sharing.sh("a", zero_block(n))
        sharing.stop("a")
        sharing("start", "a")
    assert sum_big(sharing, "a") == big_after(0, 1, 2)
    assert sum_big(sharing, "b") == big_after()


@pytest.mark.slow
def test_commit_carries_what_one_has_written_and_the_next_shares_it(sharing):
    _start(sharing, "a", "b")
    sharing.sh("a", zero_block(500) + "; chmod 0604 /data/big8")
    sharing.sh("b", zero_block(900))
    image = sharing.commit("a", "shared:1")
    sharing.rm("a")
    for name in ("c", "d"):
        sharing.start(name, image=image)
    assert _device(sharing, "c") == _device(sharing, "d") != _device(sharing, "b")
    sharing.sh("c", zero_block(501))
    assert (sum_big(sharing, "c"), sum_big(sharing, "d")) == (big_after(500, 501), big_after(500))
    assert sharing.sh("d", MODES) == "604 12 34\n"
    assert sum_big(sharing, "b") == big_after(900)
    for name in ("c", "d"):
        sharing.rm(name)
    sharing("rmi", image)


@pytest.mark.slow
def test_killed_containers_leave_no_mount(sharing):
    _start(sharing, "a", "b")
    sharing.sh("a", zero_block(5))
    sharing("kill", "a")
    sharing("wait", "a")
    assert sum_big(sharing, "b") == big_after()
    sharing("start", "a")
    assert sum_big(sharing, "a") == big_after(5)


@pytest.mark.slow
def test_what_one_container_runs_the_other_runs_and_replaces(sharing):
    """Both run one file of the image; a container that replaces its own changes nothing for the other."""
    _start(sharing, "a", "b")
    sharing.sh("a", "cp /bin/busybox /bin/new; mv /bin/new /bin/busybox; echo fine")
    assert sharing.sh("b", "ls -l /bin/busybox | wc -l") == "1\n"
    assert lines_of_image(sharing.diff("b")) == {}
