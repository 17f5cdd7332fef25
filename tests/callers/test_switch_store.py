# SPDX-License-Identifier: Apache-2.0
"""A store goes from fuse-overlayfs 1.x to veneer and, made plain, back, as the pages say: every image and every
container keeps all that is in it. Trees are what the engine exports, byte by byte."""
import os

import pytest

import engine
import image_tree
from guest import READER
from support import pages
from support.repository import REPOSITORY

OLD = "/usr/bin/fuse-overlayfs"
BIG = 4 << 20
IMAGE = "localhost/switched:1"

CONTAINERFILE = """FROM {image}
RUN chown -R 7:8 /tree/d5 && mv /tree/d3 /vol/d3 && rm -r /tree/d1
RUN dd if=/dev/zero of=/data/big64 bs=4096 seek=20 count=1 conv=notrunc 2>/dev/null && echo new > /vol/built
"""
# The work of a container under the old program ...
BEFORE = """
dd if=/dev/zero of=/data/big8 bs=4096 seek=40 count=1 conv=notrunc 2>/dev/null
rm -r /tree/d2; mv /tree/d6/f300 /vol/moved; echo more >> /tree/d7/f350; chmod 0600 /data/setuid
ln -s /data/big8 /vol/link; mkdir -p /vol/deep/er; echo old > /vol/deep/er/file; rm /data/empty
"""
# ... what it does under veneer: blocks, redirects, and names of linked files ...
BETWEEN = """
dd if=/dev/zero of=/data/big64 bs=4096 seek=900 count=3 conv=notrunc 2>/dev/null
dd if=/dev/zero of=/data/big64 bs=1000 seek=2777 count=1 conv=notrunc 2>/dev/null
dd if=/dev/zero of=/data/big8 bs=4096 seek=41 count=1 conv=notrunc 2>/dev/null
chmod 0604 /data/big8; touch -d @1500000000 /data/big8
mv /tree/d4 /vol/d4; mv /vol/d4 /tree/back; echo more >> /tree/back/f201; rm /tree/back/f202
echo more >> /links/a
rm -r /tree/d0; mkdir /tree/d0; echo again > /tree/d0/f1
mv /data/big64 /vol/big; ln /vol/big /vol/second; echo end >> /vol/second
rm -rf /vol/deep; echo between > /vol/between
"""
LATER = """
dd if=/dev/zero of=/vol/big bs=4096 seek=950 count=1 conv=notrunc 2>/dev/null
dd if=/dev/zero of=/data/big8 bs=4096 seek=42 count=1 conv=notrunc 2>/dev/null; truncate -s 5000000 /data/big8
mv /tree/back /tree/d4; rm -r /tree/d0; mv /vol/d3 /tree/d0; echo more >> /tree/d0/f150
"""
# ... and what after the way back.
AFTER = """
dd if=/dev/zero of=$(ls /vol/big /data/big64 2>/dev/null | head -n 1) bs=4096 seek=2 count=1 conv=notrunc
echo after > /vol/after; rm /tree/d8/f400; echo more >> /tree/d8/f401
"""


class Podman:
    COMMAND, PAGE = "podman", "contrib/podman/README.md"
    CONFIG = "As root"
    FILE = "/etc/containers/storage.conf"
    user = None

    def __init__(self, guest, directory):
        self.guest, self.dir = guest, directory
        os.makedirs(directory)
        os.chmod(directory, 0o777)
        self.begin()

    def begin(self):
        """As the page says, but with the old program."""
        self.guest.follow(self.PAGE, self.CONFIG, user=self.user)
        self("sed -i 's|^mount_program = .*|mount_program = \"%s\"|' %s" % (OLD, self.FILE))

    def come(self):
        self.guest.follow(self.PAGE, "Coming from fuse-overlayfs", user=self.user)

    def leave(self):
        return self.guest.follow(self.PAGE, "Leaving again", user=self.user)

    def __call__(self, script):
        return self.guest.sh(script, self.user)

    def run(self, *words):
        return self(" ".join([self.COMMAND, *words]))

    def in_container(self, name, script, *args, image=IMAGE):
        """In a new container, or in an old one that is started for it and left as it was."""
        idle = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
        if args:
            self.run("run", "-d", "--name", name, *args, image, "/bin/sh", "-c", '"%s"' % idle)
        else:
            self.run("start", name)
        self.write("script", script)
        self.run("exec", "-i", name, "/bin/sh", "-eu", "<", self.dir + "/script")

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def import_image(self):
        archive = os.path.join(self.dir, "image.tar")
        image_tree.write_image(archive, image_tree.big_content()[:BIG])
        self.run("import", archive, "localhost/base:1", ">/dev/null")
        self.build(IMAGE, CONTAINERFILE.format(image="localhost/base:1"))

    def build(self, image, text):
        context = os.path.join(self.dir, "context")
        os.makedirs(context, exist_ok=True)
        self.write("context/Dockerfile", text)
        self.run("build", "-q", "--network=none", "-t", image, context)

    def trees(self):
        """{"container or image, name in it": description} of all there are."""
        found = {}
        names = self.run("ps", "-a", "--format", "'{{.Names}}'").split()
        images = self.run("images", "--format", "'{{.Repository}}:{{.Tag}}'").split()
        assert names and images
        for image in images:
            self.run("create", "--name", "look", image, "/bin/true")
            found.update(self._exported("look", image))
            self.run("rm", "look")
        for name in names:
            found.update(self._exported(name, name))
        return found

    def _exported(self, name, shown):
        path = os.path.join(self.dir, "export.tar")
        self.run("export", "-o", path, name)
        entries, attrs, links = image_tree.read_tar(path)
        self("rm -f " + path)
        found = {"%s, %s" % (shown, n): v for n, v in image_tree.interesting(entries).items()}
        found.update({"%s, %s (attributes)" % (shown, n): v for n, v in attrs.items()})
        found.update({"%s, %s" % (shown, " = ".join(sorted(n))): "hard links" for n in links})
        return found

    def program_serves(self, name):
        """The file system at the root of a running container."""
        pid = self.run("inspect", "-f", "'{{.State.Pid}}'", name).strip()
        return " fuse.fuse-overlayfs " in self.guest.sh("grep ' / / ' /proc/%s/mountinfo" % pid)

    def maps(self):
        """Uppers with blocks of partial files."""
        return self.guest.sh("find /var/lib/containers /var/lib/docker /home -name .wh..wh.veneer").split()


