# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL cluster that an image brings along, worked on in a container."""

import os
import re
import shutil

from support import host, plots, postgres, scenario, tables, trees
from support.measures import AtMost, Below

# (pgbench's scale: 15 MB each, transactions that count as the first, seconds of the others)
FULL, QUICK = (60, 1000, 3), (4, 200, 1)
CLIENTS = 2
MOST_UPPER = 140 * 1000 * 1000
SCENARIO = "real/pgbench"
FIRST, LATER, EVERY = "first transactions", "later transactions", "all transactions"
# What the machine has must not decide what reaches the file system.
CONFIG = """listen_addresses = ''
shared_buffers = 64MB
max_wal_size = 256MB
min_wal_size = 80MB
autovacuum = off
"""


class Server:
    """The server of the cluster below root, as argv of a view (or of the machine) starts it."""

    def __init__(self, root, sockets, argv=lambda *a: list(a)):
        self.data, self.sockets, self.argv = os.path.join(root, "data"), sockets, argv

    def run(self, program, *args):
        path = postgres.program(program)
        return host.run(*self.argv(*postgres.as_user("env", "-C/", path, *args)))

    def control(self, *args):
        self.run("pg_ctl", "-s", "-D", self.data, "-w", "-l", os.path.join(self.sockets, "log"),
                 "-o", f"-k {self.sockets}", *args)

    def __enter__(self):
        try:
            self.control("start")
        except host.HostError as e:
            with open(os.path.join(self.sockets, "log"), encoding="utf-8") as f:
                raise host.HostError(f"no server: {f.read().strip()[-300:]}") from e
        return self

    def __exit__(self, *_):
        self.control("-m", "fast", "stop")

    def ask(self, query):
        return self.run("psql", "-h", self.sockets, "-Atqc", query, "postgres").strip()

    def pgbench(self, *args):
        return self.run("pgbench", "-h", self.sockets, *args, "postgres")

    def transactions(self, *args):
        """(how many, seconds) of a run of the standard mix."""
        text = self.pgbench("-n", "-c", str(CLIENTS), "-j", str(CLIENTS), "-M", "prepared", *args)
        count = int(re.search(r"actually processed: (\d+)", text)[1])
        return count, count / float(re.search(r"tps = ([\d.]+)", text)[1])

    def history(self):
        return int(self.ask("select count(*) from pgbench_history"))

    def check(self, count):
        """What pgbench's transactions leave must agree, table with table."""
        if self.history() != count:
            raise host.HostError(f"{self.history()} transactions in the table, not {count}")
        for table, column in (("accounts", "abalance"), ("branches", "bbalance"),
                              ("tellers", "tbalance")):
            if self.ask(f"select (select sum({column}) from pgbench_{table}) = "
                        "(select coalesce(sum(delta), 0) from pgbench_history)") != "t":
                raise host.HostError(f"the sum of {table} is wrong")


def sockets(work):
    path = work.scratch("host")
    shutil.chown(path, "postgres", "postgres")
    return path


def build(work, root, scale):
    data = os.path.join(root, "data")
    os.mkdir(data)
    shutil.chown(data, "postgres", "postgres")
    server = Server(root, sockets(work))
    server.run("initdb", "-D", data, "-A", "trust", "--no-locale", "-E", "UTF8")
    with open(os.path.join(data, "postgresql.auto.conf"), "a", encoding="ascii") as f:
        f.write(CONFIG)
    with server:
        server.pgbench("-i", "-q", "-s", str(scale))
        server.ask("checkpoint")


class Pgbench(scenario.Scenario):
    """PostgreSQL on a cluster in a lower layer: pgbench

    No paper has this; it is what an image with a database in it does. The data directory (some 1
    GB, scale 60; the quick one 90 MB) is in the lower, the server runs in the view as its own
    user, fsync on, 2 clients, shared buffers of 64 MB. The first 1,000 transactions are told apart
    from those of the next three seconds, because drivers that copy do it in them. Upper bytes are
    read after a checkpoint and the server's stop. Then the server is started again and the number
    of transactions and the sums of the tables are compared; before, the data directory of
    peers gets its mode back, as fuse-overlayfs 2 makes 0755 of 0700 in copying one up, with which
    PostgreSQL refuses to start. In place the cluster goes on from round to round."""

    name = SCENARIO
    question = "How fast is PostgreSQL on a cluster in a lower layer?"
    without = {"vfs": "it copies all before the server starts",
               "overlayfs-metacopy": "as overlayfs where data is written",
               "overlayfs-xfs": "what it copies it shares, xu/backing",
               "btrfs": "one file system and no union, as in hpmapper/filebench",
               "veneer-cached": "a file that is written is served as by veneer",
               "veneer-rootless": "a file that is written is served as by veneer",
               "veneer-direct": "for programs that share one file, not for this",
               "fuse-overlayfs-rootless": "as fuse-overlayfs"}
    quick_drivers = "native", "overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2"
    seconds = 7.2, 2.6
    headline = [("pgbench, cluster of 1 GB in a lower layer", SCENARIO, EVERY),
                ("the same, what the upper takes", SCENARIO, "upper bytes")]

    def cells(self, quick):
        return ["TPC-B"]

    def lower(self, run, scale):
        first = run.work.lower("host", "pgbench", lambda root: build(run.work, root, scale))
        if run.driver.kind == "host":
            return first
        return run.lower("pgbench", lambda root: host.run("cp", "-a", first + "/data", root))

    def act(self, run, cell, driver):
        scale, first, seconds = QUICK if run.quick else FULL
        lower = self.lower(run, scale)
        before, where = trees.state(lower), sockets(run.work)
        with driver.open(run.work, lower) as view:
            server = Server(view.path, where, view.argv)
            host.settle(run.work.root)
            taken = view.bytes_taken()
            with server:
                count = server.history() + self.work(run, server, first, seconds)
            if not driver.in_place:
                host.sync_fs(run.work.volume(driver.kind))
                run.add(SCENARIO, "upper bytes", [view.bytes_taken() - taken], "bytes")
            if not driver.is_ours:
                view.run("chmod", "700", server.data)
            with server:
                server.check(count)
        shutil.rmtree(where)
        trees.must_be(lower, before)

    @staticmethod
    def work(run, server, first, seconds):
        """How many transactions were made."""
        counts = [server.transactions("-t", str(first // CLIENTS)),
                  server.transactions("-T", str(seconds))]
        server.ask("checkpoint")
        for metric, some in ((EVERY, counts), (FIRST, counts[:1]), (LATER, counts[1:])):
            rate = sum(n for n, _ in some) / sum(s for _, s in some)
            run.add(SCENARIO, metric, [rate], "tps")
        return sum(n for n, _ in counts)

    def measures(self):
        out = [AtMost(SCENARIO, EVERY, "overlayfs", 1), AtMost(SCENARIO, FIRST, "overlayfs", 1),
               AtMost(SCENARIO, LATER, "overlayfs", 1, must=False),
               Below(SCENARIO, "upper bytes", MOST_UPPER)]
        return out + [AtMost(SCENARIO, metric, peer, 1, close=True)
                      for metric in (EVERY, FIRST, LATER)
                      for peer in ("fuse-overlayfs", "fuse-overlayfs-2")]

    def tables(self, seen):
        columns = [(m, SCENARIO, m) for m in (EVERY, FIRST, LATER, "upper bytes")]
        return tables.table(seen, "pgbench, TPC-B like", columns)

    def plots(self, seen):
        panels = [(m, SCENARIO, m) for m in (EVERY, LATER, "upper bytes")]
        return [("real-pgbench", lambda path: plots.bars(path, seen, panels))]
