"""What audits have found before, in a table of the users' own: where the next one may begin.

`lake.audits.offsets` has a row per audit and partition, with the snapshot of the table that was looked at,
and of what was found equal the digest (digested.py); more rows where an audit read several stretches.
It is a table like any other, in Floe's catalog and not of a topic; who deletes it makes the next audit a
whole one. The summary of each audit's snapshot has its outcome, of which agents make metrics.

What was found unequal is looked at by each audit from then on, until one finds it equal that began no later:
an increment behind it says nothing of it.

`lake.audits.files_seen` has what the last equal audit of each topic saw of the table's files (seen.py). It is
written first: what is in it counts only where it goes with that audit's offsets and snapshot, and is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from iceberg.audited import FINDINGS, FROM, OFFSETS, TABLE, TOPIC_ID
from iceberg.spark import seen
from iceberg.spark.digested import Digested, added_up, reaching
from iceberg.spark.hashes import FORM
from iceberg.spark.procedures import Table
from iceberg.spark.session import CATALOG
from iceberg.spark.steady import local_rows, steady

NAMESPACE = f"{CATALOG}.{TABLE[0]}"
NAME, FILES = TABLE[1], "files_seen"
SNAPSHOT = "snapshot_id"
KEPT_DAYS, FILES_MAX, SNAPSHOTS_MAX = 30, 100, 100
"""What tidying leaves: days of rows, files that are few enough to stay as they are, and snapshots."""
DIGEST_DAYS = 30
"""Days whose digests become one, when they are no more kept as they were."""
_GIVEN = (
    "topic string, topic_id string, partition int, from_offset long, next_offset long, "
    "equal boolean, findings long, snapshot_id long"
)
DIGEST = "digest_from long, records long, digest_lower long, digest_upper long, digest_form int"
"""From which offset on (up to `next_offset`) how many records were found equal, their sums and what they are
of; null where there is no digest. The last alone: an audit by digests that found something.
"""
RANGES_MAX = 2_000_000
"""Of one topic, that an audit looks at."""
_OF_FILES = "topic_id string, form int, snapshot_id long, upto long, files long"
"""Form, the table's snapshot, below which offset of the partition, and how many rows an audit kept."""
RANGE = ("digest_from", "next_offset", "records", "digest_lower", "digest_upper")
"""A digest, in the fields of Digested."""
_FORM, _KEPT, _AGAIN = "digest_form", "_kept", "_again"
_DAY_US = 24 * 3_600 * 1_000_000
_PROPERTIES = (
    "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '10'"
)


class Last(NamedTuple):
    """From where on the next audit has to look: by partition, and beyond which of the table's snapshots.

    `by_digests`: also by digests, as what was found unequal was found by them.
    """

    offsets: dict[int, int]
    snapshot: int | None = None
    by_digests: bool = False


def last(spark: SparkSession, topic_id: str, namespace: str = NAMESPACE) -> Last:
    """Of the audits of a topic's life: behind the newest equal one, or where one began that found what no
    later one has looked at and found equal. Nothing before there is one.
    """
    table = f"{namespace}.{NAME}"
    if not spark.catalog.tableExists(table) or SNAPSHOT not in spark.table(table).columns:
        return Last({})
    own = spark.table(table).where(F.col("topic_id") == topic_id)
    equal, again = F.col("equal"), F.col(_AGAIN)
    digested = F.col(_FORM).isNotNull() if _FORM in own.columns else F.lit(False)
    found = (
        own.withColumn(_AGAIN, _unsettled(Window.partitionBy("partition")))
        .groupBy("partition")
        .agg(
            F.max_by("next_offset", F.when(equal, F.struct("audited_at", "next_offset"))).alias("offset"),
            F.max(F.when(equal, F.struct("audited_at", SNAPSHOT))).alias("newest"),
            F.min(F.when(again, F.col("from_offset"))).alias("again"),
            F.coalesce(F.max(again & digested), F.lit(False)).alias("digested"),
        )
        .collect()
    )
    known = [row for row in found if row["offset"] is not None]
    newest = max((row["newest"] for row in known), key=lambda each: each["audited_at"], default=None)
    offsets = {row["partition"]: _least(row["offset"], row["again"]) for row in known}
    back = any(offsets[row["partition"]] < row["offset"] for row in known)
    snapshot = newest[SNAPSHOT] if newest is not None and not back else None
    return Last(offsets, snapshot, any(row["digested"] for row in found))


