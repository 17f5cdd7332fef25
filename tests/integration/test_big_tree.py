# SPDX-License-Identifier: Apache-2.0
"""A tree of real files, as /usr has them, walked, copied, removed and rebuilt on the mount, and the
same on a plain directory: names, attributes and contents must agree."""
import hashlib
import os
import shlex
import stat
import subprocess

import pytest

from support import linux, treestate

SIZE_MAX = 24 << 10
SOURCES = ["/usr/share", "/usr/lib", "/usr/include", "/etc"]
PER_COPY = 10_000


def pick(count):
    """Paths of real small files, and of the symbolic links beside them."""
    found = []
    for source in SOURCES:
        for here, directories, names in os.walk(source):
            directories.sort()
            for name in sorted(names):
                path = os.path.join(here, name)
                st = os.lstat(path)
                is_small_file = (stat.S_ISREG(st.st_mode) and st.st_nlink == 1 and
                                 st.st_size <= SIZE_MAX and os.access(path, os.R_OK))
                if is_small_file or stat.S_ISLNK(st.st_mode):
                    found.append(path[1:])
                if len(found) >= count:
                    return found
    return found


def shell(command, cwd):
    done = subprocess.run(["sh", "-ec", command], cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=3600)
    assert done.returncode == 0, f"{command}: {done.stderr[-1000:]}"
    return done.stdout


def copy_of_real_files(target, paths):
    """In a user namespace owners of others show as nobody and cannot be given: all is ours here."""
    target.mkdir(parents=True)
    packed = subprocess.run(["tar", "-C", "/", "-cf", "-", "--no-recursion", "--null", "-T", "-"],
                            input=b"\0".join(map(os.fsencode, paths)), stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=False).stdout
    subprocess.run(["tar", "-C", str(target), "-xf", "-", "--no-same-owner", "-p"], input=packed,
                   stderr=subprocess.DEVNULL, check=False)


def describe(path):
    st = os.lstat(path)
    kind = stat.S_IFMT(st.st_mode)
    what = [oct(st.st_mode), st.st_uid, st.st_gid]
    if kind == stat.S_IFREG:
        with open(path, "rb") as f:
            what += [st.st_nlink, st.st_size, st.st_mtime_ns, hashlib.sha1(f.read()).hexdigest()]
    elif kind == stat.S_IFLNK:
        what += [st.st_mtime_ns, os.readlink(path)]
    else:
        what += [st.st_nlink]
    return what


def picture(root):
    return {relative: describe(os.path.join(root, relative)) for relative in treestate.walk(root)}


def assert_same(ours, theirs):
    left, right = picture(ours), picture(theirs)
    lines = [f"{name} is missing" for name in sorted(right.keys() - left.keys())]
    lines += [f"{name} is too many" for name in sorted(left.keys() - right.keys())]
    lines += [f"{name}: {left[name]}, not {right[name]}"
              for name in sorted(left.keys() & right.keys()) if left[name] != right[name]]
    assert not lines, (len(lines), lines[:20])
    return len(left)


def attributes(root):
    """Names and attributes alone; what an unchanged lower must keep, ctime included."""
    out = {}
    for relative in treestate.walk(root):
        st = os.lstat(os.path.join(root, relative))
        out[relative] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns,
                         st.st_ctime_ns, st.st_ino)
    return out


class Tree:
    """The lower has copies c0, c1, ... of the same files; the plain directory c0 and c1 only."""

    def __init__(self, stack, where, copies, limit):
        self.stack, self.limit = stack, limit
        self.lower, self.upper, self.work, self.plain = (
            where / name for name in ("lower", "upper", "work", "plain"))
        for path in (self.lower, self.upper, self.work, self.plain):
            path.mkdir()
        self.paths = pick(PER_COPY)
        copy_of_real_files(self.lower / "c0", self.paths)
        for number in range(1, copies):
            shell(f"cp -a c0 c{number}", self.lower)
        shell(f"cp -a {self.lower}/c0 {self.lower}/c1 .", self.plain)
        self.before = attributes(self.lower)
        program = stack.base / "limited"
        program.write_text(f"#!/bin/sh\nulimit -n {limit}\n"
                           f'exec {shlex.quote(str(stack.program))} "$@"\n')
        program.chmod(0o755)
        stack.program = str(program)

    def mount(self):
        self.server = self.stack.second_mount([self.lower], upper=self.upper, work=self.work)
        self.server.watchdog.watch(self.server.pid, 3600)
        return self.server.mnt

    def remount(self):
        problem = self.server.stop()
        assert problem is None, problem
        return self.mount()

    def both(self, mnt, command):
        shell(command, mnt)
        shell(command, self.plain)

    def assert_within_limits(self):
        assert len(os.listdir(f"/proc/{self.server.pid}/fd")) <= self.limit


