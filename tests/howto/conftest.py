# SPDX-License-Identifier: Apache-2.0
"""Machines on which pages are followed. VENEER_BIN names the program (default build/veneer)."""
import itertools
import os
import pathlib
import tempfile

import pytest

from machine import Machine, remove
from support import suite

os.environ["PATH"] += ":/usr/sbin:/sbin"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def program():
    return suite.program()


@pytest.fixture(scope="session")
def scratch():
    path = pathlib.Path(tempfile.mkdtemp(prefix="veneer-howto-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    remove(path)


@pytest.fixture
def machine(scratch, program):
    """This one, with veneer installed."""
    if os.geteuid() != 0:
        pytest.skip("a machine for a page is made as root")
    made = Machine(scratch / f"m{next(_numbers)}")
    made.install(program)
    yield made
    made.close()
