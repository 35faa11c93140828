"""Questions about what goes and what stays: DeleteRecords, compacted topics, cleanup policies."""

from __future__ import annotations

from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import produce as p
from objectstore.batch import NewRecord, build
from tests.compat.against.questions_data import batch, send
from tests.compat.against.side import NOW, Answers, Question, Side, code

POLICIES = {"delete": "delete", "compact": "compact", "both": "compact,delete", "neither": ""}


async def _deleted(side: Side, topic: str, partition: int, offset: int, version: int = 2) -> str:
    part = dr.DeleteRecordsPartition(partition, offset)
    request = dr.DeleteRecordsRequest([dr.DeleteRecordsTopic(topic, [part])], 5_000)
    answer = await side.ask("DeleteRecords", request, version)
    if answer is None:
        return "no answer"
    row = answer.topics[0].partitions[0]
    return f"{code(row.error_code)}, low watermark {row.low_watermark}"


async def delete_records(side: Side) -> Answers:
    """One after the other on a partition of ten records in batches of two; then other policies."""
    topic = await side.topic("known", 2, retention_ms="-1")
    for _ in range(5):
        await send(side, topic, batch((NOW, NOW)))
    steps = {
        "first": 0,
        "inside a batch": 3,
        "lower": 2,
        "-2": -2,
        "beyond": 11,
        "the same": 3,
        "-1": -1,
        "at the end": 10,
    }
    found = {name: await _deleted(side, topic, 0, offset) for name, offset in steps.items()}
    found["produce after"] = await send(side, topic, batch())
    found["version 0"] = await _deleted(side, topic, 0, 11, version=0)
    found["empty, -1"] = await _deleted(side, topic, 1, -1)
    found["empty, 0"] = await _deleted(side, topic, 1, 0)
    found["unknown partition"] = await _deleted(side, topic, 9, 0)
    found["negative partition"] = await _deleted(side, topic, -1, 0)
    found["unknown topic"] = await _deleted(side, "not-there", 0, 0)
    for name, policy in POLICIES.items():
        other = await side.topic(name, cleanup_policy=policy, retention_ms="-1")
        await send(side, other, batch())
        found[f"policy {name}"] = await _deleted(side, other, 0, 1)
    return found


async def keyless(side: Side) -> Answers:
    """Records without keys to topics of every policy; one bad record refuses its batch."""
    batches = {
        "without key": build([NewRecord(NOW, None, b"v")]),
        "empty key": build([NewRecord(NOW, b"", b"v")]),
        "tombstone": build([NewRecord(NOW, b"k", None)]),
        "third without key": build([NewRecord(NOW, key, b"v") for key in (b"a", b"b", None, b"c", None)]),
    }
    found: Answers = {}
    for name, policy in POLICIES.items():
        topic = await side.topic(name, cleanup_policy=policy, retention_ms="-1")
        for kind, raw in batches.items():
            data = p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(0, memoryview(raw))])
            answer = await side.ask("Produce", p.ProduceRequest(None, -1, 5_000, [data]), 9)
            row = answer.responses[0].partition_responses[0]
            bad = [(each.batch_index, each.batch_index_error_message) for each in row.record_errors]
            told = f"{code(row.error_code)} at {row.base_offset}, {row.error_message}, {bad}"
            found[f"{name}, {kind}"] = told.replace(side.prefix, "")
    return found


QUESTIONS: dict[str, Question] = {"DeleteRecords": delete_records, "Produce.keyless": keyless}
