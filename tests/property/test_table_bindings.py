"""Random histories of bindings, frames, lagging committers, rebinds: each value in its own column, no other.

The truth is what was put into each record, and a rule for which fields are the same thing (histories.py);
neither knows the decoder. Every second history is of a flat table, whose rows must be the same by the ids of
columns. FLOE_BINDING_ROWS=1000000 for a long run.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordination.state.types import Span
from iceberg import arrow_types, evolution, flat, layout, mapping, writer
from iceberg.arrow_types import FIELD_ID
from iceberg.column_ids import VALUE_ID
from iceberg.layout import Binding, Bindings, Layout, MissingSchemas
from objectstore import batch
from schema import descriptors, framing
from tests.property import histories
from tests.property.histories import ROOTS, Identities, Message

ROWS = int(os.environ.get("FLOE_BINDING_ROWS", "40000"))
HISTORIES = 200
ROWS_OF_BATCH = 20
BAD_OF = 0.02


@dataclass(frozen=True)
class Schema:
    """A schema that was bound."""

    schema_id: int
    root: str
    source: Message

    @property
    def binding(self) -> Binding:
        return Binding(self.schema_id, histories.descriptor_set(self.root, self.source), self.root)


@dataclass
class Topic:
    """One partition's records, by what they were judged, and its table."""

    random: Random
    flat: bool = False
    schemas: list[Schema] = field(default_factory=list)
    bound: int = 0
    spans: list[Span] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    committed: int = 0
    files: list[memoryview] = field(default_factory=list)
    fields: list[dict[str, Any]] = field(default_factory=list)
    ids: str = ""
    framed: set[int] = field(default_factory=set)
    identities: Identities = field(default_factory=Identities)
    columns: dict[Any, int] = field(default_factory=dict)
    owners: dict[int, Any] = field(default_factory=dict)
    truths: list[tuple[int, dict[int, Any] | None]] = field(default_factory=list)
    """Per offset its schema (0: none), and what its fields are by their numbers; None: it is no message."""

    def bind(self) -> None:
        """Another schema: a new one, a later version, an earlier one again, or none."""
        draw, random = self.random.random(), self.random
        if self.schemas and draw < 0.1:
            self.bound = 0
            return
        if self.schemas and draw < 0.6:
            old = random.choice(self.schemas)
            again = old.source if draw < 0.25 else histories.changed(random, old.source)
            root = old.root if draw < 0.5 else random.choice(ROOTS)
        else:
            again, root = histories.message(random), random.choice(ROOTS)
        self.bound = len(self.schemas) + 1
        self.schemas.append(Schema(self.bound, root, again))

    def produce(self) -> None:
        """A batch of records, some framed, some by an earlier schema, a few that are no message at all."""
        records = [batch.NewRecord(1, None, self._record()) for _ in range(ROWS_OF_BATCH)]
        if not self.spans or self.spans[-1].value_schema_id != self.bound:
            self.spans.append(Span(self.end, 0, self.bound))
        self.batches.append(batch.build(records, base_offset=self.end))
        self.end += len(records)

    def _record(self) -> bytes | None:
        random = self.random
        if random.random() < BAD_OF:
            self.truths.append((self.bound, None))
            return random.choice((b"\xff", b"\x00", b"\x00\x00\x00\xff\xff\x00", b"\x0b"))
        framed = self.bound and random.random() < 0.3
        schema = self.schemas[(random.choice(self.schemas).schema_id if framed else self.bound or 1) - 1]
        kind = descriptors.load(schema.binding.descriptor_set, schema.root)
        message = kind.message_class()
        truth = histories.fill(random, message, schema.source)
        self.truths.append((schema.schema_id if self.bound else 0, truth))
        content = message.SerializeToString()
        return framing.prefix(schema.schema_id, kind.indexes) + content if framed else content

    def layout(self) -> Layout:
        """As the committer builds it: what the open spans need, what frames named, and what is bound."""
        at = max((n for n, each in enumerate(self.spans) if each.first_offset <= self.committed), default=0)
        used = {each.value_schema_id for each in self.spans[at:]} | self.framed | {self.bound}
        chosen = tuple(each.binding for each in self.schemas if each.schema_id in used)
        known = tuple(each.schema_id for each in self.schemas)
        values = Bindings(chosen, self.bound, known)
        built = layout.build(None, values, ids=self.ids, previous=self.fields, flat=self.flat)
        assert not [each for each in built.problems if "slowly" not in each]
        return built

    def take(self, built: Layout) -> None:
        """The table has this layout now: each field has its identity's column, and no two share one."""
        chosen = (each.schema_id for each in built.basis.value.schemas)
        for schema_id in sorted(chosen, key=lambda one: (one == self.bound, one)):
            self._identify(self.schemas[schema_id - 1], column_ids(self.schemas[schema_id - 1], built))
        self.fields, self.ids = json.loads(json.dumps(built.fields)), built.ids.to_json()

    def _identify(self, schema: Schema, ids: Mapping[tuple[int, ...], int]) -> None:
        for path, identity in self.identities.of(schema.root, schema.source):
            assert self.columns.setdefault(identity, ids[path]) == ids[path], (schema, path)
            assert self.owners.setdefault(ids[path], identity) == identity, (schema, path)

    def commit(self) -> None:
        """Write a file of all that the table lacks."""
        slices = [memoryview(each) for each in self.batches if batch.peek(each).base_offset >= self.committed]
        while True:
            built = self.layout()
            try:
                done = writer.write_file(
                    built, 0, slices, self.committed, self.end, (), [Span(0, 0, 0), *self.spans]
                )
                break
            except MissingSchemas as missing:
                asked = missing.schema_ids - self.framed
                if not asked:
                    raise
                self.framed |= asked
        if done is not None:
            self.files.append(done.content)
        self.take(built)
        self.committed = self.end


