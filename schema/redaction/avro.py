"""Takes fields out of AVRO data that their schema marks as not for everybody; the rest is copied as it is.

A field is marked by an attribute beside its name, or beside its type: a tag of Confluent's
(`"confluent:tags": ["PII"]`) that the topic names, or Floe's own, `"floe.redact": "hash"`, which also says
what stands in its place; or by such a tag in the schema's metadata. A mark on a record marks each place where
it stands. What is left is a datum of the same schema: a removed field is null where it may be, else its
default, else an empty value (filler.py).

| the field is | hash, mask |
|---|---|
| string, bytes | so |
| uuid of text | hashed to a uuid; not masked, but removed |
| array of such, union | each item, what stands in the union |
| anything else: numbers, decimals, enum, fixed, map, record | removed |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from objectstore.varint import zigzag
from schema.redaction.marks import Action, Marks, Unreadable, instead, said, stands_in
from schema.redaction.metadata_tags import named
from schema.registry.avro import schema as avro_schema
from schema.registry.avro.datum import BadDatum, Compiler, Look, Read, block, check_end, long, string
from schema.registry.avro.filler import Filler, null_of
from schema.registry.avro.logical import logical_of
from schema.registry.avro.types import Field, Type

OWN = "floe.redact"
"""The attribute of Floe's own: remove, hash or mask."""

_Instead = Callable[[Any], bytes]
"""From a value, as Datum has it, to what stands in its place."""


class _Made:
    """The datum that is being made: its pieces, which have what the old one has up to `done`."""

    __slots__ = ("done", "pieces")

    def __init__(self) -> None:
        self.done = 0
        self.pieces: list[bytes] = []

    def cut(self, content: bytes, begin: int, end: int, put: bytes) -> None:
        """Bytes go, and others come in their place."""
        self.pieces += (content[self.done : begin], put)
        self.done = end


_Walk = Callable[[bytes, int, Look, _Made], int]
"""From where a value begins to where it ends."""


class AvroRedactor:
    """Redacts data of one schema. Thread-safe."""

    slow = False

    def __init__(self, walk: _Walk) -> None:
        self._walk = walk

    def redacted(self, payload: bytes) -> bytes:
        """The datum without what is marked. Raises Unreadable."""
        made = _Made()
        try:
            end = self._walk(payload, 0, Look(len(payload)), made)
        except BadDatum:  # its reason may quote what is not for everybody
            raise Unreadable("its bytes are no datum of its schema") from None
        if end < len(payload):
            raise Unreadable("its bytes are more than a datum of its schema")
        return b"".join((*made.pieces, payload[made.done :])) if made.pieces else payload


def redactor(form: bytes, imports: Mapping[str, bytes], marks: Marks, key: bytes) -> AvroRedactor | None:
    """What redacts data of a canonical form; None where nothing in them is marked. `key` is that of hashes.

    CPU work. Raises InvalidSchema, and filler.Endless where nothing can stand in a marked field's place.
    """
    top = avro_schema.load(form, imports)
    holding = holding_marks(top, marks)
    return AvroRedactor(_Walks(marks, key, holding).finished(top)) if holding else None


def action_of(one: Field | Type, marks: Marks) -> Action | None:
    """What a field's or a type's own attributes say; None: it is not marked."""
    return said(marks, one.more, OWN) if one.more else None


def action_of_field(record: Type, field: Field, marks: Marks) -> Action | None:
    """What the field's attributes say, or the schema's metadata of it; None: it is not marked."""
    return action_of(field, marks) or named(marks, f"{record.name}.{field.name}")


def holding_marks(top: Type, marks: Marks) -> frozenset[int]:
    """Which types are marked, or hold what is, at any depth: by their identity. By steps: they may hold
    themselves.
    """
    holders: dict[int, list[int]] = {}
    known, waiting, marked = {id(top)}, [top], []
    while waiting:
        one = waiting.pop()
        if action_of(one, marks) or any(action_of_field(one, each, marks) for each in one.fields):
            marked.append(id(one))
        for inner in _inside(one):
            holders.setdefault(id(inner), []).append(id(one))
            if id(inner) not in known:
                known.add(id(inner))
                waiting.append(inner)
    found: set[int] = set()
    while marked:
        number = marked.pop()
        if number not in found:
            found.add(number)
            marked += holders.get(number, ())
    return frozenset(found)


def _inside(one: Type) -> Iterator[Type]:
    yield from (each.type for each in one.fields)
    yield from one.branches
    if one.items is not None:
        yield one.items


