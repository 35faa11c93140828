"""Whether the records of an admitted batch can be read: a CRC only says that they are as they were sent.

A batch of garbage under a good CRC would be stored, acknowledged, and stop every consumer that comes to it.
How much is looked at, `floe.produce.check` says; docs/decisions/0011 says what it costs.
"""

from __future__ import annotations

from agent.kafka.produce.admission import FULL, HEADERS, Rejected, TopicRules
from coordination.kafka_codes import Code
from objectstore.batch import NATIVE, BatchHeader, CorruptBatch, look_at_plain, look_through
from objectstore.compression import Compression
from objectstore.opening import opened

INLINE_BYTES_MAX = (256 if NATIVE else 64) * 1024
"""Uncompressed batches up to this size are looked through on the event loop, …"""
INLINE_COMPRESSED_MAX = 8 * 1024
"""… and compressed ones; larger ones in a thread."""


async def require_records(batch: memoryview, header: BatchHeader, rules: TopicRules) -> None:
    """Raise Rejected when the records of an admitted batch are not what its header says, or no records."""
    compressed = header.compression is not Compression.NONE
    if rules.check == HEADERS or (compressed and rules.check != FULL):
        return
    try:
        if not compressed and len(batch) <= INLINE_BYTES_MAX:
            look_at_plain(batch, header.record_count)
        else:
            await opened(look_through, batch, INLINE_COMPRESSED_MAX if compressed else 0)
    except CorruptBatch as error:
        # Not CORRUPT_MESSAGE: it tells producers to send the same again.
        raise Rejected(Code.INVALID_RECORD, f"The batch's records cannot be read: {error}") from None
