# SPDX-License-Identifier: Apache-2.0
"""Labels as the engines pass them with SELinux: accepted, ignored, and in nobody's way."""
import errno
import os

import pytest

from support.expect import fails_with

_LABELS = ['context="system_u:object_r:container_file_t:s0:c1,c2"', 'context="system_u:object_r:container_file_t:s0"',
           "context=system_u:object_r:container_file_t:s0:c5", 'context=""', "context=",
           'context="a,squash_to_uid=99,b"', 'fscontext="x:y:z:s0:c1,c2"',
           'rootcontext="x:y:z:s0:c1,c2",defcontext="a,b"',
           "seclabel"]


@pytest.mark.parametrize("label", _LABELS)
@pytest.mark.parametrize("place", ["first", "last", "between"])
def test_label_is_taken_and_the_other_options_count(stack, label, place):
    (stack.lower() / "f").write_text("lower")
    os.chown(stack.lower() / "f", 5, 6)
    options = {"first": (label, "squash_to_uid=7", "squash_to_gid=8"), "last": ("squash_to_uid=7", "squash_to_gid=8",
                                                                                label),
               "between": ("squash_to_uid=7", label, "squash_to_gid=8")}[place]
    m = stack.mount(*options)
    st = (m / "f").stat()
    assert (st.st_uid, st.st_gid) == (7, 8)
    (m / "f").write_text("changed")
    (m / "n").write_text("new")
    m = stack.remount(*options)
    assert ((m / "f").read_text(), (m / "n").read_text()) == ("changed", "new")
    if label.startswith("context="):
        assert "ignored" not in stack.log
    raw = [name for name in os.listxattr(stack.upper / "n") if name == "security.selinux"]
    assert raw == [name for name in os.listxattr(stack.upper) if name == "security.selinux"]


def test_label_with_an_unclosed_quote_is_still_a_mount(stack):
    (stack.lower() / "f").write_text("lower")
    m = stack.mount('context="system_u:object_r:x:s0:c1', "squash_to_uid=7")
    assert (m / "f").read_text() == "lower"


def test_labels_of_files_are_kept_where_they_can_be_set(stack):
    """Without SELinux a label is an attribute like others; with it, policy decides."""
    (stack.lower() / "f").write_text("x")
    try:
        os.setxattr(stack.lower() / "f", "security.selinux", b"system_u:object_r:usr_t:s0\0")
    except OSError as e:
        pytest.skip(f"labels cannot be set here: {e}")
    m = stack.mount('context="system_u:object_r:container_file_t:s0:c1,c2"')
    assert os.getxattr(m / "f", "security.selinux").startswith(b"system_u:object_r:usr_t")
    os.chmod(m / "f", 0o600)
    assert os.getxattr(m / "f", "security.selinux").startswith(b"system_u:object_r:usr_t")
    (m / "new").write_text("")
    with fails_with(errno.ENODATA, errno.EOPNOTSUPP):
        os.getxattr(m / "new", "security.selinux")
