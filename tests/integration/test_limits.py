# SPDX-License-Identifier: Apache-2.0
"""Few descriptors, many layers, many names in one directory."""
import collections
import contextlib
import os
import random
import resource
import shlex
import subprocess
import sys

import pytest

from support import linux
from support.content import blob
from support.expect import names_in, write_at

FEW, MORE = 1024, 20_000


@pytest.fixture(autouse=True)
def many_descriptors_here():
    """This process is not what is tested."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def limit_server(stack, descriptors):
    """From now on servers of this stack have a hard limit of so many descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < descriptors:
        pytest.skip(f"the hard limit of descriptors is {hard} here")
    program = stack.base / "limited"
    program.write_text(f"#!/bin/sh\nulimit -n {descriptors}\n"
                       f'exec {shlex.quote(str(stack.program))} "$@"\n')
    program.chmod(0o755)
    stack.program = str(program)


@contextlib.contextmanager
def all_open(paths, flags=os.O_RDONLY):
    fds = []
    try:
        for path in paths:
            fds.append(os.open(path, flags))
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def make_files(directory, count, size=0):
    directory.mkdir(parents=True)
    for number in range(count):
        with open(directory / f"f{number}", "wb") as f:
            f.write(b"%d" % number + bytes(size))


# ---- descriptors ----

@pytest.mark.standalone("its limit is that of the server's starter")
@pytest.mark.parametrize("limit", [FEW, MORE])
def test_more_open_files_than_the_server_may_have(stack, limit):
    count = 3000
    make_files(stack.lower() / "d", count, 20_000)
    limit_server(stack, limit)
    m = stack.mount()
    paths = [m / "d" / f"f{number}" for number in range(count)]
    with all_open(paths, os.O_RDWR) as fds:
        assert len(os.listdir(f"/proc/{stack.pid}/fd")) <= limit
        for number, fd in enumerate(fds):
            assert os.pread(fd, len(str(number)), 0) == b"%d" % number
        for number, fd in enumerate(fds):
            assert os.pwrite(fd, b"%07d" % number, 16_000) == 7
        assert len(os.listdir(f"/proc/{stack.pid}/fd")) <= limit
        for number, fd in enumerate(fds):
            assert os.pread(fd, 7, 16_000) == b"%07d" % number
            os.fchmod(fd, 0o640)
    m = stack.remount()
    for number in range(0, count, 37):
        assert (m / "d" / f"f{number}").read_bytes()[16_000:16_007] == b"%07d" % number


@pytest.mark.standalone("its limit is that of the server's starter")
@pytest.mark.parametrize("limit", [FEW, MORE])
def test_more_open_directories_than_the_server_may_have(stack, limit):
    count = 1500
    for number in range(count):
        (stack.lower() / f"d{number}" / "sub").mkdir(parents=True)
    limit_server(stack, limit)
    m = stack.mount()
    with all_open([m / f"d{number}" for number in range(count)], os.O_DIRECTORY) as fds:
        for fd in fds:
            os.mkdir("new", dir_fd=fd)
        for fd in fds:
            assert sorted(os.listdir(fd)) == ["new", "sub"]
    assert len(os.listdir(f"/proc/{stack.pid}/fd")) <= limit


def test_deep_directories_with_few_descriptors(stack):
    depth = 1500
    here = os.open(stack.lower(), os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here))
    os.close(here)
    limit_server(stack, FEW)
    stack.lower(1)
    stack.forget_lower(stack.lower(0))
    mount = stack.second_mount(stack.lowers, upper=stack.upper, work=stack.work)
    here = os.open(mount.mnt, os.O_DIRECTORY)
    for _ in range(depth):
        below = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    fd = os.open("f", os.O_WRONLY, dir_fd=here)
    os.write(fd, b"at the bottom")
    os.close(fd)
    fd = os.open("f", os.O_RDONLY, dir_fd=here)
    assert os.read(fd, 100) == b"at the bottom"
    os.close(fd)
    assert os.listdir(here) == ["f"]
    os.unlink("f", dir_fd=here)
    assert os.listdir(here) == []
    os.close(here)
    # a chain too deep for a path is removed step by step, as rm -rf does
    subprocess.run(["rm", "-rf", mount.mnt / "d"], check=True)
    assert os.listdir(mount.mnt) == []
    assert mount.stop() is None
    subprocess.run(["rm", "-rf", stack.lower(0) / "d", stack.upper / "d"], check=True)


