"""What a table says of itself against what it holds: manifests, ledger and kept snapshots.

* `file`: a manifest's count and bounds of partition, offset and timestamp are those of the rows in the file,
  and no value of another column is outside of what the manifest says of it (bounds.py). Files that an
  equal audit saw are as it saw them, and those that came since hold what those had that went (seen.py).
* `ledger`: the current snapshot's ledger (`floe.next-offsets`) lies behind all rows of its partition, not
  beyond the topic, where its own ranges end, and is of the topic's id.
* `snapshot`: of each kept snapshot: what it says to have added is what its manifests add, inside the ranges
  that it says (`floe.ranges`), which no other snapshot has; its totals are its parent's and what it changed,
  and its manifest list names as many files. Lists and manifests of snapshots that an equal audit saw are not
  read again (unseen.py).
* `file`, too: rows of a table of format version 3 have ids, each its own (row_ids.py).

Spark reads all of it from Iceberg's metadata tables; nothing of Floe's own reading of them is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark import bounds, row_ids, seen
from iceberg.spark.seen import LOOKED_AT, Earlier
from iceberg.spark.steady import apart, local_rows
from iceberg.spark.tables import Pinned, Since
from iceberg.spark.unseen import ALL_ENTRIES, ALL_MANIFESTS, of_snapshots
from iceberg.spark.verdict import FILE, LEDGER, SNAPSHOT, Finding

TOPIC_ID, NEXT, RANGES = "floe.topic-id", "floe.next-offsets", "floe.ranges"
REPLACED = "floe.replaces"
"""Of the first snapshot's summary: it has the files that commits added, which compaction replaced since."""
PLACES_MAX = 100_000
"""Files that no audit has looked at: where there are more, all rows are read."""
RANGES_MAX = 32
"""Ranges of offsets of a partition by which files are left out."""
FOUND_MAX = 1_000
"""Findings of one check of one table that are counted."""

Problem = tuple[int, int, str]
"""Partition and offset, -1 where the whole table is meant, and what is wrong."""

Tell = Callable[[str, DataFrame], object]
"""Is told a topic, and what was seen of its table's files (seen.py)."""
NOTHING = Earlier()

_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")

_BOUNDED = {"partition": "kafka.partition", "offset": "kafka.offset", "timestamp": "kafka.timestamp"}


def shelf(
    spark: SparkSession,
    of: Pinned,
    highs: Mapping[tuple[str, int], int],
    earlier: Earlier = NOTHING,
    ends: Since = MappingProxyType({}),
    tell: Tell | None = None,
    passed: Passed | None = None,
) -> list[Finding]:
    """All that is wrong. `highs`: where the topic's partitions end, asked after the snapshot was chosen.

    `earlier`: rows of files that an equal audit saw are not read again; with none seen, all are. `tell` is
    called with what was seen of the topic's files, of which rows below `ends` were compared: to be kept if
    the audit finds nothing wrong anywhere. `passed`: what was looked at already.
    """
    if of.snapshot is None:
        return []
    looked = _looked(spark, of, earlier, ends, passed)
    per_partition = (
        looked.files.groupBy("partition")
        .agg(
            (F.max("offset_high") + 1).alias("behind"),
            F.count("path").alias("files"),
            F.sum("told_rows").alias("rows"),
            F.count_if(F.col("detail") != "").alias("wrong"),
        )
        .collect()
    )
    found = _wrong_files(of, looked.files) if any(row["wrong"] for row in per_partition) else []
    found += [Finding(FILE, of.topic, *each) for each in looked.unsettled[:FOUND_MAX]]
    if TOPIC_ID in of.properties:
        held = {row["partition"]: row["behind"] for row in per_partition}
        found += [Finding(LEDGER, of.topic, *each) for each in ledger_problems(of, held, highs)]
    for name, column in (("total-data-files", "files"), ("total-records", "rows")):
        told, actual = of.summary.get(name), sum(row[column] for row in per_partition)
        if told is not None and told != str(actual):
            detail = f"snapshot {of.snapshot} says {name} {told}, it has {actual}"
            found.append(Finding(SNAPSHOT, of.topic, -1, -1, detail))
    found += row_ids.findings(spark, of, looked.read)
    if tell is not None:
        tell(of.topic, looked.facts)
    return (
        found
        + [Finding(SNAPSHOT, of.topic, *each) for each in _snapshots(spark, of, earlier.snapshot)][:FOUND_MAX]
    )


