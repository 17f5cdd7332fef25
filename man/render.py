#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a manual page of a page in Markdown: render.py LOWDOWN VERSION PAGE.md OUTPUT

A page begins with `# name(section)`. Its tables become lists of terms, since a column of a terminal is too narrow for
a sentence.
"""
import re
import subprocess
import sys


def cells(row):
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


def as_terms(rows, indent):
    """Rows of two or three columns; the middle one of three is a default."""
    heads = cells(rows[0])
    lines = []
    for row in rows[2:]:
        term, *middle, meaning = cells(row)
        if middle and middle[0]:
            # In italics, since brackets and then parentheses would be a link.
            term += f" *({middle[0]})*" if middle[0] in ("required", "see below") else f" *({heads[1].lower()}: {middle[0]})*"
        lines += [f"{indent}{term}", f"{indent}:   {meaning}", ""]
    return lines


def without_tables(lines):
    result, table = [], []
    for line in [*lines, ""]:
        if line.lstrip().startswith("|"):
            table.append(line)
            continue
        if table:
            result += as_terms(table, " " * (len(table[0]) - len(table[0].lstrip())))
            table = []
        result.append(line)
    return result


def headings_raised(lines):
    is_code = False
    for line in lines:
        is_code ^= line.lstrip().startswith("```")
        yield line[1:] if line.startswith("##") and not is_code else line


def underscores_kept(text):
    """Of two in a word lowdown makes italics; no page means that."""
    return re.sub(r"```.*?```|`[^`]*`|(?<=\w)_(?=\w)", lambda m: r"\_" if m[0] == "_" else m[0], text, flags=re.S)


def main():
    lowdown, version, source, output = sys.argv[1:]
    with open(source, encoding="utf-8") as page:
        title, *lines = page.read().split("\n")
    name, section = re.fullmatch(r"# ([\w.-]+)\((\d)\)", title).groups()
    text = underscores_kept("\n".join(headings_raised(without_tables(lines))))
    roff = subprocess.run([lowdown, "-s", "-tman", "--out-no-smarty", "-M", f"title={name.upper()}", "-M", f"section={section}",
                           "-M", f"source=veneer {version}"], input=text, stdout=subprocess.PIPE, check=True, encoding="utf-8")
    with open(output, "w", encoding="utf-8") as page:
        page.write(roff.stdout)


main()
