# SPDX-License-Identifier: Apache-2.0
"""rpm's SQLite database in a lower layer, changed in place: fuse-overlayfs 1.16 corrupts such databases of some 90 MB
(fuse-overlayfs issue 475). The same transactions on an ordinary directory give the same pages."""
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess

import pytest

from support import linux
from support.killer import Killer
from support.places import Place
from support.server import wait_until

_FAKETIME = next(iter(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
# (packages that the layer has, paths that each lists, transactions): 3 MB, and 90
_SIZES = {"short": (4, 6_000, 12), "long": (40, 16_000, 200)}
_BLOCK = 4096
_OPTIONS = ["", "io=cached", "io=cached,writeback=on", "share=pages"]


@pytest.fixture(scope="module", params=["short", pytest.param("long", marks=pytest.mark.slow)])
def world(request, session_dir):
    """(directory with the packages, with the database that a layer has; how many packages, and transactions)."""
    if not shutil.which("rpmbuild") or not _FAKETIME:
        pytest.skip("rpm or faketime is not installed")
    installed, paths, transactions = _SIZES[request.param]
    top = session_dir / f"rpm-{request.param}"
    top.mkdir()
    count = installed + 4
    for k in range(count):
        listed = "".join(f"%ghost /usr/share/p{k}/directory-{n // 50}/file-{n}\n" for n in range(paths // (1 if k < installed else 8)))
        (top / f"p{k}.spec").write_text(f"Name: p{k}\nVersion: 1\nRelease: 1\nSummary: package {k}\nLicense: none\nBuildArch: noarch\n"
                                        f"%description\nA package.\n%files\n{listed}")
        _call("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}/top", "--define", f"_rpmdir {top}", top / f"p{k}.spec")
    database = top / "database"
    database.mkdir()
    _rpm(database, "-i", "--justdb", "--nodeps", *(_package(top, k) for k in range(installed)))
    yield top, database, count, transactions
    shutil.rmtree(top)


def _call(*command):
    """Every clock stands still, so that the same transactions write the same bytes."""
    env = {**os.environ, "LD_PRELOAD": str(_FAKETIME), "FAKETIME": "2026-01-01 00:00:00", "SOURCE_DATE_EPOCH": "1000000000", "LC_ALL": "C"}
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    return done.stdout


def _rpm(database, *words):
    return _call("rpm", "--dbpath", database, *words)


def _package(top, k):
    return top / "noarch" / f"p{k}-1-1.noarch.rpm"


def _transact(world, database, shared=None):
    """Installs, removals and a database built anew now and then. The server gets its time for each."""
    top, _, count, transactions = world
    dice = random.Random(475)
    there = {int(name[1:].split("-")[0]) for name in _rpm(database, "-qa").split()}
    for n in range(transactions):
        k = dice.randrange(count)
        if shared:
            shared.watch()
        if n % 6 == 5:
            _rpm(database, "--rebuilddb")
        elif k in there:
            _rpm(database, "-e", "--justdb", "--nodeps", f"p{k}")
        else:
            _rpm(database, "-i", "--justdb", "--nodeps", _package(top, k))
        there ^= {k} if n % 6 != 5 else set()


def _expect_same(database, other):
    """Page by page, by SQLite's own check, and by what rpm finds."""
    mine, its = (path / "rpmdb.sqlite" for path in (database, other))
    with open(mine, "rb") as a, open(its, "rb") as b:
        page = 0
        while (x := a.read(_BLOCK)) or b.peek(1):
            assert x == b.read(_BLOCK), f"page {page}"
            page += 1
    connection = sqlite3.connect(f"file:{mine}?mode=ro", uri=True)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    assert _rpm(database, "-qa") == _rpm(other, "-qa")
    _rpm(database, "--verifydb")


def _put(world, stack):
    shutil.copytree(world[1], stack.lower() / "database")
    stack.remember_lowers()


@pytest.fixture(scope="module")
def ordinary(world):
    """What the transactions make of the database in an ordinary directory."""
    database = world[0] / "ordinary"
    shutil.copytree(world[1], database)
    _transact(world, database)
    return database


@pytest.mark.parametrize("options", _OPTIONS, ids=["auto", "cached", "writeback", "share"])
def test_transactions_change_a_lower_database_as_an_ordinary_one(world, ordinary, stack, shared, options):
    if "share" in options and os.geteuid() != 0:
        pytest.skip("share=pages takes CAP_SYS_ADMIN in the user namespace")
    _put(world, stack)
    mnt = Place(stack, "p").mount(stack, shared, *filter(None, [options]))
    _transact(world, mnt / "database", shared)
    _expect_same(mnt / "database", ordinary)


def test_so_they_do_while_the_server_is_killed(world, ordinary, stack, shared):
    _put(world, stack)
    mnt = Place(stack, "p").mount(stack, shared)
    with Killer(shared, 0.3):
        _transact(world, mnt / "database", shared)
    _expect_same(mnt / "database", ordinary)


def test_and_the_next_mount_shows_it(world, ordinary, stack, shared):
    _put(world, stack)
    place = Place(stack, "p")
    mnt = place.mount(stack, shared)
    _transact(world, mnt / "database", shared)
    linux.umount(mnt)
    assert wait_until(lambda: not shared.count())
    _expect_same(place.mount(stack, shared) / "database", ordinary)
