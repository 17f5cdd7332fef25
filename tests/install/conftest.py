# SPDX-License-Identifier: Apache-2.0
"""What is installed, and how: the archive of contrib/release.sh, packages, completions, pages, mount(8).

VENEER_BIN names the program where it is not the installed one that matters (default build/veneer), VENEER_ARCHIVE and
VENEER_PACKAGES an archive and a directory of packages that were made before, in place of new ones.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from support.repository import REPOSITORY, copy_sources

os.environ["PATH"] += ":/usr/sbin:/sbin"


def run(*command, **more):
    """Its output; a failure shows both channels."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", errors="replace", **more)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def pages_for_callers():
    """What every package has of contrib/, as paths below its prefix."""
    pages = {f"share/doc/veneer/contrib/{caller}/README.md" for caller in ("containerd", "docker", "kubernetes", "podman")}
    linked = {f"share/doc/veneer/contrib/docker/{path.name}" for path in (REPOSITORY / "contrib/docker").iterdir()}
    return pages | linked | {
        "share/doc/veneer/contrib/podman/flatten-store.sh", "share/doc/veneer/contrib/containerd/flatten-snapshots.sh",
        "bin/veneer-flatten-store", "bin/veneer-flatten-snapshots", "share/veneer/grafana/veneer.json"}


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def program():
    return pathlib.Path(os.environ.get("VENEER_BIN", REPOSITORY / "build" / "veneer")).resolve()


@pytest.fixture(scope="session")
def scratch():
    """On a disk, and reached by everybody."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="veneer-install-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def archive(scratch):
    """What contrib/release.sh writes, or has written: VENEER_ARCHIVE."""
    if os.environ.get("VENEER_ARCHIVE"):
        return pathlib.Path(os.environ["VENEER_ARCHIVE"])
    run(REPOSITORY / "contrib" / "release.sh", scratch / "dist")
    return next((scratch / "dist").glob("veneer-*-linux.tar.gz"))


@pytest.fixture(scope="session")
def unpacked(archive, scratch):
    target = scratch / "unpacked"
    target.mkdir()
    run("tar", "-C", target, "--strip-components=1", "-xzf", archive)
    return target


@pytest.fixture(scope="session")
def packages(scratch):
    """Built here, unless VENEER_PACKAGES says where. Debian 12's libfuse is too old: see debian/README.source."""
    if os.environ.get("VENEER_PACKAGES"):
        return pathlib.Path(os.environ["VENEER_PACKAGES"])
    if not shutil.which("dh"):
        pytest.skip("there is no debhelper")
    sources = copy_sources(scratch / "deb" / "veneer")
    own_fuse = os.path.exists(os.environ.get("VENEER_FUSE_PREFIX", "/usr/local/lib/veneer/fuse3") + "/lib/libfuse3.a")
    run("dpkg-buildpackage", "-us", "-uc", *["-Ppkg.veneer.libfuse"] * own_fuse, cwd=sources)
    return sources.parent
