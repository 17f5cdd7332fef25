# SPDX-License-Identifier: Apache-2.0
"""Programs started in many views of one image, and what that takes of the machine."""

import os
import subprocess
import time

from . import host, rootfs, trees

# Starts as a program of a container does: an interpreter, its libraries, many small modules.
IMPORTS = "import json, ssl, sqlite3, http.client"
PROGRAM = ["/usr/bin/python3", "-S", "-c", IMPORTS]

DATABASE, DATABASE_BYTES, LOG = "var/lib/data.db", 8 * trees.MIB, "var/log/start.log"
# Changes a few blocks of a database that is in the image, and goes on with a log.
WRITES = f"""
import os, random
fd = os.open("/{DATABASE}", os.O_RDWR)
for _ in range(8):
    os.pwrite(fd, b"x" * 4096, random.randrange({DATABASE_BYTES} // 4096) * 4096)
open("/{LOG}", "a").write("started")
"""
WRITER = ["/usr/bin/python3", "-S", "-c", IMPORTS + WRITES]


def build(root):
    """The image: an interpreter, some thousand small files beside it, a database and a log."""
    rootfs.build(root)
    trees.names(root + "/more", 5, 10, 60)
    for path, size in ((DATABASE, DATABASE_BYTES), (LOG, 64 * trees.KIB)):
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        trees.write_file(os.path.join(root, path), size)


def start_all(paths, argv):
    """Seconds until argv has run in all these root directories, started at once."""
    start = time.perf_counter()
    # Under a limit of memory these are killed first, and neither a server nor the bench.
    first = ["choom", "-n", "1000", "--", "chroot"]
    running = [subprocess.Popen([*first, path, *argv], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
               for path in paths]
    said = [(p, p.communicate()[1]) for p in running]
    taken = time.perf_counter() - start
    for p, text in said:
        if p.returncode:
            text = text.decode(errors="replace").strip()[-300:]
            raise host.HostError(f"in a view: {p.returncode} {text}")
    return taken


def start_in(views, argv):
    """All views being of one group, and so in one world."""
    return views[0].call(start_all, [v.path for v in views], argv)
