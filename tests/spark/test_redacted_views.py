"""Redacted views of topics' tables, read by Spark through the catalog."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from objectstore import batch
from objectstore.compression import Compression
from schema import framing
from tests.spark.catalogs import expect_little
from tests.spark.lake import lake
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_redacted_views import JSON, PERSON, ROWS, configure
from tests.unit.iceberg.test_tables_bindings import encoded
from tests.unit.iceberg.test_tables_followed import VALIDATION, Registry

pytestmark = pytest.mark.services

VIEW = "lake.floe.t_redacted"
NEXT = PERSON.replace(
    b"uint64 id = 1;", b"uint64 id = 1; string extra = 11; string pin = 12 [debug_redact = true];"
)
HOME = {"town": "x", "street": "secret"}


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, as catalog `lake` of the session."""
    expect_little(spark)
    async with lake(spark, tmp_path) as found:
        yield found


async def values(spark: SparkSession) -> list[Any]:
    """The value of each row of the view, by offset; nowhere in it is what is marked."""

    def read() -> list[Any]:
        frame = spark.sql(f"SELECT * FROM {VIEW} ORDER BY kafka.offset")
        rows = [each.asDict(recursive=True) for each in frame.collect()]
        assert "secret" not in repr(rows)
        assert [each["kafka"]["offset"] for each in rows] == list(range(len(rows)))
        return [each["value"] for each in rows]

    return await asyncio.to_thread(read)


async def test_spark_reads_rows_without_what_is_marked(rig: Rig, spark: SparkSession) -> None:
    """Structs, lists and maps of structs; tombstones; new columns without a word to Spark; masks."""
    await rig.create_topic(partitions=1, floe__redact="remove")
    await rig.bind(PERSON, "p.M")
    person = encoded(
        PERSON, id=1, who="secret", home=HOME, homes=[HOME, {}], named={"k": HOME}, phones=["secret", ""],
        age=7, hidden=HOME, boss={"who": "secret"},
    )  # fmt: skip
    committer = rig.committer()
    await rig.produce([person, None, encoded(PERSON, id=2), b"\xffsecret"])
    await rig.drain(committer)
    town = {"town": "x"}
    first = {"id": 1, "home": town, "homes": [town, {"town": ""}], "named": {"k": town}}
    empty: dict[str, Any] = {"id": 2, "home": None, "homes": [], "named": {}}
    bad = {"id": None, "home": None, "homes": None, "named": None}
    assert await values(spark) == [first, None, empty, bad]
    listed = await asyncio.to_thread(lambda: spark.sql("SHOW VIEWS IN lake.floe").collect())
    assert [row["viewName"] for row in listed] == ["t_redacted"]
    await rig.bind(NEXT, "p.M")
    await rig.produce([encoded(NEXT, id=3, extra="e", pin="secret")])
    await rig.drain(committer)
    found = await values(spark)
    assert found[0] == {**first, "extra": None}
    assert found[4] == {**empty, "id": 3, "extra": "e"}
    await configure(rig, floe__redact="mask")
    (masked, *_) = await values(spark)
    home = {"town": "x", "street": "****"}
    assert masked["home"] == home
    assert (masked["who"], masked["phones"]) == ("****", ["****", "****"])
    assert masked["homes"] == [home, {"town": "", "street": "****"}]
    assert masked["named"] == {"k": home}
    counted = f"SELECT count(*) FROM {VIEW} WHERE kafka.offset >= 2 AND value.id > 1"
    assert (await asyncio.to_thread(lambda: spark.sql(counted).first()))[0] == 2


async def test_a_batch_that_nobody_can_open_shows_nothing_of_its_bytes(rig: Rig, spark: SparkSession) -> None:
    """The table keeps them under a header; other headers stay."""
    await rig.create_topic(partitions=1, floe__redact="remove")
    await rig.bind(PERSON, "p.M")
    await rig.produce([encoded(PERSON, id=1)])
    sound = batch.peek(batch.build([batch.NewRecord(0, None, b"")]))
    await rig.store_batch(batch.seal(sound._replace(attributes=int(Compression.GZIP)), b"secret" * 20))
    await rig.drain(rig.committer())
    assert [each and each["id"] for each in await values(spark)] == [1, None]

    def headers(name: str) -> list[list[str]]:
        rows = spark.sql(f"SELECT headers.key AS keys FROM lake.floe.{name} ORDER BY kafka.offset").collect()
        return [row["keys"] for row in rows]

    assert await asyncio.to_thread(headers, "t") == [["h"], ["floe.unreadable"]]
    assert await asyncio.to_thread(headers, "t_redacted") == [["h"], []]


async def test_flat_tables(rig: Rig, spark: SparkSession) -> None:
    await rig.create_topic(partitions=1, floe__redact="remove", floe__table__layout="flat")
    await rig.bind(PERSON, "p.M")
    await rig.produce([encoded(PERSON, id=1, who="secret", home=HOME)], keys=[b"k"])
    await rig.drain(rig.committer())

    def read() -> Any:
        return spark.sql(f"SELECT id, home, key.__raw__ AS k FROM {VIEW}").first().asDict(recursive=True)

    assert await asyncio.to_thread(read) == {"id": 1, "home": {"town": "x"}, "k": bytearray(b"k")}


@pytest.mark.parametrize("schema_type", ROWS)
async def test_subjects_of_other_types(rig: Rig, spark: SparkSession, schema_type: str) -> None:
    said, payload, due = ROWS[schema_type]
    await rig.create_topic(partitions=1, floe__redact="remove", **VALIDATION)
    number = await Registry(rig).register(json.dumps(said), schema_type=schema_type)
    await rig.produce([framing.prefix(number, (0,))[: framing.ID_END] + payload])
    await rig.drain(rig.committer())
    (found,) = await values(spark)
    assert found["id"] == 1
    if said is JSON:
        assert found["home"] == {"town": "x"}
        assert found.keys() == dict(due).keys()
    else:
        assert found["pay"] == {"Card": {"y": 7}, "string": None}
