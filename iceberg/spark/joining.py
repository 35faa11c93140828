"""What the sides of an audit hold at each (topic, partition, offset), side by side.

One shuffle of all sides together, cut into tasks by the number of rows, so that what a task holds is bounded
however many there are; it spills to disk what does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.tables import WRONG, XXHASH

KEYS = ("topic", "partition", "offset")
RECORDS_PER_TASK = 500_000
TASKS_MAX = 10_000


def tasks_of(spark: SparkSession, records: int) -> int:
    """How many tasks share so many records, at least as many as the session says."""
    told = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(told, min(TASKS_MAX, records // RECORDS_PER_TASK))


def lean(witnesses: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The same in columns of eight bytes: what tells that two rows differ, but not all of where.

    Spark aggregates these by hashing, and sorts all others.
    """
    return {name: _lean(frame) for name, frame in witnesses.items()}


def _lean(frame: DataFrame) -> DataFrame:
    for name, kind in frame.dtypes:
        if kind == "binary":
            frame = frame.withColumn(name, XXHASH.of(F.col(name)))
    if WRONG in frame.columns:
        frame = frame.withColumn(WRONG, F.when(F.col(WRONG).isNotNull(), F.lit(1)))
    return frame


def joined_by_place(witnesses: Mapping[str, DataFrame], tasks: int) -> DataFrame:
    """One row per place that any witness knows; a struct per witness, null where it lacks it.

    A struct has `n`, how often the witness holds the place, and of each other column the least.
    """
    sides = [frame.withColumn("side", F.lit(at)) for at, frame in enumerate(witnesses.values())]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), sides)
    counted = []
    for at, (name, frame) in enumerate(witnesses.items()):
        own = F.col("side") == at
        counted.append(F.count_if(own).alias(f"{name}_n"))
        for column in frame.columns[len(KEYS) :]:
            counted.append(F.min(F.when(own, F.col(column))).alias(f"{name}_{column}"))
    found = every.repartition(tasks, *KEYS).groupBy(*KEYS).agg(*counted)
    structs = []
    for name, frame in witnesses.items():
        columns = ("n", *frame.columns[len(KEYS) :])
        whole = F.struct(*(F.col(f"{name}_{column}").alias(column) for column in columns))
        structs.append(F.when(F.col(f"{name}_n") > 0, whole).alias(name))
    return found.select(*KEYS, *structs)
