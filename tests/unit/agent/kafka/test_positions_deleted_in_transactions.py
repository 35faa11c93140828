"""DeleteGroups and OffsetDelete of what a transaction holds: its positions of the group go too."""

from __future__ import annotations

import pytest

from agent.net.wire.generated.delete_groups import DeleteGroupsRequest
from agent.net.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.kafka.test_handlers_transactions import position
from tests.unit.agent.kafka.transactions_rig import V1, V2, Txn
from tests.unit.agent.rig import Agent


@pytest.mark.parametrize("versions", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("what", ["group", "position"])
async def test_what_is_deleted_while_a_transaction_holds_it_stays_deleted(
    agent: Agent, versions: dict[str, int], what: str
) -> None:
    """The answer was 0, and the commit of the transaction brought the position back."""
    await create(agent)
    producer = Txn(agent, versions=versions)
    await producer.init()
    assert await producer.add_group() == 0
    assert await producer.offsets(7) == 0
    if what == "group":
        answer = await agent.call("DeleteGroups", DeleteGroupsRequest(["g"]), 2)
        assert [row.error_code for row in answer.results] == [0]
    else:
        rows = [OffsetDeleteRequestPartition(0)]
        request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", rows)])
        deleted = await agent.call("OffsetDelete", request, 0)
        assert (deleted.error_code, deleted.topics[0].partitions[0].error_code) == (0, 0)
    assert await position(agent, stable=True) == (0, -1), "nothing waits any more"
    assert await producer.end(commit=True) == 0
    assert await position(agent, stable=True) == (0, -1)
    assert ("g" in agent.services.replica.state.groups) == (what == "position")
