# SPDX-License-Identifier: Apache-2.0
"""The power fails under load: every block is old or new, and what was synced is there."""
import contextlib
import itertools
import os
import random
import time

import pytest

from load import ProcessWorker, ThreadWorker, pictures_between, pictures_under
from recording import RecordedFile, Recording, pattern
from scenario import ALL, BLOCK, LARGE, MIDDLE, TAIL, commit_journal, make_lower, on, settled
from support import linux


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


_KEEPS = "io=cached", "writeback=on"


@on("ext4", "xfs", "btrfs", "ext4_1k")
@pytest.mark.parametrize("options", [(), _KEEPS], ids=["sent", "kept"])
def test_random_writes_with_fsync(machine, pictures, options):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start(*options)
    worker = random_writes(union / "large", recording, range(2049), 0.3)
    taken = pictures_under(machine, [ThreadWorker(worker)], pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture), *options)


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
@pytest.mark.parametrize("options", [(), _KEEPS], ids=["sent", "kept"])
def test_random_writes_by_several_processes(machine, pictures, options):
    recording = make_lower(machine, "large", LARGE)
    union = machine.start(*options)
    workers = [ProcessWorker(random_writes(union / "large", None, range(i, 2049, 3), 0.3),
                             recording) for i in range(3)]
    taken = pictures_under(machine, workers, pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture), *options)


@on("ext4_nojournal", "ext4_1k", many=("ext4_nojournal",) + ALL)
def test_what_was_synced_is_there_at_once(machine, pictures):
    """This holds without a journal too. There, a later write may destroy bytes that were synced
    before (disk.Kind), so each picture is taken before that."""
    recording = make_lower(machine, "large", LARGE)
    union = machine.start()
    version = itertools.count(1)
    with RecordedFile(union / "large", recording) as f:
        def change():
            for _ in range(random.randint(1, 300)):
                off = random.randrange(2049) * BLOCK
                f.write(off, pattern(off, min(BLOCK, LARGE - off), next(version)))
            f.fsync()
        taken = pictures_between(machine, change, pictures)
    machine.examine(taken, lambda view, picture: view.must_fit({"large": recording}, picture))


def first_writes(machine, names, recordings, pictures, options=()):
    """Pictures, each after the synced first write to the next file."""
    union = machine.start(*options)
    left = iter(names)

    def change():
        name = next(left)
        with RecordedFile(union / name, recordings[name]) as f:
            f.write(BLOCK, pattern(BLOCK, 5000, 1))
            machine.disk.forget_unused_names()
            f.fsync()
    return pictures_between(machine, change, pictures)


@on("ext4", "ext4_nojournal", many=("ext4", "ext4_1k", "xfs", "ext4_nojournal"))
@pytest.mark.parametrize("options", [(), ("cow=copy",), _KEEPS], ids=["blocks", "copies", "kept"])
def test_synced_first_write_keeps_its_name(machine, pictures, options):
    """And the directories that the copy-up made for it, whatever the kernel still knows of their names."""
    names = [f"d{i}/sub/f" for i in range(pictures)]
    for name in names:
        (machine.lower / name).parent.mkdir(parents=True)
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    taken = first_writes(machine, names, recordings, pictures, options)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture), *options)


@on("ext4", "ext4_nojournal", many=("ext4", "ext4_1k", "xfs", "ext4_nojournal"))
@pytest.mark.parametrize("options", [(), ("cow=copy",)], ids=["blocks", "copies"])
def test_synced_first_write_keeps_all_names(machine, pictures, options):
    names = [f"d{i}/sub/f" for i in range(pictures)]
    others = {name: name.replace("sub/f", "other/link") for name in names}
    for name in names + list(others.values()):
        (machine.lower / name).parent.mkdir(parents=True)
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    for name, other in others.items():
        os.link(machine.lower / name, machine.lower / other)
    taken = first_writes(machine, names, recordings, pictures, options)

    def look(view, picture):
        for name, recording in recordings.items():
            view.must_fit({name: recording, others[name]: recording}, picture)
            view.must((view.path / name).samefile(view.path / others[name]), f"{name}: two files")
    machine.examine(taken, look, *options)