def _least(offset: int, again: int | None) -> int:
    return offset if again is None else min(offset, again)


def _unsettled(of: WindowSpec) -> Column:
    """Whether a row's audit found something, and no later one that began as low has looked at it again.

    `of`: rows of one partition.
    """
    later = of.orderBy(F.col("audited_at").desc()).rowsBetween(Window.unboundedPreceding, -1)
    looked = F.min("from_offset").over(later)
    return ~F.col("equal") & F.coalesce(looked > F.col("from_offset"), F.lit(True))


def digests(spark: SparkSession, topic_id: str, namespace: str = NAMESPACE) -> dict[int, list[Digested]]:
    """By partition the ranges of the topic's life that have a digest, as they were kept.

    Raises ValueError where there are too many to look at.
    """
    table = f"{namespace}.{NAME}"
    if not spark.catalog.tableExists(table) or _FORM not in spark.table(table).columns:
        return {}
    own = spark.table(table).where((F.col("topic_id") == topic_id) & _has_digest())
    told = own.select("partition", *RANGE, F.unix_micros("audited_at").alias("at_us"))
    rows = told.limit(RANGES_MAX + 1).toArrow().to_pydict()
    if len(rows["partition"]) > RANGES_MAX:
        raise ValueError(
            f"{table} has more than {RANGES_MAX:,} digests of topic {topic_id}: delete old rows of "
            "it, or audit with --since start"
        )
    found: dict[int, list[Digested]] = {}
    for partition, *each in zip(*rows.values(), strict=True):
        found.setdefault(partition, []).append(Digested(*each))
    return found


def _has_digest() -> Column:
    return F.col("equal") & (F.col(_FORM) == FORM) & F.col("records").isNotNull()


def files_seen(spark: SparkSession, topic_id: str, of: Last, namespace: str = NAMESPACE) -> DataFrame | None:
    """What the audit `of` which these offsets and snapshot are saw of files; None where nobody knows.

    None also of what another version kept, of what goes with another audit, and where some of it is gone.
    """
    table = f"{namespace}.{FILES}"
    if of.snapshot is None or not spark.catalog.tableExists(table):
        return None
    if not {*seen.COLUMNS, "form", SNAPSHOT, "upto", "files"} <= {*spark.table(table).columns}:
        return None
    snapshot = F.col(SNAPSHOT).cast("string") == str(of.snapshot)  # a number would be in generated code
    same = (F.col("topic_id") == topic_id) & (F.col("form") == seen.FORM) & snapshot
    own = spark.table(table).where(same).cache()
    other = F.count_if(~F.col("upto").eqNullSafe(seen.at(of.offsets, F.col("partition"))))
    (row,) = own.agg(F.count(F.lit(1)), F.min("files"), F.max("files"), other).collect()
    count, least, most, others = row
    return own.select(*seen.COLUMNS) if count == least == most and not others else None


