# SPDX-License-Identifier: Apache-2.0
"""Asks a server what Prometheus asks it."""
import http.client
import socket


class _Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(where, timeout=10):
    """where: the path of a socket, or (address, port)."""
    if isinstance(where, tuple):
        return http.client.HTTPConnection(*where, timeout=timeout)
    return _Unix(where, timeout)


def scrape(where, path="/metrics", method="GET", timeout=10):
    """(status, headers, text)"""
    asking = connection(where, timeout)
    try:
        asking.request(method, path)
        answer = asking.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        asking.close()
