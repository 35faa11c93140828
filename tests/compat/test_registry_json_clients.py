"""Confluent's registry client and its JSON serializers against Floe's registry, unchanged, end to end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from tests.compat.conftest import Embedded
from tests.compat.registry_rig import Connect, connect, name, registry, sent_and_read

__all__ = ["connect", "name", "registry"]  # fixtures

DRAFT = "http://json-schema.org/draft-07/schema#"
MONEY = {
    "$schema": DRAFT,
    "title": "Money",
    "type": "object",
    "properties": {"currency": {"type": "string", "maxLength": 3}, "units": {"type": "integer"}},
    "required": ["currency", "units"],
    "additionalProperties": False,
}
ORDER = {
    "$schema": DRAFT,
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"$ref": "money.json"},
        "lines": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "null"}]}},
    },
    "required": ["id"],
    "additionalProperties": False,
}
WIDER = {**ORDER, "properties": {**ORDER["properties"], "note": {"type": ["string", "null"]}}}
BROKEN = {**ORDER, "properties": {**ORDER["properties"], "id": {"type": "string"}}}
PLAIN = {
    "$schema": DRAFT,
    "title": "Plain",
    "type": "object",
    "properties": {"a": {"type": "number"}},
    "additionalProperties": False,
}


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def with_money(registry: SchemaRegistryClient, topic: str, schema: Any) -> Schema:
    """A schema that refers to money.json, which is registered under a subject of the topic's."""
    subject = f"{topic}-money"
    registry.register_schema(subject, Schema(json.dumps(MONEY), "JSON"))
    return Schema(json.dumps(schema), "JSON", [SchemaReference("money.json", subject, 1)])


def order(number: int) -> dict[str, Any]:
    return {"id": number, "total": {"currency": "EUR", "units": 1 << 40}, "lines": ["a", None]}


def test_registered_by_the_serializer_and_read_back(
    embedded: Embedded, connect: Connect, registry: SchemaRegistryClient, name: str
) -> None:
    """auto.register.schemas, with a reference; the reader finds both by the id in the records."""
    serializer = JSONSerializer(with_money(registry, name, ORDER), registry)
    orders = [order(number) for number in range(5)]
    framed = [serializer(one, context(name)) for one in orders]
    read = sent_and_read(embedded.bootstrap, name, framed)
    assert read == framed
    deserializer = JSONDeserializer(None, schema_registry_client=connect())
    assert [deserializer(one, context(name)) for one in read] == orders
    latest = registry.get_latest_version(f"{name}-value")
    assert latest.schema.schema_type == "JSON"
    assert json.loads(latest.schema.schema_str) == ORDER
    assert [(one.name, one.subject) for one in latest.schema.references] == [("money.json", f"{name}-money")]
    assert {int.from_bytes(one[1:5], "big") for one in framed} == {latest.schema_id}
    assert registry.get_referenced_by(f"{name}-money", 1) == [latest.schema_id]
    with pytest.raises(SerializationError, match="is too long"):
        serializer({"id": 1, "total": {"currency": "EURO", "units": 1}}, context(name))


def test_another_process_that_starts_registers_nothing_new(connect: Connect, name: str) -> None:
    framed = {
        JSONSerializer(json.dumps(PLAIN), connect())({"a": 1.5}, context(name)) for _ in range(2)
    }  # with the id of the schema
    assert len(framed) == 1
    assert connect().get_versions(f"{name}-value") == [1]


def test_the_latest_version_is_used(connect: Connect, registry: SchemaRegistryClient, name: str) -> None:
    """use.latest.version: what somebody else registered, which takes more."""
    subject = f"{name}-value"
    registry.register_schema(subject, with_money(registry, name, ORDER))
    wider = connect().register_schema(subject, with_money(registry, name, WIDER))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serializer = JSONSerializer(None, connect(), conf=settings)
    framed = serializer({**order(1), "note": "n"}, context(name))
    assert int.from_bytes(framed[1:5], "big") == wider
    reader = JSONDeserializer(None, schema_registry_client=registry, conf={"use.latest.version": True})
    assert reader(framed, context(name)) == {**order(1), "note": "n"}


def test_nothing_is_registered_when_that_is_off(registry: SchemaRegistryClient, name: str) -> None:
    serializer = JSONSerializer(json.dumps(PLAIN), registry, conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError) as caught:
        serializer({"a": 1}, context(name))
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


def test_normalized_schemas_are_found_again(connect: Connect, name: str) -> None:
    """normalize.schemas: with keys in another order it is the same."""
    turned = json.dumps(dict(reversed(PLAIN.items())))
    framed = {
        JSONSerializer(text, connect(), conf={"normalize.schemas": True})({"a": 1}, context(name))
        for text in (json.dumps(PLAIN), turned)
    }
    assert len(framed) == 1


def test_an_incompatible_schema_is_refused(
    connect: Connect, registry: SchemaRegistryClient, name: str
) -> None:
    subject = f"{name}-value"
    registry.register_schema(subject, with_money(registry, name, ORDER))
    broken = with_money(registry, name, BROKEN)
    with pytest.raises(SchemaRegistryError, match="TYPE_CHANGED") as caught:
        JSONSerializer(broken, registry)({**order(1), "id": "x"}, context(name))
    assert caught.value.http_status_code == 409
    assert not connect().test_compatibility(subject, broken)
    assert connect().test_compatibility(subject, with_money(registry, name, WIDER))
    registry.set_compatibility(subject, "NONE")
    assert JSONSerializer(broken, registry)({**order(1), "id": "x"}, context(name))


def test_the_client_s_calls(connect: Connect, registry: SchemaRegistryClient, name: str) -> None:
    """One of each that speaks of content, on a subject of its own."""
    subject, text = f":.{name}:s", json.dumps({**PLAIN, "title": name})
    first = registry.register_schema_full_response(subject, Schema(text, "JSON"))
    assert registry.lookup_schema(subject, Schema(text.replace(" ", ""), "JSON")).version == 1
    fresh = connect()
    assert fresh.get_schema(first.schema_id).schema_str == text
    assert fresh.get_schema_by_guid(first.guid).schema_type == "JSON"
    assert fresh.get_version(subject, 1).schema_id == first.schema_id
    assert (subject, 1) in {(v.subject, v.version) for v in fresh.get_schema_versions(first.schema_id)}
    assert fresh.delete_subject(subject) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.register_schema(f"{name}-none", Schema('{"type": "strin"}', "JSON"))
    assert caught.value.error_code == 42201
