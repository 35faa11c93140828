"""Rows of random AVRO data, written by fastavro, are what fastavro reads, and its refusals are refused.

The columns are made by Floe's own walk over the bytes; fastavro shares no code with it.
"""

from __future__ import annotations

import datetime
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from iceberg import layout as layouts
from iceberg import rows
from iceberg.layout import Binding, Bindings, Registered
from objectstore import batch
from schema.registry.avro import schema as avro_schema
from schema.registry.avro.datum import Datum

SEEDS = range(60)
RECORDS = 12
DEPTH_MAX = 3
SUBJECT = Binding(1, b"", "", follows=True)
LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
)


class Drawn:
    """Schemas and their data at random."""

    def __init__(self, seed: int) -> None:
        self.draw, self.number = random.Random(seed), 0

    def name(self) -> str:
        self.number += 1
        return f"N{self.number}"

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": self.type(depth + 1)} for at in range(self.draw.randrange(1, 6))]
        return {"type": "record", "name": self.name(), "namespace": "shop", "fields": fields}

    def type(self, depth: int, *, union: bool = True) -> Any:
        draw = self.draw
        choice = draw.randrange(10 if depth < DEPTH_MAX else 5)
        if choice < 3:
            return draw.choice(("boolean", "int", "long", "float", "double", "string", "bytes", "null"))
        if choice == 3:
            return dict(draw.choice(LOGICAL))
        if choice == 4:
            if draw.random() < 0.5:
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            return {"type": "fixed", "name": self.name(), "size": draw.randrange(1, 4)}
        if choice == 5:
            return {"type": "array", "items": self.type(depth + 1)}
        if choice == 6:
            return {"type": "map", "values": self.type(depth + 1)}
        if choice == 7 or not union:
            return self.record(depth)
        if choice == 8:
            inner = self.type(depth + 1, union=False)
            return inner if inner in ("null",) else draw.choice((["null", inner], [inner, "null"]))
        several = ["null", "boolean", "long", "double", "string", "bytes", self.record(depth)]
        return draw.sample(several, draw.randrange(2, len(several)))

    def datum(self, said: Any) -> Any:
        """A value as fastavro writes it."""
        draw = self.draw
        if isinstance(said, list):
            chosen = draw.choice(said)
            value = self.datum(chosen)
            return (f"shop.{chosen['name']}", value) if _is_record(chosen) else value
        kind = said if isinstance(said, str) else said["type"]
        if isinstance(said, dict) and "logicalType" in said:
            return self.logical(said)
        match kind:
            case "record":
                return {each["name"]: self.datum(each["type"]) for each in said["fields"]}
            case "array":
                return [self.datum(said["items"]) for _ in range(draw.randrange(4))]
            case "map":
                return {f"k{at}": self.datum(said["values"]) for at in range(draw.randrange(4))}
            case "enum":
                return draw.choice(said["symbols"])
            case "fixed":
                return draw.randbytes(said["size"])
        makers: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: draw.random() < 0.5,
            "int": lambda: draw.randrange(-(1 << 31), 1 << 31),
            "long": lambda: draw.choice((draw.randrange(-99, 99), draw.randrange(-(1 << 63), 1 << 63))),
            "float": lambda: draw.choice((0.5, -1.25, 3.0)),
            "double": lambda: draw.uniform(-1e9, 1e9),
            "string": lambda: "".join(draw.choices("aé✓\0 ", k=draw.randrange(5))),
            "bytes": lambda: draw.randbytes(draw.randrange(5)),
        }
        return makers[kind]()

    def logical(self, said: Mapping[str, Any]) -> Any:
        name, draw = said["logicalType"], self.draw
        if name == "decimal":
            return Decimal(draw.randrange(-(10**12) + 1, 10**12)).scaleb(-3)
        if name == "uuid":
            digits = f"{draw.getrandbits(128):032x}"
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        day = datetime.datetime.fromisoformat("1970-01-01") + datetime.timedelta(
            days=draw.randrange(-9_999, 99_999)
        )
        micros = draw.randrange(86_400_000) * 1000
        if name.endswith("micros"):
            micros += draw.randrange(1000)
        moment = day + datetime.timedelta(microseconds=micros)
        if name.startswith("time-"):
            return moment.time()
        if name == "date":
            return day.date()
        return moment if name.startswith("local") else moment.replace(tzinfo=datetime.UTC)


def _is_record(said: Any) -> bool:
    return isinstance(said, dict) and said["type"] == "record"


