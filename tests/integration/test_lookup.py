# SPDX-License-Identifier: Apache-2.0
import errno
import os
import stat

import pytest

from support.expect import exists, fails_with, names_in


def test_upper_name_hides_lower_name(stack):
    (stack.lower() / "f").write_text("lower")
    (stack.upper / "f").write_text("upper")
    assert (stack.mount() / "f").read_text() == "upper"


def test_first_lower_has_priority(stack):
    for i in range(3):
        (stack.lower(i) / "all").write_text(f"lower {i}")
    (stack.lower(1) / "two").write_text("lower 1")
    (stack.lower(2) / "two").write_text("lower 2")
    (stack.lower(2) / "one").write_text("lower 2")
    m = stack.mount()
    assert (m / "all").read_text() == "lower 0"
    assert (m / "two").read_text() == "lower 1"
    assert (m / "one").read_text() == "lower 2"


def test_file_over_directory_hides_what_is_below(stack):
    (stack.lower(0) / "x").write_text("file")
    (stack.lower(1) / "x").mkdir()
    (stack.lower(1) / "x" / "inner").write_text("")
    m = stack.mount()
    assert (m / "x").read_text() == "file"
    with fails_with(errno.ENOTDIR):
        os.stat(m / "x" / "inner")


def test_directory_over_file_shows_only_the_directory(stack):
    (stack.lower(0) / "x").mkdir()
    (stack.lower(1) / "x").write_text("file")
    m = stack.mount()
    assert names_in(m / "x") == []
    (m / "x" / "new").write_text("")


def test_file_between_two_directories_cuts_the_merge(stack):
    (stack.lower(0) / "x").mkdir()
    (stack.lower(0) / "x" / "top").write_text("")
    (stack.lower(1) / "x").write_text("a file in the middle")
    (stack.lower(2) / "x").mkdir()
    (stack.lower(2) / "x" / "bottom").write_text("")
    assert names_in(stack.mount() / "x") == ["top"]


def test_upper_directory_over_lower_symlink_to_directory(stack):
    (stack.lower() / "real").mkdir()
    (stack.lower() / "real" / "inner").write_text("")
    (stack.lower() / "link").symlink_to("real")
    (stack.upper / "link").mkdir()
    assert names_in(stack.mount() / "link") == []


def test_absent_name_is_enoent_and_appears_when_made(stack):
    m = stack.mount()
    for _ in range(2):
        with fails_with(errno.ENOENT):
            os.stat(m / "later")
    (m / "later").write_text("x")
    assert (m / "later").stat().st_size == 1
    (m / "later").unlink()
    with fails_with(errno.ENOENT):
        os.stat(m / "later")


def test_dotdot_and_deep_paths(stack):
    deep = "/".join(f"d{i}" for i in range(40))
    (stack.lower() / deep).mkdir(parents=True)
    (stack.lower() / deep / "leaf").write_text("here")
    m = stack.mount()
    assert (m / deep / "leaf").read_text() == "here"
    assert (m / deep / ".." / "d39" / "leaf").read_text() == "here"
    assert os.stat(m / "d0" / "..").st_ino == os.stat(m).st_ino


def test_symlink_in_lower_cannot_lead_out_of_the_layer(stack):
    (stack.base / "secret").write_text("secret")
    (stack.lower(0) / "d").symlink_to(stack.base)
    (stack.lower(1) / "d").mkdir()
    m = stack.mount()
    assert os.path.islink(m / "d")
    # resolved by the caller, in the caller's root, and never by the server
    assert os.readlink(m / "d") == str(stack.base)


def test_hidden_prefix_is_never_found(stack):
    (stack.lower() / ".wh.ghost").write_text("")
    (stack.lower() / "dir").mkdir()
    (stack.lower() / "dir" / ".wh.other").write_text("")
    m = stack.mount()
    assert not exists(m / ".wh.ghost")
    assert not exists(m / "dir" / ".wh.other")
    assert not exists(m / ".wh..wh.veneer")


