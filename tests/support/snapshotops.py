# SPDX-License-Identifier: Apache-2.0
"""Random operations on twins, and between them snapshots, going back and merging. The model copies its directory at a
snapshot, and puts a copy in its place to go back."""
import fcntl
import json
import mmap
import os
import stat
import subprocess

from . import linux
from .layers import options as layer_options
from .randomops import RandomOperations
from .stack import remove_tree
from .twins import Mismatch, Twins, attributes, first_difference

# What a command may say while files are open; when they are closed it has to succeed.
_REFUSALS = {
    "snapshot": ("by the kernel itself", "was removed", "cannot be told here"),
    "rollback": ("by the kernel itself", "was removed", "cannot be told here"),
    "squash": ("was removed",),
}
_OLD_KERNEL, _SHARES_PAGES = "this kernel cannot be told of it", "a mount with share=pages goes back while it is unmounted"


class Chain:
    """Which snapshots there should be, and what each stands on."""

    def __init__(self):
        self.parents, self.head = {}, None

    def add(self, name, head=None):
        """A snapshot of the live part, which then stands on head, or on this one."""
        self.parents[name] = self.head
        self.head = head or name

    def below(self, name):
        """The snapshot, and what it stands on."""
        found = []
        while name:
            found.append(name)
            name = self.parents[name]
        return found

    def count_on(self, name):
        return (self.head == name) + list(self.parents.values()).count(name)

    def removable(self):
        return [name for name in self.parents if not self.count_on(name)]

    def plan(self, old=None, new=None):
        """What becomes one, the topmost first; None where that is refused: something else stands on one of them, or the live
        part on none."""
        name, found = new or self.head, []
        while name:
            if found and self.count_on(name) > 1:
                return None
            found.append(name)
            below = self.parents[name]
            if name == old or not below or (not old and self.count_on(below) > 1):
                break
            name = below
        is_below = len(found) < 2 or set(found) <= set(self.below(self.head))
        return found if is_below and (not old or found[-1] == old) else None

    def absorb(self, names):
        self.parents[names[0]] = self.parents[names[-1]]
        for name in names[1:]:
            del self.parents[name]


def numbers(root):
    """The inode number that each file and directory shows."""
    found = {"": os.lstat(root).st_ino}
    for here, dirs, names in os.walk(root):
        for name in dirs + names:
            st = os.lstat(os.path.join(here, name))
            if stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode):
                found[os.path.relpath(os.path.join(here, name), root)] = st.st_ino
    return found


def _read(fd):
    return os.pread(fd, os.fstat(fd).st_size + 1, 0)


def _copy_tree(source, target):
    subprocess.run(["cp", "-a", f"{source}/.", f"{target}/"], check=True)


def _open_again(path, flags):
    """Also where the mode would not let its owner open it any more."""
    flags &= ~os.O_TMPFILE
    try:
        return os.open(path, flags)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(path, mode | 0o600)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, mode)


