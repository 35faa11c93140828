"""The judgement of judge.py by Spark, over the tables of tables.py: for histories too long for one process.

Each anomaly is a query with the columns run, anomaly, weight, key: one row per finding. Cycles are
looked for by region (spark_cycles.py), so that no process holds all edges.
tests/spark/test_spark_judge.py holds the two against each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.checker.progress import GROUP, PATIENCE, Patience
from tests.checker.spark_cycles import cycles

Found = dict[str, Counter[tuple[str, str, str]]]
"""By run: how often each (anomaly, weight, key) was found."""
RUN_KEY = ["run", "key"]
RECORD = ["run", "key", "value"]


@dataclass(frozen=True)
class Known:
    """What versions.py knows of a history, as tables."""

    op: DataFrame
    send: DataFrame  # with the operation's outcome, process, f, and whether it is proven
    poll: DataFrame  # records of all polls, with the operation's outcome and process
    read: DataFrame  # records of ok polls
    version: DataFrame  # run, key, offset, value: each pair that was seen
    index: DataFrame  # run, key, offset, index
    highest: DataFrame  # run, key, read_index_max
    seen: DataFrame  # run, key, value that any poll returned
    writer: DataFrame  # run, key, value, author, author_outcome, author_invoked_ns


def known(spark: SparkSession, folder: Path) -> Known:
    """Read the tables once."""
    op, send, poll = (spark.read.parquet(str(folder / f"{name}.parquet")) for name in ("op", "send", "poll"))
    of = op.select("run", "op", "outcome", "process", "f", "rebalanced", "invoked_ns", "completed_ns")
    poll, send = poll.join(of, ["run", "op"]).cache(), send.join(of, ["run", "op"])
    read = poll.where("outcome = 'ok'")
    by_another = send.where("outcome = 'info'").join(poll.select(*RECORD, F.col("op").alias("by")), RECORD)
    info = by_another.where("by <> op").select("run", "op").distinct().withColumn("polled", F.lit(True))
    proven = (F.col("outcome") == "ok") | F.coalesce("polled", F.lit(False))
    send = send.join(info, ["run", "op"], "left").withColumn("proven", proven).cache()
    told = send.where("proven AND offset IS NOT NULL")
    # Which of several values at one offset counts as the first: that of the first poll, then of sends.
    sights = poll.select(*RECORD, "offset", _sight(0, F.col("turn"))).union(
        told.select(*RECORD, "offset", _sight(1, F.lit(0)))
    )
    version = sights.groupBy(*RECORD, "offset").agg(F.min("at").alias("at")).cache()
    order = Window.partitionBy(*RUN_KEY).orderBy("offset")
    index = version.select(*RUN_KEY, "offset").distinct()
    index = index.withColumn("index", F.row_number().over(order) - 1).cache()
    highest = read.join(index, [*RUN_KEY, "offset"]).groupBy(*RUN_KEY)
    writer = send.groupBy(*RECORD).agg(F.max(F.struct("op", "outcome", "invoked_ns")).alias("by"))
    return Known(
        op, send, poll, read, version, index,
        highest.agg(F.max("index").alias("read_index_max")),
        poll.select(*RECORD).distinct(),
        writer.select(
            *RECORD, F.col("by.op").alias("author"), F.col("by.outcome").alias("author_outcome"),
            F.col("by.invoked_ns").alias("author_invoked_ns"),
        ),
    )  # fmt: skip


def _sight(source: int, turn: Column) -> Column:
    return F.struct(F.lit(source).alias("source"), "op", "position", turn.cast("bigint").alias("turn")).alias(
        "at"
    )


def judge_all(
    spark: SparkSession, folder: Path, *, healed_ns: int | None = None, patience: Patience = PATIENCE
) -> Found:
    """All findings of every history in the folder's tables; the parameters as in judge.judge."""
    told = known(spark, folder)
    queries = [*records(told), *order(told)]
    if healed_ns is not None:
        queries.append(stuck(told, healed_ns, patience))
    every = reduce(DataFrame.union, queries).groupBy("run", "anomaly", "weight", "key").count()
    found: Found = defaultdict(Counter)
    for run, anomaly, weight, key, count in every.collect():
        found[run][anomaly, weight, key] += count
    for run, anomaly, weight in cycles(dependencies(told)):
        found[run][anomaly, weight, ""] += 1
    return found


def finding(rows: DataFrame, anomaly: str | Column, weight: str | Column = "fail") -> DataFrame:
    """Rows as findings."""
    name = F.lit(anomaly) if isinstance(anomaly, str) else anomaly
    how = F.lit(weight) if isinstance(weight, str) else weight
    return rows.select("run", name.alias("anomaly"), how.alias("weight"), "key")


