"""Incremental jobs: the rows that a job writes and the watermark up to which it read become visible at once.

A run reads the watermark from the target, lets the job write to a branch of it that begins at the target's
current snapshot, notes the new watermark in the summary of the branch's last snapshot, and moves `main`
there. That move is one commit, whatever and however often the job wrote, and the catalog takes it only while
`main` is where the run began. So a run that dies anywhere leaves nothing but a branch that nobody reads, and
of two runs at once one is refused. Rows that are taken back by a rollback of the target take the watermark
with them.

All of it is SQL and plain writes: nothing needs the driver's JVM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.reading import Increment, beyond, increment
from iceberg.spark.topics import TopicTable, ancestry, head_of, now_ms, table_properties, topic_table
from iceberg.spark.watermark import OtherTopic, TargetMoved, Unmarked, Watermark

PROPERTY = "floe-watermark."
"""With the topic's id behind it: the name in a snapshot's summary. Its value: `<topic>=<watermark>`."""
BRANCH = "floe_run_"
RUN_HOURS_MAX = 24
"""A run that takes longer is given up; its branch is removed by a later one."""

Job = Callable[[DataFrame, str], None]
"""Writes what becomes of the rows to the table of this name, which it may read as well: see
`exactly_once`.
"""
Before = Callable[[str], None]
"""Told the name of each step before it is done."""


Notes = Sequence[Mapping[str, str]]


def _ignore(step: str) -> None:
    """Nobody is told."""


class Progress(NamedTuple):
    """What a run did: its increment, and the target's snapshot that has it."""

    since: Watermark
    watermark: Watermark
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Source:
    """A topic's table that a job reads: `begin`, `until`, `offsets_max` and `skip_gone` as in
    `exactly_once`.
    """

    table: str
    begin: Watermark | None = None
    until: Watermark | None = None
    offsets_max: int | None = None
    skip_gone: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What a run is given of one source: what is new, and on demand all that there is."""

    spark: SparkSession
    found: TopicTable
    new: Increment

    def whole(self) -> DataFrame:
        """Every row below the run's watermark that the table has, of the snapshot that `new` reads."""
        return increment(self.spark, self.found, None, self.new.watermark, None, True).rows


def exactly_once(
    spark: SparkSession,
    source: str,
    target: str,
    job: Job,
    *,
    begin: Watermark | None = None,
    until: Watermark | None = None,
    offsets_max: int | None = None,
    skip_gone: bool = False,
    before: Before = _ignore,
) -> Progress | None:
    """Run `job` over what was committed to the topic's table `source` since the last run; None when that is
    nothing.

    `job(rows, name)` writes to the table `name` as it likes: append, `merge_into`, overwrite, several times.
    `name` is a branch of `target`, so what it reads there is the target as the run found it, and what it
    writes to `target` itself ends the run. It may be run again over the same rows, and must not do harm
    elsewhere by that.

    `target` exists and is empty, or has been written by runs over this topic; `begin` says from where to read
    for a target with other rows, and is left out from then on. `until`, `offsets_max`, `skip_gone`: as in
    `read_since`. `before` is told each step. Raises what `read_since` raises, Unmarked, TargetMoved, and what
    the job raises.
    """
    sources = [Source(source, begin, until, offsets_max, skip_gone)]
    done = exactly_once_from(
        spark, sources, target, lambda given, name: job(given[0].new.rows, name), before=before
    )
    return done[0] if done else None


def exactly_once_from(
    spark: SparkSession,
    sources: Sequence[Source],
    target: str,
    job: Callable[[Sequence[Given], str], None],
    *,
    before: Before = _ignore,
) -> list[Progress] | None:
    """`exactly_once` over several topics: what came to any of them, and a watermark of each, in one commit.

    `job` is given the sources in their order, and the branch. None when none of them has anything new.
    Raises what `exactly_once` raises.
    """
    found = [topic_table(spark, source.table) for source in sources]
    base = _base(spark, target, before)
    noted = _notes_of(spark, target)
    given = []
    for source, table in zip(sources, found, strict=True):
        since = _begin(spark, noted, table, target, source.begin)
        new = increment(spark, table, since, source.until, source.offsets_max, source.skip_gone)
        given.append(Given(spark, table, new))
    if all(each.new.is_empty for each in given):
        return None
    notes = dict(_note(each.found, each.new.watermark) for each in given)
    published = _commit(spark, target, base, lambda name: job(given, name), notes, before)
    return [Progress(each.new.since, each.new.watermark, published) for each in given]


