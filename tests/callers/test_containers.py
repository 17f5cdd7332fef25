# SPDX-License-Identifier: Apache-2.0
"""Containers of any engine: served by the program under test, cheap where only blocks change."""
import os

import image_tree
from life import big_after, sum_big, zero_block


def test_run_shows_the_image_as_it_was_packed(box_engine, image):
    tree, sizes = box_engine.tree(box_engine.IMAGE)
    assert image_tree.differences(tree, image[1]) == ""
    assert sizes["links/a"] == sizes["links/b"] == (2, 10)


def test_first_change_of_a_large_file_costs_kib(box_engine, mount_program):
    box_engine.start("box")
    box_engine.assert_served_by_program("box")
    grown = box_engine.grow("box", zero_block(4321) + "; chmod 0601 /data/big8; touch /data/big8")
    assert grown < mount_program.write_limit(image_tree.BIG + image_tree.MIDDLE)
    assert sum_big(box_engine, "box") == big_after(4321)
    assert box_engine.sh("box", "stat -c '%a %u %g' /data/big8") == "601 12 34\n"


def test_commit_of_a_running_container_carries_partly_written_files(box_engine):
    box_engine.start("box")
    box_engine.sh("box", zero_block(500) + "; chmod 0604 /data/big8")
    image = box_engine.commit("box", "carried:1")
    box_engine.rm("box")
    # A second generation writes into the layer the first one became.
    box_engine.start("child", image=image)
    box_engine.sh("child", zero_block(501))
    assert sum_big(box_engine, "child") == big_after(500, 501)
    box_engine.rm("child")
    box_engine("rmi", image)


def test_commit_never_mixes_the_names_of_a_linked_file(box_engine, mount_program):
    """Either both names changed or the link was broken; never a mix of old and new bytes."""
    box_engine.start("box")
    box_engine.sh("box", "echo more >> /links/a")
    image = box_engine.commit("box", "links:1")
    box_engine.rm("box")
    seen = box_engine.run_sh("cat /links/a; echo =; cat /links/b", image=image).split("=\n")
    box_engine("rmi", "-f", image)
    with mount_program.reference_may_fail("1.x mixes the names of a linked file after a remount"):
        assert seen[0] == "two names\nmore\n"
    assert seen[1] in ("two names\n", "two names\nmore\n")


def test_build_moves_a_lower_directory_without_copying_it(box_engine, new_context):
    """mv copies where rename is EXDEV; the file in it is then another one."""
    steps = "RUN was=$(stat -c %i /tree/d2/f100) && mv /tree/d2 /vol/d2 && " \
            "[ $(stat -c %i /vol/d2/f100) = $was ]\n" \
            "RUN mv /vol/d2 /tree/back && echo more >> /tree/back/f101\n"
    image = box_engine.build("moved:1", new_context(box_engine, steps))
    tree, _ = box_engine.tree(image)
    box_engine("rmi", image)
    plain, _ = box_engine.tree(box_engine.IMAGE)
    for name in [name for name in plain if name.startswith("tree/d2")]:
        plain["tree/back" + name[len("tree/d2"):]] = plain.pop(name)
    changed = ("tree", "vol", "tree/back/f101")
    assert image_tree.differences(*({n: v for n, v in one.items() if n not in changed}
                                    for one in (tree, plain))) == ""


def test_build_changes_all_names_of_a_lower_hard_link(box_engine, new_context):
    steps = "RUN echo more >> /links/a && tail -n 1 /links/b | grep more && " \
            "[ $(stat -c %h /links/a) = 2 ]\n" \
            "RUN chmod 0640 /links/b && [ $(stat -c %a /links/a) = 640 ]\n"
    image = box_engine.build("linked:1", new_context(box_engine, steps))
    tree, sizes = box_engine.tree(image)
    box_engine("rmi", image)
    assert tree["links/a"] == tree["links/b"]
    assert sizes["links/a"] == sizes["links/b"] == (2, 15)
    assert oct(tree["links/a"][1]) == "0o640"


def test_reading_changes_nothing(box_engine):
    box_engine.start("box")
    before = box_engine.diff("box")
    box_engine.sh("box", "find / -xdev -type f | xargs cat > /dev/null")
    box_engine.sh("box", "ls -lR /data /tree > /dev/null")
    assert box_engine.diff("box") == before


def test_rm_removes_the_layer_and_its_mount(box_engine):
    box_engine.start("box")
    box_engine.sh("box", zero_block(10) + "; rm -r /tree/d3; mkdir /tree/d3")
    upper = box_engine.upper("box")
    assert os.path.isdir(upper)
    box_engine.rm("box")
    assert not os.path.exists(os.path.dirname(upper))
    assert box_engine.fuse_mounts() == []
