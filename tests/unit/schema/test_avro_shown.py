"""Data of AVRO as JSON shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from objectstore.varint import zigzag
from schema.registry.avro import schema as avro
from schema.registry.avro import shown
from schema.registry.avro.datum import Datum
from tests.unit.schema.test_avro_datum import DECIMAL, record

DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}


@pytest.mark.parametrize(
    ("said", "payload", "text"),
    [
        ("bytes", b"\x04\x00\xff", '"AP8="'),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf8\x7f", '"NaN"'),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf0\xff", '"-Infinity"'),
        (DECIMAL, b"\x04\xff\x85", '"-1.23"'),
        (["null", "string"], b"\x02\x02a", '"a"'),
        (["null", "string", "long"], b"\x04\x0e", '{"long":7}'),
        (record(("nothing", "null"), ("a", ["null", "R"])), b"\x02\x00", None),
        (DURATION, b"\x01\0\0\0\x02\0\0\0\x03\0\0\0", '{"months":1,"days":2,"millis":3}'),
        (UUID, bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        ({"type": "map", "values": "int"}, zigzag(1) + b"\x02k" + zigzag(3) + b"\x00", '{"k":3}'),
        ({"type": "array", "items": "null"}, zigzag(2) + b"\x00", "[null,null]"),
    ],
)
def test_shown(said: Any, payload: bytes, text: str | None) -> None:
    top = avro.load(avro.parse(json.dumps(said), {}).canonical, {})
    datum = Datum(top)
    expected = text or '{"nothing":null,"a":{"nothing":null,"a":null}}'
    assert shown.text(datum, top, datum.read(payload)) == expected


def test_items_of_nothing_are_shown_up_to_a_bound() -> None:
    """Their number costs no bytes."""
    top = avro.load(b'{"type":"array","items":"null"}', {})
    datum = Datum(top)
    told = json.loads(shown.text(datum, top, datum.read(zigzag(1 << 60) + b"\x00")))
    assert told == [None] * shown.NOTHING_SHOWN_MAX
