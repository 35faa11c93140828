"""`floe.table.sort`: in which order the rows of a data file stand.

Terms are parted by commas: `value.country, day(kafka.timestamp) desc nulls-last`. A changed config adds a
sort order to the table; files that are there keep theirs. A column is known by its id, so a rename changes
nothing. Rows that are alike by all terms stand in the order of their offsets.

What comes first is the specification's: text by its bytes, reals from -NaN over -0 and 0 to NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordination.table_sort import SortTerm, parse
from iceberg import transforms
from iceberg.evolution import OFFSET_ID
from iceberg.metadata import Metadata
from iceberg.partitioning import column, named

UNSORTED = 0
"""The specification's id of the order that is none."""
_ONLY_SORTED = ("float", "double", "decimal(20, 0)")
"""Types that `identity` takes here besides those of partitions."""


class OrderError(ValueError):
    """The table cannot be sorted as its config says; the reason names the term and the remedy."""


class Key(NamedTuple):
    """A field of a sort order: the column's Iceberg id, Iceberg's name of the transform, what is first."""

    source: int
    transform: str
    descending: bool = False
    nulls_first: bool = True


Order = tuple[Key, ...]


def resolved(text: str, fields: Iterable[Mapping[str, Any]]) -> Order:
    """The order that a config means for a table of these columns; what is said again, by whichever name, has
    no effect. Raises OrderError.
    """
    columns, found = named(fields), dict[tuple[int, str], Key]()
    for key in (_resolved(each, columns) for each in parse(text)):
        found.setdefault((key.source, key.transform), key)
    return tuple(found.values())


def _resolved(term: SortTerm, columns: Mapping[str, tuple[int, str]]) -> Key:
    name, transform = term.of.column, term.of.transform
    found = columns.get(name.lower())
    told = f"floe.table.sort: {term.of.text}"
    if found is None:
        raise OrderError(
            f"{told}: the table has no column {name} of single values outside of lists and maps: "
            "bind a message that has it, or change floe.table.sort"
        )
    number, kind = found
    taken = transforms.takes(transform)
    taken = (*taken, *_ONLY_SORTED) if transform == "identity" else taken
    if kind not in taken:
        raise OrderError(
            f"{told}: {name} is {kind}; {transform.partition('[')[0]} takes {', '.join(taken)}: "
            "change floe.table.sort"
        )
    return Key(number, transform, term.descending, term.nulls_first)


def current(metadata: Mapping[str, Any]) -> Order:
    """The table's default sort order."""
    number = metadata["default-sort-order-id"]
    return _order(next(each for each in metadata["sort-orders"] if each["order-id"] == number))


def _order(told: Mapping[str, Any]) -> Order:
    return tuple(
        Key(
            each["source-id"],
            each["transform"],
            each["direction"] == "desc",
            each["null-order"] == "nulls-first",
        )
        for each in told["fields"]
    )


def with_order(metadata: Metadata, order: Order) -> Metadata:
    """The table with this default sort order: one that it had before, or a new one."""
    if current(metadata) == order:
        return metadata
    orders = metadata["sort-orders"]
    for each in orders:
        if _order(each) == order:
            return {**metadata, "default-sort-order-id": each["order-id"]}
    number = max(each["order-id"] for each in orders) + 1
    added = {"order-id": number, "fields": [_json(each) for each in order]}
    return {**metadata, "sort-orders": [*orders, added], "default-sort-order-id": number}


def _json(key: Key) -> dict[str, Any]:
    return {
        "transform": key.transform,
        "source-id": key.source,
        "direction": "desc" if key.descending else "asc",
        "null-order": "nulls-first" if key.nulls_first else "nulls-last",
    }


def keys_of(batch: pa.RecordBatch, order: Order) -> pa.RecordBatch:
    """What the rows are compared by, column by column: of each key where nulls stand, then its value."""
    found: dict[str, pa.Array] = {}
    for at, key in enumerate(order):
        values = transforms.array_of(key.transform, column(batch, key.source))
        after = values.is_valid() if key.nulls_first else values.is_null()
        found[f"null{at}"], found[f"value{at}"] = after.cast(pa.int8()), _comparable(values)
    found["offset"] = column(batch, OFFSET_ID)
    return pa.RecordBatch.from_pydict(found)


def indices(keys: pa.Table, order: Order) -> pa.Array:
    """Of each row in order its place among the rows that have these keys."""
    by = list(_directions(order))
    return pc.sort_indices(keys, sort_keys=[*by, ("offset", "ascending")])


def _directions(order: Order) -> Iterator[tuple[str, str]]:
    for at, key in enumerate(order):
        yield f"null{at}", "ascending"
        yield f"value{at}", "descending" if key.descending else "ascending"


def _comparable(values: pa.Array) -> pa.Array:
    """Reals as whole numbers in the specification's order, which tells zeroes and NaNs apart."""
    if not pa.types.is_floating(values.type):
        return values
    bits = values.cast(pa.float64()).view(pa.int64())
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, (1 << 63) - 1), bits)
