# SPDX-License-Identifier: Apache-2.0
"""The first map of an upper is made while nobody waits: the first write in a fresh mount only gives it its name."""
import os
import time

import pytest

from support.content import MIB, blob
from support.expect import names_in, write_at
from support.server import wait_until

_MAP = ".wh..wh.veneer"


def _made_ahead(stack):
    return list((stack.work / "work").glob("veneer-*/veneer-map-*"))


@pytest.fixture
def fresh(stack):
    (stack.lower() / "f").write_bytes(blob(MIB, 1))
    before = os.stat(stack.upper)
    m = stack.mount()
    assert wait_until(lambda: len(_made_ahead(stack)) == 1 and _made_ahead(stack)[0].stat().st_size == 4096)
    assert names_in(stack.upper) == [] and os.stat(stack.upper).st_mtime_ns == before.st_mtime_ns
    return m


def test_the_first_write_takes_the_map_that_is_there(stack, fresh):
    m = fresh
    for attempt in range(20):
        inode = os.stat(_made_ahead(stack)[0]).st_ino
        write_at(m / "f", b"new", 5000)
        is_that = os.stat(stack.upper / _MAP).st_ino == inode
        assert wait_until(lambda: _made_ahead(stack) == [])
        stack.umount()
        if is_that:
            break
        # that one was still being written: nobody waits for it
        for path in stack.upper.iterdir():
            path.unlink()
        m = stack.mount()
        assert wait_until(lambda: len(_made_ahead(stack)) == 1)
        time.sleep(0.01 * attempt)
    assert is_that
    m = stack.mount()
    assert (m / "f").read_bytes()[5000:5003] == b"new"
    stack.umount()
    assert names_in(stack.work / "work") == []


def test_a_mount_without_a_write_leaves_nothing(stack, fresh):
    stack.umount()
    assert names_in(stack.upper) == [] and names_in(stack.work / "work") == []


def test_one_that_is_gone_is_made_again(stack, fresh):
    _made_ahead(stack)[0].unlink()
    write_at(fresh / "f", b"new", 5000)
    stack.umount()
    assert (stack.mount() / "f").read_bytes()[5000:5003] == b"new"


def test_of_a_killed_server_nothing_is_left_after_the_next_mount(stack, fresh):
    stack.server.kill()
    stack.mount()
    assert wait_until(lambda: len(_made_ahead(stack)) == 1 and len(names_in(stack.work / "work")) == 1)
    stack.umount()
    assert names_in(stack.upper) == [] and names_in(stack.work / "work") == []
