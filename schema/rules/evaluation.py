"""Evaluates the rules of one message type. In worker processes: what a rule costs is its author's choice.

Only what evaluates imports this file: it loads the library.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import protovalidate
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from schema import descriptors
from schema.descriptors import MessageType
from schema.rules.ruled import NO_RULES, Run

VIOLATIONS_SHOWN_MAX = 5
"""Violations of one record that are told; how many more there are is said."""

REASON_CHARS_MAX = 400
"""Characters of what is told of one record."""

RULE_CHARS_MAX = 100
"""Characters of a rule's id."""

PATH_CHARS_MAX = 150
"""Characters of a field's path: keys of maps are what producers make them."""

TOGETHER_MAX = 256
"""Messages that are evaluated together."""

TOGETHER_BYTES_MAX = 1 << 20
"""Bytes of these; one message alone may have more."""

NO_TEXT = "a rule cannot be evaluated: a text is not UTF-8"
"""Of proto2, which takes such: the library does not."""

EVALUATION = re.compile(r"error evaluating (?P<rule>\S+): (?P<why>.+)", re.DOTALL)
"""What the library says of a rule that failed on a message."""


_first = attrgetter("first")


class Violation(NamedTuple):
    """A rule that a message breaks. `path`: of the field; empty for a rule of the whole message."""

    path: str
    rule: str
    text: str


class RulesError(ValueError):
    """The rules of the message type cannot be used."""


class Evaluator:
    """The rules of one message type, compiled when first needed.

    `called`: what errors call it. Raises DescriptorError.
    """

    def __init__(self, descriptor_set: bytes, message: str, called: str = "") -> None:
        self.kind = descriptors.load(descriptor_set, message)
        self._parse = self.kind.message_class.FromString
        self._parse_many = _many(self.kind).message_class.FromString
        self._name = called or message
        self._validator = protovalidate.Validator()

    def violations(self, payload: bytes) -> Sequence[Violation]:
        """The rules that a serialized message breaks. A rule that fails on it counts as broken.

        Raises RulesError.
        """
        message = self._parse(payload)
        try:
            found = self._validator.collect_violations(message)
        except protovalidate.EvaluationError as error:
            return [_failed(str(error))]
        except protovalidate.CompilationError as error:
            raise RulesError(
                f"the rules of {self._name} do not compile: {str(error)[:REASON_CHARS_MAX]}"
            ) from None
        except TypeError:
            return [Violation("", "evaluation", NO_TEXT)]
        return [_violation(each) for each in found] if found else ()

    def broken(self, payloads: Sequence[bytes]) -> Iterator[tuple[int, Sequence[Violation]]]:
        """Those of serialized messages that break rules, by place, as `violations` tells them of each.

        Many are parsed and evaluated together, which saves a good part of what one costs. Raises RulesError.
        """
        for first, some in _together(payloads):
            yield from ((first + place, told) for place, told in self._broken_of(some))

    def _broken_of(self, some: Sequence[bytes]) -> Iterable[tuple[int, Sequence[Violation]]]:
        try:
            found = self._validator.collect_violations(self._parse_many(_joined(some)))
        except (protovalidate.EvaluationError, protovalidate.CompilationError, DecodeError, TypeError):
            # Of one of them: a rule that fails, or messages within messages as deep as may be, or one deeper.
            each = ((place, self.violations(payload)) for place, payload in enumerate(some))
            return [(place, broken) for place, broken in each if broken]
        by_place: dict[int, list[Violation]] = {}
        for one in found:
            by_place.setdefault(_place(one), []).append(_violation(one, within=1))
        return by_place.items()

    def try_on(self, payload: bytes) -> None:
        """Raises what the library raises: CompilationError, and EvaluationError for a rule that fails."""
        self._validator.collect_violations(self._parse(payload))


def _failed(text: str) -> Violation:
    known = EVALUATION.fullmatch(text)
    if known is None:
        return Violation("", "evaluation", f"a rule cannot be evaluated: {text}")
    return Violation("", known["rule"][:RULE_CHARS_MAX], f"cannot be evaluated: {known['why']}")


