"""Transactions as administrators and other brokers ask for them: described, listed, verified, aborted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message

from agent.net.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from agent.net.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from agent.net.wire.generated.describe_transactions import DescribeTransactionsRequest
from agent.net.wire.generated.find_coordinator import FindCoordinatorRequest
from agent.net.wire.generated.list_transactions import ListTransactionsRequest
from agent.net.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from coordination.kafka_codes import Code
from coordination.state.types import Refused
from tests.unit.agent.background.merging_rig import partition_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce
from tests.unit.agent.kafka.test_handlers_transactions import COMMITTED, shown
from tests.unit.agent.kafka.transactions_rig import Txn
from tests.unit.agent.rig import Agent, batch


async def test_what_administrators_see(agent: Agent) -> None:
    await create(agent)
    producer, idle = Txn(agent), Txn(agent, "idle")
    await producer.init()
    await idle.init()
    await produce(agent, batch(b"plain"))
    await producer.send(b"a")
    request = DescribeTransactionsRequest(["x", "idle", "nope", "", "x"])
    rows = (await agent.call("DescribeTransactions", request, 0)).transaction_states
    assert [row.error_code for row in rows] == [0, 0, Code.TRANSACTIONAL_ID_NOT_FOUND, Code.INVALID_REQUEST]
    assert [row.transaction_state for row in rows[:2]] == ["Ongoing", "Empty"]
    assert (rows[0].topics[0].topic, rows[0].topics[0].partitions, rows[0].producer_id) == ("t", [0], 0)
    assert rows[0].transaction_start_time_ms > 0 > rows[1].transaction_start_time_ms
    described = DescribeProducersRequest([TopicRequest("t", [0])])
    (row,) = (await agent.call("DescribeProducers", described, 0)).topics[0].partitions[0].active_producers
    assert (row.producer_id, row.current_txn_start_offset, row.coordinator_epoch) == (0, 1, 0)

    async def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = await agent.call("ListTransactions", ListTransactionsRequest(**filters), version)
        return [each.transactional_id for each in answer.transaction_states]

    assert await listed() == ["x", "idle"]
    assert await listed(state_filters=["Ongoing"]) == ["x"]
    assert await listed(producer_id_filters=[1]) == ["idle"]
    assert await listed(duration_filter=0) in ([], ["x"])
    assert await listed(duration_filter=1 << 40) == []
    assert await listed(transactional_id_pattern="i.*") == ["idle"]
    bad = ListTransactionsRequest(state_filters=["Strange"], transactional_id_pattern="")
    assert (await agent.call("ListTransactions", bad, 2)).unknown_state_filters == ["Strange"]
    broken = ListTransactionsRequest(transactional_id_pattern="(")
    assert (await agent.call("ListTransactions", broken, 2)).error_code == Code.INVALID_REGULAR_EXPRESSION
    found = await agent.call("FindCoordinator", FindCoordinatorRequest("", 1, ["x"]), 4)
    assert (found.coordinators[0].error_code, found.coordinators[0].node_id) == (0, 1)


async def test_many_ids_are_listed_in_steps(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and the agent's other work has its turn between two steps."""
    names = [f"id-{number}" for number in range(7)]
    for name in names:
        await Txn(agent, name).init()

    async def turns_while_listed(step: int) -> int:
        monkeypatch.setattr("agent.kafka.handlers.k66_list_transactions.LOOKS_PER_STEP", step)
        listing = asyncio.ensure_future(agent.call("ListTransactions", ListTransactionsRequest(), 2))
        turns = 0
        while not listing.done():
            turns += 1
            await asyncio.sleep(0)
        assert [each.transactional_id for each in listing.result().transaction_states] == names
        return turns

    assert await turns_while_listed(2) - await turns_while_listed(1_000) == 3, "four steps instead of one"


