"""Confluent's AVRO serializers against Floe's registry, unchanged, end to end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.compat.conftest import Embedded
from tests.compat.registry_rig import Connect, connect, name, sent_and_read

__all__ = ["connect", "name"]  # fixtures

MONEY = """{"type": "record", "name": "stock.Money", "fields": [
  {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}},
  {"name": "units", "type": "long"}]}"""
ORDER = """{"type": "record", "name": "stock.Order", "fields": [
  {"name": "id", "type": "int"},
  {"name": "total", "type": %s},
  {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
    {"name": "sku", "type": "string"}, {"name": "more", "type": ["null", "Line"], "default": null}]}}},
  {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
  {"name": "remark", "type": ["null", "string"], "default": null}]}"""
WHOLE = ORDER % MONEY
SMALL = '{"type": "record", "name": "Small", "fields": [{"name": "a", "type": "int"}%s]}'


def order(number: int) -> dict[str, Any]:
    """An order with something of each kind."""
    line = {"sku": "x", "more": {"sku": "y", "more": None}}
    total = {"currency": "EUR", "units": number}
    return {"id": number, "total": total, "lines": [line], "tags": {"a": 0.5}, "remark": "r"}


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_registered_by_the_serializer_and_read_back(embedded: Embedded, connect: Connect, name: str) -> None:
    """auto.register.schemas; and another process that starts registers nothing new."""
    orders = [order(number) for number in range(5)]
    framed = []
    for one in orders:
        framed.append(AvroSerializer(connect(), WHOLE)(one, context(name)))
    read = sent_and_read(embedded.bootstrap, name, framed)
    assert [AvroDeserializer(connect())(one, context(name)) for one in read] == orders
    fresh = connect()
    assert fresh.get_versions(f"{name}-value") == [1]
    latest = fresh.get_latest_version(f"{name}-value")
    assert latest.schema.schema_type == "AVRO"
    assert {int.from_bytes(one[1:5], "big") for one in framed} == {latest.schema_id}


def test_the_latest_version_is_used_with_what_it_refers_to(
    embedded: Embedded, connect: Connect, name: str
) -> None:
    """use.latest.version: what somebody else registered, in two subjects."""
    someone = connect()
    someone.register_schema(f"{name}-money", Schema(MONEY, "AVRO"))
    refers = [SchemaReference("stock.Money", f"{name}-money", 1)]
    text = ORDER % '"stock.Money"'
    registered = someone.register_schema(f"{name}-value", Schema(text, "AVRO", refers))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    framed = AvroSerializer(connect(), None, conf=settings)(order(3), context(name))
    assert int.from_bytes(framed[1:5], "big") == registered
    (read,) = sent_and_read(embedded.bootstrap, name, [framed])
    assert AvroDeserializer(connect())(read, context(name)) == order(3)
    same = Schema(text, "AVRO", refers)
    assert AvroSerializer(connect(), same)(order(3), context(name)) == framed, "and found by who registers"


def test_readers_go_on_with_schemas_of_their_own(connect: Connect, name: str) -> None:
    """Evolution: what an older one wrote, with defaults, wider numbers, aliases; and the other way round."""
    old = SMALL % ""
    more = ', {"name": "b", "type": "string", "default": "none"}'
    new = (SMALL % more).replace('"a", "type": "int"', '"c", "aliases": ["a"], "type": "long"')
    framed = AvroSerializer(connect(), old)({"a": 7}, context(name))
    assert AvroSerializer(connect(), new)({"c": 1 << 40, "b": "x"}, context(name))
    assert connect().get_versions(f"{name}-value") == [1, 2]
    assert AvroDeserializer(connect(), new)(framed, context(name)) == {"c": 7, "b": "none"}
    grown = AvroSerializer(
        connect(), SMALL % more, conf={"subject.name.strategy": record_subject_name_strategy}
    )
    wrote = grown({"a": 1, "b": "x"}, context(name))
    reads = AvroDeserializer(connect(), old, conf={"subject.name.strategy": record_subject_name_strategy})
    assert reads(wrote, context(name)) == {"a": 1}


def test_an_incompatible_schema_is_refused(connect: Connect, name: str) -> None:
    registry, field = connect(), ', {"name": "b", "type": "string"}'
    AvroSerializer(registry, SMALL % "")({"a": 1}, context(name))
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as caught:
        AvroSerializer(registry, SMALL % field)({"a": 1, "b": "x"}, context(name))
    assert caught.value.http_status_code == 409
    assert not registry.test_compatibility(f"{name}-value", Schema(SMALL % field, "AVRO"))
    registry.set_compatibility(f"{name}-value", "FORWARD")
    assert AvroSerializer(registry, SMALL % field)({"a": 1, "b": "x"}, context(name))


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (record_subject_name_strategy, "stock.Order"),
        (topic_record_subject_name_strategy, "{topic}-stock.Order"),
    ],
)
def test_subject_names_and_normalized_texts(connect: Connect, name: str, strategy: Any, subject: str) -> None:
    settings = {"subject.name.strategy": strategy, "normalize.schemas": True}
    framed = AvroSerializer(connect(), WHOLE, conf=settings)(order(1), context(name))
    registry = connect()
    assert registry.get_versions(subject.format(topic=name)) == [1]
    assert json.loads(registry.get_latest_version(subject.format(topic=name)).schema.schema_str)
    assert AvroDeserializer(connect(), conf={"subject.name.strategy": strategy})(
        framed, context(name)
    ) == order(1)
