# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

from support.expect import opened


def test_numbers_are_those_of_the_upper(stack):
    want = os.statvfs(stack.upper)
    got = os.statvfs(stack.mount())
    assert (got.f_blocks * got.f_frsize, got.f_files) == (want.f_blocks * want.f_frsize,
                                                          want.f_files)
    assert abs(got.f_bavail * got.f_frsize - want.f_bavail * want.f_frsize) < 1 << 30
    assert 251 <= got.f_namemax <= 255


def test_every_path_answers_the_same(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_text("")
    m = stack.mount()
    (m / "new").write_text("")
    assert len({os.statvfs(m / name).f_blocks for name in (".", "d", "d/f", "new")}) == 1
    with opened(m / "d" / "f") as fd:
        assert os.fstatvfs(fd).f_blocks == os.statvfs(m).f_blocks


def test_read_only_mount_answers(stack):
    (stack.lower() / "f").write_text("")
    got = os.statvfs(stack.mount(upper=False))
    assert got.f_blocks > 0


def test_type_is_the_one_callers_look_for(stack):
    m = stack.mount()
    kind = subprocess.run(["stat", "-f", "-c", "%t", m], capture_output=True, text=True, check=True)
    assert kind.stdout.strip() == "65735546"
    line = next(line for line in open("/proc/self/mounts") if line.split()[1] == str(m))
    assert line.split()[2].startswith("fuse")
    assert "noatime" in line.split()[3]
