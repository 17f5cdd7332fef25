# SPDX-License-Identifier: Apache-2.0
"""Directories of a mount that lie in one another: what would write a lower layer is refused by one sentence, what
callers rely on works."""
import os
import subprocess

import pytest

from support import linux, treestate
from support.expect import names_in
from support.places import Place

_LONG = 60


class Directories:
    """Names of a fresh directory, and mounts of them by the mount program."""

    def __init__(self, stack, environment):
        self.base, self.stack, self.environment = stack.base / "overlap", stack, environment
        for name in ("low/sub/deep", "low2", "up", "up/in", "work", "other", "m", "via"):
            (self.base / name).mkdir(parents=True)
        (self.base / "low/file").write_text("low")
        (self.base / "low2/file2").write_text("low2")
        (self.base / "link").symlink_to("low")
        self.bound = []

    def bind(self, source, target):
        linux.mount(str(self.base / source), str(self.base / target), None, linux.MS_BIND)
        self.bound.append(self.base / target)

    def mount(self, lower, upper="up", work="work", *more, at="m"):
        """Paths relative to base; what the program said."""
        self.at = self.base / at
        options = ["lowerdir=" + ":".join(str(self.base / name) for name in lower.split(":"))]
        options += [f"upperdir={self.base / upper}", f"workdir={self.base / work}"] if upper else []
        return subprocess.run([self.stack.program, "-o", ",".join([*options, *more]), str(self.at)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.base,
                              env={**os.environ, **self.environment}, timeout=_LONG, check=False)

    def close(self):
        for path in [self.base / "m", self.base / "low/sub/m"] + self.bound[::-1]:
            while os.path.ismount(path):
                linux.umount(str(path), linux.MNT_DETACH)


@pytest.fixture
def dirs(stack, shared):
    directories = Directories(stack, shared.environment)
    yield directories
    directories.close()


_REFUSED = {
    "upper is lower": ("low", "low", "work"),
    "upper is a further lower": ("low2:low", "low", "work"),
    "upper is lower by a symlink": ("link", "low", "work"),
    "lower inside upper": ("up/in", "up", "work"),
    "work is lower": ("low", "up", "low"),
    "work is lower by a symlink": ("low", "up", "link"),
    "work inside lower": ("low", "up", "low/sub"),
    "work deep inside a further lower": ("low2:low", "up", "low/sub/deep"),
    "one lower twice": ("low:low", "up", "work"),
    "one lower twice by a symlink": ("low:low2:link", "up", "work"),
    "one lower twice, read-only": ("low:low", None, None),
    "lower in work/work": ("work/work/low", "up", "work"),
    "upper in work/work": ("low", "work/work/up", "work"),
    "upper is work": ("low", "up", "up"),
    "work inside upper": ("low", "up", "up/in"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_would_write_a_lower_is_refused(dirs, name):
    lower, upper, work = _REFUSED[name]
    if "work/work" in name:
        (dirs.base / "work/work/low").mkdir(parents=True)
        (dirs.base / "work/work/up").mkdir(parents=True)
    before = treestate.take(dirs.base)
    ran = dirs.mount(lower, upper, work)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1 and "dir " in ran.stderr, ran.stderr
    assert not os.path.ismount(dirs.at)
    if name not in ("upper is work", "work inside upper"):
        assert treestate.differences(before, treestate.take(dirs.base)) == []


@pytest.mark.needs_privileges("bind mounts")
def test_bind_mounts_do_not_hide_it(dirs):
    dirs.bind("low/sub", "via")
    before = treestate.take(dirs.base / "low")
    for lower, upper, work in (("low", "up", "via"), ("low", "up", "via/deep"), ("via", "low", "work"),
                               ("low:via/../low", "up", "work")):
        ran = dirs.mount(lower, upper, work)
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1, (lower, upper, work, ran.stderr)
    assert treestate.differences(before, treestate.take(dirs.base / "low")) == []


@pytest.mark.needs_privileges("bind mounts")
def test_same_directory_by_two_bind_mounts(dirs):
    dirs.bind("low", "via")
    assert dirs.mount("low:via").returncode == 1
    assert dirs.mount("low", "via").returncode == 1
    assert dirs.mount("via", "up", "low/sub").returncode == 1


@pytest.mark.needs_privileges("bind mounts")
def test_bind_mounts_beside_one_another_are_apart(dirs):
    """Neither in the other, though one file system holds both."""
    dirs.bind("low2", "via")
    (dirs.base / "lowest").mkdir()
    for lower in ("via", "low:via", "lowest:low"):
        ran = dirs.mount(lower)
        assert (ran.returncode, ran.stderr) == (0, "")
        linux.umount(str(dirs.base / "m"))


def test_upper_and_work_in_a_lower_work_with_a_word(dirs):
    """As Buildah mounts a volume :O of a directory that holds its store."""
    for name in ("up", "work"):
        (dirs.base / "low/sub" / name).mkdir()
    ran = dirs.mount("low", "low/sub/up", "low/sub/work")
    assert ran.returncode == 0
    assert ran.stderr.count("\n") == 1 and "is inside lowerdir" in ran.stderr
    (dirs.at / "new").write_text("new")
    (dirs.at / "file").write_text("changed")
    assert (dirs.base / "low/file").read_text() == "low"
    assert names_in(dirs.base / "low") == ["file", "sub"]
    assert (dirs.base / "low/sub/up/new").read_text() == "new"


def test_lower_in_a_lower_works_with_a_word(dirs):
    ran = dirs.mount("low:low/sub", None, None)
    assert ran.returncode == 0 and "seen twice" in ran.stderr
    assert names_in(dirs.at) == ["deep", "file", "sub"]


@pytest.mark.parametrize("place", ["low", "up", "work"])
def test_mount_point_may_be_any_of_the_directories(dirs, place):
    ran = dirs.mount("low", at=place)
    assert (ran.returncode, ran.stderr) == (0, "")
    try:
        assert "file" in names_in(dirs.at)
        (dirs.at / "new").write_text("new")
    finally:
        linux.umount(str(dirs.at))


def test_work_directory_above_the_upper_works(dirs):
    (dirs.base / "work/up").mkdir()
    ran = dirs.mount("low", "work/up", "work")
    assert (ran.returncode, ran.stderr) == (0, "")
    (dirs.at / "new").write_text("new")
    assert (dirs.base / "work/up/new").read_text() == "new"


def test_read_only_mount_of_an_upper_writes_nothing_and_may_lie_anywhere(dirs):
    ran = dirs.mount("low", "up", "low", "ro")
    assert ran.returncode == 0
    assert names_in(dirs.at) == ["file", "in", "sub"]


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_lower_that_another_mount_writes_gives_a_line_in_the_log(stack, shared, first):
    """Containers of one Podman store may do that, and the kernel's overlayfs has a line for it, too."""
    (stack.lower() / "file").write_text("low")
    writer = Place(stack, "writer")
    reader = Place(stack, "reader", lowers=[writer.upper, stack.lower()])
    for place in (writer, reader) if first == "writer" else (reader, writer):
        place.mount(stack, shared)
    (writer.mnt / "new").write_text("new")
    assert names_in(writer.mnt) == ["file", "new"]
    assert "file" in names_in(reader.mnt)
    (reader.mnt / "own").write_text("own")
    assert sorted(os.listdir(writer.upper)) == ["new"]
    lines = [line for line in shared.log.splitlines() if str(writer.upper) in line and "another mount" in line]
    assert len(lines) == 1, shared.log


def test_mount_goes_on_after_its_server_died_whatever_overlaps(stack, shared):
    """The next server does not refuse a mount that an older version accepted."""
    (stack.lower() / "in").mkdir()
    place = Place(stack, "p")
    place.mount(stack, shared)
    (place.mnt / "new").write_text("new")
    # the directory moves under the lower while the mount is in use: the next server finds it there
    os.rename(place.upper, stack.lower() / "in" / "upper")
    stack.forget_lower(stack.lower())
    shared.kill_server()
    assert (place.mnt / "new").read_text() == "new"
    (place.mnt / "more").write_text("more")
    assert names_in(place.mnt) == ["in", "more", "new"]
