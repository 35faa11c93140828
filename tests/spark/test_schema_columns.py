"""Spark, DuckDB and pyiceberg read the columns of AVRO, JSON and protobuf: the types that only AVRO has,
several types of record in one topic, and rows of version 3 beside those of version 5.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from iceberg.committer import CommitterOptions
from iceberg.decoder import Decoded
from iceberg.small_files import FileSizes
from iceberg.spark.audit import audit
from iceberg.spark.given import AuditInput
from iceberg.spark.history import HistoryRow, bytes_hash, headers_hash
from iceberg.spark.schemas import VALUE, Schema, TopicSchemas
from iceberg.unions import TypeDecoder
from schema.registry import protobuf
from tests.spark.audit_stories import write_history
from tests.spark.catalogs import attach, expect_little
from tests.unit.iceberg import duck, serving
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_avro import Team, order
from tests.unit.iceberg.test_tables_avro_defaults import field
from tests.unit.iceberg.test_tables_followed import MONEY, ONE, VALIDATION, Registry
from tests.unit.iceberg.test_tables_unions import BY_RECORD

pytestmark = pytest.mark.services

STAMP_MS = 1_700_000_000_000  # of the rig's first record of each batch
UTC = datetime.UTC
Rows = list[dict[str, Any]]


class Lake:
    """A cluster of one agent with topic `t` of one partition, where its catalog is, and what was produced."""

    def __init__(self, rig: Rig, url: str, spark: SparkSession) -> None:
        self.rig, self.url, self.spark = rig, url, spark
        self.told: list[HistoryRow] = []
        self.rig.options = CommitterOptions(files=FileSizes(merged_at=2, busy_percent_max=100))
        self.committer = rig.committer()

    async def shows(self, due: Rows) -> None:
        """Each engine has these values, in the order of offsets; Floe's own two columns are left out."""
        assert await asyncio.to_thread(self._pyiceberg) == due
        assert await asyncio.to_thread(self._duckdb) == due
        assert await asyncio.to_thread(self._spark) == due

    async def commit(self, *values: bytes) -> None:
        """Records, and the table with them."""
        first = await self.rig.produce(values)
        await self.rig.drain(self.committer)
        for at, value in enumerate(values):
            hashes = bytes_hash(b"k%d" % at), bytes_hash(value), headers_hash([("h", b"%d" % at)])
            self.told.append(HistoryRow("t", 0, first + at, *hashes, STAMP_MS + at, timestamp_type=0))

    async def audited(self, folder: Path, files: Mapping[int, bytes]) -> list[tuple[str, int | None, str]]:
        """What an audit finds; `files`: the registered schemas that the cluster tells it of."""
        bound = self.rig.replica.state.topics["t"].value_schema_id or 0
        schemas = TopicSchemas([Schema(bound, VALUE, "", b"", follows=True)], {0: [(0, 0, bound)]}, files)
        ends = {("t", 0): len(self.told)}
        given = AuditInput(
            tables={"t": "lake.floe.t"},
            consumed=write_history(folder, self.told),
            log_start={("t", 0): 0},
            ends=ends,
            schemas={"t": schemas},
            high_watermarks=lambda: ends,
        )
        verdict = await asyncio.to_thread(audit, self.spark, given)
        return [(each.kind, each.offset, each.column or "") for each in verdict.findings]

    def _spark(self) -> Rows:
        # Spark hands instants over as local times, and what has none in the same form.
        rows = self.spark.sql("SELECT kafka.offset AS at, value FROM lake.floe.t ORDER BY 1").collect()
        return [plain(row["value"].asDict(recursive=True)) for row in rows]

    def _duckdb(self) -> Rows:
        with duck.connect("avro", "httpfs", "iceberg") as connection:
            connection.execute(
                f"ATTACH 'floe' AS lake (TYPE iceberg, ENDPOINT '{self.url}', AUTHORIZATION_TYPE 'none')"
            )
            query = 'SELECT value FROM lake.floe.t ORDER BY kafka."offset"'
            return [plain(row["value"]) for row in connection.execute(query).fetch_arrow_table().to_pylist()]

    def _pyiceberg(self) -> Rows:
        rows = serving.client(self.url).load_table("floe.t").scan().to_arrow().to_pylist()
        rows.sort(key=lambda row: row["kafka"]["offset"])
        return [plain(row["value"]) for row in rows]


