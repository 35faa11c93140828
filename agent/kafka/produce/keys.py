"""Records of compacted topics must have keys. So their batches are opened, compressed ones too.

Code, message and shape of the answer are Kafka's (LogValidator.validateKey and processRecordErrors, 4.3).
"""

from __future__ import annotations

import asyncio
from itertools import islice

from agent.kafka.produce.admission import Rejected
from coordination.kafka_codes import Code
from objectstore.batch import CorruptBatch, records
from objectstore.opening import opened
from schema.validator import BAD_RECORDS_MAX

INLINE_BYTES_MAX = 16 * 1024  # batches up to this size are opened on the event loop
ERRORS_SHOWN_MAX = 3  # in the message; BAD_RECORDS_MAX are in the list of bad records


async def require_keys(batch: memoryview, topic: str, partition: int) -> None:
    """Raise Rejected when a record of the batch, already admitted, has no key or cannot be read."""
    try:
        bad, count = await opened(_keyless, batch, INLINE_BYTES_MAX)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None
    await asyncio.sleep(0)  # a request may have batches for thousands of partitions
    if bad:
        reason = f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"
        shown = ", ".join(
            f"RecordError(batchIndex={at}, message='{reason}')" for at in bad[:ERRORS_SHOWN_MAX]
        )
        raise Rejected(
            Code.INVALID_RECORD,
            f"One or more records have been rejected due to {count} record errors in total, and only "
            f"showing the first three errors at most: [{shown}]",
            tuple((at, reason) for at in bad),
        )


def _keyless(batch: memoryview, decoded_bytes_max: int) -> tuple[list[int], int]:
    """The first places in the batch of records without a key, and how many there are. Raises CorruptBatch."""
    keyless = (at for at, record in enumerate(records(batch, decoded_bytes_max)) if record.key is None)
    first = list(islice(keyless, BAD_RECORDS_MAX))
    return first, len(first) + sum(1 for _ in keyless)
