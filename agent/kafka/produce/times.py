"""Which records of a batch have times that their topic does not allow: producers are told the first of them.

Only a batch that its header refuses already is opened for it.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from agent.kafka.produce.admission import TopicRules
from agent.kafka.produce.keys import BAD_RECORDS_MAX, inline
from objectstore.batch import CorruptBatch, records


async def bad_times(batch: memoryview, rules: TopicRules, now_ms: int) -> tuple[tuple[int, str], ...]:
    """(place in the batch, reason) of records too far before or after now; none when it cannot be read."""
    if inline(batch):
        return _bad_times(batch, rules, now_ms)
    return await asyncio.to_thread(_bad_times, batch, rules, now_ms)


def _bad_times(batch: memoryview, rules: TopicRules, now_ms: int) -> tuple[tuple[int, str], ...]:
    before, after = rules.timestamp_before_ms_max, rules.timestamp_after_ms_max
    allowed = f"from {now_ms - before} to {now_ms + after} are allowed"
    try:
        bad = (
            (at, f"Timestamp {record.timestamp} is out of range: {allowed}.")
            for at, record in enumerate(records(batch))
            if record.timestamp - now_ms > after
            or (now_ms - record.timestamp > before and record.timestamp >= 0)
        )
        return tuple(islice(bad, BAD_RECORDS_MAX))
    except CorruptBatch:
        return ()
