"""Topics that follow subjects of AVRO and JSON, end to end: Confluent's serializers write, pyiceberg
and `floe consume` read.
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from agent.cli.audit import schemas
from tests.compat.conftest import Embedded
from tests.compat.test_followed_embedded import STRATEGY, agent, registry, rows, send, topic
from tests.unit.agent.cli.conftest import inside

__all__ = ["agent", "registry"]

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ONE: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": MONEY},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
    ],
}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "remark", "type": ["null", "string"], "default": None}]}
SALE = {
    "title": "Sale",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string", "maxLength": 3}},
    "required": ["id"],
    "additionalProperties": False,
}


def consumed(agent: Embedded, name: str) -> list[Any]:
    shown = inside("consume", name, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    return [json.loads(line)["value"] for line in shown.out.splitlines()]


def test_a_team_with_confluent_s_avro_serializer(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Data of two versions: bad ones are refused, the others are rows with the columns of both."""
    name = topic(agent)
    context = SerializationContext(name, MessageField.VALUE)
    old, new = (AvroSerializer(registry, json.dumps(each)) for each in (ONE, TWO))
    value = {"id": 1, "price": Decimal("12.50"), "day": datetime.date(2026, 11, 25), "state": "DONE"}
    first = old(value, context)
    second = new({**value, "id": 2, "day": None, "remark": "r"}, context)
    assert first is not None
    assert second is not None
    assert send(agent, name, first, second, None) == [None] * 3
    refused = send(agent, name, first[:-1], first + b"\x00", first[:5] + b"\xff" * 20, first[:-1] + b"\x04")
    assert [each is not None and each.name() for each in refused] == ["INVALID_RECORD"] * 4
    found = rows(agent, name)
    shown = [each and {key: held for key, held in each.items() if not key.startswith("__")} for each in found]
    assert shown == [{**value, "remark": None}, {**value, "id": 2, "day": None, "remark": "r"}, None]
    assert consumed(agent, name) == [
        {"id": 1, "price": "12.50", "day": 20_782, "state": "DONE"},
        {"id": 2, "price": "12.50", "day": None, "state": "DONE", "remark": "r"},
        None,
    ]
    assert schemas(agent.http, name).registered == {}, "the audit compares their bytes"


def test_several_types_with_confluent_s_serializers(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Of AVRO and JSON in one topic: each of its own subject; defaults are filled in."""
    name = topic(agent, **{STRATEGY: "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"})
    context = SerializationContext(name, MessageField.VALUE)
    by_name = {"subject.name.strategy": topic_record_subject_name_strategy}
    first = {**ONE, "fields": ONE["fields"][:1]}
    later = {**ONE, "fields": [*first["fields"], {"name": "unit", "type": "string", "default": "kg"}]}
    order = AvroSerializer(registry, json.dumps(first), conf=by_name)({"id": 1}, context)
    sale = JSONSerializer(json.dumps(SALE), registry, conf=by_name)({"id": 2}, context)
    assert order is not None
    assert sale is not None
    registry.register_schema(f"{name}-shop.Order", Schema(json.dumps(later), "AVRO"))
    elsewhere = registry.register_schema(
        "elsewhere", Schema('{"type": "record", "name": "X", "fields": []}', "AVRO")
    )
    told = send(agent, name, order, sale, b"\0" + elsewhere.to_bytes(4, "big"))
    assert [each is None or each.name() for each in told] == [True, True, "INVALID_RECORD"]
    shown = [
        {key: held for key, held in row.items() if key in ("Order", "Sale")} for row in rows(agent, name)
    ]
    assert shown == [
        {"Order": {"id": 1, "unit": "kg"}, "Sale": None},
        {"Order": None, "Sale": {"id": 2, "note": None}},
    ]


def test_a_team_with_confluent_s_json_serializer(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Records are held against the schema, whatever the producer's library looked at."""
    name = topic(agent)
    context = SerializationContext(name, MessageField.VALUE)
    made = JSONSerializer(json.dumps(SALE), registry)({"id": 1, "note": "abc"}, context)
    assert made is not None
    bad = (b'{"id": 1, "note": "abcd"}', b"{}", b'{"id": 1, "id": 2}')
    told = send(agent, name, made, *(made[:5] + each for each in bad))
    assert [each is None or each.name() for each in told] == [True, *["INVALID_RECORD"] * 3]
    assert consumed(agent, name) == [{"id": 1, "note": "abc"}]
    (row,) = rows(agent, name)
    assert {key: held for key, held in row.items() if key != "__raw__"} == {
        "id": 1,
        "note": "abc",
        "__err__": None,
    }
