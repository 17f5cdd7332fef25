# SPDX-License-Identifier: Apache-2.0
"""contrib/podman/flatten-store.sh on a store made by hand: what engines rarely make, and what must stop it."""
import os
import re
import subprocess

import pytest

from support.repository import REPOSITORY

SCRIPT = os.path.join(REPOSITORY, "contrib/podman/flatten-store.sh")
BLOCK = 4096
BASE = os.urandom(64 * BLOCK)
MAP = ".wh..wh.veneer"


class Store:
    """Layers as containers/storage lays them out, the lowest first; the last one is a container's."""

    def __init__(self, path, program, layers):
        self.path, self.program, self.names = path, program, layers
        os.makedirs(os.path.join(path, "l"))
        for i, name in enumerate(layers):
            for part in ("diff", "work", "merged"):
                os.makedirs(os.path.join(path, name, part))
            os.symlink("../%s/diff" % name, os.path.join(path, "l", "L%d" % i))
            if i:
                with open(os.path.join(path, name, "lower"), "w") as f:
                    f.write(":".join("l/L%d" % j for j in reversed(range(i))))
        for name in ("file", "other"):
            with open(self.at(layers[0], "diff", name), "wb") as f:
                f.write(BASE)

    def at(self, *parts):
        return os.path.join(self.path, *parts)

    def mount(self, layer, lowers):
        top = self.at(layer)
        subprocess.run([self.program, "-o", "standalone,lowerdir=%s,upperdir=%s/diff,workdir=%s/work" % (
            ":".join(one.replace(":", "\\:").replace(",", "\\,") for one in lowers),
            *[top.replace(",", "\\,")] * 2), top + "/merged"], check=True)
        return top + "/merged"

    def unmount(self, layer):
        subprocess.run(["umount", self.at(layer, "merged")], check=True)

    def flatten(self, *options):
        return subprocess.run([SCRIPT, *options, self.path], env=dict(os.environ, VENEER=self.program), capture_output=True,
                              text=True)


def change(path, block):
    with open(path, "r+b") as f:
        f.seek(block * BLOCK)
        f.write(b"\xff" * BLOCK)


def changed(*blocks):
    data = bytearray(BASE)
    for block in blocks:
        data[block * BLOCK:(block + 1) * BLOCK] = b"\xff" * BLOCK
    return bytes(data)


def content(path):
    with open(path, "rb") as f:
        return f.read()


@pytest.fixture
def make(base, mount_program):
    if not mount_program.is_veneer:
        pytest.skip("the script is veneer's")
    stores = []

    def make(name, layers):
        stores.append(Store(os.path.join(base, name), os.path.join(mount_program.bin, "veneer"), layers))
        return stores[-1]
    yield make
    for store in stores:
        for layer in store.names:
            subprocess.run(["umount", "-l", store.at(layer, "merged")], capture_output=True)


def test_every_layer_of_a_stack(make):
    """In a directory whose name has what separates options and layers."""
    store = make("a store, and: more", ["base", "middle", "top"])
    change(store.mount("middle", [store.at("base/diff")]) + "/file", 3)
    store.unmount("middle")
    change(store.mount("top", [store.at("middle/diff"), store.at("base/diff")]) + "/file", 5)
    store.unmount("top")
    result = store.flatten()
    assert (result.returncode, result.stdout) == (0, "flatten-store: 3 layers are plain files\n"), result.stderr
    assert content(store.at("middle/diff/file")) == changed(3)
    assert content(store.at("top/diff/file")) == changed(3, 5)
    assert not os.path.exists(store.at("top/diff", MAP))


def test_a_dry_run_says_what_there_is_to_do_and_changes_nothing(make):
    store = make("dry", ["base", "top"])
    change(store.mount("top", [store.at("base/diff")]) + "/file", 3)
    store.unmount("top")
    result = store.flatten("--dry-run")
    assert result.returncode == 0, result.stderr
    told, end = result.stdout.splitlines()
    assert re.fullmatch(re.escape(store.at("top/diff")) + r": partial files: 1, bytes to bring in: [1-9]\d*", told)
    assert end == "flatten-store: 2 layers were looked at, nothing is changed"
    assert os.path.exists(store.at("top/diff", MAP))


def test_podmans_note_goes_if_asked_when_all_is_plain(make):
    store = make("native", ["base", "top"])
    with open(store.at(".has-mount-program"), "w", encoding="ascii") as f:
        f.write("true")
    assert "--native removes it" in store.flatten().stdout
    assert os.path.exists(store.at(".has-mount-program"))
    assert store.flatten("--native").returncode == 0
    assert not os.path.exists(store.at(".has-mount-program"))


def test_layer_whose_owners_were_shifted(make):
    """The engine renames diff to diff1 and goes on above it."""
    store = make("shifted", ["base", "top"])
    point = store.mount("top", [store.at("base/diff")])
    change(point + "/file", 3)
    change(point + "/other", 4)
    store.unmount("top")
    os.rename(store.at("top/diff"), store.at("top/diff1"))
    os.mkdir(store.at("top/diff"))
    change(store.mount("top", [store.at("top/diff1"), store.at("base/diff")]) + "/file", 9)
    store.unmount("top")
    result = store.flatten()
    assert result.returncode == 0, result.stderr
    assert content(store.at("top/diff/file")) == changed(3, 9)
    assert content(store.at("top/diff1/other")) == changed(4)


def test_layer_in_use_is_told(make):
    store = make("used", ["base", "top"])
    point = store.mount("top", [store.at("base/diff")])
    change(point + "/file", 3)
    result = store.flatten()
    assert result.returncode == 1
    assert "%s is left as it is" % store.at("top") in result.stderr
    assert content(point + "/file") == changed(3)


def test_what_is_no_store(make, base):
    result = subprocess.run([SCRIPT, base], capture_output=True, text=True)
    assert result.returncode == 2
    assert "is no store" in result.stderr
