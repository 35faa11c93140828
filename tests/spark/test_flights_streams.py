"""The flights pipeline fed by streams over the table and over Kafka: stopped, resumed, followed by a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from deploy.run.broken import confluent
from deploy.run.source import TOPICS, Topic, message_class
from deploy.run.stages import Embedded
from deploy.run.topics import create_topics
from deploy.run.watch import TableWatch
from iceberg.spark.jobs import watermark_of
from iceberg.spark.pipelines import __main__ as commands
from iceberg.spark.pipelines import flight_streams as streams
from iceberg.spark.pipelines import flights
from iceberg.spark.topics import topic_table
from schema.compiler import compile_protos
from tests.spark.catalogs import attach
from tests.spark.flights_lake import (
    FIRST,
    FLIGHTS,
    LAKE,
    SECOND,
    FlightsRig,
    computed,
    expected,
    flight,
    flights_lake,
    quarantine,
    quick,
)

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

THIRD = {"flights": {1: [flight(11, "2013-10-05", (3, 4))]}}


@pytest.fixture
async def topics(spark: SparkSession, tmp_path: Path) -> AsyncIterator[FlightsRig]:
    """The five topics with the first helping of records, as catalog `lake` of the session."""
    async with flights_lake(spark, tmp_path, FIRST) as found:
        yield found


class Dead(Exception):
    """A batch ended here: Spark's stream tells of it as of any failure."""


def follow(spark: SparkSession, checkpoint: Path, last: str = "") -> None:
    """Let the stream over the table read what there is; it fails before step `last`."""

    def before(stage: str, step: str) -> None:
        if f"{stage}: {step}" == last:
            raise Dead(last)

    writer = streams.write(streams.from_table(spark, LAKE), LAKE, str(checkpoint), before=before)
    writer.trigger(availableNow=True).start().awaitTermination()


def exact(spark: SparkSession) -> None:
    """The results are those of everything, and each stage stands at the table's end."""
    assert computed(spark) == expected(spark)
    end = topic_table(spark, LAKE.bronze["flights"]).end
    for table in (LAKE.quarantine, LAKE.silver, LAKE.gold):
        mark = watermark_of(spark, LAKE.bronze["flights"], table)
        assert mark is not None, table
        assert list(mark.ranges(end)) == [], table


def commits(spark: SparkSession) -> int:
    """How often silver was written."""
    count: int = spark.table(f"{LAKE.silver}.snapshots").count()
    return count


async def test_a_stream_over_the_table_is_stopped_resumed_and_followed_by_a_run(
    topics: FlightsRig, spark: SparkSession, tmp_path: Path
) -> None:
    await asyncio.to_thread(follow, spark, tmp_path / "one")
    await topics.say(SECOND)

    def resumed() -> None:
        with pytest.raises(StreamingQueryException, match="silver: drop the branch"):
            follow(spark, tmp_path / "one", "silver: drop the branch")  # the checkpoint has not the batch
        follow(spark, tmp_path / "one")
        exact(spark)
        assert len(quarantine(spark)) == 3
        before = commits(spark)
        follow(spark, tmp_path / "another")
        assert commits(spark) == before, "a lost checkpoint is no matter"

    await asyncio.to_thread(resumed)
    await topics.say(THIRD)

    def run() -> None:
        assert [stage.name for stage in flights.run(spark, LAKE)] == ["quarantine", "silver", "gold"]
        before = commits(spark)
        follow(spark, tmp_path / "one")
        assert commits(spark) == before, "the run had been there"
        exact(spark)

    await asyncio.to_thread(run)


class Clients:
    """Records through an agent's door, framed as its topics want them; only what it lets in is sent."""

    def __init__(self, floe: Embedded) -> None:
        self._ids, self._key_ids = create_topics(floe.bootstrap, floe.http[0])
        self._producer = Producer({"bootstrap.servers": floe.bootstrap})
        self._sent = {topic.name: 0 for topic in TOPICS}
        self._catalog = f"{floe.http[0]}/iceberg"

    def say(self, records: Mapping[str, Mapping[int, Sequence[Any]]]) -> None:
        """Send them, one after the other, and wait for the tables."""
        for topic in TOPICS:
            for partition, values in records.get(topic.name, {}).items():
                for value in values:
                    if not isinstance(value, dict) or value.get("month") == 13:
                        continue
                    self._send(topic, partition % topic.partitions, value)
        tables = {topic: f"floe.{topic}" for topic in self._sent}
        with TableWatch([self._catalog], tables) as watch:
            watch.wait(self._sent, 120, lambda: None)

    def _send(self, topic: Topic, partition: int, value: Mapping[str, Any]) -> None:
        raw, key = message_class(topic, topic.message)(**value).SerializeToString(), None
        if topic.confluent:
            raw = confluent(self._ids[topic.name], raw, topic.indexes)
        if topic.key_message:
            named = message_class(topic, topic.key_message)(tail_number=value["tail_number"])
            key = confluent(self._key_ids[topic.name], named.SerializeToString())
        errors: list[object] = []
        self._producer.produce(
            topic.name, raw, key, partition, on_delivery=lambda error, message: errors.append(error)
        )
        self._producer.flush()
        assert errors == [None]
        self._sent[topic.name] += 1


@pytest.mark.thorough
def test_a_stream_over_kafka_gives_the_same_and_a_run_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    descriptors = tmp_path / "flights.pb"
    descriptors.write_bytes(compile_protos({FLIGHTS.proto.name: FLIGHTS.proto.read_bytes()}))
    with Embedded(tmp_path / "floe") as floe:
        quick(spark)
        attach(spark, "lake", f"{floe.http[0]}/iceberg")
        clients = Clients(floe)

        def follow(checkpoint: str) -> None:
            words = ["stream", "--checkpoint", str(tmp_path / checkpoint), "--once"]
            words += ["--kafka", floe.bootstrap, "--descriptors", str(descriptors)]
            commands.stream(spark, LAKE, commands.parser().parse_args(["-", *words]))

        for records in (FIRST, SECOND):
            clients.say(records)
            follow("one")
            exact(spark)
        clients.say(THIRD)
        assert [stage.name for stage in flights.run(spark, LAKE)] == ["quarantine", "silver", "gold"]
        before = commits(spark)
        for checkpoint in ("one", "another"):
            follow(checkpoint)
        assert commits(spark) == before, "with and without its place it goes on behind the run"
        exact(spark)
