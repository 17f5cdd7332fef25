# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL in views: a cluster made once as a lower tree, servers on it, pgbench against them."""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile

from . import host

USER = "postgres"
DATABASE = "postgres"
FIRST_PORT = 5500
SETTINGS = ("listen_addresses=", "fsync=on", "shared_buffers=16MB", "max_connections=40",
            "dynamic_shared_memory_type=mmap", "autovacuum=off", "logging_collector=off",
            "max_wal_size=256MB")


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    if not found:
        raise host.HostError(f"{name} of PostgreSQL is not installed")
    return found[-1]


def as_user(*argv):
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *argv]


def own(path):
    try:
        user = pwd.getpwnam(USER)
    except KeyError as e:
        raise host.HostError(f"there is no user {USER}") from e
    os.chown(path, user.pw_uid, user.pw_gid)


class Sockets:
    """A directory for sockets and logs: paths of sockets must be short. Use as a context."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="veneer-pg-", dir="/tmp")
        own(self.path)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


class Server:
    """One server on a data directory; i tells it from others. view: where it lives, None: here."""

    def __init__(self, sockets, i, data, view=None, prefix=()):
        self.sockets, self.port, self.data = sockets.path, FIRST_PORT + i, data
        self.view, self.prefix = view, list(prefix)

    def _argv(self, *argv):
        argv = as_user(*argv)
        return self.view.argv(*self.prefix, *argv) if self.view else argv

    def _control(self, *argv):
        return self._argv(program("pg_ctl"), "-D", self.data, "-s", "-w", *argv)

    def starting(self):
        """The process that starts it and ends when it is up."""
        options = "".join(f" -c {s}" for s in SETTINGS)
        log = os.path.join(self.sockets, f"log-{self.port}")
        return subprocess.Popen(
            self._control("-l", log, "-o", f"-p {self.port} -k {self.sockets}{options}", "start"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self, how="immediate"):
        subprocess.run(self._control("-m", how, "stop"), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def log(self):
        try:
            with open(os.path.join(self.sockets, f"log-{self.port}"), encoding="utf-8") as f:
                return f.read().strip()[-300:]
        except OSError:
            return ""

    def sql(self, text):
        return host.run(*as_user("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
                                 "-h", self.sockets, "-p", str(self.port), "-c", text, DATABASE))

    def bench(self, label, scripts, clients, seconds, variables):
        """pgbench, running. scripts: (path, weight)."""
        argv = ["pgbench", "-n", "-h", self.sockets, "-p", str(self.port), "-c", str(clients),
                "-T", str(seconds), "-l", "--log-prefix", self._prefix(label)]
        argv += [f"--define={k}={v}" for k, v in variables.items()]
        for path, weight in scripts:
            argv += ["-f", f"{path}@{weight}"]
        return subprocess.Popen(as_user(*argv, DATABASE), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _prefix(self, label):
        return os.path.join(self.sockets, f"tx-{label}-{self.port}")

    def transactions(self, label):
        """(end, time taken) of each, in microseconds."""
        for path in glob.glob(self._prefix(label) + ".*"):
            with open(path, encoding="ascii") as f:
                for words in map(str.split, f):
                    yield int(words[4]) * 1000000 + int(words[5]), int(words[2])


def start_all(servers):
    for server, process in [(s, s.starting()) for s in servers]:
        if process.wait():
            raise host.HostError(f"PostgreSQL does not start: {server.log()}")


def make_cluster(root, statements):
    """A cluster in root/data that was shut down cleanly."""
    data = os.path.join(root, "data")
    os.mkdir(data, 0o700)
    own(data)
    host.run(*as_user(program("initdb"), "-D", data, "-A", "trust", "--no-sync", "--locale=C"))
    with Sockets() as sockets:
        server = Server(sockets, 0, data)
        start_all([server])
        try:
            for text in statements:
                server.sql(text)
        finally:
            server.stop("fast")
