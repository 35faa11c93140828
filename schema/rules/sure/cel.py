"""Simple expressions in CEL as conditions: comparisons of fields with one another and with literals.

Where both sides are of one type, CEL and Python say the same (cel-spec, "Language Definition"): numbers are
not converted, texts are ordered by code points, bytes only compared for equality. What is not a number makes
no condition true. Everything else is Beyond: arithmetic, macros but `has`, functions, fields of fields.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from schema.descriptors import is_map, is_repeated
from schema.rules.sure.terms import (
    Beyond,
    all_of,
    any_of,
    compared,
    constant,
    field_of,
    is_set,
    is_text,
    method,
    negated,
    size,
)

_T = TypeVar("_T")

CHARS_MAX = 1_000
"""Characters of an expression that is looked at."""

DEPTH_MAX = 16
"""How deep brackets and signs may be within one another."""

_TYPES = {
    **dict.fromkeys(("int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64", "enum"), "int"),
    **dict.fromkeys(("uint32", "uint64", "fixed32", "fixed64"), "uint"),
    **dict.fromkeys(("float", "double"), "double"),
    **{each: each for each in ("bool", "string", "bytes")},
}
_ORDERED = ("int", "uint", "double", "string")
_SIZED = ("string", "bytes", "list", "map")
_LIMITS = {"int": (-(1 << 63), (1 << 63) - 1), "uint": (0, (1 << 64) - 1)}
_TOKEN = re.compile(
    r"""\s*(?: (?P<double>\d+\.\d+(?![\w.])) |
    (?P<uint>(?:0|[1-9]\d*)u(?![\w.])) | (?P<int>(?:0|[1-9]\d*)(?![\w.])) |
    (?P<string>"[^"\\\n]*"|'[^'\\\n]*') | (?P<name>[A-Za-z_]\w*) |
    (?P<sign>==|!=|<=|>=|&&|\|\||[<>!?:().,\[\]-]) )""",
    re.VERBOSE | re.ASCII,
)
_RESERVED = frozenset(
    (
        *(
            "as",
            "break",
            "const",
            "continue",
            "else",
            "false",
            "for",
            "function",
            "if",
            "import",
            "in",
            "let",
        ),
        *("loop", "null", "package", "namespace", "return", "true", "var", "void", "while"),
    )
)


class Term(NamedTuple):
    """A part of an expression and its type in CEL. `literal`: its value, where it is one.

    `guards`: what has to be true besides.
    """

    kind: str
    value: ast.expr
    literal: bool | int | float | str | None = None
    guards: Sequence[ast.expr] = ()


This = Callable[[str], Term]
"""What a field of `this` is, by its name; "" means `this` itself. Raises Beyond."""


def condition(expression: str, this: This, has: Callable[[str], ast.expr]) -> ast.expr:
    """What is true where the rule surely holds. Raises Beyond."""
    guards, rule = guarded(expression, this, has)
    return all_of([*guards, rule])


def guarded(
    expression: str, this: This, has: Callable[[str], ast.expr]
) -> tuple[Sequence[ast.expr], ast.expr]:
    """The rule as a condition, and what has to be true for the condition to say what the rule says.

    Raises Beyond.
    """
    if len(expression) > CHARS_MAX:
        raise Beyond
    reader = _Reader(expression, this, has)
    rule = reader.rule()
    return reader.guards, rule


def type_of(field: FieldDescriptor, kind: str) -> str:
    """The type of a field's value in CEL, which has `kind` as one of its own. Raises Beyond."""
    if is_map(field):
        return "map"
    if is_repeated(field):
        return "list"
    if kind not in _TYPES or (field.has_default_value and not field.has_presence):
        raise Beyond
    return _TYPES[kind]


def scalar(field: FieldDescriptor, kind: str, value: ast.expr) -> Term:
    """A value of a field, of one of protobuf's types. Raises Beyond."""
    if kind not in _TYPES:
        raise Beyond
    return Term(_TYPES[kind], value, guards=_guards(field, _TYPES[kind], value))


def _guards(field: FieldDescriptor, kind: str, value: ast.expr) -> list[ast.expr]:
    number = [compared(value, ("==", value))] if kind == "double" else []
    return number + is_text(field, value) if kind not in ("list", "map") else []


def fields_of(descriptor: Descriptor, kind_of: Callable[[FieldDescriptor], str]) -> This:
    """Fields of a message."""

    def field(name: str) -> Term:
        found = descriptor.fields_by_name.get(name)
        if found is None or name in _RESERVED or found.has_default_value:
            raise Beyond
        kind, value = type_of(found, kind_of(found)), field_of(found)
        return Term(kind, value, guards=_guards(found, kind, value))

    return field


