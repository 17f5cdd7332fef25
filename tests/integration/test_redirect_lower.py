# SPDX-License-Identifier: Apache-2.0
"""Lowers that were renamed in: uppers of the kernel's overlayfs with redirect_dir=on and metacopy=on,
our own, and hostile ones."""
import contextlib
import errno
import os
import random
import stat

import pytest

from support import linux, treestate
from support.child import in_child
from support.content import BLOCK, KIB, blob
from support.expect import exists, fails_with, names_in, opened, write_at

REDIRECT = "user.overlay.redirect"


# ---- layers made by the kernel ----

@contextlib.contextmanager
def kernel_overlay(stack, lowers, upper):
    work, mnt = (stack.base / f"{upper.name}-{what}" for what in ("work", "mnt"))
    for path in (upper, work, mnt):
        path.mkdir(mode=0o755)
    options = "lowerdir=" + ":".join(map(str, lowers)) + f",upperdir={upper},workdir={work}"
    try:
        linux.mount("overlay", mnt, "overlay", 0, options + ",redirect_dir=on,metacopy=on")
    except OSError as e:
        pytest.skip(f"no overlayfs with redirect_dir and metacopy here: {e}")
    try:
        yield mnt
    finally:
        linux.umount(mnt)


def fill_more(lower):
    for number in range(8):
        directory = lower / f"d{number % 3}" / f"e{number}"
        directory.mkdir(parents=True)
        (directory / "f").write_bytes(blob(30_000, number))


def describe(path):
    st = os.lstat(path)
    what = {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "mtime": st.st_mtime_ns,
            "xattrs": treestate.xattrs_of(path)}
    if not stat.S_ISDIR(st.st_mode):
        what |= {"size": st.st_size, "rdev": st.st_rdev}
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            what["content"] = f.read()
        what["blocks"] = st.st_blocks
    elif stat.S_ISLNK(st.st_mode):
        what["content"] = os.readlink(path)
    return what


def picture(root):
    """Of everything but the root, which is that of the topmost layer."""
    return {relative: describe(os.path.join(root, relative)) for relative in treestate.walk(root)
            if relative != "."}


def differences(want, got):
    # a message with the bytes of both files would be unreadable
    lines = treestate.differences(want, got)
    return [line[:300] for line in lines]


def fill_lower(lower):
    for name in ("a", "b", "c/inner", "deep/er/most"):
        (lower / name).mkdir(parents=True)
    for number, name in enumerate(("a/x", "a/y", "b/x", "c/inner/f", "c/g", "deep/er/most/h", "top")):
        (lower / name).write_bytes(blob(50_000 + number * BLOCK, number))
        os.setxattr(lower / name, "user.number", b"%d" % number)
    os.symlink("a/x", lower / "link")
    os.setxattr(lower / "a", "user.dir", b"a")


def kernel_upper(stack, lowers, name, change):
    """(the upper that `change` left behind, what the kernel showed)"""
    upper = stack.base / name
    with kernel_overlay(stack, lowers, upper) as m:
        change(m)
        os.sync()
        seen = picture(m)
    return upper, seen


def rename_and_chmod(m):
    (m / "a").rename(m / "moved")
    (m / "b").rename(m / "a")
    (m / "moved" / "x").chmod(0o600)
    (m / "moved" / "x").rename(m / "moved" / "renamed")
    (m / "moved").rename(m / "moved twice")
    (m / "new").mkdir()
    (m / "c" / "inner").rename(m / "new" / "inner")
    (m / "c" / "g").chmod(0o640)
    (m / "c" / "g").rename(m / "new" / "inner" / "far")
    (m / "c").rename(m / "new" / "c")
    (m / "deep" / "er").rename(m / "deep" / "brother")
    (m / "deep").rename(m / "new" / "deep")
    os.chown(m / "new" / "deep" / "brother" / "most" / "h", 1000, 1000)
    (m / "top").chmod(0o711)
    os.link(m / "top", m / "new" / "linked")
    os.utime(m / "link", ns=(5, 5), follow_symlinks=False)


