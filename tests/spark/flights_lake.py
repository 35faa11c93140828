"""The topics of the flights pipeline in a cluster of one agent, filled by hand with a few records.

Thirteen flights in two helpings, with what the pipeline must bear: sent twice, corrected (also in another
partition, by a plane that changed), late, cancelled, undecodable, a day that is none, a tombstone; planes and
weather that are described late and anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from coordination.commands import BindSchema
from deploy.run.source import TOPICS as SOURCES
from deploy.run.source import message_class
from iceberg.spark.pipelines import flight_rows
from iceberg.spark.pipelines.flights import TOPICS, Lake, results
from objectstore import batch
from schema.compiler import compile_protos
from tests.spark import flights_oracle
from tests.spark.lake import lake
from tests.unit.iceberg.rig import Rig

LAKE = Lake({topic: f"lake.floe.{topic}" for topic in TOPICS}, "lake.results")
MINUTE_MS = 60_000
BEGAN_MS = 1_700_000_000_000
FLIGHTS = next(topic for topic in SOURCES if topic.name == "flights")
UNDECODABLE = b"\x0a"

Values = Mapping[str, Any]
Helping = Mapping[str, Mapping[int, Sequence[Values | bytes | None]]]
"""Records by topic and partition."""


def hour(day: date, of_day: int) -> dict[str, int]:
    return {"seconds": int(datetime(day.year, day.month, day.day, of_day, tzinfo=UTC).timestamp())}


def flight(
    number: int,
    day: str,
    delays: tuple[int | None, int | None],
    *,
    carrier: str = "UA",
    to: str = "IAH",
    plane: str | None = "N1",
    at: int = 6,
) -> dict[str, Any]:
    """Fields of a Flight from JFK; `delays`: minutes of departure and arrival."""
    then = date.fromisoformat(day)
    moved = [{} if minutes is None else {"delay_minutes": minutes} for minutes in delays]
    fields = {
        "year": then.year, "month": then.month, "day": then.day, "departure": moved[0], "arrival": moved[1],
        "carrier": carrier, "number": number, "origin": "JFK", "destination": to, "distance_miles": 1000,
        "hour": at, "scheduled_hour": hour(then, at),
    }  # fmt: skip
    return fields if plane is None else {**fields, "tail_number": plane}


def weather(day: str, of_day: int, rain: float, wind: float) -> dict[str, Any]:
    then = hour(date.fromisoformat(day), of_day)
    return {
        "origin": "JFK", "hour": then, "precipitation_inches": rain, "wind_speed_mph": wind,
        "visibility_miles": 9.5,
    }  # fmt: skip


FIRST: Mapping[str, Mapping[int, Sequence[Values | bytes | None]]] = {
    "airlines": {0: [{"carrier": "UA", "name": "United"}, {"carrier": "AA", "name": "American"}]},
    "airports": {0: [{"code": "JFK", "name": "Kennedy"}, {"code": "IAH", "name": "Houston"}]},
    "planes": {0: [{"tail_number": "N1", "seats": 100, "year": 2003}, {"tail_number": "N2", "seats": 200}]},
    "weather": {0: [weather("2013-01-01", 6, 0.1, 10.357), weather("2013-01-01", 7, 0.0, 12.7)]},
    "flights": {
        0: [
            flight(1, "2013-01-01", (10, 20)),
            flight(2, "2013-01-01", (0, -10), plane="N2"),
            flight(3, "2013-01-01", (None, None), to="BQN", plane=None, at=7),
            flight(1, "2013-01-01", (10, 20)),
            UNDECODABLE,
        ],
        1: [
            flight(4, "2013-01-01", (5, 15), carrier="AA", plane="N9", at=7),
            flight(5, "2013-01-02", (1, 2)),
            flight(6, "2013-10-03", (7, 8), plane="N9"),
            None,
        ],
    },
}
SECOND: Mapping[str, Mapping[int, Sequence[Values | bytes | None]]] = {
    "airlines": {0: [{"carrier": "AA", "name": "American Airlines"}]},
    "planes": {0: [{"tail_number": "N9", "seats": 50, "year": 2010}]},
    "weather": {0: [weather("2013-01-02", 6, 0.2, 30.1)]},
    "flights": {
        0: [
            flight(2, "2013-01-01", (0, -5), to="BQN", plane="N2"),
            flight(7, "2013-03-01", (30, 40)),
            {**flight(8, "2013-01-01", (0, 0)), "month": 13},
            b"\x00\x00\x00\x00\x07\x00"
            + message_class(FLIGHTS, FLIGHTS.message)(
                **flight(9, "2013-01-01", (90, 95))
            ).SerializeToString(),
        ],
        1: [flight(1, "2013-01-01", (11, 21)), flight(10, "2013-10-04", (None, None), carrier="AA")],
    },
}


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For plans over a dozen rows: to compile one costs many times what running it does."""


