# SPDX-License-Identifier: Apache-2.0
"""The server dies, or is about to, while a mount is asked for."""
import fcntl
import os

import pytest

from support import linux
from support.content import MIB, blob
from support.expect import opened, write_at
from support.places import Place
from support.preload import with_flag
from support.server import wait_until
from test_killed_server_hard import LIMIT_S, preload  # noqa: F401, a fixture


_OPENING = with_flag("VENEER_TEST_OPENING", r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The server dies when it makes its own directory in a work directory with a file DIE in it. */
int mkdirat(int dir, const char *name, mode_t mode)
{
	int (*next)(int, const char *, mode_t) = dlsym(RTLD_NEXT, "mkdirat");

	if (flag && flag[1] && syscall(SYS_faccessat, dir, "../DIE", F_OK) == 0) {
		if (flag[1] < 255)
			flag[1]--;
		if (flag[0] == 'k')
			raise(SIGKILL);
		*(volatile int *)8 = 1;
	}
	return next(dir, name, mode);
}
""")


@pytest.fixture
def opening(stack, preload, monkeypatch):
    """A file of two bytes: how a server dies when it opens a mount (k for SIGKILL), and how often (255 for always)."""
    path = stack.base / "opening"
    path.write_bytes(b"-\0")
    monkeypatch.setenv("VENEER_TEST_OPENING", str(path))
    preload("opening", _OPENING)
    return path


def test_a_mount_is_asked_for_again_as_often_as_its_server_is_killed(stack, opening, shared):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    first = Place(stack, "p").mount(stack, shared)
    unlucky = Place(stack, "q")
    (unlucky.work / "DIE").touch()
    write_at(opening, b"k\6", 0)
    m = unlucky.mount(stack, shared)
    assert opening.read_bytes() == b"k\0" and shared.log.count("the server died of signal 9") == 6
    assert wait_until(lambda: shared.count() == 2, LIMIT_S)
    shared.watch()
    shared.kill_server()
    for point in (first, m):
        (point / "own").write_bytes(b"own")
        assert (point / "own").read_bytes() == b"own" and (point / "f").read_bytes() == b"f"


def test_what_crashes_whoever_opens_it_ends_no_other_mount(stack, opening, shared):
    """However often it is asked for: more often than a server that crashes of itself is started again."""
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared)
    bad = Place(stack, "q")
    (bad.work / "DIE").touch()
    write_at(opening, b"f\xff", 0)
    for _ in range(5):
        assert bad.run(stack, shared).returncode == 1
    assert shared.log.count("the server died") > 12 and "giving up" not in shared.log
    (m / "own").write_bytes(b"own")
    assert (m / "own").read_bytes() == b"own" and (m / "f").read_bytes() == b"f"
    assert wait_until(lambda: shared.count() == 1, LIMIT_S)
    shared.watch()


_HANDING = with_flag("VENEER_TEST_HANDING", r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The last that is made for a mount before it is served, when it is kept already. */
int mkfifoat(int dir, const char *name, mode_t mode)
{
	int (*next)(int, const char *, mode_t) = dlsym(RTLD_NEXT, "mkfifoat");

	if (flag && flag[0] == 'k') {
		flag[0] = '-';
		raise(SIGKILL);
	}
	return next(dir, name, mode);
}

/* The lock of a closed mount is given back a second late: a server that does not wait for that has the upper, too. */
int flock(int fd, int how)
{
	int (*next)(int, int) = dlsym(RTLD_NEXT, "flock");

	for (int k = 0; k < 100 && how == LOCK_UN && flag && flag[1] == 'h'; k++)
		usleep(10000);
	return next(fd, how);
}

/* Then it syncs. */
int syncfs(int fd)
{
	int (*next)(int) = dlsym(RTLD_NEXT, "syncfs");

	if (flag && flag[1] == 'h')
		flag[1] = 'H';
	while (flag && flag[1] == 'H')
		usleep(10000);
	return next(fd);
}
""")


@pytest.fixture
def handing(stack, preload, monkeypatch):
    """A file: with a k, the next process that hands over a saved mount is killed; with an h behind it, a server that closes a
    mount waits, and makes that an H when it has given the lock back."""
    path = stack.base / "handing"
    path.write_bytes(b"--")
    monkeypatch.setenv("VENEER_TEST_HANDING", str(path))
    preload("handing", _HANDING)
    return path


def test_a_mount_that_is_asked_for_again_does_not_share_the_lock_of_the_first(stack, handing, shared):
    """The next server has the first one too, and closes it while the second is there."""
    (stack.lower() / "f").write_bytes(blob(MIB))
    stack.remember_lowers()
    place = Place(stack, "p")
    m = place.mount(stack, shared)
    # so that there is a map, which is marked when it is closed
    write_at(m / "f", b"x", 5000)
    linux.umount(m)
    assert wait_until(lambda: shared.count() == 0, LIMIT_S)
    write_at(handing, b"kh", 0)
    try:
        result = place.run(stack, shared)
        # The first server's end may take a while, which is said.
        assert result.returncode == 0 and all("waiting for its end" in line for line in result.stderr.splitlines()), result
        assert wait_until(lambda: handing.read_bytes() == b"-H", LIMIT_S)
        with opened(place.upper, os.O_RDONLY) as fd, pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        write_at(handing, b"-", 1)
    assert wait_until(lambda: shared.count() == 1, LIMIT_S)
    shared.watch()
    write_at(m / "f", b"y", 500_000)
    assert (m / "f").read_bytes()[4999:5002] == blob(MIB)[4999:5000] + b"x" + blob(MIB)[5001:5002]
