"""Rows of latest tables against those that are due, as the audit's executors compare them; no Spark."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest

from iceberg import arrow_types, evolution
from iceberg.spark.rows_alike import Judge, Sides, comparing
from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, EXTRA, MISSING, PLACE

FIELDS = evolution.new_fields()
ROW: dict[str, Any] = {
    "kafka": {"partition": 0, "offset": 3, "timestamp": 5, "timestamp_type": 0},
    "key": {"__raw__": b"k"},
    "value": {"__raw__": b"v", "__err__": None},
    "headers": [{"key": "h", "value": None}],
}
LEDGER = [4]


def batch(*pairs: tuple[Any, Any], n: int = 1, gone_at: int | None = None) -> pa.RecordBatch:
    """Pairs of (due, there), as Spark gives them."""
    kind = pa.struct([_optional(arrow_types.whole(each)) for each in FIELDS])
    keys = [(there or due)["key"] for due, there in pairs]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * len(pairs), pa.int32()),
            "raw": pa.array([None if key is None else key["__raw__"] for key in keys], pa.binary()),
            "gone_at": pa.array([gone_at] * len(pairs), pa.int64()),
            "wanted": pa.array([due for due, _ in pairs], kind),
            "found": pa.array([there for _, there in pairs], kind),
            "n": pa.array([n] * len(pairs), pa.int64()),
        }
    )


def _optional(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)


def judge(fields: list[Any] | None = None) -> Judge:
    return Judge(Sides("t__latest", json.dumps(fields or FIELDS), json.dumps(FIELDS), False), LEDGER)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The row with another cell."""
    row = deepcopy(ROW)
    *above, last = path.split(".")
    target = row
    for step in above:
        target = target[step]
    target[last] = value
    return row


def told(*pairs: tuple[Any, Any], n: int = 1, gone_at: int | None = None) -> list[tuple[str, int, str]]:
    """Kind, offset and column; what is told quickly is the same."""
    given = batch(*pairs, n=n, gone_at=gone_at)
    found = [(kind, offset, column) for kind, _, offset, column, _ in judge().told(given)]
    assert judge().alike(given) == (not found)
    return found


def test_rows_that_are_alike_are_told_so_at_once() -> None:
    assert told((ROW, deepcopy(ROW)), (ROW, ROW)) == []
    (found,) = comparing(Sides("t", json.dumps(FIELDS), json.dumps(FIELDS), False), LEDGER)(
        [batch((ROW, ROW))]
    )
    assert found.num_rows == 0


@pytest.mark.parametrize(
    ("pair", "n", "found"),
    [
        ((ROW, None), 1, (MISSING, 3, "")),
        ((None, ROW), 1, (EXTRA, 3, "")),
        ((ROW, ROW), 2, (DOUBLED, 3, "")),
        ((ROW, changed("kafka.offset", 1)), 1, (CHANGED, 1, "")),
        ((ROW, changed("kafka.offset", 4)), 1, (PLACE, 4, "")),
        ((ROW, changed("key", None)), 1, (PLACE, 3, "")),
        ((ROW, changed("kafka.timestamp", None)), 1, (COLUMN, 3, "kafka.timestamp")),
        ((ROW, changed("value", None)), 1, (COLUMN, 3, "value")),
        ((ROW, changed("value.__raw__", None)), 1, (COLUMN, 3, "value.__raw__")),
        ((ROW, changed("value.__err__", "")), 1, (COLUMN, 3, "value.__err__")),
        ((ROW, changed("headers", [{"key": "h", "value": b""}])), 1, (COLUMN, 3, "headers[0].value")),
        ((ROW, changed("headers", None)), 1, (COLUMN, 3, "headers")),
    ],
)
def test_what_differs_is_told_at_its_place(
    pair: tuple[Any, Any], n: int, found: tuple[str, int, str]
) -> None:
    assert told((ROW, ROW), pair, n=1)[:1] == [found] if n == 1 else told(pair, n=n) == [found]


def test_a_key_that_is_back_is_told_by_when_it_was_deleted() -> None:
    (kind, _, offset, _, detail) = next(judge().told(batch((None, ROW), gone_at=3)))
    assert (kind, offset, detail) == (EXTRA, 3, "t__latest: key b'k' was deleted at offset 3")


def test_reals_differ_by_their_bits_and_so_nothing_is_told_quickly() -> None:
    """0.0 and -0.0 are one for Arrow."""
    fields = deepcopy(FIELDS)
    fields[2]["type"]["fields"].append({"id": 20, "name": "f", "required": False, "type": "double"})
    slow = Judge(Sides("t", json.dumps(fields), json.dumps(fields), False), LEDGER)
    kind = pa.struct([_optional(arrow_types.whole(each)) for each in fields])
    zero, minus, nan = (changed("value.f", value) for value in (0.0, -0.0, float("nan")))
    given = batch((ROW, ROW))
    for due, there, count in ((zero, minus, 1), (minus, zero, 1), (nan, nan, 0), (minus, minus, 0)):
        pairs = given.set_column(3, "wanted", pa.array([due], kind))
        pairs = pairs.set_column(4, "found", pa.array([there], kind))
        assert not slow.alike(pairs)
        assert [each[0] for each in slow.told(pairs)] == [COLUMN] * count


def test_a_value_of_a_column_that_the_table_does_not_have_is_told() -> None:
    fields = deepcopy(FIELDS)
    fields[2]["type"]["fields"].append({"id": 20, "name": "f", "required": False, "type": "int"})
    kind = pa.struct([_optional(arrow_types.whole(each)) for each in fields])
    given = batch((ROW, ROW), (ROW, ROW))
    due = pa.array([changed("value.f", 1), changed("value.f", None)], kind)
    (found,) = judge(fields).told(given.set_column(3, "wanted", due))
    assert found[:4] == (COLUMN, 0, 3, "value.#20")
