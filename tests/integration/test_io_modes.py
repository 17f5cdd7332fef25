# SPDX-License-Identifier: Apache-2.0
"""Every way to open files shows the same bytes, with privileges and without."""
import os

import pytest

from support import pagecache
from support.content import KIB, blob
from support.counters import Gained
from support.expect import opened, read_at, write_at
from support.rootless import mode


@pytest.mark.parametrize("io", ["auto", "passthrough", "cached", "direct"])
def test_bytes_are_the_same(stack, io):
    (stack.lower() / "f").write_bytes(blob(200 * KIB))
    m = stack.mount(f"io={io}")
    assert (m / "f").read_bytes() == blob(200 * KIB)
    write_at(m / "f", b"NEW", 100_000)
    assert read_at(m / "f", 5, 99_999) == blob(200 * KIB)[99_999:100_000] + b"NEW" + blob(200 * KIB)[100_003:100_004]
    (m / "new").write_bytes(b"new")
    with opened(m / "new", os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"er")
    assert (m / "new").read_bytes() == b"newer"


def test_refused_passthrough_is_said_once(stack):
    (stack.lower() / "f").write_bytes(blob(200 * KIB))
    m = stack.mount("io=passthrough")
    lines = [line for line in stack.log.splitlines() if "cannot be passed through" in line]
    if mode() == "root":
        assert lines == []
        return
    assert len(lines) == 1 and "io=cached" in lines[0]
    with Gained(stack.server) as g:
        for _ in range(5):
            assert (m / "f").read_bytes() == blob(200 * KIB)
    # the first open is answered that there is nothing to ask
    assert g["REQUESTS OPEN"] <= 1 and g["REQUESTS RELEASE"] == 0


def test_auto_without_privileges_is_silent(stack):
    stack.lower()
    stack.mount("io=auto")
    assert "passed through" not in stack.log


def test_direct_keeps_no_pages(stack):
    (stack.lower() / "f").write_bytes(blob(200 * KIB))
    m = stack.mount("io=direct")
    with Gained(stack.server) as g, opened(m / "f") as fd:
        for _ in range(3):
            assert os.pread(fd, 4 * KIB, 0) == blob(200 * KIB)[:4 * KIB]
        assert pagecache.own_pages(fd) == 0
    assert g["REQUESTS READ"] == 3
