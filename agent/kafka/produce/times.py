"""Which records of a batch have times that their topic does not allow: producers are told the first of them.

Only a batch that its header refuses already is opened for it.
"""

from __future__ import annotations

from itertools import islice

from agent.kafka.produce.admission import TopicRules
from agent.kafka.produce.keys import INLINE_BYTES_MAX
from objectstore.batch import CorruptBatch, records
from objectstore.opening import opened
from schema.validator import BAD_RECORDS_MAX


async def bad_times(batch: memoryview, rules: TopicRules, now_ms: int) -> tuple[tuple[int, str], ...]:
    """(place in the batch, reason) of records too far before or after now; none when it cannot be read."""
    before, after = rules.timestamp_before_ms_max, rules.timestamp_after_ms_max
    allowed = f"from {now_ms - before} to {now_ms + after} are allowed"

    def find(batch: memoryview, decoded_bytes_max: int) -> tuple[tuple[int, str], ...]:
        bad = (
            (at, f"Timestamp {record.timestamp} is out of range: {allowed}.")
            for at, record in enumerate(records(batch, decoded_bytes_max))
            if record.timestamp - now_ms > after
            or (now_ms - record.timestamp > before and record.timestamp >= 0)
        )
        return tuple(islice(bad, BAD_RECORDS_MAX))

    try:
        return await opened(find, batch, INLINE_BYTES_MAX)
    except CorruptBatch:
        return ()