def records(known: Known) -> list[DataFrame]:
    """The anomalies of records.py."""
    versions = known.version.groupBy(*RUN_KEY, "offset").agg(F.count("value").alias("n")).where("n > 1")
    places = known.version.groupBy(*RECORD).agg(F.count("offset").alias("n")).where("n > 1")
    unread = known.send.join(known.read.select(*RECORD), RECORD, "left_anti")
    stood = known.version.groupBy(*RECORD).agg(F.min("offset").alias("at"))
    stood = stood.join(known.index.withColumnRenamed("offset", "at"), [*RUN_KEY, "at"])
    passed = unread.where("proven").join(stood, RECORD).join(known.highest, RUN_KEY)
    polled = known.poll.join(known.writer, RECORD, "left")
    return [
        finding(versions, "inconsistent-offset"),
        finding(places, "duplicate"),
        finding(passed.where("index <= read_index_max"), "lost-write"),
        finding(unread.where("outcome = 'ok'"), "unseen"),
        finding(polled.where("author_outcome = 'fail' AND author <> op"), "aborted-read"),
        finding(polled.where("author = op"), "precommitted-read"),
        finding(polled.where("author IS NULL"), "phantom-read"),
        torn_transactions(known),
    ]


def torn_transactions(known: Known) -> DataFrame:
    """See records.torn_transactions: one per operation, named by its first hidden send."""
    later = known.read.join(known.writer, RECORD).groupBy(*RUN_KEY)
    sends = (
        known.send.where("f = 'txn'")
        .join(known.seen.withColumn("visible", F.lit(True)), RECORD, "left")
        .join(known.index, [*RUN_KEY, "offset"], "left")
        .join(known.highest, RUN_KEY, "left")
        .join(later.agg(F.max("author_invoked_ns").alias("later_ns")), RUN_KEY, "left")
    )
    by_index = F.col("index") <= F.coalesce("read_index_max", F.lit(-1))
    by_time = F.coalesce("later_ns", F.lit(-1)) > F.col("completed_ns")
    passed = F.when(F.col("index").isNotNull(), by_index).otherwise(by_time)
    gone = F.col("visible").isNull() & passed
    ops = sends.groupBy("run", "op").agg(
        F.max(F.coalesce("visible", F.lit(False))).alias("some"),
        F.min(F.when(gone, F.struct("position", "key"))).alias("first"),
    )
    torn = ops.where("some AND first IS NOT NULL").select("run", F.col("first.key").alias("key"))
    return finding(torn, "torn-transaction")


def order(known: Known) -> list[DataFrame]:
    """The anomalies of order.py."""
    ranked = known.poll.join(known.index, [*RUN_KEY, "offset"])
    inside = Window.partitionBy("run", "op", "key").orderBy("position", "turn")
    steps = ranked.withColumn("before", F.lag("index").over(inside))
    steps = steps.where("NOT array_contains(rebalanced, key)")
    at = F.struct("position", "turn", "index")
    bounds = ranked.groupBy("run", "process", "op", "outcome", "key").agg(
        F.min(at)["index"].alias("index"), F.max(at)["index"].alias("newest")
    )
    sent = known.send.where("outcome = 'ok' AND offset IS NOT NULL")
    within = Window.partitionBy("run", "op", "key").orderBy("position")
    back = sent.withColumn("before", F.coalesce(F.lag("offset").over(within), F.lit(-1)))
    place = F.struct("position", "offset")
    ends = sent.groupBy("run", "process", "op", "key").agg(
        F.min(place)["offset"].alias("offset"), F.max(place)["offset"].alias("newest")
    )
    between = Window.partitionBy("run", "process", "key").orderBy("op")
    ends = ends.withColumn("before", F.lag("newest").over(between))
    return [
        *_steps(steps, "internal-", F.lit("fail")),
        *_steps(_external(known, bounds), "", F.col("weight")),
        finding(ends.where("offset <= before"), "nonmonotonic-send"),
        finding(back.where("offset <= before"), "internal-nonmonotonic-send"),
    ]


def _steps(rows: DataFrame, prefix: str, weight: Column) -> list[DataFrame]:
    return [
        finding(rows.where("index - before > 1"), f"{prefix}poll-skip", weight),
        finding(rows.where("index - before < 1"), f"{prefix}nonmonotonic-poll", weight),
    ]


def _external(known: Known, bounds: DataFrame) -> DataFrame:
    """Each operation's first index with the last one of the process's ok operation before it.

    Not where that was forgotten between.
    """
    between = Window.partitionBy("run", "process", "key").orderBy("op")
    between = between.rowsBetween(Window.unboundedPreceding, -1)
    ok = F.when(F.col("outcome") == "ok", F.struct("newest", "op"))
    rows = bounds.withColumn("last", F.last(ok, ignorenulls=True).over(between))
    rows = rows.select("*", F.col("last.newest").alias("before"), F.col("last.op").alias("before_op"))
    rows = rows.where("before IS NOT NULL")
    changes = known.op.where("f = 'crash' OR (f IN ('assign', 'subscribe') AND outcome <> 'fail')")
    c, r = changes.alias("c"), rows.alias("r")
    dropped = r.join(
        c,
        (F.col("r.run") == F.col("c.run")) & (F.col("r.process") == F.col("c.process"))
        & (F.col("c.op") > F.col("r.before_op")) & (F.col("c.op") < F.col("r.op"))
        & ((F.col("c.f") == "crash") | ~F.expr("array_contains(c.keys, r.key)")),
        "left_anti",
    )  # fmt: skip
    nothing = F.lit(None).cast("string")
    modes = changes.where("f <> 'crash'").select("run", "process", "op", F.col("f").alias("mode"))
    marks = dropped.select("run", "process", "op", "key", "index", "before", nothing.alias("mode"))
    empty = F.lit(None).cast("bigint")
    all_rows = marks.union(modes.select("run", "process", "op", nothing, empty, empty, "mode"))
    since = Window.partitionBy("run", "process").orderBy("op").rowsBetween(Window.unboundedPreceding, 0)
    mode = F.last("mode", ignorenulls=True).over(since)
    weight = F.when(mode == "subscribe", "allowed").otherwise("fail")
    return all_rows.withColumn("weight", weight).where("key IS NOT NULL")


