"""What the policy `quarantine` does with a batch: records that break rules leave it for the quarantine.

What is left keeps its offsets, its producer and its sequence (objectstore/parting.py), so its producer is
answered as if all of it were there. What left it is a batch of the quarantine's, stored with it or not at all
(CommitChunk.companion_of).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from agent.config import ProduceConfig
from agent.kafka.produce.admission import Rejected
from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.obeyed import too_many
from coordination.kafka_codes import Code
from coordination.state import quarantine
from coordination.state.quarantine_names import name_of
from coordination.state.state import State
from coordination.state.types import Partition, Schema, Topic
from objectstore.batch import BatchHeader, CorruptBatch, Record, peek
from objectstore.opening import opened
from objectstore.parting import part
from schema.quarantine import Origin, SetAside, Violation, batch_of
from schema.rules.ruled import Apart
from schema.validator import BAD_RECORDS_MAX

_T = TypeVar("_T")

Broken = Mapping[int, Sequence[Violation]]
"""By place in the batch, why records are not to be in their topic."""

INLINE_BYTES_MAX = 16 << 10
"""Uncompressed batches up to this size are parted, or made of what was taken out, on the event loop."""


def place_for(state: State, partition: Partition, broken: Broken, limits: ProduceConfig) -> Partition:
    """The partition of the quarantine for records of this one. Raises Rejected where there is none."""
    found = quarantine.of(state, partition.topic)
    if found is None:
        name = name_of(partition.topic.name)
        raise _rejected(
            broken,
            f"topic '{name}', which would keep them, does not exist or is not bound to {quarantine.RECORD}: "
            f"set floe.value.rules=quarantine of topic '{partition.topic.name}' again",
        )
    if len(broken) > limits.quarantine_records_max:
        raise _rejected(broken, too_many(limits.quarantine_records_max))
    return found.partitions[partition.index % len(found.partitions)]


async def without(batch: memoryview, broken: Broken) -> bytes:
    """The batch without these records. Raises Rejected."""
    return await _opened(batch, lambda batch, decoded_bytes_max: part(batch, broken, decoded_bytes_max)[0])


async def _opened(batch: memoryview, work: Callable[[memoryview, int], _T]) -> _T:
    try:
        return await opened(work, batch, INLINE_BYTES_MAX)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None


async def parted(
    batch: memoryview,
    header: BatchHeader,
    origin: Origin,
    broken: Broken,
    to: Partition,
    now_ms: int,
    bytes_max: int,
    known: Apart | None = None,
) -> tuple[bytes, Offered]:
    """The batch without these records, and its companion with them. Raises Rejected.

    `known`: records that may have been broken; most often it is these, and the batch was parted for them.
    """
    places = sorted(broken)

    def aside(taken: Sequence[Record]) -> bytes:
        told = [sorted(broken[at], key=attrgetter("role")) for at in places]
        return batch_of(origin, header, map(SetAside, places, taken, told), now_ms)

    def work(batch: memoryview, decoded_bytes_max: int) -> tuple[bytes, bytes]:
        left, taken = part(batch, places, decoded_bytes_max)
        return left, aside(taken)

    if known is None or known.left is None or known.places != places:
        left, companion = await _opened(batch, work)
    elif len(known.batch) <= INLINE_BYTES_MAX and not header.compression:
        left, companion = known.left, aside(known.records)
    else:
        left, companion = known.left, await asyncio.to_thread(aside, known.records)
    if len(companion) > bytes_max:
        raise _rejected(
            broken,
            f"in the quarantine they would be a batch of {len(companion)} bytes, {bytes_max} are the most "
            "(produce.quarantine_bytes_max): send smaller batches",
        )
    return left, Offered(to.handle, companion, peek(companion))


def origin_of(
    state: State, partition: Partition, policies: Mapping[str, str], client_id: str | None
) -> Origin:
    """Where records of the partition come from, and by what they are judged now."""
    topic = partition.topic
    policy = " ".join(f"{role}={policy}" for role, policy in sorted(policies.items()))
    return Origin(topic.name, partition.index, client_id or "", _schemas(state, topic), policy)


def _schemas(state: State, topic: Topic) -> dict[str, Schema]:
    ids = {"key": topic.key_schema_id, "value": topic.value_schema_id}
    return {role: state.schemas[number] for role, number in ids.items() if number is not None}


def _rejected(broken: Broken, why: str) -> Rejected:
    """The refusal of a batch whose bad records cannot be set aside, and why they cannot."""
    told = [(at, reason(broken[at])) for at in sorted(broken)[:BAD_RECORDS_MAX]]
    first = f"record {told[0][0]}: {told[0][1]}"
    return Rejected(
        Code.INVALID_RECORD, f"{len(broken)} records break rules, and {why}; {first}", tuple(told)
    )


def reason(violations: Sequence[Violation]) -> str:
    """What a producer reads of one record."""
    return "; ".join(each.text for each in violations[:1])
