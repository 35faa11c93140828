"""Cost of validation: records per second of one core, decoding of the record batch included."""

from __future__ import annotations

import io
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import fastavro
from google.protobuf import json_format

from objectstore import batch
from objectstore.compression import Compression
from schema import judges
from schema.registry.kinds import KINDS
from schema.strict import problem
from schema.validator import Validator
from tests.bench.figure import Figure
from tests.unit.schema import samples

RECORDS = 20_000
_TEXTS = ("carrier", "tailnum", "origin", "dest", "timeHour")
_NAMES = (
    *("year", "month", "day", "depTime", "schedDepTime", "arrTime", "schedArrTime", "depDelay", "arrDelay"),
    *("flight", "airTime", "distance", "hour", "minute", *_TEXTS),
)
BATCH_RECORDS = 500
ROUNDS = 5


def flight_values(count: int, seed: int = 1) -> list[bytes]:
    """`count` serialized flights of all 19 columns."""
    flight = samples.message_type(samples.FLIGHTS, "nyc.Flight").message_class
    draw = random.Random(seed)
    return [
        flight(
            year=2013,
            month=draw.randint(1, 12),
            day=draw.randint(1, 28),
            carrier="UA",
            dep_time=draw.randint(1, 2359),
            sched_dep_time=draw.randint(1, 2359),
            arr_time=draw.randint(1, 2359),
            sched_arr_time=draw.randint(1, 2359),
            dep_delay=draw.randint(-20, 200),
            arr_delay=draw.randint(-20, 200),
            flight=draw.randint(1, 6000),
            tailnum=f"N{draw.randint(0, 4000):05d}",
            origin=draw.choice(("EWR", "JFK", "LGA")),
            dest=draw.choice(("IAH", "ORD", "ATL", "LAX")),
            air_time=draw.randint(40, 400),
            distance=draw.randint(80, 4000),
            hour=draw.randint(5, 23),
            minute=draw.randint(0, 59),
            time_hour="2013-01-01T05:00:00Z",
        ).SerializeToString()
        for _ in range(count)
    ]


def flight_batches(compression: Compression) -> list[bytes]:
    """RECORDS flights as record batches."""
    values = flight_values(RECORDS)
    return [
        batch.build(
            [
                batch.NewRecord(1_700_000_000_000 + at, b"N12345", value)
                for at, value in enumerate(values[start : start + BATCH_RECORDS])
            ],
            base_offset=start,
            compression=compression,
        )
        for start in range(0, RECORDS, BATCH_RECORDS)
    ]


def median_rate(work: Callable[[], object], units: float) -> float:
    """Units per CPU second, the median of ROUNDS."""
    rates = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        rates.append(units / (time.process_time() - start))
    return statistics.median(rates)


def _checked(validator: Validator, batches: Sequence[Any]) -> None:
    for each in batches:
        validator.check(each)


def figures() -> Iterable[Figure]:
    """One figure per form of the batch."""
    validator = Validator.from_binding(samples.bound(samples.FLIGHTS, "nyc.Flight"))
    for compression in (Compression.NONE, Compression.ZSTD):
        batches = flight_batches(compression)
        if any(validator.check(each) for each in batches):
            raise AssertionError("the flights are not valid")
        rate = median_rate(partial(_checked, validator, batches), RECORDS)
        name = f"protobuf validation of flights, {compression.name.lower()}"
        yield Figure(name, rate, "records/s/core", goal=150_000)
    yield from _of_other_types()


def _of_other_types() -> Iterable[Figure]:
    """The strict parse of the same flights in protobuf, AVRO and JSON, without batches; fastavro beside."""
    fields = samples.message_type(samples.FLIGHTS, "nyc.Flight")
    messages = flight_values(RECORDS)
    rows = [json_format.MessageToDict(fields.message_class.FromString(each)) for each in messages]
    rows = [{name: each.get(name, "" if name in _TEXTS else 0) for name in _NAMES} for each in rows]
    avro = {"type": "record", "name": "Flight", "fields": [_field(name) for name in _NAMES]}
    properties = {name: {"type": "string" if name in _TEXTS else "integer"} for name in _NAMES}
    sheet = {"type": "object", "properties": properties, "required": ["year"], "additionalProperties": False}
    parsed = fastavro.parse_schema(avro)
    data = [_written(parsed, each) for each in rows]
    texts = [json.dumps(each).encode() for each in rows[: RECORDS // 4]]

    def judged(schema_type: str, said: Any, records: Sequence[bytes]) -> Callable[[], object]:
        form = KINDS[schema_type].parse(json.dumps(said), {}).canonical
        judge = judges.of(schema_type, form, {}).problem
        assert not any(map(judge, records)), "the flights are not valid"
        return lambda: [judge(each) for each in records]

    def read() -> None:
        for each in data:
            fastavro.schemaless_reader(io.BytesIO(each), parsed, None)

    for name, work, count in (
        (
            "protobuf: strict parse of flights",
            lambda: [problem(each, fields, False) for each in messages],
            RECORDS,
        ),
        ("AVRO: flights judged", judged("AVRO", avro, data), RECORDS),
        ("AVRO: flights read by fastavro, which judges less", read, RECORDS),
        ("JSON: flights judged", judged("JSON", sheet, texts), len(texts)),
    ):
        yield Figure(name, median_rate(work, count), "records/s/core")


def _field(name: str) -> dict[str, str]:
    return {"name": name, "type": "string" if name in _TEXTS else "int"}


def _written(parsed: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, row)
    return stream.getvalue()
