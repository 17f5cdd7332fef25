# SPDX-License-Identifier: Apache-2.0
"""mount -t veneer and fstab(5): mount(8) runs /sbin/mount.veneer, and umount(8) /sbin/umount.fuse."""
import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mount(8) mounts for root")

# The helper is put into /sbin for these processes alone. Standalone, so that nothing stays behind.
_SETUP = """
set -eu
mount -t overlay overlay -o lowerdir="$D/sbin":/usr/sbin /usr/sbin
entry() { awk -v m="$D/merged" '$5 == m' /proc/self/mountinfo; }
"""
_FSTAB = "{source} {d}/merged veneer lowerdir={d}/lower,upperdir={d}/upper,workdir={d}/work,standalone{more} 0 0\n"


@pytest.fixture
def place(scratch, program):
    d = scratch / "helper"
    for name in ["sbin", "lower", "upper", "work", "merged"]:
        (d / name).mkdir(parents=True)
    (d / "lower" / "file").write_text("lower\n")
    for name in ("mount.veneer", "umount.veneer", "umount.fuse.fuse-overlayfs", "umount.fuse"):
        (d / "sbin" / name).symlink_to(program)
    yield d
    shutil.rmtree(d)


def shell(d, script, **env):
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", _SETUP + script], cwd=d,
                          env={**os.environ, "D": str(d), "VENEER_STATE_DIR": "", **env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=60)
    return done.returncode, done.stdout


def good(d, script, **env):
    code, said = shell(d, script, **env)
    assert code == 0, said
    return said


OPTIONS = '-o lowerdir="$D/lower",upperdir="$D/upper",workdir="$D/work",standalone'


def test_mount_by_type(place):
    said = good(place, f"""
        mount -t veneer veneer "$D/merged" {OPTIONS}
        cat "$D/merged/file"; echo written >"$D/merged/file"; echo new >"$D/merged/new"
        entry
        umount "$D/merged"
        test -z "$(entry)" """)
    assert said.startswith("lower\n") and " - fuse.fuse-overlayfs veneer " in said
    assert "unknown" not in said
    assert (place / "upper/file").read_text() == "written\n" and (place / "upper/new").read_text() == "new\n"


def test_a_server_can_serve_it(place, program):
    """In the foreground and ended with the test; without standalone the mount finds it."""
    said = good(place, """
        export VENEER_RUNTIME_DIR=$D/run; mkdir -m 700 "$D/run"
        "$P" server --alone 2>"$D/log" & server=$!
        for i in $(seq 300); do [ -n "$(ls "$D"/run/*.sock 2>/dev/null)" ] && break; sleep 0.1; done
        mount -t veneer disk "$D/merged" -o lowerdir="$D/lower"
        entry; "$P" stats --json
        umount "$D/merged"; kill $server; wait $server || :""", P=str(program))
    assert " fuse.fuse-overlayfs disk " in said and f'{place}/merged' in said.partition("{")[2]


def test_a_line_of_fstab(place):
    (place / "fstab").write_text(_FSTAB.format(
        source="my\\040union", d=place, more=",nofail,_netdev,noauto,user,nodev,comment=x,x-systemd.automount,x-mount.mkdir"))
    said = good(place, """
        mount -T "$D/fstab" "$D/merged"
        cat "$D/merged/file"
        entry
        umount "$D/merged" """)
    assert said.startswith("lower\n"), said
    assert "my\\040union" in said and "nosuid,nodev" in said


def test_mount_all_sees_that_it_is_mounted(place):
    (place / "fstab").write_text(_FSTAB.format(source="veneer", d=place, more=""))
    said = good(place, """
        mount -T "$D/fstab" -a
        mount -T "$D/fstab" -a
        entry
        umount "$D/merged" """)
    assert len(said.splitlines()) == 1, said


def test_a_read_only_line_of_fstab(place):
    (place / "fstab").write_text(_FSTAB.format(source="veneer", d=place, more=",ro"))
    code, said = shell(place, 'mount -T "$D/fstab" -a; entry; if echo x >"$D/merged/x"; then exit 9; fi; umount "$D/merged"')
    assert code == 0 and "Read-only file system" in said and " ro," in said
    assert not any((place / "upper").iterdir())


def test_a_source_with_commas(place):
    said = good(place, f"""
        mount -t veneer 'a,b\\c' "$D/merged" {OPTIONS}
        findmnt -rn -o SOURCE "$D/merged"
        umount "$D/merged" """)
    assert said.splitlines()[-1].replace("\\x5c", "\\") == "a,b\\c"


