#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One shift of verified work in one mount: every change goes into a model too, which the next shift of the same mount
goes on with. Ends with 0, or with a sentence about what was wrong.

usage: worker.py MOUNT LOWER MODEL SEED SECONDS
"""
import mmap
import os
import pathlib
import pickle
import random
import signal
import sys
import threading
import time
import traceback
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import linux

BLOCK = 4096
FILE_MAX = 1 << 20


class File:
    """The content of a file; names that are links to it share it."""

    def __init__(self, data):
        self.data, self.attr, self.nlink = bytearray(data), None, 1


class Model:
    def __init__(self, lower):
        self.tree = {}      # path: File, or None for a directory
        for top, dirs, files in os.walk(lower):
            for name in dirs:
                self.tree[os.path.relpath(os.path.join(top, name), lower)] = None
            for name in files:
                path = os.path.join(top, name)
                with open(path, "rb") as f:
                    self.tree[os.path.relpath(path, lower)] = File(f.read())

    def files(self):
        return [path for path, node in self.tree.items() if node]

    def directories(self):
        return [""] + [path for path, node in self.tree.items() if not node]

    def names_in(self, directory):
        prefix = directory + "/" if directory else ""
        return sorted(path[len(prefix):] for path in self.tree
                      if path.startswith(prefix) and "/" not in path[len(prefix):])

    def move(self, old, new):
        """A file, or a directory with all below it."""
        for path in [path for path in self.tree if path == old or path.startswith(old + "/")]:
            self.tree[new + path[len(old):]] = self.tree.pop(path)

    def drop(self, path):
        node = self.tree.pop(path)
        if node:
            node.nlink -= 1


class Wrong(Exception):
    pass


def require(is_right, *words):
    if not is_right:
        raise Wrong(" ".join(map(str, words)))


def first_difference(got, want):
    at = next((k for k, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"{len(got)} bytes instead of {len(want)}, first different at {at}: {bytes(got[at:at + 16]).hex()} " \
        f"instead of {bytes(want[at:at + 16]).hex()}"


class Shift:
    def __init__(self, top, model, seed):
        self.top, self.model, self.dice, self.serial = top, model, random.Random(seed), 0
        self.seed = seed

    def at(self, path):
        return os.path.join(self.top, path)

    def a_file(self):
        files = self.model.files()
        return self.dice.choice(files) if files else self.create()

    def a_new_name(self):
        self.serial += 1
        directory = self.dice.choice(self.model.directories())
        return os.path.join(directory, f"n{self.seed:x}-{self.serial}")

    def verify_file(self, path):
        node = self.model.tree[path]
        with open(self.at(path), "rb") as f:
            got = f.read()
            status = os.fstat(f.fileno())
        require(got == node.data, path, first_difference(got, node.data))
        require(status.st_nlink == node.nlink, path, status.st_nlink, "names instead of", node.nlink)
        if node.attr is not None:
            require(os.getxattr(self.at(path), "user.soak") == node.attr, path, "its attribute")

    # ---- one change each ----

    def create(self):
        path, data = self.a_new_name(), self.dice.randbytes(self.dice.choice((0, 100, 5000, 70_000)))
        with open(self.at(path), "xb") as f:
            f.write(data)
        self.model.tree[path] = File(data)
        return path

    def write(self):
        path = self.a_file()
        node = self.model.tree[path]
        with open(self.at(path), "r+b", buffering=0) as f:
            for _ in range(self.dice.randrange(1, 6)):
                off = self.dice.randrange(min(len(node.data) + 9000, FILE_MAX))
                data = self.dice.randbytes(self.dice.choice((1, 300, BLOCK, 40_000)))
                require(os.pwrite(f.fileno(), data, off) == len(data), path, "a short write")
                node.data.extend(bytes(max(off - len(node.data), 0)))
                node.data[off:off + len(data)] = data
            if self.dice.random() < 0.1:
                os.fsync(f.fileno())

    def append(self):
        path = self.a_file()
        node, data = self.model.tree[path], self.dice.randbytes(self.dice.choice((10, 5000)))
        if len(node.data) < FILE_MAX:
            with open(self.at(path), "ab", buffering=0) as f:
                require(f.write(data) == len(data), path, "a short append")
            node.data += data

    def cut(self):
        path = self.a_file()
        node = self.model.tree[path]
        size = self.dice.randrange(min(len(node.data) + 20_000, FILE_MAX))
        os.truncate(self.at(path), size)
        del node.data[size:]
        node.data.extend(bytes(size - len(node.data)))

    def punch(self):
        path = self.a_file()
        node = self.model.tree[path]
        if len(node.data) < 2:
            return
        off = self.dice.randrange(len(node.data) - 1)
        length = min(self.dice.choice((10, BLOCK, 50_000)), len(node.data) - off)
        with open(self.at(path), "r+b") as f:
            linux.fallocate(f.fileno(), linux.FALLOC_PUNCH_HOLE | linux.FALLOC_KEEP_SIZE, off, length)
        node.data[off:off + length] = bytes(length)

    def map(self):
        path = self.a_file()
        node = self.model.tree[path]
        if not node.data:
            return
        with open(self.at(path), "r+b") as f, mmap.mmap(f.fileno(), len(node.data)) as memory:
            for _ in range(4):
                off = self.dice.randrange(len(node.data))
                data = self.dice.randbytes(min(self.dice.choice((1, 500, 9000)), len(node.data) - off))
                memory[off:off + len(data)] = data
                node.data[off:off + len(data)] = data
            require(zlib.crc32(memory) == zlib.crc32(node.data), path, "as a mapping")
            if self.dice.random() < 0.5:
                memory.flush()

    def move(self):
        old, new = self.a_file(), self.a_new_name()
        if self.dice.random() < 0.3:
            new = self.a_file()
        if self.model.tree[old] is self.model.tree.get(new):
            return
        os.rename(self.at(old), self.at(new))
        if new in self.model.tree:
            self.model.drop(new)
        self.model.move(old, new)

    def link(self):
        old, new = self.a_file(), self.a_new_name()
        os.link(self.at(old), self.at(new))
        self.model.tree[new] = self.model.tree[old]
        self.model.tree[old].nlink += 1

    def remove(self):
        path = self.a_file()
        node = self.model.tree[path]
        with open(self.at(path), "rb") as f:
            os.unlink(self.at(path))
            self.model.drop(path)
            require(f.read() == node.data, path, "without its name")

    def make_directory(self):
        path = self.a_new_name()
        os.mkdir(self.at(path))
        self.model.tree[path] = None

    def move_directory(self):
        directories = [path for path in self.model.directories() if path]
        if not directories:
            return
        old, new = self.dice.choice(directories), self.a_new_name()
        if new.startswith(old + "/"):
            return
        os.rename(self.at(old), self.at(new))
        self.model.move(old, new)

    def remove_directory(self):
        empty = [path for path in self.model.directories() if path and not self.model.names_in(path)]
        if empty:
            path = self.dice.choice(empty)
            os.rmdir(self.at(path))
            self.model.drop(path)

    def set_attribute(self):
        path, value = self.a_file(), self.dice.randbytes(self.dice.choice((1, 40, 300)))
        os.setxattr(self.at(path), "user.soak", value)
        self.model.tree[path].attr = value

    def read(self):
        self.verify_file(self.a_file())

    def list(self):
        directory = self.dice.choice(self.model.directories())
        require(sorted(os.listdir(self.at(directory))) == self.model.names_in(directory), directory, "its names")

    # ---- and all of it ----

    def verify_all(self):
        seen = []
        for top, dirs, files in os.walk(self.top):
            seen += [os.path.relpath(os.path.join(top, name), self.top) for name in dirs + files]
        require(sorted(seen) == sorted(self.model.tree), "names:", sorted(set(seen) ^ set(self.model.tree))[:10])
        for path in self.model.files():
            self.verify_file(path)

    def work(self, seconds):
        steps = {self.create: 8, self.write: 20, self.append: 8, self.cut: 6, self.punch: 4, self.map: 6, self.move: 6,
                 self.link: 3, self.remove: 6, self.make_directory: 3, self.move_directory: 2, self.remove_directory: 2,
                 self.set_attribute: 3, self.read: 15, self.list: 8}
        end, n = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step, = self.dice.choices(list(steps), steps.values())
            try:
                step()
            except Exception as e:
                raise Wrong(f"step {n}, {step.__name__}: {type(e).__name__}: {e}") from e
            n += 1
        return n


def leave_with_parent():
    """Exits when the parent is gone: standard input then ends."""
    def wait():
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=wait, daemon=True).start()


def main():
    top, lower, model_path, seed, seconds = sys.argv[1:]
    leave_with_parent()
    if os.path.exists(model_path):
        with open(model_path, "rb") as f:
            model = pickle.load(f)
    else:
        model = Model(lower)
    shift = Shift(top, model, int(seed))
    try:
        shift.verify_all()
        steps = shift.work(float(seconds))
        if steps:
            shift.verify_all()
    except Exception:
        print(f"seed {seed}: {traceback.format_exc()}", flush=True)
        sys.exit(1)
    with open(model_path + ".new", "wb") as f:
        pickle.dump(model, f)
    os.rename(model_path + ".new", model_path)
    print(steps, flush=True)


if __name__ == "__main__":
    main()
