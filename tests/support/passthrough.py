# SPDX-License-Identifier: Apache-2.0
"""The mount that the tests of passthrough begin with."""
import os

import pytest

from .content import KIB, blob
from .counters import counters
from .server import wait_until

LARGE = 300 * KIB
NOTHING_PASSES = "nothing is passed through"
NEEDS_ROOT = pytest.mark.needs_root("a user namespace may not register backing files")


@pytest.fixture
def m(stack):
    """A mount over one large, one small and one executable file, with passthrough."""
    low = stack.lower()
    (low / "large").write_bytes(blob(LARGE))
    (low / "small").write_bytes(blob(10 * KIB, 2))
    (low / "prog").write_bytes(blob(20 * KIB, 3))
    (low / "prog").chmod(0o755)
    (low / "libx.so.1").write_bytes(blob(20 * KIB, 4))
    (low / "d").mkdir()
    mnt = stack.mount("io=passthrough")
    if "BACKING FILES" not in counters(stack.server):
        pytest.skip("this kernel registers no backing files")
    return mnt


def settle():
    """Until the closes of a file have arrived, so that the next open starts anew."""
    os.sync()
    wait_until(lambda: False, 0.03)
