"""The consumer protocol (KIP-848) by librdkafka, against one embedded agent: rules 2 and 5 for groups."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.compat.conftest import Embedded

PARTITIONS = 6
SETTLED_S_MAX = 60.0
_numbers = itertools.count(1)
Owned = frozenset[tuple[str, int]]


def make_topic(embedded: Embedded, partitions: int = PARTITIONS, prefix: str = "consumed") -> str:
    name = f"{prefix}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(10)
    return name


class Member:
    """A consumer that is polled by the test; `owned` is what its callbacks gave and took."""

    def __init__(self, embedded: Embedded, group: str, *topics: str, **settings: object) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.read: list[bytes] = []
        self.failures: list[str] = []
        config: dict[str, object] = {
            "bootstrap.servers": embedded.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
        self.consumer = Consumer({**config, **{key.replace("_", "."): v for key, v in settings.items()}})
        self.consumer.subscribe(list(topics), on_assign=self._gain, on_revoke=self._lose, on_lost=self._lose)

    def _gain(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {(p.topic, p.partition) for p in partitions}
        consumer.incremental_assign(partitions) if self._incremental else consumer.assign(partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {(p.topic, p.partition) for p in partitions}
        consumer.incremental_unassign(partitions) if self._incremental else consumer.unassign()

    _incremental = True

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if message.error():
            self.failures.append(str(message.error()))
        else:
            self.read.append(message.value())


class ClassicMember(Member):
    """The same by the classic protocol, with eager rebalances."""

    _incremental = False

    def __init__(self, embedded: Embedded, group: str, *topics: str) -> None:
        super().__init__(
            embedded,
            group,
            *topics,
            group_protocol="classic",
            partition_assignment_strategy="range",
            session_timeout_ms=6000,
        )


@contextmanager
def closing(*members: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for member in members:
            with suppress(KafkaException, RuntimeError):
                member.consumer.close()


def settle(members: list[Member], done: Callable[[], bool]) -> None:
    """Poll everybody until it is so. No partition may have two owners meanwhile."""
    until = time.monotonic() + SETTLED_S_MAX
    while not done():
        for member in members:
            member.poll()
        owned = [row for member in members for row in member.owned]
        assert len(owned) == len(set(owned)), f"two owners: {[sorted(m.owned) for m in members]}"
        assert time.monotonic() < until, f"not settled: {[(sorted(m.owned), m.failures) for m in members]}"


def shared(members: list[Member], topics: list[str], partitions: int = PARTITIONS) -> bool:
    everything = {(topic, number) for topic in topics for number in range(partitions)}
    sizes = [len(member.owned) for member in members]
    return set().union(*(m.owned for m in members)) == everything and max(sizes) - min(sizes) <= 1


@pytest.mark.timeout(240)
def test_members_come_and_go_and_positions_stay(embedded: Embedded) -> None:
    topic, group = make_topic(embedded), f"group-{next(_numbers)}"
    first, second = Member(embedded, group, topic), Member(embedded, group, topic)
    with closing(first, second):
        settle([first, second], lambda: shared([first, second], [topic]))
        producer = Producer({"bootstrap.servers": embedded.bootstrap})
        for number in range(60):
            producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(180) == 0
        settle([first, second], lambda: len(first.read) + len(second.read) == 60)
        for member in (first, second):
            member.consumer.commit(asynchronous=False)
        second.consumer.close()
        second.owned.clear()
        settle([first], lambda: len(first.owned) == PARTITIONS)
        positions = first.consumer.committed(
            [TopicPartition(topic, n) for n in range(PARTITIONS)], timeout=10
        )
        assert [row.offset for row in positions] == [10] * PARTITIONS
    assert sorted(first.read + second.read) == sorted(str(n).encode() for n in range(60))


@pytest.mark.timeout(240)
def test_a_pattern_takes_in_topics_that_come_and_grow(embedded: Embedded) -> None:
    prefix, group = f"seen{next(_numbers)}", f"group-{next(_numbers)}"
    one = make_topic(embedded, 2, prefix)
    member = Member(embedded, group, f"^{prefix}-.*")
    with closing(member):
        settle([member], lambda: len(member.owned) == 2)
        two = make_topic(embedded, 3, prefix)
        make_topic(embedded, 3, f"not-{prefix}")
        settle([member], lambda: len(member.owned) == 5)
        admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
        admin.create_partitions([NewPartitions(one, 4)])[one].result(10)
        settle([member], lambda: len(member.owned) == 7)
        assert {name for name, _ in member.owned} == {one, two}


@pytest.mark.timeout(240)
def test_a_static_member_finds_its_partitions_again(embedded: Embedded) -> None:
    topic, group = make_topic(embedded), f"group-{next(_numbers)}"
    first = Member(embedded, group, topic, group_instance_id="one")
    second = Member(embedded, group, topic, group_instance_id="two")
    with closing(first, second):
        settle([first, second], lambda: shared([first, second], [topic]))
        had, kept = set(second.owned), set(first.owned)
        second.consumer.close()
        second.owned.clear()
        again = Member(embedded, group, topic, group_instance_id="two")
        with closing(again):
            settle([first, again], lambda: again.owned == had)
            assert first.owned == kept


@pytest.mark.timeout(300)
def test_a_live_group_moves_to_the_consumer_protocol_and_back(embedded: Embedded) -> None:
    topic, group = make_topic(embedded), f"group-{next(_numbers)}"
    classic = ClassicMember(embedded, group, topic)
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})

    def kind() -> str:
        listed = admin.list_consumer_groups().result()
        return next((one.type.name for one in listed.valid if one.group_id == group), "none")

    with closing(classic):
        settle([classic], lambda: len(classic.owned) == PARTITIONS)
        assert kind() == "CLASSIC"
        modern = Member(embedded, group, topic)
        with closing(modern):
            settle([classic, modern], lambda: shared([classic, modern], [topic]))
            assert kind() == "CONSUMER"
        modern.owned.clear()
        settle([classic], lambda: len(classic.owned) == PARTITIONS)
        assert kind() == "CLASSIC"
