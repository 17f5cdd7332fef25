# SPDX-License-Identifier: Apache-2.0
"""The pages of a file in the kernel's page cache, asked of the kernel."""
import ctypes
import errno
import mmap
import os

import pytest

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_CACHESTAT = 451
_PAGE = mmap.PAGESIZE


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Cachestat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently")]


def own_pages(fd):
    """Pages that the file system of this descriptor itself holds (not the one below it), with those that the kernel has
    reclaimed: a busy machine takes some at any time. An invalidation leaves nothing of a page, a reclaim leaves a mark."""
    whole, found = _Range(0, 0), _Cachestat()
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(whole), ctypes.byref(found), 0) == -1:
        if ctypes.get_errno() == errno.ENOSYS:
            pytest.skip("no cachestat(2) in this kernel")
        raise OSError(ctypes.get_errno(), "cachestat")
    return found.cache + found.evicted


def resident_pages(path):
    """Pages that a mapping of the file finds in memory, without reading any."""
    size = os.stat(path).st_size
    fd = os.open(path, os.O_RDONLY)
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    assert address not in (None, ctypes.c_void_p(-1).value), "mmap"
    vector = ctypes.create_string_buffer(-(-size // _PAGE))
    result = _libc.mincore(address, size, vector)
    _libc.munmap(address, size)
    assert result == 0, "mincore"
    return sum(byte & 1 for byte in vector.raw[:-(-size // _PAGE)])


def drops():
    """How often a program had the kernel drop the pages of all files (drop_caches)."""
    with open("/proc/vmstat", encoding="ascii") as f:
        return next((int(line.split()[1]) for line in f if line.startswith("drop_pagecache ")), 0)


def drop(path):
    """Out of the page cache with it."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
