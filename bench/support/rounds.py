# SPDX-License-Identifier: Apache-2.0
"""The order of a run: in each round every cell meets every driver, and the driver that goes
first moves on by one each time, so drift of the machine falls on all alike."""

from . import host


def schedule(rounds, cells, drivers):
    """Yield (round, cell, driver)."""
    turn = 0
    for i in range(rounds):
        for cell in cells:
            at = turn % len(drivers)
            for driver in drivers[at:] + drivers[:at]:
                yield i, cell, driver
            turn += 1


def play(rounds, cells, drivers, act):
    """act(round, cell, driver) for all; a driver that fails in a cell is left out of that cell
    from then on, with one line. Returns those lines."""
    broken, lines, last = set(), [], None
    for i, cell, driver in schedule(rounds, cells, drivers):
        if (cell, driver.name) in broken:
            continue
        if (i, cell) != last:
            last = (i, cell)
            host.note(f"round {i + 1}/{rounds}  {cell}")
        try:
            act(i, cell, driver)
        except (OSError, host.HostError) as e:
            broken.add((cell, driver.name))
            lines.append(f"{driver.name} failed in {cell}: {e}")
            host.note(lines[-1])
    return lines
