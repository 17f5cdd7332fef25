# SPDX-License-Identifier: Apache-2.0
"""An ordinary user owns an upper, or files in it, that root mounts, and writes into it whatever the owner of a file may
write: our attributes, our files. The user gains no byte, bit or owner by it (doc/SPEC.md, section 1)."""
import contextlib
import errno
import os
import struct
import subprocess

import pytest

from support import acl, forge
from support.child import in_child
from support.content import blob
from support.expect import fails_with, write_at

pytestmark = pytest.mark.needs_root("a server that has more privileges than the owner of a file")

_USER = 1000
_CAPABILITY = bytes.fromhex("0100000280000000000000000000000000000000")  # cap_setuid
_TIMES = (10**18 + 5, 2 * 10**18 + 7)
_RECORD = "trusted.veneer.flatten"
_FORGED_RECORD = "user.veneer.flatten"


def _record(mode, capability=b""):
    """As a run leaves it that is stopped while it completes a file."""
    seconds, rest = zip(*(divmod(t, 10**9) for t in _TIMES))
    return struct.pack("<IIqqII", 1, mode, *seconds, *rest) + capability


def _as_user(function, *args):
    in_child(function, *args, uid=_USER, gid=_USER)


@pytest.fixture
def theirs(stack):
    """The upper and the work directory belong to the user."""
    for path in (stack.upper, stack.work):
        os.chown(path, _USER, _USER)
    return stack.upper


def _capability(path):
    try:
        return os.getxattr(path, "security.capability")
    except OSError:
        return None


def _expect_no_privilege(path, mode):
    st = os.lstat(path)
    assert (st.st_uid, st.st_gid, oct(st.st_mode & 0o7777)) == (_USER, _USER, oct(mode))
    assert _capability(path) is None


# ---- the record of a file that is being completed ----

def _make_programs(upper):
    (upper / "program").write_bytes(b"mine")
    (upper / "program").chmod(0o755)
    (upper / "directory").mkdir(mode=0o755)
    for name in ("program", "directory"):
        os.setxattr(upper / name, _FORGED_RECORD, _record(0o6777, _CAPABILITY))


def test_record_of_an_owner_gives_no_set_id_bit_and_no_capability(stack, theirs):
    _as_user(_make_programs, theirs)
    m = stack.mount()
    for _ in range(2):
        _expect_no_privilege(m / "program", 0o755)
        _expect_no_privilege(m / "directory", 0o755)
        m = stack.remount()
    assert os.listdir(m) and os.stat(m / "program").st_size == 4
    stack.umount()
    for name in ("program", "directory"):
        _expect_no_privilege(theirs / name, 0o755)


def _forge_record(path, mode):
    os.setxattr(path, _FORGED_RECORD, _record(mode, _CAPABILITY))


@pytest.mark.parametrize("way", ["flatten", "in place"])
def test_record_of_an_owner_gives_nothing_to_a_file_that_is_completed(stack, theirs, shared, way):
    (stack.lower() / "f").write_bytes(blob(300_000))
    m = stack.mount()
    write_at(m / "f", b"x", 5)
    os.chown(m / "f", _USER, _USER)
    os.chmod(m / "f", 0o755)
    stack.umount()
    _as_user(_forge_record, theirs / "f", 0o6777)
    _as_user(_make_programs, theirs)
    options = f"lowerdir={stack.lower()},upperdir={theirs},workdir={stack.work}"
    environment = {**os.environ, **shared.environment}
    if way == "flatten":
        subprocess.run([stack.program, "flatten", "-o", options], check=True, capture_output=True, timeout=60)
    else:
        subprocess.run([stack.program, "-o", options, stack.mnt], check=True, timeout=60, env=environment)
        os.stat(stack.mnt / "f")
        os.listdir(stack.mnt / "directory")
        subprocess.run([stack.program, "flatten", "--in-place", stack.mnt], check=True, capture_output=True, timeout=60,
                       env=environment)
        subprocess.run(["umount", stack.mnt], check=True)
    _expect_no_privilege(theirs / "f", 0o755)
    assert (theirs / "f").read_bytes() == blob(300_000)[:5] + b"x" + blob(300_000)[6:]
    for name in ("program", "directory"):
        _expect_no_privilege(theirs / name, 0o755)


