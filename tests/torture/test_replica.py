"""A replica of a cluster's bucket, as a process: under load, with the cluster lost, nothing written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from tests.torture.copying import (
    GROUP,
    PARTITIONS,
    PLACES,
    STEADY,
    TOPIC,
    WAIT_S_MAX,
    Group,
    Sender,
    Told,
    Transactions,
    ended,
    positions,
    read,
    until,
)

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
SETTINGS: dict[str, Any] = {
    "log_archive": {"interval_ms": 200},
    "merging": {"interval_ms": 500, "age_s": 1},
    "shutdown": {"drain_ms": 0},
    "tables": {"enabled": False},
}
RECORDS = 100  # of each producer, at least


class Replica(FloeAgent):
    """`floe serve --follow` as a process. It is told of no log."""

    def __init__(self, settings: dict[str, Any]) -> None:
        own = {name: values for name, values in settings.items() if name not in ("log", "store")}
        store = {name: value for name, value in settings["store"].items() if name != "url"}
        follow = {"follow": {"poll_ms": 100}}
        super().__init__("replica", {**own, **follow, "store": store})
        self._url = str(settings["store"]["url"])

    def command(self) -> list[str]:
        return [*super().command(), "--follow", self._url]


class Lab(NamedTuple):
    etcd: Etcd
    store: Minio
    bucket: str
    source: FloeAgent
    replica: Replica

    def objects(self) -> dict[str, str]:
        """Every object of the bucket and its etag."""
        client = self.store.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        found = {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", ())}
        client.close()
        return found


@pytest.fixture
def lab(own_etcd: Etcd, minio: Minio, bucket: Any) -> Iterator[Lab]:
    name = bucket(minio)
    settings = clustered(etcd=own_etcd.endpoint, bucket_url=f"s3://{name}/main", store=minio) | SETTINGS
    with ExitStack() as stack:
        source = stack.enter_context(FloeAgent("source", settings))
        replica = Replica(settings)
        stack.callback(replica.stop)
        yield Lab(own_etcd, minio, name, source, replica)


async def test_it_serves_what_is_archived_under_load_and_when_the_cluster_is_lost(lab: Lab) -> None:
    await _create(lab.source.bootstrap)
    senders = [await Sender(lab.source.bootstrap, f"i{n}", PLACES[n]).start() for n in range(2)]
    transactions, group = Transactions(lab.source.bootstrap), Group(lab.source.bootstrap)
    runs = (*(each.run() for each in senders), transactions.run(), group.run())
    load = [asyncio.create_task(each) for each in runs]
    await until(lambda: len(senders[0].told) >= RECORDS // 2, "some records", load)
    await asyncio.to_thread(lab.replica.start)
    await until(
        lambda: all(len(each.told) >= RECORDS for each in senders) and len(transactions.done) > 5,
        "load",
        load,
    )
    await until(lambda: len(group.committed) == PARTITIONS, "positions", load)
    for task in load:
        task.cancel()
    await asyncio.gather(*load, return_exceptions=True)
    await asyncio.gather(*(each.stop() for each in senders))
    await _aborted(lab.source.bootstrap)
    last = await Sender(lab.source.bootstrap, "last", STEADY).start()
    await last.send()
    await last.stop()
    await _has(lab.replica.bootstrap, last.told[-1])
    whole = sorted(await read(lab.source.bootstrap))
    assert {each.value for each in whole} >= {each.value for sender in senders for each in sender.told}
    assert not [each for each in whole if each.value.startswith(b"aborted")]
    committed = await positions(lab.source.bootstrap)
    assert set(committed) >= set(group.committed), f"{GROUP} committed nothing"
    for each in (lab.source, lab.etcd):
        await asyncio.to_thread(each.kill)
    before = await asyncio.to_thread(lab.objects)
    assert sorted(await read(lab.replica.bootstrap)) == whole
    assert await positions(lab.replica.bootstrap) == committed
    assert await asyncio.to_thread(_by_librdkafka, lab.replica.bootstrap, len(whole)) == whole
    refused = await asyncio.to_thread(_produced, lab.replica.bootstrap)
    assert refused == KafkaError.TOPIC_AUTHORIZATION_FAILED
    await asyncio.to_thread(lab.replica.stop)
    assert await asyncio.to_thread(lab.objects) == before


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    kept = {"retention.ms": "-1"}  # its records' times are of long ago
    sizes = {TOPIC: PARTITIONS, STEADY.topic: 1}
    await admin.create_topics([NewTopic(name, n, 1, topic_configs=kept) for name, n in sizes.items()])
    await admin.close()


async def _aborted(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="a")
    await producer.start()
    await producer.begin_transaction()
    for each in range(PARTITIONS):
        await producer.send_and_wait(TOPIC, b"aborted-%d" % each, partition=each)
    await producer.abort_transaction()
    await ended(producer)


async def _has(bootstrap: str, wanted: Told) -> None:
    """The replica's end is behind this record, the newest of all."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    async with asyncio.timeout(WAIT_S_MAX):
        while (await consumer.end_offsets([wanted.place]))[wanted.place] <= wanted.offset:  # noqa: ASYNC110  # polls a server
            await asyncio.sleep(0.1)
    await consumer.stop()


def _by_librdkafka(bootstrap: str, count: int) -> list[Told]:
    """So many records by assign, of all partitions from their beginning."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "assigned", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([Place(each.topic, each.partition, 0) for each in PLACES])
    found: list[Told] = []
    for _ in range(int(WAIT_S_MAX)):
        for each in consumer.consume(count - len(found), 1.0):
            assert each.error() is None, each.error()
            place, headers = TopicPartition(each.topic(), each.partition()), tuple(each.headers() or ())
            key, value = each.key() or b"", each.value() or b""
            found.append(Told(place, each.offset(), each.timestamp()[1], key, value, headers))
        if len(found) == count:
            break
    consumer.close()
    return sorted(found)


def _produced(bootstrap: str) -> int:
    """The error that a producer without idempotence is told for its record."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(TOPIC, b"no", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(WAIT_S_MAX)
    return int(errors[0].code())
