"""What an audit is given: which tables, what was sent or read, and what is known of the topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession

from iceberg.spark.digested import Digested
from iceberg.spark.schemas import TopicSchemas
from iceberg.spark.seen import Earlier
from iceberg.spark.tables import SHA256, XXHASH, Digest, beyond
from iceberg.spark.verdict import EXAMPLES_MAX
from objectstore.offset_ranges import joined as joined_ranges
from objectstore.offset_ranges import outside

Stretches = Sequence[tuple[int, int]]
"""Ranges of offsets, in order and apart: the first and that behind the last."""
Holes = Callable[[tuple[str, int], Stretches], Stretches]
"""Is asked of a partition, for these stretches of it."""
Reading = Callable[[SparkSession, Digest, Mapping[int, Stretches]], DataFrame]
"""Gives the committed records of the topic in these stretches, by partition, in the columns of a history."""


@dataclass(frozen=True, slots=True)
class Account:
    """How many records of a topic the writer meant to send, and how many of them had to be refused."""

    produced: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """How records leave a topic.

    `compacted`: also for newer ones of their key; `table_follows`: below the log start also from its table.
    """

    compacted: bool = False
    table_follows: bool = False


@dataclass(frozen=True, slots=True)
class AuditInput:
    """What to compare. `tables` maps topic to table (`lake.namespace.name`).

    `sent` and `consumed` are folders or files of Parquet histories, each optional but not both; `consumed`
    may also be what Spark reads itself. Tables are compared below `ends` (topic → partition → offset) where
    given: a live topic has a moving end.
    `log_start`: what is below it needs not be read; `leaving`: by topic, where it is not only by that.
    `holes`: ranges of offsets, in order and apart, that hold no record for readers of committed data, such as
    markers of transactions: they are no gaps; or who is asked for them, of partitions that are not dense.
    `skipped`: ranges likewise of which damaged records are passed over: what one side lacks there is right,
    what two sides have is compared.
    `schemas`: of the topics whose tables' columns are compared as well. `high_watermarks` is asked once the
    tables' snapshots are chosen: no row may be at or beyond them, while those from `ends` up to them came
    too late to be judged. A partition that neither names is none of the topic's. `since`: rows of the table
    below it are not compared (an earlier audit did); histories begin there too. `seen`: by topic what that
    audit saw of the table's files: rows of those are not read again (seen.py); `seen_at`: in which of its
    snapshots, whose list is not read again (unseen.py). `tell` is told, by topic, what this one saw of files,
    for the next if this one finds nothing.
    `digests`: ranges that count (digested.usable), which earlier audits found equal: rows there are compared
    with their sums (digests.py) and, where they are those, not with the topic: such ranges are `covered`.
    `tell_digests` is told, by partition, the sums of what this one found equal, if it finds nothing.
    `examples`: findings of each kind that are told.
    """

    tables: Mapping[str, str]
    sent: Path | None = None
    consumed: Path | Reading | None = None
    accounts: Mapping[str, Account] = field(default_factory=dict)
    log_start: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    holes: Mapping[tuple[str, int], Sequence[tuple[int, int]]] | Holes = field(default_factory=dict)
    skipped: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = field(default_factory=dict)
    leaving: Mapping[str, Leaving] = field(default_factory=dict)
    schemas: Mapping[str, TopicSchemas] = field(default_factory=dict)
    high_watermarks: Callable[[], Mapping[tuple[str, int], int]] | None = None
    since: Mapping[tuple[str, int], int] = field(default_factory=dict)
    seen: Mapping[str, DataFrame] = field(default_factory=dict)
    seen_at: Mapping[str, int] = field(default_factory=dict)
    tell: Callable[[str, DataFrame], object] | None = None
    digests: Mapping[tuple[str, int], Sequence[Digested]] = field(default_factory=dict)
    covered: Mapping[tuple[str, int], Stretches] = field(default_factory=dict)
    tell_digests: Callable[[Mapping[int, Sequence[Digested]]], object] | None = None
    examples: int = EXAMPLES_MAX

    def due(self, place: tuple[str, int]) -> list[tuple[int, int]]:
        """The stretches of a partition that are compared with what is in the topic."""
        first = max(self.log_start.get(place, 0), self.since.get(place, 0))
        return list(outside(first, self.ends.get(place, 0), self.covered.get(place, ())))

    def no_gaps(self, place: tuple[str, int]) -> list[tuple[int, int]]:
        """The ranges of a partition that need hold no record, in order and apart."""
        holes = self.holes(place, self.due(place)) if callable(self.holes) else self.holes.get(place, ())
        return joined_ranges([*holes, *self.skipped.get(place, ()), *self.covered.get(place, ())])

    def rows(self, topic: str) -> Column:
        """Which rows of its table are compared."""
        return beyond(topic, self.since, self.covered)

    def earlier(self, topic: str) -> Earlier:
        """What earlier audits compared of a topic's table."""
        follows = topic in self.topics_that(lambda how: how.table_follows)
        left = self.log_start if follows else {}
        return Earlier(self.since, self.seen.get(topic), left, self.seen_at.get(topic))

    @property
    def digest(self) -> Digest:
        """By which hash the sides are compared: that of histories, where there is one."""
        return SHA256 if isinstance(self.sent, Path) or isinstance(self.consumed, Path) else XXHASH

    @property
    def records(self) -> int:
        """About how many there are to compare; 0 where nobody knows."""
        return sum(end - first for place in self.ends for first, end in self.due(place))

    def topics_that(self, leave: Callable[[Leaving], bool]) -> list[str]:
        """The topics whose records leave in this way."""
        return sorted(topic for topic, how in self.leaving.items() if leave(how))
