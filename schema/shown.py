"""Keys and values of records for people: protobuf, AVRO and JSON as JSON values, anything else as text.

Protobuf by the descriptors that a topic is bound to; what is framed by the schemas of the registry.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from schema import framing
from schema.descriptors import DescriptorError, MessageType, load
from schema.registered import Ask, Registered

Headers = Sequence[tuple[str, bytes | None]]

_NOT_SHOWN = (json_format.Error, TypeError, ValueError, AttributeError)
"""What protobuf's JSON has no form for: an Any of a type that nobody knows, a Timestamp out of its range, a
message with a field of a method's name, which hides that.
"""


@dataclass(frozen=True, slots=True)
class Bound:
    """A topic's binding of one role, ready to use."""

    schema_id: int
    framing: str
    kind: MessageType


class Shown:
    """Turns keys and values of one topic into JSON values."""

    def __init__(
        self,
        bound: Mapping[str, Bound],
        following: Collection[str] = (),
        registered: Registered | None = None,
    ) -> None:
        self._bound = bound
        self._following = following
        self._registered = registered or Registered()

    @classmethod
    def from_schemas(
        cls,
        schemas: Sequence[Mapping[str, object]],
        registered: Sequence[Mapping[str, object]] = (),
        ask: Ask | None = None,
    ) -> Self:
        """From answers of GET /admin/topics/…/schema. `registered`: what followed subjects have; `ask`: who
        knows the other schemas of the registry.
        """
        bound = {}
        for schema in schemas:
            if schema.get("naming"):
                continue
            kind = load(base64.b64decode(str(schema["descriptor_set"])), str(schema["message"]))
            bound[str(schema["role"])] = Bound(int(str(schema["schema_id"])), str(schema["framing"]), kind)
        following = [str(each["role"]) for each in schemas if each.get("naming")]
        return cls(bound, following, Registered(registered, ask))

    def types(self) -> tuple[MessageType | None, MessageType | None] | None:
        """The messages that keys and values are, None: bytes; None for both where each record says it."""
        if self._following:
            return None
        kinds = [each.kind if each is not None else None for each in map(self._bound.get, ("key", "value"))]
        return kinds[0], kinds[1]

    def typed(self, role: str, data: bytes, headers: Headers = ()) -> tuple[MessageType, bytes] | None:
        """The message type and the message in a record's bytes; None where neither is known.

        Raises FramingError and DescriptorError.
        """
        bound = self._bound.get(role)
        if bound is not None:
            return bound.kind, data[framing.parse(data).start if data[:1] == b"\x00" else 0 :]
        framed = framing.composed(role, data, headers) or b""
        if not framing.is_frame(framed):
            return None
        found = self._registered.kind(framed)
        return None if found is None else (found[0], framed[found[1] :])

    def show(self, role: str, data: bytes | None, headers: Headers = ()) -> object:
        """A JSON value: the message's fields, or text, or base64 of what is neither.

        What is bound to nothing is shown by the schema of the registry that it names, if it is of that.
        """
        try:
            return text_of(data) if data is None else self._decoded(role, data, headers)
        except (framing.FramingError, DecodeError, DescriptorError, *_NOT_SHOWN) as error:
            if role not in self._bound and role not in self._following:
                return text_of(data)
            return {"undecodable": str(error), "bytes": text_of(data)}

    def _decoded(self, role: str, data: bytes, headers: Headers) -> object:
        framed = framing.composed(role, data, headers) or b""
        if role not in self._bound and framing.is_frame(framed):
            name, start = framing.schema_named(framed)
            other = self._registered.other(name)
            if other is not None:
                return other.shown(framed[start:])  # raises ValueError of AVRO and JSON, and InvalidSchema
        typed = self.typed(role, data, headers)
        if typed is None:
            return text_of(data)
        kind, payload = typed
        message = kind.message_class.FromString(payload)
        pool = kind.descriptor.file.pool
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)


def text_of(data: bytes | None) -> object:
    """Text, or base64 of what is none; None for null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
