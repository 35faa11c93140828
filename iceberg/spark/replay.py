"""`python -m iceberg.spark.replay URI BOOTSTRAP TOPIC …`: a quarantine brought back by Spark, each once.

What `floe quarantine replay` does in one process, a task of Spark does for each partition of the quarantine:
rows come from the quarantine's table, go through the repair, and are written by transactions with the same
positions (replay_writer.py). So the two may take turns, and neither doubles what the other did, wherever one
is killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from iceberg.spark import replay_writer
from iceberg.spark.commands import add_reach, ended, started
from iceberg.spark.flat import OWN, TOP, value_type
from iceberg.spark.reading import increment
from iceberg.spark.session import CATALOG
from iceberg.spark.topics import topic_table
from iceberg.spark.watermark import JobError, Watermark

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".quarantine"
BATCH = 10_000
BATCH_MAX = 50_000
"""Records of one transaction: what is under way has to fit the client's queue of 100,000."""

PLACE = ("quarantine_partition", "quarantine_offset")
COLUMNS = (*PLACE, "partition", "timestamp_ms", "key", "value", "headers")
"""What a repair gives back of what it is given; further ones are dropped."""

_RESULT = "partition int, written long"
Work = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""Of one task, over Arrow's batches."""

Repair = Callable[[DataFrame], DataFrame]
"""Rows of a quarantine, to what is written: the same rows with other `key` and `value`. A row that is not
given back is left out, and counts as done. Each is given back once at most.
"""


class Replayed(NamedTuple):
    """Records that the tasks wrote (attempts that died wrote others), and up to where the quarantine is
    done.
    """

    written: int
    watermark: Watermark


def values_by(function: Callable[[bytes | None], bytes | None]) -> Repair:
    """The repair that makes each value anew by a Python function; None: the record is left out."""

    def of_bytes(value: bytearray | None) -> bytes | None:
        return function(None if value is None else bytes(value))

    def repaired(rows: DataFrame) -> DataFrame:
        made = F.udf(of_bytes, T.BinaryType(), useArrow=False)
        made = made.asNondeterministic()  # else the filter calls it once more
        return rows.withColumn("value", made("value")).where("value IS NOT NULL")

    return repaired


