# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine: a server of its own with mounts in use, that tests must leave alone.

Its run directory is the default one, which a test's mount program takes when the test forgot to name another. It notices what
joins its server, ends it, takes a mount away or makes a call of its program fail.
"""
import json
import os
import pathlib
import subprocess
import sys

from support.waiting import wait_until

_TESTS = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("one", "two", "three")
_PACE_S = 1  # each turn syncs, which the machine's other writers wait for, too
CONTENT = b"of a lower layer\n" * 4096


def use(mount, turns):
    """Reads and writes there, again and again, and notes each turn; a call that fails ends it."""
    small, turn = os.path.join(mount, "small"), 0
    while True:
        turn += 1
        with open(os.path.join(mount, "lower"), "rb") as f:
            assert f.read() == CONTENT, "the layer's file is another"
        with open(os.path.join(mount, "copied"), "r+b") as f:
            f.seek(turn % 16 * 4096)
            f.write(b"%d\n" % turn)
            f.flush()
            os.fsync(f.fileno())
        with open(small, "w", encoding="ascii") as f:
            f.write(str(turn))
        os.rename(small, small + ".kept")
        with open(small + ".kept", encoding="ascii") as f:
            assert f.read() == str(turn), "what was written is not there"
        os.unlink(small + ".kept")
        os.utime(turns, (turn, turn))
        wait_until(lambda: False, _PACE_S, _PACE_S)


class Bystander:
    """`environment` says whose run directory it takes; `options` are for all its mounts."""

    def __init__(self, program, base, environment, options=()):
        self.program, self.base = str(program), pathlib.Path(base)
        self.environment = dict(environment, VENEER_CGROUP="")
        self.options, self.users, self.first = options, {}, None
        self.log = self.base / "log"

    def _run(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], env=self.environment, check=True, text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout

    def start(self):
        with open(self.log, "wb") as log:
            self.server = subprocess.Popen([self.program, "server", "--idle", "86400"], env=self.environment, stdout=log,
                                           stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        assert wait_until(self._answers), self.log.read_text()
        for name in NAMES:
            self._mount(self.base / name)
        self.first = self._state()
        assert self.first["mounts"] == len(NAMES), f"the run directory is another's: {self.first}"

    def _answers(self):
        return subprocess.run([self.program, "stats"], env=self.environment, capture_output=True).returncode == 0

    def _mount(self, place):
        for part in ("lower", "upper", "work", "merged"):
            (place / part).mkdir(parents=True)
        for name in ("lower", "copied"):
            (place / "lower" / name).write_bytes(CONTENT)
        self._run("-o", ",".join([*(f"{part}dir={place / part}" for part in ("lower", "upper", "work")), *self.options]),
                  place / "merged")
        (place / "turns").touch()
        with open(place / "said", "wb") as said:
            self.users[place] = subprocess.Popen([sys.executable, "-m", "support.bystander", place / "merged", place / "turns"],
                                                 cwd=_TESTS, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True)

    def _state(self):
        """Of its server: the process, its mounts, and how many it was ever asked for."""
        server = json.loads(self._run("stats", "--json"))["server"]
        asked = sum(count for name, count in server["sharing"].items() if name.startswith("mounts_"))
        return {"pid": server["pid"], "mounts": server["mounts"], "mounts ever": asked}

    def problems(self):
        """What became of it that it did not do itself."""
        found = []
        try:
            if (now := self._state()) != self.first:
                found.append(f"its server was {self.first} and is {now}")
        except subprocess.CalledProcessError as e:
            found.append(f"its server does not answer: {e}")
        for place, user in self.users.items():
            turns = place / "turns"
            last = turns.stat().st_mtime_ns
            if not wait_until(lambda: turns.stat().st_mtime_ns != last or user.poll() is not None) or user.poll() is not None:
                found.append(f"the program in {place} stands or ended: {(place / 'said').read_text()}")
            if not os.path.ismount(place / "merged"):
                found.append(f"{place / 'merged'} is no mount any more")
        return [*found, self.log.read_text()] if found else []

    def stop(self):
        for place, user in self.users.items():
            user.kill()
            user.wait()
            subprocess.run([self.program, "umount", place / "merged"], env=self.environment, capture_output=True)
        self.server.terminate()
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


if __name__ == "__main__":
    use(*sys.argv[1:])
