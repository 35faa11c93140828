"""What left the log and is in the topic's table still: its data files by an agent, checked and opened here.

A file is believed where its bytes have the checksum in its name and its rows are as many, of the partition
and of the offsets that the table's manifest says. Rows come by their offsets, whatever order files have them
in, each offset once.
"""

from __future__ import annotations

import asyncio
import heapq
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import closing
from typing import IO, TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from agent.cli import agent_http
from agent.cli.failures import Failure, Status, refused
from objectstore.batch import CorruptBatch, Record, check_crc, peek

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agent.cli.restoring.source import Source

PIECE_BYTES: Final = 8 << 20
"""Of a data file, asked for with one request."""
READ_ROWS: Final = 256
"""Of one file that are records at once."""
GIVEN_ROWS: Final = 1_024
"""Records that are given at once."""
OPEN_MAX: Final = 128
"""Data files that lie across each other and are open at once, each with a copy on this machine's disk."""
SORTED_BYTES_MAX: Final = 1 << 30
"""Of one file whose rows stand by another column: its rows are sorted by offset in memory, uncompressed."""
UNREADABLE: Final = "floe.unreadable"
"""Header of a row that stands for a batch nobody can open (iceberg/rows.py)."""
_COLUMNS: Final = (
    "kafka.partition",
    "kafka.offset",
    "kafka.timestamp",
    "key.__raw__",
    "value.__raw__",
    "value.__err__",
    "headers",
)
_MICROS: Final = 1_000


class DataFile(NamedTuple):
    """Of a table, as its manifest tells of it: bytes, rows, the lowest and the highest offset."""

    location: str
    size: int
    rows: int
    first: int
    last: int


class Older(NamedTuple):
    """Of one partition what the table has below the log start `below`.

    `start`: the lowest offset; `known`: from there on the table has not taken the log's records.
    """

    table: str
    partition: int
    start: int
    below: int
    known: int
    files: Sequence[DataFile]


class Row(NamedTuple):
    """A record, or a batch that nobody can open (`unreadable`)."""

    record: Record
    unreadable: bool


_Heap = list[tuple[int, int, Row, Generator[Row, None, None]]]
"""The next row of each open file: its offset, the file's number, and what comes behind it."""


def older_of(source: Source) -> dict[int, Older]:
    """What the table has below log starts, by partition. Raises Failure."""
    told = agent_http.ask(source.http, f"/admin/restorable/{source.topic_id}/rows?{source.below}")
    begun = {each.partition: each.start for each in source.parts if each.start}
    if {each["partition"]: each["start"] for each in told["partitions"]} != begun:
        raise refused(f"records of {source.topic} left the log meanwhile: run the command again")
    found = {}
    for each in told["partitions"]:
        partition, files = each["partition"], [DataFile(*file) for file in each["files"]]
        if files:
            first, below = min(file.first for file in files), each["start"]
            found[partition] = Older(told["table"], partition, first, below, each["next_offset"], files)
    return found


async def rows(source: Source, older: Older) -> AsyncGenerator[list[Row], None]:
    """All of them by offset, below the log start. Raises Failure."""
    found = _some(source, older)
    turn = threading.Lock()

    def step() -> list[Row] | None:
        with turn:
            return next(found, None)

    def end() -> None:
        with turn:  # a step goes on in its thread when who waits for it is cancelled
            found.close()

    try:
        while given := await asyncio.to_thread(step):
            yield given
    finally:
        await asyncio.to_thread(end)


def _some(source: Source, older: Older) -> Generator[list[Row], None, None]:
    given: list[Row] = []
    before = -1
    with closing(_merged(source, older)) as merged:
        for each in merged:
            if each.record.offset >= older.below:
                break
            if each.record.offset <= before:
                where = f"{source.topic}-{older.partition} at offset {before}"
                raise Failure(Status.FAILED, f"{where}: {older.table} has several rows: floe table audit")
            before = each.record.offset
            given.append(each)
            if len(given) >= GIVEN_ROWS:
                yield given
                given = []
    if given:
        yield given


def _merged(source: Source, older: Older) -> Generator[Row, None, None]:
    """Rows of all files by offset; a file is opened once no row before its first is left."""
    heap: _Heap = []
    try:
        for number, file in enumerate(older.files):
            yield from _below(heap, file.first)
            if len(heap) >= OPEN_MAX:
                raise refused(
                    f"{older.table}: more than {OPEN_MAX} data files have rows around offset {file.first} of "
                    f"partition {older.partition}: compact it first (floe.table.compaction)"
                )
            _push(heap, number, _opened(source, older, file))
        yield from _below(heap, None)
    finally:
        for *_, left in heap:
            left.close()


def _below(heap: _Heap, offset: int | None) -> Iterator[Row]:
    while heap and (offset is None or heap[0][0] < offset):
        _, number, row, more = heapq.heappop(heap)
        _push(heap, number, more)
        yield row


