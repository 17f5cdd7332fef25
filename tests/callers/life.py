# SPDX-License-Identifier: Apache-2.0
"""One life of images and containers, led on two drivers; what both say of it must be the same.

A step's result is a dict, so that two of them are compared like two trees. A step that raises is a
result too: later steps go on, and the test of that step shows it with all that was printed.
"""
import hashlib
import os
import shlex
import shutil
import traceback

import image_tree

# Each RUN is a layer; what one changes was brought by another or by the image.
CONTAINERFILE = """FROM {image}
RUN chown -R 7:8 /tree
RUN dd if=/dev/zero of=/data/big64 bs=4096 seek=20 count=1 conv=notrunc 2>/dev/null
RUN mv /tree/d3 /vol/d3 && mv /tree/d4 /tree/d4x && touch -d @1500000000 /tree/d4x/f200 && \\
    rm -r /tree/d1 && mkdir /tree/d1 && echo new > /tree/d1/new && chmod 0604 /data/big8
COPY dir /vol/dir
"""
STAGES = """FROM {image} AS first
RUN dd if=/dev/zero of=/data/big8 bs=4096 seek=20 count=1 conv=notrunc 2>/dev/null && \\
    rm -r /tree/d1 && mkdir /tree/d1 && echo new > /tree/d1/new
RUN --mount=type=bind,source=.,target=/ctx,rw echo x >> /ctx/dir/file && cp /ctx/dir/file /vol/file
FROM {image}
COPY --from=first --chown=5:6 /data/big8 /vol/big8
COPY --from=first /tree/d1 /vol/d1
COPY --from=first /vol/file /vol/file
"""

# Each line is a way of changing a tree that drivers record differently.
CHANGES = """
dd if=/dev/zero of=/data/big64 bs=4096 seek=1000 count=1 conv=notrunc 2>/dev/null
echo appended >> /data/big8
chmod 0600 /data/setuid; chmod 4711 /data/setuid
chown 7:9 /data/owned
rm /data/empty /data/symlink
rm -r /tree/d2
mv /vol/d3/f150 /tree/d4x/moved
mv /tree/d5/f250 /tree/d5/f251
mv /vol/d3 /tree/d3
cp -r /tree/d6 /tree/copy; mv /tree/copy /tree/renamed
ln /tree/d7/f350 /tree/d7/link
ln -s /data/big8 /tree/d8/symlink
rm /tree/d9/f450; mkdir /tree/d9/f450
echo short > /tree/d8/f400; touch -d @1400000000 /tree/d8/f401 /tree/d8
echo two > /vol/file; mkdir -m 1777 /vol/sticky
rm -r /tree/d1; ln -s d8 /tree/d1
"""
MORE_CHANGES = """
dd if=/dev/zero of=/data/big64 bs=4096 seek=1001 count=1 conv=notrunc 2>/dev/null
chown -R 1:2 /tree/d5 /tree/renamed
rm /tree/d1; mkdir /tree/d1; echo again > /tree/d1/f50
rm -r /vol/sticky; rm /tree/d8/symlink
"""

LISTING = shlex.quote(image_tree.list_script())

# Engines that compare trees by walking them do not compare link counts, so the layer they commit
# holds the new name alone, whatever the file system shows.
NEWLY_LINKED = ("tree/d7/f350", "tree/d7/link")


def zero_block(block, root=""):
    """A command that overwrites one block of the image's large file with zeros."""
    return "dd if=/dev/zero of=%s/data/big64 bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null" % (
        root, block)


def sum_big(engine, name):
    return engine.sh(name, "sha256sum /data/big64").split()[0]


def big_after(*blocks, size=4096):
    """Digest of /data/big64 once these blocks were overwritten with zeros."""
    data = bytearray(image_tree.big_content())
    for block in blocks:
        data[block * size:(block + 1) * size] = bytes(size)
    return hashlib.sha256(data).hexdigest()


