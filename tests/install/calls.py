# SPDX-License-Identifier: Apache-2.0
"""What programs the tests, the benchmark and the scripts call by name: words where a command stands. It is taken from the
text, so that a program is found where no run comes by, and on a machine that has it."""
import ast
import pathlib
import re

_FUNCTIONS = {"run", "Popen", "check_output", "check_call", "call", "which", "checked", "popen"}
_WORD = re.compile(r"(?:/usr/bin/|/usr/sbin/|/bin/|/sbin/)?([a-z][a-z0-9+._-]*)\Z")
_KEYWORDS = set("if then elif else fi for while until do done case esac in select function time { } ! [[ ]]".split())
_BUILTINS = set(". : [ alias break builtin cd command continue declare echo eval exec exit export false getopts hash kill let local mapfile "
                "printf pwd read readonly return set shift shopt source test times trap true type typeset ulimit umask unset "
                "wait".split())
# What they are given is a command, after options and assignments.
_PREFIXES = {"exec", "command", "env", "nice", "sudo", "as_root", "time", "setsid", "nohup", "ionice"}


def _literal(node):
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        return _literal(node.elts[0])
    if isinstance(node, ast.BinOp):
        return _literal(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _text(node):
    """A string with what is filled in left out."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
    return _literal(node) if isinstance(node, (ast.Constant, ast.BinOp)) else None


def _without_quotes(text):
    """Quoted text is no command; what is substituted in it is."""
    text = re.sub(r"<<-?\s*'?\"?(\w+)'?\"?.*?^\s*\1$", "", text, flags=re.S | re.M)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"'[^']*'", "Q", text)
    text = re.sub(r"(^|\s)#.*", r"\1", text)
    inner = []

    def keep(match):
        inner.extend(re.findall(r"\$\(([^()]*)\)", match.group(0)))
        return "Q"
    text = re.sub(r'"(?:[^"\\]|\\.)*"', keep, text, flags=re.S)
    return "\n".join([re.sub(r"\$\{[^}]*\}|\$?\(\(.*?\)\)", "V", text), *inner])


def in_shell(text):
    """Words at the beginning of simple commands."""
    own = set(re.findall(r"^\s*(\w+)\s*\(\)", text, flags=re.M))
    text = _without_quotes(text)
    text = re.sub(r"^[^\n()]*\)(?=\s|$)", "", text, flags=re.M) if "case " in text else text
    text = re.sub(r"=\(.*?\)", "=", text, flags=re.S)
    found = set()
    for command in re.split(r"\n|;|&&|\|\||\||&|\$\(|`|\(|\)", text):
        words = command.split()
        while words and (words[0] in _KEYWORDS or words[0] in _PREFIXES or re.match(r"\w+\+?=", words[0]) or words[0][0] in "-<>0123456789"):
            is_loop = words[0] in ("for", "case", "select", "in", "function")
            words = [] if is_loop else words[1:]
        if words and (match := _WORD.match(words[0])) and match.group(1) not in own | _BUILTINS:
            found.add(match.group(1))
    return found


def _shell_in(node):
    """Texts that this call gives to a shell."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "sh" and node.args:
        yield _text(node.args[0])
    for argument in node.args:
        elements = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else node.args
        for option, text in zip(elements, elements[1:]):
            if _literal(option) in ("-c", "-ec", "-euc", "-exc") and not re.search(r"\bimport |\bprint\(", _text(text) or ""):
                yield _text(text)


def in_python(text):
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            word = _literal(node.args[0]) if node.args else None
            if name in _FUNCTIONS and word and (match := _WORD.match(word)):
                found.add(match.group(1))
            for shell in filter(None, _shell_in(node)):
                found |= in_shell(shell)
        elif isinstance(node, ast.Assign) and _literal(node.value) and "\n" in _literal(node.value) and "set -e" in _literal(node.value):
            found |= in_shell(_literal(node.value))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and getattr(node.targets[0], "id", "") == "PROGRAMS":
            found |= {word for word in map(_literal, node.value.elts) if word}
    return found


def everywhere(repository):
    """Each word, with the files that it stands in."""
    found = {}
    repository = pathlib.Path(repository)
    for top in ("tests", "bench", "contrib"):
        for path in sorted((repository / top).rglob("*")):
            if path.suffix not in (".py", ".sh") or not path.is_file():
                continue
            words = in_python(path.read_text()) if path.suffix == ".py" else in_shell(path.read_text())
            for word in words:
                found.setdefault(word, []).append(str(path.relative_to(repository)))
    return found
