# SPDX-License-Identifier: Apache-2.0
"""The safety nets of the suite itself."""
import faulthandler
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

import pytest

from support.child import in_child
from support.repository import REPOSITORY
from support.server import wait_until


@pytest.mark.parametrize("change", ["content", "mode", "xattr", "new name", "touch"])
def test_a_changed_lower_is_noticed(stack, change):
    path = stack.lower() / "f"
    path.write_bytes(b"x" * 5000)
    stack.mount()
    assert stack.changed_lowers() == []
    {"content": lambda: os.truncate(path, 4000), "mode": lambda: path.chmod(0o600),
     "xattr": lambda: os.setxattr(path, "user.a", b"1"), "touch": lambda: os.utime(path),
     "new name": lambda: (stack.lower() / "g").touch()}[change]()
    assert stack.changed_lowers() != []
    stack.forget_lower(stack.lower())


@pytest.mark.standalone("another server answers when one was ended")
def test_a_hanging_server_is_ended(stack, watchdog):
    (stack.lower() / "f").write_text("x")
    m = stack.mount()
    server = stack.server
    server.signal(signal.SIGSTOP)
    # a thread that has not heard of it yet would still answer
    stat = f"/proc/{server.pid}/stat"
    assert wait_until(lambda: open(stat).read().rpartition(")")[2].split()[0] == "T")
    watchdog.watch(server.pid, 0.2)
    start = time.monotonic()
    with pytest.raises(OSError):
        os.stat(m / "f")
    assert time.monotonic() - start < 20
    assert wait_until(lambda: server.process.poll() is not None)
    server.kill()


def test_a_failure_in_a_child_is_a_failure(stack):
    def fail():
        raise AssertionError("as meant")
    with pytest.raises(AssertionError, match="as meant"):
        in_child(fail)

    def die():
        # a stack of Python in the output would look like a crash of the suite
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    with pytest.raises(AssertionError, match="SIGSEGV"):
        in_child(die)


def test_what_core_leaves_out_is_there():
    here = pathlib.Path(__file__).parent
    listed = (here / "not_core.txt").read_text().split()
    assert listed == sorted(set(listed))
    for name in listed:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (here / path).read_text(), name


@pytest.mark.needs_root("runs tests as another user")
def test_results_of_another_user_are_written_where_nobody_else_writes():
    """contrib/test.sh is root, and its files have fixed names."""
    script = REPOSITORY / "contrib" / "test.sh"
    text = script.read_text().replace('\nmain "$@"\n', """
run_pytest some-rootless tests/integration/test_usage.py -k version --rootless
find "$results" -perm /022 ! -type l
stat -c '%u %a %n' "$results" "$results/user"
"$PYTHON" tests/tally.py "$results"
""")
    made = subprocess.run(["bash", "-c", text, script], cwd=script.parents[1], capture_output=True, text=True, timeout=100)
    assert re.search(r"^[1-9]\d* passed, 0 failed, \d+ skipped$", made.stdout, re.M), made
    assert re.search(r"^0 711 \S+\n12345 700 \S+/user$", made.stdout, re.M) and not re.search(r"^/", made.stdout, re.M), made


@pytest.mark.needs_root("runs the suite once more")
def test_first_parameters_are_chosen_and_tests_that_passed_left_out(tmp_path):
    def names(*options):
        made = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/integration/test_usage.py",
                               *options], cwd=REPOSITORY, capture_output=True, text=True, timeout=100)
        assert made.returncode in (0, 5), made
        return re.findall(r"^integration/test_usage\.py::(\S.*)$", made.stdout, re.M)

    everything, one = names("--collect-only"), names("--collect-only", "--once")
    assert len(one) == len({name.partition("[")[0] for name in everything}) < len(everything)
    report = tmp_path / "report.xml"
    names("--once", f"--junitxml={report}")
    assert names("--collect-only", "--once", f"--without={report}") == []
    assert names("--collect-only", f"--without={report}") == [name for name in everything if name not in one]
