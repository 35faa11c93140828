"""A look at sums says that two sides are the same where they are, and nothing where anything is otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.columns import TableColumns
from iceberg.spark.given import AuditInput
from iceberg.spark.glance import Glance, glance, may_glance
from iceberg.spark.tables import WRONG, XXHASH, Pinned, unbound_history
from tests.spark.catalogs import keep_below

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

Row = tuple[Any, ...]
Side = list[Row]
COLUMNS = (
    "topic string, partition int, offset long, key_hash long, value_hash long, headers_hash long, "
    "timestamp_us long, timestamp_type int"
)
VALUE = 4
RECORDS = 5
ENDS = {("t", partition): RECORDS for partition in range(2)}
HIGHS = dict.fromkeys(ENDS, RECORDS + 2)


def records(last: int = RECORDS) -> Side:
    """Of both partitions, from offset 0 on; the first without a key, the second without a value."""
    places = [(partition, offset) for partition in range(2) for offset in range(last)]
    return [
        (
            "t", partition, offset, None if offset == 0 else offset * 7, None if offset == 1 else offset * 11,
            3, offset * 1_000, 0,
        )
        for partition, offset in places
    ]  # fmt: skip


def but(side: Side, at: int, **changed: Any) -> Side:
    """The side with fields of the record at this place in the list changed, by their names."""
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    found = dict(zip(names, side[at], strict=True)) | changed
    return [*side[:at], tuple(found.values()), *side[at + 1 :]]


def without(side: Side, *at: int) -> Side:
    """The side without the records at these places in the list."""
    return [each for number, each in enumerate(side) if number not in at]


def twice(side: Side, at: int) -> Side:
    """The side with a record once more."""
    return [*side, side[at]]


def nothing(spark: SparkSession, *_: object) -> DataFrame:
    """As if a topic were read."""
    return spark.range(0)


GIVEN = AuditInput(
    tables={"t": "lake.floe.t"}, consumed=nothing, log_start=dict.fromkeys(ENDS, 0),
    ends=ENDS,
)  # fmt: skip


@pytest.fixture(scope="module")
def quick(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session that plans for small tables."""
    spark = jvm.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    keep_below(spark, "local", tmp_path_factory.mktemp("glance"))
    return spark


Look = Callable[..., Glance | None]


@pytest.fixture
def look(quick: SparkSession) -> Look:
    def run(
        read: Side, rows: Side, given: AuditInput = GIVEN, wrong: Sequence[int] = (), highs: Any = HIGHS
    ) -> Glance | None:
        flagged = [(*row, 1 if at in wrong else None) for at, row in enumerate(rows)]
        found = glance(
            quick, quick.createDataFrame(read, COLUMNS),
            quick.createDataFrame(flagged, f"{COLUMNS}, {WRONG} int"), given, highs,
        )  # fmt: skip
        return found and found._replace(sums={})

    return run


def test_what_is_the_same_is_seen_to_be_and_later_rows_are_counted(look: Look) -> None:
    assert look(records(), records()[::-1]) == Glance(10, 0)
    assert look(records(), records(RECORDS + 2)) == Glance(10, 4)
    assert look([], []) is None, "the ends say that there were some"
    assert look([], [], replace(GIVEN, since=ENDS)) == Glance(0, 0)


OFF = records()
SWAPPED = but(but(OFF, 2, value_hash=OFF[3][VALUE]), 3, value_hash=OFF[2][VALUE])
ONE_SIDED: Mapping[str, tuple[Side, Side]] = {
    "a row lost": (OFF, without(OFF, 3)),
    "a lost tail": (OFF, without(OFF, 4)),
    "a whole partition lost": (OFF, without(OFF, 5, 6, 7, 8, 9)),
    "all lost": (OFF, []),
    "a record that nobody reads": (without(OFF, 3), OFF),
    "a row twice": (OFF, twice(OFF, 3)),
    "a row twice, another lost": (OFF, twice(without(OFF, 2), 2)),
    "a record read twice": (twice(OFF, 3), OFF),
    "another key": (OFF, but(OFF, 3, key_hash=4)),
    "another value": (OFF, but(OFF, 3, value_hash=4)),
    "other headers": (OFF, but(OFF, 3, headers_hash=4)),
    "another time": (OFF, but(OFF, 3, timestamp_us=4)),
    "another kind of time": (OFF, but(OFF, 3, timestamp_type=1)),
    "null for a key": (OFF, but(OFF, 3, key_hash=None)),
    "a key as a value": (but(OFF, 3, key_hash=5, value_hash=None), but(OFF, 3, key_hash=None, value_hash=5)),
    "values of two records for each other": (OFF, SWAPPED),
    "a row in another partition": (OFF, but(OFF, 3, partition=1)),
    "a row at another offset": (OFF, but(OFF, 3, offset=2)),
    "a row in no partition": (OFF, but(OFF, 3, partition=None)),
    "one more row in no partition": (OFF, [*OFF, ("t", None, *OFF[3][2:])]),
    "one more row in a partition that is not there": (OFF, [*OFF, ("t", 7, *OFF[3][2:])]),
    "one more row at no offset": (OFF, [*OFF, ("t", 0, None, *OFF[3][3:])]),
    "one more row at a negative offset": (OFF, [*OFF, ("t", 0, -1, *OFF[3][3:])]),
    "one more row beyond the topic's end": (OFF, [*OFF, ("t", 0, RECORDS + 2, *OFF[3][3:])]),
    "one more record beyond the end": ([*OFF, ("t", 0, RECORDS, *OFF[3][3:])], OFF),
}


