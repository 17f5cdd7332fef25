# SPDX-License-Identifier: Apache-2.0
"""An SQLite database that an image brings along, updated in a container."""

import os
import random
import sqlite3
import time

from support import host, plots, scenario, tables, trees
from support.measures import Faster

# (rows of about 1 KiB, transactions)
FULL, QUICK = (480_000, 400), (58_000, 100)
ROW = 960
SCENARIO = "real/sqlite"
FIRST, LATER, RATE = "open and first transaction", "later transactions", "all transactions"


def database(root):
    return os.path.join(root, "base.db")


def build(root, rows):
    rng = random.Random(5)
    db = sqlite3.connect(database(root))
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, seen INTEGER, data BLOB)")
    db.executemany("INSERT INTO t VALUES (?, 0, ?)",
                   ((i, rng.randbytes(ROW)) for i in range(rows)))
    db.commit()
    db.close()


def update(path, ids):
    """Microseconds of each transaction; the first begins with opening the database."""
    taken, start = [], time.perf_counter()
    db = sqlite3.connect(database(path), isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA journal_mode=DELETE")
    for i in ids:
        db.execute("UPDATE t SET seen = seen + 1 WHERE id = ?", (i,))
        now = time.perf_counter()
        taken.append((now - start) * 1e6)
        start = now
    db.close()
    return taken


def updates_seen(path):
    """(updates that the table knows of, what the integrity check says)"""
    db = sqlite3.connect(database(path))
    found = db.execute("SELECT sum(seen) FROM t").fetchone()[0]
    says = db.execute("PRAGMA integrity_check").fetchone()[0]
    db.close()
    return found, says


class Sqlite(scenario.Scenario):
    """SQLite updates of a database in a lower layer

    No paper has this. A database of 500 MB (the quick one 60 MB) in the lower; each transaction
    changes one random row, synchronous=FULL, rollback journal. Opening and
    the first one are told apart: a driver that copies does it there. Afterwards all updates are
    counted and the database passes PRAGMA integrity_check. In place the counts go on from round to round."""

    name = SCENARIO
    question = "How fast are updates of an SQLite database in a lower layer?"
    without = {"vfs": "it copies all before the first transaction",
               "overlayfs-metacopy": "as overlayfs where data is written",
               "overlayfs-xfs": "what it copies it shares, xu/backing",
               "veneer-cached": "a file that is written is served as by veneer",
               "veneer-rootless": "a file that is written is served as by veneer",
               "veneer-direct": "for programs that share one file, not for this",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 4.0, 0.7
    headline = [("first transaction in an SQLite file of 500 MB", SCENARIO, FIRST)]

    def cells(self, quick):
        return ["updates"]

    def act(self, run, cell, driver):
        rows, count = QUICK if run.quick else FULL
        first = run.work.lower("host", "sqlite", lambda root: build(root, rows))
        lower = first if driver.kind == "host" else run.lower(
            "sqlite", lambda root: host.run("cp", database(first), root))
        before, rng = trees.state(lower), run.rng()
        trees.warm(database(lower))
        ids = [rng.randrange(rows) for _ in range(count)]
        host.settle(run.work.root)
        with driver.open(run.work, lower) as view:
            start = view.bytes_taken()
            there = view.call(updates_seen, view.path)[0] if driver.in_place else 0
            taken = view.call(update, view.path, ids)
            host.sync_fs(run.work.volume(driver.kind))
            self.add(run, taken)
            if not driver.in_place:
                run.add(SCENARIO, "upper bytes", [view.bytes_taken() - start], "bytes")
            seen = view.call(updates_seen, view.path)
            if seen != (there + count, "ok"):
                raise host.HostError(f"DAMAGED: {seen}, {there + count} updates were made")
        trees.must_be(lower, before)

    @staticmethod
    def add(run, taken):
        run.add(SCENARIO, FIRST, taken[:1], "us")
        run.add(SCENARIO, LATER, taken[1:], "us", tail=True)
        run.add(SCENARIO, RATE, [len(taken) / sum(taken) * 1e6], "tps")

    def measures(self):
        return [Faster(SCENARIO, FIRST, "overlayfs", 10),
                Faster(SCENARIO, RATE, "overlayfs", 1),
                *[Faster(SCENARIO, metric, peer, 1) for metric in (FIRST, LATER, RATE)
                  for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]]

    def tables(self, seen):
        columns = [(m, SCENARIO, m) for m in (RATE, FIRST, LATER, "upper bytes")]
        return tables.table(seen, "One row a transaction", columns)

    def plots(self, seen):
        panels = [(m, SCENARIO, m) for m in (RATE, FIRST, LATER, "upper bytes")]
        return [("real-sqlite", lambda path: plots.bars(path, seen, panels))]