def lines_of_image(lines):
    """A diff without what the engine itself puts into a container, as a step's result."""
    return {line: "listed" for line in lines
            if image_tree.interesting({line.split("/", 1)[1]: 0})}


def tree_of(engine, image, *args):
    entries, sizes = engine.tree(image, *args)
    return entries | {name + " (links, size)": value for name, value in sizes.items()
                      if name not in NEWLY_LINKED and image_tree.interesting({name: 0})}


def of_image(archive):
    """An exported archive as a step's result."""
    entries, attrs, links = archive
    found = image_tree.interesting(entries)
    found |= {name + " (attributes)": value for name, value in attrs.items()}
    return found | {" = ".join(sorted(names)): "hard links" for names in links}


def load_again(engine, image, archive, form):
    """The image as it comes back from an archive of this format."""
    engine.save(image, archive, form)
    engine("rmi", image)
    engine.load(archive)
    os.unlink(archive)
    return tree_of(engine, image)


def write_context(engine, path, containerfile):
    """A directory to build from; it and what is in it belongs to the engine's user."""
    os.makedirs(os.path.join(path, "dir/sub"), exist_ok=True)
    for name, text in (("Containerfile", containerfile.format(image=engine.IMAGE)),
                       ("dir/file", "of the context\n"), ("dir/sub/tool", "x\n")):
        with open(os.path.join(path, name), "w") as f:
            f.write(text)
    os.chmod(path + "/dir/sub/tool", 0o750)
    for top, dirs, files in os.walk(path, topdown=False):
        for entry in [os.path.join(top, name) for name in dirs + files] + [top]:
            os.utime(entry, (image_tree.MTIME, image_tree.MTIME))
            engine.give(entry)
    return path


class Life:
    """The steps in STEPS, led in this order; `seen` and `printed` by step."""

    STEPS = ()

    def __init__(self, engine):
        self.engine, self.seen, self.printed = engine, {}, {}
        self.dir = os.path.join(engine.base, "tmp", type(self).__name__.lower())
        os.makedirs(self.dir)
        engine.give(self.dir)

    def lead(self):
        for step in self.STEPS:
            start = len(self.engine.transcript)
            try:
                self.seen[step] = getattr(self, step)()
            except Exception:  # whatever it is, the step's test tells it
                self.seen[step] = {"raised": traceback.format_exc()}
            self.printed[step] = "\n".join(self.engine.transcript[start:])
        self.clean()
        return self

    def clean(self):
        """Nothing is left of the life but its images, whatever step it broke off in."""
        self.engine.remove_all()
        shutil.rmtree(self.dir)

    def context(self, containerfile):
        return write_context(self.engine, os.path.join(self.dir, "context"), containerfile)


