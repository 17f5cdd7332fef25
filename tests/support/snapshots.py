# SPDX-License-Identifier: Apache-2.0
"""A mount whose snapshots are taken, with something of each kind in it."""
import os
import shutil
import subprocess

from support import treestate
from support.content import KIB, blob
from support.expect import write_at
from support.places import Place

BRANCHES = ".wh..wh.branches"


def fill(low):
    """Something of each kind that is changed later."""
    (low / "big").write_bytes(blob(300 * KIB))
    (low / "small").write_text("small")
    (low / "gone").write_text("gone")
    (low / "hard1").write_text("hard")
    os.link(low / "hard1", low / "hard2")
    (low / "d" / "e").mkdir(parents=True)
    (low / "d" / "e" / "x").write_text("x")


class Snapshots:
    def __init__(self, stack, shared, *options):
        self.stack, self.shared, self.options = stack, shared, options
        fill(stack.lower())
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


def change_more(m):
    """Something of each kind, after change()."""
    write_at(m / "big", b"LATER", 90_000)
    write_at(m / "new" / "f", b"AGAIN", 9000)
    (m / "moved").unlink()
    (m / "hard1").write_text("longer")
    os.rename(m / "d", m / "elsewhere")
    (m / "elsewhere" / "e" / "y").write_text("y")
    (m / "link").unlink()
    (m / "gone").mkdir()
    (m / "gone" / "in").write_text("in")


def _anything(rng, m, names):
    """One change of a tree, of any kind."""
    files = [p for p in names if (m / p).is_file() and not (m / p).is_symlink()]
    dirs = ["", *(p for p in names if (m / p).is_dir() and not (m / p).is_symlink())]
    name = os.path.join(rng.choice(dirs), rng.choice("abcdefgh"))
    what = rng.randrange(24)
    if what < 3 and files:
        write_at(m / rng.choice(files), bytes([rng.randrange(256)]) * rng.randrange(1, 9000), rng.randrange(0, 200_000))
    elif what == 3 and files:
        os.truncate(m / rng.choice(files), rng.randrange(0, 150_000))
    elif what == 4 and not os.path.lexists(m / name):
        (m / name).mkdir()
    elif what == 5 and not os.path.lexists(m / name):
        (m / name).write_bytes(blob(rng.randrange(1, 60_000), rng.randrange(100)))
    elif what == 6 and not os.path.lexists(m / name):
        os.symlink("somewhere", m / name)
    elif what == 7 and files and not os.path.lexists(m / name):
        os.link(m / rng.choice(files), m / name)
    elif what == 8 and names and not os.path.lexists(m / name):
        old = rng.choice(names)
        if not f"{name}/".startswith(f"{old}/"):
            os.rename(m / old, m / name)
    elif what == 9 and names:
        old = m / rng.choice(names)
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    elif what == 10 and names:
        os.chmod(m / rng.choice([n for n in names if not (m / n).is_symlink()] or [""]), 0o700 + rng.randrange(64))
    elif files:
        os.setxattr(m / rng.choice(files), "user.test", bytes([rng.randrange(256)]))


def change_at_random(rng, m, times):
    for _ in range(times):
        names = sorted(str(p.relative_to(m)) for p in m.rglob("*"))
        _anything(rng, m, names)


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


def looks(m, kept=6):
    """But for change times, which a name more and copies change."""
    return {path: what[:kept] + what[7:] for path, what in seen(m).items()}