class Looked(NamedTuple):
    """A table's files: a row for each with what is wrong in it (`files`), what was seen of them (seen.py),
    where the rows of those lie that were read, and what came that did not go, or the other way round.
    """

    files: DataFrame
    facts: DataFrame
    read: Column
    unsettled: list[Problem]


class Shelved(NamedTuple):
    """A table's files, before their rows are read: what is `told` of them, which columns and partition fields
    manifests tell of, what was in files that `went`, where the rows are that have to be `read`, and by
    partition up to where (`since`) and from where on (`first`) earlier audits' rows have to be there.
    """

    told: DataFrame
    columns: Sequence[bounds.Leaf]
    parts: Sequence[bounds.PartitionField]
    seen: DataFrame | None
    went: Sequence[seen.Moved]
    read: Column
    since: Mapping[int, int]
    first: Mapping[int, int]


class Passed(NamedTuple):
    """What was `shelved`, and what one pass over the rows found by file and partition (one_pass.py), where
    there was one.
    """

    shelved: Shelved
    parts: DataFrame | None


def shelved(spark: SparkSession, of: Pinned, earlier: Earlier = NOTHING) -> Shelved:
    """What manifests say of the files of a table that has a snapshot."""
    columns, parts = bounds.leaves(spark, of), bounds.partition_fields(of)
    listed = spark.sql(f"SELECT * FROM {of.table}.files VERSION AS OF {of.snapshot}")
    all_told = listed.select(*_told(listed), *bounds.told(columns, parts))
    told = seen.with_looked_at(all_told, earlier.seen).cache()
    went = [] if earlier.seen is None else seen.gone(told, earlier.seen)
    if went is None:
        return shelved(spark, of, earlier._replace(seen=None))
    since = seen.of_topic(of.topic, earlier.since)
    first = seen.settled_from(went, seen.of_topic(of.topic, earlier.left))
    read = F.lit(True) if earlier.seen is None else rows_of(told)
    return Shelved(told, columns, parts, earlier.seen, went, read, since, first)


def _looked(spark: SparkSession, of: Pinned, earlier: Earlier, ends: Since, passed: Passed | None) -> Looked:
    on = shelved(spark, of, earlier) if passed is None else passed.shelved
    once = None if passed is None else passed.parts
    rows = _held(spark, of, on, seen.of_topic(of.topic, ends)).cache() if once is None else once
    unsettled: list[Problem] = []
    if on.seen is not None:
        came = seen.came(rows.join(on.told.where(LOOKED_AT), "path", "left_semi"))
        unsettled = list(seen.unsettled(on.went, came, on.since, on.first))
    files = _judged(on.told, rows)
    if on.columns or on.parts:
        if once is None:
            judged = bounds.judged(spark, of, on.told.where(LOOKED_AT), on.columns, on.parts, on.read)
        else:
            judged = bounds.added(rows, "path", on.columns, on.parts)
        files = files.join(judged, F.col("path") == F.col("columns_file"), "left")
    else:
        files = files.withColumn(bounds.DETAIL, F.lit(""))
    detail = F.when(F.col(LOOKED_AT), _detail()).otherwise("")
    files = files.withColumn("detail", detail)
    return Looked(files, seen.facts(on.told, rows, on.seen), on.read, unsettled)


def _told(listed: DataFrame) -> list[Column]:
    """What a file's manifest says of it (`told_…`), and the digest of all that it says."""
    kept = [F.col("file_path").alias("path"), F.col("record_count").alias("told_rows"), seen.entry(listed)]
    for name, column in _BOUNDED.items():
        metrics = F.col("readable_metrics")[column]
        kept += [
            metrics["lower_bound"].alias(f"told_{name}_low"),
            metrics["upper_bound"].alias(f"told_{name}_high"),
        ]
    return kept


def _held(spark: SparkSession, of: Pinned, on: Shelved, ends: Mapping[int, int]) -> DataFrame:
    """By file and partition what is in the rows that are read."""
    rows = spark.sql(f"SELECT _file AS path, kafka FROM {of.rows}").where(on.read & apart(F.col("path")))
    return rows.groupBy("path", F.col("kafka.partition").alias("partition")).agg(*held(on, ends))


