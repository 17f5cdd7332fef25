# SPDX-License-Identifier: Apache-2.0
"""What a page tells its reader to do, so that a test does just that.

A fenced block says by its language what it is: `sh` is pasted into a shell, in the order of the page; `text` is only
looked at; anything else is the content of a file, whose name is the last one in backquotes that begins with / or ~ in
the paragraph before.
"""
import re
from typing import NamedTuple

NOT_FILES = ("sh", "text", "")


class Block(NamedTuple):
    section: str  # the heading it stands under, without the marks
    lang: str
    text: str
    file: str | None


def blocks(path):
    """All fenced blocks of a page, in order."""
    found, section, before, fence = [], "", "", None
    inside, paragraph_ended = [], False
    with open(path) as f:
        for line in f:
            mark = re.match(r" *```(\w*)$", line.rstrip())
            if fence is not None and mark:
                found.append(_block(section, fence, "".join(inside), before))
                fence, before = None, ""
            elif fence is not None:
                inside.append(line)
            elif mark:
                fence, inside = mark.group(1), []
            elif line.startswith("#"):
                section, before = line.strip("# \n"), ""
            elif line.strip():
                before = line if paragraph_ended else before + line
            paragraph_ended = not line.strip()
    assert fence is None, "%s: a block under '%s' is not closed" % (path, section)
    return found


def _block(section, lang, text, before):
    names = re.findall(r"`([/~][^`]*)`", before) if lang not in NOT_FILES else []
    assert names or lang in NOT_FILES, "'%s': no name for a file in '%s'" % (section, before.strip())
    return Block(section, lang, text, names[-1] if names else None)


def section(path, name):
    """The blocks under one heading; there must be some."""
    found = [block for block in blocks(path) if block.section == name]
    assert found, "%s: nothing under '%s'" % (path, name)
    return found


def script(block):
    """The shell commands by which a reader follows this block; none for one that is only looked at."""
    if block.lang == "sh":
        return block.text
    if block.file is None:
        return ""
    name = block.file.replace("~", "$HOME", 1)
    return 'mkdir -p "$(dirname "%s")"\ncat >"%s" <<\'END_OF_PAGE\'\n%sEND_OF_PAGE\n' % (name, name, block.text)
