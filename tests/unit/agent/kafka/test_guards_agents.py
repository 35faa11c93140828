"""An ACL that is revoked through one agent stops connections of another as soon as that has applied it."""

from __future__ import annotations

from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import produce as pr
from coordination.commands import SetFeatureLevel
from coordination.kafka_codes import Code
from coordination.memory_server import MemoryServer
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.adapters.memory import MemoryStore
from tests.unit.agent.rig import Agent, batch, start_agent

ASKS = {"mode": "enforce", "super_users": "User:root"}


async def produced(agent: Agent) -> int:
    data = [pr.TopicProduceData("t", partition_data=[pr.PartitionProduceData(0, batch(b"v"))])]
    answer = await agent.call("Produce", pr.ProduceRequest(None, -1, 5000, data), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_revoked_here_refused_there() -> None:
    server, store = MemoryServer(), MemoryStore()
    here = await start_agent(server, store, "a", 1, authorizer=ASKS)
    there = await start_agent(server, store, "b", 2, authorizer=ASKS)
    try:
        here.client.principal, there.client.principal = "root", "alice"
        await here.services.replica.propose(SetFeatureLevel(level=FEATURE_LEVEL_MAX))
        await here.call("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("t", 1, 1)]), 7)
        await there.services.replica.barrier()
        for _ in range(3):
            assert await produced(there) == Code.TOPIC_AUTHORIZATION_FAILED
            rows = [ca.AclCreation(2, "t", 3, "User:alice", "*", 4, 3)]
            await here.call("CreateAcls", ca.CreateAclsRequest(rows), 3)
            await there.services.replica.barrier()
            assert await produced(there) == Code.NONE
            one = da.DeleteAclsFilter(2, "t", 3, None, None, 1, 1)
            await here.call("DeleteAcls", da.DeleteAclsRequest([one]), 3)
            await there.services.replica.barrier()
    finally:
        await there.stop()
        await here.stop()
