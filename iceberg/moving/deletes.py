"""Delete files that name data files by URL: positions (Parquet or Avro), and deletion vectors (Puffin).

Were they left as they are, readers would find no deletions for the data files under their new names, and rows
that were deleted would come back. Pure; CPU work only: call it in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg.moving.manifests import DELETED_PATH
from iceberg.moving.splicing import AvroFile, Patch, Spots, Unreadable, text
from iceberg.moving.urls import Prefix

ROWS_AT_ONCE = 65_536
"""Of a position delete file, as Arrow."""
PUFFIN_MAGIC = b"PFA1"
_PUFFIN_TAIL = 12
"""Behind a Puffin file's footer: its length (4), flags (4), PFA1."""
_FIELD_ID = b"PARQUET:field_id"


def moved_deletes(form: str, content: bytes, prefix: Prefix) -> bytes:
    """The file with its data files where they are in the copy. Raises Unreadable."""
    if form not in _FORMS:
        raise Unreadable(f"a delete file of the format {form!r}: {', '.join(_FORMS)} are known here")
    return _FORMS[form](content, prefix)


def _parquet(content: bytes, prefix: Prefix) -> bytes:
    sink = pa.BufferOutputStream()
    try:
        source = pq.ParquetFile(pa.BufferReader(content))
        schema = source.schema_arrow
        column = next(n for n, each in enumerate(schema) if _is_path(each))
        with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer:
            for batch in source.iter_batches(ROWS_AT_ONCE):
                moved = _moved_column(batch.column(column), prefix)
                writer.write_batch(batch.set_column(column, schema.field(column), moved))
            writer.add_key_value_metadata(schema.metadata or {})  # without store_schema it writes none
    except StopIteration:
        raise Unreadable("a delete file without the column file_path") from None
    except pa.ArrowException as error:
        raise Unreadable(f"a delete file cannot be read: {error}") from error
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _is_path(field: pa.Field) -> bool:
    return (field.metadata or {}).get(_FIELD_ID) == str(DELETED_PATH).encode() or field.name == "file_path"


def _moved_column(column: pa.Array, prefix: Prefix) -> pa.Array:
    coded = column.dictionary_encode()
    names = [_moved(each, prefix) for each in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(names, column.type)).cast(column.type)


def _moved(url: str, prefix: Prefix) -> str:
    """All of one file lie below one prefix: so its rows stay in their order."""
    moved = prefix.moved(url)
    if moved is None:
        raise Unreadable(f"a delete file names {url}, which is not below {prefix.source}")
    return moved


def _avro(content: bytes, prefix: Prefix) -> bytes:
    def change(spots: Spots) -> list[Patch]:
        found = spots.get(DELETED_PATH, ())
        return [Patch(each.start, each.end, text(_moved(each.value, prefix))) for each in found]

    file = AvroFile(content, {DELETED_PATH})
    if not file.fields:
        raise Unreadable(f"a delete file without the field {DELETED_PATH}")
    return file.spliced(change)


def _puffin(content: bytes, prefix: Prefix) -> bytes:
    """The blobs stay where they are: what says whose they are stands behind them."""
    tail = content[-_PUFFIN_TAIL:]
    size = int.from_bytes(tail[:4], "little")
    begin = len(content) - _PUFFIN_TAIL - size - len(PUFFIN_MAGIC)
    if (
        content[:4] != PUFFIN_MAGIC
        or tail[-4:] != PUFFIN_MAGIC
        or content[max(begin, 0) :][:4] != PUFFIN_MAGIC
    ):
        raise Unreadable("not a Puffin file")
    if any(tail[4:8]):
        raise Unreadable("a Puffin file whose footer is compressed")
    try:
        told = json.loads(content[begin + len(PUFFIN_MAGIC) : -_PUFFIN_TAIL])
    except ValueError as error:
        raise Unreadable(f"a Puffin file's footer cannot be read: {error}") from error
    footer = json.dumps(prefix.everywhere(told, {}), separators=(",", ":")).encode()
    end = len(footer).to_bytes(4, "little") + tail[4:]
    return b"".join((content[:begin], PUFFIN_MAGIC, footer, end))


_FORMS: Mapping[str, Callable[[bytes, Prefix], bytes]] = {
    "parquet": _parquet,
    "avro": _avro,
    "puffin": _puffin,
}
