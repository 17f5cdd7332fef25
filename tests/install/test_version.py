# SPDX-License-Identifier: Apache-2.0
"""The version stands in meson.build; what else names it says the same."""
import re

import pytest

from conftest import run
from support.repository import REPOSITORY


def version():
    return re.search(r"^  version: '([\d.]+)',$", (REPOSITORY / "meson.build").read_text(), re.M)[1]


@pytest.mark.parametrize("name, pattern", [
    ("CHANGELOG.md", r"^## \[([\d.]+)\] "),
    ("debian/changelog", r"\Aveneer \(([\d.]+)\) "),
    ("contrib/rpm/veneer.spec", r"^Version: +(.*)$"),
    ("contrib/rpm/veneer.spec", r"^%changelog\n\*.* - ([\d.]+)-\d+$"),
    ("contrib/alpine/APKBUILD", r"^pkgver=(.*)$"),
])
def test_the_same_version_everywhere(name, pattern):
    assert re.search(pattern, (REPOSITORY / name).read_text(), re.M)[1] == version()


def test_the_day_of_the_version_is_that_of_the_changelog():
    day = re.search(r"^## \[[\d.]+\] - (\d{4}-\d\d-\d\d)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)[1]
    debian = re.search(r"^ -- .*>  (.*)$", (REPOSITORY / "debian" / "changelog").read_text(), re.M)[1]
    rpm = re.search(r"^%changelog\n\* (\w+ \w+ \d+ \d+) ", (REPOSITORY / "contrib/rpm/veneer.spec").read_text(), re.M)[1]
    assert run("date", "-u", "-d", debian, "+%F").strip() == day
    assert run("date", "-u", "-d", rpm, "+%F").strip() == day
    assert run("date", "-u", "-d", rpm, "+%a").strip() == rpm[:3]


def test_the_program_says_it_as_fuse_overlayfs_does(program):
    assert run(program, "--version").splitlines()[0] == f"fuse-overlayfs: version {version()} (veneer)"


def test_the_archive_and_its_pages_say_it(archive, unpacked):
    assert archive.name.startswith(f"veneer-{version()}-")
    assert f"veneer {version()}" in (unpacked / "share/man/man1/veneer.1").read_text().splitlines()[1]
    assert (unpacked / "share/doc/veneer/README").read_text().startswith(f"veneer {version()} ")
