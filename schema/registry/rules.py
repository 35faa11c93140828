"""What a reader of protobuf cannot take from a writer: the rules, each with the path of what breaks it.

From the specification (protobuf.dev, "Updating A Message Type" and "Encoding") for what the bytes mean; where
Confluent's registry refuses more, that is refused here too. Kinds and paths (`#/Message/3`) are as there.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from schema.descriptors import is_map
from schema.registry.parsed import Difference

_VARINT, _ZIGZAG, _FIXED32, _FIXED64 = "varint", "zigzag", "fixed32", "fixed64"
_FAMILIES = {
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_BOOL),
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_ENUM),
        ),
        _VARINT,
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64), _ZIGZAG),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), _FIXED64),
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_MESSAGE: "message",
    FieldDescriptor.TYPE_GROUP: "group",
}
"""Types of one family take each other's bytes: wider numbers are cut, as the specification says."""

_DESCRIBED_MAX = 16  # messages of which it is kept which of their fields are optional
_DELIMITED = ("string", "bytes", "message", "group")
_COMPOSED = ("message", "group")


def differences(reader: FileDescriptor, writer: FileDescriptor) -> list[Difference]:
    """What the reader cannot take of what the writer writes; empty: all of it."""
    return list(_Comparison().files(reader, writer))


