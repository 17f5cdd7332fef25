# SPDX-License-Identifier: Apache-2.0
"""The messages between mount program and server, as src/server/wire.h has them, and a client that may
break every rule."""
import array
import errno
import os
import socket
import struct
import time

MAGIC, VERSION = 0x31524E56, 1
HELLO, DIRS, ARGS, MOUNT, READY, FUSE, OK, ERROR, STATS, TEXT, PING, PONG, UPGRADE, BEQUEST = range(1, 15)
LOWER, UPPER, WORK = range(3)
IS_ROOT = 1


def message(kind, payload=b"", version=VERSION, magic=MAGIC, length=None):
    return struct.pack("<IHHI", magic, version, kind, len(payload) if length is None else length) + payload


def socket_name():
    """The name of the socket of this process's namespaces."""
    return "-".join(str(os.stat(f"/proc/self/ns/{kind}").st_ino) for kind in ("user", "pid")) + ".sock"


class Client:
    def __init__(self, runtime_dir, greet=True, timeout=20, name=None):
        """name: of the socket, where this process is in other namespaces than the server."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        # an address holds 107 bytes
        directory = os.open(runtime_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            self._connect(f"/proc/self/fd/{directory}/{name or socket_name()}", timeout)
        except BaseException:
            self.sock.close()
            raise
        finally:
            os.close(directory)
        if greet:
            self.send(message(HELLO, b"test"))
            answer = self.receive()
            if answer is None:
                raise ConnectionResetError(errno.ECONNRESET, "the server hung up")
            assert answer[0] == HELLO, answer

    def _connect(self, address, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                self.sock.connect(address)
                return
            except BlockingIOError:  # with a time limit it does not wait for room in the queue
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def send(self, data, fds=()):
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([data], control)

    def receive(self):
        """(type, payload), or None at the end."""
        for _ in range(2):
            try:
                data = self.sock.recv(1 << 17)
                break
            except ConnectionResetError:
                # said once, before what is still to be read
                data = b""
        if not data:
            return None
        magic, _, kind, length = struct.unpack_from("<IHHI", data)
        assert magic == MAGIC and length == len(data) - 12
        return kind, data[12:]

    def error(self):
        """The sentence of a refusal; the server hangs up after it."""
        answer = self.receive()
        assert answer is not None and answer[0] == ERROR, answer
        assert self.receive() is None
        return answer[1][4:].decode()

    def ping(self):
        """(process id, number of mounts)"""
        self.send(message(PING))
        kind, payload = self.receive()
        assert kind == PONG
        count, pid = struct.unpack("<IQ", payload)
        return pid, count

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