def held(on: Shelved, ends: Mapping[int, int]) -> list[Column]:
    """What is in rows, of those that earlier audits compared (`came_…`), and of those that are compared by
    now (`below_…`). `ends`: by partition.
    """
    partition, offset = F.col("kafka.partition"), F.col("kafka.offset")
    stretches = [
        how(f"kafka.{name}").alias(f"{name}_{end}")
        for name in ("offset", "timestamp")
        for end, how in (("low", F.min), ("high", F.max))
    ]
    came = (offset >= seen.at(on.first, partition)) & (offset < seen.at(on.since, partition))
    below = offset < seen.at(ends, partition)
    rows = F.count(F.lit(1)).alias("rows")
    return [rows, *stretches, *seen.counted(came, "came"), *seen.counted(below, "below")]


def _judged(told: DataFrame, held: DataFrame) -> DataFrame:
    """A row for each file, what is in it beside what its manifest says; that, where it is not looked at."""
    ends = [
        how(f"{name}_{end}" if name != "partition" else name).alias(f"{name}_{end}")
        for name in _BOUNDED
        for end, how in (("low", F.min), ("high", F.max))
    ]
    whole = held.withColumnRenamed("path", "file").groupBy("file").agg(F.sum("rows").alias("rows"), *ends)
    found = told.join(whole, F.col("path") == F.col("file"), "left")
    for end in ("partition_low", "offset_low", "offset_high"):
        found = found.withColumn(end, F.when(F.col(LOOKED_AT), F.col(end)).otherwise(F.col(f"told_{end}")))
    return found.withColumn("partition", F.col("partition_low"))


def rows_of(told: DataFrame) -> Column:
    """Where the rows of the files are that are looked at, by their manifests, so that others are left out.

    What a file has elsewhere is not counted, and so the file has less than its manifest says.
    """
    names = [f"told_{name}_{end}" for name in ("partition", "offset") for end in ("low", "high")]
    rows = told.where(LOOKED_AT).select(*names).limit(PLACES_MAX + 1).collect()
    if len(rows) > PLACES_MAX or any(value is None for row in rows for value in row):
        return F.lit(True)
    found = F.lit(False)
    for (low, high), ranges in _joined(tuple(row) for row in rows).items():
        offset = reduce(Column.__or__, [F.col("kafka.offset").between(*each) for each in ranges])
        found |= F.col("kafka.partition").between(low, high) & offset
    return found


