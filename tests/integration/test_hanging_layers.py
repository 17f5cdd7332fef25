# SPDX-License-Identifier: Apache-2.0
"""Requests to a server while layers of its mounts do not answer."""
import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest

from support import linux
from support.content import MIB
from support.expect import opened, write_at
from support.places import Place
from support.server import wait_until
from support.shared import child_of, kill
from test_killed_server_hard import LIMIT_S, far, hang, preload  # noqa: F401, fixtures
from test_upgrade import Adopted, shared, upgrade, upgraded, _parent_of, _stat_of  # noqa: F401, a fixture

_LONG_WORKERS = 112


def _mount(stack, shared, place):
    """The mount program itself hangs nowhere."""
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "VENEER_TEST_HANG")}
    return subprocess.Popen([stack.program, "-o", place.options(), str(place.mnt)], text=True, stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, env={**env, **shared.environment})


def _fill(stack, shared, hang, more):
    """Of one mount that is there, and so many more than may be opened at once, which hang: (that mount, the others' places,
    their mount programs)."""
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    (stack.lower() / "HANG").touch()
    stack.remember_lowers()
    near = Place(stack, "beside", lowers=[stack.base / "near"]).mount(stack, shared)
    places = [Place(stack, f"p{k}") for k in range(_LONG_WORKERS + more)]
    write_at(hang, b"3", 0)
    asking = [_mount(stack, shared, place) for place in places]
    return near, places, asking


def _let_go(hang, places, asking):
    write_at(hang, b"0", 0)
    for place, process in zip(places, asking):
        assert (process.wait(LIMIT_S), process.stderr.read()) == (0, "")
        assert os.listdir(place.mnt) == ["HANG"]
        process.stderr.close()


def test_mounts_that_hang_take_no_thread_from_who_asks_for_less(stack, hang, shared):
    near, places, asking = _fill(stack, shared, hang, 20)
    assert wait_until(lambda: shared.count() == _LONG_WORKERS + 1, LIMIT_S)
    # as many ask as there are threads at all
    for _ in range(20):
        assert shared.count() == _LONG_WORKERS + 1
    assert subprocess.run([stack.program, "stats", "--json"], stdout=subprocess.DEVNULL, timeout=30,
                          env={**os.environ, **shared.environment}).returncode == 0
    (near / "own").write_text("own")
    assert (near / "own").read_text() == "own" and (near / "file").read_text() == "near"
    assert all(process.poll() is None for process in asking)
    _let_go(hang, places, asking)
    assert shared.count() == _LONG_WORKERS + 21


@pytest.mark.slow
def test_who_would_wait_in_vain_is_told(stack, hang, shared):
    near, places, asking = _fill(stack, shared, hang, 0)
    assert wait_until(lambda: shared.count() == _LONG_WORKERS + 1, LIMIT_S)
    late = _mount(stack, shared, Place(stack, "late"))
    assert late.wait(LIMIT_S) == 1
    told = late.stderr.read()
    late.stderr.close()
    assert "do not come to an end" in told and told.count("\n") == 1
    assert (near / "file").read_text() == "near"
    _let_go(hang, places, asking)
    again = _mount(stack, shared, Place(stack, "again"))
    assert again.communicate(timeout=LIMIT_S)[1] == "" and again.returncode == 0


def _near(stack, shared):
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    return Place(stack, "beside", lowers=[stack.base / "near"]).mount(stack, shared)


def test_a_server_that_waits_for_a_layer_hands_nothing_over_and_says_so(stack, shared, far):
    near, mnt = _near(stack, shared), Place(stack, "far-off").mount(stack, shared)
    supervisor = shared.process.pid
    with far.trouble("d", is_hanging=1):
        asking = subprocess.Popen(["ls", str(mnt / "d")], stdout=subprocess.DEVNULL)
        assert wait_until(far.is_holding)
        result = upgrade(shared)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1 and "a layer that does not answer" in result.stderr
        (near / "own").write_text("own")
        assert (near / "file").read_text() == "near" and asking.poll() is None
        assert shared.process.pid == supervisor and shared.process.poll() is None
    assert asking.wait(LIMIT_S) == 0
    assert wait_until(lambda: shared.count() == 2, LIMIT_S)


