# SPDX-License-Identifier: Apache-2.0
"""The command line that callers rely on; the mounts are in the background unless said."""
import errno
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import subprocess

import pytest

from support import linux, rootless
from support.child import in_child
from support.command import Command, mount_entry
from support.expect import fails_with, names_in
from support.server import wait_until


@pytest.fixture
def command(stack, veneer_bin, watchdog):
    (stack.lower() / "from-lower").write_text("lower")
    made = Command(stack, veneer_bin, watchdog)
    yield made
    made.close()


def assert_serves(stack):
    assert (stack.mnt / "from-lower").read_text() == "lower"
    (stack.mnt / "new").write_text("new")
    assert (stack.upper / "new").read_text() == "new"


def assert_one_sentence(result, *words):
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("veneer: ")
    for word in words:
        assert str(word) in lines[0]


# ---- help and version ----

@pytest.mark.parametrize("argument", ["--version", "-V"])
def test_version_is_the_first_line_of_stdout(command, argument):
    result = command.run(argument)
    assert result.returncode == 0
    assert re.match(r"fuse-overlayfs: version \d", result.stdout)


@pytest.mark.parametrize("argument", ["--help", "-h"])
def test_help_is_on_stdout(command, argument):
    result = command.run(argument)
    assert result.returncode == 0
    assert "mountpoint" in result.stdout.lower()


# ---- forms of the command line ----

@pytest.mark.parametrize("form", [
    ["-o", "OPTIONS", "MNT"],
    ["-oOPTIONS", "MNT"],
    ["MNT", "-o", "OPTIONS"],
    ["overlay", "MNT", "-o", "OPTIONS"],
    ["overlay", "MNT", "-o", "rw,OPTIONS,dev,suid"],
    ["-o", "OPTIONS", "ignored", "also-ignored", "MNT"],
    ["-o", "LOWER", "-o", "UPPER", "-oWORK", "MNT"],
    ["-o", "WORK", "MNT", "-o", "UPPER", "-o", "LOWER"],
    ["-o", ",,OPTIONS,,volatile,", "MNT"],
])
def test_every_form_of_the_command_line_mounts(command, stack, form):
    lower, upper, work = command.options().split(",", 2)
    words = {"OPTIONS": command.options(), "MNT": str(stack.mnt), "LOWER": lower,
             "UPPER": upper, "WORK": work}
    argv = [re.sub("OPTIONS|MNT|LOWER|UPPER|WORK", lambda m: words[m.group()], word)
            for word in form]
    result = command.mount(*argv)
    assert "unknown argument" not in result.stderr
    assert_serves(stack)


def test_later_option_prevails(command, stack):
    (stack.base / "other").mkdir()
    command.mount("-o", command.options(), "-o", f"lowerdir={stack.base}/other", stack.mnt)
    assert names_in(stack.mnt) == []


def test_relative_paths_are_relative_to_the_callers_directory(command, stack):
    stack.upper.rename(stack.base / "u")
    stack.work.rename(stack.base / "w")
    command.mount("-o", "lowerdir=./lower0,upperdir=u,workdir=mnt/../w", "mnt", cwd=stack.base)
    assert (stack.mnt / "from-lower").read_text() == "lower"
    (stack.mnt / "d").mkdir()
    assert (stack.base / "u" / "d").is_dir()


def test_same_program_under_the_name_fuse_overlayfs(command, stack):
    (stack.base / "bin").mkdir()
    (stack.base / "bin" / "fuse-overlayfs").symlink_to(command.program)
    path = f"{stack.base}/bin:{os.environ['PATH']}"
    command.mount("-o", command.options(), stack.mnt, program="fuse-overlayfs",
                  env={"PATH": path})
    assert_serves(stack)


