# SPDX-License-Identifier: Apache-2.0
"""64 mounts of one server under mixed, verified load, coming and going, with a limit on the server's memory and now and
then its death. In the end nothing is left but what is live."""
import hashlib
import json
import os
import pathlib
import random
import subprocess
import time

import pytest

from bounds import MemoryLimit
from fleet import Fleet
from sentry import Sentry, descriptors, processes_of, resident
from support.command import mount_points
from support.content import MIB, blob
from support.counters import counters
from support.killer import Killer
from support.server import wait_until

_MOUNTS = 64
_LIMIT = 512 * MIB      # of what the server's processes use, with pages of files and of the kernel
_GROWTH = 32 * MIB      # of memory of its own, which the allocator keeps in pieces
_SHIFT_S = 6
_AT_ONCE = 16           # requests of one mount that a death cuts short


def _fill(lower):
    """A small image: names, some large files, links, an attribute."""
    dice = random.Random(64)
    for k in range(120):
        path = lower / f"d{k % 7}" / f"e{k % 3}" / f"f{k}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob(dice.choice((0, 700, 9000, 60_000)), k))
    for k in range(4):
        (lower / f"large{k}").write_bytes(blob(700_000, 1000 + k))


def _digest(top):
    """Of names, what they are and what they hold."""
    total = hashlib.sha256()
    for directory, dirs, files in os.walk(top):
        dirs.sort()
        for name in sorted(dirs + files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            total.update(f"{path} {status.st_mode} {status.st_nlink} {status.st_size} {status.st_mtime_ns}\n".encode())
            if name in files:
                total.update(pathlib.Path(path).read_bytes())
    return total.hexdigest()


def _stats(server):
    done = subprocess.run([server.program, "stats", "--json"], capture_output=True, text=True, check=True, timeout=120,
                          env={**os.environ, **server.environment})
    return json.loads(done.stdout)


def _wait(condition, what, step_s=0.1):
    assert wait_until(condition, 120, step_s), what


def _warm_up(fleet_arguments, server):
    """The threads and buffers that any mount brings are no growth."""
    fleet = Fleet(*fleet_arguments, size=2, seed=1)
    fleet.sail(1, 2, 1)
    for berth in fleet.berths:
        berth.umount()
        berth.discard()
    _wait(lambda: server.count() == 0, "mounts of the warm-up")



def _forgotten(fleet, server):
    """The server must not keep inodes that the kernel has dropped; a death leaves it some that are never forgotten."""
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2", encoding="ascii")
    return _stats(server)["server"]["inodes"] < 200 * len(fleet.berths)


def _check_live(fleet, server):
    """All mounts are there and quiet."""
    assert server.count() == len(fleet.berths) == len(mount_points(fleet.base))
    _wait(lambda: _forgotten(fleet, server), "inodes that nobody uses stay", 2)
    stats, told = _stats(server), counters(server)
    # of files that are open: none is
    assert told.get("BACKING FILES", 0) <= len(fleet.berths), told
    for mount in stats["mounts"]:
        berth = next(b for b in fleet.berths if str(b.mnt) == mount["mountpoint"])
        assert mount["map"]["files"] <= sum(len(files) for _, _, files in os.walk(berth.upper)), mount
        assert mount["map"]["log_bytes"] <= 8 * MIB, mount
    return stats["server"]


def _check_left(fleet, server, before, kills):
    """All mounts are gone."""
    pid = server.pid
    # images without a mount are kept for a while on purpose; their directories are not
    _wait(lambda: sum(descriptors(pid).values()) <= sum(before["fds"].values()) + 8,
          f"descriptors: {descriptors(pid)} instead of {before['fds']}")
    stats = _stats(server)["server"]
    assert (stats["mounts"], stats["inodes"]) == (0, 0), stats
    assert stats["memory"]["inodes_bytes"] == 0 and stats["memory"]["maps_bytes"] == 0, stats
    assert not [target for target in descriptors(pid) if target.startswith(str(fleet.base / "c"))]
    assert resident(pid) <= before["resident"] + _GROWTH, (resident(pid), before["resident"])
    for berth in fleet.berths:
        _check_upper(server, fleet, berth, kills)


def _check_upper(server, fleet, berth, kills):
    """Nothing is wrong with an upper, nor left in its work directory. A death may leave an entry of the map
    for each file that was made or given up just then (SPEC 3.5); a repair drops it."""
    def check(*options):
        return subprocess.run([server.program, "check", *options, "-o",
                               f"lowerdir={fleet.lower},upperdir={berth.upper},workdir={berth.work}"],
                              capture_output=True, text=True, timeout=120)
    done = check("--repair", "--json")
    findings = json.loads(done.stdout)["findings"]
    assert {finding["code"] for finding in findings} <= {"entry-unused"}, done.stdout + done.stderr
    assert len(findings) <= kills * _AT_ONCE, findings
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr


def _soak(program, base, server, seconds, kill_every_s):
    lower = base / "lower"
    lower.mkdir()
    _fill(lower)
    before_all = _digest(lower)
    busy = int(os.environ.get("VENEER_SOAK_BUSY", 12))
    limit = MemoryLimit(_LIMIT)
    try:
        for pid in (server.process.pid, server.pid):
            limit.put(pid)
        arguments = (program, base / "mounts", lower, server)
        (base / "mounts").mkdir()
        _warm_up(arguments, server)
        before = {"fds": descriptors(server.pid), "resident": resident(server.pid)}
        began = time.monotonic()
        fleet = Fleet(*arguments, size=_MOUNTS, seed=random.randrange(1 << 30))
        sentry = Sentry(lambda: processes_of(program, server.directory) + [
            berth.process.pid for berth in list(fleet.berths) if berth.process])
        with Killer(server, kill_every_s) as killer:
            fleet.sail(seconds * 0.5, busy, _SHIFT_S)
        # One server from here on, which is to show what it keeps of what it has done.
        _wait(lambda: server.count() == _MOUNTS, "a server after the last death")
        fresh = server.pid
        fleet.sail(seconds * 0.5, busy, _SHIFT_S)
        fleet.verify(busy)
        assert server.pid == fresh, "it died by itself"
        live = _check_live(fleet, server)
        for berth in fleet.berths:
            berth.umount()
        _wait(lambda: server.count() == 0, "mounts that are not let go of")
        _check_left(fleet, server, before, killer.kills)
        sentry.close()
        assert sentry.longest_s < 60, sentry.where
        assert limit.kills() == 0, "it took more memory than it may"
        print(f"{time.monotonic() - began:.0f} s: {fleet.shifts} shifts, {fleet.steps} steps, "
              f"{fleet.mounts_made} mounts, {killer.kills} deaths, {limit.kind}, peak {limit.peak() >> 20} MiB; "
              f"with {_MOUNTS} quiet mounts {live['inodes']} inodes, {live['descriptors']} descriptors, "
              f"{live['memory']['rss_bytes'] >> 20} MiB; after them {resident(server.pid) >> 10} KiB of its own "
              f"({before['resident'] >> 10} at first); longest wait {sentry.longest_s:.0f} s")
        assert server.stop(120) == 0
        _wait(lambda: not processes_of(program, server.directory), "processes that nobody needs")
        assert not mount_points(base)
        assert _digest(lower) == before_all, "the lower layer was changed"
    finally:
        server.kill()
        limit.close()


def test_five_minutes(veneer_bin, base, server):
    _soak(veneer_bin, base, server, float(os.environ.get("VENEER_SOAK_S", 160)), 10)


@pytest.mark.slow
def test_two_hours(veneer_bin, base, server):
    _soak(veneer_bin, base, server, 6600, 30)
