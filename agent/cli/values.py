"""Records for people: protobuf to JSON and back through a topic's descriptors, AVRO and JSON of the registry
as JSON, anything else as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from agent.cli import agent_http
from agent.cli.failures import Failure, Status
from agent.cli.output import remarks
from schema import framing
from schema.descriptors import DescriptorError, MessageType, load, message_at
from schema.followed import AVRO
from schema.registry.avro import schema as avro
from schema.registry.avro import shown as avro_shown
from schema.registry.avro.datum import Datum
from schema.registry.avro.types import Type
from schema.registry.json.judging import parsed

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


class Other:
    """A schema of AVRO or JSON, as GET /admin/topics/…/schema tells it; read when it is first needed."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self._avro: tuple[Type, Datum] | None = None

    def shown(self, payload: bytes) -> object:
        """The record as a JSON value. Raises ValueError where it is none of the schema's."""
        if self._told["schema_type"] != AVRO:
            parsed(payload)  # a name twice, NaN and the like
            return json.loads(payload)
        if self._avro is None:
            imports = {name: base64.b64decode(each) for name, each in self._told["imports"].items()}
            top = avro.load(base64.b64decode(self._told["form"]), imports)
            self._avro = top, Datum(top)
        top, datum = self._avro
        return avro_shown.plain(datum, top, datum.read(payload))


class Values:
    """Turns keys and values of one topic into JSON values, and text into keys and values."""

    def __init__(
        self,
        bound: Mapping[str, Bound],
        following: Collection[str] = (),
        registered: Mapping[int, bytes] | None = None,
        others: Mapping[int, Other] | None = None,
    ) -> None:
        self._bound = bound
        self._following = following
        self._registered = registered or {}
        self._others = others or {}
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
        known = {number: base64.b64decode(each) for number, each in files.items()}
        others = {int(str(each["schema_id"])): Other(each) for each in registered if "form" in each}
        return Values(bound, following, known, others)

    def types(self) -> tuple[MessageType | None, MessageType | None] | None:
        """The messages that keys and values are, None: bytes; None for both where each record says it."""
        if self._following:
            return None
        kinds = [each.kind if each is not None else None for each in map(self._bound.get, ("key", "value"))]
        return kinds[0], kinds[1]

    def typed(self, role: str, data: bytes) -> tuple[MessageType, bytes] | None:
        """The message type and the message in a record's bytes; None where neither is known.

        Raises FramingError and DescriptorError.
        """
        bound = self._bound.get(role)
        if bound is None and not self._is_registered(role, data):
            return None
        start = framing.parse(data).start if data[:1] == b"\x00" else 0
        return bound.kind if bound is not None else self._kind(data), data[start:]

    def show(self, role: str, data: bytes | None) -> object:
        """A JSON value: the message's fields, or text, or base64 of what is neither."""
        other = self._other(role, data)
        if data is not None and other is not None:
            try:
                return other.shown(data[framing.ID_END :])
            except ValueError as error:  # of AVRO and JSON, and InvalidSchema
                return {"undecodable": str(error), "bytes": _text(data)}
        try:
            typed = None if data is None else self.typed(role, data)
            if typed is None:
                return _text(data)
            kind, payload = typed
            message = kind.message_class.FromString(payload)
            pool = kind.descriptor.file.pool
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (framing.FramingError, DecodeError, DescriptorError, *_NOT_SHOWN) as error:
            return {"undecodable": str(error), "bytes": _text(data)}

    def _other(self, role: str, data: bytes | None) -> Other | None:
        """What reads it where it names a schema of AVRO or JSON."""
        if role not in self._following or data is None or data[:1] != b"\x00" or len(data) < framing.ID_END:
            return None
        return self._others.get(framing.schema_id(data))

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
        return Values.from_schemas(schemas, registered)
    except Failure as failure:
        remarks().print(f"no bindings known ({failure}): records are taken as plain bytes", style="dim")
        return Values({})


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