def test_record_of_root_restores_what_only_root_could_have_changed_since(stack):
    """The times. A capability or a set-id bit went for good if anybody wrote the file since, root too."""
    for name, uid, mode in (("root's", 0, 0o755), ("user's", _USER, 0o755), ("everybody's", 0, 0o757)):
        path = stack.upper / name
        path.write_bytes(b"program")
        os.chown(path, uid, uid)
        path.chmod(mode)
        os.setxattr(path, _RECORD, _record(0o6777, _CAPABILITY))
    m = stack.mount()
    for name, mode in (("root's", 0o755), ("user's", 0o755), ("everybody's", 0o757)):
        st = os.stat(m / name)
        assert (st.st_mode & 0o7777, _capability(m / name)) == (mode, None), name
        assert (st.st_atime_ns, st.st_mtime_ns) == _TIMES
        assert _RECORD not in os.listxattr(stack.upper / name)


# ---- owners and modes in attributes ----

_OVERRIDES = ["user.containers.override_stat", "user.fuseoverlayfs.override_stat"]


def _make_overridden(layer):
    (layer / "program").write_bytes(b"mine")
    (layer / "program").chmod(0o755)
    for attribute in _OVERRIDES:
        os.setxattr(layer, attribute, b"0:0:0755")
        os.setxattr(layer / "program", attribute, b"0:0:4755:file")


@pytest.mark.parametrize("place", ["upper", "lower", "read-only upper"])
def test_owner_and_mode_in_attributes_of_an_owner_are_not_believed(stack, theirs, place):
    layer = stack.lower() if place == "lower" else theirs
    os.chown(layer, _USER, _USER)
    _as_user(_make_overridden, layer)
    m = stack.mount(*["ro"] * (place == "read-only upper"))
    _expect_no_privilege(m / "program", 0o755)
    assert os.stat(m).st_uid == _USER
    lines = [line for line in stack.log.splitlines() if "override_stat" in line]
    assert len(lines) == 1 and str(layer) in lines[0] and "xattr_permissions=2" in lines[0], lines
    if place == "upper":
        (m / "new").write_text("")
        (m / "new").chmod(0o600)
        stack.umount()
        assert os.stat(theirs / "new").st_mode & 0o7777 == 0o600


def test_owner_and_mode_in_attributes_are_believed_when_root_says_so(stack, theirs):
    _as_user(_make_overridden, theirs)
    st = os.stat(stack.mount("xattr_permissions=2") / "program")
    assert (st.st_uid, st.st_mode & 0o7777) == (0, 0o4755)


# ---- marks, and the map ----

_SECRET = b"nobody but root reads this " * 4000
_PUBLIC = b"for everybody " * 8000
_BELOW = {"closed/open": (0o644, _SECRET), "private": (0o600, _SECRET), "d/private": (0o640, _SECRET), "public": (0o644, _PUBLIC),
          "d/public": (0o644, _PUBLIC)}


def _fill_lower(lower):
    for name, (mode, content) in _BELOW.items():
        path = lower / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    (lower / "closed").chmod(0o700)


def _read(path):
    try:
        return path.read_bytes()
    except OSError as e:
        assert e.errno == errno.EIO, e
        return None


