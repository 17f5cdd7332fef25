# SPDX-License-Identifier: Apache-2.0
"""`veneer check`: a sound layer is found sound, and each kind of damage is named."""
import os
import random

import pytest

import differential
from support import layers
from support.content import MIB, blob
from support.expect import names_in, write_at
from support.randomops import RandomOperations
from support.twins import Twins

_MAP = ".wh..wh.veneer"
_MARK = "user.veneer.partial"


@pytest.fixture
def check(veneer_bin, stack):
    """(exit code, lines on standard output) for the upper of the stack."""
    def run(*argv, upper=None, lowers=None):
        result = layers.check(veneer_bin, upper or stack.upper, lowers or stack.lowers, *argv)
        return result.returncode, result.stdout.splitlines()
    return run


@pytest.fixture
def layer(stack):
    """The upper of a mount that is over, with partial files f and g and a renamed directory."""
    for name in ("f", "g", "d/h"):
        path = stack.lower() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(blob(MIB, seed=len(name)))
    m = stack.mount()
    for name in ("f", "g", "d/h"):
        write_at(m / name, b"new", 600_000)
    os.rename(m / "d", m / "e")
    stack.umount()
    return stack.upper


def _only(lines, *parts):
    assert len(lines) == 1 and all(part in lines[0] for part in parts), lines


def test_a_sound_layer_is_clean(layer, check, veneer_bin):
    assert check() == (0, [f"{layer}: 3 partial files, no damage"])
    assert layers.tool(veneer_bin, "check", layer).returncode == 0


def test_an_ordinary_directory_is_clean(stack, veneer_bin):
    (stack.lower() / "f").write_bytes(b"f")
    result = layers.tool(veneer_bin, "check", stack.lower())
    assert (result.returncode, result.stderr) == (0, "")


def test_checking_changes_nothing(layer, check):
    with open(layer / _MAP, "r+b") as f:
        f.seek(0, os.SEEK_END)
        f.write(b"x")
    before = {path.name: (os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns)
              for path in layer.iterdir()}
    assert check()[0] == 1
    assert before == {path.name: (os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns)
                      for path in layer.iterdir()}


@pytest.mark.parametrize("off", [0, 8, 33, 60, 121])
def test_each_byte_of_the_header_counts(layer, check, off):
    with open(layer / _MAP, "r+b") as f:
        f.seek(off)
        byte = f.read(1)[0]
        f.seek(off)
        f.write(bytes([byte ^ 0x10]))
    code, lines = check()
    assert code == 1
    _only(lines, f"{layer}/{_MAP}: offset ")
    code, lines = check("--repair")
    assert code == 0 and "repaired: written anew" in lines[1]
    assert check()[0] == 0


def test_records_that_are_gone_are_named_and_the_map_is_kept_aside(layer, check):
    with open(layer / _MAP, "r+b") as f:
        f.seek(128 + 40)
        f.write(b"\xff" * 8)
        f.seek(0)
        damaged = f.read()
    code, lines = check("--repair")
    assert code == 1 and "shorter than when the layer was closed" in lines[0]
    assert {line.split(":")[0] for line in lines[1:]} >= {f"{layer}/{name}" for name in ("f", "g", "e/h")}
    assert (layer / f"{_MAP}.damaged").read_bytes() == damaged
    assert not (layer / _MAP).exists()


def test_a_torn_tail_is_cut(stack, layer, check):
    data = (layer / _MAP).read_bytes()
    end = len(data.rstrip(b"\0")) + 7 & ~7
    with open(layer / _MAP, "r+b") as f:
        f.seek(end)
        f.write(b"\x03\x05\0\0\0\0\0\0torn")
    code, lines = check()
    assert code == 1
    _only(lines, _MAP, f"offset {end}", "torn record")
    code, lines = check("--repair")
    assert code == 0 and "repaired" in lines[1]
    assert check()[0] == 0
    assert (stack.mount() / "f").read_bytes()[600_000:600_003] == b"new"


def test_a_mark_without_its_entry(layer, check):
    other = os.getxattr(layer / "f", _MARK)
    os.setxattr(layer / "f", _MARK, b"\0" + other[1:])
    code, lines = check()
    assert code == 1
    assert f"{layer}/f: its mark is damaged" in lines
    os.setxattr(layer / "f", _MARK, other)
    os.unlink(layer / _MAP)
    code, lines = check()
    assert code == 1
    assert f"{layer}/f: a partial file, but the layer has no map" in lines


