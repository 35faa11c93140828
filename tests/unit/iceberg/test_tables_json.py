"""Tables of topics whose subjects are of JSON: columns where the schema gives one type, else JSON text."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_avro import types
from tests.unit.iceberg.test_tables_bindings import values
from tests.unit.iceberg.test_tables_followed import VALIDATION, Registry

NULL = {"type": "null"}
SALE: dict[str, Any] = {
    "title": "Sale",
    "type": "object",
    "definitions": {
        "money": {"type": "object", "properties": {"units": {"type": "integer"}, "code": {"enum": ["EUR"]}}}
    },
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "open": {"type": "boolean"},
        "total": {"$ref": "#/definitions/money"},
        "paid": {"oneOf": [NULL, {"$ref": "#/definitions/money"}]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"type": ["string", "integer"]},
        "any": {},
        "free": {"type": "object"},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        "same": {"$ref": "#"},
        "with.dot": {"type": "string"},
    },
}  # fmt: skip
TEXT = ("either", "any", "free", "pair", "same")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def register(rig: Rig, said: Any) -> int:
    return await Registry(rig).register(json.dumps(said), schema_type="JSON")


def framed(schema_id: int, value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return b"\x00" + schema_id.to_bytes(4, "big") + text.encode()


async def test_columns_are_what_the_schema_says(rig: Rig) -> None:
    """And rows that it does not take say why, however they came into the topic."""
    await rig.create_topic(**VALIDATION)
    one = await register(rig, SALE)
    sale = {
        "id": 1, "price": 2.5, "open": True, "total": {"units": 3, "code": "EUR"}, "paid": {"units": 4},
        "lines": [{"sku": "a"}, {}], "tags": {"k": "v"}, "either": 7, "any": [1, {"x": None}],
        "free": {"a": "é"}, "pair": ["p", 1], "same": {"id": 2}, "with.dot": "w", "other": 1,
    }  # fmt: skip
    await rig.produce(
        [
            framed(one, sale),
            framed(one, {"id": 1.0, "price": None, "paid": None}),
            None,
            framed(one, {"id": 1 << 70}),
            framed(one, {"id": "x"}),
            framed(one, '{"id": 1, "id": 2}'),
            framed(one, '{"price": 1e999}'),
        ]
    )
    await rig.drain(rig.committer())
    money = {"units": "long", "code": "string"}
    assert await types(rig) == {
        "id": "long", "price": "double", "open": "boolean", "total": money, "paid": money,
        "lines": [{"sku": "string"}], "tags": ["string"], **dict.fromkeys(TEXT, "string"),
    }  # fmt: skip
    assert await values(rig) == [
        {
            "id": 1, "price": 2.5, "open": True, "total": {"units": 3, "code": "EUR"},
            "paid": {"units": 4, "code": None}, "lines": [{"sku": "a"}, {"sku": None}], "tags": [("k", "v")],
            "either": "7", "any": '[1,{"x":null}]', "free": '{"a":"é"}', "pair": '["p",1]',
            "same": '{"id":2}',
        },
        {"id": 1},
        None,
        {"__err__": "1180591620717411303424 has no place in a column of integers of 64 bits"},
        {"__err__": "field `id`: is string, and not integer"},
        {"__err__": 'no JSON that is taken: #: "id" stands there twice: remove one of them'},
        {"__err__": f"1{'E+999'} has no place in a column of doubles"},
    ]  # fmt: skip


async def test_versions_share_the_columns_of_equal_names(rig: Rig) -> None:
    await rig.create_topic(**VALIDATION)
    one = await register(
        rig, {"title": "S", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    )
    await rig.produce([framed(one, {"a": 1})])
    await rig.drain(rig.committer())
    two = await register(
        rig, {"title": "S", "properties": {"b": {"type": "boolean"}, "a": {"type": "integer"}}}
    )
    await rig.produce([framed(two, {"a": 2, "b": True}), framed(one, {"a": 3, "b": "x"})])
    await rig.drain(rig.committer())
    assert await types(rig) == {"value": "string"}, "nothing says that they are objects"
    three = {
        "title": "T",
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    }
    third = await register(rig, three)
    fourth = await register(
        rig, {**three, "properties": {"b": {"type": "boolean"}, "a": {"type": "integer"}}}
    )
    await rig.produce([framed(third, {"a": 3, "b": "x"}), framed(fourth, {"a": 4, "b": True})])
    await rig.drain(rig.committer())
    found = await types(rig)
    (old,) = (name for name in found if name.startswith("b__"))
    assert found == {"b": "boolean", "a": "long", "value": "string", old: "string"}
    assert (await values(rig))[-2:] == [{"a": 3, old: "x"}, {"a": 4, "b": True}]


async def test_a_schema_that_takes_anything_has_its_text(rig: Rig) -> None:
    await rig.create_topic(**VALIDATION)
    one = await register(rig, {"type": "array", "items": {"type": ["integer", "null"]}})
    other = await register(rig, True)
    await rig.produce([framed(one, [1, None]), framed(other, {"a": 0.10}), framed(other, "null")])
    await rig.drain(rig.committer())
    found = await types(rig)
    (text,) = (name for name, kind in found.items() if kind == "string")
    (numbers,) = (name for name, kind in found.items() if kind == ["long"])
    assert await values(rig) == [{numbers: [1, None]}, {text: '{"a":0.1}'}, {}]
