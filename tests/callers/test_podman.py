# SPDX-License-Identifier: Apache-2.0
"""Uses of the program that only Podman has, as its mount_program, as root and rootless."""
import os

import pytest

from life import big_after, lines_of_image, sum_big, zero_block
from mount_program import mount_of


def test_stop_and_start_keep_what_was_written(podman):
    podman.start("box")
    podman.sh("box", zero_block(1) + "; " + zero_block(16383) + "; echo x >> /tree/d0/f1")
    podman.stop("box")
    podman("start", "box")
    podman.assert_served_by_program("box")
    podman.sh("box", zero_block(77))
    assert sum_big(podman, "box") == big_after(1, 77, 16383)
    assert podman.sh("box", "cat /tree/d0/f1") == "file 1\nx\n"


def test_containers_of_one_image_are_apart(podman):
    names = ["c0", "c1"]
    for i, name in enumerate(names):
        podman.start(name)
        podman.sh(name, zero_block(100 + i) + "; echo %d > /data/who" % i)
    for i, name in enumerate(names):
        assert sum_big(podman, name) == big_after(100 + i)
        assert podman.sh(name, "cat /data/who") == "%d\n" % i


def test_diff_is_of_the_container_where_the_id_of_the_image_begins_so_too(podman):
    """Of the image it lists everything as added: an image of one layer has no parent."""
    name = podman("image", "inspect", "-f", "{{.Id}}", podman.IMAGE).strip()[:12]
    podman.start(name)
    assert lines_of_image(podman.diff(name)) == {}
    podman.sh(name, "echo new > /data/new; rm /data/empty")
    assert lines_of_image(podman.diff(name)) == dict.fromkeys(
        ("C /data", "A /data/new", "D /data/empty"), "listed")


def test_overlay_volume_is_served_and_leaves_its_source_alone(podman):
    source = os.path.join(podman.base, "tmp", "below")
    os.mkdir(source)
    with open(os.path.join(source, "file"), "wb") as f:
        f.write(b"below\n" * 100000)
    for path in (source, os.path.join(source, "file")):
        podman.give(path)
    podman.start("box", "-v", source + ":/vol:O")
    podman.sh("box", "echo changed >> /vol/file; echo new > /vol/new; mkdir /vol/dir")
    assert podman.sh("box", "tail -n 1 /vol/file; cat /vol/new") == "changed\nnew\n"
    with open("/proc/%s/mountinfo" % podman.inspect("box", "{{.State.Pid}}")) as f:
        fstype, minor = mount_of(f.read(), "/vol")
    assert fstype == "fuse.fuse-overlayfs"
    podman.program.assert_serves(minor)
    assert os.listdir(source) == ["file"]
    assert os.path.getsize(os.path.join(source, "file")) == 600000


def test_image_mount_is_served(podman):
    text = podman.shell('m=$(podman image mount {0}); cat /proc/self/mountinfo; echo "=$m"; '
                        'podman image umount {0} >/dev/null'.format(podman.IMAGE))
    info, _, point = text.partition("\n=")
    assert mount_of(info, point.strip())[0] == "fuse.fuse-overlayfs"


@pytest.mark.parametrize("podman", ["podman_rootless"], ids=["rootless"], indirect=True)
def test_keep_id_is_the_user_inside(podman):
    script = "id -u; echo mine > /tmp/mine; stat -c '%u %g' /tmp/mine /data/owned /data/big8"
    uid, gid = podman.user.pw_uid, podman.user.pw_gid
    text = podman.run_sh(script, "--userns=keep-id")
    assert text == "%d\n%d %d\n1000 1000\n12 34\n" % (uid, uid, gid)
