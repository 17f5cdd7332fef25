# SPDX-License-Identifier: Apache-2.0
"""While requests come closely one thread reads and answers them; one that takes long, or waits for another, stops none."""
import mmap
import os
import threading

from support.content import BLOCK, KIB, MIB, blob
from support.expect import opened

_LIMIT_S = 90


def _ask(directory, prefix, times):
    """Names that nobody asked for before: a request each, closely one after the other."""
    for number in range(times):
        assert not os.path.exists(directory / f"{prefix}-{number}")


def _within_limit(function):
    """In a thread, as what waits for a server that does not read cannot be interrupted."""
    done = []
    thread = threading.Thread(target=lambda: done.append(function()), daemon=True)
    thread.start()
    thread.join(_LIMIT_S)
    assert not thread.is_alive(), "a request was not read"
    assert done


def test_a_request_that_waits_for_another_among_close_ones(stack):
    """SEEK_DATA has the kernel write what a mapping changed, which is a request that only another thread can read."""
    with open(stack.lower() / "f", "wb") as f:
        f.truncate(MIB)
    m = stack.mount()

    def seek():
        with opened(m / "f", os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
            for number in range(40):
                _ask(m, f"seek-{number}", 100)
                off = number * 5 * BLOCK
                view[off:off + 4] = b"data"
                assert os.lseek(fd, off, os.SEEK_DATA) == off
        return True
    _within_limit(seek)


def test_others_go_on_while_one_asks_closely(stack):
    for number in range(64):
        (stack.lower() / f"f{number}").write_bytes(blob(20 * KIB, number))
    m = stack.mount()
    stop = threading.Event()

    def change(prefix):
        turn = 0
        while not stop.is_set() or turn == 0:
            _ask(m, f"{prefix}-{turn}", 100)
            turn += 1
        return turn

    def write_and_sync():
        for number in range(64):
            with opened(m / f"f{number}", os.O_RDWR) as fd:
                os.pwrite(fd, b"new", number)
                os.fsync(fd)
        return True
    callers = [threading.Thread(target=change, args=(name,), daemon=True) for name in ("a", "b")]
    for caller in callers:
        caller.start()
    try:
        _within_limit(write_and_sync)
    finally:
        stop.set()
    for caller in callers:
        caller.join(_LIMIT_S)
        assert not caller.is_alive()
    for number in range(64):
        assert (m / f"f{number}").read_bytes()[number:number + 3] == b"new"