async def test_an_operator_aborts_the_whole_transaction(agent: Agent) -> None:
    """kafka-transactions.sh abort; Kafka would tear it."""
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"a")
    await producer.send(b"b", index=1)

    async def marked(index: int, *, commit: bool = False, epoch: int = 0) -> int:
        topics = [WritableTxnMarkerTopic("t", [index])]
        request = WriteTxnMarkersRequest([WritableTxnMarker(0, epoch, commit, topics, 0)])
        answer = await agent.call("WriteTxnMarkers", request, 1)
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert await marked(0, commit=True) == Code.INVALID_TXN_STATE
    assert await marked(7) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await marked(0, epoch=-1) == Code.INVALID_PRODUCER_EPOCH
    assert await marked(0) == 0
    assert [partition_of(agent, index=i).last_stable for i in (0, 1)] == [2, 2]
    assert shown(await fetch(agent, 0, index=1, **COMMITTED)) == []
    assert await marked(1) == 0, "there is nothing to do any more"


async def test_an_abort_of_many_partitions_is_one_entry_and_lets_others_run(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is refused: to ask for each partition again would take seconds."""
    await create(agent)
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"a")
    await producer.send(b"b", index=1)
    proposed: list[Message] = []

    async def refuse(_: Any, message: Message) -> Refused:
        proposed.append(message)
        return Refused(Code.COORDINATOR_NOT_AVAILABLE, "not now")

    async def marked(step: int) -> tuple[int, list[int]]:
        """How often others had their turn, and the codes."""
        monkeypatch.setattr("agent.kafka.handlers.k27_write_txn_markers.LOOKS_PER_STEP", step)
        topics = [WritableTxnMarkerTopic("t", [0, 1, *range(2, 100)])]
        request = WriteTxnMarkersRequest([WritableTxnMarker(producer.pair[0], 0, False, topics, 0)])
        asking = asyncio.ensure_future(agent.call("WriteTxnMarkers", request, 1))
        turns = 0
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        rows = asking.result().markers[0].topics[0].partitions
        return turns, [each.error_code for each in rows]

    monkeypatch.setattr("agent.kafka.handlers.k27_write_txn_markers.decide", refuse)
    none = [Code.UNKNOWN_TOPIC_OR_PARTITION] * 98
    in_one, codes = await marked(1_000)
    assert codes == [Code.COORDINATOR_NOT_AVAILABLE] * 2 + none
    assert len(proposed) == 1
    in_four, _ = await marked(25)
    assert in_four - in_one == 4
    monkeypatch.undo()
    assert (await marked(1_000))[1] == [0, 0, *none]
    assert [partition_of(agent, index=i).last_stable for i in (0, 1)] == [2, 2]


async def test_partitions_of_several_transactions_in_one_request(agent: Agent) -> None:
    """From version 4 on; and verify_only, as brokers ask each other."""
    await create(agent)
    one, two = Txn(agent, "one"), Txn(agent, "two")
    await one.init()
    await two.init()

    def asked(
        producer: Txn, index: int, topic: str = "t", *, verify: bool = False
    ) -> AddPartitionsToTxnTransaction:
        topics = [AddPartitionsToTxnTopic(topic, [index])]
        return AddPartitionsToTxnTransaction(producer.name, *producer.pair, verify, topics)

    async def codes(*transactions: AddPartitionsToTxnTransaction, version: int = 5) -> list[int]:
        answer = await agent.call(
            "AddPartitionsToTxn", AddPartitionsToTxnRequest(list(transactions)), version
        )
        return [
            each.topic_results[0].results_by_partition[0].partition_error_code
            for each in answer.results_by_transaction
        ]

    assert await codes(asked(one, 0), asked(two, 9), asked(two, 0, "nope"), asked(two, 1)) == [
        0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_OR_PARTITION, 0,
    ]  # fmt: skip
    assert await codes(asked(one, 0, verify=True), asked(one, 1, verify=True)) == [
        0, Code.TRANSACTION_ABORTABLE,
    ]  # fmt: skip
    assert await codes(asked(one, 1, verify=True), version=4) == [Code.TRANSACTION_ABORTABLE]
    one.name = ""
    assert await codes(asked(one, 0)) == [Code.INVALID_REQUEST]
    one.name = "nobody"
    assert await codes(asked(one, 0), asked(one, 0, verify=True)) == [Code.INVALID_PRODUCER_ID_MAPPING] * 2
