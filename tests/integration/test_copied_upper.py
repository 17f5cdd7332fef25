# SPDX-License-Identifier: Apache-2.0
"""A copy of an upper that was in use, or whose server had not closed it yet, is read in another boot: nothing of what was
answered is missing in it. The copy of one that survived a power cut shows each block old or new."""
import os
import random
import shutil
import subprocess

import pytest

from support import linux, rootless
from support.boots import run_in_another_boot
from support.content import blob
from support.expect import opened, write_at
from support.stack import Stack

BLK = 4096
_COPIES = {
    "cp": "cp -a {0} {1}",
    "cp-dense": "cp -a --sparse=never {0} {1}",
    "cp-sparse": "cp -a --sparse=always {0} {1}",
    "tar": "mkdir {1} && tar -C {0} --xattrs --xattrs-include='*' -cf - . | tar -C {1} --xattrs --xattrs-include='*' -xf -",
}


@pytest.fixture(params=["tmpfs", "ext4", "btrfs"])
def stack(request, session_dir, veneer_bin, watchdog, serving):
    """On a file system of which a power cut leaves whole blocks or none."""
    if os.geteuid() != 0:
        pytest.skip("takes a mount namespace")
    place, image = session_dir / f"{request.param}-place", session_dir / f"{request.param}.img"
    place.mkdir(mode=0o755)
    try:
        if request.param == "tmpfs":
            linux.mount("tmpfs", place, "tmpfs", 0, "mode=0755")
        elif os.geteuid() != 0 or rootless.is_inside() or not shutil.which(f"mkfs.{request.param}"):
            pytest.skip(f"takes root and mkfs.{request.param}")
        elif serving and request.param == "btrfs":
            pytest.skip("the server does not see how a file system was mounted that only this process has")
        else:
            with open(image, "wb") as f:
                f.truncate(600 << 20)  # smaller ones get small blocks
            subprocess.run([f"mkfs.{request.param}", "-q", image], check=True)
            if subprocess.run(["mount", "-o", "loop", image, place]).returncode:
                pytest.skip(f"no loop devices, or no {request.param}")
        made = Stack(place / "s", veneer_bin, watchdog)
        yield made
        problems = made.close()
        linux.umount(place)
        assert not problems, "\n".join(problems) + made.log
    finally:
        place.rmdir()
        image.unlink(missing_ok=True)


def _copy(how, source, target):
    subprocess.run(_COPIES[how].format(source, target), shell=True, check=True)
    return target


def _contents(root):
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith(".wh.")}


def _fill_lower(stack):
    lower = stack.lower()
    (lower / "d").mkdir()
    for name, size in (("big", 3_000_000), ("small", 9_000), ("cut", 700_001), ("grown", 500_001), ("punched", 400_000),
                       ("synced", 600_000), ("d/moved", 800_000), ("whole", 300_000), ("zeroed", 12_288), ("text", 5_000)):
        (lower / name).write_bytes(blob(size, seed=len(name)))


def _change(m):
    """Of each way in which blocks become own, with and without zeros, synced and not."""
    rng = random.Random(7)
    for number in range(60):
        off = rng.randrange(3_000_000 - 9000)
        write_at(m / "big", bytes(rng.randrange(1, 9000)) if number % 3 == 0 else rng.randbytes(rng.randrange(1, 9000)), off)
    write_at(m / "small", b"changed", 5000)
    with opened(m / "cut", os.O_RDWR) as fd:
        os.pwrite(fd, b"x" * BLK, 2 * BLK)
        os.ftruncate(fd, 100_001)
    with opened(m / "grown", os.O_RDWR) as fd:
        os.ftruncate(fd, 100_001)
        os.ftruncate(fd, 300_001)
        os.pwrite(fd, b"y" * 10_000, 200_000)
    with opened(m / "punched", os.O_RDWR) as fd:
        os.pwrite(fd, b"z" * 50_000, 100_000)
        linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, 110_000, 100_000)
    with opened(m / "synced", os.O_RDWR) as fd:
        os.pwrite(fd, b"s" * BLK * 10 + bytes(BLK * 10), BLK * 20)
        os.fsync(fd)
        # zeros over what is synced, and data over zeros
        os.pwrite(fd, bytes(BLK * 2), BLK * 21)
        os.pwrite(fd, b"t" * BLK * 2, BLK * 33)
        os.pwrite(fd, b"u" * 100, BLK * 25 + 50)
    write_at(m / "d/moved", b"moved", 300_000)
    os.rename(m / "d", m / "e")
    (m / "whole").write_bytes(blob(310_000, seed=3))
    with opened(m / "whole", os.O_RDWR) as fd:
        os.pwrite(fd, bytes(20_000), 40_960)
    # a block that becomes zeros by parts, and one that does not
    for off in range(0, BLK * 2, 512):
        write_at(m / "zeroed", bytes(512 if off else 500), off + (0 if off else 12))
    write_at(m / "zeroed", bytes(12), 0)
    write_at(m / "text", bytes(5_000), 0)
    (m / "new").write_bytes(blob(50_000, seed=4))


