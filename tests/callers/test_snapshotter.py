# SPDX-License-Identifier: Apache-2.0
"""containerd's fuse-overlayfs snapshotter, which finds the program by its name in PATH."""
import hashlib
import io
import os
import tarfile

import pytest

import engine
import image_tree
from ctr import PAGE, Ctr
from guest import Guest

IMAGE = "docker.io/library/veneer-test:1"
BIG = 4 << 20
# Of Go, where it is too old, or finds no module proxy.
CANNOT_BUILD = "invalid go version", "requires go >=", "dial tcp", "no such host", "i/o timeout"
SECOND_LAYER = {"tree/.wh.d1": b"", "tree/d2/.wh..wh..opq": b"", "tree/d2/new": b"new\n", "vol/added": b"added\n"}
OLD = "/usr/bin/fuse-overlayfs"
CHANGES = """
dd if=/dev/zero of=/data/big64 bs=4096 seek=7 count=1 conv=notrunc 2>/dev/null
mv /tree/d4 /vol/d4; rm -r /tree/d5; mkdir /tree/d5; echo more >> /links/a; chmod 0604 /data/big8
"""


@pytest.fixture(scope="module")
def ctr(base, mount_program, namespace):
    if not mount_program.is_veneer:
        pytest.skip("the page that is followed is about veneer")
    if name := engine.missing("containerd", "ctr", "runc", "mount.fuse3"):
        pytest.skip("%s is not installed" % name)
    if not engine.go_path():
        pytest.skip("the snapshotter is built with Go, which is not installed")
    guest = Guest(os.path.join(base, "containerd"), mount_program.bin)
    try:
        one = set_up(guest, os.path.join(guest.base, "ctr"))
        one.import_image(IMAGE, layers(guest.base))
        yield one
    finally:
        guest.close()


def set_up(guest, directory):
    try:
        return Ctr(guest, directory)
    except engine.EngineError as e:
        if any(text in str(e) for text in CANNOT_BUILD):
            pytest.skip("the snapshotter cannot be built here: " + str(e).strip().splitlines()[-1])
        raise


@pytest.fixture
def guest(ctr):
    """What a failed test shows; each ends without containers."""
    yield ctr.guest
    for name in ctr("containers", "ls", "-q").split():
        ctr.rm(name)
    assert ctr.mounts() == "0"


def layers(directory):
    path = os.path.join(directory, "layer.tar")
    image_tree.write_image(path, image_tree.big_content()[:BIG])
    with open(path, "rb") as f:
        first = f.read()
    second = io.BytesIO()
    with tarfile.open(fileobj=second, mode="w") as tar:
        for name, data in SECOND_LAYER.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), image_tree.MTIME
            tar.addfile(info, io.BytesIO(data))
    return [first, second.getvalue()]


def big_after(*blocks):
    data = bytearray(image_tree.big_content()[:BIG])
    for block in blocks:
        data[block * 4096:(block + 1) * 4096] = bytes(4096)
    return hashlib.sha256(data).hexdigest()


def zero(block):
    return "dd if=/dev/zero of=/data/big64 bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null\n" % block


def sum_big(ctr, name):
    return ctr.sh(name, "sha256sum /data/big64").split()[0]


def test_layers_are_unpacked_and_served(ctr, guest):
    ctr.start("box", IMAGE)
    tree = ctr.tree("box")
    assert "tree/d1" not in tree and tree["vol/added"][0] == "file"
    assert {n for n in tree if n.startswith("tree/d2/")} == {"tree/d2/new"}
    assert " fuse.fuse-overlayfs " in ctr.sh("box", "grep ' / / ' /proc/self/mountinfo")


def test_first_change_of_a_large_file_costs_kib(ctr, guest, mount_program):
    ctr.start("box", IMAGE)
    upper = ctr.upper("box")
    before = image_tree.allocated(upper)
    ctr.sh("box", zero(5) + "sync")
    assert image_tree.allocated(upper) - before < mount_program.write_limit(BIG)
    assert sum_big(ctr, "box") == big_after(5)
    usage = ctr.snapshots("usage", "-b", "box").split()
    assert int(usage[-2]) < mount_program.write_limit(BIG) + 65536


def test_diff_of_a_running_container_carries_whole_files(ctr, guest):
    ctr.start("box", IMAGE)
    ctr.sh("box", zero(6) + "rm -r /tree/d3; mkdir /tree/d3; echo x >/tree/d3/x; chmod 0604 /data/big8")
    changed = ctr.diff("box")
    assert changed["data/big64"][4] == big_after(6)
    assert oct(changed["data/big8"][1]) == "0o604"
    assert not any("veneer" in name for name in changed)
    assert sum_big(ctr, "box") == big_after(6)