@pytest.mark.parametrize("name", ONE_SIDED)
def test_where_the_sides_differ_nothing_is_said(look: Look, name: str) -> None:
    assert look(*ONE_SIDED[name]) is None


BOTH: Mapping[str, Side] = {
    "a gap": without(OFF, 2),
    "the first lost": without(OFF, 0),
    "one twice": twice(OFF, 2),
    "one twice, another lost": twice(without(OFF, 2), 2),
    "two twice, two lost, with the same sum of offsets": twice(twice(without(OFF, 0, 3), 0), 1),
}


@pytest.mark.parametrize("name", BOTH)
def test_what_both_sides_have_alike_is_not_enough(look: Look, name: str) -> None:
    assert look(BOTH[name], BOTH[name]) is None


def test_a_row_that_may_be_wrong_in_itself_is_not_passed(look: Look) -> None:
    assert look(OFF, OFF, wrong=[4]) is None


def test_holes_that_are_known_are_none_and_hide_no_other(look: Look) -> None:
    given = replace(GIVEN, holes={("t", 0): [(1, 2), (3, 4)], ("t", 1): [(0, 1)]})
    left = without(OFF, 1, 3, 5)
    assert look(left, left, given) == Glance(7, 0)
    less = without(OFF, 1, 2, 3, 5)
    assert look(less, less, given) is None
    elsewhere = without(OFF, 2, 3, 5)  # as many, but not those
    assert look(elsewhere, elsewhere, given) is None


def test_what_digests_are_of_is_no_hole_and_hides_none(look: Look) -> None:
    """And nobody is asked for others where the rest is dense."""

    def asked(*_: object) -> list[tuple[int, int]]:
        raise AssertionError("this reads the topic")

    given = replace(GIVEN, covered={("t", 0): [(0, 1), (2, 4)]}, holes=asked)
    left = without(OFF, 0, 2, 3)
    assert look(left, left, given) == Glance(7, 0)
    assert look(left, OFF, given) is None
    less = without(OFF, 0, 1, 2, 3)
    assert look(less, less, replace(given, holes={})) is None


def test_offsets_are_due_from_where_the_audit_begins(look: Look) -> None:
    begun = [each for each in OFF if each[2] >= 2]
    assert look(begun, begun) is None
    assert look(begun, begun, replace(GIVEN, since=dict.fromkeys(ENDS, 2))) == Glance(6, 0)


def test_what_may_be_excused_is_looked_at_side_by_side() -> None:
    assert may_glance(GIVEN, HIGHS)
    place = ("t", 0)
    for other in (
        replace(GIVEN, consumed=None),
        replace(GIVEN, tables={**GIVEN.tables, "u": "lake.floe.u"}),
        replace(GIVEN, log_start={place: 1}),
        replace(GIVEN, skipped={place: [(4, 9)]}),
        replace(GIVEN, ends={}),
    ):
        assert not may_glance(other, HIGHS)
    assert not may_glance(GIVEN, {})
    known = {place: [(0, 1)]}
    assert may_glance(replace(GIVEN, log_start={place: 1}, covered=known), HIGHS), "digests are of it"
    assert not may_glance(replace(GIVEN, log_start={place: 2}, covered=known), HIGHS)
    assert may_glance(replace(GIVEN, skipped={place: [(0, 1)]}, covered=known), HIGHS)
    since = {place: 3}
    assert may_glance(replace(GIVEN, since=since, log_start={place: 3}, skipped={place: [(1, 3)]}), HIGHS)


KAFKA = "struct<partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int>"
FIELDS = [
    {"id": 1, "name": "kafka", "type": {"type": "struct", "fields": []}},
    {"id": 6, "name": "key", "type": {"type": "struct", "fields": [{"id": 7, "name": "__raw__"}]}},
    {"id": 8, "name": "value", "type": {"type": "struct", "fields": [
        {"id": 9, "name": "__raw__"}, {"id": 10, "name": "__err__"}, {"id": 20, "name": "price"}]}},
    {"id": 11, "name": "headers", "type": {"type": "list"}},
]  # fmt: skip


def test_rows_of_a_topic_without_schemas_are_right_with_their_bytes_alone(quick: SparkSession) -> None:
    key, right = (b"k",), (b"v", None, None)
    messages = [
        (key, right), (None, right), (key, None), (None, None), (key, (b"", None, None)),
        (key, (b"v", "why", None)), (key, (b"v", None, 1)), (key, (None, None, None)), ((None,), right),
    ]  # fmt: skip
    rows: list[Any] = [((0, at, None, 0), *each, []) for at, each in enumerate(messages)]
    kinds = (
        f"kafka {KAFKA}, key struct<__raw__: binary>, "
        "value struct<__raw__: binary, __err__: string, price: int>, "
        "headers array<struct<key: string, value: binary>>"
    )
    quick.createDataFrame(rows, kinds).coalesce(1).writeTo("local.db.t").create()
    of = Pinned("t", "local.db.t", TableColumns(json.dumps(FIELDS), ""))
    found: DataFrame = unbound_history(quick, of, F.lit(True), XXHASH)
    assert [row["offset"] for row in found.where(f"{WRONG} IS NOT NULL").collect()] == [5, 6, 7, 8]
