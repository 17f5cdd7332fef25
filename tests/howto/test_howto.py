# SPDX-License-Identifier: Apache-2.0
"""What the pages in doc/howto tell their reader to paste does what they say, on this machine."""
import re
import shutil

import pytest

from support import pages
from support.repository import REPOSITORY


def need(*programs):
    for name in programs:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")


INSTALLS = ("What it takes",)


def test_rootless_podman(machine):
    need("podman", "newuidmap", "busybox")
    user = machine.add_reader()
    text = machine.follow("doc/howto/rootless-podman.md", user=user, leave_out=INSTALLS)
    assert " fuse.fuse-overlayfs " in text
    taken = re.search(r"^([\d.]+)K\t/home/.*$", text, re.M)
    assert taken and float(taken.group(1)) < 1024, text
    assert re.search(r"1 mount of 1 image", text), text


def test_ci_in_pods(machine):
    need("buildah", "newuidmap", "busybox")
    user = machine.add_reader()
    text = machine.follow("doc/howto/ci-in-pods.md", user=user, leave_out=INSTALLS)
    assert re.search(r"^changed$", text, re.M), text


def test_databases(machine):
    need("sqlite3")
    text = machine.follow("doc/howto/databases.md", leave_out=INSTALLS)
    lines = text.splitlines()
    assert lines[1:3] == ["0", "7"], text
    seen, taken = lines[3].split()[0], lines[4].split()[0]
    assert seen.endswith("M") and 50 <= float(seen[:-1]) <= 80 and taken.endswith("K"), text
    assert lines[5:] == ["ok", "0"], text


def test_leaving(machine):
    text = machine.follow("doc/howto/leaving.md")
    assert re.search(r"^the same$", text, re.M) and re.search(r"^the same again$", text, re.M), text


def test_remote_layers(machine):
    text = machine.follow("doc/howto/remote-layers.md")
    assert "2 mounts of 1 image" in text


def test_branches(machine):
    need("sqlite3", "runuser", "psql")
    lines = machine.follow("doc/howto/branches.md").splitlines()
    assert lines[0] == "filled" and lines[1:5] == ["106", "206", "306", "6"] and lines[5] == "206", lines
    assert re.match(r"\* filled +\d{4}-\d\d-\d\dT", lines[6]), lines
    assert lines[7] == "filled" and lines[8:58] == [str(i * 100) for i in range(1, 51)], lines
    database, written = (re.match(r"(\d+)M\t", line) for line in lines[58:60])
    assert int(written.group(1)) < int(database.group(1)) / 4, lines
    assert lines[60:] == ["dropped", "6"], lines


def test_deltas(machine):
    lines = machine.follow("doc/howto/deltas.md").splitlines()
    assert lines[0] == "monday" and re.fullmatch(r"/srv/delta/a/mnt: 2 entries, 4\.0 KiB of the 48 MiB of the changed files", lines[1]), lines
    assert lines[2:] == ["monday", "the same", "tuesday", "tuesday", "more", "monday", "tuesday", "more"], lines


def test_working_copies(machine):
    need("git")
    lines = machine.follow("doc/howto/working-copies.md").splitlines()
    assert lines[0].startswith("C /config") and lines[1] == "2" and lines[2].startswith("C /config"), lines
    assert lines[3:6] == ["the answer is 42", "first", "answer = 42"], lines
    assert lines[6:] == ["before", "mistake", "answer = 42", "answer = 42", "question = 6 * 9"], lines


def test_latency(machine):
    text = machine.follow("doc/howto/latency.md")
    assert re.search(r"^processors kept awake: \d+ times?, .* in all; now: [a-z ]+$", text, re.M), text


def test_readme(machine):
    """But for the building, which test_fresh.py does."""
    _, mount, *_ = pages.section(REPOSITORY / "README.md", "Mount something")
    text = machine.sh(pages.script(mount))
    assert re.search(r"^\d+K\t/root/try/upper$", text, re.M) and re.search(r"100M .* large$", text, re.M), text


def test_readme_installs_what_it_has_built():
    """test_fresh.py pastes both; this is its least, and costs nothing."""
    built, install = (pages.section(REPOSITORY / "README.md", name)[0].text for name in ("Mount something", "Install it"))
    assert install.strip() in built.splitlines()
