# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server while layers of its mounts do not answer."""
import os
import subprocess

import pytest

from support.expect import write_at
from support.places import Place
from support.server import wait_until
from test_killed_server_hard import LIMIT_S, far, hang, preload  # noqa: F401, fixtures
from test_upgrade import Adopted, shared, upgrade, _parent_of  # noqa: F401, a fixture

_LONG_WORKERS = 112


def _mount(stack, shared, place):  # noqa: F811
    """The mount program itself hangs nowhere."""
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "VENEER_TEST_HANG")}
    return subprocess.Popen([stack.program, "-o", place.options(), str(place.mnt)], text=True, stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, env={**env, **shared.environment})


def _fill(stack, shared, hang, more):  # noqa: F811
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


def _let_go(hang, places, asking):  # noqa: F811
    write_at(hang, b"0", 0)
    for place, process in zip(places, asking):
        assert (process.wait(LIMIT_S), process.stderr.read()) == (0, "")
        assert os.listdir(place.mnt) == ["HANG"]
        process.stderr.close()


def test_mounts_that_hang_take_no_thread_from_who_asks_for_less(stack, hang, shared):  # noqa: F811
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
def test_who_would_wait_in_vain_is_told(stack, hang, shared):  # noqa: F811
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


def _near(stack, shared):  # noqa: F811
    (stack.base / "near").mkdir()
    (stack.base / "near" / "file").write_text("near")
    return Place(stack, "beside", lowers=[stack.base / "near"]).mount(stack, shared)


def test_a_server_that_waits_for_a_layer_hands_nothing_over_and_says_so(stack, shared, far):  # noqa: F811
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
def test_an_upgrade_does_not_wait_for_a_layer(stack, shared, far):  # noqa: F811
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
