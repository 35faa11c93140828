"""Rows that are read once for all that an audit asks: what is wrong is found, and where nothing is, it is so.

That each damage of what a table says of itself is told alike is in test_shelf.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark import audit as audits
from iceberg.spark import glance, one_pass
from iceberg.spark.audit import audit
from iceberg.spark.given import AuditInput
from iceberg.spark.schemas import Schema, TopicSchemas
from iceberg.spark.shelf import Passed, shelf, shelved
from iceberg.spark.tables import XXHASH, Digest, beyond, bytes_history, pinned, unbound_history
from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, EXTRA, KINDS, MISSING, PLACE
from tests.spark.catalogs import expect_little, keep_below
from tests.spark.lake import away, files
from tests.spark.test_shelf import HIGHS, make

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

Stretches = Mapping[int, Sequence[tuple[int, int]]]
HERE = " WHERE kafka.partition = 0 AND kafka.offset = 3"


@dataclass(frozen=True)
class Story:
    """What another engine did to the table ({t}), and of which kinds the audit's findings are."""

    name: str
    kinds: set[str]
    statement: str


HEADED = "UPDATE {t} SET headers = array(named_struct('key', 'a', 'value', X'00'))"
STORIES = [
    Story("a row lost", {MISSING}, "DELETE FROM {t}" + HERE),
    Story("another value", {CHANGED}, "UPDATE {t} SET value.__raw__ = X'00'" + HERE),
    Story("another time", {CHANGED}, "UPDATE {t} SET kafka.timestamp = timestamp '2026-01-01'" + HERE),
    Story("a header", {CHANGED}, HEADED + HERE),
    Story("a row at another's place", {MISSING, DOUBLED}, "UPDATE {t} SET kafka.offset = 2" + HERE),
    Story("a row nowhere", {MISSING, PLACE}, "UPDATE {t} SET kafka.partition = 7" + HERE),
    Story("an error of which its bytes say nothing", {COLUMN}, "UPDATE {t} SET value.__err__ = 'bad'" + HERE),
]  # fmt: skip


@dataclass(frozen=True)
class Lake:
    """A topic's table below a folder, which other engines may change, and its records as they were sent."""

    spark: SparkSession
    table: str
    records: DataFrame

    def read(self, _: SparkSession, digest: Digest, due: Stretches) -> DataFrame:
        """The records, as a consumer of the topic gets them."""
        assert digest is XXHASH
        found = F.lit(False)
        for number, stretches in due.items():
            for first, end in stretches:
                found |= (F.col("partition") == number) & F.col("offset").between(first, end - 1)
        return self.records.where(found)

    @property
    def given(self) -> AuditInput:
        """For an audit of all."""
        return AuditInput(
            tables={"t": self.table}, consumed=self.read, schemas={"t": TopicSchemas()}, ends=HIGHS,
            log_start=dict.fromkeys(HIGHS, 0), high_watermarks=lambda: HIGHS,
        )  # fmt: skip

    def now(self) -> int:
        """The table's present snapshot."""
        found = pinned(self.spark, "t", self.table).snapshot
        assert found is not None
        return found

    def change(self, statement: str) -> None:
        """Another engine's."""
        self.spark.sql(statement.format(t=self.table)).collect()


