# SPDX-License-Identifier: Apache-2.0
"""Every program that tests, benchmark and scripts call comes with what contrib/setup.sh installs, or is Debian's base: the
machine of a developer has more than a new one."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import calls

# What is in a package, by program.
_PACKAGES = {
    "apt-get": "apt", "awk": "mawk", "bash": "bash", "btrfs": "btrfs-progs", "buildah": "buildah", "busybox": "busybox-static",
    "clang": "clang", "containerd": "containerd", "ctr": "containerd", "curl": "curl", "debootstrap": "debootstrap", "dh": "debhelper",
    "dmsetup": "dmsetup", "dockerd": "docker.io", "dpkg": "dpkg", "dpkg-deb": "dpkg", "dpkg-query": "dpkg", "dpkg-buildpackage": "dpkg-dev",
    "e2fsck": "e2fsprogs", "find": "findutils", "fio": "fio", "fish": "fish", "fuse-overlayfs": "fuse-overlayfs", "fusermount3": "fuse3",
    "git": "git", "grep": "grep", "gzip": "gzip", "ip": "iproute2", "ldconfig": "libc-bin", "ldd": "libc-bin", "lintian": "lintian",
    "chattr": "e2fsprogs", "conmon": "conmon", "crun": "crun", "ctags": "universal-ctags", "newgidmap": "uidmap", "newuidmap": "uidmap",
    "setcap": "libcap2-bin", "slirp4netns": "slirp4netns", "lsattr": "e2fsprogs", "make": "make", "man": "man-db", "meson": "meson",
    "mariadb": "mariadb-client-core", "mariadb-install-db": "mariadb-server-core",
    "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
    "mount.fuse3": "fuse3", "ninja": "ninja-build", "pg_ctl": "postgresql", "pgbench": "postgresql", "initdb": "postgresql",
    "psql": "postgresql", "docker-registry": "docker-registry", "skopeo": "skopeo", "chromium": "chromium", "mkdocs": "mkdocs", "podman": "podman", "rpm": "rpm", "rpmbuild": "rpm", "rpmspec": "rpm", "rpmlint": "rpmlint", "sed": "sed",
    "sh": "dash", "strace": "strace", "stress-ng": "stress-ng", "sysbench": "sysbench", "tar": "tar", "xargs": "findutils", "zsh": "zsh", "cmp": "diffutils",
    **dict.fromkeys(["addr2line", "ar", "nm", "readelf"], "binutils"),
    **dict.fromkeys(["cc", "gcc"], "gcc"),
    **dict.fromkeys(["llvm-cov", "llvm-profdata"], "llvm"),
    **dict.fromkeys(["kill", "ps"], "procps"),
    **dict.fromkeys(["losetup", "mount", "umount"], "mount"),
    **dict.fromkeys(["journalctl", "systemctl", "systemd-analyze"], "systemd"),
    **dict.fromkeys(["useradd", "userdel", "usermod"], "passwd"),
    **dict.fromkeys(["flock", "nsenter", "pivot_root", "setpriv", "unshare"], "util-linux"),
    **dict.fromkeys(["basename", "cat", "chmod", "chroot", "cp", "date", "dd", "du", "env", "id", "install", "ln", "ls", "mkdir", "mknod", "mktemp", "mv",
                     "readlink", "rm", "seq", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tee", "timeout", "touch", "true",
                     "uname"], "coreutils"),
}
# What is looked for before it is called, or is installed by the script that calls it.
_LOOKED_FOR = {"modprobe", "go", "cargo", "docker", "autoreconf"}
# Subcommands, and what is ours.
_WORDS = set("a apply b base box branch build c check clones commit complete create d daemon-reload diff exec export f flatten fuse-devices fuse_overlayfs child images import inspect is-active "
             "manifest-check mapped once package receive reload rollback run send show snapshot snapshots squash start stats stop veneer volume".split())


@pytest.fixture(scope="module")
def found(repository):
    return calls.everywhere(repository)


@pytest.fixture(scope="module")
def installed(repository):
    """By which list of contrib/setup.sh."""
    text = (repository / "contrib" / "setup.sh").read_text()
    return {name: set(re.search(rf"^{name}_PACKAGES=\((.*?)\)", text, flags=re.S | re.M).group(1).split())
            for name in ("BUILD", "CORE", "TEST", "SLOW", "BENCH")}


def _is_essential(package):
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Essential} ${Package}", package], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).stdout
    return shown.startswith("yes") or package in ("apt", "mawk")


def test_what_is_called_is_known(found):
    unknown = {word: files[:3] for word, files in found.items() if word not in {*_PACKAGES, *_LOOKED_FOR, *_WORDS}}
    assert not unknown, "which package has them? It belongs to contrib/setup.sh, and the word to this file"


def test_list_has_nothing_that_nobody_calls(found):
    assert {*_PACKAGES, *_LOOKED_FOR, *_WORDS} <= set(found)


def test_packages_are_installed_by_setup_or_essential(found, installed):
    missing = []
    for word, package in _PACKAGES.items():
        lists = ["BUILD", "CORE", "TEST", "SLOW"] + (["BENCH"] if all(path.startswith("bench/") for path in found[word]) else [])
        if not any(package in installed[name] for name in lists) and not _is_essential(package):
            missing.append(f"{word}: {package}")
    assert not missing


def test_what_need_not_be_there_is_looked_for(found, repository):
    """By the file that calls it, or one beside it; contrib/setup.sh has it for all."""
    for word in _LOOKED_FOR - {"autoreconf", "docker"}:
        for path in found[word]:
            beside = pathlib.Path(repository, path).parent.glob("*.py")
            texts = [file.read_text() for file in (*beside, repository / "contrib" / "setup.sh")]
            assert any(re.search(rf"which\(\"{word}\"|command -v {word}\b", text) for text in texts), f"{path} calls {word} without a look"


@pytest.mark.skipif(not shutil.which("dpkg"), reason="no dpkg to ask which package a program is of")
def test_packages_are_those_that_have_the_programs():
    ways = {}
    for word in _PACKAGES:
        path = shutil.which(word)
        if path and not path.startswith("/usr/local/"):
            real = os.path.realpath(path)
            ways[word] = {path, real, *(way.replace("/usr/", "/", 1) for way in (path, real))}
    said = subprocess.run(["dpkg", "-S", *set().union(*ways.values())], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True).stdout
    owner_of = {line.partition(": ")[2]: line.partition(": ")[0].split(":")[0] for line in said.splitlines()}
    wrong = []
    for word, paths in ways.items():
        owners = {owner_of[path] for path in paths if path in owner_of}
        # a version is in the name of what others, like gcc, stand for
        if owners and not any(owner.startswith(_PACKAGES[word].split("-")[0]) for owner in owners):
            wrong.append(f"{word}: {_PACKAGES[word]}, and not {owners}")
    assert not wrong


def test_collector_sees_what_it_is_for():
    assert calls.in_shell('x=$(readlink -f "$1") && { tar -c . | gzip; }\nif ! grep -q "a;b" f; then\n\tfoo=1 env A=b strace ls\nfi\n') == \
        {"readlink", "tar", "gzip", "grep", "strace"}
    assert calls.in_python('PROGRAMS = ("setcap", "crun")\n') == {"setcap", "crun"}
    assert calls.in_shell("cat <<-END\n\trm this\n\tEND\nfn()\n{\n\tdu\n}\nfn 'ls; rm'\n") == {"cat", "du"}
    assert calls.in_python('run(["e2fsck", x])\nshutil.which("fio")\nm.sh("cp a b; mv c d")\nrun(("sh", "-c", "ps"))\n') == \
        {"e2fsck", "fio", "cp", "mv", "sh", "ps"}


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_runs_of_another_user_leave_is_read_as_that_user(repository, tmp_path):
    """contrib/test.sh, as root, where any name may be a link of that user's."""
    script = (repository / "contrib" / "test.sh").read_text()
    function = re.search(r"^read_there\(\)\n\{.*?^\}$", script, flags=re.S | re.M).group(0)
    assert "open(sys.argv[1])" not in script
    tmp_path.chmod(0o711)
    (tmp_path / "user").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "user" / "plain").write_text("plain")
    (tmp_path / "user" / "link").symlink_to(tmp_path / "secret")
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    for name, expected in (("plain", "plain"), ("link", "")):
        script = f"results={tmp_path} TEST_USER=12345\n{function}\nread_there {tmp_path}/user/{name}"
        assert subprocess.run(["bash", "-c", script], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout == expected
