# SPDX-License-Identifier: Apache-2.0
"""Containers that look up more names than the memory of their server has room for."""
import os
import subprocess

import pytest

from bounds import MemoryLimit
from support import linux
from support.content import MIB

_DIRECTORIES, _NAMES, _MOUNTS = 20, 1500, 4
_LIMIT = 48 * MIB       # what the image takes, and the inodes of two mounts


def _mount(program, base, server, number):
    made = {name: base / f"m{number}" / name for name in ("mnt", "upper", "work")}
    for path in made.values():
        path.mkdir(parents=True)
    subprocess.run([program, "-o", f"lowerdir={base / 'lower'},upperdir={made['upper']},workdir={made['work']}", made["mnt"]],
                   check=True, env={**os.environ, **server.environment})
    return made["mnt"]


def _look_at_all(top):
    for directory in range(_DIRECTORIES):
        for name in range(_NAMES):
            os.stat(f"{top}/{directory}/name{name}")


@pytest.mark.slow
def test_names_that_nobody_uses_are_given_back(base, server, veneer_bin):
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 18):
        pytest.skip("the kernel cannot be asked to forget names")
    for directory in range(_DIRECTORIES):
        (base / "lower" / str(directory)).mkdir(parents=True)
        for name in range(_NAMES):
            (base / "lower" / str(directory) / f"name{name}").touch()
    limit = MemoryLimit(_LIMIT)
    if not limit.kind.startswith("cgroup"):
        pytest.skip("there is no control group that limits memory")
    try:
        pid = server.pid
        for one in (server.process.pid, pid):
            limit.put(one)
        mounts = [_mount(veneer_bin, base, server, number) for number in range(_MOUNTS)]
        with open(mounts[0] / "0" / "name0", "rb") as used:
            before = os.fstat(used.fileno()).st_ino
            for mnt in mounts:
                _look_at_all(mnt)
            assert os.fstat(used.fileno()).st_ino == before == os.stat(mounts[0] / "0" / "name0").st_ino
        assert limit.kills() == 0 and server.pid == pid, server.log[-2000:]
        for mnt in mounts:
            linux.umount(mnt)
    finally:
        server.kill()
        limit.close()