CHANGES = """
find c0 -type f -name '*.[a-m]*' -exec chmod u+w,g-r {} +
find c0 -type f -name '*[0-4]*' -exec sh -c 'for f; do echo more >>"$f"; done' sh {} +
find c0 -type l -name '*[a-k]' -delete
find c0 -depth -type d -name '*[s-z]' -exec sh -c 'for d; do mv "$d" "$d.moved"; done' sh {} +
mkdir -p new/sub
find c1 -type f -name '*5*.h' -exec ln -t new/sub --backup=numbered {} +
rm -rf new
find c0 -type f -name '*[0-4]*' -exec touch -d '2020-01-01 00:00:00' {} +
"""


@pytest.fixture
def where(stack, request):
    """In memory unless asked otherwise: some file systems take minutes to make so many files."""
    place = stack.base / "place"
    place.mkdir()
    in_memory = "disk" not in request.node.name
    if in_memory:
        linux.mount("none", place, "tmpfs")
        try:
            os.setxattr(place, "user.probe", b"")
        except OSError:
            linux.umount(place) # before Linux 6.6: on the disk, then
    yield place
    if os.path.ismount(place):
        linux.umount(place)


@pytest.mark.standalone("sets the limit of the process that serves it")
@pytest.mark.large
@pytest.mark.parametrize("copies,limit", [
    pytest.param(10, 1024, id="100,000 files"),
    pytest.param(10, 20_000, id="100,000 files on disk", marks=pytest.mark.slow),
    pytest.param(50, 1024, id="500,000 files on disk", marks=pytest.mark.slow)])
def test_tree_of_real_files(stack, where, copies, limit):
    hard = os.sysconf("SC_OPEN_MAX")
    if limit > hard:
        pytest.skip(f"the limit of descriptors is {hard} here")
    tree = Tree(stack, where, copies, limit)
    plain = tree.plain
    m = tree.mount()
    # the walk: every name, with its attributes as below
    shown = attributes(m)
    assert len(shown) > min(PER_COPY, len(tree.paths)) * copies
    assert shown.keys() == tree.before.keys()
    # all but links of directories, ctime and inode number
    kept = (0, 1, 2, 4, 5)
    wrong = [name for name, what in shown.items() if name != "." and
             [what[k] for k in kept] != [tree.before[name][k] for k in kept]]
    assert wrong == []
    tree.assert_within_limits()
    # the copy, inside the mount; the removal; the rebuilding over what was removed
    tree.both(m, "cp -a c0 copy")
    tree.both(m, "rm -rf c1")
    assert not os.path.lexists(m / "c1")
    tree.both(m, "tar cf - -C c0 . | (mkdir c1 && tar xpf - -C c1)")
    tree.both(m, CHANGES)
    for number in range(2, copies):
        shell(f"rm -rf c{number}" if number % 2 else f"chmod -R go-w c{number}/usr", m)
    tree.assert_within_limits()
    names = ["c0", "c1", "copy"]
    left = sorted(names + [f"c{number}" for number in range(2, copies, 2)])
    assert sorted(os.listdir(m)) == left
    counts = [assert_same(m / name, plain / name) for name in names]
    m = tree.remount()
    assert sorted(os.listdir(m)) == left
    assert [assert_same(m / name, plain / name) for name in names] == counts
    tree.assert_within_limits()
    # all of it goes
    shell("rm -rf c* copy", m)
    assert os.listdir(m) == []
    assert os.listdir(tree.remount()) == []
    assert tree.server.stop() is None, tree.server.log
    assert attributes(tree.lower) == tree.before
