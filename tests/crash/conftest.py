# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the power cut suite.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory for the disks'
files (default /var/tmp; any file system will do, the disks bring their own).
"""
import itertools
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [os.path.dirname(__file__), str(_REPOSITORY / "tests" / "integration")]

import disk  # noqa: E402
from machine import BootId, Machine  # noqa: E402
from support import linux  # noqa: E402
from support.watchdog import Watchdog  # noqa: E402

_numbers = itertools.count()


def pytest_configure(config):
    # No profile is kept: its writes are none of those that are recorded and made to fail here.
    os.environ["VENEER_STATE_DIR"] = ""
    # A server of a test is where the test is, and is counted and ended with it.
    os.environ.setdefault("VENEER_CGROUP", "")
    if os.geteuid() == 0:
        linux.private_mounts()


def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.skip("root only: the tests make file systems and mount them")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    machine = getattr(item, "funcargs", {}).get("machine")
    if report.failed and machine and machine.log:
        report.sections.append(("server log", machine.log[-6000:]))


@pytest.fixture(scope="session")
def veneer_bin():
    program = os.path.abspath(os.environ.get("VENEER_BIN", _REPOSITORY / "build" / "veneer"))
    if not os.access(program, os.X_OK):
        pytest.exit(f"{program} is not there: build it, or set VENEER_BIN", returncode=2)
    return program


@pytest.fixture(scope="session")
def session_dir():
    chosen = os.environ.get("VENEER_TEST_DIR", "/var/tmp")
    path = pathlib.Path(tempfile.mkdtemp(prefix="veneer-crash-", dir=chosen))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def host(session_dir):
    if missing := disk.what_is_missing("xfs"):
        pytest.skip(missing)
    made = disk.Host(session_dir)
    yield made
    made.close()


@pytest.fixture(scope="session")
def boot(session_dir):
    made = BootId(session_dir / "boot_id")
    yield made
    made.close()


@pytest.fixture(scope="session")
def watchdog():
    dog = Watchdog()
    yield dog
    dog.close()


@pytest.fixture
def machine(kind, host, boot, veneer_bin, session_dir, watchdog):
    """A machine with an empty lower, on the file system `kind` names; nothing is mounted yet."""
    if missing := disk.what_is_missing(kind):
        pytest.skip(missing)
    boot.reboot()
    made = Machine(session_dir / f"t{next(_numbers)}", host, boot, kind, veneer_bin, watchdog)
    yield made
    problems = made.close()
    made.discard()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