@pytest.fixture(scope="module")
def lake(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """As Floe's committer makes it, four files of four commits."""
    folder = tmp_path_factory.mktemp("one-pass")
    spark = jvm.newSession()
    keep_below(spark, "once", folder / "warehouse")
    expect_little(spark)
    made = asyncio.run(make(folder))
    where = folder / "warehouse" / "db" / "t" / "metadata"
    where.mkdir(parents=True)
    (where / "v1.metadata.json").write_text(json.dumps(made.metadata))
    (where / "version-hint.text").write_text("1")
    of = pinned(spark, "t", "once.db.t")
    rows = bytes_history(spark, of, F.lit(True), XXHASH).cache()
    assert rows.count() == sum(HIGHS.values())
    return Lake(spark, "once.db.t", rows)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_what_another_engine_did_is_found(lake: Lake, story: Story) -> None:
    before = lake.now()
    lake.change(story.statement)
    try:
        told = audit(lake.spark, lake.given)
    finally:
        lake.change(f"CALL once.system.rollback_to_snapshot('db.t', {before})")
    of_tables = {kind for kind in KINDS if told.counts[kind]} & {
        MISSING,
        CHANGED,
        DOUBLED,
        EXTRA,
        PLACE,
        COLUMN,
    }
    assert of_tables == story.kinds, [str(each) for each in told.findings]


def test_what_is_equal_is_found_so_by_one_reading_of_the_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the rows were summed up their files may be gone: nothing else is asked of them."""
    passed: list[Passed] = []
    seen: list[DataFrame] = []

    def by_one(*given: Any) -> Passed | None:
        found = in_one_pass(*given)
        assert found is not None
        passed.append(found)
        return found

    in_one_pass = audits._in_one_pass
    monkeypatch.setattr(audits, "_in_one_pass", by_one)
    told = audit(lake.spark, replace(lake.given, tell=lambda _, facts: seen.append(facts)))
    assert (told.equal, [each.table for each in told.topics]) == (True, [sum(HIGHS.values())]), told.findings
    of = pinned(lake.spark, "t", lake.table)
    apart: list[DataFrame] = []
    assert shelf(lake.spark, of, HIGHS, ends=HIGHS, tell=lambda _, facts: apart.append(facts)) == []
    assert _rows(seen[0]) == _rows(apart[0]), "the same is kept of files"
    with away(files(lake.spark, lake.table)):
        assert shelf(lake.spark, of, HIGHS, ends=HIGHS, passed=passed[0]) == []
        with pytest.raises(Exception, match=r"\.parquet"):
            shelf(lake.spark, of, HIGHS, ends=HIGHS)


def _rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_an_increment_sums_up_new_rows_alone(lake: Lake) -> None:
    """Of a file that no audit saw, with rows of before and behind `since`, all count for what it holds."""
    since = {("t", 0): 3}
    given = replace(lake.given, since=since)
    of = pinned(lake.spark, "t", lake.table)
    parts = one_pass.one_pass(lake.spark, of, shelved(lake.spark, of), given, HIGHS)
    rows = unbound_history(lake.spark, of, beyond("t", since), XXHASH)
    assert _rows(glance.added(parts)) == _rows(
        glance.summed(rows, given, HIGHS).select(glance.added(parts).columns)
    )
    assert parts.agg(F.sum("rows"), F.sum("records")).collect() == [(8, 5)]


def test_which_rows_are_compared_is_what_files_are_left_out_by(lake: Lake) -> None:
    places = [(partition, offset) for partition in (None, -1, 0, 1, 2) for offset in (None, -1, 0, 3, 4, 9)]
    kinds = "partition int, offset long, kafka struct<partition: int, offset: long>"
    rows = lake.spark.createDataFrame([(*each, each) for each in places], kinds)
    of = {0: 4, 2: 0}
    due = rows.where(beyond("t", {("t", number): first for number, first in of.items()}))
    assert _rows(rows.where(one_pass._compared(of))) == _rows(due)
    assert due.count() == 28


def test_what_needs_more_than_a_pass_is_read_apart(lake: Lake) -> None:
    of = pinned(lake.spark, "t", lake.table)
    bound = TopicSchemas([Schema(1, "value", "a.B", b"", False)])
    assert one_pass.may_be_one(lake.given, of, HIGHS)
    for other in (
        replace(lake.given, schemas={"t": bound}),
        replace(lake.given, covered={("t", 0): [(0, 2)]}),
        replace(lake.given, consumed=Path("history")),
        replace(lake.given, log_start={("t", 0): 1}),
    ):
        assert not one_pass.may_be_one(other, of, HIGHS)
    assert not one_pass.may_be_one(lake.given, replace(of, snapshot=None), HIGHS)