@pytest.mark.standalone("its limit is that of the server's starter")
@pytest.mark.parametrize("count", [
    400, pytest.param(1500, marks=pytest.mark.xfail(
        strict=True, reason="an unlinked file that is open keeps a descriptor of the server"))])
def test_unlinked_files_stay_open_with_few_descriptors(stack, count):
    make_files(stack.lower() / "d", count, 20_000)
    limit_server(stack, FEW)
    m = stack.mount()
    paths = [m / "d" / f"f{number}" for number in range(count)]
    with all_open(paths, os.O_RDWR) as fds:
        for number, fd in enumerate(fds):
            assert os.pwrite(fd, b"%07d" % number, 16_000) == 7
        for path in paths:
            os.unlink(path)
        assert os.listdir(m / "d") == []
        for number, fd in enumerate(fds):
            assert os.pread(fd, 7, 16_000) == b"%07d" % number
            assert os.fstat(fd).st_nlink == 0
        # and the server still has some for others
        (m / "new").write_text("new")
        assert (m / "new").read_text() == "new"
    (m / "d" / "again").write_text("again")
    assert "again" in names_in(stack.upper / "d")


@pytest.mark.standalone("its limit is that of the server's starter")
def test_removed_names_of_files_that_have_others_cost_no_descriptors(stack):
    """As git makes its objects: under one name, linked to another, and the first one goes."""
    limit_server(stack, FEW)
    m = stack.mount()
    for number in range(1100):
        (m / "made").write_text(str(number))
        os.link(m / "made", m / f"kept{number}")
        if number % 2:
            os.unlink(m / "made")
        else:
            (m / "next").touch()
            os.rename(m / "next", m / "made")
    for number in range(0, 1100, 7):
        assert (m / f"kept{number}").read_text() == str(number)
        assert (m / f"kept{number}").stat().st_nlink == 1


@pytest.mark.writethrough("no write fails, but its close")
def test_out_of_descriptors_is_an_error_and_passes(stack):
    """Whatever is refused while they are short, the server goes on and is whole afterwards."""
    make_files(stack.lower() / "d", 1500, 20_000)
    (stack.lower() / "other").write_bytes(blob(50_000))
    limit_server(stack, FEW)
    m = stack.mount()
    paths = [m / "d" / f"f{number}" for number in range(1500)]
    with all_open(paths, os.O_RDWR) as fds:
        for path, fd in zip(paths, fds):
            try:
                os.pwrite(fd, b"x", 5)
                os.unlink(path)
            except OSError:
                pass
    write_at(m / "other", b"y", 10)
    assert (m / "other").read_bytes() == blob(50_000)[:10] + b"y" + blob(50_000)[11:]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    assert os.listdir(m / "d") == []


# ---- layers ----

LAYERS = 500


@pytest.fixture
def layered(stack):
    """500 lowers. Each has: a name of its own, one that all have, a place deep in a tree that all
    share; each hides what the one six below it has under `hidden`."""
    for number in range(LAYERS):
        lower = stack.lower(number)
        (lower / "a" / "b" / "c").mkdir(parents=True)
        (lower / "a" / "b" / "c" / f"own{number}").write_text(f"{number}")
        (lower / "a" / "same").write_text(f"{number}")
        (lower / "hidden").mkdir()
        (lower / "hidden" / f"h{number}").write_text("h")
        if number % 6 == 0 and number + 6 < LAYERS:
            (lower / "hidden" / f".wh.h{number + 6}").touch()
    return stack


