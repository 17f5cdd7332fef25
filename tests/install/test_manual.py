# SPDX-License-Identifier: Apache-2.0
"""The manual pages as a reader sees them."""
import os
import re

import pytest

from conftest import run
from support.repository import REPOSITORY

PAGES = sorted(path.name.removesuffix(".md") for path in (REPOSITORY / "man").glob("*.[1-8].md"))


def shown(page, width=100):
    return run("man", "--local-file", "--nh", "--nj", page,
               env={**os.environ, "MANWIDTH": str(width), "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "PAGER": "cat"})


@pytest.fixture(params=PAGES)
def page(request, unpacked):
    name = request.param
    return unpacked / f"share/man/man{name[-1]}" / name


def test_the_formatter_has_nothing_to_say(page):
    said = run("sh", "-c", 'LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings --local-file -E UTF-8 -Tutf8 -Z "$1" 2>&1 >/dev/null', "sh", page)
    assert said == ""


def test_it_begins_with_its_name_and_ends_with_the_version(page):
    lines = shown(page).strip().splitlines()
    name = page.name.rpartition(".")[0]
    assert lines[0].startswith(f"{name.upper()}({page.name[-1]})")
    assert lines[2].strip() == "NAME" and re.match(rf" +{re.escape(name)}\b.* - ", lines[3])
    assert re.match(r"veneer \d", lines[-1])


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal_but_code(page, width):
    source = [line.split() for line in (REPOSITORY / "man" / f"{page.name}.md").read_text().splitlines()]
    wide = [line for line in shown(page, width).splitlines() if len(line) > width and line.split() not in source]
    assert wide == []


def test_dashes_tables_and_markup_come_out(unpacked):
    text = shown(unpacked / "share/man/man1/veneer.1")
    assert re.search(r"^ +--prometheus", text, re.M)
    assert re.search(r"^ +upperdir=DIR \(default: none\)$", text, re.M)
    assert re.search(r"^ +lowerdir=A\[:B\.\.\.\] \(required\)$", text, re.M)
    assert re.search(r"^ +FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT$", text, re.M) and "name_to_handle_at(2)" in text
    assert "|---" not in text and "**" not in text and "`" not in text
