# SPDX-License-Identifier: Apache-2.0
"""A map of which more than a byte is damaged: each file is right or EIO, and `check` names those that are not."""
import errno
import os
import shutil

import pytest

from support import layers
from support.content import BLOCK, blob
from support.expect import fails_with, write_at

_MAP = ".wh..wh.veneer"
_COPY = "user.veneer.map"
_NAMES = [f"f{number:02}" for number in range(16)]
_HEADER = 128


class Layer:
    """The upper of a mount that is over, with partial files, and what is in each."""

    def __init__(self, stack, veneer_bin, has_snapshot):
        self.stack, self.bin, self.right = stack, veneer_bin, {}
        for number, name in enumerate(_NAMES):
            (stack.lower() / name).write_bytes(blob(400_000, number))
        (stack.lower() / "later").write_bytes(blob(100_000, 7))
        (stack.lower() / "last").write_bytes(blob(100_000, 8))
        m = stack.mount()
        for number, name in enumerate(_NAMES):
            for at in (0, 20, 50 + number):
                write_at(m / name, blob(BLOCK, 100 + at), at * BLOCK)
            with open(m / name, "r+b") as f:
                f.seek(30 * BLOCK)
                f.write(bytes(2 * BLOCK))
            self.right[name] = (m / name).read_bytes()
        stack.umount()
        self.map = stack.upper / _MAP
        if has_snapshot:
            # one damaged byte: it is written anew
            self.damage(8, b"\xff")
            assert self.check("--repair")[0] == 0
        self.used = len(self.map.read_bytes().rstrip(b"\0"))

    def check(self, *argv):
        result = layers.check(self.bin, self.stack.upper, self.stack.lowers, *argv)
        return result.returncode, result.stdout.splitlines()

    def damage(self, off, data):
        with open(self.map, "r+b") as f:
            f.seek(off)
            f.write(data)

    def _read_names(self, m):
        lost = set()
        for name, right in self.right.items():
            try:
                assert (m / name).read_bytes() == right, name
            except OSError as e:
                assert e.errno == errno.EIO
                lost.add(name)
        return lost

    def read(self):
        """The files that are EIO; the others are right."""
        m = self.stack.mount()
        lost = self._read_names(m)
        # and there is room for more, which is none of those
        (m / "new").write_text("new")
        write_at(m / "later", b"new", 50_000)
        self.stack.umount()
        m = self.stack.mount()
        write_at(m / "last", b"new", 50_000)
        assert self._read_names(m) == lost
        self.stack.umount()
        m = self.stack.mount()
        for number, name in enumerate(("later", "last")):
            expected = blob(100_000, 7 + number)
            assert (m / name).read_bytes() == expected[:50_000] + b"new" + expected[50_003:]
        self.stack.umount()
        return lost

    def named(self, lines):
        return {line.split(":")[0].rsplit("/", 1)[1] for line in lines
                if "partial file" in line or "another layer" in line} & set(_NAMES)


@pytest.fixture(params=[False, True], ids=["log", "snapshot"])
def layer(request, stack, veneer_bin):
    made = Layer(stack, veneer_bin, request.param)
    made.has_snapshot = request.param
    return made


@pytest.mark.parametrize("repairs_first", [False, True], ids=["mounted", "repaired"])
@pytest.mark.parametrize("place", ["header", "early", "middle", "end"])
def test_each_file_is_right_or_an_error_and_named(layer, place, repairs_first):
    off = {"header": 0, "early": _HEADER + 16, "middle": layer.used // 2 // 8 * 8, "end": layer.used - 80}[place]
    layer.damage(off, bytes(range(1, 65)))
    code, lines = layer.check()
    assert code == 1 and f"/{_MAP}: " in lines[0]
    named = layer.named(lines)
    if repairs_first:
        layer.check("--repair")
    lost = layer.read()
    assert lost == named
    if place == "header":
        assert not lost
    elif layer.has_snapshot:
        assert 1 <= len(lost) <= 3
    # what is lost is named until it goes
    code, lines = layer.check()
    assert layer.named(lines) == lost and code == (1 if lost else 0)
    m = layer.stack.mount()
    for name in lost:
        with fails_with(errno.EIO):
            write_at(m / name, b"x", 0)
        os.truncate(m / name, 0)
        (m / name).write_bytes(b"again")
        assert not {"trusted.veneer.partial", "user.veneer.partial"} & set(os.listxattr(layer.stack.upper / name))
    layer.stack.umount()
    assert layer.check()[0] == 0
    assert (layer.stack.upper / f"{_MAP}.damaged").exists() == bool(lost)


def test_without_the_second_copy_the_header_takes_all(layer):
    os.removexattr(layer.map, _COPY)
    layer.damage(0, bytes(64))
    assert layer.read() == set(_NAMES)


@pytest.mark.parametrize("part", [0, 0.3, 0.6, 0.95])
def test_of_a_cut_map_nothing_old_is_seen(layer, part):
    os.truncate(layer.map, int(layer.used * part))
    layer.read()


def test_a_file_that_has_all_of_its_bytes_needs_no_map(layer):
    right = layer.right["f00"]
    with open(layer.stack.upper / "f00", "r+b") as f:
        for off in range(0, len(right), BLOCK):
            f.seek(off)
            f.write(right[off:off + BLOCK].replace(b"\0", b"0"))
    with open(layer.stack.upper / "f00", "rb") as f:
        layer.right["f00"] = f.read()
    layer.map.unlink()
    code, lines = layer.check("--repair")
    assert code == 1 and any("/f00: repaired: an ordinary file now" in line for line in lines)
    assert layer.read() == set(_NAMES) - {"f00"}


@pytest.mark.parametrize("is_mounted_before", [False, True])
def test_what_has_bytes_can_be_salvaged(layer, is_mounted_before):
    """Where nothing tells which zeros were written, they are what is lost, and no byte else."""
    layer.map.unlink()
    if is_mounted_before:
        assert layer.read() == set(_NAMES)
    code, lines = layer.check("--salvage")
    assert code == 0 and len([line for line in lines if "repaired: an ordinary file" in line]) == len(_NAMES)
    for number, name in enumerate(_NAMES):
        right = bytearray(layer.right[name])
        right[30 * BLOCK:32 * BLOCK] = blob(400_000, number)[30 * BLOCK:32 * BLOCK]
        layer.right[name] = bytes(right)
        assert (layer.stack.upper / name).read_bytes() == right
    assert layer.read() == set()


def test_nothing_is_salvaged_from_a_lower_file_that_changed(layer):
    layer.map.unlink()
    other = layer.stack.lower().parent / "changed"
    shutil.copytree(layer.stack.lower(), other)
    (other / "f03").write_bytes(b"changed")
    done = layers.check(layer.bin, layer.stack.upper, [other], "--salvage")
    assert done.returncode == 1 and "/f04: repaired" in done.stdout and "/f03: repaired" not in done.stdout
    assert "user.veneer.partial" in os.listxattr(layer.stack.upper / "f03")


def test_salvage_wants_the_lower_layers(layer, veneer_bin):
    done = layers.tool(veneer_bin, "check", "--salvage", layer.stack.upper)
    assert done.returncode == 2 and "lowerdir" in done.stderr


@pytest.mark.needs_root("a lower file that the owner of the upper cannot read")
def test_nothing_is_salvaged_for_one_who_could_not_have_read_it(stack, veneer_bin):
    (stack.lower() / "secret").write_bytes(blob(100_000))
    (stack.lower() / "secret").chmod(0o600)
    m = stack.mount()
    write_at(m / "secret", b"x", 50_000)
    os.chown(m / "secret", 1000, 1000)
    stack.umount()
    (stack.upper / _MAP).unlink()
    done = layers.check(veneer_bin, stack.upper, stack.lowers, "--salvage")
    assert done.returncode == 1 and "repaired" not in done.stdout
    assert blob(100_000)[:100] not in (stack.upper / "secret").read_bytes()


@pytest.mark.needs_root("capabilities of files")
@pytest.mark.parametrize("owner, mode, keeps", [(0, 0o4755, True), (0, 0o4757, False), (1000, 0o4755, False)])
def test_salvage_gives_privileges_back_to_files_that_nobody_else_writes(stack, veneer_bin, owner, mode, keeps):
    """Another writer may have changed the file meanwhile, and lost them by that."""
    capability = bytes.fromhex("0100000280000000000000000000000000000000")  # cap_setuid
    (stack.lower() / "program").write_bytes(blob(100_000))
    (stack.lower() / "program").chmod(0o755)
    m = stack.mount()
    write_at(m / "program", b"x", 50_000)
    os.chown(m / "program", owner, 0)
    os.chmod(m / "program", mode)
    os.setxattr(m / "program", "security.capability", capability)
    stack.umount()
    (stack.upper / _MAP).unlink()
    assert layers.check(veneer_bin, stack.upper, stack.lowers, "--salvage").returncode == 0
    assert (stack.upper / "program").read_bytes() == blob(50_000) + b"x" + blob(100_000)[50_001:]
    assert ("security.capability" in os.listxattr(stack.upper / "program")) == keeps
    # root's own writes leave them
    assert (stack.upper / "program").stat().st_mode & 0o7777 == mode
