"""Records for people: protobuf to JSON and back through a topic's descriptors, anything else as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from agent.cli.failures import Failure, Status
from schema import framing
from schema.descriptors import DescriptorError, MessageType, load, message_at

Encode = Callable[[str], bytes]
"""A line of text → what is sent. Raises Failure."""

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

    def __init__(
        self,
        bound: Mapping[str, Bound],
        following: Collection[str] = (),
        registered: Mapping[int, bytes] | None = None,
    ) -> None:
        self._bound = bound
        self._following = following
        self._registered = registered or {}
        self._kinds: dict[tuple[int, tuple[int, ...]], MessageType] = {}  # of it, by what frames name

    @staticmethod
    def from_schemas(
        schemas: Sequence[Mapping[str, object]], registered: Sequence[Mapping[str, object]] = ()
    ) -> Values:
        """From answers of GET /admin/topics/…/schema. `registered`: what followed subjects have."""
        bound = {}
        for schema in schemas:
            if schema.get("naming"):
                continue
            kind = load(base64.b64decode(str(schema["descriptor_set"])), str(schema["message"]))
            bound[str(schema["role"])] = Bound(int(str(schema["schema_id"])), str(schema["framing"]), kind)
        files = {int(str(each["schema_id"])): str(each["descriptor_set"]) for each in registered}
        following = [str(each["role"]) for each in schemas if each.get("naming")]
        return Values(bound, following, {number: base64.b64decode(each) for number, each in files.items()})

    def show(self, role: str, data: bytes | None) -> object:
        """A JSON value: the message's fields, or text, or base64 of what is neither."""
        bound = self._bound.get(role)
        if data is None or (bound is None and not self._is_registered(role, data)):
            return _text(data)
        try:
            start = framing.parse(data).start if data[:1] == b"\x00" else 0
            kind = bound.kind if bound is not None else self._kind(data)
            message = kind.message_class.FromString(data[start:])
            pool = kind.descriptor.file.pool
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (framing.FramingError, DecodeError, DescriptorError, *_NOT_SHOWN) as error:
            return {"undecodable": str(error), "bytes": _text(data)}

    def _is_registered(self, role: str, data: bytes) -> bool:
        """Whether it names a schema of the registry whose files are known."""
        if role not in self._following or data[:1] != b"\x00" or len(data) < framing.ID_END:
            return False
        return bool(self._registered.get(framing.schema_id(data)))

    def _kind(self, data: bytes) -> MessageType:
        """The message that it names of that. Raises FramingError and DescriptorError."""
        schema_id, indexes, _ = framing.parse(data)
        kind = self._kinds.get((schema_id, indexes))
        if kind is None:
            files = self._registered[schema_id]
            kind = self._kinds[schema_id, indexes] = load(files, message_at(files, indexes))
        return kind

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


class Encoding:
    """As Values.parse, for the roles that have a schema of the registry by it; for others by the binding."""

    def __init__(self, encoders: Mapping[str, Encode], values: Values) -> None:
        self._encoders = encoders
        self._values = values

    def parse(self, role: str, text: str) -> bytes:
        """What is sent for a line of text. Raises Failure."""
        encode = self._encoders.get(role)
        return self._values.parse(role, text) if encode is None else encode(text)


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
