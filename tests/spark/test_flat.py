"""Flat tables in Spark: queries by plain names, rows of the newest, the audit, a repair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg import flat_rows
from iceberg.spark import JobError, decoder, repair, value_type
from iceberg.spark.audit import audit
from iceberg.spark.given import AuditInput
from iceberg.spark.history import HistoryRow, bytes_hash, headers_hash
from iceberg.spark.latest_tables import Latest, judged
from iceberg.spark.schemas import VALUE, Schema, TopicSchemas
from iceberg.spark.verdict import Verdict
from schema import framing
from tests.spark.audit_stories import write_history
from tests.spark.catalogs import expect_little
from tests.spark.lake import lake
from tests.spark.test_rewrites import rewrite
from tests.unit.iceberg import latest
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_bindings import encoded, kind
from tests.unit.iceberg.test_tables_flat import FLAT, LATER, VIEW, configure
from tests.unit.schema import samples

pytestmark = pytest.mark.services

STAMP_MS = 1_700_000_000_000  # of the rig's first record of each batch
TABLE = "lake.floe.t"
WIDER = b'syntax = "proto3"; package p; message M { int32 x = 1; }'
TERMS = {"floe__table__partition": "user_id, value.key", "floe__table__sort": "value__17.n desc"}


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, as catalog `lake` of the session."""
    expect_little(spark)
    async with lake(spark, tmp_path) as found:
        yield found


class Writing:
    """A flat topic of one partition, all that was written to it, and what judged it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rows: list[HistoryRow] = []
        self.audits = 0
        self.schemas: list[Schema] = []
        self.spans: list[tuple[int, int, int]] = [(0, 0, 0)]

    async def bind(self, source: bytes) -> None:
        """Another message."""
        number = await self.rig.bind(source, "p.M")
        self.schemas.append(Schema(number, VALUE, "p.M", samples.descriptor_set(source)))
        self.spans.append((len(self.rows), 0, number))

    async def say(self, values: Sequence[bytes | None], keys: list[bytes]) -> None:
        """Records."""
        first = await self.rig.produce(values, keys=keys)
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            hashes = bytes_hash(key), bytes_hash(value), headers_hash([("h", b"%d" % at)])
            self.rows.append(HistoryRow("t", 0, first + at, *hashes, STAMP_MS + at, timestamp_type=0))

    async def audited(self, spark: SparkSession, folder: Path) -> Verdict:
        """What the audit of the topic's own table says."""
        self.audits += 1
        ends = {("t", 0): len(self.rows)}
        given = AuditInput(
            tables={"t": TABLE},
            consumed=write_history(folder / f"consumed{self.audits}", self.rows),
            log_start={("t", 0): 0},
            ends=ends,
            schemas={"t": TopicSchemas(self.schemas, {0: self.spans})},
            high_watermarks=lambda: ends,
        )
        return await asyncio.to_thread(audit, spark, given)


