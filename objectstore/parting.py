"""Takes records out of a batch as log compaction does: what is left keeps its offsets, the others are holes.

Base offset, last offset delta, producer and base sequence stay, so a producer is answered as if all of it
were there. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from objectstore.batch import (
    BROKEN_RECORDS,
    NO_TIMESTAMP,
    Buffer,
    CorruptBatch,
    Record,
    peek,
    seal,
)
from objectstore.compact import rebuilt
from objectstore.offset_map import opened

_CODEC_MASK = 0x07


def part(batch: Buffer, places: Collection[int], decoded_bytes_max: int) -> tuple[bytes, list[Record]]:
    """The batch without the records at these places (from 0, all of them there), and these records in order.

    A batch of which nothing is left has its header and no record, as Kafka's own. Raises CorruptBatch.
    """
    header = peek(batch)
    taken: list[Record] = []
    newest_ms = NO_TIMESTAMP
    with memoryview(batch) as view:
        plain, reader = opened(view[: header.size], header, decoded_bytes_max)
    stays = [True] * header.record_count
    for place in places:
        stays[place] = False
    try:
        for keep, each in zip(stays, reader, strict=True):
            stamp = NO_TIMESTAMP if each.timestamp is None else each.timestamp
            if keep:
                newest_ms = max(newest_ms, stamp)
            else:
                taken.append(Record(each.offset, stamp, each.key, each.value, each.headers))
    except (*BROKEN_RECORDS, ValueError) as error:
        raise CorruptBatch(f"records of the batch cannot be read: {error}") from error
    if True not in stays:
        empty = header._replace(
            attributes=header.attributes & ~_CODEC_MASK, max_timestamp=NO_TIMESTAMP, record_count=0
        )
        return seal(empty, b""), taken
    newest_ms = header.max_timestamp if header.timestamp_type else newest_ms
    return rebuilt(header, plain, stays, newest_ms, None), taken
