"""Messages of one signature break the same rules, told in the same words: the library need be asked once.

A signature says which conditions of a message's rules do not hold. It is had only where each of them is true
where its rule holds *and* false where it does not, and where what may be wrong is of the message itself: of
lists, maps and messages inside, the library tells where in them it is (tests/property/test_sure_rules.py).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from math import isnan

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from schema.descriptors import MessageType, is_repeated
from schema.proto import understood_pb2 as understood
from schema.rules.sure import cel, standard
from schema.rules.sure.kinds import (
    FRACTIONS,
    NAMES,
    Compiler,
    Rules,
    expressions,
    name_of,
    nothing,
    options,
    skips_zeros,
    surely,
    this_of,
)
from schema.rules.sure.terms import (
    LOAD,
    MESSAGE,
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
)

Signature = tuple[bool, ...]
"""Of each condition whether it does not hold."""

Sign = Callable[[Message], Signature | None]
"""The signature of a message that parses strictly; None: it has none. It may raise ValueError: likewise."""

_KINDS_MAX = 1_024
_Parts = tuple[list[ast.expr], list[ast.expr]]
"""Conditions that say exactly what their rules say, and what has to be true for it."""


@functools.lru_cache(maxsize=_KINDS_MAX)
def signing(kind: MessageType) -> Sign | None:
    """What tells messages of the type by the rules that they break; None where nothing can.

    Costs some ms the first time.
    """
    if surely(kind) is None:
        return None
    try:
        return _Signer().signing(kind.descriptor)
    except Beyond:
        return None


class _Signer(Compiler):
    """Compiles the conditions of a type apart from one another."""

    def signing(self, descriptor: Descriptor) -> Sign:
        """Raises Beyond."""
        exact, besides = self._parts(descriptor)
        signature = ast.Tuple([negated(each) for each in exact], LOAD)
        found: Sign = self._lambda(ast.IfExp(all_of(besides), signature, ast.Constant(None)))
        self._rest()
        return found

    def _parts(self, descriptor: Descriptor) -> _Parts:
        exact, besides = list[ast.expr](), list[ast.expr]()
        this, has = cel.fields_of(descriptor, name_of), cel.presence_in(descriptor)
        for each in expressions(options(understood.MessageOptions, descriptor)):
            guards, rule = cel.guarded(each, this, has)
            exact.append(rule)
            besides += guards
        for oneof in descriptor.oneofs:
            if options(understood.OneofOptions, oneof).required:
                exact.append(method(MESSAGE, "WhichOneof", constant(oneof.name)))
        for field in descriptor.fields:
            rules = options(understood.FieldOptions, field)
            if not _is_exact(field, rules):
                besides += self._field(field, rules)
            elif rules.ignore != understood.IGNORE_ALWAYS:
                of_field = _of_field(field, rules)
                exact += of_field[0]
                besides += of_field[1]
        return exact, besides


def _is_exact(field: FieldDescriptor, rules: Rules) -> bool:
    """Whether conditions say exactly what the field's rules say: not of well-known texts, nor of bounds that
    are no numbers, nor of zeros that are passed over where there are two of them, or none.
    """
    if is_repeated(field) or field.type not in NAMES:
        return False
    if rules.string.WhichOneof("well_known") or _has_nan(rules.float) or _has_nan(rules.double):
        return False
    zeros = rules.ignore == understood.IGNORE_IF_ZERO_VALUE
    if field.has_presence:
        return not zeros
    return not (field.cpp_type in FRACTIONS and (zeros or rules.required))


def _has_nan(rules: understood.FloatRules | understood.DoubleRules) -> bool:
    named = (
        each
        for _, value in rules.ListFields()
        for each in (value if isinstance(value, Iterable) else [value])
    )
    return any(isinstance(each, float) and isnan(each) for each in named)


def _of_field(field: FieldDescriptor, rules: Rules) -> _Parts:
    kind, said, value = NAMES[field.type], rules.WhichOneof("type"), field_of(field)
    exact = standard.conditions(kind, getattr(rules, said), value, field.enum_type) if said else []
    besides = is_text(field, value)
    for each in expressions(rules):
        guards, rule = cel.guarded(each, this_of(field, kind, value), nothing)
        exact.append(rule)
        besides += guards
    if field.cpp_type in FRACTIONS and exact:
        besides.append(compared(value, ("==", value)))  # of what is not a number conditions know nothing
    if field.has_presence:
        absent = negated(is_set(field))
        required = [is_set(field)] if rules.required else []
        return [*required, *(any_of(absent, each) for each in exact)], besides
    if rules.required:
        return [negated(negated(value)), *exact], besides
    return [any_of(negated(value), each) for each in exact] if skips_zeros(field, rules) else exact, besides
