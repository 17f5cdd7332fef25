# SPDX-License-Identifier: Apache-2.0
"""Which sentences the prose rule of contrib/lint sees, which of them it counts, and its ceilings."""
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "contrib/lint"))

import prose  # noqa: E402
from tree import Tree  # noqa: E402

GOAL = {"free": 5, "median": 17, "longest": 35}


def sentence(text):
    return prose.Sentence("f", 1, text)


@pytest.mark.parametrize("text", [
    "What several threads want done at the same time is done by one of them.",
    "Whoever tells all processes there are tells us twice.",
    "The server keeps what it was given.",
    "Whatever follows is dropped.",
    "server: who was told its number may have bound it",
    "The rest is given to who asked first.",
    "Those that wait are woken.",
    "One that has gone is skipped.",
    "It is that which the caller named.",
    "The lock guards all that follows.",
    "(What is left stays.)",
])
def test_free_clause(text):
    assert sentence(text).is_free


@pytest.mark.parametrize("text", [
    "The client retries eight times.",
    "A user who may write the map decides.",
    "A file whose mark fits nothing becomes an ordinary one.",
    "The thread that holds the lock drops it.",
    "What is a whiteout?",
    "Nothing waits for the first one that is free.",
    "Somewhat later the whole map is written.",
])
def test_no_free_clause(text):
    assert not sentence(text).is_free


def comments(text):
    return [(one.line, one.text) for one in prose.comment_sentences("f.c", text)]


def test_sentences_of_comments():
    text = '''// SPDX-License-Identifier: Apache-2.0
const char *text = "no /* comment in here */"; /* one of a field */
/*
 * The first sentence here. The second is
 * on two lines:
 *
 *     a drawing of three words
 *     +----+   +----+
 *
 * - an item of a list
 * - another item, e.g. this one
 */
// one of two
// lines together
/* Returns a count. ret_why: the rule broken. -EUCLEAN: damage was found. else_where() may follow. */
'''
    assert comments(text) == [
        (2, "one of a field"), (4, "The first sentence here."), (4, "The second is on two lines:"), (10, "an item of a list"),
        (11, "another item, e.g this one"), (13, "one of two lines together"),
        (15, "Returns a count."), (15, "ret_why: the rule broken."), (15, "-EUCLEAN: damage was found."),
        (15, "else_where() may follow.")]


def test_sentences_of_pages():
    text = '''# What no heading counts

One `long command of code` here. See [the other page](what.md). [name.c](name.c) is it.

| What is in | a table |
| --- | --- |

- An item of
  two lines.
- Two words.

```sh
what is in a block
```

    what is indented too

<!-- bench: begin (from a run of bench/run, never by hand) -->

What a program writes.

<!-- bench: end -->

The last is here.
'''
    assert [(one.line, one.text) for one in prose.page_sentences("p.md", text)] == [
        (3, "One Code here."), (3, "See The other page."), (3, "Name.c is it."), (8, "An item of two lines."), (24, "The last is here.")]


def test_words():
    assert sentence("The caller of foo_bar() has 4 KiB (or less), as ever.").words == 11


@pytest.fixture
def tree(tmp_path):
    """Forty short sentences, two of them with a free clause, and one of 36 words."""
    def make(ceilings=""):
        (tmp_path / "contrib/lint").mkdir(parents=True, exist_ok=True)
        goal = "\n".join(f"{name} = {value}" for name, value in GOAL.items())
        (tmp_path / "contrib/lint/prose.toml").write_text(f"[goal]\n{goal}\n\n[ceiling]\n{ceilings}\n")
        (tmp_path / "doc").mkdir(exist_ok=True)
        (tmp_path / "doc/page.md").write_text("Three words here. " * 37 + "It is what it is. " * 3 + "Word " * 36 + ".\n")
        return [one.text for one in prose.check_prose(Tree(tmp_path))]
    return make


def test_directory_above_the_goal_is_found(tree):
    assert tree() == ["doc: 7.3 % of sentences with a free clause, at most 5", "doc: 36.0 words in the longest sentence, at most 35"]


def test_ceiling_lets_a_directory_through(tree):
    assert tree('"doc" = { free = 8, longest = 36 }') == []


def test_ceiling_can_only_fall(tree):
    assert tree('"doc" = { free = 11, longest = 36 }') == ["doc: the ceiling of free is 11, and can fall to 8"]
    assert tree('"doc" = { free = 8, median = 17, longest = 44 }') == [
        "doc: the ceiling of median is 17, and can go", "doc: the ceiling of longest is 44, and can fall to 36"]


def test_ceiling_of_a_directory_that_is_gone_can_go(tree):
    assert "gone: the ceiling of free is 9, and can go" in tree('"doc" = { free = 8, longest = 36 }\n"gone" = { free = 9 }')


def test_ceilings_of_this_tree_name_directories_of_it():
    text = (TOP / "contrib/lint/prose.toml").read_text()
    assert "[goal]" in text and all((TOP / name).is_dir() for name in prose.by_directory(Tree(TOP)))
