# SPDX-License-Identifier: Apache-2.0
"""A fingerprint of every object of a directory tree, to prove that nobody changed it."""
import contextlib
import hashlib
import os
import stat

_SLICE, _BLOCK = 1 << 20, 4096
# Files from this size are written out first: delayed allocation would still change their blocks.
# The blocks of smaller files are not compared.
_SETTLE = 1 << 20


def _data_ranges(fd, size):
    """The parts of a file that are not holes, so that huge sparse files cost little."""
    off = 0
    while off < size:
        try:
            start = os.lseek(fd, off, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, min(end, size)
        off = end


def hash_file(path):
    digest = hashlib.sha1()
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME)
    try:
        for start, end in _data_ranges(fd, os.fstat(fd).st_size):
            start &= -_BLOCK
            while start < end:
                piece = os.pread(fd, min(_SLICE, end - start), start)
                if not piece:
                    break
                # what is allocated and not written counts as data only while pages of it are cached
                for off in range(0, len(piece), _BLOCK):
                    block = piece[off:off + _BLOCK]
                    if block.count(0) != len(block):
                        digest.update(b"%d:" % (start + off))
                        digest.update(block)
                start += len(piece)
    finally:
        os.close(fd)
    return digest.hexdigest()


def xattrs_of(path):
    names = os.listxattr(path, follow_symlinks=False)
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in sorted(names)}


def _settle(path):
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _describe(path):
    st = os.lstat(path)
    is_file = stat.S_ISREG(st.st_mode)
    if is_file and st.st_size >= _SETTLE:
        _settle(path)
        st = os.lstat(path)
    what = {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "nlink": st.st_nlink,
            "ino": st.st_ino, "mtime": st.st_mtime_ns, "ctime": st.st_ctime_ns,
            "size": st.st_size, "rdev": st.st_rdev, "xattrs": xattrs_of(path)}
    if not is_file or st.st_size >= _SETTLE:
        what["blocks"] = st.st_blocks
    if is_file:
        what["content"] = hash_file(path)
    elif stat.S_ISLNK(st.st_mode):
        what["content"] = os.readlink(path)
    return what


def _open_quietly(path):
    """Without another access time, which a file system may show, where we may."""
    with contextlib.suppress(PermissionError):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _entries(path):
    """Each name, and whether it is a directory."""
    fd = _open_quietly(path)
    try:
        with os.scandir(fd) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(fd)


def walk(root):
    """Relative paths of everything below root, and root itself as "."."""
    yield "."
    pending = [""]
    while pending:
        directory = pending.pop()
        for name, is_dir in _entries(os.path.join(root, directory)):
            relative = os.path.join(directory, name)
            yield relative
            if is_dir:
                pending.append(relative)


def take(root):
    return {relative: _describe(os.path.join(root, relative)) for relative in walk(root)}


def differences(before, after):
    """One line for each object or property that is not as it was."""
    lines = [f"{path} vanished" for path in sorted(before.keys() - after.keys())]
    lines += [f"{path} appeared" for path in sorted(after.keys() - before.keys())]
    for path in sorted(before.keys() & after.keys()):
        for key in sorted(before[path].keys() | after[path].keys()):
            old, new = before[path].get(key), after[path].get(key)
            if old != new:
                lines.append(f"{path}: {key} was {old!r}, is {new!r}")
    return lines
