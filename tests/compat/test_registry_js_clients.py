"""The registry client of KafkaJS (@kafkajs/confluent-schema-registry) against Floe's registry, unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.conftest import Embedded
from tests.compat.registry_rig import connect, name, registry
from tests.compat.suite.node import drive

__all__ = ["connect", "name", "registry"]  # fixtures

PROTOBUF = 'syntax = "proto3"; package shop; message Click { string url = 1; int32 n = 2; }'
CLICKS = {"type": "record", "name": "Click", "namespace": "shop", "fields": [
    {"name": "url", "type": "string"}, {"name": "n", "type": "int", "default": 0},
]}  # fmt: skip
OBJECT = {"type": "object", "properties": {"url": {"type": "string"}, "n": {"type": "integer"}}}
SCHEMAS = {"PROTOBUF": PROTOBUF, "AVRO": json.dumps(CLICKS), "JSON": json.dumps(OBJECT)}
BROKEN = {
    "PROTOBUF": PROTOBUF.replace("string url", "int64 url"),
    "AVRO": json.dumps({**CLICKS, "fields": [{"name": "url", "type": "long"}]}),
    "JSON": json.dumps({**OBJECT, "properties": {"url": {"type": "integer"}}}),
}
VALUES = [{"url": "https://example.com/ä", "n": 7}, {"url": "", "n": 2}]


def act(embedded: Embedded, action: str, **options: object) -> Any:
    return drive("registry", action, embedded.bootstrap, http=embedded.http, **options)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_records_of_each_type_go_there_and_back(embedded: Embedded, name: str, kind: str) -> None:
    """Registers, encodes by the latest version, decodes by the id; what breaks is refused."""
    subject, schema = f"{name}-value", {"type": kind, "schema": SCHEMAS[kind]}
    broken = {"type": kind, "schema": BROKEN[kind]}
    first, again, refused = act(
        embedded, "register", schemas=[{"subject": subject, **each} for each in (schema, schema, broken)]
    )
    assert first == again
    assert refused["error"]["status"] == 409, refused
    assert "incompatible with an earlier schema" in refused["error"]["message"]
    told = act(embedded, "roundtrip", topic=name, subject=subject, schema=schema, values=VALUES)
    assert told == {"id": first["gave"], "known": first["gave"], "read": VALUES}


def test_what_is_not_there_and_what_is_no_schema(embedded: Embedded, name: str) -> None:
    """The client hears the registry's words."""
    told = act(embedded, "unknown", id=2_000_000_000)["error"]
    assert (told["status"], "2000000000 not found" in told["message"]) == (404, True), told
    bad = {
        "subject": f"{name}-bad",
        "type": "AVRO",
        "schema": '{"type":"record","name":"A","fields":[{"name":"b"}]}',
    }
    (said,) = act(embedded, "register", schemas=[bad])
    assert "error" in said, said
