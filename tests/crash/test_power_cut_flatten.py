# SPDX-License-Identifier: Apache-2.0
"""The power fails while `veneer flatten` works: the layer shows what it showed."""
import os
import time

from load import ThreadWorker, pictures_under
from machine import View
from recording import pattern
from scenario import BLOCK, LARGE, MIDDLE, on
from support import layers

_FILES, _DIRS = 30, 12


def _fill(machine):
    for number in range(_FILES):
        size = LARGE if number % 5 == 0 else MIDDLE
        (machine.lower / f"f{number}").write_bytes(pattern(0, size, number))
    for number in range(_DIRS):
        directory = machine.lower / f"d{number}"
        (directory / "sub").mkdir(parents=True)
        for name in ("one", "sub/two", "sub/gone"):
            (directory / name).write_bytes(pattern(0, MIDDLE, number))


def _change(union):
    for number in range(_FILES):
        with open(union / f"f{number}", "r+b") as f:
            f.seek(3 * BLOCK)
            f.write(pattern(3 * BLOCK, 5000, 100))
        if number % 4 == 1:
            (union / f"f{number}").rename(union / f"g{number}")
    for number in range(_DIRS):
        (union / f"d{number}").rename(union / f"e{number}")
        (union / f"e{number}" / "sub" / "gone").unlink()
        with open(union / f"e{number}" / "sub" / "two", "r+b") as f:
            f.write(b"changed")


@on("ext4", "xfs", "btrfs", pictures=8, many_pictures=30)
def test_a_layer_that_is_being_flattened_shows_the_same(machine, veneer_bin, pictures):
    _fill(machine)
    _change(machine.start())
    want = View(machine.mnt).contents()
    machine.stop()
    os.sync()
    took = []

    def flatten(is_stopped):
        start = time.monotonic()
        result = layers.flatten(veneer_bin, machine.upper, [machine.lower], "--quiet")
        took.append(time.monotonic() - start)
        assert (result.returncode, result.stderr) == (0, "")

    def look(view, picture):
        got = view.contents()
        for name in sorted(want.keys() | got.keys()):
            view.must(got.get(name) == want.get(name), f"{name}: not what it was")
    taken = pictures_under(machine, [ThreadWorker(flatten)], pictures, pause_s=0.06)
    print(f"flatten took {took[0]:.2f} s")
    machine.examine(taken, look)
