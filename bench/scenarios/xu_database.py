# SPDX-License-Identifier: Apache-2.0
"""A database in several containers, and under limits."""

import os
import random
import string
from collections import namedtuple

from support import cgroup, host, plots, postgres, scenario, stats, tables, trees
from support.measures import AtMost

ROWS = 100000, 20000
# YCSB's skew is 0.99; pgbench takes what is above 1.
SKEW = 1.01
CLIENTS = 4
SECONDS = 1
TPS, TAIL = "throughput", "p99"
READ = "\\set id random_zipfian(1, :rows, :skew)\nSELECT field FROM usertable WHERE id = :id;\n"
UPDATE = ("\\set id random_zipfian(1, :rows, :skew)\n\\set n random(0, 9)\n"
          "UPDATE usertable SET field = overlay(field placing :n::text from 1 + 100 * :n) "
          "WHERE id = :id;\n")
LATEST = ("\\set back random_zipfian(1, :rows, :skew)\n"
          "SELECT field FROM usertable WHERE id = (SELECT last_value FROM key) + 1 - :back;\n")
INSERT = "INSERT INTO usertable VALUES (nextval('key'), repeat('x', 1000));\n"
# YCSB's letters: (script, per cent).
MIXES = {"A": ((READ, 50), (UPDATE, 50)), "D": ((LATEST, 95), (INSERT, 5))}

# For all containers of a cell together, with the servers of the union.
LIMITS = {
    "CPU": {"cpus": 1}, "MEM": {"memory": 224 * trees.MIB}, "BW": {"rate": 32 * trees.MIB},
}
LIMITED = 2


class Cell(namedtuple("Cell", "count limit")):
    """So many containers under one of the limits, or under none."""

    @property
    def row(self):
        return f"xu/database/{self.limit or self.count}"

    @property
    def mixes(self):
        return ("A",) if self.limit else tuple(MIXES)

    @property
    def title(self):
        plural = "s" if self.count > 1 else ""
        return f"{self.count} container{plural}" + (f", limit {self.limit}" if self.limit else "")

    def __str__(self):
        return self.title


def cells(quick):
    if quick:
        return [Cell(2, None)]
    return [Cell(n, None) for n in (1, 2, 8)] + [Cell(LIMITED, limit) for limit in LIMITS]


def statements(rows):
    # Text that does not compress: YCSB's rows are ten fields of 100 random bytes.
    rng = random.Random(7)
    text = "".join(rng.choice(string.ascii_letters) for _ in range(1000))
    return ["CREATE TABLE usertable (id int PRIMARY KEY, field text NOT NULL)",
            "ALTER TABLE usertable ALTER field SET STORAGE PLAIN",
            f"INSERT INTO usertable SELECT i, '{text}' FROM generate_series(1, {rows}) i",
            f"CREATE SEQUENCE key START {rows + 1}", "SELECT nextval('key')",
            "VACUUM (FREEZE, ANALYZE) usertable", "CHECKPOINT"]


def write_scripts(folder, mix):
    """[(path, weight)]"""
    out = []
    for i, (text, weight) in enumerate(MIXES[mix]):
        path = os.path.join(folder, f"{mix}-{i}.sql")
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        out.append((path, weight))
    return out


