"""Quotas end to end: an agent as it is run, and clients that are slowed down."""

from __future__ import annotations

import asyncio
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from agent.net.wire.generated import alter_client_quotas as acq
from deploy.services.kafka import tool
from deploy.services.ports import free_port
from tests.bench.load import set_quota
from tests.compat.conftest import Embedded, start, stop
from tests.compat.raw import call

RATE = 20_000  # bytes per second, of which ten seconds may come at once
VALUE = bytes(5_000)
COUNT = 60  # 300 kB: a burst, and a third of it again
ENDS_S_MAX = 120


@pytest.fixture(scope="module")
def few() -> tuple[str, int]:
    """Where a listener takes two connections of an address."""
    return "127.0.0.1", free_port()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, few: tuple[str, int]) -> Iterator[Embedded]:
    """With topics for everybody."""
    running = start(
        tmp_path_factory.mktemp("quotas") / "data",
        *("listeners.1.name=FEW", "listeners.1.host=127.0.0.1", f"listeners.1.port={few[1]}"),
        "listeners.1.connections_per_ip_max=2",
        "quotas.throttle_ms_max=3000",
    )
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1), NewTopic("u", 1)]).values():
        future.result(30)
    yield running
    assert stop(running) == 0


def limit(agent: Embedded, client: str, quota: str, value: float = RATE) -> None:
    """Give a client id a quota."""
    asyncio.run(set_quota(agent.bootstrap, client, quota, value))


def slowed_s(agent: Embedded, client: str, quota: str) -> float:
    """For how long the agent slowed a client down, as its metrics say."""
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    wanted = {"entity": f"client-id={client}", "quota": quota}
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "floe_throttled_seconds_total" and sample.labels == wanted
    )


def test_librdkafka_is_told_and_loses_nothing(agent: Embedded) -> None:
    limit(agent, "rd", "producer_byte_rate")
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": agent.bootstrap,
            "client.id": "rd",
            "batch.size": 20_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    stored: list[int] = []
    for _ in range(COUNT):
        producer.produce("t", VALUE, on_delivery=lambda error, message: stored.append(message.offset()))
    assert producer.flush(ENDS_S_MAX) == 0
    assert len(stored) == COUNT
    assert max(told) > 0
    assert slowed_s(agent, "rd", "producer_byte_rate") > 0
    limit(agent, "rd-reads", "consumer_byte_rate")
    config = {"bootstrap.servers": agent.bootstrap, "client.id": "rd-reads", "group.id": "rd"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found, end = 0, time.monotonic() + ENDS_S_MAX
    while found < COUNT and time.monotonic() < end:
        found += sum(each.error() is None for each in consumer.consume(100, 1))
    consumer.close()
    assert found >= COUNT
    assert slowed_s(agent, "rd-reads", "consumer_byte_rate") > 0


async def test_aiokafka_loses_nothing(agent: Embedded) -> None:
    for quota in ("producer_byte_rate", "consumer_byte_rate"):
        await set_quota(agent.bootstrap, "aio", quota, RATE)
    settings: dict[str, Any] = {"bootstrap_servers": agent.bootstrap, "client_id": "aio"}
    async with asyncio.timeout(ENDS_S_MAX), AIOKafkaProducer(**settings) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("u", VALUE, key=b"%d" % number)
    keys: list[bytes | None] = []
    consumer = AIOKafkaConsumer("u", auto_offset_reset="earliest", **settings)
    async with asyncio.timeout(ENDS_S_MAX), consumer:
        while len(keys) < COUNT:
            keys.append((await consumer.getone()).key)
    assert keys == [b"%d" % number for number in range(COUNT)]
    for quota in ("producer_byte_rate", "consumer_byte_rate"):
        assert await asyncio.to_thread(slowed_s, agent, "aio", quota) > 0


def test_javas_producer_is_told(agent: Embedded) -> None:
    limit(agent, "java", "producer_byte_rate")
    load = ("--num-records", str(COUNT), "--record-size", str(len(VALUE)), "--throughput", "-1")
    properties = ("--command-property", f"bootstrap.servers={agent.bootstrap}", "client.id=java")
    done = tool(
        "producer-perf-test", "--topic", "t", *load, *properties, "--print-metrics", timeout_s=ENDS_S_MAX
    )
    assert f"{COUNT} records sent" in done.stdout, done.stdout + done.stderr
    (most,) = re.findall(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", done.stdout)
    assert float(most) > 0


def test_an_address_has_so_many_connections_and_no_more(agent: Embedded, few: tuple[str, int]) -> None:
    opened = [socket.create_connection(few) for _ in range(2)]
    third = socket.create_connection(few)
    third.settimeout(30)
    try:
        assert third.recv(1) == b""
    except ConnectionResetError:
        pass
    finally:
        for each in (third, *opened):
            each.close()


def test_users_who_log_in_have_quotas_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("quotas-of-users")
    port = free_port()
    agent = start(
        folder / "data",
        *("listeners.1.name=USERS", "listeners.1.host=127.0.0.1", f"listeners.1.port={port}"),
        *("listeners.1.protocol=SASL_PLAINTEXT", "listeners.1.sasl_mechanisms=PLAIN"),
        *("sasl.admin_user=alice", "sasl.admin_password=secret", "quotas.throttle_ms_max=100"),
    )
    try:
        parts = [acq.EntityData("user", "alice"), acq.EntityData("client-id", None)]
        entry = acq.EntryData(parts, [acq.OpData("producer_byte_rate", 1.0)])
        request = acq.AlterClientQuotasRequest([entry])
        told_of = asyncio.run(call(agent.bootstrap, "AlterClientQuotas", request, 1))
        assert told_of.entries[0].error_code == 0
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {
            "sasl.username": "alice",
            "sasl.password": "secret",
            "bootstrap.servers": f"127.0.0.1:{port}",
        }
        for settings, slowed in (({"bootstrap.servers": agent.bootstrap}, False), (login, True)):
            told: list[float] = []
            producer = Producer(
                {**settings, "throttle_cb": lambda event, told=told: told.append(event.throttle_time)}
            )
            producer.produce("t", VALUE)
            assert producer.flush(180) == 0
            assert bool(told) is slowed
    finally:
        stop(agent)
