# SPDX-License-Identifier: Apache-2.0
"""Fixtures for real callers: the program under test, one namespace, and an engine per scope.

VENEER_BIN_DIR names the directory with `veneer` and `fuse-overlayfs` (default: build/ of the
tree). Pointed at a directory that has only `fuse-overlayfs`, the tests run against that one, and
what only block-granular copying gives is then not asked of it. VENEER_CALLERS_DIR is where
stores are made (default: /var/tmp); it must be on a real file system.
"""
import os
import shutil
import tempfile

import pytest

import engine
import host
import image_tree
import life
from containers import Containers
from docker import Docker
from guest import Guest
from mount_program import MountProgram
from support.repository import REPOSITORY

USER = "veneer-test"
_session = {}


@pytest.fixture(scope="session")
def base():
    assert os.geteuid() == 0, "engines are run as root and from there as a user: start as root"
    path = tempfile.mkdtemp(prefix="veneer-callers-",
                            dir=os.environ.get("VENEER_CALLERS_DIR", "/var/tmp"))
    os.chmod(path, 0o755)
    try:
        with host.alone(USER):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def mount_program(base):
    bin_dir = os.path.abspath(os.environ.get("VENEER_BIN_DIR", REPOSITORY / "build"))
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
def fuse_device(base):
    with host.FuseDevice():
        yield


@pytest.fixture(scope="session")
def rootless_user(fuse_device):
    """A user with subordinate ids; it is ours by its name, so one left behind is taken over."""
    with host.User(USER):
        yield USER


def _need(*binaries):
    name = engine.missing(*binaries)
    if name:
        pytest.skip("%s is not installed" % name)


def _store(request, name, program=None, user=None, mount_options=None):
    """A store for Podman and Buildah with the image in it; it ends before what it was made from."""
    _need("podman", "buildah", "crun", *["newuidmap", "setpriv"] * bool(user))
    namespace, base, image = (request.getfixturevalue(n) for n in ("namespace", "base", "image"))
    store = Containers(namespace, os.path.join(base, name), program, user, mount_options)
    request.addfinalizer(store.close)
    store.import_image(image[0])
    return store


@pytest.fixture(scope="session")
def auto_ids(base):
    ids = host.AutoIds()
    yield
    ids.close()


@pytest.fixture(scope="session")
def podman_root(request, mount_program, auto_ids):
    return _store(request, "podman-root", mount_program)


@pytest.fixture(scope="session")
def podman_rootless(request, mount_program, rootless_user):
    return _store(request, "podman-rootless", mount_program, rootless_user)


@pytest.fixture(scope="session")
def sharing_root(request, mount_program, auto_ids):
    """Containers of one image keep one copy of what they read."""
    return _store(request, "sharing-root", mount_program, None, "share=pages")


@pytest.fixture(scope="session")
def sharing_rootless(request, mount_program, rootless_user):
    return _store(request, "sharing-rootless", mount_program, rootless_user, "share=pages")


@pytest.fixture(scope="session")
def native_root(request, auto_ids):
    """The same engine on the kernel's overlayfs."""
    return _store(request, "native-root")


@pytest.fixture(scope="session")
def native_rootless(request, rootless_user):
    return _store(request, "native-rootless", None, rootless_user)


@pytest.fixture(scope="session")
def docker(request, namespace, base, mount_program, image):
    return _docker(request, namespace, base, image, mount_program, "fuse-overlayfs")


@pytest.fixture(scope="session")
def docker_native(request, namespace, base, image):
    return _docker(request, namespace, base, image, None, "overlay2")


def _docker(request, namespace, base, image, program, driver):
    _need("dockerd", "docker", "containerd", "runc")
    daemon = Docker(namespace, os.path.join(base, "docker-" + driver), program, driver)
    request.addfinalizer(daemon.close)
    _session.setdefault("dockers", []).append(daemon)
    daemon.import_image(image[0])
    return daemon


@pytest.fixture
def guest(base, mount_program, namespace):
    """A machine to follow a page on."""
    if not mount_program.is_veneer:
        pytest.skip("the page that is followed is about veneer")
    _need("podman", "buildah", "crun", "busybox")
    one = Guest(os.path.join(base, "guest"), mount_program.bin)
    yield one
    one.close()


@pytest.fixture(params=["podman_root", "podman_rootless"], ids=["root", "rootless"])
def podman(request):
    yield from _lent(request)


@pytest.fixture(params=["sharing_root", "sharing_rootless"], ids=["root", "rootless"])
def sharing(request, mount_program):
    if not mount_program.is_veneer:
        pytest.skip("share=pages is veneer's own")
    yield from _lent(request)


@pytest.fixture(params=["podman_root", "podman_rootless", "docker"])
def box_engine(request):
    """An engine that runs containers."""
    yield from _lent(request)


@pytest.fixture
def new_context():
    """make(engine, steps): a directory to build from, with these steps on top of the image."""
    made = []

    def make(one, steps):
        made.append(os.path.join(one.base, "tmp", "context"))
        return life.write_context(one, made[-1], "FROM {image}\n" + steps)
    yield make
    for path in made:
        shutil.rmtree(path)


def _lent(request):
    """Each test ends without containers, and a removed container without its FUSE mount."""
    one = request.getfixturevalue(request.param)
    del one.transcript[:]
    yield one
    one.remove_all()
    assert one.fuse_mounts() == []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Every failure shows the engine's calls of the mount program."""
    outcome = yield
    report = outcome.get_result()
    program = _session.get("program")
    if not report.failed or not program:
        return
    report.sections.append(("calls of the mount program", program.calls()[-6000:]))
    for one in item.funcargs.values():
        if isinstance(one, (engine.Engine, Guest)):
            report.sections.append(("commands in " + one.base, "\n".join(one.transcript)[-6000:]))
    for daemon in _session.get("dockers", []):
        report.sections.append(("dockerd (%s)" % daemon.driver, daemon.log_tail()))
