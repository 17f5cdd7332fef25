# SPDX-License-Identifier: Apache-2.0
"""A volatile mount syncs nothing while it lives. Its end does, once: the next boot mounts what ended cleanly, and nothing else."""
import os
import shutil

import pytest

from support import linux
from support.boots import run_in_another_boot
from support.content import blob
from support.expect import names_in, opened, write_at
from support.server import wait_until

pytestmark = pytest.mark.needs_privileges("another boot is a mount namespace")
_SCRIPT = '"$1" mount -o "$2",standalone "$3" || exit 1; md5sum "$3"/*; "$1" umount "$3"'


@pytest.fixture
def elsewhere(stack, veneer_bin):
    """Mounts the upper in another boot, reads it and unmounts it again."""
    def call(*options):
        parts = [f"lowerdir={':'.join(map(str, stack.lowers))}", f"upperdir={stack.upper}", f"workdir={stack.work}", *options]
        return run_in_another_boot(stack.base, "sh", "-c", _SCRIPT, "-", veneer_bin, ",".join(parts), stack.mnt)
    return call


def _fill(stack):
    (stack.lower() / "big").write_bytes(blob(300_000))
    (stack.lower() / "gone").write_bytes(blob(9000))


def _change(m):
    write_at(m / "big", b"changed", 100_000)
    with opened(m / "big", os.O_RDWR) as fd:
        os.fsync(fd)
    (m / "new").write_text("new")
    (m / "gone").unlink()


def _mark(stack):
    return stack.work / "work" / "incompat" / "volatile"


def _shows_all(said, stack, plain):
    _fill_like(plain)
    return said.returncode == 0 and said.stdout.replace(str(stack.mnt), str(plain)) == os.popen(f"md5sum {plain}/*").read()


def _fill_like(plain):
    (plain / "big").write_bytes(blob(300_000))
    write_at(plain / "big", b"changed", 100_000)
    (plain / "new").write_text("new")


@pytest.mark.parametrize("option", ["volatile", "fsync=0", "volatile,cow=copy"])
def test_the_next_boot_mounts_what_ended_cleanly(stack, plain, elsewhere, option):
    _fill(stack)
    m = stack.mount(option)
    _change(m)
    assert _mark(stack).is_dir()
    stack.umount()
    assert names_in(stack.work / "work") == []
    said = elsewhere()
    assert _shows_all(said, stack, plain), said.stdout + said.stderr
    said = elsewhere(option)
    assert _shows_all(said, stack, plain), said.stdout + said.stderr


def test_the_next_boot_refuses_what_did_not_end(stack, elsewhere):
    _fill(stack)
    m = stack.mount("volatile")
    _change(m)
    stack.server.kill()
    for options in ((), ("volatile",)):
        said = elsewhere(*options)
        assert said.returncode == 1 and "was last mounted volatile" in said.stderr
    assert _mark(stack).is_dir()


@pytest.mark.parametrize("options", [(), ("volatile",)], ids=["synced", "volatile"])
def test_a_clean_end_later_in_the_boot_counts(stack, plain, elsewhere, options):
    _fill(stack)
    m = stack.mount("volatile")
    _change(m)
    stack.server.kill()
    stack.mount(*options)
    stack.umount()
    assert not _mark(stack).exists()
    said = elsewhere()
    assert _shows_all(said, stack, plain), said.stdout + said.stderr


def test_the_mark_of_another_mount_in_the_same_work_directory_stays(stack, elsewhere):
    _fill(stack)
    m = stack.mount("volatile")
    _change(m)
    upper = stack._make("other-upper")
    other = stack.second_mount(stack.lowers, "volatile", upper=upper, work=stack.work)
    write_at(other.mnt / "big", b"x", 5)
    stack.umount()
    assert _mark(stack).is_dir() and elsewhere().returncode == 1
    other.stop()
    assert not _mark(stack).exists()


def test_what_overlayfs_left_stays(stack, elsewhere):
    _fill(stack)
    _mark(stack).mkdir(parents=True)
    assert elsewhere().returncode == 1
    assert _mark(stack).is_dir()


def test_an_upper_that_is_removed_at_once_is_let_go(stack):
    _fill(stack)
    m = stack.mount("volatile")
    _change(m)
    upper = stack.upper
    os.rename(upper, stack.base / "thrown")
    linux.umount(m)
    shutil.rmtree(stack.base / "thrown")
    upper.mkdir()
    assert stack.server.wait_for_end() == 0
    assert wait_until(lambda: [n for n in names_in(stack.work / "work") if n.startswith("veneer-")] == [])
