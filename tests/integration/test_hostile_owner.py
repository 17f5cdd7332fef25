# SPDX-License-Identifier: Apache-2.0
"""An ordinary user owns an upper, or files in it, that root mounts, and writes into it whatever the owner of a file may
write: our attributes, our files. The user gains no byte, bit or owner by it (doc/SPEC.md, section 1)."""
import os
import struct
import subprocess

import pytest

from support.child import in_child
from support.content import blob
from support.expect import write_at

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
    """And to a file that others may write it gives no capability: who wrote it since took that away."""
    for name, uid, mode in (("root's", 0, 0o755), ("user's", _USER, 0o755), ("everybody's", 0, 0o757)):
        path = stack.upper / name
        path.write_bytes(b"program")
        os.chown(path, uid, uid)
        path.chmod(mode)
        os.setxattr(path, _RECORD, _record(0o6777, _CAPABILITY))
    m = stack.mount()
    for name, mode, capability in (("root's", 0o755, _CAPABILITY), ("user's", 0o755, None), ("everybody's", 0o757, None)):
        st = os.stat(m / name)
        assert (st.st_mode & 0o7777, _capability(m / name)) == (mode, capability), name
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
