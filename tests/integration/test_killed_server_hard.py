# SPDX-License-Identifier: Apache-2.0
"""The server dies, and what comes after it does not have it easy."""
import collections
import concurrent.futures
import contextlib
import errno
import fcntl
import mmap
import os
import subprocess
import threading

import pytest

from support import linux
from support.command import mount_points
from support.content import BLOCK, MIB, blob
from support.expect import fails_with, opened, write_at
from support.killer import Killer
from support.places import Place
from support.preload import with_flag
from support.procfs import is_at_rest, is_blocked
from support.remote import Remote
from support.server import wait_until
from support.shared import kill
from test_upgrade import upgrade

LIMIT_S = 90


@pytest.fixture
def preload(stack, monkeypatch):
    """preload(name, source in C): into all that is started from now on."""
    with open(stack.program, "rb") as f:
        program = f.read()
    if b"__asan_init" in program or b"__tsan_init" in program:
        pytest.skip("the sanitizer must be loaded before all others, and takes crashes itself")

    def load(name, text):
        source, library = stack.base / f"{name}.c", stack.base / f"{name}.so"
        source.write_text(text)
        subprocess.run(["cc", "-w", "-O0", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        monkeypatch.setenv("LD_PRELOAD", f"{os.environ.get('LD_PRELOAD', '')} {library}".strip())
    return load


_HANGER = with_flag("VENEER_TEST_HANG", r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Where what is written begins so, and the flag says so: once, until it says something else. */
static void hang(const struct iovec *v, int n)
{
	for (int i = 0; flag && *flag == '1' && i < n; i++)
		if (v[i].iov_len >= 4 && !memcmp(v[i].iov_base, "HANG", 4))
			for (*flag = '2'; *flag == '2';)
				usleep(10000);
}

#define WRITER(call) \
	ssize_t call(int fd, const void *data, size_t len, off_t off) \
	{ \
		ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, #call); \
	\
		hang(&(struct iovec){ (void *)data, len }, 1); \
		return next(fd, data, len, off); \
	}

#define VECTOR_WRITER(call) \
	ssize_t call(int fd, const struct iovec *v, int n, off_t off) \
	{ \
		ssize_t (*next)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, #call); \
	\
		hang(v, n); \
		return next(fd, v, n, off); \
	}

/* A look at the root of a layer with a file HANG waits here. */
static void hang_below(int dir)
{
	while (flag && *flag == '3' && syscall(SYS_faccessat, dir, "HANG", F_OK) == 0)
		usleep(10000);
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
	int (*next)(int, const char *, int, unsigned, struct statx *) = dlsym(RTLD_NEXT, "statx");

	if (!*path && !(flags & AT_STATX_DONT_SYNC))
		hang_below(fd);
	return next(fd, path, flags, mask, st);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
	int r = syscall(SYS_clock_gettime, id, now);

	if (flag && id == CLOCK_MONOTONIC)
		now->tv_sec += (flag[1] - '0') * 60;
	return r;
}

WRITER(pwrite)
WRITER(pwrite64)
VECTOR_WRITER(pwritev)
VECTOR_WRITER(pwritev64)
""")


@pytest.fixture
def hang(stack, preload, monkeypatch):
    """A file: while it has a 1 in it, a thread that writes bytes beginning with HANG makes that a 2, and hangs as long as it is
    one; while it has a 3, a thread that opens a layer with a file HANG in it hangs. The second byte says how many minutes the
    clock is ahead."""
    path = stack.base / "hang"
    path.write_bytes(b"00")
    monkeypatch.setenv("VENEER_TEST_HANG", str(path))
    preload("hanger", _HANGER)
    return path


# ---- a file system below that does not answer ----

@pytest.mark.parametrize("deaths", [1, 2])
def test_a_lower_that_hangs_holds_up_only_its_own_mount(stack, hang, shared, deaths):
    for k in range(2):
        (stack.lower(k) / "f").write_bytes(blob(MIB))
    (stack.lower(1) / "HANG").touch()
    stack.remember_lowers()
    places = [Place(stack, f"p{k}", [stack.lower(int(k in (0, 3)))]) for k in range(6)]
    mounts = [place.mount(stack, shared) for place in places]
    before = len(shared.log)
    write_at(hang, b"3", 0)
    for _ in range(deaths):
        shared.kill_server()
        for k in (1, 2, 4, 5):
            (mounts[k] / "own").write_bytes(b"%d" % k)
            assert (mounts[k] / "own").read_bytes() == b"%d" % k and (mounts[k] / "f").read_bytes() == blob(MIB)
    # the others hang: nobody has said that all is done
    assert "going on with" not in shared.log[before:]
    assert shared.count() == 6
    waiting = subprocess.Popen(["cat", mounts[0] / "f"], stdout=subprocess.PIPE)
    write_at(hang, b"0", 0)
    assert waiting.communicate(timeout=LIMIT_S)[0] == blob(MIB)
    assert wait_until(lambda: "going on with 6 mounts" in shared.log[before:], LIMIT_S)
    assert (mounts[3] / "f").read_bytes() == blob(MIB)


# ---- a file system below without room ----

def _is_unlinked(path):
    try:
        os.unlink(path)
    except OSError as e:
        assert e.errno == errno.ENOSPC
        return False
    return True


def test_a_full_disk_takes_no_mount_and_changes_no_form(stack, shared):
    """The next server has to find a place for what is not ready, and what can be done there, without a single inode."""
    for name in "fg":
        (stack.lower() / name).write_bytes(b"old")
    stack.remember_lowers()
    small, place = stack.base / "small", Place(stack, "p")
    small.mkdir()
    linux.mount("tmpfs", small, "tmpfs", 0, "size=4m,nr_inodes=64,mode=0755")
    place.upper, place.work = small / "upper", small / "work"
    for path in (place.upper, place.work):
        path.mkdir()
    try:
        m = place.mount(stack, shared)
        os.unlink(m / "g")
        with fails_with(errno.ENOSPC):
            for k in range(1000):
                (m / f"n{k}").touch()
        shared.kill_server()
        assert (m / "f").read_bytes() == b"old" and (m / "n0").read_bytes() == b"" and not (m / "g").exists()
        for k in range(3):
            os.unlink(m / f"n{k}")
        # what was unlinked gives its room back a moment later
        assert wait_until(lambda: _is_unlinked(m / "f"), LIMIT_S)
        assert os.path.lexists(place.upper / "f") == os.path.lexists(place.upper / "g")
        assert os.path.lexists(place.upper / ".wh.f") == os.path.lexists(place.upper / ".wh.g")
        linux.umount(m)
        assert wait_until(lambda: shared.count() == 0, LIMIT_S)
    finally:
        with contextlib.suppress(OSError):
            linux.umount(place.mnt, linux.MNT_DETACH)
        linux.umount(small, linux.MNT_DETACH)


# ---- others have taken all threads ----

_STARVER = with_flag("VENEER_TEST_STARVE", r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
	const int is_first = syscall(SYS_gettid) == getpid();

	/* 1: nobody gets one; 2: what takes care of a mount gets none, which asks for nothing special */
	if (flag && (*flag == '1' || (*flag == '2' && !attr && !is_first))) {
		__sync_fetch_and_add(&flag[1], 1);
		return EAGAIN;
	}
	return next(t, attr, run, arg);
}
""")


@pytest.fixture
def starve(stack, preload, monkeypatch):
    """A file: with a 1 in it no thread can be made, with a 2 none that takes care of a mount. The second byte counts
    the refusals."""
    path = stack.base / "starve"
    path.write_bytes(b"0\0")
    monkeypatch.setenv("VENEER_TEST_STARVE", str(path))
    preload("starver", _STARVER)
    return path


@pytest.mark.parametrize("how", [b"1", b"2"])
def test_where_no_threads_are_to_be_had_mounts_wait_for_them(stack, starve, shared, how):
    """However often a server finds none: more often than one that dies of itself is started again."""
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    mounts = [Place(stack, f"p{k}").mount(stack, shared) for k in range(3)]
    for k, m in enumerate(mounts):
        (m / "own").write_bytes(b"%d" % k)
    write_at(starve, how, 0)
    kill(shared.pid)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit((mounts[0] / "new").write_bytes, b"new")
        try:
            assert wait_until(lambda: starve.read_bytes()[1] >= 14, LIMIT_S)
            assert not writing.done()
        finally:
            write_at(starve, b"0", 0)
        assert writing.result(LIMIT_S) == 3
    for k, m in enumerate(mounts):
        (m / "new").write_bytes(b"new")
        assert (m / "own").read_bytes() == b"%d" % k and (m / "f").read_bytes() == b"f"
    assert wait_until(lambda: shared.count() == 3, LIMIT_S)
    shared.watch()
    assert "is lost" not in shared.log
    assert shared.log.count("for want of threads") == (how == b"1")


# ---- a mount of which nothing could be kept ----

_FORGETTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int memfd_create(const char *name, unsigned flags)
{
	int (*next)(const char *, unsigned) = dlsym(RTLD_NEXT, "memfd_create");

	if (strcmp(name, "veneer-mount") == 0) {
		errno = ENOMEM;
		return -1;
	}
	return next(name, flags);
}
"""


@pytest.fixture
def forgetter(preload):
    """Servers started from now on keep no mount for the next one."""
    preload("forgetter", _FORGETTER)


def test_what_the_next_server_would_not_have_stands_in_the_way_of_an_upgrade(stack, forgetter, shared):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared)
    assert "cannot save this mount for the next server" in shared.log
    pid = shared.pid
    result = upgrade(shared)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1 and "cannot be handed over" in result.stderr
    assert shared.pid == pid and (m / "f").read_bytes() == b"f"
    (m / "own").write_bytes(b"own")
    assert (m / "own").read_bytes() == b"own"


# ---- a kernel that does not send again what was under way ----

CUT_OFF = (errno.ECONNABORTED, errno.EIO)


@pytest.fixture
def no_resend(monkeypatch):
    """Of servers started from now on."""
    monkeypatch.setenv("VENEER_NO_RESEND", "1")


def test_whoever_waits_for_a_dead_server_is_told_where_nothing_is_sent_again(stack, hang, no_resend, shared):
    stack.lower()
    m = Place(stack, "p").mount(stack, shared, "io=cached")
    other = Place(stack, "q").mount(stack, shared)
    failures = []

    def write(path):
        try:
            path.write_bytes(b"HANG")
        except OSError as e:
            failures.append(e.errno)
    for k in range(3):
        write_at(hang, b"1", 0)
        writer = threading.Thread(target=write, args=[m / f"f{k}"], daemon=True)
        writer.start()
        assert wait_until(lambda: hang.read_bytes()[:1] == b"2", LIMIT_S)
        shared.kill_server()
        writer.join(LIMIT_S)
        assert failures == [errno.ECONNABORTED] * (k + 1)
        (other / "own").write_bytes(b"%d" % k)
        (m / f"f{k}").write_bytes(b"written")
        assert (m / f"f{k}").read_bytes() == b"written"


class Careless(threading.Thread):
    """Changes names and bytes, and goes on where that fails; the failures are counted by errno."""

    def __init__(self, top):
        super().__init__(daemon=True)
        self.top, self.end, self.steps, self.failures = top, threading.Event(), 0, collections.Counter()

    def attempt(self, call, *arguments):
        try:
            return call(*arguments)
        except OSError as e:
            self.failures[e.errno] += 1
            return None

    def run(self):
        while not self.end.is_set():
            d, f, g = self.names(self.steps)
            self.steps += 1
            self.attempt(os.mkdir, d)
            fd = self.attempt(os.open, f, os.O_CREAT | os.O_RDWR)
            if fd is not None:
                self.attempt(os.write, fd, b"x" * 5000)
                self.attempt(os.fchmod, fd, 0o640)
                self.attempt(os.close, fd)
            self.attempt(os.rename, f, g)
            self.attempt(os.unlink, g)
            self.attempt(os.rmdir, d)

    def names(self, step):
        return [self.top / f"{step}{end}" for end in "dfg"]


def differences(mount, upper, names):
    """Differences between the mount and its upper."""
    there = set(os.listdir(upper))
    found = [name for name in names if os.path.lexists(mount / name) != (name in there)]
    for name in there.intersection(names).difference(found):
        seen, true = os.stat(mount / name), os.stat(upper / name)
        if (seen.st_size, seen.st_mode) != (true.st_size, true.st_mode) and (mount / name).is_file():
            found.append((name, seen, true))
    return found


def test_only_what_was_under_way_fails_where_nothing_is_sent_again(stack, no_resend, shared):
    stack.lower()
    stack.remember_lowers()
    places = [Place(stack, f"p{k}") for k in range(3)]
    for place, options in zip(places, ([], ["io=cached"], ["io=direct"])):
        place.mount(stack, shared, *options)
    workers = [Careless(place.mnt) for place in places]
    for worker in workers:
        worker.start()
    with Killer(shared, 0.15) as killer:
        assert wait_until(lambda: killer.kills >= 40, 300, 0.05)
    for worker in workers:
        worker.end.set()
        worker.join(LIMIT_S)
        assert not worker.is_alive(), "it hangs"
    failures = sum((worker.failures for worker in workers), collections.Counter())
    # ENOENT: what did not come to be, or is not there any more, cannot be renamed or removed
    assert set(failures) <= {*CUT_OFF, errno.ENOENT}, failures
    # each request of a worker that a death met, and what that worker had then to do without
    assert sum(failures.values()) <= 5 * len(workers) * killer.kills, failures
    for worker, place in zip(workers, places):
        names = [path.name for step in range(worker.steps) for path in worker.names(step)]
        assert differences(place.mnt, place.upper, names) == []
    assert shared.count() == 3


# ---- a request that crashes the server ----

_CRASHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int fill(volatile char *above)
{
	volatile char room[4096];

	room[0] = above[0];
	return fill(room) + room[0];
}

/* The name says how. */
static void crash(const char *name)
{
	if (strcmp(name, "user.fault") == 0)
		*(volatile int *)8 = 1;
	if (strcmp(name, "user.abort") == 0)
		abort();
	if (strcmp(name, "user.stack") == 0)
		fill("x");
	if (strcmp(name, "user.kill") == 0)
		raise(SIGKILL);
}

#define ATTRIBUTE_SETTER(call, type) \
	int call(type at, const char *name, const void *value, size_t size, int flags) \
	{ \
		int (*next)(type, const char *, const void *, size_t, int) = dlsym(RTLD_NEXT, #call); \
	\
		crash(name); \
		return next(at, name, value, size, flags); \
	}

ATTRIBUTE_SETTER(setxattr, const char *)
ATTRIBUTE_SETTER(lsetxattr, const char *)
ATTRIBUTE_SETTER(fsetxattr, int)
"""


@pytest.fixture
def crasher(preload):
    """In servers started from now on, setting an attribute of a certain name is a crash."""
    preload("crasher", _CRASHER)


class Careful(threading.Thread):
    """Changes a file and looks whether it has changed; the first failure ends it."""

    def __init__(self, top):
        super().__init__(daemon=True)
        self.top, self.end, self.steps, self.error = top, threading.Event(), 0, None

    def run(self):
        try:
            while not self.end.is_set():
                content = b"%d" % self.steps
                (self.top / "own").write_bytes(content)
                os.rename(self.top / "own", self.top / "renamed")
                assert (self.top / "renamed").read_bytes() == content
                self.steps += 1
        except BaseException as e:
            self.error = e


@pytest.fixture
def far(stack, shared):
    """The stack's lower directory is a file system that can hang."""
    source = stack.base / "far"
    (source / "d").mkdir(parents=True)
    remote = Remote(source, stack.lower())
    remote.knobs.entry_valid_s = remote.knobs.attr_valid_s = 0
    yield remote
    remote.knobs.is_hanging = 0
    for point in reversed(mount_points(stack.base)):
        if point != str(stack.lower()):
            linux.umount(point, linux.MNT_DETACH)
    remote.close()


def test_a_crash_is_counted_though_another_layer_hangs(stack, crasher, shared, far):
    """The crashed server does not end before that layer answers: nobody learns how it has ended."""
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    near = Place(stack, "near-by", lowers=[stack.base / "near"]).mount(stack, shared)
    mnt = Place(stack, "far-off").mount(stack, shared)
    with far.trouble("d", is_hanging=1):
        asking = subprocess.Popen(["ls", str(mnt / "d")], stdout=subprocess.DEVNULL)
        assert wait_until(far.is_holding)
        with fails_with(errno.ENOTCONN, errno.ECONNABORTED):
            os.setxattr(near / "file", "user.fault", b"x")
        assert asking.poll() is None
    assert asking.wait(LIMIT_S) == 0
    assert f"{near}: 3 servers crashed" in shared.log and shared.log.count("the server died") == 3


@pytest.mark.parametrize("how", ["fault", "abort", "stack"])
def test_a_mount_that_crashes_its_server_is_given_up_and_no_other(stack, crasher, shared, how):
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    places = [Place(stack, f"p{k}") for k in range(4)]
    mounts = [place.mount(stack, shared) for place in places]
    workers = [Careful(m) for m in mounts[1:]]
    for worker in workers:
        worker.start()
    with pytest.raises(OSError) as failure:
        os.setxattr(mounts[0] / "f", f"user.{how}", b"x")
    assert failure.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    with fails_with(errno.ENOTCONN):
        os.listdir(mounts[0])
    steps = [worker.steps for worker in workers]
    assert wait_until(lambda: all(w.steps > n or w.error for w, n in zip(workers, steps)), LIMIT_S)
    for worker in workers:
        worker.end.set()
        worker.join(LIMIT_S)
        assert not worker.is_alive() and worker.error is None, worker.error
    assert shared.log.count("it is given up") == 1 and f"{mounts[0]}: 3 servers crashed" in shared.log
    assert shared.log.count("the server died") == 3
    assert wait_until(lambda: shared.count() == 3, LIMIT_S)
    linux.umount(mounts[0])
    places[0].mount(stack, shared)
    os.setxattr(mounts[0] / "f", "user.other", b"x")
    assert (mounts[0] / "f").read_bytes() == b"f"


_LOCK_CRASHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

/* The server crashes when it reads the system call of a program that asks for a lock. */
#define OPENER(call) \
	int call(const char *path, int flags, ...) \
	{ \
		int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #call); \
		va_list more; \
		int mode; \
		char l; \
	\
		va_start(more, flags); \
		mode = va_arg(more, int); \
		va_end(more); \
		if (sscanf(path, "/proc/%*d/syscal%c", &l) == 1) \
			*(volatile int *)8 = 1; \
		return next(path, flags, mode); \
	}

OPENER(open)
OPENER(open64)
"""


@pytest.fixture
def lock_crasher(preload):
    """In servers started from now on, finding out the owner of a lock is a crash."""
    preload("crasher", _LOCK_CRASHER)


@pytest.mark.needs_privileges("share=pages takes CAP_SYS_ADMIN in the user namespace")
def test_what_crashes_whoever_sorts_requests_takes_no_mount_of_its_own(stack, lock_crasher, shared):
    """A lock of a file that several mounts have in common: it is not known whose it is yet."""
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    a, b = (Place(stack, f"p{k}").mount(stack, shared, "share=pages") for k in range(2))
    separate = Place(stack, "separate").mount(stack, shared)
    assert a.stat().st_dev == b.stat().st_dev
    fd = os.open(a / "f", os.O_RDONLY)
    with fails_with(errno.ENOTCONN, errno.ECONNABORTED):
        fcntl.flock(fd, fcntl.LOCK_EX)
    with contextlib.suppress(OSError):
        os.close(fd)
    (separate / "own").write_bytes(b"own")
    assert (separate / "own").read_bytes() == b"own"
    with fails_with(errno.ENOTCONN):
        os.listdir(b)
    assert shared.log.count("the server died") == 3
    assert wait_until(lambda: shared.count() == 1, LIMIT_S)


def test_who_was_told_to_look_again_may_do_so_much_later(stack, hang, shared):
    """The mount that the file is then looked up in takes longer to open again than such a note is good for."""
    (stack.lower() / "f").write_bytes(b"f")
    stack.remember_lowers()
    a, b = (Place(stack, f"p{k}") for k in range(2))
    point, other = (place.mount(stack, shared, "share=pages") for place in (a, b))
    (point / "HANG").touch()
    assert (point / "f").read_bytes() == (other / "f").read_bytes() == b"f"
    write_at(hang, b"3", 0)
    shared.kill_server()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writer = pool.submit(threading.get_native_id).result()
        writing = pool.submit((point / "f").write_bytes, b"written")
        assert wait_until(lambda: is_blocked(writer) and is_at_rest(shared.pid))
        assert not writing.done()
        write_at(hang, b"2", 1)
        write_at(hang, b"0", 0)
        assert writing.result(LIMIT_S) == 7
        write_at(hang, b"0", 1)
    assert (point / "f").read_bytes() == b"written" and (other / "f").read_bytes() == b"f"


# ---- a message to the kernel that waits for the server ----

def test_a_server_dies_while_it_waits_for_what_only_it_can_answer(stack, hang, shared):
    (stack.lower() / "f").write_bytes(blob(MIB))
    stack.remember_lowers()
    m = Place(stack, "p").mount(stack, shared, "io=cached")
    other = Place(stack, "q").mount(stack, shared)
    os.truncate(m / "f", 2 * MIB)
    with opened(m / "f", os.O_RDWR) as fd, mmap.mmap(fd, 2 * MIB) as pages:
        # in a hole, by a mapping: to say where data is, the server has the kernel write this first
        pages[MIB + BLOCK:MIB + BLOCK + 4] = b"HANG"
        write_at(hang, b"1", 0)
        seeker = threading.Thread(target=lambda: found.append(os.lseek(fd, MIB, os.SEEK_DATA)), daemon=True)
        found = []
        seeker.start()
        has_hung = wait_until(lambda: hang.read_bytes()[:1] == b"2", LIMIT_S)
        if not has_hung:
            # Otherwise the end of the mapping waits for that write for ever.
            write_at(hang, b"0", 0)
        assert has_hung
        shared.kill_server()
        seeker.join(LIMIT_S)
        assert found == [MIB + BLOCK]
        assert "died but for what waits" in shared.log
        (other / "own").write_bytes(b"own")
        assert (other / "own").read_bytes() == b"own"
    assert shared.count() == 2
