"""The audit: three witnesses of the same records, compared record by record.

`sent` is what a producer was told, `consumed` what a consumer read (history.py's Parquet files), `table`
what the Iceberg tables hold. They meet in a full outer join on (topic, partition, offset); key, value and
headers are compared by hash, the timestamp to the microsecond and with its type. The table's columns are
compared with its own bytes, decoded anew (columns.py). Beside the join, offsets must be dense from
`log_start` to the end that is given (gaps.py), and every produced record must have been either accepted or
rejected. Of Floe's own only the tables are read, and which schemas it says to have judged by.

A table may hold what its topic holds no more (docs/retention.md): rows below the log start, which leave only
tables that follow the topic's retention, and of a compacted topic the whole history. Such a row is right when
it is below the log start, or when compaction could take its record: a later row has its key, it is a
tombstone, or it has no key. A compacted topic's offsets need not be dense: what is in neither was a marker
or aborted, or went before there was a table; nobody outside can tell it from a record lost on both sides.

Kinds of findings (verdict.py): `missing` (one witness lacks it: acknowledged, but not in the table, or not
read), `extra` (in the table or read, though never acknowledged), `doubled` (one witness holds the offset
twice), `changed` (a hash or the timestamp differs), `column` (a column is not what the row's bytes say),
`place` (a row of the table where the topic has no place: a partition or offset that is null, negative, or
beyond the topic's), `gap` (offsets are not dense), `account` (produced ≠ accepted + rejected, or another
number rejected than expected). What a table says of itself is looked at beside that (shelf.py): `file`,
`ledger`, `snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from iceberg.spark.digests import Judged, by_digests, kept_of, unlike
from iceberg.spark.gaps import WORDS, gaps
from iceberg.spark.given import AuditInput
from iceberg.spark.glance import Glance, added, glance, glance_at, may_glance, summed
from iceberg.spark.history import ACCEPTED, REJECTED, TIMESTAMP_MS_MAX
from iceberg.spark.joining import KEYS, joined_by_place, lean, tasks_of
from iceberg.spark.one_pass import is_worth_it, may_be_one, one_pass
from iceberg.spark.shelf import Passed, shelf, shelved
from iceberg.spark.tables import (
    COMPARED,
    WRONG,
    Pinned,
    history_of,
    judged_history,
    pinned,
    plain_history,
)
from iceberg.spark.verdict import (
    ACCOUNT,
    CHANGED,
    COLUMN,
    DOUBLED,
    EXTRA,
    FILE,
    GAP,
    LEDGER,
    MISSING,
    PLACE,
    SNAPSHOT,
    Finding,
    Since,
    Skipped,
    TopicCount,
    Verdict,
)

COMPARISONS = (MISSING, DOUBLED, CHANGED, EXTRA, PLACE, COLUMN)
OF_TABLES = (FILE, LEDGER, SNAPSHOT)


def audit(spark: SparkSession, given: AuditInput) -> Verdict:
    """Compare and say what differs. Raises ValueError when there is nothing to compare the tables with."""
    if given.sent is None and given.consumed is None:
        raise ValueError("an audit needs what was sent or what was consumed beside the tables: give one")
    pins = [pinned(spark, topic, given.tables[topic]) for topic in sorted(given.schemas)]
    highs = given.high_watermarks() if given.high_watermarks is not None else {}
    judged = by_digests(spark, given, pins[0]) if len(pins) == 1 else Judged(given)
    given = judged.given
    passed = _in_one_pass(spark, given, pins, highs)
    seen = _glanced(spark, given, pins, highs, passed)
    if seen is None:
        compared = _side_by_side(spark, given, pins, highs)
    else:
        none = dict.fromkeys((*COMPARISONS, GAP, ACCOUNT), 0)
        compared = _Compared(none, (), seen.counts(pins[0].topic))
    shelves = [
        finding
        for each in pins
        for finding in shelf(spark, each, highs, given.earlier(each.topic), given.ends, given.tell, passed)
    ]
    counts = {**compared.counts, **{kind: sum(each.kind == kind for each in shelves) for kind in OF_TABLES}}
    findings = list(compared.findings)
    if judged.unlike:
        others = unlike(pins[0].topic, judged, same_now=not any(compared.counts.values()))
        counts[CHANGED] += len(others)
        findings += others[: given.examples]
    for kind in OF_TABLES:
        findings += [each for each in shelves if each.kind == kind][: given.examples]
    if given.tell_digests is not None and len(pins) == 1 and not any(counts.values()):
        given.tell_digests(kept_of(spark, given, pins[0], seen))
    skipped = tuple(
        Skipped(*place, *each) for place, ranges in sorted(given.skipped.items()) for each in ranges
    )
    since = tuple(Since(*place, first) for place, first in sorted(given.since.items()) if first > 0)
    snapshots = {each.topic: each.snapshot for each in pins if each.snapshot is not None}
    digests = () if judged.looked_at is None else (judged.looked_at,)
    return Verdict(counts, findings, compared.topics, skipped, since, snapshots=snapshots, digests=digests)


class _Compared(NamedTuple):
    """What came of comparing records with rows."""

    counts: Mapping[str, int]
    findings: Sequence[Finding]
    topics: Sequence[TopicCount]


def _in_one_pass(
    spark: SparkSession, given: AuditInput, pins: Sequence[Pinned], highs: Mapping[tuple[str, int], int]
) -> Passed | None:
    """The table's rows for all that is asked of them, where one pass does."""
    if len(pins) != 1 or not may_be_one(given, pins[0], highs):
        return None
    (of,) = pins
    on = shelved(spark, of, given.earlier(of.topic))
    return Passed(on, one_pass(spark, of, on, given, highs) if is_worth_it(on, given) else None)


