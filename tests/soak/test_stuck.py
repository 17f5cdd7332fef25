# SPDX-License-Identifier: Apache-2.0
"""Mounts whose ground is taken away: over their own lower, on a device that died, on a disk that is full. Programs
that work in them can be killed, and the mounts can be unmounted."""
import contextlib
import errno
import os
import pathlib
import subprocess
import sys

import pytest

from support import linux
from support.content import KIB, MIB, blob
from support.server import wait_until
from support.shared import child_of, wait_for_death

_PATIENCE_S = 120
_BUSY = r"""
import os, sys
top, n = sys.argv[1], 0
print("begun", flush=True)
while True:
    n += 1
    for what in (lambda: open(f"{top}/n{n % 50}", "wb").write(bytes(100000)), lambda: os.listdir(top),
                 lambda: open(f"{top}/f", "rb").read(), lambda: open(f"{top}/f", "r+b").write(b"x" * 9000),
                 lambda: os.unlink(f"{top}/n{(n + 25) % 50}"), lambda: os.sync() if n % 20 == 0 else None):
        try:
            what()
        except OSError:
            pass
"""


def _run(*command, **keywords):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=_PATIENCE_S,
                          **keywords)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def _mount(server, lower, upper, work, mnt):
    _run(server.program, "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", mnt,
         env={**os.environ, **server.environment})


@contextlib.contextmanager
def _busy(top):
    """Starts a program that works in the mount, and must be killable at any time."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY, str(top)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    try:
        yield process
    finally:
        process.kill()
        process.stdout.close()
        # the test that hangs here is the one that failed
        process.wait(_PATIENCE_S)


def _umount(mnt):
    """Unmounts without force; a killed program may still be letting go."""
    last = []

    def gone():
        last[:] = [subprocess.run(["umount", str(mnt)], capture_output=True, text=True, timeout=_PATIENCE_S)]
        return last[0].returncode == 0
    assert wait_until(gone, _PATIENCE_S, 0.1), last[0].stderr


def _ends(server):
    """The server lets go of its mounts, and ends when it is told to."""
    assert wait_until(lambda: server.count() == 0, _PATIENCE_S, 0.05)
    assert server.stop(_PATIENCE_S) == 0


def _ask(mnt, code):
    """In another process, which a test outlives."""
    process = subprocess.Popen([sys.executable, "-c", "import os, sys\nos.chdir(sys.argv[1])\n" + code, str(mnt)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()      # and not waited for: it may not be able to die
        raise
    return process.returncode, out.strip(), err


class Disk:
    """An ext4 on a file, of which pieces can be taken away."""

    def __init__(self, base, size):
        self.image, self.top = base / "image", base / "disk"
        self.top.mkdir()
        with open(self.image, "wb") as f:
            f.truncate(size)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        self.device = _run("losetup", "-f", "--show", self.image)
        try:
            _run("mount", "-t", "ext4", self.device, self.top)
        finally:
            # it goes with the mount
            _run("losetup", "-d", self.device)

    def die(self):
        """Nothing of it can be read or written any more, but what is in memory."""
        os.truncate(self.image, 0)


@pytest.fixture
def disk(base):
    made = []

    def make(size):
        made.append(Disk(base, size))
        return made[0].top
    make.made = made
    yield make
    for one in made:
        linux.umount(str(one.top), linux.MNT_DETACH)


def _directories(top, *names):
    for name in names:
        (top / name).mkdir()
    return [top / name for name in names]


# ---- over its own lower ----

@pytest.mark.parametrize("where", ["lower", "above"])
def test_a_mount_over_its_own_directories(base, server, where):
    top, = _directories(base, "top")
    lower, upper, work = _directories(top, "lower", "upper", "work")
    (lower / "d" / "d").mkdir(parents=True)
    (lower / "f").write_bytes(blob(MIB))
    mnt = {"lower": lower, "above": top}[where]
    _mount(server, lower, upper, work, mnt)
    with _busy(mnt):
        assert _ask(mnt, "print(len(open('f', 'rb').read()), sorted(os.listdir('.'))[:2])")[1] == f"{MIB} ['d', 'f']"
        assert _ask(mnt, "open('d/new', 'w').write('d'); print(sorted(os.listdir('d')))")[1] == "['d', 'new']"
        server.kill_server()
        assert _ask(mnt, "open('own', 'w').write('own'); print(open('own').read())")[1] == "own"
    _umount(mnt)
    _ends(server)
    assert (upper / "own").read_text() == "own"


def test_a_mount_over_its_own_lower_without_a_server(base, server):
    lower, upper, work = _directories(base, "lower", "upper", "work")
    (lower / "f").write_bytes(blob(MIB))
    _mount(server, lower, upper, work, lower)
    with _busy(lower):
        serving = child_of(server.process.pid)
        server.kill()
        wait_for_death(serving, _PATIENCE_S)
    assert _ask(lower, "os.listdir('.')")[0] != 0
    _umount(lower)
    assert (lower / "f").read_bytes() == blob(MIB)


# ---- a device that is no more ----

@pytest.mark.parametrize("what", ["upper", "lower"])
def test_a_device_that_dies(base, server, disk, what):
    top = disk(64 * MIB)
    good, = _directories(base, "good")
    lower, = _directories(top if what == "lower" else good, "lower")
    upper, work = _directories(top if what == "upper" else good, "upper", "work")
    mnt, = _directories(base, "mnt")
    for k in range(20):
        (lower / f"f{k}").write_bytes(blob(500 * KIB, k))
    (lower / "f").write_bytes(blob(MIB))
    os.sync()
    _mount(server, lower, upper, work, mnt)
    with _busy(mnt), _busy(mnt) as second:
        assert wait_until(lambda: (mnt / "n12").exists(), _PATIENCE_S)
        disk.made[0].die()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")
        # an answer comes, be it an error or what is in memory
        _ask(mnt, "for k in range(20):\n try: open(f'f{k}', 'rb').read()\n except OSError: pass")
        second.kill()
        second.wait(_PATIENCE_S)
        server.kill_server()
        # the mount itself may be lost: what it is made of cannot be read
        _ask(mnt, "os.listdir('.')")
    _umount(mnt)
    _ends(server)


# ---- a disk that is full ----

def test_a_full_disk(base, server, disk):
    top = disk(32 * MIB)
    lower, mnt = _directories(base, "lower", "mnt")
    upper, work = _directories(top, "upper", "work")
    (lower / "f").write_bytes(blob(MIB))
    (lower / "partial").write_bytes(blob(MIB))
    _mount(server, lower, upper, work, mnt)
    fill = f"""
import errno
try:
    with open("large", "wb", buffering=0) as f:
        while True:
            f.write(bytes(65536))
except OSError as e:
    print(e.errno == {errno.ENOSPC})
"""
    with _busy(mnt):
        assert _ask(mnt, fill)[1] == "True"
        server.kill_server()
        code = "print(len(open('partial', 'rb').read()), os.path.getsize('large') > 20 << 20)"
        assert _ask(mnt, code)[1] == f"{MIB} True"
    # what was refused has changed nothing, and there is room again once something goes
    assert _ask(mnt, "os.unlink('large')")[0] == 0
    assert _ask(mnt, "f = open('partial', 'r+b'); f.seek(5000); f.write(b'y'); f.close()")[0] == 0
    want = bytearray(blob(MIB))
    want[5000:5001] = b"y"
    assert (mnt / "partial").read_bytes() == want
    _umount(mnt)
    _ends(server)
