# SPDX-License-Identifier: Apache-2.0
"""A file of a lower layer is open for reading when it is first written: followers of logs see what is written, of every
size, by every name that a log has."""
import mmap
import os
import subprocess

import pytest

from support.content import KIB, MIB, blob
from support.expect import opened, write_at
from support.server import wait_until


def _text(size):
    line = b"2026-11-24T10:00:00 INFO request answered in 3 ms\n"
    return (line * (size // len(line) + 1))[:size - 1] + b"\n"


UNSHARED = pytest.mark.unshared("small text that is not called a log has one node for all mounts")
LOGS = [
    pytest.param("srv/app.log", _text(10 * KIB), id="small-log"),
    pytest.param("srv/app.log.1", _text(100 * KIB), id="rotated-log"),
    pytest.param("srv/trace", _text(10 * KIB), id="small-text", marks=UNSHARED),
    pytest.param("srv/trace", _text(100 * KIB), id="text"),
    pytest.param("srv/trace", _text(20 * MIB), id="large-text"),
    pytest.param("var/log/records", blob(100 * KIB), id="binary-in-var-log"),
    pytest.param("usr/local/tomcat/logs/catalina.2026", _text(100 * KIB), id="log-in-usr"),
    pytest.param("var/lib/journal", b"LPKSHHRH" + blob(100 * KIB), id="journal"),
]


def _log(stack, name, data):
    path = stack.lower() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return stack.mount() / name


@pytest.mark.parametrize("name,data", LOGS)
def test_reader_from_before_the_first_write_sees_what_is_written(stack, name, data):
    log = _log(stack, name, data)
    with opened(log) as fd:
        assert os.pread(fd, 100, 0) == data[:100]
        os.lseek(fd, 0, os.SEEK_END)
        with open(log, "ab") as writer:
            writer.write(b"appended\n")
        assert os.read(fd, 100) == b"appended\n"
        write_at(log, b"CHANGED", 50)
        assert os.pread(fd, 7, 50) == b"CHANGED"
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            assert view[50:57] == b"CHANGED" and view[-9:] == b"appended\n"
        assert os.fstat(fd).st_ino == os.stat(log).st_ino
        os.truncate(log, 0)
        assert os.fstat(fd).st_size == 0 and os.pread(fd, 10, 0) == b""


@pytest.mark.parametrize("name,data", [LOGS[0], LOGS[3]])
def test_tail_follows(stack, name, data):
    log = _log(stack, name, data)
    with subprocess.Popen(["tail", "-n", "+1", "-f", log], stdout=subprocess.PIPE) as tail:
        try:
            assert tail.stdout.read(len(data)) == data
            for number in range(2):
                line = b"line %d\n" % number
                with open(log, "ab") as writer:
                    writer.write(line)
                assert tail.stdout.readline() == line
        finally:
            tail.kill()


def test_tail_follows_a_log_that_is_cut(stack):
    """As logrotate's copytruncate does."""
    log = _log(stack, "var/log/app", _text(100 * KIB))
    with subprocess.Popen(["tail", "-n", "1", "-f", log], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
        try:
            assert tail.stdout.readline() == _text(100 * KIB).splitlines(True)[-1]
            os.truncate(log, 0)
            # tail looks once a second; what is longer by then than what it has seen is no cut
            assert wait_until(lambda: _offset(tail.pid, log) == 0)
            with open(log, "ab") as writer:
                writer.write(b"after the cut\n")
            assert tail.stdout.readline() == b"after the cut\n"
        finally:
            tail.kill()


def _offset(pid, path):
    for number in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{number}") == str(path):
            with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as f:
                return int(f.readline().split()[1])
    return None