def _keep_files(
    spark: SparkSession,
    topic_id: str,
    facts: DataFrame,
    ends: Mapping[int, int],
    snapshot: int,
    namespace: str,
) -> None:
    """Write down what an equal audit saw of a topic's files, in place of what the one before it saw.

    `facts`: see seen.facts. `ends`: by partition the offset below which it compared.
    """
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    table = f"{namespace}.{FILES}"
    columns = f"{_OF_FILES}, {seen.FACTS}"
    parts = f"PARTITIONED BY (topic_id) TBLPROPERTIES ({_PROPERTIES})"
    if spark.catalog.tableExists(table) and spark.table(table).columns != _names(columns):
        spark.sql(f"DROP TABLE {table}")  # made by another version, which cannot be added to
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg {parts}")
    facts = facts.cache()
    named = {
        "topic_id": F.lit(topic_id),
        "form": F.lit(seen.FORM),
        SNAPSHOT: steady(snapshot, F.col("path")),
        "upto": seen.at(ends, F.col("partition")),
        "files": steady(facts.count(), F.col("path")),
    }
    rows = facts.select(
        *(named[each].alias(each) if each in named else F.col(each) for each in _names(columns))
    )
    rows.coalesce(1).writeTo(table).overwrite(F.col("topic_id") == topic_id)


def _names(columns: str) -> list[str]:
    return [each.split()[0] for each in columns.split(", ")]


class Outcome(NamedTuple):
    """What an audit found and compared: by partition the first offset and that behind the last.

    `snapshot`: of the table, whose files were looked at. `files`: what was seen of them (seen.facts).
    `digests`: by partition the sums of what was found equal. These two are kept where nothing was found.
    `by_digests`: it went by what earlier ones had kept of these.
    """

    compared: Mapping[int, tuple[int, int]]
    findings: int
    snapshot: int | None = None
    files: DataFrame | None = None
    digests: Mapping[int, Sequence[Digested]] = MappingProxyType({})
    by_digests: bool = False

    def rows(self, topic: str, topic_id: str) -> list[tuple[object, ...]]:
        """In the columns of the table: of each partition what was compared, and stretches below it."""
        found: list[tuple[object, ...]] = []
        outcome = not self.findings, self.findings, self.snapshot
        for partition, (first, end) in sorted(self.compared.items()):
            own: Sequence[Digested] = () if self.findings else self.digests.get(partition, ())
            last: tuple[object, ...] = (*(None,) * 4, FORM if self.findings and self.by_digests else None)
            for each in own:
                digest = each.first, *each.sums, FORM
                if each.end == end:
                    last = digest
                else:
                    found.append((topic, topic_id, partition, each.first, each.end, *outcome, *digest))
            found.append((topic, topic_id, partition, first, end, *outcome, *last))
        return found


def keep(
    spark: SparkSession, topic: str, topic_id: str, outcome: Outcome, namespace: str = NAMESPACE
) -> None:
    """Write down what an audit found and compared."""
    compared, findings, snapshot, files, *_ = outcome
    if files is not None and snapshot is not None and not findings:
        upto = {partition: end for partition, (_, end) in compared.items()}
        _keep_files(spark, topic_id, files, upto, snapshot, namespace)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    table = f"{namespace}.{NAME}"
    columns = f"{_GIVEN}, audited_at timestamp, {DIGEST}"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg TBLPROPERTIES ({_PROPERTIES})")
    _with_all_columns(spark, table)
    rows = local_rows(spark, outcome.rows(topic, topic_id), f"{_GIVEN}, {DIGEST}")
    told = {TOPIC_ID: topic_id, FINDINGS: str(findings)}
    for name, place in ((FROM, 0), (OFFSETS, 1)):
        told[name] = ",".join(f"{partition}:{each[place]}" for partition, each in sorted(compared.items()))
    writer = rows.withColumn("audited_at", F.current_timestamp()).coalesce(1).writeTo(table)
    writer.options(**{f"snapshot-property.{name}": value for name, value in told.items()}).append()


def _with_all_columns(spark: SparkSession, table: str) -> None:
    """Give a table that an earlier version made the columns that it lacks; its rows have null there."""
    there = spark.table(table).columns
    if SNAPSHOT not in there:
        spark.sql(f"ALTER TABLE {table} ADD COLUMN {SNAPSHOT} bigint AFTER findings")
    lacking = [each for each in DIGEST.split(", ") if each.split()[0] not in there]
    if lacking:
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({', '.join(lacking)})")


