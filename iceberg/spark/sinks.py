"""An idempotent sink: rows are merged by a key, so that the same rows written again change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from iceberg.spark.topics import table_properties
from iceberg.spark.watermark import MissingColumns

PLACE = ("topic", "partition", "offset")
"""Where a record is: the key of a target that has each record once."""
_NUMBER = "__floe_number"
_BOUNDED = ("tinyint", "smallint", "int", "bigint", "string", "date")
"""Types whose bounds come to the driver and back as they are; a timestamp would by way of its time zone."""


def merge_into(
    rows: DataFrame,
    target: str,
    key: Sequence[str] = PLACE,
    *,
    newest_by: Sequence[str] = (),
    again: bool = False,
) -> None:
    """Put rows into an Iceberg table, one row per key, in one commit.

    A key that the target has is overwritten; with `newest_by` only by a row that is greater in these columns,
    so that rows which come late or once more do no harm; with `again` also by one that is equal in them, so
    that a row which was computed otherwise before is made anew. Of several rows with one key the greatest
    counts (any of them without `newest_by`). Rows have the target's columns, by name; further ones are
    ignored. The keys' lowest and highest values (whole numbers, text, dates) are looked up first: files of
    the target that lie outside are not opened.
    Raises UnknownTable and MissingColumns, before anything is written.
    """
    spark = rows.sparkSession
    table_properties(spark, target)
    columns = spark.table(target).columns
    _check_columns(rows, target, columns, key, newest_by)
    bounds = _bounds(rows, target, key)
    if bounds is None:
        return
    on = [f"t.`{name}` = s.`{name}`" for name in key]
    on += [f"t.`{key[at]}` BETWEEN :low{at} AND :high{at}" for at in range(len(key)) if f"low{at}" in bounds]
    than = ">=" if again else ">"
    newer = f"AND {_struct('s', newest_by)} {than} {_struct('t', newest_by)} " if newest_by else ""
    given = ", ".join(f"t.`{name}` = s.`{name}`" for name in columns)
    names = ", ".join(f"`{name}`" for name in columns)
    values = ", ".join(f"s.`{name}`" for name in columns)
    spark.sql(
        f"MERGE INTO {target} t USING {{rows}} s ON {' AND '.join(on)} "
        f"WHEN MATCHED {newer}THEN UPDATE SET {given} WHEN NOT MATCHED THEN INSERT ({names}) VALUES "
        f"({values})",
        args=bounds,
        rows=newest(rows, key, newest_by).select(*[F.col(f"`{name}`") for name in columns]),
    )


def newest(rows: DataFrame, key: Sequence[str], newest_by: Sequence[str] = ()) -> DataFrame:
    """One row per key: the greatest in `newest_by`."""
    if not newest_by:
        return rows.dropDuplicates(list(key))
    order = [F.col(f"`{name}`").desc_nulls_last() for name in newest_by]
    window = Window.partitionBy(*[F.col(f"`{name}`") for name in key]).orderBy(*order)
    return rows.withColumn(_NUMBER, F.row_number().over(window)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


def _struct(side: str, names: Sequence[str]) -> str:
    return f"struct({', '.join(f'{side}.`{name}`' for name in names)})"


def _check_columns(
    rows: DataFrame, target: str, columns: Sequence[str], key: Sequence[str], newest_by: Sequence[str]
) -> None:
    if not key:
        raise MissingColumns(f"key of {target}: it is empty; name the columns that tell a row from others")
    missing = [name for name in (*key, *newest_by) if name not in columns]
    if missing:
        raise MissingColumns(
            f"target {target} has no column {missing[0]!r}, which key={tuple(key)} and "
            f"newest_by={tuple(newest_by)} "
            f"need (it has {', '.join(columns)}): add it with ALTER TABLE … ADD COLUMN, or name other columns"
        )
    lacking = [name for name in columns if name not in rows.columns]
    if lacking:
        raise MissingColumns(
            f"the rows for {target} lack its column {lacking[0]!r} (they have {', '.join(rows.columns)}): "
            "select it, as null where there is no value"
        )


def _bounds(rows: DataFrame, target: str, key: Sequence[str]) -> dict[str, Any] | None:
    """The lowest and highest value of key columns; None without any rows. Raises MissingColumns for a null.

    Of columns only that have the target's type: another one may have another order.
    """
    ours, theirs = dict(rows.dtypes), dict(rows.sparkSession.table(target).dtypes)
    found = [F.count(F.lit(1)).alias("count")]
    for at, name in enumerate(key):
        column = F.col(f"`{name}`")
        found.append(F.count_if(column.isNull()).alias(f"nulls{at}"))
        if ours[name] in _BOUNDED and ours[name] == theirs[name]:
            found += [F.min(column).alias(f"low{at}"), F.max(column).alias(f"high{at}")]
    row = rows.agg(*found).collect()[0].asDict()
    for at, name in enumerate(key):
        if row[f"nulls{at}"]:
            raise MissingColumns(
                f"{row[f'nulls{at}']} rows for {target} have null in key column {name!r}: a null equals "
                "nothing, so they would be written again each time; leave them out or give them a value"
            )
    sides = {name: value for name, value in row.items() if name.startswith(("low", "high"))}
    return sides if row["count"] else None
