"""What manifests say of decoded columns against the rows: queries leave whole files out by it.

Per file and column: no value lies outside the bounds that are told, none is null or NaN where none is said
to be, and of files that are read whole there are as many nulls as are said. Bounds that are wider than the
values lose no rows (strings are cut to 16 characters), so they are not asked to be narrow. Each row belongs
under the partition values of its file, by Iceberg's own functions in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.steady import apart
from iceberg.spark.tables import Pinned

COLUMNS_MAX = 200
"""Columns of one table that are looked at: twice as many as Floe's own manifests tell of."""
KAFKA_ID = 1  # whose figures shelf.py compares exactly
DETAIL = "columns_detail"
_REALS = ("float", "double")
_TOLD = {"nulls": "null_value_count", "nans": "nan_value_count", "low": "lower_bound", "high": "upper_bound"}


class Leaf(NamedTuple):
    """A column of single values: where it stands here, its name with dots, whether it may be NaN."""

    at: int
    name: str
    real: bool

    def told(self, what: str) -> Column:
        """What the manifest says."""
        return F.col(f"t{self.at}_{what}")

    @property
    def value(self) -> Column:
        """What a row has."""
        return F.col(f"v{self.at}")

    def count(self, what: str) -> Column:
        """How many rows of a file are so."""
        return F.col(f"n{self.at}_{what}")


class PartitionField(NamedTuple):
    """A field of one of the table's partition specs: where it stands here, its spec, its name, and the value
    that a row has under it, by Iceberg's own function in Spark.
    """

    at: int
    spec_id: int
    name: str
    value: str

    @property
    def told(self) -> Column:
        """What the manifest says of the file; null in files of other specs."""
        return F.when(F.col("spec_id") == self.spec_id, F.col("partition")[self.name])

    @property
    def wrong(self) -> Column:
        """Whether a row has another value than its file."""
        other = ~F.col(f"p{self.at}").eqNullSafe(F.col(f"p{self.at}_told"))
        return (F.col("spec_id") == self.spec_id) & other


_FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def partition_fields(of: Pinned) -> list[PartitionField]:
    """Those of all specs of the table."""
    names = {number: name for number, name, _ in _singles(json.loads(of.columns.fields))}
    system = f"`{of.table.partition('.')[0]}`.system"
    found: list[PartitionField] = []
    for spec in map(json.loads, of.specs):
        for each in spec["fields"]:
            column = _quoted(names[each["source-id"]])
            kind, _, size = each["transform"].rstrip("]").partition("[")
            value = f"{system}.{_FUNCTIONS.get(kind, kind)}({f'{size}, ' if size else ''}{column})"
            value = column if kind == "identity" else value
            found.append(PartitionField(len(found), spec["spec-id"], each["name"], value))
    return found


def leaves(spark: SparkSession, of: Pinned) -> list[Leaf]:
    """The columns, but those of `kafka`, of which some manifest of the table tells."""
    files = spark.sql(f"SELECT * FROM {of.table}.files VERSION AS OF {of.snapshot}")
    keys = [F.map_keys(F.col(name)) for name in ("lower_bounds", "upper_bounds", "null_value_counts")]
    told = files.select(F.explode(F.array_distinct(F.concat(*keys))).alias("id")).distinct().collect()
    numbers = {row["id"] for row in told}
    fields = [each for each in json.loads(of.columns.fields) if each["id"] != KAFKA_ID]
    known = ((name, kind) for number, name, kind in _singles(fields) if number in numbers)
    return [Leaf(at, name, kind in _REALS) for at, (name, kind) in enumerate(known)][:COLUMNS_MAX]


def _singles(fields: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[int, str, str]]:
    """Id, name and type of columns of single values, not those inside lists and maps."""
    for each in fields:
        kind, name = each["type"], f"{above}{each['name']}"
        if isinstance(kind, str):
            yield each["id"], name, kind
        elif kind["type"] == "struct":
            yield from _singles(kind["fields"], f"{name}.")


def told(columns: Sequence[Leaf], parts: Sequence[PartitionField]) -> list[Column]:
    """What a row of the table `files` says of them."""
    metrics = F.col("readable_metrics")
    return [
        *(each.told.alias(f"p{each.at}_told") for each in parts),
        F.col("spec_id"),
        *(
            metrics[each.name][column].alias(f"t{each.at}_{what}")
            for each in columns
            for what, column in _TOLD.items()
        ),
    ]


