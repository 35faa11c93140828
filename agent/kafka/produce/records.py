"""Whether the records of an admitted batch can be read: a CRC only says that they are as they were sent.

A batch of garbage under a good CRC would be stored, acknowledged, and stop every consumer that comes to it.
How much is looked at, `floe.produce.check` says; docs/decisions/0011 says what it costs.
"""

from __future__ import annotations

from agent.kafka.produce.admission import CODEC_MASK, FULL, HEADERS, Rejected, TopicRules
from coordination.kafka_codes import Code
from objectstore.batch import NATIVE, BatchHeader, CorruptBatch, look_at_plain, look_through
from objectstore.opening import opened

INLINE_BYTES_MAX = (256 if NATIVE else 64) * 1024
"""Uncompressed batches up to this size are looked through on the event loop, …"""
INLINE_COMPRESSED_MAX = 8 * 1024
"""… and compressed ones; larger ones in a thread."""


def looked_at(batch: memoryview, header: BatchHeader, rules: TopicRules) -> bool:
    """Whether the records of an admitted batch were looked at here as far as the rules say, and are sound.

    Raises Rejected when they are not what its header says, or no records. If not, `require_records` does it.
    """
    compressed = header.attributes & CODEC_MASK
    if rules.check == HEADERS or (compressed and rules.check != FULL):
        return True
    if compressed or len(batch) > INLINE_BYTES_MAX:
        return False
    try:
        look_at_plain(batch, header.record_count)
    except CorruptBatch as error:
        raise _unreadable(error) from None
    return True


async def require_records(batch: memoryview, header: BatchHeader) -> None:
    """The same of those that are opened, in a thread where they are large. Raises Rejected."""
    try:
        await opened(look_through, batch, INLINE_COMPRESSED_MAX if header.attributes & CODEC_MASK else 0)
    except CorruptBatch as error:
        raise _unreadable(error) from None


def _unreadable(error: CorruptBatch) -> Rejected:
    # Not CORRUPT_MESSAGE: it tells producers to send the same again.
    return Rejected(Code.INVALID_RECORD, f"The batch's records cannot be read: {error}")
