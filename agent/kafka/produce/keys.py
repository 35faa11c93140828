"""Records of compacted topics must have keys. So their batches are opened, compressed ones too.

Code, message and shape of the answer are Kafka's (LogValidator.validateKey and processRecordErrors, 4.3), but
for the list of bad records, which is as long as the batch wants it to be there.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from agent.kafka.produce.admission import Rejected
from coordination.kafka_codes import Code
from objectstore.batch import CorruptBatch, peek, records

INLINE_BYTES_MAX = 16 * 1024  # uncompressed batches up to this size are opened on the event loop
ERRORS_SHOWN_MAX = 3  # in the message
BAD_RECORDS_MAX = 128  # named in the answer, as of those that do not fit their topic's schema


async def require_keys(batch: memoryview, topic: str, partition: int) -> None:
    """Raise Rejected when a record of the batch, already admitted, has no key or cannot be read."""
    if inline(batch):
        bad, total = _keyless(batch)
        await asyncio.sleep(0)  # a request may have batches for thousands of partitions
    else:
        bad, total = await asyncio.to_thread(_keyless, batch)
    if bad:
        reason = f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"
        shown = ", ".join(
            f"RecordError(batchIndex={at}, message='{reason}')" for at in bad[:ERRORS_SHOWN_MAX]
        )
        raise Rejected(
            Code.INVALID_RECORD,
            f"One or more records have been rejected due to {total} record errors in total, and only "
            f"showing the first three errors at most: [{shown}]",
            tuple((at, reason) for at in bad),
        )


def inline(batch: memoryview) -> bool:
    """Whether a batch is opened on the event loop. A compressed one says nothing of what it decodes to."""
    return len(batch) <= INLINE_BYTES_MAX and not peek(batch).compression


def _keyless(batch: memoryview) -> tuple[list[int], int]:
    """The places in the batch of the first records without a key, and how many there are in all."""
    try:
        bad = (at for at, record in enumerate(records(batch)) if record.key is None)
        first = list(islice(bad, BAD_RECORDS_MAX))
        return first, len(first) + sum(1 for _ in bad)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None
