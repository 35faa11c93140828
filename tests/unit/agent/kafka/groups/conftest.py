"""Groups on agents without sockets: members that speak through the dispatcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import sync_group as sg
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, CreateTopic
from coordination.state.types import Done
from tests.equipment.group_members import subscription
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.rig import Agent

StartGroups = Callable[..., Awaitable[Agent]]


async def settings(agent: Agent, **configs: str) -> None:
    """Set broker configs; '_' stands for '.'."""
    changes = [
        AlterTopicConfigs.Change(name=name.replace("_", "."), value=value) for name, value in configs.items()
    ]
    result = await agent.services.replica.propose(AlterClusterConfigs(changes=changes))
    assert isinstance(result, Done), result


async def quick_sessions(agent: Agent, session_ms: int, **configs: str) -> None:
    """Members of KIP-848 that heartbeat every 10 ms, and are out soon when they do not."""
    await settings(
        agent,
        group_consumer_min_heartbeat_interval_ms="10",
        group_consumer_heartbeat_interval_ms="10",
        group_consumer_min_session_timeout_ms="50",
        group_consumer_session_timeout_ms=str(session_ms),
        **configs,
    )


@pytest.fixture
async def begin(start: StartAgent) -> StartGroups:
    """Starts agents whose groups wait for nobody; the first also makes a topic t of three partitions."""

    async def one(name: str = "a", **more: str) -> Agent:
        agent = await start(name)
        if "t" not in agent.services.replica.state.topics:
            topic = CreateTopic(name="t", topic_id=b"T" * 16, partitions=3)
            await agent.services.replica.propose(topic)
            await settings(agent, group_initial_rebalance_delay_ms="0", **more)
        return agent

    return one


async def join(
    agent: Agent, group: str, member_id: str = "", instance: str | None = None
) -> jg.JoinGroupResponse:
    """JoinGroup until it is answered, by the way over MEMBER_ID_REQUIRED."""
    mine = [jg.JoinGroupRequestProtocol("range", subscription(["t"]))]
    request = jg.JoinGroupRequest(group, 10_000, 10_000, member_id, None, "consumer", mine)
    answer: jg.JoinGroupResponse = await agent.call("JoinGroup", request, 9)
    if answer.error_code == 79:
        return await join(agent, group, answer.member_id)
    return answer


async def sync(
    agent: Agent, group: str, joined: jg.JoinGroupResponse, shares: dict[str, bytes] | None = None
) -> sg.SyncGroupResponse:
    """SyncGroup, by the leader with shares."""
    given = [sg.SyncGroupRequestAssignment(name, part) for name, part in (shares or {}).items()]
    request = sg.SyncGroupRequest(
        group, joined.generation_id, joined.member_id, None, "consumer", "range", given
    )
    answer: sg.SyncGroupResponse = await agent.call("SyncGroup", request, 5)
    return answer
