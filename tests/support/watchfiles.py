# SPDX-License-Identifier: Apache-2.0
"""inotify: that nobody, by whatever way, looked into directories or touched what is in them."""
import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_ALL = 0xfff
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")


class Watch:
    """From now on; every directory is named itself."""

    def __init__(self, *directories):
        self._fd = _libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        for path in directories:
            added = _libc.inotify_add_watch(self._fd, os.fsencode(path), _ALL)
            assert added >= 0, os.strerror(ctypes.get_errno())

    def events(self):
        """(mask, name) of everything since the last call."""
        seen = []
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return seen
            at = 0
            while at < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size:at + _EVENT.size + length].rstrip(b"\0")
                seen.append((mask, name))
                at += _EVENT.size + length

    def close(self):
        os.close(self._fd)
