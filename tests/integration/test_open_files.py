# SPDX-License-Identifier: Apache-2.0
"""Files that lost their name while open keep every operation, and files that never had one."""
import errno
import mmap
import os
import stat

import pytest

from support import acl, linux, procfs, rootless
from support.child import in_child
from support.content import BLOCK, blob
from support.expect import exists, fails_with, names_in, opened
from support.origins import SIZED_ORIGINS, mount_file
from support.server import wait_until

_PUNCH = linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE


def _prepare(stack, origin):
    return mount_file(stack, origin, 9000 if origin == "lower small" else 700_000, own=[(100_000, b"P" * 5000)])


def _lose(path, how):
    if how == "unlink":
        path.unlink()
    elif how == "rename over":
        (path.parent / "other").write_bytes(b"other")
        os.rename(path.parent / "other", path)
    else:
        os.link(path, path.parent / "second")
        path.unlink()
        (path.parent / "second").unlink()


@pytest.mark.parametrize("how", ["unlink", "rename over", "two names"])
@pytest.mark.parametrize("origin", SIZED_ORIGINS)
def test_every_operation_on_a_file_without_a_name(stack, origin, how):
    path, data = _prepare(stack, origin)
    m = path.parent
    with opened(path, os.O_RDWR) as fd, opened(path) as reader:
        _lose(path, how)
        assert os.fstat(fd).st_nlink == 0
        assert os.pread(reader, len(data) + 1, 0) == data
        for off, piece in ((4090, b"across"), (len(data) - 3, b"the end")):
            os.pwrite(fd, piece, off)
            data[off:off + len(piece)] = piece
        linux.fallocate(fd, _PUNCH, 100, 5000)
        data[100:5100] = bytes(5000)
        linux.fallocate(fd, linux.FALLOC_ZERO_RANGE, 6000, 100)
        data[6000:6100] = bytes(100)
        assert os.pread(reader, len(data) + 1, 0) == data
        assert os.lseek(fd, 0, os.SEEK_DATA) in (0, BLOCK)
        assert os.lseek(fd, 5100, os.SEEK_HOLE) in range(5100, len(data) + 1)
        os.fchmod(fd, 0o4711)
        os.fchown(fd, *rootless.owner(3, 4))
        os.setxattr(fd, "user.a", b"1" * 300)
        assert os.getxattr(reader, "user.a") == b"1" * 300
        os.utime(fd, ns=(10**18, 10**18 + 5))
        st = os.fstat(reader)
        assert (st.st_uid, st.st_gid, st.st_mtime_ns) == (*rootless.owner(3, 4), 10**18 + 5)
        assert stat.S_IMODE(st.st_mode) & 0o777 == 0o711
        with opened(m / "copy", os.O_RDWR | os.O_CREAT) as copy:
            assert os.copy_file_range(fd, copy, 8000, 0, 0) == 8000
            assert os.pread(copy, 8000, 0) == data[:8000]
            assert os.copy_file_range(copy, fd, 300, 0, 50) == 300
        data[50:350] = data[0:300]
        os.ftruncate(fd, len(data) - 1000)
        os.ftruncate(fd, len(data))
        data[-1000:] = bytes(1000)
        os.fsync(fd)
        assert os.pread(reader, len(data) + 1, 0) == data
        with open(f"/proc/self/fd/{fd}", "r+b") as again:
            assert again.read() == data
        with fails_with(errno.ENOENT):
            linux.link_descriptor(fd, m / "back")
        assert os.fstat(fd).st_nlink == 0
    assert names_in(m) == (["copy", "f"] if how == "rename over" else ["copy"])
    if how == "rename over":
        assert path.read_bytes() == b"other"
    m = stack.remount()
    assert names_in(m) == (["copy", "f"] if how == "rename over" else ["copy"])


@pytest.mark.parametrize("origin", SIZED_ORIGINS)
def test_mapping_of_a_file_without_a_name(stack, origin):
    path, data = _prepare(stack, origin)

    def use():
        with opened(path, os.O_RDWR) as fd:
            path.unlink()
            with mmap.mmap(fd, 0) as view:
                assert view[:] == data
                view[5000:5005] = b"store"
                assert os.pread(fd, 5, 5000) == b"store"
                os.pwrite(fd, b"written", 8000)
                assert view[8000:8007] == b"written"
                view.flush()
            assert os.pread(fd, 5, 5000) == b"store"
    in_child(use)


def test_first_change_after_the_name_is_gone_leaves_nothing_behind(stack):
    for i in range(20):
        (stack.lower() / f"f{i}").write_bytes(blob(100_000, i))
    m = stack.mount()
    fds = [os.open(m / f"f{i}", os.O_RDWR) for i in range(20)]
    for i in range(20):
        (m / f"f{i}").unlink()
    for i, fd in enumerate(fds):
        os.pwrite(fd, b"late", i)
        assert os.pread(fd, 100_000, 0) == blob(100_000, i)[:i] + b"late" + blob(100_000, i)[i + 4:]
    for fd in fds:
        os.close(fd)
    stack.umount()
    assert list(stack.work.rglob("#*")) == []


def _descriptors(stack):
    """Of this upper: the server may have other mounts, and go on closing theirs."""
    return sum(link.startswith(str(stack.upper)) for link in procfs.opened(stack.pid).values())


def _temporary(directory, mode=0o600, flags=0):
    return os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, mode)


