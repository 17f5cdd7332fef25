# SPDX-License-Identifier: Apache-2.0
"""The power fails while partial files are completed under their writers: every block is old or
new, and what was synced is there."""
import os
import random

from load import ThreadWorker, pictures_under
from recording import RecordedFile, pattern
from scenario import BLOCK, MIDDLE, make_lower, on
from support.server import wait_until

_FILES = 250
_CHUNKS = 3 * 512 * 1024 + 5000
_MARK = "user.veneer.partial"


def _is_plain(path):
    return path.exists() and _MARK not in os.listxattr(path)


def _change_most(machine, names, recordings):
    """Of one file after the other most blocks are written, so that each leaves the map while the
    next is changed; then once more, when it is an ordinary file or about to become one."""
    def work(is_stopped):
        dice, version = random.Random(), 1
        while not is_stopped():
            for name in names:
                if is_stopped():
                    return
                version += 1
                size = len(recordings[name].now)
                blocks = [k for k in range((size + BLOCK - 1) // BLOCK) if dice.random() < 0.8]
                dice.shuffle(blocks)
                with RecordedFile(machine.mnt / name, recordings[name]) as f:
                    for k in blocks:
                        off = k * BLOCK
                        f.write(off, pattern(off, min(BLOCK, size - off), version))
                    if dice.random() < 0.2:
                        f.fsync()
    return ThreadWorker(work)


@on("ext4", "xfs")
def test_files_that_are_completed_meanwhile(machine, pictures):
    names = [f"f{number}" for number in range(_FILES)]
    recordings = {name: make_lower(machine, name, MIDDLE) for name in names}
    recordings["large"] = make_lower(machine, "large", _CHUNKS)
    union = machine.start("promote=eager")
    workers = [_change_most(machine, some, recordings) for some in (names, ["large"])]
    taken = pictures_under(machine, workers, pictures, pause_s=0.25)
    assert union == machine.mnt
    assert wait_until(lambda: any(_is_plain(machine.upper / name) for name in names), 60, 0.02)
    machine.examine(taken, lambda view, picture: view.must_fit(recordings, picture),
                    "promote=eager")
