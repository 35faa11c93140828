"""`python -m iceberg.spark.pipelines URI run|backfill|repair|stream`: the flights pipeline and its repairs.

`URI` is Floe's catalog, `http://host:port/iceberg`. It runs locally, or by what spark-submit was told. Exit
status 0: done; 1: it could not be done, and the last line says why. A topic of which there is no table yet is
waited for with `--wait SECONDS`, and is such a reason without it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from threading import Event

from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T

from iceberg.spark.commands import add_reach, ended, started
from iceberg.spark.decoding import decoder
from iceberg.spark.pipelines import flight_repairs as repairs
from iceberg.spark.pipelines import flight_streams as streams
from iceberg.spark.pipelines import flights
from iceberg.spark.session import CATALOG, jars_in
from iceberg.spark.topics import now_ms

MESSAGE = "nycflights.Flight"
LOOK_S = 1.0
"""Between two looks at whether tables are there, seconds."""
KAFKA_JARS = Path("build/jars/sparkkafka")
"""Below a checkout; elsewhere spark-submit is given them (`--packages`)."""


def main(words: list[str] | None = None) -> int:
    """Do what the command line says."""
    arguments = parser().parse_args(words)
    lake = flights.Lake({topic: f"{CATALOG}.floe.{topic}" for topic in flights.TOPICS}, arguments.results)
    jars = [*jars_in(), *jars_in(KAFKA_JARS)] if KAFKA_JARS.is_dir() else None

    def work() -> int:
        spark = started(arguments, jars, short_lived=arguments.what != "stream")
        try:
            wait(spark, lake, arguments.wait)
            for line in DO[arguments.what](spark, lake, arguments):
                print(line)
        finally:
            spark.stop()
        return 0

    return ended("flights", work)


def wait(spark: SparkSession, lake: flights.Lake, seconds: int) -> None:
    """Until each table that the stages read is there, for so long at most, with a line for each change.

    Raises UnknownTable, which names those that are not.
    """
    told: list[str] = []
    lacking = flights.missing(spark, lake)
    until_ms = now_ms(spark) + seconds * 1_000  # from here: a first look may take seconds
    while lacking and now_ms(spark) < until_ms:
        if lacking != told:
            print(f"waiting up to {seconds} s for {', '.join(lacking)}", file=sys.stderr, flush=True)
            told = lacking
        Event().wait(LOOK_S)
        lacking = flights.missing(spark, lake)
    flights.require(spark, lake)


def run(spark: SparkSession, lake: flights.Lake, arguments: argparse.Namespace) -> list[str]:
    """What came since the last run."""
    done = flights.run(spark, lake)
    told = [f"{stage.name}: read {sum(stage.read.values())}, wrote {stage.added}" for stage in done]
    return told or ["nothing is new"]


def backfill(spark: SparkSession, lake: flights.Lake, arguments: argparse.Namespace) -> list[str]:
    """Days anew from bronze."""
    count = repairs.backfill(spark, lake, arguments.first, arguments.last)
    return [f"{arguments.first} to {arguments.last}: {count} flights"]


def repair(spark: SparkSession, lake: flights.Lake, arguments: argparse.Namespace) -> list[str]:
    """What can be decoded by now leaves the quarantine."""
    back, stay = repairs.repair(spark, lake, _decoder(spark, lake, arguments))
    return [f"came back {back}, stay {stay}"]


def stream(spark: SparkSession, lake: flights.Lake, arguments: argparse.Namespace) -> list[str]:
    """Follow the topic until it is stopped; with --once what there is."""
    if arguments.kafka:
        decode = _decoder(spark, lake, arguments)
        records = streams.from_kafka(spark, lake, arguments.kafka, "flights", decode)
    else:
        records = streams.from_table(spark, lake)
    writer = streams.write(records, lake, arguments.checkpoint)
    if arguments.once:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    return [f"flights: {spark.table(lake.silver).count()}"]


DO: dict[str, Callable[[SparkSession, flights.Lake, argparse.Namespace], list[str]]] = {
    "run": run,
    "backfill": backfill,
    "repair": repair,
    "stream": stream,
}
"""By the first word behind the URI; each gives the lines to print."""


def _decoder(
    spark: SparkSession, lake: flights.Lake, arguments: argparse.Namespace
) -> Callable[[Column], Column]:
    value = spark.table(lake.bronze["flights"]).schema["value"].dataType
    assert isinstance(value, T.StructType)
    return decoder(arguments.descriptors.read_bytes(), MESSAGE, value, framed=not arguments.plain)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    found = argparse.ArgumentParser(prog="python -m iceberg.spark.pipelines", description=__doc__)
    add_reach(found)
    found.add_argument("--wait", type=int, default=0, metavar="SECONDS", help="for tables to come")
    found.add_argument("--results", default=flights.RESULTS, help="namespace of the pipeline's tables")
    what = found.add_subparsers(dest="what", required=True)
    what.add_parser("run", help="bring all stages up to date")
    days = what.add_parser("backfill", help="make days anew from bronze")
    for name in ("first", "last"):
        days.add_argument(name, type=date.fromisoformat, help="YYYY-MM-DD")
    mended = what.add_parser("repair", help="bring back what can be decoded by now")
    followed = what.add_parser("stream", help="follow the topic")
    followed.add_argument("--checkpoint", required=True, help="a folder for Spark's place in the stream")
    followed.add_argument("--kafka", default="", help="host:port,… to read Kafka instead of the table")
    followed.add_argument("--once", action="store_true", help="end when what there is was read")
    for each, needed in ((mended, True), (followed, False)):
        each.add_argument("--descriptors", type=Path, required=needed, help="FileDescriptorSet with imports")
        each.add_argument("--plain", action="store_true", help="values without Confluent's frame")
    return found


if __name__ == "__main__":
    sys.exit(main())
