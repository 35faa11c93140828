"""Members of KIP-848 are told by patterns of what they may describe and of nothing else (Kafka: KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.kafka.context import Client
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import incremental_alter_configs as iac
from coordination.kafka_codes import Code
from coordination.state.acl_types import PatternType
from coordination.state.consumer_types import MemberState
from tests.unit.agent.kafka.guards_rig import DESCRIBE, GROUP, READ, TOPIC, Guarded, guarded

ALL = {"seen": [0, 1], "hidden": [0]}


@pytest.fixture
async def rig() -> AsyncIterator[Guarded]:
    async with guarded() as there:
        await there.allow(READ, GROUP, "g")
        await there.allow(READ, GROUP, "g", who="User:bob")
        await there.allow(DESCRIBE, TOPIC, "seen")
        await at_once(there)
        yield there


async def at_once(rig: Guarded) -> None:
    """The group's targets are computed with each change."""
    row = iac.AlterableConfig("consumer.assignment.interval.ms", 0, "0")
    request = iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(32, "g", [row])])
    answer = await rig.agent.call("IncrementalAlterConfigs", request, 1, rig.root)
    assert answer.responses[0].error_code == Code.NONE, answer


class Member:
    """One that says truthfully what it owns."""

    def __init__(self, rig: Guarded, name: str, client: Client, regex: str = "seen|hidden") -> None:
        self.rig, self.name, self.client, self.regex, self.epoch = rig, name, client, regex, 0
        self.owned: dict[bytes, list[int]] = {}

    async def beat(self) -> None:
        """One heartbeat, which says all that it has to when it joins and nothing new later."""
        joins = self.epoch == 0
        rows = [ch.TopicPartitions(topic_id, row) for topic_id, row in self.owned.items()]
        request = ch.ConsumerGroupHeartbeatRequest(
            "g", self.name, self.epoch, None, None, 60_000, None, self.regex if joins else None, None, rows
        )
        answer = await self.rig.agent.call("ConsumerGroupHeartbeat", request, 1, self.client)
        assert answer.error_code == Code.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}

    @property
    def has(self) -> dict[str, list[int]]:
        """What it was told of, by name."""
        topics = self.rig.agent.services.replica.state.topics_by_id
        return {topics[each].name: sorted(row) for each, row in self.owned.items() if row}


async def settle(*members: Member) -> None:
    """Heartbeats until all have the target of the group's epoch."""
    async with asyncio.timeout(30):
        for _ in range(1_000):
            for each in members:
                await each.beat()
            data = members[0].rig.agent.services.replica.state.groups["g"].consumer
            assert data is not None
            epochs = {data.group_epoch, *(each.epoch for each in members)}
            if len(epochs) == 1 and all(row.state == MemberState.STABLE for row in data.members.values()):
                return
            await asyncio.sleep(0.02)


async def test_a_pattern_shows_what_its_member_may_describe(rig: Guarded) -> None:
    """By the ACLs of now: one that comes or goes counts from the next heartbeat on."""
    alice = Member(rig, "a", rig.alice)
    await settle(alice)
    assert alice.has == {"seen": [0, 1]}
    await rig.allow(DESCRIBE, TOPIC, "hidden")
    await settle(alice)
    assert alice.has == ALL
    await rig.revoke("seen")
    await settle(alice)
    assert alice.has == {"hidden": [0]}


async def test_each_member_by_its_own_principal(rig: Guarded) -> None:
    bob = rig.agent.connect()
    bob.principal, bob.host = "bob", "10.1.2.4"
    await rig.allow(DESCRIBE, TOPIC, "hidden", who="User:bob")
    first, second = Member(rig, "a", rig.alice), Member(rig, "b", bob)
    await settle(first, second)
    assert (first.has, second.has) == ({"seen": [0, 1]}, {"hidden": [0]})
    second.client = rig.alice  # the same member by a connection of somebody else
    await settle(first, second)
    assert "hidden" not in {**first.has, **second.has}


async def test_a_prefix_and_who_may_everything(rig: Guarded) -> None:
    root = Member(rig, "r", rig.root)
    await settle(root)
    assert root.has == ALL
    await rig.allow(DESCRIBE, TOPIC, "hid", pattern=PatternType.PREFIXED)
    alice = Member(rig, "a", rig.alice, "hid.*")
    await settle(root, alice)
    assert sorted({**root.has, **alice.has}) == ["hidden", "seen"]


async def test_a_group_taken_over_keeps_what_it_has_until_its_members_are_heard(rig: Guarded) -> None:
    """Nobody knows who the members are: a plan without them must neither take topics away nor show others."""
    groups = rig.agent.services.consumer_groups
    unheard, leaver, stays = (Member(rig, name, rig.alice) for name in "abc")
    await settle(unheard, leaver)
    assert unheard.has == {"seen": [0]}
    groups._let_go(groups.runner("g"))  # as when another agent coordinates it for a while
    leaver.epoch = -1
    await leaver.beat()
    await stays.beat()  # the target is made of all of them, of whom one was not heard
    data = rig.agent.services.replica.state.groups["g"].consumer
    assert data is not None
    seen = rig.agent.services.replica.state.topics["seen"].topic_id
    assert {name: dict(row) for name, row in data.targets.items()} == {"a": {seen: (0,)}, "c": {seen: (1,)}}
    await settle(unheard, stays)
    assert (unheard.has, stays.has) == ({"seen": [0]}, {"seen": [1]})


async def test_in_shadow_mode_patterns_show_everything() -> None:
    async with guarded("shadow") as rig:
        alice = Member(rig, "a", rig.alice)
        await settle(alice)
        assert alice.has == ALL
