# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration suite.

The mode is that of the process: `pytest tests/integration` as root is mode "root"; the same with --rootless runs itself
again as an ordinary user in a user namespace, mode "userns", and with --plain as one without any, mode "plain", in which
fusermount3 mounts. Mounts are made by the mount program and served by one server for the whole session; with
--mode=standalone each mount is served by a process of its own in the foreground.
VENEER_BIN names the program (default build/veneer), VENEER_RUNTIME_DIR a run directory in place of one that is made, VENEER_TEST_DIR
a directory on the file system to test on, VENEER_TEST_OPTIONS mount options to add everywhere, VENEER_TEST_KEEP=1 keeps the
directories of failed tests.
"""
import itertools
import os
import pathlib
import shutil
import tempfile
from xml.etree import ElementTree

import pytest

from support import linux, rootless, server as mounts, unprivileged
from support.command import mount_points
from support.content import MIB
from support.killer import Killer
from support.shared import SharedServer
from support.stack import Stack, remove_tree, stack_on
from support.suite import new_directory, program, show_log, veneer_bin, watchdog  # noqa: F401

_numbers = itertools.count()
_own_run_dir = {}


def pytest_addoption(parser):
    parser.addoption("--rootless", action="store_true",
                     help="run as an ordinary user in a user namespace")
    parser.addoption("--plain", action="store_true",
                     help="run as an ordinary user without any privileges, mounting by fusermount3")
    parser.addoption("--mode", choices=["standalone", "server"], default="server",
                     help="who serves the mounts: one server for the session, or a process of its own for each")
    parser.addoption("--share", action="store_true",
                     help="mounts share the kernel's pages (share=pages); takes --mode=server")
    parser.addoption("--writeback", action="store_true", help="mounts keep writes in the kernel (writeback=on)")
    parser.addoption("--once", action="store_true", help="each test function with its first parameters alone")
    parser.addoption("--core", action="store_true", help="as --once, without the functions of not_core.txt")
    parser.addoption("--without", type=pathlib.Path, metavar="REPORT",
                     help="not the tests that passed in a run that left this file by --junitxml")
    parser.addoption("--killing", type=float, metavar="SECONDS", default=0,
                     help="kill the server that often, on average; the next goes on")


def pytest_cmdline_main(config):
    is_plain = config.getoption("--plain")
    if is_plain and config.getoption("--rootless"):
        raise pytest.UsageError("--plain and --rootless are two modes")
    if rootless.is_inside() or not (is_plain or config.getoption("--rootless")):
        return None
    if rootless.is_plain():
        if is_plain:
            return None
        raise pytest.UsageError("--rootless prepares the namespaces as root")
    # The cache in the source tree is not this user's to write; one that the caller names is.
    is_named = any(setting.startswith("cache_dir=") for setting in config.getoption("override_ini") or [])
    cache = [] if is_named else ["-p", "no:cacheprovider"]
    arguments = ["-m", "pytest", *cache, *config.invocation_params.args]
    return rootless.run(arguments, program(), is_plain)


def pytest_configure(config):
    if config.getoption("--share") and config.getoption("--mode") != "server":
        raise pytest.UsageError("--share takes --mode=server")
    if config.getoption("--writeback"):
        mounts.keep_writes()
    config.addinivalue_line("markers", "writethrough: what is tested is otherwise with writeback=on")
    config.addinivalue_line("markers", "unshared: what is tested is otherwise with share=pages")
    # What is learned here is nobody's, and a test is not changed by what was learned elsewhere.
    os.environ["VENEER_STATE_DIR"] = tempfile.mkdtemp(prefix="veneer-state-")
    # Nor is what a test mounts served by somebody's server; one that has its own names that directory.
    if "VENEER_RUNTIME_DIR" not in os.environ:
        os.environ["VENEER_RUNTIME_DIR"] = _own_run_dir["path"] = tempfile.mkdtemp(prefix="veneer-run-")
    # A server of a test is where the test is, and is counted and ended with it.
    os.environ.setdefault("VENEER_CGROUP", "")
    config.addinivalue_line("markers", "needs_root: cannot work in a user namespace")
    config.addinivalue_line("markers", "needs_privileges: cannot work without the capabilities of a user namespace")
    config.addinivalue_line("markers", "standalone: about a process that serves one mount alone")
    if os.geteuid() == 0 and not config.getoption("--rootless") and not config.getoption("--plain"):
        linux.private_mounts()
    elif rootless.is_plain():
        unprivileged.install()


def pytest_unconfigure(config):
    shutil.rmtree(os.environ.pop("VENEER_STATE_DIR", ""), ignore_errors=True)
    if path := _own_run_dir.pop("path", None):
        del os.environ["VENEER_RUNTIME_DIR"]
        shutil.rmtree(path, ignore_errors=True)


def _passed_in(report):
    """(file, name) of each test."""
    return {(case.get("classname").rsplit(".", 1)[-1], case.get("name"))
            for case in ElementTree.parse(report).getroot().iter("testcase") if len(case) == 0}


def _chosen(config, items):
    """Of each function its parameters as the options say."""
    functions, is_core = {}, config.getoption("--core")
    n = 1 if is_core or config.getoption("--once") else len(items)
    left_out = (pathlib.Path(__file__).parent / "not_core.txt").read_text().split() if is_core else []
    report = config.getoption("--without")
    passed = _passed_in(report) if report and report.exists() else set()
    for item in items:
        functions.setdefault((item.path.name, item.originalname), []).append(item)
    for (path, name), same in functions.items():
        if f"{path}::{name}" not in left_out:
            yield from (item for item in same[:n] if (item.path.stem, item.name) not in passed)


def pytest_collection_modifyitems(config, items):
    kept = {id(item) for item in _chosen(config, items)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def pytest_runtest_setup(item):
    if rootless.is_inside() and (marker := item.get_closest_marker("needs_root")):
        pytest.skip("in a user namespace: " + (marker.args[0] if marker.args else "needs root"))
    for name in ("needs_root", "needs_privileges"):
        if rootless.is_plain() and (marker := item.get_closest_marker(name)):
            pytest.skip("as a plain user: " + marker.args[0])
    if item.config.getoption("--mode") == "server" and (marker := item.get_closest_marker("standalone")):
        pytest.skip("with a shared server: " + marker.args[0])
    if item.config.getoption("--writeback") and (marker := item.get_closest_marker("writethrough")):
        pytest.skip("with writeback=on: " + marker.args[0])
    if item.config.getoption("--share") and (marker := item.get_closest_marker("unshared")):
        pytest.skip("with share=pages: " + marker.args[0])


def pytest_report_header(config):
    return (f"veneer: {program()}, mode {rootless.mode()}, "
            f"{config.getoption('--mode')}{', share=pages' if config.getoption('--share') else ''}"
            f"{', writeback=on' if config.getoption('--writeback') else ''}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    show_log(item, report, "stack")
    if report.failed:
        item.has_failed = True


@pytest.fixture(scope="session")
def mode():
    return rootless.mode()


@pytest.fixture(scope="session")
def session_dir():
    path = new_directory("test")
    path.chmod(0o755)
    yield path
    if not any(path.iterdir()):
        path.rmdir()


@pytest.fixture(scope="session")
def serving(request, veneer_bin, session_dir, watchdog):
    """The server of the mounts: None (each mount has its own process), or the server of the session."""
    if request.config.getoption("--mode") != "server":
        yield None
        return
    shared = SharedServer(veneer_bin, session_dir / "run", watchdog)
    mounts.use(shared, shares_pages=request.config.getoption("--share"))
    killer = Killer(shared, request.config.getoption("--killing"))
    yield shared
    killer.close()
    mounts.use(None)
    code = shared.stop()
    if code == 0:
        shutil.rmtree(shared.directory)
    assert code == 0, f"the server ended with {code}\n{shared.log[-4000:]}"


@pytest.fixture
def stack(request, veneer_bin, session_dir, watchdog, serving):
    """Lowers, upper and mount point of one test, all empty; nothing is mounted yet."""
    old_mask = os.umask(0o022)
    made = Stack(session_dir / f"t{next(_numbers)}", veneer_bin, watchdog)
    yield made
    os.umask(old_mask)
    problems = made.close()
    failed = problems or getattr(request.node, "has_failed", False)
    if not (failed and os.environ.get("VENEER_TEST_KEEP")):
        made.discard()
    if problems:
        pytest.fail("\n".join(problems) + "\n" + made.log[-4000:], pytrace=False)


@pytest.fixture
def reflink_stack(session_dir, veneer_bin, watchdog):
    """A stack on XFS, where extents can be shared."""
    with stack_on("xfs", 400 * MIB, session_dir, veneer_bin, watchdog) as made:
        yield made


@pytest.fixture
def shared(stack, veneer_bin, watchdog):
    """A server of the test's own, for as many mounts as it likes."""
    made = SharedServer(veneer_bin, stack.base / "run", watchdog)
    made.ensure()
    yield made
    for point in reversed(mount_points(stack.base)):
        linux.umount(point, linux.MNT_DETACH)
    made.kill()


@pytest.fixture
def plain(session_dir):
    """An ordinary directory beside the stack, to compare with."""
    path = session_dir / f"plain{next(_numbers)}"
    path.mkdir(mode=0o755)
    yield path
    remove_tree(path)
