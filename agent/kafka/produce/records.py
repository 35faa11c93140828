"""Whether the records of an admitted batch can be read: a CRC only says that they are as they were sent.

A batch of garbage under a good CRC would be stored, acknowledged, and stop every consumer that comes to it.
How much is looked at, `floe.produce.check` says; docs/decisions/0011 says what it costs.
"""

from __future__ import annotations

import asyncio

from agent.kafka.produce.admission import FULL, HEADERS, Rejected, TopicRules
from coordination.kafka_codes import Code
from objectstore.batch import BatchHeader, CorruptBatch, look_through
from objectstore.compression import Compression

INLINE_BYTES_MAX = 64 * 1024  # uncompressed batches up to this size are looked through on the event loop


async def require_records(batch: memoryview, header: BatchHeader, rules: TopicRules) -> None:
    """Raise Rejected when the records of an admitted batch are not what its header says, or no records."""
    compressed = header.compression is not Compression.NONE
    if rules.check == HEADERS or (compressed and rules.check != FULL):
        return
    try:
        if len(batch) <= INLINE_BYTES_MAX and not compressed:  # which may decode to any size
            look_through(batch)
        else:
            await asyncio.to_thread(look_through, batch)
    except CorruptBatch as error:
        # Not CORRUPT_MESSAGE: it tells producers to send the same again.
        raise Rejected(Code.INVALID_RECORD, f"The batch's records cannot be read: {error}") from None