def _push(heap: _Heap, number: int, more: Generator[Row, None, None]) -> None:
    row = next(more, None)
    if row is not None:
        heapq.heappush(heap, (row.record.offset, number, row, more))


def _opened(source: Source, older: Older, file: DataFile) -> Generator[Row, None, None]:
    """The rows of a file by offset. Raises Failure where it is not what its table says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as copy:
        _fetch(source, file, copy)
        try:
            with pq.ParquetFile(copy) as parquet:
                for batch in _ordered(parquet, older, file):
                    yield from _rows(batch, older)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise _damaged(file, str(error)) from error


def _fetch(source: Source, file: DataFile, copy: IO[bytes]) -> None:
    """Copy the file here, and compare it with the checksum in its name. Raises Failure."""
    from iceberg.sealed import Sums, seal_of

    sums, seal, at = Sums(), seal_of(file.location), 0
    while at < file.size:
        query = urlencode({"location": file.location, "offset": at, "bytes": PIECE_BYTES}, quote_via=quote)
        piece = agent_http.fetch(source.http, f"/admin/restorable/{source.topic_id}/file?{query}")
        if not piece:
            break
        if seal is not None:
            sums.add(piece, seal[0])
        copy.write(piece)
        at += len(piece)
    if at != file.size:
        raise _damaged(file, f"it has {at} bytes, its manifest says {file.size}")
    if seal is not None and sums.of(seal[0]) != seal[1]:
        raise _damaged(file, "its bytes do not have the checksum in its name")
    copy.seek(0)


def _ordered(parquet: pq.ParquetFile, older: Older, file: DataFile) -> Iterator[pa.RecordBatch]:
    """Batches of the file by offset, once it is known that they are what the manifest says."""
    import pyarrow.compute as pc

    places = parquet.read(columns=["kafka.partition", "kafka.offset"], use_threads=False)
    kafka = places.column("kafka").combine_chunks()
    offsets = kafka.field("offset")
    if not pc.all(pc.equal(kafka.field("partition"), older.partition)).as_py():
        raise _damaged(file, f"it has rows of another partition than {older.partition}")
    told = (len(offsets), pc.min(offsets).as_py(), pc.max(offsets).as_py())
    if told != (file.rows, file.first, file.last):
        raise _damaged(file, f"rows, first and last offset are {told}, not as its manifest says")
    if not pc.any(pc.less(offsets[1:], offsets[:-1])).as_py():
        yield from parquet.iter_batches(READ_ROWS, columns=[*_COLUMNS], use_threads=False)
        return
    whole = sum(parquet.metadata.row_group(each).total_byte_size for each in range(parquet.num_row_groups))
    if whole > SORTED_BYTES_MAX:
        what = f"{file.location} has {whole} bytes of rows that stand by another column than their offsets"
        raise refused(f"{what}, {SORTED_BYTES_MAX} are sorted here: unset floe.table.sort and rewrite it")
    table = parquet.read(columns=[*_COLUMNS], use_threads=False)
    yield from table.take(pc.sort_indices(offsets)).to_batches(READ_ROWS)


def _rows(batch: pa.RecordBatch, older: Older) -> Iterator[Row]:
    """As records. Raises Failure where the table has a row's columns and not its bytes."""
    import pyarrow as pa

    kafka, value = batch.column("kafka"), batch.column("value")
    offsets = kafka.field("offset").to_pylist()
    stamps = kafka.field("timestamp").cast(pa.int64()).to_pylist()
    values, errors = value.field("__raw__").to_pylist(), value.field("__err__").to_pylist()
    there = value.is_valid().to_pylist()
    keys = batch.column("key").field("__raw__").to_pylist()
    heads = batch.column("headers").to_pylist()
    for offset, micros, key, content, known, error, named in zip(
        offsets, stamps, keys, values, there, errors, heads, strict=True
    ):
        if known and content is None:
            raise refused(
                f"{older.table} has no bytes of the value at offset {offset} of partition {older.partition}, "
                "only its columns (tables.raw_bytes was false): restore it without --with-table"
            )
        headers = [(each["key"], each["value"]) for each in named or ()]
        record = Record(offset, micros // _MICROS, key, content if known else None, headers)
        yield Row(record, error is not None and _stands_for_batch(record))


def _stands_for_batch(one: Record) -> bool:
    """Whether the row keeps a batch that nobody can open. No producer makes such a record by chance."""
    if one.key is not None or one.value is None or [name for name, _ in one.headers] != [UNREADABLE]:
        return False
    view = memoryview(one.value)
    try:
        return peek(view).base_offset == one.offset and check_crc(view, 0, len(view))
    except CorruptBatch:
        return False


def _damaged(file: DataFile, why: str) -> Failure:
    return Failure(Status.FAILED, f"{file.location} is damaged: {why}; see floe bucket scrub")
