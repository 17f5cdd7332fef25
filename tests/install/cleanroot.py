# SPDX-License-Identifier: Apache-2.0
"""A Debian root with nothing in it but the base system, of the archive that this machine's apt is configured for.

What debootstrap made is kept in VENEER_TEST_CACHE (default /var/cache/veneer-tests) and never changed: each Root is a view of it."""
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

CACHE = pathlib.Path(os.environ.get("VENEER_TEST_CACHE", "/var/cache/veneer-tests"))

# In namespaces of its own, so that nothing that was mounted or started stays.
_ENTER = r"""
set -eu
mount -t overlay overlay -o lowerdir="$BASE",upperdir="$D/upper",workdir="$D/work" "$D/root"
cd "$D/root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"; done
mknod -m 666 dev/tty c 5 0
mknod -m 666 dev/fuse c 10 229
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
chmod 1777 dev/shm
ln -s /proc/self/fd dev/fd
mkdir -p mnt/given disk
mount --bind "$D/given" mnt/given
mount --bind "$D/disk" disk
exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
	http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" /bin/bash -c "$SCRIPT"
"""


def _archive():
    """The address of the archive, and options of apt that reaching it may take."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN)\t$(LABEL)\t$(COMPONENT)\t$(REPO_URI)", "Created-By: Packages"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8").stdout
    for line in listed.splitlines():
        origin, label, component, address = line.split("\t")
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return address
    pytest.skip("apt is not configured for an archive of Debian")


def base(suite):
    """The directory that debootstrap made. A test that needs it is skipped where the archive cannot be reached."""
    path = CACHE / suite
    if path.is_dir():
        return path
    if not shutil.which("debootstrap"):
        pytest.skip("there is no debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = CACHE / f"{suite}.{os.getpid()}"
    done = subprocess.run(["debootstrap", "--variant=minbase", suite, str(unfinished), _archive()],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        pytest.skip(f"no {suite} from the archive: {done.stdout.strip().splitlines()[-1]}")
    for name in pathlib.Path("/etc/apt/apt.conf.d").iterdir():
        if re.search(r"Proxy|Acquire", name.read_text(errors="replace")):
            shutil.copy(name, unfinished / "etc/apt/apt.conf.d")
    unfinished.rename(path)
    return path


class Root:
    def __init__(self, suite, directory):
        self.base, self.directory = base(suite), directory
        for name in ["upper", "work", "root", "given", "disk"]:
            (directory / name).mkdir(parents=True)

    @property
    def given(self):
        """Seen inside as /mnt/given."""
        return self.directory / "given"

    def run(self, script, limit_s=1500):
        """A bash script, as root; its output, with its errors in it. What it changes stays for the next one, but for processes
        and mounts. /disk is a directory of the host's file system, on which uppers can lie."""
        shutil.copy("/etc/resolv.conf", self.directory / "given")
        script = "set -euo pipefail; cp /mnt/given/resolv.conf /etc/resolv.conf; ln -sfn /proc/self/mounts /etc/mtab\n" + script
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--uts", "--ipc",
                               "bash", "-c", _ENTER], env={**os.environ, "BASE": str(self.base), "D": str(self.directory), "SCRIPT": script},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                              errors="replace", timeout=limit_s)
        assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout[-6000:]}"
        return done.stdout

    def boot(self, script, limit_s=300):
        """As run(), of a machine that systemd has booted: the script is a service of its own, and the machine goes down with it.
        systemd has to be there already."""
        if not (groups := _unified_groups()):
            pytest.skip("there are no control groups of the second kind")
        (self.given / "trial").write_text("#!/bin/bash\nset -euxo pipefail\n" + script)
        units = self.directory / "upper/etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True, exist_ok=True)
        (units / "trial.service").write_text(_TRIAL)
        (units / "multi-user.target.wants/trial.service").unlink(missing_ok=True)
        (units / "multi-user.target.wants/trial.service").symlink_to("../trial.service")
        group = groups / f"veneer-boot-{os.getpid()}"
        group.mkdir()
        enter = _ENTER.partition("exec chroot")[0] + "umount -R sys/fs/cgroup\nmount -t cgroup2 cgroup2 sys/fs/cgroup\n" \
            "exec chroot . /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target\n"
        try:
            done = subprocess.run(["bash", "-c", f'echo 0 >"{group}/cgroup.procs"; exec "$@"', "bash", "unshare", "--mount", "--propagation",
                                   "private", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup", "bash", "-c", enter],
                                  env={**os.environ, "BASE": str(self.base), "D": str(self.directory)}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=limit_s)
        finally:
            _remove_groups(group)
        said = (self.given / "said").read_text(errors="replace") if (self.given / "said").exists() else ""
        assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout[-3000:]}\n---\n{said[-6000:]}"
        return said


_TRIAL = """[Service]
Type=oneshot
ExecStart=/bin/bash /mnt/given/trial
StandardOutput=truncate:/mnt/given/said
StandardError=inherit
TimeoutStartSec=200
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
"""


def _unified_groups():
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        if line.split()[2] == "cgroup2":
            return pathlib.Path(line.split()[1])
    return None


def _remove_groups(top):
    """What runs in it has been killed with its first process."""
    for path, _, _ in os.walk(top, topdown=False):
        for _ in range(100):
            try:
                os.rmdir(path)
                break
            except OSError:
                time.sleep(0.05)