async def test_spark_queries_a_flat_table_and_the_audit_sees_each_of_its_columns(
    rig: Rig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two messages, of which one takes the other's name; a tombstone, what is no message; partitions."""
    await rig.create_topic(partitions=1, **FLAT, **latest.UPSERT, **TERMS)
    writing, keeper = Writing(rig), latest.committer(rig)
    await writing.say([b"free"], [b"0"])
    await writing.bind(VIEW)
    views: list[bytes | None] = [
        encoded(VIEW, user_id=n, key=f"k{n % 2}", value={"n": n}, tags=["a"]) for n in range(4)
    ]
    await writing.say([*views, None, b"\xff"], [b"1", b"2", b"3", b"1", b"2", b"5"])
    await latest.catch_up(rig, known=keeper)
    await writing.say(views, [b"9"] * 4)
    await latest.catch_up(rig, known=keeper)
    await configure(rig, floe__table__partition="user_id__15, value.key")  # the same column, as it is called
    await writing.bind(LATER)
    await writing.say([encoded(LATER, user_id="seven", price=1.5)], [b"7"])
    await latest.catch_up(rig, known=keeper)
    found = await asyncio.to_thread(answers, spark)
    assert (await rig.head()).metadata["default-spec-id"] == 1, "by a column whose name another one took"
    due = [(at, n, None) for first in (1, 7) for n, at in enumerate(range(first, first + 4))]
    assert found == [*due, (11, None, "seven")]
    assert await asyncio.to_thread(newest, spark) == [(b"1", 3), (b"3", 2), (b"7", None), (b"9", 3)]
    verdict = await writing.audited(spark, tmp_path)
    assert verdict.findings == []
    files = await asyncio.to_thread(lambda: spark.table(f"{TABLE}.files").count())
    await asyncio.to_thread(rewrite, spark, "kafka.partition = 0 AND kafka.offset > 0", "")
    assert await asyncio.to_thread(lambda: spark.table(f"{TABLE}.files").count()) == files - 4
    assert (await writing.audited(spark, tmp_path)).findings == [], "another engine's files hold the same"
    given = Latest("t", f"{TABLE}__latest", TABLE)
    outcome = await asyncio.to_thread(judged, spark, given)
    assert (outcome.counts, outcome.rows.rows) == ({}, 6)

    monkeypatch.setattr(flat_rows, "flat_rows", damaging(flat_rows.flat_rows))
    await writing.say([encoded(LATER, user_id="eight", price=2.5)], [b"8"])
    await rig.drain(rig.committer())
    (told,) = (await writing.audited(spark, tmp_path)).findings
    assert (told.kind, told.offset, told.column) == ("column", 12, "price")
    assert told.detail == "is 3.5, 2.5 is due"


def answers(spark: SparkSession) -> list[tuple[int, int | None, str | None]]:
    """Rows with a user, by the name of now and by that of before."""
    rows = spark.sql(
        f"SELECT kafka.offset, user_id__15, user_id FROM {TABLE} "
        "WHERE user_id IS NOT NULL OR user_id__15 >= 0 ORDER BY 1"
    )
    return [tuple(row) for row in rows.collect()]


def newest(spark: SparkSession) -> list[tuple[bytes, int | None]]:
    """Key and former user of the newest rows of messages."""
    rows = spark.sql(
        f"SELECT key.__raw__, user_id__15 FROM {TABLE}__latest WHERE key__16 IS NOT NULL ORDER BY 1"
    )
    return [(bytes(row[0]), row[1]) for row in rows.collect()]


def damaging(hoist: object) -> object:
    """Hoisting that makes one column another."""

    def damaged(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        rows: pa.RecordBatch = hoist(batch, schema)  # type: ignore[operator]  # it is that function
        at = rows.schema.get_field_index("price")
        wrong = pa.array([None if each is None else each + 1 for each in rows.column(at).to_pylist()])
        return rows.set_column(at, rows.schema.field(at), wrong)

    return damaged


async def test_a_view_shows_a_nested_table_as_a_flat_one(rig: Rig, spark: SparkSession) -> None:
    """What a topic is told whose table stays nested."""
    await rig.create_topic(partitions=1)
    await rig.bind(WIDER, "p.M")
    await rig.produce([encoded(WIDER, x=3), None])
    await rig.drain(rig.committer())

    def read() -> list[tuple[int, int | None]]:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.own")
        spark.sql(f"CREATE VIEW lake.own.v AS SELECT kafka, key, value.*, headers FROM {TABLE}")
        rows = spark.sql("SELECT kafka.offset, x FROM lake.own.v ORDER BY 1").collect()
        return [tuple(row) for row in rows]

    assert await asyncio.to_thread(read) == [(0, 3), (1, None)]


async def test_records_of_a_flat_table_are_decoded_at_last(rig: Rig, spark: SparkSession) -> None:
    """A frame of a schema that nobody knew: a field `key` comes into the column that is called otherwise."""
    await rig.create_topic(partitions=1, **FLAT)
    await rig.bind(VIEW, "p.M")
    framed = framing.prefix(99, kind(VIEW).indexes)
    await rig.produce([encoded(VIEW, user_id=1), framed + encoded(VIEW, user_id=2, key="k", value={"n": 3})])
    await rig.drain(rig.committer())

    def repaired() -> None:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.own")
        spark.sql("CREATE TABLE lake.own.m (user_id bigint, key string, n int, raw binary) USING iceberg")
        schema = spark.table(TABLE).drop("tags").schema
        descriptors = samples.descriptor_set(VIEW)
        done = repair(
            spark, TABLE, "lake.own.m", decoder(descriptors, "p.M", value_type(schema), framed=True), put
        )
        assert (done.back, done.stay) == (1, 0)
        (row,) = spark.table("lake.own.m").collect()
        assert (row["user_id"], row["key"], row["n"]) == (2, "k", 3)
        narrow = decoder(descriptors, "p.M", schema["value"].dataType, framed=True)
        with pytest.raises(JobError, match=r"the table is flat.*value_type\(spark.table"):
            repair(spark, TABLE, "lake.own.m", narrow, put)

    await asyncio.to_thread(repaired)


def put(rows: DataFrame, target: str) -> None:
    """A job's function."""
    told = rows.selectExpr("user_id", "key__16 AS key", "value__17.n", "value.__raw__ AS raw")
    told.writeTo(target).append()
