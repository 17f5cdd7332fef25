# SPDX-License-Identifier: Apache-2.0
"""Packages are installed, a repository is cloned and a database is written in three containers of one server, which is
killed at random moments: nothing fails, and what comes of it is what comes of it without deaths."""
import hashlib
import os
import random
import subprocess
import sys

import pytest

from support import linux, rootfs
from support.content import blob
from support.killer import Killer
from support.places import Place
from support.server import wait_until

pytestmark = [pytest.mark.needs_root("to change the root directory and own what packages hold"),
              pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]

_PROGRAMS = ("sh", "cat", "chroot", "cp", "cut", "diff", "dpkg", "dpkg-deb", "dpkg-query", "dpkg-split", "dpkg-trigger",
             "env", "find", "git", "grep", "gzip", "ldconfig", "ln", "ls", "mkdir", "mv", "rm", "seq", "sha256sum",
             "sort", "sqlite3", "start-stop-daemon", "tar", "touch", "xargs")
_LIMIT_S = 600
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1", "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb"}

# $1 is the round; each leaves what the next one starts from.
_INSTALL = r"""
dpkg -i /packages/*_1.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
echo changed >>/etc/pack0.conf
dpkg --force-confold -i /packages/*_2.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
test -z "$(dpkg --audit)"
for p in $(seq 0 2 3); do dpkg -r pack$p >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }; done
dpkg -P pack1 >/tmp/log 2>&1
if dpkg -V | grep -v '/etc/pack'; then exit 1; fi
dpkg-query -W -f '${Package} ${Version} ${Status}\n' | sort >/srv/installed-$1
find /usr/share/pack* -type f | sort | xargs sha256sum >/srv/sums-$1
dpkg -P pack0 pack2 pack3 >/tmp/log 2>&1
"""
_CLONE = r"""
cd /srv
git clone -q /repository.git clone-$1
git -C clone-$1 checkout -q older
git -C clone-$1 checkout -q main
git clone -q --no-local /repository.git copy-$1
git -C copy-$1 repack -q -a -d -f
for c in clone copy; do
    git -C $c-$1 fsck --full --strict >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    test -z "$(git -C $c-$1 status --porcelain)"
done
mv clone-$1/files work-$1
git -C copy-$1 rev-parse HEAD >head-$1
rm -rf clone-$1
git -C copy-$1 rm -q -r files/d1 && mv copy-$1/files rest-$1
rm -rf copy-$1
"""
_DATABASE = r"""
db=/srv/db-$1
for journal in delete wal; do
    printf 'pragma journal_mode=%s;\n' $journal
    printf 'create table if not exists t (k integer primary key, v text, n int);\n'
    for k in $(seq 1 10); do
        printf "begin; with recursive c(x) as (values(1) union all select x+1 from c where x < 60)"
        printf " insert into t(v, n) select hex(x * %d * 7919) || '-%s', x from c; commit;\n" $k $journal
        printf 'update t set n = n + %d where k %% 7 = %d;\n' $k $((k % 7))
        printf 'delete from t where k %% 31 = %d;\n' $((k % 31))
    done
done >/tmp/statements
sqlite3 -bail $db </tmp/statements >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
test "$(sqlite3 $db 'pragma integrity_check')" = ok
sqlite3 $db vacuum
sqlite3 $db .dump >/srv/dump-$1
rm $db
"""
_JOBS = {"install": _INSTALL, "clone": _CLONE, "database": _DATABASE}


def _run(*command, **keywords):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **keywords)
    assert done.returncode == 0, done.stdout.decode(errors="replace")


