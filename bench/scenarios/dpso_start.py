# SPDX-License-Identifier: Apache-2.0
"""Starts from a slow device, learned and not, and what learning costs."""

import os
import shutil
import time

from support import drivers, host, learned, scenario, slowdev, tables, trees
from support.measures import Below, FlatIn

DELAY_S = 0.004
METRIC = "start"
OFF, LEARNED, NOTED, KNOWN = "off", "learned", "noted", "known"
REPEATS = 5
# What is noted one by one, and the microseconds that the paper takes for each.
FILES, FILE_BYTES, FILE = (1, 10, 100, 1000), 16 * trees.KIB, "a file"
PAPER_US = 10_000
FAST = ", no delay"


def row(group, image, how):
    return f"dpso/{group}/{image}/{how}"


def mode(driver):
    return "io=cached" if driver.name.endswith("cached") else "io=auto"


class Start(scenario.Scenario):
    """DPSO: a cold start from a device that takes 4 ms more a read, learned and not

    An ext4 on a loop device over a file that a small FUSE server of ours shows, which sleeps so
    long before it answers. An image is started twice with other commands, then, from the mount to the
    end of the program, with dropped caches: `off` by `prefetch=off`, `learned` with
    `prefetch=read`; and the same two without the delay, where there is less to be won."""

    name = "dpso/start"
    question = "How much faster is a cold start from a slow device once it has been learned?"
    drivers = ("veneer", "veneer-cached")
    quick_drivers = ("veneer-cached",)
    seconds = 1.7, 4.0

    def __init__(self):
        self.work, self.slow = None, None

    def cells(self, quick):
        return ["python"] if quick else list(learned.IMAGES)

    def volume(self, run):
        if run.work is not self.work:
            self.work, self.slow = run.work, slowdev.SlowVolume(run.work)
        return self.slow

    def act(self, run, cell, driver):
        build, commands = learned.IMAGES[cell]
        slow, state = self.volume(run), run.work.scratch("host")
        lower = slow.work.lower("host", cell, build)
        binary, io = drivers.veneer_binary(), mode(driver)
        os.chmod(state, 0o700)
        for command in commands[:2]:
            host.drop_caches()
            with learned.Start(slow.work, binary, lower, state, io, "prefetch=read") as view:
                view.run_program(command)
        for name, delay in ((cell, DELAY_S), (cell + FAST, 0)):
            for how, option in ((OFF, "prefetch=off"), (LEARNED, "prefetch=read")):
                host.drop_caches()
                slow.set_delay(delay)
                try:
                    with learned.Start(slow.work, binary, lower, state, io, option) as view:
                        taken = view.run_program(commands[2])
                finally:
                    slow.set_delay(0)
                run.add(row("start", name, how), METRIC, [taken], "s")
        shutil.rmtree(state)

    def measures(self):
        return [FlatIn(row("start", image + end, LEARNED), row("start", image + end, OFF), METRIC,
                       limit)
                for image in learned.IMAGES for end, limit in (("", 1 / 1.5), (FAST, 1.02))]

    def tables(self, seen):
        return tables.table(seen, "From the mount to the end of the program",
                            [(f"{image}{end}, {how}", row("start", image + end, how), METRIC)
                             for image in learned.IMAGES for end in ("", FAST)
                             for how in (OFF, LEARNED)], ratios=False)


def build_files(root):
    for i in range(FILES[-1]):
        trees.write_file(f"{root}/f{i:04}", FILE_BYTES)


def read_files(root, count):
    """Seconds."""
    start = time.perf_counter()
    for i in range(count):
        trees.warm(f"{root}/f{i:04}")
    return time.perf_counter() - start


class Recording(scenario.Scenario):
    """DPSO: what it costs to note what a start reads

    The paper's recording takes some 10 ms an event, for 1 to 1000 files. Here a program starts in a
    warm image, by turns with `prefetch=off`, with a profile that is empty, so that all is noted and
    nothing read ahead, and with what that start has noted (known), all of which is cached: the time
    of the program, and the median of five. In the same way 1 to 1000 warm files of 16 KiB are read
    for the first time in a mount, without the third: microseconds a file."""

    name = "dpso/recording"
    question = "What does it cost to note what a start reads?"
    drivers = ("veneer", "veneer-cached")
    quick_drivers = ("veneer-cached",)
    seconds = 1.7, 4.0

    def cells(self, quick):
        return ["python"] if quick else ["python", *FILES]

    def read_some(self, run, count, driver):
        lower = run.work.lower("host", "noted", build_files)
        binary, io = drivers.veneer_binary(), mode(driver)
        read_files(lower, count)
        for _ in range(REPEATS):
            for how, option in ((OFF, "prefetch=off"), (NOTED, "prefetch=read")):
                state = run.work.scratch("host")
                os.chmod(state, 0o700)
                with learned.Start(run.work, binary, lower, state, io, option) as view:
                    taken = view.call(read_files, view.path, count)
                shutil.rmtree(state)
                run.add(row("recording", f"{count} files", how), FILE, [taken / count * 1e6],
                        "us")

    def act(self, run, cell, driver):
        if cell in FILES:
            self.read_some(run, cell, driver)
            return
        build, commands = learned.IMAGES[cell]
        lower = run.work.lower("host", cell, build)
        binary, io = drivers.veneer_binary(), mode(driver)
        for _ in range(REPEATS):
            state = run.work.scratch("host")
            os.chmod(state, 0o700)
            for how, option in ((OFF, "prefetch=off"), (NOTED, "prefetch=read"),
                                (KNOWN, "prefetch=read")):
                with learned.Start(run.work, binary, lower, state, io, option) as view:
                    taken = view.run_program(commands[1])
                run.add(row("recording", cell, how), METRIC, [taken], "s")
            shutil.rmtree(state)

    def measures(self):
        return [*[FlatIn(row("recording", "python", how), row("recording", "python", OFF), METRIC,
                         limit) for how, limit in ((NOTED, 1.01), (KNOWN, 1.02))],
                *[Below(row("recording", f"{n} files", NOTED), FILE, PAPER_US) for n in FILES]]

    def tables(self, seen):
        text = tables.table(seen, "A warm start", [(how, row("recording", "python", how), METRIC)
                                                   for how in (OFF, NOTED, KNOWN)], ratios=False)
        return text + tables.table(seen, "A file read for the first time in a mount, of so many",
                                   [(f"{n}, {how}", row("recording", f"{n} files", how), FILE)
                                    for n in FILES for how in (OFF, NOTED)], ratios=False)
