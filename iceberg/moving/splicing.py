"""Some fields of an Avro file's records in other bytes; all else stays byte for byte. CPU work only.

Manifests come of many engines, versions and schemas. So they are not read into a model and written from it,
which would lose what the model does not know: the writer's own schema says where the wanted fields lie, by
their ids, and only those are replaced. The same input gives the same output.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
_ID = "field-id"
_BROKEN = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, zlib.error)
_VARINT_BITS = 64


class Unreadable(ValueError):
    """The file is no Avro file, or one of a form that is not known here. The message says why."""


class Spot(NamedTuple):
    """A wanted field's value, and where in its block its bytes lie: [start, end)."""

    start: int
    end: int
    value: Any


class Patch(NamedTuple):
    """Bytes in place of others of a block."""

    start: int
    end: int
    content: bytes


Spots = Mapping[int, Sequence[Spot]]
"""Of one record: by field id, in the order in which they stand; none of a field that is null."""
_Walk = Callable[["_Cursor", dict[int, list[Spot]]], object]


class _Block(NamedTuple):
    records: int
    content: bytes


class _Cursor:
    """Where one reads in bytes. What would lie behind their end raises IndexError or ValueError."""

    __slots__ = ("at", "content")

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def integer(self) -> int:
        """An int or long."""
        content, at, shift, found = self.content, self.at, 0, 0
        while (byte := content[at]) > 0x7F:
            found |= (byte & 0x7F) << shift
            at += 1
            shift += 7
            if shift >= _VARINT_BITS:
                raise Unreadable("a number is longer than numbers are")
        self.at = at + 1
        found |= byte << shift
        return (found >> 1) ^ -(found & 1)

    def skip(self, size: int) -> None:
        """Pass over so many bytes."""
        if not 0 <= size <= len(self.content) - self.at:
            raise Unreadable(f"{size} bytes should follow where {len(self.content) - self.at} do")
        self.at += size

    def skip_bytes(self) -> None:
        """Pass over a string or bytes."""
        self.skip(self.integer())

    def piece(self) -> bytes:
        """Bytes whose number stands before them."""
        return self.take(self.integer())

    def take(self, size: int) -> bytes:
        """So many bytes."""
        start = self.at
        self.skip(size)
        return self.content[start : self.at]

    def count(self) -> int:
        """Of the items of a block; 0 behind the last one. Each has a byte at least."""
        count = self.integer()
        if count < 0:
            self.integer()
        if abs(count) > len(self.content) - self.at:
            raise Unreadable(f"{count} items cannot lie in {len(self.content) - self.at} bytes")
        return abs(count)


class AvroFile:
    """A file whose records' fields `wanted` are looked for. Raises Unreadable."""

    def __init__(self, content: bytes, wanted: Set[int]) -> None:
        self._content = content
        try:
            self._open(wanted)
        except _BROKEN as error:
            raise Unreadable(f"not an Avro file that can be read here: {error}") from error

    def _open(self, wanted: Set[int]) -> None:
        if not self._content.startswith(MAGIC):
            raise Unreadable("it does not begin as Avro files do")
        cursor, told = _Cursor(self._content, len(MAGIC)), dict[str, bytes]()
        while count := cursor.count():
            for _ in range(count):
                name = cursor.piece().decode()
                told[name] = cursor.piece()
        self._sync = cursor.take(SYNC_SIZE)
        self._begin = cursor.at
        codecs: dict[str, type[Codec] | None] = {str(name): codec for name, codec in KNOWN_CODECS.items()}
        self._codec = codecs[told.get("avro.codec", b"null").decode()]
        compiler = _Compiler(wanted)
        self._walk = compiler.walk(json.loads(told["avro.schema"]))
        self.fields = frozenset(compiler.found)
        """Those of the wanted ones that the schema has."""

    def records(self) -> Iterator[Spots]:
        """Each record's spots. Raises Unreadable."""
        for block in self._blocks():
            yield from self._spots(block)

    def spliced(self, change: Callable[[Spots], Sequence[Patch]]) -> bytes:
        """The file with the patches of each record, which do not overlap. Raises Unreadable."""
        parts = [self._content[: self._begin]]
        for block in self._blocks():
            try:
                patches = sorted(each for spots in self._spots(block) for each in change(spots))
            except Unreadable:
                raise
            except _BROKEN as error:  # a field of another type than the specification gives it
                raise Unreadable(f"a record is not as it should be: {error}") from error
            content = _patched(block.content, patches)
            packed = content if self._codec is None else self._codec.compress(content)[0]
            parts += (integer(block.records), integer(len(packed)), packed, self._sync)
        return b"".join(parts)

    def _blocks(self) -> Iterator[_Block]:
        cursor = _Cursor(self._content, self._begin)
        try:
            while cursor.at < len(self._content):
                records, packed = cursor.integer(), cursor.piece()
                if cursor.take(SYNC_SIZE) != self._sync:
                    raise Unreadable("a block does not end where it should")
                content = self._unpacked(packed)
                if not 0 <= records <= len(content):
                    raise Unreadable(f"{records} records cannot lie in {len(content)} bytes")
                yield _Block(records, content)
        except Unreadable:
            raise
        except _BROKEN as error:
            raise Unreadable(f"a block cannot be read: {error}") from error

    def _unpacked(self, packed: bytes) -> bytes:
        if self._codec is None:
            return packed
        try:
            return self._codec.decompress(packed)
        except Exception as error:  # each codec's library has its own
            raise Unreadable(f"a block cannot be unpacked: {error}") from error

    def _spots(self, block: _Block) -> Iterator[Spots]:
        cursor = _Cursor(block.content)
        for _ in range(block.records):
            found: dict[int, list[Spot]] = {}
            try:
                self._walk(cursor, found)
            except _BROKEN as error:
                raise Unreadable(f"a record cannot be read: {error}") from error
            yield found
        if cursor.at != len(block.content):
            raise Unreadable("a block has more bytes than its records")