class _Comparison:
    """One comparison. Each pair of messages is compared once, by no recursion: chains of them may be long."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._waiting: deque[tuple[Descriptor, Descriptor, str]] = deque()
        self._kept: dict[tuple[str, str], bool] = {}

    def files(self, reader: FileDescriptor, writer: FileDescriptor) -> Iterator[Difference]:
        readable = {_relative(one): one for one in _messages(reader.message_types_by_name.values())}
        for message in _messages(writer.message_types_by_name.values()):
            name = _relative(message)
            path = f"#/{name.replace('.', '/')}"
            known = readable.get(name)
            if known is None:
                yield Difference(
                    "MESSAGE_REMOVED", path, "The {new} schema is missing a message type of the {old}"
                )
            else:
                self._wait(known, message, path)
        while self._waiting:
            yield from self._messages(*self._waiting.popleft())

    def _wait(self, reader: Descriptor, writer: Descriptor, path: str) -> None:
        pair = (reader.full_name, writer.full_name)
        if pair not in self._seen:
            self._seen.add(pair)
            self._waiting.append((reader, writer, path))

    def _messages(self, reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Difference]:
        for field in writer.fields:
            place = f"{path}/{field.number}"
            known = reader.fields_by_number.get(field.number)
            if known is None:
                yield from self._removed(reader, field, place)
            else:
                yield from self._fields(known, field, place)
        for field in reader.fields:
            before = writer.fields_by_number.get(field.number)
            if field.is_required and (before is None or not before.is_required):
                place = f"{path}/{field.number}"
                words = "A required field was added to the {new} schema, which the {old} one need not set"
                yield Difference("REQUIRED_FIELD_ADDED", place, words)
        for oneof in reader.oneofs:
            yield from _merged(oneof, writer, path)

    def _removed(self, reader: Descriptor, field: FieldDescriptor, path: str) -> Iterator[Difference]:
        """A field that the reader has not by its number. That is well for most: it is passed over."""
        if field.is_required:
            words = "The {new} schema is missing a required field of the {old}"
            yield Difference("REQUIRED_FIELD_REMOVED", path, words)
        elif field.name in reader.fields_by_name:
            words = f"Field {field.name!r} has another number in the {{new}} schema than in the {{old}}"
            yield Difference("FIELD_NUMBER_CHANGED", path, words)
        elif (oneof := _oneof(field)) is not None and self._keeps(reader, oneof):
            words = "The {new} schema is missing a field of a oneof of the {old}: what is set is not known"
            yield Difference("ONEOF_FIELD_REMOVED", path, words)

    def _keeps(self, reader: Descriptor, oneof: OneofDescriptor) -> bool:
        """Whether the reader has the oneof, by its name, or any field of it."""
        key = (reader.full_name, oneof.full_name)
        if key not in self._kept:
            named = reader.oneofs_by_name.get(oneof.name)
            self._kept[key] = (named is not None and _is_written(named)) or any(
                one.number in reader.fields_by_number for one in oneof.fields
            )
        return self._kept[key]

    def _fields(self, reader: FieldDescriptor, writer: FieldDescriptor, path: str) -> Iterator[Difference]:
        reads, writes = _FAMILIES[reader.type], _FAMILIES[writer.type]
        composed = (reads in _COMPOSED, writes in _COMPOSED)
        if (
            is_map(reader) != is_map(writer)
            or composed[0] != composed[1]
            or (all(composed) and reads != writes)
        ):
            words = "The kind of a field in the {new} schema does not match its kind in the {old}"
            yield Difference("FIELD_KIND_CHANGED", path, words)
        elif reads != writes and (reads, writes) != ("bytes", "string"):
            words = "The kind of a SCALAR field in the {new} schema does not match its kind in the {old}"
            yield Difference("FIELD_SCALAR_KIND_CHANGED", path, words)
        elif reads not in _DELIMITED and reader.is_repeated != writer.is_repeated:
            words = "A numeric field is repeated in one of the {new} and the {old} schema only"
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", path, words)
        elif reader.message_type is not None and writer.message_type is not None:
            yield from self._types(reader.message_type, writer.message_type, path, named=not is_map(reader))

    def _types(
        self, reader: Descriptor, writer: Descriptor, path: str, *, named: bool
    ) -> Iterator[Difference]:
        """The messages of a field. Those of maps have the names of their fields."""
        if named and _relative(reader) != _relative(writer):
            words = "The type of a MESSAGE field in the {new} schema does not match its type in the {old}"
            yield Difference("FIELD_NAMED_TYPE_CHANGED", path, words)
        else:
            self._wait(reader, writer, path)


def _merged(oneof: OneofDescriptor, writer: Descriptor, path: str) -> Iterator[Difference]:
    """A oneof keeps one of its fields: those that the writer may set together would be lost."""
    before = [
        writer.fields_by_number[one.number] for one in oneof.fields if one.number in writer.fields_by_number
    ]
    homes = [_oneof(field) for field in before]
    names = {
        home.name if home is not None else field.number for home, field in zip(homes, before, strict=True)
    }
    if len(names) < 2:
        return
    path = f"{path}/{oneof.name}"
    if any(home is not None for home in homes):
        words = "A field was moved to an existing oneof in the {new} schema, beside fields of the {old}"
        yield Difference("FIELD_MOVED_TO_EXISTING_ONEOF", path, words)
    else:
        words = "Multiple fields of the {old} schema were moved to one oneof in the {new}"
        yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", path, words)


def _oneof(field: FieldDescriptor) -> OneofDescriptor | None:
    """The oneof that somebody wrote; proto3's `optional` makes one of a single field, which says nothing."""
    oneof = field.containing_oneof
    return oneof if oneof is not None and _is_written(oneof) else None


def _is_written(oneof: OneofDescriptor) -> bool:
    return len(oneof.fields) > 1 or oneof.fields[0].name not in _optional(oneof.containing_type)


@functools.lru_cache(maxsize=_DESCRIBED_MAX)
def _optional(message: Descriptor) -> frozenset[str]:
    """Names of proto3's `optional` fields, which a field itself does not tell."""
    described = DescriptorProto()
    message.CopyToProto(described)
    return frozenset(each.name for each in described.field if each.proto3_optional)


def _relative(message: Descriptor) -> str:
    """The name without the package, which may change."""
    package = message.file.package
    return message.full_name.removeprefix(f"{package}.") if package else message.full_name


def _messages(messages: Iterable[Any]) -> Iterator[Descriptor]:
    """Messages and those inside them, without the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _messages(message.nested_types)
