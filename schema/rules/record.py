"""Evaluates a topic's own rules: CEL over a record's key, value, headers and timestamp.

The record becomes a message that is made up for it, with the rules as rules of that message, so
protovalidate's library evaluates them like any others. In the expressions `this` is that message; its fields'
names alone are bound to what stands in them by CEL's own means, a comprehension over a list of one. A rule
that names the key or the value alone is passed over where that is null; `has(this.value)` asks.

Only what evaluates imports this file: it loads the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2

from schema.descriptors import DescriptorError, MessageType
from schema.rules.evaluation import Evaluator, Violation, varint
from schema.rules.presence import OPTION
from schema.rules.ruled import OwnRule

MESSAGE = "floe.rules.Record"
"""Full name of the message that a record becomes."""

TEXT_CHARS_MAX = 200
"""Characters of an expression that are told where its rule has no message."""

Headers = Iterable[tuple[str, bytes | None]]

_FILE = "floe/rules/record.proto"
_TIMESTAMP = "google/protobuf/timestamp.proto"
_FIELDS = {"key": 1, "value": 2, "headers": 3, "timestamp": 4}
_NULLABLE = ("key", "value")
_IGNORED = b"\xd8\x01\x03"  # FieldRules.ignore (27) = IGNORE_ALWAYS: a message's own rules are not these
_CEL, _ID, _MESSAGE, _EXPRESSION = 3, 1, 2, 3  # MessageRules.cel, and a Rule's fields
_QUOTED = re.compile(
    r"""(?xs) //[^\n]* |
    [rRbB]{0,2} (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )"""
)
_NAME = re.compile(r"(?<![\w.])(this\s*\.\s*)?([A-Za-z_]\w*)")
_Field = descriptor_pb2.FieldDescriptorProto


class RecordEvaluator:
    """A topic's own rules over records whose keys and values are of these types; None: bytes.

    Raises DescriptorError where both types cannot stand in one message.
    """

    def __init__(
        self, rules: Sequence[OwnRule], key: MessageType | None = None, value: MessageType | None = None
    ) -> None:
        named: set[str] = set().union(*(_named(expression)[1] for _, expression, _ in rules))
        wrapped = {rule: bound(expression) for rule, expression, _ in rules}
        self._texts = {
            rule: (f'"{wrapped[rule]}" returned false', _told(expression))
            for rule, expression, message in rules
            if not message
        }
        kinds = {role: kind for role, kind in (("key", key), ("value", value)) if kind and role in named}
        files = message_with([(rule, wrapped[rule], message) for rule, _, message in rules], kinds)
        self._evaluator = Evaluator(files, MESSAGE, "floe.rules")
        self._named = named

    def violations(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
    ) -> Sequence[Violation]:
        """The rules that a record breaks; key and value without frames. One that fails counts as broken.

        `timestamp`: Unix ms; below 0: none. Raises RulesError.
        """
        found = self._evaluator.violations(self.made(key, value, headers, timestamp))
        return [self._in_words(each) for each in found] if found else ()

    def made(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> bytes:
        """The message of a record, as `broken` takes it: as far as rules name its fields."""
        named = self._named
        return serialized(
            key if "key" in named else None,
            value if "value" in named else None,
            headers if "headers" in named else (),
            timestamp if "timestamp" in named else -1,
        )

    def broken(self, made: Sequence[bytes]) -> Iterator[tuple[int, Sequence[Violation]]]:
        """Those of several records that break rules, by place, as `violations` tells them of each.

        Raises RulesError.
        """
        for place, found in self._evaluator.broken(made):
            yield place, [self._in_words(each) for each in found]

    def try_on(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> None:
        """Raises what the library raises: CompilationError, and EvaluationError for a rule that fails."""
        self._evaluator.try_on(self.made(key, value, headers, timestamp))

    def _in_words(self, found: Violation) -> Violation:
        """Where a rule has no message the library tells the expression, as it was made of what was given."""
        made, text = self._texts.get(found.rule, ("", ""))
        return found._replace(text=text) if made and found.text == made else found


def bound(expression: str) -> str:
    """The expression with the names that it uses bound to the fields of `this`."""
    names, _ = _named(expression)
    body = f"({expression}\n)"
    for name in names:
        body = f"[this.{name}].map({name}, {body})[0]"
    there = " && ".join(f"has(this.{name})" for name in names if name in _NULLABLE)
    return f"{there} ? {body} : true" if there else body


def _named(expression: str) -> tuple[list[str], set[str]]:
    """Which fields an expression names alone, and which it uses at all."""
    alone, used = dict[str, None](), set[str]()
    for through, name in _NAME.findall(_QUOTED.sub("''", expression)):
        if name in _FIELDS:
            used.add(name)
            if not through:
                alone[name] = None
        elif name == "this" and not through:
            used |= _FIELDS.keys()  # the record as a whole
    return [*alone], used


def _told(expression: str) -> str:
    text = " ".join(expression.split())
    return f"does not hold: {text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + '…'}"


def message_with(rules: Sequence[OwnRule], kinds: Mapping[str, MessageType]) -> bytes:
    """A descriptor set of MESSAGE with these rules; `kinds`: of key and value, where they are messages.

    Raises DescriptorError.
    """
    files: dict[str, Any] = {}
    for kind in kinds.values():
        for file in descriptor_pb2.FileDescriptorSet.FromString(kind.descriptor_set).file:
            there = files.setdefault(file.name, file)
            if there != file:
                raise DescriptorError(
                    f"keys and values have files called {file.name} that differ, so that a topic's own rules "
                    "cannot name both: give one of the files another name"
                )
    if _TIMESTAMP not in files:
        files[_TIMESTAMP] = descriptor_pb2.FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(files[_TIMESTAMP])
    imports = dict.fromkeys([_TIMESTAMP, *(str(kind.descriptor.file.name) for kind in kinds.values())])
    file = descriptor_pb2.FileDescriptorProto(
        name=_FILE, package=MESSAGE.rpartition(".")[0], syntax="proto3", dependency=[*imports]
    )
    _add_message(file, rules, {role: str(kind.name) for role, kind in kinds.items()})
    return descriptor_pb2.FileDescriptorSet(file=[*files.values(), file]).SerializeToString()


def _add_message(file: Any, rules: Sequence[OwnRule], types: dict[str, str]) -> None:
    message = file.message_type.add(name=MESSAGE.rpartition(".")[2])
    entry = message.nested_type.add(name="HeadersEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _Field.TYPE_STRING)
    _add(entry, "value", 2, _Field.TYPE_BYTES)
    for role in _NULLABLE:
        if role in types:
            field = _add(message, role, _FIELDS[role], _Field.TYPE_MESSAGE, f".{types[role]}")
            field.options.MergeFromString(_part(OPTION, _IGNORED))
        else:
            field = _add(message, role, _FIELDS[role], _Field.TYPE_BYTES)
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{role}")
    headers = _add(message, "headers", _FIELDS["headers"], _Field.TYPE_MESSAGE, f".{MESSAGE}.HeadersEntry")
    headers.label = _Field.LABEL_REPEATED
    time = "." + timestamp_pb2.Timestamp.DESCRIPTOR.full_name
    _add(message, "timestamp", _FIELDS["timestamp"], _Field.TYPE_MESSAGE, time)
    each = (
        b"".join(
            _part(number, text.encode())
            for number, text in ((_ID, rule), (_MESSAGE, told), (_EXPRESSION, expression))
            if text
        )
        for rule, expression, told in rules
    )
    message.options.MergeFromString(_part(OPTION, b"".join(_part(_CEL, one) for one in each)))


def _add(message: Any, name: str, number: int, kind: int, type_name: str = "") -> Any:
    field = message.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    if type_name:
        field.type_name = type_name
    return field


def serialized(key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> bytes:
    """A record as that message. What is null is not there; of headers with one name the last counts."""
    parts: list[bytes] = []
    if key is not None:
        parts += (b"\x0a", varint(len(key)), key)
    if value is not None:
        parts += (b"\x12", varint(len(value)), value)
    for name, content in headers:
        parts.append(_part(3, _part(1, name.encode(errors="replace")) + _part(2, content or b"")))
    if timestamp >= 0:
        seconds, ms = divmod(timestamp, 1_000)
        parts.append(_part(4, b"\x08" + varint(seconds) + b"\x10" + varint(ms * 1_000_000)))
    return b"".join(parts)


def _part(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
