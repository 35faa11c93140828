"""`python -m iceberg.spark.maintenance URI`: small files of topics' tables made large by Spark.

For clusters that leave this to Spark (docs/tables.md, "By another engine"). Over each table of a topic it
does what Floe's catalog takes: data files of one Kafka partition, in one stretch of offsets, become few,
sorted as the table says, else by offset; and manifests become few. Each is one commit with the same rows, so
a job that is killed leaves whole tables, and the next run does the rest. Tables of the users' own are named
by pattern; their snapshots may be expired, and their orphaned files removed, as well.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase

from pyspark.sql import SparkSession

from iceberg.spark import procedures
from iceberg.spark.commands import add_reach, ended, one_line, started
from iceberg.spark.procedures import Table
from iceberg.spark.rewriting import STEP_BYTES_MAX, Sizes, Step, steps
from iceberg.spark.session import CATALOG
from iceberg.spark.topics import head_of
from iceberg.spark.watermark import JobError

TARGET_BYTES = 128 << 20
TARGET_BYTES_MAX = 512 << 20
FILES_MIN = 5
BYTES_MAX = 10 << 30
MANIFESTS_MIN = 50
MOVES_MAX = 3
"""Commits of others that one table's maintenance gives way to before it says so."""
ERRORS_MAX = 10
"""Errors of one table, behind which it is left alone."""
HOURS_MIN = 24
"""Younger orphans may be files of a commit that is under way; Spark removes none either."""

