"""Cost of validation: records per second of one core, decoding of the record batch included."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from objectstore import batch
from objectstore.compression import Compression
from schema.validator import Validator
from tests.bench.figure import Figure
from tests.unit.schema import samples

RECORDS = 20_000
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
