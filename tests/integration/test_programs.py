# SPDX-License-Identifier: Apache-2.0
"""Real programs inside the mount, and the same on an ordinary directory: equal trees."""
import os
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest

from support import treestate
from support.child import in_child
from support.content import blob


def _needs(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def _run(directory, *command, **kwargs):
    env = dict(os.environ, LC_ALL="C", GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1",
               GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a",
               GIT_COMMITTER_EMAIL="a@b", GIT_AUTHOR_DATE="2001-01-01T00:00:00Z",
               GIT_COMMITTER_DATE="2001-01-01T00:00:00Z", SOURCE_DATE_EPOCH="1000000000",
               PYTHONDONTWRITEBYTECODE="")
    ran = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True,
                         timeout=100, **kwargs)
    assert ran.returncode == 0, f"{command}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    return ran.stdout


def _tree(root, times=None):
    """The properties that two directories must share. times: None, "files" or "all"."""
    found = {}
    for path in treestate.walk(root):
        full = os.path.join(root, path)
        st = os.lstat(full)
        what = [stat.filemode(st.st_mode), st.st_uid, st.st_gid]
        if stat.S_ISREG(st.st_mode):
            with open(full, "rb") as f:
                what += [st.st_size, st.st_nlink, hash(f.read())]
        elif stat.S_ISLNK(st.st_mode):
            what.append(os.readlink(full))
        if path != "." and (times == "all" or times and not stat.S_ISDIR(st.st_mode)):
            what.append(st.st_mtime_ns)
        found[path] = what
    return found


def _both(stack, plain, populate):
    """The same start in a lower and in the plain directory; returns the two places to work in."""
    (stack.lower() / "w").mkdir()
    populate(stack.lower() / "w")
    subprocess.run(["cp", "-a", stack.lower() / "w", plain / "w"], check=True)
    return stack.mount() / "w", plain / "w"


def _sources(directory):
    for d in range(8):
        (directory / f"dir{d}").mkdir()
        for f in range(12):
            path = directory / f"dir{d}" / f"file{f}"
            path.write_bytes(blob(f * 3000 + d, d * 100 + f))
            path.chmod(0o644 if f % 3 else 0o755)
            os.utime(path, (10**9 + f, 10**9 + d))
        (directory / f"dir{d}" / "link").symlink_to("file1")
        os.link(directory / f"dir{d}" / "file2", directory / f"dir{d}" / "hard")


def test_tar_packs_a_merged_tree_and_unpacks_over_a_lower_one(stack, plain):
    _needs("tar")
    m, p = _both(stack, plain, _sources)
    for w in (m, p):
        _run(w, "tar", "cf", "../out.tar", "--sort=name", "--numeric-owner", ".")
        (w / "unpacked").mkdir()
        _run(w, "tar", "xf", "../out.tar", "-C", "unpacked", "-p")
        shutil.rmtree(w / "dir3")
        _run(w, "tar", "xf", "../out.tar", "-p")
    assert _tree(m, "all") == _tree(p, "all")
    assert _tree(stack.remount() / "w", "all") == _tree(p, "all")


def test_git_commits_clones_and_collects(stack, plain):
    _needs("git")

    def repository(directory):
        _sources(directory)
        _run(directory, "git", "init", "-q", "-b", "main")
        _run(directory, "git", "add", "-A")
        _run(directory, "git", "commit", "-q", "-m", "first")
    m, p = _both(stack, plain, repository)
    heads = []
    for w in (m, p):
        (w / "dir1" / "file1").write_text("changed\n")
        shutil.rmtree(w / "dir2")
        (w / "new").write_text("new\n")
        _run(w, "git", "add", "-A")
        _run(w, "git", "commit", "-q", "-m", "second")
        _run(w, "git", "checkout", "-q", "HEAD~1")
        _run(w, "git", "checkout", "-q", "main")
        _run(w, "git", "gc", "-q")
        _run(w, "git", "clone", "-q", ".", "../clone")
        _run(w, "git", "fsck", "--strict")
        assert _run(w, "git", "status", "--porcelain") == ""
        heads.append(_run(w.parent / "clone", "git", "rev-parse", "HEAD"))
    assert heads[0] == heads[1]
    _run(stack.remount() / "w", "git", "fsck", "--strict")
    assert _run(stack.mnt / "w", "git", "status", "--porcelain") == ""


def _sqlite_load(path, journal):
    db = sqlite3.connect(path, isolation_level=None, timeout=20)
    db.execute(f"pragma journal_mode={journal}")
    db.execute("pragma mmap_size=4000000")
    for i in range(60):
        db.execute("begin")
        for j in range(20):
            key = (i * 7919 + j * 104_729) % 5000
            db.execute("insert or replace into t values (?, ?, ?)", (key, blob(200, key), i))
        db.execute("delete from t where k % 97 = ?", (i,))
        db.execute("rollback" if i % 10 == 9 else "commit")
    db.execute("vacuum")
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    rows = db.execute("select * from t order by k").fetchall()
    db.close()
    return rows


@pytest.mark.parametrize("journal", ["delete", "wal", "truncate"])
def test_sqlite_on_a_lower_database(stack, plain, journal):
    def database(directory):
        db = sqlite3.connect(directory / "db")
        db.execute("create table t (k integer primary key, v blob, n integer)")
        db.executemany("insert into t values (?, ?, 0)", [(k, blob(200, k)) for k in range(5000)])
        db.commit()
        db.close()
    m, p = _both(stack, plain, database)
    results = plain / "results"

    def work(directory, name):
        (results / name).write_text(repr(_sqlite_load(directory / "db", journal)))
    results.mkdir()
    in_child(work, m, "m")
    in_child(work, p, "p")
    assert (results / "m").read_text() == (results / "p").read_text()
    m = stack.remount() / "w"
    db = sqlite3.connect(m / "db")
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    assert repr(db.execute("select * from t order by k").fetchall()) == (results / "p").read_text()
    db.close()


