"""Members of KIP-848 without sockets: heartbeats through the dispatcher, and what the state says of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.net.wire.generated import consumer_group_heartbeat as ch
from coordination.kafka_codes import Code
from coordination.state.consumer_types import ConsumerGroupData
from tests.unit.agent.rig import Agent


@dataclass
class Member:
    """One member, which sends what it wants with its first heartbeat, and what it owns with each."""

    group: str
    member_id: str
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    epoch: int = 0
    owned: dict[bytes, list[int]] = field(default_factory=dict)

    async def beat(self, agent: Agent, epoch: int | None = None) -> Code:
        """ConsumerGroupHeartbeat, of this epoch instead of the member's if one is given."""
        epoch = self.epoch if epoch is None else epoch
        joins = epoch == 0
        owned = {} if joins else self.owned
        request = ch.ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            epoch,
            None,
            None,
            60_000,
            list(self.topics) if joins and self.topics is not None else None,
            self.regex if joins else None,
            None,
            [ch.TopicPartitions(topic_id, row) for topic_id, row in owned.items()],
        )
        answer = await agent.call("ConsumerGroupHeartbeat", request, 1)
        if answer.error_code == Code.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}
        return Code(answer.error_code)


def data_of(agent: Agent, group: str) -> ConsumerGroupData:
    """The group as this agent's state has it."""
    data = agent.services.replica.state.groups[group].consumer
    assert data is not None
    return data


def target(agent: Agent, member: Member) -> list[int]:
    """The partitions that the member shall have, whatever their topics."""
    return sorted(n for row in data_of(agent, member.group).targets[member.member_id].values() for n in row)
