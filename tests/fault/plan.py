# SPDX-License-Identifier: Apache-2.0
"""Which errors the calls of a class are made to fail with."""
from errno import EAGAIN, ECONNRESET, EINTR, EIO, EMFILE, ENOMEM, ENOSPC

from control import SHORT

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