class SnapshotOperations(RandomOperations):
    def __init__(self, stack, environment, twins, rng, options):
        super().__init__(twins, rng, True, "coherence=strict" in options)
        self.stack, self.options, self.goes_back_live = stack, options, True
        self.environment = {**os.environ, **environment}
        self.copies, self.chain, self.shown = stack.base / "copies", Chain(), {}
        self.copies.mkdir()
        self.is_old_kernel = False
        self.serial = self.refusals = 0

    def compare(self):
        self.flush_mappings()
        self.twins.compare_trees()
        for path, pair in self.handles:
            self._compare_open(path, pair)
        self._compare_list()

    def event(self):
        """One of the operations on snapshots; what it did, for the counts."""
        draw = self.rng.choices(("snapshot", "back", "squash", "delete", "remount"), (6, 4, 4, 1, 1))[0]
        self.serial += 1
        getattr(self, "_" + draw)()
        self.compare()
        return draw

    def compare_snapshots(self):
        """Each as a branch of it shows it; nothing may be open of what is unmounted."""
        for name in self.chain.parents:
            dest = self.stack.base / f"branch-{name}"
            self._run("branch", f"{self.stack.mnt}@{name}", dest)
            try:
                Twins(dest, self.copies / name, True).compare_trees()
            except Mismatch as e:
                raise Mismatch(f"snapshot {name}: {e}") from e
            finally:
                linux.umount(dest)

    # open files

    def _compare_open(self, path, pair):
        mount, plain = pair[self.twins.mount], pair[self.twins.plain]
        if not stat.S_ISREG(os.fstat(plain).st_mode):
            return
        if (got := _read(mount)) != (want := _read(plain)):
            raise Mismatch(f"the open {path}: {first_difference(got, want)}")
        views = [attributes(os.fstat(fd)) for fd in (mount, plain)]
        self.twins.compare(*(("ok", view) for view in views), f"attributes of the open {path}")

    def _close_what_is_not_told(self):
        """Directories, and mappings of files that no descriptor holds: the model cannot tell what those show later."""
        for path, pair in self.handles[:]:
            if stat.S_ISDIR(os.fstat(pair[self.twins.plain]).st_mode):
                self.handles.remove((path, pair))
                for fd in pair.values():
                    os.close(fd)
        for mapping in self.mappings[:]:
            if not any(os.path.sameopenfile(mapping[2], pair[self.twins.plain]) for _, pair in self.handles):
                self.mappings.remove(mapping)
                for view in mapping[1].values():
                    view.close()
                os.close(mapping[2])

    def _find_again(self, path, pair, by_number):
        """An open file of the mount that still has names is the one of these names in the model. It was not changed since."""
        mount, plain = pair[self.twins.mount], pair[self.twins.plain]
        st = os.fstat(mount)
        if not st.st_nlink:
            return
        if st.st_ino not in by_number:
            raise Mismatch(f"the open {path} has {st.st_nlink} names, and none of them shows it")
        name = os.path.join(self.twins.plain, by_number[st.st_ino])
        fd = _open_again(name, fcntl.fcntl(plain, fcntl.F_GETFL))
        if not os.path.samestat(os.fstat(fd), os.fstat(plain)) and _read(fd) != _read(plain):
            its = "its own" if _read(mount) == _read(plain) else "others"
            raise Mismatch(f"the open {path} was changed, and is the {by_number[st.st_ino]} of the snapshot, with "
                           f"{st.st_nlink} names; its bytes are {its}")
        for k, (mapped, views, old) in enumerate(self.mappings):
            if os.path.sameopenfile(old, plain):
                views[self.twins.plain].close()
                views[self.twins.plain] = mmap.mmap(fd, len(views[self.twins.mount]))
                os.close(old)
                self.mappings[k] = mapped, views, os.dup(fd)
        os.close(plain)
        pair[self.twins.plain] = fd

    # commands

    def _call(self, command, *arguments):
        self.trace.append(f"--- veneer {command} {' '.join(map(str, arguments))}")
        return subprocess.run([self.stack.program, command, *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, timeout=60)

    def _run(self, command, *arguments):
        done = self._call(command, *arguments)
        if done.returncode or done.stderr:
            raise Mismatch(f"veneer {command}: exit code {done.returncode}, {done.stderr.strip()}")
        return done.stdout.strip()

    def _run_live(self, command, *arguments):
        """Of a mount: what is open may have it refused, and then nothing has changed. None: this kernel cannot do it."""
        done = self._call(command, *arguments)
        if _OLD_KERNEL in done.stderr or _SHARES_PAGES in done.stderr:
            self.goes_back_live = False
            self.is_old_kernel = _OLD_KERNEL in done.stderr
            return None
        if done.returncode and any(text in done.stderr for text in _REFUSALS[command]) and self.handles + self.mappings:
            self.refusals += 1
            self.trace.append(f"--- refused: {done.stderr.strip()}")
            self.compare()
            self.close_handles()
            done = self._call(command, *arguments)
        if done.returncode or done.stderr:
            raise Mismatch(f"veneer {command}: exit code {done.returncode}, {done.stderr.strip()}")
        return done.stdout.strip()

    def _compare_list(self):
        listed = json.loads(self._run("snapshots", "--json", self.stack.mnt))
        self.trace.pop()
        got = {one["name"]: one["parent"] for one in listed["snapshots"]}, listed["head"]
        if got != (self.chain.parents, self.chain.head):
            raise Mismatch(f"snapshots are listed as {got}, not {(self.chain.parents, self.chain.head)}")

    def _offline(self, command, *arguments):
        self.close_handles()
        self.stack.umount()
        self._run(command, *arguments)
        self.stack.mount(*self.options)

    def _compare_numbers(self, before):
        now = numbers(self.stack.mnt)
        if now != before:
            wrong = {path: (now.get(path), before.get(path)) for path in before.keys() | now.keys() if now.get(path) != before.get(path)}
            raise Mismatch(f"inode numbers are others than before: {wrong}")

    # snapshots

    def _copy(self, name):
        (self.copies / name).mkdir()
        _copy_tree(self.twins.plain, self.copies / name)

    def _snapshot(self):
        name, before = f"s{self.serial}", numbers(self.stack.mnt)
        if self._run_live("snapshot", self.stack.mnt, name) != name:
            raise Mismatch(f"the snapshot has another name than {name}")
        self._copy(name)
        self.chain.add(name)
        self.shown[name] = before
        self._compare_numbers(before)

    def _back(self):
        if not self.chain.parents:
            return
        name, kept = self.rng.choice(list(self.chain.parents)), f"k{self.serial}"
        before = numbers(self.stack.mnt)
        self.flush_mappings()
        self._close_what_is_not_told()
        is_live = self.rng.random() < 0.7 and self.goes_back_live
        if not is_live or self._run_live("rollback", "--keep", kept, self.stack.mnt, name) is None:
            self._offline("rollback", "--keep", kept, self.stack.upper, name)
        self._copy(kept)
        self.shown[kept] = before
        self.chain.add(kept, name)
        self._replace(self.copies / name)
        self._compare_numbers(self.shown[name])

    def _replace(self, copy):
        plain, old = self.twins.plain, f"{self.twins.plain}.old"
        os.rename(plain, old)
        os.mkdir(plain)
        _copy_tree(copy, plain)
        remove_tree(old)
        by_number = {number: path for path, number in numbers(self.twins.mount).items()}
        for path, pair in self.handles:
            self._find_again(path, pair, by_number)
        self._dirs, self._others = self.twins.walk_plain()

    def _range(self):
        """Of the snapshots below one another; () for all of them that can be."""
        if not self.chain.parents or self.rng.random() < 0.5:
            return ()
        names = self.chain.below(self.rng.choice(list(self.chain.parents)))
        return self.rng.choice(names), names[0]

    def _squash(self):
        chosen, before = self._range(), numbers(self.stack.mnt)
        plan = self.chain.plan(*chosen)
        arguments = ["-q"]
        is_live = not plan or self.rng.random() < 0.6
        arguments += [self.stack.mnt] if is_live else ["-o", layer_options(self.stack.upper, self.stack.lowers)]
        arguments += [f"{chosen[0]}..{chosen[1]}"] if chosen else []
        if plan is None:
            done = self._call("squash", *arguments)
            if done.returncode != 1:
                raise Mismatch(f"veneer squash: exit code {done.returncode}, should be refused")
        elif is_live:
            self._run_live("squash", *arguments)
        else:
            self._offline("squash", *arguments)
        if plan:
            self.chain.absorb(plan)
            self._forget(plan[1:])
        self._compare_numbers(before)

    def _delete(self):
        if names := self.chain.removable():
            name = self.rng.choice(names)
            self._run("snapshot", "--delete", self.stack.mnt, name)
            del self.chain.parents[name]
            self._forget([name])

    def _forget(self, names):
        for name in names:
            remove_tree(self.copies / name)
            del self.shown[name]

    def _remount(self):
        before = numbers(self.stack.mnt)
        self.close_handles()
        self.stack.remount(*self.options)
        self._compare_numbers(before)

    def freeze(self):
        """All of it becomes a lower layer; the snapshots of that are no longer this mount's."""
        self.close_handles()
        self.compare_snapshots()
        self.trace.append("--- freeze")
        self.stack.freeze()
        self.stack.mount(*self.options)
        self._forget(list(self.chain.parents))
        self.chain = Chain()
        self.compare()
