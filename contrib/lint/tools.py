# SPDX-License-Identifier: Apache-2.0
"""Rules that other programs check: clang-format, clang-tidy, shellcheck, ruff, codespell."""
import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from finding import Finding
from tree import Tree

PREFIX = Path(os.environ.get("VENEER_LINT_PREFIX", "/usr/local/lib/veneer/lint"))
REQUIREMENTS = Path(__file__).parent / "requirements.txt"
CODESPELL_WORDS = "contrib/lint/codespell.txt"
_AT = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?P<text>.*)$", re.M)
_TIDY = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):\d+: (?:warning|error): (?P<text>.*) \[(?P<check>\S+)\]$", re.M)
# Bytes, pictures, foreign texts, and what lists misspelled words.
_NOT_PROSE = ("tests/assets/*", "tests/fuzz/corpus/*", "*.svg", "*.png", "contrib/grafana/*.json", "LICENSE",
              CODESPELL_WORDS)


class MissingTool(Exception):
    pass


def _find(name: str) -> str:
    """The program in the version of requirements.txt, as another one finds other things."""
    versions = dict(re.findall(r"^(\S+)==(\S+)", REQUIREMENTS.read_text(), re.M))
    for program in (PREFIX / "bin" / name, shutil.which(name)):
        if program and Path(program).exists():
            out = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
            if re.search(rf"(?<![\d.]){re.escape(versions.get(name, ''))}(?![\d.])", out):
                return str(program)
    raise MissingTool(f"{name} {versions.get(name, '')} is missing: contrib/setup.sh --tests installs it")


def need(name: str):
    """For a program of a package, in any version."""
    if not shutil.which(name):
        raise MissingTool(f"{name} is missing: contrib/setup.sh --tests installs it")


def _run(tree: Tree, command: list[str], files: list[str]) -> str:
    """What it prints. An exit status says that it found something, or that it failed; then it prints nothing of ours."""
    if not files:
        return ""
    run = subprocess.run([*command, *files], cwd=tree.root, capture_output=True, text=True)
    text = run.stdout + run.stderr
    if run.returncode and not text.strip():
        raise RuntimeError(f"{command[0]} ended with {run.returncode}")
    return text


def _at(rule: str, out: str) -> list[Finding]:
    return [Finding(m["path"].removeprefix("./"), int(m["line"]), rule, m["path"].removeprefix("./"), m["text"])
            for m in _AT.finditer(out)]


def check_clang_format(tree: Tree) -> list[Finding]:
    """One finding a file. It takes the longest of all rules, and so has all processors."""
    command, files = [_find("clang-format"), "--dry-run", "--fallback-style=none"], tree.c_files
    lots = [files[at:at + 50] for at in range(0, len(files), 50)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        out = "".join(pool.map(lambda lot: _run(tree, command, lot), lots))
    first = {}
    for one in _at("clang-format", out):
        if "[-Wclang-format-violations]" in one.text:
            first.setdefault(one.path, Finding(one.path, one.line, one.rule, one.subject, "clang-format breaks it otherwise"))
    return list(first.values())


def check_clang_tidy(tree: Tree, build: Path) -> list[Finding]:
    """What .clang-tidy asks for, of the sources in the build; thread safety is a rule of its own."""
    command = [_find("clang-tidy"), "--quiet", "-p", str(build)]
    sources = [(build / one["file"]).resolve() for one in json.loads((build / "compile_commands.json").read_text())]
    files = sorted({str(one) for one in sources if one.is_relative_to(tree.root / "src")})
    lots = [files[at:at + 20] for at in range(0, len(files), 20)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        out = "".join(pool.map(lambda lot: _run(tree, command, lot), lots))
    found = set()
    for match in _TIDY.finditer(out):
        path = os.path.relpath((build / match["path"]).resolve(), tree.root)
        rule = "thread-safety" if "thread-safety" in match["check"] else "clang-tidy"
        found.add(Finding(path, int(match["line"]), rule, path, f"{match['text']} ({match['check']})"))
    return sorted(found)


def check_shellcheck(tree: Tree) -> list[Finding]:
    need("shellcheck")
    return _at("shellcheck", _run(tree, ["shellcheck", "-S", "warning", "-f", "gcc"], tree.shell_scripts))


def check_ruff(tree: Tree) -> list[Finding]:
    out = _run(tree, [_find("ruff"), "check", "--no-cache", "--force-exclude", "--output-format", "json"], tree.python_files)
    if not out:
        return []
    return [Finding(str(Path(one["filename"]).relative_to(tree.root)), one["location"]["row"], "ruff",
                    str(Path(one["filename"]).relative_to(tree.root)), f"{one['code']} {one['message']}")
            for one in json.loads(out[:out.rindex("]") + 1])]


def check_codespell(tree: Tree) -> list[Finding]:
    files = sorted(set(tree.paths) - set(tree.matching(*_NOT_PROSE)))
    return _at("codespell", _run(tree, [_find("codespell"), "-I", CODESPELL_WORDS], files))
