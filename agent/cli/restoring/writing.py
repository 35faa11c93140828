"""Writes records into a partition of the new topic, one batch after the other, each at the offset expected.

One request is under way at a time, and nothing is sent again: whoever runs the command once more finds by the
partition's end what is there, and goes on behind it.
"""

from __future__ import annotations

from typing import Final

from agent.cli.failures import Failure, Status, refused
from agent.cli.session import Session, check_code
from agent.cli.writing import ACKS_ALL, NAMES_UNTIL, TIMEOUT_MS
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from objectstore.batch import NewRecord, Record, build
from objectstore.compression import Compression

BATCH_BYTES: Final = 1_000_000
"""Of keys, values and headers, before compression; a record that is larger has a batch of its own."""
RANGES_MAX: Final = 1_000
"""Of one partition that the report tells; further ones are counted."""
_RECORD_BYTES: Final = 16
"""About, of a record beside what is in it."""


class Ranges:
    """Which offsets became which: runs of records that are as far apart as before."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.more = 0

    def add(self, old: int, new: int) -> None:
        """The next record: its offset in the source, and in the new topic."""
        last = self.rows[-1] if self.rows else None
        if last is not None and not self.more and (old - new) == last[0] - last[2] and old == last[1]:
            last[1] = old + 1
        elif len(self.rows) < RANGES_MAX:
            self.rows.append([old, old + 1, new])
        else:
            self.more += 1


class Writer:
    """Of one partition. `there`: records that it has already, which are not written again."""

    def __init__(self, kafka: Session, topic: str, partition: int, there: int) -> None:
        self._kafka, self._topic, self._partition = kafka, topic, partition
        self._there, self._next = there, there
        self._seen = 0
        self._waiting: list[NewRecord] = []
        self._bytes = 0
        self._codec = Compression.NONE

    async def add(self, one: Record, codec: Compression) -> None:
        """The next record of the source. Raises Failure."""
        self._seen += 1
        if self._seen <= self._there:
            return
        size = _size(one)
        first = self._waiting[0] if self._waiting else None
        if first is not None and (
            self._bytes + size > BATCH_BYTES
            or codec is not self._codec
            or (first.timestamp < 0) is not (one.timestamp < 0)
        ):
            await self.flush()
        self._codec = codec
        self._waiting.append(NewRecord(one.timestamp, one.key, one.value, one.headers))
        self._bytes += size

    async def flush(self) -> None:
        """Write what waits. Raises Failure."""
        if not self._waiting:
            return
        data = PartitionProduceData(
            self._partition, memoryview(build(self._waiting, compression=self._codec))
        )
        topic = TopicProduceData(name=self._topic, partition_data=[data])
        request = ProduceRequest(None, ACKS_ALL, TIMEOUT_MS, [topic])
        answer = await self._kafka.call("Produce", request, version_max=NAMES_UNTIL)
        row = answer.responses[0].partition_responses[0]
        where = f"{self._topic}-{self._partition}"
        check_code(row.error_code, row.error_message, f"{len(self._waiting)} records not written to {where}")
        if row.base_offset != self._next:
            raise Failure(
                Status.FAILED,
                f"{where}: a batch came to offset {row.base_offset} instead of {self._next}: somebody "
                "else writes there; delete the topic and restore it anew",
            )
        self._next += len(self._waiting)
        self._waiting, self._bytes = [], 0

    def require_not_beyond(self) -> None:
        """Raises Failure where the partition has more than the source."""
        if self._there > self._seen:
            where = f"{self._topic}-{self._partition}"
            raise refused(
                f"{where} has {self._there} records, the source {self._seen}: somebody else wrote there; "
                "delete the topic and restore it anew"
            )


def _size(one: Record) -> int:
    headers = sum([len(name) + len(content or b"") for name, content in one.headers])
    return len(one.key or b"") + len(one.value or b"") + headers + _RECORD_BYTES
