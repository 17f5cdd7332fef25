# SPDX-License-Identifier: Apache-2.0
"""Layers after a mount: the offline tools, and what other union file systems show of them."""
import contextlib
import hashlib
import os
import shutil
import stat
import subprocess

from . import linux
from .server import escape, wait_until

FUSE_OVERLAYFS = "/usr/bin/fuse-overlayfs"


def options(upper, lowers, work=None):
    text = "lowerdir=" + ":".join(escape(path) for path in lowers) + f",upperdir={upper}"
    return text + (f",workdir={work}" if work else "")


def tool(program, *argv, **keywords):
    keywords.setdefault("timeout", 100)
    return subprocess.run([program, *map(str, argv)], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keywords)


def flatten(program, upper, lowers, *argv, work=None, **keywords):
    return tool(program, "flatten", *argv, "-o", options(upper, lowers, work), **keywords)


def check(program, upper, lowers, *argv, **keywords):
    return tool(program, "check", *argv, "-o", options(upper, lowers), **keywords)


WORK_ATTR = "user.veneer.work"  # stays on the root of an upper, where other unions show it


def _content(path):
    digest = hashlib.sha1()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _describe(path):
    st = os.lstat(path)
    is_dir = stat.S_ISDIR(st.st_mode)
    what = {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "rdev": st.st_rdev,
            "mtime": st.st_mtime_ns,
            "xattrs": {name: os.getxattr(path, name, follow_symlinks=False)
                       for name in sorted(os.listxattr(path, follow_symlinks=False)) if name != WORK_ATTR}}
    if not is_dir:
        what |= {"size": st.st_size, "nlink": st.st_nlink}
    if stat.S_ISREG(st.st_mode):
        what["content"] = _content(path)
    elif stat.S_ISLNK(st.st_mode):
        what["content"] = os.readlink(path)
    return what


def view(root):
    """The tree as a user sees it: {path: properties}; not where it is stored."""
    seen, pending = {".": _describe(root)}, [""]
    while pending:
        directory = pending.pop()
        for entry in os.scandir(os.path.join(root, directory)):
            path = os.path.join(directory, entry.name)
            seen[path] = _describe(entry.path)
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return seen


def without(properties, seen):
    return {path: {key: value for key, value in what.items() if key not in properties}
            for path, what in seen.items()}


@contextlib.contextmanager
def kernel_mount(layers, target):
    """Read-only, through the kernel's overlayfs; layers top first. One layer alone is bound."""
    target.mkdir(exist_ok=True)
    if len(layers) == 1:
        linux.mount(str(layers[0]), str(target), None, linux.MS_BIND)
    else:
        data = "lowerdir=" + ":".join(map(str, layers)) + ",redirect_dir=nofollow,metacopy=off"
        linux.mount("overlay", str(target), "overlay", 0, data)
    try:
        yield target
    finally:
        linux.umount(str(target), linux.MNT_DETACH)


@contextlib.contextmanager
def fuse_overlayfs_mount(layers, target):
    """Read-only, through the distribution's fuse-overlayfs; layers top first."""
    target.mkdir(exist_ok=True)
    lowers = "lowerdir=" + ":".join(map(str, layers))
    process = subprocess.Popen([FUSE_OVERLAYFS, "-f", "-o", lowers, str(target)],
                               stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.ismount(target) or process.poll() is not None)
        assert os.path.ismount(target), "fuse-overlayfs did not mount"
        yield target
    finally:
        if os.path.ismount(target):
            linux.umount(str(target), linux.MNT_DETACH)
        process.wait(timeout=20)


def has_fuse_overlayfs():
    return shutil.which(FUSE_OVERLAYFS) is not None


def marks(root):
    """Paths below root that carry an attribute of ours or a redirect, and names of ours."""
    found = []
    for directory, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(directory, name)
            attrs = os.listxattr(path, follow_symlinks=False)
            if name.startswith((".wh..wh.veneer", ".wh..wh.flatten")) or any(
                    attr.startswith("user.veneer.") or attr.endswith("overlay.redirect")
                    for attr in attrs):
                found.append(os.path.relpath(path, root))
    return sorted(found)
