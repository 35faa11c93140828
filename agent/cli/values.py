"""Records for people: what schema/shown.py makes of them, and text as what a producer sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf import json_format

from agent.cli import agent_http
from agent.cli.failures import Failure, Status
from agent.cli.output import remarks
from schema import framing
from schema.shown import Bound, Shown

__all__ = ["Bound", "Encode", "Encoding", "Values", "known_values", "line"]

Encode = Callable[[str], bytes]
"""A line of text → what is sent. Raises Failure."""


class Values(Shown):
    """Turns keys and values of one topic into JSON values, and text into keys and values."""

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
        data = type(message).SerializeToString(message)
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


def line(partition: int, offset: int, timestamp_ms: int, shown: Mapping[str, object]) -> str:
    """One record as one line of JSON."""
    record = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms, **shown}
    return json.dumps(record, ensure_ascii=False)
