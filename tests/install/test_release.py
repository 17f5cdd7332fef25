# SPDX-License-Identifier: Apache-2.0
"""The archive for any Linux: what is in it, that it serves, and that it is the same each time."""
import os
import re
import subprocess
import sys

import pytest

from conftest import pages_for_callers, run
from support.repository import REPOSITORY, copy_sources

# Command line, mounts of an own process, and of a server that is started from the file that is linked statically.
_SMOKE = [
    ("tests/integration/test_layers.py", []),
    ("tests/integration/test_whiteout.py", ["--mode=server"]),
    ("tests/integration/test_command_line.py", []),
]


def test_sums(archive, unpacked):
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=archive.parent)
    sums = (unpacked / "share/doc/veneer/README").read_text().partition("SHA-256 of the files:\n\n")[2]
    (unpacked.parent / "inner").write_text(sums)
    run("sha256sum", "--check", "--strict", unpacked.parent / "inner", cwd=unpacked)
    listed = {line.split(maxsplit=1)[1] for line in sums.splitlines()}
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()}
    assert listed == files - {"share/doc/veneer/README"}


def test_the_sources_are_beside_it(archive, scratch):
    (sources,) = [path for path in archive.parent.glob("veneer-*.tar.gz") if not path.name.endswith("-linux.tar.gz")]
    assert sources.name in (archive.parent / "SHA256SUMS").read_text()
    names = run("tar", "-tzf", sources).splitlines()
    top = sources.name.removesuffix(".tar.gz")
    assert {f"{top}/{name}" for name in ("meson.build", "LICENSE", "src/cli/main.c", "contrib/setup.sh")} <= set(names)
    assert not [name for name in names if name.startswith((f"{top}/build/", f"{top}/.git/")) or not name.startswith(f"{top}/")]


def test_what_is_in_it(unpacked):
    for name in ["bin/veneer", "bin/veneer-flatten-store", "bin/veneer-flatten-snapshots", "share/man/man1/veneer.1", "share/man/man8/mount.veneer.8",
                 "share/bash-completion/completions/veneer", "share/zsh/site-functions/_veneer",
                 "share/fish/vendor_completions.d/veneer.fish", "share/doc/veneer/LICENSE", "share/doc/veneer/CHANGELOG.md"]:
        assert (unpacked / name).is_file() and (unpacked / name).stat().st_size > 0, name
    for link in ["bin/fuse-overlayfs", "sbin/mount.veneer", "sbin/umount.veneer", "sbin/umount.fuse", "sbin/umount.fuse.fuse-overlayfs",
                 "share/man/man1/fuse-overlayfs.1"]:
        assert (unpacked / link).resolve().name.startswith("veneer"), link
    for program in [*(unpacked / "bin").iterdir(), *(unpacked / "sbin").iterdir()]:
        assert list((unpacked / "share/man").glob(f"man[18]/{program.name}.[18]")), f"{program.name} has no page"
    for unit in (REPOSITORY / "contrib/systemd").glob("[su]*/*"):
        installed = (unpacked / "lib/systemd" / unit.parent.name / unit.name).read_text()
        assert installed == unit.read_text().replace("/usr/bin/veneer", "/usr/local/bin/veneer")
    assert not [path for path in unpacked.rglob("*") if path.stat().st_mode & 0o022]


def test_pages_for_callers_are_in_it_and_their_links_lead_somewhere(unpacked):
    for name in pages_for_callers():
        assert (unpacked / name).is_file() and (unpacked / name).stat().st_size > 0, name
    for page in (unpacked / "share/doc/veneer/contrib").glob("*/README.md"):
        targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        assert all((page.parent / target).exists() for target in targets), page
    script = unpacked / "share/doc/veneer/contrib/podman/flatten-store.sh"
    assert script.resolve() == (unpacked / "bin/veneer-flatten-store").resolve() and os.access(script, os.X_OK)


def test_the_program_needs_no_library(unpacked):
    headers = run("readelf", "--program-headers", "--dynamic", "--wide", unpacked / "bin/veneer")
    assert "INTERP" not in headers and "(NEEDED)" not in headers
    assert "RELRO" in headers and "PIE" in headers
    empty = unpacked.parent / "empty-root"
    empty.mkdir()
    (empty / "veneer").write_bytes((unpacked / "bin/veneer").read_bytes())
    (empty / "veneer").chmod(0o755)
    assert "version" in run("unshare", "--root", empty, "/veneer", "--version")


@pytest.mark.parametrize("file, options", _SMOKE)
def test_it_serves_as_the_other_build_does(unpacked, file, options):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not large", file, *options],
                          cwd=REPOSITORY, env={**os.environ, "VENEER_BIN": str(unpacked / "bin/veneer")},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    assert done.returncode == 0, done.stdout[-6000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 10


@pytest.mark.slow
def test_the_same_sources_elsewhere_give_the_same_archive(archive, scratch):
    sources = copy_sources(scratch / "a place" / "veneer")
    run(sources / "contrib/release.sh", scratch / "again", env={**os.environ, "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "HOME": "/"})
    assert (scratch / "again" / "SHA256SUMS").read_text() == (archive.parent / "SHA256SUMS").read_text()


def test_meson_install_takes_nobodys_name_unasked(program, scratch):
    """fuse-overlayfs and mount.veneer are there by option alone; DESTDIR stands before all of it."""
    if not (program.parent / "build.ninja").exists():
        pytest.skip(f"{program} does not lie where meson built it")
    run("meson", "install", "-C", program.parent, "--destdir", scratch / "staged")
    names = [path.relative_to(scratch / "staged") for path in (scratch / "staged").rglob("*") if not path.is_dir()]
    assert {name.name for name in names if name.parent.name == "bin"} == {"veneer", "veneer-flatten-snapshots", "veneer-flatten-store"}
    assert not [name for name in names if name.name == "fuse-overlayfs" or "mount." in name.name and name.parent.name == "sbin"]
