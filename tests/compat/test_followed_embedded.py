"""A topic that follows its subject, end to end: Confluent's serializer writes, pyiceberg reads."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, record_subject_name_strategy
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog

from agent.cli.audit import schemas
from schema.framing import parse, prefix
from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_latest_embedded import QUICK, caught_up
from tests.compat.test_registry_clients import PLAIN, classes
from tests.unit.agent.cli.conftest import inside

ONE = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "shop/money.proto";
message Order { uint64 id = 1; Money total = 2; google.protobuf.Timestamp at = 3; }
message Refund { uint64 id = 1; string reason = 2; }
"""
TWO = ONE.replace("google.protobuf.Timestamp at = 3;", "google.protobuf.Timestamp at = 3; string remark = 4;")
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; int64 units = 2; }'
OLD, NEW = (classes({"shop/orders.proto": text, "shop/money.proto": MONEY}) for text in (ONE, TWO))
VALIDATION = "confluent.value.schema.validation"
STRATEGY = "confluent.value.subject.name.strategy"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent that commits tables at once."""
    found = start(tmp_path_factory.mktemp("followed") / "data", *QUICK)
    yield found
    assert stop(found) == 0


@pytest.fixture
def registry(agent: Embedded) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": agent.http}) as client:
        yield client


def topic(agent: Embedded, **config: str) -> str:
    """A fresh topic of one partition that validates its values."""
    name = f"followed{next(_numbers)}"
    made = NewTopic(name, 1, config={VALIDATION: "true", **config})
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([made])[name].result(30)
    return name


def send(agent: Embedded, name: str, *values: bytes | None) -> list[KafkaError | None]:
    """Each value in a batch of its own; what became of it."""
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    told: list[KafkaError | None] = []
    for value in values:
        producer.produce(name, value=value, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(180) == 0
    return told


def rows(agent: Embedded, name: str) -> list[Any]:
    """The values in the topic's table, by offset."""
    caught_up(agent, f"floe.{name}")
    table = RestCatalog("floe", uri=f"{agent.http}/iceberg", warehouse="floe").load_table(f"floe.{name}")
    found = table.scan().to_arrow().to_pylist()
    return [each["value"] for each in sorted(found, key=lambda row: row["kafka"]["offset"])]


def test_a_team_with_confluent_s_serializer(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """One topic config: bad records are refused, and the table has the columns of both versions."""
    name = topic(agent)
    context = SerializationContext(name, MessageField.VALUE)
    serializers = [ProtobufSerializer(kind("shop.Order"), registry, PLAIN) for kind in (OLD, NEW)]
    old, new = OLD("shop.Order")(id=1), NEW("shop.Order")(id=2, remark="r")
    old.total.units, old.at.seconds = 5, 77
    first, second = (one(made, context) for one, made in zip(serializers, (old, new), strict=True))
    assert [parse(each).indexes for each in (first, second)] == [(0,), (0,)]
    assert len(registry.get_versions(f"{name}-value")) == 2
    assert send(agent, name, first, second, None, first) == [None] * 4
    other = registry.register_schema("elsewhere", Schema('syntax = "proto3"; message X {}', "PROTOBUF"))
    broken = first[: parse(first).start] + b"\xff"
    refused = send(agent, name, broken, prefix(other, (0,)), b"plain", first)
    assert [each.name() if each is not None else None for each in refused] == ["INVALID_RECORD"] * 3 + [None]
    shown = inside("consume", name, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    told = [json.loads(line)["value"] for line in shown.out.splitlines()]
    assert [each and each["id"] for each in told] == ["1", "2", None, "1", "1"]
    audited = schemas(agent.http, name)
    assert [each.follows for each in audited.schemas] == [True]
    assert set(audited.registered) == {parse(each).schema_id for each in (first, second)}
    found = rows(agent, name)
    assert [each and (each["id"], each["remark"]) for each in found] == [
        (1, None), (2, "r"), None, (1, None), (1, None),
    ]  # fmt: skip
    assert found[0]["total"]["units"] == 5
    assert found[0]["at"].timestamp() == 77
    assert {each["__err__"] for each in found if each} == {None}


def test_subjects_called_as_the_message(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Several messages in one topic: each must be registered under its own name."""
    name = topic(agent, **{STRATEGY: "io.confluent.kafka.serializers.subject.RecordNameStrategy"})
    context = SerializationContext(name, MessageField.VALUE)
    settings = {**PLAIN, "subject.name.strategy": record_subject_name_strategy}
    order = ProtobufSerializer(OLD("shop.Order"), registry, settings)(OLD("shop.Order")(id=1), context)
    refund = prefix(parse(order).schema_id, (1,)) + OLD("shop.Refund")(id=2).SerializeToString()
    before = send(agent, name, order, refund)
    assert [each.name() if each is not None else None for each in before] == [None, "INVALID_RECORD"]
    serializer = ProtobufSerializer(OLD("shop.Refund"), registry, settings)
    late = serializer(OLD("shop.Refund")(id=2, reason="late"), context)
    assert send(agent, name, late, refund) == [None, None]
    found = [(each["Order"] and each["Order"]["id"], each["Refund"]) for each in rows(agent, name)]
    assert found == [(1, None), (None, {"id": 2, "reason": "late"}), (None, {"id": 2, "reason": ""})]


def test_registered_while_records_come(agent: Embedded, registry: SchemaRegistryClient) -> None:
    """Producers of the version before lose nothing, and each new version is taken with its first record."""
    name = topic(agent)
    context = SerializationContext(name, MessageField.VALUE)
    steady = ProtobufSerializer(OLD("shop.Order"), registry, PLAIN)(OLD("shop.Order")(id=1), context)
    done = threading.Event()
    told: list[KafkaError | None] = []

    def others() -> None:
        while not done.is_set():
            told.extend(send(agent, name, steady))

    beside = threading.Thread(target=others)
    beside.start()
    try:
        for number in range(10, 20):
            text = ONE.replace("at = 3;", f"at = 3; string f{number} = {number};")
            kind = classes({"shop/orders.proto": text, "shop/money.proto": MONEY})("shop.Order")
            made = ProtobufSerializer(kind, registry, PLAIN)(kind(id=number, **{f"f{number}": "x"}), context)
            assert send(agent, name, made) == [None]
            registry.set_compatibility(f"{name}-value", "NONE")
    finally:
        done.set()
        beside.join()
    assert told
    assert set(told) == {None}
    found = {each["id"]: each for each in rows(agent, name)}
    assert [found[number][f"f{number}"] for number in range(10, 20)] == ["x"] * 10


def test_it_is_known_after_a_restart(tmp_path: Path) -> None:
    """Of a config on a topic that is there; a strategy that nobody knows is refused."""
    agent = start(tmp_path / "data", *QUICK)
    try:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        bad = NewTopic("bad", 1, config={STRATEGY: "com.acme.MyStrategy"})
        refused = admin.create_topics([bad])["bad"]
        with pytest.raises(KafkaException, match="String must be one of"):
            refused.result(30)
        name = topic(agent)
        with SchemaRegistryClient({"url": agent.http}) as registry:
            context = SerializationContext(name, MessageField.VALUE)
            framed = ProtobufSerializer(OLD("shop.Order"), registry, PLAIN)(OLD("shop.Order")(id=1), context)
        assert send(agent, name, framed) == [None]
        stop(agent)
        agent = start(tmp_path / "data", *QUICK)
        assert [error is None for error in send(agent, name, framed, b"plain")] == [True, False]
        assert [each["id"] for each in rows(agent, name)] == [1, 1]
    finally:
        stop(agent)
