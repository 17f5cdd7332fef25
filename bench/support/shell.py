# SPDX-License-Identifier: Apache-2.0
"""Commands in a view, timed."""

import subprocess

from . import host


def seconds(view, command):
    """Wall time of a shell command in the view's root. Output is thrown away, failure is an
    error. What it takes to get into the view's namespaces is not timed."""
    timed = f'cd "$0" && s=$(date +%s%N) && ({command}) >/dev/null && echo $(($(date +%s%N) - s))'
    done = subprocess.run(view.argv("bash", "-o", "pipefail", "-c", timed, view.path),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode or done.stderr:
        raise host.HostError(f"{command}: {done.stderr.strip()[:200] or done.returncode}")
    return int(done.stdout) / 1e9
