"""Queries that come again and again with other numbers, planned so that Spark's code for them stays the same.

Spark writes a Java class for each stage of a query, with the numbers of its expressions in it, and keeps
classes by their text: a query with other numbers is compiled anew, by Spark and then by the JVM, whenever it
comes. In an audit of each minute that was most of its processor time. Texts and rows are not in the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.session import CATALOG, THOROUGH, java_options

CLASSES_MAX = 4_000
"""Classes that are kept; an audit has some 180, of each shape of table. Spark's own bound is 100."""

# Spark's driver is some thousand methods, each of which the optimising compiler takes up once it was called
# 5,000 times: for an hour that was half of what an audit each minute took. What is done with each record is
# called millions of times a round, and is compiled at once all the same.
_FEWER_COMPILED = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
STAYING = {
    "spark.driver.extraJavaOptions": java_options(f"{THOROUGH} {_FEWER_COMPILED}"),
    "spark.sql.codegen.cache.maxEntries": str(CLASSES_MAX),
    "spark.sql.adaptive.enabled": "false",  # plans a query once more at each of its stages
    "spark.sql.shuffle.partitions": "1",  # of what is large an audit says by itself how many
    f"spark.sql.catalog.{CATALOG}.snapshot-loading-mode": "refs",  # not 17,000 for each query
}
"""Settings of a session that stays and asks the same again and again, from its start."""

_ARROW = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


def steady(number: int, beside: Column) -> Column:
    """A number as a column that is not in the code. `beside`: any text column, which is never null."""
    return F.concat(F.substring(beside, 1, 0), F.lit(str(number))).cast("long")


def apart(column: Column) -> Column:
    """True, in a condition with numbers: so that it is a stage of its own, and what is behind it stays the
    same. Spark gives functions of arrays no code, hence none of a condition that has one.

    `column`: any that is never null.
    """
    return F.forall(F.array(column), lambda one: one.isNotNull())


def local_rows(spark: SparkSession, rows: Sequence[tuple[Any, ...]], columns: str) -> DataFrame:
    """A few rows of the driver's, of `name type, …` (int, long, string, boolean), which no Python on the
    executors has to unpack.
    """
    names, kinds = zip(*(each.split() for each in columns.split(", ")), strict=True)
    of_each = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(values, _ARROW[kind]) for values, kind in zip(of_each, kinds, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=list(names)))
