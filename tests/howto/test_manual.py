# SPDX-License-Identifier: Apache-2.0
"""The manual pages, the option table and what --help prints name the same things."""
import os
import re
import subprocess

import pytest

from support.repository import REPOSITORY

PROGRAM = os.environ.get("VENEER_BIN", str(REPOSITORY / "build" / "veneer"))
PAGE = (REPOSITORY / "man" / "veneer.1.md").read_text()
PAGES = sorted((REPOSITORY / "man").glob("*.md"))
COMMANDS = sorted(re.findall(r'^\t\{ "(\w+)", cmd_', (REPOSITORY / "src/cli/main.c").read_text(), re.M))
# What helps everywhere and is described once.
EVERYWHERE = {"--help", "-h"}
# What one process of ours says to another.
BETWEEN_PROCESSES = {"--listen-fd", "--from-fd"}


def help_of(*command):
    done = subprocess.run([PROGRAM, *command, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def dumped(text):
    """The bytes of each hexadecimal dump in a page."""
    dumps = re.findall(r"^```\n((?:[0-9a-f]{4}  .*\n)+)```$", text, re.M)
    return [bytes.fromhex("".join(line[6:54] for line in dump.splitlines())) for dump in dumps]


def test_worked_examples_of_the_format_are_the_bytes_that_the_unit_test_holds():
    source = (REPOSITORY / "tests/unit/map/test_format.c").read_text()
    held = [bytes.fromhex("".join(re.findall(r"\\x([0-9a-f]{2})", body)))
            for body in re.findall(r"golden_\w+\[\] =\s+(.*?);", source, re.S)]
    shown = dumped((REPOSITORY / "doc/SPEC.md").read_text())
    assert len(shown) == 4 and shown == held
    assert shown[0] == (REPOSITORY / "tests/assets/map-v1.map").read_bytes()


def section(name, pages=PAGES):
    """Under a heading of this name, in all pages that have it."""
    found = [part.partition("\n")[2] for page in pages for part in re.split(r"^## ", page.read_text(), flags=re.M)
             if part.partition("\n")[0] == name]
    assert found, f"no page has a section {name}"
    return "\n".join(found)


def bare(text):
    """Without the marks of Markdown."""
    return re.sub(r"\\([-'|<>])", r"\1", text).replace("*", "").replace("`", "")


def switches(text):
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", text, re.I))


def synopsis(command):
    """The lines of the page that say how it is called."""
    text = re.sub(r"(?<![\\\n])\n(?!\n)", " ", section("SYNOPSIS"))
    lines = [bare(line).rstrip("\\") for line in text.splitlines()]
    return "\n".join(line for line in lines if line.startswith(f"veneer {command} ") or line == f"veneer {command}")


def taken_by(command):
    """The long options in the source of a command: rows for getopt_long, or comparisons."""
    source = (REPOSITORY / f"src/cli/cmd_{command}.c").read_text()
    rows = re.findall(r'\{ "([a-z-]+)", (?:no|required)_argument', source)
    return {f"--{name}" for name in rows} | set(re.findall(r'strcmp\(\w+, "(--[a-z-]+)"\)', source))


def about_command(command):
    """Its section, and its page if it has one."""
    pages = [page.read_text() for page in PAGES if page.name.startswith(f"veneer-{command}.")]
    if f"\n## {command.upper()}\n" in PAGE:
        pages.append(section(command.upper()))
    # mount is what the page is about
    assert pages or command == "mount", f"veneer {command} is described nowhere"
    return "\n".join(pages)


def table_options():
    """As src/mount/options_table.c has them, without what stands behind the =."""
    return set(re.findall(r'^\t\{ "([\w-]+)=?", ', (REPOSITORY / "src/mount/options_table.c").read_text(), re.M))


def page_options():
    text = section("OPTIONS", [REPOSITORY / "man" / "veneer.1.md"]).partition("### ")[0]
    named = re.findall(r"^\| (.*?[^\\]) \|", text, re.M)[1:] + re.findall(r"^(`\w+=`.*)$", text, re.M)
    named += re.findall(r"^- (.*?)(?:: |;$|\.$|\Z)", re.sub(r"\n  ", " ", text), re.M)
    # `key=this`\\|`that`: what stands behind the bar is a value
    named = [re.sub(r"\\?\|[`*]*\w+[`*]*", "", cell) for cell in named]
    return {name for cell in named for name in re.findall(r"`(\w[\w-]*)", cell)}


def test_the_page_names_each_option_of_a_mount_and_no_other():
    assert len(table_options()) > 40
    assert sorted(page_options()) == sorted(table_options())


def test_help_names_nothing_that_the_page_does_not():
    text = help_of("mount")
    assert switches(help_of()) <= switches(text) | EVERYWHERE
    assert switches(text) - EVERYWHERE <= switches(bare(PAGE))
    columns = [line.strip().partition("  ")[0] for line in text.splitlines() if re.match(r"  [a-z]", line)]
    options = {word.partition("=")[0] for column in columns for word in column.split(", ")}
    assert {"lowerdir", "upperdir", "cow"} <= options
    assert options <= table_options()


def test_help_names_each_option_of_a_mount():
    named = set(re.findall(r"(?:^|[ ,;])(\w[\w-]*)(?=[=, ]|$)", help_of("mount"), re.M))
    assert not table_options() - named


def test_help_has_the_values_that_the_table_has():
    rows = re.findall(r'^\t\{ "([\w-]+)=", \w+, [^"]*"([a-z|]+\|[a-z|]+)[",]', (REPOSITORY / "src/mount/options_table.c").read_text(), re.M)
    assert len(rows) > 8
    for name, values in rows:
        assert re.search(rf"  {name}={re.escape(values)}\b", help_of("mount")), name


def test_help_and_page_know_every_command():
    assert {"check", "flatten", "stats"} <= set(COMMANDS)
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", help_of()), command
        assert synopsis(command), f"no line of a synopsis calls veneer {command}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_same_switches_on_its_page(command):
    shown = switches(help_of(command)) - EVERYWHERE
    about = about_command(command)
    called = switches(synopsis(command)) - EVERYWHERE
    assert called <= shown, "what the synopsis has and --help has not"
    assert shown <= called | EVERYWHERE, "what --help has and the synopsis has not"
    assert taken_by(command) <= shown | EVERYWHERE | BETWEEN_PROCESSES, "what the program takes and --help has not"
    assert shown <= called | switches(bare(about or PAGE)), "what --help has and the page has not"
    defined = switches(bare("\n".join(re.findall(r"^\*\*-.*$", about, re.M)))) - EVERYWHERE
    assert defined <= shown, "what the page defines and --help has not"


@pytest.mark.parametrize("name, together, apart", [("mount", "-fnsv", {"-o"}), ("umount", "-flnrv", set())])
def test_the_helpers_and_their_pages_say_the_same(tmp_path, name, together, apart):
    helper = tmp_path / f"{name}.veneer"
    helper.symlink_to(PROGRAM)
    text = subprocess.run([helper, "--help"], capture_output=True, text=True, check=True).stdout
    page = (REPOSITORY / "man" / f"{name}.veneer.8.md").read_text()
    defined = switches(bare("\n".join(re.findall(r"^\*\*-.*$", page, re.M))))
    assert len(defined) > 6 and switches(text) - {together} == defined | apart
    codes = re.findall(r"^(\d+)$", page.partition("## EXIT STATUS")[2], re.M)
    assert codes == re.findall(r"(?<![\w(])(\d+)(?= |;)", text.partition("Exit code:")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_one_and_what_it_refers_to_is_there(page):
    text = page.read_text()
    name, number, _ = page.name.rsplit(".", 2)
    assert text.startswith(f"# {name}({number})\n")
    assert re.search(rf"^## NAME\n\n[^\n]*{name}[^\n]* - ", text, re.M)
    ours = {other.name.rsplit(".", 2)[0]: other.name.split(".")[-2] for other in PAGES}
    for other, at in re.findall(r"\*\*(veneer[\w-]*)\*\*\((\d)\)", text):
        assert ours.get(other) == at, f"{page.name} refers to {other}({at})"


@pytest.mark.parametrize("page", sorted({*REPOSITORY.glob("*.md"), *REPOSITORY.glob("doc/**/*.md"), *REPOSITORY.glob("contrib/**/*.md")}),
                         ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