def column_ids(schema: Schema, built: Layout) -> dict[tuple[int, ...], int]:
    """{path of field numbers: column id} of a schema in a layout."""
    kind = descriptors.load(schema.binding.descriptor_set, schema.root)
    shape = mapping.shape(kind.descriptor)
    fields = flat.nested(built.fields)
    columns = next(each for each in fields if each["id"] == VALUE_ID)["type"]["fields"]
    given = arrow_types.message_fields(shape, VALUE_ID, schema.root, built.ids, columns)
    found: dict[tuple[int, ...], int] = {}

    def walk(source: Message, given: list[pa.Field], at: tuple[int, ...]) -> None:
        for each, one in zip(source.fields, given, strict=True):
            found[(*at, each.number)] = int(one.metadata[FIELD_ID])
            inner = one.type
            if each.form == "list":
                inner = inner.value_type
            elif each.form == "map":
                inner = inner.item_type
            if isinstance(each.kind, Message):
                walk(each.kind, list(inner), (*at, each.number))

    walk(schema.source, given, ())
    return found


def by_id(value: Any, kind: pa.DataType) -> Any:
    """What a file holds, by column id; what is null is left out."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        found = {int(each.metadata[FIELD_ID]): by_id(value[each.name], each.type) for each in kind}
        return {number: each for number, each in found.items() if each is not None}
    if pa.types.is_list(kind):
        return [by_id(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: by_id(each, kind.item_type) for key, each in value}
    return value


def rows(topic: Topic) -> Iterator[tuple[int, dict[int, Any]]]:
    """Offset and columns of each row of the table, those at the top of a flat one among the value's."""
    for content in topic.files:
        table = pq.read_table(io.BytesIO(content))
        kind = pa.struct([each for each in table.schema if each.name not in ("kafka", "key", "headers")])
        assert topic.flat or kind.names == ["value"]
        for row in table.to_pylist():
            top = by_id(row, kind)
            yield row["kafka"]["offset"], {**top.pop(VALUE_ID), **top}


def assert_shown(topic: Topic, ids: Mapping[int, Mapping[tuple[int, ...], int]]) -> int:
    """Every row is what its record is; how many there are."""
    number = -1
    for number, (offset, found) in enumerate(rows(topic)):
        assert offset == number
        schema_id, truth = topic.truths[offset]
        found.pop(evolution.VALUE_RAW_ID)
        error = found.pop(evolution.VALUE_ERROR_ID, None)
        if schema_id == 0:
            assert (found, error) == ({}, None), offset
        elif truth is None:
            assert found == {}, offset
            assert error, offset
        else:
            source = topic.schemas[schema_id - 1].source
            assert (found, error) == (histories.by_column(source, truth, ids[schema_id]), None), offset
    return number + 1


def played(seed: int, rows: int) -> Topic:
    """A topic of so many records and its table, in files of the columns of their times; all is committed."""
    topic = Topic(Random(seed), flat=bool(seed % 2))
    while topic.end < rows:
        draw = topic.random.random()
        if draw < 0.1:
            topic.bind()
        elif draw < 0.2:
            topic.commit()
        elif topic.schemas:
            topic.produce()
    topic.commit()
    topic.framed = {each.schema_id for each in topic.schemas}
    topic.take(topic.layout())
    return topic


def run(seed: int, count: int) -> int:
    """One history; the rows it had."""
    topic = played(seed, count)
    whole = topic.layout()
    ids = {each.schema_id: column_ids(each, whole) for each in topic.schemas}
    for columns in (whole.fields, whole.fields[2]["type"]["fields"]):
        names = [each["name"].lower() for each in columns]
        assert len(set(names)) == len(names)
    assert flat.flattened(flat.nested(whole.fields)) == whole.fields or not topic.flat
    return assert_shown(topic, ids)


@pytest.mark.parametrize("part", range(10))
def test_every_value_stands_in_the_column_of_its_own_schema(part: int) -> None:
    count = ROWS // HISTORIES
    for seed in range(part * HISTORIES // 10, (part + 1) * HISTORIES // 10):
        assert run(seed, count) >= count, f"seed {seed}"
