"""Questions about records: Produce, Fetch, offsets, epochs, producer ids."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import offset_for_leader_epoch as oe
from agent.net.wire.generated import produce as p
from coordination.kafka_codes import Code
from objectstore.batch import HEADER_BYTES, NewRecord, build, peek, seal
from tests.compat.against.questions_admin import NOBODY
from tests.compat.against.side import NOW, Answers, Question, Side, code

BYTES_MAX = 1 << 20


def batch(times: tuple[int, ...] = (NOW,), **changes: int) -> bytes:
    """A sound batch with another header and a right CRC."""
    raw = build([NewRecord(at, b"k", b"v") for at in times])
    return seal(peek(raw)._replace(**changes), raw[HEADER_BYTES:]) if changes else raw


def flipped(position: int) -> bytes:
    """The sound batch with one bit changed."""
    raw = bytearray(batch())
    raw[position] ^= 1
    return bytes(raw)


async def send(
    side: Side, topic: str, raw: bytes | None, partition: int = 0, version: int = 9, acks: int = -1
) -> str:
    """The answer to one batch, as text."""
    records = None if raw is None else memoryview(raw)
    data = p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(partition, records)])
    answer = await side.ask("Produce", p.ProduceRequest(None, acks, 5_000, [data]), version)
    if answer is None:
        return "no answer"
    row = answer.responses[0].partition_responses[0]
    time, start = row.log_append_time_ms, row.log_start_offset
    return f"{code(row.error_code)} at {row.base_offset}, time {time}, start {start}"


def _batches() -> dict[str, bytes]:
    return {
        "wrong CRC": flipped(-1),
        "magic 3": flipped(16),
        "base offset": flipped(7),
        "empty": b"",
        "garbage": b"\x55" * 100,
        "two batches": batch() * 2,
        "cut short": batch()[:-3],
        "control batch": batch(attributes=0x20),
        "transactional": batch(attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
        "unknown codec": batch(attributes=7),
        "garbage in gzip": batch(attributes=1),
        "too many records": batch(record_count=9),
        "no records": batch(record_count=0, last_offset_delta=-1),
        "producer without sequence": batch(producer_id=7, producer_epoch=0),
        "far in the future": batch((4_102_444_800_000,)),
        "leader epoch": batch(partition_leader_epoch=5),
        "other maximum timestamp": batch(max_timestamp=NOW + 5),
        "oversized": build([NewRecord(NOW, b"k", b"v" * 5000)]),
    }


async def produce(side: Side) -> Answers:
    """Broken batches, each to a partition of its own; a sound one after it shows what was stored."""
    cases = _batches()
    topic = await side.topic("known", len(cases), max_message_bytes="2000", retention_ms="-1")
    found: Answers = {}
    for index, (name, raw) in enumerate(cases.items()):
        found[name] = await send(side, topic, raw, index)
        found[f"after {name}"] = await send(side, topic, batch(), index)
    found["unknown topic"] = await send(side, "not-there", batch())
    found["unknown partition"] = await send(side, topic, batch(), 99)
    found["negative partition"] = await send(side, topic, batch(), -1)
    found["acks 2"] = await send(side, topic, batch(), acks=2)
    found["zstd before version 7"] = await send(side, topic, batch(attributes=4), version=5)
    return found


def _bodies() -> dict[str, tuple[int, bytes]]:
    """What stands where records should stand, and how many the header says; two sound ones to begin with."""
    raw = build([NewRecord(NOW, b"k", b"v")] * 2)
    body = raw[HEADER_BYTES:]
    size = 1 + (body[0] >> 1)  # of one record: its length, a varint of one byte, and itself

    def changed(position: int, byte: int) -> bytes:
        return body[:position] + bytes([byte]) + body[position + 1 :]

    return {
        "sound": (2, body),
        "garbage": (2, b"\x55" * len(body)),
        "random": (2, random.Random(1).randbytes(len(body))),
        "nothing": (2, b""),
        "cut short": (2, body[:-1]),
        "a byte more": (2, body + b"\0"),
        "a record more": (1, body),
        "a record less": (3, body),
        "longer first": (2, changed(0, body[0] + 2)),
        "shorter first": (2, changed(0, body[0] - 2)),
        "negative length": (2, changed(0, 1)),
        "no length": (2, changed(0, 0)),
        "attributes": (2, changed(1, 1)),
        "an earlier time": (2, changed(2, 1)),
        "offsets 1, 1": (2, changed(3, 2)),
        "offsets 0, 0": (2, changed(size + 3, 0)),
        "offsets 0, -1": (2, changed(size + 3, 1)),
        "offsets 0, 5": (2, changed(size + 3, 10)),
        "null key": (2, changed(4, 1)),
        "key of -2": (2, changed(4, 3)),
        "long key": (2, changed(4, 0x7E)),
        "long value": (2, changed(6, 0x7E)),
        "negative headers": (2, changed(size - 1, 1)),
        "a header": (2, changed(size - 1, 2)),
        "an endless number": (2, b"\xff" * len(body)),
    }


async def records(side: Side) -> Answers:
    """Uncompressed records that are none, under a right CRC; a sound batch after each."""
    cases = _bodies()
    topic = await side.topic("records", len(cases), retention_ms="-1")
    head = peek(build([NewRecord(NOW, b"k", b"v")] * 2))
    found: Answers = {}
    for index, (name, (count, body)) in enumerate(cases.items()):
        header = head._replace(record_count=count, last_offset_delta=count - 1)
        found[name] = await send(side, topic, seal(header, body), index)
        found[f"after {name}"] = await send(side, topic, batch(), index)
    return found


async def sequences(side: Side) -> Answers:
    """The sequences of idempotent producers, each story on a partition of its own."""
    stories: dict[str, list[tuple[int, int]]] = {  # (epoch, sequence) of batches with two records
        "in order": [(0, 0), (0, 2), (0, 4)],
        "gap": [(0, 0), (0, 3), (0, 2)],
        "duplicate": [(0, 0), (0, 2), (0, 0), (0, 2)],
        "duplicate of the sixth last": [(0, n) for n in range(0, 12, 2)] + [(0, 0)],
        "overlap": [(0, 0), (0, 1)],
        "older epoch": [(3, 0), (2, 2), (2, 0)],
        "newer epoch from 0": [(3, 0), (4, 0), (4, 2)],
        "newer epoch from 2": [(3, 0), (4, 2)],
        "unknown producer from 6": [(0, 6), (0, 8)],
        "around the end of the numbers": [(0, 0x7FFFFFFE), (0, 0), (0, 0x7FFFFFFE)],
    }
    topic = await side.topic("known", len(stories), retention_ms="-1")
    found: Answers = {}
    for index, (name, steps) in enumerate(stories.items()):
        for step, (epoch, sequence) in enumerate(steps):
            raw = batch((NOW, NOW), producer_id=7000 + index, producer_epoch=epoch, base_sequence=sequence)
            found[f"{name}: {step}"] = await send(side, topic, raw, index)
    return found


async def _filled(side: Side) -> str:
    """Partition 0: ten records in batches of two, 10 ms apart, the fourth the newest; 1: none."""
    topic = await side.topic("filled", 2, retention_ms="-1")
    times = [NOW + 10 * n for n in (0, 1, 2, 9, 4, 5, 6, 7, 8, 3)]
    for pair in zip(times[::2], times[1::2], strict=True):
        await send(side, topic, batch(pair))
    return topic


async def list_offsets(side: Side) -> Answers:
    """Special timestamps, times, and what is not there."""
    topic = await _filled(side)
    cases: dict[str, tuple[str, int, int, int]] = {  # topic, partition, timestamp, version
        **{f"{where} {at}": (topic, index, at, 11) for index, where in enumerate(("filled", "empty"))
           for at in (-1, -2, -3, -4, -5, -6, -7, 0, NOW)},
        **{f"at +{ms}": (topic, 0, NOW + ms, 11) for ms in (-5, 5, 10, 25, 45, 85, 90, 91)},
        "-3 in version 6": (topic, 0, -3, 6),
        "-4 in version 7": (topic, 0, -4, 7),
        "-5 in version 8": (topic, 0, -5, 8),
        "unknown topic": ("not-there", 0, -1, 11),
        "unknown partition": (topic, 9, -1, 11),
        "negative partition": (topic, -1, -1, 11),
    }  # fmt: skip
    found: Answers = {}
    for name, (where, index, at, version) in cases.items():
        for isolation in (0, 1) if at == -1 else (0,):
            part = lo.ListOffsetsPartition(index, -1, at)
            found[f"{name} / {isolation}"] = await _offset(side, where, [part], version, isolation)
    for epoch in (0, 5):
        part = lo.ListOffsetsPartition(0, epoch, -1)
        found[f"leader epoch {epoch}"] = await _offset(side, topic, [part], 11, 0)
    found["named twice"] = await _offset(side, topic, [lo.ListOffsetsPartition(0, -1, -1)] * 2, 11, 0)
    return found


async def _offset(
    side: Side, topic: str, parts: list[lo.ListOffsetsPartition], version: int, isolation: int
) -> str:
    request = lo.ListOffsetsRequest(-1, isolation, [lo.ListOffsetsTopic(topic, parts)], 5_000)
    answer = await side.ask("ListOffsets", request, version)
    if answer is None:
        return "no answer"
    return "; ".join(
        f"{code(row.error_code)} offset {row.offset}, time {row.timestamp}, epoch {row.leader_epoch}"
        for row in answer.topics[0].partitions
    )


async def fetch(side: Side) -> Answers:
    """Offsets in and out of range, names and ids that are not there, epochs."""
    topic = await _filled(side)
    cases: dict[str, tuple[int, dict[str, int]]] = {  # partition, changes
        "from 0": (0, {}),
        "inside a batch": (0, {"fetch_offset": 3}),
        "at the end": (0, {"fetch_offset": 10}),
        "past the end": (0, {"fetch_offset": 11}),
        "far past the end": (0, {"fetch_offset": 1 << 40}),
        "before the start": (0, {"fetch_offset": -1}),
        "empty": (1, {}),
        "empty past the end": (1, {"fetch_offset": 1}),
        "1 byte": (0, {"partition_max_bytes": 1}),
        "0 bytes": (0, {"partition_max_bytes": 0}),
        "leader epoch 0": (0, {"current_leader_epoch": 0}),
        "later leader epoch": (0, {"current_leader_epoch": 7}),
        "last fetched epoch 0": (0, {"last_fetched_epoch": 0, "fetch_offset": 4}),
        "unknown partition": (9, {}),
    }
    found: Answers = {}
    for name, (index, changes) in cases.items():
        settings = {"fetch_offset": 0, "partition_max_bytes": BYTES_MAX, **changes}
        found[name] = await _fetched(
            side, f.FetchTopic(topic, partitions=[f.FetchPartition(index, **settings)])
        )
    part = f.FetchPartition(0, fetch_offset=0, partition_max_bytes=BYTES_MAX)
    found["unknown topic"] = await _fetched(side, f.FetchTopic("not-there", partitions=[part]))
    found["unknown id"] = await _fetched(side, f.FetchTopic(topic_id=NOBODY, partitions=[part]), version=17)
    found["unknown session"] = await _fetched(side, f.FetchTopic(topic, partitions=[part]), session=(77, 1))
    found["read committed"] = await _fetched(side, f.FetchTopic(topic, partitions=[part]), isolation=1)
    return found


async def _fetched(
    side: Side,
    topic: f.FetchTopic,
    *,
    version: int = 12,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
) -> str:
    request = f.FetchRequest(
        max_wait_ms=0,
        max_bytes=BYTES_MAX,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic],
    )
    answer = await side.ask("Fetch", request, version)
    if answer is None:
        return "no answer"
    if answer.error_code or not answer.responses:
        return f"{code(answer.error_code)} for all"
    return _partition(answer.responses[0].partitions[0])


def _partition(row: Any) -> str:
    raw = bytes(row.records or b"")
    first = peek(raw).base_offset if raw else None
    aborted = None if row.aborted_transactions is None else len(row.aborted_transactions)
    return (
        f"{code(row.error_code)} high {row.high_watermark}, stable {row.last_stable_offset}, "
        f"start {row.log_start_offset}, {len(raw)} bytes from {first}, aborted {aborted}"
    )


async def leader_epochs(side: Side) -> Answers:
    """Where epochs end."""
    topic = await _filled(side)
    cases = {
        "epoch 0": (topic, oe.OffsetForLeaderPartition(0, -1, 0)),
        "epoch 0 empty": (topic, oe.OffsetForLeaderPartition(1, -1, 0)),
        "epoch 5": (topic, oe.OffsetForLeaderPartition(0, -1, 5)),
        "epoch -1": (topic, oe.OffsetForLeaderPartition(0, -1, -1)),
        "current epoch 0": (topic, oe.OffsetForLeaderPartition(0, 0, 0)),
        "current epoch 5": (topic, oe.OffsetForLeaderPartition(0, 5, 0)),
        "unknown partition": (topic, oe.OffsetForLeaderPartition(9, -1, 0)),
        "unknown topic": ("not-there", oe.OffsetForLeaderPartition(0, -1, 0)),
    }
    found: Answers = {}
    for name, (where, part) in cases.items():
        request = oe.OffsetForLeaderEpochRequest(-1, [oe.OffsetForLeaderTopic(where, [part])])
        answer = await side.ask("OffsetForLeaderEpoch", request, 4)
        if answer is None:
            found[name] = "no answer"
            continue
        row = answer.topics[0].partitions[0]
        found[name] = f"{code(row.error_code)} epoch {row.leader_epoch}, end {row.end_offset}"
    return found


async def producer_ids(side: Side) -> Answers:
    """Ids for idempotent producers."""

    async def ask(*fields: Any) -> str:
        answer = await side.ask("InitProducerId", ip.InitProducerIdRequest(*fields), 4)
        while answer is not None and answer.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.1)
            answer = await side.ask("InitProducerId", ip.InitProducerIdRequest(*fields), 4)
        if answer is None:
            return "no answer"
        given = "an id" if answer.producer_id >= 0 else "no id"
        return f"{code(answer.error_code)}, {given}, epoch {answer.producer_epoch}"

    return {
        "fresh": await ask(None, 60_000),
        "with an own id": await ask(None, 60_000, 123_456_789, 3),
        "with an id and no epoch": await ask(None, 60_000, 123_456_789, -1),
        "with an epoch and no id": await ask(None, 60_000, -1, 3),
        "empty transactional id": await ask("", 60_000),
    }


async def describe_producers(side: Side) -> Answers:
    """What a partition remembers of its producers."""
    topic = await side.topic("known", retention_ms="-1")
    for sequence in (0, 1):
        await send(side, topic, batch(producer_id=7, producer_epoch=2, base_sequence=sequence))
    cases = {"known": (topic, 0), "unknown partition": (topic, 9), "unknown topic": ("not-there", 0)}
    found: Answers = {}
    for name, (where, index) in cases.items():
        request = dp.DescribeProducersRequest([dp.TopicRequest(where, [index])])
        answer = await side.ask("DescribeProducers", request, 0)
        row = answer.topics[0].partitions[0]
        found[name] = code(row.error_code) + "".join(
            f", producer {each.producer_id} epoch {each.producer_epoch} sequence {each.last_sequence} "
            f"open from {each.current_txn_start_offset}"
            for each in row.active_producers
        )
    return found


QUESTIONS: dict[str, Question] = {
    "Produce": produce,
    "Produce.records": records,
    "Produce.sequences": sequences,
    "ListOffsets": list_offsets,
    "Fetch": fetch,
    "OffsetForLeaderEpoch": leader_epochs,
    "InitProducerId": producer_ids,
    "DescribeProducers": describe_producers,
}
