# SPDX-License-Identifier: Apache-2.0
"""What a server says about itself: `veneer stats`, `veneer top`, and that the figures are true."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from support import linux
from support.content import blob
from support.expect import read_at, write_at
from support.procfs import state_of
from support.server import escape, stop_process, wait_until
from support.shared import child_of

MIB = 1 << 20
MODES = {"passthrough", "cached", "direct", "auto"}


class Server:
    """A server of our own, and the mounts that were handed to it."""

    def __init__(self, program, base, watchdog):
        self.program, self.base, self.watchdog = program, base, watchdog
        self.mounts, self.process = [], None
        run = base / "run"
        run.mkdir(mode=0o700)
        self.env = dict(os.environ, VENEER_RUNTIME_DIR=str(run))
        self.log = open(base / "stats-server.log", "w+", encoding="utf-8")

    def start(self):
        self.process = subprocess.Popen([self.program, "server"], env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        self.watchdog.watch(self.process.pid, 120)
        assert wait_until(lambda: self.ask().returncode == 0), "no server"
        return self

    def ask(self, *arguments, command="stats", text=True):
        return subprocess.run([self.program, command, *map(os.fsencode, arguments)], env=self.env, text=text,
                              capture_output=True, timeout=30, check=False)

    def mount(self, name, lower, *options, is_writable=True, warning=b""):
        """Directories of this name, made for it; returns the mount point."""
        top = os.fsencode(self.base) + b"/" + os.fsencode(name)
        parts = [b"lowerdir=" + escape(lower).encode()]
        for kind in (b"upper", b"work") if is_writable else ():
            os.makedirs(self.base / f"{kind.decode()}-{len(self.mounts)}")
            parts.append(kind + b"dir=" + os.fsencode(self.base / f"{kind.decode()}-{len(self.mounts)}"))
        os.makedirs(top)
        done = subprocess.run([self.program, "-o", b",".join(parts + [o.encode() for o in options]), top],
                              env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
        assert done.returncode == 0 and (done.stderr.endswith(warning) if warning else not done.stderr), done.stderr
        self.mounts.append(top)
        return os.fsdecode(top)

    def umount(self, mnt):
        linux.umount(mnt)
        self.mounts.remove(os.fsencode(mnt))

    def report(self, *arguments):
        done = self.ask(*arguments, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)

    def of(self, mnt):
        (found,) = [m for m in self.report()["mounts"] if m["mountpoint"] == mnt]
        return found

    def timed(self, mnt, op):
        """Requests whose time is known: that is a moment after their answer."""
        return self.of(mnt)["latency_us"].get(op, {"count": 0})["count"]

    def end(self):
        for mnt in self.mounts[::-1]:
            linux.umount(mnt)
        if self.process:
            self.process.terminate()
            code = self.process.wait(20)
            self.watchdog.forget(self.process.pid)
            self.log.seek(0)
            assert code == 0, self.log.read()
        self.log.close()


@pytest.fixture
def server(stack, veneer_bin, watchdog):
    made = Server(veneer_bin, stack.base, watchdog)
    yield made
    made.end()


@pytest.fixture
def one(server, stack):
    """A running server with one mount of a lower with a file of 64 MiB: (server, mount point)."""
    with open(stack.lower() / "large", "wb") as f:
        f.write(blob(100_000))
        f.truncate(64 * MIB)
    (stack.lower() / "small").write_bytes(blob(5000))
    server.start()
    return server, server.mount("m", stack.lower())


# ---- the figures ----

def test_an_unknown_option_is_found_where_engines_leave_its_warning_out(server, stack):
    server.start()
    mnt, other = server.mount("m", stack.lower(), "sizze=5M", warning=b"unknown argument ignored: sizze=5M\n"), server.mount("o", stack.lower())
    assert server.of(mnt)["unknown_options"] == "sizze=5M"
    assert server.of(other)["unknown_options"] is None
    assert re.search(r"ignored +sizze=5M$", server.ask(mnt).stdout, re.M) and "ignored" not in server.ask(other).stdout
    server.log.seek(0)
    assert f"{mnt}: unknown argument ignored: sizze=5M\n" in server.log.read()


def test_report_names_the_server_and_its_mounts(one, stack):
    server, mnt = one
    readonly = server.mount("ro", stack.lower(), is_writable=False)
    report = server.report()
    assert report["server"]["pid"] == child_of(server.process.pid)
    assert report["server"]["mounts"] == 2
    assert report["server"]["uptime_s"] < 100
    assert report["server"]["memory"]["rss_bytes"] > MIB
    assert report["server"]["memory"]["inodes_bytes"] > 0
    by_place = {m["mountpoint"]: m for m in report["mounts"]}
    assert set(by_place) == {mnt, readonly}
    assert by_place[mnt]["mode"] in MODES
    assert (by_place[mnt]["lower"], by_place[mnt]["upper"]) == (1, str(stack.base / "upper-0"))
    assert by_place[readonly]["upper"] is None
    for m in report["mounts"]:
        assert report["images"][m["image"]]["layers"] == 1
    assert sum(image["mounts"] for image in report["images"]) == 2


def test_mounts_of_one_stack_are_seen_to_share_an_image(one, stack):
    server, mnt = one
    other = server.mount("other", stack.lower())
    assert os.listdir(other)
    report = server.report()
    assert [m["image"] for m in report["mounts"]] == [0, 0]
    (image,) = report["images"]
    assert (image["layers"], image["mounts"]) == (1, 2)
    assert 0 < image["bytes"] == report["server"]["memory"]["images_bytes"]
    sharing = report["server"]["sharing"]
    assert (sharing["mounts_new_image"], sharing["mounts_shared_image"], sharing["images_kept"]) == (1, 1, 0)
    server.umount(mnt)
    server.umount(other)
    assert wait_until(lambda: server.report()["server"]["images"] == 0)
    report = server.report()
    assert (report["server"]["mounts"], report["server"]["sharing"]["images_kept"]) == (0, 1)
    assert report["images"] == []


def test_ten_writes_into_a_lower_file_are_ten_blocks(one):
    server, mnt = one
    before = server.of(mnt)
    for n in range(10):
        write_at(f"{mnt}/large", b"x" * 4096, n * 5 * MIB)
    after = server.of(mnt)
    gained = {key: after["cow"][key] - before["cow"][key] for key in after["cow"]}
    assert gained == {"copy_ups": 1, "copy_up_bytes": 0, "whole_bytes": 64 * MIB, "writes": 10, "own_bytes": 40960,
                      "filled_bytes": 0, "not_copied_bytes": 64 * MIB}
    assert after["requests"]["write"] - before["requests"].get("write", 0) == 10
    assert after["intercepted"]["write_bytes"] - before["intercepted"]["write_bytes"] == 40960
    assert after["map"]["files"] == 1
    # and that is what is on the disk
    assert os.stat(server.base / "upper-0" / "large").st_blocks * 512 in range(40960, 40960 + 16384)


def test_what_is_filled_from_below_was_copied_after_all(one):
    server, mnt = one
    write_at(f"{mnt}/large", b"x" * 100, 10)
    cow = server.of(mnt)["cow"]
    assert (cow["writes"], cow["own_bytes"], cow["filled_bytes"]) == (1, 4096, 3996)
    assert cow["not_copied_bytes"] == 64 * MIB - 3996
    write_at(f"{mnt}/large", b"y" * 100, 10)
    assert server.of(mnt)["cow"] == cow
    write_at(f"{mnt}/small", b"z", 0)
    cow = server.of(mnt)["cow"]
    assert (cow["copy_ups"], cow["copy_up_bytes"]) == (2, 5000)
    assert cow["not_copied_bytes"] == 64 * MIB - 3996


def test_reads_of_a_changed_file_are_intercepted(one):
    server, mnt = one
    write_at(f"{mnt}/large", b"x" * 4096, 4 * MIB)
    before = server.of(mnt)
    assert len(read_at(f"{mnt}/large", MIB, 0)) == MIB
    after = server.of(mnt)
    assert after["requests"]["read"] > before["requests"].get("read", 0)
    # the kernel may read ahead
    assert after["intercepted"]["read_bytes"] - before["intercepted"]["read_bytes"] in range(MIB, 5 * MIB)


def test_mounts_count_apart_and_what_ended_stays_in_the_totals(one, stack):
    server, mnt = one
    other = server.mount("other", stack.lower())
    write_at(f"{other}/large", b"x" * 4096, 0)
    assert server.of(mnt)["cow"]["writes"] == 0
    assert server.of(other)["cow"]["writes"] == 1
    server.umount(other)
    assert wait_until(lambda: len(server.report()["mounts"]) == 1)
    report = server.report()
    assert report["mounts"][0]["mountpoint"] == mnt
    assert report["totals"]["cow"]["writes"] == 1
    assert report["totals"]["requests"]["write"] == 1


def test_times_and_errors_are_kept_by_kind_of_request(one):
    server, mnt = one
    for name in ("user.nothing", "trusted.veneer.nothing"):
        with pytest.raises(OSError):
            os.getxattr(f"{mnt}/large", name)
    # a reserved name is hidden, and one that is not there is no failure either
    assert server.of(mnt)["errors"] == {}
    with pytest.raises(OSError):
        os.setxattr(f"{mnt}/large", "user.veneer.x", b"")
    assert server.of(mnt)["errors"] == {"setxattr": 1}
    for n in range(20):
        write_at(f"{mnt}/large", b"x", n * MIB)
    assert wait_until(lambda: server.timed(mnt, "write") == 20)
    report = server.report()
    found = server.of(mnt)
    assert "write" not in found["errors"]
    bounds = report["latency_bounds_us"]
    assert bounds == [2 ** k for k in range(25)]
    for op, latency in found["latency_us"].items():
        assert latency["count"] == sum(latency["buckets"]) <= found["requests"][op]
        assert len(latency["buckets"]) == len(bounds) + 1
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
        assert latency["sum"] <= latency["max"] * latency["count"]
        top = max(k for k, n in enumerate(latency["buckets"]) if n)
        assert top == len(bounds) or latency["max"] <= bounds[top]


def test_forgotten_files_leave_inodes_and_memory(one):
    server, mnt = one
    empty = server.of(mnt)["inodes"]
    memory = server.report()["server"]["memory"]["inodes_bytes"]
    for n in range(500):
        os.close(os.open(f"{mnt}/f{n}", os.O_CREAT | os.O_WRONLY, 0o644))
    report = server.report()
    assert report["mounts"][0]["inodes"] - empty == 500
    taken = report["server"]["memory"]["inodes_bytes"] - memory
    assert taken > 500 * 200
    for n in range(500):
        os.unlink(f"{mnt}/f{n}")
    assert wait_until(lambda: server.of(mnt)["inodes"] == empty)
    # the slots of the table stay
    assert server.report()["server"]["memory"]["inodes_bytes"] - memory < taken / 2


def test_reports_of_a_busy_server_are_whole_and_only_grow(one):
    server, mnt = one
    is_done = threading.Event()
    failures = []

    def work():
        try:
            while not is_done.is_set():
                for n in range(50):
                    write_at(f"{mnt}/large", b"%08d" % n, n * MIB)
                    os.stat(f"{mnt}/small")
        except OSError as e:
            failures.append(e)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = [server.of(mnt) for _ in range(15)]
    is_done.set()
    for thread in threads:
        thread.join()
    assert not failures
    for before, after in zip(seen, seen[1:]):
        for group in ("requests", "errors", "cow", "intercepted", "descriptors", "windows", "opens"):
            assert all(after[group].get(key, 0) >= value for key, value in before[group].items()
                       if key != "not_copied_bytes")


# ---- Prometheus ----

_SAMPLE = re.compile(r'^(veneer_[a-z0-9_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\d+(?:\.\d+)?)$')
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def parse_prometheus(text):
    """{(name, labels): value}; the format is checked on the way."""
    found, family, kinds = {}, None, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in kinds
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family and kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
        else:
            name, labels, value = _SAMPLE.match(line).groups()
            base = re.sub("_(bucket|sum|count)$", "", name) if kinds[family] == "histogram" else name
            assert base == family and (kinds[family] != "counter" or name.endswith("_total"))
            key = (name, tuple(_LABEL.findall(labels or "")))
            assert key not in found
            found[key] = float(value)
    return found


def test_prometheus_says_what_json_says(one):
    server, mnt = one
    for n in range(3):
        write_at(f"{mnt}/large", b"x" * 4096, n * MIB)
    assert wait_until(lambda: server.timed(mnt, "write") == 3)
    text = server.ask("--prometheus").stdout
    found, report = parse_prometheus(text), server.report()
    here = ("mountpoint", mnt)
    (mount,) = report["mounts"]
    assert found["veneer_mounts", ()] == 1
    assert found["veneer_mount_info", (here, ("mode", mount["mode"]), ("image", str(mount["image"])), ("container", ""))] == 1
    assert found["veneer_cow_writes_total", (here,)] == mount["cow"]["writes"] == 3
    assert found["veneer_cow_not_copied_bytes", (here,)] == mount["cow"]["not_copied_bytes"]
    assert found["veneer_requests_total", (here, ("op", "write"))] == 3
    assert found["veneer_server_requests_total", (("op", "write"),)] == 3
    name = "veneer_request_duration_seconds"
    buckets = [value for (n, labels), value in found.items()
               if n == f"{name}_bucket" and labels[:2] == (here, ("op", "write"))]
    assert buckets == sorted(buckets) and len(buckets) == 26
    assert buckets[-1] == found[f"{name}_count", (here, ("op", "write"))] == 3
    bounds = [dict(labels)["le"] for n, labels in found
              if n == f"{name}_bucket" and labels[:2] == (here, ("op", "write"))]
    assert bounds[-1] == "+Inf"
    assert [float(bound) for bound in bounds[:-1]] == [2 ** k / 1e6 for k in range(25)]


def test_prometheus_is_read_by_its_own_parser(one):
    parser = pytest.importorskip("prometheus_client.parser", reason="python3-prometheus-client is not installed")
    server, mnt = one
    write_at(f"{mnt}/large", b"x", 0)
    families = {f.name: f for f in parser.text_string_to_metric_families(server.ask("--prometheus").stdout)}
    assert families["veneer_cow_writes"].type == "counter"
    assert families["veneer_request_duration_seconds"].type == "histogram"
    (sample,) = families["veneer_cow_writes"].samples
    assert (sample.labels, sample.value) == ({"mountpoint": mnt}, 1)


# ---- for people ----

def test_tables_have_a_line_for_each_mount(one, stack):
    server, mnt = one
    other = server.mount("other", stack.lower())
    for n in range(10):
        write_at(f"{mnt}/large", b"x" * 4096, n * MIB)
    lines = server.ask().stdout.splitlines()
    assert lines[0].startswith("veneer ") and f"server {child_of(server.process.pid)}," in lines[0] and "2 mounts" in lines[0]
    head = next(n for n, line in enumerate(lines) if line.endswith("MOUNTPOINT"))
    rows = {row.split()[-1]: row for row in lines[head + 1:head + 3]}
    assert set(rows) == {mnt, other}
    assert re.search(r" 40 KiB +10 +0 B +64 MiB  ", rows[mnt])
    assert re.search(r" 0 B +0 +0 B +0 B  ", rows[other])
    assert any(re.match(r"write +10 ", line) for line in lines)


@pytest.mark.parametrize("way", ["as it is", "slash", "relative", "link"])
def test_one_mount_is_shown_in_full_whatever_it_is_called(one, way):
    server, mnt = one
    link = server.base / "link"
    link.symlink_to(mnt)
    name = {"as it is": mnt, "slash": f"{mnt}//", "relative": os.path.relpath(mnt), "link": str(link)}[way]
    write_at(f"{mnt}/large", b"x" * 4096, 0)
    done = server.ask(name)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{mnt}: ")
    assert "1 write made 4.0 KiB own; 1 copy-up; 0 B copied from lower files, 64 MiB not copied" in done.stdout
    (found,) = server.report(name)["mounts"]
    assert found["mountpoint"] == mnt


@pytest.mark.parametrize("name", ["new\nline", "quo\"te\\slash", "esc\033[2Jape", b"no\xffutf8", "grün"], ids=repr)
def test_mount_points_may_have_any_name(one, stack, name):
    server, mnt = one
    name = os.fsdecode(name)
    other = server.mount(name, stack.lower())
    (found,) = {m["mountpoint"] for m in server.report()["mounts"]} - {mnt}
    assert found == f"{server.base}/" + name.replace("\udcff", "\\xff")
    assert parse_prometheus(server.ask("--prometheus").stdout)
    assert [m["mountpoint"] for m in server.report(other)["mounts"]] == [found]
    for arguments in ([], [other]):
        done = server.ask(*arguments)
        assert done.returncode == 0
        assert "\033" not in done.stdout
        assert all(line.isprintable() for line in done.stdout.splitlines())


def test_a_mount_that_no_longer_answers_is_named_like_any_other(one):
    server, mnt = one
    stop_process(child_of(server.process.pid))
    try:
        asking = subprocess.Popen([server.program, "stats", mnt], env=server.env, stdout=subprocess.PIPE, text=True)
        assert wait_until(lambda: state_of(asking.pid) == "S")
    finally:
        os.kill(child_of(server.process.pid), signal.SIGCONT)
    assert asking.communicate(timeout=20)[0].startswith(f"{mnt}: ")


def test_what_is_no_mount_is_one_sentence(one, stack):
    server, _ = one
    for name in (stack.lower(), "/nowhere/at/all", "nothing", "/"):
        done = server.ask(name)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"veneer: {name} is not a mount of the server\n"


def test_a_server_that_was_stopped_is_named(one):
    server, _ = one
    stopped = child_of(server.process.pid)
    stop_process(stopped)
    try:
        done = server.ask()
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert done.returncode == 1 and done.stdout == ""
    assert f"process {stopped} is stopped, `kill -CONT {stopped}` lets it go on" in done.stderr
    assert wait_until(lambda: server.ask().returncode == 0)


def test_the_server_of_another_user_namespace_is_pointed_to(server):
    (server.base / "run" / "1-2.sock").touch()
    done = server.ask()
    assert done.returncode == 1 and "`podman unshare veneer stats`" in done.stderr


def test_servers_processes_are_called_veneer(stack, server):
    """The first mount executes them by way of /proc/self/exe."""
    mnt = server.mount("m", stack.lower())
    serving = server.report()["server"]["pid"]
    with open(f"/proc/{serving}/status", encoding="ascii") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    with open(f"/proc/{status['PPid']}/comm", encoding="ascii") as f:
        supervisor = f.read()
    server.umount(mnt)
    os.kill(serving, signal.SIGTERM)
    assert (status["Name"], supervisor) == ("veneer", "veneer\n")


@pytest.mark.parametrize("command", ["stats", "top"])
def test_without_a_server_there_is_one_sentence(server, command):
    done = server.ask(command=command)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"veneer: no server is running: .*\n", done.stderr)


@pytest.mark.parametrize("command", ["stats", "top"])
def test_help(server, command):
    done = server.ask("--help", command=command)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"usage: veneer {command}")


def test_full_disk_is_an_error(one):
    server, _ = one
    with open("/dev/full", "w", encoding="utf-8") as full:
        for arguments in (["stats"], ["stats", "--json"], ["stats", "--prometheus"], ["top", "-i", "0.1"]):
            done = subprocess.run([server.program, *arguments], env=server.env, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=30, check=False)
            assert done.returncode == 1
            assert done.stderr.startswith("veneer: cannot print: ")


# ---- top ----

def test_top_prints_plain_frames_and_the_busiest_mount_first(one, stack):
    server, mnt = one
    other = server.mount("other", stack.lower())
    os.stat(f"{mnt}/large")
    process = subprocess.Popen([server.program, "top", "-n", "3", "--interval", "0.3"], env=server.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None:
        for n in range(20):
            write_at(f"{other}/large", b"x", n * MIB)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "\033" not in out
    frames = re.split(r"(?m)^(?=veneer )", out)[1:]
    assert len(frames) == 3
    for frame in frames:
        lines = frame.splitlines()
        head = next(n for n, line in enumerate(lines) if line.endswith("MOUNTPOINT"))
        assert [row.split()[-1] for row in lines[head + 1:head + 3]] == [other, mnt]
        assert any(re.match(r"write +[\d.,]+ ", line) for line in lines)


def test_top_prints_what_was_counted_as_lines_of_json(one, stack):
    server, mnt = one
    other = server.mount("other", stack.lower())
    process = subprocess.Popen([server.program, "top", "--json", "-n", "3", "-i", "0.3"], env=server.env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    written = 0
    while process.poll() is None:
        write_at(f"{other}/large", b"x", written % 20 * MIB)
        written += 1
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    frames = [json.loads(line) for line in out.decode().splitlines()]
    assert len(frames) == 3 and all(frame["seconds"] >= 0.29 for frame in frames)
    for frame in frames:
        assert [mount["mountpoint"] for mount in frame["mounts"]] == [other, mnt]
        # counted one after the other, while writes go on
        assert frame["mounts"][0]["requests"]["write"] > 0 and frame["totals"]["requests"]["write"] > 0
        assert not frame["mounts"][1]["requests"].get("write")
    assert sum(frame["totals"]["requests"]["write"] for frame in frames) <= written
    whole = json.loads(server.ask("--json").stdout)
    assert frames[-1].keys() == whole.keys() | {"seconds"}


def test_top_goes_on_in_json_until_it_is_told_to_end_or_nobody_reads(one):
    server, _ = one
    for is_read in (True, False):
        process = subprocess.Popen([server.program, "top", "--json", "-i", "0.1"], env=server.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        for _ in range(3):
            assert json.loads(process.stdout.readline())["server"]["mounts"] == 1
        if is_read:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        process.stdout.close()
        assert process.wait(10) == (0 if is_read else -signal.SIGPIPE)
        assert process.stderr.read() == b""
        process.stderr.close()


class Terminal:
    """`veneer top` on a terminal of its own."""

    def __init__(self, server, *arguments, **environment):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 200, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave, self.out = slave, b""
        self.process = subprocess.Popen([server.program, "top", *arguments], stdin=slave,
                                        env={**server.env, "TERM": "xterm", **environment}, stdout=slave, stderr=slave, start_new_session=True)

    def read_until(self, wanted, limit_s=10):
        end = time.monotonic() + limit_s
        while wanted not in self.out and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.out += os.read(self.master, 65536)
        assert wanted in self.out, self.out

    def end(self):
        code = self.process.wait(10)
        self.read_until(b"\033[?1049l")
        after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        assert after == self.before
        return code


@pytest.mark.parametrize("way", ["q", signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_top_gives_the_terminal_back(one, way):
    server, mnt = one
    terminal = Terminal(server, "-i", "0.2")
    terminal.read_until(mnt.encode())
    assert terminal.out.startswith(b"\033[?1049h\033[?25l")
    assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON
    if way == "q":
        os.write(terminal.master, b"xq")
    else:
        terminal.process.send_signal(way)
    assert terminal.end() == 0
    assert terminal.out.index(b"\033[?25h") < terminal.out.index(b"\033[?1049l")


def test_top_redraws_in_place_and_never_scrolls(one, stack):
    server, mnt = one
    for n in range(8):
        server.mount(f"more{n}", stack.lower())
    terminal = Terminal(server, "-i", "0.1", "-n", "4")
    terminal.read_until(b"\033[?1049l")
    assert terminal.end() == 0
    frames = terminal.out.split(b"\033[H")[1:]
    assert len(frames) == 4
    assert all(frame.count(b"\n") <= 11 for frame in frames)


def test_top_sorts_by_a_key_and_follows_the_size_without_a_new_picture(one):
    server, mnt = one
    terminal = Terminal(server, "-i", "3600")
    terminal.read_until(b"*REQ/S")
    for key, head in ((b"m", b"*MOUNTPOINT"), (b"t", b"*99 %"), (b"e", b"*ERR/S"), (b"?r", b"*REQ/S")):
        terminal.out = b""
        os.write(terminal.master, key)
        terminal.read_until(head)
    terminal.out = b""
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.read_until(b"q quit")
    assert b"ERR/S" not in terminal.out.split(b"\r\n")[3]
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


@pytest.mark.parametrize("environment,is_plain", [({"NO_COLOR": "1"}, True), ({"NO_COLOR": ""}, False)])
def test_top_obeys_no_color(one, environment, is_plain):
    terminal = Terminal(one[0], "-i", "3600", **environment)
    terminal.read_until(b"q quit")
    assert (b"\033[1m" not in terminal.out and b"\033[7m" not in terminal.out) == is_plain
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_top_draws_nothing_where_nothing_can_be_drawn(one):
    terminal = Terminal(one[0], "-i", "0.1", TERM="dumb")
    terminal.read_until(one[1].encode())
    assert terminal.process.wait(10) == 0
    assert b"\033" not in terminal.out
    os.close(terminal.master)
    os.close(terminal.slave)


def test_top_ends_with_its_server(one):
    server, mnt = one
    terminal = Terminal(server, "-i", "0.1")
    terminal.read_until(mnt.encode())
    server.umount(mnt)
    server.process.terminate()
    terminal.read_until(b"veneer: ")
    assert terminal.end() == 1
    assert terminal.out.index(b"\033[?1049l") < terminal.out.index(b"veneer: ", terminal.out.index(b"\033[?1049l"))
