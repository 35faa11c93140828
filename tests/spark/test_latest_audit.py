"""The audit of `__latest` tables: sound ones are equal, and each damage of a list is found at its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from coordination.commands import MoveLogStart
from coordination.state.types import Done
from iceberg.committer import CommitterOptions
from iceberg.small_files import FileSizes
from iceberg.spark import latest_tables
from iceberg.spark.latest_tables import Judged, Latest, judged
from iceberg.spark.tables import Pinned
from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, EXTRA, LEDGER, MISSING, PLACE
from iceberg.upsert.merging import KeyMerge
from tests.spark import zoo_table
from tests.spark.catalogs import expect_little
from tests.spark.damages import in_flat
from tests.spark.lake import lake
from tests.unit.iceberg import latest
from tests.unit.iceberg.latest import UPSERT, Oracle
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_latest_rows import DEBEZIUM, ENVELOPE, WIDER, change
from tests.unit.iceberg.test_tables_bindings import kind
from tests.unit.schema import samples

pytestmark = pytest.mark.services

TABLE = "lake.floe.t__latest"
GIVEN = Latest("t", TABLE, "lake.floe.t", examples=1_000)
FLOATS = b'syntax = "proto3"; package p; message M { float x = 1; repeated float many = 2; }'
DOUBLES = (
    b'syntax = "proto3"; package p; message M { double x = 1; repeated double many = 2; int32 more = 3; }'
)
Row = dict[str, Any]
Found = tuple[str, int, str]
"""Kind, offset, column."""


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, as catalog `lake` of the session."""
    expect_little(spark)
    async with lake(spark, tmp_path) as found:
        found.options = CommitterOptions(latest_file_bytes=400)
        yield found


async def found(spark: SparkSession, given: Latest = GIVEN) -> Judged:
    """What the audit finds."""
    return await asyncio.to_thread(judged, spark, given)


def told(of: Judged, partition: int) -> list[Found]:
    """Of one partition."""
    return [(each.kind, each.offset, each.column) for each in of.findings if each.partition == partition]


@dataclass(frozen=True)
class Damage:
    """What is done to the rows of one partition, those of the keys a, b and c; and what has to be found."""

    name: str
    change: Callable[[list[Row]], object]
    found: tuple[Found, ...]


def _again(rows: list[Row], key: bytes, offset: int) -> None:
    """Another row like that of c."""
    more = deepcopy(rows[2])
    more["key"]["__raw__"], more["kafka"]["offset"] = key, offset
    rows.append(more)


def _older(rows: list[Row]) -> None:
    kafka = {**rows[0]["kafka"], "offset": 0}
    rows[0] = {**deepcopy(rows[2]), "key": rows[0]["key"], "kafka": kafka}


def _set(path: str, value: Any, at: str = "") -> Damage:
    """One cell of the row of c, which has everything; `at` is what follows it in the finding."""

    def change(rows: list[Row]) -> None:
        *above, last = path.split(".")
        target = rows[2]
        for step in above:
            target = target[step]
        target[last] = value(target[last]) if callable(value) else value

    return Damage(f"{path} is another", change, ((COLUMN, 2, path + at),))


DAMAGES = [
    Damage("none", lambda rows: None, ()),
    Damage("a row missing", lambda rows: rows.pop(1), ((MISSING, 1, ""),)),
    Damage("all rows missing", lambda rows: rows.clear(), tuple((MISSING, at, "") for at in (1, 2, 4))),
    Damage("a key that nobody wrote", lambda rows: _again(rows, b"e", 3), ((EXTRA, 3, ""),)),
    Damage("a row twice", lambda rows: rows.insert(1, deepcopy(rows[1])), ((DOUBLED, 1, ""),) * 2),
    Damage("the older row", _older, ((CHANGED, 0, ""),)),
    Damage("a key that was deleted", lambda rows: _again(rows, b"d", 3), ((EXTRA, 3, ""),)),
    Damage("an offset beyond all", lambda rows: rows[1]["kafka"].update(offset=6), ((PLACE, 6, ""),)),
    Damage("no key", lambda rows: rows[1].update(key=None), ((MISSING, 1, ""), (PLACE, 1, ""))),
    _set("kafka.timestamp", lambda old: old + timedelta(milliseconds=1)),
    _set("kafka.timestamp_type", 1),
    _set("headers", []),
    _set("headers", lambda old: [{**old[0], "value": b"x"}], "[0].value"),
    _set("value", None),
    _set("value.__raw__", b""),
    _set("value.__err__", "odd"),
    _set("value.f_int32", None),
    _set("value.f_int64", 0),
    _set("value.f_double", 1.25),
    _set("value.o_string", None),
    _set("value.f_string", "texT"),
    _set("value.at", lambda old: old + timedelta(microseconds=1)),
    _set("value.leaf.numbers", [1, 3], "[1]"),
    _set("value.many_string", ["a", "b"]),
    _set("value.by_number", [(1, "eins"), (2, "drei")], "[2]"),
    _set("value.w_int64", None),
]  # fmt: skip
"""Damage n is done to partition n."""


