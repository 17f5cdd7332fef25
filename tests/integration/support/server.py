# SPDX-License-Identifier: Apache-2.0
"""One mount and the process that serves it."""
import errno
import os
import signal
import subprocess
import time

from . import linux

_BAD_SIGNS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:",
              "Assertion", "stack smashing", "core dumped")
_TEST_LIMIT_S = 120


class MountFailed(Exception):
    def __init__(self, code, log):
        super().__init__(f"mount program ended with {code}: {log.strip()!r}")
        self.code, self.log = code, log


def wait_until(condition, limit_s=10.0, step_s=0.002):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True


def escape(path):
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


class Mount:
    """lowers are top first; without an upper the mount is read-only."""

    def __init__(self, program, lowers, upper, work, mnt, log_path, watchdog=None):
        self.program, self.watchdog = str(program), watchdog
        self.lowers, self.upper, self.work = list(lowers), upper, work
        self.mnt, self.log_path = mnt, log_path
        self.process = None

    def option_string(self, options):
        parts = ["lowerdir=" + ":".join(escape(path) for path in self.lowers)]
        if self.upper:
            parts.append(f"upperdir={self.upper}")
        if self.work:
            parts.append(f"workdir={self.work}")
        extra = os.environ.get("VENEER_TEST_OPTIONS")
        return ",".join(parts + list(options) + ([extra] if extra else []))

    def start(self, *options, env=None):
        """Serve in the foreground; returns when the mount answers, or raises MountFailed."""
        before = os.stat(self.mnt).st_dev
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FUSE_OVERLAYFS_")}
        environment.update(env or {})
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "-f", "-o", self.option_string(options), str(self.mnt)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True)
        if self.watchdog:
            self.watchdog.watch(self.process.pid, _TEST_LIMIT_S)
        if not wait_until(lambda: self._answers(before) or self.process.poll() is not None):
            self.kill()
            raise MountFailed("no mount within the time", self.log)
        if self.process.poll() is not None:
            code = self._forget()
            self.kill()
            raise MountFailed(code, self.log)
        return self

    def _answers(self, device_before):
        try:
            return os.stat(self.mnt).st_dev != device_before
        except OSError as e:
            if e.errno in (errno.ENOTCONN, errno.ECONNABORTED):
                return False
            raise

    @property
    def is_mounted(self):
        return self.process is not None

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        try:
            return self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def stop(self):
        """Unmount and wait until the server has ended; returns what was wrong, or None."""
        if not self.process:
            return None
        problem = self._unmount()
        if problem:
            self.kill()
            return problem
        if not wait_until(lambda: self.process.poll() is not None):
            self.kill()
            return "the server did not end after the unmount"
        code = self._forget()
        if code != 0:
            return f"the server ended with {code}"
        return None

    def _unmount(self):
        last = []

        def gone():
            try:
                linux.umount(self.mnt)
                return True
            except OSError as e:
                last[:] = [e]
                return e.errno == errno.EINVAL
        if not wait_until(gone, 5, 0.01):
            return f"cannot unmount: {last[0]}"
        return None

    def kill(self):
        """End the server without mercy and take the dead mount away."""
        if self.process:
            self.process.kill()
            self._forget()
        try:
            linux.umount(self.mnt, linux.MNT_DETACH)
        except OSError:
            pass

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_for_end(self, limit_s=10):
        """The exit code of a server that should end by itself; None if it did not."""
        if not wait_until(lambda: self.process.poll() is not None, limit_s):
            return None
        return self._forget()

    def _forget(self):
        code = self.process.wait()
        if self.watchdog:
            self.watchdog.forget(self.process.pid)
        self.process = None
        return code

    def bad_signs(self):
        return [line for line in self.log.splitlines() if any(sign in line for sign in _BAD_SIGNS)]
