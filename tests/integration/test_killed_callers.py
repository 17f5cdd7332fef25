# SPDX-License-Identifier: Apache-2.0
"""The server dies, and then the programs that wait for it."""
import os
import pathlib
import re
import subprocess

import pytest

from support import linux
from support.expect import write_at
from support.places import Place
from support.preload import with_flag
from support.server import wait_until
from test_killed_server_hard import LIMIT_S, preload  # noqa: F401, a fixture

_STEPPER = with_flag("VENEER_TEST_STEPS", r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD = 16, ENTRY = 128, ENTRY_AND_OPEN = 144, RESEND = 7 };

static _Thread_local int has_renamed;

int renameat2(int from, const char *old, int to, const char *name, unsigned flags)
{
	int (*next)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
	int r = next(from, old, to, name, flags);

	has_renamed |= flag && *flag == 'r' && r == 0 && strcmp(name, "name") == 0;
	return r;
}

/* To a request for a name that is made, or for a rename. */
static int is_awaited(const struct iovec *v, int n)
{
	uint64_t node = 0;

	if (*flag == 'r')
		return has_renamed && n == 1 && v[0].iov_len == HEAD;
	if (*flag != 'n' || n != 2 || (v[1].iov_len != ENTRY && v[1].iov_len != ENTRY_AND_OPEN))
		return 0;
	memcpy(&node, v[1].iov_base, sizeof(node));
	return node != 0;
}

/* Set-id bits are gone, and nobody knows. */
int fchmod(int fd, mode_t mode)
{
	int (*next)(int, mode_t) = dlsym(RTLD_NEXT, "fchmod");
	int r = next(fd, mode);

	if (flag && *flag == 's' && r == 0 && !(mode & 06000))
		for (*flag = 'd';;)
			pause();
	return r;
}

/* All is done but the answer. */
ssize_t writev(int fd, const struct iovec *v, int n)
{
	ssize_t (*next)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");

	if (flag && is_awaited(v, n))
		for (*flag = 'd';;)
			pause();
	return next(fd, v, n);
}

