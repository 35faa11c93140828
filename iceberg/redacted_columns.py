"""Which columns of a topic's table show what its schemas mark as not for everybody.

A column is told by each schema that rows may have: the strictest mark of any counts, for all rows. What no
schema tells is in no answer, so it stays hidden: raw bytes, reasons, columns whose schemas are gone. A column
that holds more than its type says (a serialized message, JSON text) is marked where anything in it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from iceberg import avro_columns, json_columns, mapping
from iceberg.avro_columns import AvroShape
from iceberg.column_ids import ANY_MESSAGE, ColumnIds
from iceberg.json_columns import JsonShape
from iceberg.mapping import Field, Leaf, ListOf, MapOf, Node, Struct
from schema.redaction import avro, messages
from schema.redaction import json as json_redaction
from schema.redaction.marks import Action, Marks, strictest
from schema.redaction.metadata_tags import TOP, may_name_below, named, with_metadata
from schema.registry.avro import schema as avro_schema
from schema.registry.avro.types import Type
from schema.registry.json import nodes as json_nodes
from schema.registry.json import schema as json_schema
from schema.registry.json.patterns import matches

Told = dict[int, Action | None]
"""By column: what stands in its place; None: it is shown."""

Columns = Sequence[Mapping[str, Any]]
"""Those inside a column, in Iceberg's JSON."""


class _Part(Protocol):
    """What a column's values are by a schema."""

    @property
    def action(self) -> Action | None:
        """How the schema marks them, not what is inside."""
        ...

    def holds(self) -> bool:
        """Whether anything inside may be marked, or unknown to the schema."""
        ...

    def inside(self) -> _Part:
        """An item of a list, or a map's value."""
        ...

    def field(self, each: Field) -> _Part:
        """What a field of a struct is."""
        ...


class Telling:
    """Tells the columns of one table, schema by schema."""

    def __init__(self, ids: ColumnIds, marks: Marks) -> None:
        self._ids, self._marks = ids, marks
        self._told: Told = {}
        self._explained: dict[int, set[str]] = {}

    def told(self) -> Told:
        """What is known of columns, but of those that had values of messages whose schemas are gone."""
        had: dict[int, set[str]] = {}
        for columns in self._ids.known.values():
            for number, names in columns.items():
                had.setdefault(number, set()).update(names)
        known = {number: {ANY_MESSAGE, *names} for number, names in self._explained.items()}
        unknown = {number for number, names in had.items() if not names <= known.get(number, set())}
        return {number: action for number, action in self._told.items() if number not in unknown}

    def message(self, root: Descriptor, metadata: str, parent: int, columns: Columns) -> None:
        """Of a protobuf message whose columns are in column `parent`, of a schema with this metadata.

        Raises MappingError and BadTags.
        """
        marks = with_metadata(self._marks, metadata)
        part = _Message(root, None, marks, messages.holding_marks(root, marks))
        self._tell(mapping.shape(root), part, parent, str(root.full_name), columns)

    def avro(
        self, form: bytes, imports: Mapping[str, bytes], metadata: str, parent: int, columns: Columns
    ) -> None:
        """Of an AVRO schema's canonical form. Raises InvalidSchema, MappingError and BadTags."""
        marks = with_metadata(self._marks, metadata)
        top, shape = avro_schema.load(form, imports), AvroShape(form, imports)
        holding = avro.holding_marks(top, marks)
        part = _Avro(top, avro.action_of(top, marks), marks, holding, shape, wrapped=True)
        self._tell(shape.struct, part, parent, avro_columns.name_of(form, imports), columns)

    def json(
        self, form: bytes, imports: Mapping[str, bytes], metadata: str, parent: int, columns: Columns
    ) -> None:
        """Of a JSON schema's canonical text. Raises InvalidSchema, MappingError and BadTags."""
        marks = with_metadata(self._marks, metadata)
        root = json_schema.load(form, imports).root
        part = _Json((root,), json_redaction.marked_nodes(root, marks), marks, TOP)
        self._tell(JsonShape(form, imports).struct, part, parent, json_columns.name_of(form), columns)

    def _tell(self, shape: Struct, part: _Part, parent: int, message: str, columns: Columns) -> None:
        by_id = {each["id"]: each for each in columns}
        numbers = self._ids.find(parent, shape.fields, message)
        for each, number in zip(shape.fields, numbers, strict=True):
            if number is None or number not in by_id:
                continue  # no row has had it
            field = part.field(each)
            inner, node, kind, above = _innermost(field, each.node, by_id[number]["type"], number)
            action = _action(part, field, inner, node)
            self._explained.setdefault(number, set()).add(message)
            known = self._told.get(number)
            self._told[number] = strictest(one for one in (known, action) if one is not None)
            if action is None and isinstance(node, Struct):
                self._tell(node, inner, above, message, kind["fields"])