def test_attributes_are_those_of_the_lower_file(stack):
    path = stack.lower() / "f"
    path.write_bytes(b"x" * 10000)
    path.chmod(0o2741)
    os.utime(path, ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    os.chown(path, 12, 34)
    path.chmod(0o2741)
    want = path.stat()
    got = (stack.mount() / "f").stat()
    for name in ("st_mode", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_nlink", "st_blocks"):
        assert getattr(got, name) == getattr(want, name), name


def test_inode_number_survives_copy_up_and_remount(stack):
    (stack.lower() / "f").write_bytes(b"x" * 100_000)
    want = (stack.lower() / "f").stat().st_ino
    m = stack.mount()
    assert (m / "f").stat().st_ino == want
    (m / "f").chmod(0o600)
    with open(m / "f", "r+b") as f:
        f.write(b"y")
    assert (m / "f").stat().st_ino == want
    assert (stack.remount() / "f").stat().st_ino == want


def test_inode_number_survives_when_the_upper_becomes_a_lower(stack):
    (stack.lower() / "f").write_bytes(b"x" * 100_000)
    want = (stack.lower() / "f").stat().st_ino
    (stack.mount() / "f").chmod(0o600)
    stack.freeze()
    assert (stack.mount() / "f").stat().st_ino == want


def test_files_of_one_mount_have_one_device_and_own_numbers(stack):
    for i in range(3):
        (stack.lower(i) / f"f{i}").write_text("")
        (stack.lower(i) / "d").mkdir()
    m = stack.mount()
    (m / "new").write_text("")
    stats = [os.lstat(m / name) for name in ("f0", "f1", "f2", "d", "new", ".")]
    assert len({st.st_dev for st in stats}) == 1
    assert len({st.st_ino for st in stats}) == len(stats)


def test_directory_link_count_counts_subdirectories(stack):
    for i, name in enumerate(("a", "b", "c")):
        (stack.lower(i % 2) / "d" / name).mkdir(parents=True)
    (stack.lower(0) / "d" / "file").write_text("")
    m = stack.mount()
    assert (m / "d").stat().st_nlink == 5
    (m / "d" / "e").mkdir()
    assert (m / "d").stat().st_nlink == 6
    (m / "d" / "e").rmdir()
    (m / "d" / "a").rmdir()
    assert (m / "d").stat().st_nlink == 4


def test_static_nlink_shows_one(stack):
    (stack.lower() / "d" / "sub").mkdir(parents=True)
    assert (stack.mount("static_nlink") / "d").stat().st_nlink == 1


def test_mount_without_upper_is_read_only(stack):
    (stack.lower(0) / "f").write_text("zero")
    (stack.lower(1) / "g").write_text("one")
    m = stack.mount(upper=False)
    assert ((m / "f").read_text(), (m / "g").read_text()) == ("zero", "one")
    for action in (lambda: (m / "new").write_text(""), lambda: (m / "d").mkdir(),
                   lambda: (m / "f").unlink(), lambda: (m / "f").chmod(0o600),
                   lambda: os.open(m / "f", os.O_RDWR), lambda: os.truncate(m / "f", 0),
                   lambda: os.link(m / "f", m / "l"), lambda: (m / "s").symlink_to("x"),
                   lambda: os.rename(m / "f", m / "h"), lambda: os.utime(m / "f", (1, 1)),
                   lambda: os.setxattr(m / "f", "user.a", b"1")):
        with fails_with(errno.EROFS):
            action()


def test_root_attributes_come_from_the_upper(stack):
    stack.lower().chmod(0o700)
    stack.upper.chmod(0o711)
    os.utime(stack.upper, (1_000_000_000, 1_000_000_000))
    st = stack.mount().stat()
    assert stat.S_IMODE(st.st_mode) == 0o711
    assert st.st_mtime == 1_000_000_000


@pytest.mark.parametrize("kind", ["fifo", "socket", "symlink", "file", "dir"])
def test_type_is_that_of_the_lower(stack, kind):
    path = stack.lower() / "x"
    make = {"fifo": lambda: os.mkfifo(path),
            "socket": lambda: os.mknod(path, stat.S_IFSOCK | 0o644),
            "symlink": lambda: path.symlink_to("t"), "file": lambda: path.write_text(""),
            "dir": path.mkdir}
    make[kind]()
    got = os.lstat(stack.mount() / "x")
    assert stat.S_IFMT(got.st_mode) == stat.S_IFMT(os.lstat(path).st_mode)
