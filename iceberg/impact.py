"""What a message that is not bound or registered yet would do to a table's columns.

The same code as that of commits (evolution.py) merges it into the columns that the table has; here the two
are held against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from iceberg import evolution, flat, mapping
from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.compatibility import below, told
from iceberg.evolution import OWN_IDS, Column, TooManyColumns
from iceberg.layout import Registered, shape_of
from iceberg.mapping import MappingError, Struct
from iceberg.options import TYPES_MAX
from iceberg.unions import Places, TooManyTypes, gives_names, known_as_type
from schema import descriptors
from schema.descriptors import DescriptorError
from schema.followed import PROTOBUF
from schema.registry.parsed import InvalidSchema

COLUMNS_TOLD_MAX = 200
"""Columns of one kind that are told; `more` counts the others."""


class Message(NamedTuple):
    """A message of a serialized FileDescriptorSet, or a schema of AVRO or JSON in its canonical form.

    `imports`: what that refers to. `names`: it says how columns are called. `apart`: it is one of several
    types of record; `spare`: and told only where the table has it, since there may never be such a row.
    """

    files: bytes
    name: str
    names: bool
    apart: bool = False
    spare: bool = False
    schema_type: str = PROTOBUF
    imports: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class Impact:
    """What becomes of columns. Paths are as queries write them; types as Iceberg's.

    `apart`: a column of its own, since a field cannot be held by the column that it had (`instead_of`).
    `unfilled`: the newest message before had it, and this one has not; rows that are written stay.
    """

    added: list[dict[str, str]] = field(default_factory=list)
    widened: list[dict[str, str]] = field(default_factory=list)
    renamed: list[dict[str, str]] = field(default_factory=list)
    apart: list[dict[str, str]] = field(default_factory=list)
    unfilled: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    more: int = 0

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def bounded(self) -> Impact:
        """The same with at most COLUMNS_TOLD_MAX of each kind."""
        for rows in (self.added, self.widened, self.renamed, self.apart, self.unfilled):
            self.more += max(len(rows) - COLUMNS_TOLD_MAX, 0)
            del rows[COLUMNS_TOLD_MAX:]
        return self


def impact(
    table: Mapping[str, Any] | None,
    messages: Sequence[Message],
    newest: Sequence[Message],
    *,
    key: bool,
    types_max: int = TYPES_MAX,
) -> Impact:
    """What the messages would do to the table. CPU work: call it in a thread.

    `table`: `fields` of its current schema and `ids` (ledger.COLUMNS_PROPERTY); None: there is none yet.
    `newest`: the messages of the version that gives the columns their names so far.
    """
    top, found = (KEY_ID if key else VALUE_ID), Impact()
    fields = flat.nested(table["fields"]) if table is not None else evolution.new_fields()
    before = ColumnIds.from_json(table["ids"], fields) if table is not None and table["ids"] else ColumnIds()
    hoisted = table is not None and not key and bool(table["flat"])
    path = "" if hoisted else "key." if key else "value."
    after, ids, filled = fields, before, set[int]()
    places = Places(top, before, types_max)
    for one in sorted(messages, key=lambda each: each.names):
        if one.spare and not places.has(one.name):
            continue
        try:
            shape = places.shape(_shape(one), one.name, apart=one.apart)
            names = one.names and gives_names(shape, apart=one.apart)
            after, ids = evolution.with_message(after, top, shape, one.name, ids, names=names)
        except (DescriptorError, InvalidSchema, MappingError, TooManyColumns, TooManyTypes) as error:
            found.problems.append(f"{one.name} has no columns: {error}")
            continue
        places.note(one.name, shape)
        filled |= {*evolution.numbers_of(shape, top, one.name, ids, _inside(after, top))}
    _compare(found, _inside(fields, top), _inside(after, top), _Kept(before, ids), path)
    for one in newest:
        held = _held(one, (_inside(fields, top), before), top) - filled
        filled |= held  # those that several have are told once
        found.unfilled += [
            {"column": place, "type": kind}
            for number, place, kind in _paths(_inside(fields, top), path)
            if number in held
        ]
    return found.bounded()


class _Kept:
    """Which column a new one stands beside: of the same field, which it cannot hold."""

    def __init__(self, before: ColumnIds, after: ColumnIds) -> None:
        was: dict[str, list[int]] = {}
        for key, columns in before.known.items():
            was.setdefault(key.partition(":")[0], []).extend(columns)
        places = {column: key.partition(":")[0] for key, columns in after.known.items() for column in columns}
        self._beside = {column: was.get(place, []) for column, place in places.items()}
        self._types = {column for column, place in places.items() if known_as_type(place)}

    def beside(self, column: int) -> list[int]:
        """Columns that the same field number had, in the same place."""
        return self._beside.get(column, [])

    def is_type(self, column: int) -> bool:
        """Whether it is the struct of a whole type."""
        return column in self._types


def _compare(
    found: Impact, before: Iterable[Column], after: Iterable[Column], kept: _Kept, path: str
) -> None:
    old = {each["id"]: each for each in before}
    for each in after:
        was, place = old.get(each["id"]), f"{path}{each['name']}"
        row = {"column": place, "type": told(each["type"])}
        if was is None:
            beside = [old[one]["name"] for one in kept.beside(each["id"]) if one in old]
            if beside:
                found.apart.append({**row, "instead_of": f"{path}{beside[-1]}"})
            else:
                found.added.append(row)
            if kept.is_type(each["id"]):  # all of the message is in there
                _compare(found, (), below(each["type"]), kept, f"{place}.")
            continue
        if was["name"] != each["name"]:
            found.renamed.append({"column": f"{path}{was['name']}", "to": place})
        if told(was["type"]) != row["type"]:
            found.widened.append({"column": place, "type": told(was["type"]), "to": row["type"]})
        _compare(found, below(was["type"]), below(each["type"]), kept, f"{place}.")


def _held(newest: Message, table: tuple[list[Column], ColumnIds], top: int) -> set[int]:
    """The columns that a message has in the table, nested ones too."""
    columns, ids = table
    try:
        shape = Places(top, ids, TYPES_MAX).shape(_shape(newest), newest.name, apart=newest.apart)
        return {*evolution.numbers_of(shape, top, newest.name, ids, columns)}
    except (DescriptorError, InvalidSchema, MappingError, TooManyTypes, AssertionError, KeyError):
        return set()  # the table has no rows of it yet


def _paths(columns: Iterable[Column], path: str) -> Iterator[tuple[int, str, str]]:
    """Of each column, nested ones too, its id, how queries write it, and its type for people."""
    for each in columns:
        if each["id"] not in OWN_IDS:
            place = f"{path}{each['name']}"
            yield each["id"], place, told(each["type"])
            yield from _paths(below(each["type"]), f"{place}.")


def _shape(one: Message) -> Struct:
    if one.schema_type != PROTOBUF:
        made = Registered((0, None), schema_type=one.schema_type, form=one.files, imports=one.imports)
        return shape_of(made).struct
    return mapping.shape(descriptors.load(one.files, one.name).descriptor)


def _inside(fields: Iterable[Column], top: int) -> list[Column]:
    found: list[Column] = next(each for each in fields if each["id"] == top)["type"]["fields"]
    return found