@pytest.mark.parametrize("layout", ["nested", "flat"])
async def test_each_damage_is_found_at_its_place_and_nothing_else_is(
    rig: Rig, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Rows are damaged before they are written: manifests, counts and ledger say of them what is there."""
    rig.options = CommitterOptions()  # a file for each partition
    await rig.create_topic(partitions=len(DAMAGES), floe__table__layout=layout, **UPSERT)
    await rig.bind(samples.ZOO, "zoo.All")
    full = zoo_table.records()[zoo_table.FULL].value
    for partition in range(len(DAMAGES)):
        values = [full, full, full, full, b"", None]
        await rig.produce(values, partition, keys=[b"a", b"b", b"c", b"d", b"a", b"d"])
    append = KeyMerge._append

    def planted(merge: KeyMerge, rows: pa.Table) -> Any:
        kept = [zoo_table.gathered(row) for row in rows.to_pylist()]
        if kept:
            DAMAGES[merge._partition].change(kept)
        if layout == "flat":
            others = set(rows.column_names) - {*zoo_table.TOP}
            kept = [hoisted(row, others) for row in kept]
        return append(merge, pa.Table.from_pylist(kept, rows.schema))

    with monkeypatch.context() as patched:
        patched.setattr(KeyMerge, "_append", planted)
        await latest.catch_up(rig)
    outcome = await found(spark)
    wrong = {
        each.name: told(outcome, number)
        for number, each in enumerate(DAMAGES)
        if sorted(told(outcome, number)) != sorted(due(each, layout))
    }
    assert wrong == {}
    assert sum(outcome.counts.values()) == len(outcome.findings) == sum(len(each.found) for each in DAMAGES)
    assert list(outcome.rows.upto) == [6] * len(DAMAGES)
    words = {each.partition: each.detail for each in outcome.findings}
    assert "b'd' was deleted at offset 5" in words[6]
    assert "is that of offset 4" in words[5]


def hoisted(row: Row, names: set[str]) -> Row:
    """A row as the flat table has it."""
    value = row["value"] or {}
    own = None if row["value"] is None else {name: each for name, each in value.items() if name not in names}
    return {**row, "value": own, **{name: value.get(name) for name in names}}


def due(damage: Damage, layout: str) -> list[Found]:
    """What has to be found: of a flat table by names without `value`."""
    flat = layout == "flat"
    return [(kind, offset, in_flat(column) if flat else column) for kind, offset, column in damage.found]


async def test_sound_tables_are_equal_while_both_go_on(rig: Rig, spark: SparkSession) -> None:
    """The append table is compacted, and further than the latest one; their snapshots go; keys come back."""
    chance, oracle = random.Random(4), Oracle()
    await rig.create_topic(partitions=2, **UPSERT)
    rig.options = replace(rig.options, files=FileSizes(merged_at=4, busy_percent_max=100))
    committer = rig.committer()
    for number in range(6):
        await latest.random_batch(rig, chance, oracle, 2, keys=20)
        await latest.catch_up(rig)
        if number % 3 == 2:
            outcome = await found(spark)
            assert (outcome.counts, outcome.rows.rows) == ({}, len(oracle.newest))
    while await committer.compact() is not None:
        pass
    await latest.random_batch(rig, chance, oracle, 2, keys=20)
    await rig.drain(committer)
    assert (await found(spark)).counts == {}, "what is behind is not wrong"
    await latest.catch_up(rig)
    assert (await found(spark)).counts == {}


async def test_a_message_that_became_wider_since_is_no_difference(rig: Rig, spark: SparkSession) -> None:
    """The topic's table has doubles where the latest one still has floats, and a column more."""
    await rig.create_topic(partitions=1, **UPSERT)
    await rig.bind(FLOATS, "p.M")
    make = kind(FLOATS).message_class
    await rig.produce([make(x=0.1, many=[0.5, 0.1]).SerializeToString()], keys=[b"a"])
    await latest.catch_up(rig)
    await rig.bind(DOUBLES, "p.M")
    await rig.produce([kind(DOUBLES).message_class(x=0.1, more=1).SerializeToString()], keys=[b"b"])
    await rig.drain(rig.committer())
    outcome = await found(spark)
    assert (outcome.counts, outcome.rows.rows, list(outcome.rows.upto)) == ({}, 1, [1])
    await latest.catch_up(rig)
    assert (await found(spark)).counts == {}


async def test_envelopes_are_compared_as_rows(rig: Rig, spark: SparkSession) -> None:
    """Also when the message has changed, and a column is left that it has no more."""
    await rig.create_topic(partitions=1, **DEBEZIUM)
    await rig.bind(ENVELOPE, "p.M")
    one, two = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    changes = [
        change(ENVELOPE, "c", after=one),
        change(ENVELOPE, "r", after=two),
        change(ENVELOPE, "u", one, {"id": 1, "name": "A"}),
        change(ENVELOPE, "d", two),
        change(ENVELOPE, "t"),
        b"\xff garbage",
        change(ENVELOPE, "c", after=two),
    ]
    await rig.produce(changes, keys=[b"1", b"2", b"1", b"2", b"1", b"1", b"3"])
    await latest.catch_up(rig)
    outcome = await found(spark)
    assert (outcome.counts, outcome.rows.rows) == ({}, 2)
    await rig.bind(WIDER, "p.M")
    await rig.produce([change(WIDER, "u", after={"id": 2, "price": 0.5})], keys=[b"3"])
    await latest.catch_up(rig)
    outcome = await found(spark)
    assert (outcome.counts, outcome.rows.rows) == ({}, 2)


async def test_rows_of_records_that_retention_took_are_left_as_they_are(
    rig: Rig, spark: SparkSession
) -> None:
    """What the topic's table has no more tells nothing: by the log start all is right."""
    follow = {"floe__table__retention": "follow"}
    await rig.create_topic(partitions=1, **UPSERT, **follow)
    for key in (b"a", b"b", b"c"):
        await rig.produce([b"1"], keys=[key])
        await latest.catch_up(rig)
    handle, committer = rig.replica.state.topics["t"].partitions[0].handle, rig.committer()
    moved = MoveLogStart(partition=[handle], offset=[2])
    assert isinstance(await rig.replica.propose(moved), Done)
    await rig.drain(committer)
    assert await committer.follow() == 2
    await rig.produce([b"2"], keys=[b"d"])
    await latest.catch_up(rig)
    outcome = await found(spark)
    assert outcome.counts == {EXTRA: 2}, "of a and b no record is left"
    assert (await found(spark, replace(GIVEN, left=lambda: {0: 2}))).counts == {}


async def test_a_ledger_that_is_not_there_or_beyond_the_topics_is_found(
    rig: Rig, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    await rig.produce([b"1"], keys=[b"a"])
    await latest.catch_up(rig)
    real = latest_tables._ledger

    def further(of: Pinned) -> list[int] | None:
        return [2] if of.table == TABLE else real(of)

    with monkeypatch.context() as patched:
        patched.setattr(latest_tables, "_ledger", further)
        outcome = await found(spark)
    assert [(each.kind, each.offset) for each in outcome.findings] == [(LEDGER, 2)]
    await asyncio.to_thread(
        spark.sql, "CREATE TABLE local.db.plain USING iceberg AS SELECT * FROM lake.floe.t__latest"
    )
    outcome = await found(spark, replace(GIVEN, table="local.db.plain"))
    assert outcome.counts == {LEDGER: 1}
    assert "has no ledger" in outcome.findings[0].detail
