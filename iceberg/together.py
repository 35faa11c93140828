"""Many messages looked at in one call: as the elements of one message that repeats them.

A row's parse costs more for the way into native code and back than for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError, Message

from objectstore.varint import varint
from schema.descriptors import MessageType

_TAG = b"\x0a"  # field 1, length-delimited
_HEADS = [_TAG + varint(length) for length in range(4_096)]
"""What stands before an element, by its length."""

_PACKAGE = "floe.together"


class Together:
    """Of one kind of message. `options` as for SerializePartialToString."""

    def __init__(self, kind: MessageType, options: Mapping[str, Any]) -> None:
        self._has_required = kind.has_required
        self._options = options
        self._class = _repeating(kind)

    def canonical(self, payloads: Sequence[bytes]) -> bool:
        """Whether each is a good message whose bytes are those that google.protobuf would write.

        Then nothing in them is unknown, of a wrong type, or missing. False says nothing of any of them.
        """
        if self._class is None:
            return False
        parts: list[bytes] = []
        for each in payloads:
            length = len(each)
            parts += (_HEADS[length] if length < len(_HEADS) else _TAG + varint(length), each)
        content = b"".join(parts)
        try:
            message = self._class.FromString(content)
        except DecodeError:
            return False
        if self._has_required and not message.IsInitialized():
            return False
        message.DiscardUnknownFields()
        return message.SerializePartialToString(**self._options) == content


def _repeating(kind: MessageType) -> type[Message] | None:
    """A message that repeats this one, in its pool; None where its file cannot be used by another."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}/{kind.name}.proto", package=_PACKAGE, syntax="proto3"
    )
    file.dependency.append(kind.descriptor.file.name)
    name = "All_" + kind.name.replace(".", "_")
    file.message_type.add(name=name).field.add(
        name="all",
        number=1,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{kind.name}",
    )
    pool = kind.descriptor.file.pool
    try:
        pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    except (KeyError, TypeError, ValueError):
        return None
