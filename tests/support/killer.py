# SPDX-License-Identifier: Apache-2.0
"""Kills a server at random moments, as often as it comes back."""
import random
import threading

from .shared import child_of, kill


class Killer:
    """Kills what serves of a SharedServer every so many seconds on average, in a thread; none with 0."""

    def __init__(self, shared, seconds):
        self._shared, self._seconds = shared, seconds
        self.kills = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if seconds:
            self._thread.start()

    def _run(self):
        while not self._stop.wait(self._seconds * random.uniform(0.1, 1.9)):
            process = self._shared.process
            pid = child_of(process.pid) if process and process.poll() is None else None
            if pid:
                kill(pid)
                self.kills += 1

    def close(self):
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
