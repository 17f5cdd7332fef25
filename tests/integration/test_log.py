# SPDX-License-Identifier: Apache-2.0
"""The server's log for programs: lines of JSON, and the journal of systemd."""
import json
import os
import subprocess

import pytest

from support import journal, linux
from support.command import Command, mount_points
from support.places import Place
from support.server import wait_until
from support.shared import SharedServer


@pytest.fixture
def command(stack, veneer_bin, watchdog):
    made = Command(stack, veneer_bin, watchdog)
    yield made
    made.close()


@pytest.fixture
def serve(stack, veneer_bin, watchdog):
    made = []

    def start(*arguments):
        made.append(SharedServer(veneer_bin, stack.base / "run", watchdog, ["--idle", "86400", *arguments]))
        made[-1].ensure()
        return made[-1]
    yield start
    for point in reversed(mount_points(stack.base)):
        linux.umount(point, linux.MNT_DETACH)
    for server in made:
        server.kill()


def test_lines_of_json(stack, serve):
    (stack.lower() / "f").write_text("f")
    shared = serve("--log", "json")
    place = Place(stack, "p")
    place.mount(stack, shared)
    shared.kill_server()
    # it answers before it says that it goes on
    assert wait_until(lambda: "going on with 1 mount of" in shared.log and shared.log.endswith("\n")), shared.log
    lines = [json.loads(line) for line in shared.log.splitlines()]
    assert {line["level"] for line in lines} == {"warning", "info"}
    assert all({"time", "priority", "pid", "name", "message"} <= line.keys() for line in lines)
    assert any(line["message"].startswith("the server died of signal 9") for line in lines)
    assert len({line["pid"] for line in lines}) == 2


def test_a_line_about_a_mount_names_it(stack, serve):
    """The file is EIO, and that is said once: a partial one whose lower file has changed."""
    (stack.lower() / "f").write_bytes(b"f" * 100_000)
    shared, place = serve("--log", "json"), Place(stack, "p")
    place.mount(stack, shared)
    fd = os.open(place.mnt / "f", os.O_RDWR)
    os.pwrite(fd, b"x", 5)
    os.close(fd)
    linux.umount(place.mnt)
    (stack.lower() / "f").write_bytes(b"g" * 200_000)
    stack.remember_lowers()
    place.mount(stack, shared)
    with pytest.raises(OSError):
        (place.mnt / "f").read_bytes()
    about = [line for line in map(json.loads, shared.log.splitlines()) if line.get("mount") == str(place.mnt)]
    assert len(about) == 1 and about[0]["level"] == "error" and about[0]["message"]


@pytest.mark.parametrize("how", ["text", "--log=json", "", "file:", "file:relative"])
def test_wrong_way_to_log(veneer_bin, how):
    said = subprocess.run([veneer_bin, "server", f"--log={how}"], capture_output=True, text=True)
    assert said.returncode == 2 and "wrong argument" in said.stderr and "file:/PATH" in said.stderr


def assert_lines(path, *messages):
    assert wait_until(lambda: path.exists() and all(message in path.read_text() for message in messages)), path.read_text()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all({"time", "priority", "pid", "name", "message"} <= line.keys() for line in lines)


def test_a_file_takes_the_log_of_a_server_and_of_the_next_one(stack, serve):
    path = stack.base / "a log"
    shared, place = serve("--log", f"file:{path}"), Place(stack, "p")
    place.mount(stack, shared)
    shared.kill_server()
    assert_lines(path, "the server died of signal 9", "going on with 1 mount of")
    assert path.stat().st_mode & 0o7777 == 0o600 and shared.log == ""


def test_a_file_takes_the_log_of_a_server_that_a_mount_starts(command, stack):
    path = stack.base / "a,log"
    command.mount("-o", f"lowerdir={stack.lower()},sizze=5M", stack.mnt, env={"VENEER_LOG": f"file:{path},debug"})
    assert_lines(path, f"{stack.mnt}: unknown argument ignored: sizze=5M")


@pytest.mark.parametrize("path", ["/nowhere/log", "/"])
def test_a_file_that_cannot_be_opened_is_named(veneer_bin, stack, path):
    said = subprocess.run([veneer_bin, "server", f"--log=file:{path}"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "run")})
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"veneer: cannot open the log {path}: ") and said.stderr.count("\n") == 1


_USE = """
answers() { k=0; until "$VENEER" stats >/dev/null 2>&1; do sleep 0.05; k=$((k + 1)); [ $k -lt 400 ]; done; }
VENEER_RUNTIME_DIR=$1; export VENEER_RUNTIME_DIR
mkdir -m 700 "$1"
start_server
k=0; until "$2" -o "$3" "$4" 2>/dev/null; do sleep 0.05; k=$((k + 1)); [ $k -lt 200 ]; done
server=$("$2" stats --json | sed -n 's/^ *"pid": \\([0-9]*\\).*/\\1/p')
supervisor=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$server/status)
kill -9 $server
until cat "$4/f" >/dev/null; do sleep 0.05; done
umount "$4"
kill $supervisor
k=0; while [ -e /proc/$supervisor ] && ! grep -q 'State:.*Z' /proc/$supervisor/status; do
    sleep 0.05; k=$((k + 1)); [ $k -lt 200 ]; done
"""
# As the manager starts a service: standard error is the journal, and the environment says so.
_SERVICE = """start_server() { systemd-cat sh -c 'JOURNAL_STREAM=$(stat -L -c %d:%i /dev/fd/2) exec "$0" server' "$VENEER" & answers; }"""
_CAUGHT = """start_server() { JOURNAL_STREAM=1:2 "$VENEER" server 2>"$VENEER_RUNTIME_DIR/said" & answers; }"""
_BY_MOUNT = "start_server() { :; }"


def journal_of(stack, veneer_bin, start):
    if why := journal.missing():
        pytest.skip(why)
    (stack.lower() / "f").write_text("f")
    stack.remember_lowers()
    place = Place(stack, "p")
    entries, _ = journal.run_with(start + _USE, stack.base / "run", veneer_bin, place.options(), place.mnt,
                                  env={**os.environ, "VENEER": str(veneer_bin)})
    return [e for e in entries if e.get("SYSLOG_IDENTIFIER") == "veneer" or "veneer" in str(e.get("MESSAGE"))]


@pytest.mark.parametrize("start", [_SERVICE, _BY_MOUNT], ids=["service", "by a mount"])
def test_the_journal_gets_fields(stack, veneer_bin, start):
    """Across a death: neither process has anything open that the other would write into."""
    found = journal_of(stack, veneer_bin, start)
    died = [e for e in found if e["MESSAGE"].startswith("the server died of signal 9")]
    assert len(died) == 1, found
    assert (died[0]["PRIORITY"], died[0]["_TRANSPORT"], died[0]["SYSLOG_IDENTIFIER"]) == ("4", "journal", "veneer")
    went_on = [e for e in found if e["MESSAGE"].startswith("going on with 1 mount of")]
    assert len(went_on) == 1 and went_on[0]["PRIORITY"] == "6" and went_on[0]["VENEER_VERSION"]


def test_standard_error_that_somebody_took_elsewhere_is_not_the_journal(stack, veneer_bin):
    assert journal_of(stack, veneer_bin, _CAUGHT) == []
    assert "the server died of signal 9" in (stack.base / "run" / "said").read_text()
