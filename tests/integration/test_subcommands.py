# SPDX-License-Identifier: Apache-2.0
"""What all subcommands have in common (help, exit codes, JSON, terminals), and mount and umount."""
import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess

import pytest

from support import layers, linux
from support.content import MIB, blob
from support.expect import opened
from support.places import Place
from support.repository import REPOSITORY
from support.server import wait_until

_MANUAL = REPOSITORY / "man" / "veneer.1.md"
_COLUMNS, _LINES = 80, 24
# Its options are too many.
_LONGER = {"mount": 64}
_COMMANDS = ["mount", "umount", "stats", "top", "diff", "du", "check", "info", "inspect", "flatten", "profile", "server"]


def run(stack, *arguments, **keywords):
    return subprocess.run([stack.program, *map(str, arguments)], capture_output=True, text=True, timeout=60, **keywords)


def on_a_terminal(*argv, env=None):
    """What it prints there; both outputs are the terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen([str(word) for word in argv], stdout=child, stderr=child, stdin=subprocess.DEVNULL,
                               env={**os.environ, "TERM": "xterm", **(env or {})})
    os.close(child)
    text = b""
    with contextlib.suppress(OSError):
        while select.select([parent], [], [], 60)[0]:
            part = os.read(parent, 65536)
            if not part:
                break
            text += part
    os.close(parent)
    return process.wait(10), text.decode()


# ---- help ----

@pytest.mark.parametrize("command", [None, *_COMMANDS])
def test_help_fits_a_screen(stack, command):
    result = run(stack, *([command] if command else []), "--help")
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and result.stderr == ""
    assert lines[0].startswith("usage: veneer")
    assert len(lines) <= _LONGER.get(command, _LINES) and max(map(len, lines)) <= _COLUMNS
    if command:
        assert re.search(r"^Exit code: 0", result.stdout, re.M)


def test_who_calls_it_fuse_overlayfs_is_told_how_to_mount(stack):
    name = stack.base / "fuse-overlayfs"
    name.symlink_to(stack.program)
    text = subprocess.run([name, "--help"], capture_output=True, text=True, check=True).stdout
    assert text == run(stack, "mount", "--help").stdout and "lowerdir" in text


def test_main_help_names_all_subcommands(stack):
    text = run(stack, "--help").stdout
    for command in _COMMANDS:
        assert re.search(rf"\b{command}\b", text), command


# ---- exit codes ----

@pytest.mark.parametrize("arguments", [["mount", "-o", "lowerdir=/nowhere", "/mnt"], ["umount", "/nowhere"], ["du", "/nowhere"],
                                       ["diff", "/nowhere"], ["check", "/nowhere"], ["inspect", "/nowhere"],
                                       ["flatten", "-o", "lowerdir=/,upperdir=/nowhere"], ["stats"]],
                         ids=lambda arguments: arguments[0])
def test_what_cannot_be_done_is_1(stack, arguments):
    env = {**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "none")}
    result = run(stack, *arguments, env=env)
    assert result.returncode == 1 and result.stderr


def test_manual_has_all_exit_codes_in_a_table(stack):
    section = _MANUAL.read_text().partition("## EXIT STATUS")[2].partition("\n## ")[0]
    for command in _COMMANDS:
        assert re.search(rf"^\|.*`{command}`", section, re.MULTILINE), command


# ---- JSON ----

def _damaged(stack):
    (stack.lower() / "f").write_bytes(blob(MIB))
    with open(stack.mount() / "f", "r+b") as f:
        f.write(b"x" * 5000)
    stack.umount()
    return f"lowerdir={stack.lower()},upperdir={stack.upper},workdir={stack.work}"


def test_json_of_what_works_on_layers(stack):
    options = _damaged(stack)
    result = run(stack, "check", "--json", "-o", options)
    got = json.loads(result.stdout)
    assert result.returncode == 0
    assert got == {"path": str(stack.upper), "partial_files": 1, "found": 0, "repaired": 0, "findings": [],
                   "repairs": []}
    got = json.loads(run(stack, "inspect", "--json", stack.upper).stdout)
    assert got[0]["path"] == str(stack.upper) and got[0]["damaged"] is False
    lines = got[0]["lines"]
    assert {"map", "header", "snapshot", "log", "record", "log-end", "session"} <= {line["code"] for line in lines}
    partial, = (line for line in lines if line["code"] == "partial")
    assert (partial["layer"], partial["path"]) == (str(stack.upper), "f") and "own 2 of 256 blocks" in partial["text"]
    assert all(line["path"] == ".wh..wh.veneer" for line in lines if line != partial)
    # the same as is printed, and no line has the end of a longer one before it
    printed = run(stack, "inspect", stack.upper).stdout.splitlines()
    assert [line["text"] for line in lines] == [line.lstrip() for line in printed]
    os.setxattr(stack.upper / "f", "user.veneer.partial", b"nonsense")
    result = run(stack, "check", "--json", "-o", options)
    got = json.loads(result.stdout)
    assert result.returncode == 1 and got["found"] == len(got["findings"]) > 0
    assert {"code": "mark-damaged", "layer": str(stack.upper), "path": "f", "text": "its mark is damaged"} in got["findings"]
    got, = json.loads(run(stack, "inspect", "--json", stack.upper).stdout)
    assert got["damaged"] is True and [line["path"] for line in got["lines"] if line["code"] == "damaged"] == ["f"]


def test_json_of_a_repair(stack):
    (stack.upper / "f").touch()
    os.setxattr(stack.upper / "f", "user.overlay.opaque", b"y")
    (stack.upper / ".wh..wh.flatten").mkdir()
    result = run(stack, "check", "--json", "--repair", stack.upper)
    got = json.loads(result.stdout)
    assert (result.returncode, got["found"], got["repaired"]) == (0, 2, 2)
    assert {(one["code"], one["layer"], one["path"]) for one in got["findings"]} == \
        {(one["code"], one["layer"], one["path"]) for one in got["repairs"]} == \
        {("opaque", str(stack.upper), "f"), ("tool-left", str(stack.upper), ".wh..wh.flatten")}


def test_manual_has_all_codes(stack):
    """What the sources say, and what a reader can look up."""
    said = set()
    for name in ("check", "check_orphans", "inspect"):
        source = (_MANUAL.parents[1] / "src" / "tools" / f"{name}.c").read_text()
        said |= set(re.findall(r'(?:check_report_say|say|end_line|inspect_say)\([^"]*?"([a-z]+(?:-[a-z]+)*)"[,)]', source))
    section = _MANUAL.read_text().partition("## OUTPUT")[2].partition("\n## ")[0]
    assert len(said) > 35 and {code for code in said if f"`{code}`" not in section} == set()


def test_json_of_flatten(stack):
    result = run(stack, "flatten", "--json", "-o", _damaged(stack))
    got = json.loads(result.stdout)
    assert got == {"path": str(stack.upper), "files": 1, "bytes": MIB - 8192, "cloned_bytes": got["cloned_bytes"],
                   "directories": 0, "entries": 0, "left": 0}
    assert result.stderr == ""


# ---- outputs ----

def _with_outputs(stack, where, *arguments):
    return subprocess.run(["/bin/sh", "-c", f'exec "$0" "$@" {where}', stack.program, *map(str, arguments)], capture_output=True,
                          text=True, timeout=60)


@pytest.mark.parametrize("where", [">/dev/full", ">&-", "<&- >&-"])
@pytest.mark.parametrize("command", ["check", "diff", "du", "flatten", "inspect"])
def test_what_cannot_be_printed_is_1(stack, command, where):
    options = _damaged(stack)
    result = _with_outputs(stack, where, command, *(["-o", options] if command == "flatten" else [stack.upper]))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("veneer: cannot print: ") and result.stderr.count("\n") == 1


def test_what_is_printed_to_a_closed_output_is_not_written_into_a_layer(stack):
    """Where a file of the layer could be what was opened in its place."""
    options = _damaged(stack)
    before = layers.view(stack.upper)
    for arguments in (["du", stack.upper], ["diff", "-o", f"lowerdir={stack.lower()}", stack.upper], ["inspect", stack.upper],
                      ["check", "--repair", "-o", options]):
        assert _with_outputs(stack, "<&- >&- 2>&-", *arguments).returncode == 1
        assert layers.view(stack.upper) == before, arguments


# ---- odd names ----

def test_no_name_makes_a_line_of_its_own_or_steers_a_terminal(stack):
    """Names come from layers. In JSON they are what they are."""
    name, spelt = "f\nA forged\x1b[2J\x85", "f\\x0aA forged\\x1b[2J\\xc2\\x85"
    (stack.lower() / name).write_bytes(blob(MIB))
    with open(stack.mount() / name, "r+b") as f:
        f.write(b"x")
    stack.umount()
    line, rest = run(stack, "diff", stack.upper).stdout.split("\n", 1)
    assert line.startswith(f"C /{spelt} (1 of 256 blocks") and not rest
    assert [one["path"] for one in json.loads(run(stack, "diff", "--json", stack.upper).stdout)["changes"]] == [f"/{name}"]
    lines = run(stack, "inspect", stack.upper).stdout.split("\n")
    assert [line for line in lines if "forged" in line and line.startswith(f"{stack.upper}/{spelt}: {MIB} bytes, file 1, ")]
    assert {line["path"] for line in json.loads(run(stack, "inspect", "--json", stack.upper).stdout)[0]["lines"]} >= {name}
    os.setxattr(stack.upper / name, "user.veneer.partial", b"nonsense")
    lines += run(stack, "check", stack.upper).stdout.split("\n")
    assert f"{stack.upper}/{spelt}: its mark is damaged" in lines
    assert not [line for line in lines if re.search(r"[\x00-\x1f\x7f-\x9f]", line) or line.startswith("A ")]
    assert name in {one["path"] for one in json.loads(run(stack, "check", "--json", stack.upper).stdout)["findings"]}


# ---- terminals ----

def test_progress_is_drawn_on_a_terminal_and_not_elsewhere(stack):
    for k in range(20):
        (stack.lower() / f"f{k}").write_bytes(blob(MIB, k))
    m = stack.mount()
    for k in range(20):
        with open(m / f"f{k}", "r+b") as f:
            f.write(b"x")
    arguments = [stack.program, "diff", "--tar", "-o", stack.base / "x.tar", "-o", f"lowerdir={stack.lower()}", stack.upper]
    code, text = on_a_terminal(*arguments)
    assert code == 0
    assert re.search(r"\r\d+ of 20 entries, [\d.]+ \w+ of 20 MiB, [\d.]+ \w+/s.*\x1b\[K", text), text
    assert text.rstrip().endswith("20 entries, 20 MiB of data; veneer send takes 80 KiB")
    os.unlink(stack.base / "x.tar")
    code, text = on_a_terminal(*arguments, env={"TERM": "dumb"})
    assert code == 0 and "\x1b" not in text and len(text.splitlines()) == 1
    os.unlink(stack.base / "x.tar")
    quiet = run(stack, *arguments[1:])
    assert "\r" not in quiet.stderr and "\x1b" not in quiet.stderr and len(quiet.stderr.splitlines()) == 1


def test_colours_are_for_terminals_and_obey_no_color(stack):
    m = stack.mount()
    (m / "new").write_text("x")
    arguments = [stack.program, "diff", "-o", f"lowerdir={stack.lower()}", stack.upper]
    assert on_a_terminal(*arguments)[1].strip() == "\x1b[32mA\x1b[0m /new"
    assert on_a_terminal(*arguments, env={"NO_COLOR": "1"})[1].strip() == "A /new"
    assert on_a_terminal(*arguments, env={"TERM": "dumb"})[1].strip() == "A /new"
    assert run(stack, *arguments[1:]).stdout == "A /new\n"


def test_mount_that_may_hardly_take_more_is_red_on_a_terminal(stack, shared):
    stack.lower()
    full, roomy = Place(stack, "full"), Place(stack, "roomy")
    for place, option in ((full, "size=1M"), (roomy, "size=100M")):
        place.mount(stack, shared, option)
        (place.mnt / "f").write_bytes(blob(960 << 10))
    lines = on_a_terminal(stack.program, "stats", env=shared.environment)[1].splitlines()
    assert [line.endswith(f" {full.mnt}\x1b[0m") for line in lines if "\x1b[31m" in line] == [True]
    for place in (full, roomy):
        text = on_a_terminal(stack.program, "stats", place.mnt, env=shared.environment)[1]
        assert ("\x1b[31mThe upper takes" in text) == (place is full)
    for command in (["stats"], ["stats", full.mnt]):
        assert "\x1b" not in on_a_terminal(stack.program, *command, env={**shared.environment, "NO_COLOR": "1"})[1]
        assert "\x1b" not in run(stack, *command, env={**os.environ, **shared.environment}).stdout


def test_archive_is_not_written_to_a_terminal(stack):
    code, text = on_a_terminal(stack.program, "diff", "--tar", "-o", f"lowerdir={stack.lower()}", stack.upper)
    assert code == 1 and "not for a terminal" in text


# ---- mount and umount ----

@pytest.fixture
def place(stack, shared):
    (stack.lower() / "f").write_text("lower")
    stack.remember_lowers()
    made = Place(stack, "p")
    result = run(stack, "mount", "-o", made.options(), made.mnt, env={**os.environ, **shared.environment})
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return made


def test_mount_and_umount(stack, place):
    assert (place.mnt / "f").read_text() == "lower"
    result = run(stack, "umount", f"{place.mnt}/")
    assert (result.returncode, result.stderr) == (0, "")
    assert not os.path.ismount(place.mnt)
    result = run(stack, "umount", place.mnt)
    assert result.returncode == 1 and "is not mounted by veneer" in result.stderr


def test_what_is_mounted_over_a_mount_is_not_unmounted_in_its_place(stack, place):
    linux.mount("tmpfs", place.mnt, "tmpfs")
    result = run(stack, "umount", place.mnt)
    assert result.returncode == 1 and "is not mounted by veneer" in result.stderr
    linux.umount(place.mnt)
    assert (place.mnt / "f").read_text() == "lower"
    assert run(stack, "umount", place.mnt).returncode == 0


def test_who_holds_a_busy_mount_is_said(stack, place):
    with subprocess.Popen(["sleep", "60"], cwd=place.mnt) as sleeper:
        try:
            with opened(place.mnt / "f"):
                result = run(stack, "umount", place.mnt)
                assert result.returncode == 1 and "is in use" in result.stderr
                assert f"process {sleeper.pid} (sleep) works in it" in result.stderr
                assert f"process {os.getpid()} (" in result.stderr and "has a file open in it" in result.stderr
                assert os.path.ismount(place.mnt)
            result = run(stack, "umount", "-l", place.mnt)
            assert (result.returncode, result.stderr) == (0, "")
            assert not os.path.ismount(place.mnt)
        finally:
            sleeper.kill()


def test_mounts_inside_a_busy_mount_are_all_that_is_said(stack, place):
    (place.mnt / "inside").mkdir()
    linux.mount("tmpfs", place.mnt / "inside", "tmpfs")
    with opened(place.mnt / "f"):
        result = run(stack, "umount", place.mnt)
    linux.umount(place.mnt / "inside")
    assert result.returncode == 1 and result.stderr.splitlines()[1:] == [
        f"  something is mounted in it: {place.mnt}/inside", "  unmount that first, or all with -l"]


def test_a_server_that_holds_layers_in_a_mount_is_not_to_be_ended(stack, place, shared):
    (place.mnt / "layer").mkdir()
    (place.mnt / "layer" / "g").write_text("in it")
    other = stack._make("other")
    env = {**os.environ, **shared.environment}
    result = run(stack, "mount", "-o", f"lowerdir={place.mnt}/layer", other, env=env)
    assert result.returncode == 0, result.stderr
    assert (other / "g").read_text() == "in it"
    result = run(stack, "umount", place.mnt)
    assert result.returncode == 1 and "layers of another mount lie in it" in result.stderr
    assert "process" not in result.stderr and " end " not in result.stderr
    assert run(stack, "umount", other).returncode == 0


def test_name_of_a_process_does_not_steer_the_terminal(stack, place):
    program = stack.base / "s\x1b[2Jleep"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"], cwd=place.mnt) as sleeper:
        try:
            result = run(stack, "umount", place.mnt)
            assert result.returncode == 1
            assert f"process {sleeper.pid} (s\\x1b[2Jleep) works in it" in result.stderr and "\x1b" not in result.stderr
        finally:
            sleeper.kill()


@pytest.mark.standalone("its server serves others, too")
def test_dead_mount_is_unmounted(stack):
    stack.lower()
    mount = stack.second_mount(stack.lowers, upper=stack.upper, work=stack.work)
    stack._extra.remove(mount)
    other = mount.mnt
    with opened(other) as fd:
        os.kill(mount.process.pid, signal.SIGKILL)
        mount.process.wait()
        with contextlib.suppress(OSError):
            os.listdir(fd)
        result = run(stack, "umount", other)
        assert result.returncode == 1 and f"process {os.getpid()} (" in result.stderr
    result = run(stack, "umount", other)
    assert (result.returncode, result.stderr) == (0, "")
    assert wait_until(lambda: not os.path.ismount(other))


def test_check_shows_damage_in_red_on_a_terminal(stack):
    """And what was put right in green; as plain text where that is wanted, or nobody looks."""
    (stack.upper / ".wh.f").touch()
    (stack.upper / "f").touch()
    os.setxattr(stack.upper / "f", "user.overlay.opaque", b"y")
    command = [stack.program, "check", stack.upper]
    plain = run(stack, "check", stack.upper)
    assert plain.returncode == 1 and "\033" not in plain.stdout and len(plain.stdout.splitlines()) == 2
    lines = plain.stdout.splitlines()
    # a terminal ends lines in its own way
    assert on_a_terminal(*command) == (1, "".join(f"\033[31m{line}\033[0m\r\n" for line in lines))
    for env in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
        assert on_a_terminal(*command, env=env) == (1, "".join(f"{line}\r\n" for line in lines))
    repaired = on_a_terminal(*command, "--repair")[1].splitlines()
    assert [line[:5] for line in repaired] == ["\033[31m"] * 2 + ["\033[32m"], repaired
