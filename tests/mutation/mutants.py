"""Small changes to a source file that a test should notice: one mutant is one change."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
CHANGED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
}  # fmt: skip


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
KINDS: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.Compare, "comparison"),
    (ast.BoolOp, "and, or"),
    (ast.BinOp, "arithmetic"),
    (ast.AugAssign, "arithmetic"),
    (ast.If, "condition"),
    (ast.IfExp, "condition"),
    (ast.Constant, "number"),
    (ast.AST, "statement dropped"),
)


@dataclass(frozen=True)
class Mutant:
    """One change: where, what it is, and the whole file with it."""

    line: int
    what: str
    kind: str
    function: str
    """Qualified name of the outermost function whose body is changed; empty: what runs as it is loaded."""
    tree: ast.Module


@dataclass(frozen=True)
class Place:
    """Where a file can be changed. It is made when it is asked for: a file has hundreds."""

    source: ast.Module
    node: int
    """Its number in the order of `ast.walk`."""
    change: int
    function: str
    kind: str

    def mutant(self) -> Mutant:
        """The change."""
        made = copy.deepcopy(self.source)
        changed = next(each for at, each in enumerate(ast.walk(made)) if at == self.node)
        line = getattr(changed, "lineno", 0)
        what = _change(changed, self.change)
        return Mutant(line, what, self.kind, self.function, ast.fix_missing_locations(made))


def places(source: str) -> Iterator[Place]:
    """Everywhere that a file can be changed. Docstrings, annotations and imports stay."""
    tree = ast.parse(source)
    known = dict(functions(tree))
    for number, node in enumerate(ast.walk(tree)):
        kind = next(name for known, name in KINDS if isinstance(node, known))
        for change in range(_changes(node)):
            yield Place(tree, number, change, known.get(node, ""), kind)


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    """What lies in the body of which outermost function."""
    for child in ast.iter_child_nodes(node):
        name = f"{within}.{child.name}".lstrip(".") if isinstance(child, FUNCTIONS | ast.ClassDef) else within
        if isinstance(child, FUNCTIONS):
            yield child, name
            yield from ((each, name) for part in child.body for each in ast.walk(part))
        else:
            yield from functions(child, name)


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    return (place.mutant() for place in places(source))


def _changes(node: ast.AST) -> int:
    """In how many ways a node can be changed."""
    if isinstance(node, ast.Compare):
        return sum(type(each) in FLIPPED for each in node.ops)
    if isinstance(node, ast.BoolOp):
        return 1
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return int(type(node.op) in CHANGED)
    if isinstance(node, ast.If | ast.IfExp):
        return 1
    if isinstance(node, ast.Constant):
        return int(type(node.value) in (int, bool))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.With):
        return sum(map(_can_go, node.body))
    return 0


def _can_go(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    return isinstance(statement, ast.AugAssign | ast.Delete) or (
        isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
    )


def _change(node: ast.AST, number: int) -> str:
    """Make the change; what was there, and what is now."""
    before = ast.unparse(node).splitlines()[0][:70]
    if isinstance(node, ast.Compare):
        at = [place for place, each in enumerate(node.ops) if type(each) in FLIPPED][number]
        node.ops[at] = FLIPPED[type(node.ops[at])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = CHANGED[type(node.op)]()
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.Constant(value=False)
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else int(node.value) + 1  # type: ignore[arg-type]  # an int, as asked
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.With):
        gone = [each for each in node.body if _can_go(each)][number]
        node.body[node.body.index(gone)] = ast.copy_location(ast.Pass(), gone)
        return f"without: {ast.unparse(gone).splitlines()[0][:90]}"
    return f"{before}  →  {ast.unparse(node).splitlines()[0][:70]}"
