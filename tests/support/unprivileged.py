# SPDX-License-Identifier: Apache-2.0
"""Operations that no ordinary user may do, on any file system. In mode "plain" a test that comes to it is skipped there, with the
reason; what may be refused by the mount alone is not in here, and fails."""
import functools
import os
import stat
import subprocess

import pytest

from . import child, linux


def _skip(reason):
    pytest.skip(f"as a plain user: {reason}")


def _is_own(uid, gid):
    return uid in (-1, os.geteuid()) and gid in (-1, os.getegid(), *os.getgroups())


def _chown(call, path, uid, gid, **keywords):
    if not _is_own(uid, gid):
        _skip("gives files to others")
    return call(path, uid, gid, **keywords)


def _mknod(call, path, mode=0o600, device=0, **keywords):
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and device):
        _skip("makes devices")
    return call(path, mode, device, **keywords)


def _setxattr(call, path, attribute, *args, **keywords):
    if os.fsdecode(attribute).startswith(("trusted.", "security.")):
        _skip("sets attributes that take privileges")
    return call(path, attribute, *args, **keywords)


def _child(call, self, *args, uid=0, gid=0, groups=(), **keywords):
    if uid or gid or groups:
        _skip("becomes other users")
    return call(self, *args, **keywords)


def _run(call, command, *args, **keywords):
    if isinstance(command, (list, tuple)) and command[0] == "mount":
        _skip("mounts file systems")
    if isinstance(command, (list, tuple)) and command[0] == "unshare":
        _skip("makes namespaces")
    return call(command, *args, **keywords)


def _refuse(reason, _call, *_args, **_keywords):
    _skip(reason)


def attempt(call):
    """The call itself, for a test that wants to see the refusal."""
    return call.args[0] if isinstance(call, functools.partial) else call


def install():
    """From now on these skip."""
    for name in ("chown", "lchown", "fchown"):
        setattr(os, name, functools.partial(_chown, getattr(os, name)))
    os.mknod = functools.partial(_mknod, os.mknod)
    os.setxattr = functools.partial(_setxattr, os.setxattr)
    os.chroot = functools.partial(_refuse, "changes the root directory", os.chroot)
    subprocess.run = functools.partial(_run, subprocess.run)
    start = child.Child.__init__
    child.Child.__init__ = lambda self, *args, **keywords: _child(start, self, *args, **keywords)
    for name, reason in (("mount", "mounts file systems"), ("unshare", "makes namespaces"), ("private_mounts", "makes namespaces")):
        setattr(linux, name, functools.partial(_refuse, reason, getattr(linux, name)))
