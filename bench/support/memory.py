# SPDX-License-Identifier: Apache-2.0
"""Memory in use."""

from . import trees


def cached():
    """Bytes of page cache, shared memory included."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f
                   if line.startswith(("Cached:", "Buffers:"))) * trees.KIB


def own_memory(pids):
    """Bytes that the processes have for themselves."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                total += sum(int(line.split()[1]) for line in f
                             if line.startswith("RssAnon:")) * trees.KIB
        except FileNotFoundError:
            pass
    return total