@on("ext4", "btrfs", "ext4_nojournal", many=ALL + ("ext4_nojournal",))
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


@on("ext4", "xfs", "btrfs", "ext4_1k")
@pytest.mark.parametrize("options", [(), _KEEPS], ids=["sent", "kept"])
def test_truncated_and_extended_file(machine, pictures, options):
    recordings = {f"f{i}": make_lower(machine, f"f{i}", MIDDLE) for i in range(12)}
    union = machine.start(*options)

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
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture), *options)


@on("ext4", "xfs", "btrfs")
@pytest.mark.parametrize("options", [(), _KEEPS], ids=["sent", "kept"])
def test_bytes_cut_off_and_synced_do_not_come_back(machine, pictures, options):
    recordings = {name: make_lower(machine, name, MIDDLE) for name in ("cut", "own", "extended")}
    union = machine.start(*options)
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
                    lambda view, picture: view.must_fit(recordings, picture), *options)


HOLE = (4 * BLOCK, 6 * BLOCK)
CROOKED_HOLE = (12 * BLOCK - 200, 3 * BLOCK + 700)


def _cut_and(grow):
    def dig(f):
        f.truncate(HOLE[0] + 5000)
        grow(f)
    return dig


_HOLES = {"punch": lambda f: f.punch(*HOLE), "zero_range": lambda f: f.zero_range(*HOLE),
          "cut": _cut_and(lambda f: f.truncate(MIDDLE)),
          "cut-write": _cut_and(lambda f: f.write(20 * BLOCK, pattern(20 * BLOCK, BLOCK, 2))),
          "cut-allocate": _cut_and(lambda f: f.allocate(12 * BLOCK, 4 * BLOCK))}


