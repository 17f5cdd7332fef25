# SPDX-License-Identifier: Apache-2.0
"""One life of a container, run on two drivers; what both say of it must be the same."""
import hashlib

import image_tree

# Each line is a way of changing a tree that drivers record differently.
CHANGES = """
dd if=/dev/zero of=/data/big64 bs=4096 seek=1000 count=1 conv=notrunc
echo appended >> /data/big8
chmod 0600 /data/setuid; chmod 4711 /data/setuid
chown 7:8 /data/owned
rm /data/empty /data/symlink
rm -r /tree/d1; mkdir /tree/d1; echo new > /tree/d1/new
rm -r /tree/d2
mv /tree/d3/f150 /tree/d4/moved
mv /tree/d5/f250 /tree/d5/f251
cp -r /tree/d6 /tree/copy; mv /tree/copy /tree/renamed
ln /tree/d7/f350 /tree/d7/link
ln -s /data/big8 /tree/d8/symlink
rm /tree/d9/f450; mkdir /tree/d9/f450
echo short > /tree/d8/f400
echo two > /vol/file; mkdir -m 1777 /vol/sticky
"""

# Engines that compare trees by walking them do not compare link counts, so the layer they commit
# holds the new name alone, whatever the file system shows.
NEWLY_LINKED = ("tree/d7/f350", "tree/d7/link")


def _of_image(lines):
    """A diff without what the engine itself puts into a container."""
    return {line for line in lines if image_tree.interesting({line.split("/", 1)[1]: 0})}


class Outcome:
    """What an engine reports after CHANGES: diff, export, and the tree of the committed image."""

    def __init__(self, engine):
        name = engine.start("scenario")
        engine.sh(name, CHANGES)
        self.diff_running = _of_image(engine.diff(name))
        engine.stop(name)
        self.diff_stopped = _of_image(engine.diff(name))
        entries, self.attrs, self.hard_links = engine.export(name)
        self.exported = image_tree.interesting(entries)
        image = engine.commit(name, "committed:1")
        engine("rm", "-f", name)
        self.committed, sizes = engine.tree(image)
        self.sizes = {name: value for name, value in image_tree.interesting(sizes).items()
                      if name not in NEWLY_LINKED}
        again = engine.start("scenario-again", image=image)
        self.diff_of_fresh = _of_image(engine.diff(again))
        engine("rm", "-f", again)
        engine("rmi", image)


def assert_same_tree(ours, theirs):
    difference = image_tree.differences(ours, theirs)
    assert not difference, "ours (first) and the native driver's (second):\n" + difference


def big_after(*blocks, size=4096):
    """Digest of /data/big64 once these blocks were overwritten with zeros."""
    data = bytearray(image_tree.big_content())
    for block in blocks:
        data[block * size:(block + 1) * size] = bytes(size)
    return hashlib.sha256(data).hexdigest()
