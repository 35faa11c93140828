"""Apply is pure: no clock, no entropy, no I/O, no order that a set or a hash gives (DESIGN, "One idea")."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "coordination"
PURE = sorted((ROOT / "state").glob("*.py"))
BANNED_MODULES = {
    "asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess",
    "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
BANNED_CALLS = {"hash", "id", "input", "open", "print", "vars"}
ORDERING = {"list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter", "dict"}
SET_METHODS = {"difference", "intersection", "symmetric_difference", "union"}


def impurities(source: str) -> list[str]:
    """What in this source apply may not do, with line numbers."""
    tree = ast.parse(source)
    sets = _names_of_sets(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: import {m}" for m in modules if m.split(".")[0] in BANNED_MODULES]
            found += [f"{node.lineno}: import {m}" for m in modules if m == "coordination.clock"]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(f"{node.lineno}: {node.func.id}()")
        for iterated in _iterated(node):
            if _is_set(iterated, sets):
                found.append(f"{iterated.lineno}: iterates over a set")
    return found


def _iterated(node: ast.AST) -> list[ast.expr]:
    """Expressions whose order of iteration counts where `node` uses them."""
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.Starred | ast.YieldFrom):
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return list(node.args) if node.func.id in ORDERING else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"extend", "join", "fromkeys"}:
            return list(node.args)
        if node.func.attr == "pop" and not node.args:
            return [node.func.value]
    return []


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr in names
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Sub | ast.BitXor):
        return _is_set(node.left, names) or _is_set(node.right, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS
    )


def _names_of_sets(tree: ast.AST) -> set[str]:
    """Names and attributes that are annotated as sets or given one."""
    names: set[str] = set()
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign) and _is_set(node.value, names):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and _annotated(node.annotation):
            targets = [node.target]
        elif isinstance(node, ast.arg) and _annotated(node.annotation):
            names.add(node.arg)
        names |= {t.id for t in targets if isinstance(t, ast.Name)}
        names |= {t.attr for t in targets if isinstance(t, ast.Attribute)}
    return names


def _annotated(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).split("[")[0] in {"set", "frozenset"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.name)
def test_the_state_is_pure(path: Path) -> None:
    assert impurities(path.read_text()) == []


def test_there_is_something_to_look_at() -> None:
    assert {"state.py", "chunks.py", "freeze.py", "topics.py"} <= {path.name for path in PURE}


@pytest.mark.parametrize(
    "sample",
    [
        "import time",
        "from random import random",
        "from os import environ",
        "from coordination.clock import SystemClock",
        "print(1)",
        "key = hash('x')",
        "for x in {1, 2}: pass",
        "for x in set(a): pass",
        "y = [x for x in frozenset(a)]",
        "live: set[int] = f()\nfor x in live: pass",
        "self.live = set()\nfirst = next(iter(self.live))",
        "self.live = {1}\nself.live.pop()",
        "live = {1} | other\nb = list(live)",
        "def f(live: set[int]):\n    return ','.join(live)",
        "for x in a.union(b): pass",
        "z = [*{1, 2}]",
    ],
)
def test_a_bad_sample_is_caught(sample: str) -> None:
    assert impurities(sample)


def test_a_good_sample_is_not() -> None:
    assert impurities("live: set[int] = set()\nif 3 in live: live.add(4)\nfor x in {1: 2}: d.pop(x)") == []
