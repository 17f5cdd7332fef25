# SPDX-License-Identifier: Apache-2.0
"""The power fails while files get, change and lose their names: none loses its bytes by it."""
import os
import random
import time

import pytest

from load import ThreadWorker, pictures_under
from recording import RecordedFile, pattern
from scenario import BLOCK, MIDDLE, make_lower, on, settled, sync_directory
from support import linux


@on("ext4", "xfs", "btrfs")
def test_renamed_partial_file_is_not_lost(machine, pictures):
    """One name too many, as the lower has it, is allowed until the directories were synced; one too
    few never."""
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
            view.must_fit({f"sub/{name}": recording}, picture, True)
            if not at_new or view.read(name) != pattern(0, MIDDLE, 0):
                view.must_fit({name: recording}, picture, at_new)
    machine.examine(pictures_under(machine, [ThreadWorker(work)], pictures), look)


def _change(union, way, recording):
    if way == "chmod":
        return (union / "f").chmod(0o600)
    with RecordedFile(union / "f", recording) as f:
        if way == "cut":
            f.truncate(2 * BLOCK)
        else:
            f.write(1000, pattern(1000, 500, 1))
    if way == "moved":
        (union / "f").rename(union / "g")
    return None


@pytest.mark.parametrize("option", [None, "cow=copy"])
@pytest.mark.parametrize("way", ["written", "small", "chmod", "cut", "moved", "linked"])
@on("ext4", "xfs", "btrfs")
def test_directory_that_a_stranger_syncs(machine, pictures, way, option):
    """btrfs then logs of each new file in it that it is there, with size 0 unless it was logged before,
    and an empty file hides all that the lower has."""
    recording = make_lower(machine, "f", 3000 if way == "small" else MIDDLE)
    if way == "linked":
        os.link(machine.lower / "f", machine.lower / "f-too")
    make_lower(machine, "first", MIDDLE)
    options = [option] if option else []
    union = machine.start(*options)
    # A map that is new makes btrfs commit all.
    (union / "first").chmod(0o600)
    linux.syncfs(machine.disk.path)
    _change(union, way, recording)
    sync_directory(machine.upper)
    taken = settled(machine)
    names = {"moved": ["f", "g"], "linked": ["f", "f-too"]}.get(way, ["f"])

    def look(view, picture):
        view.must(any(view.read(name) is not None for name in names), "at no name")
        for name in names:
            view.must_fit({name: recording}, picture, way == "moved")
    machine.examine(taken, look, *options)


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
            may_be_missing = linked.get(name, picture.start) >= picture.start
            view.must_fit({link: recording}, picture, may_be_missing)
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
