# SPDX-License-Identifier: Apache-2.0
"""The first open of a small lower file brings its pages along: reading it asks nothing more, and no old page comes over a
new one."""
import mmap
import os
import threading

import pytest

from support.content import blob
from support.counters import Gained
from support.expect import opened
from support.procfs import of_threads
from support.server import wait_until
from support.syscount import slow

SIZE = 64 * 1024
MANY = 600


@pytest.fixture
def passed_through(stack):
    """mount(files): a mount that passes files through, or the test is skipped."""
    def make(files):
        for name, content in files.items():
            (stack.lower() / name).write_bytes(content)
        stack.remember_lowers()
        stack.mount("cpu-latency=off")
        with Gained(stack.server) as gained:
            with opened(stack.mnt / "probe", os.O_CREAT | os.O_RDWR) as fd:
                os.write(fd, b"x")
        if not gained["PASSTHROUGH OPENS"]:
            pytest.skip("this mount passes no file through")
        return stack.mnt
    return make


def test_a_small_file_is_read_without_another_request(passed_through, stack):
    sizes = [1, 100, 4095, 4096, 4097, 20_000, SIZE]
    mnt = passed_through({f"f{n}": blob(n, n) for n in sizes})
    os.listdir(mnt)
    with Gained(stack.server) as gained:
        for n in sizes:
            with opened(mnt / f"f{n}", os.O_RDONLY) as fd:
                assert os.read(fd, SIZE + 1) == blob(n, n)
                assert os.fstat(fd).st_size == n
                with mmap.mmap(fd, n, prot=mmap.PROT_READ) as mapped:
                    assert mapped[:] == blob(n, n)
    assert gained["FILLED OPENS"] == len(sizes) and gained["REQUESTS READ"] == 0
    assert gained["REQUESTS OPEN"] == len(sizes)


def test_what_is_larger_or_empty_is_not_filled(passed_through, stack):
    mnt = passed_through({"large": blob(SIZE + 1, 1), "empty": b""})
    with Gained(stack.server) as gained:
        assert (mnt / "large").read_bytes() == blob(SIZE + 1, 1)
        assert (mnt / "empty").read_bytes() == b""
    assert gained["FILLED OPENS"] == 0


def test_it_is_filled_once(passed_through, stack):
    mnt = passed_through({"f": blob(5000, 1)})
    with Gained(stack.server) as gained:
        for _ in range(5):
            assert (mnt / "f").read_bytes() == blob(5000, 1)
    assert gained["FILLED OPENS"] == 1


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_DIRECT], ids=["write", "read and write", "direct"])
def test_other_opens_are_not_filled(passed_through, stack, flags):
    mnt = passed_through({"f": blob(5000, 1)})
    with Gained(stack.server) as gained, opened(mnt / "f", flags):
        pass
    assert gained["FILLED OPENS"] == 0


def test_a_file_that_is_open_for_writing_is_not_filled(passed_through, stack):
    mnt = passed_through({"f": blob(5000, 1)})
    with Gained(stack.server) as gained, opened(mnt / "f", os.O_RDWR) as writer:
        os.pwrite(writer, b"new", 100)
        with opened(mnt / "f", os.O_RDONLY) as reader:
            assert os.pread(reader, 3, 100) == b"new"
    assert gained["FILLED OPENS"] == 0


def calls_of(pid):
    """The system calls in which threads of a process are."""
    pread64 = {"x86_64": "17", "aarch64": "67"}[os.uname().machine]
    return {"pread64" for text in of_threads(pid, "syscall").values() if text.split()[:1] == [pread64]}


def race(names, *acts):
    """Each act of its own thread, on one name after the other, at once."""
    at_once, failures = threading.Barrier(len(acts)), []

    def run(act):
        for k, name in enumerate(names):
            at_once.wait()
            try:
                act(k, name)
            except Exception as e:  # pylint: disable=broad-except
                failures.append(e)
    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def read(_, path):
    path.read_bytes()


def test_no_page_comes_over_one_that_was_written(passed_through, stack):
    names = [f"f{k}" for k in range(MANY)]
    mnt = passed_through({name: blob(SIZE, k) for k, name in enumerate(names)})
    os.listdir(mnt)
    seen = []

    def write(k, path):
        with opened(path, os.O_RDWR) as fd:
            os.pwrite(fd, b"new" * 100, k * 100)
            seen.append(os.pread(fd, 300, k * 100))

    race([mnt / name for name in names], read, write)
    assert set(seen) == {b"new" * 100}
    for k, name in enumerate(names):
        want = bytearray(blob(SIZE, k))
        want[k * 100:k * 100 + 300] = b"new" * 100
        assert (mnt / name).read_bytes() == want
    # as the upper has it, past the pages
    stack.remount("cpu-latency=off")
    for k, name in enumerate(names):
        assert (mnt / name).read_bytes()[k * 100:k * 100 + 300] == b"new" * 100


def test_no_page_comes_back_that_was_cut(passed_through):
    names = [f"f{k}" for k in range(MANY)]
    mnt = passed_through({name: blob(SIZE, k) for k, name in enumerate(names)})
    os.listdir(mnt)
    race([mnt / name for name in names], read, lambda k, path: os.truncate(path, k))
    for k, name in enumerate(names):
        assert os.stat(mnt / name).st_size == k
        assert (mnt / name).read_bytes() == blob(SIZE, k)[:k]


def write_start(path):
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"new", 0)


@pytest.mark.parametrize("change, want", [(lambda path: os.truncate(path, 10), blob(SIZE, 1)[:10]),
                                          (write_start, b"new" + blob(SIZE, 1)[3:])], ids=["truncate", "write"])
def test_a_change_waits_for_the_pages_that_are_under_way(passed_through, stack, change, want):
    mnt = passed_through({"f": blob(SIZE, 1)})
    os.listdir(mnt)
    with slow(stack.server.pid, "pread64", 1):
        reader = threading.Thread(target=read, args=(0, mnt / "f"))
        reader.start()
        assert wait_until(lambda: "pread64" in calls_of(stack.server.pid))
        change(mnt / "f")
        reader.join()
    assert os.stat(mnt / "f").st_size == len(want)
    assert (mnt / "f").read_bytes() == want


def test_many_readers_at_once_see_the_file(passed_through):
    names = [f"f{k}" for k in range(MANY)]
    mnt = passed_through({name: blob(20_000, k) for k, name in enumerate(names)})

    def check(k, path):
        assert path.read_bytes() == blob(20_000, k)
    race([mnt / name for name in names], check, check, check, check)