@pytest.mark.slow
def test_an_upgrade_does_not_wait_for_a_layer(stack, shared, far):
    """The mount goes over, and is open again when its layer answers."""
    near, mnt = _near(stack, shared), Place(stack, "far-off").mount(stack, shared)
    old = shared.process
    with far.trouble(".wh..wh.veneer", is_hanging=1):
        result = upgrade(shared)
        assert wait_until(far.is_holding)
        assert result.returncode == 0 and result.stdout.startswith("moved 1 mount to version ")
        assert result.stderr.count("\n") == 1 and "1 mount is the new server's, but not open again yet" in result.stderr
        assert old.wait(20) == 0
        with shared.client() as client:
            shared.process = Adopted(_parent_of(client.ping()[0]))
        shared.watch()
        (near / "own").write_text("own")
        assert (near / "own").read_text() == "own" and (near / "file").read_text() == "near"
    assert os.listdir(mnt) == ["d"]
    assert shared.count() == 2


# ---- a change that hangs, and nothing interrupts ----

def _on(ground, stack, shared):
    place = Place(stack, "far-off")
    place.upper, place.work = ground / "upper", ground / "work"
    for path in (place.upper, place.work):
        path.mkdir()
    place.mount(stack, shared, "io=cached")
    return place


def _sleeps_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def _is_waited_for(supervisor, server):
    """Kills the server, and waits until its supervisor has looked several times at its remaining threads."""
    kill(server)
    before = _sleeps_of(supervisor)
    assert wait_until(lambda: _sleeps_of(supervisor) >= before + 5, LIMIT_S)
    assert child_of(supervisor) is None
    assert _stat_of(server)[0] == "Z" and len(os.listdir(f"/proc/{server}/task")) > 1


_FREEZE, _THAW = 0xC0045877, 0xC0045878


@pytest.fixture
def ice(stack):
    """(An ext4 of its own, what stops all changes of it, what lets them go on)."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("takes root and mkfs.ext4")
    image, top = stack.base / "image", stack.base / "ice"
    top.mkdir()
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, top]).returncode:
        pytest.skip("no loop devices")
    stack.lower()
    with opened(top, os.O_RDONLY) as fd:
        def thaw():
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, _THAW, 0)
        yield top, lambda: fcntl.ioctl(fd, _FREEZE, 0), thaw
        thaw()
    linux.umount(top, linux.MNT_DETACH)


def _is_waiting_for_good(pid):
    with contextlib.suppress(OSError):
        return any(pathlib.Path(f"/proc/{pid}/task/{t}/stat").read_text().rpartition(")")[2].split()[0] == "D"
                   for t in os.listdir(f"/proc/{pid}/task"))
    return False


@pytest.mark.parametrize("change", [os.unlink, lambda path: os.truncate(path, 1)], ids=["unlink", "truncate"])
def test_a_change_that_nothing_interrupts_comes_before_what_is_changed_later(stack, shared, ice, change):
    """The killed thread makes the change as soon as the file system goes on: if the next server were there by then, later
    changes would be lost now and then."""
    top, freeze, thaw = ice
    near, place = _near(stack, shared), _on(top, stack, shared)
    path = place.mnt / "file"
    path.write_bytes(b"0123456789")
    supervisor, server = shared.process.pid, shared.pid
    freeze()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            changing = pool.submit(change, path)
            assert wait_until(lambda: _is_waiting_for_good(server), LIMIT_S)
            result = upgrade(shared)
            assert result.returncode == 1 and "a layer that has not answered" in result.stderr
            assert (shared.process.pid, shared.pid) == (supervisor, server)
            (near / "own").write_text("own")
            assert (near / "own").read_text() == "own" and shared.count() == 2
            _is_waited_for(supervisor, server)
            assert not changing.done()
        finally:
            thaw()
        changing.result(LIMIT_S)
    path.write_bytes(b"newer bytes")
    shared.watch()
    upgraded(shared, 2)
    assert path.read_bytes() == (place.upper / "file").read_bytes() == b"newer bytes"
