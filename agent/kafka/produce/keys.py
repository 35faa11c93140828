"""Records of compacted topics must have keys. So their batches are opened, compressed ones too.

Code, message and shape of the answer are Kafka's (LogValidator.validateKey and processRecordErrors, 4.3).
"""

from __future__ import annotations

import asyncio

from agent.kafka.produce.admission import Rejected
from coordination.kafka_codes import Code
from objectstore.batch import CorruptBatch, records

INLINE_BYTES_MAX = 16 * 1024  # batches up to this size are opened on the event loop
ERRORS_SHOWN_MAX = 3  # in the message; all are in the list of bad records


async def require_keys(batch: memoryview, topic: str, partition: int) -> None:
    """Raise Rejected when a record of the batch, already admitted, has no key or cannot be read."""
    if len(batch) <= INLINE_BYTES_MAX:
        bad = _keyless(batch)
    else:
        bad = await asyncio.to_thread(_keyless, batch)
    if bad:
        reason = f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"
        shown = ", ".join(
            f"RecordError(batchIndex={at}, message='{reason}')" for at in bad[:ERRORS_SHOWN_MAX]
        )
        raise Rejected(
            Code.INVALID_RECORD,
            f"One or more records have been rejected due to {len(bad)} record errors in total, and only "
            f"showing the first three errors at most: [{shown}]",
            tuple((at, reason) for at in bad),
        )


def _keyless(batch: memoryview) -> list[int]:
    """The places in the batch of records without a key."""
    try:
        return [at for at, record in enumerate(records(batch)) if record.key is None]
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None
