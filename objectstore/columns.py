"""The records of one batch by column, without an object for each of them where the native walk is there.

What the native walk (_frames.c) does not take is left to the codec, its oracle, whose rows or error count.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Self

from objectstore import native
from objectstore.batch import (
    DECODED_BYTES_MAX,
    HEADER_BYTES,
    OVERRUN_BYTES,
    BatchHeader,
    Buffer,
    Headers,
    Record,
    peek,
    records,
    uncompressed,
)

_Told = tuple[bytes, bytes, list[bytes | None], list[bytes | None], list[Headers], int, int]
_Walk = Callable[[Buffer, int, int, int, int, int], _Told | None]

_Pass = Callable[[Buffer, int, int, int], tuple[int, int] | None]

try:
    native.ask()
    from objectstore._frames import columns as walk
    from objectstore._frames import passed as passing
except ImportError:  # nobody compiled it where this was installed, or it was compiled before there was this
    _walk: _Walk | None = None
    _pass: _Pass | None = None
else:
    _walk, _pass = walk, passing

NATIVE = _walk is not None
"""Whether records become columns by the native walk."""

STEP_RECORDS_MAX = 4_096
STEP_BYTES_MAX = 1 << 20
"""Records of one native call, and bytes of keys, values and headers after which it ends: they bound how long
it holds the interpreter (ms)."""


@dataclass(slots=True)
class Columns:
    """Some records. `timestamps` in Unix ms, -1 for none; `size`: bytes of keys, values and headers."""

    offsets: array[int]
    timestamps: array[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    size: int

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, rows: slice) -> Columns:
        """Those rows."""
        return _sized(
            self.offsets[rows], self.timestamps[rows], self.keys[rows], self.values[rows], self.headers[rows]
        )

    def __iadd__(self, other: Columns) -> Self:
        """Append the other's rows."""
        self.offsets += other.offsets
        self.timestamps += other.timestamps
        self.keys += other.keys
        self.values += other.values
        self.headers += other.headers
        self.size += other.size
        return self

    def only(self, kept: Sequence[bool]) -> Columns:
        """The rows for which `kept` says so, maybe none."""
        return _sized(
            array("q", compress(self.offsets, kept)),
            array("q", compress(self.timestamps, kept)),
            [*compress(self.keys, kept)],
            [*compress(self.values, kept)],
            [*compress(self.headers, kept)],
        )


def none() -> Columns:
    """Columns without rows, to append to."""
    return Columns(array("q"), array("q"), [], [], [], 0)


def of_records(given: Sequence[Record]) -> Columns:
    """Records, at least one, by column."""
    offsets, timestamps, keys, values, headers = zip(*given, strict=True)
    return _sized(array("q", offsets), array("q", timestamps), [*keys], [*values], [*headers])


def headers_size(headers: Headers) -> int:
    """Bytes of keys and values."""
    return sum(len(key.encode()) + len(value or b"") for key, value in headers)


def _sized(
    offsets: array[int],
    timestamps: array[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers],
) -> Columns:
    size = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
    size += sum(map(headers_size, filter(None, headers)))
    return Columns(offsets, timestamps, keys, values, headers, size)


def columns(
    batch: memoryview, records_max: int, decoded_bytes_max: int = DECODED_BYTES_MAX
) -> Iterator[Columns]:
    """The records of the one batch that fills `batch`, in order: `records_max` at a time, then what is left.

    They are those of objectstore.batch.records; so is what is raised for bytes that are not sound, maybe
    after some rows.
    """
    done = 0
    if _walk is not None:
        taken = yield from _walked(_walk, batch, records_max, decoded_bytes_max)
        if taken is None:
            return
        done = taken
    left = islice(records(batch, decoded_bytes_max), done, None)
    while given := list(islice(left, records_max)):
        yield of_records(given)
        if len(given) < records_max:
            return


def _walked(
    walk: _Walk, batch: memoryview, records_max: int, decoded_bytes_max: int
) -> Generator[Columns, None, int | None]:
    """The same natively. Returns how many of the records it gave where the rest is not taken; else None."""
    header, plain = peek(batch), batch
    if header.size != len(batch):
        return 0
    if header.record_count < 0 or header.compression or len(batch) > decoded_bytes_max:
        plain = memoryview(uncompressed(batch, decoded_bytes_max))[:-OVERRUN_BYTES]
    given, at, gathered = 0, HEADER_BYTES, none()
    while given + len(gathered) < header.record_count:
        count = min(header.record_count - given, records_max) - len(gathered)
        told = walk(
            plain, at, min(count, STEP_RECORDS_MAX), STEP_BYTES_MAX, header.base_offset, header.base_timestamp
        )
        if told is None:
            return given
        at = told[-1]
        gathered = _appended(gathered, told, header)
        if len(gathered) == records_max:
            yield gathered
            given, gathered = given + records_max, none()
    if at != len(plain):
        return given
    if gathered:
        yield gathered
    return None


def stretch(plain: Buffer, at: int, count: int, header: BatchHeader) -> tuple[Columns, int] | None:
    """So many records, from byte `at` on, of a batch that is not compressed, and the byte behind the last.

    None where there is no native walk, or it does not take one of them: nothing is known of them then.
    """
    gathered = none()
    while _walk is not None and len(gathered) < count:
        some = min(count - len(gathered), STEP_RECORDS_MAX)
        told = _walk(plain, at, some, STEP_BYTES_MAX, header.base_offset, header.base_timestamp)
        if told is None:
            return None
        at = told[-1]
        gathered = _appended(gathered, told, header)
    return (gathered, at) if len(gathered) == count else None


def single(plain: Buffer, at: int, header: BatchHeader) -> tuple[Record, int] | None:
    """The record at byte `at` and the byte behind it; as `stretch`, of which it is the short way for one."""
    told = None
    if _walk is not None:
        told = _walk(plain, at, 1, STEP_BYTES_MAX, header.base_offset, header.base_timestamp)
    if told is None:
        return None
    offset, stamp = (int.from_bytes(each, sys.byteorder, signed=True) for each in told[:2])
    stamp = header.max_timestamp if header.timestamp_type else stamp
    return Record(offset, stamp, told[2][0], told[3][0], told[4][0]), told[-1]


def passed(plain: Buffer, at: int, count: int, header: BatchHeader) -> tuple[int, int] | None:
    """The newest timestamp of so many records, from byte `at` on, and the byte behind the last: `stretch` of
    records that nobody looks at, which costs a hundredth.
    """
    told = _pass(plain, at, count, header.base_timestamp) if _pass is not None else None
    if told is None or not header.timestamp_type:
        return told
    return header.max_timestamp, told[1]


def _appended(to: Columns, told: _Told, header: BatchHeader) -> Columns:
    """What the walk told behind the rows there are. An append time is every record's (KIP-32)."""
    offsets, times, keys, values, headers, size, _ = told
    appended = array("q", [header.max_timestamp]) * len(keys) if header.timestamp_type else array("q", times)
    more = Columns(array("q", offsets), appended, keys, values, headers, size)
    if not to:
        return more
    to += more
    return to