def stuck(known: Known, healed_ns: int, patience: Patience) -> DataFrame:
    """See progress.stuck: processes, and groups, that polled in vain below a key's end."""
    members = known.op.where("f = 'subscribe' AND outcome <> 'fail'").select("run", "process").distinct()
    members = F.broadcast(members.withColumn("member", F.lit(True)))

    def with_who(rows: DataFrame) -> DataFrame:
        """The members of a group are one, GROUP."""
        rows = rows.join(members, ["run", "process"], "left")
        return rows.withColumn("process", F.when(F.col("member"), GROUP).otherwise(F.col("process")))

    turns = Window.partitionBy("run", "process").orderBy("op")
    by = turns.rowsBetween(Window.unboundedPreceding, 0)
    ops = with_who(known.op)
    assigns = F.col("f") == F.when(F.col("member"), "subscribe").otherwise("assign")
    keys = F.when(assigns & (F.col("outcome") != "fail"), F.col("keys"))
    looks = ops.withColumn("assigned", F.last(keys, ignorenulls=True).over(by))
    looks = looks.where("outcome = 'ok' AND f IN ('poll', 'txn')")
    looks = looks.withColumn("before", F.lag("assigned").over(turns))
    grid = looks.select("run", "process", "op", "completed_ns", "before", F.explode("assigned").alias("key"))
    anew = F.coalesce(~F.array_contains("before", F.col("key")), F.lit(True))
    grid = grid.withColumn("anew", anew).drop("before").distinct()
    ranked = with_who(known.poll.where("f IN ('poll', 'txn')")).join(known.index, [*RUN_KEY, "offset"])
    ranked = ranked.where("outcome = 'ok' OR (member AND outcome = 'info')")
    at = F.max(F.struct("position", "turn", "index"))["index"]
    reads = ranked.groupBy("run", "process", "op", "key").agg(at.alias("at"))
    rows = grid.join(reads, ["run", "process", "op", "key"], "full")
    place = Window.partitionBy("run", "process", "key").orderBy("op")
    past = place.rowsBetween(Window.unboundedPreceding, 0)
    newest = F.when(F.col("process") == GROUP, F.max("at").over(past))
    newest = newest.otherwise(F.last("at", ignorenulls=True).over(past))
    rows = rows.withColumn("place", F.coalesce(newest, F.lit(-1)))
    rows = rows.where("completed_ns IS NOT NULL")  # the key is assigned
    begins = F.col("at").isNotNull() | F.col("anew") | (F.col("completed_ns") < healed_ns)
    rows = rows.withColumn(
        "since", F.last(F.when(begins, F.col("completed_ns")), ignorenulls=True).over(past)
    )
    ends = known.index.groupBy(*RUN_KEY).agg(F.max("index").alias("end"))
    waited = F.col("completed_ns") - F.greatest("since", F.lit(healed_ns))
    longest = F.when(F.col("process") == GROUP, patience.group_ns).otherwise(patience.process_ns)
    standing = rows.join(ends, RUN_KEY).where((waited > longest) & (F.col("place") < F.col("end")))
    return finding(standing.select("run", "process", "key").distinct(), "stuck")


def dependencies(known: Known) -> DataFrame:
    """The edges of cycles.py: run, a, b, why."""
    first = Window.partitionBy(*RUN_KEY, "offset").orderBy("at")
    firsts = known.version.withColumn("n", F.row_number().over(first)).where("n = 1")
    proven = known.send.where("proven").select("run", F.col("op").alias("author")).distinct()
    authors = firsts.join(known.writer, RECORD).join(proven, ["run", "author"])
    nxt = F.lead("author").over(Window.partitionBy(*RUN_KEY).orderBy("offset"))
    writes = authors.select("run", F.col("author").alias("a"), nxt.alias("b")).where(
        "b IS NOT NULL AND a <> b"
    )
    reads = known.poll.join(known.writer, RECORD).where("author <> op")
    reads = reads.select("run", F.col("author").alias("a"), F.col("op").alias("b"))
    return (
        writes.distinct()
        .withColumn("why", F.lit("ww"))
        .union(reads.distinct().withColumn("why", F.lit("wr")))
    )
