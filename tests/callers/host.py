# SPDX-License-Identifier: Apache-2.0
"""Everything that engines need of the machine: set up, and taken away again."""
import contextlib
import fcntl
import os
import stat
import subprocess

LOCK = "/run/veneer-callers.lock"
SUBORDINATE = ("/etc/subuid", "/etc/subgid")


def _state(user):
    """What a run sets up on the machine, and what an engine is known to change."""
    found = {}
    for path in ("/etc/passwd", "/etc/group", *SUBORDINATE):
        with open(path, encoding="utf-8") as f:
            found[path] = [line for line in f if line.startswith((user + ":", AutoIds.NAME + ":"))]
    for path in ("/dev/fuse", os.devnull):
        st = os.stat(path)
        found[path] = "%o, owner %d:%d" % (st.st_mode, st.st_uid, st.st_gid)
    return found


@contextlib.contextmanager
def alone(user):
    """One run at a time: the user, the ranges of ids and the mode of /dev/fuse are the machine's, and a run that ends takes them
    from another. It leaves them as they were, without this user."""
    with open(LOCK, "w", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        # one that an earlier run left behind
        subprocess.run(["userdel", "-f", user], capture_output=True)
        before = _state(user)
        yield
        assert _state(user) == before


def _has_range(path, user):
    with open(path) as f:
        return any(line.startswith(user + ":") for line in f)


class User:
    """A user of this name with subordinate ids, made anew."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        subprocess.run(["userdel", "-f", self.name], capture_output=True)
        subprocess.run(["useradd", "-M", "-d", "/nonexistent", "-s", "/bin/sh", self.name],
                       check=True, capture_output=True)
        for path, option in zip(SUBORDINATE, ("--add-subuids", "--add-subgids")):
            if not _has_range(path, self.name):
                subprocess.run(["usermod", option, "1000000-1065535", self.name], check=True)
        return self

    def __exit__(self, *exc):
        subprocess.run(["userdel", "-f", self.name], capture_output=True)


class AutoIds:
    """The ranges that root's --userns=auto takes its ids from, by the name of no real user. crun gives the container's root what it
    has as standard input, /dev/null: the machine gets it back."""

    NAME = "containers"
    LINE = NAME + ":2000000:1000000\n"

    def __init__(self):
        self.null = os.stat(os.devnull)
        self.given = [path for path in SUBORDINATE if not _has_range(path, self.NAME)]
        for path in self.given:
            with open(path, "a") as f:
                f.write(self.LINE)

    def close(self):
        os.chown(os.devnull, self.null.st_uid, self.null.st_gid)
        for path in self.given:
            with open(path) as f:
                lines = [line for line in f if line != self.LINE]
            with open(path, "w") as f:
                f.writelines(lines)


class FuseDevice:
    """/dev/fuse open to everyone while a rootless engine runs."""

    PATH = "/dev/fuse"

    def __enter__(self):
        self.mode = stat.S_IMODE(os.stat(self.PATH).st_mode)
        os.chmod(self.PATH, 0o666)
        return self

    def __exit__(self, *exc):
        os.chmod(self.PATH, self.mode)
