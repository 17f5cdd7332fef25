# SPDX-License-Identifier: Apache-2.0
"""A block device whose reads take longer: a loop device over a file that a small FUSE server of
ours shows, which sleeps before it answers. Many reads sleep side by side, as on a far disk."""

import errno
import mmap
import os
import struct
import threading
import time

from . import host, workspace

IN = struct.Struct("=IIQQIIIHH")
OUT = struct.Struct("=IiQ")
RANGE = struct.Struct("=QQI")
WRITE_HEAD, WRITE_OUT = 40, struct.Struct("=II")
ATTR_OUT = struct.Struct("=QII QQQQQQ III IIIIII I")
OPEN_OUT = struct.Struct("=QIi")
INIT_IN, INIT_OUT = struct.Struct("=IIII"), struct.Struct("=IIIIHHIIHHI28x")
GETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, INIT = 3, 14, 15, 16, 18, 20, 25, 26
NO_ANSWER = (2, 36, 42)
ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES = 1, 1 << 5, 1 << 15, 1 << 22
FOPEN_DIRECT_IO = 1
MOST = 1 << 20
THREADS = 32
MODE = 0o100600
SIZE = 3 << 30
DELAY = struct.Struct("=d")


class _Server:
    """The one file is the root of its mount: no name is ever looked up."""

    def __init__(self, device, image, delay):
        self.device, self.image, self.delay = device, image, delay
        self.size = os.fstat(image).st_size
        self.acts = {GETATTR: self.attr, OPEN: self.open, READ: self.read, WRITE: self.write,
                     RELEASE: self.nothing, FSYNC: self.sync, FLUSH: self.nothing,
                     INIT: self.init}

    def attr(self, _):
        attr = (1, self.size, self.size // 512, 0, 0, 0, 0, 0, 0, MODE, 1, 0, 0, 0, 4096, 0)
        return ATTR_OUT.pack(3600, 0, 0, *attr)

    def open(self, _):
        return OPEN_OUT.pack(0, FOPEN_DIRECT_IO, 0)

    def read(self, body):
        _, off, size = RANGE.unpack_from(body)
        delay = DELAY.unpack_from(self.delay)[0]
        if delay:
            time.sleep(delay)
        return os.pread(self.image, size, off)

    def write(self, body):
        _, off, size = RANGE.unpack_from(body)
        return WRITE_OUT.pack(os.pwrite(self.image, body[WRITE_HEAD:WRITE_HEAD + size], off), 0)

    def sync(self, _):
        os.fdatasync(self.image)
        return b""

    def nothing(self, _):
        return b""

    def init(self, body):
        major, minor, ahead, flags = INIT_IN.unpack_from(body)
        flags &= ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES
        return INIT_OUT.pack(major, min(minor, 38), ahead, flags, THREADS, THREADS, MOST, 1,
                             MOST // 4096, 0, 0)

    def serve(self):
        while True:
            try:
                request = os.read(self.device, MOST + 4096)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, *_ = IN.unpack_from(request)
            if opcode not in NO_ANSWER:
                self.answer(opcode, unique, memoryview(request)[IN.size:])

    def answer(self, opcode, unique, body):
        data, error = b"", 0
        try:
            if opcode in self.acts:
                data = self.acts[opcode](body)
            else:
                error = -errno.ENOSYS
        except OSError as e:
            error = -e.errno
        try:
            os.writev(self.device, [OUT.pack(OUT.size + len(data), error, unique), data])
        except OSError:
            pass


class SlowVolume:
    """An ext4 on such a device, and a Workspace on it. It goes when the Workspace that `work` is
    unmounts what is below its root; the server goes with the mount."""

    def __init__(self, work):
        image, point = os.path.join(work.root, "slow.img"), os.path.join(work.root, "slow")
        volume = os.path.join(work.root, "vol-slow")
        with open(image, "wb") as f:
            f.truncate(SIZE)
        host.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", image)
        with open(point, "wb"):
            pass
        os.mkdir(volume)
        self.delay = mmap.mmap(-1, DELAY.size)
        self._serve(image, point)
        loop = host.run("losetup", "--direct-io=on", "-f", "--show", point).strip()
        try:
            host.run("mount", "-t", "ext4", loop, volume)
        finally:
            # From then on it goes with its last mount.
            host.detach(loop, point)
        self.work = workspace.Workspace(os.path.join(volume, "w"), on_loop=False)

    def _serve(self, image, point):
        device, back = os.open("/dev/fuse", os.O_RDWR), os.open(image, os.O_RDWR)
        options = f"fd={device},rootmode={MODE:o},user_id=0,group_id=0,max_read={MOST}"
        if host.libc.mount(b"slow", point.encode(), b"fuse", 0, options.encode()):
            raise host.HostError("mount of the slow device failed")
        if not os.fork():
            try:
                server = _Server(device, back, self.delay)
                threads = [threading.Thread(target=server.serve) for _ in range(THREADS)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
            finally:
                os._exit(0)
        os.close(device)
        os.close(back)

    def set_delay(self, seconds):
        DELAY.pack_into(self.delay, 0, seconds)