class Database(scenario.Scenario):
    """Xu et al., a database in 1 to 8 containers, and under limits

    The paper runs Cassandra with YCSB A (half reads, half updates, by a skewed choice) and D
    (95 % reads of what is newest, 5 % inserts) in 1 to 8 containers, then under limits of
    processor, memory and disk bandwidth. Here it is PostgreSQL with fsync on, its cluster of
    100,000 rows of 1 KB being part of the image: every container is a view of the same lower tree
    and runs a server of its own with 16 MB of buffers, and pgbench drives all at once, 4 clients
    each, a second a mix, from the moment the container is up. What has to be copied up first is
    in the numbers, as it is in a container's life.

    The limits hold for two containers together: one processor (CPU), 224 MiB (MEM), or 32 MiB a
    second of reads and as many of writes (BW). The processes that serve a union are
    inside the limits with the databases, or they would be work nobody pays for. Caches are empty
    at the start of each."""

    name = "xu/database"
    question = "How fast are databases in 1 to 8 containers, and under limits?"
    drivers = ("native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
    headline = (("YCSB A on PostgreSQL, 8 containers", "xu/database/8", "A " + TPS),)
    quick_drivers = "overlayfs", "veneer", "fuse-overlayfs-2"
    seconds = 3.5, 2.6

    def cells(self, quick):
        return cells(quick)

    def has(self, cell, driver):
        # The second version stands for both under a limit; several whole copies would test cp.
        if cell.limit:
            return driver in ("overlayfs", "veneer", "fuse-overlayfs-2")
        return driver != "native" or cell.count == 1

    def act(self, run, cell, driver):
        rows = ROWS[run.quick]
        lower = run.lower("database", lambda root: postgres.make_cluster(root, statements(rows)))
        before = trees.state(lower)
        device = run.work.device(driver.kind)
        with (cgroup.Limits(device, **LIMITS.get(cell.limit, {})) as limits,
              driver.apart(run.work) as group, postgres.Sockets() as at):
            views = [group.add(run.work, lower) for _ in range(cell.count)]
            if cell.limit:
                host.drop_caches()
            for pid in group.servers() if cell.limit else ():
                limits.take(pid)
            self.serve(run, cell, views, limits, at)
            limits.release()
        trees.must_be(lower, before)

    def serve(self, run, cell, views, limits, at):
        servers = [postgres.Server(at, i, os.path.join(v.path, "data"), v, limits.prefix())
                   for i, v in enumerate(views)]
        try:
            postgres.start_all(servers)
            for mix in cell.mixes:
                self.load(run, cell, servers, mix, at)
        finally:
            for s in servers:
                s.stop()

    def load(self, run, cell, servers, mix, at):
        scripts = write_scripts(at.path, mix)
        variables = {"rows": ROWS[run.quick], "skew": SKEW}
        running = [s.bench(mix, scripts, CLIENTS, SECONDS, variables) for s in servers]
        for process in running:
            error = process.communicate()[1]
            if process.returncode:
                raise host.HostError(f"pgbench: {error.strip()[-300:]}")
        done = [t for s in servers for t in s.transactions(mix)]
        if not done:
            raise host.HostError("pgbench: no transaction ended")
        # The last ones under way may end late, where something is copied under a limit.
        whole = max(end for end, _ in done) - min(end - us for end, us in done)
        taken = [us for _, us in done]
        run.add(cell.row, f"{mix} {TPS}", [len(taken) * 1e6 / whole], "tps")
        run.add(cell.row, f"{mix} {TAIL}", [stats.percentile(taken, 0.99)], "us")

    def measures(self):
        return [AtMost(cell.row, f"{mix} {what}", ref, 1, close=True)
                for cell in cells(False) for mix in cell.mixes for what in (TPS, TAIL)
                for ref in ("overlayfs", "fuse-overlayfs", "fuse-overlayfs-2")
                if not (cell.limit and ref == "fuse-overlayfs")]

    def tables(self, seen):
        text = ""
        for what in (TPS, TAIL):
            for mix in MIXES:
                columns = [(c.title, c.row, f"{mix} {what}") for c in cells(False)]
                text += tables.table(seen, f"YCSB {mix}, {what}", columns)
        return text

    def plots(self, seen):
        counts = [c.count for c in cells(False) if not c.limit]
        panels = [(f"YCSB {mix}, {what}", [(f"xu/database/{n}", f"{mix} {what}") for n in counts])
                  for mix in MIXES for what in (TPS, TAIL)]
        return [("xu-database",
                 lambda path: plots.lines(path, seen, panels, counts, [str(n) for n in counts],
                                          "containers", (True, False)))]
