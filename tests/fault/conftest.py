# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the suite that makes system calls and allocations fail.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory to test in, VENEER_FAULT_SEED the seed
of the sample, VENEER_FAULT_STEPS the steps to do (default: all)."""
import itertools
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

_numbers = itertools.count()
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [os.path.dirname(__file__), str(_REPOSITORY / "tests" / "integration")]

from control import Control  # noqa: E402
from support import linux  # noqa: E402
from support.watchdog import Watchdog  # noqa: E402


def pytest_configure(config):
    # No profile is kept: its writes are none of those that are recorded and made to fail here.
    os.environ["VENEER_STATE_DIR"] = ""
    # A server of a test is where the test is, and is counted and ended with it.
    os.environ.setdefault("VENEER_CGROUP", "")
    if os.geteuid() == 0:
        linux.private_mounts()


@pytest.fixture(scope="session")
def veneer_bin():
    program = os.path.abspath(os.environ.get("VENEER_BIN", _REPOSITORY / "build" / "veneer"))
    if not os.access(program, os.X_OK):
        pytest.exit(f"{program} is not there: build it, or set VENEER_BIN", returncode=2)
    if os.geteuid() != 0:
        pytest.skip("root only: the tests mount")
    return program


@pytest.fixture(scope="session")
def session_dir():
    chosen = os.environ.get("VENEER_TEST_DIR", "/var/tmp")
    path = pathlib.Path(tempfile.mkdtemp(prefix="veneer-fault-", dir=chosen))
    path.chmod(0o755)
    yield path
    if not os.environ.get("VENEER_TEST_KEEP"):
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def watchdog():
    dog = Watchdog()
    yield dog
    dog.close()


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