def exactly_once_rows(
    spark: SparkSession,
    source: str,
    target: str,
    rows: DataFrame,
    job: Job,
    *,
    before: Before = _ignore,
) -> Progress | None:
    """`exactly_once` over rows that a stream brought, by way of the table or of Kafka; None when the target
    has them all.

    `rows` have the table's `kafka.partition` and `kafka.offset`, are all that the topic has of each partition
    between the target's watermark and their last, and may begin before it: a batch that comes again changes
    nothing, so that streams and batch runs may take turns over one target. `source` is the topic's table,
    which may be behind the rows. Raises UnknownTable, OtherTopic, Unmarked, TargetMoved, and what the job
    raises.
    """
    found = topic_table(spark, source)
    base = _base(spark, target, before)
    since = _begin(spark, _notes_of(spark, target), found, target, None) or Watermark(found.end.topic_id)
    fresh = rows.where(beyond(since))
    ends = fresh.groupBy("kafka.partition").agg(F.max("kafka.offset").alias("last")).collect()
    last = {row["partition"]: row["last"] for row in ends}
    if not last:
        return None
    offsets = [last.get(partition, -1) + 1 for partition in range(max(last) + 1)]
    watermark = Watermark(found.end.topic_id).raised(offsets).raised(since.offsets)
    notes = dict([_note(found, watermark)])
    published = _commit(spark, target, base, lambda name: job(fresh, name), notes, before)
    return Progress(since, watermark, published)


def at_once(spark: SparkSession, target: str, job: Callable[[str], None], *, before: Before = _ignore) -> int:
    """Run `job(name)` on a branch of the target and make all that it wrote visible by one commit, which is
    refused when anybody else committed in the meantime; returns the snapshot.

    For repairs: the target's watermarks stay what they were. Raises UnknownTable, TargetMoved, and what the
    job raises.
    """
    return _commit(spark, target, _base(spark, target, before), job, {}, before)


def _base(spark: SparkSession, target: str, before: Before) -> int:
    """The target's snapshot that a run begins at."""
    table_properties(spark, target)
    _drop_leftovers(spark, target)
    base = head_of(spark, target)
    if base is None:
        before("make the first snapshot")
        _append_nothing(spark, target, {})
        base = head_of(spark, target)
    assert base is not None
    return base


def _begin(
    spark: SparkSession, noted: Notes, found: TopicTable, target: str, begin: Watermark | None
) -> Watermark | None:
    """From where a run reads. Notes are read after the base: a watermark that is newer than it ends the run,
    an older one would write rows twice.
    """
    since = _noted(noted, found, target, begin) or begin
    if since is None:
        _check_empty(spark, target, found)
    return since


def _note(found: TopicTable, watermark: Watermark) -> tuple[str, str]:
    return f"{PROPERTY}{found.end.topic_id}", f"{found.topic}={watermark}"


def _commit(
    spark: SparkSession,
    target: str,
    base: int,
    job: Callable[[str], None],
    notes: Mapping[str, str],
    before: Before,
) -> int:
    """The job on a branch from the base, the notes, and the move of main. Raises TargetMoved."""
    run = _Run(spark, target, base, *_name(spark))
    before("create the branch")
    run.create_branch()
    try:
        before("write")
        job(run.branch)
        before("note the watermark")
        _append_nothing(spark, run.branch, notes)
        before("publish")
        published = run.publish()
        before("drop the branch")
    except Exception:
        with contextlib.suppress(Exception):  # what failed is told; a branch that stays is removed later
            run.drop_branch()
        raise
    run.drop_branch()
    return published


def watermark_of(spark: SparkSession, source: str, target: str) -> Watermark | None:
    """Up to where runs over the topic's table `source` have read for `target` as it is now; None when there
    were none.

    Raises UnknownTable, and OtherTopic when they read an earlier topic of this name.
    """
    found = topic_table(spark, source)
    table_properties(spark, target)
    return _noted(_notes_of(spark, target), found, target, None)


def _notes_of(spark: SparkSession, target: str) -> Notes:
    """What the snapshots noted that main came from, the newest first."""
    head = head_of(spark, target)
    rows = spark.sql(
        "SELECT snapshot_id, parent_id, map_filter(summary, (name, value) -> "
        f"startswith(name, '{PROPERTY}')) AS noted FROM {target}.snapshots"
    ).collect()
    return newest_first(head, (row.asDict() for row in rows))


def newest_first(head: int | None, rows: Iterable[Mapping[str, Any]]) -> Notes:
    """What `head` and the snapshots that it came from have `noted`.

    Others' commits note nothing; those that were rolled back are no ancestors.
    """
    kept = {row["snapshot_id"]: row for row in rows}
    order = ancestry(head, {number: row["parent_id"] for number, row in kept.items()})
    return [kept[number]["noted"] for number in order if kept[number]["noted"]]


