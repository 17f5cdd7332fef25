# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the soak.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory on the file system to test on
(default /var/tmp), VENEER_SOAK_S how long the short soak takes, VENEER_SOAK_BUSY how many mounts are worked in at a
time.
"""
import os
import shutil

import pytest

from support import linux
from support.command import mount_points
from support.shared import SharedServer
from support.suite import new_directory, set_apart, show_log, veneer_bin  # noqa: F401


def pytest_configure(config):
    set_apart()


def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.skip("root only: disks are made and memory is limited")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    show_log(item, (yield).get_result(), "server")


@pytest.fixture
def base():
    path = new_directory("soak")
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