class ContainerLife(Life):
    """The operations that both Podman and Docker have."""

    STEPS = ("build", "layers", "load", "diff_running", "sizes", "cp_out", "cp_in", "diff_stopped",
             "export", "commit", "diff_of_fresh", "second_commit", "volume")

    def build(self):
        self.image = self.engine.build("life:1", self.context(CONTAINERFILE))
        return tree_of(self.engine, self.image)

    def layers(self):
        archive = os.path.join(self.dir, "layers.tar")
        self.engine.save(self.image, archive, "docker-archive")
        return image_tree.read_layers(archive)

    def load(self):
        archive = os.path.join(self.dir, "saved.tar")
        return load_again(self.engine, self.image, archive, self.engine.formats[0])

    def diff_running(self):
        self.box = self.engine.start("life", image=self.image)
        self.before = of_image(self.engine.export(self.box))
        self.engine.sh(self.box, CHANGES)
        return lines_of_image(self.engine.diff(self.box))

    def sizes(self):
        """Bytes of the changes: as inspect tells them, and as ps and df round them."""
        written, whole = self.engine("inspect", "-s", "-f", "{{.SizeRw}} {{.SizeRootFs}}",
                                     self.box).split()
        listed = self.engine("ps", "-a", "--size", "--filter", "name=life", "--format",
                             "{{.Size}}")
        total = dict(line.split("|") for line in self.engine(
            "system", "df", "--format", "{{.Type}}|{{.Size}}").splitlines())
        return {"written": int(written), "whole": int(whole), "listed": listed.split()[0],
                "total": total["Containers"]}

    def cp_out(self):
        return self.engine.cp_out(self.box, "/tree")

    def cp_in(self):
        """Over a directory of a lower layer, a file of one, and to a new name."""
        source = os.path.join(self.context(CONTAINERFILE), "dir")
        self.engine("cp", source + "/.", self.box + ":/tree/d8")
        self.engine("cp", source + "/file", self.box + ":/data/labelled")
        self.engine("cp", source, self.box + ":/vol/copied")
        return {"": self.engine.sh(self.box, "cd /; find tree/d8/sub vol/copied data/labelled |"
                                   " sort | xargs stat -c '%f %u %g %Y %s %n'")}

    def diff_stopped(self):
        self.engine.stop(self.box)
        return lines_of_image(self.engine.diff(self.box))

    def export(self):
        self.exported = of_image(self.engine.export(self.box))
        return self.exported

    def commit(self):
        self.committed = self.engine.commit(self.box, "life:2")
        self.engine.rm(self.box)
        return tree_of(self.engine, self.committed)

    def diff_of_fresh(self):
        self.box = self.engine.start("life", image=self.committed)
        return lines_of_image(self.engine.diff(self.box))

    def second_commit(self):
        self.engine.sh(self.box, MORE_CHANGES)
        image = self.engine.commit(self.box, "life:3")
        self.engine.rm(self.box)
        found = tree_of(self.engine, image)
        self.engine("rmi", "-f", image, self.committed)
        return found

    def volume(self):
        """A named volume takes over what the image has there, owners and all, and stays so."""
        first, _ = image_tree.parse_list(self.engine.run_sh(
            image_tree.list_script("tree", "vol") + "echo kept >> /vol/d3/f151", "-v",
            "life-tree:/tree", "-v", "life-vol:/vol", image=self.image))
        again = self.engine.run_sh("find /vol | sort | xargs stat -c '%f %u %g %s %n';"
                                   "cat /vol/d3/f151", "-v", "life-vol:/vol")
        self.engine("volume", "rm", "life-tree", "life-vol")
        return first | {"again": again}


class PodmanLife(ContainerLife):
    STEPS = ContainerLife.STEPS + ("overlay_volume", "image_mount", "userns_auto",
                                   "userns_keep_id")

    def overlay_volume(self):
        """-v DIR:/x:O: an upper of Podman's own over a directory of the host."""
        source = os.path.join(self.context(CONTAINERFILE), "dir")
        script = "cd /tree/x; echo more >> file; mv sub moved; rm moved/tool; mkdir moved/new;"
        text = self.engine.run_sh(script + image_tree.list_script("tree"), "-v",
                                  source + ":/tree/x:O")
        assert sorted(os.listdir(source)) == ["file", "sub"]
        with open(source + "/file") as f:
            assert f.read() == "of the context\n"
        return image_tree.parse_list(text)[0]

    def image_mount(self):
        text = self.engine.shell('m=$(podman image mount {0}); chroot "$m" /bin/sh -ec {1};'
                                 'podman image umount {0} >/dev/null'.format(self.image, LISTING))
        return image_tree.parse_list(text)[0]

    def _mapped(self, *args):
        """The tree as another range of ids sees it, changed there, and committed from there."""
        engine = self.engine
        engine.start("mapped", *args, "--user", "0", image=self.image)
        maps = engine.sh("mapped", "cat /proc/self/uid_map /proc/self/gid_map")
        seen, _ = image_tree.parse_list(engine.sh("mapped", image_tree.list_script()))
        # Where Podman has to chown a layer, times of directories are those of a race in overlayfs.
        seen = {name: value if value[0] != "dir" else value[:3] for name, value in seen.items()}
        engine.sh("mapped", "chown -R 3:4 /tree/d5; echo x > /vol/new; chown 11:12 /vol/new;"
                  "dd if=/dev/zero of=/data/big64 bs=4096 seek=3 count=1 conv=notrunc 2>/dev/null;"
                  "chmod 0611 /data/big8; rm -r /tree/d6; mkdir /tree/d6")
        # Podman 4.3 compares the wrong ids of a running one as a user, of a stopped one as root:
        # over any mount program it then lists all, over idmapped layers it commits mapped ids.
        if engine.user:
            engine.stop("mapped")
        diff = lines_of_image(engine.diff("mapped"))
        image = engine.commit("mapped", "mapped:1")
        engine.rm("mapped")
        committed = tree_of(engine, image)
        engine("rmi", image)
        return {"maps": maps} | {"inside, " + name: value for name, value in seen.items()} | \
            diff | committed

    def userns_auto(self):
        return self._mapped("--userns=auto:size=65000" if not self.engine.user else
                            "--userns=auto:size=20000")

    def userns_keep_id(self):
        """Podman 4.3 has it for users alone."""
        return self._mapped("--userns=keep-id") if self.engine.user else {}


