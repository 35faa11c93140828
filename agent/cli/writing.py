"""Writing records for `floe produce`: one Produce request at a time, refusals told line by line.

Not idempotent and not retried: when the connection breaks during a request, the command says so and its
records may or may not be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aiokafka.partitioner import murmur2

from agent.cli.failures import Failure, Status, refused
from agent.cli.session import Session, check_code
from agent.net.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from coordination.clock import SystemClock
from objectstore.batch import NewRecord, build

ACKS_ALL = -1
TIMEOUT_MS = 25_000
REQUEST_BYTES_MAX = 512_000
"""Of keys, values and headers in one request: a partition takes batches up to a MiB by default."""
RECORD_BYTES = 32
"""What a record and its headers' lengths take besides, about."""
NAMES_UNTIL = 12
"""The last Produce version that names topics; later ones use ids."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record to write and where it stood in the input (from 1)."""

    number: int
    key: bytes | None
    value: bytes


@dataclass(slots=True)
class Written:
    """How many records, and by partition the first and last offset."""

    count: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, partition: int, first: int, count: int) -> None:
        """So many more, from this offset on."""
        self.count += count
        self.offsets[partition] = (self.offsets.get(partition, (first, first))[0], first + count - 1)


def portions(lines: Sequence[Line], headers: Sequence[tuple[str, bytes]]) -> Iterator[Sequence[Line]]:
    """Lines for one request after the other; one that is longer than a request may be goes alone."""
    more = RECORD_BYTES + sum(len(name.encode()) + len(value) for name, value in headers)
    portion, size = list[Line](), 0
    for line in lines:
        own = len(line.key or b"") + len(line.value) + more
        if portion and size + own > REQUEST_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += own
    if portion:
        yield portion


async def write(
    kafka: Session,
    topic: str,
    partitions: int,
    lines: Sequence[Line],
    written: Written,
    *,
    headers: Sequence[tuple[str, bytes]] = (),
    partition: int = -1,
) -> None:
    """Write lines with one request, and count what is there. Raises Failure naming the first line refused."""
    if partition >= partitions:
        raise refused(f"topic {topic!r} has the partitions 0 to {partitions - 1}")
    now_ms = SystemClock().now_ms()
    placed: dict[int, list[Line]] = {}
    for line in lines:
        where = partition if partition >= 0 else place(line, partitions)
        placed.setdefault(where, []).append(line)
    data = [
        PartitionProduceData(where, memoryview(_batch(group, now_ms, headers)))
        for where, group in placed.items()
    ]
    request = ProduceRequest(None, ACKS_ALL, TIMEOUT_MS, [TopicProduceData(name=topic, partition_data=data)])
    try:
        answer = await kafka.call("Produce", request, version_max=NAMES_UNTIL)
    except Failure as failure:
        if failure.status is Status.UNREACHABLE:
            numbers = f"{lines[0].number} to {lines[-1].number}"
            raise Failure(failure.status, f"{failure}; records {numbers} may or may not be written") from None
        raise
    refused_rows = []
    for row in answer.responses[0].partition_responses:
        group = placed[row.index]
        if row.error_code:
            refused_rows.append(row)
        else:
            written.add(row.index, row.base_offset, len(group))
    if refused_rows:
        _refuse(
            refused_rows[0], placed[refused_rows[0].index], sum(len(placed[r.index]) for r in refused_rows)
        )


def place(line: Line, partitions: int) -> int:
    """The partition: by key as Kafka's own clients do (murmur2), else in turn."""
    if line.key is None:
        return line.number % partitions
    return int(murmur2(line.key) & 0x7FFFFFFF) % partitions


def _batch(lines: Sequence[Line], now_ms: int, headers: Sequence[tuple[str, bytes]]) -> bytes:
    return build(NewRecord(now_ms, line.key, line.value, tuple(headers)) for line in lines)


def _refuse(row: PartitionProduceResponse, group: Sequence[Line], count: int) -> None:
    """Raise the Failure of a refused partition. `count`: how many are refused with it, of all."""
    what = f"{count} record{'s' if count != 1 else ''} not written"
    if row.record_errors:
        first = row.record_errors[0]
        number = group[first.batch_index].number
        check_code(
            row.error_code, f"record {number}: {first.batch_index_error_message or row.error_message}", what
        )
    check_code(row.error_code, row.error_message, what)
