# SPDX-License-Identifier: Apache-2.0
"""fio writes all over files of the lower with checksums in every block, and must find them again:
at once, after a remount, and when the upper has become a lower."""
import os
import shutil
import subprocess

import pytest

from support.content import MIB, allocated, write_large
from support.expect import names_in, read_at

JOBS = 3
HALF = 4 * MIB		# what is written; the other half of a file must stay as it was
ENGINES = {
    "unaligned": ["--ioengine=psync", "--bsrange=512-64k", "--bs_unaligned=1"],
    "blocks": ["--ioengine=psync", "--bs=4k"],
    "small": ["--ioengine=psync", "--bsrange=512-8k", "--bs_unaligned=1", "--fsync=200"],
    "vectors": ["--ioengine=pvsync2", "--bsrange=4k-128k"],
    "mmap": ["--ioengine=mmap", "--bsrange=4k-64k"],
    "libaio direct": ["--ioengine=libaio", "--direct=1", "--iodepth=8", "--bsrange=4k-128k"],
    "io_uring direct": ["--ioengine=io_uring", "--direct=1", "--iodepth=8", "--bsrange=4k-64k"],
    "io_uring": ["--ioengine=io_uring", "--iodepth=8", "--bsrange=4k-64k"],
}


@pytest.fixture(autouse=True)
def needs_fio():
    if not shutil.which("fio"):
        pytest.skip("fio is not installed (contrib/setup.sh --tests)")


def fill_lower(stack, half):
    for number in range(JOBS):
        write_large(stack.lower() / f"f{number}", 2 * half, seed=number + 1)


def fio(where, flags, half, *more):
    """The same options give the same offsets and checksums, so that a later run can verify."""
    done = subprocess.run(
        ["fio", "--name=job", f"--directory={where}", "--filename_format=f$jobnum",
         f"--numjobs={JOBS}", "--rw=randwrite", f"--size={half}", "--randseed=11",
         "--allrandrepeat=1", "--verify=crc32c", "--verify_fatal=1", "--overwrite=1",
         "--fallocate=none", "--thread", *flags, *more],
        cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "verify" not in done.stdout or "bad" not in done.stdout, done.stdout[-4000:]


def verify(where, flags, half):
    fio(where, flags, half, "--verify_only=1")


def assert_rest_is_the_lowers(where, lower, half):
    for number in range(JOBS):
        assert os.stat(where / f"f{number}").st_size == 2 * half
        for off in range(half, 2 * half, MIB):
            ours, theirs = (read_at(side / f"f{number}", MIB, off) for side in (where, lower))
            assert ours == theirs


def write_and_verify(stack, flags, half):
    fill_lower(stack, half)
    base = stack.lower()
    m = stack.mount()
    fio(m, flags, half, "--do_verify=1")
    assert_rest_is_the_lowers(m, base, half)
    # the test would prove nothing if the whole file had been copied
    assert allocated(stack.upper) < JOBS * (half + half // 2)
    m = stack.remount()
    verify(m, flags, half)
    assert_rest_is_the_lowers(m, base, half)
    stack.freeze()
    m = stack.mount()
    verify(m, flags, half)
    assert_rest_is_the_lowers(m, base, half)
    # and once more over what is partial below
    fio(m, ["--ioengine=psync", "--bsrange=512-64k", "--bs_unaligned=1"], half // 2,
        "--do_verify=1")
    assert_rest_is_the_lowers(m, base, half)
    assert names_in(m) == [f"f{number}" for number in range(JOBS)]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_block_is_found_again(stack, engine):
    write_and_verify(stack, ENGINES[engine], HALF)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_every_block_of_large_files_is_found_again(stack, engine):
    write_and_verify(stack, ENGINES[engine], 16 * HALF)


def test_verification_notices_one_changed_byte(stack):
    """fio would see it if a block were the lower's, or zeros."""
    fill_lower(stack, HALF)
    m = stack.mount()
    fio(m, ENGINES["blocks"], HALF, "--do_verify=0")
    verify(m, ENGINES["blocks"], HALF)
    with open(m / "f1", "r+b") as f:
        f.seek(HALF // 2 + 1000)
        byte = f.read(1)[0]
        f.seek(HALF // 2 + 1000)
        f.write(bytes([byte ^ 1]))
    with pytest.raises(AssertionError):
        verify(m, ENGINES["blocks"], HALF)


def test_several_jobs_on_one_file(stack):
    """Each has a part of its own; parts meet inside blocks."""
    write_large(stack.lower() / "one", 4 * HALF)
    flags = ["--filename_format=one", "--offset_increment=2097664",
             "--ioengine=psync", "--bsrange=512-32k", "--bs_unaligned=1"]
    m = stack.mount()
    fio(m, flags, 2 * MIB, "--do_verify=1")
    verify(m, flags, 2 * MIB)
    m = stack.remount()
    verify(m, flags, 2 * MIB)
    end = 3 * 2097664
    assert read_at(m / "one", 8192, end + 4096) == read_at(stack.lower() / "one", 8192, end + 4096)