def assert_merged(m):
    assert names_in(m / "a" / "b" / "c") == sorted(f"own{number}" for number in range(LAYERS))
    assert (m / "a" / "same").read_text() == "0"
    for number in (0, 1, 249, 498, 499):
        assert (m / "a" / "b" / "c" / f"own{number}").read_text() == f"{number}"
    shown = [number for number in range(LAYERS) if number % 6 or number == 0]
    assert names_in(m / "hidden") == sorted(f"h{number}" for number in shown)


def change_all_over(m):
    for number in range(0, LAYERS, 50):
        with open(m / "a" / "b" / "c" / f"own{number}", "a") as f:
            f.write("+")
    os.unlink(m / "a" / "same")
    os.unlink(m / "a" / "b" / "c" / "own499")
    (m / "a" / "b" / "new").mkdir()


def assert_changed(m):
    assert not os.path.lexists(m / "a" / "same")
    assert len(os.listdir(m / "a" / "b" / "c")) == LAYERS - 1
    assert (m / "a" / "b" / "c" / "own450").read_text() == "450+"
    assert names_in(m / "a" / "b") == ["c", "new"]


@pytest.mark.parametrize("limit", [FEW, MORE])
def test_five_hundred_layers(layered, limit):
    limit_server(layered, limit)
    m = layered.mount()
    assert_merged(m)
    change_all_over(m)
    assert_changed(m)
    assert_changed(layered.remount())
    layered.freeze()
    assert_changed(layered.mount())


def run_mount(program, stack, options, cwd="/"):
    return subprocess.run([program, *options, str(stack.mnt)], cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


def forms(stack):
    """Ways to say the same."""
    rest = f"upperdir={stack.upper},workdir={stack.work}"
    absolute = [str(path) for path in stack.lowers]
    yield "one word", ["-o", f"lowerdir={':'.join(absolute)},{rest}"]
    yield "joined", [f"-olowerdir={':'.join(absolute)},{rest}"]
    yield "in parts", ["-o", rest, "-o", "lowerdir=" + ":".join(absolute), "-o", "noatime"]
    yield "relative", ["-o", f"lowerdir={':'.join(path.name for path in stack.lowers)},{rest}"]
    yield "quoted", ["-o", f'lowerdir="{":".join(absolute)}",{rest}']
    links = stack.base / "l"
    links.mkdir()
    for number, path in enumerate(absolute):
        (links / f"{number}").symlink_to(path)
    yield "links", ["-o", f"lowerdir={':'.join(f'l/{n}' for n in range(LAYERS))},{rest}"]
    padded = ":".join("/" + "./" * 40 + path[1:] for path in absolute)[:120_000].rsplit(":", 1)[0]
    yield "long", ["-o", f"lowerdir={padded}:{absolute[-1]},{rest}"]


def test_five_hundred_layers_in_every_form_of_the_argument(layered, veneer_bin):
    layered.remember_lowers()
    for name, options in forms(layered):
        result = run_mount(veneer_bin, layered, options, cwd=layered.base)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), name
        try:
            assert (layered.mnt / "a" / "same").read_text() == "0", name
            assert (layered.mnt / "a" / "b" / "c" / "own499").read_text() == "499", name
            if name != "long":
                assert_merged(layered.mnt)
        finally:
            linux.umount(layered.mnt)


def test_too_few_descriptors_for_the_layers_is_said(layered, veneer_bin):
    limit_server(layered, 256)
    options = [f"-olowerdir={':'.join(map(str, layered.lowers))},upperdir={layered.upper},"
               f"workdir={layered.work}"]
    result = run_mount(layered.program, layered, options)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and "Too many open files" in result.stderr
    assert os.listdir(layered.mnt) == []


