# SPDX-License-Identifier: Apache-2.0
"""The server dies, and then whoever waits for it."""
import os
import pathlib
import re
import subprocess

import pytest

from support.expect import write_at
from support.places import Place
from support.server import wait_until
from test_killed_server_hard import LIMIT_S, preload  # noqa: F401, a fixture

_STEPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD = 16, ENTRY = 128, ENTRY_AND_OPEN = 144, RESEND = 7 };

static volatile char *flag;

/* Before the server has a root of its own. */
__attribute__((constructor)) static void find(void)
{
	int fd = open(getenv("VENEER_TEST_STEPS"), O_RDWR | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		flag = p;
	if (fd >= 0)
		close(fd);
}

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
"""


@pytest.fixture
def steps(stack, preload, monkeypatch):  # noqa: F811
    """A file of one byte: with n, or r, whoever answers a request that makes a name, or renames something to "name", makes that
    a d and answers no more; with w, the next server makes that an a when it has asked again for what was not answered, and goes
    on when that is taken away."""
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


def _make_and_be_killed(steps, shared, m, step, command):  # noqa: F811
    write_at(steps, step, 0)
    making = subprocess.Popen(command, cwd=m, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    assert wait_until(lambda: steps.read_bytes() == b"d", LIMIT_S) and making.poll() is None
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


def test_no_process_beside_gets_what_requests_are_read_into(stack, shared):
    """What it had too would be there for neither to be written to, and a request that the kernel copies there while the
    server is killed is over, with EIO."""
    stack.lower()
    (Place(stack, "p").mount(stack, shared) / "f").write_bytes(b"own")
    maps = re.split(r"^(?=[0-9a-f]+-)", pathlib.Path(f"/proc/{shared.pid}/smaps").read_text(), flags=re.M)
    kept = [one for one in maps if re.search(r"^VmFlags:.* dc\b", one, re.M) and "rw-p" in one.split("\n", 1)[0]]
    assert sum(int(re.search(r"^Rss:\s+(\d+) kB", one, re.M)[1]) for one in kept) > 1024
