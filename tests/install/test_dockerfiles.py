# SPDX-License-Identifier: Apache-2.0
"""contrib/docker's Dockerfiles that install packages build, from nothing but Debian's base. (podman.Dockerfile is built by
tests/callers/test_pages.py.) Without a daemon, in a store of the test's own."""
import os
import re
import shutil
import subprocess

import pytest

from cleanroot import base
from support.repository import copy_sources

pytestmark = pytest.mark.slow
# What is not the Dockerfile's fault.
UNREACHABLE = r"Temporary failure resolving|Could not connect|Unable to connect|Connection timed out|Connection failed|503 +Service"
LIMIT_S = 2400


class Builder:
    def __init__(self, directory):
        self.directory = directory
        (directory / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/store"\nrunroot = "{directory}/run"\n')
        (directory / "registries.conf").write_text('unqualified-search-registries = ["docker.io"]\n')
        self.env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"), "TMPDIR": str(directory),
                    "CONTAINERS_REGISTRIES_CONF": str(directory / "registries.conf"), "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *words):
        done = subprocess.run(["buildah", *map(str, words)], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=LIMIT_S)
        if done.returncode and (why := re.search(f".*({UNREACHABLE}).*", done.stdout)):
            pytest.skip(f"the archive cannot be reached: {why[0]}")
        assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout[-6000:]}"
        return done.stdout

    def import_root(self, root, *names):
        archive = self.directory / "root.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        box = self("from", "scratch").strip()
        self("add", box, archive, "/")
        archive.unlink()
        for name in names:
            self("commit", "-q", box, name)
        self("rm", box)

    def run(self, image, script):
        box = self("from", "--pull-never", image).strip()
        try:
            return self("run", "--network", "host", box, "--", "sh", "-euc", script)
        finally:
            self("rm", box)


@pytest.fixture(scope="module")
def builder(scratch):
    if not shutil.which("buildah"):
        pytest.skip("there is no buildah")
    if os.geteuid() != 0:
        pytest.skip("a base image is unpacked as root")
    directory = scratch / "images"
    directory.mkdir()
    made = Builder(directory)
    made.import_root(base("bookworm"), "docker.io/library/debian:12", "docker.io/library/debian:12-slim")
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")


@pytest.mark.parametrize("name, script, wanted", [
    ("build.Dockerfile", "veneer --version; fuse-overlayfs --version; veneer inspect /srv; command -v fusermount3",
     r"version \S+ \(veneer\)(?s:.*)version \S+ \(veneer\)(?s:.*)no map(?s:.*)fusermount3"),
    # The image has all that its parts need; `docker run` gives it privileges.
    ("test.Dockerfile", "contrib/test.sh --help; meson setup build -Dman=enabled -Dmetrics=enabled; meson introspect build --tests",
     r"usage: contrib/test\.sh(?s:.*)unit(?s:.*)mapcrash"),
], ids=["build", "test"])
def test_dockerfile_builds(builder, scratch, name, script, wanted):
    context = copy_sources(scratch / f"context-{name}")
    builder("bud", "--network", "host", "--pull-never", "-f", context / "contrib" / "docker" / name, "-t", "localhost/made", context)
    assert re.search(wanted, said := builder.run("localhost/made", script)), said
