"""`floe.table.partition`: which partition spec a table shall have, and under which values its rows stand.

Terms are parted by commas: `day(kafka.timestamp), bucket(16, value.user_id), truncate(8, value.page),
value.country`. A changed config adds a spec to the table; files that are there keep theirs (the
specification's partition evolution). A column is known by its id, so a rename changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from coordination.table_partition import Term, parse
from iceberg import flat, transforms
from iceberg.arrow_types import FIELD_ID
from iceberg.groups import Values
from iceberg.metadata import Metadata

FILES_OF_ONE = 16
"""Files that one Kafka partition may give to a commit all the same, however many partitions there are."""


class SpecError(ValueError):
    """The table cannot be partitioned as its config says; the reason names the term and the remedy."""


class By(NamedTuple):
    """A partition field: the column's Iceberg id, and Iceberg's name of the transform."""

    source: int
    transform: str


Spec = tuple[By, ...]


def resolved(text: str, fields: Iterable[Mapping[str, Any]]) -> Spec:
    """The spec that a config means for a table of these columns: each field once, however often and by
    whichever name it is said. Raises SpecError.
    """
    columns = named(fields)
    return tuple(dict.fromkeys(_resolved(each, columns) for each in parse(text)))


def named(fields: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
    """Id and type of a table's columns of single values by what configs may call them, in lower case.

    That is their path in the table; in a flat one also `value.x`, so that one config serves both layouts.
    """
    fields = list(fields)
    found = (*columns_of(flat.nested(fields)), *columns_of(fields))
    return {name.lower(): (number, kind) for name, number, kind in found}


def _resolved(term: Term, columns: Mapping[str, tuple[int, str]]) -> By:
    found = columns.get(term.column.lower())
    told = f"floe.table.partition: {term.text}"
    if found is None:
        raise SpecError(
            f"{told}: the table has no column {term.column} of single values outside of lists and maps: "
            "bind a message that has it, or change floe.table.partition"
        )
    number, kind = found
    if kind not in transforms.takes(term.transform):
        wanted = ", ".join(transforms.takes(term.transform))
        raise SpecError(
            f"{told}: {term.column} is {kind}; {term.transform.partition('[')[0]} takes {wanted}: "
            "change floe.table.partition"
        )
    return By(number, term.transform)


def columns_of(fields: Iterable[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, int, str]]:
    """Name, id and type of the columns of single values."""
    for each in fields:
        kind, name = each["type"], f"{above}{each['name']}"
        if isinstance(kind, str):
            yield name, each["id"], kind
        elif kind["type"] == "struct":
            yield from columns_of(kind["fields"], f"{name}.")


def current(metadata: Mapping[str, Any]) -> Spec:
    """The table's default spec."""
    return _by(json_of(metadata, metadata["default-spec-id"]))


def json_of(metadata: Mapping[str, Any], spec_id: int) -> Mapping[str, Any]:
    """A spec of the table, in Iceberg's JSON."""
    found: Mapping[str, Any] = next(
        each for each in metadata["partition-specs"] if each["spec-id"] == spec_id
    )
    return found


def spec_of(metadata: Mapping[str, Any], spec_id: int) -> PartitionSpec:
    """A spec of the table, as pyiceberg has it."""
    return PartitionSpec.model_validate(json_of(metadata, spec_id))


def _by(spec: Mapping[str, Any]) -> Spec:
    return tuple(By(each["source-id"], each["transform"]) for each in spec["fields"])


def with_spec(metadata: Metadata, spec: Spec) -> Metadata:
    """The table with this default spec: one that it had before, or a new one.

    A field that an earlier spec has keeps its id, as the specification wants it.
    """
    if current(metadata) == spec:
        return metadata
    specs = metadata["partition-specs"]
    for each in specs:
        if _by(each) == spec:
            return {**metadata, "default-spec-id": each["spec-id"]}
    known = {By(each["source-id"], each["transform"]): each for one in specs for each in one["fields"]}
    last = metadata["last-partition-id"]
    taken = {each["name"].lower() for each in known.values()}
    fields = []
    for by in spec:
        if by not in known:
            last += 1
            name = _name(by, metadata, taken)
            known[by] = {"source-id": by.source, "field-id": last, "name": name, "transform": by.transform}
        fields.append(known[by])
    number = max(each["spec-id"] for each in specs) + 1
    return {
        **metadata,
        "partition-specs": [*specs, {"spec-id": number, "fields": fields}],
        "default-spec-id": number,
        "last-partition-id": last,
    }


def _name(by: By, metadata: Metadata, taken: set[str]) -> str:
    """A name of a partition field: without dots, which engines write in ways of their own.

    In a flat table it is none that a column may have there, now or later: two underscores behind `value`, and
    no number behind two others (flat.py). Java refuses a table with both, unless one is made of the other.
    """
    number = metadata["current-schema-id"]
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == number)
    fields = flat.nested(schema["fields"])
    source_name = next(name for name, source, _ in columns_of(fields) if source == by.source)
    kind, _, size = by.transform.rstrip("]").partition("[")
    if flat.is_flat(metadata):
        source_name = source_name.replace(".", "__", 1)
        kind = "" if kind == "identity" and not flat.is_appended(source_name) else kind
    else:
        kind = "" if kind == "identity" else kind
    name = "_".join(filter(None, [source_name.replace(".", "_"), kind, size]))
    while name.lower() in taken:  # readers fold case
        name = f"{name}_{by.source}"
    taken.add(name.lower())
    return name


def split(batch: pa.RecordBatch, spec: Spec) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows by their partition values, in their order each."""
    if not spec:
        yield (), batch
        return
    columns = [transforms.applied(by.transform, column(batch, by.source)) for by in spec]
    rows: dict[Values, list[int]] = {}
    for at, values in enumerate(zip(*columns, strict=True)):
        rows.setdefault(values, []).append(at)
    if len(rows) == 1:
        yield next(iter(rows)), batch
        return
    for values, some in rows.items():
        yield values, batch.take(pa.array(some, pa.int64()))


def column(batch: pa.RecordBatch, source: int) -> pa.Array:
    """The column with an id, null where a struct around it is; all null where these rows have none."""
    path = next(_paths(batch.schema, source), None)
    if path is None:
        return pa.nulls(len(batch), pa.int64())
    found = batch.column(path[0])
    return pc.struct_field(found, list(path[1:])) if path[1:] else found


def _paths(fields: Iterable[pa.Field], source: int) -> Iterator[tuple[int, ...]]:
    for at, each in enumerate(fields):
        if each.metadata and int(each.metadata[FIELD_ID]) == source:
            yield (at,)
        elif pa.types.is_struct(each.type):
            for rest in _paths(each.type, source):
                yield (at, *rest)