# By a program of its own: SQLite locks by process. It answers each line with what the query sees then.
_SQLITE_READER = """
import sqlite3, sys
db = sqlite3.connect("file:db?mode=ro", uri=True, isolation_level=None)
for line in sys.stdin:
    try:
        print(db.execute(line).fetchone(), flush=True)
    except sqlite3.Error as e:
        print(e, flush=True)
"""


def test_who_only_reads_a_lower_sqlite_database_sees_what_others_write(stack):
    """And holds them up while it reads: both would go wrong if its descriptor stayed with the lower file."""
    db = sqlite3.connect(stack.lower() / "db")
    db.execute("create table t (k integer primary key, v blob, n integer)")
    db.executemany("insert into t values (?, ?, 0)", [(k, blob(200, k)) for k in range(5000)])
    db.commit()
    db.close()
    m = stack.mount()
    with subprocess.Popen([sys.executable, "-c", _SQLITE_READER], cwd=m, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as reader:
        def ask(query):
            reader.stdin.write(query + "\n")
            reader.stdin.flush()
            return reader.stdout.readline().strip()
        assert ask("select sum(n) from t") == "(0,)"
        writer = sqlite3.connect(m / "db", isolation_level=None, timeout=0)
        for n in range(1, 4):
            writer.execute("update t set n = ? where k % 7 = 0", (n,))
            assert ask("select sum(n) from t") == f"({715 * n},)"
        assert ask("begin") == "None"
        assert ask("select sum(n) from t") == f"({715 * 3},)"
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.execute("update t set n = 9")
        assert ask("commit") == "None"
        writer.execute("update t set n = 9")
        assert ask("select sum(n) from t") == "(45000,)"
        assert ask("pragma integrity_check") == "('ok',)"
        writer.close()
        reader.stdin.close()


def test_dpkg_deb_unpacks_over_a_lower_tree(stack, plain):
    _needs("dpkg-deb")
    package = plain / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN" / "control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n")
    (package / "usr").mkdir()
    _sources(package / "usr")
    _run(plain, "dpkg-deb", "--root-owner-group", "-b", "package", "x.deb")

    def old(directory):
        (directory / "usr").mkdir()
        _sources(directory / "usr")
        (directory / "usr" / "dir0" / "file5").write_text("old")
    m, p = _both(stack, plain, old)
    for w in (m, p):
        _run(w, "dpkg-deb", "-x", plain / "x.deb", ".")
    assert _tree(m, "files") == _tree(p, "files")


def test_gcc_compiles_archives_and_runs(stack, plain):
    _needs("gcc")

    def sources(directory):
        for i in range(6):
            (directory / f"f{i}.c").write_text(f"int f{i}(int x) {{ return x + {i}; }}\n")
        (directory / "main.c").write_text(
            "".join(f"int f{i}(int);\n" for i in range(6))
            + "int main(void) { return " + " + ".join(f"f{i}({i})" for i in range(6)) + "; }\n")
    m, p = _both(stack, plain, sources)
    for w in (m, p):
        for i in range(6):
            _run(w, "gcc", "-O1", "-c", f"f{i}.c")
        _run(w, "ar", "rcD", "libf.a", *[f"f{i}.o" for i in range(6)])
        _run(w, "gcc", "-shared", "-fPIC", "-o", "libg.so", "f1.c")
        _run(w, "gcc", "-o", "prog", "main.c", "libf.a", "-Wl,--build-id=none")
        assert subprocess.run([w / "prog"]).returncode == 30
        _run(w, "strip", "prog")
        assert subprocess.run([w / "prog"]).returncode == 30
    assert _tree(m) == _tree(p)
    stack.remount()
    assert subprocess.run([m / "prog"]).returncode == 30


def test_python_compiles_a_package(stack, plain):
    def sources(directory):
        for i in range(30):
            (directory / f"m{i}.py").write_text(f"def f(x):\n    return x * {i}\n" * 20)
            os.utime(directory / f"m{i}.py", (10**9, 10**9))
    m, p = _both(stack, plain, sources)
    for w in (m, p):
        _run(w, sys.executable, "-m", "compileall", "-q", "-d", "w", ".")
    assert _tree(m) == _tree(p)
    assert _run(m, sys.executable, "-c", "import m7; print(m7.f(2))") == "14\n"


def test_sed_in_place_cp_rsync_like_copies_and_moves(stack, plain):
    m, p = _both(stack, plain, _sources)
    for w in (m, p):
        (w / "text").write_text("one\ntwo\n" * 1000)
        _run(w, "sed", "-i", "s/one/three/", "text")
        _run(w, "cp", "-a", "dir0", "copy")
        _run(w, "cp", "-al", "dir1", "linked")
        _run(w, "mv", "dir2", "moved")
        _run(w, "mv", "-T", "dir4/file3", "dir5/file3")
        _run(w, "truncate", "-s", "12345", "dir6/file9")
        _run(w, "dd", "if=/dev/zero", "of=dir6/file10", "bs=1000", "seek=3", "count=4",
             "conv=notrunc", "status=none")
        _run(w, "chmod", "-R", "go-rwx", "dir7")
        _run(w, "find", ".", "-name", "file11", "-delete")
    want = _tree(p)
    # a lower file with two names: the link may be broken by the first change, as in overlayfs
    for got in (_tree(m), _tree(stack.remount() / "w")):
        assert got.keys() == want.keys()
        for path, what in want.items():
            assert [x for i, x in enumerate(got[path]) if i != 4] \
                == [x for i, x in enumerate(what) if i != 4], path
