# SPDX-License-Identifier: Apache-2.0
"""The same pages as a new user meets them: on a Debian of nothing but its minimal base, from README's first line on."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from machine import Machine

CACHE = pathlib.Path("/var/cache/veneer-tests")
pytestmark = pytest.mark.slow


def archive():
    """Where this machine has Debian's packages from."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
                          stdout=subprocess.PIPE, text=True)
    found = [line.split()[1] for line in done.stdout.splitlines() if re.match(r"(bookworm|trixie) ", line)]
    return found[0] if found else None


def fresh_root(suite):
    """Made once and kept."""
    root = CACHE / f"howto-{suite}"
    if (root / "etc" / "veneer-test-root").exists():
        return root
    if not shutil.which("debootstrap"):
        pytest.skip("debootstrap is not installed")
    if not archive():
        pytest.skip("found no Debian package source in /etc/apt")
    shutil.rmtree(root, ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg", suite,
                           str(root), archive()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        pytest.skip(f"no {suite} to be had: {done.stdout.splitlines()[-1]}")
    (root / "etc" / "veneer-test-root").touch()
    return root


def settle(machine, suite):
    """Its package sources and name servers, as an installer would have left them."""
    machine.write("/etc/apt/sources.list", "")
    machine.write("/etc/apt/sources.list.d/debian.sources", f"Types: deb\nURIs: {archive()}\nSuites: {suite}\nComponents: main\n"
                  "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")
    # how the archive is reached; the rest belongs to packages, which would ask about it
    for path in pathlib.Path("/etc/apt/apt.conf.d").iterdir():
        if re.search(r"Acquire::https?\b", text := path.read_text()):
            machine.write(f"/etc/apt/apt.conf.d/{path.name}", text)
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        if os.path.exists(name):
            machine.write(name, open(name).read())
    # README: root leaves sudo out.
    machine.write("/usr/local/sbin/sudo", '#!/bin/sh\nexec "$@"\n')
    machine.sh("chmod 755 /usr/local/sbin/sudo")


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def fresh(request, scratch):
    if os.geteuid() != 0:
        pytest.skip("a machine for a page is made as root")
    made = Machine(scratch / request.param, fresh_root(request.param))
    settle(made, request.param)
    made.copy_sources()
    # the rest of the file takes what this has built
    made.text = made.follow("README.md", "Mount something")
    yield made
    made.close()


def test_readme(fresh):
    assert re.search(r"^\d+K\t/root/try/upper$", fresh.text, re.M), fresh.text
    assert re.search(r"100M .* large$", fresh.text, re.M), fresh.text
    fresh.sh("veneer --version | grep '^fuse-overlayfs: version'; ! grep fuse-overlayfs /proc/mounts")
    fresh.sh("rm -r /usr/local/bin/veneer /usr/local/share/man")
    fresh.follow("README.md", "Install it")
    fresh.sh("veneer --version; test -s /usr/local/share/man/man1/veneer.1")


def test_mount_in_a_process_of_its_own(fresh):
    """Where libfuse would run mount(8) after each mount (trixie) the process may not."""
    fresh.sh("""mkdir -p /root/own/lower /root/own/merged && cd /root/own && echo hello >lower/f
        veneer -o standalone,lowerdir=lower merged && cat merged/f && umount merged""")


def test_demo(fresh):
    text = fresh.sh("VENEER_DEMO_MIB=64 contrib/demo.sh")
    assert "veneer" in text and "overlayfs" in text


def test_leaving(fresh):
    text = fresh.follow("doc/howto/leaving.md")
    assert re.search(r"^the same$", text, re.M) and re.search(r"^the same again$", text, re.M), text


def test_remote_layers(fresh):
    assert "2 mounts of 1 image" in fresh.follow("doc/howto/remote-layers.md")


def test_databases(fresh):
    lines = fresh.follow("doc/howto/databases.md").splitlines()
    assert lines[-2:] == ["ok", "0"], lines


def test_rootless_podman(fresh):
    fresh.follow("doc/howto/rootless-podman.md", "What it takes")
    user = fresh.add_reader("one")
    text = fresh.follow("doc/howto/rootless-podman.md", user=user, leave_out=("What it takes",))
    assert " fuse.fuse-overlayfs " in text and "1 mount of 1 image" in text, text


def test_ci_in_pods(fresh):
    fresh.follow("doc/howto/ci-in-pods.md", "What it takes")
    user = fresh.add_reader("two")
    text = fresh.follow("doc/howto/ci-in-pods.md", user=user, leave_out=("What it takes",))
    assert re.search(r"^changed$", text, re.M), text


def test_what_the_tests_take_is_there(fresh):
    """contrib/setup.sh --tests, and a test that mounts; CONTRIBUTING.md's first steps."""
    text = fresh.follow("CONTRIBUTING.md", "Build and test")
    assert re.search(r"^\d+ passed", text, re.M), text[-2000:]