def _put_mark(path, target, at, **more):
    """A file of nothing but holes, and with no byte of its own."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, target.stat().st_size)
    os.setxattr(path, forge.MARK_NAME, forge.mark_of(target, at, **more))


def _make_partial_files(layer, lower):
    for number, name in enumerate(_BELOW, 1):
        _put_mark(layer / f"to-{os.path.basename(name)}-{number}", lower / name, name, file_id=number)
    _put_mark(layer / "d" / "private", lower / "d" / "private", "", file_id=10)
    _put_mark(layer / "d" / "public", lower / "d" / "public", "", file_id=11)
    new = [forge.record(forge.NEW, number, len(content)) for number, (_, content) in enumerate(_BELOW.values(), 1)]
    new += [forge.record(forge.NEW, 10, len(_SECRET)), forge.record(forge.NEW, 11, len(_PUBLIC))]
    (layer / forge.MAP_NAME).write_bytes(forge.map_file(new))


def _expect_no_secret(top):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if os.stat(path).st_uid == _USER:
                with open(path, "rb") as f:
                    assert _SECRET[:27] not in f.read(), path


@pytest.mark.parametrize("place", ["upper", "lower", "read-only upper"])
def test_mark_of_an_owner_leads_to_no_file_that_the_owner_cannot_read(stack, theirs, place):
    layer = stack.lower(0) if place == "lower" else theirs
    low = stack.lower(1 if place == "lower" else 0)
    _fill_lower(low)
    os.chown(layer, _USER, _USER)
    (low / "closed").chmod(0o755)  # the forger knows what is in there
    _as_user(_make_partial_files, layer, low)
    (low / "closed").chmod(0o700)
    m = stack.mount(*["ro"] * (place == "read-only upper"))
    for number, name in enumerate(_BELOW, 1):
        assert _read(m / f"to-{os.path.basename(name)}-{number}") is None, name
    assert _read(m / "d" / "private") is None
    assert _read(m / "d" / "public") == _PUBLIC
    lines = [line for line in stack.log.splitlines() if "userxattr" in line]
    assert len(lines) == 6 and all(str(layer) in line for line in lines)
    stack.umount()
    m = stack.mount("userxattr", *["ro"] * (place == "read-only upper"))
    assert _read(m / "to-private-2") == _SECRET


def _make_empty(upper, lower):
    for number, name in enumerate(("private", "closed/open"), 1):
        _put_mark(upper / str(number), lower / name, name, file_id=number)
        os.truncate(upper / str(number), 0)
    (upper / forge.MAP_NAME).write_bytes(forge.map_file([forge.record(forge.NEW, n, len(_SECRET)) for n in (1, 2)]))


def test_file_that_showed_nothing_of_its_lower_file_cannot_be_made_to(stack, theirs):
    """The file needs no lower file at its look-up, and grows behind the server's back."""
    low = stack.lower()
    _fill_lower(low)
    (low / "closed").chmod(0o755)
    _as_user(_make_empty, theirs, low)
    (low / "closed").chmod(0o700)
    m = stack.mount("timeout=0")
    for name in "12":
        assert os.stat(m / name).st_size == 0
        assert os.stat(m / name).st_ino not in (os.stat(low / "private").st_ino, os.stat(low / "closed/open").st_ino)
        with open(m / name, "rb") as f:
            _as_user(os.truncate, theirs / name, len(_SECRET))
            assert os.fstat(f.fileno()).st_size == len(_SECRET)
            try:
                assert _SECRET[:27] not in f.read()
            except OSError as e:
                assert e.errno == errno.EIO


