"""Java's admin client about groups of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import JAVA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, by_partition, failed, numbered, owned

pytestmark = pytest.mark.client(JAVA)

BOTH: dict[str, dict[str, object]] = {
    "classic": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def admin(java: Java) -> Iterator[Any]:
    """An admin client of the broker's."""
    with java.admin() as opened:
        yield opened


def listed(java: Java, admin: Any, group: str) -> list[tuple[str, str]]:
    """The group's rows in the list of groups: type and state."""
    every = java.jvm.java.util.ArrayList(admin.listGroups().all().get())
    return [
        (each.type().get().name(), each.groupState().get().name())
        for each in every
        if each.groupId() == group
    ]


@pytest.mark.parametrize("protocol", BOTH)
def test_groups(protocol: str, broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Lists and describes a group with a member and without; deletes its offsets and the group."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    java.produce(topic, numbered(4, 2))

    def describe() -> Any:
        return admin.describeConsumerGroups([group]).all().get()[group]

    def forget() -> None:
        admin.deleteConsumerGroupOffsets(group, {java.part(topic)}).all().get()

    with java.consumer(group_id=group, client_id="the-client", **BOTH[protocol]) as member:
        member.subscribe([topic])
        java.until([member], lambda found: len(found) == 4 and owned(member) == [0, 1], "all")
        member.commitSync()
        found = describe()
        saw("with a member", (found.type().name(), found.groupState().name(), found.partitionAssignor()))
        (one,) = found.members()
        assert sorted(part.partition() for part in one.assignment().topicPartitions()) == [0, 1]
        saw("member", (one.clientId(), one.host(), one.groupInstanceId().isPresent()))
        saw("listed", listed(java, admin, group))
        saw("deleted too early", failed(lambda: admin.deleteConsumerGroups([group]).all().get()))
        saw("offsets deleted too early", failed(forget))
    found = describe()
    saw("empty", (found.type().name(), found.groupState().name(), found.members().size()))
    saw("listed as empty", listed(java, admin, group))
    forget()
    kept = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
    saw("offsets left", {key: each.offset() for key, each in by_partition(kept).items()})
    admin.deleteConsumerGroups([group]).all().get()
    saw("deleted", failed(describe))
    assert listed(java, admin, group) == []


def test_offsets_of_groups(broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Alters and lists offsets of groups without members; several groups in one request."""
    topic, one, two = broker.topic(partitions=2), broker.fresh("one"), broker.fresh("two")
    position = java.jvm.kafka.clients.consumer.OffsetAndMetadata
    optional = java.jvm.java.util.Optional

    def alter(group: str, part: int, offset: int) -> None:
        wanted = {java.part(topic, part): position(offset, optional.empty(), "by hand")}
        admin.alterConsumerGroupOffsets(group, wanted).all().get()

    alter(one, 0, 5)
    alter(one, 1, 7)
    alter(one, 0, 3)
    alter(two, 1, 1)
    spec = java.jvm.kafka.clients.admin.ListConsumerGroupOffsetsSpec()
    absent = broker.fresh("absent")
    found = admin.listConsumerGroupOffsets(dict.fromkeys((one, two, absent), spec)).all().get()
    assert {key: each.offset() for key, each in by_partition(found[one]).items()} == {0: 3, 1: 7}
    assert {each.metadata() for each in found[one].values()} == {"by hand"}
    assert {key: each.offset() for key, each in by_partition(found[two]).items()} == {1: 1}
    saw("of no group", len(found[absent]))
    saw("no such partition", failed(lambda: alter(one, 9, 1)))
    with java.consumer(group_id=one, **BOTH["classic"]) as member:
        member.subscribe([topic])
        java.until([member], lambda _: owned(member) == [0, 1], "all")
        saw("under a member", failed(lambda: alter(one, 0, 1)))


def test_no_such_group(broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Groups that are not there are told so."""
    absent = broker.fresh("absent")
    saw("describe", failed(lambda: admin.describeConsumerGroups([absent]).all().get()))
    saw("describe classic", failed(lambda: admin.describeClassicGroups([absent]).all().get()))
    saw("delete", failed(lambda: admin.deleteConsumerGroups([absent]).all().get()))
    part = java.part(broker.topic())
    saw("offsets", failed(lambda: admin.deleteConsumerGroupOffsets(absent, {part}).all().get()))
    saw("empty id", failed(lambda: admin.describeConsumerGroups([""]).all().get()))


def test_configs_of_groups(broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Sets and describes the configs of a group and finds it among the resources that have some."""
    group, api = broker.fresh("group"), java.jvm.kafka.clients.admin
    kinds = java.jvm.kafka.common.config.ConfigResource.Type
    of = java.jvm.kafka.common.config.ConfigResource(kinds.GROUP, group)

    def alter(value: str) -> None:
        change = api.AlterConfigOp(
            api.ConfigEntry("consumer.heartbeat.interval.ms", value), api.AlterConfigOp.OpType.SET
        )
        admin.incrementalAlterConfigs({of: [change]}).all().get()

    alter("6000")
    entry = admin.describeConfigs([of]).all().get()[of].get("consumer.heartbeat.interval.ms")
    saw("set", (entry.value(), entry.source().name()))
    listed = admin.listConfigResources({kinds.GROUP}, api.ListConfigResourcesOptions()).all().get()
    assert group in {each.name() for each in java.jvm.java.util.ArrayList(listed)}
    saw("too short", failed(lambda: alter("1")))