class BuildahLife(Life):
    STEPS = ("run", "mounted", "copy", "commit", "second_commit", "stages")

    def clean(self):
        self.engine.buildah("rm", "-a", check=False)
        super().clean()

    def _run(self, script):
        return self.engine.buildah("run", "--network=none", self.box, "--", "/bin/sh", "-ec",
                                   script)

    def run(self):
        self.box = self.engine.buildah("from", "--name", "life-b", self.engine.IMAGE).strip()
        self._run("chown -R 7:8 /tree; mv /tree/d3 /vol/d3; mv /tree/d4 /tree/d4x")
        self._run(CHANGES)
        return image_tree.parse_list(self._run(image_tree.list_script()))[0]

    def mounted(self):
        """As the host sees it, written to from there as well."""
        text = self.engine.shell(
            'm=$(buildah mount life-b); rm -r "$m/tree/d9"; echo host >> "$m/data/big8";'
            'chroot "$m" /bin/sh -ec %s; buildah umount life-b >/dev/null' % LISTING)
        return image_tree.parse_list(text)[0]

    def copy(self):
        source = os.path.join(self.context(CONTAINERFILE), "dir")
        self.engine.buildah("copy", "-q", "--chown", "5:6", self.box, source, "/tree/d8")
        self.engine.buildah("copy", "-q", self.box, source + "/file", "/data/labelled")
        return image_tree.parse_list(self._run(image_tree.list_script()))[0]

    def commit(self):
        self.engine.buildah("commit", "-q", self.box, "localhost/life-b:1")
        self.engine.buildah("rm", self.box)
        return tree_of(self.engine, "localhost/life-b:1")

    def second_commit(self):
        self.box = self.engine.buildah("from", "--name", "life-b", "localhost/life-b:1").strip()
        self._run(MORE_CHANGES)
        self.engine.buildah("commit", "-q", "--rm", self.box, "localhost/life-b:2")
        archive = os.path.join(self.dir, "pushed.tar")
        self.engine.buildah("push", "-q", "localhost/life-b:2", "docker-archive:" + archive)
        found = tree_of(self.engine, "localhost/life-b:2") | image_tree.read_layers(archive)
        self.engine("rmi", "-f", "localhost/life-b:1", "localhost/life-b:2")
        return found

    def stages(self):
        self.engine.buildah("bud", "-q", "--network=none", "--layers", "-t", "localhost/life-b:3",
                            self.context(STAGES))
        found = tree_of(self.engine, "localhost/life-b:3")
        self.engine("rmi", "-f", "localhost/life-b:3")
        return found