def presence_in(descriptor: Descriptor) -> Callable[[str], ast.expr]:
    """What `has(this.field)` is. Raises Beyond for fractions, whose zeros are two."""

    def has(name: str) -> ast.expr:
        found = descriptor.fields_by_name.get(name)
        if found is None or name in _RESERVED:
            raise Beyond
        value = field_of(found)
        if found.has_presence:
            return is_set(found)
        if is_repeated(found):
            return compared(size(value), (">", constant(0)))
        if found.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            raise Beyond
        return negated(negated(value))

    return has


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, expression: str, this: This, has: Callable[[str], ast.expr]) -> None:
        self._tokens = [*_tokens(expression)]
        self._at = 0
        self._depth = 0
        self._this = this
        self._has = has
        self.guards: list[ast.expr] = []
        """What has to be true besides."""

    def rule(self) -> ast.expr:
        """All of it: a condition, or texts that a condition chooses from, of which the empty one is good."""
        found = self._either()
        if not self._taken("?"):
            self._end()
            return _truth(found)
        good = self._is_empty()
        self._expect(":")
        bad = self._is_empty()
        self._end()
        return ast.IfExp(_truth(found), constant(good), constant(bad))

    def _is_empty(self) -> bool:
        kind, text = self._next()
        if kind != "string":
            raise Beyond
        return len(text) == 2

    def _either(self) -> Term:
        found = self._both()
        while self._taken("||"):
            found = Term("bool", any_of(_truth(found), _truth(self._both())))
        return found

    def _both(self) -> Term:
        found = self._relation()
        while self._taken("&&"):
            found = Term("bool", all_of([_truth(found), _truth(self._relation())]))
        return found

    def _relation(self) -> Term:
        left = self._unary()
        if self._taken("in"):
            return Term("bool", compared(left.value, ("in", self._list(left.kind))))
        for operator in ("==", "!=", "<=", ">=", "<", ">"):
            if self._taken(operator):
                right = self._unary()
                equality = operator in ("==", "!=") and left.kind in ("bool", "bytes")
                if left.kind != right.kind or not (equality or left.kind in _ORDERED):
                    raise Beyond
                return Term("bool", compared(left.value, (operator, right.value)))
        return left

    def _list(self, kind: str) -> ast.expr:
        """A list of literals of one type, as a set."""
        if kind not in ("int", "uint", "string"):
            raise Beyond
        self._expect("[")
        found: set[object] = set()
        while True:
            each = self._unary()
            if each.literal is None or each.kind != kind:
                raise Beyond
            found.add(each.literal)
            if not self._taken(","):
                break
        self._expect("]")
        return constant(frozenset(found))

    def _unary(self) -> Term:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Beyond
        if self._taken("!"):
            found = Term("bool", negated(_truth(self._unary())))
        elif self._taken("-"):
            found = self._literal(*self._next(), sign=-1)
        else:
            found = self._member()
        self._depth -= 1
        return found

    def _member(self) -> Term:
        kind, text = self._next()
        if text == "(":
            found = self._either()
            self._expect(")")
        elif text == "has":
            found = Term("bool", self._has(self._called(self._field_name)))
        elif text == "size":
            found = _size(self._called(self._either))
        elif text == "this":
            found = self._of_this()
        else:
            return self._literal(kind, text)
        while self._taken("."):
            found = self._method(found, self._next()[1])
        return found

    def _of_this(self) -> Term:
        """`this`, or a field of it."""
        kind, name = self._peek(1)
        whole = self._peek()[1] != "." or kind != "name" or self._peek(2)[1] == "("
        if not whole:
            self._at += 2
        found = self._this("" if whole else name)
        self.guards += found.guards
        return found

    def _field_name(self) -> str:
        self._expect("this")
        self._expect(".")
        kind, name = self._next()
        if kind != "name":
            raise Beyond
        return name

    def _method(self, of: Term, name: str) -> Term:
        if name == "size":
            self._expect("(")
            self._expect(")")
            return _size(of)
        known = {"startsWith": "startswith", "endsWith": "endswith", "contains": "__contains__"}
        given = self._called(self._either)
        if name not in known or (of.kind, given.kind) != ("string", "string"):
            raise Beyond
        return Term("bool", method(of.value, known[name], given.value))

    def _called(self, read: Callable[[], _T]) -> _T:
        """What is between brackets."""
        self._expect("(")
        found = read()
        self._expect(")")
        return found

    def _literal(self, kind: str, text: str, sign: int = 1) -> Term:
        made: bool | int | float | str
        if text in ("true", "false") and sign > 0:
            kind, made = "bool", text == "true"
        elif kind == "string" and sign > 0:
            made = text[1:-1]
        elif kind == "double":
            made = sign * float(text)
        elif kind in _LIMITS:
            made = sign * int(text.removesuffix("u"))
            low, high = _LIMITS[kind]
            if not low <= made <= high or (kind == "uint" and sign < 0):
                raise Beyond
        else:
            raise Beyond
        return Term(kind, constant(made), made)

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _taken(self, text: str) -> bool:
        kind, there = self._peek()
        if there != text or kind == "string":
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._taken(text):
            raise Beyond

    def _end(self) -> None:
        if self._at != len(self._tokens):
            raise Beyond


def _tokens(expression: str) -> list[tuple[str, str]]:
    found, at, text = [], 0, expression.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None:
            raise Beyond
        found.append((token.lastgroup, token[token.lastgroup]))
        at = token.end()
    return found


def _truth(of: Term) -> ast.expr:
    if of.kind != "bool":
        raise Beyond
    return of.value


def _size(of: Term) -> Term:
    if of.kind not in _SIZED:
        raise Beyond
    return Term("int", size(of.value))