@pytest.mark.needs_root("trusted.* attributes take privileges")
def test_kernel_upper_shows_what_the_kernel_showed(stack):
    fill_lower(stack.lower())
    upper, want = kernel_upper(stack, stack.lowers, "kupper", rename_and_chmod)
    assert len(attributes_below(upper, "trusted.overlay.redirect")) >= 6
    assert len(attributes_below(upper, "trusted.overlay.metacopy")) >= 3
    stack.lowers.insert(0, upper)
    for is_writable in (False, True):
        m = stack.remount(upper=is_writable)
        assert differences(want, picture(m)) == []


def attributes_below(root, name):
    found = []
    for relative in treestate.walk(root):
        with contextlib.suppress(OSError):
            os.getxattr(os.path.join(root, relative), name, follow_symlinks=False)
            found.append(relative)
    return found


@pytest.mark.needs_root("trusted.* attributes take privileges")
def test_layers_over_a_kernel_upper(stack):
    """Written through, frozen and read again: a partial file over a metacopy over a file, in
    directories that were renamed below and are renamed above."""
    fill_lower(stack.lower())
    upper, want = kernel_upper(stack, stack.lowers, "kupper", rename_and_chmod)
    stack.lowers.insert(0, upper)
    for generation in range(3):
        m = stack.remount()
        for name in ("moved twice/renamed", "new/inner/far", "new/deep/brother/most/h", "moved twice/y"):
            write_at(m / name, b"%d" % generation, 10_000 + generation)
            content = bytearray(want[name]["content"])
            content[10_000 + generation:10_001 + generation] = b"%d" % generation
            want[name]["content"] = bytes(content)
        # two names of one metacopy
        write_at(m / "top", b"%d" % generation, 0)
        for name in ("top", "new/linked"):
            want[name]["content"] = b"%d" % generation + want[name]["content"][1:]
        (m / "new" / f"{generation}").write_bytes(b"new")
        stack.freeze()
        m = stack.mount()
        for name, was in want.items():
            path = m / name
            if "content" in was and not os.path.islink(path):
                assert path.read_bytes() == was["content"], (generation, name)
            assert oct(os.lstat(path).st_mode) == was["mode"], name
        assert exists(m / "new" / f"{generation}")


class RandomChanges:
    """Such as make an overlayfs write redirects, and files that have little of their own."""

    def __init__(self, seed):
        self.rng, self.serial = random.Random(seed), 0

    def paths(self, m, want_dirs):
        found = []
        for relative in treestate.walk(m):
            is_dir = stat.S_ISDIR(os.lstat(m / relative).st_mode)
            if relative != "." and is_dir == want_dirs:
                found.append(relative)
        return sorted(found)

    def new_name(self, m):
        self.serial += 1
        directory = self.rng.choice(["."] + self.paths(m, True))
        return m / directory / f"n{self.serial}"

    def rename_directory(self, m):
        old = self.rng.choice(self.paths(m, True))
        new = self.new_name(m)
        if str(new).startswith(f"{m / old}/"):
            return
        (m / old).rename(new)

    def rename_file(self, m):
        (m / self.rng.choice(self.paths(m, False))).rename(self.new_name(m))

    def chmod(self, m):
        path = m / self.rng.choice(self.paths(m, False))
        if not path.is_symlink():
            path.chmod(self.rng.choice([0o600, 0o644, 0o755]))

    def swap_directories(self, m):
        one, two = self.rng.choice(self.paths(m, True)), self.rng.choice(self.paths(m, True))
        if not f"{one}/".startswith(f"{two}/") and not f"{two}/".startswith(f"{one}/"):
            linux.renameat2(str(m / one), str(m / two), linux.RENAME_EXCHANGE)

    def write(self, m):
        path = m / self.rng.choice(self.paths(m, False))
        if not path.is_symlink():
            write_at(path, blob(100, self.serial), self.rng.randrange(40_000))

    def remove(self, m):
        path = m / self.rng.choice(self.paths(m, False))
        path.unlink()

    def make(self, m):
        new = self.new_name(m)
        new.mkdir()
        (new / "file").write_bytes(blob(9 * KIB, self.serial))

    def remove_directory(self, m):
        path = self.rng.choice(self.paths(m, True))
        if not os.listdir(m / path):
            (m / path).rmdir()
            if self.rng.random() < 0.5:
                (m / path).mkdir()

    def change(self, m):
        operations = [self.rename_directory] * 5 + [self.rename_file, self.chmod, self.chmod,
                      self.swap_directories, self.write, self.remove, self.make, self.remove_directory]
        for _ in range(25):
            self.rng.choice(operations)(m)


@pytest.mark.needs_root("trusted.* attributes take privileges")
@pytest.mark.parametrize("seed", range(6))
def test_generations_of_random_changes_by_the_kernel(stack, seed):
    fill_lower(stack.lower())
    fill_more(stack.lower())
    made = RandomChanges(seed)
    for generation in range(4):
        upper, want = kernel_upper(stack, stack.lowers, f"k{generation}", made.change)
        stack.lowers.insert(0, upper)
        m = stack.remount(upper=generation % 2 == 1)
        assert differences(want, picture(m)) == [], f"generation {generation}"
    assert sum(len(attributes_below(path, "trusted.overlay.redirect")) for path in stack.lowers) > 20


# ---- layers made by ourselves ----

@pytest.mark.writethrough("a modification time may become that of the sending")
@pytest.mark.parametrize("seed", range(6))
def test_generations_of_random_changes_of_our_own(stack, seed):
    fill_lower(stack.lower())
    fill_more(stack.lower())
    made = RandomChanges(seed)
    for generation in range(4):
        m = stack.remount()
        made.change(m)
        want = picture(m)
        stack.freeze()
        got = picture(stack.mount(upper=generation % 2 == 1))
        assert differences(want, got) == [], f"generation {generation}"
    assert sum(len(attributes_below(path, REDIRECT)) for path in stack.lowers) > 10


# ---- layers made by hand, against the rule ----

class Directory:
    def __init__(self):
        self.children, self.is_broken = {}, False


class Layer:
    """A random tree with whiteouts and redirects, as a nested dict and on the disk."""

    def __init__(self, rng, depth=3):
        self.rng = rng
        self.root = self._draw(depth, True)

    def _draw(self, depth, is_root=False):
        rng = self.rng
        node = {"names": {}, "hidden": set(), "redirect": None, "opaque": False}
        if not is_root:
            node["opaque"] = rng.random() < 0.1
            if rng.random() < 0.2:
                node["redirect"] = self._target()
        for name in "abcd":
            kind = rng.choice(["none"] * 3 + ["file"] * 2 + ["dir"] * 6 + ["whiteout"])
            if kind == "dir" and depth:
                node["names"][name] = self._draw(depth - 1)
            elif kind == "file":
                node["names"][name] = f"{rng.random()}".encode()
            elif kind == "whiteout":
                node["hidden"].add(name)
            if rng.random() < 0.02:
                node["hidden"].add(name)
        return node

    def _target(self):
        if self.rng.random() < 0.4:
            return self.rng.choice("abcd")
        return "/" + "/".join(self.rng.choice("abcd") for _ in range(self.rng.choice([1, 1, 2])))

    def write(self, path, node=None):
        node = node or self.root
        for name, child in node["names"].items():
            if isinstance(child, bytes):
                (path / name).write_bytes(child)
            else:
                (path / name).mkdir()
                self.write(path / name, child)
        for name in node["hidden"]:
            (path / f".wh.{name}").touch()
        if node["opaque"]:
            (path / ".wh..wh..opq").touch()
        if node["redirect"]:
            os.setxattr(path, REDIRECT, node["redirect"].encode())

    def over(self, below):
        """The merged tree of this layer on `below`, the merged tree of those beneath it."""
        def find(tree, path):
            for name in path.split("/"):
                tree = tree.children.get(name) if isinstance(tree, Directory) else None
            return tree

        def merge(node, under):
            out = Directory()
            out.is_broken = bool(under) and under.is_broken
            if under:
                out.children = {name: child for name, child in under.children.items()
                                if name not in node["hidden"]}
            for name, child in node["names"].items():
                if name in node["hidden"]:
                    continue
                if isinstance(child, bytes):
                    out.children[name] = child
                    continue
                target, redirect = under and under.children.get(name), child["redirect"]
                if child["opaque"]:
                    target = redirect = None
                elif redirect:
                    target = find(below, redirect[1:]) if redirect[0] == "/" else \
                        under and under.children.get(redirect)
                target = target if isinstance(target, Directory) else None
                out.children[name] = merge(child, target)
                if redirect and (not target or target.is_broken):
                    out.children[name].is_broken = True
            return out
        return merge(self.root, below)


def compare(path, want, counts):
    if want.is_broken:
        counts["broken"] += 1
        with fails_with(errno.EIO):
            os.listdir(path)
        return
    assert names_in(path) == sorted(want.children), path
    for name, child in want.children.items():
        if isinstance(child, bytes):
            assert (path / name).read_bytes() == child, path / name
            counts["files"] += 1
        else:
            assert (path / name).is_dir()
            compare(path / name, child, counts)
            counts["directories"] += 1


@pytest.mark.parametrize("seed", range(12))
def test_random_redirects_mean_what_the_rule_says(stack, seed):
    rng = random.Random(seed)
    layers = [Layer(rng) for _ in range(6)]
    for number, layer in enumerate(layers):
        layer.write(stack.lower(number))
    want = Directory()
    for layer in layers[::-1]:
        want = layer.over(want)
    counts = {"files": 0, "directories": 0, "broken": 0}
    compare(stack.mount(upper=seed % 2 == 1), want, counts)
    assert sum(counts.values()) >= 3


# ---- enemies ----

def redirected(path, target):
    path.mkdir(parents=True, exist_ok=True)
    os.setxattr(path, REDIRECT, target.encode())


@pytest.mark.parametrize("target", ["/missing", "/file", "/link", "/whiteout", "missing", "..", "/..", "/../..",
                                    "/real/../real", "real/sub", "/", "//real", "/real/", ".", "/bad", "/bad/x",
                                    "/" + "a/" * 1500 + "a", "a" * 256, "x\0y", ""])
def test_redirect_that_leads_nowhere_breaks_that_directory_alone(stack, target):
    """"/bad" is the directory's own path, which is not there below."""
    secret = stack.base / "outside"
    secret.write_text("outside")
    bottom = stack.lower(1)
    (bottom / "real" / "sub").mkdir(parents=True)
    (bottom / "real" / "f").write_text("real")
    (bottom / "file").write_text("file")
    os.symlink("real", bottom / "link")
    (bottom / ".wh.whiteout").touch()
    redirected(stack.lower() / "bad", target)
    (stack.lower() / "bad" / "own").write_text("own")
    m = stack.mount()
    for _ in range(2):
        with fails_with(errno.EIO):
            os.listdir(m / "bad")
        with fails_with(errno.EIO):
            (m / "bad" / "own").read_text()
    assert stat.S_ISDIR(os.stat(m / "bad").st_mode)
    assert (m / "real" / "f").read_text() == "real"
    assert names_in(m) == ["bad", "file", "link", "real"]
    assert stack.log.count("redirect") + stack.log.count("no layer below") == 1
    (m / "real" / "new").write_text("the server is alive")


