"""librdkafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import LIBRDKAFKA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import WAIT_S_MAX, consumer, error_of, produce, read, values

pytestmark = pytest.mark.client(LIBRDKAFKA)


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    """An admin client of the broker's."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def _await_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """A broker may know of new partitions and their leaders a moment after the answer."""
    end = time.monotonic() + WAIT_S_MAX
    while not Broker.led(admin, topic, count):
        assert time.monotonic() < end
        time.sleep(0.05)


def _outcome(futures: dict[Any, Any]) -> str:
    """How each ended, by name; in the order of asking."""
    return " ".join(error_of(future.result) for future in futures.values())


def test_topics(broker: Broker, admin: AdminClient, saw: Saw) -> None:
    """Creates, tries, grows, describes and deletes topics."""
    one, two = broker.fresh("one"), broker.fresh("two")
    tried = admin.create_topics([NewTopic(one, 2, 1)], validate_only=True)
    saw("tried", _outcome(tried))
    assert one not in admin.list_topics(timeout=WAIT_S_MAX).topics
    saw("created", _outcome(admin.create_topics([NewTopic(one, 2, 1), NewTopic(two, 1, 1)])))
    saw("again", _outcome(admin.create_topics([NewTopic(one, 2, 1)])))
    saw("grown", _outcome(admin.create_partitions([NewPartitions(one, 4)])))
    saw("shrunk", _outcome(admin.create_partitions([NewPartitions(one, 1)])))
    _await_partitions(admin, one, 4)
    described = admin.describe_topics(TopicCollection([one, "not-there"]))
    saw("described", _outcome(described))
    found = described[one].result()
    assert [part.id for part in found.partitions] == [0, 1, 2, 3]
    assert all(part.leader.id in {each.id for each in part.replicas} for part in found.partitions)
    saw("internal", found.is_internal)
    saw("deleted", _outcome(admin.delete_topics([one, two, "not-there"])))


CREATIONS: dict[str, Callable[[str], NewTopic]] = {
    "name": lambda _: NewTopic("a b", 1, 1),
    "no partitions": lambda name: NewTopic(name, 0, 1),
    "config": lambda name: NewTopic(name, 1, 1, config={"no.such": "1"}),
    "value": lambda name: NewTopic(name, 1, 1, config={"retention.ms": "soon"}),
    "policy": lambda name: NewTopic(name, 1, 1, config={"cleanup.policy": "burn"}),
    "long name": lambda _: NewTopic("x" * 250, 1, 1),
}


@pytest.mark.parametrize("case", CREATIONS)
def test_creations_that_are_refused(case: str, broker: Broker, admin: AdminClient, saw: Saw) -> None:
    """Bad names, counts and configs of a new topic are told."""
    saw("code", _outcome(admin.create_topics([CREATIONS[case](broker.fresh())])))


def test_configs(broker: Broker, admin: AdminClient, saw: Saw) -> None:
    """Describes topic and broker configs, sets, deletes, appends and subtracts."""
    topic = broker.topic(cleanup_policy="compact")

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> str:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return _outcome(admin.incremental_alter_configs([resource]))

    def described(name: str) -> tuple[str, int, bool, bool]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entry = admin.describe_configs([resource])[resource].result(WAIT_S_MAX)[name]
        return entry.value, int(entry.source), entry.is_default, entry.is_read_only

    assert alter("cleanup.policy", "delete", AlterConfigOpType.APPEND) == "none"
    saw("appended", described("cleanup.policy"))
    assert alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT) == "none"
    saw("subtracted", described("cleanup.policy"))
    assert alter("retention.ms", "5000", AlterConfigOpType.SET) == "none"
    saw("set", described("retention.ms"))
    assert alter("retention.ms", None, AlterConfigOpType.DELETE) == "none"
    saw("deleted", described("retention.ms"))
    saw("bad value", alter("retention.ms", "x", AlterConfigOpType.SET))
    saw("bad name", alter("no.such", "1", AlterConfigOpType.SET))
    node = min(admin.list_topics(timeout=WAIT_S_MAX).brokers)
    resource = ConfigResource(ResourceType.BROKER, str(node))
    every = admin.describe_configs([resource])[resource].result(WAIT_S_MAX)
    for name in ("num.partitions", "auto.create.topics.enable", "message.max.bytes"):
        saw(name, every[name].value)


def test_cluster_and_offsets(broker: Broker, admin: AdminClient, saw: Saw) -> None:
    """Describes the cluster and lists offsets: earliest, latest, by time and newest."""
    cluster = admin.describe_cluster().result(WAIT_S_MAX)
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert cluster.cluster_id
    topic = broker.topic()
    times = [{"value": b"v", "timestamp": BASE_TIME + (n * 7) % 10} for n in range(10)]
    produce(broker.bootstrap, topic, times, linger_ms=100)
    specs = {
        "earliest": OffsetSpec.earliest(),
        "latest": OffsetSpec.latest(),
        "newest": OffsetSpec.max_timestamp(),
        "by time": OffsetSpec.for_timestamp(BASE_TIME + 5),
        "later": OffsetSpec.for_timestamp(BASE_TIME + 50),
    }
    for name, spec in specs.items():
        part = TopicPartition(topic, 0)
        found = admin.list_offsets({part: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        answer = found[part].result(WAIT_S_MAX)
        saw(name, (answer.offset, max(-1, answer.timestamp - BASE_TIME)))


def test_delete_records(broker: Broker, admin: AdminClient, saw: Saw) -> None:
    """Deletes records: the start of the log moves, readers begin there."""
    topic = broker.topic(partitions=2)
    produce(broker.bootstrap, topic, values(20, 2))
    wanted = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 99), TopicPartition(topic, 5, 0)]
    futures = admin.delete_records(wanted)
    for part, future in futures.items():
        saw(f"partition {part.partition}", error_of(future.result))
    assert futures[wanted[0]].result().low_watermark == 4
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [message.offset() for message in read(reader, 6)] == list(range(4, 10))
    end = admin.delete_records([TopicPartition(topic, 1, -1)])
    saw("to the end", [future.result().low_watermark for future in end.values()])


def test_listing_groups_by_state(broker: Broker, admin: AdminClient) -> None:
    """Lists groups filtered by state."""
    group, topic = broker.fresh("group"), broker.topic()
    with consumer(broker.bootstrap, group_id=group) as member:
        member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    for state, there in ((ConsumerGroupState.EMPTY, True), (ConsumerGroupState.STABLE, False)):
        found = admin.list_consumer_groups(states={state}).result(WAIT_S_MAX)
        assert not found.errors
        assert (group in {row.group_id for row in found.valid}) == there
