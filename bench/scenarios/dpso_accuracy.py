# SPDX-License-Identifier: Apache-2.0
"""How much of what a start reads was expected."""

import os
import shutil

from support import drivers, host, learned, predictors, scenario, tables
from support.measures import AtLeast

RECALL, PRECISION, WASTED = "recall", "precision", "wasted"
FILES_RECALL, FILES_PRECISION = "recall, files", "precision, files"
AHEAD, LATE, START_UP = "read ahead in", "late", "start-up"
# Why something was not read ahead: parts of what a start reads.
MISSED = ("missed, no start read the file", "missed, no start read that part",
          "missed, not expected again")
# The first start that two others came before.
FROM = 2
OWN = "default"
# Extents: the most that a plan of veneer has.
N = (256 << 20) // learned.EXTENT


def row(image):
    return f"dpso/accuracy/{image}"


class Accuracy(scenario.Scenario):
    """DPSO: accuracy on three real images, each start another command

    The paper has one synthetic trace. Here three root directories are made of this machine's
    packages of Python, Perl and git, and each is started five times with five commands. Before the
    third to the fifth start the caches are dropped and the image is mounted and left alone: what
    is in the page cache then was read ahead. The same start into an empty profile, with nothing
    to read ahead, tells what it reads, in extents of 32 KiB. Recall is the part of that that was
    read ahead, precision the part of what was read ahead that was read, both in bytes and in files;
    wasted is the rest, and missed, as a part of what is read, by what the profile knew of it
    before. Then the start itself, from cold: its time, and of what was expected the part that the
    program had read before the reading ahead came to it, or that was still to be read when it ended
    (late). Read ahead in is how long that takes by itself, from the mount on. No constant of the
    predictor was chosen by these commands. veneer runs with io=cached, where it sees each read;
    files that the kernel reads itself are noted by what is cached of them.

    `latest` and `draw` are the paper's, which no mount has. They predict from what each start
    reads into an empty profile, with N = 8192 extents, the most that veneer's plan has. So they
    have no times."""

    name = "dpso/accuracy"
    question = "How much of what a start reads do earlier starts with other commands foretell?"
    drivers = tuple(predictors.NAMES)
    seconds = 4.0, 9.0
    quick_drivers = (OWN,)

    def has(self, cell, driver):
        # All three on all images take twice as long, which a run of all has no room for.
        return cell == "python" or driver == OWN

    def cells(self, quick):
        return ["python"] if quick else list(learned.IMAGES)

    def act(self, run, cell, driver):
        build, commands = learned.IMAGES[cell]
        lower = run.work.lower("host", cell, build)
        state = run.work.scratch("host")
        alone = state + "-alone"
        binary = drivers.veneer_binary()
        os.chmod(state, 0o700)
        if driver.name != OWN:
            self.foretell(run, cell, driver, lower, (binary, alone))
            return
        for i, command in enumerate(commands):
            expected = None
            if i >= FROM:
                expected = self.compare(run, cell, lower, (binary, state, alone), i)
            taken, fetched = self.start(run, lower, binary, state, command)
            if expected is not None:
                run.add(row(cell), START_UP, [taken], "s")
            if expected:
                run.add(row(cell), LATE, [max(0, 1 - fetched / expected)], "fraction")
        shutil.rmtree(state)

    @staticmethod
    def start(run, lower, binary, state, command):
        """Seconds that the program takes, and bytes that were read ahead of it."""
        host.drop_caches()
        with learned.Start(run.work, binary, lower, state, "io=cached", "prefetch=read") as view:
            return view.run_program(command), view.counter("PREFETCHED BYTES")

    def read_alone(self, run, cell, lower, places, i):
        """(file, extent) of each read of start i, in their order."""
        binary, alone = places
        self.start(run, lower, binary, alone, learned.IMAGES[cell][1][i])
        touched = learned.touched(binary, alone)
        if not touched:
            raise host.HostError("nothing was noted of a start")
        shutil.rmtree(alone)
        return touched

    def foretell(self, run, cell, driver, lower, places):
        """What a predictor that no mount has makes of the same starts."""
        starts, numbers = [], {}
        for i in range(len(learned.IMAGES[cell][1])):
            starts.append(self.read_alone(run, cell, lower, places, i))
            for touched in starts[-1]:
                numbers.setdefault(touched, len(numbers))
        things = list(numbers)
        trace = [[numbers[touched] for touched in start] for start in starts]
        for i, predicted in list(enumerate(driver.predict(trace, N)))[FROM:]:
            known = learned.by_file(touched for start in starts[:i] for touched in start)
            self.score(run, cell, lower, i, learned.by_file(starts[i]),
                       learned.by_file(things[k] for k in predicted), known)

    def compare(self, run, cell, lower, places, i):
        """Bytes that are expected of start i."""
        binary, state, alone = places
        known = learned.profile(binary, state)
        read = learned.by_file(self.read_alone(run, cell, lower, (binary, alone), i))
        host.drop_caches()
        with learned.Start(run.work, binary, lower, state, "io=cached", "prefetch=read"):
            ahead, taken = learned.fetched(lower)
        run.add(row(cell), AHEAD, [taken], "s")
        return self.score(run, cell, lower, i, read, ahead, known)

    def score(self, run, cell, lower, i, read, ahead, known):
        """Adds the figures of start i. Bytes that are expected of it."""
        both = learned.common(read, ahead)
        hits = learned.amount(lower, both)
        all_read, all_ahead = learned.amount(lower, read), learned.amount(lower, ahead)
        hit_files = sum(1 for some in both.values() if some)
        for metric, part, whole in ((RECALL, hits, all_read), (PRECISION, hits, all_ahead),
                                    (f"{RECALL}, start {i + 1}", hits, all_read),
                                    (f"{PRECISION}, start {i + 1}", hits, all_ahead),
                                    (FILES_RECALL, hit_files, len(read)),
                                    (FILES_PRECISION, hit_files, len(ahead))):
            run.add(row(cell), metric, [part / whole if whole else 0], "fraction")
        for metric, part in zip(MISSED, self.missed(read, ahead, known)):
            run.add(row(cell), metric, [learned.amount(lower, part) / all_read], "fraction")
        run.add(row(cell), WASTED, [all_ahead - hits], "bytes")
        return all_ahead

    @staticmethod
    def missed(read, ahead, known):
        """What was read and not read ahead, as MISSED has it."""
        left = learned.without(read, ahead)
        seen = learned.common(left, known)
        unknown = {name: some for name, some in left.items() if name not in known}
        parts = learned.without({name: some for name, some in left.items() if name in known}, seen)
        return unknown, parts, seen

    def measures(self):
        return [AtLeast(row(image), metric, OWN, limit) for image in learned.IMAGES
                for metric, limit in ((RECALL, 0.9), (PRECISION, 0.85))]

    def tables(self, seen):
        text = ""
        for image in learned.IMAGES:
            starts = range(FROM + 1, len(learned.IMAGES[image][1]) + 1)
            for title, metrics in (
                    (image, (RECALL, PRECISION, FILES_RECALL, FILES_PRECISION, WASTED)),
                    (f"{image}, by start", [f"{m}, start {n}" for n in starts
                                            for m in (RECALL, PRECISION)]),
                    (f"{image}, in time", (START_UP, LATE, AHEAD)),
                    (f"{image}, why not more", MISSED)):
                text += tables.table(seen, title, [(m, row(image), m) for m in metrics],
                                     ratios=False)
        return text