def _glanced(
    spark: SparkSession,
    given: AuditInput,
    pins: Sequence[Pinned],
    highs: Mapping[tuple[str, int], int],
    passed: Passed | None,
) -> Glance | None:
    """What is the same, where a look at sums shows that all is."""
    if len(pins) != 1 or not may_glance(given, highs):
        return None
    (of,) = pins
    if passed is not None and passed.parts is not None:
        read = summed(lean({"consumed": _consumed(spark, given)})["consumed"], given, highs)
        return glance_at(spark, read, added(passed.parts), given)
    rows = history_of(spark, of, given.schemas[of.topic], given.rows(of.topic), given.digest)
    sides = lean({"consumed": _consumed(spark, given), "table": rows})
    return glance(spark, sides["consumed"], sides["table"], given, highs)


def _side_by_side(
    spark: SparkSession,
    given: AuditInput,
    pins: Sequence[Pinned],
    highs: Mapping[tuple[str, int], int],
) -> _Compared:
    """What came of it, record by record."""
    witnesses = _witnesses(spark, given, pins)
    names = list(witnesses)
    outcomes = _outcomes(spark.read.parquet(str(given.sent))) if given.sent is not None else {}
    parts = tasks_of(spark, given.records)
    joined = _bounded(joined_by_place(lean(witnesses), parts), names, given, highs)
    partitions = _per_partition(joined, names)
    counts = {kind: sum(row[kind] for row in partitions) for kind in _found(names)}
    findings = []
    if any(counts.values()):
        told = _bounded(joined_by_place(witnesses, parts), names, given, highs)
        findings = _examples(told, names, given.examples)
    holed = gaps(joined, partitions, given)
    topics = _topic_counts(partitions, given, outcomes)
    accounts = _accounts(topics, given)
    counts |= {GAP: len(holed), ACCOUNT: len(accounts)}
    findings += [*holed[: given.examples], *accounts[: given.examples]]
    return _Compared(counts, findings, topics)


def _witnesses(spark: SparkSession, given: AuditInput, pins: Sequence[Pinned]) -> dict[str, DataFrame]:
    """What each side holds, by its name."""
    witnesses = {}
    if given.sent is not None:
        witnesses["sent"] = _accepted(spark.read.parquet(str(given.sent)))
    if given.consumed is not None:
        witnesses["consumed"] = _consumed(spark, given)
    return {**witnesses, "table": _tables(spark, given, pins)}


def _consumed(spark: SparkSession, given: AuditInput) -> DataFrame:
    assert given.consumed is not None
    if isinstance(given.consumed, Path):
        return _accepted(spark.read.parquet(str(given.consumed)))
    due = {number: given.due((topic, number)) for topic, number in given.ends}
    return given.consumed(spark, given.digest, due)