@pytest.mark.parametrize("where", ["lower", "upper"])
@pytest.mark.parametrize("link", [linux.link_descriptor, linux.link_empty_path])
def test_temporary_file_gets_a_name(stack, mode, where, link):
    if mode != "root" and link is linux.link_empty_path:
        pytest.skip("AT_EMPTY_PATH asks for privileges in the first user namespace")
    data = blob(300_000)
    if where == "lower":
        (stack.lower() / "d").mkdir()
        (stack.lower() / "d" / "old").write_text("old")
    m = stack.mount()
    if where == "upper":
        (m / "d").mkdir()
        (m / "d" / "old").write_text("old")
    fd = _temporary(m / "d", 0o640)
    try:
        assert os.fstat(fd).st_nlink == 0
        os.write(fd, data)
        os.setxattr(fd, "user.t", b"v")
        assert names_in(m / "d") == ["old"]
        with fails_with(errno.EEXIST):
            link(fd, m / "d" / "old")
        link(fd, m / "d" / "new")
        assert os.fstat(fd).st_nlink == 1
        link(fd, m / "elsewhere")
        os.pwrite(fd, b"after", 10)
    finally:
        os.close(fd)
    want = data[:10] + b"after" + data[15:]
    for _ in range(2):
        assert names_in(m / "d") == ["new", "old"]
        for path in (m / "d" / "new", m / "elsewhere"):
            st = path.stat()
            assert (stat.S_IMODE(st.st_mode), st.st_nlink) == (0o640, 2)
            assert path.read_bytes() == want
            assert os.getxattr(path, "user.t") == b"v"
        m = stack.remount()


def test_temporary_file_over_a_whiteout(stack):
    (stack.lower() / "f").write_text("lower")
    m = stack.mount()
    (m / "f").unlink()
    fd = _temporary(m)
    os.write(fd, b"mine")
    linux.link_descriptor(fd, m / "f")
    os.close(fd)
    for _ in range(2):
        assert (m / "f").read_bytes() == b"mine"
        m = stack.remount()


def test_exclusive_temporary_file_never_gets_a_name(stack):
    m = stack.mount()
    fd = _temporary(m, flags=os.O_EXCL)
    with fails_with(errno.ENOENT):
        linux.link_descriptor(fd, m / "no")
    os.close(fd)
    assert names_in(m) == []


def test_temporary_files_take_every_operation_and_fall_away(stack):
    m = stack.mount()
    held = _descriptors(stack)
    fds = [_temporary(m) for _ in range(300)]
    assert _descriptors(stack) >= held + 300
    for i, fd in enumerate(fds):
        os.pwrite(fd, b"%d" % i, 100_000)
        os.ftruncate(fd, 200_000)
        linux.fallocate(fd, _PUNCH, 0, 50_000)
        os.fchmod(fd, 0o604)
        os.fchown(fd, *rootless.owner(i, i))
    for i, fd in enumerate(fds):
        assert os.pread(fd, 10, 100_000).rstrip(b"\0") == b"%d" % i
        st = os.fstat(fd)
        assert (st.st_size, st.st_uid, stat.S_IMODE(st.st_mode)) == (200_000, rootless.owner(i, i)[0], 0o604)
        os.close(fd)
    assert names_in(m) == []
    # the kernel forgets them a moment later
    assert wait_until(lambda: _descriptors(stack) < held + 10)
    assert names_in(stack.upper) == []


def test_many_temporary_files_get_names(stack):
    m = stack.mount()
    fds = [_temporary(m) for _ in range(200)]
    for i, fd in enumerate(fds):
        os.write(fd, b"%d" % i)
        linux.link_descriptor(fd, m / f"n{i}")
        os.close(fd)
    assert [(m / f"n{i}").read_bytes() for i in range(200)] == [b"%d" % i for i in range(200)]
    for i in range(200):
        (m / f"n{i}").unlink()
    assert names_in(m) == []


def test_temporary_file_is_made_as_a_named_one_is(stack, plain):
    m = stack.mount()
    for root in (m, plain):
        for name, mode in (("plain", 0o777), ("setgid", 0o2777), ("acl", 0o777)):
            (root / name).mkdir()
            os.chown(root / name, 5, 6)
            (root / name).chmod(mode)
        os.setxattr(root / "acl", acl.DEFAULT, acl.encode(
            (acl.USER_OBJ, 7), (acl.USER, 6, 77), (acl.GROUP_OBJ, 5), (acl.MASK, 7), (acl.OTHER, 0)))

    def make(root, name):
        fd = _temporary(root / name, 0o666)
        linux.link_descriptor(fd, root / name / "tmp")
        os.close(fd)
        os.close(os.open(root / name / "named", os.O_CREAT | os.O_RDWR, 0o666))
    for name in ("plain", "setgid", "acl"):
        for root in (m, plain):
            in_child(make, root, name, uid=1000, gid=1001, umask=0o027)
        seen = []
        for root in (m, plain):
            for file in ("tmp", "named"):
                path = root / name / file
                st = path.stat()
                seen.append((oct(st.st_mode), st.st_uid, st.st_gid,
                             [(x, os.getxattr(path, x)) for x in sorted(os.listxattr(path))
                              if not x.endswith("override_stat")]))
        assert seen == [seen[2]] * 4, name


def test_temporary_file_where_one_may_not_write(stack):
    (stack.lower() / "d").mkdir(mode=0o755)
    m = stack.mount()

    def make():
        with fails_with(errno.EACCES):
            _temporary(m / "d")
    in_child(make, uid=1000, gid=1000)
    assert not exists(stack.upper / "d")


def test_read_only_mount_has_no_temporary_files(stack):
    (stack.lower() / "d").mkdir()
    m = stack.mount(upper=False)
    with fails_with(errno.EROFS):
        _temporary(m / "d")
