# SPDX-License-Identifier: Apache-2.0
"""What the driver of thin snapshots asks of device mapper, without one."""
import os

import pytest

from support import drivers, host, thin

NAME = f"veneer-bench-{os.getpid()}"


class Machine:
    """Remembers commands; answers as the real ones would."""

    def __init__(self, fails=None):
        self.said, self.loops, self.fails = [], 0, fails

    def run(self, *argv):
        self.said.append(" ".join(argv))
        if self.fails and self.fails in self.said[-1]:
            raise host.HostError(self.said[-1])
        if argv[0] == "losetup" and "--show" in argv:
            self.loops += 1
            return f"/dev/loop{self.loops}\n"
        if argv[:2] == ("dmsetup", "status"):
            return "0 25165824 thin-pool 1 406/32768 3000/196608 - rw discard_passdown\n"
        return ""

    def since(self, count):
        return self.said[count:]


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def pool(machine, tmp_path):
    return thin.Pool(str(tmp_path / "thin"), str(tmp_path / "vol"), machine.run)


def test_a_pool_lies_on_two_sparse_files(pool, machine, tmp_path):
    assert (tmp_path / "thin.data").stat().st_size == thin.POOL_BYTES
    assert (tmp_path / "thin.data").stat().st_blocks == 0
    assert machine.said[-1] == (f"dmsetup create {NAME} --table 0 25165824 thin-pool "
                                "/dev/loop1 /dev/loop2 128 1024 1 skip_block_zeroing")
    assert pool.device == "/dev/loop2"


def test_a_tree_is_a_volume_of_its_own(pool, machine, tmp_path):
    count, path = len(machine.said), str(tmp_path / "vol" / "lower")
    pool.make_tree(path)
    assert machine.since(count) == [
        f"dmsetup message {NAME} 0 create_thin 1",
        f"dmsetup create {NAME}-1 --table 0 12582912 thin /dev/mapper/{NAME} 1",
        f"mkfs.ext4 -q -F -E nodiscard /dev/mapper/{NAME}-1",
        f"mount -t ext4 /dev/mapper/{NAME}-1 {path}"]
    assert os.path.isdir(path)


def test_a_snapshot_is_taken_while_its_origin_stands_still(pool, machine, tmp_path):
    lower, view = (str(tmp_path / "vol" / name) for name in ("lower", "view"))
    pool.make_tree(lower)
    count = len(machine.said)
    pool.snapshot(lower, view)
    assert machine.since(count) == [
        f"dmsetup suspend {NAME}-1",
        f"dmsetup message {NAME} 0 create_snap 2 1",
        f"dmsetup resume {NAME}-1",
        f"dmsetup create {NAME}-2 --table 0 12582912 thin /dev/mapper/{NAME} 2",
        f"mount -t ext4 -o rw /dev/mapper/{NAME}-2 {view}"]
    count = len(machine.said)
    pool.forget(view)
    assert machine.since(count) == [f"dmsetup remove --retry {NAME}-2",
                                    f"dmsetup message {NAME} 0 delete 2"]


def test_an_origin_goes_on_when_no_snapshot_can_be_had(tmp_path):
    machine = Machine(fails="create_snap")
    pool = thin.Pool(str(tmp_path / "thin"), str(tmp_path / "vol"), machine.run)
    pool.make_tree(str(tmp_path / "vol" / "lower"))
    with pytest.raises(host.HostError):
        pool.snapshot(str(tmp_path / "vol" / "lower"), str(tmp_path / "vol" / "view"))
    assert machine.said[-1] == f"dmsetup resume {NAME}-1"


def test_what_volumes_have_taken_is_read_from_the_pool(pool):
    assert pool.used_bytes() == 3000 * 64 << 10


def test_nothing_is_left_of_a_pool(pool, machine, tmp_path):
    pool.make_tree(str(tmp_path / "vol" / "lower"))
    count = len(machine.said)
    pool.close()
    assert machine.since(count) == [
        f"dmsetup remove --retry {NAME}-1", f"dmsetup remove --retry {NAME}",
        "losetup -d /dev/loop2", "losetup -d /dev/loop1"]
    assert not os.path.exists(tmp_path / "thin.data")


@pytest.mark.parametrize("what", ["losetup", "thin-pool"])
def test_a_pool_that_can_not_be_made_leaves_nothing(tmp_path, what):
    machine = Machine(fails=what)
    with pytest.raises(host.HostError, match=what):
        thin.Pool(str(tmp_path / "thin"), str(tmp_path / "vol"), machine.run)
    assert not list(tmp_path.glob("thin.*"))
    detached = [s for s in machine.said if s.startswith("losetup -d")]
    assert len(detached) == machine.loops


def test_a_kernel_without_device_mapper_is_told_in_one_line():
    found = next(d for d in drivers.every_driver() if d.name == "dm-thin")
    if os.path.exists("/dev/mapper/control"):
        pytest.skip("this kernel has device mapper")
    assert found.missing() == "the kernel has no device mapper" == found.state()