def _accepted(history: DataFrame) -> DataFrame:
    """With the timestamp in the table's unit, and inside what that can hold."""
    stamp = F.greatest(F.least("timestamp_ms", F.lit(TIMESTAMP_MS_MAX)), F.lit(-TIMESTAMP_MS_MAX))
    kind = F.col("timestamp_type") if "timestamp_type" in history.columns else F.lit(None).cast("int")
    told = history.withColumn("timestamp_us", stamp * 1_000).withColumn("timestamp_type", kind)
    return told.where(F.col("outcome") == ACCEPTED).select(*KEYS, *COMPARED)


def _outcomes(history: DataFrame) -> dict[str, dict[str, int]]:
    """Topic → outcome → rows of the sent history."""
    found: dict[str, dict[str, int]] = {}
    for row in history.groupBy("topic", "outcome").count().collect():
        found.setdefault(row["topic"], {})[row["outcome"]] = row["count"]
    return found


def _tables(spark: SparkSession, given: AuditInput, pins: Sequence[Pinned]) -> DataFrame:
    judged = [
        judged_history(spark, each, given.schemas[each.topic], given.rows(each.topic), given.digest)
        for each in pins
    ]
    others = sorted(topic for topic in given.tables if topic not in given.schemas)
    plain = [
        plain_history(spark, topic, given.tables[topic], given.rows(topic), given.digest) for topic in others
    ]
    return reduce(DataFrame.unionByName, [*judged, *plain])


def _bounded(
    joined: DataFrame, names: Sequence[str], given: AuditInput, highs: Mapping[tuple[str, int], int]
) -> DataFrame:
    """The rows below the ends, each with `start`, the log start of its partition.

    `gone`: it is right that nobody reads it any more; `dropped`: nor need it be in the table; `hurt`: damaged
    records there are passed over, which is reason for both, and no gap. `misplaced`: why the table's row is
    where the topic has no place. `later`: there is one beyond the end, which is not judged. What compaction
    could take is seen before the ends cut: what supersedes a record may have come meanwhile.
    """
    places = sorted({*given.log_start, *given.ends, *highs})
    bounds = joined.sparkSession.createDataFrame(
        [
            (*place, given.log_start.get(place, 0), given.ends.get(place), highs.get(place))
            for place in places
        ],
        "topic string, partition int, start long, end long, high long",
    )
    rows = _hurt(joined.join(F.broadcast(bounds), ["topic", "partition"], "left"), given)
    below = F.coalesce(F.col("offset") < F.col("start"), F.lit(False))
    follow = F.col("topic").isin(given.topics_that(lambda how: how.table_follows))
    ended = sorted({topic for topic, _ in (*given.ends, *highs)})
    beyond = (F.col("end").isNull() & F.col("high").isNotNull()) | (F.col("offset") >= F.col("end"))
    rows = (
        rows.withColumn("start", F.coalesce("start", F.lit(0)))
        .withColumn("gone", below | _superseded(names, given) | F.col("hurt"))
        .withColumn("dropped", (below & follow) | F.col("hurt"))
        .withColumn("misplaced", F.when(F.col("table").isNotNull(), _misplaced(ended)))
    )
    later = F.col("misplaced").isNull() & F.col("table").isNotNull() & F.coalesce(beyond, F.lit(False))
    rows = rows.withColumn("later", later & F.lit(bool(given.ends)))
    rows = rows.withColumn("table", F.when(~F.col("later"), F.col("table")))
    return rows.where(reduce(Column.__or__, [F.col(name).isNotNull() for name in names], F.col("later")))


def _misplaced(ended: Sequence[str]) -> Column:
    """Why a row is where its topic has no place, else null. `ended`: topics whose partitions are known."""
    unknown = F.col("topic").isin(list(ended)) & F.col("end").isNull() & F.col("high").isNull()
    end = F.col("high").cast("string")
    return (
        F.when(F.col("partition").isNull(), F.lit("the row's partition is null"))
        .when(F.col("offset").isNull(), F.lit("the row's offset is null"))
        .when(F.col("offset") < 0, F.lit("the row's offset is negative"))
        .when(unknown, F.lit("the topic has no such partition"))
        .when(F.col("offset") >= F.col("high"), F.concat(F.lit("the partition ends at "), end))
    )


