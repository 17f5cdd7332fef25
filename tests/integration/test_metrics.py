# SPDX-License-Identifier: Apache-2.0
"""The server's counters over HTTP: `--metrics` and VENEER_METRICS."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading

import pytest

from support import linux, procfs
from support.command import mount_points
from support.content import blob
from support.expect import read_at, write_at
from support.places import Place
from support.server import wait_until
from support.shared import SharedServer, kill, wait_for_death
from support.watching import connection, scrape

parser = pytest.importorskip("prometheus_client.parser", reason="no python3-prometheus-client")


@pytest.fixture(scope="module", autouse=True)
def built(veneer_bin):
    said = subprocess.run([veneer_bin, "server", "--metrics", "unix:/nowhere/m"], capture_output=True, text=True)
    if "built without" in said.stderr or "libmicrohttpd" in said.stderr:
        pytest.skip(said.stderr)


@pytest.fixture
def serve(stack, veneer_bin, watchdog):
    """serve(where) starts a server that is watched there."""
    made = []

    def start(where, *arguments):
        made.append(SharedServer(veneer_bin, stack.base / f"run{len(made)}", watchdog,
                                 ["--idle", "86400", "--metrics", where, *arguments]))
        made[-1].ensure()
        return made[-1]
    (stack.lower() / "f").write_bytes(blob(300_000))
    yield start
    for point in reversed(mount_points(stack.base)):
        linux.umount(point, linux.MNT_DETACH)
    for server in made:
        server.kill()


@pytest.fixture
def watched(stack, serve):
    """A server, and where it is asked."""
    where = stack.base / "metrics"
    return serve(f"unix:{where}"), where


def values(text):
    """{(name, labels): value}, of a text that is what the format says."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def names(text):
    """Not what they are about: a kind of request that was under way may be new."""
    return {name for name, _ in values(text)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_a_socket_of_the_owner_tells_what_stats_tells(stack, watched, veneer_bin):
    shared, where = watched
    assert stat.S_IMODE(os.stat(where).st_mode) == 0o600
    place = Place(stack, "p")
    place.mount(stack, shared)
    write_at(place.mnt / "f", b"x", 5)
    status, headers, text = scrape(where)
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = values(text)
    assert found["veneer_mounts", ()] == 1
    assert found["veneer_cow_writes_total", (("mountpoint", str(place.mnt)),)] == 1
    said = subprocess.run([veneer_bin, "stats", "--prometheus"], capture_output=True, text=True, check=True,
                          env={**os.environ, **shared.environment})
    assert names(said.stdout) == names(text)
    said = subprocess.run(["curl", "-sS", "--fail", "--unix-socket", where, "http://localhost/metrics"],
                          capture_output=True, text=True, check=True)
    assert names(said.stdout) == names(text)


def test_an_address_that_was_given(serve):
    where = "127.0.0.1", free_port()
    serve("%s:%d" % where)
    assert values(scrape(where)[2])["veneer_mounts", ()] == 0


def _answers_http(pid):
    return any("MHD" in name for name in procfs.of_threads(pid, "comm").values())


def test_nobody_is_answered_who_did_not_ask_for_it(stack, shared, watched):
    place = Place(stack, "p")
    (stack.lower() / "f").write_text("f")
    place.mount(stack, shared)
    kinds = {target for pid in (shared.process.pid, shared.pid) for target in procfs.opened(pid).values()}
    listening = {f"socket:[{line.split()[6]}]" for line in open("/proc/net/unix") if line.split()[3] == "00010000"}
    assert len(kinds & listening) == 1
    assert not _answers_http(shared.pid) and _answers_http(watched[0].pid)


@pytest.mark.parametrize("method,path,status", [("GET", "/", 200), ("HEAD", "/metrics", 200), ("GET", "/other", 404),
                                                ("POST", "/metrics", 405), ("DELETE", "/", 405)])
def test_what_is_asked(watched, method, path, status):
    got, headers, text = scrape(watched[1], path, method)
    assert got == status and (text or method == "HEAD")


@pytest.mark.parametrize("where", ["9100", "localhost:9100", "unix:", "unix:/nowhere/m", "127.0.0.1:99999"])
def test_a_place_that_is_none(stack, veneer_bin, where):
    (stack.base / "run").mkdir(mode=0o700)
    said = subprocess.run([veneer_bin, "server", "--metrics", where], capture_output=True, text=True, timeout=20,
                          env={**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "run")})
    assert said.returncode == 1 and len(said.stderr.splitlines()) == 1 and said.stderr.startswith("veneer: ")


def test_the_next_server_answers(stack, watched):
    shared, where = watched
    place = Place(stack, "p")
    place.mount(stack, shared)
    held = connection(where)
    held.connect()
    for _ in range(3):
        shared.kill_server()
        assert values(scrape(where)[2])["veneer_mounts", ()] == 1
        assert read_at(place.mnt / "f", 4, 0) == blob(300_000)[:4]
    held.close()


