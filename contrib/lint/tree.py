# SPDX-License-Identifier: Apache-2.0
"""The files of the tree that rules look at."""
import fnmatch
import os
import re
import subprocess
from functools import cached_property
from pathlib import Path

_OUTSIDE = re.compile(r"build|__pycache__|dist$|results$|\.(deps|cache|pytest_cache|ruff_cache|venv)$")


class Tree:
    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def paths(self) -> list[str]:
        """What git tracks or would add, and without git (an archive, an image) all but builds and caches."""
        if not (self.root / ".git").exists():
            return sorted(path for path in self._walk())
        # Any owner of the tree is fine: git only lists it.
        out = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", self.root, "ls-files", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout
        return sorted(path for path in set(out.splitlines()) if (self.root / path).is_file())

    def _walk(self):
        for directory, names, files in os.walk(self.root):
            names[:] = [name for name in names if not _OUTSIDE.match(name)]
            yield from (os.path.relpath(os.path.join(directory, name), self.root) for name in files)

    def matching(self, *patterns: str) -> list[str]:
        return [path for path in self.paths if any(fnmatch.fnmatch(path, one) for one in patterns)]

    def text(self, path: str) -> str:
        return (self.root / path).read_text(errors="replace")

    @property
    def c_files(self) -> list[str]:
        return self.matching("*.c", "*.h")

    @property
    def sources(self) -> list[str]:
        return self.matching("src/*/*.c")

    @property
    def modules(self) -> list[str]:
        """Sources and headers of the program."""
        return self.matching("src/*/*.[ch]", "include/veneer/*/*.h")

    @property
    def markdown(self) -> list[str]:
        return self.matching("*.md")

    @property
    def shell_scripts(self) -> list[str]:
        return [path for path in self.paths if path.endswith(".sh") or self._interpreter(path) in ("sh", "bash")]

    @property
    def python_files(self) -> list[str]:
        return [path for path in self.paths if path.endswith(".py") or self._interpreter(path).startswith("python")]

    def _interpreter(self, path: str) -> str:
        with open(self.root / path, "rb") as f:
            first = f.readline(80)
        words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
        if not words:
            return ""
        name = words[0].rsplit("/", 1)[-1]
        return words[1] if name == "env" and len(words) > 1 else name
