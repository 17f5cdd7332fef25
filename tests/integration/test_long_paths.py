# SPDX-License-Identifier: Apache-2.0
"""A partial file says by its path what it stands over, in its mark and in the seal of it; ext4 has 4 KiB for all attributes
of a file. Whatever does not fit changes no content, neither now nor at the next mount."""
import errno
import os

import pytest

from support.content import blob
from support.expect import write_at

_NAME = "d" * 250


@pytest.fixture(params=[4, 8, 14])
def file(stack, request):
    """A lower file at a path of one to three and a half KiB."""
    where = os.path.join(*[_NAME] * request.param)
    (stack.lower() / where).mkdir(parents=True)
    (stack.lower() / where / "f").write_bytes(blob(100_000))
    return os.path.join(where, "f")


def _expect(path):
    assert path.read_bytes() == blob(50_000) + b"x" + blob(100_000)[50_001:]


def test_file_is_moved(stack, file):
    m = stack.mount()
    write_at(m / file, b"x", 50_000)
    try:
        (m / file).rename(m / "moved")
        at = "moved"
    except OSError as e:
        assert e.errno == errno.EXDEV
        at = file
    _expect(m / at)
    _expect(stack.remount() / at)


def test_lower_file_is_moved(stack, file):
    m = stack.mount()
    (m / file).rename(m / "moved")
    write_at(m / "moved", b"x", 50_000)
    _expect(m / "moved")
    _expect(stack.remount() / "moved")


@pytest.mark.needs_root("chown")
@pytest.mark.parametrize("is_moved", [False, True])
def test_file_gets_an_owner_that_its_mark_must_not_be_believed_from(stack, file, is_moved):
    """With a path twice that may not fit, and is refused then; the file stays what it is."""
    (stack.lower() / file).chmod(0o600)
    m = stack.mount()
    write_at(m / file, b"x", 50_000)
    at = file
    if is_moved:
        (m / file).rename(m / "moved")
        at = "moved"
    for change in (lambda: os.chown(m / at, 1000, 1000), lambda: os.chmod(m / at, 0o666)):
        try:
            change()
        except OSError as e:
            assert e.errno == errno.ENOSPC and len(file) > 1000
    _expect(m / at)
    _expect(stack.remount() / at)
