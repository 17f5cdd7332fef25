# SPDX-License-Identifier: Apache-2.0
"""Many mounts of one server, some of which are worked in at any time; others go, and come again."""
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

_WORKER = pathlib.Path(__file__).with_name("worker.py")
_PATIENCE_S = 180       # for what takes a second on a machine with nothing else to do


def _run(*command, env=None):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=_PATIENCE_S)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


class Berth:
    """The place of one mount: its directories, and the model of what is in them."""

    def __init__(self, fleet, number):
        self.fleet, self.base = fleet, fleet.base / f"c{number}"
        self.mnt, self.upper, self.work = (self.base / name for name in ("mnt", "upper", "work"))
        self.model = self.base / "model"
        self.process, self.deadline = None, 0

    def mount(self):
        for path in (self.mnt, self.upper, self.work):
            path.mkdir(parents=True, exist_ok=True)
        option = self.fleet.dice.choice(("", ",io=cached", "", ",io=direct"))
        _run(self.fleet.program, "-o", f"lowerdir={self.fleet.lower},upperdir={self.upper},workdir={self.work}{option}",
             self.mnt, env=self.fleet.server.environment)

    def umount(self):
        _run("umount", self.mnt)

    def discard(self):
        shutil.rmtree(self.base)

    def begin(self, seconds):
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(_WORKER), str(self.mnt), str(self.fleet.lower), str(self.model),
             str(self.fleet.dice.randrange(1 << 30)), str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.deadline = time.monotonic() + seconds + _PATIENCE_S

    def ended(self):
        """Steps of a shift that is over, else None."""
        if self.process.poll() is None:
            assert time.monotonic() < self.deadline, f"{self.mnt}: a worker hangs\n{self._where()}"
            return None
        text, code = self.process.stdout.read().decode(errors="replace"), self.process.returncode
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
        assert code == 0, f"{self.mnt}: {code}: {text}"
        return int(text)

    def _where(self):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.process.pid}/stack").read_text(encoding="ascii")
        return ""

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Fleet:
    def __init__(self, program, base, lower, server, size, seed):
        self.program, self.base, self.lower, self.server = program, base, lower, server
        self.dice, self.steps, self.shifts, self.mounts_made = random.Random(seed), 0, 0, 0
        self._serial = 0
        self.berths = []
        for _ in range(size):
            self.berths.append(self._new())

    def _new(self):
        self._serial += 1
        berth = Berth(self, self._serial)
        berth.mount()
        self.mounts_made += 1
        return berth

    def _turn_over(self, berth):
        """The end of a mount whose shift is over."""
        fate = self.dice.random()
        if fate < 0.25:
            berth.umount()
            berth.mount()
            self.mounts_made += 1
        elif fate < 0.4:
            berth.umount()
            berth.discard()
            self.berths[self.berths.index(berth)] = self._new()

    def _collect(self, busy):
        for berth in list(busy):
            steps = berth.ended()
            if steps is not None:
                busy.remove(berth)
                self.steps += steps
                self.shifts += 1
                yield berth

    def sail(self, seconds, n_busy, shift_s):
        """So many are worked in for so long, in shifts; then all is quiet."""
        end, busy = time.monotonic() + seconds, []
        try:
            while time.monotonic() < end or busy:
                while time.monotonic() < end and len(busy) < n_busy:
                    berth = self.dice.choice([b for b in self.berths if b not in busy])
                    berth.begin(shift_s * self.dice.uniform(0.5, 1.5))
                    busy.append(berth)
                for berth in self._collect(busy):
                    if time.monotonic() < end:
                        self._turn_over(berth)
                time.sleep(0.05)
        finally:
            for berth in busy:
                berth.kill()

    def verify(self, n_busy):
        """Each of them, once more, without a change."""
        waiting, busy = [berth for berth in self.berths if berth.model.exists()], []
        try:
            while waiting or busy:
                while waiting and len(busy) < n_busy:
                    busy.append(waiting.pop())
                    busy[-1].begin(0)
                for _ in self._collect(busy):
                    pass
                time.sleep(0.05)
        finally:
            for berth in busy:
                berth.kill()
