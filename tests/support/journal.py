# SPDX-License-Identifier: Apache-2.0
"""A journal of systemd of its own: the real program, in namespaces where nobody else is, and what is read of it."""
import json
import os
import shutil
import subprocess

JOURNALD = "/lib/systemd/systemd-journald"

# Nothing of the machine is read or changed: no kernel messages, no audit, a /run of its own.
_SCRIPT = """
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journald.conf.d /run/log/journal
printf '[Journal]\\nStorage=volatile\\nRuntimeMaxUse=16M\\nAudit=no\\nReadKMsg=no\\nForwardToSyslog=no\\nForwardToWall=no\\n' \
    >/run/systemd/journald.conf.d/x.conf
[ -s /etc/machine-id ] || {
    echo 0123456789abcdef0123456789abcdef >/run/machine-id
    mount --bind /run/machine-id /etc/machine-id || exit 9
}
"$0" & journald=$!
k=0; until [ -S /run/systemd/journal/socket ] && [ -S /run/systemd/journal/stdout ]; do
    sleep 0.02; k=$((k + 1)); [ $k -lt 500 ] || exit 8
done
"$@" >&2; code=$?
kill $journald; wait $journald
journalctl -D /run/log/journal -o json --no-pager --output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,VENEER_MOUNT,VENEER_VERSION,_TRANSPORT
exit $code
"""


def missing():
    """What is not there, in words; None: it can be had."""
    if os.geteuid() != 0:
        return "namespaces and a /run of its own are made as root"
    if not os.path.exists(JOURNALD) or not shutil.which("journalctl"):
        return "there is no systemd-journald"
    return None


def run_with(script, *arguments, env, enter=None):
    """A shell script beside a journal, in a process that called enter first. (what the journal has, what the script said)"""
    result = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", _SCRIPT, JOURNALD,
                             "sh", "-ec", script, "sh", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=60, env=env, preexec_fn=enter)
    assert result.returncode == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr
