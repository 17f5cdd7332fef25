# SPDX-License-Identifier: Apache-2.0
"""veneer diff: the list of what a layer changes, and the archive of it."""
import io
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tarfile

import pytest

from support import linux, rootless
from support.content import MIB, blob

_NS = 1_000_000_000 * 1_500_000_000 + 123_456_789


def diff(stack, *arguments, **keywords):
    return subprocess.run([stack.program, "diff", *map(str, arguments)], capture_output=True, **keywords)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def lowerdir(stack):
    return "lowerdir=" + ":".join(str(path) for path in stack.lowers)


def listed(stack, *arguments):
    result = diff(stack, "-o", lowerdir(stack), *arguments, stack.upper, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


def fill_lower(stack):
    low = stack.lower()
    for directory in ("kept", "gone/deep", "replaced/sub", "moved/sub", "touched"):
        (low / directory).mkdir(parents=True)
        (low / directory / "f").write_text(directory)
    (low / "replaced" / "old").write_text("old")
    (low / "big").write_bytes(blob(MIB))
    (low / "small").write_text("small")
    (low / "deleted").write_text("x")
    (low / "same").write_text("x")
    (low / "h1").write_text("linked")
    os.link(low / "h1", low / "touched" / "h2")
    os.symlink("same", low / "link")


def change(m):
    with open(m / "big", "r+b") as f:
        f.seek(300_000)
        f.write(b"changed")
    os.unlink(m / "deleted")
    shutil.rmtree(m / "gone")
    shutil.rmtree(m / "replaced")
    (m / "replaced").mkdir()
    (m / "replaced" / "new").write_text("new")
    os.rename(m / "moved", m / "elsewhere")
    (m / "elsewhere" / "added").write_text("added")
    (m / "dir" / "below").mkdir(parents=True)
    (m / "dir" / "below" / ("long-" * 40)).write_text("long")
    os.link(m / "dir" / "below" / ("long-" * 40), m / "dir" / "linked")
    os.symlink("x" * 3000, m / "dir" / "symlink")
    os.chmod(m / "small", 0o4751)
    os.setxattr(m / "small", "user.attribute", b"binary\0\xff")
    (m / "touched" / "h2").write_text("through the other name")
    os.mkfifo(m / "fifo")
    (m / os.fsdecode(b"name-\xff\xfe")).write_text("no UTF-8")
    (m / "gr\u00fc\u00dfe").write_text("UTF-8")
    os.utime(m / "dir" / "linked", ns=(_NS, _NS))
    if os.geteuid() == 0 and not rootless.is_inside():
        os.mknod(m / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chown(m / "dir", 4_000_000, 77)


def apply(archive, target):
    """As container engines do: whiteouts first mean what is below, then all else is unpacked."""
    with tarfile.open(archive) as tar:
        names = [member.name for member in tar]
        sizes = [member for member in tar if member.name.split("/")[-1].startswith(".wh.")]
    assert all(member.size == 0 for member in sizes)
    for name in names:
        directory, _, last = name.rpartition("/")
        place = target / directory
        if last == ".wh..wh..opq":
            for entry in list(place.iterdir()) if place.is_dir() else []:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        elif last.startswith(".wh."):
            victim = place / last[len(".wh."):]
            shutil.rmtree(victim) if victim.is_dir() and not victim.is_symlink() else victim.unlink()
    subprocess.run(["tar", "-x", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-p", "--unlink-first",
                    "--recursive-unlink", "--exclude=.wh.*", "-C", target, "-f", archive], check=True,
                   stderr=subprocess.DEVNULL)


def picture(root):
    """All that an archive can hold."""
    seen, inodes = {}, {}
    for directory, subdirs, names in os.walk(os.fsencode(root)):
        for name in subdirs + names:
            path = os.path.join(directory, name)
            st, key = os.lstat(path), os.path.relpath(path, os.fsencode(root))
            kind = stat.S_IFMT(st.st_mode)
            data = os.readlink(path) if kind == stat.S_IFLNK else \
                pathlib.Path(os.fsdecode(path)).read_bytes() if kind == stat.S_IFREG else st.st_rdev
            attributes = {a: os.getxattr(path, a, follow_symlinks=False)
                          for a in os.listxattr(path, follow_symlinks=False) if not a.startswith("security.selinux")}
            inodes.setdefault(st.st_ino, set()).add(key)
            seen[key] = (oct(st.st_mode), st.st_uid, st.st_gid, data, attributes,
                         None if kind == stat.S_IFDIR else st.st_mtime_ns)
    return seen, sorted(sorted(names) for names in inodes.values() if len(names) > 1)


def test_what_was_changed_is_listed(stack):
    fill_lower(stack)
    change(stack.mount())
    lines = listed(stack)
    for line in ("D /deleted", "D /gone", "C /replaced", "A /replaced/new", "D /replaced/old", "D /replaced/sub", "D /moved",
                 "A /elsewhere", "A /elsewhere/added", "A /elsewhere/sub", "A /elsewhere/sub/f", "A /dir", "A /dir/below",
                 "A /fifo", "A /name-\\xff\\xfe"):
        assert line in lines, (line, lines)
    for name in ("small", "h1", "touched/h2"):
        assert any(line.startswith(f"C /{name}") for line in lines)
    assert "C /big (1 of 256 blocks of 4 KiB, 4.0 KiB of 1.0 MiB)" in lines
    assert not {"/kept", "/kept/f", "/same", "/link", "/touched"} & {line[2:].split(" (")[0] for line in lines}
    assert [line[3:].split(" (")[0] for line in lines if line.isascii() and "\\" not in line] == sorted(
        line[3:].split(" (")[0] for line in lines if line.isascii() and "\\" not in line)
    assert "D /gone/deep/f" in listed(stack, "-r")


def test_directory_is_changed_by_what_comes_and_goes_in_it(stack):
    for name in ("a", "b", "c", "d"):
        (stack.lower() / name).mkdir()
        (stack.lower() / name / "f").write_text("x")
    m = stack.mount()
    times = os.stat(m / "a").st_mtime_ns
    (m / "a" / "new").write_text("")
    os.utime(m / "a", ns=(times, times))
    os.chmod(m / "b", 0o700)
    (m / "c" / "f").write_text("y")
    assert listed(stack) == ["C /a", "A /a/new", "C /b", "C /c/f (1 of 1 block of 4 KiB, 4.0 KiB of 1 B)"]


def test_whiteouts_that_are_files_are_deletions(stack):
    """Of a layer that somebody else wrote: empty files with an attribute (Linux 6.7)."""
    for place in ("", "d"):
        for layer in (stack.lower(), stack.upper):
            (layer / place).mkdir(exist_ok=True)
        (stack.lower() / place / "gone").write_text("x")
        os.setxattr(stack.upper / place, "user.overlay.opaque", b"x")
        (stack.upper / place / "gone").write_text("")
        os.setxattr(stack.upper / place / "gone", "user.overlay.whiteout", b"")
    shutil.copystat(stack.lower() / "d", stack.upper / "d")
    os.setxattr(stack.upper / "d", "user.overlay.opaque", b"x")
    assert [line for line in listed(stack) if "gone" in line] == ["D /d/gone", "D /gone"]
    assert {"D /d/gone", "D /gone"} <= set(diff(stack, stack.upper, text=True).stdout.splitlines())


def test_layer_alone_tells_what_it_can(stack):
    fill_lower(stack)
    m = stack.mount()
    change(m)
    lines = diff(stack, stack.upper, text=True).stdout.splitlines()
    assert {"D /deleted", "D /gone", "A /dir/linked", "A /fifo"} <= set(lines)
    assert "C /big (1 of 256 blocks of 4 KiB, 4.0 KiB of 1.0 MiB)" in lines
    assert not any(line.startswith("A /small") for line in lines)


def test_json(stack):
    fill_lower(stack)
    change(stack.mount())
    report = json.loads("\n".join(listed(stack, "--json")))
    by_path = {entry["path"]: entry for entry in report["changes"]}
    assert report["exact"] is True
    assert by_path["/big"] == {"kind": "C", "path": "/big", "type": "file", "size": MIB,
                               "partial": {"own_blocks": 1, "blocks": 256, "block_bytes": 4096}}
    assert by_path["/gone"] == {"kind": "D", "path": "/gone", "type": "directory"}
    assert json.loads(diff(stack, "--json", stack.upper).stdout)["exact"] is False


@pytest.mark.parametrize("is_mounted", [False, True], ids=["unmounted", "in use"])
def test_archive_makes_of_the_lower_what_the_mount_shows(stack, plain, is_mounted):
    fill_lower(stack)
    m = stack.mount()
    change(m)
    want = picture(m)
    if not is_mounted:
        stack.umount()
    archive = stack.base / "layer.tar"
    result = diff(stack, "--tar", "-o", archive, "-o", lowerdir(stack), stack.upper, text=True)
    assert result.returncode == 0, result.stderr
    assert "entries" in result.stderr and result.stdout == ""
    subprocess.run(["cp", "-a", f"{stack.lower()}/.", plain], check=True)
    apply(archive, plain)
    got = picture(plain)
    assert got[0].keys() == want[0].keys()
    for name in want[0]:
        assert got[0][name] == want[0][name], name
    assert got[1] == want[1]


def test_directory_made_anew_with_its_old_times_is_not_taken_for_the_old_one(stack, plain):
    """As by programs that restore trees, and in images that have one time for all."""
    low = stack.lower()
    for directory in ("d/kept/deep", "d/emptied/deep", "moved/kept/deep"):
        (low / directory).mkdir(parents=True, mode=0o700)
        (low / directory / "f").write_text("x")
    times = {str(path.relative_to(low)): _NS for path in (low, *low.rglob("*"))}
    for name in times:
        os.utime(low / name, ns=(_NS, _NS))
    m = stack.mount()
    shutil.rmtree(m / "d")
    for directory in ("d", "d/kept", "d/kept/deep", "d/emptied"):
        (m / directory).mkdir(mode=os.stat(low / directory).st_mode & 0o777)
    (m / "d" / "kept" / "deep" / "f").write_text("x")
    # A directory that is merged into another one's place.
    shutil.copytree(m / "moved", m / "copy", copy_function=shutil.copy2)
    os.rename(m / "moved", m / "away")
    os.rename(m / "copy", m / "moved")
    for name in times:
        if (m / name).exists():
            os.utime(m / name, ns=(_NS, _NS))
    want = picture(m)
    assert b"d/emptied/deep" not in want[0]
    assert "D /d/emptied/deep" in listed(stack)
    stack.umount()
    (stack.base / "x.tar").write_bytes(diff(stack, "--tar", "-q", "-o", lowerdir(stack), stack.upper).stdout)
    subprocess.run(["cp", "-a", f"{low}/.", plain], check=True)
    apply(stack.base / "x.tar", plain)
    assert picture(plain) == want


def test_archive_over_a_partial_lower_layer(stack, plain):
    """Two uppers, one on the other, both with blocks of their own."""
    (stack.lower() / "f").write_bytes(blob(MIB))
    with open(stack.mount() / "f", "r+b") as f:
        f.write(b"first")
    stack.freeze()
    m = stack.mount()
    with open(m / "f", "r+b") as f:
        f.seek(500_000)
        f.write(b"second")
    want = (m / "f").read_bytes()
    archive = diff(stack, "--tar", "-q", "-o", lowerdir(stack), stack.upper)
    assert archive.stderr == b""
    (stack.base / "x.tar").write_bytes(archive.stdout)
    apply(stack.base / "x.tar", plain)
    assert (plain / "f").read_bytes() == want


def test_files_of_what_is_mounted_inside_are_not_taken_for_one(stack):
    """Two file systems, and subvolumes of one, give the same numbers."""
    stack.lower()
    places = [stack.upper / name for name in ("a", "b")]
    try:
        for place in places:
            place.mkdir()
            linux.mount("tmpfs", place, "tmpfs", 0, "mode=0755")
            (place / "f").write_text(f"of {place.name}")
            os.link(place / "f", place / "g")
        if len({(place / "f").stat().st_ino for place in places}) > 1:
            pytest.skip("this kernel gives them different numbers")
        archive = diff(stack, "--tar", "-q", "-o", lowerdir(stack), stack.upper)
        assert (archive.returncode, archive.stderr) == (0, b"")
    finally:
        for place in places:
            if os.path.ismount(place):
                linux.umount(place)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for place in places:
            for name in ("f", "g"):
                assert tar.extractfile(f"{place.name}/{name}").read() == f"of {place.name}".encode()
            assert tar.getmember(f"{place.name}/g").linkname == f"{place.name}/f"


def test_archive_of_a_run_that_was_killed_is_not_there(stack):
    if not shutil.which("strace"):
        pytest.skip("no strace to stop a program at a system call")
    try:
        os.close(os.open(stack.base, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system has no files without a name")
    stack.lower()
    (stack.upper / "f").write_bytes(blob(MIB))
    archive = stack.base / "x.tar"
    arguments = ["diff", "--tar", "-q", "-o", archive, "-o", lowerdir(stack), stack.upper]
    killed = subprocess.run(["strace", "-o", os.devnull, "-e", "inject=write:signal=KILL:when=20", stack.program, *arguments],
                            capture_output=True, timeout=60)
    assert killed.returncode != 0 and not archive.exists()
    result = diff(stack, *arguments[1:])
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    with tarfile.open(archive) as tar:
        assert tar.extractfile("f").read() == blob(MIB)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o666 & ~_umask()


def test_what_goes_while_it_is_looked_at_is_not_listed(stack):
    """A file was in the directory, and is not there any more when it is asked what it is."""
    if not shutil.which("strace"):
        pytest.skip("no strace to make a system call fail")
    stack.lower()
    for name in ("a", "going", "z"):
        (stack.upper / name).touch()
    # Leaks cannot be looked for in a program that is traced.
    leaks = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    trace = stack.base / "trace"
    result = subprocess.run(["strace", "-o", trace, "-P", "going", "-e", "inject=newfstatat:error=ENOENT", stack.program, "diff", "-o",
                             lowerdir(stack), stack.upper], capture_output=True, text=True, env=leaks, timeout=60)
    assert "(INJECTED)" in trace.read_text()
    assert (result.returncode, result.stdout, result.stderr) == (0, "A /a\nA /z\n", "")


def test_archive_of_times_before_1970_and_of_odd_names(stack):
    stack.lower()
    times = {"half": -500_000_000, "three": -3_000_000_000, "more": -1_500_000_001, "later": 1_500_000_001}
    for name, ns in times.items():
        (stack.upper / name).touch()
        os.utime(stack.upper / name, ns=(ns, ns))
    (stack.upper / os.fsdecode(b"not-\xff")).touch()
    os.setxattr(stack.upper / "half", "user.plain", b"1")
    os.setxattr(stack.upper / "half", "user.a=b", b"2")
    archive = diff(stack, "--tar", "-q", "-o", lowerdir(stack), stack.upper)
    assert archive.returncode == 0
    assert archive.stderr.count(b"\n") == 1 and b"half: the attribute user.a=b gets another name" in archive.stderr
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        got = {member.name: member for member in tar}
    assert [got[name].mtime for name in times] == [-1, -3, -2, 1.500000001]
    assert got["half"].pax_headers["SCHILY.xattr.user.plain"] == "1"
    # GNU tar warns of this header, so it is there only where a name needs it.
    assert archive.stdout.count(b"hdrcharset=BINARY") == 1


def test_socket_is_left_out_of_an_archive_and_said(stack):
    m = stack.mount()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(m / "s"))
    result = diff(stack, "--tar", "-o", lowerdir(stack), stack.upper)
    assert result.returncode == 0 and b"socket" in result.stderr


def test_archive_that_cannot_be_written_is_not_left(stack):
    fill_lower(stack)
    change(stack.mount())
    archive = stack.base / "x.tar"
    archive.write_text("mine")
    result = diff(stack, "--tar", "-o", archive, "-o", lowerdir(stack), stack.upper, text=True)
    assert result.returncode == 1 and "exists" in result.stderr
    assert archive.read_text() == "mine"
    with open("/dev/full", "wb") as full:
        # libarchive keeps its buffer after an error, and only then.
        leaks = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        assert subprocess.run([stack.program, "diff", "--tar", "-o", lowerdir(stack), stack.upper], stdout=full,
                              stderr=subprocess.DEVNULL, env=leaks).returncode == 1
        assert subprocess.run([stack.program, "diff", stack.upper], stdout=full,
                              stderr=subprocess.DEVNULL).returncode == 1


@pytest.mark.parametrize("arguments, code", [([], 2), (["--tar", "UPPER"], 2), (["--what", "UPPER"], 2), (["a", "b"], 2),
                                             (["/nowhere"], 1), (["-o", "lowerdir=/nowhere", "UPPER"], 1)])
def test_exit_codes(stack, arguments, code):
    arguments = [str(stack.upper) if word == "UPPER" else word for word in arguments]
    result = diff(stack, *arguments, text=True)
    assert result.returncode == code
    assert result.stderr and not result.stdout
