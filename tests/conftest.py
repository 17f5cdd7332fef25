# SPDX-License-Identifier: Apache-2.0
"""What all directories of tests take: with --beside, a Bystander is on the machine meanwhile, as where veneer is in use.

The run then has mounts of its own, and in them a default run directory: neither a developer's server nor a run beside this
one is seen. Every suite imports what suites share as `support`; tests/bench means the bench's own by that.
"""
import ctypes
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_RUN = "/run/veneer"
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_beside = {}


def pytest_addoption(parser):
    parser.addoption("--beside", action="store_true",
                     help="another server and its mounts are in use meanwhile, and must live on undisturbed")


def _call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _give_run_directory(place):
    """The default one, as src/server/rundir.c finds it, is this place for all that the run starts."""
    if os.geteuid() != 0 or not os.access("/run", os.W_OK):
        os.environ["XDG_RUNTIME_DIR"] = str(place)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.unshare, _CLONE_NEWNS)
    _call(libc.mount, b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
    os.makedirs(_RUN, mode=0o700, exist_ok=True)
    (place / "veneer").mkdir(mode=0o700)
    _call(libc.mount, os.fsencode(place / "veneer"), _RUN.encode(), None, ctypes.c_ulong(_MS_BIND), None)


def pytest_configure(config):
    if not config.getoption("--beside"):
        return
    place = pathlib.Path(tempfile.mkdtemp(prefix="veneer-beside-", dir="/var/tmp"))
    place.chmod(0o755)
    _beside["place"] = place
    _give_run_directory(place)


def pytest_unconfigure():
    if "place" in _beside:
        shutil.rmtree(_beside.pop("place"))


@pytest.fixture(scope="session", autouse=True)
def bystander(request):
    """Asked at the end, when the run has ended all that it started."""
    if not request.config.getoption("--beside"):
        yield
        return
    from support.bystander import Bystander  # here, since tests/bench has a package of this name
    program = os.environ.get("VENEER_BIN", _REPOSITORY / "build" / "veneer")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VENEER_")}
    one = Bystander(os.path.abspath(program), _beside["place"], environment)
    try:
        one.start()
        yield
        problems = one.problems()
    finally:
        one.stop()
    assert not problems, "\n".join(problems)
