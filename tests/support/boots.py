# SPDX-License-Identifier: Apache-2.0
"""Programs that run in another boot: the kernel's boot id is another in a mount namespace of theirs."""
import subprocess
import uuid

_ELSEWHERE = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def run_in_another_boot(base, *command):
    """The finished process; its output is text."""
    boot = base / "another-boot-id"
    boot.write_text(f"{uuid.uuid4()}\n")
    return subprocess.run(["unshare", "-m", "sh", "-c", _ELSEWHERE, str(boot), *map(str, command)],
                          capture_output=True, text=True, timeout=120)
