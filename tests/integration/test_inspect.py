# SPDX-License-Identifier: Apache-2.0
"""`veneer inspect`: what a map and the partial files of a layer say, byte for byte as they are."""
import json
import os
import re

import pytest

from support import layers
from support.content import BLOCK, MIB, blob
from support.expect import write_at

_MAP = ".wh..wh.veneer"


@pytest.fixture
def inspect(veneer_bin):
    def run(*paths):
        result = layers.tool(veneer_bin, "inspect", *paths)
        return result.returncode, result.stdout
    return run


@pytest.fixture
def layer(stack):
    (stack.lower() / "d").mkdir()
    (stack.lower() / "d" / "f").write_bytes(blob(MIB))
    (stack.lower() / "plain").write_bytes(b"plain")
    m = stack.mount()
    write_at(m / "d" / "f", b"x" * 3 * BLOCK, 10 * BLOCK)
    (m / "new").write_bytes(b"new")
    stack.umount()
    return stack.upper


def test_a_layer_lists_its_partial_files(layer, inspect):
    code, text = inspect(layer)
    assert code == 0
    lines = [line for line in text.splitlines() if re.match(f"{layer}/(d|new)", line)]
    assert len(lines) == 1
    assert re.fullmatch(re.escape(f"{layer}/d/f: 1048576 bytes, file 1, lower at the same path "
                                  "(1048576 bytes, modified ")
                        + r"\d+\.\d{9}\), own 3 of 256 blocks, clip 1048576", lines[0])
    assert "OWN_RUN  file 1 blocks 10-12" in text


def test_a_file_that_grew_has_as_many_blocks_as_diff_says(stack, layer, inspect, veneer_bin):
    """Behind what it has of the lower file all is its own."""
    with open(stack.mount() / "d" / "f", "ab") as f:
        f.write(b"x" * (BLOCK + 1))
    stack.umount()
    told = json.loads(layers.tool(veneer_bin, "diff", "--json", stack.upper).stdout)
    assert "own 5 of 258 blocks, clip 1048576" in inspect(layer / "d" / "f")[1]
    assert [(e["partial"]["own_blocks"], e["partial"]["blocks"]) for e in told["changes"] if e.get("partial")] == [(5, 258)]


def test_a_moved_file_says_where_its_lower_file_is(stack, layer, inspect):
    m = stack.mount()
    os.rename(m / "d" / "f", m / "moved")
    stack.umount()
    code, text = inspect(layer)
    assert code == 0
    assert f"{layer}/moved: 1048576 bytes, file 1, lower d/f (" in text


def test_a_partial_file_has_one_line(layer, inspect):
    code, text = inspect(layer / "d" / "f")
    assert code == 0
    assert text.count("\n") == 1 and text.startswith(f"{layer}/d/f: ") and "own 3 of 256" in text


def test_a_map_file_by_itself(layer, inspect):
    code, text = inspect(layer / _MAP)
    assert code == 0
    assert text.startswith(f"{layer}/{_MAP}: map\n") and "closed cleanly" in text


def test_a_partial_file_away_from_its_layer_is_damaged(stack, layer, inspect):
    os.rename(layer / "d" / "f", stack.base / "stray")
    code, text = inspect(stack.base / "stray")
    assert code == 1 and "DAMAGED" in text


def test_a_layer_without_a_map(stack, inspect):
    (stack.lower() / "f").write_bytes(b"f")
    assert inspect(stack.lower()) == (0, f"{stack.lower()}: no map\n")


def test_a_file_longer_than_its_records_account_for_is_damaged(layer, inspect):
    os.truncate(layer / _MAP, 16 * MIB)
    code, text = inspect(layer / _MAP)
    assert code == 1 and "DAMAGED: longer than its records account for" in text
    code, text = inspect(layer)
    assert code == 1 and "d/f: 1048576 bytes" in text


def test_records_behind_a_bad_one_are_damage(layer, inspect):
    with open(layer / _MAP, "r+b") as f:
        f.seek(128 + 8)
        f.write(b"\xff")
    code, text = inspect(layer / _MAP)
    assert code == 1 and "DAMAGED: a record with one damaged byte" in text
    with open(layer / _MAP, "r+b") as f:
        f.seek(128 + 8)
        f.write(b"\xff\xff\xff")
    os.removexattr(layer / _MAP, "user.veneer.map")
    code, text = inspect(layer / _MAP)
    assert code == 1 and "DAMAGED: a bad record before good ones" in text


def test_wrong_usage_is_2(inspect):
    assert inspect()[0] == 2
    assert inspect("--help")[0] == 0
