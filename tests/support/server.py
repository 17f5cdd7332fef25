# SPDX-License-Identifier: Apache-2.0
"""One mount and the process that serves it: a process of its own, or the shared server that use() names."""
import errno
import os
import pathlib
import signal
import subprocess

from .waiting import wait_until

from . import linux

_BAD_SIGNS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:",
              "Assertion", "stack smashing", "core dumped")
_TEST_LIMIT_S = 120


_shared, _shares_pages, _keeps_writes = None, False, False


def use(shared, shares_pages=False):
    """From now on mounts are made by the mount program and served by this server; None: each by its own."""
    global _shared, _shares_pages
    _shared, _shares_pages = shared, shares_pages


def keep_writes():
    """From now on mounts have a write-back cache."""
    global _keeps_writes
    _keeps_writes = True


def _mode_options(options):
    """Those of the mode that is asked for, where no other option is against it."""
    words = ",".join(options).split(",")
    against = ("io=", "timeout=0", "share=", "standalone") if _shares_pages else ("io=", "timeout=0", "share=", "writeback=")
    if any(word.startswith(against) for word in words):
        return []
    return ["share=pages"] if _shares_pages else ["io=cached", "writeback=on"] if _keeps_writes else []


def is_shared():
    return _shared is not None


def shares_pages():
    return _shares_pages


class MountFailed(Exception):
    def __init__(self, code, log):
        super().__init__(f"mount program ended with {code}: {log.strip()!r}")
        self.code, self.log = code, log


def _is_stopped(pid):
    return all(path.read_text().rpartition(")")[2].split()[0] == "T" for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))


def stop_process(pid):
    """Stop all of its threads: one that runs on for a moment answers a request."""
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: _is_stopped(pid)), f"process {pid} does not stop"


def _is_unmounted(point):
    try:
        linux.umount(point)
    except OSError as e:
        if e.errno != errno.EBUSY:
            raise
        return False
    return True


def unmount(point):
    """A process that another thread has just forked has our descriptors until it runs its program."""
    assert wait_until(lambda: _is_unmounted(point), 5), f"{point} stays busy"


def escape(path):
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def Mount(*arguments, **keywords):
    """A mount in the mode of the run; see OwnMount."""
    if _shared:
        return SharedMount(_shared, *arguments, **keywords)
    return OwnMount(*arguments, **keywords)


class OwnMount:
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
        return ",".join(parts + list(options) + _mode_options(options) + ([extra] if extra else []))

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
        if not wait_until(gone, 20, 0.01):
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

    def die(self):
        """End the server without mercy, and leave the dead mount."""
        self.process.kill()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_for_end(self, limit_s=30):
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


class SharedMount(OwnMount):
    """The same by the mount program and a shared server, whose process is that of all its mounts: a signal or a
    kill is for all of them, and the end of this mount is not the end of the process."""

    def __init__(self, shared, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.shared, self._log_start, self._is_on = shared, 0, False

    @property
    def pid(self):
        """The process that answers requests, not its supervisor."""
        return self.shared.pid

    def die(self):
        self.shared.kill()

    def start(self, *options, env=None):
        self.shared.ensure()
        self.shared.watch()
        self._log_start = self.shared.log_size()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FUSE_OVERLAYFS_")}
        environment.update(self.shared.environment)
        environment.update(env or {})
        try:
            result = subprocess.run([self.program, "-o", self.option_string(options), str(self.mnt)],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    env=environment, timeout=60)
        except subprocess.TimeoutExpired:
            raise MountFailed("no mount within the time", self.log) from None
        with open(self.log_path, "ab") as log:
            log.write(result.stdout)
        if result.returncode:
            raise MountFailed(result.returncode, self.log_path.read_text(errors="replace"))
        assert b"server of its own" not in result.stdout, result.stdout
        self.process, self._is_on = self.shared.process, True
        self.shared.mounted.add(self)
        return self

    @property
    def is_mounted(self):
        return self._is_on

    @property
    def log(self):
        return super().log + self.shared.log_from(self._log_start)

    def stop(self):
        if not self._is_on:
            return None
        problem = self._unmount()
        if problem:
            self.kill()
            return problem
        return None if self.wait_for_end() is not None else "the server did not let go of the mount"

    def wait_for_end(self, limit_s=30):
        """0 when the server has let go of the mount; None if it did not."""
        self._is_on = False
        self.shared.mounted.discard(self)
        has_ended = wait_until(lambda: self.shared.count() <= len(self.shared.mounted), limit_s, 0.005)
        return 0 if has_ended else None

    def kill(self):
        """All mounts of the server lose it; one that was never made leaves it alone."""
        if self._is_on:
            self.shared.kill()
        self._is_on = False
        try:
            linux.umount(self.mnt, linux.MNT_DETACH)
        except OSError:
            pass
