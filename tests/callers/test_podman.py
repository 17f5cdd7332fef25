# SPDX-License-Identifier: Apache-2.0
"""Podman, as root and rootless, with the program under test as its mount_program."""
import os
import subprocess

import pytest

import image_tree
from mount_program import mount_of
from scenario import Outcome, assert_same_tree, big_after

ZERO_BLOCK = "dd if=/dev/zero of=/data/big64 bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null"
SUM_BIG = "sha256sum /data/big64"


def sum_big(engine, name):
    return engine.sh(name, SUM_BIG).split()[0]


@pytest.fixture(scope="module")
def outcome(podman_root):
    return Outcome(podman_root)


@pytest.fixture(scope="module")
def native(podman_native):
    return Outcome(podman_native)


def test_run_shows_the_image_as_it_was_packed(podman, image):
    tree, sizes = podman.tree(podman.IMAGE)
    assert image_tree.differences(tree, image[1]) == ""
    assert sizes["links/a"] == sizes["links/b"] == (2, 10)


def test_container_root_is_served_by_the_program(podman):
    podman.start("box")
    podman.assert_served_by_program("box")


def test_first_write_of_a_block_costs_kib(podman, mount_program):
    podman.start("box")
    grown = podman.grow("box", ZERO_BLOCK % 4321)
    assert grown < mount_program.write_limit(image_tree.BIG)
    assert sum_big(podman, "box") == big_after(4321)


def test_metadata_of_a_large_file_costs_kib(podman, mount_program):
    podman.start("box")
    grown = podman.grow("box", "chmod 0601 /data/big64; chown 3:4 /data/big8; touch /data/big8")
    assert grown < mount_program.write_limit(image_tree.BIG + image_tree.MIDDLE)
    assert sum_big(podman, "box") == big_after()
    assert podman.sh("box", "stat -c '%a %u %g' /data/big64 /data/big8") == "601 0 0\n640 3 4\n"


def test_stop_and_start_keep_what_was_written(podman):
    podman.start("box")
    podman.sh("box", ZERO_BLOCK % 1 + "; " + ZERO_BLOCK % 16383 + "; echo x >> /tree/d0/f1")
    podman.stop("box")
    podman("start", "box")
    podman.assert_served_by_program("box")
    podman.sh("box", ZERO_BLOCK % 77)
    assert sum_big(podman, "box") == big_after(1, 77, 16383)
    assert podman.sh("box", "cat /tree/d0/f1") == "file 1\nx\n"


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_commit_carries_partly_written_files(podman, is_running):
    podman.start("box")
    podman.sh("box", ZERO_BLOCK % 500 + "; chmod 0604 /data/big8")
    if not is_running:
        podman.stop("box")
    image = podman.commit("box", "carried:1")
    podman("rm", "-f", "-t", "0", "box")
    assert podman.run_sh(SUM_BIG, image=image).split()[0] == big_after(500)
    # A second generation writes into the layer the first one became.
    podman.start("heir", image=image)
    podman.sh("heir", ZERO_BLOCK % 501)
    assert sum_big(podman, "heir") == big_after(500, 501)
    podman("rm", "-f", "-t", "0", "heir")
    podman("rmi", image)


def test_commit_keeps_hard_links_whole(podman, mount_program):
    """Either both names changed or the link was broken; never a mix of old and new bytes."""
    podman.start("box")
    podman.sh("box", "echo more >> /links/a")
    image = podman.commit("box", "links:1")
    seen = podman.run_sh("cat /links/a; echo =; cat /links/b", image=image).split("=\n")
    podman("rmi", "-f", image)
    with mount_program.reference_may_fail("1.x mixes the names of a linked file after a remount"):
        assert seen[0] == "two names\nmore\n"
    assert seen[1] in ("two names\n", "two names\nmore\n")


def test_diff_lists_the_changes_and_nothing_else(podman):
    podman.start("box")
    before = podman.diff("box")
    podman.sh("box", ZERO_BLOCK % 9 + "; rm /data/empty; echo > /tree/d0/new")
    podman.sh("box", "chmod 0640 /tree/d1/f50")
    changes = {"C /data", "C /data/big64", "D /data/empty", "C /tree", "C /tree/d0",
               "A /tree/d0/new", "C /tree/d1", "C /tree/d1/f50"}
    found = podman.diff("box") - before
    podman.stop("box")
    assert found == changes
    assert podman.diff("box") - before == found


def test_reading_changes_nothing(podman):
    podman.start("box")
    before = podman.diff("box")
    podman.sh("box", "find / -xdev -type f | xargs cat > /dev/null; ls -lR /data /tree > /dev/null")
    assert podman.diff("box") == before