def _flattened(stack, veneer_bin, copy):
    done = run_in_another_boot(stack.base, veneer_bin, "flatten", "-q", "-o",
                               f"lowerdir={':'.join(map(str, stack.lowers))},upperdir={copy}")
    assert done.returncode == 0, done.stdout + done.stderr
    return _contents(copy)


@pytest.mark.parametrize("how", _COPIES)
def test_copy_of_an_upper_in_use_has_all_that_was_written(stack, veneer_bin, how):
    _fill_lower(stack)
    m = stack.mount()
    _change(m)
    expected = _contents(m)
    copy = _copy(how, stack.upper, stack.base / "copy")
    assert _contents(m) == expected
    found = _flattened(stack, veneer_bin, copy)
    assert [name for name in found if found[name] != expected[name]] == []


def test_copy_right_after_umount_has_all_that_was_written(stack, veneer_bin):
    (stack.lower() / "big").write_bytes(blob(8_000_000))
    m = stack.mount()
    with opened(m / "big", os.O_RDWR) as fd:
        for off in range(0, 8_000_000, 2 * BLK):
            os.pwrite(fd, b"new" * 1000, off)
    expected = _contents(m)
    subprocess.run(["umount", m], check=True)
    copy = _copy("cp", stack.upper, stack.base / "copy")
    assert _flattened(stack, veneer_bin, copy) == expected


def test_copy_is_mounted_and_used_in_another_boot(stack, veneer_bin):
    """Its map is its own from then on."""
    _fill_lower(stack)
    m = stack.mount()
    _change(m)
    expected = _contents(m)
    copy = _copy("cp-dense", stack.upper, stack.base / "copy")
    script = ('"$1" -o "$2" "$3" && printf later | dd of="$3/big" bs=1 seek=4096000 conv=notrunc status=none &&'
              ' cp -a "$3" "$4" && umount "$3"')
    (stack.base / "elsewhere").mkdir()
    (stack.base / "again").mkdir()
    work = stack.base / "copy-work"
    work.mkdir()
    options = f"lowerdir={':'.join(map(str, stack.lowers))},upperdir={copy},workdir={work}"
    done = run_in_another_boot(stack.base, "env", "VENEER_SERVER=0", "sh", "-c", script, "sh", veneer_bin,
                               options, stack.base / "elsewhere", stack.base / "seen")
    assert done.returncode == 0, done.stdout + done.stderr
    big = bytearray(expected["big"])
    big[len(big):] = bytes(4_096_000 - len(big)) + b"later"
    expected["big"] = bytes(big)
    found = _contents(stack.base / "seen")
    assert [name for name in expected if found[name] != expected[name]] == []
    found = _flattened(stack, veneer_bin, copy)
    assert [name for name in found if found[name] != expected[name]] == []


def _lose(path, blocks):
    """As a power cut leaves blocks that were never written back."""
    with opened(path, os.O_RDWR) as fd:
        for blk in blocks:
            linux.fallocate(fd, linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, blk * BLK, BLK)


@pytest.mark.parametrize("how", ["cp", "cp-dense"])
def test_what_a_copy_never_got_is_old_and_never_zeros(stack, veneer_bin, how):
    """The copy of a layer that lost what was not synced, and one that lost it itself, are the same to look at."""
    old = blob(400_000)
    (stack.lower() / "f").write_bytes(old)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"a" * BLK * 8, 0)
        os.pwrite(fd, bytes(BLK * 2), BLK * 2)
    copy = _copy("cp", stack.upper, stack.base / "between")
    _lose(copy / "f", range(4, 7))
    copy = _copy(how, copy, stack.base / "copy")
    expected = bytearray(old)
    expected[:BLK * 8] = b"a" * BLK * 2 + bytes(BLK * 2) + old[BLK * 4:BLK * 7] + b"a" * BLK
    assert _flattened(stack, veneer_bin, copy)["f"] == bytes(expected)


def test_what_was_synced_and_a_copy_lacks_is_an_error(stack, veneer_bin):
    """Neither zeros nor the old bytes: the copy lost the block."""
    old = blob(400_000)
    for name in ("f", "g"):
        (stack.lower() / name).write_bytes(old)
    m = stack.mount()
    with opened(m / "f", os.O_RDWR) as fd:
        os.pwrite(fd, b"a" * BLK * 8, 0)
        os.fsync(fd)
    write_at(m / "g", b"changed", 9)
    copy = _copy("cp", stack.upper, stack.base / "copy")
    _lose(copy / "f", range(4, 7))
    lowers = ":".join(map(str, stack.lowers))
    done = run_in_another_boot(stack.base, veneer_bin, "flatten", "-q", "-o", f"lowerdir={lowers},upperdir={copy}")
    assert done.returncode == 1 and "lacks data that had been synced" in done.stderr
    done = run_in_another_boot(stack.base, veneer_bin, "check", "-q", "-o", f"lowerdir={lowers},upperdir={copy}")
    assert done.returncode == 1 and "/f: a partial file, but the map has no file" in done.stdout
    assert (copy / "g").read_bytes() == old[:9] + b"changed" + old[16:]
