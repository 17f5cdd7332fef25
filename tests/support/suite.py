# SPDX-License-Identifier: Apache-2.0
"""What the conftest.py of a suite begins with: the program under test, a directory to test in, the process set apart."""
import os
import pathlib
import tempfile

import pytest

from . import linux
from .repository import REPOSITORY
from .watchdog import Watchdog

_SHOWN = 6000


def program():
    return os.path.abspath(os.environ.get("VENEER_BIN", REPOSITORY / "build" / "veneer"))


def new_directory(suite):
    chosen = os.environ.get("VENEER_TEST_DIR", "/var/tmp")
    return pathlib.Path(tempfile.mkdtemp(prefix=f"veneer-{suite}-", dir=chosen))


def set_apart():
    """A server of a test is where the test is, and is counted and ended with it; what root mounts ends with the suite."""
    os.environ.setdefault("VENEER_CGROUP", "")
    if os.geteuid() == 0:
        linux.private_mounts()


def show_log(item, report, name):
    """A failure shows what the servers of the fixture said."""
    fixture = getattr(item, "funcargs", {}).get(name)
    if report.failed and fixture and fixture.log:
        report.sections.append(("server log", fixture.log[-_SHOWN:]))


def program_built():
    path = program()
    if not os.access(path, os.X_OK):
        pytest.exit(f"{path} is not there: build it, or set VENEER_BIN", returncode=2)
    return path


@pytest.fixture(scope="session")
def veneer_bin():
    return program_built()


@pytest.fixture(scope="session")
def watchdog():
    dog = Watchdog()
    yield dog
    dog.close()
