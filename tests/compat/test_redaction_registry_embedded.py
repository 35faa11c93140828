"""Redaction of AVRO and JSON end to end: Confluent's serializers write, deserializers read what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schema.redaction.marks import Action, instead
from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_followed_embedded import VALIDATION

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 200
PII = {"confluent:tags": ["PII"]}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": "string", **PII},
        {"name": "phone", "type": ["null", "string"], "default": None, "floe.redact": "mask"},
        {"name": "age", "type": ["null", "int"], "default": None, **PII},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": "string", **PII}],
                },
            },
        },
    ],
}
JSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "who": {"type": "string", **PII},
        "phone": {"type": ["null", "string"], "x-floe-redact": "mask"},
        "age": {"type": ["null", "integer"], **PII},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "required": ["id", "who", "age"],
    "definitions": {
        "line": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "note": {"type": "string", **PII}},
            "required": ["n", "note"],
        }
    },
}


def order(number: int) -> dict[str, Any]:
    lines = [{"n": n, "note": f"secret note {n}"} for n in range(number % 3)]
    return {"id": number, "who": f"secret-{number}", "phone": "secret 7", "age": 40 + number, "lines": lines}


def hashed(number: int) -> dict[str, Any]:
    """What is left of an order where the topic hashes: the age has no text, and may be null."""
    given = order(number)

    def put(text: str) -> str:
        return instead(Action.HASH, b"k", text)

    lines = [{**each, "note": put(each["note"])} for each in given["lines"]]
    return {**given, "who": put(given["who"]), "phone": "****", "age": None, "lines": lines}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent to which clients called audit are cleared."""
    folder = tmp_path_factory.mktemp("redaction") / "data"
    running = start(folder, "redaction.cleared_client_ids=audit", "redaction.hash_key=k")
    yield running
    assert stop(running) == 0


@pytest.fixture
def registry(agent: Embedded) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": agent.http}) as client:
        yield client


def written(agent: Embedded, topic: str, serialize: Any) -> None:
    """A topic that hashes, with COUNT records in each codec, and a tombstone."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    config = {VALIDATION: "true", "floe.redact": "hash"}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(30)
    context = SerializationContext(topic, MessageField.VALUE)
    for at, codec in enumerate(CODECS):
        config = {"bootstrap.servers": agent.bootstrap, "compression.type": codec, "linger.ms": "50"}
        producer = Producer(config)
        for number in range(COUNT):
            value = serialize(order(at * COUNT + number), context)
            producer.produce(topic, value, key=b"%d" % number, headers=[("codec", codec.encode())])
        assert producer.flush(180) == 0
    producer.produce(topic, None, key=b"gone")
    assert producer.flush(180) == 0


def consumed(agent: Embedded, topic: str, client_id: str) -> list[Message]:
    """All records, their batches' checksums checked."""
    config = {
        "bootstrap.servers": agent.bootstrap,
        "client.id": client_id,
        "group.id": f"{topic}-{client_id}",
    }
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.subscribe([topic])
    found: list[Message] = []
    while len(found) < len(CODECS) * COUNT + 1:
        for each in consumer.consume(1_000, 30):
            assert each.error() is None, each.error()
            found.append(each)
    consumer.close()
    return found


@pytest.mark.parametrize("schema_type", ["AVRO", "JSON"])
def test_consumers_read_what_they_are_cleared_for(
    agent: Embedded, registry: SchemaRegistryClient, schema_type: str
) -> None:
    """The same records at the same offsets; what is left is a record of the schema that its frame names."""
    topic = f"orders-{schema_type.lower()}"
    serializers = {
        "AVRO": lambda: (AvroSerializer(registry, json.dumps(AVRO)), AvroDeserializer(registry)),
        "JSON": lambda: (
            JSONSerializer(json.dumps(JSON), registry),
            JSONDeserializer(json.dumps(JSON), schema_registry_client=registry),
        ),
    }
    serialize, deserialize = serializers[schema_type]()
    written(agent, topic, serialize)
    context = SerializationContext(topic, MessageField.VALUE)
    whole, left = consumed(agent, topic, "audit"), consumed(agent, topic, "anybody")
    for number, (mine, theirs) in enumerate(zip(whole, left, strict=True)):
        told = ("offset", "key", "headers", "timestamp", "partition")
        assert all(getattr(mine, each)() == getattr(theirs, each)() for each in told)
        assert (mine.offset(), mine.headers()) == (number, theirs.headers())
        if number == len(CODECS) * COUNT:
            assert (mine.value(), theirs.value()) == (None, None)
            continue
        assert deserialize(mine.value(), context) == order(number)
        assert deserialize(theirs.value(), context) == hashed(number)
        assert b"secret" not in bytes(theirs.value() or b"")
