"""Records for people: protobuf to JSON and back through a topic's descriptors, anything else as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from agent.cli.failures import Failure, Status
from schema import framing
from schema.descriptors import MessageType, load

_NOT_SHOWN = (json_format.Error, TypeError, ValueError)
"""What protobuf's JSON has no form for: an Any of a type that nobody knows, a Timestamp out of its range."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A topic's binding of one role, ready to use."""

    schema_id: int
    framing: str
    kind: MessageType


class Values:
    """Turns keys and values of one topic into JSON values, and text into keys and values."""

    def __init__(self, bound: Mapping[str, Bound]) -> None:
        self._bound = bound

    @staticmethod
    def from_schemas(schemas: Sequence[Mapping[str, object]]) -> Values:
        """From the answer of GET /admin/topics/…/schema."""
        bound = {}
        for schema in schemas:
            if schema.get("naming"):  # records name schemas of the registry: they are shown as they are
                continue
            kind = load(base64.b64decode(str(schema["descriptor_set"])), str(schema["message"]))
            bound[str(schema["role"])] = Bound(int(str(schema["schema_id"])), str(schema["framing"]), kind)
        return Values(bound)

    def show(self, role: str, data: bytes | None) -> object:
        """A JSON value: the message's fields, or text, or base64 of what is neither."""
        bound = self._bound.get(role)
        if data is None or bound is None:
            return _text(data)
        try:
            start = framing.parse(data).start if data[:1] == b"\x00" else 0
            message = bound.kind.message_class.FromString(data[start:])
            pool = bound.kind.descriptor.file.pool
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (framing.FramingError, DecodeError, *_NOT_SHOWN) as error:
            return {"undecodable": str(error), "bytes": _text(data)}

    def parse(self, role: str, text: str) -> bytes:
        """What a producer sends for a line of text: of a bound topic, a JSON object. Raises Failure."""
        bound = self._bound.get(role)
        if bound is None:
            return text.encode()
        try:
            pool = bound.kind.descriptor.file.pool
            message = json_format.Parse(text, bound.kind.message_class(), descriptor_pool=pool)
        except json_format.ParseError as error:
            raise Failure(Status.FAILED, f"{role} is not {bound.kind.name} in JSON: {error}") from None
        data = message.SerializeToString()
        framed = bound.framing == "confluent"
        return framing.prefix(bound.schema_id, bound.kind.indexes) + data if framed else data


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def line(partition: int, offset: int, timestamp_ms: int, shown: Mapping[str, object]) -> str:
    """One record as one line of JSON."""
    record = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms, **shown}
    return json.dumps(record, ensure_ascii=False)