def test_a_mark_of_another_layer(stack, layer, check):
    first = os.getxattr(layer / "f", _MARK)
    stack.freeze()
    m = stack.mount()
    write_at(m / "f", b"again", 0)
    stack.umount()
    os.setxattr(stack.upper / "f", _MARK, first)
    code, lines = check()
    assert code == 1
    assert any("/f: its mark was made in another layer" in line for line in lines)


def test_an_entry_without_its_file_is_dropped(layer, check):
    os.unlink(layer / "g")
    code, lines = check()
    assert code == 1
    _only(lines, _MAP, "no file carries the number")
    code, lines = check("--repair")
    assert code == 0 and "repaired: the entry" in lines[1]
    assert check() == (0, [f"{layer}: 2 partial files, no damage"])


def test_a_lower_file_that_changed_or_went(stack, layer, check):
    stack.forget_lower(stack.lower())
    os.utime(stack.lower() / "f")
    os.truncate(stack.lower() / "g", 7)
    os.unlink(stack.lower() / "d" / "h")
    code, lines = check()
    assert code == 1
    assert len(lines) == 3
    assert any(line.startswith(f"{layer}/f: its lower file f was modified") for line in lines)
    assert any(line.startswith(f"{layer}/g: its lower file g has 7 bytes") for line in lines)
    assert any(line.startswith(f"{layer}/e/h: no lower layer has") for line in lines)


def test_a_lower_file_that_is_none_any_more_or_damaged_itself(stack, layer, check):
    stack.forget_lower(stack.lower())
    os.unlink(stack.lower() / "f")
    (stack.lower() / "f").mkdir()
    os.setxattr(stack.lower() / "g", _MARK, b"nonsense")
    code, lines = check()
    assert code == 1 and len(lines) == 2, lines
    assert f"{layer}/f: its lower file f is no regular file" in lines
    assert f"{layer}/g: its lower file g is a damaged partial file itself" in lines


def test_a_mark_on_what_is_no_file(layer, check):
    os.setxattr(layer / "e", _MARK, b"nonsense")
    for argv in ([], ["--repair"]):
        code, lines = check(*argv)
        assert (code, lines) == (1, [f"{layer}/e: marked as a partial file, and is none"])


@pytest.mark.needs_root("writes attributes of overlayfs")
def test_a_metacopy_without_its_file(layer, check):
    (layer / "alone").touch()
    os.truncate(layer / "alone", 5000)
    os.setxattr(layer / "alone", "trusted.overlay.metacopy", b"")
    os.setxattr(layer / "alone", "trusted.overlay.redirect", b"/gone")
    for argv in ([], ["--repair"]):
        code, lines = check(*argv)
        assert (code, lines) == (1, [f"{layer}/alone: a metacopy file without its lower file /gone"])


def test_a_layer_by_itself_is_not_compared_with_others(stack, layer, veneer_bin):
    stack.forget_lower(stack.lower())
    os.unlink(stack.lower() / "f")
    assert layers.tool(veneer_bin, "check", layer).returncode == 0


def test_own_blocks_behind_the_end(stack, layer, check):
    os.truncate(layer / "f", 5000)
    code, lines = check()
    assert code == 1
    _only(lines, f"{layer}/f", "behind its end (5000 bytes)")
    assert check("--repair")[0] == 0
    assert check()[0] == 0
    assert (stack.mount() / "f").read_bytes() == blob(MIB, seed=1)[:5000]


def test_a_redirect_without_its_target(stack, layer, check):
    stack.forget_lower(stack.lower())
    os.rename(stack.lower() / "d", stack.lower() / "elsewhere")
    code, lines = check()
    assert code == 1
    assert f"{layer}/e: no lower layer has the directory /d, which it was before it was renamed" \
        in lines


def test_unknown_reserved_names(layer, check):
    (layer / "e" / ".wh..wh.strange").write_bytes(b"")
    code, lines = check()
    assert code == 1
    assert lines == [f"{layer}/e/.wh..wh.strange: unknown reserved name"]


