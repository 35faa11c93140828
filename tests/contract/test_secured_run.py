"""The cluster of `make run-cluster SECURE=1`, with one agent: its programs come in, nobody else does."""

from __future__ import annotations

import asyncio
import socket
import ssl
from itertools import islice
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaError, Producer

from deploy.run import stages
from deploy.run.access import Access
from deploy.run.checks import doors_are_shut
from deploy.run.secure import CREATOR, GRANTS, LOADER, READER, doors_stand_open, trust_store
from deploy.run.source import TOPICS, encoder, rows
from deploy.run.stages import Cluster
from deploy.run.topics import TopicNotCreated, create_topics
from deploy.setup.java import java_home

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

PLAIN_TOPIC = next(topic for topic in TOPICS if not topic.confluent)
COUNT = 10
WAIT_S = 60.0


def write(stage: Cluster, access: Access) -> list[KafkaError | None]:
    """Records of the source by the loader's client; what became of each."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": stage.bootstrap, **access.librdkafka()})
    encode = encoder(PLAIN_TOPIC)
    for row in islice(rows(PLAIN_TOPIC), COUNT):
        key, value, _ = encode(row)
        producer.produce(PLAIN_TOPIC.name, value, key, on_delivery=lambda error, _: told.append(error))
    producer.flush(WAIT_S)
    return told


async def read(stage: Cluster, access: Access) -> int:
    """How many records the reader's client finds."""
    settings = {"bootstrap_servers": stage.bootstrap, "auto_offset_reset": "earliest", **access.python()}
    found = 0
    async with AIOKafkaConsumer(PLAIN_TOPIC.name, **settings) as consumer, asyncio.timeout(WAIT_S):
        while found < COUNT:
            found += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
    return found


def speaks_tls(address: str) -> bool:
    """Whether it answers a greeting of TLS."""
    host, _, port = address.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 10) as one, context.wrap_socket(one) as greeted:
        return greeted.version() is not None


def test_the_secured_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "AGENTS", 1)
    with Cluster(tmp_path, lambda _: None, secure=True) as stage:
        secured = stage.secured
        assert secured is not None
        accesses = {user: secured.access(user) for user in GRANTS}
        with pytest.raises(TopicNotCreated):
            create_topics(stage.bootstrap, stage.http[0], accesses[READER], tmp_path)
        create_topics(stage.bootstrap, stage.http[0], accesses[CREATOR], tmp_path)
        assert doors_stand_open(stage.bootstrap, accesses) == []
        assert write(stage, accesses[LOADER]) == [None] * COUNT
        assert asyncio.run(read(stage, accesses[READER])) == COUNT
        assert stage.s3 is not None
        assert stage.s3.endpoint.startswith("https://")
        for address in (stage.s3.endpoint, stage.http[0], *stage.bootstrap.split(",")):
            assert speaks_tls(address), address
        options = trust_store(java_home(), secured.authority.cert, tmp_path / "trust.p12")
        assert str(tmp_path / "trust.p12") in options


def test_a_door_that_stands_open_is_a_finding() -> None:
    (found,) = doors_are_shut(["the reader writes: None"])
    assert "the reader writes" in found.detail
    assert doors_are_shut([]) == []