/* The kernel was asked to send it again, and nothing of that is read. */
ssize_t write(int fd, const void *data, size_t len)
{
	ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
	ssize_t r = next(fd, data, len);

	if (flag && *flag == 'w' && r == HEAD && ((const int32_t *)data)[1] == RESEND)
		for (*flag = 'a'; *flag == 'a';)
			usleep(1000);
	return r;
}
""")


@pytest.fixture
def steps(stack, preload, monkeypatch):
    """A file of one byte that steers the server. With n (or r), a thread that has made a name (or renamed something to "name")
    makes the byte a d and never answers. With s, a thread that has taken set-id bits away does the same. With w, the next
    server makes it an a when it has asked for the unanswered requests again, and goes on when that is taken away."""
    path = stack.base / "steps"
    path.write_bytes(b"-")
    monkeypatch.setenv("VENEER_TEST_STEPS", str(path))
    preload("stepper", _STEPPER)
    return path


_NAMES = {
    "mkdir": (b"n", ["mkdir", "name"]),
    "mknod": (b"n", ["mkfifo", "name"]),
    "create": (b"n", ["touch", "name"]),
    "symlink": (b"n", ["ln", "-s", "nowhere", "name"]),
    "link": (b"n", ["ln", "own", "name"]),
    "rename": (b"r", ["mv", "-T", "own", "name"]),
}


def _make(steps, m, step, command, **who):
    write_at(steps, step, 0)
    making = subprocess.Popen(command, cwd=m, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, **who)
    assert wait_until(lambda: steps.read_bytes() == b"d", LIMIT_S) and making.poll() is None
    return making


def _make_and_be_killed(steps, shared, m, step, command, **who):
    making = _make(steps, m, step, command, **who)
    write_at(steps, b"w", 0)
    shared.kill_server()
    assert wait_until(lambda: steps.read_bytes() == b"a" or making.poll() is not None, LIMIT_S)
    if steps.read_bytes() != b"a":
        pytest.skip("the kernel does not send again what a dead server had read")
    making.kill()
    making.wait(LIMIT_S)
    write_at(steps, b"-", 0)


@pytest.mark.parametrize("how", _NAMES)
def test_what_was_made_is_seen_though_nobody_waits_for_it(stack, steps, shared, how):
    stack.lower()
    m = Place(stack, "p").mount(stack, shared)
    (m / "own").write_bytes(b"own")
    assert sorted(os.listdir(m)) == ["own"] and os.stat(m / "own").st_nlink == 1 and not os.path.lexists(m / "name")
    _make_and_be_killed(steps, shared, m, *_NAMES[how])
    assert wait_until(lambda: os.path.lexists(m / "name"), LIMIT_S)
    assert sorted(os.listdir(m)) == (["name"] if how == "rename" else ["name", "own"])
    if how in ("link", "rename"):
        assert (m / "name").read_bytes() == b"own" and os.stat(m / "name").st_nlink == (2 if how == "link" else 1)


def test_it_is_seen_after_each_death(stack, steps, shared):
    stack.lower()
    m = Place(stack, "p").mount(stack, shared)
    for _ in range(3):
        assert not os.path.lexists(m / "name")
        _make_and_be_killed(steps, shared, m, *_NAMES["mkdir"])
        assert wait_until(lambda: os.path.lexists(m / "name"), LIMIT_S)
        os.rmdir(m / "name")
    (m / "name").mkdir()
    assert os.listdir(m) == ["name"]


_CHANGES = {
    "write": "printf x 1<> f",
    "append": "printf x >> f",
    "direct": "dd if=/dev/zero of=f bs=4k count=1 oflag=direct conv=notrunc status=none",
    "truncate": "truncate -s 10 f",
    "allocate": "fallocate -l 8192 f",
    "punch": "fallocate -p -l 4096 f",
}


@pytest.mark.needs_privileges("other users")
@pytest.mark.parametrize("io", ["", "io=cached", "io=direct"], ids=lambda io: io or "auto")
@pytest.mark.parametrize("is_killed", [False, True], ids=["resent", "left"])
def test_set_id_bits_that_went_before_a_death_are_gone_for_the_kernel(stack, steps, shared, io, is_killed):
    for name in _CHANGES:
        (stack.lower() / name).mkdir()
        (stack.lower() / name / "f").write_bytes(b"f" * 200_000)
        (stack.lower() / name / "f").chmod(0o6777)
    m = Place(stack, "p").mount(stack, shared, *([io] if io else []))
    writer = {"user": 2000, "group": 2000, "extra_groups": []}
    for name, command in _CHANGES.items():
        f = m / name / "f"
        os.utime(f, (1, 1))
        assert linux.cached_mode(f) == 0o6777
        # nothing ends the waiting of direct I/O on a file with pages
        if is_killed and name != "direct":
            _make_and_be_killed(steps, shared, m / name, b"s", ["sh", "-c", f"exec {command}"], **writer)
        else:
            making = _make(steps, m / name, b"s", ["sh", "-c", f"exec {command}"], **writer)
            write_at(steps, b"-", 0)
            shared.kill_server()
            assert making.wait(LIMIT_S) == 0
        assert wait_until(lambda: linux.cached_mode(f) == 0o777, LIMIT_S), name
        assert f.stat().st_mode & 0o7777 == 0o777


def test_no_process_beside_gets_what_requests_are_read_into(stack, shared):
    """What it had too would be there for neither to be written to, and a request that the kernel copies there while the
    server is killed is over, with EIO."""
    stack.lower()
    (Place(stack, "p").mount(stack, shared) / "f").write_bytes(b"own")
    maps = re.split(r"^(?=[0-9a-f]+-)", pathlib.Path(f"/proc/{shared.pid}/smaps").read_text(), flags=re.M)
    kept = [one for one in maps if re.search(r"^VmFlags:.* dc\b", one, re.M) and "rw-p" in one.split("\n", 1)[0]]
    assert sum(int(re.search(r"^Rss:\s+(\d+) kB", one, re.M)[1]) for one in kept) > 1024
