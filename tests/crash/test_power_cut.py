# SPDX-License-Identifier: Apache-2.0
"""The power fails under load: every block is old or new, and what was synced is there."""
import os
import random
import time

import pytest

from load import ProcessWorker, ThreadWorker, pictures_under
from recording import RecordedFile, Recording, pattern

BLOCK = 4096
TAIL = 3500
LARGE = 2048 * BLOCK + TAIL
MIDDLE = 24 * BLOCK + TAIL
ALL = ("ext4", "xfs", "btrfs", "ext4_1k")


def on(*quick, many=ALL, pictures=2, many_pictures=16):
    """A few pictures on the kinds named; with the marker slow many, on all."""
    cases = [pytest.param(kind, pictures, id=kind) for kind in quick]
    cases += [pytest.param(kind, many_pictures, id=f"{kind}-many", marks=pytest.mark.slow)
              for kind in many]
    return pytest.mark.parametrize("kind, pictures", cases)


def make_lower(machine, name, size):
    """A lower file of version 0, and the recording of what will happen to it."""
    data = pattern(0, size, 0)
    (machine.lower / name).write_bytes(data)
    return Recording(data, machine.unit)


def settled(machine):
    """A picture when nothing is going on: what was not synced may well be missing."""
    picture = machine.cut()
    machine.stop()
    return [picture]


def random_writes(path, recording, blocks, fsync_share, version=1):
    """A worker body: bursts of block writes, each block's version its own count."""
    def work(is_stopped, recording=recording):
        dice, written = random.Random(), version
        size = len(recording.now)
        with RecordedFile(path, recording) as f:
            while not is_stopped():
                for _ in range(dice.randint(1, 60)):
                    off = dice.choice(blocks) * BLOCK
                    written += 1
                    f.write(off, pattern(off, min(BLOCK, size - off), written))
                if dice.random() < fsync_share:
                    f.fsync()
                time.sleep(0.002)
    return work


@on("ext4", "xfs", "btrfs", "ext4_1k", "ext4_nojournal", many=ALL + ("ext4_nojournal",))
def test_random_writes_with_fsync(machine, pictures):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start()
    worker = random_writes(union / "large", recording, range(2049), 0.3)
    taken = pictures_under(machine, [ThreadWorker(worker)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture))


@on("ext4", "xfs", "btrfs", pictures=3)
def test_random_writes_never_synced(machine, pictures):
    """A block being written by the kernel is allocated before its data is there."""
    recording = make_lower(machine, "large", LARGE)
    union = machine.start()
    worker = random_writes(union / "large", recording, range(2049), 0)
    with RecordedFile(union / "large", recording) as f:
        f.write(0, pattern(0, BLOCK, 1))
        f.fsync()
        taken = pictures_under(machine, [ThreadWorker(worker)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture))


@on("ext4", "xfs")
def test_random_writes_by_several_processes(machine, pictures):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start()
    workers = [ProcessWorker(random_writes(union / "large", None, range(i, 2049, 3), 0.3),
                             recording) for i in range(3)]
    taken = pictures_under(machine, workers, pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture))


