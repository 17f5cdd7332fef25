# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the power cut suite.

VENEER_BIN names the program (default build/veneer), VENEER_TEST_DIR a directory for the disks'
files (default /var/tmp; any file system will do, the disks bring their own).
"""
import itertools
import os
import shutil

import pytest

import disk
from machine import BootId, Machine
from support.suite import new_directory, set_apart, show_log, veneer_bin, watchdog  # noqa: F401

_numbers = itertools.count()


def pytest_configure(config):
    # No profile is kept: its writes are none of those that are recorded and made to fail here.
    os.environ["VENEER_STATE_DIR"] = ""
    set_apart()


def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.skip("root only: the tests make file systems and mount them")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    show_log(item, (yield).get_result(), "machine")


@pytest.fixture(scope="session")
def session_dir():
    path = new_directory("crash")
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