def integer(value: int) -> bytes:
    """An int or long as Avro writes it."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def text(value: str | bytes) -> bytes:
    """A string, or bytes."""
    content = value.encode() if isinstance(value, str) else value
    return integer(len(content)) + content


def _patched(content: bytes, patches: Sequence[Patch]) -> bytes:
    parts, at = list[bytes](), 0
    for each in patches:
        assert each.start >= at, "patches do not overlap"
        parts += (content[at : each.start], each.content)
        at = each.end
    return b"".join((*parts, content[at:]))


_SKIP: Mapping[str, Callable[[_Cursor], object]] = {
    "null": lambda cursor: None,
    "boolean": lambda cursor: cursor.skip(1),
    "int": _Cursor.integer,
    "long": _Cursor.integer,
    "float": lambda cursor: cursor.skip(4),
    "double": lambda cursor: cursor.skip(8),
    "bytes": _Cursor.skip_bytes,
    "string": _Cursor.skip_bytes,
}
_READ: Mapping[str, Callable[[_Cursor], Any]] = {
    "int": _Cursor.integer,
    "long": _Cursor.integer,
    "bytes": _Cursor.piece,
    "string": lambda cursor: cursor.piece().decode(),
}


class _Compiler:
    """Makes of an Avro schema what goes over a value of it."""

    def __init__(self, wanted: Set[int]) -> None:
        self._wanted = wanted
        self._named: dict[str, _Walk] = {}
        self.found: set[int] = set()

    def walk(self, schema: Any, number: int = -1) -> _Walk:
        """Of the field `number`, -1 for none that is wanted. Raises KeyError, TypeError."""
        if isinstance(schema, list):
            return self._union(schema, number)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return self.walk(kind, number)
        if kind in _SKIP:
            return self._plain(kind, number)
        if isinstance(schema, str):
            name = schema.rpartition(".")[2]
            return self._named[name]
        made = getattr(self, f"_{kind}")(schema)
        assert callable(made)
        if "name" in schema:
            self._named[schema["name"].rpartition(".")[2]] = made
        walk: _Walk = made
        return walk

    def _plain(self, kind: str, number: int) -> _Walk:
        skip = _SKIP[kind]
        if number not in self._wanted or kind not in _READ:
            return lambda cursor, found: skip(cursor)
        self.found.add(number)
        take = _READ[kind]

        def spot(cursor: _Cursor, found: dict[int, list[Spot]]) -> None:
            start = cursor.at
            value = take(cursor)
            found.setdefault(number, []).append(Spot(start, cursor.at, value))

        return spot

    def _union(self, schema: Sequence[Any], number: int) -> _Walk:
        branches = [self.walk(each, number) for each in schema]

        def union(cursor: _Cursor, found: dict[int, list[Spot]]) -> None:
            branches[_index(cursor, len(branches))](cursor, found)

        return union

    def _record(self, schema: Mapping[str, Any]) -> _Walk:
        fields = [self.walk(each["type"], each.get(_ID, -1)) for each in schema["fields"]]

        def record(cursor: _Cursor, found: dict[int, list[Spot]]) -> None:
            for each in fields:
                each(cursor, found)

        return record

    def _array(self, schema: Mapping[str, Any]) -> _Walk:
        return _many(self.walk(schema["items"], schema.get("element-id", -1)))

    def _map(self, schema: Mapping[str, Any]) -> _Walk:
        value = self.walk(schema["values"], schema.get("value-id", -1))

        def pair(cursor: _Cursor, found: dict[int, list[Spot]]) -> None:
            cursor.skip_bytes()
            value(cursor, found)

        return _many(pair)

    def _enum(self, schema: Mapping[str, Any]) -> _Walk:
        return lambda cursor, found: cursor.integer()

    def _fixed(self, schema: Mapping[str, Any]) -> _Walk:
        size = int(schema["size"])
        return lambda cursor, found: cursor.skip(size)


def _index(cursor: _Cursor, count: int) -> int:
    index = cursor.integer()
    if not 0 <= index < count:
        raise Unreadable(f"a union of {count} has no branch {index}")
    return index


def _many(item: _Walk) -> _Walk:
    """Items in blocks, as arrays and maps have them."""

    def many(cursor: _Cursor, found: dict[int, list[Spot]]) -> None:
        while count := cursor.count():
            for _ in range(count):
                item(cursor, found)

    return many
