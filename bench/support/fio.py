# SPDX-License-Identifier: Apache-2.0
"""fio: its jobs one after the other in one call, and what it reports of each."""

import json
import os
import tempfile
from collections import namedtuple

from . import host, trees

# amount: bytes each thread moves; None: for as long as the call says.
# share: each thread has its own part of the file.
Job = namedtuple("Job", "name rw block depth threads path direct size amount share",
                 defaults=(None, False))

# What one job did. Latencies in microseconds; slat is None where submission is the whole call.
Seen = namedtuple("Seen", "iops mibs slat clat p99")

PATTERNS = {"RR": ("randread", 4 * trees.KIB), "RW": ("randwrite", 4 * trees.KIB),
            "SR": ("read", 128 * trees.KIB), "SW": ("write", 128 * trees.KIB)}

# A slow driver is stopped here with its work undone: its rate is known by then.
LONGEST_MS = 8000


def overwrite(path):
    """Write every byte of a file, whatever it is made of then."""
    block, size = os.urandom(trees.MIB), os.path.getsize(path)
    fd = os.open(path, os.O_RDWR)
    try:
        for off in range(0, size, len(block)):
            os.pwrite(fd, block, off)
        os.fsync(fd)
    finally:
        os.close(fd)


def _options(job, ms):
    yield f"--name={job.name}"
    yield from (f"--rw={job.rw}", f"--bs={job.block}", f"--filename={job.path}",
                f"--direct={int(job.direct)}", f"--numjobs={job.threads}",
                f"--ioengine={'libaio' if job.direct else 'psync'}", f"--iodepth={job.depth}")
    if job.share:
        part = job.size // job.threads
        yield from (f"--size={part}", f"--offset_increment={part}")
    else:
        yield f"--size={job.size}"
    if job.amount:
        yield from (f"--io_size={job.amount}", f"--runtime={LONGEST_MS}ms")
    else:
        yield from ("--time_based", f"--runtime={ms}ms")
    yield "--stonewall"


def argv(jobs, ms):
    """The program with its arguments."""
    out = ["fio", "--output-format=json", "--thread", "--group_reporting", "--invalidate=0",
           "--allow_file_create=0", "--norandommap", "--disk_util=0"]
    for job in jobs:
        out += _options(job, ms)
    return out


def _seen(report, direct):
    one = report["read"] if report["read"]["total_ios"] else report["write"]
    slat = one["slat_ns"]["mean"] / 1000 if direct else None
    p99 = one["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000
    return Seen(one["iops"], one["bw_bytes"] / trees.MIB, slat, one["clat_ns"]["mean"] / 1000, p99)


def read_report(text, jobs):
    """Job name to Seen, from what fio prints: JSON, now and then with a remark before it."""
    try:
        found = {r["jobname"]: r for r in json.loads(text[text.index("{"):])["jobs"]}
        return {job.name: _seen(found[job.name], job.direct) for job in jobs}
    except (ValueError, KeyError) as e:
        raise host.HostError(f"fio's report is not understood: {e!r}") from e


def run(view, jobs, ms):
    """The same, run where the view is mounted."""
    return read_report(view.run(*argv(jobs, ms)), jobs)


def _rates(log, seconds):
    """Operations in each second, of all threads together. A line of the log is one thread's rate in the second
    that ends then: milliseconds, rate, direction and more."""
    rates = [0.0] * seconds
    with open(log, encoding="ascii") as lines:
        for line in lines:
            end_ms, rate = (int(part) for part in line.split(",")[:2])
            second = (end_ms + 500) // 1000 - 1
            if 0 <= second < seconds:
                rates[second] += rate
    return rates


def run_watched(view, job, seconds):
    """One job for so long: (operations in each second, 99th percentile in microseconds)."""
    with tempfile.TemporaryDirectory(prefix="veneer-bench-", dir="/tmp") as folder:
        log = os.path.join(folder, "log")
        text = view.run(*argv([job], seconds * 1000), f"--write_iops_log={log}", "--log_avg_msec=1000",
                        "--per_job_logs=0")
        return _rates(f"{log}_iops.log", seconds), read_report(text, [job])[job.name].p99
