#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sentences of comments and pages: how long they are, and how many hang on a free clause.

Counted are the comments of src/ and include/, and Markdown in the root, doc/, man/ and contrib/, a
directory at a time. Outside of it are tables, headings, code, drawings, text that bench/run writes,
and sentences of fewer than three words. A sentence ends at . ? or ! before a capital or a name in
code, at the end of a paragraph, and at the end of a list's item.

A sentence has a free clause if one of these holds (questions are exempt):

- It has "what", "whatever", "whoever" or "whomever", which never have a noun before them.
- It has "who", "whom" or "whose" and no noun before it: at the beginning of the sentence, behind a
  mark (for "whose" not a comma), or behind a word of _NO_NOUN.
- It has "that which", "those that" or "all that", or begins with "One that", "They who" and the like.

prose.toml has the goal, and for directories that are above it a ceiling, which can only fall.
Called as a program it prints the counts of files, and with --list the sentences that count.
"""
import argparse
import math
import re
import statistics
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from finding import Finding
from tree import Tree

CEILINGS = "contrib/lint/prose.toml"
MEASURES = {"free": "% of sentences with a free clause", "median": "words in the median sentence",
            "longest": "words in the longest sentence"}
# A ceiling that is so far above the measure has to fall.
SLACK = {"free": 3, "median": 2, "longest": 8}
# Lists of rules for readers that decode, one sentence a rule.
NO_LONGEST = ("doc/SPEC.md",)
_PAGES = ("*.md", "doc/*.md", "man/*.md", "contrib/*.md")
_NO_PAGES = ("bench/*", "tests/*", "debian/*", ".github/*")

_C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?P<comment>/\*.*?\*/|//[^\n]*)', re.S)
_ITEM = re.compile(r"^\s*(?:[-*•] |\d+\. |\(?[a-z0-9]\) |: )")
_GENERATED = re.compile(r"<!-- bench: begin.*?<!-- bench: end -->", re.S)
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|cf|vs|approx|no)\.(?= )", re.I)
# Before a capital or a digit, a parameter with its colon, a name in code, an error.
_END = re.compile(r"(?<=[.?!])[)\"*_]*\s+(?=[\"'(`*_\[]*(?:[A-Z0-9]|-E[A-Z]|\w+:|\w+_\w))")
_WORD = re.compile(r"[A-Za-z0-9][\w'/.=:()*+-]*")

_NO_NOUN = ("a about after all and answers are as asks at be because been before behind but by can cannot decides does "
            "except finds for from had has have if in into is it knows like may might must nor not of on only onto or over "
            "say says see sees shall should since so tell tells than that the then this through till to under unless "
            "until upon was were when whenever where whether which while will with without would").split()
_FREE = re.compile(
    r"\b(?:what|whatever|whoever|whomever)\b"
    r"|(?:^|[;:(—–-]\s*|\b(?:" + "|".join(_NO_NOUN) + r")\s+)(?:who|whom|whose)\b|,\s*who\b"
    r"|\bthat which\b|\b(?:those|all) (?:that|who|whom|whose|which)\b"
    r"|^(?:one|ones|he|they|anyone|everyone|anybody|everybody|nobody|any) (?:that|who|whom|whose|which)\b", re.I)


@dataclass(frozen=True)
class Sentence:
    path: str
    line: int
    text: str

    @property
    def words(self) -> int:
        return len(_WORD.findall(self.text))

    @property
    def is_free(self) -> bool:
        return not self.text.rstrip('")').endswith("?") and _FREE.search(self.text.lstrip("\"'(*_")) is not None


def _paragraphs(lines):
    """(number of the first line, text) of each paragraph and item in numbered lines; drawings are left out."""
    first, kept = 0, []
    for number, line in [*lines, (0, "")]:
        if kept and (not line.strip() or _ITEM.match(line)):
            yield first, " ".join(kept)
            kept = []
        if line.strip():
            first = first if kept else number
            kept.append(_ITEM.sub("", line, count=1).strip())


def _sentences(path: str, lines):
    for number, text in _paragraphs(lines):
        text = re.sub(r"`[^`]*`", "Code", text)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", lambda m: m[1][:1].upper() + m[1][1:], text)
        text = _ABBREVIATION.sub(r"\1", text)
        for part in _END.split(text):
            one = Sentence(path, number, part.strip())
            if one.words >= 3:
                yield one


def _comment_lines(comment: str, number: int):
    """Without the stars; what stands four blanks deep or in columns is a drawing."""
    body = comment[2:-2] if comment.startswith("/*") else comment[2:]
    for at, line in enumerate(body.split("\n")):
        line = re.sub(r"^\s*\*(?!/) ?", "", line) if at else line
        is_drawing = re.match(r" {4}|\t", line) and at or re.search(r"\S {3,}\S|[|+]--|-->", line)
        yield number + at, "" if is_drawing else line


def comment_sentences(path: str, text: str) -> list[Sentence]:
    found, lines, last = [], [], -2
    for token in _C_TOKENS.finditer(text):
        comment = token["comment"]
        if not comment or "SPDX-License" in comment:
            continue
        number = text.count("\n", 0, token.start()) + 1
        # One comment over several // lines.
        if not (comment.startswith("//") and number == last + 1):
            found += _sentences(path, lines)
            lines = []
        lines += _comment_lines(comment, number)
        last = number if comment.startswith("//") else -2
    return found + list(_sentences(path, lines))


def page_sentences(path: str, text: str) -> list[Sentence]:
    text = _GENERATED.sub(lambda m: "\n" * m[0].count("\n"), text)
    lines, is_code, is_item, before = [], False, False, ""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("```"):
            is_code, line = not is_code, ""
        elif is_code or bare.startswith(("|", "#", "%", "<", "![")) or re.match(r"[=-]+$|\[[^\]]+\]: ", bare):
            line = ""
        elif re.match(r" {4}|\t", line) and not is_item and not before:
            line, bare = "", ""
        if bare:
            is_item = bool(_ITEM.match(line)) or is_item and line.startswith(" ")
        lines.append((number, line))
        before = bare
    return list(_sentences(path, lines))


def pages(tree: Tree) -> list[str]:
    return sorted(set(tree.matching(*_PAGES)) - set(tree.matching(*_NO_PAGES)))


def by_directory(tree: Tree) -> dict[str, list[Sentence]]:
    found = {}
    for path in tree.modules:
        found.setdefault(path.rpartition("/")[0], []).extend(comment_sentences(path, tree.text(path)))
    for path in pages(tree):
        found.setdefault(path.rpartition("/")[0] or ".", []).extend(page_sentences(path, tree.text(path)))
    return {directory: sentences for directory, sentences in sorted(found.items()) if sentences}


def measure(sentences: list[Sentence]) -> dict[str, float]:
    limited = [one.words for one in sentences if one.path not in NO_LONGEST]
    return {"free": 100 * sum(one.is_free for one in sentences) / len(sentences),
            "median": statistics.median(one.words for one in sentences), "longest": max(limited, default=0)}


def _worst(sentences: list[Sentence], name: str) -> Sentence:
    """The sentence that a finding points at."""
    if name == "free":
        return next(one for one in sentences if one.is_free)
    return max((one for one in sentences if one.path not in NO_LONGEST or name != "longest"), key=lambda one: one.words)


def check_prose(tree: Tree) -> list[Finding]:
    path = tree.root / CEILINGS
    settings = tomllib.loads(path.read_text())
    goal, ceilings, found = settings["goal"], settings.get("ceiling", {}), []
    measured = {directory: (sentences, measure(sentences)) for directory, sentences in by_directory(tree).items()}
    for directory, (sentences, values) in measured.items():
        for name, text in MEASURES.items():
            value, limit = values[name], ceilings.get(directory, {}).get(name, goal[name])
            if value > limit:
                worst = _worst(sentences, name)
                found.append(Finding(worst.path, worst.line, "prose", directory,
                                     f"{directory}: {value:.1f} {text}, at most {limit}"))
    for directory, limits in ceilings.items():
        values = measured.get(directory, (None, dict.fromkeys(MEASURES, 0)))[1]
        for name, limit in limits.items():
            least = max(math.ceil(values[name]), goal[name])
            if limit <= goal[name] or limit - least >= SLACK[name]:
                found.append(Finding(CEILINGS, 1, "prose", directory, f"{directory}: the ceiling of {name} is {limit}, "
                                     + (f"and can fall to {least}" if least > goal[name] else "and can go")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts sentences of comments and pages.")
    parser.add_argument("prefix", nargs="*", help="only files whose path begins so")
    parser.add_argument("--list", action="store_true", help="print the sentences with a free clause and the long ones")
    parser.add_argument("--ceilings", action="store_true", help=f"print what {CEILINGS} would be")
    args = parser.parse_args()
    tree = Tree(Path(__file__).resolve().parents[2])
    goal = tomllib.loads((tree.root / CEILINGS).read_text())["goal"]
    every = by_directory(tree)
    if args.ceilings:
        for directory, sentences in every.items():
            above = [f"{name} = {math.ceil(value)}" for name, value in measure(sentences).items() if value > goal[name]]
            if above:
                print(f'"{directory}" = {{ {", ".join(above)} }}')
        return 0
    files = {}
    for one in (one for sentences in every.values() for one in sentences):
        if one.path.startswith(tuple(args.prefix or [""])):
            files.setdefault(one.path, []).append(one)
    for path, sentences in sorted(files.items()):
        values = measure(sentences)
        print(f"{path}: {len(sentences)} sentences, {values['free']:.1f} % free, median {values['median']:g}, "
              f"longest {max(one.words for one in sentences)}")
        for one in sentences if args.list else ():
            if one.is_free or one.words > goal["longest"]:
                print(f"  {one.line}: {'free ' if one.is_free else ''}{one.words}: {one.text}")
    if files:
        total = measure([one for sentences in files.values() for one in sentences])
        print(f"all: {sum(map(len, files.values()))} sentences, {total['free']:.1f} % free, median {total['median']:g}, "
              f"longest {total['longest']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
