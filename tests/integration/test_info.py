# SPDX-License-Identifier: Apache-2.0
"""`veneer info`, and the commands that take a mount point in place of its upper."""
import json
import os
import subprocess

import pytest

from support import linux
from support.content import MIB, blob
from support.expect import write_at
from support.places import Place
from support.server import escape

_ID = "0123456789abcdef" * 4


def run(stack, *arguments, **keywords):
    return subprocess.run([stack.program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **keywords)


def good(*arguments, **keywords):
    result = run(*arguments, **keywords)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


@pytest.fixture
def env(shared):
    return {**os.environ, **shared.environment}


@pytest.fixture
def place(stack, env):
    """A mount of a server of the test's own, with a partial file."""
    (stack.lower() / "f").write_bytes(blob(MIB))
    stack.remember_lowers()
    made = Place(stack, "a,b:c")
    options = [f"lowerdir={stack.lower()}", f"upperdir={escape(made.upper)}", f"workdir={escape(made.work)}", "size=20M", "noacl"]
    assert good(stack, "-o", ",".join(options), made.mnt, env=env) == ""
    write_at(made.mnt / "f", b"changed", 100_000)
    return made


def test_features_have_reasons(stack):
    lines = good(stack, "info").splitlines()
    assert lines[0].startswith("veneer ") and all(len(line.split(None, 2)) == 3 for line in lines[1:])
    found = {f["name"]: f for f in json.loads(good(stack, "info", "--json"))["features"]}
    assert found["mount"]["works"] and found["recovery"]["works"] == ("programs in mounts do not notice" in found["recovery"]["why"])
    assert found["passthrough"]["works"] == (found["trusted.*"]["works"] and "Linux 6.9" not in found["passthrough"]["why"])


def test_a_directory_is_tried_and_left_as_it_was(stack):
    found = {f["name"]: f["works"] for f in json.loads(good(stack, "info", "--json", stack.upper))["features"]}
    assert found["writable"] and found["user.*"]
    assert os.listdir(stack.upper) == []
    result = run(stack, "info", stack.base / "nowhere")
    assert result.returncode == 1 and "nowhere: cannot be tried as an upper: No such file" in result.stderr


def test_a_mount_is_told_of(stack, place, env):
    text = good(stack, "info", place.mnt, env=env)
    rows = dict(line.strip().split(None, 1) for line in text.splitlines())
    assert str(stack.lower()) in text and str(place.upper) in text and "of 20 MiB taken" in text
    assert "noacl," in rows["options"] and "cow=map," in rows["options"]
    told = json.loads(good(stack, "info", "--json", place.mnt, env=env))
    assert (told["mountpoint"], told["upper"], told["lowers"]) == (str(place.mnt), str(place.upper), [str(stack.lower())])
    assert told["mode"] in ("passthrough", "cached") and told["mode_reason"]
    assert told["quota"]["max_bytes"] == 20 * MIB and told["container"] is None
    (mount,) = json.loads(good(stack, "stats", "--json", place.mnt, env=env))["mounts"]
    assert {key: mount[key] for key in ("lowers", "options", "mode", "mode_reason")} == \
        {key: told[key] for key in ("lowers", "options", "mode", "mode_reason")}


@pytest.mark.parametrize("command", ["diff", "du", "inspect", "check"])
def test_a_mount_point_stands_for_its_upper(stack, place, env, command):
    lowers = ("-o", f"lowerdir={stack.lower()}") if command == "diff" else ()
    by_upper = good(stack, command, *lowers, place.upper) if command != "check" else None
    by_mount = run(stack, command, place.mnt, env=env)
    assert by_mount.returncode == 0, by_mount
    if command == "check":
        assert "1 partial file" in by_mount.stdout and "no damage" in by_mount.stdout
        assert "is in use by a mount" in by_mount.stderr
    else:
        assert by_mount.stderr == ""
        assert by_mount.stdout.replace(str(place.mnt), str(place.upper)) == by_upper


def test_partial_files_are_counted_alike(stack, place, env):
    write_at(place.mnt / "f", b"again", 500_000)
    (used,) = json.loads(good(stack, "du", "--json", place.mnt, env=env))
    checked = run(stack, "check", "--json", place.mnt, env=env)
    (inspected,) = json.loads(good(stack, "inspect", "--json", place.mnt, env=env))
    partial = [line for line in inspected["lines"] if line["code"] == "partial"]
    (mount,) = json.loads(good(stack, "stats", "--json", place.mnt, env=env))["mounts"]
    assert used["partial_files"] == json.loads(checked.stdout)["partial_files"] == len(partial) == mount["map"]["files"] == 1


@pytest.mark.parametrize("command", ["diff", "du", "inspect", "check", "info"])
def test_a_mount_that_no_server_tells_of_wants_its_upper(stack, place, env, command):
    result = run(stack, command, place.mnt, env={**env, "VENEER_RUNTIME_DIR": str(stack.base / "none")})
    assert result.returncode == 1 and f"give veneer {command} its upper directory" in result.stderr


def test_a_mount_without_an_upper_is_refused(stack, env):
    (stack.lower() / "f").write_text("lower")
    point = stack._make("readonly")
    assert good(stack, "-o", f"lowerdir={stack.lower()}", point, env=env) == ""
    for command in ("diff", "du", "inspect", "check"):
        result = run(stack, command, point, env=env)
        assert result.returncode == 1 and "read-only" in result.stderr, command
    assert "none: the mount is read-only" in good(stack, "info", point, env=env)
    linux.umount(point)


def test_a_container_is_called_by_its_name(stack, env):
    (stack.lower() / "f").write_text("lower")
    engine = stack.base / "storage"
    for name in ("merged", "diff", "work"):
        (engine / "overlay" / _ID / name).mkdir(parents=True)
    point = engine / "overlay" / _ID / "merged"
    options = f"lowerdir={stack.lower()},upperdir={point.parent}/diff,workdir={point.parent}/work"
    assert good(stack, "-o", options, point, env=env) == ""
    (source,) = [line.split()[0] for line in open("/proc/self/mounts", encoding="utf-8") if f" {point} " in line]
    assert source == "fuse-overlayfs:0123456789ab"
    assert json.loads(good(stack, "info", "--json", point, env=env))["container"] == "0123456789ab"
    (engine / "overlay-containers").mkdir()
    (engine / "overlay-containers" / "containers.json").write_text(json.dumps([{"names": ["we\x1bb"], "layer": _ID}]))
    assert json.loads(good(stack, "stats", "--json", env=env))["mounts"][0]["container"] == "we\x1bb"
    assert "\x1b" not in good(stack, "stats", env=env) and "\x1b" not in good(stack, "info", point, env=env)
    assert 'container="we' in good(stack, "stats", "--prometheus", env=env)
    linux.umount(point)


def test_quotas_are_for_prometheus_and_passed_through_reads_are_said_to_be_unseen(stack, place, env):
    text = good(stack, "stats", "--prometheus", env=env)
    assert f'veneer_quota_max_bytes{{mountpoint="{place.mnt}"}} {20 * MIB}' in text and "veneer_quota_max_inodes{" not in text
    assert "QUOTA" in good(stack, "stats", env=env)
