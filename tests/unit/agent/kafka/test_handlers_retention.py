"""DeleteRecords, and keys in compacted topics, through the handlers of real agents."""

from __future__ import annotations

import pytest

from agent.kafka.context import Context
from agent.kafka.handlers import k21_delete_records
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import produce as p
from coordination.commands import MoveLogStart
from coordination.kafka_codes import Code
from coordination.state.types import Result
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from schema.validator import BAD_RECORDS_MAX
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.rig import Agent, batch


async def send(agent: Agent, name: str, raw: bytes, partition: int = 0) -> p.PartitionProduceResponse:
    """The answer to one batch."""
    data = p.TopicProduceData(name, partition_data=[p.PartitionProduceData(partition, memoryview(raw))])
    answer = await agent.call("Produce", p.ProduceRequest(None, -1, 5_000, [data]), 9)
    found: p.PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


async def delete(agent: Agent, name: str, **offsets: int) -> list[tuple[int, int]]:
    """(error, low watermark) per partition asked for (`p0=5`)."""
    parts = [dr.DeleteRecordsPartition(int(key[1:]), offset) for key, offset in offsets.items()]
    answer = await agent.call(
        "DeleteRecords", dr.DeleteRecordsRequest([dr.DeleteRecordsTopic(name, parts)], 5_000), 2
    )
    return [(row.error_code, row.low_watermark) for row in answer.topics[0].partitions]


async def test_deleted_records_are_gone_on_every_agent_once_answered(start: StartAgent) -> None:
    a, b = await start("a"), await start("b")
    await create(a, topic("t", 3))
    for partition in (0, 1):
        await send(a, "t", batch(b"1", b"2", b"3"), partition)
    found = await delete(b, "t", p0=2, p1=-1, p2=0, p7=0)
    assert found == [(0, 2), (0, 3), (0, 0), (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    await a.services.replica.barrier()
    starts = [partition.log_start for partition in a.services.replica.state.topics["t"].partitions]
    assert starts == [2, 3, 0]
    found = await delete(a, "t", p0=4, p1=1, p2=1)
    assert found == [(Code.OFFSET_OUT_OF_RANGE, -1), (0, 3), (Code.OFFSET_OUT_OF_RANGE, -1)]


async def test_many_partitions_move_in_portions(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command lets go of the rows of so many partitions at most: apply is short."""
    monkeypatch.setattr(k21_delete_records, "MOVES_MAX", 2)
    await create(agent, topic("t", 5))
    for partition in range(5):
        await send(agent, "t", batch(b"1", b"2"), partition)
    moved: list[int] = []
    propose_one = k21_delete_records.propose_one

    async def noted(ctx: Context, message: MoveLogStart, timeout_ms: int) -> Result:
        moved.append(len(message.partition))
        return await propose_one(ctx, message, timeout_ms)

    monkeypatch.setattr(k21_delete_records, "propose_one", noted)
    assert await delete(agent, "t", p0=1, p1=-1, p9=0, p2=0, p3=3, p4=2) == [
        (0, 1),
        (0, 2),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, 0),
        (Code.OFFSET_OUT_OF_RANGE, -1),
        (0, 2),
    ]
    assert moved == [2, 2]


async def test_one_bad_partition_does_not_hold_up_the_others(agent: Agent) -> None:
    await create(agent, topic("t"), topic("c", cleanup_policy="compact"))
    await send(agent, "t", batch(b"1"))
    topics = [dr.DeleteRecordsTopic(name, [dr.DeleteRecordsPartition(0, -1)]) for name in ("c", "gone", "t")]
    answer = await agent.call("DeleteRecords", dr.DeleteRecordsRequest(topics, 5_000), 0)
    found = [(t.name, t.partitions[0].error_code, t.partitions[0].low_watermark) for t in answer.topics]
    assert found == [
        ("c", Code.POLICY_VIOLATION, -1),
        ("gone", Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("t", 0, 1),
    ]


async def test_a_compacted_topic_takes_no_record_without_a_key(agent: Agent) -> None:
    await create(agent, topic("c", cleanup_policy="compact,delete"), topic("d"))
    small = build([NewRecord(1, b"k", b"v"), NewRecord(2, None, b"v")])
    large = build([NewRecord(1, b"k", b"v" * 40_000), NewRecord(2, None, b"v")])
    for raw in (small, large):
        answer = await send(agent, "c", raw)
        assert (answer.error_code, answer.base_offset) == (Code.INVALID_RECORD, -1)
        assert [each.batch_index for each in answer.record_errors] == [1]
        assert "without key in topic partition c-0" in str(answer.error_message)
        assert (await send(agent, "d", raw)).error_code == 0
    assert (await send(agent, "c", build([NewRecord(1, b"", None)]))).error_code == 0


async def test_of_very_many_records_that_are_wrong_the_first_are_named(agent: Agent) -> None:
    """A few kilobytes may hold millions of records: an answer that names each was gigabytes."""
    recent = topic("t", message_timestamp_before_max_ms="1000")
    await create(agent, topic("c", cleanup_policy="compact"), recent)
    raw = build([NewRecord(1, None, b"")] * 1_000, compression=Compression.ZSTD)
    answer = await send(agent, "c", raw)
    assert [each.batch_index for each in answer.record_errors] == list(range(BAD_RECORDS_MAX))
    assert "due to 1000 record errors in total" in str(answer.error_message)
    answer = await send(agent, "t", raw)
    assert answer.error_code == Code.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == list(range(BAD_RECORDS_MAX))