def test_partial_files_through_many_layers(stack):
    """Twenty times frozen: each layer has one block of its own."""
    data = bytearray(blob(200_000))
    (stack.lower() / "f").write_bytes(data)
    for number in range(20):
        m = stack.mount()
        assert (m / "f").read_bytes() == data
        write_at(m / "f", b"layer%03d" % number, number * 9000)
        data[number * 9000:number * 9000 + 8] = b"layer%03d" % number
        stack.freeze()
    assert (stack.mount() / "f").read_bytes() == data


# ---- large directories ----

HUGE = pytest.param(1_000_000, marks=pytest.mark.slow)


def touch_all(directory, names):
    at = os.open(directory, os.O_DIRECTORY)
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at))
    os.close(at)


def unlink_all(directory, names):
    at = os.open(directory, os.O_DIRECTORY)
    for name in names:
        os.unlink(name, dir_fd=at)
    os.close(at)


class Many:
    """A mount all of whose layers are in memory: some file systems take long to make so many files.
    The lower is not compared as a whole; the tests look themselves."""

    def __init__(self, stack, where):
        self.lower, self.upper, self.work = (where / name for name in ("lower", "upper", "work"))
        for path in (self.lower, self.upper, self.work):
            path.mkdir()
        self._stack, self.server = stack, None

    def mount(self):
        self.server = self._stack.second_mount([self.lower], upper=self.upper, work=self.work)
        self.server.watchdog.watch(self.server.pid, 1800)
        return self.server.mnt

    def umount(self):
        assert self.server.stop() is None, self.server.log


@pytest.fixture
def many(stack):
    ram = stack.base / "ram"
    ram.mkdir()
    linux.mount("none", ram, "tmpfs")
    try:
        os.setxattr(ram, "user.probe", b"")
    except OSError:
        linux.umount(ram) # before Linux 6.6: on the disk, then
    made = Many(stack, ram)
    yield made
    if made.server:
        made.umount()
    if os.path.ismount(ram):
        linux.umount(ram)