def _left_in_links(layer, kind):
    """Makes it; where it is."""
    directory = layer / ".wh..wh.links"
    directory.mkdir()
    path = directory / "1"
    if kind == "no other name":
        path.write_bytes(b"copy")
    elif kind == "directory":
        (path / "in").mkdir(parents=True)
    elif kind == "no origin":
        (layer / "copy").write_bytes(b"copy")
        os.link(layer / "copy", path)
    return path


@pytest.mark.parametrize("kind", ["no other name", "directory", "no origin"])
def test_useless_copies_of_hard_linked_files_go(stack, layer, check, kind):
    path = _left_in_links(layer, kind)
    code, lines = check()
    assert code == 1
    _only(lines, str(path))
    code, lines = check("--repair")
    assert code == 0 and len(lines) == 2 and "repaired: removed" in lines[1]
    assert not path.parent.exists()
    assert check("--repair") == (0, [f"{layer}: 3 partial files, no damage"])
    assert (kind == "no origin") == (layer / "copy").exists()


def test_a_copy_that_lacks_names_is_left_to_the_next_mount(stack, check):
    (stack.lower() / "a").write_bytes(blob(MIB))
    for name in ("b", "c"):
        os.link(stack.lower() / "a", stack.lower() / name)
    write_at(stack.mount() / "a", b"new", 0)
    stack.umount()
    links = stack.upper / ".wh..wh.links"
    links.mkdir()
    os.link(stack.upper / "a", links / "1")
    for name in ("b", "c"):
        os.unlink(stack.upper / name)
    for argv in ([], ["--repair"], ["--repair"]):
        code, lines = check(*argv)
        assert code == 1
        _only(lines, "/.wh..wh.links/1", "next mount")
    m = stack.mount()
    assert all((m / name).read_bytes()[:3] == b"new" for name in "abc")
    stack.umount()
    assert check()[0] == 0


@pytest.mark.parametrize("name", [".wh..wh.check", ".wh..wh.flatten"])
def test_directories_of_tools_that_were_stopped_go(layer, check, name):
    (layer / name / "sub").mkdir(parents=True)
    (layer / name / "sub" / "f").write_bytes(b"f")
    code, lines = check()
    assert code == 1
    _only(lines, f"{layer}/{name}: left by a tool")
    assert check("--repair")[0] == 0
    assert not (layer / name).exists()
    assert check()[0] == 0


def _check_with_work(stack, program, *argv):
    result = layers.tool(program, "check", *argv, "-o", layers.options(stack.upper, stack.lowers, stack.work))
    return result.returncode, result.stdout.splitlines()


def test_what_a_killed_mount_left_in_the_work_directory_goes(stack, layer, veneer_bin):
    left = stack.work / "work" / "veneer-0123456789abcdef"
    (left / "sub").mkdir(parents=True)
    (left / "#whiteout").write_bytes(b"")
    (stack.work / "work" / "other").mkdir()
    code, lines = _check_with_work(stack, veneer_bin)
    assert code == 1
    _only(lines, f"{left}: left by a mount that was killed")
    code, lines = _check_with_work(stack, veneer_bin, "--repair")
    assert code == 0 and "repaired" in lines[1]
    assert names_in(stack.work / "work") == ["other"]
    assert _check_with_work(stack, veneer_bin)[0] == 0


def test_links_in_the_work_directory_are_not_followed(stack, layer, veneer_bin):
    away = stack.base / "away"
    (away / "veneer-0").mkdir(parents=True)
    (stack.work / "work").rmdir()
    (stack.work / "work").symlink_to(away)
    _check_with_work(stack, veneer_bin, "--repair")
    (stack.work / "work").unlink()
    (stack.work / "work").mkdir()
    (stack.work / "work" / "veneer-1").symlink_to(away)
    assert _check_with_work(stack, veneer_bin, "--repair")[0] == 0
    assert names_in(stack.work / "work") == [] and names_in(away) == ["veneer-0"]


def test_a_volatile_mount_of_another_boot_is_named(stack, layer, veneer_bin):
    mark = stack.work / "work" / "incompat" / "volatile"
    mark.mkdir(parents=True)
    (mark / "boot_id").write_text("another")
    for argv in ([], ["--repair"]):
        code, lines = _check_with_work(stack, veneer_bin, *argv)
        assert code == 1
        _only(lines, f"{stack.work}/work", "volatile")
    assert mark.exists()


