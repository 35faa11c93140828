"""Frames as readers want them, end to end: clients that know the registry and clients that do not."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from deploy.services.ports import free_port
from tests.compat.conftest import Embedded, start, stop
from tests.compat.raw import set_broker_config
from tests.compat.test_followed_embedded import rows
from tests.compat.test_latest_embedded import QUICK
from tests.compat.test_registry_clients import PLAIN, classes
from tests.unit.agent.cli.conftest import inside

TEXT = """
syntax = "proto3"; package shop;
message Refund { string reason = 1; }
message Order { uint64 id = 1; string who = 2; }
"""
KINDS = classes({"shop/order.proto": TEXT})
ORDER, REFUND = KINDS("shop.Order"), KINDS("shop.Refund")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALIDATED = ("--config", "confluent.value.schema.validation=true")
HEADERS = {**PLAIN, "schema.id.serializer": header_schema_id_serializer}
OLD = {**PLAIN, "schema.id.deserializer": prefix_schema_id_deserializer}
COMPACTING = ("compaction.dirty_bytes_min=1024", "merging.interval_ms=200", "merging.min_slices=20")
BARE = free_port()
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent that commits tables at once, with a listener whose clients read bare messages."""
    more = {"name": "BARE", "host": "127.0.0.1", "port": BARE, "frames": "bare"}
    settings = [f"listeners.1.{name}={value}" for name, value in more.items()]
    found = start(tmp_path_factory.mktemp("frames") / "data", *QUICK, *COMPACTING, *settings)
    yield found
    assert stop(found) == 0


@pytest.fixture
def registry(agent: Embedded) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": agent.http}) as client:
        yield client


