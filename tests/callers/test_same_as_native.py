# SPDX-License-Identifier: Apache-2.0
"""Whatever engines do with images and containers comes out as on the kernel's overlayfs: names,
types, modes, owners, sizes, content, times, hard links, and what `diff` lists."""
import concurrent.futures
import os

import pytest

import image_tree
from life import BuildahLife, ContainerLife, PodmanLife, load_again, tree_of
from mount_program import SMALL_GROWTH

KINDS = {
    "podman-root": (PodmanLife, "podman_root", "native_root"),
    "podman-rootless": (PodmanLife, "podman_rootless", "native_rootless"),
    "buildah-root": (BuildahLife, "podman_root", "native_root"),
    "buildah-rootless": (BuildahLife, "podman_rootless", "native_rootless"),
    "docker": (ContainerLife, "docker", "docker_native"),
}
KEPT = 8000
CHANGES_OF_IMAGE = "echo more >> /data/big64; chown -R 3:4 /tree; rm -r /tree/d2"


def pytest_generate_tests(metafunc):
    if metafunc.function is test_step_gives_the_same:
        pairs = [(kind, step) for kind, (life, _, _) in KINDS.items() for step in life.STEPS
                 if step != "sizes"]
        metafunc.parametrize("kind,step", pairs, ids=["%s-%s" % pair for pair in pairs])


@pytest.fixture(scope="module")
def lives_of(request):
    """lives_of(kind): both lives, led at once when first asked for."""
    led = {}

    def get(kind):
        if kind not in led:
            life, *names = KINDS[kind]
            both = [life(request.getfixturevalue(name)) for name in names]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                led[kind] = list(pool.map(lambda one: one.lead(), both))
        return led[kind]
    return get


def printed(lives, step):
    return "".join("\n--- %s:\n%s" % (who, life.printed[step][-KEPT:])
                   for who, life in zip(("ours", "native"), lives))


def test_step_gives_the_same(lives_of, kind, step, mount_program):
    ours, native = lives = lives_of(kind)
    theirs = native.seen[step]
    assert "raised" not in theirs, theirs["raised"] + printed(lives, step)
    difference = image_tree.differences(ours.seen[step], theirs)
    with mount_program.reference_may_fail("1.10 resurrects files of replaced directories"):
        assert not difference, "ours (first) and the native driver's (second):\n%s%s" % (
            difference, printed(lives, step))


@pytest.mark.parametrize("kind", ["podman-root", "podman-rootless", "docker"])
def test_sizes_are_those_of_whole_files(lives_of, kind):
    """Engines add up sizes, not blocks: a partial file counts as the whole it stands for. What is
    small may differ: our map, and the files of directories that were moved and not copied."""
    ours, native = (life.seen["sizes"] for life in lives_of(kind))
    assert "raised" not in ours and "raised" not in native, printed(lives_of(kind), "sizes")
    assert native["written"] > image_tree.BIG + image_tree.MIDDLE
    assert abs(ours["written"] - native["written"]) < SMALL_GROWTH
    assert abs(ours["whole"] - native["whole"]) < SMALL_GROWTH
    for key in ("listed", "total"):
        assert ours[key].endswith("MB") and native[key].endswith("MB")
        assert abs(float(ours[key][:-2]) - float(native[key][:-2])) < 1, key


@pytest.mark.parametrize("kind", ["podman-root", "podman-rootless", "docker"])
def test_diff_lists_what_a_walk_over_both_trees_finds(lives_of, kind, mount_program):
    """Against the trees themselves: the native driver might be as wrong as ours."""
    ours = lives_of(kind)[0]
    plain = [{name: value for name, value in tree.items() if isinstance(value, tuple)}
             for tree in (ours.before, ours.exported)]
    wanted = {line: "listed" for line in image_tree.naive_diff(*plain)}
    with mount_program.reference_may_fail("1.10 resurrects files of replaced directories"):
        assert image_tree.differences(ours.seen["diff_stopped"], wanted) == ""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["docker-archive", "oci-archive"])
def test_save_and_load_give_the_image_back(podman, form):
    podman.start("box")
    podman.sh("box", CHANGES_OF_IMAGE)
    image = podman.commit("box", "saved:1")
    podman.rm("box")
    before = tree_of(podman, image)
    archive = os.path.join(podman.base, "tmp", "saved.tar")
    assert image_tree.differences(load_again(podman, image, archive, form), before) == ""
    podman("rmi", image)
