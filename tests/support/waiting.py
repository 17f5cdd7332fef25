# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition. No test waits for a time: too short on a busy machine, it is too long on any other."""
import os
import tempfile
import time


def wait_until(condition, limit_s=30.0, step_s=0.002):
    """False: not within the limit, which is for a machine that has other things to do, too."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True


def wait_for_tick(directory):
    """Until a change in this file system gets a later time than any that was made so far: its clock moves every few
    milliseconds."""
    with tempfile.NamedTemporaryFile(dir=directory) as probe:
        now = time.time_ns()

        def has_moved():
            os.utime(probe.fileno())
            return os.fstat(probe.fileno()).st_ctime_ns > now
        assert wait_until(has_moved), "the clock of the file system stands still"


def wait_until_old(*paths, age_s=3):
    """Until the files were last changed so long ago: no call sets a change time back."""
    newest = max(os.stat(path).st_ctime for path in paths)
    assert wait_until(lambda: time.time() - newest >= age_s)
