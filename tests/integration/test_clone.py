# SPDX-License-Identifier: Apache-2.0
"""Clones: a directory's writable view, whose changes go back into it, whole or not at all."""
import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import time

import pytest

from support import linux
from support.content import KIB, blob
from support.expect import opened, write_at
from support.server import wait_until


class Clones:
    def __init__(self, stack, shared):
        self.stack, self.shared = stack, shared
        self.dir, self.dest, self.home = stack.base / "dir, : @", stack.base / "work, here", stack.base / "state"
        fill(self.dir)

    def call(self, *arguments, **popen):
        return subprocess.run([self.stack.program, *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, timeout=60, **popen)

    @property
    def environment(self):
        return {**os.environ, **self.shared.environment, "VENEER_STATE_DIR": str(self.home)}

    def ok(self, *arguments):
        done = self.call(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def refused(self, *arguments):
        done = self.call(*arguments)
        assert done.returncode == 1 and done.stderr, done
        return done.stderr

    def clones(self):
        return json.loads(self.ok("clones", "--json"))["clones"]

    def changes(self):
        return sorted(self.call("diff", self.dest).stdout.splitlines())

    def umount(self):
        for one in (self.clones() if self.home.exists() else []):
            if os.path.ismount(one["dest"]):
                self.ok("umount", one["dest"])


@pytest.fixture
def c(stack, shared):
    made = Clones(stack, shared)
    yield made
    made.umount()


def fill(base):
    for name in ("d/e", "gone", "moved", "same", "exchange"):
        (base / name).mkdir(parents=True)
    (base / "big").write_bytes(blob(300 * KIB))
    for name in ("d/e/x", "gone/y", "moved/z", "same/here", "exchange/here", "small", "chmod", "becomes-dir"):
        (base / name).write_text(name)
    os.symlink("small", base / "link")
    os.link(base / "small", base / "second")


def change(base):
    """Something of each kind."""
    write_at(base / "big", b"NEW", 70_000)
    (base / "new").mkdir()
    (base / "new" / "f").write_bytes(blob(20 * KIB, 5))
    os.chmod(base / "new", 0o750)
    shutil.rmtree(base / "gone")
    os.rename(base / "moved", base / "new" / "moved")
    write_at(base / "new" / "moved" / "z", b"Z", 2)
    os.chmod(base / "chmod", 0o600)
    os.unlink(base / "becomes-dir")
    (base / "becomes-dir").mkdir()
    (base / "becomes-dir" / "in").write_text("in")
    shutil.rmtree(base / "d")
    (base / "d").write_text("a file now")
    os.unlink(base / "link")
    os.symlink("big", base / "link")
    (base / "small").write_text("both names")
    os.mkfifo(base / "fifo")
    os.setxattr(base / "big", "user.one", b"1")
    os.utime(base / "chmod", ns=(1, 1_000_000_007))


def seen(base):
    """All that counts of each name."""
    found = {}
    for here, dirs, names in os.walk(base):
        for name in [*dirs, *names]:
            path = os.path.join(here, name)
            st = os.lstat(path)
            what = [stat.filemode(st.st_mode), st.st_uid, st.st_gid, sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in os.listxattr(path, follow_symlinks=False))]
            if stat.S_ISREG(st.st_mode):
                what += [st.st_nlink, st.st_mtime_ns, pathlib.Path(path).read_bytes()]
            elif stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            found[os.path.relpath(path, base)] = what
    return found


def test_changes_go_over(c):
    before = seen(c.dir)
    c.ok("clone", c.dir, c.dest)
    assert seen(c.dest) == before
    change(c.dest)
    want = seen(c.dest)
    assert seen(c.dir) == before and want != before
    listed = c.ok("apply", "--dry-run", c.dest)
    assert seen(c.dir) == before and "A /new/f\n" in listed and "D /gone\n" in listed
    assert c.ok("apply", c.dest) == ""
    assert seen(c.dir) == want
    # It begins anew, and what is changed from here on goes over the same way.
    assert seen(c.dest) == want and c.changes() == []
    write_at(c.dest / "big", b"MORE", 5)
    (c.dest / "d").unlink()
    c.ok("apply", c.dest)
    assert c.dir.joinpath("big").read_bytes()[5:9] == b"MORE" and not (c.dir / "d").exists()
    assert c.ok("apply", c.dest) == ""


def test_nothing_is_left(c):
    c.ok("clone", "--size", "50M", "-o", "io=cached", c.dir, c.dest)
    (c.dest / "own").write_bytes(blob(100 * KIB))
    with pytest.raises(OSError):
        (c.dest / "too-much").write_bytes(bytes(60 << 20))
    one, = c.clones()
    assert (one["dir"], one["dest"], one["state"]) == (str(c.dir), str(c.dest), "mounted") and one["bytes"] > 100 * KIB
    assert str(c.dest) in c.ok("clones")
    before = seen(c.dir)
    assert c.ok("discard", c.dest) == ""
    assert seen(c.dir) == before and not c.dest.exists() and c.clones() == [] and os.listdir(c.home / "clones") == []
    # A directory that was there stays.
    c.dest.mkdir()
    c.ok("clone", c.dir, c.dest)
    c.ok("discard", c.dest)
    assert c.dest.is_dir()


def test_it_is_mounted_again(c):
    second = c.stack.base / "second"
    c.ok("clone", c.dir, c.dest)
    c.ok("clone", c.dir, second)
    write_at(c.dest / "big", b"MINE", 100)
    (second / "two").write_text("two")
    c.ok("umount", c.dest)
    c.ok("umount", second)
    assert [one["state"] for one in c.clones()] == ["unmounted"] * 2
    # What is not mounted can be looked at, and carried over.
    assert any("/big" in line for line in c.changes())
    c.ok("clone", "--resume", c.dest)
    assert c.dest.joinpath("big").read_bytes()[100:104] == b"MINE" and not os.path.ismount(second)
    c.ok("clone", "--resume")
    c.ok("clone", "--resume", c.dest)
    assert (second / "two").read_text() == "two"
    c.ok("umount", second)
    c.ok("apply", second)
    assert (c.dir / "two").read_text() == "two" and not os.path.ismount(second)
    c.ok("discard", second)


CONFLICTS = {
    "both wrote": (lambda m: write_at(m / "big", b"NEW", 5), lambda d: write_at(d / "big", b"OLD", 70_000), "big"),
    "mode there": (lambda m: write_at(m / "big", b"NEW", 5), lambda d: os.chmod(d / "big", 0o640), "big"),
    "removed here": (lambda m: (m / "chmod").unlink(), lambda d: (d / "chmod").write_text("new"), "chmod"),
    "removed there": (lambda m: (m / "chmod").write_text("new"), lambda d: (d / "chmod").unlink(), "chmod"),
    "mode here, removed there": (lambda m: os.chmod(m / "chmod", 0o600), lambda d: (d / "chmod").unlink(), "chmod"),
    "part here, removed there": (lambda m: write_at(m / "big", b"NEW", 5), lambda d: (d / "big").unlink(), "big"),
    "both made it": (lambda m: (m / "made").write_text("a"), lambda d: (d / "made").write_text("b"), "made"),
    "replaced there": (lambda m: (m / "chmod").write_text("new"), lambda d: os.rename(d / "second", d / "chmod"), "chmod"),
    "in what was removed": (lambda m: shutil.rmtree(m / "d"), lambda d: (d / "d/e/x").write_text("new"), "d/e/x"),
    "below what became a file": (lambda m: (shutil.rmtree(m / "d"), (m / "d").touch()), lambda d: (d / "d/e/x").write_text("new"), "d"),
    "moved here": (lambda m: os.rename(m / "big", m / "other"), lambda d: write_at(d / "big", b"OLD", 5), "big"),
    "moved directory": (lambda m: os.rename(m / "moved", m / "other"), lambda d: (d / "moved/z").write_text("new"), "moved/z"),
    "directory exchanged": (lambda m: write_at(m / "same/here", b"NEW", 0),
                            lambda d: (os.rename(d / "same", d / "aside"), os.rename(d / "exchange", d / "same")), "same"),
    "directory is a link there": (lambda m: (m / "same/new").touch(), lambda d: (os.rename(d / "same", d / "aside"), os.symlink("/etc", d / "same")), "same"),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_what_both_changed_is_listed(c, what):
    here, there, path = CONFLICTS[what]
    c.ok("clone", c.dir, c.dest)
    here(c.dest)
    (c.dest / "besides").touch()
    before = c.changes()
    there(c.dir)
    state = seen(c.dir)
    for arguments in (["apply", "--dry-run", c.dest], ["apply", c.dest]):
        assert f"conflict: {path}\n" in c.refused(*arguments)
        assert seen(c.dir) == state and os.path.ismount(c.dest)
    c.ok("umount", c.dest)
    assert f"conflict: {path}\n" in c.refused("apply", c.dest)
    assert seen(c.dir) == state and "A /besides" in c.changes() and len(c.changes()) >= len(before) - 1


def test_what_only_the_directory_changed_stays(c):
    c.ok("clone", c.dir, c.dest)
    (c.dest / "same" / "mine").write_text("mine")
    (c.dest / "small").write_text("mine")
    (c.dir / "same" / "theirs").write_text("theirs")
    (c.dir / "chmod").write_text("theirs")
    (c.dir / "d" / "e" / "x").unlink()
    (c.dest / "moved" / "mine").write_text("mine")
    shutil.rmtree(c.dir / "moved")
    c.ok("apply", c.dest)
    assert os.listdir(c.dir / "moved") == ["mine"]
    assert {name.name: name.read_text() for name in (c.dir / "same").iterdir()} == {"here": "same/here", "mine": "mine", "theirs": "theirs"}
    assert (c.dir / "chmod").read_text() == "theirs" and (c.dir / "second").read_text() == "mine"
    assert seen(c.dest) == seen(c.dir)


def test_a_clone_in_use_stays(c):
    c.ok("clone", c.dir, c.dest)
    before = seen(c.dir)
    with opened(c.dest / "new", os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"new")
        for command in ("apply", "discard"):
            assert "in use" in c.refused(command, c.dest)
            assert seen(c.dir) == before and (c.dest / "new").read_text() == "new"
    c.ok("apply", c.dest)
    assert (c.dir / "new").read_text() == "new"


def _apply_and_kill(c, when):
    """The process is killed when when(process) returns."""
    process = subprocess.Popen([c.stack.program, "apply", c.dest], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=c.environment)
    when(process)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _end_what_was_killed(c, before, want):
    """Whole or not at all; and then it is done."""
    one, = c.clones()
    if one["state"] == "applying":
        for arguments in (["clone", "--resume", c.dest], ["discard", c.dest]):
            assert "interrupted" in c.refused(*arguments)
    else:
        assert seen(c.dir) in (before, want)
        if not os.path.ismount(c.dest):
            c.ok("clone", "--resume", c.dest)
    c.ok("apply", c.dest)
    assert seen(c.dir) == want
    if not os.path.ismount(c.dest):
        c.ok("clone", "--resume", c.dest)
    assert seen(c.dest) == want and c.changes() == []


def test_a_kill_leaves_nothing_half_done(c):
    c.ok("clone", c.dir, c.dest)
    chance = random.Random(7)
    for k in range(12):
        before = seen(c.dir)
        for name in range(40):
            (c.dest / f"f{name}").write_bytes(blob(40 * KIB, k * 100 + name))
        shutil.rmtree(c.dest / "d", ignore_errors=True)
        write_at(c.dest / "big", bytes([k + 1]) * 3, 5000 * k)
        want = seen(c.dest)
        _apply_and_kill(c, lambda process: time.sleep(chance.uniform(0.01, 0.3)))
        _end_what_was_killed(c, before, want)


def test_a_kill_while_changes_go_over(c):
    c.ok("clone", c.dir, c.dest)
    change(c.dest)
    for name in range(300):
        (c.dest / f"f{name}").write_bytes(blob(4 * KIB, name))
    before, want = seen(c.dir), seen(c.dest)
    tar = pathlib.Path(c.clones()[0]["path"]) / "apply.tar"
    _apply_and_kill(c, lambda process: wait_until(tar.exists, step_s=0))
    assert tar.exists()
    _end_what_was_killed(c, before, want)


def test_two_commands_at_once(c):
    c.ok("clone", c.dir, c.dest)
    one, = c.clones()
    with opened(one["path"], os.O_RDONLY | os.O_DIRECTORY) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        for command in ("apply", "discard"):
            assert "another command" in c.refused(command, c.dest)
    c.ok("discard", c.dest)


def test_what_cannot_be_done_is_one_sentence(c):
    c.ok("clone", c.dir, c.dest)
    assert "already" in c.refused("clone", c.dir, c.dest)
    c.ok("umount", c.dest)
    assert "is a clone of" in c.refused("clone", c.dir, c.dest)
    assert "not a directory" in c.refused("clone", c.dir / "big", c.stack.base / "x")
    assert "No such file" in c.refused("clone", c.dir / "none", c.stack.base / "x")
    assert not (c.stack.base / "x").exists()
    for command in ("apply", "discard"):
        assert "is no clone" in c.refused(command, c.dir)
    assert "is no clone" in c.refused("clone", "--resume", c.dir)
    c.refused("clone", "-o", "io=nonsense", c.dir, c.stack.base / "x")
    assert len(c.clones()) == 1
    c.ok("discard", c.dest)


def test_a_description_that_is_none_is_passed_over(c):
    c.ok("clone", c.dir, c.dest)
    one, = c.clones()
    description = pathlib.Path(one["path"]) / "clone.json"
    text = description.read_text()
    for bad in ("", "{", "[]", '{"version": 2}', text.replace('"/', '"'), text.replace('"since_s"', '"since"')):
        description.write_text(bad)
        done = c.call("clones", "--json")
        assert "description is damaged" in done.stderr and json.loads(done.stdout) == {"clones": []}
        c.refused("discard", c.dest)
    description.write_text(text)
    # Nor what another user may have written.
    os.chmod(one["path"], 0o777)
    assert c.call("clones", "--json").stderr
    os.chmod(one["path"], 0o700)
    c.ok("discard", c.dest)


def test_snapshots_and_undo(c):
    c.ok("clone", c.dir, c.dest)
    write_at(c.dest / "big", b"GOOD", 70_000)
    (c.dest / "early").touch()
    c.ok("snapshot", c.dest, "good")
    good = seen(c.dest)
    change(c.dest)
    changed = (c.dest / "big").read_bytes()
    with opened(c.dest / "big", os.O_RDONLY) as fd:
        assert c.ok("rollback", "--keep", "bad", c.dest, "good") == "bad\n"
        assert seen(c.dest) == good
        assert os.pread(fd, len(changed) + 1, 0) == changed
    # Where the server refuses it, it is unmounted and mounted again.
    (c.dest / "large").write_bytes(bytes(65 << 20))
    with opened(c.dest / "large", os.O_RDONLY):
        assert "in use" in c.refused("rollback", c.dest, "good")
    assert (c.dest / "large").exists()
    c.ok("rollback", c.dest, "good")
    assert seen(c.dest) == good
    assert "no snapshot of this name" in c.refused("rollback", c.dest, "none")
    assert seen(c.dest) == good
    branch = c.stack.base / "branch"
    c.ok("branch", f"{c.dest}@bad", branch)
    assert (branch / "becomes-dir" / "in").exists()
    (c.dest / "late").touch()
    # They are not lost unsaid, nor under a branch.
    before, want = seen(c.dir), seen(c.dest)
    assert "--drop-snapshots" in c.refused("apply", c.dest)
    assert "A /early\n" in c.ok("apply", "--dry-run", c.dest)
    assert "a branch" in c.refused("apply", "--drop-snapshots", c.dest)
    assert "a branch" in c.refused("discard", c.dest)
    assert seen(c.dir) == before and seen(c.dest) == want and (branch / "becomes-dir" / "in").exists()
    c.ok("umount", branch)
    c.ok("apply", "--drop-snapshots", c.dest)
    assert seen(c.dir) == want == seen(c.dest) and c.ok("snapshots", c.dest) == ""


_ACL = "system.posix_acl_access"
_DEFAULT_ACL = "system.posix_acl_default"


def _acl(user, permissions):
    """rwx for the owner, r-x for the rest, and a user."""
    entries = [(1, 7, 0xffffffff), (2, permissions, user), (4, 5, 0xffffffff), (16, 7, 0xffffffff), (32, 5, 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_attributes_of_directories_go_over(c):
    for name in ("d", "same", "moved"):
        os.setxattr(c.dir / name, "user.old", b"old")
    os.setxattr(c.dir / "moved", _DEFAULT_ACL, _acl(os.getuid(), 7))
    c.ok("clone", c.dir, c.dest)
    os.setxattr(c.dest / "d", "user.new", b"new")
    os.setxattr(c.dest / "d", _DEFAULT_ACL, _acl(os.getuid(), 5))
    os.setxattr(c.dest / "same", _ACL, _acl(os.getuid(), 7))
    os.removexattr(c.dest / "same", "user.old")
    # What moves there does not get an access list.
    (c.dest / "private").write_text("private")
    os.chmod(c.dest / "private", 0o600)
    os.rename(c.dest / "private", c.dest / "moved" / "private")
    assert c.changes()[:2] == ["A /moved/private", "C /d"]
    want = seen(c.dest)
    c.ok("apply", c.dest)
    assert seen(c.dir) == want and os.listxattr(c.dir / "moved" / "private") == []


def test_who_may_not_enter_the_directory_may_not_enter_the_clone(c):
    os.chmod(c.dir, 0o700)
    os.setxattr(c.dir, "user.one", b"1")
    c.ok("clone", c.dir, c.dest)
    st = os.stat(c.dest)
    assert (stat.S_IMODE(st.st_mode), st.st_uid) == (0o700, os.stat(c.dir).st_uid) and os.getxattr(c.dest, "user.one") == b"1"
    (c.dest / "new").touch()
    c.ok("apply", c.dest)
    assert stat.S_IMODE(os.stat(c.dest).st_mode) == 0o700
    # That of the directory itself does not go over, which is said.
    os.chmod(c.dest, 0o711)
    done = c.call("apply", c.dest)
    assert done.returncode == 0 and "itself" in done.stderr and stat.S_IMODE(os.stat(c.dir).st_mode) == 0o700


def test_a_mode_that_only_the_directory_changed_is_not_undone(c):
    c.ok("clone", c.dir, c.dest)
    (c.dest / "same" / "new").touch()
    os.chmod(c.dir / "same", 0o700)
    assert "conflict: same\n" in c.refused("apply", c.dest)
    assert stat.S_IMODE(os.stat(c.dir / "same").st_mode) == 0o700 and not (c.dir / "same" / "new").exists()
    # With the same mode it might be another directory by that name all the same.
    os.chmod(c.dest / "same", 0o700)
    assert "conflict: same\n" in c.refused("apply", c.dest)
    assert c.call("apply", "--force", c.dest).returncode == 0
    assert (c.dir / "same" / "new").exists()


def test_by_force_the_clone_wins(c):
    c.ok("clone", c.dir, c.dest)
    change(c.dest)
    (c.dir / "becomes-dir").write_text("theirs")
    (c.dir / "gone" / "y").write_text("theirs")
    want = seen(c.dest)
    c.refused("apply", c.dest)
    done = c.call("apply", "--force", c.dest)
    assert done.returncode == 0 and "conflict: gone/y\n" in done.stderr
    assert seen(c.dir) == want
    # Of a file that was changed in part the rest is not there any more.
    write_at(c.dest / "big", b"MINE", 5)
    write_at(c.dir / "big", b"THEIRS", 70_000)
    before = seen(c.dir)
    c.refused("apply", "--force", c.dest)
    assert seen(c.dir) == before and any("/big" in line for line in c.changes())


def test_directories_that_cannot_be_written(c):
    if os.geteuid() == 0:
        pytest.skip("root may write them")
    os.chmod(c.dir / "same", 0o555)
    os.chmod(c.dir / "moved", 0o555)
    c.ok("clone", c.dir, c.dest)
    # One that is opened for a while is written, and has its mode again.
    os.chmod(c.dest / "same", 0o755)
    (c.dest / "same" / "new").touch()
    os.chmod(c.dest / "same", 0o555)
    (c.dest / "closed").mkdir()
    (c.dest / "closed" / "in").touch()
    os.chmod(c.dest / "closed", 0o555)
    want = seen(c.dest)
    c.ok("apply", c.dest)
    assert seen(c.dir) == want
    # Else it is refused before anything is done.
    (c.dest / "chmod").write_text("new")
    (c.dest / "moved" / "z").write_text("new")
    before = seen(c.dir)
    assert "not yours to change: moved\n" in c.refused("apply", c.dest)
    assert seen(c.dir) == before and (c.dest / "moved" / "z").read_text() == "new"


def _interrupted(c):
    """A clone whose changes are on their way: of many files, one in `same` and one in `chmod`."""
    for name in range(300):
        (c.dest / f"f{name}").write_bytes(blob(4 * KIB, name))
    (c.dest / "same" / "here").write_text("mine")
    for name in ("zy", "zz"):
        (c.dest / name).write_text("mine")
    shutil.rmtree(c.dest / "gone")
    tar = pathlib.Path(c.clones()[0]["path"]) / "apply.tar"
    _apply_and_kill(c, lambda process: wait_until(tar.exists, step_s=0))
    assert tar.exists()


def test_a_link_put_there_meanwhile_leads_nowhere(c):
    c.ok("clone", c.dir, c.dest)
    victim = c.stack.base / "victim"
    victim.mkdir()
    (victim / "here").write_text("victim")
    before = seen(victim)
    _interrupted(c)
    os.rename(c.dir / "same", c.dir / "aside")
    os.symlink(victim, c.dir / "same")
    assert "interrupted" in c.refused("discard", c.dest)
    assert c.refused("apply", c.dest)
    assert seen(victim) == before
    os.unlink(c.dir / "same")
    os.rename(c.dir / "aside", c.dir / "same")
    c.ok("apply", c.dest)
    assert (c.dir / "same" / "here").read_text() == "mine" and seen(victim) == before


def test_what_was_written_after_a_kill_is_not_lost(c):
    c.ok("clone", c.dir, c.dest)
    _interrupted(c)
    (c.dir / "zz").write_text("later")
    # Also what is older, and what came into a directory that is to go.
    (c.stack.base / "old").write_text("old")
    os.utime(c.stack.base / "old", (1, 1))
    os.rename(c.stack.base / "old", c.dir / "zy")
    (c.dir / "gone" / "new").touch()
    done = c.call("apply", c.dest)
    assert done.returncode == 1, done
    for name in ("zz", "zy", "gone"):
        assert f"left as it is: {name}\n" in done.stderr
    assert (c.dir / "zz").read_text() == "later" and (c.dir / "f299").exists() and (c.dir / "same" / "here").read_text() == "mine"
    assert (c.dir / "zy").read_text() == "old" and (c.dir / "gone" / "new").exists()
    left, = pathlib.Path(c.clones()[0]["path"]).glob("left-out-*.tar")
    assert str(left) in done.stderr
    with tarfile.open(left) as tar:
        assert tar.extractfile("zz").read() == b"mine"
    c.ok("clone", "--resume", c.dest)
    assert c.changes() == []


def test_an_interrupted_one_can_be_given_up(c):
    c.ok("clone", c.dir, c.dest)
    _interrupted(c)
    c.refused("discard", c.dest)
    # Another directory by that name is not written into.
    os.rename(c.dir, c.stack.base / "aside")
    fill(c.dir)
    before = seen(c.dir)
    assert "another one" in c.refused("apply", c.dest)
    assert seen(c.dir) == before
    c.ok("discard", "--force", c.dest)
    assert c.clones() == [] and os.listdir(c.home / "clones") == []


def test_a_full_disk_loses_nothing(c):
    small = c.stack.base / "small"
    small.mkdir()
    try:
        linux.mount("tmpfs", small, "tmpfs", data="size=4M")
    except OSError as e:
        pytest.skip(f"cannot mount: {e.strerror}")
    try:
        (small / "d").mkdir()
        c.ok("clone", small / "d", c.dest)
        (c.dest / "large").write_bytes(blob(6 << 20))
        (c.dest / "after").touch()
        assert "No space" in c.refused("apply", c.dest)
        assert not (small / "d" / "large").exists() and c.clones()[0]["state"] == "applying"
        linux.mount("tmpfs", small, "tmpfs", linux.MS_REMOUNT, data="size=40M")
        c.ok("apply", c.dest)
        assert (small / "d" / "large").read_bytes() == blob(6 << 20) and (small / "d" / "after").exists()
    finally:
        c.umount()
        linux.umount(small)


def test_holes_stay_holes(c):
    c.ok("clone", c.dir, c.dest)
    with opened(c.dest / "sparse", os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 50_000_123)
        os.pwrite(fd, b"data", 20_000_000)
    c.ok("apply", c.dest)
    st = os.stat(c.dir / "sparse")
    assert st.st_size == 50_000_123 and st.st_blocks * 512 < 100 * KIB
    assert (c.dir / "sparse").read_bytes()[20_000_000:20_000_005] == b"data\0"


def test_not_into_itself(c):
    assert "must not be in" in c.refused("clone", c.dir, c.dir / "inside")
    assert "must not be in" in c.refused("clone", c.dir, c.dir)
    assert "must not be in" in c.refused("clone", c.dir, c.stack.base)
    assert not (c.dir / "inside").exists() and c.clones() == []