def tidy(spark: SparkSession, namespace: str = NAMESPACE) -> None:
    """Make what many audits leave few: rows in one file, without those that nobody asks for; few snapshots.

    Rows stay for KEPT_DAYS, and of each topic's partitions the newest and the newest equal one for ever, and
    those that tell what has to be looked at again.
    Digests of older rows stay for ever too, those of DIGEST_DAYS added up, where none newer are of as much;
    snapshots: the newest SNAPSHOTS_MAX, and of each topic that with its newest outcome and its newest equal
    one. Raises what Spark does when another audit is kept meanwhile; then nothing is lost.
    """
    for name in (NAME, FILES):
        if spark.catalog.tableExists(f"{namespace}.{name}"):
            if name == NAME:
                _fewer_rows(spark, f"{namespace}.{name}")
            _fewer_snapshots(spark, namespace, name)


def _fewer_rows(spark: SparkSession, table: str) -> None:
    files = spark.table(f"{table}.files").count()
    if files <= FILES_MAX or SNAPSHOT not in spark.table(table).columns:
        return
    (read,) = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()
    of = Window.partitionBy("topic_id", "partition")
    newest = F.max("audited_at").over(of)
    equal = F.max(F.when(F.col("equal"), F.col("audited_at"))).over(of)
    young = F.col("audited_at") >= F.current_timestamp() - F.expr(f"INTERVAL {KEPT_DAYS} DAYS")
    at = F.col("audited_at")
    kept_ever = (at == newest) | at.eqNullSafe(equal) | _unsettled(of)
    rows = spark.table(table).withColumn(_KEPT, young | kept_ever)
    kept = rows.where(_KEPT).drop(_KEPT)
    if _FORM in rows.columns:
        old = rows.where(_has_digest()).groupBy("topic_id", "partition")
        kept = kept.unionByName(old.applyInArrow(_older, spark.table(table).schema))
    writer = kept.coalesce(1).writeTo(table)
    since = {"isolation-level": "serializable", "validate-from-snapshot-id": str(read[0])}
    writer.options(**since).overwrite(F.lit(True))


def _older(rows: pa.Table) -> pa.Table:
    """Of a partition's rows with digests, of which some are kept: the digests of the others, added up."""
    told = rows.sort_by("audited_at").to_pylist()
    ranges = {
        Digested._make([*(row[name] for name in RANGE), _micros(row["audited_at"])]): row for row in told
    }
    kept = [each for each, row in ranges.items() if row[_KEPT]]
    left = set(reaching(ranges)) - set(kept)
    schema = rows.schema.remove(rows.schema.get_field_index(_KEPT))
    by_time = {each.at_us: row for each, row in ranges.items()}
    found = []
    for each in added_up(left, DIGEST_DAYS * _DAY_US):
        row = by_time[each.at_us] | {"from_offset": each.first, "digest_from": each.first}
        digest = dict(zip(RANGE, each[:5], strict=True))
        found.append({name: value for name, value in (row | digest).items() if name != _KEPT})
    return pa.Table.from_pylist(found, schema)


def _micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _fewer_snapshots(spark: SparkSession, namespace: str, name: str) -> None:
    catalog, _, space = namespace.partition(".")
    table = Table(f"{space}.{name}", catalog, f"{namespace}.{name}", None)
    # In the order of the commits, as the metadata has them: a stamp is by the clock of who wrote.
    rows = spark.sql(f"SELECT snapshot_id, summary FROM {table.sql}.snapshots").collect()
    kept = {row["snapshot_id"] for row in rows[-SNAPSHOTS_MAX:]}
    newest: dict[tuple[str, bool], int] = {}
    for row in rows:
        topic_id, findings = (row["summary"].get(each) for each in (TOPIC_ID, FINDINGS))
        if topic_id is not None:
            newest[topic_id, findings == "0"] = row["snapshot_id"]
    gone = [row["snapshot_id"] for row in rows if row["snapshot_id"] not in kept | {*newest.values()}]
    if gone:
        spark.sql(table.call("expire_snapshots", snapshot_ids=f"array({', '.join(map(str, gone))})"))
