# SPDX-License-Identifier: Apache-2.0
"""What is set up for the bench beside packages: the peer that is built."""
import os
import pathlib
import subprocess

import pytest

from support import fuse, host

TOP = pathlib.Path(__file__).resolve().parents[2]
# All is installed but cargo; what a package's candidate is stands in $FAKES/PACKAGE.candidate.
FAKES = {
    "dpkg-query": 'case "${*: -1}" in cargo*) exit 1 ;; esac; echo installed',
    "apt-cache": 'echo "  Candidate: $(cat "$FAKES/$2.candidate" 2>/dev/null || echo "(none)")"',
    "apt-get": 'echo "$*" >>"$FAKES/log"; case "$*" in *install*) [ ! -e "$FAKES/broken" ] ;; esac',
    "pkg-config": "exit 0",
    "sudo": 'shift; exec "$@"',
    "sleep": "exit 0",
}


def program(path, text):
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def set_up(folder, candidates, broken=False):
    """(what it said, the packages it installed)"""
    for name, text in FAKES.items():
        program(folder / name, text)
    # Of the programs beside them only a cargo of the machine would matter.
    for name in ("bash", "id", "env", "dpkg", "sed", "grep", "cat", "rm"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, version in candidates.items():
        (folder / f"{name}.candidate").write_text(version)
    if broken:
        (folder / "broken").touch()
    done = subprocess.run([folder / "bash", TOP / "contrib/setup.sh", "--bench"], text=True,
                          env={"PATH": str(folder), "HOME": str(folder), "FAKES": str(folder)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0 and "all there" in done.stdout, done.stdout
    log = (folder / "log").read_text() if (folder / "log").exists() else ""
    return done.stdout, [line.split()[-1] for line in log.splitlines() if " install " in line]


@pytest.mark.parametrize("candidates,installed", [
    ({"cargo": "1.85.0+dfsg3-1"}, ["cargo"]),
    ({"cargo": "0.66.0+ds1-1", "cargo-web": "1.96.0+dfsg1-1~deb12u2"}, ["cargo-web"])])
def test_cargo_is_installed_where_it_is_missing(tmp_path, candidates, installed):
    assert set_up(tmp_path, candidates)[1] == installed


@pytest.mark.parametrize("candidates", [{"cargo": "0.66.0+ds1-1"}, {}])
def test_a_cargo_that_is_too_old_is_one_line(tmp_path, candidates):
    said, installed = set_up(tmp_path, candidates)
    assert installed == []
    assert [line for line in said.splitlines() if "fuse-overlayfs 2" in line and "1.85" in line]


@pytest.mark.parametrize("path", ["cargo", ".cargo/bin/cargo",
                                  ".cache/veneer-bench/fuse-overlayfs-2/bin/fuse-overlayfs"])
def test_a_cargo_that_is_there_or_has_done_its_work_is_enough(tmp_path, path):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    program(tmp_path / path, "exit 0")
    said, installed = set_up(tmp_path, {"cargo": "1.85.0"})
    assert installed == [] and "fuse-overlayfs 2" not in said


def test_a_cargo_that_can_not_be_had_does_not_end_it(tmp_path):
    assert "fuse-overlayfs 2 is left out" in set_up(tmp_path, {"cargo": "1.85.0"}, True)[0]


def has_no_writer(fifo):
    try:
        return os.read(fifo, 1) == b""
    except BlockingIOError:
        return False


def second(tmp_path, monkeypatch, text):
    """Why the peer is missing, cargo being that script."""
    program(tmp_path / "cargo", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return fuse.CargoFuse("second", "", str(tmp_path / "root/bin/program")).missing()


def test_a_registry_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    why = second(tmp_path, monkeypatch, 'echo "$CARGO_HTTP_TIMEOUT $CARGO_NET_RETRY" >&2; exit 101')
    seconds, again = why.split(": ")[1].split()
    assert 0 < int(seconds) <= 60 and int(again) <= 2


def test_a_build_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(fuse, "BUILD_S", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # While the compiler lives the fifo has a writer.
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert "more than" in second(tmp_path, monkeypatch, f"sleep 60 >{fifo}")
    assert host.wait_for(lambda: has_no_writer(end))
    os.close(end)
