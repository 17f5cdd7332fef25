# SPDX-License-Identifier: Apache-2.0
"""In a container without /dev/fuse, or without a log: one sentence that helps."""
import contextlib
import json
import os
import pty
import select
import subprocess

import pytest

from support import linux
from support.command import mount_points
from support.server import wait_until

pytestmark = pytest.mark.needs_privileges("a container is a mount namespace")
# /dev of such a container has what the shell of a test needs.
_NO_FUSE = """
mkdir -p "$0/dev" && touch "$0/dev/null" && mount --bind /dev/null "$0/dev/null" && mount --rbind "$0/dev" /dev && exec "$@"
"""
_NOT_OURS = """
touch "$0/fuse" && chmod 0 "$0/fuse" && mount --bind "$0/fuse" /dev/fuse && exec "$@"
"""
_NO_LOG = """
[ ! -e /run/systemd ] || mount -t tmpfs tmpfs /run/systemd || exit 9
[ ! -e /dev/log ] || mount --bind /dev/null /dev/log || exit 9
exec "$@"
"""


def _command(stack, script, *argv):
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(stack.base), *map(str, argv)]


def _options(stack, *more):
    return ",".join([f"lowerdir={stack.lower()}", f"upperdir={stack.upper}", f"workdir={stack.work}", *more])


def _environment(stack, **more):
    run = stack.base / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    return {**{k: v for k, v in os.environ.items() if k != "VENEER_LOG"}, "VENEER_RUNTIME_DIR": str(run), **more}


@pytest.mark.parametrize("more", [(), ("standalone",), ("share=pages",)], ids=" ".join)
def test_without_the_device_it_is_said_what_that_takes(stack, veneer_bin, more):
    done = subprocess.run(_command(stack, _NO_FUSE, veneer_bin, "mount", "-o", _options(stack, *more), stack.mnt),
                          capture_output=True, text=True, env=_environment(stack), timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "/dev/fuse is not there" in done.stderr and "--device /dev/fuse" in done.stderr
    assert os.listdir(stack.upper) == os.listdir(stack.work) == []


@pytest.mark.needs_root("opens what the modes forbid")
def test_a_device_that_may_not_be_opened_is_named(stack, veneer_bin):
    for path in (stack.base, stack.lower(), stack.upper, stack.work, stack.mnt):
        os.chown(path, 1000, 1000)
    done = subprocess.run(_command(stack, _NOT_OURS, "setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", veneer_bin, "-o",
                                   _options(stack), stack.mnt), capture_output=True, text=True, env=_environment(stack), timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "cannot open /dev/fuse: Permission denied" in done.stderr and "--device /dev/fuse" in done.stderr


def _on_a_terminal(command, env):
    parent, child = pty.openpty()
    process = subprocess.Popen(command, stdout=child, stderr=child, stdin=subprocess.DEVNULL, env=env)
    os.close(child)
    text = b""
    with contextlib.suppress(OSError):
        while select.select([parent], [], [], 60)[0] and (part := os.read(parent, 65536)):
            text += part
    os.close(parent)
    return process.wait(10), text.decode()


@pytest.fixture
def mounted(stack, veneer_bin):
    """Mounts on a terminal where there is no log, and unmounts again."""
    def call(*more, **env):
        script = _NO_LOG.replace('exec "$@"', '"$@" && "$1" umount "$5"')
        return _on_a_terminal(_command(stack, script, veneer_bin, "mount", "-o", _options(stack, *more), stack.mnt), _environment(stack, **env))
    yield call
    for point in reversed(mount_points(stack.base)):
        linux.umount(point, linux.MNT_DETACH)
    path = stack.base / "run"
    if path.exists():
        _end_server(veneer_bin, path)


def _end_server(veneer_bin, run):
    said = subprocess.run([veneer_bin, "stats", "--json"], capture_output=True, text=True, env={**os.environ, "VENEER_RUNTIME_DIR": str(run)})
    if said.returncode:
        return
    pid = json.loads(said.stdout)["server"]["pid"]
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        parent = int(next(line for line in f if line.startswith("PPid:")).split()[1])
    for number in (pid, parent):
        if number > 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, 15)
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.parametrize("more, instead", [((), "VENEER_LOG=file:PATH keeps it"), (("standalone",), "with -f it stays in the foreground")])
def test_a_mount_says_where_messages_go_if_nowhere(mounted, more, instead):
    code, said = mounted(*more)
    assert code == 0 and said.count("\n") == 1, said
    assert "neither a journal nor syslog" in said and instead in said
    code, said = mounted(*more)
    # the server is there already
    assert code == 0 and said.count("\n") == (1 if more else 0), said


def test_a_mount_whose_server_has_a_file_says_nothing(mounted, stack):
    assert mounted(VENEER_LOG=f"file:{stack.base}/log") == (0, "")


def test_info_says_it_too(stack, veneer_bin):
    done = subprocess.run(_command(stack, _NO_LOG, veneer_bin, "info"), capture_output=True, text=True)
    assert done.returncode == 0 and "messages of servers are lost; VENEER_LOG=file:PATH keeps them" in done.stdout
