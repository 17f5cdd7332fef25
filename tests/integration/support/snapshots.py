# SPDX-License-Identifier: Apache-2.0
"""A mount whose snapshots are taken, with something of each kind in it."""
import os
import subprocess

from support import treestate
from support.content import KIB, blob
from support.expect import write_at
from support.places import Place

BRANCHES = ".wh..wh.branches"


class Snapshots:
    def __init__(self, stack, shared, *options):
        self.stack, self.shared, self.options = stack, shared, options
        low = stack.lower()
        (low / "big").write_bytes(blob(300 * KIB))
        (low / "small").write_text("small")
        (low / "gone").write_text("gone")
        (low / "hard1").write_text("hard")
        os.link(low / "hard1", low / "hard2")
        (low / "d" / "e").mkdir(parents=True)
        (low / "d" / "e" / "x").write_text("x")
        stack.remember_lowers()
        self.place = Place(stack, "p")
        self.m = self.place.mnt
        self.mount()

    def mount(self):
        self.place.mount(self.stack, self.shared, *self.options)

    def call(self, *arguments, command="snapshot"):
        return subprocess.run([self.stack.program, command, *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**os.environ, **self.shared.environment}, timeout=60)

    def take(self, *name):
        done = self.call(self.m, *name)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def back(self, name, *more):
        done = self.call(*more, self.m, name, command="rollback")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refused(self, *arguments):
        done = self.call(*arguments)
        assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") >= 1, done
        return done.stderr

    def frozen(self):
        """State of each snapshot on disk."""
        top = self.place.upper / BRANCHES
        return {path.name: treestate.take(path) for path in top.iterdir() if path.is_dir()} if top.is_dir() else {}


def change(m):
    """Something of each kind."""
    write_at(m / "big", b"NEW", 70_000)
    (m / "own").write_text("own")
    (m / "gone").unlink()
    os.chmod(m / "d" / "e" / "x", 0o600)
    os.rename(m / "small", m / "moved")
    (m / "new").mkdir()
    (m / "new" / "f").write_bytes(blob(20 * KIB, 5))
    os.symlink("own", m / "link")
    os.link(m / "own", m / "second")


def seen(m):
    """All that a program may see of each name, but for access times, and the change times of the root and what stands in
    it, as that is what moves."""
    found = {}
    for here, dirs, names in os.walk(m):
        for name in [".", *dirs, *names]:
            path = os.path.join(here, name)
            st = os.lstat(path)
            found[path] = (st.st_ino, st.st_mode, st.st_nlink, st.st_uid, st.st_size, st.st_mtime_ns,
                           None if name == "." or here == str(m) else st.st_ctime_ns)
            if os.path.islink(path):
                found[path] += (os.readlink(path),)
            elif os.path.isfile(path):
                with open(path, "rb") as f:
                    found[path] += (f.read(),)
    return found