def cpu_of(pid):
    """Seconds the server has worked."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_work_for_a_name_does_not_grow_with_the_directory(many):
    (many.lower / "d").mkdir()
    touch_all(many.lower / "d", [f"old{number}" for number in range(10)])
    m = many.mount()
    first = cpu_of(many.server.pid)
    touch_all(m / "d", [f"a{number}" for number in range(2000)])
    second = cpu_of(many.server.pid)
    touch_all(m / "d", [f"b{number}" for number in range(20_000)])
    third = cpu_of(many.server.pid)
    touch_all(m / "d", [f"c{number}" for number in range(2000)])
    assert cpu_of(many.server.pid) - third < 3 * (second - first)


@pytest.mark.large
@pytest.mark.parametrize("count", [50_000, HUGE])
def test_large_directory_is_made_listed_and_removed(many, count):
    """Half of it in the lower, half of it new."""
    (many.lower / "d").mkdir()
    old = [f"old{number:07}" for number in range(count // 2)]
    new = [f"new{number:07}" for number in range(count // 2)]
    touch_all(many.lower / "d", old)
    m = many.mount()
    touch_all(m / "d", new)
    assert set(os.listdir(m / "d")) == set(old + new)
    assert len(os.listdir(m / "d")) == count
    for name in random.Random(1).sample(old + new, 2000):
        os.stat(m / "d" / name)
        assert not os.path.lexists(m / "d" / f"no{name}")
    # every other one goes, old ones become whiteouts
    unlink_all(m / "d", old[::2] + new[::2])
    assert sorted(os.listdir(m / "d")) == sorted(old[1::2] + new[1::2])
    assert len(os.listdir(many.lower / "d")) == count // 2
    unlink_all(m / "d", old[1::2] + new[1::2])
    assert os.listdir(m / "d") == []
    os.rmdir(m / "d")
    assert os.listdir(m) == []
    many.umount()
    m = many.mount()
    assert os.listdir(m) == []


@pytest.mark.parametrize("count", [20_000, HUGE])
def test_listing_a_large_directory_while_it_changes(many, count):
    """What is there all the time is seen exactly once, whatever comes and goes meanwhile."""
    (many.lower / "d").mkdir()
    stay = [f"stay{number:07}" for number in range(count // 4)]
    gone = [f"gone{number:07}" for number in range(count // 4)]
    touch_all(many.lower / "d", stay[::2] + gone[::2])
    m = many.mount()
    touch_all(m / "d", stay[1::2] + gone[1::2])
    going = gone[:]
    random.Random(2).shuffle(going)
    seen, made = collections.Counter(), 0
    with linux.DirStream(m / "d") as stream:
        for number, (name, _, _) in enumerate(stream):
            seen[name] += 1
            if number % 3 == 0 and going:
                os.unlink(m / "d" / going.pop())
                if made < count // 8:
                    touch_all(m / "d", [f"came{made:07}"])
                    made += 1
    assert not going or len(going) < len(gone)
    assert [name for name in stay if seen[name] != 1] == []
    assert [name for name, times in seen.items() if times > 1] == []
    assert seen.keys() - set(stay) - set(gone) - {"."} - {".."} <= \
        {f"came{number:07}" for number in range(made)}
    assert set(os.listdir(m / "d")) == \
        set(stay) | set(going) | {f"came{number:07}" for number in range(made)}


@pytest.mark.parametrize("count", [20_000, HUGE])
def test_told_positions_of_a_large_directory_stay_valid(many, count):
    (many.lower / "d").mkdir()
    names = [f"n{number:07}" for number in range(count)]
    touch_all(many.lower / "d", names[::2])
    m = many.mount()
    touch_all(m / "d", names[1::2])
    rng = random.Random(3)
    with linux.DirStream(m / "d") as stream:
        order, marks = [], {}
        while True:
            position = stream.tell()
            if len(order) % (count // 200) == 0:
                marks[len(order)] = position
            entry = stream.read()
            if entry is None:
                break
            order.append(entry[0])
        assert sorted(order) == sorted([".", "..", *names])
        for index in rng.sample(sorted(marks), 50):
            stream.seek(marks[index])
            got = [stream.read() for _ in range(5)]
            assert [e[0] for e in got if e] == order[index:index + 5]
        # names go and come: from a told position the rest still follows, without what has gone
        victims = set(rng.sample(names, count // 10))
        unlink_all(m / "d", sorted(victims))
        touch_all(m / "d", [f"x{number}" for number in range(500)])
        for index in rng.sample(sorted(marks), 10):
            stream.seek(marks[index])
            got = [e[0] for e in (stream.read() for _ in range(300)) if e]
            want = [name for name in order[index:] if name not in victims]
            fresh = [name for name in got if name[0] != "x"]
            # what the C library has read ahead may hold a name that has just gone
            assert [name for name in fresh if name not in victims] == want[:len(
                [name for name in fresh if name not in victims])]
        stream.rewind()
        assert {e[0] for e in stream} >= set(names) - victims


def test_two_listings_at_once_do_not_mix(stack):
    (stack.lower() / "d").mkdir()
    names = [f"n{number:05}" for number in range(5000)]
    touch_all(stack.lower() / "d", names[::2])
    m = stack.mount()
    touch_all(m / "d", names[1::2])
    with linux.DirStream(m / "d") as one, linux.DirStream(m / "d") as two:
        first, second = [], []
        rng = random.Random(sys.maxsize)
        is_done = [False, False]
        while not all(is_done):
            which = rng.randrange(2)
            entry = (one, two)[which].read()
            if entry is None:
                is_done[which] = True
            else:
                (first, second)[which].append(entry[0])
    assert sorted(first) == sorted(second) == sorted([".", "..", *names])
