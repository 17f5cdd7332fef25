# SPDX-License-Identifier: Apache-2.0
"""The units in contrib/systemd, under a real systemd: socket activation, readiness, and that no end of a unit is the end of
somebody's mount."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

from support import linux, manager
from support.content import blob
from support.expect import read_at, write_at
from support.places import Place
from support.server import wait_until

pytestmark = pytest.mark.needs_root("a manager in a control group and a /run of its own")
KINDS = ["system", "user"]


@pytest.fixture(autouse=True)
def there_is_systemd():
    if why := manager.missing():
        pytest.skip(why)


@pytest.fixture(params=KINDS)
def managed(request, stack, veneer_bin):
    """managed(function): function(manager, place, other) with two places of one lower."""
    (stack.lower() / "f").write_bytes(blob(300_000))
    stack.remember_lowers()

    def run(function):
        place, other = Place(stack, "one"), Place(stack, "two")
        base = stack.base / "manager"
        base.mkdir()

        def with_manager(m):
            if request.param == "system" and m.has_own_user_namespaces():
                pytest.skip("this systemd, which has to be a user's here, gives such units a user namespace of their own")
            function(m, place, other, stack)
        manager.run_with_manager(with_manager, base, veneer_bin, request.param)
    return run


def use(place):
    write_at(place.mnt / "f", b"x", 5)
    assert read_at(place.mnt / "f", 1, 5) == b"x"


def main_pid(m):
    return int(m.show("MainPID"))


def group_of(pid):
    return next(line[3:] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))


def server_of(m):
    with_env = {**os.environ, **m.environment}
    said = subprocess.run([m.program, "stats", "--json"], env=with_env, capture_output=True, text=True, check=True)
    return int(re.search(r'"pid": (\d+)', said.stdout).group(1))


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_units_are_sound(stack, veneer_bin, kind):
    units = []
    for unit in (manager.UNITS / kind).iterdir():
        units.append(stack.base / unit.name)
        units[-1].write_text(unit.read_text().replace("/usr/bin/veneer", str(veneer_bin)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", *(["--user"] if kind == "user" else []), *units],
                          capture_output=True, text=True, env={**os.environ, "XDG_RUNTIME_DIR": str(stack.base)})
    of_ours = [line for line in (said.stdout + said.stderr).splitlines() if "veneer" in line]
    assert said.returncode == 0 and not of_ours, said


def test_the_unit_of_the_system_gives_up_what_it_can(stack):
    """The unit says which privileges are left, and why."""
    unit = stack.base / "veneer.service"
    unit.write_text((manager.UNITS / "system" / "veneer.service").read_text())
    said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=39", "--no-pager", unit], capture_output=True,
                          text=True)
    if "unrecognized option" in said.stderr:
        pytest.skip("this systemd-analyze looks at running units alone")
    assert said.returncode == 0, said.stdout


def test_the_unit_of_the_system_can_write_a_log_where_the_manual_says():
    unit = (manager.UNITS / "system" / "veneer.service").read_text()
    page = " ".join((manager.UNITS.parents[1] / "man" / "veneer.1.md").read_text().split())
    assert "LogsDirectory=veneer\n" in unit and "ReadWritePaths=/run/veneer\n" in unit
    assert "can write below `/run/veneer` and `/var/log/veneer` alone" in page


def test_the_first_mount_starts_the_service_and_its_end_starts_nothing(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        assert m.show("ActiveState") == "inactive"
        place.mount(stack, m)
        use(place)
        # the server said that it is ready, and systemd watches the supervisor
        assert m.show("ActiveState") == "active" and m.show("SubState") == "running"
        server = server_of(m)
        assert parent_of(server) == main_pid(m)
        assert group_of(server) == group_of(main_pid(m)) == "/veneer.slice/veneer.service"
        linux.umount(place.mnt)
        m.run("stop", "veneer.service")
        assert m.show("ActiveState") == "inactive" and m.show("Result") == "success"
        assert not os.path.exists(f"/proc/{server}")
        other.mount(stack, m)
        use(other)
        assert server_of(m) != server
    managed(scenario)


def test_others_are_taken_first_when_memory_ends(managed):
    """systemd goes on where it may not give that score, as in a container; it gives its own then."""
    def scenario(m, place, other, stack):
        wanted = -900 if m.runtime_dir == "/run/veneer" else 0
        m.run("start", "veneer.socket")
        place.mount(stack, m)
        assert m.show("OOMScoreAdjust") == str(wanted)
        own, *scores = (int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())
                        for pid in (m.process.pid, main_pid(m), server_of(m)))
        assert set(scores) in ({wanted}, {max(own, wanted)})
        linux.umount(place.mnt)
    managed(scenario)


def test_a_dead_server_is_followed_and_a_dead_supervisor_leaves_its_server(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        place.mount(stack, m)
        main, server = main_pid(m), server_of(m)
        os.kill(server, signal.SIGKILL)
        assert wait_until(lambda: server_of(m) != server)
        use(place)
        assert main_pid(m) == main and m.show("NRestarts") == "0"
        server = server_of(m)
        m.run("kill", "--kill-who=main", "-s", "KILL", "veneer.service")
        assert wait_until(lambda: m.show("SubState") == "running" and main_pid(m) not in (0, main))
        assert os.path.exists(f"/proc/{server}")
        use(place)
        other.mount(stack, m)
        use(other)
    managed(scenario)


def test_when_all_is_killed_the_next_mounts_work(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        place.mount(stack, m)
        main = main_pid(m)
        m.run("kill", "-s", "KILL", "veneer.service")
        assert wait_until(lambda: main_pid(m) not in (0, main))
        with pytest.raises(OSError):
            (place.mnt / "f").read_bytes()
        linux.umount(place.mnt, linux.MNT_DETACH)
        place.mount(stack, m)
        use(place)
    managed(scenario)


def test_stopping_the_service_leaves_mounts_alone(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        place.mount(stack, m)
        server = server_of(m)
        m.run("stop", "veneer.service")
        assert m.show("Result") == "timeout"
        assert os.path.exists(f"/proc/{server}")
        use(place)
        # the next server, beside it
        other.mount(stack, m)
        use(other)
        assert server_of(m) != server
        use(place)
        linux.umount(place.mnt)
        assert wait_until(lambda: not os.path.exists(f"/proc/{server}"))
        use(other)
    managed(scenario)


def test_stopping_the_unit_that_made_the_first_mount_leaves_siblings_alone(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        m.start_transient("container.service", f"""
[Service]
Type=forking
Environment=VENEER_RUNTIME_DIR={m.runtime_dir}
ExecStart={m.program} -o {place.options()} {place.mnt}
ExecStart=/bin/sh -c 'sleep 1000 &'
""".replace("Type=forking", "Type=oneshot\nRemainAfterExit=yes"))
        other.mount(stack, m)
        assert m.show("ActiveState", "container.service") == "active"
        m.run("stop", "container.service")
        for p in (place, other):
            use(p)
        assert group_of(server_of(m)) == "/veneer.slice/veneer.service"
    managed(scenario)


def test_reload_takes_another_program(managed):
    def scenario(m, place, other, stack):
        m.run("start", "veneer.socket")
        place.mount(stack, m)
        main = main_pid(m)
        fd = os.open(place.mnt / "f", os.O_RDWR)
        m.run("reload", "veneer.service")
        assert wait_until(lambda: main_pid(m) not in (0, main))
        assert m.show("ActiveState") == "active"
        assert parent_of(server_of(m)) == main_pid(m)
        assert group_of(main_pid(m)).startswith("/veneer.slice/veneer.service")
        os.pwrite(fd, b"y", 7)
        os.close(fd)
        assert read_at(place.mnt / "f", 1, 7) == b"y"
        other.mount(stack, m)
        use(other)
        for p in (place, other):
            linux.umount(p.mnt)
        m.run("stop", "veneer.service")
        assert m.show("ActiveState") == "inactive"
    managed(scenario)
