"""cleanup.policy=compact: which records of a batch stay. Pure; the rules are Kafka's cleaner's (4.3).

    record                                                  stays
    behind the offset map's range                           always
    no key                                                  no (a topic that was not always compacted)
    an older one of its key                                 no
    the newest of its key, with a value                     yes
    … a tombstone of a batch without delete horizon         yes; the batch gets one: now + delete.retention.ms
    … a tombstone of a batch whose delete horizon is over   no
    … a tombstone where that sum is beyond HORIZON_MS_MAX   yes; no horizon, as where Kafka's sum is

A batch keeps its offsets: base offset and last offset delta stay, records in between go, and no offset is
given twice. A batch of which nothing stays goes whole; Kafka keeps an empty one where it is a producer's
last, because its brokers learn producers' sequences from the log: here they are in the replicated state. The
last batch of the range keeps a record in any case, so that the log does not end below its high watermark: a
reader that must get there (Streams restoring a store) would wait for ever.

A batch that nobody can open stays as it is, and its keys are unknown. Compression stays the producer's. One
without records, which stands for what was lost and passed over, goes, but for the last of the range.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatch

from objectstore.batch import (
    BROKEN_RECORDS,
    DECODED_BYTES_MAX,
    DELETE_HORIZON,
    HEADER_BYTES,
    OVERRUN_BYTES,
    BatchHeader,
    Buffer,
    CorruptBatch,
    peek,
    seal,
    split,
)
from objectstore.compression import compress
from objectstore.offset_map import KEY_BYTES_MAX, NOTHING, OffsetMap, hashed, opened
from objectstore.transactions import Markers, Transactions
from objectstore.varint import zigzag

HORIZON_MS_MAX = 1 << 62  # the base timestamp of a batch is an int64, and so are the differences from it
_DELTA_BITS = 63


@dataclass(frozen=True, slots=True)
class Rules:
    """When tombstones go. Unix ms and ms; bytes that one batch may decode to."""

    now_ms: int
    delete_retention_ms: int
    decoded_bytes_max: int = DECODED_BYTES_MAX

    def over(self, horizon_ms: int | None) -> bool:
        """Whether a delete horizon has passed."""
        return horizon_ms is not None and self.now_ms >= horizon_ms


@dataclass(slots=True)
class Counts:
    """What a pass saw and left. Bytes as stored; `unreadable` batches."""

    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0
    records_out: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class Pass:
    """One pass over a partition: first `learn` the dirty range, then `clean` everything below its end."""

    offsets: OffsetMap
    rules: Rules
    transactions: Transactions = field(default_factory=Transactions)
    counts: Counts = field(default_factory=Counts)
    full: bool = False
    """The map is full: what follows is for the next pass."""
    _rewritten: bool = False

    def learn(self, buffer: Buffer, from_offset: int = 0) -> bool:
        """Take note of the keys of the batches that fill `buffer`; False once the map is full.

        Batches that end below `from_offset` are passed over: an earlier pass has cleaned them.
        """
        view = memoryview(buffer)
        for position, size in split(view):
            header = peek(view, position)
            batch = view[position : position + size]
            if header.last_offset < from_offset:
                continue
            if self.full:
                return False
            if header.control or self.transactions.aborted(header):
                self.offsets.pass_over(header)
            elif not self._learned(batch, header):
                self.full = True
                return False
        return True

    def _learned(self, batch: memoryview, header: BatchHeader) -> bool:
        try:
            return self.offsets.add(batch, header, self.rules.decoded_bytes_max)
        except CorruptBatch:
            self.offsets.pass_over(header)
            return True

    def clean(self, buffer: Buffer) -> list[Buffer]:
        """What stays of the batches that fill `buffer`, in order."""
        view = memoryview(buffer)
        kept: list[Buffer] = []
        for position, size in split(view):
            header = peek(view, position)
            batch = view[position : position + size]
            left = self._clean(batch, header)
            self.counts.bytes_in += size
            self.counts.records_in += header.record_count
            if left is not None:
                self._rewritten = self._rewritten or left is not batch
                kept.append(left)
                self.counts.bytes_out += len(left)
                self.counts.records_out += peek(left).record_count
        return kept

    def take_rewritten(self) -> bool:
        """Whether a batch was rewritten since this was last asked."""
        rewritten, self._rewritten = self._rewritten, False
        return rewritten

    def _clean(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if self.transactions.discard(header):
            return None  # a marker stands behind it, so the log does not end here
        if header.base_offset > self.offsets.latest:
            return batch
        if header.control:
            return self._clean_marker(batch, header)
        if not header.record_count:  # takes the offsets of what was lost (empty_batch)
            return batch if header.last_offset == self.offsets.latest else None
        try:
            return self._clean_records(batch, header)
        except CorruptBatch:
            self.counts.unreadable += 1
            return batch

    def _clean_marker(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        """A transaction's marker goes a delete horizon after the last record of the transaction has gone."""
        horizon = header.delete_horizon_ms
        if self.transactions.marker(header) is Markers.NEEDED or header.last_offset == self.offsets.latest:
            return batch
        if horizon is None:
            until = self._horizon()
            if until is None:
                return batch
            plain, _ = opened(batch, header, self.rules.decoded_bytes_max)
            return rebuilt(header, plain, [True] * header.record_count, header.max_timestamp, until)
        return None if self.rules.over(horizon) else batch

    def _clean_records(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        plain, reader = opened(batch, header, self.rules.decoded_bytes_max)
        try:
            stays, tombstones, newest_ms = self._chosen(header, reader)
        except BROKEN_RECORDS as error:
            raise CorruptBatch(f"records of the batch at offset {header.base_offset}: {error}") from error
        if True not in stays:
            return None
        horizon = self._horizon() if tombstones and header.delete_horizon_ms is None else None
        if False not in stays and horizon is None:
            return batch
        newest_ms = header.max_timestamp if header.timestamp_type else newest_ms
        return rebuilt(header, plain, stays, newest_ms, horizon)

    def _chosen(self, header: BatchHeader, reader: DefaultRecordBatch) -> tuple[list[bool], bool, int]:
        """Per record whether it stays; whether a tombstone does; the newest timestamp of those that do."""
        find, over = self.offsets.find, self.rules.over(header.delete_horizon_ms)
        stays: list[bool] = []
        tombstones, newest_ms = False, -1
        previous, last = header.base_offset - 1, header.last_offset
        for record in reader:
            offset, key, value = record.offset, record.key, record.value
            if not previous < offset <= last:
                raise CorruptBatch(f"offset {offset} after {previous} in a batch that ends at {last}")
            previous = offset
            keep = (
                key is not None
                and find(key if len(key) < KEY_BYTES_MAX else hashed(key), NOTHING) <= offset
                and not (over and value is None)
            )
            stays.append(keep)
            if keep:
                tombstones = tombstones or value is None
                stamp = record.timestamp
                if stamp is not None and stamp > newest_ms:
                    newest_ms = stamp
        if last == self.offsets.latest and stays and True not in stays:
            stays[-1], newest_ms = True, -1 if record.timestamp is None else record.timestamp
        return stays, tombstones, newest_ms

    def _horizon(self) -> int | None:
        """From when on tombstones of a batch first cleaned now may go, Unix ms; None: never.

        Kafka's sum is negative then, which is no horizon either.
        """
        horizon_ms = self.rules.now_ms + self.rules.delete_retention_ms
        return horizon_ms if horizon_ms <= HORIZON_MS_MAX else None


def rebuilt(
    header: BatchHeader, plain: bytearray, stays: Sequence[bool], newest_ms: int, horizon_ms: int | None
) -> bytes:
    """The batch with the records that stay, at their offsets; with `horizon_ms` as its base timestamp.

    Records are copied as bytes: keys, values, headers and whatever else they hold are not looked at.
    """
    view = memoryview(plain)
    cuts = _cuts(plain, len(plain) - OVERRUN_BYTES, len(stays))
    kept = [view[start:stop] for start, stop in _chosen_cuts(cuts, stays, whole=horizon_ms is None)]
    changed = header._replace(record_count=sum(stays), max_timestamp=newest_ms)
    if horizon_ms is None:
        content = b"".join(kept)
    else:
        shift = header.base_timestamp - horizon_ms
        content = b"".join(_shifted(each, shift) for each in kept)
        changed = changed._replace(attributes=changed.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
    return seal(changed, compress(header.compression, content))


def _cuts(plain: bytearray, end: int, count: int) -> list[int]:
    """Where each record begins, and the end of the last. Raises CorruptBatch when they do not fill it."""
    cuts: list[int] = []
    position = HEADER_BYTES
    while position < end:
        cuts.append(position)
        low = plain[position]
        if low < 0x80:  # most records are shorter than 64 bytes …
            length, position = low, position + 1
        elif (high := plain[position + 1]) < 0x80:  # … or than 8 KiB
            length, position = high << 7 | low & 0x7F, position + 2
        else:
            number, position = _varint(plain, position)
            length = number << 1
        if length & 1 or length < 0:
            raise CorruptBatch("a record of negative length")
        position += length >> 1
    if position != end or len(cuts) != count:
        raise CorruptBatch(f"{len(cuts)} of {count} records end at byte {position} of {end}")
    cuts.append(end)
    return cuts


def _chosen_cuts(cuts: Sequence[int], stays: Sequence[bool], *, whole: bool) -> Iterator[tuple[int, int]]:
    """Begin and end of each record that stays; with `whole`, neighbours as one."""
    if not whole:
        yield from itertools.compress(itertools.pairwise(cuts), stays)
        return
    begin = -1
    for keep, at in zip(stays, cuts, strict=False):
        if keep and begin < 0:
            begin = at
        elif not keep and begin >= 0:
            yield begin, at
            begin = -1
    if begin >= 0:
        yield begin, cuts[-1]


def _shifted(record: memoryview, shift: int) -> bytes:
    """The record with `shift` added to its timestamp delta: length | attributes | delta | what follows.

    Raises CorruptBatch for a timestamp so long ago that the new delta is no int64.
    """
    _, position = _varint(record, 0)
    delta, following = _varint(record, position + 1)
    moved = delta + shift
    if moved >> _DELTA_BITS not in (0, -1):
        raise CorruptBatch(f"a timestamp delta of {moved} ms")
    content = bytes((record[position],)) + zigzag(moved) + record[following:]
    return zigzag(len(content)) + content


def _varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The zigzag number at `position`, and where it ends. Only for what the codec has read before."""
    byte = buffer[position]
    position += 1
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), position