def _hurt(rows: DataFrame, given: AuditInput) -> DataFrame:
    """With a column `hurt`: whether damaged records are passed over at this offset."""
    ranges = [(*place, *each) for place, skipped in sorted(given.skipped.items()) for each in skipped]
    if not ranges:
        return rows.withColumn("hurt", F.lit(False))
    fields = "hurt_topic string, hurt_partition int, first long, last long"
    skipped = F.broadcast(rows.sparkSession.createDataFrame(ranges, fields))
    here = (F.col("topic") == F.col("hurt_topic")) & (F.col("partition") == F.col("hurt_partition"))
    within = (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("last"))
    found = rows.join(skipped, here & within, "left").withColumn("hurt", F.col("first").isNotNull())
    return found.drop("hurt_topic", "hurt_partition", "first", "last")


def _superseded(names: Sequence[str], given: AuditInput) -> Column:
    """Whether compaction of its topic could take the record."""
    compacted = given.topics_that(lambda how: how.compacted)
    if not compacted:
        return F.lit(False)
    key = F.coalesce(*(F.col(f"{name}.key_hash") for name in names))
    value = F.coalesce(*(F.col(f"{name}.value_hash") for name in names))
    newest = F.max("offset").over(Window.partitionBy("topic", "partition", key))
    return F.col("topic").isin(compacted) & (key.isNull() | value.isNull() | (F.col("offset") < newest))


def _problems(names: Sequence[str]) -> dict[str, list[tuple[Column, Column]]]:
    """Kind → (condition, detail) pairs over a row of `joined_by_place`."""
    reference = names[0]
    present = F.col(reference).isNotNull()
    problems: dict[str, list[tuple[Column, Column]]] = {kind: [] for kind in COMPARISONS}
    for name in names:
        twice = F.col(f"{name}.n") > 1
        where = f"{WORDS[name]} holds it "
        problems[DOUBLED].append((twice, F.concat(F.lit(where), F.col(f"{name}.n"), F.lit(" times"))))
    for name in names[1:]:
        there = F.col(name).isNotNull()
        told = f"{WORDS[reference]}, but the {WORDS[name]} lacks it"
        if reference == "consumed":
            told = "read by the consumer, but the table lacks it"
        excused = F.col("dropped") if name == "table" else F.col("gone")
        problems[MISSING].append((present & ~there & ~excused, F.lit(told)))
        surplus = ~present & there & (F.col("misplaced").isNull() if name == "table" else F.lit(True))
        if reference == "consumed":
            surplus &= ~F.col("gone")
        problems[EXTRA].append((surplus, F.lit(_extra_text(reference, name))))
        for column in COMPARED:
            ours, theirs = F.col(f"{reference}.{column}"), F.col(f"{name}.{column}")
            if column == "timestamp_type":  # who sent it does not know it, nor need a history
                if name != "table":
                    continue
                ours = F.coalesce(*(F.col(f"{other}.{column}") for other in names if other != name))
                theirs = F.when(ours.isNotNull(), theirs)
            what = column.removesuffix("_hash").removesuffix("_us")
            differs = present & there & ~ours.eqNullSafe(theirs)
            problems[CHANGED].append((differs, F.lit(f"{what} of the {WORDS[name]} differs")))
    problems[PLACE].append((F.col("misplaced").isNotNull(), F.col("misplaced")))
    problems[COLUMN].append((F.col(f"table.{WRONG}").isNotNull(), F.lit("")))
    return problems


def _extra_text(reference: str, name: str) -> str:
    if reference == "sent":
        return f"in the {WORDS[name]}, but never acknowledged to a producer"
    return f"in the {WORDS[name]}, but never read by the consumer"


def _found(names: Sequence[str]) -> dict[str, Column]:
    """Kind → whether a row of `joined_by_place` has a problem of that kind."""
    return {
        kind: reduce(Column.__or__, [F.coalesce(condition, F.lit(False)) for condition, _ in pairs])
        for kind, pairs in _problems(names).items()
    }


