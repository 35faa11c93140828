"""What a topic's table looks like under its bindings, ready to turn records into rows.

A record is decoded by its own schema: the one that its frame names, else the one that was bound when it was
appended. So a layout has a decoder for each schema that its rows may have, and the columns of all of them.
Where the topic followed a subject of the registry, frames name a message of one of its schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from coordination.commands import BindSchema
from iceberg import arrow_types, evolution, flat, flat_rows, mapping, unions
from iceberg.avro_columns import AvroShape
from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.decoder import Decoder
from iceberg.evolution import OWN_IDS, TooManyColumns
from iceberg.json_columns import JsonShape
from iceberg.mapping import MappingError, Struct
from iceberg.options import TYPES_MAX
from iceberg.partitioning import Spec
from iceberg.sorting import Order
from iceberg.unions import Places, TooManyTypes, TypeDecoder
from iceberg.value_columns import Shape, ValueDecoder
from schema import descriptors, framing
from schema.descriptors import DescriptorError, MessageType
from schema.followed import JSON
from schema.framing import SchemaName
from schema.registry.parsed import InvalidSchema
from schema.validator import BoundSchema

LAYOUTS_MAX = 256
"""Layouts kept ready; the least used is built anew when needed. All topics without schemas share one."""

SLOW_ROWS = "25,000"
"""Rows that the plain decoder makes in a second, about."""

KEY, VALUE = int(BindSchema.KEY), int(BindSchema.VALUE)

NAMED_MAX = 10
"""Schema ids that an error lists."""


Framed = tuple[SchemaName, tuple[int, ...] | None]
"""A schema of the registry and the indexes of its message; (): of bytes that are none. None: all of it."""


class MissingSchemas(Exception):
    """Frames name schemas that this layout has not: take another one.

    `schema_ids` were bound to the topic; `framed` are of the registry, each with the role (BindSchema.Role).
    """

    def __init__(self, schema_ids: Iterable[int], framed: Iterable[tuple[int, Framed]] = ()) -> None:
        self.schema_ids = frozenset(schema_ids)
        self.framed = frozenset(framed)
        super().__init__(tuple(sorted(self.schema_ids)), tuple(sorted(self.framed, key=repr)))


@dataclass(frozen=True, slots=True)
class Binding:
    """A bound schema as far as a layout needs it; can be sent to another process."""

    schema_id: int
    descriptor_set: bytes
    message: str
    follows: bool = False  # a subject: it has no columns of its own

    @classmethod
    def of(cls, bound: BoundSchema) -> Binding:
        """The part of a schema in the replicated state that matters here."""
        return cls(bound.schema_id, bound.descriptor_set, bound.message, bool(bound.naming))


@dataclass(frozen=True, slots=True)
class Registered:
    """What frames name of the registry. Without message there are no columns; `problem`: why rows are bad.

    Of AVRO and JSON (`schema_type`) `form` is the canonical one, and `imports` those of what it refers to;
    there is no descriptor set. `by_guid`: the id of a schema that frames name by its guid. `apart`: it is one
    of several types of record (unions.py). `newer`: form and imports of its subject's newest version, where
    that is of AVRO too.
    """

    framed: Framed
    descriptor_set: bytes = b""
    message: str = ""
    problem: str = ""
    schema_type: str = ""
    form: bytes = b""
    imports: tuple[tuple[str, bytes], ...] = ()
    by_guid: int = 0
    apart: bool = False
    newer: tuple[bytes, tuple[tuple[str, bytes], ...]] | None = None

    @property
    def schema_id(self) -> int:
        """However frames name it; 0 where nobody knows it any more."""
        name = self.framed[0]
        return name if isinstance(name, int) else self.by_guid


@dataclass(frozen=True, slots=True)
class Bindings:
    """Of keys or values: the schemas that rows may have, and which is bound now (its id; 0: none).

    `known`: ids of all that were ever bound, which a frame may name. `registered`: of the registry, what rows
    name that follow a subject; `names`: which of them say how their columns are called.
    """

    schemas: tuple[Binding, ...] = ()
    current: int = 0
    known: tuple[int, ...] = ()
    registered: tuple[Registered, ...] = ()
    names: frozenset[Framed] = frozenset()

    @classmethod
    def only(cls, bound: BoundSchema | None) -> Bindings:
        """Of a topic that had no other."""
        return cls() if bound is None else cls((Binding.of(bound),), bound.schema_id, (bound.schema_id,))


@dataclass(frozen=True, slots=True)
class LayoutBasis:
    """All that a layout follows from: equal bases give equal layouts, in any process."""

    key: Bindings
    value: Bindings
    ids: str
    previous: str
    raw_bytes: bool
    spec: Spec = ()
    order: Order = ()
    flat: bool = False
    types_max: int = TYPES_MAX


@dataclass(frozen=True, slots=True)
class Part:
    """A schema of keys or values: how a message's bytes become columns; without decoder they stay raw.

    `follows`: frames say which schema it is (`Messages.named`). `problem`: why its rows are bad.
    """

    indexes: tuple[int, ...] = ()
    prefix: bytes = b""
    decoder: Decoder | ValueDecoder | TypeDecoder | None = None
    follows: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Messages:
    """Keys or values: by schema id how they become columns, and the id of the one bound now (0: none)."""

    role: int
    parts: Mapping[int, Part]
    current: int
    known: frozenset[int]
    registered: Mapping[Framed, Part]

    def named(self, record: bytes) -> tuple[Part, int]:
        """What a frame names of the registry, and where the message begins.

        Raises FramingError where it is no frame, and MissingSchemas.
        """
        name, end = framing.schema_named(record)
        whole = self.registered.get((name, None))
        if whole is not None:
            return whole, end
        indexes: tuple[int, ...] = ()
        start = 0
        with suppress(framing.FramingError):
            _, indexes, start = framing.named(record)
        part = self.registered.get((name, indexes))
        if part is None:
            raise MissingSchemas((), [(self.role, (name, indexes))])
        return part, start

    def all(self) -> Iterator[Part]:
        """Every one."""
        yield from self.parts.values()
        yield from self.registered.values()

    def part(self, frame: framing.Frame) -> Part:
        """The part of the schema that a frame names. Raises FramingError and MissingSchemas."""
        found = self.parts.get(frame.schema_id)
        if found is None and frame.schema_id in self.known:
            raise MissingSchemas([frame.schema_id])
        if found is None:
            known = ", ".join(str(number) for number in sorted(self.known)[:NAMED_MAX])
            more = ", …" if len(self.known) > NAMED_MAX else ""
            raise framing.FramingError(
                f"Confluent frame names schema {frame.schema_id}; bound to this topic: {known}{more}"
            )
        if found.indexes and found.indexes != frame.indexes:
            raise framing.FramingError(
                f"Confluent frame has the message indexes {list(frame.indexes)}; schema {frame.schema_id} "
                f"is {list(found.indexes)}"
            )
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns and the decoders that fill them.

    `fields` is the Iceberg schema's top level, `arrow` what the files hold (columns that no schema of this
    layout has are missing there); `nested` is the same with the value's columns inside `value`, where rows
    are made. `problems` says why a message has no columns, or is decoded slowly.
    """

    basis: LayoutBasis
    fields: list[dict[str, Any]]
    ids: ColumnIds
    arrow: pa.Schema
    nested: pa.Schema
    key: Messages
    value: Messages
    raw_bytes: bool = True
    problems: tuple[str, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether the value's columns stand at the top level."""
        return self.basis.flat

    @property
    def spec(self) -> Spec:
        """How its rows are partitioned."""
        return self.basis.spec

    def partitioned(self, spec: Spec, problems: tuple[str, ...] = ()) -> Layout:
        """The same, partitioned so; `problems` are told with its own."""
        if (spec, problems) == (self.spec, ()):
            return self
        basis = replace(self.basis, spec=spec)
        return replace(self, basis=basis, problems=(*self.problems, *problems))

    @property
    def order(self) -> Order:
        """How its rows are sorted within a file; empty: by offset."""
        return self.basis.order

    def sorted_by(self, order: Order, problems: tuple[str, ...] = ()) -> Layout:
        """The same, sorted so; `problems` are told with its own."""
        if (order, problems) == (self.order, ()):
            return self
        basis = replace(self.basis, order=order)
        return replace(self, basis=basis, problems=(*self.problems, *problems))


def build(
    key: BoundSchema | Bindings | None,
    value: BoundSchema | Bindings | None,
    *,
    ids: str = "",
    previous: Iterable[Mapping[str, Any]] = (),
    raw_bytes: bool = True,
    flat: bool = False,
    types_max: int = TYPES_MAX,
) -> Layout:
    """The layout under these bindings. `ids` and `previous` come from the table; none when it is new.

    `raw_bytes` False leaves `__raw__` null where the value was decoded; `flat`: see flat.py, `types_max`:
    unions.py.
    """
    keys, values = (each if isinstance(each, Bindings) else Bindings.only(each) for each in (key, value))
    before = json.dumps([*previous])
    return from_basis(LayoutBasis(keys, values, ids, before, raw_bytes, flat=flat, types_max=types_max))


@lru_cache(LAYOUTS_MAX)
def from_basis(basis: LayoutBasis) -> Layout:
    """The layout that follows from `basis`, shared by all that ask: nobody changes it."""
    previous = flat.nested(json.loads(basis.previous))
    ids = ColumnIds.from_json(basis.ids, previous) if basis.ids else ColumnIds()
    places = {top: Places(top, ids, basis.types_max) for top in (KEY_ID, VALUE_ID)}
    table = _Table(previous or evolution.new_fields(), ids, places)
    keys, values = _shapes(basis.key, KEY_ID, table), _shapes(basis.value, VALUE_ID, table)
    key = _messages(basis.key, KEY, KEY_ID, keys, table)
    value = _messages(basis.value, VALUE, VALUE_ID, values, table)
    table.problems += [*_slow(basis.key, key), *_slow(basis.value, value)]
    nested = _arrow(table.fields, [part for each in (key, value) for part in each.all()])
    return Layout(
        basis,
        flat.flattened(table.fields) if basis.flat else table.fields,
        table.ids,
        flat_rows.flat_schema(nested) if basis.flat else nested,
        nested,
        key,
        value,
        basis.raw_bytes,
        tuple(table.problems),
    )


@dataclass(slots=True)
class _Table:
    """A table's columns while messages are added."""

    fields: list[dict[str, Any]]
    ids: ColumnIds
    places: Mapping[int, Places]
    problems: list[str] = field(default_factory=list)

    def add(self, top: int, inside: Struct, message: str, *, apart: bool, names: bool) -> Struct:
        """Add a message; what it is in the table. Raises TooManyColumns and TooManyTypes."""
        shape = self.places[top].shape(inside, message, apart=apart)
        names = names and unions.gives_names(shape, apart=apart)
        self.fields, self.ids = evolution.with_message(
            self.fields, top, shape, message, self.ids, names=names
        )
        self.places[top].note(message, shape)
        return shape

    def inside(self, top: int) -> list[dict[str, Any]]:
        """The columns inside `key` or `value`."""
        found = next(each for each in self.fields if each["id"] == top)
        columns: list[dict[str, Any]] = found["type"]["fields"]
        return columns


@dataclass(frozen=True, slots=True)
class _Shaped:
    """A schema, and its shape when it has columns."""

    schema_id: int
    kind: MessageType | None = None
    shape: Struct | None = None
    follows: bool = False
    problem: str = ""
    values: Shape | None = None
    message: str = ""

    def part(self, table: _Table, top: int) -> Part:
        """How its messages become columns of the finished table."""
        kind, shape = self.kind, self.shape
        if kind is None and shape is None:
            return Part(follows=self.follows, problem=self.problem)
        indexes = kind.indexes if kind is not None else ()
        prefix = framing.prefix(self.schema_id, indexes) if kind is not None else b""
        if shape is None:
            return Part(indexes, prefix)
        fields = arrow_types.message_fields(shape, top, self.message, table.ids, table.inside(top))
        return Part(indexes, prefix, unions.decoder(shape, fields, self._decoder))

    def _decoder(self, inside: Struct, fields: Sequence[pa.Field]) -> Decoder | ValueDecoder:
        if self.values is not None:
            return ValueDecoder(self.values, fields)
        assert self.kind is not None, "it is a message"
        return Decoder(self.kind, inside, fields)


def _shapes(bindings: Bindings, top: int, table: _Table) -> dict[int | Framed, _Shaped]:
    """The schemas, each added to the table; the one bound now comes last and gives the names."""
    found: dict[int | Framed, _Shaped] = {}
    for each in sorted(bindings.schemas, key=lambda one: (one.schema_id == bindings.current, one.schema_id)):
        if each.follows:
            found[each.schema_id] = _Shaped(each.schema_id, follows=True)
            continue
        names = each.schema_id == bindings.current
        found[each.schema_id] = _shaped(each.schema_id, each, top, table, names=names)
    for one in sorted(bindings.registered, key=lambda one: (one.framed in bindings.names, _order(one))):
        schema_id, names = one.schema_id, one.framed in bindings.names
        if one.form:
            found[one.framed] = _registered(schema_id, one, top, table, names=names)
        elif one.message:
            found[one.framed] = _shaped(schema_id, one, top, table, names=names)
        else:
            found[one.framed] = _Shaped(schema_id, problem=one.problem)
    return found


def _order(one: Registered) -> tuple[int, tuple[int, ...], bool]:
    name, indexes = one.framed
    return one.schema_id, indexes or (), isinstance(name, bytes)


def _shaped(schema_id: int, each: Binding | Registered, top: int, table: _Table, *, names: bool) -> _Shaped:
    """A schema with a message, added to the table."""
    kind = shape = None
    try:
        kind = descriptors.load(each.descriptor_set, each.message)
        apart = isinstance(each, Registered) and each.apart
        shape = table.add(top, mapping.shape(kind.descriptor), kind.name, apart=apart, names=names)
    except (DescriptorError, MappingError, TooManyColumns, TooManyTypes) as error:
        table.problems.append(f"schema {schema_id} ({each.message}) has no columns: {error}")
    return _Shaped(schema_id, kind, shape, message=kind.name if kind is not None else "")


def shape_of(each: Registered) -> Shape:
    """The columns of a schema of AVRO or JSON. CPU work; raises InvalidSchema and MappingError."""
    imports = dict(each.imports)
    if each.schema_type == JSON:
        return JsonShape(each.form, imports)
    if each.newer is not None:
        with suppress(InvalidSchema, MappingError):  # of both together there would be too many
            return AvroShape(each.form, imports, (each.newer[0], dict(each.newer[1])))
    return AvroShape(each.form, imports)


def _registered(schema_id: int, each: Registered, top: int, table: _Table, *, names: bool) -> _Shaped:
    """A schema of AVRO or JSON, added to the table."""
    try:
        values = shape_of(each)
        shape = table.add(top, values.struct, each.message, apart=each.apart, names=names)
    except (InvalidSchema, MappingError, TooManyColumns, TooManyTypes) as error:
        table.problems.append(f"schema {schema_id} ({each.message}) has no columns: {error}")
        return _Shaped(schema_id)
    return _Shaped(schema_id, shape=shape, values=values, message=each.message)


def _messages(
    bindings: Bindings, role: int, top: int, shapes: Mapping[int | Framed, _Shaped], table: _Table
) -> Messages:
    """How keys or values become columns of the finished table."""
    parts, registered = {}, {}
    for key, each in shapes.items():
        if isinstance(key, int):
            parts[key] = each.part(table, top)
        else:
            registered[key] = each.part(table, top)
    return Messages(role, parts, bindings.current, frozenset(bindings.known), registered)


def _slow(bindings: Bindings, messages: Messages) -> Iterator[str]:
    """Which schemas are decoded the slow way."""
    told = [(each.schema_id, each.message, messages.parts[each.schema_id]) for each in bindings.schemas]
    told += [(one.schema_id, one.message, messages.registered[one.framed]) for one in bindings.registered]
    for schema_id, message, part in told:
        decoder = part.decoder
        if decoder is not None and not decoder.fast:
            slow = f"schema {schema_id} ({message}) is decoded slowly, some {SLOW_ROWS} rows/s"
            yield f"{slow}: the native decoder does not take it: {decoder.why_slow}"


def _arrow(fields: Iterable[Mapping[str, Any]], parts: Iterable[Part]) -> pa.Schema:
    """What files hold: the columns that every table has, and those of these schemas."""
    wanted = {*OWN_IDS}
    for each in parts:
        if each.decoder is not None:
            wanted.update(arrow_types.numbers(each.decoder.fields))
    found = []
    for column in fields:
        message = column["id"] in (KEY_ID, VALUE_ID)
        found.append(arrow_types.within(column, wanted) if message else arrow_types.plain_field(column))
    return pa.schema(found)
