"""Redaction end to end: an agent as it is run, the command line, librdkafka's and aiokafka's consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer

from schema import descriptors
from schema.compiler import compile_protos
from tests.compat.conftest import Embedded, start, stop
from tests.unit.agent.cli.conftest import inside

SOURCE = """
syntax = "proto3";
package shop;
message Order { uint64 id = 1; string who = 2 [debug_redact = true]; }
"""
ORDER = descriptors.load(compile_protos({"order.proto": SOURCE.encode()}), "shop.Order").message_class
COUNT = 500


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent to which clients called audit are cleared, with a topic of COUNT records in each codec."""
    folder = tmp_path_factory.mktemp("redaction")
    (folder / "order.proto").write_text(SOURCE)
    running = start(folder / "data", "redaction.cleared_client_ids=audit", "redaction.hash_key=k")
    words = ("topic", "create", "orders", "--proto", str(folder / "order.proto"), "--message", "shop.Order")
    words += ("--config", "floe.redact=mask", "--partitions", "1")
    ran = inside(*words, FLOE_BOOTSTRAP=running.bootstrap, FLOE_HTTP=running.http)
    assert ran.status == 0, ran
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": running.bootstrap, "compression.type": codec, "linger.ms": 50}
        )
        for number in range(COUNT):
            value = ORDER(id=number, who=f"who-{number}").SerializeToString()
            producer.produce("orders", value, key=b"%d" % number, headers=[("codec", codec.encode())])
        assert producer.flush(180) == 0
    yield running
    stop(running)


def by_librdkafka(agent: Embedded, client_id: str) -> list[tuple[int, bytes | None, Any, bytes | None]]:
    """All records, their checksums checked."""
    config = {"bootstrap.servers": agent.bootstrap, "client.id": client_id, "group.id": client_id}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.subscribe(["orders"])
    found: list[tuple[int, bytes | None, Any, bytes | None]] = []
    while len(found) < 5 * COUNT:
        for each in consumer.consume(1_000, 30):
            assert each.error() is None, each.error()
            found.append((each.offset(), each.key(), each.headers(), each.value()))
    consumer.close()
    return found


async def by_aiokafka(agent: Embedded, client_id: str) -> list[tuple[int, bytes | None, Any, bytes | None]]:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=agent.bootstrap,
        client_id=client_id,
        auto_offset_reset="earliest",
        check_crcs=True,
    )
    await consumer.start()
    found: list[tuple[int, bytes | None, Any, bytes | None]] = []
    try:
        async with asyncio.timeout(60):
            while len(found) < 5 * COUNT:
                each = await consumer.getone()
                found.append((each.offset, each.key, list(each.headers), each.value))
    finally:
        await consumer.stop()
    return found


def test_consumers_see_what_they_are_cleared_for(agent: Embedded) -> None:
    """The same records to both libraries, at the same offsets, with and without the marked field."""
    whole, masked = by_librdkafka(agent, "audit"), by_librdkafka(agent, "anybody")
    assert [each[0] for each in whole] == list(range(5 * COUNT))
    for (offset, key, headers, value), theirs in zip(whole, masked, strict=True):
        order = ORDER.FromString(value or b"")
        assert order.who == f"who-{order.id}" == f"who-{offset % COUNT}"
        assert theirs == (offset, key, headers, ORDER(id=order.id, who="****").SerializeToString())
    assert asyncio.run(by_aiokafka(agent, "anybody")) == masked