def test_the_socket_goes_with_the_server_and_the_next_takes_one_that_was_left(stack, watched, serve):
    shared, where = watched
    assert shared.stop() == 0
    assert not where.exists()
    shared = serve(f"unix:{where}")
    shared.kill()
    assert where.exists()
    serve(f"unix:{where}")
    assert scrape(where)[0] == 200


def test_one_that_was_told_to_go_leaves_the_place_to_the_next(stack, watched, serve):
    shared, where = watched
    place, asking = Place(stack, "p"), connection(where)
    place.mount(stack, shared)
    asking.connect()
    shared.signal(signal.SIGTERM)
    assert wait_until(lambda: not where.exists())
    serve(f"unix:{where}")
    assert values(scrape(where)[2])["veneer_mounts", ()] == 0
    asking.close()
    assert read_at(place.mnt / "f", 4, 0) == blob(300_000)[:4]
    linux.umount(place.mnt)
    assert shared.process.wait(20) == 0


def test_another_server_that_is_there_stays(stack, watched, veneer_bin):
    (stack.base / "other").mkdir(mode=0o700)
    said = subprocess.run([veneer_bin, "server", "--metrics", f"unix:{watched[1]}"], capture_output=True, text=True, timeout=20,
                          env={**os.environ, "VENEER_RUNTIME_DIR": str(stack.base / "other")})
    assert said.returncode == 1 and "Address already in use" in said.stderr
    assert scrape(watched[1])[0] == 200
    assert watched[0].process.poll() is None


def test_another_program_goes_on_answering(stack, watched, veneer_bin):
    shared, where = watched
    place = Place(stack, "p")
    place.mount(stack, shared)
    said = subprocess.run([veneer_bin, "server", "--upgrade", "--idle", "86400", "--metrics", f"unix:{where}"], text=True,
                          capture_output=True, timeout=60, env={**os.environ, **shared.environment})
    assert (said.returncode, said.stderr) == (0, "")
    try:
        assert values(scrape(where)[2])["veneer_mounts", ()] == 1
    finally:
        with shared.client() as client:
            server = client.ping()[0]
        for pid in (int(re.search(r"PPid:\s+(\d+)", open(f"/proc/{server}/status").read()).group(1)), server):
            kill(pid)
            wait_for_death(pid)


def test_silent_and_endless_clients_do_not_keep_others_out_for_long(stack, watched):
    """More clients than there is room for, which send nothing, half a request or too much of one."""
    shared, where = watched
    place = Place(stack, "p")
    place.mount(stack, shared)
    held = []
    for number in range(60):
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        with contextlib.suppress(OSError):
            s.connect(str(where))
            s.send([b"", b"GET /metrics HTTP/1.1\r\nHost:", b"GET /" + b"x" * 100_000][number % 3])
        held.append(s)

    def answers():
        with contextlib.suppress(OSError):
            return scrape(where, timeout=2)[0] == 200
        return False
    # meanwhile the mounts do not notice
    assert read_at(place.mnt / "f", 4, 0) == blob(300_000)[:4]
    assert wait_until(answers, 60)
    for s in held:
        s.close()
    assert wait_until(answers, 20)
    assert shared.process.poll() is None


def test_mounts_come_and_go_while_many_ask(stack, watched):
    shared, where = watched
    done, texts, failures = threading.Event(), [], []

    def ask():
        while not done.is_set():
            try:
                texts.append(scrape(where)[2])
            except OSError as e:
                failures.append(e)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    places = [Place(stack, f"p{k}") for k in range(4)]
    for number in range(40):
        place = places[number % 4]
        place.mount(stack, shared)
        write_at(place.mnt / "f", b"x", number)
        linux.umount(place.mnt)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures and len(texts) > 10
    assert {values(text)["veneer_mounts", ()] for text in texts[:50]} <= set(range(6))


def test_a_mount_starts_a_server_that_answers_and_mounts_where_it_cannot(stack, veneer_bin):
    (stack.lower() / "f").write_text("f")
    run, where, place = stack.base / "run", stack.base / "m", Place(stack, "p")
    for given in (f"unix:{where}", "nonsense"):
        run.mkdir(mode=0o700)
        environment = {"VENEER_RUNTIME_DIR": str(run), "VENEER_METRICS": given}
        shared = type("Started", (), {"environment": environment})
        place.mount(stack, shared)
        with open(place.mnt / "f") as f:
            assert f.read() == "f"
        if given != "nonsense":
            assert values(scrape(where)[2])["veneer_mounts", ()] == 1
        server = json.loads(subprocess.run([veneer_bin, "stats", "--json"], capture_output=True, check=True,
                                           env={**os.environ, **environment}).stdout)["server"]["pid"]
        linux.umount(place.mnt)
        parent = int(re.search(r"PPid:\s+(\d+)", open(f"/proc/{server}/status").read()).group(1))
        os.kill(parent, signal.SIGTERM)
        wait_for_death(server)
        shutil.rmtree(run)
