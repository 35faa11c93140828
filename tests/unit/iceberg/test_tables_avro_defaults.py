"""Rows of older AVRO versions have the defaults of fields that newer ones add, as AVRO's readers do."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from iceberg.avro_columns import AvroShape
from iceberg.avro_defaults import VALUES_MAX
from schema.registry.avro import schema as avro_schema
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_avro import ID, Team, ids, order, types
from tests.unit.iceberg.test_tables_bindings import values
from tests.unit.iceberg.test_tables_followed import VALIDATION, Registry
from tests.unit.iceberg.test_tables_unions import BY_RECORD


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


@pytest.fixture
def team(rig: Rig) -> Team:
    return Team(Registry(rig))


def field(name: str, kind: Any, default: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "default": default, **more}


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
STATE = {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}
POINT = {"type": "record", "name": "Point", "fields": [field("x", "int", 1), ("y", "double")]}
POINT["fields"][1] = {"name": "y", "type": "double"}
ADDED = [
    field("text", "string", "né"),
    field("many", {"type": "array", "items": "long"}, [1, 2]),
    field("by", {"type": "map", "values": ["null", "string"]}, {"k": "v", "n": None}),
    field("money", MONEY, "\u0001\u0000"),
    field("state", STATE, "DONE"),
    field("day", {"type": "int", "logicalType": "date"}, 1),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}, 1_500),
    field("point", POINT, {"y": 3}),
    field("one", ["string", "int", "Point"], 7),
    field("maybe", ["null", "int"], None),
    field("bits", {"type": "fixed", "name": "Two", "size": 2}, "\u0000\u00ff"),
]
DUE = {
    "text": "né", "many": [1, 2], "by": [("k", "v"), ("n", None)], "money": Decimal("2.56"), "state": "DONE",
    "day": datetime.date(1970, 1, 2), "point": {"x": 1, "y": 3.0},
    "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, datetime.UTC),
    "one": {"string": None, "int": 7, "Point": None}, "bits": b"\x00\xff",
}  # fmt: skip


async def test_rows_of_an_older_version_have_the_defaults(rig: Rig, team: Team) -> None:
    """Of all kinds of types. Rows that the table had before have null, as their file does."""
    await rig.create_topic(**VALIDATION)
    one = await team.register(order(ID))
    await rig.produce([team.framed(one, {"id": 1})])
    committer = rig.committer()
    await rig.drain(committer)
    await team.register(order(ID, *ADDED))
    await rig.produce([team.framed(one, {"id": 2}), None, team.framed(one, {"id": 3}) + b"\x00"])
    await rig.drain(committer)
    first, second, third, bad = await values(rig)
    assert (first, third) == ({"id": 1}, None)
    assert second == {"id": 2, **DUE}
    assert bad is not None
    assert set(bad) == {"__err__"}
    assert "maybe" not in await types(rig), "null is what all rows have that have no such column"
    before = await ids(rig)
    three = await team.register(order(ID, *ADDED, field("more", "boolean", True)))
    full = {"id": 4, **{each["name"]: None for each in ADDED}}
    full |= {"text": "t", "many": [], "by": {}, "money": Decimal("1.00"), "state": "OPEN", "day": 5}
    full |= {"at": 7, "point": {"x": 4, "y": 0.5}, "one": "s", "bits": b"ab"}
    await rig.produce([team.framed(three, {**full, "more": False}), team.framed(one, {"id": 5})])
    await rig.drain(committer)
    assert (await ids(rig)).items() > before.items(), "the version's own rows find the columns"
    newer, older = (await values(rig))[-2:]
    assert newer is not None
    assert (newer["text"], newer["more"], newer["one"]["string"]) == ("t", False, "s")
    assert older == {"id": 5, **DUE, "more": True}


async def test_defaults_inside_and_of_a_topic_of_several_types(rig: Rig, team: Team) -> None:
    """In records in lists, maps and unions, by subject; an alias is a field that is there."""
    await rig.create_topic(**BY_RECORD)

    def event(*more: Any, name: str = "n") -> dict[str, Any]:
        line = {"type": "record", "name": "Line", "fields": [{"name": name, "type": "int"}, *more]}
        if name != "n":
            line["fields"][0] |= {"aliases": ["n"], "default": 99}
        return order(
            ("lines", {"type": "array", "items": line}), ("by", {"type": "map", "values": "Line"}),
            ("one", ["null", "Line"]), ("any", ["null", "string", "Line"]), name="shop.Event",
        )  # fmt: skip

    old = await team.register(event(), "shop.Event")
    await team.register(event(field("unit", "string", "kg"), name="count"), "shop.Event")
    note = await team.register(order(ID, name="shop.Note"), "shop.Note")
    await team.register(order(ID, field("unit", "string", "g"), name="shop.Note"), "shop.Note")
    line = {"n": 1}
    said = {"lines": [line], "by": {"k": line}, "one": line, "any": ("Line", line)}
    said["any"] = line
    await rig.produce([team.framed(old, said), team.framed(note, {"id": 1})])
    await rig.drain(rig.committer())
    due = {"n": 1, "unit": "kg"}
    assert await values(rig) == [
        {"Event": {"lines": [due], "by": [("k", due)], "one": due, "any": {"string": None, "Line": due}}},
        {"Note": {"id": 1, "unit": "g"}},
    ]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (MONEY, "\u007f\u007f\u007f\u007f"),
        ({"type": "int", "logicalType": "time-millis"}, -1),
        ({"type": "string", "logicalType": "uuid"}, "none"),
        ("double", 10**400),
        ({"type": "array", "items": "int"}, [1] * VALUES_MAX),
    ],
    ids=["decimal", "time", "uuid", "double", "large"],
)
def test_a_default_that_no_column_holds_is_left_out(kind: Any, default: Any) -> None:
    """It stops nothing: the rows have null there."""
    old, new = (
        avro_schema.parse(json.dumps(order(ID, *more)), {}).canonical
        for more in ((), (field("fine", "int", 1), field("odd", kind, default)))
    )
    shape = AvroShape(old, {}, (new, {}))
    assert [each.name for each in shape.struct.fields] == ["id", "fine"]


async def test_it_is_what_fastavro_reads_with_the_newer_schema(rig: Rig, team: Team) -> None:
    await rig.create_topic(**VALIDATION)
    old, new = order(ID), order(*ADDED[:3], ID)
    one = await team.register(old)
    await team.register(new)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, team.parsed[one], {"id": 6})
    read = fastavro.schemaless_reader(
        io.BytesIO(stream.getvalue()), team.parsed[one], fastavro.parse_schema(new)
    )
    await rig.produce([team.framed(one, {"id": 6})])
    await rig.drain(rig.committer())
    (row,) = await values(rig)
    assert row is not None
    assert isinstance(read, dict)
    assert {**row, "by": dict(row["by"])} == read