class RootlessPodman(Podman):
    CONFIG = "As an ordinary user"
    FILE = "~/.config/containers/storage.conf"
    user = READER

    def come(self):
        self("podman stop --all; "
             "sed -i 's|^mount_program = .*|mount_program = \"/usr/local/bin/veneer\"|' " + self.FILE)

    def leave(self):
        text = self("podman stop --all; podman unshare contrib/podman/flatten-store.sh "
                    "~/.local/share/containers/storage/overlay")
        self("sed -i 's|^mount_program = .*|mount_program = \"%s\"|' %s" % (OLD, self.FILE))
        return text


class Docker(Podman):
    COMMAND, PAGE = "docker", "contrib/docker/README.md"

    def begin(self):
        """As the page says, but without the link, so that the old program is the one in PATH."""
        config, _ = pages.section(os.path.join(REPOSITORY, self.PAGE), "The daemon")
        self(pages.script(config))
        self("rm -f /usr/local/bin/fuse-overlayfs; systemctl restart docker")


@pytest.fixture(params=[Podman, RootlessPodman, Docker], ids=["podman", "podman-rootless", "docker"])
def store(request, guest, fuse_device):
    if name := engine.missing(request.param.COMMAND):
        pytest.skip("%s is not installed" % name)
    if not os.path.exists(OLD):
        pytest.skip("there is no fuse-overlayfs to come from")
    if request.param.user:
        guest.add_reader()
    return request.param(guest, os.path.join(guest.base, "store"))


def same(one, other):
    return image_tree.differences(one, other) == "" or pytest.fail(image_tree.differences(one, other))


def fill(store):
    store.import_image()
    store.in_container("stopped", BEFORE, "--network=none")
    store.in_container("running", BEFORE, "--network=none")
    store.in_container("fresh", "true", "--network=none", image="localhost/base:1")
    store.run("stop", "-t", "5", "stopped", "fresh")


def use(store):
    """Old containers, an image that is committed, and one that is built on an old one."""
    for name in ("stopped", "fresh"):
        store.in_container(name, BETWEEN)
        assert store.program_serves(name)
    assert store.guest.servers() == {"veneer"}
    store.run("commit", "stopped", "localhost/committed:1")
    store.build("localhost/switched:2", "FROM localhost/switched:1\nRUN echo more >> /data/big64 && mv /tree/d9 /vol\n")
    store.in_container("later", LATER, "--network=none", image="localhost/committed:1")
    assert len(store.maps()) >= 3


def leave(store):
    assert " layers are plain files" in store.leave()
    assert store.maps() == []


def test_images_and_containers_come_and_go(store):
    fill(store)
    before = store.trees()
    store.come()
    assert same(before, store.trees())
    use(store)
    between = store.trees()
    leave(store)
    assert same(between, store.trees())
    store.in_container("later", AFTER)
    assert store.guest.servers() == {"fuse-overlayfs"}


@pytest.mark.slow
def test_what_the_old_program_makes_of_plain_files_comes_again(store):
    fill(store)
    store.come()
    use(store)
    leave(store)
    for name in ("stopped", "fresh", "later", "running"):
        store.in_container(name, AFTER)
    after = store.trees()
    store.come()
    assert same(after, store.trees())
    store.in_container("stopped", LATER)
    again = store.trees()
    leave(store)
    assert same(again, store.trees())