def test_mark_of_an_owner_gives_flatten_nothing_to_copy(stack, theirs):
    low = stack.lower()
    _fill_lower(low)
    (low / "closed").chmod(0o755)
    _as_user(_make_partial_files, theirs, low)
    (low / "closed").chmod(0o700)
    options = f"lowerdir={low},upperdir={theirs},workdir={stack.work}"
    done = subprocess.run([stack.program, "flatten", "-o", options], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    _expect_no_secret(theirs)
    assert (theirs / "d" / "public").read_bytes() == _PUBLIC


def _forge_by_example(path, lower, at):
    """The id and the number that a mark of the user's own has, which the user may read."""
    mark = os.getxattr(path, forge.MARK_NAME)
    uuid, file_id = struct.unpack_from("<IQ", mark, 4)
    os.setxattr(path, forge.MARK_NAME, forge.mark_of(lower / at, at, uuid=uuid, file_id=file_id))


@pytest.mark.parametrize("mode", [0o644, 0o666])
@pytest.mark.parametrize("owner", [0, _USER])
def test_mark_is_not_believed_where_root_keeps_the_map(stack, owner, mode):
    low = stack.lower()
    _fill_lower(low)
    (low / "mine").write_bytes(_PUBLIC[:len(_SECRET)])
    os.chown(low / "mine", owner, owner)
    (low / "mine").chmod(mode)
    write_at(stack.mount() / "mine", b"x", 3)
    stack.umount()
    if owner == 0 and mode == 0o644:
        with pytest.raises(AssertionError, match="PermissionError"):
            _as_user(_forge_by_example, stack.upper / "mine", low, "private")
        return
    _as_user(_forge_by_example, stack.upper / "mine", low, "private")
    assert _read(stack.mount() / "mine") is None


def _set_acl(path):
    os.setxattr(path, acl.ACCESS, acl.encode((acl.USER_OBJ, 6), (acl.USER, 6, _USER), (acl.GROUP_OBJ, 0), (acl.MASK, 6),
                                             (acl.OTHER, 0)))


_GIVEN = {"chown": lambda path: os.chown(path, _USER, _USER), "chmod": lambda path: path.chmod(0o666),
          "chgrp": lambda path: (os.chown(path, 0, _USER), path.chmod(0o660)), "ACL": _set_acl}


@pytest.mark.parametrize("way", _GIVEN)
@pytest.mark.parametrize("changed", ["before", "after", "never"])
@pytest.mark.parametrize("moved", ["", "renamed", "linked"])
def test_file_that_root_gave_away_shows_what_it_showed(stack, way, changed, moved):
    """In later mounts too, as a layer below, and wherever its new owner moves it."""
    low = stack.lower()
    _fill_lower(low)
    m = stack.mount()
    want = bytearray(_SECRET)

    def change():
        write_at(m / "private", b"changed", 9_000)
        want[9_000:9_007] = b"changed"
    if changed == "before":
        change()
    if moved == "renamed":
        (m / "private").rename(m / "elsewhere")
        (m / "elsewhere").rename(m / "private")
    elif moved == "linked":
        os.link(m / "private", m / "linked")
    _GIVEN[way](m / "private")
    if changed == "after":
        change()
    for step in ("live", "again", "raw", "below"):
        in_child(lambda: check_bytes(m / "private", bytes(want)), uid=_USER, gid=_USER)
        stack.umount()
        if step == "again":
            (stack.upper / "private").rename(stack.upper / "public")
            (stack.upper / "public").rename(stack.upper / "private")
        if step == "raw":
            stack.freeze()
        m = stack.mount()


def check_bytes(path, want):
    assert path.read_bytes() == want


def _move_over(upper, name, other):
    os.rename(upper / name, upper / other)


def test_file_that_root_gave_away_shows_no_other_file_where_its_owner_moves_it(stack, theirs):
    """Another file of the same size and time: only the mark tells them apart."""
    low = stack.lower()
    (low / "given").write_bytes(_SECRET)
    (low / "private").write_bytes(_SECRET[::-1])
    for name in ("given", "private"):
        (low / name).chmod(0o600)
        os.utime(low / name, ns=_TIMES)
    m = stack.mount()
    os.chown(m / "given", _USER, _USER)
    stack.umount()
    _as_user(_move_over, theirs, "given", "private")
    assert (stack.mount() / "private").read_bytes() == _SECRET


def _replace_map(upper, uuid, size):
    (upper / forge.MAP_NAME).unlink()
    (upper / forge.MAP_NAME).write_bytes(forge.map_file([forge.record(forge.NEW, 1, size)], uuid=uuid))


def test_map_of_an_owner_uncovers_nothing_below_the_files_of_root(stack, theirs):
    low = stack.lower()
    _fill_lower(low)
    m = stack.mount()
    write_at(m / "private", b"p" * len(_SECRET), 0)
    (m / "private").chmod(0o644)
    stack.umount()
    uuid = struct.unpack_from("<Q", (theirs / forge.MAP_NAME).read_bytes(), 32)[0]
    _as_user(_replace_map, theirs, uuid, len(_SECRET))
    for _ in range(2):
        m = stack.mount()
        assert _read(m / "private") is None
        write_at(m / "public", b"x", 0)  # the map is written anew, and stays the user's word
        stack.umount()
        subprocess.run([stack.program, "check", "-r", theirs], capture_output=True, timeout=60, check=False)


# ---- redirects, origins, pending copies ----

def _redirect(layer):
    for number, target in enumerate(("/closed", "closed")):
        (layer / f"way{number}").mkdir()
        os.setxattr(layer / f"way{number}", "user.overlay.redirect", os.fsencode(target))


@pytest.mark.parametrize("place", ["upper", "lower"])
def test_redirect_of_an_owner_leads_into_no_directory(stack, theirs, place):
    layer = stack.lower(0) if place == "lower" else theirs
    low = stack.lower(1 if place == "lower" else 0)
    _fill_lower(low)
    os.chown(layer, _USER, _USER)
    _as_user(_redirect, layer)
    m = stack.mount()
    for number in range(2):
        for action in (lambda path: os.listdir(path), lambda path: (path / "open").read_bytes()):
            with fails_with(errno.EIO):
                action(m / f"way{number}")
    assert any("could have forged" in line for line in stack.log.splitlines())
    m = stack.remount("userxattr")
    assert (m / "way0" / "open").read_bytes() == _SECRET


def test_directory_that_root_gave_away_and_renamed_is_still_merged(stack):
    _fill_lower(stack.lower())
    m = stack.mount()
    os.rename(m / "d", m / "moved")
    os.chown(m / "moved", _USER, _USER)
    for _ in range(2):
        assert sorted(os.listdir(m / "moved")) == ["private", "public"]
        stack.freeze()
        m = stack.mount()


def _copy_number(layer):
    (layer / "copy").write_text("mine")
    os.setxattr(layer / "copy", "user.veneer.origin", b"private")


def test_origin_of_an_owner_gives_no_number_of_another_file(stack, theirs):
    _fill_lower(stack.lower())
    _as_user(_copy_number, theirs)
    m = stack.mount()
    assert os.stat(m / "copy").st_ino != os.stat(m / "private").st_ino
    assert {e.inode() for e in os.scandir(m) if e.name == "copy"} == {os.stat(m / "copy").st_ino}


def _leave_pending(upper, target):
    (upper / ".wh..wh.links").mkdir(mode=0o700)
    (upper / "mine").write_text("mine")
    os.setxattr(upper / "mine", "user.veneer.origin", os.fsencode(target))
    os.link(upper / "mine", upper / ".wh..wh.links" / "1")


@pytest.mark.parametrize("whose", ["the user's", "root's"])
def test_pending_copy_of_an_owner_takes_no_name(stack, theirs, whose):
    """root's: a server died there, and the user changed what the copy says of itself."""
    (stack.lower() / "etc").mkdir()
    (stack.lower() / "etc" / "one").write_text("root's")
    os.link(stack.lower() / "etc" / "one", stack.lower() / "etc" / "two")
    (stack.upper / "etc").mkdir()
    _as_user(_leave_pending, theirs, "etc/one")
    if whose == "root's":
        os.chown(theirs / ".wh..wh.links", 0, 0)
    m = stack.mount()
    for name in ("one", "two"):
        assert (m / "etc" / name).read_text() == "root's"
        assert os.stat(m / "etc" / name).st_uid == 0
    assert (m / "mine").read_text() == "mine"
    (m / "etc" / "one").chmod(0o600)
    assert os.stat(m / "etc" / "two").st_mode & 0o777 == 0o600
    stack.umount()
    assert not (theirs / ".wh..wh.links").exists()


# ---- a file of another one's, moved into a lower layer ----

@pytest.fixture
def their_lower(stack):
    """A lower layer of the user's, and a file of root's in another directory of the user's, which the user may move."""
    for path in (stack.lower(), stack.base / "theirs"):
        path.mkdir(exist_ok=True)
        os.chown(path, _USER, _USER)
    secret = stack.base / "theirs" / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    (stack.lower() / "f").write_text("theirs")
    (stack.lower() / "f").chmod(0o644)
    return stack.lower()


def _expect_not_shown(path):
    def read():
        try:
            assert "secret" not in path.read_text()
        except OSError as e:
            assert e.errno in (errno.EACCES, errno.ESTALE), e
    for _ in range(3):
        _as_user(read)


@pytest.mark.parametrize("known", ["mode", "bytes"])
def test_file_that_is_moved_into_a_lower_is_not_shown_by_the_mode_of_the_one_before(stack, their_lower, known):
    """Nor copied: the copy would have that mode for good."""
    stack.mount()
    os.stat(stack.mnt / "f")
    if known == "bytes":
        assert (stack.mnt / "f").read_text() == "theirs"
    _as_user(os.rename, stack.base / "theirs" / "secret", their_lower / "f")
    stack.forget_lower(their_lower)
    _expect_not_shown(stack.mnt / "f")
    with contextlib.suppress(OSError):
        os.truncate(stack.mnt / "f", 7)
    _expect_not_shown(stack.mnt / "f")


def test_file_of_the_same_owner_and_mode_that_takes_a_place_in_a_lower_is_shown(stack, their_lower):
    stack.mount()
    os.stat(stack.mnt / "f")
    new = stack.base / "theirs" / "new"
    new.write_text("edited")
    new.chmod(0o644)
    os.rename(new, their_lower / "f")
    stack.forget_lower(their_lower)
    assert (stack.mnt / "f").read_text() == "edited"
