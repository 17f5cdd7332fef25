# SPDX-License-Identifier: Apache-2.0
"""The statistics that a server prints after SIGUSR1."""
import re
import signal

from .server import wait_until


def counters(server):
    """Name to number."""
    start = len(server.log)
    server.signal(signal.SIGUSR1)
    found = {}

    def is_whole():
        found.update((name, int(value)) for name, value in
                     re.findall(r"^(?:\w+: )?# ([A-Z0-9_ -]+): (\d+)$", server.log[start:], re.MULTILINE))
        kinds = sum(value for name, value in found.items() if name.startswith("REQUESTS "))
        return found.get("REQUESTS") == kinds
    assert wait_until(is_whole), server.log[start:]
    return found


class Gained:
    """with Gained(server) as g: ...; g["REQUESTS READ"] is how many came meanwhile."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.before = counters(self.server)
        return self

    def __exit__(self, *exc):
        self.after = counters(self.server)

    def __getitem__(self, name):
        return self.after.get(name, 0) - self.before.get(name, 0)
