"""Bytes that are exactly one datum of an AVRO schema, and those that are none: where, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from objectstore.varint import zigzag
from schema.registry.avro import schema as avro
from schema.registry.avro.datum import DEPTH_MAX, BadDatum, Datum


def datum(said: Any) -> Datum:
    return Datum(avro.load(avro.parse(json.dumps(said), {}).canonical, {}))


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


LINES = record(("id", "long"), ("lines", {"type": "array", "items": {**record(("n", "int")), "name": "L"}}))
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TIME = {"type": "int", "logicalType": "time-millis"}
UUID = {"type": "string", "logicalType": "uuid"}
NODE = record(("next", ["null", "R"]))


@pytest.mark.parametrize(
    ("said", "payload", "value"),
    [
        ("long", zigzag(-(1 << 63)), -(1 << 63)),
        ("int", b"\x80\x00", 0),  # longer than it need be: readers take it
        (["null", "long"], b"\x00", None),
        (["null", "long"], b"\x02\x0e", 7),
        (["long", "null", "string"], b"\x04" + text("é"), (2, "é")),
        (COLOUR, b"\x02", "BLUE"),
        (LINES, zigzag(1) + zigzag(2) + zigzag(5) + zigzag(6) + b"\x00", (1, [(5,), (6,)])),
        (LINES, zigzag(1) + zigzag(-2) + zigzag(2) + zigzag(5) + zigzag(6) + b"\x00", (1, [(5,), (6,)])),
        ({"type": "map", "values": "int"}, zigzag(1) + text("k") + zigzag(3) + b"\x00", [("k", 3)]),
        ({"type": "array", "items": "null"}, zigzag(1 << 40) + b"\x00", 1 << 40),
        (record(("nothing", "null"), ("a", "boolean")), b"\x01", (True,)),
        (DECIMAL, b"\x04\xd8\xf1", b"\xd8\xf1"),  # -9,999
        (UUID, text("123E4567-e89b-12d3-a456-426614174000"), "123E4567-e89b-12d3-a456-426614174000"),
        (NODE, b"\x02" * 99 + b"\x00", None),
    ],
)
def test_one_datum(said: Any, payload: bytes, value: Any) -> None:
    found = datum(said)
    assert found.problem(payload) is None
    if said is not NODE:
        assert found.read(payload) == value


@pytest.mark.parametrize(
    ("said", "payload", "reason"),
    [
        ("long", b"\x02\x00", "the datum ends at byte 1, and 1 bytes are left over"),
        ("long", b"", "1 byte needed at byte 0, 0 left"),
        ("long", b"\xff" * 9 + b"\x02", "a number of more than 64 bits at byte 0"),
        ("long", b"\x80" * 11, "a number of more than 10 bytes at byte 0"),
        ("int", zigzag(1 << 31), "2147483648 at byte 0 is no int of 32 bits"),
        ("boolean", b"\x02", "byte 0x02 at byte 0 is no boolean (0 or 1)"),
        ("double", bytes(7), "8 bytes needed at byte 0, 7 left"),
        ("string", zigzag(-1), "length -1 at byte 1, but 0 bytes are left"),
        ("bytes", zigzag(1 << 30), "length 1073741824 at byte 5, but 0 bytes are left"),
        ("string", zigzag(2) + b"a\xff", "invalid UTF-8 at byte 2"),
        (["null", "long"], b"\x04", "branch 2 of a union of 2 (at byte 0)"),
        (["null", "long"], b"\x01", "branch -1 of a union of 2 (at byte 0)"),
        (COLOUR, b"\x01", "symbol -1 of Colour, which has 2"),
        (COLOUR, b"\x04", "symbol 2 of Colour, which has 2"),
        (LINES, zigzag(1) + zigzag(1 << 50), "field `lines[0]`: 1125899906842624 items at byte 9, but 0"),
        (LINES, zigzag(1) + zigzag(2) + zigzag(5) + b"\xff", "field `lines[1].n`: 1 byte needed at byte 4"),
        (LINES, zigzag(1) + zigzag(-2) + zigzag(3) + zigzag(5) + zigzag(6) + b"\x00",
         "field `lines[2]`: a block of items ends at byte 5, and not at byte 6 as it says"),
        ({"type": "map", "values": "int"}, zigzag(1) + text("k") + b"\xff", 'field `["k"]`: 1 byte needed'),
        (DECIMAL, b"\x04\x27\x10", "a decimal of more than 4 digits"),
        (DECIMAL, b"\x00", "a decimal of no bytes"),
        (TIME, zigzag(86_400_000), "86400000 is no time of a day (0 to 86399999)"),
        (UUID, text("no uuid"), "'no uuid' is no UUID (8-4-4-4-12 hexadecimal digits)"),
        (NODE, b"\x02" * DEPTH_MAX + b"\x00", f"nested deeper than {DEPTH_MAX}"),
    ],
)  # fmt: skip
def test_no_datum(said: Any, payload: bytes, reason: str) -> None:
    problem = datum(said).problem(payload)
    assert problem is not None
    assert reason in problem


def test_a_schema_cannot_make_much_of_little() -> None:
    """Records of next to nothing within one another: values are bounded by bytes, not by the schema."""
    inside: Any = "boolean"
    for depth in range(25):
        inside = {**record(("f", inside)), "name": f"R{depth}"}
    found = datum({"type": "array", "items": inside})
    few, many = 3, 10_000
    assert found.problem(zigzag(few) + bytes(few) + b"\x00") is None
    problem = found.problem(zigzag(many) + bytes(many) + b"\x00")
    assert problem is not None
    assert "more values than its bytes may have" in problem


def test_a_long_chain_of_types_is_no_recursion() -> None:
    """Records that name one another 5,000 deep: made, and refused only where data go that deep."""
    types: list[Any] = [{**record(("end", "int")), "name": "T0"}]
    for number in range(1, 5_000):
        types.append({**record(("f", ["null", f"T{number - 1}"])), "name": f"T{number}"})
    found = datum(types)
    assert found.problem(zigzag(4_999) + b"\x02" * 20 + b"\x00") is None
    with pytest.raises(BadDatum, match="nested deeper"):
        found.read(zigzag(4_999) + b"\x02" * 4_999 + b"\x00")
