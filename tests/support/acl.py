# SPDX-License-Identifier: Apache-2.0
"""POSIX ACLs in the form of their extended attributes."""
import struct

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
_NO_ID = 0xFFFFFFFF


def encode(*entries):
    """entries: (tag, permissions) or (tag, permissions, id), in canonical order."""
    out = struct.pack("<I", 2)
    for tag, permissions, *who in entries:
        out += struct.pack("<HHI", tag, permissions, who[0] if who else _NO_ID)
    return out


def decode(value):
    found = {}
    for off in range(4, len(value), 8):
        tag, permissions, who = struct.unpack_from("<HHI", value, off)
        found[(tag, who) if who != _NO_ID else tag] = permissions
    return found
