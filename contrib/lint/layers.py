# SPDX-License-Identifier: Apache-2.0
"""Directions: includes and calls go down the directories that src/meson.build lists, and files form no circles."""
import re

from finding import Finding
from symbols import Symbols
from tree import Tree

_INCLUDE = re.compile(r'^#include "(?:veneer/)?(?:([a-z]+)/)?([\w-]+)\.h"', re.M)


# Of what a header gives away the fields: the directories that may include it.
_STRUCT_HEADERS = {"union/inode_struct.h": ("union", "data", "passthrough", "mount")}


def _order(tree: Tree) -> dict[str, int]:
    """Rank of each directory, the lowest first."""
    names = re.findall(r"^subdir\('(\w+)'\)", tree.text("src/meson.build"), re.M)
    return {name: at for at, name in enumerate(names)}


def _directory(path: str) -> str:
    return path.split("/")[2 if path.startswith("include/") else 1]


def check_includes(tree: Tree) -> list[Finding]:
    rank, found = _order(tree), []
    for path in tree.modules:
        text = tree.text(path)
        mine = _directory(path)
        for match in _INCLUDE.finditer(text):
            theirs, line = match[1] or mine, text.count("\n", 0, match.start()) + 1
            header = f"{theirs}/{match[2]}.h"
            if rank[theirs] > rank[mine]:
                found.append(Finding(path, line, "include-up", f"{path} -> {header}", f"{header} is above {mine}"))
            elif theirs != mine and (tree.root / "src" / header).exists():
                found.append(Finding(path, line, "include-private", f"{path} -> {header}", f"{header} is for {theirs} alone"))
            if mine not in _STRUCT_HEADERS.get(header, (mine,)) or (header in _STRUCT_HEADERS and path.startswith("include/")):
                found.append(Finding(path, line, "include-struct", f"{path} -> {header}", f"{header} has fields that {path} asks for by a function"))
    return found


def check_calls(tree: Tree, symbols: Symbols) -> list[Finding]:
    rank, found = _order(tree), []
    for user, name, owner in symbols.uses():
        mine, theirs = _directory(user), _directory(owner)
        if rank[theirs] > rank[mine]:
            found.append(Finding(user, 1, "call-up", f"{user} -> {name}", f"{name} of {owner} is above {mine}"))
    return found


class _Circles:
    """Strongly connected components of more than one file (Tarjan, 1972)."""

    def __init__(self, edges: dict[str, set[str]]):
        self._edges, self._index, self._low = edges, {}, {}
        self._stack, self.found = [], []
        for node in sorted(edges):
            if node not in self._index:
                self._visit(node)

    def _visit(self, node):
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        for other in sorted(self._edges.get(node, ())):
            if other not in self._index:
                self._visit(other)
                self._low[node] = min(self._low[node], self._low[other])
            elif other in self._stack:
                self._low[node] = min(self._low[node], self._index[other])
        if self._low[node] == self._index[node]:
            at = self._stack.index(node)
            circle, self._stack = self._stack[at:], self._stack[:at]
            if len(circle) > 1:
                self.found.append(sorted(circle))


def check_circles(symbols: Symbols) -> list[Finding]:
    edges: dict[str, set[str]] = {}
    for user, _, owner in symbols.uses():
        edges.setdefault(user, set()).add(owner)
    return [Finding(circle[0], 1, "circle", " ".join(circle), f"files call each other: {' '.join(circle)}")
            for circle in _Circles(edges).found]