def _joined(places: Iterable[tuple[int, ...]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """By lowest and highest partition the ranges of offsets, in order, RANGES_MAX at most: gaps are read."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for *partitions, low, high in sorted(places):
        ranges = found.setdefault((partitions[0], partitions[1]), [])
        if ranges and (low <= ranges[-1][1] + 1 or len(ranges) == RANGES_MAX):
            ranges[-1] = ranges[-1][0], max(ranges[-1][1], high)
        else:
            ranges.append((low, high))
    return found


def _detail() -> Column:
    """Where a file is not what its manifest says; empty where it is."""
    rows = F.coalesce("rows", F.lit(0))
    details = [
        F.when(
            F.col("told_rows") != rows,
            F.concat(F.lit("the manifest says "), "told_rows", F.lit(" rows, it has "), rows),
        )
    ]
    for name, column in _BOUNDED.items():
        for end, word in (("low", "lowest"), ("high", "highest")):
            told, actual = F.col(f"told_{name}_{end}"), F.col(f"{name}_{end}")
            says = F.concat(F.lit(f"the manifest says that its {word} {column} is "), told.cast("string"))
            text = F.concat(says, F.lit(", it is "), F.coalesce(actual.cast("string"), F.lit("null")))
            details.append(F.when(told.isNotNull() & ~told.eqNullSafe(actual), text))
    details.append(F.when(F.col(bounds.DETAIL) != "", F.col(bounds.DETAIL)))
    return F.concat_ws("; ", *details)


def _wrong_files(of: Pinned, files: DataFrame) -> list[Finding]:
    wrong = files.where(F.col("detail") != "").orderBy("path").limit(FOUND_MAX)
    return [
        Finding(FILE, of.topic, *_place(row), f"file {row['path'].split('/')[-1]}: {row['detail']}")
        for row in wrong.select("path", "partition", "offset_low", "detail").collect()
    ]


def _place(row: Any) -> tuple[int, int]:
    low = row["offset_low"]
    return (-1, -1) if row["partition"] is None or low is None else (row["partition"], low)


def ledger_problems(
    of: Pinned, held: Mapping[int | None, int | None], highs: Mapping[tuple[str, int], int]
) -> Iterator[Problem]:
    """What is wrong with the current ledger: partition, offset, and what.

    `held`: by partition the offset behind the table's last row. `highs`: none where nobody knows them.
    """
    if NEXT not in of.summary:
        yield -1, -1, f"the current snapshot {of.snapshot} has no ledger"
        return
    own, topic_id = of.summary.get(TOPIC_ID), of.properties[TOPIC_ID]
    if own != topic_id:
        yield -1, -1, f"the ledger is of topic {own}, the table of {topic_id}"
    try:
        ledger = dict(enumerate(int(each) for each in of.summary[NEXT].split(",") if each))
        added = [
            (int(partition), int(end))
            for partition, _, end in (
                each.replace(":", "-").split("-") for each in of.summary.get(RANGES, "").split(",") if each
            )
        ]
    except ValueError:
        yield -1, -1, f"the ledger is no list of numbers: {of.summary[NEXT]!r}, {of.summary.get(RANGES)!r}"
        return
    for partition, behind in held.items():
        known = 0 if partition is None else ledger.get(partition, 0)
        if partition is not None and behind is not None and behind > known:
            yield partition, known, f"the ledger says {known:,}, there are rows up to {behind - 1:,}"
    for partition, known in ledger.items() if highs else ():
        high = highs.get((of.topic, partition), 0)
        if known > high:
            yield partition, known, f"the ledger says {known:,}, the partition ends at {high:,}"
    for partition, due in added:
        known = ledger.get(partition, 0)
        if known != due:
            yield partition, known, f"the ledger says {known:,}, what the snapshot added ends at {due:,}"


class Kept(NamedTuple):
    """A kept snapshot, and what its manifests and its list say (`files` and `rows` added, files `listed`).

    `outside`: of the files that it added the first one outside its ranges.
    """

    number: int
    parent: int | None
    summary: Mapping[str, str]
    files: int = 0
    rows: int = 0
    listed: int = 0
    outside: tuple[int, int, str] | None = None


def _snapshots(spark: SparkSession, of: Pinned, seen_at: int | None = None) -> list[Problem]:
    """What is wrong with the kept snapshots.

    `seen_at`: the table's snapshot of an audit that found nothing wrong: of it and those before, but for the
    first one that is kept, into which others may have been folded, only the summaries are looked at.
    """
    told = spark.sql(f"SELECT * FROM {of.table}.snapshots").collect()
    kept = sorted(told, key=lambda row: row["committed_at"])  # of one time: as they were committed
    known = _known(kept, seen_at)
    if known:
        tables = of_snapshots(spark, of.table, {row["snapshot_id"] for row in kept} - known)
    else:
        tables = {
            name: spark.sql(f"SELECT * FROM {of.table}.{name.lower()}")
            for name in (ALL_ENTRIES, ALL_MANIFESTS)
        }
    named = F.sum(F.col("added_data_files_count") + F.col("existing_data_files_count"))
    lists = tables[ALL_MANIFESTS].where("content = 0").groupBy("reference_snapshot_id").agg(named)
    listed = dict(lists.collect())
    added = {row["snapshot_id"]: row for row in _added(spark, tables[ALL_ENTRIES], kept).collect()}
    found = []
    for row in kept:
        number, summary = row["snapshot_id"], row["summary"]
        each = Kept(number, row["parent_id"], summary)
        if number in known:
            found.append(_as_told(each))
            continue
        adds = added.get(number)
        files, rows = (0, 0) if adds is None else (adds["files"], adds["rows"])
        outside = adds["outside"] if adds is not None and summary.get(RANGES) else None
        place = None if outside is None else (outside["partition"], outside["low"], outside["path"])
        found.append(
            each._replace(files=files, rows=rows, listed=int(listed.get(number) or 0), outside=place)
        )
    return [*snapshot_problems(found), *range_problems(found)]


def _known(kept: Sequence[Any], seen_at: int | None) -> set[int]:
    """This snapshot and those that it came of, but for the first."""
    parents: dict[int, int | None] = {row["snapshot_id"]: row["parent_id"] for row in kept}
    line, at = list[int](), seen_at
    while at is not None and at in parents and len(line) < len(kept):
        line.append(at)
        at = parents[at]
    return set(line[:-1])


def _as_told(each: Kept) -> Kept:
    """A snapshot whose manifests and list were looked at before: as its summary says."""
    files, rows = (_number(each.summary, f"added-{what}") or 0 for what in ("data-files", "records"))
    listed = _number(each.summary, "total-data-files", "added-data-files") or 0
    return each._replace(files=files, rows=rows, listed=listed)


def _added(spark: SparkSession, entries: DataFrame, kept: Sequence[Any]) -> DataFrame:
    """By snapshot what its manifests add: files, rows, and the first file outside of what it says."""
    ranges = [(row["snapshot_id"], *each) for row in kept for each in _ranges(row["summary"])]
    told = F.broadcast(local_rows(spark, ranges, "told_id long, told_partition int, start long, end long"))
    metrics = F.col("readable_metrics")
    added = (
        entries.where("status = 1")
        .select(
            "snapshot_id",
            F.col("data_file.file_path").alias("path"),
            F.col("data_file.record_count").alias("rows"),
            metrics["kafka.partition"]["lower_bound"].alias("partition"),
            metrics["kafka.offset"]["lower_bound"].alias("low"),
            metrics["kafka.offset"]["upper_bound"].alias("high"),
        )
        .dropDuplicates(["snapshot_id", "path"])
    )
    inside = (
        (F.col("snapshot_id") == F.col("told_id"))
        & (F.col("partition") == F.col("told_partition"))
        & (F.col("low") >= F.col("start"))
        & (F.col("high") < F.col("end"))
    )
    outside = F.when(F.col("start").isNull() & F.col("low").isNotNull(), F.struct("partition", "low", "path"))
    return (
        added.join(told, inside, "left")
        .groupBy("snapshot_id")
        .agg(F.count("path").alias("files"), F.sum("rows").alias("rows"), F.min(outside).alias("outside"))
    )


def _ranges(summary: Mapping[str, str]) -> list[tuple[int, int, int]]:
    """Partition, start and end of what a snapshot says to have added; none of what is no range."""
    found = (_RANGE.fullmatch(each) for each in summary.get(RANGES, "").split(","))
    return [(int(each[1]), int(each[2]), int(each[3])) for each in found if each is not None]


def snapshot_problems(kept: Sequence[Kept]) -> Iterator[Problem]:
    """Snapshots whose counts are not those of their parent, their manifests and their list.

    The first one may say what it added and nothing else: older ones were folded into it.
    """
    by_number = {each.number: each for each in kept}
    for each in kept:
        parent = by_number.get(each.parent) if each.parent is not None else None
        details = []
        for what, actual in (("data-files", each.files), ("records", each.rows)):
            told = _number(each.summary, f"added-{what}")
            if told is not None and told != actual:
                details.append(f"it says added-{what} {told}, its manifests add {actual}")
            before = 0 if parent is None else _number(parent.summary, f"total-{what}", f"added-{what}")
            total = _number(each.summary, f"total-{what}")
            known = before is not None and (parent is not None or each.parent is None)
            if parent is not None and what == "data-files" and REPLACED in parent.summary:
                known = False  # other files, the same rows
            due = (before or 0) + (told or 0) - (_number(each.summary, f"deleted-{what}") or 0)
            if known and total is not None and total != due:
                details.append(f"it says total-{what} {total}, with its parent's it is {due}")
        files = _number(each.summary, "total-data-files", "added-data-files")
        if files is not None and files != each.listed:
            details.append(f"it says {files} data files, its manifest list names {each.listed}")
        if details:
            yield -1, -1, f"snapshot {each.number}: {'; '.join(details)}"


def _number(summary: Mapping[str, str], *names: str) -> int | None:
    """The first of these that the summary has; None: none, -1: it is no number."""
    found = next((summary[name] for name in names if name in summary), None)
    return None if found is None else int(found) if found.isdecimal() else -1


def range_problems(kept: Sequence[Kept]) -> Iterator[Problem]:
    """Files outside of what their snapshot says to have added, and offsets that two say to have added.

    `kept` in the order in which they were committed.
    """
    ends: dict[int, int] = {}
    for each in kept:
        if each.outside is not None:
            partition, low, path = each.outside
            name = path.split("/")[-1]
            text = f"its file {name} with offsets from {low} is outside the ranges that it says to have added"
            yield partition, low, f"snapshot {each.number}: {text}"
        for partition, start, end in _ranges(each.summary):
            before = ends.get(partition, start)
            if start < before:
                text = f"it says to have added offsets from {start}, an earlier one up to {before}"
                yield partition, start, f"snapshot {each.number}: {text}"
            ends[partition] = max(end, before)
