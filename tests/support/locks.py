# SPDX-License-Identifier: Apache-2.0
"""Record locks by fcntl(2), with all that the kernel says of them."""
import fcntl
import os
import struct

_FLOCK = "hhqqi4x"


def record_lock(fd, kind, command=fcntl.F_SETLK, start=0, length=0):
    """What the kernel makes of the question, as (kind, start, length, pid)."""
    answer = fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, pid = struct.unpack(_FLOCK, answer)
    return kind, start, length, pid
