# SPDX-License-Identifier: Apache-2.0
"""A MariaDB server on a data directory below a view, and sysbench against it."""

import os
import re
import shutil
import subprocess
import time

from . import host

# The packages of the program alone bring no user and start no server.
USER, GROUP, DATABASE = "nobody", "nogroup", "bench"
START_S = 60
SETTINGS = ("--no-defaults", "--skip-networking", "--skip-log-bin", "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=64M", "--innodb-flush-log-at-trx-commit=1", "--skip-grant-tables")


def _as_user(*argv):
    return ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", *argv]


class Server:
    """On root/mysql, as argv of a view (or of the machine) starts it."""

    def __init__(self, root, where, argv=lambda *a: list(a)):
        self.data, self.where, self.argv = os.path.join(root, "mysql"), where, argv
        self.socket = os.path.join(where, "socket")
        self.process = None

    def __enter__(self):
        with open(os.path.join(self.where, "log"), "ab") as log:
            command = self.argv(*_as_user("mariadbd", *SETTINGS, f"--datadir={self.data}", f"--socket={self.socket}",
                                          f"--pid-file={self.where}/pid", f"--tmpdir={self.where}"))
            self.process = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while not self._answers() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        if not self._answers():
            self.__exit__()
            with open(os.path.join(self.where, "log"), encoding="utf-8", errors="replace") as f:
                raise host.HostError(f"no server: {f.read().strip()[-300:]}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=120)

    def _answers(self):
        return os.path.exists(self.socket) and not subprocess.run(
            ["mariadb", "--no-defaults", f"--socket={self.socket}", "-e", "select 1"], check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def ask(self, query):
        return host.run("mariadb", "--no-defaults", f"--socket={self.socket}", "-Nse", query).strip()

    def sysbench(self, rows, *args):
        return host.run("sysbench", "oltp_read_write", "--db-driver=mysql", f"--mysql-socket={self.socket}",
                        f"--mysql-user={USER}", f"--mysql-db={DATABASE}", "--tables=1", f"--table-size={rows}", *args)

    def rate(self, rows, clients, seconds):
        """Transactions a second."""
        text = self.sysbench(rows, f"--threads={clients}", f"--time={seconds}", "run")
        return float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", text)[1])


def sockets(work):
    path = work.scratch("host")
    shutil.chown(path, USER, GROUP)
    return path


def build(work, root, rows):
    """One table of so many rows."""
    data, where = os.path.join(root, "mysql"), sockets(work)
    os.mkdir(data)
    shutil.chown(data, USER, GROUP)
    host.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={USER}",
             "--auth-root-authentication-method=normal", "--skip-test-db")
    with Server(root, where) as server:
        server.ask(f"create database {DATABASE}")
        server.sysbench(rows, "prepare")
    shutil.rmtree(where)
