"""Takes records out of a batch as log compaction does: what is left keeps its offsets, the others are holes.

Base offset, last offset delta, producer and base sequence stay, so a producer is answered as if all of it
were there. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from objectstore.batch import (
    BROKEN_RECORDS,
    HEADER_BYTES,
    NO_TIMESTAMP,
    OVERRUN_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    Record,
    peek,
    seal,
)
from objectstore.columns import passed, single
from objectstore.compact import rebuilt
from objectstore.compression import Compression, compress
from objectstore.offset_map import opened

_CODEC_MASK = 0x07


def part(batch: Buffer, places: Collection[int], decoded_bytes_max: int) -> tuple[bytes, list[Record]]:
    """The batch without the records at these places (from 0, all of them there), and these records in order.

    A batch of which nothing is left has its header and no record, as Kafka's own. Raises CorruptBatch.
    """
    header = peek(batch)
    chosen, native = sorted(places), len(places) < header.record_count
    if native and header.compression is Compression.NONE:  # nothing is to be copied for it
        done = _natively(memoryview(batch)[: header.size], header, chosen)
        if done is not None:
            return done
    with memoryview(batch) as view:
        plain, reader = opened(view[: header.size], header, decoded_bytes_max)
    done = _natively(memoryview(plain)[:-OVERRUN_BYTES], header, chosen) if native else None
    if done is not None:
        return done
    taken: list[Record] = []
    newest_ms = NO_TIMESTAMP
    stays = [True] * header.record_count
    for place in chosen:
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


def _natively(
    view: memoryview, header: BatchHeader, places: Sequence[int]
) -> tuple[bytes, list[Record]] | None:
    """The same where some records stay, without an object for each of these; None where nothing can."""
    end, at, done = len(view), HEADER_BYTES, 0
    newest_ms, kept, taken = NO_TIMESTAMP, list[memoryview](), list[Record]()
    for place in (*places, header.record_count):
        if place > done:
            over = passed(view, at, place - done, header)
            if over is None:
                return None
            newest_ms = max(newest_ms, over[0])
            kept.append(view[at : over[1]])
            at = over[1]
        if place < header.record_count:
            walked = single(view, at, header)
            if walked is None:
                return None
            taken.append(walked[0])
            at = walked[1]
        done = place + 1
    if at != end:
        return None
    left = header._replace(record_count=header.record_count - len(taken), max_timestamp=newest_ms)
    if header.compression is Compression.NONE:
        return seal(left, *kept), taken
    return seal(left, compress(header.compression, b"".join(kept))), taken