def test_cp_takes_and_brings_files(podman, base):
    podman.start("box")
    podman.sh("box", ZERO_BLOCK % 300)
    out = os.path.join(podman.base, "tmp", "big64")
    podman("cp", "box:/data/big64", out)
    digest = subprocess.run(["sha256sum", out], text=True, capture_output=True).stdout.split()[0]
    assert digest == big_after(300)
    podman("cp", out, "box:/vol/copied")
    podman("cp", "box:/tree/d4", os.path.join(podman.base, "tmp", "d4"))
    assert podman.sh("box", "sha256sum /vol/copied").split()[0] == big_after(300)
    assert len(os.listdir(os.path.join(podman.base, "tmp", "d4"))) == 50
    os.unlink(out)


def test_export_equals_the_image_but_for_the_changes(podman, mount_program, image):
    podman.start("box")
    podman.sh("box", ZERO_BLOCK % 8000)
    entries, attrs, links = podman.export("box")
    kind, mode, owner, _, _ = image[1]["data/big64"]
    expected = dict(image[1])
    expected["data/big64"] = (kind, mode, owner, False, big_after(8000))
    if not mount_program.is_veneer:  # 1.x changes the time of the directory a file is copied to
        expected["data"] = entries["data"]
    assert image_tree.differences(image_tree.interesting(entries), expected) == ""
    assert frozenset(("links/a", "links/b")) in links
    assert attrs.get("data/labelled") == {"user.label": "kept"}
    assert not [name for name in attrs if name != "data/labelled"], attrs


def test_rm_removes_the_layer_and_its_mount(podman):
    podman.start("box")
    podman.sh("box", ZERO_BLOCK % 10 + "; rm -r /tree/d3; mkdir /tree/d3")
    upper = podman.upper("box")
    assert os.path.isdir(upper)
    podman("rm", "-f", "-t", "0", "box")
    assert not os.path.exists(os.path.dirname(upper))
    assert podman.fuse_mounts() == []


def test_containers_of_one_image_are_apart(podman):
    names = ["c%d" % i for i in range(3)]
    for i, name in enumerate(names):
        podman.start(name)
        podman.sh(name, ZERO_BLOCK % (100 + i) + "; echo %d > /data/who" % i)
    for i, name in enumerate(names):
        assert sum_big(podman, name) == big_after(100 + i)
        assert podman.sh(name, "cat /data/who") == "%d\n" % i


def test_overlay_volume_leaves_its_source_alone(podman):
    source = os.path.join(podman.base, "tmp", "source")
    os.mkdir(source)
    with open(os.path.join(source, "file"), "wb") as f:
        f.write(b"below\n" * 100000)
    if podman.user:
        for path in (source, os.path.join(source, "file")):
            os.chown(path, podman.user.pw_uid, podman.user.pw_gid)
    podman.start("box", "-v", source + ":/vol:O")
    podman.sh("box", "echo changed >> /vol/file; echo new > /vol/new; mkdir /vol/dir")
    assert podman.sh("box", "tail -n 1 /vol/file; cat /vol/new") == "changed\nnew\n"
    with open("/proc/%s/mountinfo" % podman.inspect("box", "{{.State.Pid}}")) as f:
        fstype, minor = mount_of(f.read(), "/vol")
    assert fstype == "fuse.fuse-overlayfs"
    podman.program.assert_serves(minor)
    assert os.listdir(source) == ["file"]
    assert os.path.getsize(os.path.join(source, "file")) == 600000


def test_image_mount_shows_the_image(podman):
    script = 'm=$(podman image mount {0}); cat /proc/self/mountinfo; echo "=$m"; ' \
             'sha256sum "$m/data/big64"; ls "$m/tree" | wc -l; podman image umount {0}' \
             .format(podman.IMAGE)
    if podman.user:
        text = podman("unshare", "sh", "-ec", script)
    else:
        text = podman.shell(script)
    info, _, rest = text.partition("\n=")
    point, digest, count = rest.splitlines()[:3]
    fstype, _ = mount_of(info, point)
    assert fstype == "fuse.fuse-overlayfs"
    assert digest.split()[0] == big_after()
    assert count.strip() == "10"


# Only rootless: as root Podman 4.3 maps such a layer twice, by an idmapped mount and by options.
@pytest.mark.parametrize("podman", ["rootless"], indirect=True)
def test_keep_id_maps_owners(podman):
    script = "id -u; echo mine > /tmp/mine; stat -c '%u %g' /tmp/mine /data/owned /data/big8"
    uid, gid = podman.user.pw_uid, podman.user.pw_gid
    text = podman.run_sh(script, "--userns=keep-id")
    assert text == "%d\n%d %d\n1000 1000\n12 34\n" % (uid, uid, gid)
    script = ZERO_BLOCK % 5 + "; " + SUM_BIG + "; stat -c '%u' /data/big64"
    text = podman.run_sh(script, "--userns=keep-id", "--user", "0")
    assert text.split()[0] == big_after(5) and text.split()[-1] == "0"


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
