"""An agent that asks ACLs, an administrator, and users as connections of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agent.kafka.context import Client
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import offset_commit as oc
from coordination.commands import SetFeatureLevel
from coordination.kafka_codes import Code
from coordination.memory_server import MemoryServer
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.adapters.memory import MemoryStore
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.rig import Agent, start_agent

TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)


@dataclass
class Guarded:
    """`root` may everything; `alice` what tests allow her; topics `seen` and `hidden` are there."""

    agent: Agent
    root: Client
    alice: Client

    async def ask(self, name: str, request: Any, version: int) -> Any:
        """As Alice."""
        return await self.agent.call(name, request, version, self.alice)

    async def allow(
        self,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        pattern: PatternType = PatternType.LITERAL,
        permission: Permission = Permission.ALLOW,
        who: str = "User:alice",
        host: str = "*",
    ) -> None:
        """By the administrator, with Kafka's request."""
        creation = ca.AclCreation(resource, name, pattern, who, host, operation, permission)
        answer = await self.agent.call("CreateAcls", ca.CreateAclsRequest([creation]), 3, self.root)
        assert [row.error_code for row in answer.results] == [0], answer

    async def revoke(self, name: str) -> int:
        """All ACLs on a name; how many there were."""
        one = da.DeleteAclsFilter(1, name, 1, None, None, 1, 1)
        answer = await self.agent.call("DeleteAcls", da.DeleteAclsRequest([one]), 3, self.root)
        assert answer.filter_results[0].error_code == Code.NONE
        return len(answer.filter_results[0].matching_acls)


@asynccontextmanager
async def guarded(mode: str = "enforce", **settings: Any) -> AsyncIterator[Guarded]:
    """The agent with both topics."""
    authorizer = {"mode": mode, "super_users": "User:root", **settings}
    agent = await start_agent(MemoryServer(), MemoryStore(), authorizer=authorizer)
    try:
        await agent.services.replica.propose(SetFeatureLevel(level=FEATURE_LEVEL_MAX))
        root, alice = agent.connect(), agent.connect()
        root.principal, alice.principal = "root", "alice"
        root.host = alice.host = "10.1.2.3"
        agent.client = root
        await create(agent, topic("seen", 2), topic("hidden", 1))
        row = oc.OffsetCommitRequestTopic("seen", partitions=[oc.OffsetCommitRequestPartition(0, 0)])
        await agent.call("OffsetCommit", oc.OffsetCommitRequest("g", -1, "", topics=[row]), 8)
        yield Guarded(agent, root, alice)
    finally:
        await agent.stop()
