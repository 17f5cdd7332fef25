# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the soak.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory on the file system to test on
(default /var/tmp), VENEER_SOAK_S how long the short soak takes, VENEER_SOAK_BUSY how many mounts are worked in at a
time.
"""
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [os.path.dirname(__file__), str(_REPOSITORY / "tests" / "integration")]

from support import linux  # noqa: E402
from support.command import mount_points  # noqa: E402
from support.shared import SharedServer  # noqa: E402


def pytest_configure(config):
    os.environ.setdefault("VENEER_CGROUP", "")
    if os.geteuid() == 0:
        linux.private_mounts()


def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.skip("root only: disks are made and memory is limited")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and server and server.log:
        report.sections.append(("server log", server.log[-6000:]))


@pytest.fixture(scope="session")
def veneer_bin():
    program = os.path.abspath(os.environ.get("VENEER_BIN", _REPOSITORY / "build" / "veneer"))
    if not os.access(program, os.X_OK):
        pytest.exit(f"{program} is not there: build it, or set VENEER_BIN", returncode=2)
    return program


@pytest.fixture
def base():
    chosen = os.environ.get("VENEER_TEST_DIR", "/var/tmp")
    path = pathlib.Path(tempfile.mkdtemp(prefix="veneer-soak-", dir=chosen))
    yield path
    for point in reversed(mount_points(path)):
        linux.umount(point, linux.MNT_DETACH)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(veneer_bin, base):
    made = SharedServer(veneer_bin, base / "run")
    made.ensure()
    yield made
    for point in reversed(mount_points(base)):
        linux.umount(point, linux.MNT_DETACH)
    made.kill()
