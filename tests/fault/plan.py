# SPDX-License-Identifier: Apache-2.0
"""Which errors the calls of a class are made to fail with, and how often."""
import os
import random
from errno import EAGAIN, ECONNRESET, EINTR, EIO, EMFILE, ENOMEM, ENOSPC

from control import ALWAYS, SHORT

_BRIEF = 30

ERRORS = {
    "alloc": [ENOMEM],
    "open": [EIO, ENOMEM, EMFILE],
    "read": [EIO, EINTR, SHORT],
    "write": [EIO, ENOSPC, EINTR, SHORT],
    "stat": [EIO, ENOMEM],
    "xattr_read": [EIO, ENOMEM],
    "xattr_write": [EIO, ENOSPC],
    "name": [EIO, ENOSPC],
    "size": [EIO, ENOSPC, EINTR, SHORT],
    "attr": [EIO, ENOMEM],
    "sync": [EIO, ENOSPC],
    "map": [ENOMEM],
    "fd": [EMFILE, ENOMEM],
    "list": [EIO],
    "ioctl": [EIO, ENOMEM],
    "ring": [ENOMEM, EINTR, EAGAIN],
    "thread": [EAGAIN],
    "socket": [EIO, EINTR, ECONNRESET, ENOMEM],
}


def for_good(error):
    """An interruption ends, and something short goes on."""
    return _BRIEF if error in (EINTR, SHORT) else ALWAYS


def how_often(error, which):
    """Once, and for good: but a server waits for threads."""
    if which == "thread":
        return (1,)
    return 1, for_good(error)


def seeded(request):
    seed = int(os.environ.get("VENEER_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    request.node.add_report_section("setup", "seed", f"VENEER_FAULT_SEED={seed}")
    print(f"VENEER_FAULT_SEED={seed}")
    return random.Random(seed)
