# SPDX-License-Identifier: Apache-2.0
"""Databases and a disk image that an image brings along, each worked on for a while."""

import os
import random
import shutil
import sqlite3
import time

from scenarios import real_pgbench, real_sqlite
from support import fio, host, mariadb, scenario, tables, trees
from support.measures import AtMost

NAME = "real/databases"
POSTGRES, MARIADB, ROCKSDB, DISK = "PostgreSQL", "MariaDB", "RocksDB", "VM image"
JOURNAL, WAL = "SQLite, journal", "SQLite, WAL"
KINDS = POSTGRES, JOURNAL, WAL, MARIADB, ROCKSDB, DISK
RATE, UPPER = "rate", "upper bytes"
CLIENTS = 2
# (seconds, pgbench's scale, rows of SQLite and of MariaDB, keys of RocksDB and keys put, bytes of the disk)
FULL = (5, 60, 480_000, 2_000_000, 4_000_000, 400_000, 1024 * trees.MIB)
QUICK = (1, 4, 58_000, 50_000, 100_000, 20_000, 64 * trees.MIB)
VALUE = "v" * 200
LOAD = 'exec <"$1" ldb --db="$0" --create_if_missing load'


def row(kind):
    return f"{NAME}/{kind}"


def sqlite_rate(path, mode, seconds, rows, seed):
    """Transactions a second, each of which changes one row."""
    rng, count = random.Random(seed), 0
    db = sqlite3.connect(real_sqlite.database(path), isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    db.execute(f"PRAGMA journal_mode={mode}")
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        db.execute("UPDATE t SET seen = seen + 1 WHERE id = ?", (rng.randrange(rows),))
        count += 1
    taken = time.perf_counter() - start
    db.close()
    found, says = real_sqlite.updates_seen(path)
    if (found, says) != (count, "ok"):
        raise host.HostError(f"DAMAGED: {found} updates, {says}; {count} were made")
    return count / taken


def put_keys(view, where, keys, seed):
    """Put them into the database of the view: keys a second."""
    rng = random.Random(seed)
    text = os.path.join(where, "keys")
    with open(text, "w", encoding="ascii") as f:
        f.writelines(f"key{rng.randrange(10 * keys):012} ==> {VALUE}\n" for _ in range(keys))
    start = time.perf_counter()
    view.run("sh", "-c", LOAD, os.path.join(view.path, "rocks"), text)
    return keys / (time.perf_counter() - start)


class Databases(scenario.Scenario):
    """Databases and a disk image in a lower layer

    No paper has this; doc/howto/databases.md has its table. Five seconds of work (one in a quick
    run) on what an image brought along: pgbench on a cluster of 1 GB; SQLite, one row a
    transaction, on 500 MB, with either journal; sysbench's mixed load on a MariaDB table of 500 MB;
    400,000 keys put into a RocksDB of 1 GB, without sync; and 4 KiB read and written at random in a
    disk image of 1 GB, opened with O_DIRECT as a virtual machine does. Buffers of 64 MB, two
    clients, everything else synced as these programs do by default."""

    name = NAME
    question = "How do four databases run on data in a lower layer?"
    drivers = ("overlayfs", "fuse-overlayfs", "veneer", "veneer-cached", "veneer-writeback")
    quick_drivers = "overlayfs", "veneer"
    seconds = 12.0, 3.0

    def cells(self, quick):
        return [POSTGRES, WAL, DISK] if quick else list(KINDS)

    def act(self, run, cell, driver):
        seconds, scale, rows, table, keys, puts, size = QUICK if run.quick else FULL
        act = {POSTGRES: lambda: self.postgres(run, scale, seconds),
               JOURNAL: lambda: self.sqlite(run, "DELETE", rows, seconds),
               WAL: lambda: self.sqlite(run, "WAL", rows, seconds),
               MARIADB: lambda: self.mariadb(run, table, seconds),
               ROCKSDB: lambda: self.rocksdb(run, keys, puts),
               DISK: lambda: self.disk(run, size, seconds)}[cell]
        rate, upper = act()
        unit = "op/s" if cell in (ROCKSDB, DISK) else "tps"
        run.add(row(cell), RATE, [rate], unit)
        run.add(row(cell), UPPER, [upper], "bytes")

    @staticmethod
    def measured(run, lower, work):
        """(what work(view) gives, what the upper took)"""
        before = trees.state(lower)
        host.settle(run.work.root)
        with run.driver.open(run.work, lower) as view:
            taken = view.bytes_taken()
            rate = work(view)
            host.sync_fs(run.work.volume(run.driver.kind))
            upper = view.bytes_taken() - taken
        trees.must_be(lower, before)
        return rate, upper

    def postgres(self, run, scale, seconds):
        lower = real_pgbench.Pgbench().lower(run, scale)
        where = real_pgbench.sockets(run.work)

        def work(view):
            with real_pgbench.Server(view.path, where, view.argv) as server:
                count, taken = server.transactions("-T", str(seconds))
                return count / taken
        seen = self.measured(run, lower, work)
        shutil.rmtree(where)
        return seen

    def sqlite(self, run, mode, rows, seconds):
        lower = run.lower("sqlite", lambda root: real_sqlite.build(root, rows))
        trees.warm(real_sqlite.database(lower))
        return self.measured(run, lower,
                             lambda view: view.call(sqlite_rate, view.path, mode, seconds, rows, run.round))

    def mariadb(self, run, rows, seconds):
        lower = run.lower("mariadb", lambda root: mariadb.build(run.work, root, rows))
        where = mariadb.sockets(run.work)

        def work(view):
            with mariadb.Server(view.path, where, view.argv) as server:
                return server.rate(rows, CLIENTS, seconds)
        seen = self.measured(run, lower, work)
        shutil.rmtree(where)
        return seen

    def rocksdb(self, run, keys, puts):
        lower = run.lower("rocksdb", lambda root: self.build_rocksdb(run, root, keys))
        where = run.work.scratch("host")
        seen = self.measured(run, lower, lambda view: put_keys(view, where, puts, run.round + 1))
        shutil.rmtree(where)
        return seen

    @staticmethod
    def build_rocksdb(run, root, keys):
        where = run.work.scratch("host")
        text = os.path.join(where, "keys")
        with open(text, "w", encoding="ascii") as f:
            f.writelines(f"key{k * 10:012} ==> {VALUE}\n" for k in range(keys))
        host.run("sh", "-c", LOAD + " --bulk_load", os.path.join(root, "rocks"), text)
        shutil.rmtree(where)

    def disk(self, run, size, seconds):
        lower = run.lower("disk", lambda root: trees.write_file(os.path.join(root, "disk"), size))

        def work(view):
            job = fio.Job("disk", "randrw", 4 * trees.KIB, 1, CLIENTS, os.path.join(view.path, "disk"), True, size)
            rates, _ = fio.run_watched(view, job, seconds + 1)
            return sum(rates) / len(rates)
        return self.measured(run, lower, work)

    def measures(self):
        return [AtMost(row(kind), RATE, peer, 1, close=True, must=False)
                for kind in KINDS for peer in ("overlayfs", "fuse-overlayfs")]

    def tables(self, seen):
        return (tables.table(seen, "Work done a second", [(kind, row(kind), RATE) for kind in KINDS]) +
                tables.table(seen, "Bytes of the upper", [(kind, row(kind), UPPER) for kind in KINDS]))
