"""Compiles the rules of a message type to one function, which is true only where all of them surely hold.

The library is the judge of all other messages, and of types with a rule that is not understood here. So what
is true here must be true there, for every message (tests/property/test_sure_rules.py); the reverse need not
be. Rules may cost here what the message's bytes cost: lists that are looked at are short, and so is the code.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import Message

from schema.descriptors import MessageType, is_map, is_repeated
from schema.proto import understood_pb2 as understood
from schema.rules.presence import has_rules, is_ruled
from schema.rules.sure import cel, standard
from schema.rules.sure.terms import (
    ELEMENT,
    MESSAGE,
    Beyond,
    all_of,
    any_of,
    call,
    compared,
    constant,
    each_of,
    field_of,
    is_set,
    is_text,
    method,
    negated,
    size,
)

Rules = understood.FieldRules
Obeys = Callable[[Message], bool]
"""Whether a message that parses strictly surely obeys its rules. It may raise ValueError: nobody knows."""

ITEMS_MAX = 64
"""Elements of a list or a map that are looked at one by one; a message with more is the library's."""

NODES_MAX = 4_000
"""Nodes of the code of a type and of those inside it; with more all of its messages are the library's."""

_KINDS_MAX = 1_024
NAMES = {
    getattr(FieldDescriptor, f"TYPE_{each.upper()}"): each
    for each in (
        *("float", "double", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
        *("sfixed32", "sfixed64", "bool", "string", "bytes", "enum"),
    )
}
_MANY = ("repeated", "map")
FRACTIONS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


@functools.lru_cache(maxsize=_KINDS_MAX)
def surely(kind: MessageType) -> Obeys | None:
    """What says that messages of the type surely obey their rules; None where nothing can, and without rules.

    Costs some ms the first time.
    """
    if not kind.has_rules:
        return None
    try:
        return Compiler().compiled(kind.descriptor)
    except Beyond:
        return None


class Compiler:
    """Compiles a type and those inside it that have rules, which may hold one another."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {
            "__builtins__": {each.__name__: each for each in (all, isinstance, len, set, str)},
            **standard.understood(),
        }
        self._functions: dict[str, str] = {}
        self._waiting: list[tuple[str, Descriptor]] = []
        self._nodes = 0

    def compiled(self, descriptor: Descriptor) -> Obeys:
        """Raises Beyond."""
        name = self._function(descriptor)
        self._rest()
        found: Obeys = self._scope[name]
        return found

    def _rest(self) -> None:
        """Compile what was called and is not compiled."""
        while self._waiting:
            which, inner = self._waiting.pop()
            self._scope[which] = self._lambda(all_of(self._conditions(inner)))

    def _lambda(self, body: ast.expr) -> Any:
        given = ast.arguments([], [ast.arg(MESSAGE.id)], None, [], [], None, [])
        made = ast.fix_missing_locations(ast.Expression(ast.Lambda(given, body)))
        self._nodes += sum(1 for _ in ast.walk(made))
        if self._nodes > NODES_MAX:
            raise Beyond
        return eval(compile(made, "<rules>", "eval"), self._scope)

    def _function(self, descriptor: Descriptor) -> str:
        """The name of what judges messages of a type inside."""
        name = self._functions.get(descriptor.full_name)
        if name is None:
            name = self._functions[descriptor.full_name] = f"obeys_{len(self._functions)}"
            self._waiting.append((name, descriptor))
        return name

    def _conditions(self, descriptor: Descriptor) -> list[ast.expr]:
        if descriptor.is_extendable:
            raise Beyond
        whole = options(understood.MessageOptions, descriptor)
        this, has = cel.fields_of(descriptor, name_of), cel.presence_in(descriptor)
        found = [cel.condition(each, this, has) for each in expressions(whole)]
        for oneof in descriptor.oneofs:
            if options(understood.OneofOptions, oneof).required:
                found.append(method(MESSAGE, "WhichOneof", constant(oneof.name)))
        for field in descriptor.fields:
            found += self._field(field, options(understood.FieldOptions, field))
        return found

    def _field(self, field: FieldDescriptor, rules: Rules) -> list[ast.expr]:
        if rules.ignore == understood.IGNORE_ALWAYS:
            return []
        value = field_of(field)
        found = self._values(field, rules, value)
        if field.has_presence:
            if rules.required:
                return [is_set(field), *found]
            return [any_of(negated(is_set(field)), all_of(found))] if found else []
        if rules.required:
            return [negated(negated(value)), *found]
        if found and skips_zeros(field, rules):
            return [any_of(negated(value), all_of(found))]
        return found

    def _values(self, field: FieldDescriptor, rules: Rules, value: ast.expr) -> list[ast.expr]:
        """What is asked of the values of a field that is there."""
        if not is_repeated(field):
            return self._value(field, rules, value)
        if expressions(rules) or rules.WhichOneof("type") not in (None, _MANY[is_map(field)]):
            raise Beyond
        return self._map(field, rules, value) if is_map(field) else self._list(field, rules, value)

    def _list(self, field: FieldDescriptor, rules: Rules, value: ast.expr) -> list[ast.expr]:
        own = rules.repeated
        found = _counted(value, own, "min_items", "max_items")
        if own.unique:
            if field.message_type is not None or field.cpp_type in FRACTIONS:
                raise Beyond
            found += [_short(value), compared(size(call("set", value)), ("==", size(value)))]
        return found + _each(value, self._element(field, own.items))

    def _map(self, field: FieldDescriptor, rules: Rules, value: ast.expr) -> list[ast.expr]:
        entry = field.message_type
        assert entry is not None
        own, found = rules.map, _counted(value, rules.map, "min_pairs", "max_pairs")
        keys = self._element(entry.fields_by_name["key"], own.keys)
        values = self._element(entry.fields_by_name["value"], own.values)
        return found + _each(value, keys) + _each(method(value, "values"), values, value)

    def _element(self, field: FieldDescriptor, rules: Rules) -> list[ast.expr]:
        """What is asked of ELEMENT, which stands in a list or a map."""
        if rules.ignore == understood.IGNORE_ALWAYS:
            return []
        if rules.required:
            raise Beyond
        found = self._value(field, rules, ELEMENT)
        skips = found and field.message_type is None and skips_zeros(field, rules)
        return [any_of(negated(ELEMENT), all_of(found))] if skips else found

    def _value(self, field: FieldDescriptor, rules: Rules, value: ast.expr) -> list[ast.expr]:
        kind, said = NAMES.get(field.type), rules.WhichOneof("type")
        if kind is None:
            if said is not None or expressions(rules):
                raise Beyond
            return self._inner(field, value)
        if said not in (None, kind):
            raise Beyond
        found = standard.conditions(kind, getattr(rules, said), value, field.enum_type) if said else []
        this = this_of(field, kind, value)
        found += [cel.condition(each, this, nothing) for each in expressions(rules)]
        return [*is_text(field, value), *found] if found else []

    def _inner(self, field: FieldDescriptor, value: ast.expr) -> list[ast.expr]:
        inner = field.message_type
        assert inner is not None
        return [call(self._function(inner), value)] if has_rules(inner) else []


def this_of(field: FieldDescriptor, kind: str, value: ast.expr) -> cel.This:
    """`this` is one value."""

    def this(name: str) -> cel.Term:
        if name:
            raise Beyond
        return cel.scalar(field, kind, value)

    return this


def nothing(_: str) -> ast.expr:
    """`has`, where there are no fields. Raises Beyond."""
    raise Beyond


def options(kind: type[Message], part: Descriptor | OneofDescriptor | FieldDescriptor) -> Any:
    """The rules of a part of a message. Raises Beyond where something of them is not understood."""
    if not is_ruled(part):
        return kind().rules  # type: ignore[attr-defined]  # each of the three has it
    rules: Any = kind.FromString(part.GetOptions().SerializeToString()).rules  # type: ignore[attr-defined]  # each has it
    before = rules.ByteSize()
    rules.DiscardUnknownFields()
    if rules.ByteSize() != before:
        raise Beyond
    return rules


def expressions(rules: Any) -> list[str]:
    """What its rules in CEL say; without an expression a rule is the library's to tell of."""
    return [*(each.expression for each in rules.cel), *rules.cel_expression]


def name_of(field: FieldDescriptor) -> str:
    """The type of a field as rules call it; empty: a message."""
    return NAMES.get(field.type, "")


def skips_zeros(field: FieldDescriptor, rules: Rules) -> bool:
    """Whether zeros are passed over; of fractions there are two, and only one is."""
    return rules.ignore == understood.IGNORE_IF_ZERO_VALUE and (
        is_repeated(field) or field.cpp_type not in FRACTIONS
    )


def _counted(value: ast.expr, rules: Any, least: str, most: str) -> list[ast.expr]:
    found = []
    for name, operator in ((least, ">="), (most, "<=")):
        if rules.HasField(name):
            found.append(compared(size(value), (operator, constant(getattr(rules, name)))))
    return found


def _short(value: ast.expr) -> ast.expr:
    return compared(size(value), ("<=", constant(ITEMS_MAX)))


def _each(values: ast.expr, asked: list[ast.expr], of: ast.expr | None = None) -> list[ast.expr]:
    """What is asked of each of the values, which are those of a list or a map `of`."""
    return [_short(of or values), each_of(values, asked)] if asked else []
