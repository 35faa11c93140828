"""Parquet footers as values, so that row groups can be put into another file as they are.

A footer is a struct of Thrift's compact protocol. It is read without its schema: each struct is its fields
by number, with their types, so that what a newer writer adds is kept. What is known of it is where offsets
into the file stand (parquet-format, parquet.thrift); moved to another file, each grows by as many bytes. Page
indexes have offsets inside, and stay behind: readers do without.

Pure; a footer that cannot be read is UnreadableFooter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length and the magic
DEPTH_MAX = 16
"""Structs and lists inside each other; a statistic of a column is the sixth."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Struct = dict[int, tuple[int, Any]]
"""Type and value by field; integers are int, text bytes, a double its eight bytes, a list (type, values)."""

VERSION, SCHEMA, NUM_ROWS, ROW_GROUPS = 1, 2, 3, 4
COLUMNS, GROUP_ROWS, GROUP_OFFSET, GROUP_ORDINAL = 1, 3, 5, 7
META_COMPRESSED = 7
CHUNK_OFFSET, CHUNK_META, PAGE_INDEXES = 2, 3, (4, 5, 6, 7)
"""Of a column chunk: where it says that it is, its metadata, and where its page indexes are."""
META_OFFSETS = (9, 10, 11, 14)
"""Of a column's metadata: data pages, index page, dictionary page, bloom filter."""


class UnreadableFooter(ValueError):
    """The bytes are no Parquet footer."""


@dataclass(slots=True)
class Footer:
    """`data_end`: where in its file the row groups end, and all that belongs to them."""

    fields: Struct
    data_end: int

    @property
    def groups(self) -> list[Struct]:
        """Its row groups."""
        return list(self.fields[ROW_GROUPS][1][1])

    @property
    def rows(self) -> int:
        """In all of them."""
        return int(self.fields[NUM_ROWS][1])

    def alike(self, other: Footer) -> bool:
        """Whether both files have the same columns, to the letter."""
        return bool(self.fields[SCHEMA] == other.fields[SCHEMA])


def footer_of(content: memoryview) -> Footer:
    """The footer of a file. Raises UnreadableFooter."""
    size = len(content)
    if size < len(MAGIC) + TAIL_BYTES or content[-4:] != MAGIC or content[:4] != MAGIC:
        raise UnreadableFooter("it is no Parquet file")
    data_end = size - TAIL_BYTES - int.from_bytes(content[-8:-4], "little")
    if data_end < len(MAGIC):
        raise UnreadableFooter("its footer is longer than the file")
    try:
        fields = _Reader(bytes(content[data_end : size - TAIL_BYTES])).struct()
        footer = Footer(fields, data_end)
        if footer.rows != sum(int(group[GROUP_ROWS][1]) for group in footer.groups):
            raise UnreadableFooter("its row groups have not as many rows as it says")
    except (IndexError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFooter(f"its footer cannot be read: {error!r}") from error
    return footer


def stored_bytes(group: Struct) -> int:
    """What the column chunks of a row group take in the file."""
    return sum(int(chunk[CHUNK_META][1][META_COMPRESSED][1]) for chunk in group[COLUMNS][1][1])


def moved(group: Struct, by: int, ordinal: int) -> Struct:
    """A row group as it is `by` bytes further on in a file, as number `ordinal` of its row groups."""
    kind, chunks = group[COLUMNS][1]
    out = dict(group)
    out[COLUMNS] = (LIST, (kind, [_moved_chunk(chunk, by) for chunk in chunks]))
    if GROUP_OFFSET in group:
        out[GROUP_OFFSET] = (I64, group[GROUP_OFFSET][1] + by)
    if GROUP_ORDINAL in group:
        out[GROUP_ORDINAL] = (I16, ordinal)
    return out


def _moved_chunk(chunk: Struct, by: int) -> Struct:
    out = _later(chunk, (CHUNK_OFFSET,), by)
    for at in PAGE_INDEXES:
        out.pop(at, None)
    if CHUNK_META in chunk:
        out[CHUNK_META] = (STRUCT, _later(chunk[CHUNK_META][1], META_OFFSETS, by))
    return out


def _later(fields: Struct, offsets: Sequence[int], by: int) -> Struct:
    """The struct with these offsets moved; 0 stands for none."""
    later = {at: (I64, fields[at][1] + by) for at in offsets if at in fields and fields[at][1]}
    return {**fields, **later}


def whole(first: Footer, groups: Sequence[Struct]) -> bytes:
    """The end of a file with these row groups, else like that of `first`: footer, length and magic."""
    rows = sum(int(group[GROUP_ROWS][1]) for group in groups)
    fields = {**first.fields, NUM_ROWS: (I64, rows), ROW_GROUPS: (LIST, (STRUCT, list(groups)))}
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out + len(out).to_bytes(4, "little") + MAGIC)


class _Reader:
    """Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        data, at = self._data, self._at
        value = data[at]
        at += 1
        if value & 0x80:
            value &= 0x7F
            shift = 7
            while True:
                octet = data[at]
                at += 1
                value |= (octet & 0x7F) << shift
                if not octet & 0x80:
                    break
                shift += 7
        self._at = at
        return value

    def _number(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)

    def _octets(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise IndexError(f"{length} bytes at {self._at}")
        found, self._at = self._data[self._at : end], end
        return found

    def struct(self) -> Struct:
        """The struct that begins here."""
        self._deeper()
        fields: Struct = {}
        field = 0
        while head := self._byte():
            kind, delta = head & 0x0F, head >> 4
            field = field + delta if delta else self._number()
            fields[field] = kind, self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return None  # the type says it
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                return self._octets(8)
            case 8:
                return self._octets(self._varint())
            case 9 | 10:
                return self._list()
            case 12:
                return self.struct()
        raise TypeError(f"type {kind} at {self._at}")  # footers have no maps

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        kind, count = head & 0x0F, head >> 4
        if count == 0x0F:
            count = self._varint()
        if count > len(self._data) - self._at:
            raise IndexError(f"{count} values at {self._at}")
        self._deeper()
        each = self._byte if kind in (TRUE, FALSE) else lambda: self._value(kind)
        values = [each() for _ in range(count)]
        self._depth -= 1
        return kind, values

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise RecursionError(f"more than {DEPTH_MAX} levels")


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_number(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for field, (kind, value) in sorted(fields.items()):
        delta = field - last
        if 0 < delta <= 15:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _write_number(out, field)
        last = field
        _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    match kind:
        case 1 | 2:
            pass
        case 3:
            out.append(value)
        case 4 | 5 | 6:
            _write_number(out, value)
        case 7:
            out += value
        case 8:
            _write_varint(out, len(value))
            out += value
        case 9 | 10:
            inner, values = value
            out.append(min(len(values), 15) << 4 | inner)
            if len(values) >= 15:
                _write_varint(out, len(values))
            for each in values:
                if inner in (TRUE, FALSE):
                    out.append(each)
                else:
                    _write_value(out, inner, each)
        case 12:
            _write_struct(out, value)
