"""`python -m iceberg.spark.backfill URI SOURCE TARGET …`: rows of a target made anew from a topic's table.

For a target whose rows were computed by other rules, spoilt or deleted (`rebuild`), and for records that
could not be decoded when they were written and can be now (`repair`). Each is one commit of the target that
is refused when a run committed meanwhile, and says the same when it is done again, if what writes is
idempotent, as `merge_into` is. The target's watermarks stay, and nothing beyond them is read: that is left to
the runs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark.commands import add_reach, ended, started
from iceberg.spark.decoding import decoder
from iceberg.spark.flat import spread, value_type
from iceberg.spark.jobs import Before, Job, at_once, watermark_of
from iceberg.spark.reading import increment
from iceberg.spark.sinks import merge_into
from iceberg.spark.topics import TopicTable, topic_table
from iceberg.spark.watermark import JobError, Watermark

EXAMPLES_MAX = 5


def _ignore(step: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which of a topic's rows. `offsets`: by partition the first one and the end, no others; none named: all
    partitions whole. `since`, `until`: record timestamps in SQL's form, the second one not included.
    """

    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    since: str = ""
    until: str = ""

    def bounds(self, end: Watermark) -> tuple[Watermark, Watermark]:
        """Watermarks before and behind it, of what goes up to `end`. Raises JobError."""
        for partition, (first, last) in self.offsets.items():
            if not 0 <= first < last <= end.at(partition):
                raise JobError(
                    f"offsets {partition}:{first}-{last}: partition {partition} is read up to offset "
                    f"{end.at(partition)}; give a first one and a later end that is not beyond, further rows "
                    "come with the target's next run"
                )
        if not self.offsets:
            return Watermark(end.topic_id, (0,) * len(end.offsets)), end
        named = [self.offsets.get(at, (last, last)) for at, last in enumerate(end.offsets)]
        sides = (tuple(first for first, _ in named), tuple(last for _, last in named))
        return Watermark(end.topic_id, sides[0]), Watermark(end.topic_id, sides[1])

    def times(self) -> str:
        """The condition on timestamps, in SQL."""
        told = [("kafka.timestamp >=", self.since), ("kafka.timestamp <", self.until)]
        return " AND ".join(f"{side} TIMESTAMP '{_instant(at)}'" for side, at in told if at) or "true"


def _instant(text: str) -> str:
    """A time as SQL may be given it. Raises JobError."""
    if not re.fullmatch(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.]{5,15})?( ?[A-Za-z/_]+|Z|[+-][0-9:]{2,6})?", text
    ):
        raise JobError(f"time {text!r}: write 2026-11-01 or 2026-11-01T10:00:00Z")
    return text


class Repaired(NamedTuple):
    """Records that came back, records that stay as they are, and why the first of those do:
    `partition:offset: reason`.
    """

    back: int
    stay: int
    reasons: Sequence[str]


def rebuild(
    spark: SparkSession,
    source: str,
    target: str,
    write: Job,
    span: Span | None = None,
    *,
    clear: str = "",
    skip_gone: bool = False,
    before: Before = _ignore,
) -> int:
    """Give `write(rows, target)` the span's rows that the target's runs have read (all that there are where
    none has run), and make what it writes visible by one commit; returns the snapshot.

    `write` is what a job is (`exactly_once`): with `merge_into(…, again=True)` the same rows say the same
    again. `clear`: a condition in SQL; rows of the target that meet it are taken out first, by the same
    commit: name what the span makes anew, and no more. Raises JobError for a span that is not there, RowsGone
    where retention took rows of it (unless `skip_gone`), what `at_once` and `write` raise.
    """
    rows = _rows(spark, source, target, span or Span(), skip_gone)

    def job(name: str) -> None:
        if clear:
            spark.sql(f"DELETE FROM {name} WHERE {clear}")
            before("write what is made anew")
        write(rows, name)

    return at_once(spark, target, job, before=before)


def repair(
    spark: SparkSession,
    source: str,
    target: str,
    decode: Callable[[Column], Column],
    write: Job,
    span: Span | None = None,
    *,
    before: Before = _ignore,
) -> Repaired:
    """Decode the span's rows that have an `__err__` by `decode` (bytes to the whole struct `value`, as
    `decoder` makes one; of a flat table with what `value_type` says), and give those that succeed to
    `write(rows, target)`, by one commit; the topic's table stays.

    Rows without bytes (`tables.raw_bytes=false`) stay. So that a later record of the same key holds, write by
    `merge_into(…, newest_by=…)`. Raises what `rebuild` raises, and JobError for a struct without columns.
    """
    rows = _rows(spark, source, target, span or Span(), True)
    tried = rows.where("value.__err__ IS NOT NULL").withColumn("value", decode(F.col("value.__raw__")))
    tried = tried.localCheckpoint()  # decoded once
    spread(tried)  # what cannot be is said before anything is written
    good = tried.where("value IS NOT NULL AND value.__err__ IS NULL")
    bad = tried.where("value IS NULL OR value.__err__ IS NOT NULL")
    back, stay = good.count(), bad.count()
    first = bad.select("kafka.partition", "kafka.offset", "value.__err__").orderBy("partition", "offset")
    reasons = [
        f"{row['partition']}:{row['offset']}: {row['__err__'] or 'its bytes were not kept'}"
        for row in first.limit(EXAMPLES_MAX).collect()
    ]
    if back:
        at_once(spark, target, lambda name: write(spread(good), name), before=before)
    return Repaired(back, stay, reasons)


