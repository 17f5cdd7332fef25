# SPDX-License-Identifier: Apache-2.0
"""Short ways to say what must fail and what must hold."""
import contextlib
import errno as errno_names
import os

import pytest


@contextlib.contextmanager
def fails_with(*errnos):
    with pytest.raises(OSError) as caught:
        yield caught
    names = [errno_names.errorcode[number] for number in errnos]
    got = errno_names.errorcode.get(caught.value.errno, caught.value.errno)
    assert caught.value.errno in errnos, f"failed with {got}, not with {' or '.join(names)}"


@contextlib.contextmanager
def opened(path, flags=os.O_RDONLY, mode=0o666):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def through(flags, action):
    """A function that opens a path with these flags for action(fd)."""
    def act(path):
        with opened(path, flags) as fd:
            action(fd)
    return act


def names_in(directory):
    return sorted(os.listdir(directory))


def exists(path):
    return os.path.lexists(path)


def read_at(path, size, off):
    with opened(path) as fd:
        return os.pread(fd, size, off)


def write_at(path, data, off):
    with opened(path, os.O_RDWR) as fd:
        assert os.pwrite(fd, data, off) == len(data)
