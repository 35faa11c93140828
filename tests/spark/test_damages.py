"""Each damage of a list, planted in a table, is found by the audit, at its place and by its column's name."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iceberg.spark.audit import audit
from iceberg.spark.given import AuditInput
from iceberg.spark.verdict import COLUMN, KINDS, Finding, Verdict
from tests.spark import zoo_table
from tests.spark.audit_stories import write_history
from tests.spark.catalogs import expect_little, keep_below
from tests.spark.damages import DAMAGES, NO_PARTITION, OTHER_PARTITIONS, Damage
from tests.spark.zoo_table import END, TOMBSTONE, Row

pytestmark = pytest.mark.services

SOUND, DAMAGED, ODDLY_TYPED, FLAT = "sound", "damaged", "oddly_typed", "flat"
SOUND_PARTITIONS = 2


def table(
    spark: SparkSession,
    folder: Path,
    name: str,
    rows: list[Row],
    columns: list[dict[str, Any]],
    *,
    flat: bool = False,
) -> str:
    """An Iceberg table with these rows, written by Spark."""
    zoo_table.empty_table(folder, name, columns)
    file = folder / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, zoo_table.arrow_schema(flat=flat)), file)
    given = spark.read.parquet(str(file))
    kinds = spark.table(f"local.db.{name}").schema
    given.select(*(given[each.name].cast(each.dataType) for each in kinds)).writeTo(
        f"local.db.{name}"
    ).append()
    return f"local.db.{name}"


def with_another_scale() -> list[dict[str, Any]]:
    """The table's columns, of which one is a decimal with places."""
    columns = deepcopy(zoo_table.fields())
    value = next(each for each in columns if each["name"] == "value")["type"]["fields"]
    next(each for each in value if each["name"] == "f_uint64")["type"] = "decimal(22, 2)"
    return columns


def _left_over(rows: list[Row]) -> None:
    """A tombstone whose value is null, as it should be, and one of its columns is not."""
    (row,) = [
        each
        for each in rows
        if each["kafka"]
        and (each["kafka"]["partition"], each["kafka"]["offset"]) == (len(DAMAGES), TOMBSTONE)
    ]
    row["f_int64"] = 7


@pytest.fixture(scope="module")
def verdict(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """One audit of all damages and of a sound table beside them, as the command line makes it."""
    folder = tmp_path_factory.mktemp("damages")
    spark = jvm.newSession()
    keep_below(spark, "local", folder / "local")
    expect_little(spark)
    damaged: list[Row] = []
    for partition, damage in enumerate(DAMAGES):
        rows = zoo_table.rows(partition)
        damage.change(rows)
        damaged += rows
    flat_rows = [zoo_table.hoisted(row) for row in [*damaged, *zoo_table.rows(len(DAMAGES))]]
    _left_over(flat_rows)
    counts = {SOUND: SOUND_PARTITIONS, DAMAGED: len(DAMAGES), ODDLY_TYPED: 1, FLAT: len(DAMAGES) + 1}
    sound = [row for partition in range(SOUND_PARTITIONS) for row in zoo_table.rows(partition)]
    warehouse = folder / "local"
    tables = {
        SOUND: table(spark, warehouse, SOUND, sound, zoo_table.fields()),
        DAMAGED: table(spark, warehouse, DAMAGED, damaged, zoo_table.fields()),
        FLAT: table(spark, warehouse, FLAT, flat_rows, zoo_table.fields(flat=True), flat=True),
        ODDLY_TYPED: table(spark, warehouse, ODDLY_TYPED, zoo_table.rows(0), with_another_scale()),
    }
    places = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    ends = dict.fromkeys(places, END)
    return audit(
        spark,
        AuditInput(
            tables=tables,
            consumed=write_history(
                folder / "consumed", [row for place in places for row in zoo_table.history(*place)]
            ),
            log_start=dict.fromkeys(places, 0),
            ends=ends,
            schemas={topic: zoo_table.schemas(count) for topic, count in counts.items()},
            high_watermarks=lambda: ends,
            examples=10_000,
        ),
    )


def found(verdict: Verdict, topic: str) -> dict[int, list[Finding]]:
    """The findings of a topic by partition."""
    by_partition: dict[int, list[Finding]] = defaultdict(list)
    for each in verdict.findings:
        if each.topic == topic:
            by_partition[each.partition].append(each)
    return by_partition


@pytest.mark.parametrize("topic", [DAMAGED, FLAT])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_each_damage_is_found_at_its_place_and_nothing_else_is(
    verdict: Verdict, damage: Damage, topic: str
) -> None:
    own = DAMAGES.index(damage)
    by_partition = found(verdict, topic)
    due = damage.in_flat() if topic == FLAT else damage.found
    where = own if damage.where is None else damage.where
    told = [(each.kind, each.offset, each.column) for each in by_partition[where]]
    assert due <= set(told), [str(each) for each in by_partition[where]]
    if damage.where is None:
        assert sorted(told) == sorted(due), [str(each) for each in by_partition[own]]
    else:
        assert by_partition[own] == [], "its own rows stayed"


def test_the_sound_table_beside_them_is_sound(verdict: Verdict) -> None:
    assert found(verdict, SOUND) == {}
    assert {each.topic: each.table for each in verdict.topics}[SOUND] == SOUND_PARTITIONS * END


def test_a_column_of_a_flat_table_that_says_something_of_a_tombstone_is_found(verdict: Verdict) -> None:
    (told,) = found(verdict, FLAT)[len(DAMAGES)]
    assert (told.kind, told.offset, told.column) == (COLUMN, TOMBSTONE, "f_int64")
    assert told.detail == "is not null, but its row's value is, or has no bytes"


def test_a_column_of_another_type_is_found_though_its_values_are_right(verdict: Verdict) -> None:
    by_partition = found(verdict, ODDLY_TYPED)
    assert {each.column for each in by_partition[0]} == {"value.f_uint64"}
    assert "decimal(20, 0) is due" in by_partition[0][0].detail


def test_findings_are_where_somebody_can_look(verdict: Verdict) -> None:
    """Every row that was counted is told, and survives JSON with its column."""
    rows = {(each.kind, each.topic, each.partition, each.offset) for each in verdict.findings}
    for kind in KINDS:
        if kind == COLUMN:
            assert verdict.counts[kind] == len([row for row in rows if row[0] == kind])
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert set(found(verdict, DAMAGED)) <= {*range(len(DAMAGES)), NO_PARTITION, OTHER_PARTITIONS}
    assert set(found(verdict, FLAT)) <= {*range(len(DAMAGES) + 1), NO_PARTITION, OTHER_PARTITIONS}
    wrong = next(each for each in verdict.findings if each.column == "value.f_uint32")
    assert str(wrong) == (
        f"column: topic damaged partition {wrong.partition} offset 0 column value.f_uint32: "
        "is -1, 4294967295 is due"
    )
