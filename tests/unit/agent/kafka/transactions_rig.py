"""A transactional client over the rig of handlers: small steps, each a real request of a chosen version."""

from __future__ import annotations

from typing import Any

from agent.kafka.context import Client
from agent.net.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from agent.net.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from agent.net.wire.generated.end_txn import EndTxnRequest
from agent.net.wire.generated.init_producer_id import InitProducerIdRequest
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from agent.net.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.agent.rig import Agent, batch

V1 = {"produce": 11, "add": 3, "add_offsets": 3, "offsets": 3, "end": 4}
V2 = {"produce": 12, "add": 5, "add_offsets": 4, "offsets": 5, "end": 5}


class Txn:
    """One producer. `versions`: of the requests that it sends; pairs move as a client's would."""

    def __init__(self, agent: Agent, name: str = "x", versions: dict[str, int] | None = None) -> None:
        self.agent, self.name = agent, name
        self.versions = dict(versions or V2)
        self.pair = (-1, -1)
        self.sequences: dict[int, int] = {}
        self.client: Client | None = None

    async def call(self, api: str, request: Any, version: int) -> Any:
        """One request on this producer's connection."""
        return await self.agent.call(api, request, version, self.client)

    async def init(
        self, timeout_ms: int = 60_000, version: int = 4, given: tuple[int, int] = (-1, -1)
    ) -> int:
        """InitProducerId; its code."""
        request = InitProducerIdRequest(self.name, timeout_ms, *given)
        answer = await self.call("InitProducerId", request, version)
        if not answer.error_code:
            self.pair, self.sequences = (answer.producer_id, answer.producer_epoch), {}
        return int(answer.error_code)

    async def add(self, *indexes: int, topic: str = "t") -> list[int]:
        """AddPartitionsToTxn: a code per partition."""
        version, topics = self.versions["add"], [AddPartitionsToTxnTopic(topic, list(indexes))]
        if version < 4:
            request = AddPartitionsToTxnRequest([], self.name, *self.pair, topics)
            answer = await self.call("AddPartitionsToTxn", request, version)
            rows = answer.results_by_topic_v3_and_below
        else:
            one = AddPartitionsToTxnTransaction(self.name, *self.pair, False, topics)
            answer = await self.call("AddPartitionsToTxn", AddPartitionsToTxnRequest([one]), version)
            rows = answer.results_by_transaction[0].topic_results
        return [row.partition_error_code for row in rows[0].results_by_partition]

    async def add_group(self, group: str = "g") -> int:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(self.name, *self.pair, group)
        return int((await self.call("AddOffsetsToTxn", request, self.versions["add_offsets"])).error_code)

    async def send(self, *values: bytes, index: int = 0, topic: str = "t", pair: Any = None) -> Any:
        """Produce one batch of the transaction; the partition's answer."""
        producer_id, epoch = pair or self.pair
        sequence = self.sequences.get(index, 0)
        raw = batch(
            *values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(index, memoryview(raw))])
        request = ProduceRequest(self.name, -1, 10_000, [data])
        answer = await self.call("Produce", request, self.versions["produce"])
        row = answer.responses[0].partition_responses[0]
        if not row.error_code:
            self.sequences[index] = sequence + len(values)
        return row

    async def offsets(self, offset: int, index: int = 0, group: str = "g", **member: Any) -> int:
        """TxnOffsetCommit of one position; its code."""
        rows = [TxnOffsetCommitRequestPartition(index, offset)]
        request = TxnOffsetCommitRequest(
            self.name, group, *self.pair, topics=[TxnOffsetCommitRequestTopic("t", rows)], **member
        )
        answer = await self.call("TxnOffsetCommit", request, self.versions["offsets"])
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool, pair: tuple[int, int] | None = None) -> int:
        """EndTxn; its code. The pair that it answers with is taken over."""
        request = EndTxnRequest(self.name, *(pair or self.pair), commit)
        answer = await self.call("EndTxn", request, self.versions["end"])
        if not answer.error_code and self.versions["end"] >= 5:
            self.pair, self.sequences = (answer.producer_id, answer.producer_epoch), {}
        return int(answer.error_code)
