"""Spark's own tables in a copied bucket: what it deleted stays deleted under the copy's URL."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coordination import steps
from coordination.restore.report import TableMoved
from iceberg.moving.table import TableMove
from iceberg.moving.urls import Prefix
from objectstore.open import open_store
from tests.spark.catalogs import keep_below

pytestmark = pytest.mark.services
ROWS = 60


@pytest.mark.parametrize(("version", "granularity"), [(2, "partition"), (2, "file"), (3, "file")])
def test_deleted_rows_stay_deleted_in_every_snapshot_of_the_copy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, granularity: str
) -> None:
    source, copy = tmp_path / "source", tmp_path / "source-copy"
    keep_below(spark, "source", source)
    keep_below(spark, "copied", copy)
    _made(spark, version, granularity)
    before = {each: _rows(spark, "source", each) for each in _snapshots(spark, "source")}
    assert {len(each) for each in before.values()} == {ROWS, 2 * ROWS, ROWS * 2 - 20, ROWS * 2 - 40}
    shutil.copytree(source, copy)
    shutil.rmtree(source)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "_hooks", [_dying])
        with pytest.raises(Died):
            asyncio.run(_moved(source, copy))
    told = asyncio.run(_moved(source, copy))
    assert (told.lost, told.snapshots) == ([], len(before))
    assert told.delete_files >= 2
    assert {each: _rows(spark, "copied", each) for each in _snapshots(spark, "copied")} == before
    files = [row[0] for row in spark.sql("SELECT file_path FROM copied.db.t.all_files").collect()]
    assert files
    assert not [each for each in files if f"{source}/" in each]
    now = _rows(spark, "copied")
    spark.sql("DELETE FROM copied.db.t WHERE id = 1")
    spark.sql("INSERT INTO copied.db.t VALUES (9999, 'x')")
    assert _rows(spark, "copied") == sorted([each for each in now if each[0] != 1] + [(9999, "x")])


class Died(Exception):
    """The process ends here."""


def _dying(step: str) -> None:
    if step == "move/put-deletes":
        raise Died


def _made(spark: SparkSession, version: int, granularity: str) -> None:
    """A table with two inserts and two deletes, in folders with names that are encoded."""
    spark.sql(
        "CREATE TABLE source.db.t (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day) TBLPROPERTIES "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        f"'write.delete.granularity'='{granularity}', 'write.distribution-mode'='none')"
    )
    for first in (0, ROWS):
        days = "concat('a:b c%', id % 2)"
        spark.sql(f"INSERT INTO source.db.t SELECT id, {days} FROM range({first}, {first + ROWS}, 1, 1)")
    for rest in (0, 2):
        spark.sql(f"DELETE FROM source.db.t WHERE id % 6 = {rest}")


def _snapshots(spark: SparkSession, catalog: str) -> list[int]:
    return [row[0] for row in spark.sql(f"SELECT snapshot_id FROM {catalog}.db.t.snapshots").collect()]


def _rows(spark: SparkSession, catalog: str, snapshot: int | None = None) -> Sequence[tuple[int, str]]:
    of = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    return sorted((row[0], row[1]) for row in spark.sql(f"SELECT id, day FROM {catalog}.db.t{of}").collect())


async def _moved(source: Path, copy: Path) -> TableMoved:
    """The copy's table is told its URL, and where such a catalog looks for its metadata."""
    folder = copy / "db/t/metadata"
    number = (folder / "version-hint.text").read_text().strip()
    location = f"file:{source}/db/t/metadata/v{number}.metadata.json"
    store = open_store(f"file://{copy}")
    try:
        told = TableMoved("db", "t", location)
        await TableMove(store, Prefix(f"file://{source}", f"file://{copy}"), told, write=True).run()
    finally:
        await store.close()
    name = told.metadata.rpartition("/")[2]
    shutil.copy(folder / name, folder / f"v{int(number) + 1}.metadata.json")
    (folder / "version-hint.text").write_text(str(int(number) + 1))
    (folder / ".version-hint.text.crc").unlink(missing_ok=True)  # of what it said before
    return told
