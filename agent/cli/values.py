"""Records for people: protobuf to JSON and back through a topic's descriptors, AVRO and JSON of the registry
as JSON, anything else as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from agent.cli import agent_http
from agent.cli.failures import Failure, Status
from agent.cli.output import remarks
from agent.cli.registered import Ask, Registered
from schema import framing
from schema.descriptors import DescriptorError, MessageType, load

Encode = Callable[[str], bytes]
"""A line of text → what is sent. Raises Failure."""

Headers = Sequence[tuple[str, bytes | None]]

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
        registered: Registered | None = None,
    ) -> None:
        self._bound = bound
        self._following = following
        self._registered = registered or Registered()

    @staticmethod
    def from_schemas(
        schemas: Sequence[Mapping[str, object]],
        registered: Sequence[Mapping[str, object]] = (),
        ask: Ask | None = None,
    ) -> Values:
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
        return Values(bound, following, Registered(registered, ask))

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
            return _text(data) if data is None else self._decoded(role, data, headers)
        except (framing.FramingError, DecodeError, DescriptorError, *_NOT_SHOWN) as error:
            if role not in self._bound and role not in self._following:
                return _text(data)
            return {"undecodable": str(error), "bytes": _text(data)}

    def _decoded(self, role: str, data: bytes, headers: Headers) -> object:
        framed = framing.composed(role, data, headers) or b""
        if role not in self._bound and framing.is_frame(framed):
            name, start = framing.schema_named(framed)
            other = self._registered.other(name)
            if other is not None:
                return other.shown(framed[start:])  # raises ValueError of AVRO and JSON, and InvalidSchema
        typed = self.typed(role, data, headers)
        if typed is None:
            return _text(data)
        kind, payload = typed
        message = kind.message_class.FromString(payload)
        pool = kind.descriptor.file.pool
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

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


def known_values(topic: str, http: str) -> Values:
    """The topic's bindings; without the agent's HTTP side records are plain bytes."""
    try:
        path = f"/admin/topics/{topic}/schema"
        schemas = agent_http.ask(http, path)["schemas"]
        registered, after = [], 0 if any(each.get("naming") for each in schemas) else None
        while after is not None:
            answer = agent_http.ask(http, f"{path}?registered_after={after}")
            registered += answer["registered"]
            after = answer.get("next_registered")
        return Values.from_schemas(schemas, registered, partial(_asked, http))
    except Failure as failure:
        remarks().print(f"no bindings known ({failure}): records are taken as plain bytes", style="dim")
        return Values({})


def _asked(http: str, name: str) -> Mapping[str, Any] | None:
    """A schema of the registry; None where there is none, or nobody to ask."""
    try:
        found: Mapping[str, Any] = agent_http.ask(http, f"/admin/schemas/{name}")
    except Failure:
        return None
    return found


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
