#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a site of the pages: contrib/site/build.py OUTPUT

Needs mkdocs and mkdocs-material; asks no network. The pages stay where they are in the tree, so their links among one another
hold; a link to a file that is no page becomes its text.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUPS = [
    ("Guides", ["doc/INSTALL.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("doc/howto/*.md"))]),
    ("Engines", "contrib/*/README.md"),
    ("Manual", "man/*.md"),
    ("How it works", ["doc/DESIGN.md", "doc/SHARING.md", "doc/RELIABILITY.md", "doc/PERFORMANCE.md", "doc/SPEC.md", "doc/GLOSSARY.md"]),
    ("Internals", "doc/internals/*.md"),
    ("Decisions", "doc/decisions/*.md"),
    # The two pages about all scenarios, then those of one.
    ("Figures", ["doc/performance/summary.md", "doc/performance/verdicts.md",
                 *sorted({str(path.relative_to(ROOT)) for path in ROOT.glob("doc/performance/*.md")} -
                         {"doc/performance/summary.md", "doc/performance/verdicts.md"})]),
    ("The project", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md"]),
]
CONFIG = {
    "site_name": "veneer",
    "use_directory_urls": False,
    "theme": {"name": "material", "font": False, "features": ["navigation.indexes", "navigation.top", "toc.follow"],
              "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default"},
                          {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}]},
    "plugins": ["search"],
    "markdown_extensions": ["tables", "sane_lists", "def_list", "pymdownx.highlight", "pymdownx.superfences",
                            {"toc": {"slugify": "!slugify"}}],
    "extra_css": ["site.css"],
}
LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def pages():
    """Of each group the title and the paths of its pages."""
    for title, names in GROUPS:
        found = [ROOT / name for name in names] if isinstance(names, list) else sorted(ROOT.glob(names))
        found = [path.relative_to(ROOT) for path in found if path.exists()]
        if found:
            yield title, found


def title_of(path):
    """The first heading, without marks."""
    for line in (ROOT / path).read_text().splitlines():
        if line.startswith("# "):
            return re.sub(r"[`*]", "", line[2:]).strip()
    return path.stem


def with_links_kept(text, path, known):
    """Links among pages and to pictures stay; of others the text."""
    def kept(found):
        mark, label, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found.group(0)
        there = os.path.normpath(path.parent / target.split("#")[0])
        return found.group(0) if there in known else label if not mark else ""
    return LINK.sub(kept, text)


def outside_code(text, act):
    """Apply act to what is in no block of code."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else act(part) for part in parts)


def copy(source, known):
    for name in sorted(known):
        path = pathlib.Path(name)
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = outside_code((ROOT / path).read_text(), lambda part, at=path: with_links_kept(part, at, known))
            target.write_text(text)
        else:
            shutil.copy(ROOT / path, target)
    shutil.copy(pathlib.Path(__file__).with_name("site.css"), source)


def build(output):
    groups = list(pages())
    known = {"README.md", *(str(path) for _, found in groups for path in found)}
    known |= {str(path.relative_to(ROOT)) for path in (ROOT / "doc").rglob("*.svg")}
    nav = [{"veneer": "README.md"}, *({title: [{title_of(path): str(path)} for path in found]} for title, found in groups)]
    with tempfile.TemporaryDirectory(prefix="veneer-site-") as scratch:
        source = pathlib.Path(scratch) / "pages"
        copy(source, known)
        config = yaml.safe_dump({**CONFIG, "docs_dir": str(source), "site_dir": os.path.abspath(output), "nav": nav}, sort_keys=False)
        file = pathlib.Path(scratch) / "mkdocs.yml"
        # As GitHub makes anchors of headings.
        file.write_text(config.replace("'!slugify'", "!!python/name:pymdownx.slugs.gfm"))
        subprocess.run(["mkdocs", "build", "--quiet", "--strict", "--clean", "-f", str(file)], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    build(sys.argv[1])
