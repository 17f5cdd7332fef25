# SPDX-License-Identifier: Apache-2.0
"""Runs this program again as an ordinary user: inside user and mount namespaces of its own, with a range of subordinate
ids mapped, as a rootless container engine does; or plain, without any capability, with fusermount3 to mount."""
import os
import shutil
import sys
import tempfile

from . import linux

INSIDE = "VENEER_TEST_IN_USERNS"
_USER = 12345
_MAP = f"0 {_USER} 1\n1 200000 65536\n"


def is_inside():
    return INSIDE in os.environ


def is_plain():
    """No privileges, not even those of a user namespace."""
    return os.geteuid() != 0 and not is_inside()


def owner(uid, gid):
    """The owner to give a file to: a plain user can give it to nobody else."""
    return (os.geteuid(), os.getegid()) if is_plain() else (uid, gid)


def mode():
    return "userns" if is_inside() else "plain" if is_plain() else "root"


def _everybody_reaches(path):
    path = os.path.realpath(path)
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o001:
            return False
    return True


def _reachable_python(staging):
    """The interpreter and its module path, under a path the ordinary user may walk (a home of
    root's is closed)."""
    path = os.pathsep.join(entry for entry in sys.path if entry.startswith(sys.base_prefix))
    if _everybody_reaches(sys.executable) and _everybody_reaches(sys.base_prefix):
        return sys.executable, path
    prefix = os.path.join(staging, "python")
    os.mkdir(prefix)
    linux.mount(sys.base_prefix, prefix, None, linux.MS_BIND)
    binary = os.path.join(prefix, "bin", os.path.basename(os.path.realpath(sys.executable)))
    return binary, path.replace(sys.base_prefix, prefix)


def _own_etc(staging, home):
    """fusermount3 mounts for users that have a name, and with allow_other where an administrator said so. The whole directory: a
    file that is mounted over loses that mount when somebody outside puts another in its place, as useradd does."""
    etc = os.path.join(staging, "etc")
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
    with open(os.path.join(etc, "passwd"), "a", encoding="utf-8") as f:
        f.write(f"veneer-test:x:{_USER}:{_USER}::{home}:/bin/sh\n")
    with open(os.path.join(etc, "fuse.conf"), "w", encoding="utf-8") as f:
        f.write("user_allow_other\n")
    linux.mount(etc, "/etc", None, linux.MS_BIND)


def _stage(program):
    """Private mounts: /dev/fuse for everybody, and copies of what the user could not reach."""
    linux.private_mounts()
    staging = tempfile.mkdtemp(prefix="veneer-userns-", dir="/var/tmp")
    linux.mount("tmpfs", staging, "tmpfs", 0, "mode=0755")
    os.umask(0)
    fuse = os.path.join(staging, "fuse")
    os.mknod(fuse, 0o20666, os.makedev(10, 229))
    linux.mount(fuse, "/dev/fuse", None, linux.MS_BIND)
    os.umask(0o022)
    home = os.path.join(staging, "home")
    os.mkdir(home)
    os.chown(home, _USER, _USER)
    if program and not _everybody_reaches(program):
        program = shutil.copy(program, os.path.join(staging, os.path.basename(program)))
    return staging, home, program


def _become_user():
    os.setgroups([])
    os.setresgid(_USER, _USER, _USER)
    os.setresuid(_USER, _USER, _USER)


def _enter(ready, go, command, env):
    _become_user()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    os.write(ready, b"u")
    os.read(go, 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.setgroups([])
    os.execve(command[0], command, env)


def _run_plain(command, env):
    child = os.fork()
    if child == 0:
        try:
            _become_user()
            os.execve(command[0], command, env)
        finally:
            os._exit(127)
    return child


def _run_inside(command, env):
    env[INSIDE] = "1"
    ready_r, ready_w = os.pipe()
    go_r, go_w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _enter(ready_w, go_r, command, env)
        finally:
            os._exit(127)
    os.close(ready_w)
    if os.read(ready_r, 1) == b"u":
        for kind in ("uid", "gid"):
            with open(f"/proc/{child}/{kind}_map", "w") as f:
                f.write(_MAP)
        os.write(go_w, b"g")
    return child


def _supervise(arguments, program, start):
    staging, home, program = _stage(program)
    if start is _run_plain:
        _own_etc(staging, home)
    python, module_path = _reachable_python(staging)
    env = dict(os.environ, HOME=home, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=module_path)
    env.pop("XDG_RUNTIME_DIR", None)
    if program:
        env["VENEER_BIN"] = program
    child = start([python, *arguments], env)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    linux.umount(staging, linux.MNT_DETACH)
    os.rmdir(staging)
    return code


def run(arguments, program=None, is_plain=False):
    """Run the interpreter with these arguments inside, or as a plain user; returns its exit code. Needs real root."""
    outer = os.fork()
    if outer == 0:
        code = 127
        try:
            code = _supervise(arguments, program, _run_plain if is_plain else _run_inside)
        finally:
            os._exit(code if code >= 0 else 128 - code)
    return os.waitstatus_to_exitcode(os.waitpid(outer, 0)[1])