@on("ext4", "xfs", "btrfs", "ext4_1k")
@pytest.mark.parametrize("options", [(), _KEEPS], ids=["sent", "kept"])
def test_synced_hole_stays(machine, pictures, options):
    """Whether dug in blocks of the lower or own ones, and whatever is written beside it later."""
    recordings = {f"{how}-{of}": make_lower(machine, f"{how}-{of}", MIDDLE)
                  for how in ("punch", "zero_range") for of in ("lower", "own", "own-synced")}
    union = machine.start(*options)
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
                    lambda view, picture: view.must_fit(recordings, picture), *options)


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_a_hole_nobody_synced_does_not_uncover_the_lower(machine, pictures):
    """The write was synced, and the extents told so. Without them, as somebody else has the hole on disk before us, the map
    must tell it."""
    recordings = {how: make_lower(machine, how, MIDDLE) for how in _HOLES}
    union = machine.start()
    with contextlib.ExitStack() as files:
        for how, recording in recordings.items():
            f = files.enter_context(RecordedFile(union / how, recording))
            f.write(0, pattern(0, 20 * BLOCK, 1))
            f.fsync()
            _HOLES[how](f)
        commit_journal(machine)
        taken = machine.cut()
    machine.examine([taken],
                    lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_nor_does_an_emptied_file_that_the_kernel_writes_itself(machine, pictures):
    """An emptied file needs nothing of the lower, so it may be passed through: but not before the map's record of that is safe."""
    recordings = {name: make_lower(machine, name, MIDDLE) for name in ("by-name", "by-open")}
    union = machine.start()
    with contextlib.ExitStack() as files:
        for name, recording in recordings.items():
            with RecordedFile(union / name, recording) as f:
                f.write(0, pattern(0, 20 * BLOCK, 1))
                f.fsync()
                if name == "by-name":
                    f.truncate(0)
            if name == "by-open":
                start = time.monotonic()
                os.close(os.open(union / name, os.O_WRONLY | os.O_TRUNC))
                recording.now[:] = b""
                recording.cut(0, MIDDLE)
                recording.changed(start, time.monotonic(), 0, MIDDLE)
                recording.resized(start, time.monotonic())
            f = files.enter_context(RecordedFile(union / name, recording))
            f.write(20 * BLOCK, pattern(20 * BLOCK, BLOCK, 2))
            with open(machine.upper / name, "rb") as raw:
                linux.sync_file_range(raw.fileno(), 0, 0)
        commit_journal(machine)
        taken = machine.cut()
    machine.examine([taken], lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", many=("ext4", "xfs"))
def test_nor_if_it_was_sync_that_had_the_write_on_disk(machine, pictures):
    """Of which a mount hears nothing (btrfs, and blocks of 1 KiB: doc/internals/map.md)."""
    recordings = {how: make_lower(machine, how, MIDDLE) for how in _HOLES}
    union = machine.start()
    with contextlib.ExitStack() as files:
        opened = {how: files.enter_context(RecordedFile(union / how, recording)) for how, recording in recordings.items()}
        for f in opened.values():
            f.write(0, pattern(0, 20 * BLOCK, 1))
        start = time.monotonic()
        linux.syncfs(machine.disk.path)
        end = time.monotonic()
        for how, f in opened.items():
            f.recording.synced_below(start, end)
            _HOLES[how](f)
        commit_journal(machine)
        taken = machine.cut()
    machine.examine([taken],
                    lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_a_synced_hole_stays_whoever_else_has_synced_the_map(machine, pictures):
    """Of a hole only the map tells, and a hole in another file has that on disk in between: not yet with
    the commit of ours."""
    recordings = {name: make_lower(machine, name, MIDDLE) for name in ("punch", "zero_range", "other")}
    union = machine.start()
    files = {name: RecordedFile(union / name, recording) for name, recording in recordings.items()}
    files["punch"].punch(*HOLE)
    files["zero_range"].zero_range(*HOLE)
    files["other"].write(0, pattern(0, 20 * BLOCK, 1))
    files["other"].punch(*HOLE)
    files["punch"].fsync()
    taken = [machine.cut()]
    files["zero_range"].fsync()
    taken.append(machine.cut())
    for f in files.values():
        f.close()
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture))


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


@on("ext4", "xfs", "btrfs", "ext4_1k")
def test_what_one_power_cut_has_cut_off_no_second_one_brings_back(machine, pictures):
    """The first left the file short, and the map did not hear of it; the second finds it long again."""
    recordings = {how: make_lower(machine, how, MIDDLE) for how in ("longer", "write", "fallocate")}
    union = machine.start()
    for name in recordings:
        os.truncate(union / name, 5 * BLOCK + 100)
    commit_journal(machine)
    machine.reborn(machine.cut())
    machine.start()
    recordings = {name: Recording((union / name).read_bytes(), machine.unit) for name in recordings}
    files = {name: RecordedFile(union / name, recording) for name, recording in recordings.items()}
    files["longer"].truncate(MIDDLE)
    files["write"].write(20 * BLOCK, pattern(20 * BLOCK, 100, 1))
    files["fallocate"].allocate(0, MIDDLE)
    commit_journal(machine)
    taken = machine.cut()
    for f in files.values():
        f.close()
    machine.examine([taken], lambda view, picture: view.must_fit(recordings, picture))


@on("ext4", "xfs", many=("ext4", "ext4_1k", "xfs"))
def test_volatile_upper_mounts_for_who_removes_the_mark(machine, pictures):
    """Also when names and marks were on disk by somebody else's sync, and nothing of ours."""
    names = [f"f{i}" for i in range(pictures)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    union, taken = machine.start("volatile"), []
    for name in names:
        with RecordedFile(union / name, recordings[name]) as f:
            f.write(BLOCK, pattern(BLOCK, 5000, 1))
            f.fsync()
        recordings[name].forget_syncs()
        commit_journal(machine)
        taken.append(machine.cut())
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture),
                    prepare=machine.forget_volatile)


@on("ext4", "xfs", "btrfs")
def test_power_cut_after_a_clean_unmount(machine, pictures):
    """A record that says "clean" must not reach the disk before the data it speaks of."""
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
    """The second recovery finds all that the first one found, and all that was synced between them."""
    recording = make_lower(machine, "large", LARGE)
    taken = []
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
