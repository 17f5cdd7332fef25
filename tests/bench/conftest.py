# SPDX-License-Identifier: Apache-2.0
"""The bench's own modules are imported from where they are."""
import os
import pathlib
import sys

import pytest

sys.dont_write_bytecode = True
TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))


@pytest.fixture
def needs_root():
    if os.geteuid():
        pytest.skip("mounts and loop devices are made as root")
