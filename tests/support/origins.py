# SPDX-License-Identifier: Apache-2.0
"""The places that the content of a file of a mount may be in."""
from .content import blob
from .expect import write_at

ORIGINS = ["lower", "partial", "upper"]
SIZED_ORIGINS = ["lower small", "lower large", "partial", "upper"]
_OWN = ((100_000, b"own" * 5000),)


def mount_file(stack, origin, size, options=(), own=_OWN):
    """Mounts the stack with a file "f" of that origin; its path, and its content as a bytearray. own: what a partial one
    has of its own, as (offset, bytes)."""
    data = bytearray(blob(size))
    if origin != "upper":
        (stack.lower() / "f").write_bytes(data)
    path = stack.mount(*options) / "f"
    if origin == "upper":
        path.write_bytes(data)
    if origin == "partial":
        for off, piece in own:
            write_at(path, piece, off)
            data[off:off + len(piece)] = piece
    return path, data
