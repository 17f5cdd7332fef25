# SPDX-License-Identifier: Apache-2.0
"""The first reads of a start are recorded, and read ahead at the next one; and nothing that is wrong with the
profile is seen in the mount."""
import ctypes
import fcntl
import json
import mmap
import os
import signal
import subprocess

import pytest

from support import linux
from support.content import KIB, MIB, blob
from support.expect import read_at, write_at
from support.server import OwnMount, is_shared, wait_until

EXTENT, PART = 32 * KIB, 512 * KIB
LIMIT_S = 90
WINDOW = "prefetch_window=1"
PARTS = {"program": [(0, 200 * KIB), (2 * MIB, 64 * KIB)], "lib/one": [(0, 100 * KIB)], "lib/two": [(0, 5)]}
MS_RDONLY, MS_REMOUNT = 1, 32
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def state(stack):
    return stack.base / "state" / "veneer"


@pytest.fixture
def image(stack, state):
    return Image(stack, state)


class Image:
    """A lower tree, and mounts of it that learn."""

    def __init__(self, stack, state):
        self.stack, self.state = stack, state
        self.env = {"VENEER_STATE_DIR": str(state)}
        for name, size in (("program", 4 * MIB), ("lib/one", 100 * KIB), ("lib/two", 40 * KIB), ("lib/never", MIB)):
            path = stack.lower() / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(blob(size, len(name)))

    def cool(self):
        """No page of a lower file is cached."""
        os.sync()
        for top, _, names in os.walk(self.stack.lower()):
            for name in names:
                fd = os.open(os.path.join(top, name), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def cached(self, name):
        """Numbers of the extents of a lower file that are cached."""
        path = self.stack.lower() / name
        size = path.stat().st_size
        pages = (ctypes.c_ubyte * ((size + 4095) // 4096))()
        with open(path, "rb") as f, mmap.mmap(f.fileno(), size, mmap.MAP_PRIVATE) as m:
            at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))
            assert _libc.mincore(at, ctypes.c_size_t(size), pages) == 0
            del at
        return {i * 4096 // EXTENT for i, page in enumerate(pages) if page & 1}

    def start(self, *options):
        return self.stack.mount("io=cached", "prefetch=read", *options, env=self.env)

    def run(self, root, parts=None):
        """The reads of the image's program."""
        for name, ranges in (parts or PARTS).items():
            content = (self.stack.lower() / name).read_bytes()
            fd = os.open(root / name, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for off, size in ranges:
                assert os.pread(fd, size, off) == content[off:off + size]
            os.close(fd)

    def profile(self, *args, **keywords):
        done = subprocess.run([self.stack.program, "profile", "--state", str(self.state), *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)
        return done

    def known(self):
        done = self.profile("export")
        return json.loads(done.stdout)["images"] if done.returncode == 0 and done.stdout else []

    def starts(self):
        return sum(i["starts"] for i in self.known())

    def expect_all(self):
        """The profile says of each extent that was ever touched that each start touched it."""
        exported = json.loads(self.profile("export").stdout)
        for known in exported["images"]:
            for item in (i for f in known["files"] for i in f["items"]):
                item["seen"], item["count"] = f"{(1 << known['starts']) - 1:016x}", known["starts"]
        assert self.profile("import", input=json.dumps(exported)).returncode == 0

    def learn(self, *options, parts=None):
        """One start, from mount to stored."""
        before = self.starts()
        self.run(self.start(*options), parts)
        self.stack.umount()
        assert wait_until(lambda: self.starts() == before + 1, LIMIT_S), self.stack.log

    def counters(self):
        """Of the process that serves."""
        def tell():
            os.kill(self.stack.pid, signal.SIGUSR1)
            return wait_until(lambda: "PREDICTION HITS" in self.stack.log[at:], 1)
        at = len(self.stack.log)
        assert wait_until(tell, LIMIT_S)
        lines = [line.partition(":") for line in self.stack.log[at:].splitlines() if line.startswith("# ")]
        return {name[2:]: int(value) for name, _, value in lines if value.strip().isdigit()}


def extents(parts=None):
    return {name: {e for off, size in ranges for e in range(off // EXTENT, (off + size - 1) // EXTENT + 1)}
            for name, ranges in (parts or PARTS).items()}


# ---- learning ----

def test_a_start_is_noted(image):
    image.learn()
    known, = image.known()
    seen = {f["path"]: {i["extent"] for i in f["items"]} for f in known["files"]}
    assert seen.keys() == PARTS.keys()
    for name, wanted in extents().items():
        assert wanted <= seen[name]
    assert len(seen["program"]) < 30


def test_the_second_start_finds_what_the_first_read(image):
    image.learn()
    image.cool()
    assert not image.cached("lib/one")
    root = image.start(WINDOW)
    for name, wanted in extents().items():
        assert wait_until(lambda: wanted <= image.cached(name), LIMIT_S), name
    assert not image.cached("lib/never")
    # Some extents go on into what nobody reads: hits are those of the extents.
    image.run(root)
    assert wait_until(lambda: image.counters()["PREDICTION HITS"] > 0, LIMIT_S)
    seen = image.counters()
    assert seen["PREFETCHED BYTES"] > 0
    assert 0 < seen["PREDICTION HITS"] <= seen["PREDICTED BYTES"]


def test_a_file_that_is_written_is_noted(image):
    root = image.start()
    with open(root / "lib/one", "r+b") as f:
        f.write(b"changed")
    image.stack.umount()
    assert wait_until(lambda: image.starts() == 1, LIMIT_S)
    items = [i for f in image.known()[0]["files"] if f["path"] == "lib/one" for i in f["items"]]
    assert [i for i in items if i["kind"] == "written"]


def test_a_mount_that_is_not_read_says_nothing(image):
    image.start()
    image.stack.umount()
    image.learn()
    assert image.starts() == 1


def test_an_image_that_was_never_seen_takes_what_shares_its_layers(image):
    image.learn()
    image.stack.forget_lower(image.stack.lower())
    bottom = image.stack.lowers[0]
    top = image.stack._make("another")
    (top / "new").write_bytes(b"new")
    image.cool()
    image.stack.lowers.insert(0, top)
    image.start()
    image.stack.lowers.remove(top)
    assert image.stack.lower() == bottom
    assert wait_until(lambda: extents()["lib/one"] <= image.cached("lib/one"), LIMIT_S)


def test_what_changes_with_every_start_is_not_read_ahead(image):
    for i in range(8):
        (image.stack.lower() / f"only{i}").write_bytes(blob(200 * KIB, i))
    for i in range(5):
        image.learn(parts={f"only{i}": [(0, 200 * KIB)], "lib/two": [(0, 5)]})
    image.cool()
    root = image.start(WINDOW)
    image.run(root, {"only7": [(0, 5)]})
    image.stack.umount()
    assert not image.cached("only0")


@pytest.mark.slow
def test_what_was_wrong_too_often_is_not_acted_on(image):
    """The profile has been made to say that all comes again; the bound is what stops it."""
    for i in range(5):
        (image.stack.lower() / f"only{i}").write_bytes(blob(200 * KIB, i))
    for i in range(4):
        before = image.starts()
        if before:
            image.expect_all()
        root = image.start(WINDOW)
        image.run(root, {f"only{i}": [(0, 200 * KIB)], "lib/two": [(0, 5)]})
        # At the end of the window: a mount that ends before its profile is there is not judged.
        assert wait_until(lambda: image.starts() == before + 1, LIMIT_S)
        image.stack.umount()
    listed, = json.loads(image.profile("--json", "list").stdout)
    assert listed["is_trusted"] is False and listed["precision"] < 0.5
    image.expect_all()
    image.cool()
    root = image.start(WINDOW)
    image.run(root, {"only4": [(0, 5)], "lib/two": [(0, 5)]})
    assert wait_until(lambda: image.counters()["PREDICTED BYTES"] > 0, LIMIT_S)
    assert wait_until(lambda: image.starts() == 5, LIMIT_S)
    assert not image.cached("only0") and not image.cached("only3")


@pytest.mark.needs_root("nothing is passed through to others")
@pytest.mark.standalone("what is counted is the process')")
def test_what_was_read_ahead_is_no_proof_where_the_kernel_reads_itself(image):
    """Each start reads another part of one file, and all parts are predicted: right is one of all. That is seen when a
    start is left alone, the fourth and the twelfth; after two such verdicts nothing is read ahead any more."""
    content = blob(16 * PART)
    (image.stack.lower() / "parts").write_bytes(content)
    # The lower layers are read, to be compared in the end, before the first mount.
    image.stack.mount("prefetch=off")
    image.stack.umount()
    precision, judged = None, []
    for i in range(13):
        if i:
            image.expect_all()
        image.cool()
        root = image.stack.mount("io=passthrough", "prefetch=read", env=image.env)
        assert i == 0 or wait_until(lambda: image.counters()["PREDICTED BYTES"] > 0, LIMIT_S)
        off = (i + 1) * PART
        assert read_at(root / "parts", EXTENT, off) == content[off:off + EXTENT]
        fetched = image.counters()["PREFETCHED BYTES"]
        image.stack.umount()
        assert wait_until(lambda: image.starts() == i + 1, LIMIT_S)
        listed, = json.loads(image.profile("--json", "list").stdout)
        if listed["precision"] != precision:
            judged.append(i)
        precision = listed["precision"]
        if i in (3, 11, 12):
            assert fetched == 0
            # The front is looked at when a file is opened for the first time.
            assert image.cached("parts") - {0} == {off // EXTENT}
    assert judged == [3, 11, 12]
    assert precision < 0.25 and listed["is_trusted"] is False


def test_prefetch_off_touches_no_file(image):
    image.run(image.start("prefetch=off"))
    image.stack.umount()
    assert not image.state.exists()
    image.env = {"VENEER_STATE_DIR": ""}
    image.run(image.start())
    image.stack.umount()
    assert not image.state.exists()


@pytest.mark.parametrize("option", ["prefetch=some", "prefetch_window=0", "prefetch_window=x"])
def test_a_wrong_option_is_refused(image, option):
    with pytest.raises(Exception, match="invalid value for " + option.split("=")[0]):
        image.start(option)


# ---- the command ----

def test_what_was_learned_can_be_seen_moved_and_forgotten(image):
    image.learn()
    key = image.known()[0]["image"]
    assert key in image.profile("list").stdout
    shown = image.profile("show", key).stdout
    assert "lib/one" in shown and "lib/never" not in shown
    listed, = json.loads(image.profile("--json", "list").stdout)
    assert (listed["image"], listed["starts"], listed["precision"]) == (key, image.starts(), None)
    rows = json.loads(image.profile("--json", "show", key).stdout)
    assert len(rows) == len(shown.splitlines()) - 1 and {row["what"] for row in rows} == {"read"}
    assert {row["path"] for row in rows} == {line.split()[-1] for line in shown.splitlines()[1:]}
    assert all(0 < row["chance"] <= 1 and row["extent"] >= 0 for row in rows)
    text = image.profile("export", key).stdout
    assert image.profile("forget", key).returncode == 0
    assert not image.known()
    assert image.profile("forget", key).returncode == 1
    assert image.profile("import", input=text).returncode == 0
    assert image.profile("export", key).stdout == text
    image.cool()
    image.start()
    assert wait_until(lambda: extents()["lib/one"] <= image.cached("lib/one"), LIMIT_S)
    assert image.profile("forget", "--all").returncode == 0
    assert not image.known()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "veneer-profile", "version": 1, "images": [{}]}',
                                  '{"format": "veneer-profile", "version": 2, "images": []}'])
def test_nonsense_is_not_imported(image, text):
    image.learn()
    before = image.profile("export").stdout
    done = image.profile("import", input=text)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert image.profile("export").stdout == before


def test_without_a_profile_the_list_is_empty(image):
    done = image.profile("list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert image.profile("--json", "list").stdout == "[]\n"
    assert not image.state.exists()
    assert image.profile("show", "12").returncode == image.profile("--json", "show", "12").returncode == 1
    assert image.profile("--json", "export").returncode == 2
    assert image.profile("sing").returncode == 2


# ---- what may be wrong with the profile ----

def _profile(state):
    found, = state.glob("profile-*")
    return found


def _overwrite(state):
    _profile(state).write_bytes(blob(60_000, 1))


def _cut(state):
    with open(_profile(state), "r+b") as f:
        f.truncate(200)


def _change(state):
    with open(_profile(state), "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"\xff")


def _make_newer(state):
    with open(_profile(state), "r+b") as f:
        f.seek(4)
        f.write(b"\x63")


def _make_huge(state):
    with open(_profile(state), "r+b") as f:
        f.truncate(1 << 30)


def _make_directory(state):
    path = _profile(state)
    path.unlink()
    path.mkdir()


def _open_to_all(state):
    state.chmod(0o777)


def _replace_by_file(state):
    for path in state.iterdir():
        path.unlink()
    state.rmdir()
    state.write_bytes(b"")


_BAD = [_overwrite, _cut, _change, _make_newer, _make_huge, _make_directory, _open_to_all, _replace_by_file]


def check_without_learning(image):
    """The mount works, says one line, and is not held up."""
    root = image.start(WINDOW)
    image.run(root)
    with open(root / "lib/one", "r+b") as f:
        f.write(b"changed")
    assert wait_until(lambda: image.stack.log.count("nothing is learned") == 1 or is_shared(), LIMIT_S)
    image.stack.umount()
    assert image.stack.log.count("nothing is learned") <= 1


@pytest.mark.parametrize("spoil", _BAD, ids=lambda f: f.__name__.strip("_"))
def test_a_bad_profile_is_one_line(image, spoil):
    image.learn()
    spoil(image.state)
    check_without_learning(image)


def test_a_damaged_profile_hides_no_other(image):
    image.learn()
    exported = json.loads(image.profile("export").stdout)
    exported["images"][0]["image"] = "0000000000000001"
    damaged = _profile(image.state)
    assert image.profile("import", input=json.dumps(exported)).returncode == 0
    damaged.write_bytes(damaged.read_bytes()[:60])
    for arguments in (["list"], ["--json", "list"], ["export"]):
        done = image.profile(*arguments)
        assert done.returncode == 1 and f"{damaged.name}: it is damaged" in done.stderr
        assert "0000000000000001" in done.stdout and damaged.name[-16:] not in done.stdout
    assert image.profile("forget", damaged.name[-16:]).returncode == 0
    assert image.profile("list").returncode == 0


def test_a_locked_profile_is_one_line(image):
    image.learn()
    with open(image.state / "profile.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check_without_learning(image)


def test_the_database_of_earlier_versions_goes(image):
    image.state.mkdir(mode=0o700, parents=True)
    for name in ("profile.db", "profile.db-wal", "profile.db-shm", "mine"):
        (image.state / name).write_bytes(b"SQLite format 3")
    image.learn()
    assert {path.name for path in image.state.iterdir()} == {_profile(image.state).name, "profile.lock", "mine"}


def test_a_read_only_state_directory_is_one_line(image):
    image.learn()
    linux.mount(image.state, image.state, None, linux.MS_BIND)
    try:
        linux.mount("none", image.state, None, linux.MS_BIND | MS_REMOUNT | MS_RDONLY)
        check_without_learning(image)
    finally:
        linux.umount(image.state, linux.MNT_DETACH)


def test_a_full_file_system_is_one_line(image):
    image.state.mkdir(parents=True)
    linux.mount("tmpfs", image.state, "tmpfs", 0, "size=16k,mode=700")
    try:
        (image.state / "mine").write_bytes(bytes(16 * KIB))
        check_without_learning(image)
        assert not list(image.state.glob("profile.new*")) and not list(image.state.glob("profile-*"))
    finally:
        linux.umount(image.state, linux.MNT_DETACH)


def test_no_place_for_it_is_one_line(image):
    image.env = {"VENEER_STATE_DIR": "/dev/null/veneer"}
    check_without_learning(image)


def test_the_profile_may_be_deleted_at_any_time(image):
    image.learn()
    root = image.start(WINDOW)
    image.run(root)
    assert wait_until(lambda: image.starts() == 2, LIMIT_S)
    for path in image.state.iterdir():
        path.unlink(missing_ok=True)
    image.run(root)
    image.stack.umount()
    image.learn()
    assert image.starts() == 1


def test_a_state_directory_that_does_not_answer_holds_up_nobody(image, watchdog):
    """The state directory lies on a mount whose server is stopped."""
    stack = image.stack
    lower, upper, work, point = (stack._make(n) for n in ("slow-lower", "slow-upper", "slow-work", "slow"))
    slow = OwnMount(stack.program, [lower], upper, work, point, stack.base / "slow.log", watchdog)
    slow.start("prefetch=off")
    image.env = {"VENEER_STATE_DIR": str(point / "state")}
    slow.signal(signal.SIGSTOP)
    try:
        image.run(image.start())
        stack.umount()
    finally:
        slow.signal(signal.SIGCONT)
    assert wait_until(lambda: slow.stop() is None, LIMIT_S)


# ---- files that are written ----

def _start_that_writes(image, *options):
    """Into a fresh upper."""
    if image.stack.is_mounted:
        image.stack.umount()
    image.stack._fresh_upper()
    root = image.stack.mount("io=passthrough", *options, env=image.env)
    image.run(root, {"lib/two": [(0, 5)]})
    for number in range(4):
        write_at(root / "program", b"%d" % number, number * MIB)
    return root


@pytest.mark.needs_root("a user namespace may not register backing files")
@pytest.mark.unshared("files are passed through here")
@pytest.mark.writethrough("files are passed through here")
@pytest.mark.parametrize("mode,is_completed", [("full", True), ("read", False)])
def test_a_file_that_starts_write_is_completed_from_its_first_write_on(image, mode, is_completed):
    for number in range(2):
        _start_that_writes(image, "prefetch=read")
        image.stack.umount()
        assert wait_until(lambda: image.starts() == number + 1, LIMIT_S), image.stack.log
    root = _start_that_writes(image, f"prefetch={mode}")

    def is_plain():
        write_at(root / "program", b"again", 3 * MIB)
        return os.stat(image.stack.upper / "program").st_blocks * 512 >= 4 * MIB
    assert wait_until(is_plain, LIMIT_S if is_completed else 3, 0.05) == is_completed
    want = bytearray((image.stack.lower() / "program").read_bytes())
    for number in range(4):
        want[number * MIB] = ord("%d" % number)
    want[3 * MIB:3 * MIB + 5] = b"again"
    assert (root / "program").read_bytes() == want
    assert not (image.stack.upper / "lib" / "never").exists()


# ---- servers ----

def test_the_mounts_of_a_killed_server_go_on(image, shared):
    image.learn()
    mount = image.stack.mnt
    env = {**os.environ, **shared.environment, **image.env}
    options = f"lowerdir={image.stack.lower()},upperdir={image.stack.upper},workdir={image.stack.work},io=cached,prefetch=read"
    subprocess.run([image.stack.program, "-o", options, str(mount)], env=env, check=True, timeout=60)
    shared.kill_server()
    image.run(mount)
    linux.umount(mount)
    assert wait_until(lambda: shared.count() == 0, LIMIT_S)
    subprocess.run([image.stack.program, "-o", options, str(mount)], env=env, check=True, timeout=60)
    image.run(mount)
    linux.umount(mount)
    # The profile of the first of these two went with its server.
    assert wait_until(lambda: image.starts() == 2, LIMIT_S)
