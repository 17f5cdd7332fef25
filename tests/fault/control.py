# SPDX-License-Identifier: Apache-2.0
"""The page that a test shares with the preloaded library; control.h has the same order."""
import mmap
import os
import re
import struct
import subprocess

CLASSES = ("alloc", "open", "read", "write", "stat", "xattr_read", "xattr_write", "name", "size", "attr", "sync",
           "map", "fd", "list", "ioctl", "ring", "thread", "socket")
SHORT = -1
ALWAYS = 1 << 31

_MAGIC, _TRACE_MAX = 0x544c4146, 24
_HEAD = struct.Struct("=IIIIIiII")
_COUNTS_AT = _HEAD.size + 8 + 8 * _TRACE_MAX
_ARMED_AT, _INJECTED_AT = 4, 24


class Control:
    def __init__(self, path, library, program):
        self.path, self.library, self.program = path, library, program
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as f:
            self._page = mmap.mmap(f.fileno(), 4096)
        self.disarm()

    @property
    def environment(self):
        return {"LD_PRELOAD": str(self.library), "VENEER_FAULT": str(self.path)}

    def arm(self, which=None, nth=0, error=0, times=1):
        """From now on count, and fail the nth call of the class; the numbers of before are forgotten."""
        number = CLASSES.index(which) if which else 0
        self._page[:] = bytes(4096)
        _HEAD.pack_into(self._page, 0, _MAGIC, 0, number, nth, times, error, 0, 0)
        struct.pack_into("=I", self._page, _ARMED_AT, 1)

    def disarm(self):
        struct.pack_into("=I", self._page, 0, _MAGIC)
        struct.pack_into("=I", self._page, _ARMED_AT, 0)

    @property
    def injected(self):
        return struct.unpack_from("=I", self._page, _INJECTED_AT)[0]

    @property
    def counts(self):
        numbers = struct.unpack_from(f"={len(CLASSES)}I", self._page, _COUNTS_AT)
        return dict(zip(CLASSES, numbers))

    def trace(self):
        """Where the last call failed, one line a function, as far as it is the program's own."""
        ntrace = min(_HEAD.unpack_from(self._page, 0)[7], _TRACE_MAX)
        base, *addresses = struct.unpack_from(f"={1 + ntrace}Q", self._page, _HEAD.size)
        offsets = [hex(a - base - 1) for a in addresses if 0 <= a - base < os.stat(self.program).st_size]
        if not offsets:
            return "(not in the program)"
        found = subprocess.run(["addr2line", "-fise", self.program, *offsets], capture_output=True, text=True)
        return " < ".join(re.findall(r"^[a-z_]\w*$", found.stdout, re.M))