def _rows(spark: SparkSession, source: str, target: str, span: Span, skip_gone: bool) -> DataFrame:
    found = topic_table(spark, source)
    since, until = span.bounds(_end(spark, found, source, target))
    return increment(spark, found, since, until, None, skip_gone).rows.where(span.times())


def _end(spark: SparkSession, found: TopicTable, source: str, target: str) -> Watermark:
    """Up to where the target's runs have read, and not beyond the table: a stream may be ahead of it."""
    mark = watermark_of(spark, source, target)
    if mark is None:
        return found.end
    offsets = (min(at, found.end.at(partition)) for partition, at in enumerate(mark.offsets))
    return Watermark(found.end.topic_id, tuple(offsets))


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; prints one object of JSON."""
    arguments = _parser().parse_args(words)

    def work() -> int:
        _check(arguments)
        span = Span(dict(arguments.offsets), arguments.since, arguments.until)
        span.times()  # what is wrong with the command line is said before Spark takes its time
        write = _write(arguments)
        descriptors = arguments.descriptors.read_bytes() if arguments.descriptors else None
        spark = started(arguments)
        try:
            told = _done(spark, arguments, write, span, descriptors)
        finally:
            spark.stop()
        print(json.dumps(told))
        return 0

    return ended("backfill", work)


def _check(given: argparse.Namespace) -> None:
    """Raises JobError for arguments that do not go together."""
    if bool(given.descriptors) != bool(given.message):
        raise JobError("--descriptors and --message: give both, or none")
    if given.descriptors and given.clear:
        raise JobError(
            f"--clear {given.clear}: what could not be decoded has no rows to take out; leave it out"
        )


def _done(
    spark: SparkSession, given: argparse.Namespace, write: Job, span: Span, descriptors: bytes | None
) -> dict[str, object]:
    if descriptors is None:
        snapshot = rebuild(
            spark, given.source, given.target, write, span, clear=given.clear, skip_gone=given.skip_gone
        )
        return {"rows": spark.table(given.target).count(), "snapshot": snapshot}
    topic_table(spark, given.source)
    value = value_type(spark.table(given.source).schema)
    decode = decoder(descriptors, given.message, value, framed=not given.plain)
    return repair(spark, given.source, given.target, decode, write, span)._asdict()


def _write(given: argparse.Namespace) -> Job:
    """What the command line says of writing. Raises JobError."""
    if given.write:
        return _function(given.write)
    if not given.key or not given.select:
        raise JobError("say how rows are written: --write MODULE:FUNCTION, or --select and --key")

    def merge(rows: DataFrame, target: str) -> None:
        chosen = rows.where(given.where or "true").selectExpr(*given.select)
        merge_into(chosen, target, given.key, newest_by=given.newest_by, again=True)

    return merge


def _function(name: str) -> Job:
    """`module:function`, of the folder that this is started in too. Raises JobError."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Job = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(
            f"--write {name}: {error}; give module:function, which takes (rows, target)"
        ) from error
    return found


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m iceberg.spark.backfill", description=__doc__)
    add_reach(found)
    found.add_argument("source", help="a topic's table, catalog.namespace.name")
    found.add_argument("target", help="the table that is made anew")
    how = found.add_argument_group("how rows are written")
    how.add_argument(
        "--write", default="", metavar="MODULE:FUNCTION", help="function(rows, target) of your job"
    )
    how.add_argument("--select", nargs="+", default=[], metavar="SQL", help="or columns, such as value.id")
    how.add_argument("--where", default="", metavar="SQL", help="of these rows only, with --select")
    how.add_argument("--key", nargs="+", default=[], metavar="COLUMN", help="one row each, with --select")
    how.add_argument("--newest-by", nargs="+", default=[], metavar="COLUMN", help="the greatest counts")
    how.add_argument("--clear", default="", metavar="SQL", help="take these rows of the target out first")
    which = found.add_argument_group("which rows; all that the target's runs have read without these")
    which.add_argument(
        "--offsets",
        nargs="+",
        type=_range,
        default=[],
        metavar="PARTITION:FIRST-END",
        help="END not included",
    )
    which.add_argument("--since", default="", metavar="TIME", help="by the records' timestamps")
    which.add_argument("--until", default="", metavar="TIME", help="not included")
    which.add_argument("--skip-gone", action="store_true", help="go on where retention took rows")
    mended = found.add_argument_group("only what could not be decoded, decoded by")
    mended.add_argument("--descriptors", type=Path, help="a FileDescriptorSet with imports")
    mended.add_argument("--message", default="", help="full name of the message")
    mended.add_argument("--plain", action="store_true", help="values without Confluent's frame")
    return found


def _range(text: str) -> tuple[int, tuple[int, int]]:
    """0:100-200."""
    read = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})-([0-9]{1,18})", text)
    if read is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write PARTITION:FIRST-END, such as 0:100-200")
    return int(read[1]), (int(read[2]), int(read[3]))


if __name__ == "__main__":
    sys.exit(main())