def test_committed_snapshot_is_a_layer_of_others(ctr, guest):
    ctr.start("box", IMAGE)
    ctr.sh("box", zero(7) + "mv /tree/d4 /vol/d4")
    ctr.stop("box")
    ctr.snapshots("commit", "committed", "box")
    ctr("containers", "rm", "box")
    ctr.snapshots("prepare", "child", "committed")
    ctr.in_snapshot("child", zero(8) + "mv /vol/d4 /vol/d5")
    ctr.snapshots("prepare", "second", "committed")
    try:
        assert ctr.in_snapshot("child", "sha256sum </data/big64; ls /vol").split() == \
            [big_after(7, 8), "-", "added", "d5"]
        assert ctr.in_snapshot("second", "sha256sum </data/big64; ls /vol").split() == \
            [big_after(7), "-", "added", "d4"]
        assert ctr.diff("child")["data/big64"][4] == big_after(7, 8)
    finally:
        for name in ("child", "second", "committed"):
            ctr.snapshots("rm", name)


def test_checkpoint_carries_whole_files(ctr, guest):
    """Of the layer: to freeze processes takes CRIU, and restoring takes that."""
    ctr.start("box", IMAGE)
    ctr.sh("box", zero(9) + "echo kept >/vol/kept")
    ctr("containers", "checkpoint", "--rw", "box", "checkpoints/box:1")
    changed = ctr.layer_of("checkpoints/box:1")
    ctr("images", "rm", "checkpoints/box:1")
    assert changed["vol/kept"][0] == "file"
    assert changed["data/big64"][4] == big_after(9)


@pytest.mark.parametrize("how", ["TERM", "KILL"])
def test_containers_outlive_containerd(ctr, guest, how):
    """The snapshotter goes as well, and comes again."""
    ctr.start("box", IMAGE)
    ctr.sh("box", zero(10))
    guest.sh("kill -{} $(cat /run/containerd.pid.own) $(cat /run/containerd-fuse-overlayfs.pid.own)".format(how))
    guest.sh("systemctl stop containerd; systemctl stop containerd-fuse-overlayfs; "
             "systemctl start containerd-fuse-overlayfs; systemctl start containerd")
    ctr.sh("box", zero(11) + "echo on >/vol/on")
    assert sum_big(ctr, "box") == big_after(10, 11)
    ctr.stop("box")
    ctr.start_again("box")
    assert ctr.sh("box", "cat /vol/on") == "on\n"
    assert sum_big(ctr, "box") == big_after(10, 11)


def test_leaving_keeps_images_and_containers(ctr, guest):
    if not os.path.exists(OLD):
        pytest.skip("there is no fuse-overlayfs to go back to")
    ctr.start("box", IMAGE)
    ctr.sh("box", CHANGES)
    ctr.stop("box")
    ctr.snapshots("commit", "committed", "box")
    ctr.snapshots("prepare", "box", "committed")
    ctr.start_again("box")
    ctr.sh("box", zero(12) + "mv /vol/d4 /vol/d5")
    ctr.start("fresh", IMAGE)
    trees = [ctr.tree(name) for name in ("box", "fresh")]
    for name in ("box", "fresh"):
        ctr.stop(name)
    assert len(ctr.maps()) == 2
    try:
        assert " snapshots are plain files\n" in guest.follow(PAGE, "Leaving again")
        assert ctr.maps() == []
        for name, tree in zip(("box", "fresh"), trees):
            ctr.start_again(name)
            assert image_tree.differences(ctr.tree(name), tree) == ""
        assert ctr.servers() == {"fuse-overlayfs"}
        ctr.sh("box", zero(13))
        assert sum_big(ctr, "box") == big_after(7, 12, 13)
    finally:
        for name in ("box", "fresh"):
            ctr.rm(name)
        ctr.snapshots("rm", "committed")
        guest.sh("ln -sf veneer /usr/local/bin/fuse-overlayfs")


def test_page_shows_that_it_is_used(ctr, guest):
    def follow():
        guest.sh("ctr containers rm box || :; ctr snapshots --snapshotter fuse-overlayfs rm box || :")
        return guest.follow(PAGE, "See that it is used")
    # ctr may lose the output of grep, see Ctr.sh.
    shown = (ctr.steadily("box", follow) for _ in range(5))
    assert any(" fuse.fuse-overlayfs " in text for text in shown)
    assert ctr("containers", "ls", "-q") == ""