def judged(
    spark: SparkSession,
    of: Pinned,
    files: DataFrame,
    columns: Sequence[Leaf],
    parts: Sequence[PartitionField],
    compared: Column,
) -> DataFrame:
    """Per file (`columns_file`) what is wrong, empty where nothing is (`columns_detail`).

    `files`: `path`, `told_rows` and what is `told` of the columns. Only rows that are `compared` are read.
    """
    rows = spark.sql(f"SELECT _file, * FROM {of.rows}").where(compared & apart(F.col("_file")))
    named = rows.select(F.col("_file").alias("file"), *values(columns, parts))
    joined = beside(named, F.col("file"), files, columns, parts)
    counted = joined.groupBy("file").agg(F.count(F.lit(1)).alias("rows"), *counts(columns, parts))
    return added(counted, "file", columns, parts)


def values(columns: Sequence[Leaf], parts: Sequence[PartitionField]) -> list[Column]:
    """What a row has in the columns, and under the fields, over the table's own columns."""
    return [
        *(F.col(_quoted(each.name)).alias(f"v{each.at}") for each in columns),
        *(F.expr(each.value).alias(f"p{each.at}") for each in parts),
    ]


def beside(
    rows: DataFrame, file: Column, files: DataFrame, columns: Sequence[Leaf], parts: Sequence[PartitionField]
) -> DataFrame:
    """The rows' `values` beside what is `told` of their `file`; null, where nothing is told."""
    wanted = files.select(
        F.col("path").alias("columns_path"),
        "told_rows",
        "spec_id",
        *(f"p{each.at}_told" for each in parts),
        *(each.told(what) for each in columns for what in _TOLD),
    )
    return rows.join(F.broadcast(wanted), file == F.col("columns_path"), "left")


def counts(columns: Sequence[Leaf], parts: Sequence[PartitionField]) -> list[Column]:
    """What is counted of rows `beside` what is told of their file, which is kept."""
    found = [
        F.count_if(F.coalesce(how, F.lit(False))).alias(f"n{each.at}_{what}")
        for each in columns
        for what, how in _counted(each).items()
    ]
    found += [F.count_if(F.coalesce(each.wrong, F.lit(False))).alias(f"p{each.at}_wrong") for each in parts]
    found += [F.first(each.told("nulls")).alias(f"t{each.at}_nulls") for each in columns]
    return [*found, F.first("told_rows").alias("told_rows")]


def added(
    counted: DataFrame, file: str, columns: Sequence[Leaf], parts: Sequence[PartitionField]
) -> DataFrame:
    """Per file (`columns_file`) what is wrong (`columns_detail`), of what was counted in parts of files."""
    numbers = [f"n{each.at}_{what}" for each in columns for what in _counted(each)]
    numbers += [f"p{each.at}_wrong" for each in parts]
    kept = ["told_rows", *(f"t{each.at}_nulls" for each in columns)]
    found = counted.groupBy(F.col(file).alias("columns_file")).agg(
        F.sum("rows").alias("n"),
        *(F.sum(each).alias(each) for each in numbers),
        *(F.first(each).alias(each) for each in kept),
    )
    details = [detail for each in columns for detail in _details(each)]
    for each in parts:
        wrong = F.col(f"p{each.at}_wrong")
        text = F.concat(
            wrong, F.lit(f" rows do not belong under the file's value of partition field {each.name}")
        )
        details.append(F.when(wrong > 0, text))
    return found.select("columns_file", F.concat_ws("; ", *details).alias(DETAIL))


def _counted(leaf: Leaf) -> dict[str, Column]:
    """What is counted of a column: rows outside of its bounds, nulls, NaNs where none is said to be."""
    value = leaf.value
    outside = [value < leaf.told("low"), value > leaf.told("high")]
    found = reduce(Column.__or__, [F.coalesce(each, F.lit(False)) for each in outside])
    nan = F.isnan(value) if leaf.real else F.lit(False)
    return {
        "outside": found & ~nan,
        "nulls": value.isNull(),
        "nans": nan & (leaf.told("nans") == 0),
    }


def _details(leaf: Leaf) -> list[Column]:
    outside, nulls, nans = (leaf.count(what) for what in ("outside", "nulls", "nans"))
    known = leaf.told("nulls")
    wrong = (nulls > known) | ((F.col("n") == F.col("told_rows")) & (nulls != known))
    says = F.concat(F.lit("the manifest says "), known, F.lit(f" nulls of {leaf.name}, there are "), nulls)
    return [
        F.when(
            outside > 0, F.concat(outside, F.lit(f" rows lie outside the manifest's bounds of {leaf.name}"))
        ),
        F.when(wrong, says),
        F.when(nans > 0, F.concat(nans, F.lit(f" rows of {leaf.name} are NaN, the manifest says none"))),
    ]


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))