def _noted(noted: Notes, found: TopicTable, target: str, begin: Watermark | None) -> Watermark | None:
    for each in noted:
        if text := each.get(f"{PROPERTY}{found.end.topic_id}"):
            return Watermark.parse(text.rpartition("=")[2])
    for name, text in ((name, text) for each in noted for name, text in each.items()):
        topic, _, mark = text.rpartition("=")
        if topic == found.topic and begin is None:
            raise OtherTopic(
                f"target {target} has rows of an earlier topic {topic!r} (id {name.removeprefix(PROPERTY)}), "
                "up to "
                f"{mark}; table {found.table} is that of id {found.end.topic_id}: take a new target, or add "
                "the "
                f"new topic's rows to it with begin=Watermark({found.end.topic_id!r})"
            )
    return None


class _Run:
    """A run's branch of the target."""

    def __init__(self, spark: SparkSession, target: str, base: int, name: str, began_ms: int) -> None:
        self._spark = spark
        self._target = target
        self._base = base
        self._name = name
        self._began_ms = began_ms
        self.branch = f"{target}.branch_{name}"

    def create_branch(self) -> None:
        self._spark.sql(
            f"ALTER TABLE {self._target} CREATE BRANCH `{self._name}` AS OF VERSION {self._base}"
        ).collect()

    def drop_branch(self) -> None:
        self._spark.sql(f"ALTER TABLE {self._target} DROP BRANCH IF EXISTS `{self._name}`").collect()

    def publish(self) -> int:
        """Move main to the branch's snapshot. Raises TargetMoved."""
        head = self._checked_head()
        main = head_of(self._spark, self._target)
        if main != self._base:
            raise self._moved(f"is at {main} now")
        catalog = self._target.partition(".")[0]
        try:
            self._spark.sql(
                f"CALL {catalog}.system.fast_forward(table => '{self._target}', branch => 'main', to => "
                f"'{self._name}')"
            ).collect()
        except Exception as error:  # py4j's own too: what became of it is told by where main is now
            self._judge(head, error)
        return head

    def _judge(self, head: int, error: Exception) -> None:
        main = head_of(self._spark, self._target)
        if main == self._base:
            raise error
        if main != head:
            raise self._moved(f"is at {main} now") from error

    def _checked_head(self) -> int:
        """The branch's snapshot, which comes from the base by this run's commits only. Raises TargetMoved."""
        if now_ms(self._spark) - self._began_ms > RUN_HOURS_MAX * 3_600_000:
            raise TargetMoved(
                f"target {self._target}: the run took over {RUN_HOURS_MAX} h, and its branch may be "
                "gone: run it again with less, by offsets_max"
            )
        head = head_of(self._spark, self._target, self._name)
        rows = self._spark.sql(f"SELECT snapshot_id, parent_id FROM {self._target}.snapshots").collect()
        parents = {row["snapshot_id"]: row["parent_id"] for row in rows}
        if self._base not in ancestry(head, parents):
            raise self._moved(f"is no ancestor of the run's branch {self._name} any more")
        assert head is not None
        return head

    def _moved(self, how: str) -> TargetMoved:
        return TargetMoved(
            f"target {self._target} was at snapshot {self._base} when the run began. It {how}: another run, "
            "engine or maintenance committed to it, or the job wrote to it by its own name instead of the "
            "one that it is given. Nothing of this run is visible; run it again"
        )


def _check_empty(spark: SparkSession, target: str, found: TopicTable) -> None:
    """Raises Unmarked when a target without a watermark has rows."""
    if not spark.table(target).isEmpty():
        raise Unmarked(
            f"target {target} has rows, and no snapshot that it keeps tells up to where topic "
            f"{found.topic!r} "
            f"was read for them: give begin=Watermark({found.end.topic_id!r}) to read all, or "
            f"begin=Watermark.parse('…') for a later place (the end is {found.end}), or take an empty table"
        )


def _append_nothing(spark: SparkSession, table: str, summary: Mapping[str, str]) -> None:
    """A snapshot without rows that notes something."""
    writer = spark.table(table).where("false").writeTo(table).option("distribution-mode", "none")
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()


def _name(spark: SparkSession) -> tuple[str, int]:
    """A branch's name that no other run has, and when it was given, in Unix milliseconds."""
    row = spark.sql(
        "SELECT unix_millis(current_timestamp()) AS ms, replace(uuid(), '-') AS unique"
    ).collect()[0]
    return f"{BRANCH}{row['ms']}_{row['unique']}", row["ms"]


def _drop_leftovers(spark: SparkSession, target: str) -> None:
    """Remove the branches of runs that began so long ago that they publish no more."""
    rows = spark.sql(
        f"SELECT name FROM {target}.refs WHERE type = 'BRANCH' AND startswith(name, '{BRANCH}') AND "
        "CAST(split_part(name, '_', 3) AS BIGINT) < unix_millis(current_timestamp()) - "
        f"{2 * RUN_HOURS_MAX * 3_600_000}"
    ).collect()
    for row in rows:
        spark.sql(f"ALTER TABLE {target} DROP BRANCH IF EXISTS `{row['name']}`").collect()