def _make_package(top, number, version):
    tree = top / f"tree-{number}-{version}"
    dice = random.Random(f"{number} {version}")
    for k in range(16):
        path = tree / "usr/share" / f"pack{number}" / f"d{k % 4}" / f"f{k}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob(dice.choice((0, 300, 6000, 50_000)), dice.randrange(1000)))
    (path.parent / "link").symlink_to(path.name)
    (tree / "etc").mkdir()
    (tree / f"etc/pack{number}.conf").write_text(f"version {version}\n")
    control = tree / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(f"Package: pack{number}\nVersion: {version}\nArchitecture: all\n"
                                     "Maintainer: nobody <nobody@example.org>\nDescription: files\n")
    (control / "conffiles").write_text(f"/etc/pack{number}.conf\n")
    script = control / "postinst"
    script.write_text(f"#!/bin/sh\necho \"$1 {number} {version}\" >>/var/log/scripts\n")
    script.chmod(0o755)
    _run("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, top / f"pack{number}_{version}.deb")
    _run("rm", "-r", tree)


def _make_repository(path):
    stream = []
    for commit in range(6):
        stream += [f"commit refs/heads/main\ncommitter nobody <n@example.org> {1700000000 + commit} +0000\n"
                   f"data <<END\ncommit {commit}\nEND\n".encode()]
        for k in range(commit, 100, 1 + commit % 3):
            data = blob(100 + 40 * (k % 60), commit * 1000 + k).hex().encode()
            stream += [f"M 100644 inline files/d{k % 6}/f{k}\ndata {len(data)}\n".encode(), data, b"\n"]
        if commit == 3:
            stream += [b"reset refs/heads/older\nfrom refs/heads/main\n\n"]
    env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", HOME="/nonexistent")
    _run("git", "init", "-q", "--bare", "-b", "main", path, env=env)
    _run("git", "-C", path, "fast-import", "--quiet", input=b"".join(stream), env=env)


def _fill(lower):
    rootfs.make(lower, _PROGRAMS)
    (lower / "packages").mkdir()
    for number in range(4):
        for version in (1, 2):
            _make_package(lower / "packages", number, version)
    _make_repository(lower / "repository.git")
    (lower / "usr/bin/git-upload-pack").symlink_to("git")


class Container:
    def __init__(self, stack, shared, name, job):
        self.name, self.job = name, job
        self.mnt = Place(stack, name).mount(stack, shared)
        for device in rootfs.DEVICES:
            linux.mount(f"/dev/{device}", self.mnt / "dev" / device, None, linux.MS_BIND)

    def start(self, rounds):
        script = f'for r in $(seq 1 {rounds}); do /bin/sh -euc "$0" job $r; done'
        return subprocess.Popen(["chroot", str(self.mnt), "/bin/sh", "-euc", script, self.job], env=_ENV,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def digest(self):
        """A line for each thing in it."""
        lines = []
        for top, dirs, files in os.walk(self.mnt):
            for name in dirs + files:
                path = os.path.join(top, name)
                shown, status = os.path.relpath(path, self.mnt), os.lstat(path)
                # these tell the time
                if shown.startswith(("tmp/", "var/log/dpkg.log", "dev/")):
                    continue
                line = f"{shown} {status.st_mode:o} {status.st_uid} {status.st_nlink}"
                if os.path.islink(path):
                    line += f" {os.readlink(path)}"
                elif name in files:
                    with open(path, "rb") as f:
                        line += f" {hashlib.sha256(f.read()).hexdigest()}"
                lines.append(line)
        return sorted(lines)

    def close(self):
        for device in rootfs.DEVICES:
            linux.umount(self.mnt / "dev" / device)
        linux.umount(self.mnt)


def _finish(processes):
    for name, process in processes.items():
        text, _ = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0, f"{name}: {process.returncode}: {text.decode(errors='replace')}"


def _run_all(stack, shared, suffix, rounds, seconds):
    """What the three are afterwards, and how often the server died."""
    containers = [Container(stack, shared, name + suffix, job) for name, job in _JOBS.items()]
    with Killer(shared, seconds) as killer:
        processes = {container.name: container.start(rounds) for container in containers}
        try:
            _finish(processes)
        finally:
            for process in processes.values():
                process.kill()
    assert shared.process.poll() is None
    found = [container.digest() for container in containers]
    for container in containers:
        container.close()
    assert wait_until(lambda: shared.count() == 0, 120, 0.02)
    return found, killer.kills


def _compare(stack, shared, rounds, deaths):
    lacking = rootfs.missing(_PROGRAMS)
    if lacking:
        pytest.skip("not on this host: " + ", ".join(lacking))
    _fill(stack.lower())
    stack.remember_lowers()
    want, _ = _run_all(stack, shared, "-undisturbed", rounds, 0)
    got, kills = _run_all(stack, shared, "-killed", rounds, 0.1)
    for name, one, other in zip(_JOBS, want, got):
        assert one == other, f"{name}: {sorted(set(one) ^ set(other))[:10]}"
    assert kills >= deaths


def test_containers_do_not_notice(stack, shared):
    _compare(stack, shared, 2, 3)


@pytest.mark.slow
def test_containers_do_not_notice_for_long(stack, shared):
    _compare(stack, shared, 40, 100)