def has_column(said: Any) -> bool:
    """What takes no bytes has none, nor what holds only such."""
    if isinstance(said, list):
        return any(has_column(each) for each in said)
    if said == "null":
        return False
    if not isinstance(said, dict):
        return True
    if said["type"] == "record":
        return any(has_column(each["type"]) for each in said["fields"])
    return has_column(said.get("items", said.get("values", "int")))


def shown(said: Any, value: Any) -> Any:
    """A value as fastavro read it, as the table has it."""
    if value is None:
        return None
    if isinstance(said, list):
        others = [each for each in said if each != "null"]
        if len(others) == 1:
            return shown(others[0], value[1] if isinstance(value, tuple) else value)
        found = _branch(others, value)
        inside = value[1] if isinstance(value, tuple) else value
        return {
            _called(each): shown(each, inside) if each is found else None
            for each in others
            if has_column(each)
        }
    if isinstance(said, str):
        return value
    if said.get("logicalType") == "uuid":
        return str(value)
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if said["type"] == "record":
        fields = [each for each in said["fields"] if has_column(each["type"])]
        return {each["name"]: shown(each["type"], value[each["name"]]) for each in fields}
    if said["type"] == "array":
        return [shown(said["items"], each) for each in value]
    if said["type"] == "map":
        return [(key, shown(said["values"], each)) for key, each in value.items()]
    return value


def _called(said: Any) -> str:
    return str(said["name"]) if isinstance(said, dict) else str(said)


def _branch(others: Sequence[Any], value: Any) -> Any:
    kinds = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}
    return next(
        each
        for each in others
        if (isinstance(each, dict) if isinstance(value, (tuple, dict)) else each == kinds[type(value)])
    )


def registered(schema_id: int, said: Any) -> Registered:
    form = avro_schema.parse(json.dumps(said), {}).canonical
    name = avro_schema.load(form, {}).name
    return Registered((schema_id, None), message=name or "value", schema_type="AVRO", form=form)


def table(schemas: Sequence[Registered], records: Sequence[bytes], previous: Any = None) -> Any:
    """The rows of records, and the layout that they were made in."""
    values = Bindings((SUBJECT,), 1, (1,), tuple(schemas), frozenset({schemas[-1].framed}))
    known = {} if previous is None else {"ids": previous.ids.to_json(), "previous": previous.fields}
    layout = layouts.build(None, values, **known)
    assert not layout.problems
    content = batch.build([batch.NewRecord(0, None, each) for each in records], base_offset=0)
    found: list[Any] = []
    for each in rows.arrow_batches(layout, 0, [memoryview(content)], 0, len(records)):
        each.validate(full=True)
        found += each.column("value").to_pylist()
    return found, layout


def framed(schema_id: int, parsed: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, value)
    return b"\x00" + schema_id.to_bytes(4, "big") + stream.getvalue()


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_what_fastavro_reads(seed: int) -> None:
    drawn = Drawn(seed)
    said = drawn.record()
    parsed = fastavro.parse_schema(said)
    records = [framed(7, parsed, drawn.datum(said)) for _ in range(RECORDS)]
    found, _ = table([registered(7, said)], records)
    read = [
        fastavro.schemaless_reader(io.BytesIO(each[5:]), parsed, None, return_record_name=True)
        for each in records
    ]
    assert [each["__err__"] for each in found] == [None] * RECORDS
    own = [{name: value for name, value in each.items() if not name.startswith("__")} for each in found]
    assert own == [shown(said, each) for each in read]


def test_garbled_data_end_nothing_and_are_told() -> None:
    """Whatever the bytes: a verdict at the door, and the same one in the table."""
    judged = {True: 0, False: 0}
    for seed in SEEDS:
        drawn = Drawn(seed)
        said = drawn.record()
        parsed = fastavro.parse_schema(said)
        one = registered(7, said)
        datum = Datum(avro_schema.load(one.form, {}))
        records = []
        for _ in range(RECORDS):
            content = bytearray(framed(7, parsed, drawn.datum(said)))
            for _ in range(drawn.draw.randrange(3)):
                if len(content) > 5:
                    content[drawn.draw.randrange(5, len(content))] = drawn.draw.randrange(256)
            cut, more = drawn.draw.choice((None, None, -1)), drawn.draw.choice((b"", b"", b"\x00"))
            records.append(bytes(content[:cut]) + more)
        found, _ = table([one], [each for each in records if len(each) >= 5])
        for each, row in zip((each for each in records if len(each) >= 5), found, strict=True):
            why = datum.problem(each[5:])
            judged[why is None] += 1
            assert (why[:400] if why else None) == row["__err__"]
    assert min(judged.values()) > 100
