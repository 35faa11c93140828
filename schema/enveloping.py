"""Which schema of the registry a bare message may be framed with: one whose message means the same.

Names, numbers, types and labels count, over all that the message holds; comments and options do not.
"""

from __future__ import annotations

from enum import StrEnum

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from schema import descriptors, framing
from schema.descriptors import DescriptorError, MessageType


class Form(StrEnum):
    """How records of messages are read; the values of `floe.frames`."""

    AS_WRITTEN = "as-written"
    BARE = "bare"
    CONFLUENT = "confluent"


def frame_of(message: MessageType, schema_id: int, files: bytes) -> bytes | None:
    """The frame that names the message in a registered file (the last of the set); None: it is not there."""
    try:
        kind = descriptors.load(files, message.name)
        name = descriptors.message_at(files, kind.indexes)
    except DescriptorError:
        return None  # as most often: the message is in no such file, or is only imported by it
    if name != kind.name or not same(message.descriptor, kind.descriptor):
        return None
    return framing.prefix(schema_id, kind.indexes)


def same(one: Descriptor, other: Descriptor) -> bool:
    """Whether two messages mean the same, with all messages and enums in their fields."""
    waiting, seen = [(one, other)], set()
    while waiting:
        mine, theirs = waiting.pop()
        if mine.full_name != theirs.full_name:
            return False
        if mine.full_name in seen:
            continue
        seen.add(mine.full_name)
        fields = mine.fields_by_number
        if {*fields} != {*theirs.fields_by_number}:
            return False
        for number, field in fields.items():
            match = theirs.fields_by_number[number]
            if _told(field) != _told(match):
                return False
            if field.message_type is not None and match.message_type is not None:
                waiting.append((field.message_type, match.message_type))
    return True


def _told(field: FieldDescriptor) -> tuple[object, ...]:
    oneof, enum = field.containing_oneof, field.enum_type
    return (
        field.name,
        field.type,
        descriptors.is_repeated(field),
        descriptors.is_required(field),
        field.has_presence,
        oneof.name if oneof is not None else "",
        _values(enum) if enum is not None else (),
    )


def _values(enum: EnumDescriptor) -> tuple[object, ...]:
    return (enum.full_name, *sorted((each.number, each.name) for each in enum.values))
