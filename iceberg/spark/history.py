"""Histories: what a client sent or read, as Parquet files that the audit joins with the table.

One row per record. The three hashes are SHA-256 over bytes that Python and Spark agree upon:

* `key_hash`, `value_hash`: of the raw bytes; null for a null key or value, which so differs from empty.
* `headers_hash`: of the ASCII text `KEY:VALUE,KEY:VALUE…` in the record's order, key (UTF-8) and value in
  upper-case hexadecimal, `-` for a null value. No headers at all are the empty text.

`timestamp_ms` is in Unix milliseconds, `timestamp_type` 0 where the producer set it and 1 where the broker
did (only who reads a record is told so). `outcome` is what became of the send: `accepted` (then
`partition` and `offset` are known), `rejected` (definitely not in the topic; `reason` says why) or
`unknown`. What a consumer read is `accepted` by nature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

ACCEPTED = "accepted"
REJECTED = "rejected"
UNKNOWN = "unknown"

ROWS_BUFFERED_MAX = 20_000

TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1
"""What a table's microseconds can hold; a timestamp beyond it is there as this."""

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key_hash", pa.binary()),
        pa.field("value_hash", pa.binary()),
        pa.field("headers_hash", pa.binary(), nullable=False),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("timestamp_type", pa.int32()),
    ]
)

Headers = Iterable[tuple[str, bytes | None]]


class HistoryRow(NamedTuple):
    """One record of a history, in the order of SCHEMA's columns."""

    topic: str
    partition: int | None
    offset: int | None
    key_hash: bytes | None
    value_hash: bytes | None
    headers_hash: bytes
    timestamp_ms: int | None
    outcome: str = ACCEPTED
    reason: str | None = None
    timestamp_type: int | None = None


def bytes_hash(data: bytes | None) -> bytes | None:
    """SHA-256 of a key or value; None for null."""
    return None if data is None else hashlib.sha256(data).digest()


def headers_hash(headers: Headers | None) -> bytes:
    """SHA-256 of a record's headers in the canonical text above."""
    if not headers:
        return NO_HEADERS
    text = ",".join(
        f"{key.encode().hex().upper()}:{'-' if value is None else value.hex().upper()}"
        for key, value in headers
    )
    return hashlib.sha256(text.encode()).digest()


NO_HEADERS = hashlib.sha256(b"").digest()


class HistoryWriter:
    """Writes one Parquet file of rows; a context manager. Rows count once the file is closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[HistoryRow] = []
        self.rows = 0

    def add(self, row: HistoryRow) -> None:
        """Add one row; it reaches the file with the next ROWS_BUFFERED_MAX or at close."""
        self._rows.append(row)
        self.rows += 1
        if len(self._rows) >= ROWS_BUFFERED_MAX:
            self._flush()

    def close(self) -> None:
        """Write what is buffered and the footer. Idempotent."""
        self._flush()
        self._writer.close()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(table_of(self._rows))
            self._rows = []


def table_of(rows: Sequence[HistoryRow]) -> pa.Table:
    """The rows as an Arrow table of SCHEMA."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