def quick(spark: SparkSession) -> None:
    """Settings of a session for small data."""
    for name, value in QUICK.items():
        spark.conf.set(name, value)


@asynccontextmanager
async def flights_lake(spark: SparkSession, folder: Path, *helpings: Helping) -> AsyncIterator[FlightsRig]:
    """The five topics with these helpings of records, as catalog `lake` of the session."""
    quick(spark)
    async with lake(spark, folder) as rig:
        found = FlightsRig(rig)
        await found.create()
        for each in helpings:
            await found.say(each)
        yield found


class FlightsRig:
    """Topics and tables over a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._said = 0

    async def create(self) -> None:
        """The five topics, bound to their messages, with plain values and two partitions each."""
        for topic in SOURCES:
            await self.rig.create_topic(topic.name, partitions=2)
            source = compile_protos({topic.proto.name: topic.proto.read_bytes()})
            bound = BindSchema(
                topic=topic.name, descriptor_set=source, message=topic.message, framing=BindSchema.PLAIN
            )
            await self.rig.replica.propose(bound)

    async def say(self, records: Helping) -> None:
        """Append records, each a minute after the one before, and commit them to the tables."""
        for topic in SOURCES:
            make = message_class(topic, topic.message)
            for partition, values in records.get(topic.name, {}).items():
                raw = [
                    value if value is None or isinstance(value, bytes) else make(**value).SerializeToString()
                    for value in values
                ]
                new = []
                for value in raw:
                    self._said += 1
                    new.append(batch.NewRecord(BEGAN_MS + self._said * MINUTE_MS, None, value))
                await self.rig.store_batch(batch.build(new), partition, topic.name)
            if topic.name in records:
                await self.rig.drain(self.rig.committer(topic.name))


def figures(frames: Mapping[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Rows of results by name, in one order, with columns by name."""
    found = {}
    for name, frame in frames.items():
        rows = [row.asDict() for row in frame.select(sorted(frame.columns)).collect()]
        found[name] = sorted(rows, key=lambda row: [str(value) for value in row.values()])
    return found


def computed(spark: SparkSession, lake: Lake = LAKE) -> dict[str, list[dict[str, Any]]]:
    """What the pipeline's tables tell, without what batch jobs know nothing of."""
    return figures({name: frame.drop("late_records") for name, frame in results(spark, lake).items()})


def expected(spark: SparkSession, lake: Lake = LAKE) -> dict[str, list[dict[str, Any]]]:
    """The same by the batch job over everything."""
    return figures(flights_oracle.over_everything(spark, lake.bronze))


def quarantine(spark: SparkSession, lake: Lake = LAKE) -> list[tuple[int, int, str]]:
    """Partition, offset and the beginning of the problem."""
    rows = spark.table(lake.quarantine).collect()
    return sorted((row["partition"], row["offset"], row["problem"][:20]) for row in rows)


def silver(spark: SparkSession, lake: Lake = LAKE) -> list[dict[str, Any]]:
    """Every flight, in one order."""
    rows = spark.table(lake.silver).orderBy(*flight_rows.FLIGHT).collect()
    return [row.asDict() for row in rows]
