# SPDX-License-Identifier: Apache-2.0
"""The shells' completions, asked as a user asks them, against what --help says."""
import os
import pty
import re
import select
import shutil
import signal
import termios
import time

import pytest

from conftest import run
from support.repository import REPOSITORY

needs_fish = pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
needs_zsh = pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")

_BASH = """
. "$1"
COMP_LINE=$2 COMP_POINT=${#2}
# As readline breaks the line into words: at blanks, and at = and : which are words by themselves.
mapfile -t COMP_WORDS < <(sed -E 's/([=:]+)/ \\1 /g' <<<"$2" | tr -s ' ' '\\n' | sed '$!b;/^$/d')
[[ $2 == *[\\ =:] ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_veneer
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="session")
def completions(unpacked):
    return unpacked / "share"


def bash(completions, line, cwd="/"):
    said = run("bash", "--norc", "-c", _BASH, "bash", completions / "bash-completion/completions/veneer", line, cwd=cwd)
    return set(filter(None, said.splitlines()))


def fish(completions, line, cwd="/"):
    file = completions / "fish/vendor_completions.d/veneer.fish"
    said = run("fish", "--no-config", "-c", f"source '{file}'; complete -C '{line}'", cwd=cwd,
               env={**os.environ, "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "XDG_DATA_HOME": "/nonexistent"})
    return {entry.split("\t")[0] for entry in said.splitlines()}


# What the completion offers that fits is written down, whatever the terminal shows of it.
_ZSH = """
fpath=('{functions}' $fpath)
autoload -Uz compinit
compinit -u -D
compadd() {{
	local -a hits
	if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)\\ * ]]; then
		builtin compadd -A hits "$@"
		print -rl -- $hits >>'{settings}/hits'
	fi
	builtin compadd "$@"
}}
zle-line-init() {{ print -n '<at''-work>' }}
zle -N zle-line-init
choices() {{ : >'{settings}/hits'; zle list-choices; print -n '<do''ne>'; }}
zle -N choices
bindkey '^I' choices
"""


class Terminal:
    """A zsh at a terminal, in which a tab lists the choices."""

    def __init__(self, functions, directory):
        settings = directory / "zsh"
        settings.mkdir(exist_ok=True)
        self.hits = settings / "hits"
        (settings / ".zshrc").write_text(_ZSH.format(functions=functions, settings=settings))
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="vt100", ZDOTDIR=str(settings))
            os.execvp("zsh", ["zsh", "-d", "-i"])
        termios.tcsetwinsize(self.fd, (100, 200))
        self.until("<at-work>")

    def until(self, mark):
        text, end = "", time.monotonic() + 60
        while mark not in text:
            assert time.monotonic() < end, text
            if select.select([self.fd], [], [], 1)[0]:
                text += os.read(self.fd, 65536).decode(errors="replace")
        return text

    def completed(self, line):
        os.write(self.fd, b"\x15" + line.encode() + b"\t")
        self.until("<done>")
        return set(self.hits.read_text().split())

    def close(self):
        # The shell may be asking something.
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def zsh(completions, scratch):
    terminal = Terminal(completions / "zsh/site-functions", scratch)
    yield terminal
    terminal.close()


def commands_of(program):
    return re.findall(r'^\t\{ "([a-z]+)", cmd_', (REPOSITORY / "src/cli/main.c").read_text(), re.M)


def long_options(program, *command):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", run(program, *command, "--help"))) | {"--help"}


def mount_words(program):
    """Each option of a mount that the program takes."""
    return set(re.findall(r'^\t\{ "([\w-]+)=?", ', (REPOSITORY / "src/mount/options_table.c").read_text(), re.M))


def test_there_are_commands_options_and_words(program):
    """What the others go through is not nothing."""
    assert {"check", "flatten", "stats"} <= set(commands_of(program))
    assert "--in-place" in long_options(program, "flatten")
    assert {"lowerdir", "volatile", "cow", "ro", "xino"} <= mount_words(program)


def test_bash_knows_commands_and_their_options(completions, program):
    assert bash(completions, "veneer ") >= set(commands_of(program))
    assert bash(completions, "veneer fl") == {"flatten"}
    assert bash(completions, "veneer --") == long_options(program, "mount") & bash(completions, "veneer -")
    for command in commands_of(program):
        assert bash(completions, f"veneer {command} --") == long_options(program, command), command
    assert bash(completions, "fuse-overlayfs fl") == set()


def test_bash_knows_mount_options_and_values(completions, program, scratch):
    assert {word.rstrip("=") for word in bash(completions, "veneer -o ")} >= mount_words(program)
    assert bash(completions, "veneer -o vola") == {"volatile"}
    assert bash(completions, "veneer check -o upperd") == {"upperdir="}
    assert bash(completions, "fuse-overlayfs -o noacl,squash_to_r") == {"noacl,squash_to_root"}
    assert bash(completions, "veneer -o cow=") == {"map", "copy"}
    assert bash(completions, "veneer -o volatile,cow=c") == {"copy"}
    for name in ["la", "lb", "up"]:
        (scratch / "bash" / name).mkdir(parents=True)
    assert bash(completions, "veneer -o lowerdir=", scratch / "bash") == {"la/", "lb/", "up/"}
    assert bash(completions, "veneer -o lowerdir=la:l", scratch / "bash") == {"la/", "lb/"}
    assert bash(completions, "veneer -o lowerdir=la:lb,upper", scratch / "bash") == {"lb,upperdir="}
    assert bash(completions, "veneer -o lowerdir=la,upperdir=u", scratch / "bash") == {"up/"}


@needs_fish
def test_fish_knows_commands_and_their_options(completions, program):
    assert fish(completions, "veneer ") >= set(commands_of(program))
    assert fish(completions, "veneer --") >= long_options(program, "mount") & {"--help", "--version", "--debug"}
    for command in commands_of(program):
        assert fish(completions, f"veneer {command} --") == long_options(program, command), command


@needs_fish
def test_fish_knows_mount_options_and_values(completions, program, scratch):
    assert {word.split("=")[0] for word in fish(completions, "veneer -o ")} >= mount_words(program)
    assert fish(completions, "veneer -o volatile,cow=") == {"volatile,cow=map", "volatile,cow=copy"}
    (scratch / "fish" / "layer").mkdir(parents=True)
    assert fish(completions, "veneer -o lowerdir=/x:lay", scratch / "fish") == {"lowerdir=/x:layer/"}


@needs_zsh
def test_zsh_knows_commands_and_their_options(zsh, program):
    assert zsh.completed("veneer ") >= set(commands_of(program))
    assert zsh.completed("veneer fl") == {"flatten"}
    for command in commands_of(program):
        assert zsh.completed(f"veneer {command} --") == long_options(program, command), command


@needs_zsh
def test_zsh_knows_mount_options_and_values(zsh, program):
    assert {word.rstrip("=") for word in zsh.completed("veneer -o ")} >= mount_words(program)
    assert zsh.completed("veneer -o volatile,cow=") == {"copy", "map"}
    assert zsh.completed("veneer check --re") == {"--repair"}
    assert "upperdir" in {word.rstrip("=") for word in zsh.completed("veneer check -o upp")}
    assert "flatten" not in zsh.completed("fuse-overlayfs fl")
