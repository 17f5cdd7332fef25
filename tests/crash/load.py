# SPDX-License-Identifier: Apache-2.0
"""The load while pictures are taken: workers in threads or processes, and the kernel's own
writing, stirred up so that it happens at all moments and not every five seconds."""
import contextlib
import ctypes
import multiprocessing
import os
import random
import threading
import time
import traceback

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2
_forking = multiprocessing.get_context("fork")


class ThreadWorker:
    def __init__(self, function):
        self._function, self._error = function, None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self._function(self._stop.is_set)
        except BaseException as e:
            self._error = e

    def start(self):
        self._thread.start()

    def stop(self):
        self._stop.set()

    def join(self):
        self._thread.join()
        if self._error:
            raise self._error


class ProcessWorker:
    """function(is_stopped, recording) changes a file and its own copy of the recording, which is
    merged into the caller's at the end."""

    def __init__(self, function, recording):
        self._recording, self._stop = recording, _forking.Event()
        self._read, self._write = _forking.Pipe(duplex=False)
        self._process = _forking.Process(target=self._run, args=(function,))

    def _run(self, function):
        try:
            function(self._stop.is_set, self._recording)
            self._write.send((self._recording, None))
        except BaseException:
            self._write.send((None, traceback.format_exc()))

    def start(self):
        self._process.start()
        self._write.close()

    def stop(self):
        self._stop.set()

    def join(self):
        recording, error = self._read.recv()
        self._process.join()
        assert not error, error
        self._recording.merge(recording)


def _write_back(upper, is_stopped):
    """Starts the writing of file data, without that of anything else."""
    while not is_stopped():
        for name in os.listdir(upper):
            with contextlib.suppress(OSError):
                fd = os.open(upper / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                _libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0),
                                      _SYNC_FILE_RANGE_WRITE)
                os.close(fd)
        time.sleep(0.003)


def _commit(path, is_stopped):
    """Forces the file system's journal out, by the fsync of a stranger's file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    size = 0
    while not is_stopped():
        size = (size + 1) % 7777
        os.ftruncate(fd, size)
        os.fsync(fd)
        time.sleep(0.001)
    os.close(fd)


@contextlib.contextmanager
def _running(machine, workers=()):
    """The workers, and the kernel's writing stirred up; ended however this is left."""
    stranger = machine.disk.path / "stranger"
    # processes first: nothing may fork while threads run
    workers = sorted(workers, key=lambda worker: isinstance(worker, ThreadWorker))
    workers += [ThreadWorker(lambda is_stopped: _write_back(machine.upper, is_stopped)),
                ThreadWorker(lambda is_stopped: _commit(stranger, is_stopped))]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()


def pictures_under(machine, workers, count, pause_s=0.1):
    """Run the workers, take this many pictures at random moments, end the workers."""
    pictures = []
    with _running(machine, workers):
        for _ in range(count):
            time.sleep(pause_s * random.uniform(0.5, 2))
            pictures.append(machine.cut())
    return pictures


def pictures_between(machine, change, count):
    """After each of so many calls of change() a picture, with nothing but the kernel at work."""
    pictures = []
    with _running(machine):
        for _ in range(count):
            change()
            pictures.append(machine.cut())
    return pictures