@on("ext4", "btrfs")
def test_random_writes_with_whole_file_copies(machine, pictures):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start("cow=copy")
    worker = random_writes(union / "large", recording, range(2049), 0.3)
    taken = pictures_under(machine, [ThreadWorker(worker)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture),
                    "cow=copy")


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_synced_write_to_the_last_partial_block_is_there(machine, pictures):
    """Also without an earlier fsync, and with the file grown by it."""
    names = ("first", "second", "grown", "unsynced")
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    union = machine.start()
    files = {name: RecordedFile(union / name, recordings[name]) for name in names}
    files["second"].write(BLOCK, pattern(BLOCK, BLOCK, 1))
    files["second"].fsync()
    for name in names:
        off = MIDDLE - 1 if name == "grown" else 24 * BLOCK + 10
        files[name].write(off, pattern(off, 100, 2))
    files["grown"].write(30 * BLOCK, pattern(30 * BLOCK, 10, 3))
    for name in ("first", "second", "grown"):
        files[name].fsync()
    taken = [machine.cut()]
    for f in files.values():
        f.close()
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs")
def test_writes_to_the_last_partial_block_under_load(machine, pictures):
    recordings = {f"f{i}": make_lower(machine, f"f{i}", MIDDLE) for i in range(8)}
    union = machine.start()

    def work(is_stopped):
        version = 0
        files = [RecordedFile(union / name, r) for name, r in recordings.items()]
        while not is_stopped():
            version += 1
            f = random.choice(files)
            off = 24 * BLOCK + random.randrange(TAIL - 100)
            f.write(off, pattern(off, 100, version))
            if random.random() < 0.3:
                f.fsync()
            if random.random() < 0.05 and len(f.recording.now) < 2 * MIDDLE:
                f.write(len(f.recording.now), pattern(len(f.recording.now), 1000, version))
        for f in files:
            f.close()
    taken = pictures_under(machine, [ThreadWorker(work)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


SMALL_SIZES = (1, 100, BLOCK, 8000, 16384)


def change_small(union, recordings, name, deed):
    path = union / name
    if deed.startswith("chmod"):
        os.chmod(path, 0o600)
    with RecordedFile(path, recordings[name]) as f:
        if "write" in deed:
            f.write(0, pattern(0, 1, 7))
        if "append" in deed:
            size = len(f.recording.now)
            f.write(size, pattern(size, 5000, 7))
        if "fsync" in deed:
            f.fsync()


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_small_file_is_old_or_new(machine, pictures):
    deeds = [deed + end for deed in ("chmod", "write", "append", "chmod+write", "chmod+append")
             for end in ("", "+fsync")]
    work = {f"{deed}-{size}": deed for deed in deeds for size in SMALL_SIZES}
    recordings = {name: make_lower(machine, name, int(name.rpartition("-")[2])) for name in work}
    union = machine.start()

    def change_all(is_stopped):
        for name, deed in random.sample(sorted(work.items()), len(work)):
            change_small(union, recordings, name, deed)
            time.sleep(0.003)
    taken = pictures_under(machine, [ThreadWorker(change_all)], pictures, 0.15)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs")
def test_small_file_changed_by_chmod_keeps_its_bytes(machine, pictures):
    """The change itself came to nothing, and yet the file's directory entry may be on disk."""
    recording = make_lower(machine, "conf", 8000)
    union = machine.start()
    os.chmod(union / "conf", 0o600)
    commit_journal(machine)
    machine.examine(settled(machine),
                    lambda view, picture: view.must_fit({"conf": recording}, picture))


def commit_journal(machine):
    fd = os.open(machine.disk.path / "stranger", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"1")
    os.fsync(fd)
    os.close(fd)


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_truncated_and_extended_file(machine, pictures):
    recordings = {f"f{i}": make_lower(machine, f"f{i}", MIDDLE) for i in range(12)}
    union = machine.start()

    def work(is_stopped):
        version = 0
        files = [RecordedFile(union / name, r) for name, r in recordings.items()]
        while not is_stopped():
            version += 1
            f = random.choice(files)
            for step in random.sample(("cut", "extend", "write", "fsync"), 4):
                size = len(f.recording.now)
                if step == "cut":
                    f.truncate(random.randrange(size + 1))
                elif step == "extend":
                    f.truncate(size + random.randrange(1 + max(2 * MIDDLE - size, 0)))
                elif step == "write" and size:
                    off = random.randrange(size)
                    f.write(off, pattern(off, min(6000, size - off), version))
                elif random.random() < 0.5:
                    f.fsync()
        for f in files:
            f.close()
    taken = pictures_under(machine, [ThreadWorker(work)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs")
def test_bytes_cut_off_and_synced_do_not_come_back(machine, pictures):
    recordings = {name: make_lower(machine, name, MIDDLE) for name in ("cut", "own", "extended")}
    union = machine.start()
    for name, recording in recordings.items():
        with RecordedFile(union / name, recording) as f:
            if name == "own":
                f.write(0, pattern(0, MIDDLE, 1))
                f.fsync()
            f.truncate(3 * BLOCK + 100)
            if name == "extended":
                f.fsync()
            f.truncate(MIDDLE)
            f.fsync()
    machine.examine(settled(machine),
                    lambda view, picture: view.must_fit(recordings, picture))


HOLE = (4 * BLOCK, 6 * BLOCK)
CROOKED_HOLE = (12 * BLOCK - 200, 3 * BLOCK + 700)


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_synced_hole_stays(machine, pictures):
    """Whether dug in blocks of the lower or own ones, and whatever is written beside it later."""
    recordings = {f"{how}-{of}": make_lower(machine, f"{how}-{of}", MIDDLE)
                  for how in ("punch", "zero_range") for of in ("lower", "own", "own-synced")}
    union = machine.start()
    for name, recording in recordings.items():
        with RecordedFile(union / name, recording) as f:
            dig = f.punch if name.startswith("punch") else f.zero_range
            if "own" in name:
                f.write(0, pattern(0, 20 * BLOCK, 1))
            if name.endswith("synced"):
                f.fsync()
            dig(*HOLE)
            dig(*CROOKED_HOLE)
            f.fsync()
            f.write(BLOCK, pattern(BLOCK, BLOCK, 2))
    commit_journal(machine)
    machine.examine(settled(machine),
                    lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_holes_dug_under_load(machine, pictures):
    recordings = {f"f{i}": make_lower(machine, f"f{i}", MIDDLE) for i in range(10)}
    union = machine.start()

    def work(is_stopped):
        version = 0
        files = [RecordedFile(union / name, r) for name, r in recordings.items()]
        while not is_stopped():
            version += 1
            f = random.choice(files)
            for _ in range(random.randint(1, 4)):
                off = random.randrange(MIDDLE - 1)
                length = min(random.choice((100, BLOCK, 5 * BLOCK)), MIDDLE - off)
                deed = random.choice(("write", "punch", "zero_range"))
                if deed == "write":
                    f.write(off, pattern(off, length, version))
                else:
                    getattr(f, deed)(off, length)
            if random.random() < 0.4:
                f.fsync()
        for f in files:
            f.close()
    taken = pictures_under(machine, [ThreadWorker(work)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs")
def test_renamed_partial_file_is_not_lost(machine, pictures):
    """One name too many is allowed until the directories were synced, one too few never."""
    names = [f"f{i}" for i in range(60)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    (machine.lower / "sub").mkdir()
    union = machine.start()
    moved = {}

    def work(is_stopped):
        for number, name in enumerate(names):
            with RecordedFile(union / name, recordings[name]) as f:
                if number % 3:
                    f.write(BLOCK, pattern(BLOCK, BLOCK, 1))
                if number % 3 == 2:
                    f.fsync()
                (union / name).rename(union / "sub" / name)
                if number % 2:
                    f.fsync()
                    sync_directory(union / "sub")
                    sync_directory(union)
                    moved[name] = time.monotonic()
                f.write(5 * BLOCK, pattern(5 * BLOCK, BLOCK, 2))
            time.sleep(0.002)

    def look(view, picture):
        for name, recording in recordings.items():
            at_old, at_new = view.read(name) is not None, view.read(f"sub/{name}") is not None
            must_be_moved = moved.get(name, picture.start) < picture.start
            view.must(at_old or at_new, f"{name}: at neither name")
            view.must(not must_be_moved or at_new and not at_old, f"{name}: synced rename undone")
            view.must_fit({name: recording, f"sub/{name}": recording}, picture, True)
    machine.examine(pictures_under(machine, [ThreadWorker(work)], pictures), look)


@on("ext4", "xfs", "btrfs")
def test_hard_links_of_partial_files(machine, pictures):
    names = [f"f{i}" for i in range(40)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    union = machine.start()
    linked = {}

    def work(is_stopped):
        for number, name in enumerate(names):
            with RecordedFile(union / name, recordings[name]) as f:
                if number % 3:
                    f.write(BLOCK, pattern(BLOCK, BLOCK, 1))
                os.link(union / name, union / f"{name}-link")
            with RecordedFile(union / f"{name}-link", recordings[name]) as f:
                f.write(2 * BLOCK, pattern(2 * BLOCK, BLOCK, 2))
                if number % 2:
                    f.fsync()
                    sync_directory(union)
                    linked[name] = time.monotonic()
            time.sleep(0.002)

    def look(view, picture):
        view.must_fit(recordings, picture)
        for name, recording in recordings.items():
            link = f"{name}-link"
            view.must_fit({link: recording}, picture, linked.get(name, picture.start) >= picture.start)
            if (view.path / link).exists():
                view.must((view.path / link).samefile(view.path / name), f"{name}: two files")
    machine.examine(pictures_under(machine, [ThreadWorker(work)], pictures), look)


@on("ext4", "xfs", "btrfs")
def test_first_writes_of_many_files(machine, pictures):
    names = [f"d{i % 10}/f{i}" for i in range(300)]
    for i in range(10):
        (machine.lower / f"d{i}").mkdir()
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    union = machine.start()

    def work(is_stopped):
        for number, name in enumerate(random.sample(names, len(names))):
            with RecordedFile(union / name, recordings[name]) as f:
                off = random.randrange(MIDDLE - 1)
                f.write(off, pattern(off, min(5000, MIDDLE - off), 1))
                if number % 10 == 0:
                    f.fsync()
            time.sleep(0.001)
    taken = pictures_under(machine, [ThreadWorker(work)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs")
def test_unlinked_files_are_whole_or_gone(machine, pictures):
    names = [f"f{i}" for i in range(80)]
    recordings = {name: make_lower(machine, name, MIDDLE if i % 4 else 3000)
                  for i, name in enumerate(names)}
    union = machine.start()
    gone, started = {}, {}

    def work(is_stopped):
        for number, name in enumerate(names):
            if number % 3:
                with RecordedFile(union / name, recordings[name]) as f:
                    f.write(1000, pattern(1000, 1500, 1))
                    if number % 3 == 2:
                        f.fsync()
            started[name] = time.monotonic()
            (union / name).unlink()
            if number % 5 == 0:
                sync_directory(union)
                gone[name] = time.monotonic()
            time.sleep(0.002)

    def look(view, picture):
        for name, recording in recordings.items():
            may_be_gone = started.get(name, picture.end) < picture.end
            must_be_gone = gone.get(name, picture.start) < picture.start
            view.must(not must_be_gone or view.read(name) is None, f"{name}: synced unlink undone")
            view.must_fit({name: recording}, picture, may_be_gone)
    machine.examine(pictures_under(machine, [ThreadWorker(work)], pictures), look)


@on("ext4", "xfs", "btrfs")
def test_file_replaced_by_rename_is_one_or_the_other(machine, pictures):
    """The way editors and package managers write: temporary file, fsync, rename over the old."""
    recordings = {f"f{i}": make_lower(machine, f"f{i}", MIDDLE) for i in range(10)}
    union = machine.start()
    versions = {name: [(float("-inf"), float("-inf"), 0)] for name in recordings}

    def work(is_stopped):
        version = 0
        while not is_stopped():
            version += 1
            name = random.choice(list(recordings))
            with open(union / "temp", "wb") as f:
                f.write(pattern(0, MIDDLE, version))
                f.flush()
                os.fsync(f.fileno())
            start = time.monotonic()
            (union / "temp").rename(union / name)
            if version % 2:
                sync_directory(union)
            end = time.monotonic() if version % 2 else float("inf")
            versions[name].append((start, end, version))

    def look(view, picture):
        for name, history in versions.items():
            floor = max(i for i, (_, end, _) in enumerate(history) if end < picture.start)
            allowed = [v for start, _, v in history[floor:] if start < picture.end]
            got = view.read(name)
            view.must(got in [pattern(0, MIDDLE, v) for v in allowed],
                      f"{name}: {len(got or b'')} bytes, none of versions {allowed}")
    machine.examine(pictures_under(machine, [ThreadWorker(work)], pictures), look)


@on("ext4", many=("ext4",))
def test_volatile_upper_is_refused_in_the_next_boot(machine, pictures):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start("volatile")
    with RecordedFile(union / "large", recording) as f:
        f.write(0, pattern(0, BLOCK, 1))
    os.sync()
    for options in (("volatile",), ()):
        said = machine.mount_refused(machine.cut(), *options)
        assert said and len(said.strip().splitlines()) == 1, said


@on("ext4", "xfs", "btrfs")
def test_power_cut_after_a_clean_unmount(machine, pictures):
    """What says "clean" must not reach the disk before what it speaks of."""
    names = [f"f{i}" for i in range(20)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    union = machine.start()
    for number, name in enumerate(names):
        with RecordedFile(union / name, recordings[name]) as f:
            off = random.randrange(MIDDLE - 1)
            f.write(off, pattern(off, min(20000, MIDDLE - off), 1))
            if number % 4 == 0:
                f.punch(BLOCK, 3 * BLOCK)
            if number % 2:
                f.fsync()
    machine.stop()
    taken = [machine.cut()]
    commit_journal(machine)
    taken.append(machine.cut())
    start = time.monotonic()
    os.sync()
    for recording in recordings.values():
        recording.synced(start, time.monotonic())
    taken.append(machine.cut())
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs")
def test_second_power_cut_after_recovery(machine, pictures):
    """What the first recovery found, the second finds too, and what was synced between them."""
    recording = make_lower(machine, "large", LARGE)
    machine.start()
    for version in (1, 1000000):
        union = machine.mnt
        if version > 1:
            machine.reborn(taken[-1])
            machine.start()
            base = (union / "large").read_bytes()
            assert not recording.violations(base, taken[-1])
            recording = Recording(base, machine.unit)
        worker = random_writes(union / "large", recording, range(2049), 0.3, version)
        taken = pictures_under(machine, [ThreadWorker(worker)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture))