def floe(agent: Embedded, *words: str, status: int = 0) -> str:
    """What a command says."""
    ran = inside(*words, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    assert ran.status == status, ran
    return ran.out + ran.err


def topic(agent: Embedded, *words: str) -> str:
    """A fresh topic of one partition."""
    name = f"frames{next(_numbers)}"
    floe(agent, "topic", "create", name, "--partitions", "1", *words)
    return name


def own(agent: Embedded, folder: Path, *words: str) -> str:
    """A fresh topic that is bound to shop.Order, with the subject that Confluent's clients would look for."""
    file = folder / "order.proto"
    file.write_text(TEXT)
    bound = ("--proto", str(file), "--message", "shop.Order", "--tombstones")
    name = topic(agent, *bound, *words)
    floe(agent, "schema", "register", f"{name}-value", str(file))
    return name


def consumed(agent: Embedded, name: str, count: int, **settings: Any) -> list[Any]:
    """The topic's first records, by librdkafka, their checksums checked."""
    told = {"bootstrap.servers": agent.bootstrap, "group.id": f"g{next(_numbers)}", "check.crcs": True}
    consumer = Consumer({**told, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([name])
    found: list[Any] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        for each in consumer.consume(1_000, 1):
            assert each.error() is None, each.error()
            found.append(each)
    consumer.close()
    assert len(found) == count
    return found


def told_by(agent: Embedded, name: str) -> list[Any]:
    """What `floe consume` says of each record."""
    return [json.loads(line) for line in floe(agent, "consume", name).splitlines() if line[:1] == "{"]


def value_of(name: str) -> SerializationContext:
    return SerializationContext(name, MessageField.VALUE)


def send(agent: Embedded, name: str, value: bytes, headers: list[tuple[str, bytes]]) -> str | None:
    """What becomes of a record in a batch of its own."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    producer.produce(name, value, headers=headers, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(180) == 0
    return told[0].name() if told[0] is not None else None


def test_plain_producers_are_read_through_the_registry(
    agent: Embedded, registry: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Every codec, tombstones, aborted transactions: Confluent's deserializer reads what nobody framed."""
    name = own(agent, tmp_path)
    floe(agent, "topic", "config", name, "--set", "floe.frames=confluent")
    sent: list[tuple[bytes, bytes | None]] = []
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": agent.bootstrap, "compression.type": codec, "linger.ms": 50}
        )
        for number in range(100):
            value = ORDER(id=number, who=codec).SerializeToString() if number % 10 else None
            sent.append((b"%d" % number, value))
            producer.produce(name, value, key=sent[-1][0], headers=[("codec", codec.encode())])
        assert producer.flush(180) == 0
    transactional = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": name})
    transactional.init_transactions()
    for keeps in (False, True, False):
        transactional.begin_transaction()
        for number in range(10):
            value = ORDER(id=number, who="kept" if keeps else "aborted").SerializeToString()
            transactional.produce(name, value, key=b"t")
        if keeps:
            transactional.commit_transaction()
            sent += [(b"t", ORDER(id=number, who="kept").SerializeToString()) for number in range(10)]
        else:
            transactional.flush()
            transactional.abort_transaction()
    deserializer = ProtobufDeserializer(ORDER, PLAIN, registry)
    found = consumed(agent, name, len(sent))
    for (key, value), each in zip(sent, found, strict=True):
        assert each.key() == key
        if value is None:
            assert each.value() is None
            continue
        assert each.value() != value, "it has a frame"
        assert deserializer(each.value(), value_of(name)).SerializeToString() == value
        assert each.headers() in (None, [("codec", each.headers() and each.headers()[0][1])])
    floe(agent, "topic", "config", name, "--set", "floe.frames=as-written")
    assert [(each.key(), each.value()) for each in consumed(agent, name, len(sent))] == sent


def test_serializers_are_read_by_plain_clients(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """And the other way round, by header or prefix: what the consumer gets parses as it is."""
    name = topic(agent, *VALIDATED, "--config", "floe.frames=bare")
    settings = {"compression.type": "zstd", "linger.ms": 50}
    producer = Producer({"bootstrap.servers": agent.bootstrap, **settings})
    prefixing, heading = (ProtobufSerializer(ORDER, registry, each) for each in (PLAIN, HEADERS))
    for number in range(200):
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext(name, MessageField.VALUE, headers)
        value = (heading if number % 2 else prefixing)(ORDER(id=number, who="x"), context)
        producer.produce(name, value, headers=headers)
    assert producer.flush(180) == 0
    found = [ORDER.FromString(each.value()) for each in consumed(agent, name, 200)]
    assert [each.id for each in found] == list(range(200))


def test_ids_in_headers_are_judged_and_decoded(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Confluent's new serializers: at the door, in the table, at a terminal, and for clients before them."""
    name = topic(agent, *VALIDATED)
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext(name, MessageField.VALUE, headers)
    value = ProtobufSerializer(ORDER, registry, HEADERS)(ORDER(id=7, who="w"), context)
    assert value == ORDER(id=7, who="w").SerializeToString()
    assert [key for key, _ in headers] == ["__value_schema_id"]
    framed = ProtobufSerializer(ORDER, registry, PLAIN)(ORDER(id=8), value_of(name))
    other = [("__value_schema_id", headers[0][1][:-1] + b"\x07")]
    sent = ((value, headers), (framed, []), (value, other), (value, []), (b"\xff", headers))
    found = [send(agent, name, *each) for each in sent]
    assert found == [None, None, *["INVALID_RECORD"] * 3]
    # The second message of its file is a column of its own (docs/tables.md).
    found = [(each["Order"]["id"], each["Order"]["who"], each["__err__"]) for each in rows(agent, name)]
    assert found == [(7, "w", None), (8, "", None)]
    shown = [
        json.loads(line)["value"] for line in floe(agent, "consume", name).splitlines() if line[:1] == "{"
    ]
    assert shown == [{"id": "7", "who": "w"}, {"id": "8"}]
    new = ProtobufDeserializer(ORDER, PLAIN, registry)
    for each in consumed(agent, name, 2):
        context = SerializationContext(name, MessageField.VALUE, each.headers())
        assert new(each.value(), context).id in (7, 8)
    floe(agent, "topic", "config", name, "--set", "floe.frames=confluent")
    old = ProtobufDeserializer(ORDER, OLD, registry)
    found = consumed(agent, name, 2)
    assert [old(each.value(), value_of(name)).id for each in found] == [7, 8]
    assert [each.headers() for each in found] == [None, None]


def test_ids_in_headers_of_avro_and_json(agent: Embedded, registry: SchemaRegistryClient) -> None:
    avro = '{"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}'
    shape = '{"title": "Row", "type": "object", "properties": {"n": {"type": "integer"}}}'
    settings = {"schema.id.serializer": header_schema_id_serializer}
    for make in (
        lambda: AvroSerializer(registry, avro, conf=settings),
        lambda: JSONSerializer(shape, registry, conf=settings),
    ):
        name = topic(agent, *VALIDATED)
        headers: list[tuple[str, bytes]] = []
        value = make()({"n": 5}, SerializationContext(name, MessageField.VALUE, headers))
        assert [send(agent, name, each, headers) for each in (value, b"\xff")] == [None, "INVALID_RECORD"]
        assert [(each["n"], each["__err__"]) for each in rows(agent, name)] == [(5, None)]
        assert [each["value"] for each in told_by(agent, name)] == [{"n": 5}]


def test_unbound_topics_are_shown_by_what_their_records_name(
    agent: Embedded, registry: SchemaRegistryClient
) -> None:
    """`floe consume` asks the registry by id or guid; what it does not know stays as it is."""
    name = topic(agent)
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    headers: list[tuple[str, bytes]] = []
    framed = ProtobufSerializer(ORDER, registry, PLAIN)(ORDER(id=1), value_of(name))
    bare = ProtobufSerializer(REFUND, registry, HEADERS)(
        REFUND(reason="r"), SerializationContext(name, MessageField.VALUE, headers)
    )
    text = JSONSerializer('{"type": "object"}', registry)({"a": [1]}, value_of(f"{name}-json"))
    for value, more in (
        (framed, []), (bare, headers), (text, []), (b"text", []), (b"\x00\x00\x00\xff\xff\x00", []),
        (framed[:5] + b"\x00\xff", []), (b"\x00\x00\x00\x00\x00\x00\x00\x07", []), (None, []),
    ):  # fmt: skip
        producer.produce(name, value, key=framed, headers=more)
    assert producer.flush(180) == 0
    out = told_by(agent, name)
    assert [each["value"] for each in out[:4]] == [{"id": "1"}, {"reason": "r"}, {"a": [1]}, "text"]
    assert [type(each["value"]).__name__ for each in out[4:]] == ["dict", "dict", "str", "NoneType"]
    assert {"base64"} == {*out[4]["value"], *out[5]["value"]}
    assert out[0]["key"] == {"id": "1"}


def everything(agent: Embedded, name: str) -> list[Any]:
    """All records of the one partition, up to its end."""
    told = {"bootstrap.servers": agent.bootstrap, "group.id": "all", "enable.partition.eof": True}
    consumer = Consumer({**told, "check.crcs": True, "fetch.message.max.bytes": 2_000})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[Any] = []
    while (each := consumer.poll(30)) is not None and each.error() is None:
        found.append(each)
    consumer.close()
    assert each is not None
    assert each.error().code() == KafkaError._PARTITION_EOF
    return found


def test_compacted_topics(agent: Embedded, registry: SchemaRegistryClient, tmp_path: Path) -> None:
    """Records keep their offsets and times, with the holes that compaction left."""
    asyncio.run(set_broker_config(agent.bootstrap, "log.cleaner.backoff.ms", "50"))
    settings = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "floe.table.enabled=false")
    name = own(agent, tmp_path, *itertools.chain(*(("--config", each) for each in settings)))
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 5})
    written, end = 0, time.monotonic() + 120
    while time.monotonic() < end and (not written or len(everything(agent, name)) > written * 3 // 4):
        for number in range(written, written + 300):
            producer.produce(name, ORDER(id=number).SerializeToString(), key=b"%d" % (number % 7))
        assert producer.flush(180) == 0
        written += 300
    floe(agent, "topic", "config", name, "--set", "floe.frames=confluent")
    framed = everything(agent, name)
    assert len(framed) < written, "it was compacted"
    assert framed[-1].offset() == written - 1
    deserializer = ProtobufDeserializer(ORDER, PLAIN, registry)
    for each in framed:
        order = deserializer(each.value(), value_of(name))
        assert (order.id, each.key()) == (each.offset(), b"%d" % (order.id % 7))


def test_a_listener_for_clients_without_registry(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """The same topic by two ports of one agent; nobody had to change the topic."""
    name = topic(agent, *VALIDATED)
    framed = ProtobufSerializer(ORDER, registry, PLAIN)(ORDER(id=9), value_of(name))
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    producer.produce(name, framed)
    assert producer.flush(180) == 0
    assert [each.value() for each in consumed(agent, name, 1)] == [framed]
    (bare,) = consumed(agent, name, 1, **{"bootstrap.servers": f"127.0.0.1:{BARE}"})
    assert bare.value() == ORDER(id=9).SerializeToString()


def test_the_config_needs_a_subject(agent: Embedded, tmp_path: Path) -> None:
    """Where a topic is bound to a message that no schema of the registry has."""
    file = tmp_path / "order.proto"
    file.write_text(TEXT)
    name = topic(agent, "--proto", str(file), "--message", "shop.Order")
    refused = floe(agent, "topic", "config", name, "--set", "floe.frames=confluent", status=5)
    assert f"floe schema register {name}-value" in " ".join(refused.split())
    floe(agent, "schema", "register", f"{name}-value", str(file))
    floe(agent, "topic", "config", name, "--set", "floe.frames=confluent")