_UMOUNTS = {"": 'umount "$D/merged"', "verbose": 'umount -v -n "$D/merged"', "lazy": 'umount -l "$D/merged"', "recursive": 'umount -R "$D/merged"', "systemd": 'umount "$D/merged" -c', "relative": 'cd "$D"; umount merged', "force": 'umount -f "$D/merged"',
            "namespace": 'umount -N /proc/$$/ns/mnt "$D/merged"'}


@pytest.mark.parametrize("way", _UMOUNTS)
def test_umount_returns_when_the_upper_is_closed(place, program, way):
    said = good(place, f"""
        truncate -s 64M "$D/lower/big"
        mount -t veneer veneer "$D/merged" {OPTIONS}
        dd if=/dev/urandom of="$D/merged/big" bs=1M count=32 conv=notrunc status=none
        {_UMOUNTS[way]}
        test -z "$(entry)"; ls "$D/work/work"; "$P" inspect "$D/upper" | grep -o 'closed cleanly'""" , P=str(program))
    assert said.splitlines()[-1] == "closed cleanly" and "veneer-" not in said.replace(str(place), ""), said


def test_options_behind_the_words_are_seen_by_every_getopt(place):
    """musl's, and glibc's with this variable, stop at the first word."""
    good(place, f"""
        export POSIXLY_CORRECT=1
        mount -t veneer {OPTIONS} veneer "$D/merged"
        umount -l -v "$D/merged"; test -z "$(entry)" """)


def test_umount_without_the_helper_unmounts_too(place):
    good(place, f"""mount -t veneer veneer "$D/merged" {OPTIONS}; umount -i "$D/merged"; test -z "$(entry)" """)


def test_umount_of_another_file_system_is_left_to_umount(place):
    """Called for it by hand: there is no other FUSE file system here."""
    said = good(place, """
        mount -t tmpfs tmpfs "$D/merged"
        umount.fuse "$D/merged" -n -v
        test -z "$(entry)" """)
    assert said == f"umount: {place}/merged unmounted\n"


def test_umount_of_a_busy_mount_says_why_and_ends_with_32(place):
    code, said = shell(place, f"""
        mount -t veneer veneer "$D/merged" {OPTIONS}
        sleep 60 <"$D/merged/file" & sleeper=$!
        r=0; umount "$D/merged" || r=$?
        kill $sleeper; wait $sleeper || :
        umount "$D/merged"; exit $r""")
    assert code == 32 and "is in use" in said and "(sleep) has a file open in it" in said


def test_fake_mounts_nothing(place):
    said = good(place, f'mount -f -t veneer veneer "$D/merged" {OPTIONS}; entry; ls -A "$D/work"')
    assert said == ""


@pytest.mark.parametrize("options, sentence", [
    ("-o upperdir=/x", "mount.veneer: lowerdir not specified"),
    ("-o lowerdir=/does/not/exist", "mount.veneer: cannot open lowerdir /does/not/exist"),
])
def test_what_fails_is_said_and_ends_with_32(place, options, sentence):
    code, said = shell(place, f'mount -t veneer veneer "$D/merged" {options}')
    assert code == 32 and sentence in said


def test_a_mount_that_is_there_is_not_mounted_over_for_other_options(place):
    (place / "fstab").write_text(_FSTAB.format(source="veneer", d=place, more=""))
    code, said = shell(place, """
        mount -T "$D/fstab" "$D/merged"
        r=0; mount -T "$D/fstab" -o remount,ro "$D/merged" || r=$?
        entry | wc -l
        umount "$D/merged"; exit $r""")
    assert code == 32 and "unmount it first" in said and said.splitlines()[-1] == "1"


@pytest.mark.parametrize("arguments, code", [
    (["--help"], 0), (["-h"], 0), ([], 1), (["veneer"], 1), (["a", "b", "c"], 1), (["-z", "a", "b"], 1),
    (["a", "b", "-N", "/proc/self/ns/mnt"], 1), (["a", "b", "-o"], 1), (["a", "b", "-f", "-o", "rw"], 0),
])
def test_usage(place, arguments, code):
    done = subprocess.run([place / "sbin/mount.veneer", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == code, done
    assert bool(done.stderr) == (code != 0)
    if "help" in str(arguments):
        assert "mount -t veneer" in done.stdout