def _action(part: _Part, field: _Part, inner: _Part, node: Node) -> Action | None:
    """How a field is marked: `part` is what it is in, `inner` what its lists and maps hold at last."""
    if part.action is not None:
        return Action.REMOVE  # all of that is marked
    if field.action is not None:
        return field.action
    hidden = inner.action is not None or (isinstance(node, Leaf) and inner.holds())
    return Action.REMOVE if hidden else None


def _innermost(part: _Part, node: Node, kind: Any, above: int) -> tuple[_Part, Node, Any, int]:
    """What a column's lists and maps hold at last, with the column's type there and its id."""
    while isinstance(node, ListOf | MapOf) and isinstance(kind, Mapping) and part.action is None:
        part = part.inside()
        if isinstance(node, ListOf):
            node, kind, above = node.element, kind["element"], kind["element-id"]
        else:
            node, kind, above = node.value, kind["value"], kind["value-id"]
    return part, node, kind, above


@dataclass(frozen=True, slots=True)
class _Message:
    """Of protobuf. `held`: the message that the values are, if they are any."""

    held: Descriptor | None
    action: Action | None
    marks: Marks
    holding: frozenset[str]

    def holds(self) -> bool:
        return self.held is not None and self.held.full_name in self.holding

    def inside(self) -> _Message:
        return self

    def field(self, each: Field) -> _Message:
        assert self.held is not None, "it is a struct"
        field: FieldDescriptor = self.held.fields_by_number[each.number]
        action = messages.options_reader(self.held, self.marks)(field)
        return _Message(messages.held_by(field), action, self.marks, self.holding)


@dataclass(frozen=True, slots=True)
class _Avro:
    """Of AVRO. `wrapped`: the schema itself, which may be no record."""

    type: Type
    action: Action | None
    marks: Marks
    holding: frozenset[int]
    shape: AvroShape
    wrapped: bool = False

    def holds(self) -> bool:
        return id(self.type) in self.holding

    def inside(self) -> _Avro:
        one = _plain(self.type)
        assert one.items is not None, "it is an array or a map"
        return self._of(one.items)

    def field(self, each: Field) -> _Avro:
        one = _plain(self.type)
        if one.kind == "record":
            field = self.shape.datum.fields(one)[each.number]
            return self._of(field.type, avro.action_of_field(one, field, self.marks))
        if one.kind == "union":
            return self._of(one.branches[each.number])
        return self._of(self.type) if self.wrapped else self  # a value by itself; a part of a duration

    def _of(self, one: Type, own: Action | None = None) -> _Avro:
        several = (
            [own] if own is not None else [avro.action_of(each, self.marks) for each in (one, _plain(one))]
        )
        action = next((each for each in several if each is not None), None)
        return _Avro(one, action, self.marks, self.holding, self.shape)


def _plain(one: Type) -> Type:
    """The type beside null, where a union has one other."""
    others = [each for each in one.branches if each.kind != "null"]
    return others[0] if len(one.branches) == 2 and len(others) == 1 else one


class _Json:
    """Of JSON: all schemas that may say something of the values, whatever takes them.

    `path`: the full name of what they are; `named`: how metadata marks it.
    """

    def __init__(
        self,
        nodes: Iterable[json_nodes.Node],
        marked: Mapping[json_nodes.Node, Action],
        marks: Marks,
        path: str,
        named: Action | None = None,
    ) -> None:
        found: dict[json_nodes.Node, None] = {}
        waiting = [*nodes]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = None
                waiting += node.here()
        self._nodes, self._marked, self._marks = [*found], marked, marks
        self._path, self._named = path, named

    @property
    def action(self) -> Action | None:
        return strictest(self._marked[each] for each in self._nodes if each in self._marked) or self._named

    def holds(self) -> bool:
        below = json_nodes.reachable(*self._nodes)
        if may_name_below(self._marks, self._path) and any("object" in each.types for each in below):
            return True
        return any(each in self._marked or each.properties or each.patterns for each in below)

    def inside(self) -> _Json:
        maps = [one for each in self._nodes for one in (each.additional, *each.patterns.values())]
        lists = [one for each in self._nodes for one in (*each.prefix, each.rest, each.contains)]
        named = None
        if any(each is not None for each in maps) and may_name_below(self._marks, self._path):
            named = Action.REMOVE  # a map's column has all its keys, and one of them may be named
        known = (one for one in (*lists, *maps) if one is not None)
        return _Json(known, self._marked, self._marks, self._path, named)

    def field(self, each: Field) -> _Json:
        known = [one for one in self._nodes if each.name in one.properties]
        if not known:  # the one column of a schema that is no object
            return self
        patterns = [
            one
            for node in self._nodes
            for pattern, one in node.patterns.items()
            if matches(pattern, each.name) is not False
        ]
        path = f"{self._path}.{each.name}"
        said = [*(one.properties[each.name] for one in known), *patterns]
        return _Json(said, self._marked, self._marks, path, named(self._marks, path))