def test_mount_fuse3_finds_it(command, stack):
    tool = shutil.which("mount.fuse3", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not tool:
        pytest.skip("mount.fuse3 is not installed")
    (stack.base / "bin").mkdir()
    (stack.base / "bin" / "fuse-overlayfs").symlink_to(command.program)
    path = f"{stack.base}/bin:{os.environ['PATH']}"
    lower, upper, work = command.options().split(",", 2)
    command.mount("overlay", stack.mnt, "-o", work, "-o", upper, "-o", lower,
                  "-t", "fuse-overlayfs", program=tool, env={"PATH": path})
    assert_serves(stack)


def test_mount_table_names_and_flags(command, stack):
    command.mount_stack()
    flags, kind, source, _ = mount_entry(stack.mnt)
    assert (kind, source) == ("fuse.fuse-overlayfs", "fuse-overlayfs")
    assert {"rw", "nodev", "noatime"} <= flags
    # fusermount3 lets no ordinary user have them
    assert ("nosuid" in flags) == rootless.is_plain()


@pytest.mark.parametrize("options, has, has_not", [
    pytest.param("dev,suid", {"rw", "noatime"}, {"nodev", "nosuid"},
                 marks=pytest.mark.needs_privileges("fusermount3 mounts with nosuid and nodev")),
    ("nosuid,noexec", {"nosuid", "noexec", "nodev"}, set()),
    ("ro", {"ro"}, {"rw"}),
    ("atime,exec", {"rw"}, {"noatime", "noexec"}),
])
def test_flags_reach_the_mount_table(command, stack, options, has, has_not):
    command.mount_stack(options)
    flags = mount_entry(stack.mnt)[0]
    assert has <= flags
    assert not has_not & flags


def test_every_user_may_use_the_mount(command, stack):
    """Without privileges only if that is asked for."""
    command.mount_stack(*(["allow_other"] if rootless.is_plain() else []))
    assert {"default_permissions", "allow_other"} <= mount_entry(stack.mnt)[3]


@pytest.mark.needs_privileges("is root, and becomes another user")
def test_allow_root_lets_nobody_else_in(command, stack):
    """Names, opens and pages that the kernel has are as closed as what it asks for."""
    stack.lower().chmod(0o755)
    command.mount_stack("allow_root")
    assert "allow_other" not in mount_entry(stack.mnt)[3]
    assert_serves(stack)

    def knock():
        for look in (lambda: os.listdir(stack.mnt), lambda: (stack.mnt / "from-lower").read_text(), lambda: os.stat(stack.mnt / "new")):
            with fails_with(errno.EACCES):
                look()
    with open(stack.mnt / "from-lower", encoding="ascii"):
        in_child(knock, uid=1000, gid=1000)
        in_child(knock, uid=1000, gid=0)
    assert_serves(stack)


def test_allow_root_is_not_for_everybody(command, stack):
    def refused(*options):
        return command.run("-o", command.options(*options), stack.mnt)

    assert_one_sentence(refused("allow_root", "allow_other"), "allow_root", "exclude")
    if os.geteuid():
        assert_one_sentence(refused("allow_root"), "allow_root", "by root")


# ---- options that are not there ----

def test_unknown_arguments_are_reported_and_ignored(command, stack):
    unknown = ["metacopy=on", "verity=off", "index=off", "lazytime", "fsname=x"]
    result = command.mount("--foo", "-s", "-o", command.options(*unknown), stack.mnt)
    lines = result.stderr.splitlines()
    for argument in ["--foo", "-s", *unknown]:
        assert any(line.endswith(f"unknown argument ignored: {argument}") for line in lines)
    assert_serves(stack)


def test_accepted_options_are_silent(command, stack):
    result = command.mount_stack(
        "private", "volatile", "fsync=0", "sync=0", "threaded=1", "writeback=1", "fast_ino=1",
        "fast_ino_check=1", "plugins=", "redirect_dir=off", 'context="u:r:t:s0:c1,c2"', "xino=auto",
        "ino32_t", "static_nlink", "noxattrs=0", "timeout=1.5", "splice_read", "splice_write",
        "splice_move", "kernel_cache", "max_write=131072", "diratime", "nodiratime",
        "default_permissions", "allow_other", "rw", "suid", "dev", "exec", "noatime", "cow=map")
    assert result.stderr == ""
    assert_serves(stack)


# ---- failures ----

def test_nothing_is_mounted_without_mount_point_or_lower(command, stack):
    assert_one_sentence(command.run("-o", command.options()), "mountpoint")
    assert_one_sentence(command.run(stack.mnt), "lowerdir")
    assert_one_sentence(command.run("-o", f"upperdir={stack.upper},workdir={stack.work}",
                                    stack.mnt), "lowerdir")
    assert_one_sentence(command.run(stack.mnt, "-o"))
    assert not command.is_mounted()


@pytest.mark.parametrize("option, sentence", [
    ("uidmapping=1:2", "invalid mapping specified: 1:2"),
    ("gidmapping=0:x:1", "invalid mapping specified: 0:x:1"),
    ("redirect_dir=on", "fuse-overlayfs only supports redirect_dir=off"),
    ("xattr_permissions=3", "xattr_permissions"),
    ("squash_to_uid=x", "squash_to_uid"),
    ("fsync=x", "fsync"),
    ("cow=x", "cow"),
    ("lowerdir=//plugin//x", "//plugin//x"),
])
def test_bad_value_is_one_sentence(command, stack, option, sentence):
    assert_one_sentence(command.run("-o", command.options(option), stack.mnt), sentence)
    assert not command.is_mounted()


def test_missing_directories_are_named(command, stack):
    absent, file = stack.base / "absent", stack.base / "file"
    file.write_text("")
    cases = [(command.options(lowers=path), stack.mnt, path) for path in (absent, file)]
    cases += [(command.options(upper=path), stack.mnt, path) for path in (absent, file)]
    cases += [(command.options(work=path), stack.mnt, path) for path in (absent, file)]
    cases += [(command.options(), absent, absent),
              (command.options(lowers=f"{stack.lower()}:{absent}"), stack.mnt, absent)]
    for options, mnt, path in cases:
        assert_one_sentence(command.run("-o", options, mnt), path)
    assert not command.is_mounted()


@pytest.mark.standalone("test_server.py has this of a shared one")
def test_an_upper_in_use_names_the_process_that_serves_it(command, stack):
    command.mount_stack()
    (server,) = command.servers()
    (stack.base / "again").mkdir()
    result = command.run("-o", command.options(), stack.base / "again")
    whose = f"veneer: upperdir {stack.upper} is in use by another mount, of process {server}"
    assert result.returncode == 1
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["veneer"] * 2
    assert all(line.startswith(whose) for line in result.stderr.splitlines()), result.stderr
    assert "waiting" in result.stderr.splitlines()[0] and "unmount that first" in result.stderr.splitlines()[1]


def test_workdir_is_needed_with_an_upper(command, stack):
    lowers_and_upper = f"lowerdir={stack.lower()},upperdir={stack.upper}"
    assert_one_sentence(command.run("-o", lowers_and_upper, stack.mnt), "workdir not specified")
    command.mount("-o", f"lowerdir={stack.lower()}", stack.mnt)


def test_upper_on_a_read_only_file_system_is_named(command, stack):
    frozen = stack.base / "frozen"
    frozen.mkdir()
    linux.mount("tmpfs", frozen, "tmpfs", 0, "mode=0755")
    (frozen / "upper").mkdir()
    (frozen / "work").mkdir()
    remount, readonly = 32, 1
    linux.mount("none", frozen, None, remount | readonly)
    options = command.options(upper=frozen / "upper", work=frozen / "work")
    assert_one_sentence(command.run("-o", options, stack.mnt), frozen)
    assert not command.is_mounted()


# ---- the parent returns ----

def test_parent_returns_when_the_mount_answers(command, stack):
    command.mount_stack()
    assert command.is_mounted()
    assert names_in(stack.mnt) == ["from-lower"]


def test_callers_output_ends_while_the_mount_lives(command, stack):
    process = subprocess.Popen([command.program, "-o", command.options(), str(stack.mnt)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, b"")
    assert_serves(stack)


def test_no_other_descriptor_of_the_caller_is_kept(command, stack):
    read, write = os.pipe()
    command.mount_stack(pass_fds=[write])
    os.close(write)
    os.set_blocking(read, False)
    assert os.read(read, 1) == b""
    os.close(read)
    assert_serves(stack)


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_standard_descriptors_may_be_closed(command, stack, closed):
    script = f'exec "$0" "$@" {closed}'
    command.mount("-c", script, command.program, "-o", command.options(), stack.mnt,
                  program="/bin/sh")
    assert_serves(stack)


def test_server_leaves_the_callers_directory_and_session(command, stack):
    (stack.base / "cwd").mkdir()
    command.mount_stack(cwd=stack.base / "cwd")
    for pid in command.servers():
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert os.getsid(pid) != os.getsid(0)


@pytest.mark.standalone("a shared server outlives its mounts")
def test_server_ends_when_the_mount_is_gone(command, stack):
    command.mount_stack()
    assert command.servers()
    linux.umount(stack.mnt)
    assert wait_until(lambda: not command.servers())


@pytest.mark.standalone("a shared server outlives its mounts")
def test_lazy_unmount_serves_until_the_last_descriptor(command, stack):
    command.mount_stack()
    with open(stack.mnt / "from-lower") as f:
        linux.umount(stack.mnt, linux.MNT_DETACH)
        assert f.read() == "lower"
    assert wait_until(lambda: not command.servers())


def test_lower_paths_are_not_needed_after_the_return(command, stack):
    view = stack.base / "view"
    view.mkdir()
    linux.mount(stack.lower(), view, None, linux.MS_BIND)
    command.mount("-o", command.options(lowers=view), stack.mnt)
    linux.umount(view, linux.MNT_DETACH)
    assert_serves(stack)


@pytest.mark.parametrize("flag", [["-f"], ["-d"], ["-o", "debug"]])
def test_foreground_forms_do_not_return(command, stack, flag):
    process = command.start(*flag, "-o", command.options(), stack.mnt)
    assert wait_until(command.is_mounted)
    assert_serves(stack)
    assert process.poll() is None
    linux.umount(stack.mnt)
    assert process.wait(10) == 0


def test_debugging_prints_each_request(command, stack):
    process = command.start("-d", "-o", command.options("io=cached"), stack.mnt, stderr=subprocess.PIPE)
    assert wait_until(command.is_mounted)
    assert_serves(stack)
    assert not (stack.mnt / "absent").exists()
    (stack.mnt / "new").rename(stack.mnt / "no\x1bw")
    with fails_with(errno.ENOTEMPTY):
        (stack.mnt / "d" / "e").mkdir(parents=True)
        (stack.mnt / "d").rmdir()
    linux.umount(stack.mnt)
    said = process.communicate(timeout=20)[1].decode()
    for line in ['LOOKUP node 1 "from-lower": ok', 'LOOKUP node 1 "absent": No such file or directory', 'MKDIR node 1 "d": ok',
                 'RENAME2? node 1 "new" to node 1 "no\\?w": ok', r"WRITE node \d+, 3 bytes at 0: ok", 'RMDIR node 1 "d": Directory not empty']:
        assert re.search(f"^veneer: {line}$", said, re.M), said


# ---- escapes and long option strings ----

@pytest.mark.parametrize("name, text", [
    ("a:b", r"a\:b"), ("a:b", r"a\\:b"), ("c,d", r"c\,d"), (r"e\f", r"e\\f"), (r"e\f", r"e\f"),
    ("g h", "g h"), ('q"r', 'q"r'), ("ef", r"e\f"),
])
def test_special_characters_in_names_of_lowers(command, stack, name, text):
    (stack.base / name).mkdir()
    (stack.base / name / "here").write_text("")
    lowers = f"{stack.lower()}:{stack.base}/{text}:"
    command.mount("-o", command.options(lowers=lowers), stack.mnt)
    assert names_in(stack.mnt) == ["from-lower", "here"]


@pytest.mark.parametrize("text", ["u:p", r"u\:p", r"u\\:p"])
def test_upper_and_work_do_not_split_at_colons(command, stack, text):
    for kind in ("up", "wk"):
        (stack.base / f"{kind}-u:p").mkdir()
    command.mount("-o", command.options(upper=f"{stack.base}/up-{text}",
                                        work=f"{stack.base}/wk-{text}"), stack.mnt)
    (stack.mnt / "new").write_text("")
    assert (stack.base / "up-u:p" / "new").exists()


def test_empty_lower_names_are_skipped(command, stack):
    (stack.lower(1) / "here").write_text("")
    lowers = f"::{stack.lower(0)}::{stack.lower(1)}:"
    command.mount("-o", command.options(lowers=lowers), stack.mnt)
    assert names_in(stack.mnt) == ["from-lower", "here"]


def test_five_hundred_lowers_with_few_descriptors_allowed(command, stack):
    lowers = []
    for i in range(500):
        path = stack.base / f"{i:03}".ljust(107 - len(str(stack.base)), "x")
        path.mkdir()
        (path / f"f{i}").write_text(str(i))
        lowers.append(str(path))
    options = command.options(lowers=":".join(lowers))
    assert len(options) > 54_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    command.mount("-o", options, stack.mnt, preexec_fn=few)
    assert len(names_in(stack.mnt)) == 500
    for i in (0, 250, 499):
        assert (stack.mnt / f"f{i}").read_text() == str(i)


# ---- mounts on their own directories, read-only mounts ----

@pytest.mark.parametrize("where", ["lower", "upper"])
def test_mount_point_may_be_a_layer(command, stack, where):
    mnt = stack.lower() if where == "lower" else stack.upper
    command.mount("-o", command.options(), mnt)
    assert (mnt / "from-lower").read_text() == "lower"
    (mnt / "new").write_text("")
    linux.umount(mnt)
    assert (stack.upper / "new").exists()


def test_without_an_upper_writing_fails(command, stack):
    command.mount("-o", f"lowerdir={stack.lower()}", stack.mnt)
    assert "ro" in mount_entry(stack.mnt)[0]
    with fails_with(errno.EROFS):
        (stack.mnt / "new").write_text("")
    with fails_with(errno.EROFS):
        os.chmod(stack.mnt / "from-lower", 0o600)


def test_read_only_mount_leaves_upper_and_work_alone(command, stack):
    (stack.work / "kept").write_text("")
    command.mount_stack("ro")
    with fails_with(errno.EROFS):
        (stack.mnt / "new").write_text("")
    assert (names_in(stack.upper), names_in(stack.work)) == ([], ["kept"])


# ---- signals and the environment ----

@pytest.mark.standalone("a signal ends all mounts of a shared server")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_unmounts(command, stack, number):
    command.mount_stack()
    for pid in command.servers():
        os.kill(pid, number)
    assert wait_until(lambda: not command.servers())
    assert not command.is_mounted()


@pytest.mark.standalone("a signal ends all mounts of a shared server")
def test_sigterm_unmounts_a_relative_mount_point(command, stack):
    command.mount("-o", command.options(), "mnt", cwd=stack.base)
    for pid in command.servers():
        os.kill(pid, signal.SIGTERM)
    assert wait_until(lambda: not command.servers())
    assert not command.is_mounted()


def test_sigusr1_reports_counters_and_nothing_else(stack):
    (stack.lower() / "f").write_text("f")
    m = stack.mount()
    assert (m / "f").read_text() == "f"
    stack.server.signal(signal.SIGUSR1)
    assert wait_until(lambda: re.search(r"# INODES: \d+\n", stack.log))
    assert wait_until(lambda: re.search(r"# NODES: \d+\n", stack.log))
    assert (m / "f").read_text() == "f"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGPIPE])
