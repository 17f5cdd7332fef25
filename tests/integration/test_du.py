# SPDX-License-Identifier: Apache-2.0
"""veneer du: what a layer owns, and what whole copies would have taken."""
import json
import os
import subprocess

from support.content import MIB, blob


def du(stack, *arguments):
    return subprocess.run([stack.program, "du", *map(str, arguments)], capture_output=True, text=True)


def test_figures(stack):
    (stack.lower() / "big").write_bytes(blob(8 * MIB))
    (stack.lower() / "gone").write_text("x")
    m = stack.mount()
    with open(m / "big", "r+b") as f:
        f.seek(MIB)
        f.write(b"x" * 40_960)
    (m / "own").write_bytes(blob(MIB))
    os.link(m / "own", m / "also")
    os.unlink(m / "gone")
    (m / "d").mkdir()
    stack.umount()
    total = int(subprocess.run(["du", "-s", "--block-size=1", stack.upper], capture_output=True, text=True,
                               check=True).stdout.split()[0])
    got = json.loads(du(stack, "--json", stack.upper).stdout)[0]
    assert got["path"] == str(stack.upper)
    assert got["data_bytes"] + got["map_bytes"] + got["other_bytes"] == total
    assert got["partial_files"] == 1 and 40_960 <= got["partial_bytes"] <= 49_152
    assert got["whole_bytes"] == got["data_bytes"] - got["partial_bytes"] + 8 * MIB
    assert got["inodes"] == 4 and got["whiteouts"] == 1
    text = du(stack, stack.upper).stdout
    assert str(stack.upper) in text and "1 partial file\n" in text and "9.0 MiB" in text


def test_several_and_one_that_is_not_there(stack):
    result = du(stack, stack.upper, "/nowhere", stack.lower())
    assert result.returncode == 1
    assert "/nowhere" in result.stderr
    assert str(stack.upper) in result.stdout and str(stack.lower()) in result.stdout


def test_exit_codes(stack):
    assert du(stack).returncode == 2
    assert du(stack, "--what", stack.upper).returncode == 2
    assert du(stack, stack.upper).returncode == 0