def _examples(joined: DataFrame, names: Sequence[str], most: int) -> list[Finding]:
    """The first findings of each kind, in offset order: one more pass over the data, when all is not well.

    Of wrong columns those of the first row of each come first: one in every row hides no other.
    """
    found = _found(names)
    told = [
        F.when(found[kind], _told(kind, F.concat_ws("; ", *(F.when(one, text) for one, text in pairs))))
        for kind, pairs in _problems(names).items()
        if kind != COLUMN
    ]
    columns = F.transform(f"table.{WRONG}", lambda one: _told(COLUMN, one["detail"], one["column"]))
    whole = F.concat(F.array_compact(F.array(*told)), F.coalesce(columns, F.array()))
    wrong = joined.where(reduce(Column.__or__, found.values()))
    each = wrong.select(*KEYS, F.explode(whole).alias("one")).select(*KEYS, "one.*")
    of_column = F.when(F.col("kind") == COLUMN, F.col("topic")).alias("of")
    turns = Window.partitionBy("kind", of_column, "column").orderBy(*KEYS)
    each = each.withColumn("turn", F.row_number().over(turns)).where(F.col("turn") <= most)
    turn = F.when(F.col("kind") == COLUMN, F.col("turn"))
    order = Window.partitionBy("kind").orderBy(turn, *KEYS, "column")
    rows = each.withColumn("place", F.row_number().over(order)).where(F.col("place") <= most).collect()
    rows.sort(key=lambda row: (COMPARISONS.index(row["kind"]), row["place"]))
    return [_finding(row["kind"], row) for row in rows]


def _told(kind: str, detail: Column, column: Column | None = None) -> Column:
    path = F.lit("") if column is None else column
    return F.struct(F.lit(kind).alias("kind"), detail.alias("detail"), path.alias("column"))


def _finding(kind: str, row: Any) -> Finding:
    partition, offset = (-1 if row[name] is None else row[name] for name in ("partition", "offset"))
    return Finding(kind, row["topic"], partition, offset, row["detail"], row["column"])


def _per_partition(joined: DataFrame, names: Sequence[str]) -> list[Any]:
    """Per topic and partition: rows with each kind of problem (a row once per kind), and per witness its
    rows, and from the log start on, of what is not passed over, its different offsets, lowest and highest
    offset. The only pass over the data when all is well.
    """
    columns = [F.count_if(condition).alias(kind) for kind, condition in _found(names).items()]
    unread = F.col("consumed").isNull() if "consumed" in names else F.lit(True)
    placed = F.col("misplaced").isNull()
    columns.append(F.count_if(F.col("table").isNotNull() & F.col("gone") & unread & placed).alias("history"))
    columns.append(F.count_if("later").alias("later"))
    for name in names:
        counted = F.col(name).isNotNull() & (F.col("offset") >= F.col("start")) & ~F.col("hurt") & placed
        offset = F.when(counted, F.col("offset"))
        columns += [
            F.sum(F.col(f"{name}.n")).alias(f"{name}_rows"),
            F.count(offset).alias(f"{name}_offsets"),
            F.min(offset).alias(f"{name}_low"),
            F.max(offset).alias(f"{name}_high"),
        ]
    rows = joined.groupBy("topic", "partition").agg(*columns).orderBy("topic", "partition")
    return list(rows.collect())


def _topic_counts(
    partitions: Sequence[Any], given: AuditInput, outcomes: Mapping[str, Mapping[str, int]]
) -> list[TopicCount]:
    def rows(topic: str, name: str) -> int:
        return sum(row[f"{name}_rows"] or 0 for row in partitions if row["topic"] == topic)

    counts = []
    for topic in sorted({*given.tables, *outcomes, *(row["topic"] for row in partitions)}):
        outcome = outcomes.get(topic, {})
        sent = given.sent is not None
        counts.append(
            TopicCount(
                topic=topic,
                produced=given.accounts[topic].produced if topic in given.accounts else None,
                accepted=outcome.get(ACCEPTED, 0) if sent else None,
                rejected=outcome.get(REJECTED, 0) if sent else None,
                consumed=rows(topic, "consumed") if given.consumed is not None else None,
                table=rows(topic, "table"),
                history=sum(row["history"] for row in partitions if row["topic"] == topic),
                later=sum(row["later"] for row in partitions if row["topic"] == topic),
            )
        )
    return counts


def _accounts(topics: Sequence[TopicCount], given: AuditInput) -> list[Finding]:
    found = []
    for count in topics:
        account = given.accounts.get(count.topic)
        if account is None or count.accepted is None or count.rejected is None:
            continue
        if account.produced != count.accepted + count.rejected:
            told = f"accepted {count.accepted:,} + rejected {count.rejected:,}"
            detail = f"produced {account.produced:,} is not {told}"
            found.append(Finding(ACCOUNT, count.topic, -1, -1, detail))
        if account.rejected != count.rejected:
            detail = f"{count.rejected:,} records were rejected, {account.rejected:,} should have been"
            found.append(Finding(ACCOUNT, count.topic, -1, -1, detail))
    return found