def test_redirects_into_the_own_subtree_end(stack):
    for number in range(4):
        redirected(stack.lower(number) / "a", "/a/a")
        redirected(stack.lower(number) / "b", "b")
    (stack.lower(4) / "a").mkdir()
    for path in ("a", "a/a/a/a/a", "b"):
        (stack.lower(4) / path).mkdir(parents=True, exist_ok=True)
    (stack.lower(4) / "a/a/a/a/a/f").write_text("found")
    (stack.lower(4) / "b/g").write_text("found")
    m = stack.mount()
    assert names_in(m / "a") == ["f"]
    assert (m / "a" / "f").read_text() == "found"
    assert (m / "b" / "g").read_text() == "found"


def test_chains_through_300_layers(stack):
    """A directory and one in it, renamed in every layer; and the same with no end."""
    count = 300
    for k in range(count):
        lower = stack.lower(k)
        redirected(lower / f"d{k}", f"/d{k + 1}" if k % 2 else f"d{k + 1}")
        redirected(lower / f"d{k}" / f"e{k}", f"e{k + 1}")
        (lower / f"d{k}" / f"e{k}" / f"f{k}").write_text(str(k))
        redirected(lower / "lost", "/lost")
        redirected(lower / "x", "/y/x" if k % 2 else "/y")
        redirected(lower / "y" / "x", "/x")
        redirected(lower / "y", "/x")
        (lower / f".wh.d{k + 1}").touch()
    last = stack.lower(count)
    (last / f"d{count}" / f"e{count}").mkdir(parents=True)
    (last / f"d{count}" / f"e{count}" / "end").write_text("end")
    (last / "y" / "x").mkdir(parents=True)
    (last / "x").mkdir()
    m = stack.mount()
    assert names_in(m) == ["d0", "lost", "x", "y"]
    assert len(os.listdir(m / "d0" / "e0")) == count + 1
    assert (m / "d0" / "e0" / "end").read_text() == "end"
    assert (m / "d0" / "e0" / f"f{count - 1}").read_text() == str(count - 1)
    with fails_with(errno.EIO):
        os.listdir(m / "lost")
    os.listdir(m / "y" / "x")
    os.listdir(m / "x")
    write_at(m / "d0" / "e0" / "end", b"E", 0)
    m = stack.remount()
    assert (m / "d0" / "e0" / "end").read_text() == "End"


@pytest.mark.needs_root("trusted.* attributes take privileges")
def test_hostile_metacopies_are_errors_of_their_own(stack):
    bottom, top = stack.lower(1), stack.lower()
    data = blob(50_000)
    (bottom / "good").write_bytes(data)
    (bottom / "dir").mkdir()
    (bottom / "short").write_bytes(b"short")
    os.symlink("good", bottom / "link")
    os.mkfifo(bottom / "fifo")
    expected = {}

    def metacopy(name, redirect=None, value=b"", size=len(data)):
        (top / name).touch()
        os.truncate(top / name, size)
        os.setxattr(top / name, "trusted.overlay.metacopy", value)
        if redirect is not None:
            os.setxattr(top / name, "trusted.overlay.redirect", redirect)

    for name in ("good", "short", "dir", "link", "fifo", "missing"):
        metacopy(name)
        expected[name] = name == "good"
    for number, redirect in enumerate((b"/good", b"good", b"../good", b"/../good", b"/link", b"link", b"/dir",
                                       b"", b"/", b"/fifo", b"/short", b"a\0b", b"/r0")):
        metacopy(f"r{number}", redirect)
        expected[f"r{number}"] = redirect in (b"/good", b"good")
    for number, value in enumerate((b"\0\4\0\0", b"\1\4\0\0", b"\0\5\0\0x", b"\0\4\0\1", b"\0" * 72, b"x")):
        metacopy(f"v{number}", b"good", value)
        expected[f"v{number}"] = number == 0
    (top / "user").write_bytes(data)
    os.setxattr(top / "user", "user.overlay.metacopy", b"")
    os.setxattr(top / "user", "user.overlay.redirect", b"/good")
    expected["user"] = False
    m = stack.mount()
    for name, is_good in expected.items():
        if is_good:
            assert (m / name).read_bytes() == data, name
            continue
        with fails_with(errno.EIO):
            (m / name).read_bytes()
        with fails_with(errno.EIO):
            write_at(m / name, b"x", 0)
    for name in expected:
        if name in ("good", "v0"):
            write_at(m / name, b"new", 0)
            assert (m / name).read_bytes() == b"new" + data[3:]
        else:
            (m / name).unlink()