def test_a_live_mounts_work_directory_is_its_own(stack, veneer_bin):
    stack.mount()
    before = names_in(stack.work / "work")
    assert len(before) == 1
    assert _check_with_work(stack, veneer_bin)[0] == 0
    assert names_in(stack.work / "work") == before


@pytest.mark.parametrize("attr", ["user.overlay.opaque", "user.fuseoverlayfs.opaque"])
def test_an_opaque_mark_on_a_file_goes(layer, check, attr):
    os.setxattr(layer / "f", attr, b"y")
    code, lines = check()
    assert code == 1
    _only(lines, f"{layer}/f: ", "opaque mark", attr)
    assert check("--repair")[0] == 0
    assert attr not in os.listxattr(layer / "f") and _MARK in os.listxattr(layer / "f")
    assert check("--repair") == (0, [f"{layer}: 3 partial files, no damage"])


def test_a_whiteout_beside_what_it_hides_is_left_alone(layer, check):
    (layer / "e" / ".wh.h").write_bytes(b"")
    for argv in ([], ["--repair"]):
        code, lines = check(*argv)
        assert code == 1
        _only(lines, f"{layer}/e/.wh.h: ", "hides h beside it")
    assert (layer / "e" / "h").exists()


def test_a_map_with_another_name(layer, check):
    os.link(layer / _MAP, layer / "evil")
    for argv in ([], ["--repair"]):
        code, lines = check(*argv)
        assert code == 1
        _only(lines, f"{layer}/{_MAP}: the map has 2 names")


def test_a_repair_of_everything_at_once_is_done_once(layer, check):
    os.unlink(layer / "g")
    os.truncate(layer / "f", 5000)
    os.setxattr(layer / "f", "user.overlay.opaque", b"y")
    (layer / ".wh..wh.flatten").mkdir()
    _left_in_links(layer, "no other name")
    code, lines = check("--repair")
    assert code == 0 and len(lines) == 10
    after = {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in layer.rglob("*")}
    assert check("--repair") == (0, [f"{layer}: 2 partial files, no damage"])
    assert after == {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in layer.rglob("*")}


def test_a_mounted_upper_is_checked_with_a_warning_and_not_repaired(stack, veneer_bin):
    (stack.lower() / "f").write_bytes(blob(MIB))
    write_at(stack.mount() / "f", b"new", 0)
    result = layers.check(veneer_bin, stack.upper, stack.lowers)
    assert result.returncode == 0 and "in use" in result.stderr
    result = layers.check(veneer_bin, stack.upper, stack.lowers, "--repair")
    assert result.returncode == 1 and "in use" in result.stderr


def test_wrong_usage_is_2(stack, veneer_bin):
    for argv in ([], ["--no-such", stack.upper], ["-o", f"upperdir={stack.upper}"],
                 [stack.upper, stack.upper],
                 [stack.upper, "-o", f"lowerdir={stack.lower()},upperdir={stack.upper}"]):
        assert layers.tool(veneer_bin, "check", *argv).returncode == 2, argv
    assert layers.tool(veneer_bin, "check", "--help").returncode == 0


def test_what_is_not_there_is_1(stack, veneer_bin):
    result = layers.tool(veneer_bin, "check", stack.base / "absent")
    assert result.returncode == 1 and "absent" in result.stderr


@pytest.mark.parametrize("seed", [21, None])
def test_layers_of_random_operations_are_clean(stack, plain, check, seed):
    seed = seed or int(os.environ.get("VENEER_TEST_SEED", 20261121))
    differential.make_layers(stack, plain, seed)
    stack.umount()
    tops = [stack.upper, *stack.lowers]
    for lower in stack.lowers:
        # which parts of a preallocated file count as data depends on what is cached
        stack.forget_lower(lower)
    for number in range(3):
        code, lines = check(upper=tops[number], lowers=tops[number + 1:])
        assert code == 0, lines


@pytest.mark.writethrough("times that the kernel keeps are lost with a server that has no successor")
def test_after_a_kill_of_the_server_a_repair_makes_all_well(stack, plain, check):
    rng = random.Random(3)
    differential.prepare(stack, plain, rng)
    stack.mount()
    operations = RandomOperations(Twins(stack.mnt, plain), rng)
    for _ in range(300):
        operations.step()
    operations.close_handles()
    want = layers.view(stack.mnt)
    stack.server.kill()
    assert check("--repair")[0] == 0
    assert check()[0] == 0
    assert layers.view(stack.mount()) == want
