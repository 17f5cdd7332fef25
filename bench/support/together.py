# SPDX-License-Identifier: Apache-2.0
"""The same work in many views at the same moment, as containers do it."""

import os
import pickle
import subprocess
import time
import traceback
from collections import namedtuple

from . import host

# seconds: from the first start to the last end. results: of each view, in order.
Done = namedtuple("Done", "seconds results")


def _gated(function, ready, go, path, args):
    """Where the view is mounted: say that we are there, wait for the others, work."""
    os.write(ready, b".")
    os.read(go, 1)
    start = time.perf_counter()
    result = function(path, *args)
    return start, time.perf_counter(), result


def _child(view, function, args, ready, go, out):
    try:
        answer = (True, view.call(_gated, function, ready, go, view.path, args))
    except BaseException:  # the child must not go on as a second bench
        answer = (False, traceback.format_exc(limit=-2))
    with os.fdopen(out, "wb") as f:
        pickle.dump(answer, f)


def _start(view, function, args, ready, go):
    """(process id, descriptor of its answer)"""
    back, out = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(ready[0])
            os.close(go[1])
            _child(view, function, args, ready[1], go[0], out)
        finally:
            os._exit(0)
    os.close(out)
    return pid, back


def _answers(children):
    for pid, back in children:
        with os.fdopen(back, "rb") as f:
            data = f.read()
        os.waitpid(pid, 0)
        yield pickle.loads(data) if data else (False, "the child died")


def together(views, function, arguments):
    """function(path, *arguments of this view) in a process a view, all let go at once. What it
    returns must be plain data."""
    ready, go = os.pipe(), os.pipe()
    children = [_start(view, function, args, ready, go)
                for view, args in zip(views, arguments, strict=True)]
    os.close(ready[1])
    os.close(go[0])
    there = 0
    while there < len(children):
        some = os.read(ready[0], len(children))
        if not some:
            break
        there += len(some)
    os.close(ready[0])
    os.close(go[1])
    answers = list(_answers(children))
    for is_good, answer in answers:
        if not is_good:
            raise host.HostError(f"in one of {len(views)} views: {answer}")
    starts, ends, results = zip(*(answer for _, answer in answers))
    return Done(max(ends) - min(starts), list(results))


def command(path, *argv):
    """For together: a command in the view's directory, VIEW standing for its path."""
    argv = [a.replace("VIEW", path) for a in argv]
    done = subprocess.run(argv, cwd=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise host.HostError(f"{' '.join(argv)}: {done.stdout.strip()[-300:]}")
