#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills a completion's template with what the program says of itself: generate.py SHELL PROGRAM MAIN.c TEMPLATE OUTPUT

Subcommands are those of the table in main.c; their options, and the mount options, those that their --help names. Without a
subcommand it is mount.
"""
import re
import subprocess
import sys

DIRECTORIES = {"lowerdir", "upperdir", "workdir", "--state"}
OPTION = r"(?<![\w-])(--[a-z][a-z-]+|-[a-zA-Z](?![\w-]))(?:[ =]([A-Z]+))?"


class Option:
    def __init__(self, names, argument, text):
        self.names, self.argument, self.text = names, argument, text

    @property
    def is_directory(self):
        return bool(DIRECTORIES & set(self.names))


class Word:
    """A mount option: its name without "=", whether it has a value, and which are fixed."""

    def __init__(self, spelled, text):
        self.name, equals, value = spelled.partition("=")
        self.has_value = bool(equals)
        self.values = [v for v in value.split("|") if re.fullmatch(r"[a-z0-9]+", v)]
        self.text = text


def help_of(program, *command):
    said = subprocess.run([program, *command, "--help"], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return said.stdout.splitlines()


def entries(lines):
    """First column and text of each indented line, with the lines that go on with it."""
    found = []
    for line in lines:
        if match := re.fullmatch(r"  (\S.*?)(?:  +(.*))?", line):
            found.append([match[1], match[2] or ""])
        elif found and re.match(r"   ", line) and not found[-1][1]:
            found[-1][1] = line.strip()
    return found


def options_of(lines):
    options = []
    for spelled, text in entries(line for line in lines if re.match(r"  -|   ", line)):
        found = re.findall(OPTION, spelled)
        if found:
            options.append(Option([name for name, _ in found], found[-1][1], text))
    usage = "\n".join(line for line in lines if re.match(r"usage:|       \S*veneer ", line))
    known = {name for option in options for name in option.names}
    for name, argument, closing in re.findall(OPTION + r"(\]|)", usage):
        if name not in known | {"-o"}:
            known.add(name)
            options.append(Option([name], argument if closing else "", ""))
    if "--help" not in known:
        options.append(Option(["--help"], "", "say how it is used"))
    return options


def words_of(lines, commands):
    words = []
    for spelled, text in entries(line for line in lines if re.match(r"  [a-z]|   ", line)):
        for word in re.findall(r"(?:^|, )([a-z][a-z0-9_-]*(?:=\S*?)?)(?=, |$)", spelled):
            if word not in commands:
                words.append(Word(word, text))
        for word in re.findall(r"(?:[;,] |and |for )([a-z_]+)=", text):
            words.append(Word(word + "=", ""))
    return list({word.name: word for word in reversed(words)}.values())[::-1]


class Command:
    def __init__(self, name, lines):
        self.name = name
        self.options = options_of(lines)
        usage = "\n".join(line for line in lines if re.match(r"usage:|       veneer ", line))
        self.takes_mount_options = bool(re.search(r"(?<!\S)\[?-o ", usage))
        self.actions = []
        for rest in re.findall(rf"veneer {name} (.*)", usage):
            rest = re.sub(r"\[[^]]*\]", "", rest).split()
            self.actions += [word for word in rest[:1] if re.fullmatch("[a-z]+", word)]
        paragraph = re.search(r"\n\n([A-Z][^\n]*(?:\n[^\n]+)*)", "\n".join(lines))
        sentence = re.split(r"[.:;,]", paragraph[1].replace("\n", " "))[0] if paragraph else ""
        self.text = sentence if len(sentence) <= 60 else sentence[:57].rsplit(" ", 1)[0] + " ..."


class Program:
    def __init__(self, path, main_c):
        with open(main_c, encoding="utf-8") as source:
            names = re.findall(r'^\t\{ "([a-z]+)", cmd_', source.read(), re.M)
        lines = help_of(path, "mount")
        self.commands = [Command(name, help_of(path, name)) for name in names]
        self.options = options_of(lines)
        self.words = words_of(lines, names)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(program):
    def names(options):
        return " ".join(name for option in options for name in option.names)

    return {
        "COMMANDS": " ".join(c.name for c in program.commands),
        "OPTIONS": names(program.options),
        "COMMAND_OPTIONS": "\n".join(
            f"\t{c.name}) echo {quoted(' '.join([names(c.options), *(['-o'] if c.takes_mount_options else []), *c.actions]))} ;;"
            for c in program.commands),
        "WORDS": " ".join(w.name + "=" * w.has_value for w in program.words),
        "VALUES": "\n".join(f"\t{w.name}) echo {quoted(' '.join(w.values))} ;;" for w in program.words if w.values),
        "DIRECTORIES": "|".join(sorted(w.name for w in program.words if w.name in DIRECTORIES)),
    }


def zsh(program):
    def escaped(text):
        return re.sub(r"([\[\]:\\])", r"\\\1", text)

    def argument(option):
        action = "_files -/" if option.is_directory else " "
        return f":{option.argument}:{action}" if option.argument else ""

    def specs(options):
        for option in options:
            excluded = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
            for name in option.names:
                yield quoted(f"{excluded}{name}[{escaped(option.text)}]{argument(option)}")

    def word(w):
        action = ":directory:_files -/" if w.name in DIRECTORIES else f":value:({' '.join(w.values)})" if w.values else \
            ":value: " if w.has_value else ""
        return quoted(f"{w.name}[{escaped(w.text)}]{action}")

    def command(c):
        rest = f"'1:action:({' '.join(c.actions)})'" if c.actions else "'*:path:_files'"
        mount = ["'*-o+[mount options]:options:_veneer_mount_options'"] if c.takes_mount_options else []
        return f"\t{c.name})\n\t\t_arguments " + " \\\n\t\t\t".join([*specs(c.options), *mount, rest]) + "\n\t\t;;"

    return {
        "COMMANDS": "\n".join(f"\t\t{quoted(c.name + ':' + escaped(c.text))}" for c in program.commands),
        "WORDS": " \\\n".join("\t\t" + word(w) for w in program.words),
        "OPTIONS": " \\\n".join("\t\t\t" + spec for spec in specs(program.options)),
        "COMMAND_CASES": "\n".join(map(command, program.commands)),
    }


def fish(program):
    def line(condition, option):
        flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        argument = " -r" + (" -a '(__fish_complete_directories)'" if option.is_directory else "") if option.argument else ""
        return f"complete -c veneer -n {quoted(condition)} {flags}{argument} -d {quoted(option.text)}"

    lines = []
    for c in program.commands:
        seen = f"__fish_seen_subcommand_from {c.name}"
        lines.append(f"complete -c veneer -n __fish_use_subcommand -a {c.name} -d {quoted(c.text)}")
        lines += [line(seen, option) for option in c.options]
        if c.takes_mount_options:
            lines.append(f"complete -c veneer -n {quoted(seen)} -s o -x -a '(__veneer_mount_options)' -d 'mount options'")
        if c.actions:
            lines.append(f"complete -c veneer -n {quoted(seen)} -f -a {quoted(' '.join(c.actions))}")
    words = [f"{w.name}={v}" for w in program.words for v in w.values]
    words += [w.name + "=" * w.has_value for w in program.words if not w.values]
    return {
        "WORDS": " ".join(words),
        "DIRECTORIES": "|".join(sorted(w.name for w in program.words if w.name in DIRECTORIES)),
        "OPTIONS": "\n".join(line("__fish_use_subcommand", option) for option in program.options),
        "COMMAND_LINES": "\n".join(lines),
    }


def main():
    shell, path, main_c, template, output = sys.argv[1:]
    filled = {"bash": bash, "zsh": zsh, "fish": fish}[shell](Program(path, main_c))
    with open(template, encoding="utf-8") as file:
        text = file.read()
    with open(output, "w", encoding="utf-8") as file:
        file.write(re.sub(r"@([A-Z_]+)@", lambda match: filled[match[1]], text))


main()