def _violation(found: protovalidate.Violation, within: int = 0) -> Violation:
    """`within`: how many elements the path has before the message itself."""
    proto = found.proto
    path = "" if proto.field is None else _path(proto.field.elements[within:])
    rule = (proto.rule_id or "unnamed")[:RULE_CHARS_MAX]
    return Violation(path, rule, proto.message or "does not hold")


def _path(elements: Sequence[protovalidate.FieldPathElementPb]) -> str:
    """As `items[3].price`, `labels["a"]`."""
    told = ""
    for element in elements:
        told += f".{element.field_name}" if told else element.field_name or ""
        key = element.subscript
        if key is not None:
            quoted = str(key.value).replace('"', '\\"')
            told += f'["{quoted}"]' if key.field == "string_key" else f"[{str(key.value).lower()}]"
        if len(told) > PATH_CHARS_MAX:
            return f"{told[:PATH_CHARS_MAX]}…"
    return told


def _many(kind: MessageType) -> MessageType:
    """A message that has a list of messages of the type, and nothing else."""
    files = descriptor_pb2.FileDescriptorSet.FromString(kind.descriptor_set)
    file = files.file.add(name="floe/rules/many.proto", package="floe.rules", syntax="proto3")
    file.dependency.append(str(kind.descriptor.file.name))
    field = file.message_type.add(name="Many").field.add(name="each", number=1, type_name=f".{kind.name}")
    field.type, field.label = field.TYPE_MESSAGE, field.LABEL_REPEATED
    return descriptors.load(files.SerializeToString(), "floe.rules.Many")


def _joined(some: Sequence[bytes]) -> bytes:
    """Such a message of serialized ones."""
    parts: list[bytes] = []
    for payload in some:
        parts += (b"\x0a", varint(len(payload)), payload)
    return b"".join(parts)


def _together(payloads: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Pieces of TOGETHER_MAX messages and about TOGETHER_BYTES_MAX, each with the place of its first one."""
    first, size = 0, 0
    for place, payload in enumerate(payloads):
        if place - first == TOGETHER_MAX or (size and size + len(payload) > TOGETHER_BYTES_MAX):
            yield first, payloads[first:place]
            first, size = place, 0
        size += len(payload)
    if first < len(payloads):
        yield first, payloads[first:]


def _place(found: protovalidate.Violation) -> int:
    """Which message of many it is."""
    path = found.proto.field
    index = path.elements[0].subscript if path is not None else None
    assert index is not None, "all of them are in the list"
    return int(index.value)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    if number < 0x80:
        return bytes((number,))
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def told(role: str, violations: Sequence[Violation]) -> str:
    """What a producer reads: `value.total: must be greater than 0 (rule double.gt)`."""
    shown = [
        f"{role}{'.' if path else ''}{path}: {text} (rule {rule})"
        for path, rule, text in violations[:VIOLATIONS_SHOWN_MAX]
    ]
    more = len(violations) - len(shown)
    return ("; ".join(shown) + (f"; and {more} more" if more else ""))[:REASON_CHARS_MAX]


def typed(
    values: Iterable[bytes | None], runs: Sequence[Run], first: int
) -> Iterator[tuple[int, bytes | None]]:
    """Kind and payload of each record; NO_RULES, and all of it, where it is of no kind; `values` begin with
    record `first`.
    """
    at = -1
    for index, value in enumerate(values, first):
        while at + 1 < len(runs) and runs[at + 1].first <= index:
            at += 1
        if value is None or at < 0 or runs[at].kind == NO_RULES:
            yield NO_RULES, value
        else:
            yield runs[at].kind, value[runs[at].start :]


def messages(
    values: Sequence[bytes | None], runs: Sequence[Run], first: int
) -> Iterator[tuple[int, int, bytes]]:
    """Index, kind and payload of each record that has rules; `values` begin with record `first`.

    What has none costs nothing: a batch may have a few messages that are to be looked at among many.
    """
    end = first + len(values)
    at = max(0, bisect_right(runs, first, key=_first) - 1)
    while at < len(runs) and runs[at].first < end:
        kind, start = runs[at].kind, runs[at].start
        stop = runs[at + 1].first if at + 1 < len(runs) else end
        for index in range(max(first, runs[at].first), min(stop, end)) if kind != NO_RULES else ():
            value = values[index - first]
            if value is not None:
                yield index, kind, value[start:]
        at += 1
