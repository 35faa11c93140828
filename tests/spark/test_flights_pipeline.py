"""The flights pipeline on a hand-written sample: tables written by pyiceberg, read and replaced by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from deploy.run.stages import Embedded
from iceberg.spark.pipelines import flights

pytestmark = pytest.mark.services

SIX, SEVEN = datetime(2013, 1, 1, 11, tzinfo=UTC), datetime(2013, 1, 1, 12, tzinfo=UTC)

MOVEMENT = pa.struct([("delay_minutes", pa.int32())])
VALUES = {
    "flights": pa.struct(
        [
            ("carrier", pa.string()),
            ("tail_number", pa.string()),
            ("origin", pa.string()),
            ("destination", pa.string()),
            ("year", pa.int32()),
            ("hour", pa.int32()),
            ("scheduled_hour", pa.timestamp("us", "UTC")),
            ("distance_miles", pa.int32()),
            ("departure", MOVEMENT),
            ("arrival", MOVEMENT),
        ]
    ),
    "airlines": pa.struct([("carrier", pa.string()), ("name", pa.string())]),
    "airports": pa.struct([("code", pa.string()), ("name", pa.string())]),
    "planes": pa.struct([("tail_number", pa.string()), ("seats", pa.int64()), ("year", pa.int32())]),
    "weather": pa.struct(
        [
            ("origin", pa.string()),
            ("hour", pa.timestamp("us", "UTC")),
            ("precipitation_inches", pa.float64()),
            ("wind_speed_mph", pa.float64()),
            ("visibility_miles", pa.float64()),
        ]
    ),
}


def flight(
    carrier: str, plane: str | None, to: str, at: datetime, delays: tuple[int | None, int | None]
) -> dict[str, object]:
    departure, arrival = delays
    return {
        "carrier": carrier,
        "tail_number": plane,
        "origin": "JFK",
        "destination": to,
        "year": 2013,
        "hour": 6 if at == SIX else 7,
        "scheduled_hour": at,
        "distance_miles": 1000,
        "departure": {"delay_minutes": departure},
        "arrival": {"delay_minutes": arrival},
    }


SAMPLE: Mapping[str, list[dict[str, object]]] = {
    "flights": [
        flight("UA", "N1", "IAH", SIX, (10, 20)),
        flight("UA", "N2", "IAH", SIX, (0, -10)),
        flight("UA", None, "BQN", SEVEN, (None, None)),
        flight("AA", "N9", "IAH", SEVEN, (5, 15)),
    ],
    "airlines": [{"carrier": "UA", "name": "United"}, {"carrier": "AA", "name": "American"}],
    "airports": [{"code": "JFK", "name": "Kennedy"}, {"code": "IAH", "name": "Houston"}],
    "planes": [
        {"tail_number": "N1", "seats": 100, "year": 2003},
        {"tail_number": "N2", "seats": 200, "year": None},
    ],
    "weather": [
        {
            "origin": "JFK",
            "hour": SIX,
            "precipitation_inches": 0.1,
            "wind_speed_mph": 20.0,
            "visibility_miles": 2.0,
        },
        {
            "origin": "JFK",
            "hour": SEVEN,
            "precipitation_inches": 0.0,
            "wind_speed_mph": 10.0,
            "visibility_miles": 10.0,
        },
    ],
}


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Topic → table that pyiceberg wrote through an agent's REST catalog, which Spark knows as `rest`."""
    with Embedded(tmp_path / "floe") as floe:
        uri = f"{floe.http[0]}/iceberg"
        catalog = RestCatalog("floe", uri=uri)
        catalog.create_namespace("sample")
        for topic, values in SAMPLE.items():
            schema = pa.schema([("value", VALUES[topic])])
            table = catalog.create_table(f"sample.{topic}", schema)
            table.append(pa.Table.from_pylist([{"value": value} for value in values], schema))
        catalog.close()
        spark.conf.set("spark.sql.catalog.rest", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.catalog.rest.type", "rest")
        spark.conf.set("spark.sql.catalog.rest.uri", uri)
        spark.conf.set("spark.sql.catalog.rest.io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        yield {topic: f"rest.sample.{topic}" for topic in SAMPLE}


def test_delays_are_joined_and_replaced_by_a_second_run(spark: SparkSession, tables: dict[str, str]) -> None:
    written = flights.run(spark, tables, results="rest.results")
    first = {name: [row.asDict() for row in spark.table(table).collect()] for name, table in written.items()}

    united, american = first["delays_by_airline"]
    assert united == {
        "carrier": "UA",
        "airline": "United",
        "flights": 3,
        "cancelled": 1,
        "mean_departure_delay": 5.0,
        "mean_arrival_delay": 5.0,
        "p90_arrival_delay": 20,
        "late_share": 0.5,
        "plane_age_years": 10.0,
        "seats": 150.0,
    }
    assert (american["airline"], american["late_share"], american["seats"]) == ("American", 0.0, None)

    routes = [
        (row["destination"], row["destination_name"], row["flights"]) for row in first["delays_by_route"]
    ]
    assert routes == [("IAH", "Houston", 3), ("BQN", None, 1)]
    assert first["delays_by_route"][0]["origin_name"] == "Kennedy"

    six, seven = first["delays_by_hour"]
    assert (six["mean_arrival_delay_in_rain"], six["mean_arrival_delay_dry"]) == (5.0, None)
    assert (seven["mean_arrival_delay_in_rain"], seven["mean_arrival_delay_dry"]) == (None, 15.0)
    assert (six["wind_speed_mph"], six["visibility_miles"]) == (20.0, 2.0)

    flights.run(spark, tables, results="rest.results")
    second = {name: [row.asDict() for row in spark.table(table).collect()] for name, table in written.items()}
    assert second == first
    assert spark.table("rest.results.delays_by_hour.snapshots").count() > 1
