# SPDX-License-Identifier: Apache-2.0
"""Work done in many views at once, and the jobs it does."""
import subprocess
import time
import zipfile

import pytest

from support import host, packages, slowdev, together, views


def some_views(tmp_path, count):
    for i in range(count):
        (tmp_path / str(i)).mkdir()
    return [views.View(str(tmp_path / str(i))) for i in range(count)]


def nap(path, seconds):
    time.sleep(seconds)
    return path


def fail_in(path, bad):
    if path.endswith(bad):
        raise ValueError("no")


def test_all_work_at_once_and_answers_keep_their_order(tmp_path):
    every = some_views(tmp_path, 4)
    done = together.together(every, nap, [(s,) for s in (0.3, 0.1, 0.2, 0)])
    assert done.results == [v.path for v in every]
    assert 0.3 <= done.seconds < 0.9


def test_one_that_fails_is_a_failure_of_all(tmp_path):
    with pytest.raises(host.HostError, match="in one of 3 views: (.|\\n)*no"):
        together.together(some_views(tmp_path, 3), fail_in, [("1",)] * 3)


def test_a_command_is_run_in_each_view(tmp_path):
    every = some_views(tmp_path, 2)
    together.together(every, together.command, [("sh", "-c", "echo VIEW >said")] * 2)
    assert [(tmp_path / str(i) / "said").read_text().strip() for i in range(2)] == \
        [v.path for v in every]
    with pytest.raises(host.HostError, match="false"):
        together.together(every, together.command, [("false",)] * 2)


def test_sources_compile(tmp_path):
    packages.sources(str(tmp_path / "src"), 2, 3)
    subprocess.run(["make", "-s", "-C", str(tmp_path / "src")], check=True)
    assert (tmp_path / "src" / "program").exists()


def test_wheels_hold_their_modules_and_sums(tmp_path):
    packages.wheels(str(tmp_path), 1, 3, 2)
    with zipfile.ZipFile(tmp_path / "bench_0-2-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        record = wheel.read("bench_0-2.dist-info/RECORD").decode()
    assert all(name in record for name in names)
    assert "bench_0/m2.py" in names


def test_structures_of_the_slow_device_are_as_long_as_the_kernels():
    assert (slowdev.IN.size, slowdev.OUT.size) == (40, 16)
    assert (slowdev.ATTR_OUT.size, slowdev.OPEN_OUT.size, slowdev.INIT_OUT.size) == (104, 16, 64)


def test_a_server_that_stays_after_umount_is_ended(tmp_path, monkeypatch):
    class Work:
        @staticmethod
        def scratch(_):
            (tmp_path / "view").mkdir()
            return str(tmp_path / "view")

    monkeypatch.setattr(host, "WAIT_S", 0.1)
    view = views.Served(Work, "host")
    with subprocess.Popen(["sleep", "100"]) as view.server:
        view.leave()
        assert view.server.returncode == -9
    assert (tmp_path / "view" / "up").is_dir()
    view.close()
    assert not (tmp_path / "view").exists()
