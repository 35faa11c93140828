"""What an equal audit saw of a table's data files, so that the next one need not read their rows again.

Data files never change and names are used once: a file whose manifest entry is as that audit saw it (`entry`,
a digest of all that manifests say of it) holds the rows that were judged then. Of each file and partition are
known the rows below the offset up to which that audit compared, the XOR of hashes of their partitions,
offsets and times (`places`), and whether there are no others in the file (`whole`).

Compaction and engines move rows into other files. Those are read, and have to hold just what the files had
that are not as they were: as many rows, and the same XOR. Since no two rows of an equal audit are at one
place, that is the same rows, each once: neither is one lost, nor doubled, nor of another place or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from iceberg.spark.tables import Since

FORM = 1
"""Of what is kept, for ever; another meaning of any of it takes another number."""
FACTS = "path string, entry string, partition int, low long, high long, rows long, places long, whole boolean"
COLUMNS = [each.split()[0] for each in FACTS.split(", ")]
LOOKED_AT = "looked_at"
MOVED_MAX = 100_000
"""Files that are not as they were: where there are more, nothing counts as seen."""
_READABLE = "readable_metrics"


class Earlier(NamedTuple):
    """What earlier audits of a table compared: rows below `since`, and what the last of them saw of files.

    `left`: log starts, below which rows may have left the table, by whole files. All by topic and partition.
    `snapshot`: which one of the table the last of them looked at.
    """

    since: Since = MappingProxyType({})
    seen: DataFrame | None = None
    left: Since = MappingProxyType({})
    snapshot: int | None = None


class Moved(NamedTuple):
    """Rows of a partition that were in files which are not as they were, or are in files that came."""

    partition: int | None
    rows: int
    places: int
    low: int
    high: int


def entry(files: DataFrame) -> Column:
    """A digest of all that a row of the table `files` says. Maps are sorted: manifests are written anew."""
    columns = []
    for name, kind in files.dtypes:
        if kind.startswith("map"):
            pairs = F.array_sort(F.map_entries(name))
            columns.append(F.when(F.size(pairs) > 0, pairs).alias(name))
        elif name != _READABLE:
            columns.append(F.col(name))
    return F.sha2(F.to_json(F.struct(*columns)), 256).alias("entry")


def with_looked_at(told: DataFrame, seen: DataFrame | None) -> DataFrame:
    """The files with LOOKED_AT: whether their rows are to be read.

    They are not, of a file that is named once, as it was, and all of whose rows were compared.
    """
    if seen is None:
        return told.withColumn(LOOKED_AT, F.lit(True))
    whole = seen.groupBy("path", "entry").agg(F.bool_and("whole").alias("known")).where("known")
    named = F.count(F.lit(1)).over(Window.partitionBy("path"))
    found = told.withColumn("named", named).join(whole, ["path", "entry"], "left")
    known = F.col("known").isNotNull() & (F.col("named") == 1)
    return found.withColumn(LOOKED_AT, ~known).drop("named", "known")


def gone(told: DataFrame, seen: DataFrame) -> list[Moved] | None:
    """By file and partition what was in files that are not as they were; None: there are too many."""
    kept = told.where(~F.col(LOOKED_AT)).select("path")
    lost = seen.where("rows > 0").join(kept, "path", "left_anti")
    found = lost.select(*Moved._fields).limit(MOVED_MAX + 1).collect()
    return None if len(found) > MOVED_MAX else [Moved(*row) for row in found]


def settled_from(moved: Iterable[Moved], left: Mapping[int, int]) -> dict[int, int]:
    """By partition the offset from which rows are compared: below it they may have left with their file.

    A file that lies across that offset may be among those that left, or be part of one that did not: so it
    is beyond it.
    """
    found = {partition: start for partition, start in left.items() if start > 0}
    for each in sorted(moved, key=lambda one: one.low):
        if each.partition in found and each.low < found[each.partition]:
            found[each.partition] = max(found[each.partition], each.high + 1)
    return found


def unsettled(
    went: Iterable[Moved], came: Iterable[Moved], since: Mapping[int, int], first: Mapping[int, int]
) -> Iterator[tuple[int, int, str]]:
    """Partition, offset and what is wrong, where the rows that came are not those that went.

    `first`: see `settled_from`; what came holds nothing below it.
    """
    due = _sums(each for each in went if each.low >= first.get(_number(each), 0))
    found = _sums(came)
    for partition in sorted({*due, *found}):
        rows, places, low = due.get(partition, (0, 0, None))
        held, at, begins = found.get(partition, (0, 0, None))
        if (rows, places) == (held, at):
            continue
        offset = min(each for each in (low, begins) if each is not None)
        text = f"below offset {since.get(partition, 0):,} files that are not as they were had {rows:,} rows, "
        text += f"the files that no audit has looked at have {held:,}"
        yield partition, offset, text + (", and others" if rows == held else "")


def _number(moved: Moved) -> int:
    return -1 if moved.partition is None else moved.partition


def _sums(moved: Iterable[Moved]) -> dict[int, tuple[int, int, int]]:
    """By partition rows, places and the lowest offset."""
    found: dict[int, tuple[int, int, int]] = {}
    for each in moved:
        rows, places, low = found.get(_number(each), (0, 0, each.low))
        found[_number(each)] = rows + each.rows, places ^ each.places, min(low, each.low)
    return found


def of_topic(topic: str, offsets: Since) -> dict[int, int]:
    """By partition."""
    return {number: first for (of, number), first in offsets.items() if of == topic}


def at(offsets: Mapping[int, int], partition: Column) -> Column:
    """The offset of a partition, 0 of one that is not named: of thousands by one look."""
    texts = ",".join(str(offsets.get(number, 0)) for number in range(max(offsets, default=0) + 1))
    return F.coalesce(F.get(F.split(F.lit(texts), ",").cast("array<bigint>"), partition), F.lit(0))


def counted(where: Column, name: str) -> list[Column]:
    """Of the rows there: how many, their places, lowest and highest offset, as `<name>_rows` and so on."""
    stamps = ("partition", "offset", "timestamp", "timestamp_type")
    place = F.xxhash64(*(F.col(f"kafka.{each}") for each in stamps))
    offset = F.when(where, F.col("kafka.offset"))
    rows = F.count(F.when(where, F.lit(1)))  # Spark 4.1 fails to plan count_if of two conditions over a scan
    columns = {"rows": rows, "low": F.min(offset), "high": F.max(offset)}
    columns["places"] = F.coalesce(F.bit_xor(F.when(where, place)), F.lit(0))
    return [column.alias(f"{name}_{each}") for each, column in columns.items()]


def came(parts: DataFrame) -> list[Moved]:
    """By partition the rows that earlier audits compared, in files that are looked at."""
    found = parts.where("came_rows > 0").groupBy("partition")
    sums = found.agg(
        F.sum("came_rows"), F.bit_xor("came_places"), F.min("came_low"), F.max("came_high")
    ).collect()
    return [Moved(*row) for row in sums]


def facts(told: DataFrame, parts: DataFrame, seen: DataFrame | None) -> DataFrame:
    """What this audit saw of the table's files, in COLUMNS, if it finds nothing wrong.

    `parts`: by `path` and partition what is in those that are looked at, of which `below_…` was compared.
    """
    whole = F.col("below_rows") == F.col("rows")
    named = {name: F.col(f"below_{name}") for name in ("low", "high", "rows", "places")} | {"whole": whole}
    new = told.where(LOOKED_AT).select("path", "entry").join(parts, "path")
    found = [new.select(*(named[each].alias(each) if each in named else F.col(each) for each in COLUMNS))]
    if seen is not None:
        kept = told.where(~F.col(LOOKED_AT)).select("path")
        found.append(seen.join(kept, "path", "left_semi").select(*COLUMNS))
    return reduce(DataFrame.unionByName, found)
