# SPDX-License-Identifier: Apache-2.0
import os
import random
import threading

import pytest

from support.child import in_children
from support.content import BLOCK, MIB, blob
from support.expect import names_in, opened, write_at

_WORKERS = 8


def in_threads(function):
    """function(number) in eight threads at once; every one must succeed."""
    failures, gate = [], threading.Barrier(_WORKERS)

    def run(number):
        try:
            gate.wait()
            function(number)
        except BaseException as e:
            failures.append(e)
    threads = [threading.Thread(target=run, args=(n,)) for n in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def in_processes(function):
    in_children([lambda n=n: function(n) for n in range(_WORKERS)])


everywhere = pytest.mark.parametrize("run", [in_threads, in_processes],
                                     ids=["threads", "processes"])


@everywhere
@pytest.mark.parametrize("size", [10_000, 2 * MIB])
def test_first_write_to_one_file_by_all(stack, run, size):
    want = bytearray(blob(size))
    for i in range(10):
        (stack.lower() / f"f{i}").write_bytes(want)
    m = stack.mount()
    step = size // _WORKERS

    def write(number):
        for i in range(10):
            write_at(m / f"f{i}", b"%04d" % number * 100, number * step)
    run(write)
    for number in range(_WORKERS):
        want[number * step:number * step + 400] = b"%04d" % number * 100
    for _ in range(2):
        for i in range(10):
            assert (m / f"f{i}").read_bytes() == want, i
        m = stack.remount()


@everywhere
def test_neighbouring_parts_of_the_same_blocks(stack, run):
    """Each block is first written in eight pieces by eight writers at once."""
    size = 200 * BLOCK
    (stack.lower() / "f").write_bytes(bytes(size))
    m = stack.mount()
    piece = BLOCK // _WORKERS

    def write(number):
        with opened(m / "f", os.O_RDWR) as fd:
            for block in range(200):
                os.pwrite(fd, bytes([number + 1]) * piece, block * BLOCK + number * piece)
    run(write)
    pattern = b"".join(bytes([n + 1]) * piece for n in range(_WORKERS))
    assert (m / "f").read_bytes() == pattern * 200
    assert (stack.remount() / "f").read_bytes() == pattern * 200


@everywhere
def test_readers_see_old_or_new_blocks_while_writers_copy_up(stack, run):
    size = 300 * BLOCK
    (stack.lower() / "f").write_bytes(b"o" * size)
    m = stack.mount()

    def work(number):
        rng = random.Random(number)
        with opened(m / "f", os.O_RDWR) as fd:
            for i in range(300):
                if number < 2:
                    os.pwrite(fd, b"n" * BLOCK, (i if number else 299 - i) * BLOCK)
                else:
                    block = os.pread(fd, BLOCK, rng.randrange(300) * BLOCK)
                    assert set(block) <= {ord("o"), ord("n")} and len(block) == BLOCK
    run(work)
    assert (m / "f").read_bytes() == b"n" * size


@everywhere
def test_own_directories_full_of_changes(stack, run):
    (stack.lower() / "shared").mkdir()
    for i in range(200):
        (stack.lower() / "shared" / f"low{i}").write_text(str(i))
    m = stack.mount()

    def work(number):
        for i in range(60):
            own = m / "shared" / f"w{number}-{i}"
            own.write_text(str(i))
            os.rename(own, m / "shared" / f"r{number}-{i}")
            if i % 3 == 0:
                (m / "shared" / f"r{number}-{i}").unlink()
            if i < 20:
                (m / "shared" / f"low{number * 20 + i}").unlink()
            (m / "shared" / f"d{number}-{i}").mkdir()
            if i % 2:
                (m / "shared" / f"d{number}-{i}").rmdir()
            assert len(os.listdir(m / "shared")) > 0
    run(work)
    want = sorted([f"low{i}" for i in range(160, 200)]
                  + [f"r{n}-{i}" for n in range(_WORKERS) for i in range(60) if i % 3]
                  + [f"d{n}-{i}" for n in range(_WORKERS) for i in range(60) if i % 2 == 0])
    for _ in range(2):
        assert names_in(m / "shared") == want
        m = stack.remount()


@everywhere
def test_exactly_one_wins_an_exclusive_create(stack, run):
    (stack.lower() / "gone").write_text("")
    m = stack.mount()
    (m / "gone").unlink()
    (m / "wins").mkdir()

    def race(number):
        for i in range(40):
            name = "gone" if i == 0 else f"n{i}"
            try:
                os.close(os.open(m / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                (m / "wins" / f"{name}-{number}").touch()
            except FileExistsError:
                pass
    run(race)
    assert len(names_in(m / "wins")) == 40


@everywhere
def test_renames_of_one_file_back_and_forth(stack, run):
    data = blob(300_000)
    (stack.lower() / "a").write_bytes(data)
    m = stack.mount()

    def work(number):
        for i in range(40):
            try:
                os.rename(m / "ab"[i % 2], m / "ab"[(i + 1) % 2])
            except FileNotFoundError:
                pass
            try:
                with open(m / "a", "rb") as f:
                    assert f.read() == data
            except FileNotFoundError:
                pass
    run(work)
    names = names_in(m)
    assert names in (["a"], ["b"])
    assert (m / names[0]).read_bytes() == data
    m = stack.remount()
    assert names_in(m) == names


@everywhere
def test_unlink_and_create_of_one_name(stack, run):
    (stack.lower() / "f").write_bytes(blob(50_000))
    m = stack.mount()

    def work(number):
        for i in range(50):
            try:
                if (i + number) % 2:
                    (m / "f").unlink()
                else:
                    (m / "f").write_bytes(bytes([number + 1]) * 30_000)
            except FileNotFoundError:
                pass
    run(work)
    (m / "f").write_bytes(b"last")
    assert (stack.remount() / "f").read_bytes() == b"last"


@everywhere
def test_metadata_and_data_of_one_file_at_once(stack, run):
    size = 100 * BLOCK
    (stack.lower() / "f").write_bytes(blob(size))
    want = bytearray(blob(size))
    m = stack.mount()

    def work(number):
        for i in range(40):
            if number % 2:
                os.chmod(m / "f", 0o600 + i % 8)
                os.setxattr(m / "f", f"user.n{number}", b"%d" % i)
                os.utime(m / "f", (i, i))
            else:
                write_at(m / "f", bytes([number + 1]) * 100, (number * 10 + i % 10) * BLOCK + 50)
    run(work)
    for number in (0, 2, 4, 6):
        for i in range(10):
            off = (number * 10 + i) * BLOCK + 50
            want[off:off + 100] = bytes([number + 1]) * 100
    for _ in range(2):
        assert (m / "f").read_bytes() == want
        assert os.getxattr(m / "f", "user.n7") == b"39"
        m = stack.remount()


@everywhere
def test_truncates_and_appends_leave_a_clean_file(stack, run):
    (stack.lower() / "f").write_bytes(b"L" * 500_000)
    m = stack.mount()

    def work(number):
        rng = random.Random(number)
        for _ in range(40):
            if number == 0:
                os.truncate(m / "f", rng.randrange(600_000))
            else:
                with opened(m / "f", os.O_WRONLY | os.O_APPEND) as fd:
                    os.write(fd, b"A" * rng.randrange(1, 5000))
    run(work)
    got = (m / "f").read_bytes()
    assert set(got) <= {0, ord("L"), ord("A")}
    assert len(got) == (m / "f").stat().st_size
    assert (stack.remount() / "f").read_bytes() == got


def test_thousand_files_open_at_once(stack):
    for i in range(1000):
        (stack.lower() / f"f{i}").write_bytes(b"%d" % i)
    m = stack.mount()
    fds = [os.open(m / f"f{i}", os.O_RDWR if i % 2 else os.O_RDONLY) for i in range(1000)]
    try:
        for i in range(1, 1000, 2):
            os.pwrite(fds[i], b"w", 0)
        for i, fd in enumerate(fds):
            want = b"%d" % i
            assert os.pread(fd, 10, 0) == (b"w" + want[1:] if i % 2 else want)
    finally:
        for fd in fds:
            os.close(fd)
