# SPDX-License-Identifier: Apache-2.0
"""The program with musl as its libc, as on Alpine: with libraries that contrib/setup.sh --musl builds, it serves as the other does."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

from cleanroot import CACHE
from conftest import run
from support.repository import REPOSITORY

pytestmark = pytest.mark.slow

# Command line, layers, block copies; many threads, and a server that takes over.
_SMOKE = [
    ("tests/integration/test_layers.py", []),
    ("tests/integration/test_command_line.py", []),
    ("tests/integration/test_copy_on_write.py", []),
    ("tests/integration/test_whiteout.py", ["--mode=server"]),
    ("tests/integration/test_concurrency.py", ["--mode=server"]),
    ("tests/integration/test_takeover.py", ["--mode=server"]),
]


@pytest.fixture(scope="session")
def libraries():
    """Made once and kept, in VENEER_MUSL_PREFIX or beside what the clean roots are made of."""
    path = pathlib.Path(os.environ.get("VENEER_MUSL_PREFIX", CACHE / "musl"))
    if not (path / "cross.ini").exists():
        done = subprocess.run([REPOSITORY / "contrib/setup.sh", "--musl"], env={**os.environ, "VENEER_MUSL_PREFIX": str(path)},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        if re.search("could not (fetch|read|install)|found no Debian", done.stdout):
            pytest.skip(done.stdout.strip().splitlines()[-1])
        assert done.returncode == 0, done.stdout[-4000:]
    return path


@pytest.fixture(scope="session")
def with_musl(libraries, scratch):
    build = scratch / "build-musl"
    said = run("meson", "setup", build, REPOSITORY, "--cross-file", libraries / "cross.ini", f"-Dfuse_prefix={libraries}",
               "--buildtype=release", "-Db_lto=true", "-Db_pie=false", "-Dstatic=true", "-Dtests=false")
    assert re.search(r'Checking for function "malloc_trim".*NO', said), "that is glibc"
    warned = run("ninja", "-C", build)
    assert "warning:" not in warned, warned
    return build / "veneer"


def test_it_needs_no_library_and_has_no_glibc(with_musl):
    headers = run("readelf", "--program-headers", "--dynamic", "--wide", with_musl)
    assert "INTERP" not in headers and "(NEEDED)" not in headers
    # A thread has the stack that it has with glibc.
    assert int(re.search(r"GNU_STACK\s+\S+ \S+ \S+ \S+ (\S+)", headers)[1], 16) == 8 << 20, headers
    assert b"GNU C Library" not in with_musl.read_bytes()
    assert "(veneer)" in run(with_musl, "--version")


@pytest.mark.parametrize("file, options", _SMOKE)
def test_it_serves_as_the_other_build_does(with_musl, file, options):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not large", file, *options],
                          cwd=REPOSITORY, env={**os.environ, "VENEER_BIN": str(with_musl)},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    assert done.returncode == 0, done.stdout[-6000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 5
