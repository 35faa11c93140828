"""librdkafka in consumer groups, in both protocols."""

from __future__ import annotations

import re
from contextlib import ExitStack
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import LIBRDKAFKA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import (
    WAIT_S_MAX,
    committed,
    consumer,
    error_of,
    owned,
    poll_until,
    produce,
    read,
    values,
)

pytestmark = pytest.mark.client(LIBRDKAFKA)

CLASSIC = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic range": {**CLASSIC, "partition_assignment_strategy": "range"},
    "classic cooperative": {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer uniform": {"group_protocol": "consumer", "group_remote_assignor": "uniform"},
    "consumer range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
BOTH = {"classic": CLASSIC, "consumer": {"group_protocol": "consumer"}}
both_protocols = pytest.mark.parametrize("protocol", BOTH)


@every_protocol
def test_members_share_come_and_go(protocol: str, broker: Broker) -> None:
    """Members share the partitions, a new one gets its part, what a leaving one had goes to the others."""
    topic, group, settings = broker.topic(partitions=6), broker.fresh("group"), PROTOCOLS[protocol]
    with ExitStack() as members:

        def member() -> Any:
            opened = members.enter_context(consumer(broker.bootstrap, group_id=group, **settings))
            opened.subscribe([topic])
            return opened

        first = member()
        poll_until([first], lambda: owned(first) == list(range(6)), "the first has all")
        second, third = member(), member()
        three = (first, second, third)

        def shared() -> bool:
            parts = [owned(each) for each in three]
            return sorted(chain(*parts)) == list(range(6)) and {len(part) for part in parts} == {2}

        poll_until(three, shared, "each has two")
        second.close()
        rest = (first, third)
        poll_until(rest, lambda: sorted(owned(first) + owned(third)) == list(range(6)), "two share all")


@both_protocols
def test_a_group_goes_on_where_it_was(protocol: str, broker: Broker) -> None:
    """Committed positions outlive the members: nothing is read twice and nothing left out."""
    topic, group = broker.topic(partitions=3), broker.fresh("group")
    produce(broker.bootstrap, topic, values(300, 3))
    seen: list[bytes] = []
    for _ in range(3):
        with consumer(broker.bootstrap, group_id=group, **BOTH[protocol]) as member:
            member.subscribe([topic])
            seen += [message.value() for message in read(member, 100)]
            member.commit(asynchronous=False)
    assert sorted(map(int, seen)) == list(range(300))


@both_protocols
def test_commits_carry_metadata_and_go_back(protocol: str, broker: Broker) -> None:
    """A member commits any position with metadata, forwards and backwards, and reads them back."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    produce(broker.bootstrap, topic, values(20, 2))
    with consumer(broker.bootstrap, group_id=group, **BOTH[protocol]) as member:
        assert committed(member, topic, 2) == [-1001, -1001]
        member.subscribe([topic])
        read(member, 20)
        member.commit(offsets=[TopicPartition(topic, 0, 7, metadata="half way")], asynchronous=False)
        assert committed(member, topic, 2) == [7, -1001]
        member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert committed(member, topic, 2) == [3, -1001]
        member.commit(offsets=[TopicPartition(topic, 1, 4, metadata="überall")], asynchronous=False)
        found = member.committed([TopicPartition(topic, 1)], WAIT_S_MAX)[0]
        assert (found.offset, found.metadata) == (4, "überall")


@both_protocols
def test_a_static_member_comes_back(protocol: str, broker: Broker) -> None:
    """A static member that restarts gets its partitions back and the other keeps its own."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    with ExitStack() as members:

        def member(instance: str) -> Any:
            settings = {"group_id": group, "group_instance_id": instance, **BOTH[protocol]}
            opened = members.enter_context(consumer(broker.bootstrap, **settings))
            opened.subscribe([topic])
            return opened

        one, two = member("one"), member("two")
        poll_until((one, two), lambda: len(owned(one)) == len(owned(two)) == 2, "two each")
        mine, others = owned(two), owned(one)
        two.close()
        again = member("two")
        poll_until((one, again), lambda: owned(again) == mine, "the same partitions again")
        assert owned(one) == others


@both_protocols
def test_subscription_by_pattern(protocol: str, broker: Broker) -> None:
    """A pattern takes the topics that match, and one that is made later."""
    group, stem = broker.fresh("group"), broker.fresh("p")
    first = broker.topic("p-a", 2)
    broker.topic("other")
    settings = {"group_id": group, "metadata_max_age_ms": 1000, "topic_metadata_refresh_interval_ms": 1000}
    with consumer(broker.bootstrap, **settings, **BOTH[protocol]) as member:
        member.subscribe([f"^{re.escape(stem)}-.*"])

        def topics() -> set[str]:
            return {part.topic for part in member.assignment()}

        poll_until([member], lambda: topics() == {first}, "the first topic")
        second = broker.topic("p-b")
        poll_until([member], lambda: topics() == {first, second}, "the later topic")


def test_groups_are_described(broker: Broker, saw: Saw) -> None:
    """The admin client lists, describes, alters and deletes groups of both protocols."""
    topic = broker.topic(partitions=2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with ExitStack() as members:
        for protocol, settings in BOTH.items():
            group = broker.fresh(protocol)
            member = members.enter_context(consumer(broker.bootstrap, group_id=group, **settings))
            member.subscribe([topic])
            poll_until([member], lambda member=member: len(owned(member)) == 2, "all")
            member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            found = admin.describe_consumer_groups([group])[group].result(WAIT_S_MAX)
            saw(f"{protocol}: state", found.state)
            saw(f"{protocol}: type", found.type)
            saw(f"{protocol}: assignor", found.partition_assignor)
            (one,) = found.members
            saw(f"{protocol}: assigned", sorted(p.partition for p in one.assignment.topic_partitions))
            saw(f"{protocol}: host", one.host.strip("/"))
            listed = {row.group_id: row for row in admin.list_consumer_groups().result(WAIT_S_MAX).valid}
            saw(f"{protocol}: listed as", (listed[group].state, listed[group].type))
            saw(f"{protocol}: delete", error_of(admin.delete_consumer_groups([group])[group].result))
    for protocol in BOTH:
        group = broker.fresh(protocol)
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 9)])
        admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S_MAX)
        whole = ConsumerGroupTopicPartitions(group)
        offsets = admin.list_consumer_group_offsets([whole])[group].result(WAIT_S_MAX)
        saw(f"{protocol}: offsets", sorted((p.partition, p.offset) for p in offsets.topic_partitions))
        assert admin.delete_consumer_groups([group])[group].result(WAIT_S_MAX) is None
    absent = broker.fresh("absent")
    saw("describe absent", error_of(admin.describe_consumer_groups([absent])[absent].result))
    saw("delete absent", error_of(admin.delete_consumer_groups([absent])[absent].result))
