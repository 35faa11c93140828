"""White-box audits by Spark: what no client can see, from `broker_log` and the history beside it.

Each is a query of findings as in spark_judge.py. A run without rows of broker_log has none.

| anomaly | what it says |
|---|---|
| tiling | batches overlap, leave a gap that nothing explains, or end below the high watermark |
| sequence | sequence numbers of a producer and epoch on a partition are not gapless |
| not-in-log | an acknowledged send is not at its offset in the log, or nowhere where no offset was told |
| failed-in-log | a send that was refused outside of a transaction is in the log |
| wrong-end | records of a transaction that is ok have an abort behind them, of a failed one a commit |
| torn-end | the records of one transaction have different ends behind them |
| no-end | records of a transaction without an end; the last stable offset is below the high watermark |

Gaps and sequences: the rules of tests/torture/walk.py, except that in merged ranges, where aborted records
leave gaps, sequences of transactional producers are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.checker.spark_judge import RUN_KEY, Found, finding

SEQUENCES = 1 << 31


def audit_all(spark: SparkSession, folder: Path) -> Found:
    """All findings of every run in the folder's tables."""
    log, op, send = (
        spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("broker_log", "op", "send")
    )
    bounds = log.where("kind = 'bounds'").select(
        *RUN_KEY, F.col("base_offset").alias("start"), F.col("next_offset").alias("end"), "merged_to",
        "compacted_to", "stable",
    ).cache()  # fmt: skip
    batches = log.where("kind <> 'bounds'").drop("merged_to", "compacted_to", "stable")
    batches = batches.join(bounds, RUN_KEY).cache()
    sent = send.join(op.select("run", "op", "f", "outcome"), ["run", "op"]).join(bounds, RUN_KEY)
    queries = [
        finding(tiling(batches, bounds), "tiling"),
        finding(sequences(batches), "sequence"),
        *sends(sent, batches),
        *ends(sent, batches, bounds),
    ]
    every = reduce(DataFrame.union, queries).groupBy("run", "anomaly", "weight", "key").count()
    found: Found = defaultdict(Counter)
    for run, anomaly, weight, key, count in every.collect():
        found[run][anomaly, weight, key] += count
    return found


def tiling(batches: DataFrame, bounds: DataFrame) -> DataFrame:
    """One row per place where the batches of a partition do not tile."""
    place = Window.partitionBy(*RUN_KEY).orderBy("base_offset", "next_offset")
    due = F.coalesce(F.lag("next_offset").over(place), F.col("start"))
    first = F.row_number().over(place) == 1
    rows = batches.withColumn("due", due).withColumn("first", first)
    begins_before = F.col("first") & (F.col("next_offset") > F.col("start"))
    overlap = rows.where((F.col("base_offset") < F.col("due")) & ~begins_before)
    gaps = rows.where("base_offset > due")
    in_tail = gaps.where("base_offset > merged_to")
    merged = gaps.where("base_offset <= merged_to AND base_offset > compacted_to")
    merged = merged.select(*RUN_KEY, F.greatest("due", "compacted_to").alias("gap"))
    open_gaps = merged.join(_explained(batches), RUN_KEY, "left").groupBy(*RUN_KEY, "gap")
    open_gaps = open_gaps.agg(
        F.max(F.coalesce(F.expr("gap > after AND gap < marker"), F.lit(False))).alias("ok")
    )
    ends = bounds.join(batches.groupBy(*RUN_KEY).agg(F.max("next_offset").alias("last")), RUN_KEY, "left")
    short = ends.where("coalesce(last, start) <> end")
    wrong = [overlap, in_tail, open_gaps.where("NOT ok"), short]
    return reduce(DataFrame.union, [each.select(*RUN_KEY) for each in wrong])


def _explained(batches: DataFrame) -> DataFrame:
    """Where an aborted transaction's records may have been: behind what its producer has before it.

    But for what of the transaction is in the tail: merging may have come to the midst of it.
    """
    of = Window.partitionBy(*RUN_KEY, "producer").orderBy("base_offset")
    known = batches.where("kind <> 'records' OR (transactional AND base_offset < merged_to)")
    known = known.withColumn("after", F.coalesce(F.lag("base_offset").over(of), F.lit(-1)))
    return known.where("kind = 'abort'").select(*RUN_KEY, "after", F.col("base_offset").alias("marker"))


def sequences(batches: DataFrame) -> DataFrame:
    """Batches whose first sequence number does not follow on the last one of their producer and epoch."""
    of = Window.partitionBy(*RUN_KEY, "producer", "epoch").orderBy("base_offset")
    rows = batches.where("kind = 'records' AND producer >= 0")
    following = (F.col("sequence") + F.col("next_offset") - F.col("base_offset")) % SEQUENCES
    rows = rows.withColumn("due", F.lag(following).over(of)).withColumn(
        "before", F.lag("base_offset").over(of)
    )
    looked = F.col("before") >= F.when(F.col("transactional"), F.col("merged_to")).otherwise(
        F.col("compacted_to")
    )
    return rows.where(looked & (F.col("sequence") != F.col("due")))


def sends(sent: DataFrame, batches: DataFrame) -> list[DataFrame]:
    """Sends against the records of the log. What compaction or retention may have taken is not missed."""
    pairs = F.explode(F.arrays_zip("offsets", "values")).alias("record")
    held = batches.where("kind = 'records'").select(*RUN_KEY, pairs)
    held = held.select(
        *RUN_KEY, F.col("record.offsets").alias("offset"), F.col("record.values").alias("value")
    ).cache()
    there = held.select(*RUN_KEY, "value").distinct()
    ok = sent.where("outcome = 'ok'")
    told = ok.where("offset >= greatest(start, compacted_to)")
    silent = ok.where("offset IS NULL AND start = 0 AND compacted_to = 0")
    missing = told.join(held, [*RUN_KEY, "offset", "value"], "left_anti")
    nowhere = silent.join(there, [*RUN_KEY, "value"], "left_anti")
    refused = sent.where("outcome = 'fail' AND f = 'send'").join(there, [*RUN_KEY, "value"], "left_semi")
    return [
        finding(missing, "not-in-log"),
        finding(nowhere, "not-in-log"),
        finding(refused, "failed-in-log"),
    ]


def ends(sent: DataFrame, batches: DataFrame, bounds: DataFrame) -> list[DataFrame]:
    """Each transaction ends once, the same on all of its partitions, as its client was told."""
    of = (
        Window.partitionBy(*RUN_KEY, "producer")
        .orderBy("base_offset")
        .rowsBetween(1, Window.unboundedFollowing)
    )
    end = F.when(F.col("kind") != "records", F.struct("kind", "stamp_ms"))
    rows = batches.where("kind <> 'records' OR transactional")
    rows = rows.withColumn("ends", F.first(end, ignorenulls=True).over(of)).where("kind = 'records'")
    records = rows.select(*RUN_KEY, F.explode("values").alias("value"), "ends")
    ended = sent.where("f = 'txn'").join(records, [*RUN_KEY, "value"]).where("ends IS NOT NULL")
    other = F.when(F.col("outcome") == "ok", "abort").when(F.col("outcome") == "fail", "commit")
    by_op = ended.groupBy("run", "op").agg(F.count_distinct("ends").alias("n"), F.min("key").alias("key"))
    hanging = rows.where("ends IS NULL AND base_offset >= compacted_to")
    return [
        finding(ended.where(F.col("ends.kind") == other), "wrong-end"),
        finding(by_op.where("n > 1"), "torn-end"),
        finding(hanging, "no-end"),
        finding(bounds.where("stable < end"), "no-end"),
    ]
