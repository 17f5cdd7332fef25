# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the suite that makes system calls and allocations fail.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory to test in, VENEER_FAULT_SEED the seed
of the sample, VENEER_FAULT_STEPS the steps to do (default: all)."""
import itertools
import os
import pathlib
import shutil

import pytest

from control import Control
from support import suite
from support.suite import watchdog  # noqa: F401

_numbers = itertools.count()


def pytest_configure(config):
    # No profile is kept: its writes are none of those that are recorded and made to fail here.
    os.environ["VENEER_STATE_DIR"] = ""
    suite.set_apart()


@pytest.fixture(scope="session")
def veneer_bin():
    path = suite.program_built()
    if os.geteuid() != 0:
        pytest.skip("root only: the tests mount")
    return path


@pytest.fixture(scope="session")
def session_dir():
    path = suite.new_directory("fault")
    path.chmod(0o755)
    yield path
    if not os.environ.get("VENEER_TEST_KEEP"):
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def control(session_dir, veneer_bin):
    library = pathlib.Path(veneer_bin).parent / "tests" / "fault" / "libveneer-fault.so"
    assert library.exists(), f"{library} is not there: build it"
    return Control(session_dir / "control", library, veneer_bin)


@pytest.fixture
def base(session_dir):
    path = session_dir / f"t{next(_numbers)}"
    path.mkdir(mode=0o755)
    return path
