"""Which offsets of a topic hold no record for readers of committed data, and why that is right.

A second reading, of batches' headers: markers, records of aborted transactions, batches without records, and
what is gone between batches where an aborted transaction explains it. Of a batch that has fewer records than
offsets, whose others were set aside in the topic's quarantine, also of its records. Everything else that a
consumer does not get is a gap, and the audit says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.cli.failures import refused
from agent.cli.requests import READ_COMMITTED, Bounds
from agent.cli.session import Session, check_code
from agent.net.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from objectstore.batch import BatchHeader, CorruptBatch, peek, records, split
from objectstore.offset_ranges import joined

FETCH_BYTES = 4 << 20
FETCH_VERSION_MAX = 12  # topics by name
WAIT_MS = 500
PATIENCE = 60  # answers in a row without a batch
ABORT = b"\0\0"  # type of the marker, in its key behind the version

Range = tuple[int, int]


@dataclass
class Walk:
    """One partition's batches from offset `due` on. `ranges`: offsets without a record, in order."""

    due: int
    ranges: list[Range] = field(default_factory=list)
    _gaps: list[Range] = field(default_factory=list)  # that no marker has explained yet
    _seen: dict[int, int] = field(default_factory=dict)  # producer → offset of its newest batch

    def answer(self, raw: memoryview, aborted: Sequence[tuple[int, int]]) -> None:
        """The batches of one fetch, with (first offset, producer) of its aborted transactions."""
        coming, out = sorted(aborted), set[int]()
        for position, size in split(raw) if raw else ():
            header = peek(raw, position)
            if header.last_offset < self.due:
                continue
            while coming and coming[0][0] <= header.last_offset:
                out.add(coming.pop(0)[1])
            if header.base_offset > self.due:
                self._gaps.append((self.due, header.base_offset))
            aborts = header.control and _aborts(raw[position : position + size])
            hidden = header.transactional and header.producer_id in out
            if header.control or hidden or not header.record_count:
                self.ranges.append((max(self.due, header.base_offset), header.last_offset + 1))
            elif header.record_count <= header.last_offset_delta:
                self.ranges += self._inside(raw[position : position + size], header)
            if aborts:
                out.discard(header.producer_id)
                self._explain(header)
            if header.transactional:
                self._seen[header.producer_id] = header.base_offset
            self.due = header.last_offset + 1

    def _inside(self, batch: memoryview, header: BatchHeader) -> Iterator[Range]:
        """The offsets of a batch that have no record; none are known of one that nobody can open."""
        due = max(self.due, header.base_offset)
        try:
            there = [each.offset for each in records(batch)]
        except CorruptBatch:
            return
        for offset in there:
            if offset > due:
                yield due, offset
            due = max(due, offset + 1)
        if due <= header.last_offset:
            yield due, header.last_offset + 1

    def _explain(self, marker: BatchHeader) -> None:
        """An abort's records may have been wherever its producer has written nothing since."""
        last = self._seen.get(marker.producer_id, -1)
        self.ranges += [gap for gap in self._gaps if gap[0] > last]
        self._gaps = [gap for gap in self._gaps if gap[0] <= last]


async def holes(session: Session, topic: str, bounds: Sequence[Bounds]) -> Mapping[int, list[Range]]:
    """Per partition the offsets without a record, side by side ones joined. Raises Failure."""
    return {each.partition: await _partition(session, topic, each) for each in bounds}


async def _partition(session: Session, topic: str, bound: Bounds) -> list[Range]:
    walk, silent = Walk(bound.start), 0
    while walk.due < bound.end:
        before, found = walk.due, await fetch(session, topic, bound.partition, walk.due)
        raw = found.records or b""
        aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions or ()]
        await asyncio.to_thread(walk.answer, memoryview(bytes(raw)), aborted)  # type: ignore[arg-type]  # one buffer, as decoded
        silent = silent + 1 if walk.due == before else 0
        if silent > PATIENCE:
            raise refused(f"{topic}-{bound.partition}: no batch comes at offset {walk.due}")
    return joined(walk.ranges)


async def fetch(
    session: Session,
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = WAIT_MS,
    bytes_max: int = FETCH_BYTES,
) -> PartitionData:
    """What an agent has there of committed records, one batch at least. Raises Failure."""
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic, partitions=[wanted])],
    )
    answer = await session.call("Fetch", request, version_max=FETCH_VERSION_MAX)
    found: PartitionData = answer.responses[0].partitions[0]
    check_code(found.error_code, None, f"{topic}-{partition} cannot be read at {offset}")
    return found


def _aborts(marker: memoryview) -> bool:
    (record,) = records(marker)
    return record.key is not None and record.key[2:4] == ABORT
