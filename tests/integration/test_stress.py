# SPDX-License-Identifier: Apache-2.0
"""stress-ng's file system stressors with --verify: each must do on the mount what it does on an
ordinary directory. They work in a directory of the lower, among files of the lower."""
import os
import re
import shutil
import subprocess

import pytest

from support import treestate
from support.content import blob

# Left out: fiemap, which FUSE has not; verity, fsverity being off nearly everywhere; and those that
# mount, want devices or do not touch the file system at all.
GROUPS = {
    "names": ["chdir", "dentry", "dir", "dirdeep", "dirmany", "filename", "getdent", "link",
              "mknod", "rename", "symlink", "touch"],
    "attributes": ["access", "chattr", "chmod", "chown", "dnotify", "file-ioctl", "fstat",
                   "handle", "inode-flags", "inotify", "open", "utime", "xattr"],
    "data": ["aio", "aiol", "copy-file", "dup", "fallocate", "fpunch", "fsize", "hdd", "io",
             "io-uring", "iomix", "readahead", "revio", "seek", "sendfile", "splice",
             "sync-file"],
    "locks": ["fcntl", "flock", "lease", "locka", "lockf", "lockofd"],
    "mappings": ["mmap", "msync"],
}
FLAGS = {"mmap": ["--mmap-file", "--mmap-bytes", "16m"], "hdd": ["--hdd-bytes", "32m"],
         "readahead": ["--readahead-bytes", "16m"], "sync-file": ["--sync-file-bytes", "8m"],
         "seek": ["--seek-size", "8m"], "iomix": ["--iomix-bytes", "32m"],
         "aiol": ["--aiol-requests", "8"], "copy-file": ["--copy-file-bytes", "128m"],
         "fallocate": ["--fallocate-bytes", "16m"], "revio": ["--revio-bytes", "16m"]}


@pytest.fixture(autouse=True)
def needs_stress_ng():
    if not shutil.which("stress-ng"):
        pytest.skip("stress-ng is not installed (contrib/setup.sh --tests)")


@pytest.fixture
def merged(stack):
    """A directory of the lower, with files and directories of two lowers in it."""
    for layer in (0, 1):
        place = stack.lower(layer) / "place"
        place.mkdir()
        for number in range(10):
            (place / f"file{layer}{number}").write_bytes(blob(20_000, number))
            (place / f"dir{number}").mkdir()
            (place / f"dir{number}" / f"f{layer}").write_text("f")
    return stack.mount() / "place"


def run(where, names, seconds, instances=1):
    """(exit status, output); the counts of work done are in the output."""
    # an absolute path makes its io-uring stressor fail anywhere
    command = ["stress-ng", "--temp-path", ".", "--timeout", str(seconds), "--verify",
               "--metrics-brief", "--no-rand-seed", "--oomable"]
    for name in names:
        command += [f"--{name}", str(instances), *FLAGS.get(name, [])]
    done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds * 5 + 60)
    return done.returncode, done.stdout


# Flags are shown, and nobody sets them through a mount.
_REFUSED = {"chattr"}


def skipped(output, names):
    """Stressors that stress-ng itself found impossible."""
    return {name for name in names if re.search(rf"\b{name}: .*skipping", output)}


def explain(where, plain, names, seconds):
    """One line for each stressor that does not do the same on both."""
    lines = []
    for name in names:
        ours, said = run(where, [name], seconds)
        theirs, _ = run(plain, [name], seconds)
        if ours != theirs:
            failures = [line for line in said.splitlines() if "fail" in line or "error" in line]
            lines.append(f"{name}: {ours} on the mount, {theirs} on a directory: {failures[:3]}")
    return lines


def assert_group_runs(merged, plain, names, seconds, instances):
    before = treestate.take(merged)
    status, said = run(merged, names, seconds, instances)
    assert status == 0, explain(merged, plain, names, 2) or said[-4000:]
    if impossible := skipped(said, names) - _REFUSED:
        _, on_directory = run(plain, sorted(impossible), 1)
        assert impossible == skipped(on_directory, impossible), said
    assert "successful run completed" in said
    # nothing of theirs is left and nothing of ours gone; only the directory itself has new times
    changes = treestate.differences(before, treestate.take(merged))
    assert [line for line in changes if not re.match(r"\.: (mtime|ctime|blocks|size) ", line)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_stressors_verify(merged, plain, group):
    assert_group_runs(merged, plain, GROUPS[group], 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_stressors_verify_for_long(merged, plain, group):
    assert_group_runs(merged, plain, GROUPS[group], 60, 3)


@pytest.mark.slow
def test_all_stressors_at_once(merged, plain):
    names = [name for group in GROUPS.values() for name in group]
    assert_group_runs(merged, plain, names, 90, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group])
def test_each_stressor_does_what_it_does_on_a_directory(merged, plain, name):
    assert explain(merged, plain, [name], 3) == []
    assert os.listdir(plain) == []
