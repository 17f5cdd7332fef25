# SPDX-License-Identifier: Apache-2.0
"""How much of what a start reads was expected."""

import os
import shutil

from support import drivers, host, learned, predictors, scenario, tables
from support.measures import AtLeast

RECALL, PRECISION, WASTED = "recall", "precision", "wasted"
# The first start that two others came before.
FROM = 2


def row(image):
    return f"dpso/accuracy/{image}"


class Accuracy(scenario.Scenario):
    """DPSO: accuracy on three real images, each start another command

    The paper has one synthetic trace. Here three root directories are made of this machine's
    packages of Python, Perl and git, and each is started five times with five commands. Before the
    third to the fifth start the caches are dropped and the image is mounted and left alone: what
    is in the page cache then was read ahead. The same start into an empty profile, with nothing
    to read ahead, tells what it reads, in extents of 32 KiB. Recall is the part of that that was
    read ahead, precision the part of what was read ahead that was read, both in bytes; wasted is
    the rest. No constant of the predictor was chosen by these commands. veneer runs with
    io=cached, where it sees each read; files that the kernel reads itself are noted by what is
    cached of them."""

    name = "dpso/accuracy"
    drivers = tuple(predictors.NAMES)
    seconds = 8.0, 9.0
    quick_drivers = ("default",)

    def has(self, cell, driver):
        return cell == "python" or driver == "default"

    def cells(self, quick):
        return ["python"] if quick else list(learned.IMAGES)

    def act(self, run, cell, driver):
        build, commands = learned.IMAGES[cell]
        lower = run.work.lower("host", cell, build)
        state = run.work.scratch("host")
        alone = state + "-alone"
        binary = drivers.veneer_binary()
        os.chmod(state, 0o700)
        for i, command in enumerate(commands):
            if i >= FROM:
                self.compare(run, cell, driver, lower, (binary, state, alone), command)
            self.start(run, lower, binary, state, command, f"predictor={driver.name}")
        shutil.rmtree(state)

    @staticmethod
    def start(run, lower, binary, state, command, *options):
        host.drop_caches()
        with learned.Start(run.work, binary, lower, state, "io=cached", "prefetch=read",
                           *options) as view:
            view.run_program(command)

    def compare(self, run, cell, driver, lower, places, command):
        binary, state, alone = places
        self.start(run, lower, binary, alone, command)
        read = learned.profile(binary, alone)
        shutil.rmtree(alone)
        host.drop_caches()
        with learned.Start(run.work, binary, lower, state, "io=cached", "prefetch=read",
                           f"predictor={driver.name}"):
            ahead = learned.fetched(lower)
        hits = learned.amount(lower, learned.common(read, ahead))
        all_read, all_ahead = learned.amount(lower, read), learned.amount(lower, ahead)
        run.add(row(cell), RECALL, [hits / all_read], "fraction")
        run.add(row(cell), PRECISION, [hits / all_ahead if all_ahead else 0], "fraction")
        run.add(row(cell), WASTED, [all_ahead - hits], "bytes")

    def measures(self):
        return [AtLeast(row(image), metric, "default", limit) for image in learned.IMAGES
                for metric, limit in ((RECALL, 0.9), (PRECISION, 0.85))]

    def tables(self, seen):
        return "".join(tables.table(seen, image, [(m, row(image), m) for m in
                                                  (RECALL, PRECISION, WASTED)], ratios=False)
                       for image in learned.IMAGES)