def replay_quarantine(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    repair: Repair | None = None,
    *,
    table: str = "",
    batch: int = BATCH,
    offsets_max: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> Replayed:
    """Bring back what the table of the topic's quarantine has and no replay has done, each record once.

    Records go to the partition that they were meant for, with their time, headers and one that names their
    place in the quarantine. Without `repair` they go as they were sent: the rules or the schema have changed.
    One that still breaks them is set aside anew or refused, by the topic's policy; refused ones end the
    replay. `table`: the quarantine's, where it is called otherwise. `batch` records are a transaction,
    `offsets_max` of each partition are replayed at most. `properties`: of librdkafka, such as
    security.protocol. Raises JobError, UnknownTable, and what Spark and the repair raise.
    """
    if not 1 <= batch <= BATCH_MAX:
        raise JobError(f"batch={batch}: give 1 to {BATCH_MAX} records")
    given = dict(properties or {})
    found = topic_table(spark, table or _table(topic))
    if found.topic != topic + SUFFIX:
        raise JobError(f"table {found.table} is that of topic {found.topic!r}, not of {topic + SUFFIX!r}")
    partitions, begin = _begin(bootstrap, topic, given, found.end)
    new = increment(spark, found, begin, None, offsets_max, True)
    if new.is_empty:
        return Replayed(0, new.watermark)
    rows = _rows(new.rows)
    chosen = (repair(rows) if repair else rows).select(*COLUMNS)
    ends = {partition: end for partition, _, end in new.since.ranges(new.watermark)}
    tasks = _Tasks(bootstrap, topic, partitions, batch, given)
    return Replayed(_write(spark, chosen, len(new.watermark.offsets), ends, tasks), new.watermark)


def _write(spark: SparkSession, rows: DataFrame, count: int, ends: Mapping[int, int], tasks: _Tasks) -> int:
    """The rows, each by the task of its partition, `count` of them in all; how many were written."""
    placed = rows.repartitionById(count, PLACE[0]).sortWithinPartitions(PLACE[1])
    done = placed.mapInArrow(tasks.work(ends), _RESULT).collect()
    # Where a repair leaves nothing Spark may run no task; but what was left out is behind, too.
    left = {at: end for at, end in ends.items() if at not in {row["partition"] for row in done}}
    if left:
        every = spark.range(count).select(F.col("id").cast("int").alias(PLACE[0]))
        idle = every.repartitionById(count, PLACE[0]).mapInArrow(tasks.work(left, rows=False), _RESULT)
        done += idle.collect()
    return sum(row["written"] for row in done)


def _table(topic: str) -> str:
    """As docs/tables.md says how a topic's table is called."""
    name = re.sub(r"[.-]", "_", topic + SUFFIX)
    return f"{CATALOG}.floe.`{name}`"


def _begin(
    bootstrap: str, topic: str, properties: Mapping[str, str], end: Watermark
) -> tuple[int, Watermark]:
    """How many partitions the topic has, and where a replay of the table's rows begins. Raises JobError."""
    own = {**replay_writer.clients(bootstrap, properties), "group.id": replay_writer.GROUP + topic}
    own["isolation.level"] = "read_uncommitted"  # nobody waits here for what a killed task left open
    consumer, name = Consumer(own), topic + SUFFIX
    try:
        listed = consumer.list_topics(topic, replay_writer.ANSWER_S_MAX).topics[topic]
        if listed.error is not None:
            raise JobError(f"topic {topic!r}: {listed.error.str()}")
        places = [TopicPartition(name, at) for at in range(len(end.offsets))]
        committed = consumer.committed(places, replay_writer.ANSWER_S_MAX) if places else []
        starts = [consumer.get_watermark_offsets(at, replay_writer.ANSWER_S_MAX)[0] for at in places]
    except KafkaException as error:
        raise JobError(f"agents at {bootstrap}: {error.args[0].str()}") from error
    finally:
        consumer.close()
    positions = (max(start, int(at.offset), 0) for start, at in zip(starts, committed, strict=True))
    # A replay from the topic itself may be ahead of the table.
    offsets = tuple(min(at, last) for at, last in zip(positions, end.offsets, strict=True))
    return len(listed.partitions), Watermark(end.topic_id, offsets)


def _rows(rows: DataFrame) -> DataFrame:
    """Rows as a repair is given them: the record's fields at the top, and its place in the quarantine."""
    value = rows.schema["value"].dataType
    assert isinstance(value, T.StructType), "a topic's table has a struct `value`"
    inside = [F.col(f"value.`{each}`").alias(each) for each in value.names if each not in OWN]
    others = [each for each in rows.columns if each not in TOP]  # of a flat table
    names = value_type(rows.schema).names[len(value.names) :]
    outside = [F.col(f"`{each}`").alias(name) for each, name in zip(others, names, strict=True)]
    why = F.concat(F.lit("it is no record of a quarantine: "), F.col("value.__err__"))
    offset = F.when(F.col("value.__err__").isNull(), F.col("kafka.offset")).otherwise(F.raise_error(why))
    return rows.select(F.col("kafka.partition").alias(PLACE[0]), offset.alias(PLACE[1]), *inside, *outside)


class _Tasks(NamedTuple):
    """What the tasks of a replay have in common."""

    bootstrap: str
    topic: str
    partitions: int
    batch: int
    properties: Mapping[str, str]

    def work(self, ends: Mapping[int, int], *, rows: bool = True) -> Work:
        """What a task does with its rows, which are those of the quarantine's partition with its number.

        `ends`: where partitions end, of those that there is something to do for. `rows`: whether to read any.
        """
        told, ends = self, dict(ends)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            context = TaskContext.get()
            assert context is not None, "it runs in a task"
            at = context.partitionId()
            if at not in ends:
                return
            task = replay_writer.Task(
                told.bootstrap, told.topic, told.partitions, told.topic + SUFFIX, at, ends[at],
                told.batch, told.properties,
            )  # fmt: skip
            written = replay_writer.write(task, _of(batches if rows else iter(()), at))
            columns = [pa.array([at], pa.int32()), pa.array([written], pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=["partition", "written"])

        return work


def _of(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[replay_writer.Row]:
    for each in batches:
        columns = each.to_pydict()
        if any(at != partition for at in columns[PLACE[0]]):
            raise replay_writer.ReplayFailed(f"rows of another partition came to that of {partition}")
        yield from replay_writer.of_columns(columns)


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; prints one object of JSON."""
    given = _parser().parse_args(words)

    def work() -> int:
        repair = _repair(given)  # what is wrong with the command line is said before Spark takes its time
        properties = dict(given.property)
        spark = started(given)
        try:
            done = replay_quarantine(
                spark,
                given.bootstrap,
                given.topic,
                repair,
                table=given.table,
                batch=given.batch,
                offsets_max=given.offsets_max,
                properties=properties,
            )
        finally:
            spark.stop()
        print(json.dumps({"topic": given.topic, "written": done.written, "watermark": str(done.watermark)}))
        return 0

    return ended("replay", work)


def _repair(given: argparse.Namespace) -> Repair | None:
    if given.repair and given.each:
        raise JobError("--with and --each: give one of them")
    if given.each:
        _function("--each", given.each)
        file, _, name = given.each.rpartition(":")
        return values_by(_OfFile(file, Path(file).read_text(), name))
    return _function("--with", given.repair) if given.repair else None


class _OfFile:
    """A function of a file, which goes to executors as its source: what is in the file need not pickle."""

    def __init__(self, file: str, source: str, name: str) -> None:
        self._given = (file, source, name)
        self._function: Callable[[bytes | None], bytes | None] | None = None

    def __reduce__(self) -> tuple[type[_OfFile], tuple[str, str, str]]:
        return _OfFile, self._given

    def __call__(self, value: bytes | None) -> bytes | None:
        if self._function is None:
            file, source, name = self._given
            module: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
            exec(compile(source, file, "exec"), module)
            self._function = module[name]
        return self._function(value)


def _function(option: str, place: str) -> Callable[[Any], Any]:
    """The function that FILE.py:NAME names. Raises JobError."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path) if file else None
    if spec is None or spec.loader is None:
        raise JobError(f"{option} {place}: write FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's own code
        raise JobError(f"{option} {place}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise JobError(f"{option} {place}: {path} has no function {name!r}")
    return found  # type: ignore[no-any-return]  # of the user's making


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m iceberg.spark.replay", description=__doc__)
    add_reach(found)
    found.add_argument("bootstrap", help="agents, host:port,…; executors reach them too")
    found.add_argument("topic", help="whose quarantine it is, and where records go")
    how = found.add_argument_group("how records are repaired; as they were without these")
    how.add_argument(
        "--with", dest="repair", default="", metavar="FILE.py:FUNCTION", help="function(rows) of DataFrames"
    )
    how.add_argument(
        "--each",
        default="",
        metavar="FILE.py:FUNCTION",
        help="function(value): bytes, or None to leave it out",
    )
    found.add_argument("--table", default="", help="of the quarantine; default: by the topic's name")
    found.add_argument("--batch", type=int, default=BATCH, help=f"records of one transaction, {BATCH}")
    found.add_argument("--offsets-max", type=int, default=None, help="of each partition, at most so many")
    found.add_argument(
        "--property",
        action="append",
        type=_property,
        default=[],
        metavar="NAME=VALUE",
        help="of librdkafka, such as security.protocol",
    )
    return found


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