def test_harmless_signals_leave_a_background_server_alive(command, stack, number):
    command.mount_stack()
    for pid in command.servers():
        os.kill(pid, number)
    assert_serves(stack)


@pytest.mark.parametrize("value", ["", "1"])
def test_whiteout_files_when_devices_are_not_wanted(command, stack, value):
    command.mount_stack(env={"FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT": value})
    (stack.mnt / "from-lower").unlink()
    assert names_in(stack.mnt) == []
    marker = pathlib.Path(stack.upper / ".wh.from-lower")
    assert stat.S_ISREG(marker.lstat().st_mode)


# ---- subcommands ----

def test_inspect_names_what_it_cannot_open(command, stack):
    result = command.run("inspect", stack.base / "absent")
    assert (result.returncode, result.stdout) == (1, "")
    assert str(stack.base / "absent") in result.stderr


def test_inspect_finds_partial_files(command, stack):
    (stack.lower() / "big").write_bytes(b"x" * 1_000_000)
    command.mount_stack("cow=map")
    fd = os.open(stack.mnt / "big", os.O_RDWR)
    os.pwrite(fd, b"changed", 500_000)
    os.close(fd)
    for _ in range(2):
        result = command.run("inspect", stack.upper)
        assert result.returncode == 0, result.stderr
        assert "big" in result.stdout
        if command.is_mounted():
            linux.umount(stack.mnt)
