# SPDX-License-Identifier: Apache-2.0
"""Which object of a build exports which symbol and which uses it, as nm(1) says. And the rules of exports."""
import json
import subprocess
from pathlib import Path

from finding import Finding
from tree import Tree


class Symbols:
    def __init__(self, build: Path):
        """Reads the objects of src/. The build is a plain one, as sanitizers bring symbols of their own."""
        self._owner, self._users = {}, {}
        objects = _objects(build)
        out = subprocess.run(["nm", "-A", "--format=posix", *map(str, objects)], check=True, capture_output=True,
                             text=True).stdout
        for line in out.splitlines():
            where, name, kind = line.split()[:3]
            source = objects[Path(where.rstrip(":"))]
            if kind == "U":
                self._users.setdefault(name, set()).add(source)
            elif kind in "TDBRC":
                self._owner[name] = source

    def uses(self):
        """(user's file, symbol, owner's file), for each use in another file."""
        for name, users in sorted(self._users.items()):
            owner = self._owner.get(name)
            if owner:
                for user in sorted(users):
                    yield user, name, owner

    def check(self, tree: Tree) -> list[Finding]:
        found = []
        for name, owner in sorted(self._owner.items()):
            # clang adds the latter where lines are counted (contrib/coverage.py).
            if name == "main" or name.startswith("__llvm_"):
                continue
            if not self._users.get(name):
                found.append(Finding(owner, 1, "unused-export", name, f"{name} has no user in another file"))
            if not _is_named_by(tree, owner, name):
                found.append(Finding(owner, 1, "export-name", name, f"{name} does not begin with the name of its file"))
        return found


def _objects(build: Path) -> dict[Path, str]:
    """Object to source, of each src/DIR/FILE.c that the build compiles."""
    objects = {}
    for one in json.loads((build / "compile_commands.json").read_text()):
        source = (Path(one["directory"]) / one["file"]).resolve()
        if len(source.parts) > 3 and source.parts[-3] == "src" and one["output"].endswith(".o"):
            objects[build / one["output"]] = "/".join(source.parts[-3:])
    return objects


def _is_named_by(tree: Tree, owner: str, name: str) -> bool:
    """x.c exports x or x_*; a part x_y.c of module x may export x_* as well, where x.c stands beside it."""
    directory, stem = owner.rsplit("/", 1)
    stem = stem.removesuffix(".c")
    while True:
        if name == stem or name.startswith(stem + "_"):
            return True
        if "_" not in stem:
            return False
        stem = stem.rsplit("_", 1)[0]
        if not (tree.root / directory / f"{stem}.c").exists():
            return False