@pytest.mark.needs_root("trusted.* attributes take privileges")
def test_metacopy_of_the_upper_is_taken_over_and_never_zeros(stack):
    (stack.lower() / "f").write_bytes(blob(50_000))
    for name, size in (("f", 50_000), ("alone", 50_000), ("wrong", 49_999)):
        (stack.upper / name).touch()
        os.truncate(stack.upper / name, size)
        os.setxattr(stack.upper / name, "trusted.overlay.metacopy", b"")
    os.setxattr(stack.upper / "wrong", "trusted.overlay.redirect", b"/f")
    m = stack.mount()
    for _ in range(2):
        assert (m / "f").read_bytes() == blob(50_000)
        for name in ("alone", "wrong"):
            with fails_with(errno.EIO):
                (m / name).read_bytes()
        m = stack.remount()


@pytest.mark.needs_root("trusted.* attributes take privileges")
def test_holes_below_a_metacopy_are_found(stack):
    bottom, top = stack.lower(1), stack.lower()
    with open(bottom / "f", "wb") as f:
        f.truncate(1 << 20)
        os.pwrite(f.fileno(), b"x" * 65536, 512 << 10)
    (top / "f").touch()
    os.truncate(top / "f", 1 << 20)
    os.setxattr(top / "f", "trusted.overlay.metacopy", b"")
    m = stack.mount()
    with opened(m / "f") as fd:
        assert os.lseek(fd, 0, os.SEEK_DATA) == 512 << 10
        assert os.lseek(fd, 512 << 10, os.SEEK_HOLE) == (512 << 10) + 65536
    assert os.stat(m / "f").st_blocks == os.stat(bottom / "f").st_blocks


@pytest.mark.needs_root("trusted.* attributes take privileges")
@pytest.mark.parametrize("place", ["upper", "lower"])
def test_metacopy_that_its_owner_moves_shows_no_file_of_another_one(stack, place):
    """A metacopy names its lower file by its place only; overlayfs notes the handle of that file, which veneer compares."""
    low = stack.lower(1) if place == "lower" else stack.lower()
    upper = stack.lower() if place == "lower" else stack.upper
    secret = blob(50_000, 1)
    for number, name in enumerate(("given", "mine", "private", "public"), 2):
        (low / name).write_bytes(secret if name == "private" else blob(50_000, number))
        (low / name).chmod(0o644 if name == "public" else 0o600)
    made = stack.base / "made"
    with kernel_overlay(stack, [low], made) as mnt:
        for name in ("given", "mine", "public"):
            os.chown(mnt / name, 1000, 1000)
    for name in ("given", "mine", "public"):
        assert os.getxattr(made / name, "trusted.overlay.metacopy") is not None
        os.rename(made / name, upper / name)
    os.chown(upper, 1000, 1000)
    in_child(os.rename, upper / "mine", upper / "private", uid=1000, gid=1000)
    m = stack.mount()
    assert (m / "given").read_bytes() == blob(50_000, 2)
    assert (m / "public").read_bytes() == blob(50_000, 5)
    with fails_with(errno.EIO):
        assert (m / "private").read_bytes() != secret
    assert "metacopy" in stack.log
    stack.umount()
    assert (stack.mount("userxattr") / "private").read_bytes() == secret
