"""The terms that conditions are made of: Python's own syntax trees, so no text of a schema becomes code."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message

LOAD = ast.Load()
MESSAGE = ast.Name("m", LOAD)
"""The message that is looked at."""

ELEMENT = ast.Name("each", LOAD)
"""An element of one of its lists or maps."""

_FILES_MAX = 64
_NO_NAMES = ("None", "True", "False", "__debug__")
_OPERATORS: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "in": ast.In,
    "not in": ast.NotIn,
}


class Beyond(Exception):
    """Something of the rules is not understood: the library has to judge all messages of the type."""


def field_of(field: FieldDescriptor) -> ast.expr:
    """The field's value. Raises Beyond where Python's messages call something else so."""
    if hasattr(Message, field.name) or field.name in _NO_NAMES:
        raise Beyond
    return ast.Attribute(MESSAGE, field.name, LOAD)


def is_set(field: FieldDescriptor) -> ast.expr:
    """Whether a field that tracks presence is there."""
    return method(MESSAGE, "HasField", constant(field.name))


def is_text(field: FieldDescriptor, value: ast.expr) -> list[ast.expr]:
    """What says that a value of a field of texts is one: of bytes that are no UTF-8 Python makes no text.

    Files of proto3 have them checked when they are parsed.
    """
    owner: Any = field.containing_type
    if field.type != FieldDescriptor.TYPE_STRING or _checked(owner.file.serialized_pb):
        return []
    return [call("isinstance", value, ast.Name("str", LOAD))]


@functools.lru_cache(maxsize=_FILES_MAX)
def _checked(file: bytes) -> bool:
    return bool(FileDescriptorProto.FromString(file).syntax == "proto3")


def constant(value: bool | int | float | str | bytes | frozenset[object]) -> ast.expr:
    """A value that rules name."""
    return ast.Constant(value)  # type: ignore[arg-type]  # a frozenset is one of the compiler's constants


def call(name: str, *given: ast.expr) -> ast.expr:
    """A function of the scope called with these."""
    return ast.Call(ast.Name(name, LOAD), list(given), [])


def method(of: ast.expr, name: str, *given: ast.expr) -> ast.expr:
    """A method of a value called with these."""
    return ast.Call(ast.Attribute(of, name, LOAD), list(given), [])


def compared(left: ast.expr, *rest: tuple[str, ast.expr]) -> ast.expr:
    """As `left < a <= b`; the operators are Python's."""
    return ast.Compare(left, [_OPERATORS[each]() for each, _ in rest], [right for _, right in rest])


def negated(one: ast.expr) -> ast.expr:
    """Whether it is not so."""
    return ast.UnaryOp(ast.Not(), one)


def all_of(conditions: Sequence[ast.expr]) -> ast.expr:
    """True where there are none."""
    return _joined(ast.And(), conditions) if conditions else constant(True)


def any_of(*conditions: ast.expr) -> ast.expr:
    """Whether one of them is so."""
    return _joined(ast.Or(), conditions)


def _joined(by: ast.boolop, conditions: Sequence[ast.expr]) -> ast.expr:
    return ast.BoolOp(by, list(conditions)) if len(conditions) > 1 else conditions[0]


def each_of(values: ast.expr, conditions: Sequence[ast.expr]) -> ast.expr:
    """Whether the conditions, which are of ELEMENT, hold of all values."""
    over = ast.comprehension(ast.Name(ELEMENT.id, ast.Store()), values, [], 0)
    return call("all", ast.GeneratorExp(all_of(conditions), [over]))


def size(of: ast.expr) -> ast.expr:
    """How many elements, characters or bytes there are."""
    return call("len", of)