class _Walks:
    """Makes a walk for each type. Records are filled later, as by datum.Compiler."""

    def __init__(self, marks: Marks, key: bytes, holding: frozenset[int]) -> None:
        self._marks, self._key, self._holding = marks, key, holding
        self._compiler = Compiler()
        self._filler = Filler()
        self._records: dict[int, _Walk] = {}
        self._waiting: list[tuple[Type, list[_Walk]]] = []

    def finished(self, top: Type) -> _Walk:
        """Raises Endless."""
        made = self._of(Field("", top))
        while self._waiting:
            record, steps = self._waiting.pop()
            steps += [self._of(field, record) for field in self._compiler.fields(record)]
        self._compiler.complete()
        return made

    def _of(self, field: Field, record: Type | None = None) -> _Walk:
        """Of the values of a record's field. Calls itself for what is inside, but not through records."""
        one = field.type
        action = None if record is None else action_of_field(record, field, self._marks)
        action = action or action_of(one, self._marks)
        if action is not None:
            return _replaced(self._compiler.of(one), self._instead(field, action))
        if id(one) not in self._holding:
            return _kept(self._compiler.of(one))
        if one.kind == "record":
            return self._record(one)
        if one.kind == "union":
            return self._union(one)
        assert one.items is not None, "it holds others"
        return _many(self._of(Field("", one.items)), keyed=one.kind == "map")

    def _record(self, one: Type) -> _Walk:
        known = self._records.get(id(one))
        if known is not None:
            return known
        steps: list[_Walk] = []

        def record(content: bytes, at: int, look: Look, made: _Made) -> int:
            look.enter()
            look.make(len(steps))
            for step in steps:
                at = step(content, at, look, made)
            look.depth -= 1
            return at

        self._records[id(one)] = record
        self._waiting.append((one, steps))
        return record

    def _union(self, one: Type) -> _Walk:
        walks, count = [], len(one.branches)
        for at, each in enumerate(one.branches):
            action = action_of(each, self._marks)
            put = None if action is None else self._branch(one, at, action)
            walks.append((self._compiler.of(each), put, self._of(Field("", each)) if put is None else None))

        def union(content: bytes, at: int, look: Look, made: _Made) -> int:
            begin = at
            index, at = long(content, at, look)
            if not 0 <= index < count:
                raise BadDatum(f"branch {index} of a union of {count}")
            read, put, walk = walks[index]
            if walk is not None:
                return walk(content, at, look, made)
            assert put is not None, "one or the other"
            value, at = read(content, at, look)
            made.cut(content, begin, at, put(value))
            return at

        return union

    def _instead(self, field: Field, action: Action) -> _Instead:
        """What stands in the place of a field's values."""
        one = field.type
        put = self._standing_in(one, action)
        if put is not None:
            return put
        nothing = self._filler.of(field)
        return lambda value: nothing

    def _standing_in(self, one: Type, action: Action) -> _Instead | None:
        """The same where something stands in; None where they go."""
        if not stands_in(action, self._key):
            return None
        if one.kind == "union":
            return self._any_branch(one, action)
        if one.kind == "array":
            assert one.items is not None, "it is an array"
            items = self._standing_in(one.items, action)
            return None if items is None else _each(items)
        if one.kind not in ("string", "bytes"):
            return None
        logical, key = logical_of(one), self._key
        if logical == "uuid" and action is Action.HASH:
            return lambda value: _sized(_uuid(instead(action, key, value)).encode())
        if logical:
            return None
        if one.kind == "string":
            return lambda value: _sized(instead(action, key, str(value)).encode())
        return lambda value: _sized(instead(action, key, bytes(value)))

    def _any_branch(self, one: Type, action: Action) -> _Instead | None:
        if all(self._standing_in(each, action) is None for each in one.branches):
            return None
        puts = [self._branch(one, at, action) for at in range(len(one.branches))]
        other = next((at for at, each in enumerate(one.branches) if each.kind != "null"), 0)
        plain, null = len(puts) == 2 and null_of(one) is not None, null_of(one) or b""

        def put(value: Any) -> bytes:
            if value is None:
                return null
            return puts[other](value) if plain else puts[value[0]](value[1])

        return put

    def _branch(self, one: Type, at: int, action: Action) -> _Instead:
        """What stands in the place of a union's values of one type, with the index before it."""
        put = self._standing_in(one.branches[at], action)
        if put is not None:
            index, inside = zigzag(at), put
            return lambda value: index + inside(value)
        null = null_of(one)
        nothing = null if null is not None else zigzag(at) + self._filler.empty(one.branches[at])
        return lambda value: nothing


def _kept(read: Read) -> _Walk:
    return lambda content, at, look, made: read(content, at, look)[1]


def _replaced(read: Read, put: _Instead) -> _Walk:
    def replaced(content: bytes, at: int, look: Look, made: _Made) -> int:
        value, end = read(content, at, look)
        made.cut(content, at, end, put(value))
        return end

    return replaced


def _many(walk: _Walk, *, keyed: bool) -> _Walk:
    """Of an array or a map. A block that says its bytes says them no more: they may be others."""

    def many(content: bytes, at: int, look: Look, made: _Made) -> int:
        look.enter()
        begin = at
        count, at, end = block(content, at, look)
        while count:
            look.make(count)
            if end is not None:
                made.cut(content, begin, at, zigzag(count))
            for _ in range(count):
                if keyed:
                    _, at = string(content, at, look)
                at = walk(content, at, look, made)
            check_end(at, end)
            begin = at
            count, at, end = block(content, at, look)
        look.depth -= 1
        return at

    return many


def _each(put: _Instead) -> _Instead:
    def items(values: Any) -> bytes:
        return b"".join((zigzag(len(values)), *map(put, values), b"\x00")) if values else b"\x00"

    return items


def _sized(content: bytes) -> bytes:
    return zigzag(len(content)) + content


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