def plain(value: Any) -> Any:
    """The same of all engines: maps as dicts, bytes as bytes, times without zone, nothing that is null."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        pairs = value and all(isinstance(each, tuple) for each in value)
        return {key: plain(each) for key, each in value} if pairs else [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {
            key: plain(each)
            for key, each in value.items()
            if each is not None and not str(key).startswith("__")
        }
    return value


@pytest.fixture
async def lake(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Lake]:
    """Known to the session as `lake`."""
    expect_little(spark)
    async with rigs.running(tmp_path) as rig, serving.served(serving.catalog_of(rig)) as url:
        attach(spark, "lake", url)
        yield Lake(rig, url, spark)


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
ALL = order(
    ("money", logical("bytes", "decimal", precision=9, scale=2)),
    ("large", logical("bytes", "decimal", precision=38, scale=10)),
    ("day", logical("int", "date")),
    ("clock", logical("int", "time-millis")),
    ("at", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-millis")),
    ("uid", logical("string", "uuid")),
    ("span", logical("fixed", "duration", name="Span", size=12)),
    ("fixed", {"type": "fixed", "name": "Two", "size": 2}),
    ("state", {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}),
    ("tags", {"type": "map", "values": ["null", {"type": "array", "items": "long"}]}),
    ("deep", {"type": "array", "items": {"type": "array", "items": ["null", "string"]}}),
    ("any", ["null", "string", "long", LINE]),
    ("many", {"type": "array", "items": ["Line", "boolean"]}),
    name="shop.All",
)
AT = datetime.datetime(2026, 11, 26, 1, 2, 3, 456_789, UTC)
FULL: dict[str, Any] = {
    "money": Decimal("-12.50"), "large": Decimal("1234567890123456789012345678.0123456789"),
    "day": datetime.date(1969, 12, 31), "clock": datetime.time(1, 2, 3),
    "at": AT,
    "local": datetime.datetime(1960, 2, 3, 4, 5, 6),  # noqa: DTZ001 - it has none
    "uid": "00000000-0000-0000-0000-0000000000ff",
    "span": b"\x01\0\0\0\x02\0\0\0\xff\xff\xff\xff", "fixed": b"\x00\xff", "state": "DONE",
    "tags": {"a": [1, 1 << 40], "b": []}, "deep": [["x", None], []], "any": {"n": 7},
    "many": [{"n": 1}, True],
}  # fmt: skip
SHOWN = {
    **FULL, "at": AT.replace(tzinfo=None), "clock": 3_723_000_000,
    "span": {"months": 1, "days": 2, "millis": (1 << 32) - 1}, "any": {"Line": {"n": 7}},
    "many": [{"Line": {"n": 1}}, {"boolean": True}],
}  # fmt: skip


async def test_every_type_of_avro(lake: Lake) -> None:
    """Before and after small files became one."""
    team = Team(Registry(lake.rig))
    await lake.rig.create_topic(partitions=1, **VALIDATION)
    one = await team.register(ALL)
    for _ in range(2):
        await lake.commit(team.framed(one, FULL), team.framed(one, {**FULL, "any": "text", "deep": []}))
    due = [SHOWN, {**SHOWN, "any": {"string": "text"}, "deep": []}] * 2
    await lake.shows(due)
    assert await lake.committer.compact()
    await lake.shows(due)

    def asked() -> list[Any]:
        found = lake.spark.sql(
            "SELECT count(*), min(value.money), max(unix_micros(value.at)), max(value.any.Line.n) "
            "FROM lake.floe.t WHERE value.day < DATE '1970-01-01' "
            "AND value.local < TIMESTAMP_NTZ '1961-01-01' AND value.large > 1e27 AND value.state = 'DONE'"
        )
        return list(found.collect()[0])

    assert await asyncio.to_thread(asked) == [4, Decimal("-12.50"), 1_795_654_923_456_789, 7]


CLICKS = (
    'syntax = "proto3"; package shop; message Click { int32 a = 1; string b = 2; }',
    'syntax = "proto3"; package shop; message Click { int64 a = 1; string c = 2; repeated bool d = 3; }',
)
SALES: tuple[dict[str, Any], ...] = (
    {"title": "Sale", "type": "object", "properties": {"id": {"type": "integer"}}},
    {"title": "Sale", "type": "object", "properties": {"id": {"type": "integer"}, "p": {"type": "number"}}},
)
NOTES = (
    order(("id", "int"), name="shop.Note"),
    order(
        ("id", "long"),
        field("unit", "string", "kg"),
        field("day", logical("int", "date"), 1),
        name="shop.Note",
    ),
)


async def test_version_three_beside_version_five(lake: Lake, tmp_path: Path) -> None:
    """Of all three kinds of schema, as types of one topic; the audit finds nothing, and what is damaged."""
    registry = Registry(lake.rig)
    team = Team(registry)
    await lake.rig.create_topic(partitions=1, **BY_RECORD)
    old = await three_and_five(registry, team, 0)
    await lake.commit(*spoken(registry, team, old, 0, 1))
    new = await three_and_five(registry, team, 1)
    await lake.commit(*spoken(registry, team, new, 1, 2), *spoken(registry, team, old, 0, 3))
    day = datetime.date(1970, 1, 2)
    due: Rows = [
        {"Click": {"a": 1, "c": "b"}}, {"Sale": {"id": 1}}, {"Note": {"id": 1}},
        {"Click": {"a": 2, "c": "c", "d": [True]}}, {"Sale": {"id": 2, "p": 0.5}},
        {"Note": {"id": 2, "unit": "g", "day": datetime.date(1970, 1, 6)}},
        {"Click": {"a": 3, "c": "b"}}, {"Sale": {"id": 3}}, {"Note": {"id": 3, "unit": "kg", "day": day}},
    ]  # fmt: skip
    await lake.shows(due)
    assert await lake.audited(tmp_path / "first", {}) == []
    lake.told[3] = lake.told[3]._replace(value_hash=lake.told[4].value_hash)
    assert await lake.audited(tmp_path / "second", {}) == [("changed", 3, "")]


async def three_and_five(registry: Registry, team: Team, version: int) -> tuple[int, int, int]:
    """The third, or fifth, version of each subject."""
    for subject, text, kind in (
        ("shop.Click", CLICKS[version], "PROTOBUF"),
        ("Sale", json.dumps(SALES[version]), "JSON"),
        ("shop.Note", json.dumps(NOTES[version]), "AVRO"),
    ):
        for number in range(2 - version):  # those between, of which nothing comes
            between = {
                "PROTOBUF": f"{text} message Z{number} {{}}",
                "JSON": json.dumps({**SALES[version], "description": f"{number}"}),
                "AVRO": json.dumps({**NOTES[version], "doc": f"{number}"}),
            }[kind]
            await registry.register(between, subject, kind)
    click = await registry.register(CLICKS[version], "shop.Click")
    sale = await registry.register(json.dumps(SALES[version]), "Sale", "JSON")
    note = await team.register(NOTES[version], "shop.Note")
    return click, sale, note


def spoken(
    registry: Registry, team: Team, ids: tuple[int, int, int], version: int, number: int
) -> tuple[bytes, bytes, bytes]:
    """A record of each type."""
    click, sale, note = ids
    fields: dict[str, Any] = {"c": "c", "d": [True]} if version else {"b": "b"}
    price = {"p": 0.5} if version else {}
    unit = {"unit": "g", "day": datetime.date(1970, 1, 6)} if version else {}
    return (
        registry.framed(click, "Click", a=number, **fields),
        b"\x00" + sale.to_bytes(4, "big") + json.dumps({"id": number, **price}).encode(),
        team.framed(note, {"id": number, **unit}),
    )


async def test_the_audit_compares_the_columns_of_each_message_of_a_file(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which one stands in `value` itself, and the other in its struct."""
    registry = Registry(lake.rig)
    await lake.rig.create_topic(partitions=1, **VALIDATION)
    one = await registry.register(ONE)
    imports = {"money.proto": protobuf.parse(MONEY, {}).canonical}
    files = {one: protobuf.descriptor_set(protobuf.parse(ONE, imports).canonical, imports)}
    sent = registry.framed(one, id=1, old="a"), registry.framed(one, "Refund", id=2, reason="late")
    await lake.commit(*sent)
    due: Rows = [{"id": 1, "old": "a"}, {"Refund": {"id": 2, "reason": "late"}}]
    await lake.shows(due)
    assert await lake.audited(tmp_path / "first", files) == []
    monkeypatch.setattr(TypeDecoder, "decode", lost)
    await lake.commit(*sent)
    monkeypatch.undo()
    assert await lake.audited(tmp_path / "second", files) == [("column", 3, "value.Refund")]


def lost(decoder: TypeDecoder, payloads: Sequence[bytes | None]) -> Decoded:
    """A struct that is null in every row."""
    return Decoded([pa.nulls(len(payloads), decoder.fields[0].type)], {})
