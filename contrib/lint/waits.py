# SPDX-License-Identifier: Apache-2.0
"""Tests that wait for a time and not for a condition."""
import ast
import re

from finding import Finding
from tree import Tree

_SLEEPS = {"sleep", "usleep", "nanosleep", "clock_nanosleep"}
_TEXT = "waits for a time: wait for the condition, by wait_until"
_C_CALL = re.compile(rf"\b(?:{'|'.join(sorted(_SLEEPS))})\s*\(")
# Comments and texts have no braces that count.
_C_NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
_C_FUNCTION = re.compile(r"(\w+)\s*\([^;{}]*\)\s*$")
_C_LOOP = re.compile(r"\b(?:for|while)\s*\(|\bdo\b")


def check_waits(tree: Tree) -> list[Finding]:
    """A sleep outside of a loop, and an assertion that a wait is in vain: it takes the whole limit."""
    found = []
    for path in tree.matching("tests/*.py"):
        found += [Finding(path, line, "fixed-wait", f"{path}:{function}", _TEXT) for line, function in _of_python(tree.text(path))]
    for path in tree.matching("tests/*.c", "tests/*.h"):
        found += [Finding(path, line, "fixed-wait", f"{path}:{function}", _TEXT) for line, function in _of_c(tree.text(path))]
    return found


# ---- Python ----

def _of_python(text):
    """(line, function) of each."""
    found = []

    def walk(node, function, is_in_loop):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, is_in_loop = node.name, False
        is_in_loop |= isinstance(node, (ast.For, ast.While, ast.AsyncFor))
        if _name(node) in _SLEEPS and not is_in_loop or _is_in_vain(node):
            found.append((node.lineno, function))
        for child in ast.iter_child_nodes(node):
            walk(child, function, is_in_loop)
    walk(ast.parse(text), "", False)
    return found


def _name(node):
    """What is called: the last name of it."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else None


def _is_in_vain(node):
    """assert not wait_until(...)"""
    test = node.test if isinstance(node, ast.Assert) else None
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _name(test.operand) == "wait_until"


# ---- C ----

def _of_c(text):
    """(line, function) of each: a call is in a loop if the head of one stands before its statement, or before a brace around
    it."""
    code = _C_NO_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    found, function, loops, head = [], "", [], 0
    for at, char in enumerate(code):
        if char == "{":
            before = code[head:at]
            if not loops and (m := _C_FUNCTION.search(before)):
                function = m.group(1)
            loops.append(bool(_C_LOOP.search(before)) or any(loops))
        elif char == "}" and loops:
            loops.pop()
        elif (call := _C_CALL.match(code, at)) and not code[at - 1].isalnum() and code[at - 1] != "_":
            if not any(loops) and not _C_LOOP.search(code[head:call.start()]):
                found.append((code.count("\n", 0, at) + 1, function))
        if char in "{}" or char == ";" and not _is_in_parentheses(code[head:at]):
            head = at + 1
    return found


def _is_in_parentheses(text):
    """Those of a for have semicolons."""
    return text.count("(") > text.count(")")
