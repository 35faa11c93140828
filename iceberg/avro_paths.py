"""Strings and numbers of an Avro file replaced by field, everything else byte for byte as it was.

Manifests and their lists name files by full locations. When these change, what other writers put into them
must stay, known here or not: statistics, sequence numbers, header, schema, field ids. So records are not read
and written anew but gone through by the file's own schema. CPU work only: call it in a thread.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from iceberg.avro_bytes import Broken, read_bytes, read_long, skip_blocks, written_long

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_BYTES_MAX = 1 << 30  # of one block, decompressed: a damaged one must not take all memory
SKIPPED_DEPTH_MAX = 32  # of a schema

Text = Callable[[str], str]
Number = Callable[[int], int]


class NotKnown(ValueError):
    """A file that is no Avro, or with a codec or type that is not gone through here."""


class _Edits:
    """Of one block: what was gone through is in `made` up to `taken`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.made, self.taken = data, bytearray(), 0

    def put(self, start: int, end: int, new: bytes) -> None:
        self.made += self.data[self.taken : start]
        self.made += new
        self.taken = end

    def end(self) -> bytes:
        return bytes(self.made) + self.data[self.taken :]


_Walk = Callable[[_Edits, int], int]


def rewritten(content: bytes, texts: Mapping[str, Text], numbers: Mapping[str, Number]) -> bytes:
    """The file with the values of these fields, by name in any record, replaced by what is made of them.

    Fields inside arrays and maps are none of them. Raises NotKnown, and what the functions raise.
    """
    try:
        return _rewritten(content, texts, numbers)
    except (Broken, zlib.error, IndexError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise NotKnown(f"it is not Avro as manifests are: {error!r}") from None


def _rewritten(content: bytes, texts: Mapping[str, Text], numbers: Mapping[str, Number]) -> bytes:
    if content[:4] != MAGIC:
        raise NotKnown("it does not begin as Avro files do")
    meta, at = _meta(content)
    codec = meta.get("avro.codec", b"null").decode()
    if codec not in ("null", "deflate"):
        raise NotKnown(f"codec {codec!r}: null and deflate are gone through")
    walk = _Schema(texts, numbers).walk(json.loads(meta["avro.schema"]), 0)
    sync = content[at : at + SYNC_BYTES]
    at += SYNC_BYTES
    made = bytearray(content[:at])
    while at < len(content):
        count, at = read_long(content, at)
        block, at = read_bytes(content, at)
        if content[at : at + SYNC_BYTES] != sync:
            raise Broken("a block does not end with the file's mark")
        at += SYNC_BYTES
        plain = _inflated(block) if codec == "deflate" else block
        edited = _block(plain, count, walk)
        packed = _deflated(edited) if codec == "deflate" else edited
        made += written_long(count) + written_long(len(packed)) + packed + sync
    return bytes(made)


def _block(data: bytes, count: int, walk: _Walk) -> bytes:
    edits, at = _Edits(data), 0
    for _ in range(count):
        at = walk(edits, at)
    if at != len(data):
        raise Broken(f"{len(data) - at} bytes are left of a block")
    return edits.end()


def _inflated(block: bytes) -> bytes:
    made = zlib.decompressobj(-zlib.MAX_WBITS)
    plain = made.decompress(block, BLOCK_BYTES_MAX)
    if made.unconsumed_tail:
        raise NotKnown(f"a block of more than {BLOCK_BYTES_MAX} bytes")
    return plain


def _deflated(plain: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(plain) + made.flush()


def _meta(content: bytes) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    at = len(MAGIC)
    while True:
        count, at = read_long(content, at)
        if count < 0:
            count = -count
            _, at = read_long(content, at)
        if count == 0:
            return found, at
        for _ in range(count):
            key, at = read_bytes(content, at)
            found[key.decode()], at = read_bytes(content, at)


class _Schema:
    """A schema as functions that go through one value of it each."""

    def __init__(self, texts: Mapping[str, Text], numbers: Mapping[str, Number]) -> None:
        self._texts, self._numbers = texts, numbers
        self._named: dict[str, _Walk] = {}

    def walk(self, schema: Any, depth: int, field: str = "") -> _Walk:
        """Of a value that is the record's field of this name; empty: of none that is to be replaced."""
        if depth > SKIPPED_DEPTH_MAX:
            raise NotKnown(f"a schema deeper than {SKIPPED_DEPTH_MAX}")
        if isinstance(schema, list):
            return _union([self.walk(each, depth + 1, field) for each in schema])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.walk(kind, depth + 1, field)
        if kind in ("record", "error"):
            walks = [self.walk(each["type"], depth + 1, each["name"]) for each in schema["fields"]]
            return self._name(schema, _record(walks))
        if kind == "fixed":
            size = schema["size"]
            return self._name(schema, lambda edits, at: at + size)
        if kind == "enum":
            return self._name(schema, _skip_long)
        if kind in ("array", "map"):
            item = self.walk(schema["items" if kind == "array" else "values"], depth + 1)
            return _blocks(item, keyed=kind == "map")
        return self._plain(kind, field)

    def _name(self, schema: Any, walk: _Walk) -> _Walk:
        self._named[schema["name"].rpartition(".")[2]] = walk
        return walk

    def _plain(self, kind: str, field: str) -> _Walk:
        if kind == "string" and field in self._texts:
            return _text(self._texts[field])
        if kind in ("int", "long") and field in self._numbers:
            return _number(self._numbers[field])
        found = _SKIPS.get(kind) or self._named.get(kind.rpartition(".")[2])
        if found is None:
            raise NotKnown(f"type {kind!r}")
        return found


def _skip_long(edits: _Edits, at: int) -> int:
    return read_long(edits.data, at)[1]


def _skip_bytes(edits: _Edits, at: int) -> int:
    size, at = read_long(edits.data, at)
    return at + size


_SKIPS: Mapping[str, _Walk] = {
    "null": lambda edits, at: at,
    "boolean": lambda edits, at: at + 1,
    "int": _skip_long,
    "long": _skip_long,
    "float": lambda edits, at: at + 4,
    "double": lambda edits, at: at + 8,
    "bytes": _skip_bytes,
    "string": _skip_bytes,
}


def _record(walks: list[_Walk]) -> _Walk:
    def go(edits: _Edits, at: int) -> int:
        for walk in walks:
            at = walk(edits, at)
        return at

    return go


def _union(walks: list[_Walk]) -> _Walk:
    def go(edits: _Edits, at: int) -> int:
        branch, at = read_long(edits.data, at)
        return walks[branch](edits, at)

    return go


def _blocks(item: _Walk, *, keyed: bool) -> _Walk:
    def one(edits: _Edits, at: int) -> int:
        return item(edits, _skip_bytes(edits, at) if keyed else at)

    return lambda edits, at: skip_blocks(edits.data, at, lambda where: one(edits, where))


def _text(made: Text) -> _Walk:
    def go(edits: _Edits, at: int) -> int:
        found, end = read_bytes(edits.data, at)
        new = made(found.decode()).encode()
        if new != found:
            edits.put(at, end, written_long(len(new)) + new)
        return end

    return go


def _number(made: Number) -> _Walk:
    def go(edits: _Edits, at: int) -> int:
        found, end = read_long(edits.data, at)
        new = made(found)
        if new != found:
            edits.put(at, end, written_long(new))
        return end

    return go
