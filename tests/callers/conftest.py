# SPDX-License-Identifier: Apache-2.0
"""Fixtures for real callers: the program under test, one namespace, and an engine per scope.

VENEER_BIN_DIR names the directory with `veneer` and `fuse-overlayfs` (default: build/ of the
tree). Pointed at a directory that has only `fuse-overlayfs`, the tests run against that one, and
what only block-granular copying gives is then not asked of it. VENEER_CALLERS_DIR is where
stores are made (default: /var/tmp); it must be on a real file system.
"""
import os
import shutil
import subprocess
import tempfile

import pytest

import engine
import image_tree
from mount_program import FuseDevice, MountProgram

USER = "veneer-test"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_session = {}


@pytest.fixture(scope="session")
def base():
    assert os.geteuid() == 0, "engines are run as root and from there as a user: start as root"
    path = tempfile.mkdtemp(prefix="veneer-callers-",
                            dir=os.environ.get("VENEER_CALLERS_DIR", "/var/tmp"))
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def mount_program(base):
    bin_dir = os.path.abspath(os.environ.get("VENEER_BIN_DIR", os.path.join(ROOT, "build")))
    program = MountProgram(bin_dir, base)
    _session["program"] = program
    yield program
    program.stop_all()


@pytest.fixture(scope="session")
def namespace(base, mount_program):
    """Closed before the program is stopped, so that servers see their mounts go first."""
    engine.REAPER.start()
    ns = engine.Namespace()
    yield ns
    ns.close(base)
    engine.REAPER.close()


@pytest.fixture(scope="session")
def image(base):
    """(path of the archive, {name: description} of what an engine must show of it)."""
    path = os.path.join(base, "image.tar")
    expected = image_tree.write_image(path)
    return path, image_tree.interesting(expected)


@pytest.fixture(scope="session")
def rootless_user():
    """A user with subordinate ids; it is ours by its name, so one left behind is taken over."""
    subprocess.run(["userdel", "-f", USER], capture_output=True)
    subprocess.run(["useradd", "-M", "-d", "/nonexistent", "-s", "/bin/sh", USER], check=True,
                   capture_output=True)
    for path, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        with open(path) as f:
            if not any(line.startswith(USER + ":") for line in f):
                subprocess.run(["usermod", option, "1000000-1065535", USER], check=True)
    with FuseDevice():
        yield USER
    subprocess.run(["userdel", "-f", USER], capture_output=True)


def _need(*binaries):
    name = engine.missing(*binaries)
    if name:
        pytest.skip("%s is not installed" % name)


def _store(request, namespace, base, name, image, program, user=None):
    store = engine.Containers(namespace, os.path.join(base, name), program, user)
    request.addfinalizer(store.close)
    store.import_image(image[0])
    return store


@pytest.fixture(scope="session", params=["root", "rootless"])
def podman(request, namespace, base, mount_program, image):
    _need("podman", "crun")
    user = None
    if request.param == "rootless":
        _need("newuidmap", "setpriv")
        user = request.getfixturevalue("rootless_user")
    return _store(request, namespace, base, "podman-" + request.param, image, mount_program, user)


@pytest.fixture(scope="session")
def podman_root(request, namespace, base, mount_program, image):
    _need("podman", "buildah", "crun")
    return _store(request, namespace, base, "store", image, mount_program)


@pytest.fixture(scope="session")
def podman_native(request, namespace, base, image):
    """The same engine on the kernel's overlayfs."""
    _need("podman", "crun")
    return _store(request, namespace, base, "native", image, None)


@pytest.fixture(scope="session")
def docker(request, namespace, base, mount_program, image):
    return _docker(request, namespace, base, image, mount_program, "fuse-overlayfs")


@pytest.fixture(scope="session")
def docker_native(request, namespace, base, image):
    return _docker(request, namespace, base, image, None, "overlay2")


def _docker(request, namespace, base, image, program, driver):
    _need("dockerd", "docker", "containerd", "runc")
    daemon = engine.Docker(namespace, os.path.join(base, "docker-" + driver), program, driver)
    request.addfinalizer(daemon.close)
    _session.setdefault("dockers", []).append(daemon)
    daemon.import_image(image[0])
    return daemon


@pytest.fixture(autouse=True)
def leaves_no_container(request):
    """Each test ends without containers, and a removed container without its FUSE mount."""
    yield
    used = [request.getfixturevalue(n) for n in ("podman", "podman_root", "docker")
            if n in request.fixturenames and n in request.node.funcargs]
    for one in used:
        one.remove_all()
        assert one.fuse_mounts() == []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What the engine gave the mount program belongs to every failure."""
    outcome = yield
    report = outcome.get_result()
    program = _session.get("program")
    if not report.failed or not program:
        return
    report.sections.append(("calls of the mount program", program.calls()[-6000:]))
    for daemon in _session.get("dockers", []):
        report.sections.append(("dockerd (%s)" % daemon.driver, daemon.log_tail()))