Before = Callable[[str, str], None]
"""Told table and step before each commit."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a run does. `topics`, `tables`: patterns of topics' names, and of `namespace.name` of any table
    (topics' and the users' own); with neither, all topics. `bytes_max`: of files that the run makes anew.
    Sizes in bytes; hours None: not at all.
    """

    topics: Sequence[str] = ()
    tables: Sequence[str] = ()
    target_bytes: int = TARGET_BYTES
    files_min: int = FILES_MIN
    bytes_max: int = BYTES_MAX
    manifests_min: int = MANIFESTS_MIN
    expire_hours: int | None = None
    orphan_hours: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        least = {
            "target_bytes": 1 << 10, "files_min": 2, "bytes_max": 1, "manifests_min": 2,
            "expire_hours": 0, "orphan_hours": HOURS_MIN,
        }  # fmt: skip
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise JobError(f"{name}={value}: give {low} or more")
        if self.target_bytes > TARGET_BYTES_MAX:
            raise JobError(f"target_bytes={self.target_bytes}: give {TARGET_BYTES_MAX} or less")

    def sizes(self, table: Table) -> Sizes:
        """What a table's files are made to be."""
        step = min(STEP_BYTES_MAX, self.bytes_max)
        is_sorted = table.is_sorted and table.topic is not None  # others' files need not keep offsets apart
        return Sizes(self.target_bytes, self.files_min, step, is_sorted)

    def wants(self, table: str) -> bool:
        """Whether a table is named, whosever it is."""
        return any(fnmatchcase(table, each) for each in self.tables)

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic is named; all are where nothing is."""
        patterns = self.topics if self.topics or self.tables else ("*",)
        return any(fnmatchcase(topic, each) for each in patterns)


@dataclass(slots=True)
class Outcome:
    """What was done of a table. `planned_*`: when it was looked at first; `left_*`: over the run's bytes;
    `moved`: how often somebody else had committed; `expired`, `orphans`: files removed (of a dry run: that
    would be; expiry is not foretold).
    """

    table: str
    topic: str | None
    planned_commits: int = 0
    planned_files: int = 0
    planned_bytes: int = 0
    commits: int = 0
    files: int = 0
    bytes: int = 0
    files_made: int = 0
    left_files: int = 0
    left_bytes: int = 0
    manifests: int = 0
    manifests_rewritten: int = 0
    expired_before: str | None = None
    expired: int = 0
    orphans: int = 0
    moved: int = 0
    errors: list[str] = field(default_factory=list)


def maintain(
    spark: SparkSession,
    upkeep: Upkeep,
    catalog: str = CATALOG,
    *,
    before: Before = lambda table, step: None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Outcome]:
    """Maintain the catalog's tables, one after the other; what goes wrong with one is in its `errors`.

    Raises JobError when nothing is there that the patterns name; what the catalog's listing raises.
    """
    found = procedures.tables(spark, catalog, upkeep.wants, upkeep.wants_topic)
    if not found and (upkeep.topics or upkeep.tables):
        named = ", ".join([*upkeep.topics, *upkeep.tables])
        raise JobError(f"catalog {catalog} has no table for {named}: `floe table list` names them")
    left, outcomes = upkeep.bytes_max, []
    for table in found:
        run = _Run(spark, upkeep, table, left, before)
        run.all()
        left = run.left
        outcomes.append(run.outcome)
        tell(_line(run.outcome))
    return outcomes


def _line(told: Outcome) -> str:
    """Of a table, for those who watch."""
    done = f"{told.files} of {told.planned_files} small files became {told.files_made}"
    errors = "".join(f"; {each}" for each in told.errors)
    return f"{told.table}: {done} in {told.commits} commits{errors}"


class _Run:
    """One table's maintenance. `left`: bytes that the run may still make anew."""

    def __init__(self, spark: SparkSession, upkeep: Upkeep, table: Table, left: int, before: Before) -> None:
        self._spark = spark
        self._upkeep = upkeep
        self._table = table
        self._sizes = upkeep.sizes(table)
        self._before = before
        self.left = left
        self.outcome = Outcome(table.name, table.topic)

    def all(self) -> None:
        """Each part; one that fails does not keep the others away."""
        if self._table.sick:
            self.outcome.errors.append(self._table.sick)
            return
        parts = [self._topics_files if self._table.topic is not None else self._own_files, self._manifests]
        if self._table.topic is None:
            parts += [self._expire, self._orphans]
        for part in parts:
            self._guarded(part)

    def _guarded(self, part: Callable[[], None]) -> None:
        """A part; again when somebody else had committed, and told when it does not come through."""
        while len(self.outcome.errors) < ERRORS_MAX:
            at = self._head()
            try:
                part()
            except Exception as error:  # one sick table must not stop the others: py4j's, Spark's, ours
                if self._moved_on(at):
                    continue
                self.outcome.errors.append(one_line(error))
            return

    def _head(self) -> int | None:
        """The table's snapshot; None, too, where it cannot be asked for: then what is done next says why."""
        try:
            return head_of(self._spark, self._table.sql)
        except Exception:  # whatever it is
            return None

    def _moved_on(self, since: int | None) -> bool:
        """Whether somebody else committed meanwhile: then it helps to look again, MOVES_MAX times at most."""
        moved = self._head() != since and self.outcome.moved < MOVES_MAX
        self.outcome.moved += moved
        return moved

    def _topics_files(self) -> None:
        """A stretch of one Kafka partition's files after the other; planned anew when the table moved on."""
        failed: set[tuple[int, int]] = set()
        queue = self._plan(failed)
        while queue and len(self.outcome.errors) < ERRORS_MAX:
            step = queue.popleft()
            if not self._affords(step.files, step.size):
                continue
            if self._upkeep.dry_run:
                self.left -= step.size
                continue
            at = self._head()
            try:
                self._rewrite(step)
            except Exception as error:  # the other stretches may be sound
                if self._moved_on(at):
                    self.outcome.left_files = self.outcome.left_bytes = 0
                    queue = self._plan(failed)
                    continue
                failed.add((step.partition, step.first))
                self.outcome.errors.append(one_line(error))

    def _plan(self, failed: set[tuple[int, int]]) -> deque[Step]:
        files = procedures.topic_files(self._spark, self._table)
        found = deque(
            each for each in steps(files, self._sizes) if (each.partition, each.first) not in failed
        )
        sums = (len(found), sum(each.files for each in found), sum(each.size for each in found))
        self._planned(*sums)
        return found

    def _planned(self, commits: int, files: int, size: int) -> None:
        told = self.outcome
        if not told.planned_commits:
            told.planned_commits, told.planned_files, told.planned_bytes = commits, files, size

    def _affords(self, files: int, size: int) -> bool:
        """Whether the run's bytes suffice; what is left is told."""
        if size <= self.left:
            return True
        self.outcome.left_files += files
        self.outcome.left_bytes += size
        return False

    def _rewrite(self, step: Step) -> None:
        self._before(self._table.name, f"rewrite partition {step.partition} from {step.first}")
        self._count(procedures.rewrite_sorted(self._spark, self._table, step, self._sizes))

    def _own_files(self) -> None:
        """All that is small, as far as the run's bytes go."""
        sizes = self._sizes
        files, size = procedures.own_files(self._spark, self._table, sizes)
        self._planned(min(1, files), files, size)
        if not files or self._upkeep.dry_run:
            return
        most = files if size <= self.left else self.left * files // size
        self.outcome.left_files, self.outcome.left_bytes = files - most, max(0, size - self.left)
        if most > 1:
            self._before(self._table.name, "rewrite")
            self._count(procedures.rewrite_own(self._spark, self._table, most, sizes))

    def _count(self, done: procedures.Rewritten) -> None:
        told = self.outcome
        told.commits += bool(done.files)
        told.files += done.files
        told.files_made += done.made
        told.bytes += done.size
        self.left = max(0, self.left - done.size)

    def _manifests(self) -> None:
        self.outcome.manifests = procedures.small_manifests(self._spark, self._table)
        if self.outcome.manifests < self._upkeep.manifests_min or self._upkeep.dry_run:
            return
        self._before(self._table.name, "rewrite manifests")
        self.outcome.manifests_rewritten = procedures.rewrite_manifests(self._spark, self._table)

    def _expire(self) -> None:
        if self._upkeep.expire_hours is None:
            return
        until = procedures.expiry(self._spark, self._table, self._upkeep.expire_hours)
        self.outcome.expired_before = until
        if not self._upkeep.dry_run:
            self._before(self._table.name, "expire snapshots")
            self.outcome.expired = procedures.expire(self._spark, self._table, until)

    def _orphans(self) -> None:
        if self._upkeep.orphan_hours is None:
            return
        self._before(self._table.name, "remove orphans")
        hours, dry = self._upkeep.orphan_hours, self._upkeep.dry_run
        self.outcome.orphans = procedures.remove_orphans(self._spark, self._table, hours, dry_run=dry)


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; prints one object of JSON."""
    arguments = _parser().parse_args(words)

    def work() -> int:
        upkeep = Upkeep(
            arguments.topics, arguments.tables, arguments.target_bytes, arguments.files_min,
            arguments.bytes_max, arguments.manifests_min, arguments.expire_older_than,
            arguments.orphans_older_than, arguments.dry_run,
        )  # fmt: skip
        spark = started(arguments)
        try:
            done = maintain(spark, upkeep, tell=lambda line: print(line, file=sys.stderr))
        finally:
            spark.stop()
        sick = [each.table for each in done if each.errors]
        print(
            json.dumps({"dry_run": upkeep.dry_run, "sick": sick, "tables": [asdict(each) for each in done]})
        )
        return 1 if sick else 0

    return ended("maintenance", work)


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m iceberg.spark.maintenance", description=__doc__)
    add_reach(found)
    for name, what in (("topics", "topics"), ("tables", "namespace.name of tables, your own too")):
        found.add_argument(f"--{name}", nargs="+", default=[], metavar="PATTERN", help=f"{what}; * is any")
    for name, default, what in (
        ("target-bytes", TARGET_BYTES, "of a file, bytes"),
        ("files-min", FILES_MIN, "small neighbours that are worth a rewrite"),
        ("bytes-max", BYTES_MAX, "of the files that this run makes anew"),
        ("manifests-min", MANIFESTS_MIN, "small manifests that are worth a rewrite"),
    ):
        found.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default {default})")
    own = "of tables of your own: "
    for name, what in (("expire", "snapshots"), ("orphans", "files that no snapshot names,")):
        text = f"{own}remove {what} older than so many days or hours, such as 7d or 36h"
        found.add_argument(f"--{name}-older-than", type=_hours, metavar="AGE", help=text)
    found.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return found


def _hours(text: str) -> int:
    """7d or 36h as hours."""
    read = re.fullmatch(r"([0-9]{1,6})([dh])", text)
    if read is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number and d or h, such as 7d or 36h")
    return int(read[1]) * (24 if read[2] == "d" else 1)


if __name__ == "__main__":
    sys.exit(main())
